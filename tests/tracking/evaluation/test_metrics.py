"""AOGM and divisions, by hand and against py-ctcmetrics."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clew.tracking.evaluation.matching import FrameMatch
from clew.tracking.evaluation.metrics import (
    MatchCounts,
    build_track_graph,
    compute_aogm,
    count_divisions,
)
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.lineage.tracks import Tracks

#  truth     1 ── 1 ─┬─ 2 ── 2        result   1 ── 1 ── 1 ── 1     (the division is missed: 3 comes of nothing)
#                    └─ 3 ── 3                            3 ── 3
TRUE = Tracks.of([[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 3, 1]])
MISSED = Tracks.of([[1, 0, 3, 0], [3, 2, 3, 0]])


def held(tracks, n_frames, names=None):
    """Frames in which each true cell is held by the track `names(t, cell)`, by its own where not given."""
    frames = []
    for t in range(n_frames):
        cells = np.sort(tracks.id[(tracks.begin <= t) & (t <= tracks.end)])
        holders = np.array(
            [names(t, int(cell)) if names else cell for cell in cells], dtype=np.int64
        )
        frames.append(FrameMatch(cells, holders, holders > 0))
    return frames


def test_graph():
    graph = build_track_graph(TRUE)
    assert list(zip(graph.frame.tolist(), graph.track.tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
        (2, 2),
        (2, 3),
        (3, 2),
        (3, 3),
    ]
    edges = {
        (s, t, c) for s, t, c in zip(*(x.tolist() for x in graph[2:]), strict=True)
    }
    assert edges == {
        (0, 1, False),
        (2, 4, False),
        (3, 5, False),
        (1, 2, True),
        (1, 3, True),
    }


def test_aogm_by_hand():
    same = compute_aogm(TRUE, TRUE, held(TRUE, 4))
    assert (same.total, same.score, same.vertices, same.edges) == (0.0, 1.0, 6, 5)
    found = compute_aogm(
        TRUE, MISSED, held(TRUE, 4, lambda t, cell: 1 if cell == 2 else cell)
    )
    # 1 → 3 is to be added, and 1 → 2 leads to a child
    assert (
        found.missing_edges,
        found.wrong_edges,
        found.false_edges,
        found.false_vertices,
    ) == (1, 1, 0, 0)
    assert found.total == found.avoidable == 1.5 + 1
    # nothing holds 3, and the track 3 holds nothing
    found = compute_aogm(
        TRUE, MISSED, held(TRUE, 4, lambda t, cell: {1: 1, 2: 1, 3: 0}[cell])
    )
    assert (
        found.missing_vertices,
        found.false_vertices,
        found.missing_edges,
        found.wrong_edges,
    ) == (2, 2, 2, 1)
    # both daughters in one detection: links to it do not count
    found = compute_aogm(
        TRUE, Tracks.of([[1, 0, 3, 0]]), held(TRUE, 4, lambda t, cell: 1)
    )
    assert (
        found.split_vertices,
        found.missing_vertices,
        found.missing_edges,
        found.false_edges,
    ) == (2, 0, 4, 0)
    # a link that is not there
    two = Tracks.of([[1, 0, 0, 0], [2, 1, 1, 0]])
    found = compute_aogm(
        two, Tracks.of([[1, 0, 1, 0]]), held(two, 2, lambda t, cell: 1)
    )
    assert (found.false_edges, found.total) == (1, 1.0)


def test_nothing_found():
    nothing = compute_aogm(TRUE, Tracks.of([]), held(TRUE, 4, lambda t, cell: 0))
    assert (nothing.missing_vertices, nothing.missing_edges, nothing.score) == (
        6,
        5,
        0.0,
    )
    assert nothing.avoidable == 0


def test_divisions_by_hand():
    #  the result divides one frame late: 1 goes on as track 1 for one more frame, in place of 2
    late = Tracks.of([[1, 0, 2, 0], [4, 3, 3, 1], [5, 3, 3, 1], [6, 2, 2, 0]])
    names = {(2, 2): 6, (2, 3): 1, (3, 2): 4, (3, 3): 5}
    frames = held(TRUE, 4, lambda t, cell: names.get((t, cell), cell))
    assert count_divisions(TRUE, late, frames, 0) == MatchCounts(0, 1, 1)
    assert count_divisions(TRUE, late, frames, 1) == MatchCounts(1, 0, 0)
    assert count_divisions(TRUE, TRUE, held(TRUE, 4), 0) == MatchCounts(1, 0, 0)
    assert count_divisions(TRUE, MISSED, held(TRUE, 4), 1) == MatchCounts(0, 0, 1)
    assert count_divisions(MISSED, TRUE, held(MISSED, 4), 1) == MatchCounts(0, 1, 0)


def test_figures_of_what_was_found():
    found = MatchCounts(right=3, false=1, missed=2)
    assert (found.precision, found.recall) == (0.75, 0.6)
    assert found.f1 == pytest.approx(2 / 3)
    assert (
        MatchCounts(0, 0, 0).f1
        == MatchCounts(0, 0, 0).precision
        == MatchCounts(0, 0, 0).recall
        == 1.0
    )
    assert MatchCounts(0, 0, 1).f1 == 0.0


@st.composite
def some_tracks(draw, n_frames=5):
    rows = []
    for id in range(1, draw(st.integers(1, 6)) + 1):
        begin = draw(st.integers(0, n_frames - 1)) if id > 1 else 0
        end = draw(st.integers(begin, n_frames - 1)) if id > 1 else n_frames - 2
        # three daughters are rare, but real
        free = [
            p
            for p, _, e, _ in rows
            if e < begin and sum(row[3] == p for row in rows) < 3
        ]
        rows.append([id, begin, end, draw(st.sampled_from([0, *free, *free, *free]))])
    return Tracks.of(rows)


@given(some_tracks(), some_tracks(), st.data())
def test_aogm_and_divisions_against_py_ctcmetrics(truth, result, data):
    pytest.importorskip("ctc_metrics", reason="py-ctcmetrics is not installed")
    from ctc_metrics.metrics.biological.bc import raw_division_metrics
    from ctc_metrics.utils.representations import (
        count_acyclic_graph_correction_operations,
    )

    present = [
        np.sort(result.id[(result.begin <= t) & (t <= result.end)]).tolist()
        for t in range(5)
    ]

    def holder(t, cell):
        same = [cell] * 6 if cell in present[t] else []
        return data.draw(st.sampled_from([0, *present[t], *same]))

    frames = held(truth, 5, holder)
    assume(any(frame.holder.any() for frame in frames))
    reference = [frame.cell.tolist() for frame in frames]
    mapped = [
        [side[frame.holder > 0].tolist() for side in frame[:2]] for frame in frames
    ]
    mapped = list(map(list, zip(*mapped, strict=True)))
    theirs = count_acyclic_graph_correction_operations(
        truth.table(), result.table(), reference, present, *mapped
    )
    ours = compute_aogm(truth, result, frames)
    vertices = (
        ours.split_vertices,
        ours.missing_vertices,
        ours.false_vertices,
        ours.vertices,
    )
    assert vertices == tuple(
        theirs[name] for name in ("NS", "FN", "FP", "num_vertices")
    )
    edges = (ours.false_edges, ours.missing_edges, ours.wrong_edges, ours.edges)
    assert edges == tuple(theirs[name] for name in ("ED", "EA", "EC", "num_edges"))
    for tolerance in (0, 1):
        found = count_divisions(truth, result, frames, tolerance)
        counted = raw_division_metrics(
            result.table(), truth.table(), *mapped, tolerance
        )
        assert (found.right, found.false, found.missed) == counted


@given(some_tracks(), some_tracks(), st.data())
def test_what_the_masks_allow_is_a_bound_that_right_links_attain(truth, result, data):
    present = [
        np.sort(result.id[(result.begin <= t) & (t <= result.end)]).tolist()
        for t in range(5)
    ]
    found = compute_aogm(
        truth,
        result,
        held(truth, 5, lambda t, cell: data.draw(st.sampled_from([0, *present[t]]))),
    )
    assert found.avoidable >= 0
    assert found.unreachable_edges <= found.missing_edges
    # the true links on detections that miss some cells and hold others together
    alive = [truth.id[(truth.begin <= t) & (t <= truth.end)].tolist() for t in range(5)]
    lost = [data.draw(st.sets(st.sampled_from(ids))) if ids else set() for ids in alive]
    into = [
        data.draw(st.sampled_from([0, *(set(ids) - gone)]))
        for ids, gone in zip(alive, lost, strict=True)
    ]
    best = compute_aogm(
        truth,
        truth,
        held(truth, 5, lambda t, cell: into[t] if cell in lost[t] else cell),
    )
    assert best.avoidable == 0
    assert best.total == best.unavoidable


def test_hela_against_itself(clew_data):
    """The first six frames: vertices are the labels of the masks, and nothing is to be mended."""
    folder = clew_data / "Fluo-N2DL-HeLa/01_GT/TRA"
    truth = open_ctc_lineage(folder)
    few = Tracks(
        truth.tracks.id,
        truth.tracks.begin,
        np.minimum(truth.tracks.end, 5),
        truth.tracks.parent,
    )
    few = few[few.begin <= 5]
    frames = held(few, 6)
    assert compute_aogm(few, few, frames).total == 0
    assert len(build_track_graph(few).frame) == sum(
        len(np.unique(truth.masks[t])) - 1 for t in range(6)
    )
