"""CPU time of learning and solving candidate graphs, beside motile.

    python benchmarks/graph_costs.py --edges 10000 --program clew
    python benchmarks/graph_costs.py --edges 10000 --program motile [--solve-only]

One graph is learned from, with all nodes and edges annotated; another one is solved. Run
each program under `timeout`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import networkx as nx
import numpy as np
from scipy.spatial import cKDTree

NEIGHBORS = 4
N_FRAMES = 40
DIVISION_RATE = 0.01


def simulate_graph(n_edges: int, seed: int) -> nx.DiGraph:
    """Cells at random places that take random steps and seldom divide."""
    rng = np.random.default_rng(seed)
    n_cells = n_edges // (NEIGHBORS * N_FRAMES)
    position = rng.uniform(0, 10 * np.sqrt(n_cells), (n_cells, 2))
    graph = nx.DiGraph()
    earlier = np.zeros((0, 2))
    earlier_ids: list[int] = []
    parent = np.zeros(n_cells, dtype=int)
    for t in range(N_FRAMES):
        begin = graph.number_of_nodes()
        ids = list(range(begin, begin + len(position)))
        graph.add_nodes_from(ids, t=t, gt=1)
        if earlier_ids:
            distances, near = cKDTree(position).query(earlier, k=NEIGHBORS)
            for i, source in enumerate(earlier_ids):
                for distance, j in zip(distances[i], near[i], strict=True):
                    is_right = int(parent[j] == i)
                    score = rng.normal(1.5 * is_right)
                    graph.add_edge(
                        source, ids[j], distance=distance, score=score, gt=is_right
                    )
        earlier = position
        earlier_ids = ids
        n_children = 1 + (rng.random(len(position)) < DIVISION_RATE)
        parent = np.repeat(np.arange(len(position)), n_children)
        position = position[parent] + rng.normal(0, 2, (len(parent), 2))
    return graph


def count_errors(graph: nx.DiGraph, edges: Any) -> int:
    truth = {(u, v) for u, v, is_right in graph.edges(data="gt") if is_right}
    return len(truth.symmetric_difference(edges))


def run_clew(graph: nx.DiGraph, other: nx.DiGraph) -> None:
    from clew.tracking.graph import GraphTracker, make_candidate_graph

    names = {"edge_attributes": ["distance", "score"], "node_attributes": []}
    start = time.process_time()
    tracker = GraphTracker()
    tracker.fit(make_candidate_graph(graph, annotation="gt", **names))
    learned = time.process_time()
    solution = tracker.solve(make_candidate_graph(other, **names))
    end = time.process_time()
    report(other, solution.list_edges(), learned - start, end - learned)


def make_motile_solver(graph: nx.DiGraph, weights: Any = None) -> Any:
    import motile
    from motile.constraints import MaxChildren, MaxParents, Pin
    from motile.costs import (
        EdgeSelectedCost,
        NodeAppearCost,
        NodeDisappearCost,
        NodeSplitCost,
    )

    graph = graph.copy()
    nx.set_node_attributes(graph, True, "detected")
    solver = motile.Solver(motile.TrackGraph(graph, frame_attribute="t"))
    solver.add_cost(EdgeSelectedCost(1.0, attribute="distance", constant=0.0), "d")
    solver.add_cost(EdgeSelectedCost(-1.0, attribute="score", constant=0.0), "s")
    solver.add_cost(NodeAppearCost(constant=1.0))
    solver.add_cost(NodeDisappearCost(constant=1.0))
    solver.add_cost(NodeSplitCost(constant=1.0))
    solver.add_constraint(MaxParents(1))
    solver.add_constraint(MaxChildren(2))
    solver.add_constraint(Pin("detected"))
    if weights is not None:
        solver.weights.from_ndarray(weights)
    return solver


def run_motile(graph: nx.DiGraph, other: nx.DiGraph, learns: bool) -> None:
    start = time.process_time()
    weights = None
    if learns:
        learner = make_motile_solver(graph)
        learner.fit_weights("gt")
        weights = learner.weights.to_ndarray()
    learned = time.process_time()
    solver = make_motile_solver(other, weights)
    solver.solve(verbose=False)
    edges = list(solver.get_selected_subgraph().edges)
    end = time.process_time()
    report(other, edges, learned - start, end - learned)


def report(graph: nx.DiGraph, edges: Any, learning: float, solving: float) -> None:
    n_right = sum(is_right for *_, is_right in graph.edges(data="gt"))
    print(
        f"{graph.number_of_edges()} edges: learning {learning:.1f} CPU s, solving "
        f"{solving:.1f} CPU s, {count_errors(graph, edges)} wrong or missed edges of "
        f"{n_right}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=10_000)
    parser.add_argument("--program", choices=["clew", "motile"], default="clew")
    parser.add_argument(
        "--solve-only", action="store_true", help="motile: solve with weights of 1"
    )
    arguments = parser.parse_args()
    graph = simulate_graph(arguments.edges, 0)
    other = simulate_graph(arguments.edges, 1)
    if arguments.program == "clew":
        run_clew(graph, other)
    else:
        run_motile(graph, other, not arguments.solve_only)
