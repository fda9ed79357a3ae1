"""What models with a label at each node share: their domain, the task loss, and the parts of an annotation."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.base import MAX_TABLE, MAX_WEIGHTS, Model, check_lengths, check_size
from clew.models.examples import Annotation, Input, Output
from clew.models.labels import Classes, Label, LabelSpace, is_flat, is_parsed
from clew.models.node_features import as_matrix, place_in
from clew.models.weight_blocks import Block, input_names, make_blocks
from clew.utils.validation import is_number, short_repr

LABEL_SCALES = 1e-30, 1e30
"""Sizes of label features whose squares, summed over any data, are still numbers."""


class NodeModel(Model):
    """Base of the models whose output is a label for each node of x.

    Δ(y*, y) counts the annotated nodes whose label is not among the candidates, divided by the number of annotated
    nodes where `normalize` asks for it. A node is annotated when its candidates are not all the classes.
    """

    domain_names: tuple[str, ...] = (
        "classes_",
        "n_inputs_",
        "label_scale_",
        "class_weight_",
    )
    class_weight_: list[float] | None = None
    """What a mistake costs at a node of each class; all 1 where it is None."""
    classes_: list[Label]
    n_inputs_: int
    label_scale_: float

    def __init__(
        self,
        n_states: int | None = None,
        classes: Classes | None = None,
        bias: bool = True,
        normalize: bool = False,
        label_scale: float | str = "auto",
    ) -> None:
        self.n_states = n_states
        self.classes = classes
        self.bias = bias
        self.normalize = normalize
        # the size of the features that depend on labels alone (bias, transitions, boundary); "auto" is the root mean
        # square norm of an input row. Under ‖w‖², a feature's size is how cheaply its weight grows: at size 1 beside
        # pixels with a norm of 5, transitions would be regularised 25 times as hard as the inputs, and what is learned
        # would change with the unit of the inputs
        self.label_scale = label_scale

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(T, F) the features of x's nodes; `example` is for error messages."""
        raise NotImplementedError

    def n_edge_features(self, n_states: int) -> int:
        """How many features follow those of the nodes."""
        raise NotImplementedError

    @property
    def labels(self) -> LabelSpace:
        """The labels of a node."""
        if not hasattr(self, "classes_"):
            raise InputError(
                f"this {type(self).__name__} does not know its classes yet: call prepare(X, Y)"
            )
        return LabelSpace(tuple(self.classes_))

    @property
    def n_features(self) -> int:  # type: ignore[override]  # follows from the domain, nobody sets it
        """The number of weights: S·F (unary) + S (bias) + the features of the edges."""
        n_states = self.labels.n_states
        return n_states * (self.n_inputs_ + bool(self.bias)) + self.n_edge_features(
            n_states
        )

    def learn_domain(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """A copy that knows the classes, the number of input features and the size of label features."""
        check_lengths(X, Y)
        model = copy.copy(self)
        matrices = [as_matrix(self.node_features(x, i), i) for i, x in enumerate(X)]
        model.n_inputs_ = int(matrices[0].shape[1])
        self._check_states(self.n_states, matrices)
        model.classes_ = list(LabelSpace.of(Y, self.classes, self.n_states).classes)
        self._check_states(len(model.classes_), matrices)
        model.label_scale_ = check_label_scale(self.label_scale, matrices)
        return model

    def _check_states(self, n_states: object, matrices: Sequence[Matrix]) -> None:
        """Refuse a number of states for which weights or scores would not fit into memory."""
        if is_number(n_states) and n_states > 1:
            S, name = (
                float(min(n_states, 10**18)),
                f"a {type(self).__name__} with {short_repr(n_states)} states",
            )
            check_size(
                S * matrices[0].shape[1] + S * S, MAX_WEIGHTS, f"{name}: its weights"
            )
            check_size(
                S * sum(m.shape[0] for m in matrices), MAX_TABLE, f"{name}: its scores"
            )

    def parsed(self, X: Sequence[Input], Y: Sequence[Annotation]) -> list[Mask]:
        """Each annotation as a boolean (T, S) matrix of the states that it allows."""
        lengths = [
            as_matrix(self.node_features(x, i), i).shape[0] for i, x in enumerate(X)
        ]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
        return np.split(stack_allowed(self.labels, Y, offsets), offsets[1:-1])

    @property
    def column_scale(self) -> Array:
        """(d,) the size of each feature: 1 for those of the inputs, `label_scale_` for the others."""
        scale = np.full(self.n_features, self.label_scale_)
        scale[: self.labels.n_states * self.n_inputs_] = 1.0
        return scale

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs, labels, transitions and ends."""
        labels = [str(label) for label in self.classes_]
        parts: list[tuple[str, Sequence[Sequence[str]]]] = [
            ("input", [labels, input_names(names, self.n_inputs_)])
        ]
        parts += [("bias", [labels])] * bool(self.bias)
        return make_blocks(*parts)

    def node_costs(self, allowed: Mask) -> Array:
        """(T,) what a mistake costs at each node: the mean weight of its candidates."""
        if self.class_weight_ is None:
            return np.ones(len(allowed))
        return np.asarray(
            allowed @ np.array(self.class_weight_) / np.maximum(allowed.sum(axis=1), 1)
        )

    def outputs(self, x: Input) -> Iterator[NDArray[np.generic]]:
        """All S^T labelings."""
        space = self.labels
        for states in product(
            range(space.n_states),
            repeat=as_matrix(self.node_features(x), None).shape[0],
        ):
            yield space.decode(np.array(states, dtype=np.intp))

    def loss(self, annotation: Annotation, y: Output) -> float:
        """Δ(y*, y) = Σ over annotated nodes of [y_t is no candidate] (/ their number), each with its class' weight."""
        states = self.labels.encode(y)
        allowed = self.labels.allowed(annotation, len(states))
        costs = self.node_costs(allowed)
        wrong = float(costs[~allowed[np.arange(len(states)), states]].sum())
        return (
            wrong / float(costs[~allowed.all(axis=1)].sum())
            if self.normalize and wrong
            else wrong
        )

    def mistakes(self, annotation: Annotation, y: Output) -> int:
        """How many annotated nodes have a label in y that is no candidate."""
        space = self.labels
        states = space.encode(y)
        return int(
            (
                ~space.allowed(annotation, len(states))[np.arange(len(states)), states]
            ).sum()
        )

    def n_parts(self, annotation: Annotation) -> int:
        """How many nodes are annotated."""
        return len(annotated_nodes(self.labels, annotation))

    def parts(self, x: Input, y: Output) -> list[Mask]:
        """For each node an annotation of it alone: the label that y gives it."""
        n = as_matrix(self.node_features(x), None).shape[0]
        alone = [np.ones((n, self.labels.n_states), dtype=bool) for _ in range(n)]
        for node, state in enumerate(self.labels.encode(y, n)):
            alone[node][node] = np.arange(self.labels.n_states) == state
        return alone

    def candidates(self, x: Input, annotation: Annotation) -> Mask:
        """(T, S) the states that the annotation allows at each node."""
        return self.labels.allowed(
            annotation, as_matrix(self.node_features(x), None).shape[0]
        )

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation with the marked ones of its annotated nodes unknown: -1 among integers, else None."""
        space = self.labels
        nodes = annotated_nodes(space, annotation)
        if len(parts) != len(nodes):
            raise InputError(
                f"the mask has {len(parts)} entries for {len(nodes)} annotated nodes"
            )
        hidden = nodes[np.asarray(parts, dtype=bool)]
        if not len(hidden):
            return annotation
        if (
            is_flat(annotation)
            and annotation.dtype.kind in "iu"
            and -1 not in space.classes
        ):
            integers = annotation.astype(np.int64)
            integers[hidden] = -1
            return integers
        if is_parsed(annotation):
            shown = annotation.copy()
            shown[hidden] = True
            return shown
        labels = list(annotation)
        for node in hidden:
            labels[node] = None
        return labels


def check_label_scale(label_scale: object, matrices: Sequence[Matrix]) -> float:
    """The size of label features: the number that was given, or the root mean square norm of all input rows."""
    if isinstance(label_scale, str) and label_scale == "auto":
        entries = [
            np.asarray(m.data if sp.issparse(m) else m, dtype=float) for m in matrices
        ]
        with np.errstate(over="ignore"):
            squares = sum(float(np.square(part).sum()) for part in entries)
        rms = np.sqrt(squares / max(1, sum(m.shape[0] for m in matrices)))
        return float(rms) if np.isfinite(rms) and rms > 0 else 1.0
    smallest, largest = LABEL_SCALES
    if not is_number(label_scale) or not smallest <= label_scale <= largest:
        raise InputError(
            f"label_scale is {short_repr(label_scale)}; expected a positive number from {smallest:g} to {largest:g}, or "
            "'auto'"
        )
    return float(label_scale)


def annotated_nodes(space: LabelSpace, annotation: Annotation) -> Indices:
    """The nodes for which some label is wrong."""
    return np.flatnonzero(~space.allowed(annotation).all(axis=1))


def stack_allowed(space: LabelSpace, Y: Sequence[Annotation], offsets: Indices) -> Mask:
    """(total T, S) the states that every example's annotation allows; all at once where Y has arrays or lists alone."""
    lengths = np.diff(offsets)
    n_states = space.n_states
    if len(Y) and all(
        is_parsed(y) and y.shape == (n, n_states)
        for y, n in zip(Y, lengths, strict=True)
    ):
        return space.allowed(np.concatenate(Y), int(offsets[-1]), place_in(offsets))
    if len(Y) and all(
        len(y) == n
        for y, n in zip(Y, lengths, strict=True)
        if isinstance(y, list) or is_flat(y)
    ):
        # strings of different widths are of one type; so is all that lists hold
        if all(
            is_flat(y)
            and (y.dtype == Y[0].dtype or y.dtype.kind == Y[0].dtype.kind == "U")
            for y in Y
        ):
            return space.allowed(np.concatenate(Y), int(offsets[-1]), place_in(offsets))
        if all(isinstance(y, list) for y in Y):
            return space.allowed(
                list(chain.from_iterable(Y)), int(offsets[-1]), place_in(offsets)
            )
    rows = [
        space.allowed(y, int(n), lambda k, example=i: (example, k))  # type: ignore[misc]
        for i, (y, n) in enumerate(zip(Y, lengths, strict=True))
    ]
    return np.concatenate([np.ones((0, space.n_states), dtype=bool), *rows])
