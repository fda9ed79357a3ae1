"""Lineages in GEFF: valid by the format's own words, and the same when they come back."""

import json
import shutil

import geff
import geff.core_io
import networkx as nx
import numpy as np
import pytest
from geff.core_io import read_to_memory
from geff.validate.data import ValidationConfig
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event, EventTable
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.geff import is_geff, read_geff, write_geff
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie

from ...helpers.effort import examples

MOVIE = Movie.from_arrays(
    np.zeros((4, 5, 6), dtype=np.uint8), spacing=(0.5, 0.25), name="a movie"
)


def random_lineage(seed: int, n_frames: int = 6, ndim: int = 2) -> Lineage:
    """Any events in any order; frames may be empty."""
    rng = np.random.default_rng(seed)
    events, frame, label = [], [], []
    cells = [*range(1, rng.integers(0, 6))]
    for t in range(n_frames):
        frame += [t] * len(cells)
        label += cells
        if t == n_frames - 1:
            break
        fresh = iter((rng.permutation(40) + 1).tolist())
        left, after = rng.permutation(cells).tolist(), []
        while left:
            event = Event(rng.integers(0, 6))
            sources, targets = event.arity
            if sources <= len(left) and sources:
                after.append([next(fresh) for _ in range(targets)])
                events.append(
                    (t, event, [left.pop() for _ in range(sources)], after[-1])
                )
        for _ in range(rng.integers(0, 3)):
            after.append([next(fresh)])
            events.append((t, Event.APPEAR, [], after[-1]))
        cells = sorted(cell for group in after for cell in group)
    order = rng.permutation(len(events))
    confidence = rng.normal(size=len(events))
    confidence[rng.random(len(events)) < 0.3] = np.inf
    position = rng.normal(size=(len(frame), ndim))
    table = EventTable.of([events[i] for i in order])
    return Lineage(
        n_frames,
        np.array(frame, dtype=np.int64),
        np.array(label, dtype=np.int64),
        position,
        table,
        confidence,
    )


def told(events: EventTable, confidence) -> dict:
    return dict(zip(events, np.asarray(confidence).tolist(), strict=True))


@examples(7)
@given(seed=st.integers(0, 10**6), ndim=st.sampled_from([2, 3]))
def test_a_lineage_comes_back_and_is_valid(tmp_path_factory, seed, ndim):
    lineage = random_lineage(seed, ndim=ndim)
    path = tmp_path_factory.mktemp("geff") / "lineage.geff"
    write_geff(path, lineage)
    geff.validate_structure(path)
    every_rule = ValidationConfig(
        graph=True, sphere=True, ellipsoid=True, lineage=True, tracklet=True
    )
    read_to_memory(path, data_validation=every_rule)
    back = read_geff(path)
    assert back.n_frames == lineage.n_frames
    assert np.array_equal(back.frame, lineage.frame)
    assert np.array_equal(back.label, lineage.label)
    assert np.array_equal(back.position, lineage.position)
    assert told(back.events, back.confidence) == told(
        lineage.events, lineage.confidence
    )


def test_it_is_a_graph_with_names_that_others_read(tmp_path):
    lineage = random_lineage(3)
    write_geff(tmp_path / "lineage.geff", lineage, MOVIE)
    graph, metadata = geff.read(tmp_path / "lineage.geff", backend="networkx")
    assert isinstance(graph, nx.DiGraph)
    assert [(axis.name, axis.type, axis.unit) for axis in metadata.axes] == [
        ("t", "time", "frame"),
        ("y", "space", None),
        ("x", "space", None),
    ]
    assert metadata.extra["clew"]["spacing"] == [0.5, 0.25]
    assert metadata.extra["clew"]["movie"] == "a movie"
    for node, values in graph.nodes(data=True):
        assert (values["t"], values["seg_id"]) == (
            lineage.frame[node],
            lineage.label[node],
        )
        assert values["track_id"] == lineage.track[node]
    names = metadata.extra["clew"]["events"]
    assert graph.number_of_edges() == len(lineage.edges.row)
    for source, target, values in graph.edges(data=True):
        assert lineage.frame[target] == lineage.frame[source] + 1
        assert names[values["event"]] in ("move", "divide", "split", "merge")
    infinite = [
        values["confidence"]
        for *_, values in graph.edges(data=True)
        if np.isinf(values["confidence"])
    ]
    assert infinite, "infinite confidence stays infinite"


def test_tracklets_are_maximal_over_gaps(tmp_path):
    events = EventTable.of(
        [
            (0, Event.MOVE, [1], [1]),
            (1, Event.GAP, [1], [1]),
            (3, Event.DIVIDE, [1], [2, 3]),
        ]
    )
    frame = np.array([0, 1, 3, 4, 4])
    label = np.array([1, 1, 1, 2, 3])
    lineage = Lineage(5, frame, label, np.zeros((5, 2)), events, np.ones(3))
    write_geff(tmp_path / "a.geff", lineage, masks="../tracks.zarr")
    graph = geff.core_io.read_to_memory(
        tmp_path / "a.geff",
        data_validation=ValidationConfig(graph=True, lineage=True, tracklet=True),
    )
    tracklets = graph["node_props"]["tracklet_id"]["values"]
    assert tracklets.tolist() == [1, 1, 1, *tracklets[3:]]
    assert len(set(tracklets.tolist())) == 3
    for column in graph["edge_props"].values():
        assert column["values"].dtype.kind in "iuf"
    (related,) = graph["metadata"].related_objects
    assert related.path == "../tracks.zarr"
    assert [axis.scale for axis in graph["metadata"].axes] == [None, 1.0, 1.0]


def test_the_metadata_is_strict_json(tmp_path):
    write_geff(tmp_path / "lineage.geff", random_lineage(3))
    files = [
        file
        for file in tmp_path.rglob("*")
        if file.name in (".zattrs", ".zgroup", "zarr.json")
    ]
    assert files
    for file in files:
        json.loads(
            file.read_text(), parse_constant=pytest.fail
        )  # called for NaN and Infinity


def test_an_empty_lineage(tmp_path):
    nothing = np.zeros(0, dtype=np.int64)
    write_geff(
        tmp_path / "a.geff",
        Lineage(3, nothing, nothing, np.zeros((0, 3)), EventTable.empty(), np.zeros(0)),
    )
    geff.validate_structure(tmp_path / "a.geff")
    back = read_geff(tmp_path / "a.geff")
    assert back.n_frames == 3
    assert len(back.events) == len(back.frame) == 0


def test_an_old_one_is_replaced_and_nothing_is_left_over(tmp_path):
    path = tmp_path / "lineage.geff"
    write_geff(path, random_lineage(1))
    write_geff(path, random_lineage(2))
    assert set(read_geff(path).events) == set(random_lineage(2).events)
    assert [entry.name for entry in tmp_path.iterdir()] == ["lineage.geff"]


def test_what_is_no_geff_is_not_replaced(tmp_path):
    path = tmp_path / "precious"
    path.mkdir()
    (path / "data.txt").write_text("data")
    with pytest.raises(StoreError, match="is no GEFF"):
        write_geff(path, random_lineage(1))
    assert (path / "data.txt").read_text() == "data"


@pytest.mark.parametrize("moment", ["write", "rename"])
def test_a_failure_leaves_the_old_one(tmp_path, monkeypatch, moment):
    path = tmp_path / "lineage.geff"
    write_geff(path, random_lineage(1))

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if moment == "write":
        monkeypatch.setattr("geff.core_io.write_arrays", fail)
    else:
        rename = type(path).rename
        monkeypatch.setattr(
            type(path),
            "rename",
            lambda self, to: fail() if self.suffix == ".tmp" else rename(self, to),
        )
    with pytest.raises(StoreError, match="No space left"):
        write_geff(path, random_lineage(2))
    monkeypatch.undo()
    assert set(read_geff(path).events) == set(random_lineage(1).events)
    assert [entry.name for entry in tmp_path.iterdir()] == ["lineage.geff"]


def foreign(
    path, nodes, edges, *, directed=True, label="label", axes=True, **edge_props
):
    """A GEFF by another programme: nodes {id: (t, label)}."""
    graph = nx.DiGraph() if directed else nx.Graph()
    for node, (t, name) in nodes.items():
        graph.add_node(node, t=t, y=float(node), x=3.0, **{label: name})
    for at, edge in enumerate(edges):
        graph.add_edge(*edge, **{key: values[at] for key, values in edge_props.items()})
    names = (
        {"axis_names": ["t", "y", "x"], "axis_types": ["time", "space", "space"]}
        if axes
        else {}
    )
    geff.write(graph, path, **names)
    return path


TREE = {10: (5, 1), 7: (6, 2), 8: (6, 3), 9: (7, 2), 4: (7, 9)}


@pytest.mark.parametrize("label", ["label", "seg_id"])
@pytest.mark.parametrize("directed", [True, False])
def test_a_graph_by_others(tmp_path, label, directed):
    path = foreign(
        tmp_path / "a.geff",
        TREE,
        [(10, 7), (10, 8), (7, 9)],
        label=label,
        directed=directed,
    )
    expected = {
        (5, Event.DIVIDE, (1,), (2, 3)),
        (6, Event.MOVE, (2,), (2,)),
        (6, Event.DISAPPEAR, (3,), ()),
        (6, Event.APPEAR, (), (9,)),
    }
    assert set(read_geff(path).events) == expected
    assert np.isnan(read_geff(path).confidence).all()
    cells = [(t, name, (float(node), 3.0)) for node, (t, name) in TREE.items()]
    frame, name, position = zip(*cells, strict=True)
    movie = DetectionTable(frame, name, position)
    annotations = read_annotations(path, movie, complete=True)
    assert set(annotations.events) == expected | {(4, Event.APPEAR, (), (1,))}
    assert annotations.happened.all()


def test_a_split_is_told_by_its_edges(tmp_path):
    path = foreign(
        tmp_path / "a.geff", TREE, [(10, 7), (10, 8)], event=["split", "split"]
    )
    assert (5, Event.SPLIT, (1,), (2, 3)) in set(read_geff(path).events)


def test_an_edge_over_one_frame_is_a_gap_and_over_more_says_nothing_of_its_ends(
    tmp_path,
):
    nodes = {1: (0, 1), 2: (2, 5), 3: (0, 4), 4: (3, 6), 5: (1, 7), 6: (2, 7)}
    path = foreign(tmp_path / "a.geff", nodes, [(1, 2), (3, 4), (5, 6)])
    assert set(read_geff(path).events) == {
        (0, Event.GAP, (1,), (5,)),
        (1, Event.MOVE, (7,), (7,)),
        (0, Event.APPEAR, (), (7,)),
        (2, Event.DISAPPEAR, (5,), ()),
        (2, Event.DISAPPEAR, (7,), ()),
    }


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (
            {1: (0, 1), 2: (0, 2), 3: (0, 3), 4: (1, 9)},
            [(1, 4), (2, 4), (3, 4)],
            "label 9 in frame 1 .*more than two",
        ),
        ({1: (0, 1), 2: (1, 1)}, [(2, 1)], "label 1 in frame 1 .*forward in time"),
        ({1: (0, 1), 2: (0, 2)}, [(1, 2)], "forward in time"),
        (
            {1: (0, 1), 2: (0, 2), 3: (1, 1), 4: (1, 2)},
            [(1, 3), (1, 4), (2, 4)],
            "label 1 in frame 0 divides into",
        ),
        ({1: (0, 1), 2: (0, 1)}, [(1, 2)], "two nodes have label 1 in frame 0"),
        ({1: (0, 0), 2: (1, 1)}, [(1, 2)], "label must be"),
        ({1: (-1, 1), 2: (0, 1)}, [(1, 2)], "t must be a time in frames"),
        ({1: (0.5, 1), 2: (1.5, 1)}, [(1, 2)], "t must be a time in frames"),
        ({1: (0, "a"), 2: (1, "b")}, [(1, 2)], "label must be"),
    ],
)
def test_graphs_that_no_movie_has(tmp_path, nodes, edges, words):
    path = foreign(tmp_path / "a.geff", nodes, edges)
    with pytest.raises(InputError, match=words) as caught:
        read_geff(path)
    assert str(path) in str(caught.value)


def test_three_daughters_count_as_unknown(tmp_path):
    nodes = {1: (0, 1), 2: (1, 1), 3: (1, 2), 4: (1, 3), 5: (0, 2), 6: (1, 4)}
    path = foreign(tmp_path / "a.geff", nodes, [(1, 2), (1, 3), (1, 4), (5, 6)])
    with pytest.warns(
        DataWarning, match="label 1 in frame 0 has links to more than two cells"
    ):
        events = read_geff(path).events
    assert list(events) == [(0, Event.MOVE, (2,), (4,))]


def test_a_missing_chunk_is_noticed(tmp_path):
    path = tmp_path / "a.geff"
    write_geff(path, random_lineage(3))
    chunks = [
        p
        for p in path.rglob("*")
        if p.is_file() and p.name[0].isdecimal() and "confidence" in p.as_posix()
    ]
    assert chunks
    chunks[0].unlink()
    with pytest.raises(InputError, match=r"a chunk of .*confidence.* is missing"):
        read_geff(path)


def remove_chunks(array):
    """Remove the chunks of an array, and leave its metadata."""
    chunks = [path for path in array.iterdir() if path.name[0].isdecimal()]
    assert chunks
    for chunk in chunks:
        chunk.unlink()


@pytest.mark.filterwarnings("error::clew.errors.DataWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zeros_that_zarr_leaves_out_are_no_damage(tmp_path, zarr_format):
    graph = nx.DiGraph()
    for node, t in ((1, 0), (2, 1)):
        graph.add_node(node, t=t, z=0.0, y=0.0 + node, x=5.0, label=1, score=0.0)
    graph.add_edge(1, 2, cost=0.0)
    path = tmp_path / "a.geff"
    axes = {"axis_names": ["t", "z", "y", "x"], "axis_types": ["time"] + 3 * ["space"]}
    geff.write(graph, path, zarr_format=zarr_format, **axes)
    stored = {part.name for part in (path / "nodes/props/z/values").iterdir()}
    assert not stored & {"0", "c"}
    assert len(read_geff(path).events) == 1


def test_positions_that_are_not_stored_give_a_warning(tmp_path):
    path = foreign(tmp_path / "a.geff", {1: (0, 1), 2: (1, 1)}, [(1, 2)])
    remove_chunks(path / "nodes/props/y/values")
    with pytest.warns(DataWarning, match="chunks of y are not stored, so cells are"):
        assert len(read_geff(path).events) == 1


@pytest.mark.parametrize(
    "array",
    ["nodes/ids", "edges/ids", "nodes/props/t/values", "nodes/props/label/values"],
)
def test_graph_without_ids_times_or_labels_is_refused(tmp_path, array):
    path = foreign(tmp_path / "a.geff", {1: (0, 1), 2: (1, 1)}, [(1, 2)])
    remove_chunks(path / array)
    with pytest.raises(InputError, match=r"a\.geff"):
        read_geff(path)


@pytest.mark.parametrize("array", ["nodes/ids", "nodes/props/x/values"])
def test_array_of_endless_length_is_refused_at_once(tmp_path, array):
    path = foreign(tmp_path / "a.geff", {1: (0, 1), 2: (1, 1)}, [(1, 2)])
    metadata = path / array / ".zarray"
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(content | {"shape": [2**31]}))
    with pytest.raises(InputError, match=f"{array} declares 17,179,869,184 bytes"):
        read_geff(path)


def test_nodes_need_labels(tmp_path):
    path = foreign(tmp_path / "a.geff", TREE, [(10, 7)], label="name")
    with pytest.raises(InputError, match="no property seg_id or label"):
        read_geff(path)


def test_a_folder_that_is_no_geff_is_refused_untouched(tmp_path):
    with pytest.raises(InputError, match="is no GEFF"):
        read_geff(tmp_path)
    with pytest.raises(InputError, match="is no GEFF"):
        read_geff(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    assert not is_geff(tmp_path)


@pytest.mark.parametrize("lost", ["nodes/props/x", "edges/props", "edges/props/event"])
def test_geff_that_lost_a_property_is_refused(tmp_path, lost):
    path = tmp_path / "a.geff"
    write_geff(path, random_lineage(3))
    shutil.rmtree(path / lost)
    with pytest.raises(InputError, match="damaged"):
        read_geff(path)


def test_geff_with_an_unsafe_codec_is_refused(tmp_path):
    path = tmp_path / "a.geff"
    write_geff(path, random_lineage(3))
    for metadata in (path / "edges/props/confidence").rglob(".zarray"):
        content = json.loads(metadata.read_text())
        metadata.write_text(json.dumps(content | {"compressor": {"id": "pickle"}}))
    with pytest.raises(InputError, match="codec 'pickle'"):
        read_geff(path)


def test_a_damaged_geff_is_refused(tmp_path):
    path = tmp_path / "a.geff"
    write_geff(path, random_lineage(3))
    shutil.rmtree(path / "nodes/ids")
    with pytest.raises(InputError, match="damaged"):
        read_geff(path)
