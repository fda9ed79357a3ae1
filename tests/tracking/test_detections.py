"""Detections by row and label, and detections from a table."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable, find_groups


def table(**changes):
    """Five cells in frames 0, 0, 1, 1, 3, out of order."""
    given = {
        "frame": [1, 0, 3, 0, 1],
        "label": [2, 9, 1, 4, 7],
        "position": [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]],
        "columns": {"volume": [1, 2, 3, 4, 5]},
    }
    return DetectionTable(**(given | changes))


def test_frames_are_sorted_by_label_and_may_be_empty():
    source = table()
    assert (source.n_frames, source.ndim) == (4, 2)
    first, empty = source.detections(0), source.detections(2)
    assert first.label.tolist() == [4, 9]
    assert first.position.tolist() == [[7, 8], [3, 4]]
    assert first.columns["volume"].tolist() == [4, 2]
    assert len(empty) == 0
    assert empty.position.shape == (0, 2)
    assert len(source.overlap(0).volume) == 0


def test_rows_of_labels():
    source = table()
    assert source.detections(0).rows(np.array([[9, 4], [0, 5], [10, 9]])).tolist() == [
        [1, 0],
        [-1, -1],
        [-1, 1],
    ]
    assert source.detections(2).rows(np.array([[9, 0]])).tolist() == [[-1, -1]]


def test_groups_are_those_whose_columns_are_there():
    assert table().has == {"size", "border"}
    assert table(columns={}).has == {"border"}
    assert table(columns={"intensity": np.ones(5)}).has == {"border", "intensity"}
    assert find_groups({"axes", "eccentricity"}) == set()


def test_the_border_is_the_box_around_all_positions_unless_given():
    assert table().detections(1).columns["border_distance"].tolist() == [0, 0]
    assert table().detections(0).columns["border_distance"].tolist() == [2, 2]
    given = table(columns={"border_distance": np.arange(5)})
    assert given.detections(1).columns["border_distance"].tolist() == [0, 4]


def test_an_empty_table():
    source = DetectionTable([], [], np.zeros((0, 3)), n_frames=2)
    assert (source.n_frames, source.ndim, len(source.detections(1))) == (2, 3, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frame": [1, 0, 3, 0]}, "rows"),
        ({"frame": [1, 0, 3, 0, -1]}, "count from 0"),
        ({"frame": [1, 0, 3, 0, 0.5]}, "whole numbers"),
        ({"label": [2, 9, 1, 0, 7]}, "from 1"),
        ({"label": [2, 9, 1, 9, 7]}, "label 9 is twice in frame 0"),
        ({"position": np.zeros((5, 4))}, "position"),
        ({"position": [[1, 2], [3, 4], [5, np.nan], [7, 8], [9, 10]]}, "row 2"),
        ({"columns": {"colour": np.zeros(5)}}, "colour"),
        ({"columns": {"volume": np.zeros(4)}}, "volume"),
    ],
)
def test_wrong_tables_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        table(**changes)


def test_a_frame_beyond_the_end_is_refused():
    with pytest.raises(InputError, match="no frame 4"):
        table().detections(4)
