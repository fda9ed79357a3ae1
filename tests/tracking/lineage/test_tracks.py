import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import DataWarning, InputError
from clew.tracking.lineage.tracks import Tracks, check_tracks

FAMILY = [
    [7, 0, 3, 0],
    [2, 4, 9, 7],
    [5, 4, 6, 7],
    [1, 0, 9, 0],
    [3, 9, 9, 5],
]  # 7 divides into 2 and 5; 5 → gap → 3


def test_a_lineage_is_accepted():
    check_tracks(Tracks.of(FAMILY), "here")


def test_no_tracks_are_accepted():
    check_tracks(Tracks.of([]), "here")
    assert len(Tracks.of([])) == 0
    assert Tracks.of([]).parent_row().tolist() == []


def test_table_and_back():
    assert Tracks.of(FAMILY).table().tolist() == FAMILY
    assert Tracks.of(FAMILY)[1:3].table().tolist() == FAMILY[1:3]


def test_parent_rows():
    assert Tracks.of(FAMILY).parent_row().tolist() == [-1, 0, 0, -1, 2]


@pytest.mark.parametrize(
    ("row", "change", "message"),
    [
        (1, [0, 4, 9, 7], "row 2: the track has the id 0"),
        (3, [-1, 0, 9, 0], "row 4: the track has the id -1"),
        (3, [2, 0, 9, 0], "row 4: track 2 stands in row 2 already"),
        (3, [1, -1, 9, 0], "row 4: track 1 begins in frame -1"),
        (
            3,
            [1, 5, 4, 0],
            "row 4: track 1 ends in frame 4, before it begins in frame 5",
        ),
        (3, [1, 4, 9, 1], "row 4: track 1 is its own parent"),
        (3, [1, 4, 9, 8], "row 4: the parent 8 of track 1 is not in the table"),
        (3, [1, 4, 9, -7], "row 4: the parent -7 of track 1 is not in the table"),
        (0, [7, 0, 3, 3], "row 1: track 7 is its own ancestor, through its parent 3"),
        (
            2,
            [5, 3, 6, 7],
            "row 3: track 5 begins in frame 3, but its parent 7 lasts to frame 3",
        ),
    ],
)
def test_what_no_lineage_can_have_is_refused_with_its_row(row, change, message):
    table = [list(track) for track in FAMILY]
    table[row] = change
    with pytest.raises(InputError, match=f"^here, {message}"):
        check_tracks(Tracks.of(table), "here")


def test_three_daughters_are_accepted_with_a_warning_that_names_their_rows():
    table = Tracks.of([*FAMILY[:3], [1, 4, 9, 7], [3, 9, 9, 5]])
    with pytest.warns(
        DataWarning,
        match=r"^here: track 7 has 3 daughters \(2, 5, 1; rows 20, 30, 40\)\.",
    ):
        check_tracks(table, "here", rows=[10, 20, 30, 40, 50])


def test_two_daughters_are_accepted_without_a_warning(recwarn):
    check_tracks(Tracks.of(FAMILY), "here")
    assert not recwarn


def test_the_rows_of_the_file_are_named():
    with pytest.raises(InputError, match=r"^a\.txt, row 30: .* row 10 already"):
        check_tracks(
            Tracks.of([[1, 0, 0, 0], [2, 0, 0, 0], [1, 1, 1, 0]]),
            "a.txt",
            rows=[10, 20, 30],
        )


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=6))
def test_a_cycle_is_found_exactly_where_there_is_one(parents):
    n = len(parents)
    of = [
        parent if parent < n and parent != i else -1 for i, parent in enumerate(parents)
    ]

    def meets_itself(i):
        at = of[i]
        for _ in range(n):
            if at in (i, -1):
                break
            at = of[at]
        return at == i

    # frames that fit no parent: a cycle is found first, for it is looked for before the frames
    tracks = Tracks.of([[i + 1, 0, 0, parent + 1] for i, parent in enumerate(of)])
    first = next((i for i in range(n) if meets_itself(i)), None)
    if first is not None:
        with pytest.raises(
            InputError, match=f"row {first + 1}: track {first + 1} is its own ancestor"
        ):
            check_tracks(tracks, "here")
    elif max(of) >= 0:
        with pytest.raises(InputError, match="begins in frame 0"):
            check_tracks(tracks, "here")
    else:
        check_tracks(tracks, "here")


def test_a_long_chain_takes_no_time():
    n = 50_000
    table = np.column_stack(
        [np.arange(1, n + 1), np.arange(n), np.arange(n), np.arange(n)]
    )
    check_tracks(Tracks.of(table), "here")
