"""What napari is given: tracks that it can draw, merges among them."""

import json

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.events import Event, EventTable
from clew.tracking.io.napari import make_napari_tracks, read_napari, write_napari
from clew.tracking.lineage.lineage import Lineage

# 1 ─ 1 ─┬ 1 ─ 1
#        └ 2      (gone)
# 2 ─┬ 2 ─ 3 ─┬ 2
# 3 ─┘        └ 3
#                4 (new)
EVENTS = [
    (0, Event.MOVE, [1], [1]),
    (0, Event.MERGE, [2, 3], [2]),
    (1, Event.DIVIDE, [1], [1, 2]),
    (1, Event.MOVE, [2], [3]),
    (2, Event.MOVE, [1], [1]),
    (2, Event.DISAPPEAR, [2], []),
    (2, Event.SPLIT, [3], [2, 3]),
    (2, Event.APPEAR, [], [4]),
]
NODES = [
    (0, 1),
    (0, 2),
    (0, 3),
    (1, 1),
    (1, 2),
    (2, 1),
    (2, 2),
    (2, 3),
    (3, 1),
    (3, 2),
    (3, 3),
    (3, 4),
]


@pytest.fixture
def lineage():
    frame, label = np.array(NODES).T
    position = np.column_stack([frame, label, label / 4])
    return Lineage(
        4,
        frame,
        label,
        position,
        EventTable.of(EVENTS),
        np.array([1, 2, 3, 4, np.inf, 5, 6, 7.5]),
    )


def test_segments_end_where_cells_divide_merge_and_split(lineage):
    data, properties, graph = make_napari_tracks(lineage)
    pieces: dict[int, list] = {}
    for track, t, label in zip(
        data[:, 0].astype(int), data[:, 1].astype(int), properties["label"], strict=True
    ):
        pieces.setdefault(track, []).append((t, int(label)))
    expected = [
        [(0, 1), (1, 1)],
        [(0, 2)],
        [(0, 3)],
        [(1, 2), (2, 3)],
        [(2, 1), (3, 1)],
        [(2, 2)],
        [(3, 2)],
        [(3, 3)],
        [(3, 4)],
    ]
    assert sorted(pieces.values()) == sorted(expected)
    of = {tuple(nodes): track for track, nodes in pieces.items()}
    mother, merged = of[(0, 1), (1, 1)], of[(1, 2), (2, 3)]
    assert graph == {
        of[(2, 1), (3, 1)]: [mother],
        of[((2, 2),)]: [mother],
        merged: sorted([of[((0, 2),)], of[((0, 3),)]]),
        of[((3, 2),)]: [merged],
        of[((3, 3),)]: [merged],
    }


def test_data_is_as_napari_wants_it(lineage):
    data, properties, graph = make_napari_tracks(lineage)
    assert data.shape == (12, 5)
    order = np.lexsort((data[:, 1], data[:, 0]))
    assert np.array_equal(order, np.arange(12)), "sorted by track, then time"
    assert all(
        len(values) == 12 and np.isfinite(values).all()
        for values in properties.values()
    )
    tracks = set(data[:, 0].astype(int))
    assert (
        set(graph) | {parent for parents in graph.values() for parent in parents}
        <= tracks
    )
    for (
        child,
        parents,
    ) in graph.items():  # napari draws from a parent's last to its child's first
        begin = data[data[:, 0] == child, 1].min()
        assert all(data[data[:, 0] == parent, 1].max() < begin for parent in parents)
    by_node = dict(
        zip(
            zip(data[:, 1], properties["label"], strict=True),
            properties["confidence"],
            strict=True,
        )
    )
    assert by_node[1, 2] == 2
    assert by_node[3, 1] == 7.5, "no bound: the largest finite confidence"


def test_the_first_piece_of_a_track_has_its_number(lineage):
    data, properties, _ = make_napari_tracks(lineage)
    first = {}
    for segment, t, track in zip(
        data[:, 0], data[:, 1], properties["track"], strict=True
    ):
        first[track] = min(first.get(track, (np.inf, 0)), (t, segment))
    assert all(segment == track for track, (_, segment) in first.items())


def test_it_comes_back_from_files(tmp_path, lineage):
    write_napari(tmp_path / "napari.csv", lineage)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "napari.csv",
        "napari.json",
    ]
    header = (tmp_path / "napari.csv").read_text().splitlines()[0]
    assert header.startswith("track_id,t,z,y,x,")
    data, properties, graph = make_napari_tracks(lineage)
    again, same_properties, same_graph = read_napari(tmp_path / "napari.csv")
    assert np.array_equal(again, data)
    assert same_properties.keys() == properties.keys()
    assert all(
        np.array_equal(same_properties[name], properties[name]) for name in properties
    )
    assert same_graph == graph
    assert json.loads((tmp_path / "napari.json").read_text()) == {
        str(key): value for key, value in graph.items()
    }


def test_a_graph_that_is_damaged(tmp_path, lineage):
    write_napari(tmp_path / "napari.csv", lineage)
    (tmp_path / "napari.json").write_text("[1]")
    with pytest.raises(InputError, match=r"napari\.json"):
        read_napari(tmp_path / "napari.csv")


def test_an_empty_lineage(tmp_path):
    nothing = np.zeros(0, dtype=np.int64)
    empty = Lineage(
        3, nothing, nothing, np.zeros((0, 2)), EventTable.empty(), np.zeros(0)
    )
    data, _, graph = make_napari_tracks(empty)
    assert data.shape == (0, 4)
    assert graph == {}
    write_napari(tmp_path / "napari.csv", empty)
    assert read_napari(tmp_path / "napari.csv")[0].shape == (0, 4)
