"""Problems that the tests of learning share, and their solution by other means than clew's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from clew.learning.bounds import Bundle
from clew.learning.losses import LinearBounds, Loss
from clew.learning.task import Argmax, Space
from clew.models.assignment import Assignment
from clew.models.chain import Chain

from ..models.contract import MODELS, Instance, Listing, instance

GENERATORS = {generate.__name__: generate for generate in MODELS}


@cache
def cases(name: str, n: int = 12) -> list[Instance]:
    """Small instances of a model in which something is annotated."""
    found = (instance(GENERATORS[name], seed) for seed in count())
    some = (case for case in found if sum(case.model.n_parts(y) for y in case.Y) > 2)
    return list(
        islice(
            (
                case
                for case in some
                if any((listing.loss > 0).any() for listing in case.listings)
            ),
            n,
        )
    )


@cache
def fully_annotated(name: str, n: int = 4) -> list[Instance]:
    """The same instances with one of the outputs of each example as its annotation."""
    made = []
    for seed, case in enumerate(cases(name)[:n]):
        rng = np.random.default_rng(seed)
        Y, listings = [], []
        for listing in case.listings:
            truth = listing.outputs[rng.integers(len(listing.outputs))]
            Y.append(truth)
            loss = np.array([case.model.loss(truth, y) for y in listing.outputs])
            listings.append(Listing(listing.outputs, listing.features, loss))
        made.append(
            Instance(
                case.model, case.X, Y, case.model.task(case.X, Y), case.w, listings
            )
        )
    return made


def precision(model: str) -> float:
    """How exact a model's argmax is: HiGHS takes outputs for equal whose scores differ by less than its tolerance."""
    return 1e-7 if model in ("program", "graph") else 1e-9


def omega(w, regulariser) -> float:
    return float(np.abs(w).sum()) if regulariser == "l1" else 0.5 * float(w @ w)


def listed_losses(listings: list[Listing], loss: Loss, w) -> np.ndarray:
    """(n,) |P − R|₊ by its definition, from the list of all outputs."""
    values = []
    for listing in listings:
        penalty = listing.best(w, loss.penalty, loss.penalty_weight) + loss.margin
        reward = (
            0.0
            if loss.reward is None
            else listing.best(w, loss.reward, loss.reward_weight)
        )
        values.append(max(penalty - reward, 0.0))
    return np.array(values)


def listed_objective(listings, loss: Loss, w, lam: float, regulariser) -> float:
    """J(w) by its definition (Eq. 7)."""
    return lam * omega(w, regulariser) + float(listed_losses(listings, loss, w).mean())


def minimum_over_list(listings: list[Listing], lam: float, regulariser) -> float:
    """min_w of the ordinary structural SVM, one constraint for every output of every example.

    λΩ(w) + (1/N) Σ_n ξ_n with ξ_n ≥ <w, φ(y) − φ(y*)> + Δ(y) for all y.
    """
    n, d = len(listings), listings[0].features.shape[1]
    differences = [
        listing.features - listing.features[listing.loss == 0][0]
        for listing in listings
    ]
    A, b = (
        np.vstack(differences),
        np.concatenate([listing.loss for listing in listings]),
    )
    group = np.repeat(np.arange(n), [len(listing.loss) for listing in listings])
    slack = -np.eye(n)[group]
    if regulariser == "l1":
        cost = np.concatenate([np.full(2 * d, lam), np.full(n, 1 / n)])
        bounds = [(0, None)] * (2 * d) + [(None, None)] * n
        return float(linprog(cost, np.hstack([A, -A, slack]), -b, bounds=bounds).fun)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    P = sp.csc_matrix(sp.diags_array(np.concatenate([np.full(d, lam), np.zeros(n)])))
    q = np.concatenate([np.zeros(d), np.full(n, 1 / n)])
    rows = sp.csc_matrix(np.hstack([A, slack]))
    return float(
        clarabel.DefaultSolver(
            P, q, rows, -b, [clarabel.NonnegativeConeT(len(b))], settings
        )
        .solve()
        .obj_val
    )


def random_bundle(
    rng, n_groups=3, n_features=4, per_group=5, scale=1.0, twice=False, flat=False
) -> Bundle:
    """Random bounds, evaluated as if N = G; `twice` adds each again, `flat` gives some slope zero."""
    bundle = Bundle(n_features, np.arange(n_groups))
    parts = [
        rng.normal(size=(per_group, n_groups, n_features)) * scale,
        rng.normal(size=(per_group, n_groups)),
    ]
    if flat:
        parts[0][::2] = 0.0
    fill(bundle, *parts)
    if twice:
        fill(bundle, *parts)
    return bundle


def fill(bundle: Bundle, slopes, offsets) -> None:
    """Put bounds into a bundle whether or not they say something new."""
    for a, b in zip(slopes, offsets, strict=True):
        bundle.extend(sp.csr_array(a), b, np.arange(bundle.n_groups))


def check_products(bundle: Bundle) -> None:
    """What the bundle knows of inner products within the groups is what the slopes say."""
    bundle.multiply()
    b, slopes = bundle.bounds, bundle.slopes.toarray()
    for g in range(bundle.n_groups):
        inside = np.flatnonzero(bundle.group == g)
        assert b.sizes[g] == len(inside)
        members = b.members[b.first[g] : b.first[g] + b.sizes[g]]
        np.testing.assert_array_equal(members, inside)
        places = np.arange(len(inside))
        places = b.start[g] + places[:, None] * b.room[g] + places
        expected = slopes[inside] @ slopes[inside].T
        np.testing.assert_allclose(
            b.products[places],
            expected,
            atol=1e-9 * (1 + np.abs(expected).max(initial=0)),
        )


def model_value(bundle: Bundle, v, lam, regulariser, w) -> float:
    """What a model update minimises, at w."""
    return lam * omega(w, regulariser) + float(v @ w) + float(bundle.values(w).sum())


@dataclass(frozen=True)
class Choice:
    """An input of `Table`: its outputs are the rows of `features`."""

    features: np.ndarray
    """(m, d)"""


@dataclass(frozen=True)
class Known:
    """An annotation of `Table`: which outputs agree with it, and Δ of each."""

    compatible: np.ndarray
    loss: np.ndarray


class Table:
    """A model of one's own, whose outputs are listed; its Δ is whatever the annotation says."""

    def __init__(
        self, n_features, spaces=frozenset(Space), loss_zero_iff_compatible=False
    ):
        self.n_features = n_features
        self.spaces = spaces
        self.loss_zero_iff_compatible = loss_zero_iff_compatible

    def joint_features(self, x, y):
        return x.features[y]

    def loss(self, annotation, y):
        return annotation.loss[y]

    def outputs(self, x):
        return range(len(x.features))

    def argmax(self, x, w, annotation, space, loss_weight):
        if annotation is None:
            return int(np.argmax(x.features @ w))
        inside = {
            Space.ALL: np.ones(len(x.features), dtype=bool),
            Space.COMPATIBLE: annotation.compatible,
            Space.INCOMPATIBLE: ~annotation.compatible,
        }[space]
        if not inside.any():
            return None
        return int(
            np.argmax(
                np.where(
                    inside, x.features @ w + loss_weight * annotation.loss, -np.inf
                )
            )
        )


def table_data(
    rng, n=8, m=6, d=4, zero_on_compatible=True
) -> tuple[list[Choice], list[Known]]:
    X, Y = [], []
    for _ in range(n):
        compatible = np.zeros(m, dtype=bool)
        compatible[rng.permutation(m)[: rng.integers(1, 3)]] = True
        loss = rng.uniform(0.2, 1.0, size=m)
        X.append(Choice(rng.normal(size=(m, d))))
        Y.append(
            Known(compatible, np.where(compatible & zero_on_compatible, 0.0, loss))
        )
    return X, Y


class Dense:
    """A task whose argmax gives dense features, and no fingerprints."""

    keys = None

    def __init__(self, task):
        self.task = task
        self.n_examples, self.n_features, self.spaces = (
            task.n_examples,
            task.n_features,
            task.spaces,
        )
        self.loss_zero_iff_compatible = task.loss_zero_iff_compatible

    def argmax(self, w, space, loss_weight, examples=None):
        found = self.task.argmax(w, space, loss_weight, examples)
        return Argmax(found.features.toarray(), found.loss, found.found)

    def annotated_part(self):
        return None


class Counted:
    """A task that counts its calls and lets `before` do something at each."""

    def __init__(self, task, before=lambda count: None):
        self.task, self.before, self.calls = task, before, 0
        self.n_examples, self.n_features, self.spaces = (
            task.n_examples,
            task.n_features,
            task.spaces,
        )
        self.loss_zero_iff_compatible, self.keys = (
            task.loss_zero_iff_compatible,
            task.keys,
        )

    def argmax(self, w, space, loss_weight, examples=None):
        self.calls += 1
        self.before(self.calls)
        return self.task.argmax(w, space, loss_weight, examples)

    def annotated_part(self):
        return self.task.annotated_part()


def sequences(
    seed=0, n=40, n_states=4, width=5, known=0.4, noise=1.0
) -> tuple[list[Any], list[Any], list[Any]]:
    """Ragged sequences of a hidden Markov chain: features, partial labels, and the truth."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_states, width))
    follow = rng.dirichlet(np.full(n_states, 0.4), size=n_states)
    X, truth = [], []
    for length in rng.integers(3, 9, size=n):
        states = [rng.integers(n_states)]
        while len(states) < length:
            states.append(rng.choice(n_states, p=follow[states[-1]]))
        truth.append(np.array(states))
        X.append(means[states] + noise * rng.normal(size=(length, width)))
    return X, [np.where(rng.random(len(y)) < known, y, -1) for y in truth], truth


def chain_task(**settings):
    X, Y, _ = sequences(**settings)
    return Chain(n_states=4).prepare(X, Y).task(X, Y)


def matchings(
    seed=0, n=20, rows=5, width=6, known=0.4, noise=0.7
) -> tuple[list[Any], list[Any], list[Any]]:
    """Assignments whose pair features point at the truth through noise."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=width)
    X, Y, truth = [], [], []
    for _ in range(n):
        y = rng.permutation(rows + 1)[:rows]
        x = noise * rng.normal(size=(rows, rows + 1, width))
        x[np.arange(rows), y] += direction
        X.append(x)
        truth.append(y)
        Y.append(np.where(rng.random(rows) < known, y, -1))
    return X, Y, truth


def assignment_task(**settings):
    X, Y, _ = matchings(**settings)
    return Assignment().prepare(X, Y).task(X, Y)


def as_linear(features, offsets, w) -> LinearBounds:
    return LinearBounds(sp.csr_array(features), offsets, features @ w + offsets)
