"""motile: one integer programme for the whole movie over candidate links, with costs set by hand."""

from __future__ import annotations

import motile
import numpy as np
from kinds_movies import Points
from motile.constraints import MaxChildren, MaxParents, Pin
from motile.costs import (
    EdgeSelectedCost,
    NodeAppearCost,
    NodeDisappearCost,
    NodeSplitCost,
)
from numpy.typing import NDArray
from scipy.spatial import cKDTree

NEIGHBOURS, REACH = 5, 2.0
"""Candidates: so many nearest cells of the next frame, within so many spacings."""
APPEAR = DISAPPEAR = 1.0
"""In spacings, as distances are: a link is taken where it is shorter than both together."""
SPLIT = 0.5


def links(points: Points) -> NDArray[np.int64]:
    """(k, 2) rows that are linked: the cheapest lineage with all detections, one parent and at most two children."""
    position = points.position / points.spacing
    graph = motile.TrackGraph()
    for row, t in enumerate(points.frame.tolist()):
        graph.add_node(row, {"t": t, "detected": True})
    for now, later in zip(points.frames[:-1], points.frames[1:], strict=True):
        if len(now) and len(later):
            k = min(NEIGHBOURS, len(later))
            distance, near = cKDTree(position[later]).query(
                position[now], k=np.arange(1, k + 1)
            )
            for row, far, to in zip(now.tolist(), distance, later[near], strict=True):
                for d, target in zip(far.tolist(), to.tolist(), strict=True):
                    if d < REACH:
                        graph.add_edge((row, target), {"distance": d})
    solver = motile.Solver(graph)
    solver.add_cost(EdgeSelectedCost(weight=1.0, attribute="distance"))
    solver.add_cost(NodeAppearCost(constant=APPEAR))
    solver.add_cost(NodeDisappearCost(constant=DISAPPEAR))
    solver.add_cost(NodeSplitCost(constant=SPLIT))
    solver.add_constraint(MaxParents(1))
    solver.add_constraint(MaxChildren(2))
    solver.add_constraint(Pin("detected"))
    solver.solve(timeout=600, verbose=False)
    chosen = solver.get_selected_subgraph()
    return np.array(sorted(chosen.edges), dtype=np.int64).reshape(-1, 2)
