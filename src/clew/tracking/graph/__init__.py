"""Any candidate graph: learn the costs of its events, and find the best lineage in it.

Nodes are detections, edges are possible links, both with numeric attributes. They come
from networkx, rustworkx, tracksdata or two tables.
"""

from clew.tracking.graph.candidate_graph import CandidateGraph, make_candidate_graph
from clew.tracking.graph.graph_tracker import (
    GraphQuery,
    GraphSolution,
    GraphTracker,
)
from clew.tracking.graph.tracksdata_solver import ClewSolver

__all__ = [
    "CandidateGraph",
    "ClewSolver",
    "GraphQuery",
    "GraphSolution",
    "GraphTracker",
    "make_candidate_graph",
]
