from itertools import product

import networkx as nx
import numpy as np
import pytest

from clew.errors import InfeasibleAnnotation, InputError
from clew.tracking.graph import GraphTracker, make_candidate_graph
from clew.tracking.graph.graph_events import (
    GraphEvent,
    compute_features,
    list_events,
    list_pairs,
)

from .graphs import count_edge_errors, hide_truth, simulate_graph

EDGE_ATTRIBUTES = ["distance", "score", "noise"]
NODE_ATTRIBUTES = ["light"]


def convert(graph, annotation=None):
    return make_candidate_graph(
        graph,
        edge_attributes=EDGE_ATTRIBUTES,
        node_attributes=NODE_ATTRIBUTES,
        annotation=annotation,
    )


@pytest.fixture(scope="module")
def movie():
    return simulate_graph(5, n_cells=20, n_frames=8, n_false=2)


@pytest.fixture(scope="module")
def tracker(movie):
    return GraphTracker().fit(convert(hide_truth(movie, 0.5, 0), "annotation"))


@pytest.fixture(scope="module")
def other_movie():
    return simulate_graph(6, n_cells=20, n_frames=8, n_false=2)


def test_learned_weights_beat_the_score_alone(tracker, other_movie):
    solution = tracker.solve(convert(other_movie))
    best_by_score = {
        max(other_movie.in_edges(node), key=lambda e: other_movie.edges[e]["score"])
        for node in other_movie
        if other_movie.in_degree(node)
    }
    errors = count_edge_errors(other_movie, solution.list_edges())
    assert errors < 0.3 * count_edge_errors(other_movie, list(best_by_score))
    assert errors < 0.1 * sum(nx.get_edge_attributes(other_movie, "truth").values())


def test_false_detections_are_left_out(tracker, other_movie):
    solution = tracker.solve(convert(other_movie))
    truth = [other_movie.nodes[node]["truth"] == 1 for node in other_movie]
    assert np.mean(solution.is_node != truth) < 0.03
    assert not set(solution.to_networkx()) & {
        node
        for node, is_node in zip(other_movie, solution.is_node, strict=True)
        if not is_node
    }


def test_lineage_is_consistent(tracker, other_movie):
    lineage = tracker.solve(convert(other_movie)).to_networkx()
    assert max(degree for _, degree in lineage.in_degree) == 1
    assert max(degree for _, degree in lineage.out_degree) == 2
    probability = list(nx.get_edge_attributes(lineage, "probability").values())
    assert min(probability) >= 0.0
    assert np.mean(probability) > 0.8


def test_probable_edges_are_right_more_often(tracker, other_movie):
    solution = tracker.solve(convert(other_movie))
    truth = np.array([is_right for *_, is_right in other_movie.edges(data="truth")])
    order = np.argsort(solution.edge_probability)
    half = len(order) // 2
    assert truth[order[:half]].mean() < 0.1 < truth[order[half:]].mean()
    assert abs(solution.edge_probability.mean() - truth.mean()) < 0.1


def test_margins_agree_with_brute_force(tracker):
    graph = convert(simulate_graph(3, n_cells=2, n_frames=3, neighbors=2))
    solution = tracker.solve(graph)
    events = list_events(graph, True, True)
    scores = compute_features(events, tracker.scales_) @ tracker.svm_.coef_
    covers = np.zeros((events.n_rows, len(scores)), dtype=int)
    event, place = np.nonzero(events.rows >= 0)
    covers[events.rows[event, place], event] = 1
    # nodes have few events each: choose one for each fate, then histories follow
    lineages = list(list_covers(covers))
    values = np.array([scores[list(lineage)].sum() for lineage in lineages])
    best = values.max()
    assert scores[solution.chosen].sum() == pytest.approx(best)
    for event, margin in zip(solution.chosen, solution.margin, strict=True):
        others = [
            value
            for value, lineage in zip(values, lineages, strict=True)
            if event not in lineage
        ]
        assert margin == pytest.approx(best - max(others))


def list_covers(covers, chosen=(), is_open=None):
    """All sets of columns that cover each row once."""
    if is_open is None:
        is_open = np.ones(len(covers), dtype=bool)
    if not is_open.any():
        yield frozenset(chosen)
        return
    row = int(np.flatnonzero(is_open)[0])
    for column in np.flatnonzero(covers[row]):
        rows = covers[:, column] == 1
        if is_open[rows].all():
            yield from list_covers(covers, (*chosen, column), is_open & ~rows)


def test_annotations_override_the_weights(tracker, other_movie):
    graph = convert(other_movie)
    solution = tracker.solve(graph)
    edge = solution.list_edges()[0]
    wrong = tracker.solve(graph.annotate(edges={edge: False}))
    assert edge not in wrong.list_edges()
    node = edge[0]
    without = tracker.solve(graph.annotate(nodes={node: False}))
    assert not without.is_node[graph.ids.index(node)]


def test_suggestions_are_the_least_certain_events(tracker, other_movie):
    graph = convert(other_movie)
    queries = tracker.suggest(graph, 5)
    solution = tracker.solve(graph)
    assert [query.margin for query in queries] == sorted(solution.margin)[:5]
    moves = [query for query in tracker.suggest(graph, 100) if query.event == "move"]
    edge = (moves[0].source, moves[0].targets[0])
    annotated = tracker.suggest(graph.annotate(edges={edge: True}), 100)
    assert all((query.source, *query.targets) != edge for query in annotated)


def test_weights_have_names(tracker):
    assert tracker.weights_["move: distance"] < 0 < tracker.weights_["move: score"]
    assert tracker.weights_["divide: light"] > 0


def test_attribute_missing_at_prediction_is_rejected(tracker, other_movie):
    graph = make_candidate_graph(
        other_movie, edge_attributes=["distance"], node_attributes=["light"]
    )
    with pytest.raises(InputError, match="edge attribute 'score' was learned from"):
        tracker.solve(graph)


def test_nodes_stay_if_none_is_annotated_as_wrong():
    movie = hide_truth(simulate_graph(1, n_cells=6, n_frames=5), 1.0, 0)
    tracker = GraphTracker(lam=0.01).fit(convert(movie, "annotation"))
    assert not tracker.has_false_detections_
    assert tracker.solve(convert(movie)).is_node.all()


def test_graph_without_annotation_is_rejected(movie):
    with pytest.raises(InputError, match="no edge is annotated as right"):
        GraphTracker().fit(convert(movie))


def make_family():
    """One node with three edges; the middle one has another parent.

    0 ─ 2, 0 ─ 3, 0 ─ 4, 1 ─ 3
    """
    nodes = {"id": np.arange(5), "t": [0, 0, 1, 1, 1]}
    edges = {"source": [0, 0, 0, 1], "target": [2, 3, 4, 3], "d": [1.0, 2.0, 3.0, 1.0]}
    return make_candidate_graph(nodes, edges)


@pytest.mark.parametrize(
    ("right", "kind", "edges"),
    [
        ([(0, 2)], GraphEvent.MOVE, [0, -1]),
        ([(0, 2), (0, 4)], GraphEvent.DIVIDE, [0, 2]),
    ],
)
def test_right_edges_are_moves_or_divisions(right, kind, edges):
    graph = make_family().annotate(edges=dict.fromkeys(right, True))
    events = list_events(graph, True, True)
    happened = np.flatnonzero(events.annotation == 1)
    assert events.kind[happened].tolist() == [kind]
    assert events.edges[happened].tolist() == [edges]
    ends = events.kind >= GraphEvent.APPEAR
    ends &= events.kind <= GraphEvent.DISAPPEAR
    assert (events.annotation[ends] == -1).all()


def test_wrong_edge_excludes_its_move_and_divisions():
    events = list_events(make_family().annotate(edges={(0, 3): False}), True, True)
    excluded = events.edges[events.annotation == 0].tolist()
    assert sorted(excluded) == [[0, 1], [1, -1], [1, 2]]


@pytest.mark.parametrize(
    ("nodes", "right", "divisions", "message"),
    [
        ({}, [(0, 3), (1, 3)], True, "node 3 has more than one right edge from"),
        ({}, [(0, 2), (0, 3), (0, 4)], True, "node 0 has more than 2 right edges"),
        ({}, [(0, 2), (0, 3)], False, "node 0 has more than 1 right edges"),
        ({2: False}, [(0, 2)], True, "node 2 is no cell and has a right edge"),
    ],
)
def test_contradicting_annotations_are_rejected(nodes, right, divisions, message):
    graph = make_family().annotate(nodes, dict.fromkeys(right, True))
    with pytest.raises(InfeasibleAnnotation, match=message):
        list_events(graph, divisions, True)


def test_pairs_are_all_that_share_a_source():
    sources = np.random.default_rng(0).integers(0, 6, 20)
    pairs = {frozenset(pair) for pair in list_pairs(sources).tolist()}
    assert pairs == {
        frozenset((a, b))
        for a, b in product(range(20), repeat=2)
        if a < b and sources[a] == sources[b]
    }


def test_graph_with_edges_over_gaps_is_learned_from():
    movie = simulate_graph(2, n_cells=8, n_frames=6)
    for u, v in list(movie.edges):
        for w in list(movie.successors(v))[:1]:
            if movie.nodes[w]["t"] == movie.nodes[u]["t"] + 2:
                movie.add_edge(u, w, distance=9.0, score=0.0, noise=0.0, truth=0)
    annotated = hide_truth(movie, 1.0, 0)
    tracker = GraphTracker(lam=0.01).fit(convert(annotated, "annotation"))
    errors = count_edge_errors(movie, tracker.solve(convert(movie)).list_edges())
    assert errors < 0.1 * sum(nx.get_edge_attributes(movie, "truth").values())
