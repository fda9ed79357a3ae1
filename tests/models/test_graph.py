import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.task import Space
from clew.models.chain import Chain
from clew.models.graph import Graph
from clew.models.linear_program import LinearTask

TRIANGLE = np.array([[0, 1], [1, 2], [2, 0]])


def test_an_odd_cycle_that_wants_to_differ_is_solved_exactly():
    """Neighbours are rewarded for different labels; on a triangle one edge must be given up, the LP says one half."""
    x = (np.array([[0.1], [0.0], [0.0]]), TRIANGLE)
    model = Graph(label_scale=1, n_states=2, bias=False).prepare([x], [None])
    w = np.array([0.0, 1.0, -1.0, 0.0, 0.0, -1.0])
    task = model.task([x], [None])
    assert task.argmax(w, Space.ALL, 0.0).values(w, 0.0) == pytest.approx([-0.9])
    assert task.programs[0, Space.ALL].counts.lps > 1  # the first answer was fractional
    (labels,) = model.predict([x], w)
    assert labels[0] == 1
    assert len(set(labels.tolist())) == 2


def test_a_path_is_a_chain():
    rng = np.random.default_rng(0)
    features = [rng.normal(size=(5, 2)) for _ in range(3)]
    path = np.array([(i, i + 1) for i in range(4)])
    Y = [["a", None, {"b", "c"}, None, "c"], None, ["a", "b", "c", "a", "b"]]
    chain = Chain(boundary=False).prepare(features, Y)
    graph = Graph().prepare([(x, path) for x in features], Y)
    assert chain.n_features == graph.n_features
    one, other = (
        chain.task(features, Y),
        graph.task([(sp.csr_array(x), path) for x in features], Y),
    )
    assert isinstance(other, LinearTask)
    for w in rng.normal(size=(3, chain.n_features)):
        for space in Space:
            np.testing.assert_allclose(
                one.argmax(w, space, 0.7).features.toarray(),
                other.argmax(w, space, 0.7).features.toarray(),
                atol=1e-9,
            )


def test_edges_between_determined_nodes_are_determined():
    x = (np.eye(3), TRIANGLE)
    model = Graph(n_states=2, symmetric=True).prepare([x], [[0, 1, None]])
    part = model.task([x], [[0, 1, None]]).annotated_part()
    row = part.argmax(
        np.ones(model.n_features), Space.COMPATIBLE, 0.0
    ).features.toarray()[0]
    unary, bias, pairwise = row[:6].reshape(2, 3), row[6:8], row[8:]
    np.testing.assert_array_equal(unary, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(bias, [1, 1])
    np.testing.assert_array_equal(
        pairwise, [0, 1, 0]
    )  # (0, 1) only: the edges to node 2 are open


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [1, 1]], r"edge 1 is \(1, 1\); a node has no edge to itself"),
        ([[0, 1], [1, 2], [1, 0]], r"edge 2 is \(1, 0\); the same two nodes"),
        ([[0, 3]], r"edge 0 is \(0, 3\); there are nodes 0 to 2"),
        ([[-1, 0]], r"edge 0 is \(-1, 0\)"),
        ([[0.0, 1.0]], "integers"),
        ([0, 1], "integers"),
        ([[0, 1, 2]], "integers"),
    ],
)
def test_malformed_edges_are_refused(edges, message):
    good = (np.zeros((3, 1)), TRIANGLE)
    with pytest.raises(InputError, match=f"example 1: .*{message}"):
        Graph(n_states=2).prepare(
            [good, (np.zeros((3, 1)), np.array(edges))], [None, None]
        )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 1)), "a tuple"),
        ((np.zeros((3, 2)), TRIANGLE), "2 features for each node; 1 are expected"),
        ((np.full((3, 1), np.nan), TRIANGLE), "node 0 is nan"),
        (
            (np.zeros((3, 1)), TRIANGLE, np.ones((2, 1))),
            "2 rows of edge features for 3 edges",
        ),
        (
            (np.zeros((3, 1)), TRIANGLE, np.ones((3, 2))),
            "2 features for each edge; 1 are expected",
        ),
        ((np.zeros((3, 1)), TRIANGLE, np.array([[0], [np.inf], [0]])), "edge 1 is inf"),
        ((np.zeros(3), TRIANGLE), "matrix"),
    ],
)
def test_malformed_inputs_are_refused(x, message):
    with pytest.raises(InputError, match=f"example 1: .*{message}"):
        Graph(n_states=2).prepare([(np.zeros((3, 1)), TRIANGLE), x], [None, None])


def test_a_graph_without_edges_labels_each_node_by_itself():
    x = (np.array([[1.0], [-1.0]]), [])
    model = Graph(n_states=2, bias=False).prepare([x], [None])
    assert model.n_features == 6
    np.testing.assert_array_equal(
        model.predict([x], np.array([0, 1.0, 0, 0, 0, 0]))[0], [1, 0]
    )
