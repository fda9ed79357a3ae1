"""Events of a candidate graph as columns of a set partition.

Each node has two rows: its history (what it came from) and its fate (what becomes of
it). An event covers some of them, and a lineage covers each row once:

- a move covers the fate of its source and the history of its target,
- a division covers the fate of the source and the histories of two targets,
- an appearance covers a history, a disappearance covers a fate,
- a false detection covers both rows of its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Array, Indices, Mask
from clew.models.highs_solver import Binary, Program
from clew.tracking.graph.candidate_graph import CandidateGraph

ROWS_OF_EVENT = 4
"""Width of the table of rows, as `clew.tracking.assignment.margins` expects it."""


class GraphEvent(IntEnum):
    """Kinds of events, in the order of their columns."""

    MOVE = 0
    DIVIDE = 1
    APPEAR = 2
    DISAPPEAR = 3
    FALSE = 4


@dataclass(frozen=True)
class Standardization:
    """Names, means and standard deviations of the attributes that were learned from."""

    nodes: Mapping[str, tuple[float, float]]
    edges: Mapping[str, tuple[float, float]]

    def transform_nodes(self, graph: CandidateGraph) -> Array:
        """(n, p) the standardized node attributes."""
        return _standardize(graph.node_attributes, self.nodes, graph.n_nodes, "node")

    def transform_edges(self, graph: CandidateGraph) -> Array:
        """(m, q) the standardized edge attributes."""
        return _standardize(graph.edge_attributes, self.edges, graph.n_edges, "edge")

    def feature_names(self) -> list[str]:
        """The name of each weight, as "move: distance"."""
        nodes = list(self.nodes)
        edges = list(self.edges)
        sums = [f"sum of {name}" for name in edges]
        differences = [f"difference of {name}" for name in edges]
        by_event = {
            "move": edges,
            "divide": [*sums, *differences, *nodes],
            "appear": nodes,
            "disappear": nodes,
            "false": nodes,
        }
        return [
            f"{event}: {name}"
            for event, names in by_event.items()
            for name in ["constant", *names]
        ]


def fit_standardization(graphs: Sequence[CandidateGraph]) -> Standardization:
    """Measure mean and standard deviation of each attribute that all graphs have."""
    return Standardization(
        _measure_attributes([graph.node_attributes for graph in graphs]),
        _measure_attributes([graph.edge_attributes for graph in graphs]),
    )


def _measure_attributes(
    tables: Sequence[Mapping[str, Array]],
) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of the columns that all tables have."""
    scales = {}
    for name in tables[0]:
        if all(name in table for table in tables):
            values = np.concatenate([table[name] for table in tables])
            if len(values):
                scales[name] = (float(values.mean()), float(values.std()) or 1.0)
    return scales


def _standardize(
    table: Mapping[str, Array],
    scales: Mapping[str, tuple[float, float]],
    n: int,
    kind: str,
) -> Array:
    """Return the standardized columns; raise an error if one is missing."""
    missing = [name for name in scales if name not in table]
    if missing:
        raise InputError(
            f"{kind} attribute {missing[0]!r} was learned from and is missing; this "
            f"graph has {sorted(table)}"
        )
    columns = [(table[name] - mean) / std for name, (mean, std) in scales.items()]
    return np.column_stack(columns) if columns else np.zeros((n, 0))


@dataclass(frozen=True)
class GraphEvents:
    """All candidate events of a graph."""

    graph: CandidateGraph
    kind: Binary
    """(k,) `GraphEvent` of each event."""
    edges: Indices
    """(k, 2) edges of moves and divisions, else -1."""
    nodes: Indices
    """(k,) source of a move or division, else the node."""
    rows: Indices
    """(k, 4) fates (the nodes' indices) and histories (after them), else -1."""
    annotation: Binary
    """(k,) 1 where an event is known to happen, 0 where not, else -1."""

    @property
    def n_rows(self) -> int:
        """Two for each node."""
        return 2 * self.graph.n_nodes

    def of_kind(self, kind: GraphEvent) -> slice:
        """The range of events of one kind."""
        begin, end = np.searchsorted(self.kind, [kind, kind + 1])
        return slice(int(begin), int(end))

    def find_possible(self) -> Mask:
        """(k,) which events agree with the annotation.

        One that happens excludes all others that cover its rows.
        """
        happens = self.annotation == 1
        is_taken = np.zeros(self.n_rows + 1, dtype=bool)  # -1 is the last one
        is_taken[self.rows[happens]] = True
        is_taken[-1] = False
        is_excluded = is_taken[self.rows].any(axis=1)
        return np.asarray(happens | ~(is_excluded | (self.annotation == 0)))


def list_events(
    graph: CandidateGraph, divisions: bool, false_detections: bool
) -> GraphEvents:
    """List the candidate events of a graph, with their annotations.

    A node with one right edge to later frames moves, one with two divides. Other ends
    of right edges are unknown.

    Parameters
    ----------
    graph : CandidateGraph
    divisions : bool
        Whether nodes can divide.
    false_detections : bool
        Whether all nodes can be left out; otherwise only those annotated as wrong.
    """
    check_annotation(graph, divisions)
    n = graph.n_nodes
    sources = graph.sources
    targets = graph.targets
    pairs = list_pairs(sources) if divisions else np.zeros((0, 2), dtype=np.intp)
    all_nodes = np.arange(n)
    can_be_false = false_detections | (graph.node_annotation == 0)
    false_nodes = np.flatnonzero(can_be_false)
    first = pairs[:, 0]
    second = pairs[:, 1]
    rows = [
        _pad(sources, n + targets),
        _pad(sources[first], n + targets[first], n + targets[second]),
        _pad(n + all_nodes),
        _pad(all_nodes),
        _pad(false_nodes, n + false_nodes),
    ]
    sizes = [len(part) for part in rows]
    edges = np.full((sum(sizes), 2), -1, dtype=np.intp)
    edges[: sizes[0], 0] = np.arange(len(sources))
    edges[sizes[0] : sizes[0] + sizes[1]] = pairs
    nodes = np.concatenate([sources, sources[first], all_nodes, all_nodes, false_nodes])
    kind = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    annotation = np.full(len(kind), -1, dtype=np.int8)
    events = GraphEvents(graph, kind, edges, nodes, np.concatenate(rows), annotation)
    _annotate_events(events)
    return events


def list_pairs(sources: Indices) -> Indices:
    """(k, 2) all pairs of edges that share a source."""
    order = np.argsort(sources, kind="stable")
    _, begins, counts = np.unique(sources[order], return_index=True, return_counts=True)
    pairs = [np.zeros((0, 2), dtype=np.intp)]
    for count in np.unique(counts[counts > 1]):
        first, second = np.triu_indices(count, 1)
        begin = begins[counts == count][:, None]
        places = np.stack([begin + first, begin + second], axis=-1).reshape(-1, 2)
        pairs.append(order[places])
    return np.concatenate(pairs)


def _pad(*columns: Indices) -> Indices:
    """(k, 4) rows of events of one kind."""
    table = np.full((len(columns[0]), ROWS_OF_EVENT), -1, dtype=np.intp)
    for place, column in enumerate(columns):
        table[:, place] = column
    return table


def _annotate_events(events: GraphEvents) -> None:
    """Set what is known of each event."""
    graph = events.graph
    annotation = events.annotation
    is_right = np.append(graph.edge_annotation == 1, False)  # -1 is the last one
    is_wrong = np.append(graph.edge_annotation == 0, False)
    right = np.flatnonzero(is_right[:-1])
    n_children = np.bincount(graph.sources[right], minlength=graph.n_nodes)
    n_right = is_right[events.edges].sum(axis=1)
    has_right = n_right > 0
    is_complete = n_right == (events.edges >= 0).sum(axis=1)
    annotation[has_right | is_wrong[events.edges].any(axis=1)] = 0
    annotation[has_right & is_complete & (n_right == n_children[events.nodes])] = 1
    is_cell = graph.node_annotation == 1
    is_cell[graph.sources[right]] = True
    is_cell[graph.targets[right]] = True
    false = events.of_kind(GraphEvent.FALSE)
    false_nodes = events.nodes[false]
    annotation[false][is_cell[false_nodes]] = 0
    annotation[false][graph.node_annotation[false_nodes] == 0] = 1


def check_annotation(graph: CandidateGraph, divisions: bool) -> None:
    """Raise an error for annotations that no lineage agrees with."""
    right = graph.edge_annotation == 1
    n_parents = np.bincount(graph.targets[right], minlength=graph.n_nodes)
    n_children = np.bincount(graph.sources[right], minlength=graph.n_nodes)
    is_false = graph.node_annotation == 0
    most = 2 if divisions else 1
    faults = {
        "has more than one right edge from earlier frames": n_parents > 1,
        f"has more than {most} right edges to later frames": n_children > most,
        "is no cell and has a right edge": is_false & (n_parents + n_children > 0),
    }
    for fault, is_bad in faults.items():
        if is_bad.any():
            node = graph.ids[int(np.flatnonzero(is_bad)[0])]
            raise InfeasibleAnnotation(f"node {node!r} {fault}", parts=(node,))


def compute_features(events: GraphEvents, scales: Standardization) -> sp.csr_array:
    """(k, d) a block for each kind of events: a constant and its attributes.

    Appearances in the first frame and disappearances after the last one have none: they
    are due to the movie's limits.
    """
    graph = events.graph
    nodes = _add_constant(scales.transform_nodes(graph))
    edges = scales.transform_edges(graph)
    pairs = edges[events.edges[events.of_kind(GraphEvent.DIVIDE)]]
    parents = nodes[events.nodes[events.of_kind(GraphEvent.DIVIDE)]]
    is_first = graph.time == graph.time.min(initial=np.inf)
    is_last = graph.time == graph.time.max(initial=-np.inf)
    blocks = [
        _add_constant(edges),
        np.hstack(
            [
                parents[:, :1],
                pairs.sum(axis=1),
                np.abs(pairs[:, 0] - pairs[:, 1]),
                parents[:, 1:],
            ]
        ),
        np.where(is_first[:, None], 0.0, nodes),
        np.where(is_last[:, None], 0.0, nodes),
        nodes[events.nodes[events.of_kind(GraphEvent.FALSE)]],
    ]
    return sp.block_diag([sp.csr_array(block) for block in blocks], format="csr")


def _add_constant(features: Array) -> Array:
    """Return the features with a column of ones before them."""
    return np.column_stack([np.ones(len(features)), features])


@dataclass(frozen=True)
class TrainingPart:
    """A part of a graph as one example: events that share no row with others."""

    program: Program
    annotation: Binary
    rows: Indices
    """(k, 4) the rows of each event within the part, else -1."""


def split_events(events: GraphEvents, features: sp.csr_array) -> list[TrainingPart]:
    """Split a graph into parts that are learned from as separate examples.

    A part has the fates of some frames and the histories of those that edges lead to:
    frame pairs, if no edge skips a frame. Only false detections belong to two parts;
    half of their features count in each, as in piecewise training (Sutton and McCallum
    2005).
    """
    graph = events.graph
    n = graph.n_nodes
    frames, frame = np.unique(graph.time, return_inverse=True)
    n_frames = len(frames)
    links = (frame[graph.sources], n_frames + frame[graph.targets])
    ones = np.ones(graph.n_edges)
    layers = sp.csr_array((ones, links), shape=(2 * n_frames, 2 * n_frames))
    _, part_of_layer = connected_components(layers, directed=False)
    part_of_row = part_of_layer[np.concatenate([frame, n_frames + frame])]

    false = np.arange(len(events.kind))[events.of_kind(GraphEvent.FALSE)]
    others = np.arange(len(events.kind) - len(false))
    event = np.concatenate([others, false, false])
    rows = np.concatenate(
        [events.rows[others], _pad(events.nodes[false]), _pad(n + events.nodes[false])]
    )
    share = np.where(np.arange(len(event)) < len(others), 1.0, 0.5)
    part_of_event = part_of_row[rows[:, 0]]
    order = np.argsort(part_of_event, kind="stable")
    ends = np.flatnonzero(np.diff(part_of_event[order])) + 1
    parts = []
    for members in np.split(order, ends) if len(order) else []:
        annotation = events.annotation[event[members]]
        if not (annotation >= 0).any():
            continue
        own_rows = np.flatnonzero(part_of_row == part_of_event[members[0]])
        place = np.full(events.n_rows + 1, -1, dtype=np.intp)  # -1 is the last one
        place[own_rows] = np.arange(len(own_rows))
        local = place[rows[members]]
        scale = sp.diags_array(share[members])
        A = build_rows(local, len(own_rows))
        one = np.ones(len(own_rows))
        program = Program(scale @ features[event[members]], A, one, one)
        parts.append(TrainingPart(program, annotation, local))
    return parts


def build_rows(rows: Indices, n_rows: int) -> sp.csr_array:
    """(n_rows, k) 1 where an event covers a row."""
    event, place = np.nonzero(rows >= 0)
    entries = (rows[event, place], event)
    return sp.csr_array((np.ones(len(event)), entries), shape=(n_rows, len(rows)))


def find_undominated(events: GraphEvents, scores: Array) -> Mask:
    """(k,) which events may be part of a best lineage.

    A move that scores no more than a disappearance and an appearance is never needed,
    nor is a division that scores no more than one of its moves and an appearance.
    """
    targets = events.graph.targets
    move = scores[events.of_kind(GraphEvent.MOVE)]
    appear = scores[events.of_kind(GraphEvent.APPEAR)]
    disappear = scores[events.of_kind(GraphEvent.DISAPPEAR)]
    instead = np.full(len(scores), -np.inf)
    instead[events.of_kind(GraphEvent.MOVE)] = (
        disappear[events.graph.sources] + appear[targets]
    )
    divisions = events.of_kind(GraphEvent.DIVIDE)
    first, second = events.edges[divisions].T
    instead[divisions] = np.maximum(
        move[first] + appear[targets[second]], move[second] + appear[targets[first]]
    )
    return np.asarray((scores > instead) & (scores > -np.inf))
