import networkx as nx
import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.graph import make_candidate_graph

NODES = {"id": ["a", "b", "c"], "t": [0, 1, 1], "x": [0.0, 1.0, 2.0], "area": [5, 3, 2]}
EDGES = {"source": ["a", "a"], "target": ["b", "c"], "iou": [0.5, 0.1]}


def assert_equal(graph, other):
    assert graph.ids == other.ids
    for name in ("time", "sources", "targets", "node_annotation", "edge_annotation"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(other, name))
    for name in ("node_attributes", "edge_attributes"):
        np.testing.assert_equal(dict(getattr(graph, name)), dict(getattr(other, name)))


def make_networkx():
    graph = nx.DiGraph()
    for i, name in enumerate(NODES["id"]):
        graph.add_node(name, t=NODES["t"][i], x=NODES["x"][i], area=NODES["area"][i])
    for u, v, iou in zip(EDGES["source"], EDGES["target"], EDGES["iou"], strict=True):
        graph.add_edge(u, v, iou=iou, name="a word is no number")
    return graph


def test_tables_become_a_graph():
    graph = make_candidate_graph(NODES, EDGES)
    assert graph.ids == ("a", "b", "c")
    assert graph.sources.tolist() == [0, 0]
    assert graph.targets.tolist() == [1, 2]
    assert list(graph.node_attributes) == ["area"]
    assert list(graph.edge_attributes) == ["iou"]
    assert (graph.edge_annotation == -1).all()


def test_networkx_has_the_same_content_as_tables():
    tables = make_candidate_graph(NODES, EDGES)
    assert_equal(make_candidate_graph(make_networkx()), tables)


def test_rustworkx_has_the_same_content_as_tables():
    rx = pytest.importorskip("rustworkx", reason="rustworkx is not installed")
    graph = rx.PyDiGraph()
    for t, area in zip(NODES["t"], NODES["area"], strict=True):
        graph.add_node({"t": t, "area": area})
    graph.add_edge(0, 1, {"iou": 0.5, "state": 1})
    graph.add_edge(0, 2, {"iou": 0.1})
    tables = make_candidate_graph(
        {**NODES, "id": [0, 1, 2]},
        {"source": [0, 0], "target": [1, 2], "iou": [0.5, 0.1], "state": [1, -1]},
        annotation="state",
    )
    assert_equal(make_candidate_graph(graph, annotation="state"), tables)


@pytest.mark.parametrize("values", [[True, None], [1, -1], [1.0, np.nan]])
def test_annotations_are_read_from_an_attribute(values):
    edges = {**EDGES, "state": values}
    graph = make_candidate_graph(NODES, edges, annotation="state")
    assert graph.edge_annotation.tolist() == [1, -1]
    assert "state" not in graph.edge_attributes


def test_nodes_of_networkx_may_lack_the_annotation():
    graph = make_networkx()
    graph.nodes["b"]["state"] = False
    graph.edges["a", "c"]["state"] = True
    converted = make_candidate_graph(graph, annotation="state")
    assert converted.node_annotation.tolist() == [-1, 0, -1]
    assert converted.edge_annotation.tolist() == [-1, 1]


def test_positions_are_attributes_if_they_are_named():
    graph = make_candidate_graph(NODES, EDGES, node_attributes=["x"])
    np.testing.assert_array_equal(graph.node_attributes["x"], NODES["x"])


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "message"),
    [
        ({"t": [3, 1, 1]}, {}, {}, r"\('a', 'b'\) leads from frame 3 to 1"),
        ({"area": [1.0, np.nan, 1.0]}, {}, {}, "node attribute 'area' has nan"),
        ({}, {"target": ["b", "z"]}, {}, "node 'z' is not among the nodes"),
        ({}, {"target": ["b", "b"]}, {}, "an edge appears twice"),
        ({"id": ["a", "b", "b"]}, {}, {}, "two nodes have the same id"),
        ({}, {}, {"time": "frame"}, "node attribute 'frame' is missing"),
        ({}, {}, {"edge_attributes": ["cost"]}, "edge attribute 'cost' is missing"),
        ({}, {}, {"edge_attributes": ["target"]}, "'target' is not numeric"),
        ({}, {}, {"source": "from"}, "edges: no column 'from'"),
        ({}, {"state": [1, 2]}, {"annotation": "state"}, "annotation 2; expected 1"),
        (
            {},
            {"state": [None, "x"]},
            {"annotation": "state"},
            "annotation 'x'; expected",
        ),
        ({"id": [[1], [2], [3]]}, {}, {}, r"column 'id' has \[1\]; expected names"),
        ({"area": [1.0, 2.0]}, {}, {}, "nodes: columns differ in length"),
        ({"area": [1.0, [2.0], 3.0]}, {}, {}, "nodes: column 'area'"),
        ({"area": 5}, {}, {}, "nodes: column 'area' is no list of values"),
        ({}, {}, {"time": ["t"]}, r"names of columns has \['t'\]"),
        ({}, {}, {"edge_attributes": 5}, "edge_attributes is 5; expected a list"),
    ],
)
def test_wrong_tables_are_rejected(nodes, edges, options, message):
    with pytest.raises(InputError, match=message):
        make_candidate_graph({**NODES, **nodes}, {**EDGES, **edges}, **options)


@pytest.mark.parametrize("graph", [nx.Graph([(0, 1)]), "graph", 5])
def test_other_objects_are_rejected(graph):
    with pytest.raises(InputError, match="graph "):
        make_candidate_graph(graph)


def test_list_in_place_of_a_table_is_rejected():
    with pytest.raises(InputError, match="nodes is a list; expected a table"):
        make_candidate_graph([NODES], EDGES)


def test_unknown_names_are_not_annotated():
    graph = make_candidate_graph(NODES, EDGES)
    with pytest.raises(InputError, match="'z' is not in the graph"):
        graph.annotate(nodes={"z": True})
    with pytest.raises(InputError, match="is not in the graph"):
        graph.annotate(edges={("b", "a"): True})
