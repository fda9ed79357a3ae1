"""Gaps: closed where a cell is missing for a frame, and as annotated."""

import numpy as np
import pytest

from clew.tracking.blocks import MovieProblem
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss, count_gaps
from clew.tracking.events import PAIRWISE, Annotations, Event, EventTable
from clew.tracking.lineage.build import join_events
from clew.tracking.lineage.gaps import (
    GapCandidates,
    TrackLinks,
    find_gaps,
    measure_gap_scales,
    measure_rim,
)
from clew.tracking.profile import estimate_profile
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import generic_weights

from ...helpers.tracking import track

#  a grid of cells that hardly move, of which some are missing for one frame
MISSING = {(2, 7), (4, 13), (4, 19), (6, 8)}


def grid(missing=MISSING, frames=9, side=5, seed=1):
    """Cells on a grid, labelled alike in all frames."""
    rng = np.random.default_rng(seed)
    home = 20.0 * np.argwhere(np.ones((side, side)))
    rows = [
        (t, label, *(home[label - 1] + rng.normal(size=2)))
        for t in range(frames)
        for label in range(1, side * side + 1)
        if (t, label) not in missing
    ]
    frame, label, *position = np.array(rows).T
    return DetectionTable(frame, label, np.column_stack(position), n_frames=frames)


def gaps_of(events):
    return {
        (frame + 1, *sources)
        for frame, event, sources, targets in events
        if event is Event.GAP
    }


def all_kinds(source):
    builder = FramePairBuilder(source, estimate_profile(source, source.has))
    return builder, generic_weights(feature_names(source.has))


@pytest.fixture(scope="module")
def tracked():
    return track(*all_kinds(grid()), n_jobs=1)


def test_cells_that_are_missing_for_a_frame_are_found_again(tracked):
    assert gaps_of(tracked.events) == MISSING
    assert not np.isin(tracked.events.event, [Event.APPEAR, Event.DISAPPEAR]).any()
    # tracks of the Challenge are in all of their frames, so that a cell goes on as the only child of its own track
    assert len(tracked.tracks) == 25 + len(MISSING)
    born = tracked.tracks.parent > 0
    parent = np.searchsorted(tracked.tracks.id, tracked.tracks.parent[born])
    assert (tracked.tracks.begin[born] == tracked.tracks.end[parent] + 2).all()
    assert (tracked.generations == 0).all()


def test_longer_gaps_are_filled_and_what_is_gone_for_good_stays_gone():
    missing = {(t, 7) for t in (3, 4)} | {(t, 13) for t in range(7, 9)}
    source = grid(missing)
    lineage = track(*all_kinds(source), n_jobs=1)
    assert not gaps_of(lineage.events)
    assert (lineage.events.event == Event.DISAPPEAR).sum() == 2
    tracker = Tracker.generic(n_jobs=1)
    filled = tracker.track(source)
    assert filled.recovered.frame.tolist() == [3, 4]
    assert (filled.events.event == Event.DISAPPEAR).sum() == 1
    assert len(filled.tracks) == 25
    home = 20.0 * np.argwhere(np.ones((5, 5)))[6]
    assert np.abs(filled.recovered.position - home).max() < 4
    assert (filled.recovered.probability > 0.5).all()
    short = tracker.set_params(max_gap=1).track(source)
    assert not len(short.recovered)


def test_gaps_stay_open_if_they_are_disabled():
    tracker = Tracker.generic(n_jobs=1, fill=False)
    assert gaps_of(tracker.track(grid()).events) == MISSING
    assert not gaps_of(tracker.set_params(max_gap=0).track(grid()).events)
    kinds = map(str, PAIRWISE)
    without = Tracker.generic(n_jobs=1, events=kinds, fill=False)
    assert not gaps_of(without.track(grid()).events)


def test_lineage_without_recovered_cells_has_the_gaps(tracked):
    filled = Tracker.generic(n_jobs=1).track(grid())
    assert set(zip(filled.recovered.frame.tolist(), [1] * 4, strict=True)) == {
        (t, 1) for t, _ in MISSING
    }
    assert filled.columns["recovered"].sum() == len(MISSING)
    assert (np.bincount(filled.track) == 9)[1:].all()
    given = filled.without_recovered()
    assert gaps_of(given.events) == MISSING
    assert set(given.events) == set(tracked.events)


@pytest.mark.parametrize("per_block", [1, 2, 3, 50])
def test_blocks_of_frames_do_not_matter(tracked, per_block):
    again = track(*all_kinds(grid()), n_jobs=1, pairs_per_block=per_block)
    assert set(again.events) == set(tracked.events)


def test_annotated_gaps_are_as_annotated(tracked):
    pairs, w = all_kinds(grid())
    gap = EventTable.of([(1, Event.GAP, (7,), (7,))])
    denied = track(pairs, w, Annotations.of(gap, False), n_jobs=1)
    assert gaps_of(denied.events) == MISSING - {(2, 7)}
    # ends that are annotated as such are no gap
    gone = EventTable.of([(1, Event.DISAPPEAR, (7,), ())])
    assert gaps_of(
        track(pairs, w, Annotations.of(gone), n_jobs=1).events
    ) == MISSING - {(2, 7)}
    # cell 1 is there all the time, and a person says that it was not
    strange = Annotations.of(EventTable.of([(3, Event.GAP, (1,), (2,))]))
    kept = track(pairs, w, strange, n_jobs=1)
    assert np.isin(strange.events.row_keys(), kept.events.row_keys()).all()


def test_a_gap_tells_frame_pairs_of_a_disappearance_and_an_appearance():
    told = Annotations.of(
        EventTable.of(
            [
                (1, Event.GAP, (7,), (8,)),
                (3, Event.GAP, (5,), (6,)),
                (1, Event.MOVE, (1,), (1,)),
            ]
        ),
        [True, False, True],
    )
    assert told.annotated_frames() == [1, 2]
    assert set(told.select_frame(1).events) == {
        (1, Event.DISAPPEAR, (7,), ()),
        (1, Event.MOVE, (1,), (1,)),
    }
    assert set(told.select_frame(2).events) == {(2, Event.APPEAR, (), (8,))}
    assert len(told.select_frame(3)) == 0
    assert told.events[:1].describe(0) == "gap 7 → 8 from frame 1 to 3"


def test_two_tables_that_differ_in_gaps_alone_differ_in_no_frame_pair():
    gap = EventTable.of([(0, Event.GAP, (1,), (2,)), (4, Event.MERGE, (1, 2), (3,))])
    ends = EventTable.of(
        [
            (4, Event.MERGE, (1, 2), (3,)),
            (0, Event.DISAPPEAR, (1,), ()),
            (1, Event.APPEAR, (), (2,)),
        ]
    )
    assert set(gap.to_pairwise()) == set(ends)
    assert (
        compute_task_loss(Annotations.of(gap), ends).total
        == compute_task_loss(Annotations.of(ends), gap).total
        == 0
    )
    for true, told, figures in [
        (gap, gap, (1, 0, 0)),
        (gap, ends, (0, 0, 1)),
        (ends, gap, (0, 1, 0)),
    ]:
        found = count_gaps(Annotations.of(true), told)
        assert (found.right, found.false, found.missed) == figures
    # where the truth knows of neither end, nobody can tell
    unknown = count_gaps(Annotations.of(EventTable.empty()), gap)
    assert unknown.is_empty


def links_of(source):
    builder, w = all_kinds(source)
    blocks = MovieProblem(builder, w).blocks()
    return join_events([block.solve() for block in blocks])


def test_scales_are_those_of_the_movie():
    links = links_of(grid(set(), frames=30))
    scales = measure_gap_scales(TrackLinks(links), 5)
    # Two draws of a normal distribution in 2D, of neighbors too: constant over time.
    assert scales.deviation == pytest.approx(scales.deviation[0], rel=0.5)
    assert 0.5 < scales.deviation[0] < 3
    assert 15 < scales.spacing < 21


def test_candidates_are_within_the_limit():
    missing = {(t, 7) for t in (3, 4, 5)}
    links = links_of(grid(missing))
    assert not len(GapCandidates.find(links, 2).end_row)
    candidates = GapCandidates.find(links, 3)
    assert len(candidates.end_row) == 1
    assert candidates.features["frames"] == pytest.approx(np.log(3))
    gaps = find_gaps(links, 3)
    assert links.label[gaps.source].tolist() == links.label[gaps.target].tolist() == [7]
    assert 0.5 < gaps.probability[0] < 1


def test_empty_frame_is_bridged():
    missing = {(4, label) for label in range(1, 26)}
    lineage = track(*all_kinds(grid(missing)), n_jobs=1)
    assert gaps_of(lineage.events) >= {(4, label) for label in (7, 8, 9, 12, 13, 14)}
    filled = Tracker.generic(n_jobs=1).track(grid(missing))
    assert set(filled.recovered.frame.tolist()) == {4}


def test_rim_is_where_cells_end():
    links = links_of(grid(set(), frames=3))
    place = links.position
    outermost = int(np.argmin(place[:, 0]))
    middle = int(np.argmin(np.linalg.norm(place - place.mean(axis=0), axis=1)))
    rim = measure_rim(links, np.array([outermost, middle]))
    # The border of the table is where the outermost cells are.
    assert rim[0] == 1
    assert rim[1] < 0.1
