"""Gaps: found where a cell is missing for a frame, the best there are on small instances, and as annotated."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.models.binary_program import BinaryProgram
from clew.tracking.assignment.assignment import make_program
from clew.tracking.assignment.gaps import GapFrame, find_gaps
from clew.tracking.assignment.loose_ends import Ends, carried
from clew.tracking.blocks.track import track_pairs
from clew.tracking.candidates.features import feature_names, features_of
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss, count_gaps
from clew.tracking.events import PAIRWISE, Annotations, Event, EventIndex, EventTable
from clew.tracking.lineage.gaps import with_gaps
from clew.tracking.profiling.event_kinds import decide_events
from clew.tracking.solve import joined_pairs, solve
from clew.tracking.tracker import Tracker
from clew.tracking.training.prior import generic_weights

from ...helpers.effort import examples

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
    return Pairs.of(source, source.has), generic_weights(feature_names(source.has))


@pytest.fixture(scope="module")
def tracked():
    return track_pairs(*all_kinds(grid()), n_jobs=1)


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
    lineage = track_pairs(*all_kinds(grid(missing)), n_jobs=1)
    assert not gaps_of(lineage.events)
    assert (lineage.events.event == Event.DISAPPEAR).sum() == 2


def test_gaps_are_on_where_there_is_evidence_and_off_where_there_is_none():
    assert Event.GAP in decide_events(*all_kinds(grid())).events
    without = decide_events(*all_kinds(grid(set())))
    assert Event.GAP not in without.events
    assert "0 like gaps" in str(without)
    assert Event.GAP in decide_events(*all_kinds(grid(set())), {Event.GAP}).events
    tracker = Tracker.generic(n_jobs=1)
    assert gaps_of(tracker.track(grid()).events) == MISSING
    assert not gaps_of(
        Tracker.generic(n_jobs=1, events=map(str, PAIRWISE)).track(grid()).events
    )


@pytest.mark.parametrize("per_block", [1, 2, 3, 50])
def test_blocks_of_frames_do_not_matter(tracked, per_block):
    again = track_pairs(*all_kinds(grid()), n_jobs=1, per_block=per_block)
    assert set(again.events) == set(tracked.events)


def test_annotated_gaps_are_as_annotated(tracked):
    pairs, w = all_kinds(grid())
    gap = EventTable.of([(1, Event.GAP, (7,), (7,))])
    denied = track_pairs(pairs, w, Annotations.of(gap, False), n_jobs=1)
    assert gaps_of(denied.events) == MISSING - {(2, 7)}
    # ends that are annotated as such are no gap
    gone = EventTable.of([(1, Event.DISAPPEAR, (7,), ())])
    assert gaps_of(
        track_pairs(pairs, w, Annotations.of(gone), n_jobs=1).events
    ) == MISSING - {(2, 7)}
    # cell 1 is there all the time, and a person says that it was not
    strange = Annotations.of(EventTable.of([(3, Event.GAP, (1,), (2,))]))
    kept = track_pairs(pairs, w, strange, n_jobs=1)
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


def three_frames(seed):
    """Three frames of two or three cells each, and weights by which anything may happen."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 3)
    frame = np.repeat(np.arange(3), sizes)
    label = np.concatenate([np.arange(1, n + 1) for n in sizes])
    source = DetectionTable(frame, label, 3.0 * rng.random((len(frame), 2)), n_frames=3)
    pairs = Pairs.of(source, source.has, neighbours=2, reach=5.0)
    w = rng.normal(size=len(feature_names(source.has)))
    # ends that are missed alike: then what an end may cost at most is exact
    alone = {
        f"{Event.GAP}: {feature.name}"
        for feature in features_of(Event.APPEAR, source.has)
    } - {"gap: bias"}
    w[[name in alone for name in feature_names(source.has)]] = 0.0
    return pairs, w


def choices(pair, w):
    """All consistent choices of a pair as (score, events)."""
    program = make_program(pair.candidates, np.eye(len(pair.candidates)))
    scores = pair.scores(w)
    for y in BinaryProgram().outputs(program):
        rows = np.flatnonzero(y)
        yield float(scores[rows].sum()), pair.candidates.table(pair.a, pair.b, rows)


@examples(30)
@given(seed=st.integers(0, 10_000))
def test_no_choice_with_one_gap_or_none_is_better(seed):
    pairs, w = three_frames(seed)
    first, second = pairs.pair(0), pairs.pair(1)
    if max(len(first.candidates), len(second.candidates)) > 18:
        return
    solved = [solve(pair, w) for pair in (first, second)]
    if any(one.ends is None for one in solved):
        return
    # what each gap scores, from ends that are all cells
    ends = [all_ends(pair) for pair in (first, second)]
    problem = GapFrame.of(ends[0], ends[1], first.around)
    score = {
        (int(first.a.label[s]), int(second.b.label[t])): float(
            row @ solved[0].ends.weights
        )
        for row, (s, _), (t, _) in zip(
            problem.features,
            problem.candidates.sources,
            problem.candidates.targets,
            strict=False,
        )
    }
    best = max(
        one
        + other
        + max([0.0, *(score[gap] for gap in score if is_open(mine, theirs, gap))])
        for one, mine in choices(first, w)
        for other, theirs in choices(second, w)
    )
    links = find_gaps([(one.frame, one.ends) for one in solved])[0]
    joined, gaps = joined_pairs(solved)
    value = sum(score[source, target] for _, _, (source,), (target,) in gaps.events)
    for pair in (first, second):
        chosen = joined.events[joined.events.frame == pair.a.frame]
        rows = pair.rows(chosen)
        assert len(rows) == len(chosen)
        value += float(pair.scores(w)[list(rows)].sum())
    # gaps whose ends change the same events cannot all be closed: then some are better than none
    without = sum(one.assignment.value for one in solved)
    assert value >= (best if len(links) < 2 else without) - 1e-6
    events, confidence, _ = with_gaps(
        joined.events, joined.confidence, joined.border, gaps
    )
    assert len(events) == len(confidence)
    consistent(events, pairs.source)


def all_ends(pair):
    """Every cell of the pair's outer frame as an end, at no cost."""
    there, back = carried(pair.a, pair.b, pair.around.shift)
    side, event = (
        (there, Event.DISAPPEAR) if pair.a.frame == 0 else (back, Event.APPEAR)
    )
    return Ends.of(
        side, event, pair.around.alone[event], pair.around.groups, np.arange(len(side))
    )


def is_open(mine, theirs, gap):
    """Whether a choice lets the source disappear and the target appear."""
    return (0, Event.DISAPPEAR, gap[:1], ()) in set(mine) and (
        1,
        Event.APPEAR,
        (),
        gap[1:],
    ) in set(theirs)


def consistent(events, source):
    """Each cell has one fate and one history."""
    index = EventIndex(events)
    for t in range(source.n_frames):
        labels = source.detections(t).label
        for is_target, due in ((False, t < source.n_frames - 1), (True, t > 0)):
            found = index.find_cell(
                np.full(len(labels), t), np.full(len(labels), is_target), labels
            )
            assert ((found >= 0) == due).all()


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
        [name.startswith("gap: ") for name in feature_names(pairs.groups)], 0.0, w
    )
    assert not gaps_of(track_pairs(pairs, w, n_jobs=1).events)
    assert not gaps_of(
        track_pairs(replace(pairs, events=frozenset(PAIRWISE)), w, n_jobs=1).events
    )
