"""Gaps: closed where a cell is missing for a frame, and as annotated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.models.binary_program import BinaryProgram
from clew.tracking.assignment.assignment import make_program
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss, count_gaps
from clew.tracking.events import PAIRWISE, Annotations, Event, EventTable
from clew.tracking.lineage.gaps import GapEnds, GapProblem
from clew.tracking.profile import estimate_profile, profile_movie
from clew.tracking.tracker import Tracker
from clew.tracking.training.prior import generic_weights

from ...helpers.effort import examples
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


def kinds_of(source, known=frozenset()):
    w = generic_weights(feature_names(source.has))
    return profile_movie(source, w, source.has, known_events=known).event_kinds


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


def test_what_is_gone_for_longer_or_for_good_stays_gone():
    missing = {(t, 7) for t in (3, 4)} | {(t, 13) for t in range(7, 9)}
    lineage = track(*all_kinds(grid(missing)), n_jobs=1)
    assert not gaps_of(lineage.events)
    assert (lineage.events.event == Event.DISAPPEAR).sum() == 2


def test_gaps_are_on_where_there_is_evidence_and_off_where_there_is_none():
    assert Event.GAP in kinds_of(grid()).events
    without = kinds_of(grid(set()))
    assert Event.GAP not in without.events
    assert "0 like gaps" in str(without)
    assert Event.GAP in kinds_of(grid(set()), frozenset({Event.GAP})).events
    tracker = Tracker.generic(n_jobs=1)
    assert gaps_of(tracker.track(grid()).events) == MISSING
    assert not gaps_of(
        Tracker.generic(n_jobs=1, events=map(str, PAIRWISE)).track(grid()).events
    )


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


def test_gaps_are_learned_from_annotated_ones():
    source = grid()
    events = [(t, Event.MOVE, (k,), (k,)) for t in range(8) for k in range(1, 26)]
    events = [
        event
        for event in events
        if not {(event[0], event[2][0]), (event[0] + 1, event[2][0])} & MISSING
    ]
    events += [(t - 1, Event.GAP, (k,), (k,)) for t, k in MISSING]
    tracker = Tracker(prior=None, lam=0.1, n_jobs=1).fit(
        source, Annotations.of(EventTable.of(events))
    )
    weights = dict(zip(tracker.feature_names_, tracker.coef_, strict=True))
    assert any(weights[name] for name in weights if name.startswith("gap: "))
    assert Event.GAP in tracker.events_
    truth = Annotations.of(EventTable.of(events))
    lineage = tracker.track(source)
    assert compute_task_loss(truth, lineage).total == 0
    assert count_gaps(truth, lineage).f1 == 1
    # without annotated gaps there is nothing to learn of them, and nothing is learned
    pairwise = Tracker(prior=None, lam=0.1, n_jobs=1).fit(source, truth.to_pairwise())
    names = np.array([name.startswith("gap: ") for name in pairwise.feature_names_])
    assert not pairwise.coef_[names].any()


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


def test_weights_of_zero_close_no_gap():
    pairs, w = all_kinds(grid())
    w = np.where(
        [name.startswith("gap: ") for name in feature_names(pairs.profile.groups)],
        0.0,
        w,
    )
    assert not gaps_of(track(pairs, w, n_jobs=1).events)
    assert not gaps_of(
        track(pairs.with_events(frozenset(PAIRWISE)), w, n_jobs=1).events
    )


@examples(30)
@given(seed=st.integers(0, 10_000))
def test_gaps_over_a_frame_are_the_best_choice(seed):
    """Against all choices between two to three vanished and emerged cells."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 3)
    frame = np.repeat(np.arange(3), sizes)
    label = np.concatenate([np.arange(1, n + 1) for n in sizes])
    source = DetectionTable(frame, label, 3.0 * rng.random((len(frame), 2)), n_frames=3)
    profile = estimate_profile(source, source.has, reach=5.0)
    builder = FramePairBuilder(source, profile)
    problem = GapProblem.of(
        GapEnds.vanishing(builder.build(0), np.arange(sizes[0])),
        GapEnds.emerging(builder.build(1), np.arange(sizes[2])),
        profile,
    )
    weights = rng.normal(size=problem.features.shape[1])
    answer = problem.solve(weights, {})
    program = make_program(problem.candidates, np.eye(len(problem.candidates)))
    best = max(answer.scores @ y for y in BinaryProgram().outputs(program))
    assert answer.scores[answer.chosen].sum() == pytest.approx(best)
