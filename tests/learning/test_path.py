"""A path of λ on shared bounds: what it costs, what it re-uses, and how λ is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InputError
from clew.learning.algorithm import Algorithm
from clew.learning.cccp import learn
from clew.learning.initialization import Initializer
from clew.learning.losses import LOSSES, loss_values
from clew.learning.path import Path, check_path, lambda_grid
from clew.learning.task import Argmax, Space
from clew.models.assignment import Assignment
from clew.models.base import CLPL

from ..helpers.effort import sweep
from .problems import GENERATORS, assignment_task, cases, chain_task, matchings

BRIDGE = LOSSES["bridge"]


def fit_path(task, lams, **options):
    """Fit each λ from the strongest to the weakest."""
    path = Path(task, BRIDGE, **options)
    return [path.fit(lam) for lam in sorted(lams, reverse=True)]


@pytest.mark.parametrize("known", [1.0, 0.4])
@pytest.mark.parametrize("make", [assignment_task, chain_task])
@sweep(10, 20)
def test_a_path_costs_less_than_its_fits_from_scratch(make, known, n):
    """By recycled bounds: passes of the stochastic phase are random."""
    task = make(n=n, known=known)
    lams = lambda_grid(task, BRIDGE)
    exact = Algorithm(stochastic=False)
    path = fit_path(task, lams, algorithm=exact)
    alone = [fit_path(task, [lam], algorithm=exact)[0] for lam in lams]
    assert all(result.converged for result in path)
    assert sum(result.passes for result in path) <= 0.8 * sum(
        result.passes for result in alone
    )


@pytest.mark.parametrize("regulariser", ["l2", "l1"])
def test_a_path_finds_what_separate_fits_find_where_the_problem_is_convex(regulariser):
    task = assignment_task(n=8, known=1.0)
    path = fit_path(task, [0.01, 1.0, 0.1], regulariser=regulariser)
    assert [result.lam for result in path] == [1.0, 0.1, 0.01]
    for result in path:
        alone = learn(task, BRIDGE, result.lam, regulariser=regulariser)
        assert result.objective == pytest.approx(alone.objective, abs=2e-3)
        assert result.gap <= 1e-3


def test_later_fits_start_from_the_bounds_of_earlier_ones():
    task = assignment_task(n=8, known=1.0)
    _, second = fit_path(task, [0.1, 0.09])
    assert second.passes < learn(task, BRIDGE, 0.09).passes
    (again,) = fit_path(task, [0.09], warm_start=second)
    assert again.passes <= 2


def test_a_start_on_the_annotated_parts_is_away_from_zero():
    task = assignment_task(n=8, known=0.4)
    w = Initializer(task, BRIDGE).weights_for(0.1)
    assert np.abs(w).max() > 0.01
    assert Initializer(assignment_task(n=8, known=1.0), BRIDGE).weights_for(0.1) is None
    (result,) = fit_path(task, [0.1])
    assert result.objective <= learn(task, BRIDGE, 0.1, start=w).objective + 2e-3


@pytest.mark.parametrize("regulariser", ["l2", "l1"])
@pytest.mark.parametrize("model", GENERATORS)
def test_the_grid_is_positive_and_falls(model, regulariser):
    for case in cases(model)[:4]:
        for loss in (BRIDGE, LOSSES["pair"], LOSSES["ramp-delta"]):
            grid = lambda_grid(case.task, loss, regulariser, length=5)
            assert grid.shape == (5,)
            assert (np.diff(grid) < 0).all()
            assert (grid > 0).all()


def test_above_the_first_l1_value_every_weight_is_zero():
    task = assignment_task(n=10, known=1.0)
    top = lambda_grid(task, BRIDGE, "l1")[0]
    assert np.abs(learn(task, BRIDGE, 1.01 * top, regulariser="l1").w).max() < 1e-6
    assert np.abs(learn(task, BRIDGE, 0.01 * top, regulariser="l1").w).max() > 1e-3


def test_the_grid_follows_the_scale_of_the_features():
    X, Y, _ = matchings(n=5)
    one, other = (
        lambda_grid(Assignment().prepare(scaled, Y).task(scaled, Y), BRIDGE)
        for scaled in (X, [10 * x for x in X])
    )
    np.testing.assert_allclose(other, 100 * one)


@pytest.mark.parametrize("lams", [[], [0.1, 0.0], [-1.0], [np.nan], [np.inf]])
def test_a_path_of_other_than_positive_values_is_refused(lams):
    with pytest.raises(InputError, match="λ"):
        check_path(lams)


def test_a_grid_for_a_task_without_any_slope_is_still_one():
    class Flat:
        n_examples, n_features, keys = 2, 3, None
        spaces, loss_zero_iff_compatible = frozenset({Space.ALL}), False

        def argmax(self, w, space, loss_weight, examples=None):
            return Argmax(np.zeros((2, 3)), np.ones(2), np.ones(2, dtype=bool))

        def annotated_part(self):
            return None

    assert (lambda_grid(Flat(), CLPL) > 0).all()
    assert loss_values(Flat(), CLPL, np.zeros(3)).mean() == 1
