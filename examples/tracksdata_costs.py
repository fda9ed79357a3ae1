"""Learn the costs of a tracksdata graph from a few annotated tracks, and solve it."""

import numpy as np
import polars as pl
from tracksdata.graph import InMemoryGraph

from clew.tracking.graph import ClewSolver


def simulate_graph(seed: int, n_cells: int = 15, n_frames: int = 8) -> InMemoryGraph:
    """Cells that move to the right, with edges to all cells nearby."""
    rng = np.random.default_rng(seed)
    graph = InMemoryGraph()
    for key in ("y", "x"):
        graph.add_node_attr_key(key, pl.Float64)
    for key in ("dy", "dx"):
        graph.add_edge_attr_key(key, pl.Float64)
    graph.add_edge_attr_key("annotation", pl.Int8, -1)
    graph.add_edge_attr_key("truth", pl.Boolean)
    position = rng.uniform(0, 12 * np.sqrt(n_cells), (n_cells, 2))
    earlier: list[int] = []
    previous = position
    for t in range(n_frames):
        nodes = [graph.add_node({"t": t, "y": y, "x": x}) for y, x in position]
        for i, source in enumerate(earlier):
            for j, target in enumerate(nodes):
                dy, dx = position[j] - previous[i]
                if np.hypot(dy, dx) < 25:
                    attributes = {"dy": abs(dy), "dx": abs(dx - 8)}
                    # annotate the first four tracks only
                    known = int(i == j) if i < 4 else -1
                    attributes |= {"annotation": known, "truth": i == j}
                    graph.add_edge(source, target, attributes)
        earlier = nodes
        previous = position
        position = position + rng.normal((0, 8), (1, 2), position.shape)
    return graph


def main() -> None:
    """Print how many edges of another graph are right."""
    graph = simulate_graph(0)
    other_graph = simulate_graph(1)
    # --8<-- [start:solve]
    solver = ClewSolver(edge_attributes=["dy", "dx"], annotation="annotation")
    solver.fit(graph)  # edges with annotation 1 are right, 0 wrong, -1 unknown
    other_graph.update_edge_attrs(attrs={"annotation": -1})
    solution = solver.solve(other_graph)
    weights = solver.tracker.weights_
    edges = solution.edge_attrs(attr_keys=["truth", "probability"])
    print(f"{edges['truth'].mean():.1%} of {len(edges)} edges are right")
    print(f"mean probability {edges['probability'].mean():.1%}")
    print(f"weight of dx {weights['move: dx']:.2f}, of dy {weights['move: dy']:.2f}")
    # --8<-- [end:solve]


if __name__ == "__main__":
    main()
