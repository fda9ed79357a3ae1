"""Small random instances of every model, and their solution by listing all outputs.

A model is registered by a generator `(rng) -> (model, X, Y)` in MODELS: a model before `prepare`, a few inputs, and
partial annotations of them, with examples that are not annotated at all among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array, Mask, Space, Task
from clew.models.assignment import Assignment
from clew.models.base import Model
from clew.models.binary_program import BinaryProgram
from clew.models.chain import Chain
from clew.models.graph import Graph
from clew.models.highs_solver import Program
from clew.models.multiclass import Multiclass
from clew.models.tree import Tree

Generate = Callable[[np.random.Generator], tuple[Model, Any, Any]]


def partial_labels(rng: np.random.Generator, n: int, classes: Sequence[Any]) -> Any:
    """Labels, candidate sets and unknowns for n nodes; now and then nothing at all, or an array of states."""
    if rng.random() < 0.15:
        return None
    truth = rng.integers(len(classes), size=n)
    if classes == list(range(len(classes))) and rng.random() < 0.5:
        return np.where(rng.random(n) < 0.6, truth, -1)
    labels = []
    for state in truth:
        others = rng.choice(
            len(classes), size=rng.integers(0, len(classes) + 1), replace=False
        )
        candidates = {classes[state], *(classes[s] for s in others)}
        labels.append(
            [classes[state], None, candidates, np.nan][
                rng.choice(4, p=[0.4, 0.2, 0.3, 0.1])
            ]
        )
    return labels


def some_classes(rng: np.random.Generator) -> list[Any]:
    return [[0, 1], [0, 1, 2], ["a", "b", "c"], [-1, 1], ["x", 3, 2.5], [7]][
        rng.integers(6)
    ]


def multiclass(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    classes = some_classes(rng)
    Y = partial_labels(rng, 6, classes)
    model = Multiclass(classes=classes, bias=bool(rng.integers(2)))
    return model, rng.normal(size=(6, 3)), [None] * 6 if Y is None else Y


def chain(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    classes = some_classes(rng)
    lengths = rng.integers(1, 5, size=4)
    bias, boundary, normalize = (bool(flag) for flag in rng.integers(2, size=3))
    model = Chain(classes=classes, bias=bias, boundary=boundary, normalize=normalize)
    return (
        model,
        [rng.normal(size=(n, 2)) for n in lengths],
        [partial_labels(rng, n, classes) for n in lengths],
    )


def constrained_chain(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    """Entities of one kind: I neither begins a sequence nor follows O; B does not end one."""
    forbidden = [("O", "I"), (None, "I"), ("B", None)]
    legal = {
        1: ["O"],
        2: ["OO", "BI"],
        3: ["OBI", "BII", "BIO", "BBI", "OOO"],
        4: ["OBII", "BIBI", "BIOO", "OOOO", "BBII"],
    }
    X = []
    Y = []
    for n in rng.integers(1, 5, size=4):
        truth = legal[n][rng.integers(len(legal[n]))]
        labels: list[Any] = []
        for label in truth:
            other = "OBI"[rng.integers(3)]
            choices = [label, None, {label, other}]
            labels.append(choices[rng.choice(3, p=[0.4, 0.35, 0.25])])
        X.append(rng.normal(size=(n, 2)))
        Y.append(labels)
    flags = rng.integers(2, size=3).astype(bool).tolist()
    bias, boundary, normalize = flags
    model = Chain(
        classes=["B", "I", "O"],
        bias=bias,
        boundary=boundary,
        normalize=normalize,
        forbidden=forbidden,
    )
    return model, X, Y


def tree(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    classes = some_classes(rng)
    sizes = rng.integers(1, 6, size=4)
    X = []
    for n in sizes:
        # a forest whose nodes are numbered in no particular order
        older, name = (
            np.array([rng.integers(-1, v) if v else -1 for v in range(n)]),
            rng.permutation(n),
        )
        parents = np.empty(n, dtype=int)
        parents[name] = np.where(older < 0, -1, name[older])
        X.append((rng.normal(size=(n, 2)), parents))
    bias, normalize = (bool(flag) for flag in rng.integers(2, size=2))
    return (
        Tree(classes=classes, bias=bias, normalize=normalize),
        X,
        [partial_labels(rng, n, classes) for n in sizes],
    )


def graph(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    classes = some_classes(rng)
    bias, symmetric, normalize, with_edge_features = (
        bool(flag) for flag in rng.integers(2, size=4)
    )
    X = []
    for n in (1, 3, 4, 4):
        # odd cycles, on which the linear programme is often fractional, and a chord
        edges = np.array(
            [(i, (i + 1) % n) for i in range(n) if n > 1]
            + [(0, 2)] * (n == 4 and rng.random() < 0.5)
        )
        edges = rng.permutation(edges.reshape(-1, 2).astype(int))
        X.append(
            (
                rng.normal(size=(n, 2)) * 0.5,
                edges,
                *[rng.normal(size=(len(edges), 2)) * 2] * with_edge_features,
            )
        )
    model = Graph(classes=classes, bias=bias, symmetric=symmetric, normalize=normalize)
    return model, X, [partial_labels(rng, len(x[0]), classes) for x in X]


def assignment(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    X, Y = [], []
    m = rng.integers(
        1, 6
    )  # the same for all, so that an annotation alone tells which candidates are all columns
    for n in rng.integers(1, min(m, 4) + 1, size=4):
        truth = rng.permutation(m)[:n]
        others = [
            set(rng.choice(m, size=rng.integers(0, m), replace=False).tolist())
            for _ in range(n)
        ]
        kinds = rng.choice(3, size=n, p=[0.4, 0.3, 0.3])
        labels = [
            [int(t), [None, -1][rng.integers(2)], {int(t), *o}][k]
            for t, o, k in zip(truth, others, kinds, strict=True)
        ]
        X.append(rng.normal(size=(n, m, 3)))
        Y.append(
            [labels, None, np.where(kinds == 0, truth, -1)][
                rng.choice(3, p=[0.6, 0.2, 0.2])
            ]
        )
    return Assignment(normalize=bool(rng.integers(2))), X, Y


def program(rng: np.random.Generator) -> tuple[Model, Any, Any]:
    X, Y = [], []
    for n in rng.integers(1, 8, size=4):
        kind = rng.integers(3)
        if (
            kind == 0 and n >= 3
        ):  # at most one of each two neighbours on a cycle: halves are the LP's optimum
            A, lower, upper = (
                np.eye(n) + np.roll(np.eye(n), 1, axis=1),
                np.full(n, -np.inf),
                np.ones(n),
            )
        elif kind == 1:  # exactly so many
            A, lower, upper = np.ones((1, n)), np.array([n // 2]), np.array([n // 2])
        else:  # a knapsack with signs, around an output so that there is one
            A = rng.integers(-3, 4, size=(2, n)).astype(float)
            lower = A @ rng.integers(2, size=n) - 1
            upper = lower + rng.integers(2, 4, size=2)
        x = Program(
            rng.normal((1.0, 0.0, 0.0), size=(n, 3)), sp.csr_array(A), lower, upper
        )
        outputs = list(BinaryProgram().outputs(x))
        truth = outputs[rng.integers(len(outputs))]
        labels = np.where(rng.random(n) < 0.5, truth, -1)
        as_mapping = {i: int(v) for i, v in enumerate(labels) if v >= 0}
        X.append(x)
        Y.append([labels, None, as_mapping][rng.choice(3, p=[0.5, 0.2, 0.3])])
    return BinaryProgram(normalize=bool(rng.integers(2))), X, Y


MODELS: list[Generate] = [
    multiclass,
    chain,
    constrained_chain,
    tree,
    graph,
    assignment,
    program,
]


@dataclass(frozen=True)
class Listing:
    """All outputs of one example, with φ (m, d) and Δ (m,)."""

    outputs: list[Any]
    features: Array
    loss: Array

    def inside(self, space: Space) -> Mask:
        """(m,) which outputs belong to the space, for Δ that is zero exactly on Y*."""
        return {
            Space.ALL: self.loss >= 0,
            Space.COMPATIBLE: self.loss == 0,
            Space.INCOMPATIBLE: self.loss > 0,
        }[space]

    def best(self, w: Array, space: Space, loss_weight: float) -> float:
        """The largest <w, φ> + loss_weight · Δ in the space; minus infinity where it is empty."""
        return float(
            np.max(
                (self.features @ w + loss_weight * self.loss)[self.inside(space)],
                initial=-np.inf,
            )
        )


@dataclass(frozen=True)
class Instance:
    """A prepared model with its data, its task, weights, and the listing of every example."""

    model: Model
    X: Any
    Y: Any
    task: Task
    w: Array
    listings: list[Listing]


def instances(generate: Generate, n: int = 30) -> list[Instance]:
    """The same random instances for all tests."""
    return [instance(generate, seed) for seed in range(n)]


@cache
def instance(generate: Generate, seed: int) -> Instance:
    """One of them; listing its outputs takes longest, so that each is made once and only if a test needs it."""
    rng = np.random.default_rng(seed)
    model, X, Y = generate(rng)
    model = model.prepare(X, Y)
    listings = []
    for x, y in zip(X, Y, strict=True):
        outputs = list(model.outputs(x))
        features = np.array([model.joint_features(x, output) for output in outputs])
        listings.append(
            Listing(
                outputs,
                features,
                np.array([model.loss(y, output) for output in outputs]),
            )
        )
    return Instance(
        model, X, Y, model.task(X, Y), rng.normal(size=model.n_features), listings
    )


def mapped_floats(x: Any, change: Callable[[Array], Any]) -> Any:
    """X with `change` done to every float array in it."""
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        return change(x)
    return (
        type(x)(mapped_floats(part, change) for part in x)
        if isinstance(x, (list, tuple))
        else x
    )
