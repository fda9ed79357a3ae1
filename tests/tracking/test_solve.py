"""All frame pairs in a row: the same in any number of threads, and each pair is the best on its own."""

from dataclasses import replace

import numpy as np
import pytest

from clew.errors import InfeasibleAnnotation
from clew.tracking.assignment.assignment import assign
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import DetectionTable
from clew.tracking.events import PAIRWISE, Annotations, Event, EventTable
from clew.tracking.lineage.build import build_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.profile import estimate_profile
from clew.tracking.solve import solve_frame_pair
from clew.tracking.training.generic_weights import generic_weights

from ..helpers.tracking import solve_one, track


@pytest.fixture(scope="module")
def pairs(simulated):
    source = measure_movie(simulated.movie, cache=None)
    return FramePairBuilder(source, estimate_profile(source, source.has))


@pytest.fixture(scope="module")
def w(pairs):
    return generic_weights(feature_names(pairs.profile.groups))


def table(*frames):
    """Cells at given places of a line, labelled in their order."""
    rows = [
        (t, k + 1, 0.0, x)
        for t, places in enumerate(frames)
        for k, x in enumerate(places)
    ]
    frame, label, y, x = np.array(rows, dtype=float).reshape(-1, 4).T
    return DetectionTable(frame, label, np.column_stack([y, x]), n_frames=len(frames))


def test_a_movie_is_its_pairs_one_by_one(pairs, w):
    lineage = track(pairs, w, n_jobs=2)
    solved = [solve_one(pairs, w, frame) for frame in range(len(pairs))]
    for one in solved:
        pair = pairs.build(one.frame)
        best = assign(pair.candidates, pair.scores(w))
        assert np.array_equal(
            one.events.row_keys(),
            pair.candidates.table(pair.a, pair.b, best.chosen).row_keys(),
        )
        assert np.allclose(one.confidence, best.confidence())
    joined = build_lineage(pairs.source, solved)
    assert np.array_equal(lineage.events.row_keys(), joined.events.row_keys())
    assert np.allclose(lineage.confidence, joined.confidence)
    # the past tells splits from divisions, and where no sizes tell of torn masks nothing else changes
    lineage = build_lineage(
        pairs.source, [replace(one, typical_volume=np.nan) for one in solved]
    )
    before = EventTable.join([one.events for one in solved])
    changed = [event for event in lineage.events if event not in set(before)]
    others = [event for event in before if event not in set(lineage.events)]
    assert {event[1] for event in changed} <= {Event.SPLIT, Event.DIVIDE, Event.GAP}
    assert {event[1] for event in others} <= {
        Event.SPLIT,
        Event.DIVIDE,
        Event.APPEAR,
        Event.DISAPPEAR,
    }


def test_threads_do_not_change_the_order(pairs, w):
    one, three = (track(pairs, w, n_jobs=jobs) for jobs in (1, 3))
    assert np.array_equal(one.events.row_keys(), three.events.row_keys())
    assert np.array_equal(one.confidence, three.confidence)


def test_a_solved_pair_keeps_its_candidates_until_it_is_told_not_to(pairs, w):
    pair = pairs.build(0)
    solved = solve_frame_pair(pair, w, version=3)
    assert (solved.frame, solved.version, solved.key) == (0, 3, b"")
    assert len(solved.events) == len(solved.confidence) == len(solved.assignment.chosen)
    light = solved.without_candidates()
    assert light.assignment is None
    assert np.array_equal(
        light.events.row_keys(), solve_one(pairs, w, 0).events.row_keys()
    )


def test_an_empty_frame_in_the_middle():
    source = table([10, 20], [], [11, 21])
    w = generic_weights(feature_names(source.has))
    pairs = FramePairBuilder(
        source,
        estimate_profile(source, source.has, reach=5, events=frozenset(PAIRWISE)),
    )
    lineage = track(pairs, w)
    assert lineage.counts()[:, [Event.DISAPPEAR, Event.APPEAR]].tolist() == [
        [2, 0],
        [0, 2],
    ]
    assert len(lineage.tracks) == 4


def test_a_movie_of_one_frame_has_cells_and_no_events():
    source = table([10, 20])
    lineage = track(
        FramePairBuilder(source, estimate_profile(source, source.has)),
        generic_weights(feature_names(source.has)),
    )
    assert (len(lineage.frame), len(lineage.events), len(lineage.tracks)) == (2, 0, 2)


def test_a_movie_without_any_cell():
    source = DetectionTable([], [], np.zeros((0, 2)), n_frames=3)
    lineage = track(
        FramePairBuilder(source, estimate_profile(source, source.has)),
        generic_weights(feature_names(source.has)),
    )
    assert (lineage.n_frames, len(lineage.frame), len(lineage.tracks)) == (3, 0, 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_told_is_told_with_its_frames(jobs):
    source = table([10], [11], [12])
    pairs = FramePairBuilder(source, estimate_profile(source, source.has, reach=5))
    everything = EventTable.of(
        [
            (1, Event.MOVE, [1], [1]),
            (1, Event.DISAPPEAR, [1], []),
            (1, Event.APPEAR, [], [1]),
        ]
    )
    with pytest.raises(InfeasibleAnnotation, match="from frame 1 to 2") as told:
        track(
            pairs,
            generic_weights(feature_names(source.has)),
            Annotations.of(everything, False),
            jobs,
        )
    assert told.value.example == 1


def test_masks_torn_for_a_frame_move_on_unless_someone_says_otherwise(torn_pairs):
    pairs, weights, frames = (
        torn_pairs,
        generic_weights(feature_names(torn_pairs.profile.groups)),
        len(torn_pairs) + 1,
    )
    assert (
        sum(
            (solve_one(pairs, weights, t).events.event == Event.DIVIDE).sum()
            for t in range(len(pairs))
        )
        == 3
    )
    lineages = [
        track(pairs, weights, pairs_per_block=length) for length in (1, 2, 3, 16)
    ]
    for lineage in lineages:
        assert np.array_equal(lineage.events.row_keys(), lineages[0].events.row_keys())
        np.testing.assert_array_equal(lineage.confidence, lineages[0].confidence)
    kinds = np.bincount(lineages[0].events.event, minlength=len(Event))
    assert kinds[Event.MOVE] == 9 * (frames - 1)
    assert kinds[[Event.APPEAR, Event.DISAPPEAR]].tolist() == [3, 3]
    said = EventTable.of([(1, Event.DIVIDE, [1], [1, 100])])
    kept = track(pairs, weights, Annotations.of(said)).events
    assert (kept.event == Event.DIVIDE).sum() == 1
