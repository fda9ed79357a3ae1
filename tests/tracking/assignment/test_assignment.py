"""Assignment against enumeration and a plain integer program; pins and prices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InfeasibleAnnotation
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import WarmStartedProgram
from clew.tracking.assignment.assignment import (
    LEAST_CLEARNESS,
    assign,
    build_incidence,
    find_undominated,
    make_program,
    measure_clearness,
)
from clew.tracking.candidates.candidates import Candidates, find_candidates
from clew.tracking.detections import Detections
from clew.tracking.events import Event

from ...helpers.effort import examples


def frames(seed, n, m):
    """Two frames of cells at random places."""
    rng = np.random.default_rng(seed)
    return [
        Detections(t, np.arange(1, k + 1), rng.random((k, 2)), {})
        for t, k in ((0, n), (1, m))
    ], rng


def exact(found, scores):
    """The best choice by listing, as the programme's own model does it."""
    program = make_program(found, np.eye(len(scores)))
    outputs = np.array(list(BinaryProgram().outputs(program)))
    return outputs, outputs @ scores


@examples(40)
@given(seed=st.integers(0, 10_000), n=st.integers(0, 3), m=st.integers(0, 3))
def test_assignment_and_margins_match_enumeration(seed, n, m):
    (a, b), rng = frames(seed, n, m)
    found = find_candidates(a, b, reach=0.6, neighbours=2)
    scores = rng.normal(size=len(found))
    if len(found) > 20:
        return
    outputs, values = exact(found, scores)
    answer = assign(found, scores)
    assert answer.value == pytest.approx(values.max())
    assert (build_incidence(found)[:, answer.chosen].sum(axis=1) == 1).all()
    # what an event is worth: the best choice with it against the best without it
    for row, margin in enumerate(answer.confidence(np.arange(len(found)))):
        chosen = row in answer.chosen
        others = values[outputs[:, row] != chosen]
        assert margin == pytest.approx(
            values.max() - others.max() if len(others) else np.inf
        )


@examples(25)
@given(seed=st.integers(0, 10_000))
def test_assignment_with_dominated_candidates_has_the_same_value(seed):
    (a, b), rng = frames(seed, 12, 13)
    found = find_candidates(a, b, reach=0.5)
    scores = rng.normal(size=len(found)) + 2.0 * (found.event == Event.MOVE)
    assert find_undominated(found, scores).sum() < len(found)
    program = make_program(found, scores[:, None])
    whole = BinaryProgram().prepare([program], [None]).predict([program], np.ones(1))[0]
    assert assign(found, scores).value == pytest.approx(scores @ whole)


def test_pinned_events_hold():
    (a, b), rng = frames(3, 6, 6)
    found = find_candidates(a, b, reach=2.0)
    scores = rng.normal(size=len(found))
    free = assign(found, scores)
    moves = np.arange(len(found))[found.of_event(Event.MOVE)]
    worst = int(moves[np.argmin(scores[moves])])
    unwanted = int(free.chosen[0])
    answer = assign(found, scores, {worst: True, unwanted: False})
    assert worst in answer.chosen
    assert unwanted not in answer.chosen
    assert answer.value < free.value
    assert answer.confidence(np.array([worst, unwanted])) == pytest.approx(
        [np.inf, np.inf]
    )


def test_contradictory_pins_are_rejected():
    (a, b), _ = frames(0, 1, 0)
    found = find_candidates(a, b, reach=1.0)
    with pytest.raises(InfeasibleAnnotation, match="no assignment agrees"):
        assign(found, np.zeros(1), {0: False})


@examples(25)
@given(seed=st.integers(0, 10_000), ndim=st.sampled_from([2, 3]))
def test_prices_hold_for_dominated_candidates(seed, ndim):
    rng = np.random.default_rng(seed)
    before = rng.uniform(0, 50 ** (1 / ndim), (50, ndim))
    after = before[5:] + rng.normal(0, 0.5, (45, ndim))
    a, b = (
        Detections(t, np.arange(1, len(x) + 1), x, {})
        for t, x in enumerate((before, after))
    )
    found = find_candidates(a, b, reach=2.0, neighbours=3)
    scores = rng.normal(0, 0.7, len(found)) + (found.event == Event.MOVE)
    answer = assign(found, scores)
    A = build_incidence(found)
    one = np.ones(A.shape[0])
    n = len(found)
    program = WarmStartedProgram(A, one, one, np.zeros(n), np.ones(n))
    lp = program.solve_relaxed(scores)
    if np.isin(lp, [0, 1]).all():
        assert answer.reduced.max() < 1e-6
        np.testing.assert_allclose(answer.reduced[answer.chosen], 0, atol=1e-6)


def clearness_of(before, after, lone=-1e6, far=np.inf):
    """The clearness of each cell's event, where moves cost their squared distance."""
    before, after = np.array(before, float), np.array(after, float)
    square = ((before[:, None] - after[None]) ** 2).sum(axis=2)
    source, target = np.nonzero(square <= far)
    candidates = Candidates.from_columns(
        {
            Event.MOVE: (source, target),
            Event.APPEAR: (np.arange(len(after)),),
            Event.DISAPPEAR: (np.arange(len(before)),),
        },
        len(before),
        len(after),
    )
    scores = np.full(len(candidates), lone)
    moves = candidates.of_event(Event.MOVE)
    scores[moves] = -square[candidates.sources[moves, 0], candidates.targets[moves, 0]]
    answer = assign(candidates, scores)
    found = measure_clearness(answer, answer.confidence(answer.chosen), before, after)
    return answer, found


def test_the_change_of_the_relative_position_tells_how_clear_moves_are():
    answer, found = clearness_of([(0, 0), (4, 0)], [(9, 0), (14, 0)])
    assert (answer.events == Event.MOVE).all()
    # d = 4 became d' = 5: changed by 1, and by 9 if they had swapped
    assert found == pytest.approx([np.log(9), np.log(9)])


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_it_has_no_unit_and_does_not_depend_on_common_motion(scale, shift):
    before = np.array([(0.0, 0.0), (1.0, 0.2)])
    after = np.array([(0.1, 0.3), (0.9, 0.4)])
    _, found = clearness_of(before, after)
    _, moved = clearness_of(scale * before, scale * (after + shift))
    assert (found > 0.5).all()
    assert moved == pytest.approx(found)


def test_cells_that_change_places_are_least_clear():
    _, found = clearness_of([(0, 0), (2, 0)], [(1, 1.2), (1, -1.2)])
    assert found == pytest.approx([LEAST_CLEARNESS] * 2)


def test_only_moves_whose_best_alternative_is_a_swap_have_one():
    before, after = [(0, 0), (4, 0), (50, 0)], [(0.5, 0), (4.2, 0), (50.1, 0)]
    _, found = clearness_of(before, after, far=30.0)
    assert (found > 0).tolist() == [True, True, False]
    answer, found = clearness_of(before, after, lone=-0.2, far=30.0)
    assert (answer.events == Event.MOVE).all()  # each would rather end than swap
    assert not found.any()
