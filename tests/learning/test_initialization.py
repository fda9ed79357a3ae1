from itertools import pairwise, permutations

import numpy as np
import pytest

from clew.learning.cccp import learn
from clew.learning.initialization import (
    OF_START,
    OWN_SHARE,
    Initializer,
    coarsen_precision,
    estimate_contrast,
)
from clew.learning.losses import LOSSES, loss_values
from clew.learning.task import Space
from clew.models import BinaryProgram, Chain
from clew.models.base import ExampleTask
from clew.models.highs_solver import Program

ORDERS = np.array(list(permutations(range(5))))  # the place of each item
TASTE = np.array([2.0, -1.0, 0.5, 1.0])


class Order:
    """Orders of five items with four features; the annotation is a list of comparisons (front, back)."""

    n_features = 4
    loss_zero_iff_compatible = True

    def joint_features(self, x, y):
        return (2 - y) @ x

    def wrong(self, annotation):
        return sum(
            (ORDERS[:, a] > ORDERS[:, b] for a, b in annotation or []),
            np.zeros(len(ORDERS)),
        )

    def loss(self, annotation, y):
        return float(self.wrong(annotation)[(y == ORDERS).all(axis=1)][0])

    def argmax(self, x, w, annotation, space, loss_weight):
        wrong = self.wrong(annotation)
        inside = {
            Space.ALL: wrong >= 0,
            Space.COMPATIBLE: wrong == 0,
            Space.INCOMPATIBLE: wrong > 0,
        }[space]
        scores = np.where(inside, (2 - ORDERS) @ x @ w + loss_weight * wrong, -np.inf)
        return ORDERS[scores.argmax()]


def task(complete=False):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 5, 4))
    ranked = [np.argsort(-x @ TASTE).tolist() for x in X]  # the items, best first
    some = [sorted(rng.choice(5, 2, replace=False)) for _ in X]
    return ExampleTask(
        Order(),
        X,
        [
            list(pairwise(r)) if complete else [(r[a], r[b])]
            for r, (a, b) in zip(ranked, some, strict=True)
        ],
    )


def test_contrast_points_where_the_annotations_point():
    g = estimate_contrast(task())
    assert g @ TASTE / np.linalg.norm(g) / np.linalg.norm(TASTE) > 0.5


def test_contrast_leaves_a_fully_annotated_problem_alone():
    assert estimate_contrast(task(complete=True)) is None
    assert Initializer(task(complete=True), LOSSES["bridge"]).weights_for(0.1) is None


@pytest.mark.parametrize("loss", ["bridge", "hinge", "pair"])
def test_the_start_gets_out_of_the_trap_at_zero(loss):
    problem = task()
    trapped = learn(problem, LOSSES[loss], 0.1)
    freed = learn(
        problem,
        LOSSES[loss],
        0.1,
        start=Initializer(problem, LOSSES[loss]).weights_for(0.1),
    )
    assert freed.objective < 0.8 * trapped.objective
    assert freed.w @ TASTE / np.linalg.norm(freed.w) / np.linalg.norm(TASTE) > 0.9


def test_the_start_is_the_same_each_time():
    one, two = (
        Initializer(task(), LOSSES["bridge"]).weights_for(0.1) for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_coarse_precision_is_a_share_of_the_loss_at_zero():
    from clew.learning.cccp import Algorithm

    problem = task()
    at_zero = loss_values(problem, LOSSES["bridge"], np.zeros(4)).mean()
    assert coarsen_precision(
        Algorithm(), problem, LOSSES["bridge"]
    ).tol == pytest.approx(0.01 * at_zero)
    assert coarsen_precision(Algorithm(tol=5.0), problem, LOSSES["bridge"]).tol == 5.0


def test_coarse_precision_from_a_good_start_is_a_share_of_the_loss_there():
    from clew.learning.cccp import Algorithm

    problem, loss = task(), LOSSES["bridge"]
    start = 0.2 * TASTE
    there, at_zero = (loss_values(problem, loss, w).mean() for w in (start, 0 * start))
    assert 0 < there < at_zero / 2
    assert coarsen_precision(
        Algorithm(), problem, loss, 0.3, start
    ).tol == pytest.approx(OF_START * there)
    assert coarsen_precision(
        Algorithm(), problem, loss, 0.03, -start
    ).tol == pytest.approx(0.03 * at_zero)


def test_the_loss_at_zero_is_told_by_the_annotated_part(monkeypatch):
    """Which has the same value, and is asked in place of a whole task on which everything ties."""
    from clew.learning.cccp import Algorithm

    rng = np.random.default_rng(0)
    A = np.kron(np.eye(4), np.ones(3))  # one of three each
    X = [Program(rng.normal(size=(12, 5)), A, np.ones(4), np.ones(4)) for _ in range(6)]
    Y = [
        {
            int(row) * 3 + int(rng.integers(3)): 1
            for row in rng.choice(4, 2, replace=False)
        }
        for _ in X
    ]
    model = BinaryProgram(normalize=False)
    whole = model.prepare(X, Y).task(X, Y)
    at_zero = loss_values(whole, LOSSES["bridge"], np.zeros(5)).mean()
    monkeypatch.setattr(whole, "argmax", None)
    assert coarsen_precision(Algorithm(), whole, LOSSES["bridge"]).tol == pytest.approx(
        0.01 * at_zero
    )


@pytest.mark.parametrize("lam", [1.0, 0.01])
def test_a_start_on_the_annotated_part_is_precise_beside_its_own_objective(lam):
    rng = np.random.default_rng(0)
    X = (
        rng.normal(size=(10, 12, 3)) + 3 * np.eye(3)[np.arange(12) % 3]
    )  # so easy that hardly any loss is left
    model = Chain(n_states=3)
    Y = [[k % 3 if rng.random() < 0.5 else None for k in range(12)] for _ in X]
    start = Initializer(model.prepare(X, Y).task(X, Y), LOSSES["bridge"])
    start.weights_for(lam)
    assert start.result.gap <= max(
        start.algorithm.tol, OWN_SHARE * start.result.objective / (1 - OWN_SHARE)
    )
    assert start.result.gap < start.coarse.tol or lam == 1.0
