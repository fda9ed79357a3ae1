"""How clear moves are that two cells might swap."""

import numpy as np
import pytest

from clew.tracking.assignment.assignment import assign
from clew.tracking.assignment.swaps import LEAST_CLEARNESS, measure_clearness
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.events import Event


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
