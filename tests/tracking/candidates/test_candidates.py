"""Candidate events, against brute force over all pairs and trios of cells."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.tracking.candidates.candidates import (
    Candidates,
    estimate_reach,
    find_candidates,
)
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import Detections, DetectionTable, Overlap
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import PAIRWISE, Event, EventTable
from clew.tracking.flow.motion import estimate_motion
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.profile import estimate_profile
from clew.tracking.scales import estimate_scales


def cells(frame, positions, labels=None):
    positions = np.asarray(positions, dtype=float).reshape(-1, 2)
    labels = np.arange(1, len(positions) + 1) if labels is None else np.asarray(labels)
    return Detections(frame, labels.astype(np.int64), positions, {})


def scene(seed, n, m):
    rng = np.random.default_rng(seed)
    labels = [np.sort(rng.choice(50, size, replace=False)) + 1 for size in (n, m)]
    return cells(3, rng.random((n, 2)), labels[0]), cells(
        4, rng.random((m, 2)), labels[1]
    )


def brute_force(a, b, k, reach):
    """The same by comparing all with all, by label."""

    def nearest(cell, others):
        distance = np.linalg.norm(others.position - cell, axis=1)
        return [
            int(others.label[row])
            for row in np.argsort(distance)[:k]
            if distance[row] <= reach
        ]

    ahead = {
        int(label): nearest(cell, b)
        for label, cell in zip(a.label, a.position, strict=True)
    }
    back = {
        int(label): nearest(cell, a)
        for label, cell in zip(b.label, b.position, strict=True)
    }
    events = {(Event.MOVE, (i,), (j,)) for i, near in ahead.items() for j in near}
    events |= {(Event.MOVE, (i,), (j,)) for j, near in back.items() for i in near}
    for event in (Event.DIVIDE, Event.SPLIT):
        events |= {
            (event, (i,), tuple(sorted(two)))
            for i, near in ahead.items()
            for two in combinations(near, 2)
        }
    events |= {
        (Event.MERGE, tuple(sorted(two)), (j,))
        for j, near in back.items()
        for two in combinations(near, 2)
    }
    return (
        events
        | {(Event.APPEAR, (), (j,)) for j in back}
        | {(Event.DISAPPEAR, (i,), ()) for i in ahead}
    )


@given(
    st.integers(0, 10**6),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 5),
    st.floats(0.05, 2),
)
def test_candidates_match_brute_force(seed, n, m, k, reach):
    a, b = scene(seed, n, m)
    found = find_candidates(a, b, neighbours=k, reach=reach)
    events = [
        (event, sources, targets) for _, event, sources, targets in found.table(a, b)
    ]
    assert len(set(events)) == len(events)
    assert set(events) == brute_force(a, b, k, reach)
    assert (found.n_sources, found.n_targets) == (n, m)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9))
def test_candidates_are_sorted(seed, n, m):
    found = find_candidates(*scene(seed, n, m), reach=0.4)
    keys = np.column_stack([found.event, found.sources, found.targets]).tolist()
    assert keys == sorted(keys)
    for event in Event:
        rows = found.of_event(event)
        np.testing.assert_array_equal(
            np.flatnonzero(found.event == event), np.arange(rows.start, rows.stop)
        )
        for side, count in zip(
            (found.sources, found.targets), event.arity, strict=True
        ):
            assert (side[rows, :count] >= 0).all()
            assert (side[rows, count:] == -1).all()
            assert count < 2 or (side[rows, 0] < side[rows, 1]).all()


@given(st.integers(0, 10**6), st.data())
def test_annotated_events_are_candidates(seed, data):
    a, b = scene(seed, 6, 7)
    some = {
        side: st.lists(
            st.sampled_from(frame.label.tolist()), unique=True, min_size=2, max_size=2
        )
        for side, frame in (("sources", a), ("targets", b))
    }
    events = []
    for event in data.draw(st.lists(st.sampled_from(PAIRWISE), max_size=8)):
        sources = data.draw(some["sources"])[: event.arity[0]]
        targets = data.draw(some["targets"])[: event.arity[1]]
        events.append((3, event, sources, targets))
    extra = EventTable.of(events)
    plain, found = (
        find_candidates(a, b, reach=0.05, extra=given) for given in (None, extra)
    )
    at = found.find(extra, a, b)
    assert (at >= 0).all()
    np.testing.assert_array_equal(found.table(a, b, at).row_keys(), extra.row_keys())
    assert set(found.table(a, b).row_keys().tolist()) == {
        *plain.table(a, b).row_keys().tolist(),
        *extra.row_keys().tolist(),
    }


def test_unknown_events_are_not_found():
    a = cells(0, [[0, 0], [9, 9]])
    b = cells(1, [[0, 1], [9, 8]])
    found = find_candidates(a, b, reach=2)
    asked = EventTable.of(
        [
            (0, Event.MOVE, [1], [1]),
            (0, Event.MOVE, [1], [2]),
            (0, Event.MOVE, [1], [7]),
            (0, Event.MERGE, [1, 2], [1]),
        ]
    )
    at = found.find(asked, a, b)
    assert at.tolist() == [0, -1, -1, -1]
    assert Candidates.from_columns({}, 2, 2).find(asked, a, b).tolist() == [-1] * 4


def test_annotated_events_of_unknown_cells_are_rejected():
    a = cells(0, [[0, 0]])
    b = cells(1, [[0, 1]])
    assert (
        len(
            find_candidates(
                a, b, reach=2, extra=EventTable.of([(5, Event.MOVE, [8], [9])])
            )
        )
        == 3
    )
    with pytest.raises(InputError, match="move 1 → 9 from frame 0 to 1"):
        find_candidates(a, b, reach=2, extra=EventTable.of([(0, Event.MOVE, [1], [9])]))


@pytest.mark.parametrize(
    "wrong", [{"neighbours": 0, "reach": 1}, {"reach": 0}, {"reach": float("nan")}]
)
def test_invalid_settings_are_rejected(wrong):
    with pytest.raises(InputError, match=r"expected a (whole|positive) number"):
        find_candidates(*scene(0, 2, 2), **wrong)


def reach_of(source):
    motion = estimate_motion(source)
    return estimate_reach(motion, estimate_scales(source, motion.median_step))


def test_reach_scales_with_the_unit_and_covers_typical_steps():
    rng = np.random.default_rng(0)
    start = rng.random((40, 2)) * 1000
    frame = np.repeat(np.arange(6), 40)
    label = np.tile(np.arange(1, 41), 6)
    way = np.concatenate([start + 8 * t for t in range(6)])
    volume = np.full(240, 100.0)
    reach = reach_of(DetectionTable(frame, label, way, {"volume": volume}))
    assert reach >= 8 * np.sqrt(2)
    larger = reach_of(DetectionTable(frame, label, 7 * way, {"volume": 49 * volume}))
    assert larger == pytest.approx(7 * reach)
    assert reach_of(DetectionTable([], [], np.zeros((0, 2)), n_frames=3)) > 0
    assert reach_of(DetectionTable([0], [1], [[1, 2]])) > 0


def test_candidates_of_fifty_thousand_cells():
    rng = np.random.default_rng(0)
    a = cells(0, rng.random((50_000, 2)))
    b = cells(1, rng.random((50_000, 2)))
    found = find_candidates(a, b, reach=0.1)
    assert len(found) <= 28 * 50_000
    assert (
        found.of_event(Event.DIVIDE).stop - found.of_event(Event.DIVIDE).start
        == 6 * 50_000
    )


def test_overlap_makes_daughters_of_long_cells_candidates():
    a = cells(0, [[0.0, 0.0]])
    beside = [[0.0, y] for y in (-0.4, -0.2, 0.2, 0.4)]
    b = cells(1, [[-1.0, 0.0], [1.0, 0.0], *beside])
    shared = Overlap(np.zeros(2, np.intp), np.array([0, 1]), np.array([3.0, 4.0]))
    division = EventTable.of([(0, Event.DIVIDE, [1], [1, 2])])
    assert find_candidates(a, b, reach=5, neighbours=4).find(
        division, a, b
    ).tolist() == [-1]
    assert (
        find_candidates(a, b, reach=5, neighbours=4, overlap=shared).find(
            division, a, b
        )[0]
        >= 0
    )


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_overlap_adds_neighbors_and_removes_none(seed, n, m, k):
    a, b = scene(seed, n, m)
    rng = np.random.default_rng(seed)
    source, target = np.nonzero(rng.random((n, m)) < 0.3)
    shared = Overlap(source, target, rng.random(len(source)))
    without = {*find_candidates(a, b, reach=0.3, neighbours=k).table(a, b)}
    found = [
        *find_candidates(a, b, reach=0.3, neighbours=k, overlap=shared).table(a, b)
    ]
    assert len(set(found)) == len(found)
    assert without <= set(found)
    ahead = {
        int(a.label[i]): [int(b.label[j]) for j in by_volume(shared, i)[:k]]
        for i in range(n)
    }
    for i, near in ahead.items():
        assert all((3, Event.MOVE, (i,), (j,)) in found for j in near)
        assert all(
            (3, Event.DIVIDE, (i,), tuple(sorted(two))) in found
            for two in combinations(near, 2)
        )


def by_volume(shared, row):
    """The targets of a source, most shared first."""
    return [
        j
        for _, j in sorted(
            (-v, j) for i, j, v in zip(*shared_columns(shared), strict=True) if i == row
        )
    ]


def shared_columns(shared):
    return shared.source.tolist(), shared.target.tolist(), shared.volume.tolist()


def test_disabled_events_are_candidates_only_if_annotated():
    a, b = scene(0, 5, 5)
    on = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
    assert set(find_candidates(a, b, reach=2, events=on).event.tolist()) == {
        int(event) for event in on
    }
    extra = find_candidates(a, b, reach=2).table(a, b)
    extra = extra[extra.event == Event.MERGE][:1]
    with_one = find_candidates(a, b, reach=2, events=on, extra=extra)
    assert (with_one.event == Event.MERGE).sum() == 1


@pytest.mark.parametrize("movie", ["Fluo-N2DH-SIM+/01", "bacteria/01"])
def test_true_events_of_real_movies_are_candidates(clew_data, movie):
    opened = open_movie(clew_data / movie)
    events = derive_annotations(
        open_ctc_lineage(clew_data / f"{movie}_GT/TRA"), opened
    ).events
    source = measure_movie(opened, cache=None)
    pairs = FramePairBuilder(source, estimate_profile(source, source.has))
    missing = 0
    for frame in range(len(pairs)):
        pair = pairs.build(frame)
        missing += int(
            (
                pair.candidates.find(events[events.frame == frame], pair.a, pair.b) < 0
            ).sum()
        )
    assert missing == 0
