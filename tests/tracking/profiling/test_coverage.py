"""The share of events among the candidates: against a count by hand, and what is told of it."""

import numpy as np
import pytest

from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.flow import estimate_flow
from clew.tracking.profiling.coverage import Coverage, look_for, plausible_moves
from clew.tracking.tracker import Tracker


@pytest.fixture(scope="module")
def pairs(simulated):
    source = Tracker(cache=None, n_jobs=1).measure(simulated.movie)
    return Pairs.of(source, source.has)


def test_all_true_events_of_easy_cells_are_candidates(simulated, pairs):
    found = look_for(pairs, simulated.known)
    assert found.annotated == found.annotated_found > 100
    assert found.plausible_found == found.plausible > 100
    assert "all of" in str(found)
    assert "100 % of" in str(found)
    assert str(found).endswith("in 10 frame pairs")


def test_what_is_no_candidate_is_counted(simulated, pairs):
    a, b = pairs.source.detections(0), pairs.source.detections(1)
    apart = np.linalg.norm(a.position[:, None] - b.position[None], axis=2)
    i, j = np.unravel_index(np.argmax(apart), apart.shape)
    far = EventTable.of([(0, Event.MOVE, [int(a.label[i])], [int(b.label[j])])])
    found = look_for(
        pairs,
        Annotations.of(
            EventTable.join([far, simulated.known.select_frame(0).events[:5]])
        ),
    )
    assert (found.annotated, found.annotated_found) == (6, 5)
    assert "5 of 6 annotated events (the others were added)" in str(found)
    denied = look_for(
        pairs, Annotations.of(far, False)
    )  # what did not happen need not be a candidate
    assert denied.annotated == 0


def test_plausible_moves_by_hand(pairs):
    way = 1.5 * pairs.scales.diameter
    a, b, found, moves = pairs.usual(2, lambda *made: plausible_moves(*made, way=way))
    overlap = pairs.source.overlap(2, estimate_flow(a, b, pairs.motion).shift)
    near = np.linalg.norm(a.position[:, None] - b.position[None], axis=2) <= way
    near[overlap.source, overlap.target] = True
    assert not pairs.motion.follows_flow
    assert np.array_equal(moves, np.argwhere(near))
    assert len(found)


def test_an_empty_movie_has_nothing_to_look_for():
    assert str(Coverage.sum([])) == "candidates: none expected"
    assert "99.9 %" in str(
        Coverage(plausible=100_000, plausible_found=99_999)
    )  # never rounded up to all
