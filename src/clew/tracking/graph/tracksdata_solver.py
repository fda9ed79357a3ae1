"""A solver for tracksdata that learns its costs from annotations.

Needs ``pip install 'clew-learn[tracksdata]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from clew.errors import MissingExtra
from clew.learning.task import Array, Mask
from clew.tracking.graph.candidate_graph import CandidateGraph, make_candidate_graph
from clew.tracking.graph.graph_tracker import GraphTracker

if TYPE_CHECKING:
    BaseSolver: Any = object
else:
    try:
        from tracksdata.solvers._base_solver import BaseSolver
    except (
        ModuleNotFoundError
    ):  # the class can be imported, and its __init__ says what to do
        BaseSolver = object


class ClewSolver(BaseSolver):  # type: ignore[misc]  # untyped
    """Solve graphs of tracksdata with weights that are learned from annotations.

    Parameters
    ----------
    edge_attributes : sequence of str
        Edge attributes to learn from, such as distances and scores.
    node_attributes : sequence of str
        Node attributes to learn from.
    annotation : str
        Attribute of nodes and edges with 1 for right, 0 for wrong and -1 for unknown.
        Where it exists, `solve` agrees with it.
    tracker : GraphTracker, optional
        By default one that finds divisions and chooses λ.
    output_key : str
        Attribute for the solution, of nodes and edges.
    probability_key : str
        Attribute for the probability of each edge.
    reset : bool
        Whether earlier solutions are removed.
    return_solution : bool
        Whether `solve` returns the graph of the solution.
    """

    def __init__(
        self,
        edge_attributes: Sequence[str],
        node_attributes: Sequence[str] = (),
        *,
        annotation: str = "annotation",
        tracker: GraphTracker | None = None,
        output_key: str = "solution",
        probability_key: str = "probability",
        reset: bool = True,
        return_solution: bool = True,
    ) -> None:
        if BaseSolver is object:
            raise MissingExtra(
                "ClewSolver needs tracksdata: pip install 'clew-learn[tracksdata]'",
                "tracksdata",
            )
        super().__init__(
            output_key=output_key, reset=reset, return_solution=return_solution
        )
        self.edge_attributes = tuple(edge_attributes)
        self.node_attributes = tuple(node_attributes)
        self.annotation = annotation
        self.tracker = GraphTracker() if tracker is None else tracker
        self.probability_key = probability_key

    def fit(self, *graphs: Any) -> Self:
        """Learn from the annotations of graphs."""
        self.tracker.fit([self._convert(graph) for graph in graphs])
        return self

    def solve(self, graph: Any) -> Any:
        """Mark the best lineage in the graph, with probabilities of all edges.

        Returns
        -------
        GraphView or None
            The graph of the solution if `return_solution`.
        """
        import polars as pl
        from tracksdata.attrs import EdgeAttr, NodeAttr

        solution = self.tracker.solve(self._convert(graph))
        edge_ids = graph.edge_attrs(attr_keys=[])["edge_id"].to_numpy()
        for key, dtype in (
            (self.output_key, pl.Boolean),
            (self.probability_key, pl.Float64),
        ):
            if key not in graph.edge_attr_keys():
                graph.add_edge_attr_key(key, dtype)
        if self.output_key not in graph.node_attr_keys():
            graph.add_node_attr_key(self.output_key, pl.Boolean)
        is_edge = self._keep_earlier(solution.is_edge, graph.edge_attrs)
        is_node = self._keep_earlier(solution.is_node, graph.node_attrs)
        edge_values: dict[str, Array | Mask] = {
            self.output_key: is_edge,
            self.probability_key: solution.edge_probability,
        }
        graph.update_edge_attrs(
            edge_ids=edge_ids.tolist(),
            attrs={key: values.tolist() for key, values in edge_values.items()},
        )
        graph.update_node_attrs(
            node_ids=list(solution.graph.ids),
            attrs={self.output_key: is_node.tolist()},
        )
        if not self.return_solution:
            return None
        return graph.filter(
            NodeAttr(self.output_key) == True,  # noqa: E712
            EdgeAttr(self.output_key) == True,  # noqa: E712
        ).subgraph()

    def _keep_earlier(self, values: Mask, read_attributes: Any) -> Mask:
        """Add earlier solutions, unless they are to be removed."""
        if self.reset:
            return values
        earlier = read_attributes(attr_keys=[self.output_key])[self.output_key]
        joined: Mask = values | np.asarray(earlier.to_numpy(), dtype=bool)
        return joined

    def _convert(self, graph: Any) -> CandidateGraph:
        """Return the attributes that are learned from."""
        return make_candidate_graph(
            graph,
            edge_attributes=self.edge_attributes,
            node_attributes=self.node_attributes,
            annotation=self.annotation,
        )
