"""Several starts of CCCP: the lowest objective wins, bounds are shared, and the spread is reported."""

from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InputError
from clew.learning.algorithm import Algorithm
from clew.learning.cccp import learn
from clew.learning.initialization import learn_from, make_starts, perturb_start
from clew.learning.losses import LOSSES, loss_values

from .problems import assignment_task, chain_task

BRIDGE = LOSSES["bridge"]


@pytest.mark.parametrize("make", [assignment_task, chain_task])
def test_the_lowest_objective_wins(make):
    task = make(n=15, known=0.3)
    starts = make_starts(task, BRIDGE, 0.05, algorithm=Algorithm(starts=5))
    assert len(starts) == 5
    several = learn_from(starts, task, BRIDGE, 0.05)
    assert several.converged
    assert len(several.objectives) == 6
    assert several.objective == several.objectives[-1]
    assert several.objective <= min(several.objectives) + 1e-9
    assert f"to {max(several.objectives[:-1]):.4g} from the starts" in str(several)
    by_definition = (
        0.025 * several.w @ several.w + loss_values(task, BRIDGE, several.w).mean()
    )
    assert several.objective == pytest.approx(by_definition, abs=1e-9)


def test_the_bounds_of_one_start_serve_the_next():
    task = assignment_task(n=15, known=0.3)
    starts = make_starts(task, BRIDGE, 0.05, algorithm=Algorithm(starts=4))
    together = learn_from(starts, task, BRIDGE, 0.05)
    apart = sum(learn(task, BRIDGE, 0.05, start=start).passes for start in starts)
    assert together.passes < apart


def test_the_whole_effort_is_reported():
    task = chain_task(n=15, known=0.3)
    several = learn_from(perturb_start(np.ones(task.n_features), 3), task, BRIDGE, 0.05)
    assert several.bounds > several.history[-1].bounds
    assert several.seconds["total"] > several.history[-1].seconds
    assert "from the starts" not in str(learn(task, BRIDGE, 0.05))


def test_a_convex_problem_needs_one_start():
    task = assignment_task(n=8, known=1.0)
    assert make_starts(task, BRIDGE, 0.1, algorithm=Algorithm(starts=5)) == []
    known = [np.ones(task.n_features), np.zeros(task.n_features)]
    assert (
        make_starts(task, BRIDGE, 0.1, known, algorithm=Algorithm(starts=5))
        == known[:1]
    )
    assert len(learn_from([], task, BRIDGE, 0.1).objectives) == 1


def test_known_starts_come_first_and_are_made_up_to_the_number():
    task = assignment_task(n=8, known=0.3)
    known = [np.full(task.n_features, k) for k in (1.0, 2.0)]
    found = make_starts(task, BRIDGE, 0.1, known, algorithm=Algorithm(starts=5))
    assert len(found) == 5
    assert found[0] is known[0]
    assert any(start is known[1] for start in found)
    assert make_starts(task, BRIDGE, 0.1, known) == known[:1]


def test_nearby_starts_are_the_same_every_time_and_of_the_size_asked_for():
    start = np.random.default_rng(0).normal(size=400)
    one, other = (
        perturb_start(start, 3, spread=0.5),
        perturb_start(start, 3, spread=0.5),
    )
    np.testing.assert_array_equal(one, other)
    for moved in one:
        assert np.linalg.norm(moved - start) == pytest.approx(
            0.5 * np.linalg.norm(start), rel=0.2
        )


@pytest.mark.parametrize("starts", [0, -1, 1.5, True])
def test_a_number_of_starts_that_is_none_is_refused(starts):
    with pytest.raises(InputError, match="starts"):
        Algorithm(starts=starts)


def test_a_given_start_is_one_of_several():
    task, convex = assignment_task(n=8, known=0.3), assignment_task(n=8, known=1.0)
    known = [np.full(task.n_features, k) for k in (1.0, 2.0)]
    given = np.full(task.n_features, 3.0)
    found = make_starts(
        task, BRIDGE, 0.1, known, algorithm=Algorithm(starts=4), given=given
    )
    assert [found[0], found[1], found[3]] == [known[0], given, known[1]]
    found = make_starts(
        task, BRIDGE, 0.1, [given], algorithm=Algorithm(starts=2), given=given
    )
    assert found[0] is given
    assert len(found) == 2
    assert (
        make_starts(
            convex, BRIDGE, 0.1, known, algorithm=Algorithm(starts=3), given=given
        )
        == known[:1]
    )
