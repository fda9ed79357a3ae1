"""What a truth says of detections that have other masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.tracking.evaluation.matching import (
    FrameMatch,
    ResultMasks,
    compute_jaccard,
    match_frame,
)
from clew.tracking.evaluation.truth import (
    derive_annotations,
    derive_events,
    derive_track_events,
)
from clew.tracking.events import LINEAGE_KINDS, check_annotations
from clew.tracking.io.ctc import CtcLineage, open_ctc_lineage
from clew.tracking.lineage.tracks import Tracks, check_frame
from clew.tracking.movie import Movie, open_movie

MOVE, DIVIDE, APPEAR, DISAPPEAR, SPLIT, MERGE, GAP = LINEAGE_KINDS


def image(*rows):
    """A label image, a digit for each pixel, a dot for the background."""
    return np.array(
        [[0 if pixel == "." else int(pixel) for pixel in row] for row in rows]
    )


def happened(tracks, truth, detections):
    """The events of one-row images, as a set."""
    lineage = CtcLineage(Tracks.of(tracks), [image(row) for row in truth], "the truth")
    movie = Movie.from_arrays([image(row) for row in detections])
    return set(derive_annotations(lineage, movie).events)


def test_over_half_of_a_cell_is_held():
    truth = image(
        "111.2222.33",
        "...4.....55",
    )
    found = image(
        "7788..88.99",
        "...........",
    )
    held = match_frame(truth, found)
    assert held.cell.tolist() == [1, 2, 3, 4, 5]
    # 1 is two thirds in 7; half of 2 is in 8, which is not over half; 9 holds 3, nothing holds 4 and 5
    assert held.holder.tolist() == [7, 0, 9, 0, 0]
    assert held.touched.tolist() == [True, True, True, False, False]
    assert compute_jaccard(truth, found).tolist() == [2 / 3, 0, 1, 0, 0]


def test_one_detection_holds_two_cells():
    assert match_frame(image("11.22"), image("33333")).holder.tolist() == [3, 3]
    assert compute_jaccard(image("11.22"), image("33333")).tolist() == [0.4, 0.4]


def test_masks_of_other_shapes_are_refused():
    with pytest.raises(InputError, match="shape"):
        match_frame(image("11"), image("111"))
    with pytest.raises(InputError, match="2 frames, the movie 1"):
        happened([[1, 0, 1, 0]], ["1", "1"], ["1"])
    with pytest.raises(InputError, match=r"frame 0: .*shape"):
        happened([[1, 0, 0, 0]], ["1"], ["11"])


def test_empty_frames():
    held = match_frame(image("...."), image("11.."))
    assert [len(column) for column in held] == [0, 0, 0]
    assert happened([[1, 1, 1, 0]], ["....", "11.."], ["....", ".22."]) == set()
    assert happened([[1, 1, 1, 0]], ["....", "11.."], ["....", "22.."]) == {
        (0, APPEAR, (), (2,))
    }
    assert happened([[1, 0, 0, 0]], ["11..", "...."], ["22..", "...."]) == {
        (0, DISAPPEAR, (2,), ())
    }


LIFE, FAMILY = [[1, 0, 1, 0]], [[1, 0, 0, 0], [2, 1, 1, 1], [3, 1, 1, 1]]
TWO = [[1, 0, 1, 0], [2, 0, 1, 0]]
THREE = [*TWO, [3, 0, 1, 0]]


@pytest.mark.parametrize(
    ("tracks", "truth", "detections", "events"),
    [
        # a cell under other names, and one that nobody knows
        (LIFE, ["11..", ".11."], ["55.6", ".77."], {(0, MOVE, (5,), (7,))}),
        # its detection is missing in the second frame, or in the first
        (LIFE, ["11..", ".11."], ["55..", "...8"], {(0, DISAPPEAR, (5,), ())}),
        (LIFE, ["11..", ".11."], ["...5", ".77."], {(0, APPEAR, (), (7,))}),
        # a detection touches it, but does not hold it: who knows
        (LIFE, ["11..", ".11."], ["55..", "..77"], set()),
        (LIFE, ["11..", ".11."], [".5..", ".77."], set()),
        # a division; with a daughter that is not seen; with both in one detection
        (FAMILY, [".11.", "22.3"], [".55.", "66.7"], {(0, DIVIDE, (5,), (6, 7))}),
        (FAMILY, [".11.", "22.3"], [".55.", "66.."], set()),
        (FAMILY, [".11.", "22.3"], [".55.", "6666"], {(0, MOVE, (5,), (6,))}),
        (FAMILY, [".11.", "22.3"], [".55.", "...."], {(0, DISAPPEAR, (5,), ())}),
        (
            FAMILY,
            [".11.", "22.3"],
            ["....", "66.7"],
            {(0, APPEAR, (), (6,)), (0, APPEAR, (), (7,))},
        ),
        # two cells in one detection
        (TWO, ["11.2", "11.2"], ["3333", "44.5"], {(0, SPLIT, (3,), (4, 5))}),
        (TWO, ["11.2", "11.2"], ["33.4", "5555"], {(0, MERGE, (3, 4), (5,))}),
        (TWO, ["11.2", "11.2"], ["3333", "4444"], {(0, MOVE, (3,), (4,))}),
        (TWO, ["11.2", "11.2"], ["3333", "44.."], {(0, MOVE, (3,), (4,))}),
        (TWO, ["11.2", "11.2"], ["3333", "...."], {(0, DISAPPEAR, (3,), ())}),
        # three cells are too many for one event
        (THREE, ["1.2.3", "1.2.3"], ["44444", "5.6.7"], set()),
        (THREE, ["1.2.3", "1.2.3"], ["444.5", "6.777"], set()),
        (THREE, ["1.2.3", "1.2.3"], ["44444", "555.6"], set()),
        # a mother and a stranger in one detection
        ([*FAMILY, [4, 0, 1, 0]], ["11.4.", "2.34."], ["5555.", "6.77."], set()),
        ([*FAMILY, [4, 0, 0, 0]], ["11.4.", "2.3.."], ["5555.", "6.7.."], set()),
        # a single child goes on as another track
        (
            [[1, 0, 0, 0], [2, 1, 1, 1]],
            ["11", "22"],
            ["33", "44"],
            {(0, MOVE, (3,), (4,))},
        ),
    ],
)
def test_events(tracks, truth, detections, events):
    assert happened(tracks, truth, detections) == events


def test_links_over_a_gap_do_not_count():
    tracks = [[1, 0, 0, 0], [2, 2, 2, 1], [3, 2, 2, 1]]
    truth = ["11.", "...", "2.3"]
    assert happened(tracks, truth, truth) == {
        (0, DISAPPEAR, (1,), ()),
        (1, APPEAR, (), (2,)),
        (1, APPEAR, (), (3,)),
    }


def test_a_label_that_the_table_lacks():
    with pytest.raises(InputError, match="the truth, frame 1: label 9"):
        happened(LIFE, ["1", "9"], ["1", "1"])
    own = ResultMasks(CtcLineage(Tracks.of(LIFE), [image("1"), image("2")], "mine"))
    with pytest.raises(InputError, match="mine, frame 1: label 2"):
        own.label(1)


@st.composite
def truths(draw, frames=4, width=12):
    """Random tracks with masks of one row, in which each has a pixel at least."""
    rows, last, masks = [], [], []
    for id in range(1, draw(st.integers(1, 5)) + 1):
        begin = draw(st.integers(0, frames - 1))
        end = draw(st.integers(begin, frames - 1))
        free = [
            p
            for p, _, e, _ in rows
            if e < begin and sum(row[3] == p for row in rows) < 2
        ]
        rows.append([id, begin, end, draw(st.sampled_from([0, *free, *free]))])
        last.append(end)
    for t in range(frames):
        alive = [id for id, begin, end, _ in rows if begin <= t <= end]
        fill = draw(
            st.lists(st.sampled_from([0, *alive]), min_size=width, max_size=width)
        )
        masks.append(np.array([sorted(fill[: width - len(alive)] + alive)]))
    return CtcLineage(Tracks.of(rows), masks, "random")


def label_images(frames=4, width=12):
    row = st.lists(st.sampled_from([0, 1, 2, 3, 70000]), min_size=width, max_size=width)
    return st.lists(
        row.map(lambda labels: np.array([sorted(labels)])),
        min_size=frames,
        max_size=frames,
    )


@given(truths(), label_images())
def test_events_never_contradict_each_other(truth, detections):
    movie = Movie.from_arrays(detections)
    said = derive_annotations(truth, movie)
    checked = check_annotations(
        said, lambda t: np.setdiff1d(detections[t], 0), len(detections)
    )
    assert len(checked) == len(said)


@pytest.mark.parametrize("unseen", [(), (3,)])
def test_three_daughters_are_unknown_whether_all_are_seen_or_two(unseen):
    tracks = Tracks.of(
        [[1, 0, 0, 0], [2, 1, 1, 1], [3, 1, 1, 1], [4, 1, 1, 1], [5, 0, 1, 0]]
    )
    before, after = np.array([1, 5]), np.array([2, 3, 4, 5])
    seen = np.where(np.isin(after, unseen), 0, after)
    frames = [FrameMatch(before, before, before > 0), FrameMatch(after, seen, seen > 0)]
    assert list(derive_events(tracks, frames)) == [(0, MOVE, (5,), (5,))]


@given(truths(), label_images())
def test_matching_by_brute_force(truth, detections):
    for mask, found in zip(truth.masks, detections, strict=True):
        held = match_frame(mask, found)
        for cell, holder, touched in zip(*held, strict=True):
            inside = mask == cell
            over = [
                d
                for d in np.unique(found)
                if d and 2 * (inside & (found == d)).sum() > inside.sum()
            ]
            assert [holder] == (over or [0])
            assert touched == found[inside].any()
        assert held.cell.tolist() == np.setdiff1d(mask, 0).tolist()


@given(truths())
def test_its_own_masks_say_the_same_as_the_tracks(truth):
    said = set(derive_annotations(truth, ResultMasks(truth)).events)
    assert said == set(derive_track_events(truth.tracks, len(truth.masks)))
    # every detection has its fate, unless one of two daughters comes later than the other
    rows = truth.tracks.table().tolist()
    children = {
        id: [begin for _, begin, _, parent in rows if parent == id] for id, *_ in rows
    }
    for id, begin, end, _ in rows:
        for t in range(begin, min(end, len(truth.masks) - 2) + 1):
            fates = [
                event
                for frame, event, sources, _ in said
                if frame == t and id in sources
            ]
            if t == end and children[id] == [end + 2]:
                assert fates == [GAP]
            elif t < end or end + 1 not in children[id]:
                assert fates == [MOVE if t < end else DISAPPEAR]
            else:
                at_once = children[id].count(end + 1)
                assert fates == (
                    []
                    if at_once < len(children[id])
                    else [DIVIDE]
                    if at_once == 2
                    else [MOVE]
                )


def test_hela(clew_data):
    folder = clew_data / "Fluo-N2DL-HeLa"
    truth, movie = open_ctc_lineage(folder / "01_GT"), open_movie(folder / "01")
    own = derive_annotations(truth, ResultMasks(truth)).events
    assert np.bincount(own.event, minlength=7).tolist() == [8374, 94, 34, 34, 0, 0, 0]
    seen = derive_annotations(
        truth, movie
    ).events  # 119 cells have no mask of their own
    assert np.bincount(seen.event, minlength=7).tolist() == [8233, 93, 46, 50, 0, 0, 12]
    assert np.bincount(seen.to_pairwise().event, minlength=7).tolist() == [
        8233,
        93,
        58,
        62,
        0,
        0,
        0,
    ]
    check_frame(truth.tracks, 91, np.unique(truth.masks[91]))
