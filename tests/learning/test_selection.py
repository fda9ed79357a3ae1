"""How λ is chosen from held-out annotations: ties, noise, ends of the range, and what is not tried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.learning.cccp import learn
from clew.learning.losses import LOSSES, loss_values
from clew.learning.selection import (
    Fold,
    PathPoint,
    _surrogate_losses,
    best_point,
    cross_validate,
)
from clew.learning.task import Argmax, Space, Subset, Task

from ..helpers.effort import examples, sweep
from .problems import assignment_task, chain_task

BRIDGE = LOSSES["bridge"]


def folds_of(task, n=3):
    which = np.arange(task.n_examples) % n
    return [
        Fold(
            Subset(task, np.flatnonzero(which != k)),
            Subset(task, np.flatnonzero(which == k)),
        )
        for k in range(n)
    ]


def test_held_out_losses_are_those_of_fits_without_the_fold():
    task = assignment_task(n=9, known=1.0)
    folds = folds_of(task)
    (point,) = cross_validate(folds, BRIDGE, [0.01])
    assert len(point.held_out) == 3
    for fold, held_out in zip(folds, point.held_out, strict=True):
        alone = learn(fold.train, BRIDGE, 0.01)
        assert held_out == pytest.approx(
            fold.test.argmax(alone.w, Space.ALL, 0.0).loss.mean(), abs=0.15
        )
    assert point.mean == pytest.approx(np.mean(point.held_out))
    assert point.passes >= 3


def point(lam, losses, surrogates):
    losses, surrogates = (
        np.asarray(losses, dtype=float),
        np.asarray(surrogates, dtype=float),
    )
    return PathPoint(
        lam, (float(losses.mean()),), losses, surrogates, 1.0, (np.zeros(1),)
    )


def test_of_three_equal_points_the_strongest_regularisation_wins():
    points = [point(lam, [0, 1, 0, 1], [1, 1, 1, 1]) for lam in (1.0, 0.1, 0.01)]
    assert best_point(points).lam == 1.0
    assert best_point(points[::-1]).lam == 1.0


def test_where_mistakes_cannot_tell_the_surrogate_does():
    # no mistake anywhere: at λ = 947 the weights are so small that every margin is missed, at 0.001 they overfit
    none = np.zeros(40)
    noise = 0.1 * np.random.default_rng(0).random(40)
    points = [
        point(lam, none, level + noise)
        for lam, level in ((947, 2.0), (10, 0.8), (1, 0.5), (0.1, 0.51), (1e-3, 0.9))
    ]
    assert best_point(points).lam == 1


def test_a_lucky_point_is_not_chosen():
    rng = np.random.default_rng(0)
    losses = (rng.random(60) < 0.3).astype(float)
    lucky = losses.copy()
    lucky[np.flatnonzero(losses)[0]] = (
        0.0  # one mistake less, at a λ where the margins are much worse
    )
    points = [
        point(1.0, losses, losses + 0.2),
        point(0.001, lucky, losses + rng.random(60)),
    ]
    assert best_point(points).lam == 1.0


def test_a_clear_difference_of_mistakes_decides_whatever_the_surrogate_says():
    few, many = np.r_[np.ones(5), np.zeros(95)], np.r_[np.ones(40), np.zeros(60)]
    assert (
        best_point([point(1.0, many, np.zeros(100)), point(0.1, few, np.ones(100))]).lam
        == 0.1
    )


@examples(60)
@given(seed=st.integers(0, 2**16), n=st.integers(1, 8), m=st.integers(1, 30))
def test_what_is_chosen_was_measured_and_cannot_be_told_from_the_best(seed, n, m):
    rng = np.random.default_rng(seed)
    points = [point(10.0**-k, rng.integers(0, 3, m), rng.random(m)) for k in range(n)]
    best = best_point(points)
    assert any(best is other for other in points)
    lowest = min(points, key=lambda p: p.mean)
    difference = best.losses - lowest.losses
    assert difference.mean() <= 1.5 * difference.std() / np.sqrt(m) + 1e-12
    assert best_point(points[::-1]) is best


class Scripted(Task):
    """A held-out task whose losses follow from how often it was asked for a prediction."""

    n_examples = 4
    n_features = 0
    spaces = frozenset({Space.ALL})
    loss_zero_iff_compatible = True

    def __init__(self, losses):
        self.losses, self.asked = losses, 0

    def argmax(self, w, space, loss_weight, examples=None):
        loss = self.losses[self.asked]
        self.asked += 1
        return Argmax(None, np.full(4, loss), np.ones(4, dtype=bool))


def test_the_path_ends_where_it_has_clearly_become_worse_and_is_refined_around_the_best():
    task = assignment_task(n=4, known=1.0)
    grid = np.geomspace(1, 1e-3, 8).tolist()
    losses = [
        0.5,
        0.3,
        0.9,
        0.4,
        0.2,
    ]  # λ 0, 2, 4 of the grid; then 1 and 3, the neighbours of 2
    points = cross_validate(
        [Fold(task, Scripted(losses)), Fold(task, Scripted(losses))], BRIDGE, grid
    )
    assert [p.lam for p in points] == grid[:5]
    assert [p.mean for p in points] == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.9])
    assert best_point(points).lam == grid[3]


def test_a_short_list_is_tried_as_a_whole_unless_it_becomes_worse():
    task = assignment_task(n=4, known=1.0)
    points = cross_validate(
        [Fold(task, Scripted([0.5, 0.4, 0.3]))] * 1, BRIDGE, [1.0, 0.1, 0.01]
    )
    assert [p.lam for p in points] == [1.0, 0.1, 0.01]


@pytest.mark.parametrize("known", [1.0, 0.3])
@sweep(21, 40)
def test_the_chosen_weights_predict_held_out_annotations_as_well_as_any_of_a_grid(
    known, n
):
    task = chain_task(n=n, known=known)
    folds = folds_of(task)
    grid = np.geomspace(30, 1e-3, 5 if n < 40 else 7).tolist()
    chosen = best_point(cross_validate(folds, BRIDGE, grid))
    for lam in grid:
        (alone,) = cross_validate(folds, BRIDGE, [lam])
        difference = chosen.losses - alone.losses
        assert (
            difference.mean() <= 2 * difference.std() / np.sqrt(len(difference)) + 1e-12
        )


@pytest.mark.parametrize("make", [assignment_task, chain_task])
def test_held_out_surrogates_without_a_needless_search(make):
    """Where a prediction agrees with the annotation, no reward is searched for, and the loss is the same."""
    task = make(n=12, known=0.5)
    loss = LOSSES["bridge"]
    for seed in range(5):
        w = np.random.default_rng(seed).normal(size=task.n_features)
        predicted = task.argmax(w, Space.ALL, 0.0)
        np.testing.assert_allclose(
            _surrogate_losses(task, loss, w, predicted),
            loss_values(task, loss, w),
            atol=1e-9,
        )


def ambiguous_point(lam, losses, certainty):
    losses = np.asarray(losses, dtype=float)
    certainty = np.asarray(certainty, dtype=float)
    nothing = np.zeros_like(losses)
    weights = (np.zeros(1),)
    return PathPoint(
        lam, (float(losses.mean()),), losses, nothing, 1.0, weights, certainty
    )


def test_mistakes_on_small_candidate_sets_count_more():
    certainty = [1 / 2, 1 / 2, 1 / 8, 1 / 8, 1 / 8]
    strong = ambiguous_point(1.0, [1, 1, 0, 0, 0], certainty)
    weak = ambiguous_point(0.1, [0, 0, 1, 1, 1], certainty)
    assert strong.mean < weak.mean
    assert best_point([strong, weak]) is weak


def test_few_candidate_sets_do_not_change_the_rule():
    certainty = [1, 1, 1, 1, 1 / 8]
    points = [ambiguous_point(lam, [0, 1, 0, 1, 0], certainty) for lam in (1.0, 0.1)]
    assert not points[0].is_ambiguous
    assert best_point(points) is points[0]


def test_stronger_lambdas_are_tried_where_the_strongest_is_the_best():
    # noisy words with full annotation: stronger λ are better, on every processor, and
    # no local minimum decides
    task = chain_task(n=60, known=1.0, noise=2.0)
    lams = [0.1, 0.03, 0.01, 0.003]
    path = cross_validate(folds_of(task), BRIDGE, lams)
    assert path[0].lam > 0.1
    assert [p.lam for p in path] == sorted((p.lam for p in path), reverse=True)
