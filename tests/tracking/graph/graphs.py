"""Simulated candidate graphs with their truth."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from scipy.spatial import cKDTree


def simulate_graph(
    seed: int,
    *,
    n_cells: int = 12,
    n_frames: int = 8,
    n_false: int = 0,
    neighbors: int = 4,
) -> nx.DiGraph:
    """Cells that move, divide and stay; each edge and node says whether it is right.

    Edges have a distance, a score that is right more often than not, and noise. Cells
    are bright before they divide.
    """
    rng = np.random.default_rng(seed)
    graph = nx.DiGraph()
    side = 10.0 * np.sqrt(n_cells)
    cells = [(rng.uniform(0, side, 2), None) for _ in range(n_cells)]
    layers = []
    truth = set()
    for t in range(n_frames):
        layer = []
        following = []
        for position, parent in cells:
            node = graph.number_of_nodes()
            divides = t < n_frames - 1 and rng.random() < 0.06
            light = rng.normal(3.0 if divides else 0.0)
            graph.add_node(node, t=t, light=light, truth=1)
            if parent is not None:
                truth.add((parent, node))
            layer.append((node, position))
            for _ in range(2 if divides else 1):
                step = rng.normal(0, 2.5 if divides else 1.5, 2)
                following.append((position + step, node))
        for _ in range(n_false):
            node = graph.number_of_nodes()
            graph.add_node(node, t=t, light=rng.normal(-4.0), truth=0)
            layer.append((node, rng.uniform(0, side, 2)))
        layers.append(layer)
        cells = following
    for now, later in pairwise(layers):
        tree = cKDTree([position for _, position in later])
        for source, position in now:
            distances, near = tree.query(position, k=min(neighbors, len(later)))
            for distance, k in zip(distances, near, strict=True):
                target = later[k][0]
                is_right = (source, target) in truth
                graph.add_edge(
                    source,
                    target,
                    distance=float(distance),
                    score=float(rng.normal(1.5 * is_right)),
                    noise=float(rng.normal()),
                    truth=int(is_right),
                )
    return graph


def hide_truth(graph: nx.DiGraph, share: float, seed: int) -> nx.DiGraph:
    """A copy with right edges of some tracks annotated, and their false detections."""
    rng = np.random.default_rng(seed)
    graph = graph.copy()
    right = nx.DiGraph(
        [(u, v) for u, v, is_right in graph.edges(data="truth") if is_right]
    )
    for track in nx.weakly_connected_components(right):
        if rng.random() < share:
            for edge in right.subgraph(track).edges:
                graph.edges[edge]["annotation"] = 1
    for node, is_cell in graph.nodes(data="truth"):
        if not is_cell and rng.random() < share:
            graph.nodes[node]["annotation"] = 0
    return graph


def count_edge_errors(graph: nx.DiGraph, edges: list[tuple[int, int]]) -> int:
    """Wrong and missed edges."""
    truth = {(u, v) for u, v, is_right in graph.edges(data="truth") if is_right}
    return len(truth.symmetric_difference(edges))
