"""Learn the costs of a candidate graph's events, and find its best lineage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from clew.errors import InfeasibleAnnotation, InputError
from clew.estimators.calibration import Calibration, fit_calibration
from clew.estimators.svm import StructuredSVM
from clew.learning.selection import best_point
from clew.learning.task import Array, Indices, Mask
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import WarmStartedProgram
from clew.tracking.assignment.assignment import raise_prices
from clew.tracking.assignment.margins import compute_margins
from clew.tracking.graph.candidate_graph import CandidateGraph, make_candidate_graph
from clew.tracking.graph.graph_events import (
    GraphEvent,
    GraphEvents,
    Standardization,
    TrainingPart,
    build_rows,
    compute_features,
    find_undominated,
    fit_standardization,
    list_events,
    split_events,
)
from clew.utils.parameters import Parametrized, check_fitted
from clew.utils.validation import Seed, check_bool, check_int

if TYPE_CHECKING:
    import networkx as nx


class GraphQuery(NamedTuple):
    """An event that is worth annotating."""

    event: str
    """"move", "divide", "appear", "disappear" or "false"."""
    source: Hashable | None
    """The node before it; None for an appearance."""
    targets: tuple[Hashable, ...]
    """The nodes after it."""
    margin: float
    """Score that is lost without this event."""
    probability: float


@dataclass(frozen=True)
class GraphSolution:
    """The best consistent lineage of a candidate graph."""

    events: GraphEvents
    """The candidates."""
    chosen: Indices
    """(c,) the events of the lineage."""
    margin: Array
    """(c,) score that is lost without each of them; inf if it is certain."""
    probability: Array
    """(c,) that each of them is right."""
    edge_margin: Array
    """(m,) score that is lost if an edge is not taken, or is taken."""
    edge_probability: Array
    """(m,) that an edge is right."""
    is_edge: Mask
    """(m,) whether an edge is in the lineage."""
    is_node: Mask
    """(n,) whether a node is in the lineage, and is no false detection."""

    @property
    def graph(self) -> CandidateGraph:
        """The candidate graph."""
        return self.events.graph

    def list_edges(self) -> list[tuple[Hashable, Hashable]]:
        """List the edges of the lineage by the names of their nodes."""
        ids = self.graph.ids
        edges = np.flatnonzero(self.is_edge)
        sources = self.graph.sources[edges]
        targets = self.graph.targets[edges]
        return [(ids[u], ids[v]) for u, v in zip(sources, targets, strict=True)]

    def to_networkx(self) -> nx.DiGraph:
        """Return the lineage, with margin and probability of each edge."""
        import networkx as nx

        graph = nx.DiGraph()
        ids = self.graph.ids
        for node in np.flatnonzero(self.is_node):
            graph.add_node(ids[node], t=float(self.graph.time[node]))
        selected = np.flatnonzero(self.is_edge)
        for (source, target), edge in zip(self.list_edges(), selected, strict=True):
            graph.add_edge(
                source,
                target,
                margin=float(self.edge_margin[edge]),
                probability=float(self.edge_probability[edge]),
            )
        return graph


class GraphTracker(Parametrized):
    """Learn a weight for each attribute and event of candidate graphs.

    An edge annotated as right is a move if it is the only right edge of its source, and
    part of a division if there are two. Beginnings and ends of annotated tracks are
    unknown. A disappearance is known where all edges of a cell are annotated as wrong.

    Parameters
    ----------
    divisions : bool
        Whether two edges of one source can both be right. All pairs are candidates.
    lam : float, "auto" or sequence of float
        Weight λ of the regularizer; "auto" or several values choose it by
        cross-validation.
    n_jobs : int or None
        Threads of learning; -1 for all cores.
    random_state : int, Generator, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    weights_ : dict
        The weights by event and attribute, as "move: distance"; attributes are
        standardized. An event with a higher score is more likely.
    svm_ : StructuredSVM
        With the certificate of the fit.
    calibration_ : Calibration
        From margins to probabilities, fitted to held-out annotations.
    has_false_detections_ : bool
        Whether nodes can be left out: if at least one is annotated as wrong.
    """

    svm_: StructuredSVM
    scales_: Standardization
    calibration_: Calibration
    has_false_detections_: bool

    def __init__(
        self,
        *,
        divisions: bool = True,
        lam: float | str | Sequence[float] = "auto",
        n_jobs: int | None = None,
        random_state: Seed = 0,
    ) -> None:
        self.divisions = divisions
        self.lam = lam
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, graphs: Any) -> Self:
        """Learn from the annotations of one graph or several.

        Parameters
        ----------
        graphs : CandidateGraph or sequence of CandidateGraph
            Graphs of `make_candidate_graph`, with annotations.
        """
        graphs = [graphs] if isinstance(graphs, CandidateGraph) else list(graphs)
        if not graphs or not all(isinstance(g, CandidateGraph) for g in graphs):
            raise InputError(
                "graphs: expected a CandidateGraph or several, see make_candidate_graph"
            )
        check_bool(self.divisions, "divisions")
        has_false = any((graph.node_annotation == 0).any() for graph in graphs)
        scales = fit_standardization(graphs)
        parts = []
        for graph in graphs:
            events = list_events(graph, self.divisions, has_false)
            parts += split_events(events, compute_features(events, scales))
        if not any((part.annotation == 1).any() for part in parts):
            raise InputError(
                "no edge is annotated as right, and no node as wrong; expected some"
            )
        # a list, so that there are folds for the calibration
        lam = [float(self.lam)] if isinstance(self.lam, int | float) else self.lam
        svm = StructuredSVM(
            BinaryProgram(normalize=False),
            lam=lam,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        svm.fit([part.program for part in parts], [part.annotation for part in parts])
        self.svm_ = svm
        self.scales_ = scales
        self.has_false_detections_ = has_false
        self.calibration_ = _calibrate(svm, parts)
        return self

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each attribute and event."""
        check_fitted(self, "svm_")
        names = self.scales_.feature_names()
        return dict(zip(names, self.svm_.coef_.tolist(), strict=True))

    def solve(self, graph: Any) -> GraphSolution:
        """Find the best consistent lineage.

        Annotations of the graph override the weights.

        Parameters
        ----------
        graph : CandidateGraph or graph
            Or what `make_candidate_graph` takes as one graph, with the frame as "t".

        Raises
        ------
        InputError
            If an attribute that was learned from is missing.
        """
        check_fitted(self, "svm_")
        graph = make_candidate_graph(graph)
        events = list_events(graph, self.divisions, self.has_false_detections_)
        scores = compute_features(events, self.scales_) @ self.svm_.coef_
        scores = np.where(events.find_possible(), scores, -np.inf)
        is_candidate = find_undominated(events, scores)
        chosen, reduced = _choose_events(
            events.rows, events.n_rows, scores, is_candidate
        )
        n_edges = graph.n_edges
        queries = np.concatenate([chosen, np.arange(n_edges)])
        margins = compute_margins(events.rows, events.n_rows, chosen, reduced, queries)
        losses = np.column_stack([np.zeros(len(margins)), -margins])
        probabilities = self.calibration_.probabilities(losses)
        edge_margin = margins[len(chosen) :]
        edge_probability = probabilities[len(chosen) :, 1]
        is_edge = np.zeros(n_edges, dtype=bool)
        event, side = np.nonzero(events.edges[chosen] >= 0)
        edges = events.edges[chosen][event, side]
        is_edge[edges] = True
        edge_margin[edges] = margins[event]
        edge_probability[edges] = probabilities[event, 0]
        is_node = np.ones(graph.n_nodes, dtype=bool)
        is_node[events.nodes[chosen][events.kind[chosen] == GraphEvent.FALSE]] = False
        return GraphSolution(
            events,
            chosen,
            margins[: len(chosen)],
            probabilities[: len(chosen), 0],
            edge_margin,
            edge_probability,
            is_edge,
            is_node,
        )

    def suggest(self, graph: Any, n: int) -> list[GraphQuery]:
        """Suggest the events to annotate next: those with the smallest margins.

        Parameters
        ----------
        graph : CandidateGraph or graph
            Events that are annotated already are left out.
        n : int
            Number of events.
        """
        n = check_int(n, "n, the number of events to suggest,", 0)
        solution = self.solve(graph)
        events = solution.events
        is_open = events.annotation[solution.chosen] != 1
        is_open &= np.isfinite(solution.margin)
        order = np.argsort(solution.margin, kind="stable")
        return [_describe_event(solution, k) for k in order[is_open[order]][:n]]


def _describe_event(solution: GraphSolution, k: int) -> GraphQuery:
    """Return a chosen event by the names of its nodes."""
    events = solution.events
    graph = solution.graph
    row = solution.chosen[k]
    kind = GraphEvent(events.kind[row])
    node = graph.ids[events.nodes[row]]
    edges = events.edges[row][events.edges[row] >= 0]
    targets = tuple(graph.ids[target] for target in graph.targets[edges])
    is_appearance = kind is GraphEvent.APPEAR
    return GraphQuery(
        kind.name.lower(),
        None if is_appearance else node,
        (node,) if is_appearance else targets,
        float(solution.margin[k]),
        float(solution.probability[k]),
    )


def _choose_events(
    rows: Indices, n_rows: int, scores: Array, is_candidate: Mask
) -> tuple[Indices, Array]:
    """Return the best choice that covers each row once, and reduced scores."""
    candidates = np.flatnonzero(is_candidate)
    one = np.ones(n_rows)
    n = len(candidates)
    A = build_rows(rows[candidates], n_rows)
    program = WarmStartedProgram(A, one, one, np.zeros(n), np.ones(n))
    solution = program.solve(scores[candidates])
    if solution is None:
        raise InfeasibleAnnotation("no lineage agrees with the annotation of the graph")
    chosen = candidates[solution.y == 1]
    prices = raise_prices(solution.duals[:n_rows], rows[chosen], scores[chosen])
    return chosen, scores - np.append(prices, 0.0)[rows].sum(axis=1)


def _calibrate(svm: StructuredSVM, parts: Sequence[TrainingPart]) -> Calibration:
    """Fit probabilities to the events that the folds held out.

    The event that covers the first row of an event that happened is right or wrong.
    """
    losses = []
    is_right = []
    weights = best_point(svm.path_).weights
    for w, held_out in zip(weights, svm.held_out_, strict=True):
        for part, annotation in zip(parts, held_out, strict=True):
            if annotation is None or not (np.asarray(annotation) == 1).any():
                continue
            happened = np.flatnonzero(np.asarray(annotation) == 1)
            scores = np.asarray(part.program.features @ w)
            n_rows = part.program.A.shape[0]
            all_events = np.ones(len(scores), dtype=bool)
            chosen, reduced = _choose_events(part.rows, n_rows, scores, all_events)
            event_of_row = np.zeros(n_rows + 1, dtype=np.intp)
            event_of_row[part.rows[chosen]] = chosen[:, None]
            predicted = event_of_row[part.rows[happened, 0]]
            margin = compute_margins(part.rows, n_rows, chosen, reduced, predicted)
            losses.append(np.column_stack([np.zeros(len(margin)), -margin]))
            right = predicted == happened
            is_right.append(np.column_stack([right, ~right]))
    return fit_calibration(losses, is_right)
