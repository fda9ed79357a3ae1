"""Candidate graphs: detections, possible links, their attributes and annotations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices
from clew.models.base import check_finite
from clew.models.highs_solver import Binary
from clew.utils.validation import check_array, check_list, is_number, short_repr

Columns = dict[str, NDArray[Any]]
POSITIONS = ("z", "y", "x")
"""Node attributes that are features only if they are named."""


@dataclass(frozen=True)
class CandidateGraph:
    """Detections and possible links between them, with attributes and annotations."""

    ids: tuple[Hashable, ...]
    """The user's names of the nodes."""
    time: Array
    """(n,) the frame of each node."""
    sources: Indices
    """(m,) index of the node that each edge comes from."""
    targets: Indices
    """(m,) index of the node that each edge leads to, in a later frame."""
    node_attributes: Mapping[str, Array]
    """(n,) numbers by name."""
    edge_attributes: Mapping[str, Array]
    """(m,) numbers by name."""
    node_annotation: Binary
    """(n,) 1 for a cell, 0 for a false detection, -1 for unknown."""
    edge_annotation: Binary
    """(m,) 1 for right, 0 for wrong, -1 for unknown."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.sources)

    def annotate(
        self,
        nodes: Mapping[Any, bool | None] | None = None,
        edges: Mapping[tuple[Any, Any], bool | None] | None = None,
    ) -> CandidateGraph:
        """Return a copy with more annotations.

        Parameters
        ----------
        nodes : mapping, optional
            {node: True for a cell, False for a false detection, None for unknown}.
        edges : mapping, optional
            {(source, target): True if it is right, False if wrong, None for unknown}.
        """
        node_annotation = self.node_annotation.copy()
        place = {name: i for i, name in enumerate(self.ids)}
        for name, value in (nodes or {}).items():
            if name not in place:
                raise InputError(f"nodes: {short_repr(name)} is not in the graph")
            node_annotation[place[name]] = _encode_state(value, "nodes")
        edge_annotation = self.edge_annotation.copy()
        if edges:
            edge_place = {
                (self.ids[source], self.ids[target]): e
                for e, (source, target) in enumerate(
                    zip(self.sources, self.targets, strict=True)
                )
            }
            for pair, value in edges.items():
                if pair not in edge_place:
                    raise InputError(f"edges: {short_repr(pair)} is not in the graph")
                edge_annotation[edge_place[pair]] = _encode_state(value, "edges")
        return replace(
            self, node_annotation=node_annotation, edge_annotation=edge_annotation
        )


def make_candidate_graph(
    graph: Any,
    edges: Any = None,
    *,
    time: str = "t",
    node_attributes: Sequence[str] | None = None,
    edge_attributes: Sequence[str] | None = None,
    annotation: str | None = None,
    node_id: str = "id",
    source: str = "source",
    target: str = "target",
) -> CandidateGraph:
    """Convert a graph of networkx, rustworkx or tracksdata, or two tables.

    Parameters
    ----------
    graph : graph or table
        A directed graph, or the table of nodes: a data frame or a mapping of columns.
        Nodes and edges of rustworkx have mappings as data.
    edges : table, optional
        The table of edges, if `graph` is one of nodes.
    time : str
        Node attribute with the frame.
    node_attributes, edge_attributes : sequence of str, optional
        Attributes to learn from. By default all numeric ones but the time and the
        positions z, y and x.
    annotation : str, optional
        Attribute of nodes and edges with 1 or True for right, 0 or False for wrong, and
        -1, None or NaN for unknown; nodes or edges may lack it.
    node_id, source, target : str
        Columns of the tables.

    Returns
    -------
    CandidateGraph

    Raises
    ------
    InputError
        If a column is missing or not finite, or an edge leads to no later frame.
    """
    if isinstance(graph, CandidateGraph):
        return graph
    optional = [] if annotation is None else [annotation]
    check_list([time, node_id, source, target, *optional], "names of columns", str)
    if edges is not None:
        node_columns = _read_columns(graph, "nodes")
        edge_columns = _read_columns(edges, "edges")
    elif hasattr(graph, "node_attrs") and hasattr(graph, "edge_attrs"):
        node_columns, edge_columns = _read_tracksdata(graph)
        node_id, source, target = "node_id", "source_id", "target_id"
    elif hasattr(graph, "weighted_edge_list"):
        nodes = {i: graph[i] for i in graph.node_indices()}
        triples = graph.weighted_edge_list()
        node_columns, edge_columns = _read_items(nodes, triples, annotation)
        node_id, source, target = "", "source", "target"
    elif hasattr(graph, "nodes") and hasattr(graph, "edges"):
        if not graph.is_directed():
            raise InputError("graph has no directions; expected edges to later frames")
        triples = list(graph.edges(data=True))
        node_columns, edge_columns = _read_items(
            dict(graph.nodes(data=True)), triples, annotation
        )
        node_id, source, target = "", "source", "target"
    else:
        raise InputError(
            f"graph is a {type(graph).__name__}; expected a graph of networkx, "
            "rustworkx or tracksdata, or a table of nodes and one of edges"
        )
    ids = tuple(_get_names(node_columns, node_id, "nodes"))
    place = {name: i for i, name in enumerate(ids)}
    if len(place) < len(ids):
        raise InputError("nodes: two nodes have the same id")
    sources = _find_nodes(_get_names(edge_columns, source, "edges"), place)
    targets = _find_nodes(_get_names(edge_columns, target, "edges"), place)
    times = _get_numbers(node_columns, time, "node")
    backward = np.flatnonzero(times[sources] >= times[targets])
    if len(backward):
        e = backward[0]
        raise InputError(
            f"edge {short_repr((ids[sources[e]], ids[targets[e]]))} leads from frame "
            f"{times[sources[e]]:g} to {times[targets[e]]:g}; expected a later frame"
        )
    pairs = np.column_stack([sources, targets])
    if len(np.unique(pairs, axis=0)) < len(pairs):
        raise InputError("edges: an edge appears twice")
    no_feature = {node_id, time, annotation, *POSITIONS}
    keys = {source, target, annotation, "edge_id"}
    return CandidateGraph(
        ids,
        times,
        sources,
        targets,
        _select(node_columns, node_attributes, no_feature, "node"),
        _select(edge_columns, edge_attributes, keys, "edge"),
        _read_states(node_columns, annotation, len(ids), "nodes"),
        _read_states(edge_columns, annotation, len(sources), "edges"),
    )


def _read_columns(table: Any, name: str) -> Columns:
    """Return the columns of a data frame or a mapping."""
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise InputError(f"{name} is a {type(table).__name__}; expected a table")
    keys = table if isinstance(table, Mapping) else table.columns
    columns = {}
    for key in keys:
        column = check_array(table[key], f"{name}: column {short_repr(key)}")
        if column.ndim == 0:
            raise InputError(f"{name}: column {short_repr(key)} is no list of values")
        columns[str(key)] = column
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{name}: columns differ in length, {short_repr(lengths)}")
    return columns


def _read_tracksdata(graph: Any) -> tuple[Columns, Columns]:
    """Return the attributes of nodes and edges of a graph of tracksdata."""
    if graph.has_overlaps():
        raise InputError(
            "graph has overlapping nodes, of which one at most is right; expected a "
            "graph without overlaps"
        )
    nodes = graph.node_attrs()
    edges = graph.edge_attrs()
    return (
        {key: nodes[key].to_numpy() for key in nodes.columns},
        {key: edges[key].to_numpy() for key in edges.columns},
    )


def _read_items(
    nodes: Mapping[Any, Mapping[str, Any]],
    edges: Iterable[tuple[Any, Any, Mapping[str, Any]]],
    annotation: str | None,
) -> tuple[Columns, Columns]:
    """Return the attributes that all nodes and all edges have, and annotations."""
    triples = list(edges)
    node_columns = _collect(list(nodes.values()), annotation)
    node_columns[""] = _make_object_array(list(nodes))
    edge_columns = _collect([data for _, _, data in triples], annotation)
    edge_columns["source"] = _make_object_array([source for source, _, _ in triples])
    edge_columns["target"] = _make_object_array([target for _, target, _ in triples])
    return node_columns, edge_columns


def _collect(items: Sequence[Mapping[str, Any]], annotation: str | None) -> Columns:
    """Return a column of each key that all items have, and the annotation."""
    common = set(items[0]).intersection(*items[1:]) if items else set()
    columns = {}
    for key in sorted(common, key=str):
        values = [item[key] for item in items]
        if all(np.ndim(value) == 0 for value in values):
            columns[str(key)] = np.asarray(values)
    if annotation is not None and any(annotation in item for item in items):
        states = [item.get(annotation) for item in items]
        columns[annotation] = _make_object_array(states)
    return columns


def _make_object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return a one-dimensional array of objects, such as tuples."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _get_names(columns: Columns, key: str, table: str) -> list[Hashable]:
    """Return a column of names of nodes."""
    if key not in columns:
        raise InputError(
            f"{table}: no column {key!r}; there are {short_repr(sorted(columns))}"
        )
    names: list[Hashable] = columns[key].tolist()
    for name in names:
        try:
            hash(name)
        except TypeError as error:
            raise InputError(
                f"{table}: column {key!r} has {short_repr(name)}; expected names of "
                "nodes, such as numbers or strings"
            ) from error
    return names


def _get_numbers(columns: Columns, key: str, kind: str) -> Array:
    """Return a finite numeric column."""
    if key not in columns:
        names = sorted(name for name in columns if name)
        raise InputError(
            f"{kind} attribute {key!r} is missing; all {kind}s have {short_repr(names)}"
        )
    if not _is_numeric(columns[key]):
        raise InputError(f"{kind} attribute {key!r} is not numeric")
    values = np.asarray(columns[key], dtype=float)
    check_finite(values, f"{kind} attribute {key!r}")
    return values


def _is_numeric(column: NDArray[Any]) -> bool:
    """Return whether a column has one number a row."""
    return column.ndim == 1 and column.dtype.kind in "iuf"


def _select(
    columns: Columns, names: Sequence[str] | None, others: set[str | None], kind: str
) -> dict[str, Array]:
    """Return the named attributes; by default the numeric ones but `others`."""
    if names is None:
        names = [
            key
            for key, column in columns.items()
            if key not in others and _is_numeric(column)
        ]
    names = check_list(names, f"{kind}_attributes", str)
    return {name: _get_numbers(columns, name, kind) for name in names}


def _find_nodes(names: Sequence[Hashable], place: Mapping[Hashable, int]) -> Indices:
    """Return the indices of nodes."""
    indices = [place.get(name, -1) for name in names]
    if -1 in indices:
        name = names[indices.index(-1)]
        raise InputError(f"edges: node {short_repr(name)} is not among the nodes")
    return np.array(indices, dtype=np.intp)


def _read_states(columns: Columns, key: str | None, n: int, table: str) -> Binary:
    """Return annotations as 1, 0 and -1."""
    if key is None or key not in columns:
        return np.full(n, -1, dtype=np.int8)
    values = columns[key].tolist()
    return np.array([_encode_state(value, table) for value in values], dtype=np.int8)


def _encode_state(value: Any, table: str) -> int:
    """Return 1 for right, 0 for wrong and -1 for unknown."""
    is_numeric = is_number(value) or isinstance(value, bool | np.bool_)
    if value is None or (is_numeric and (value == -1 or value != value)):
        return -1
    if not is_numeric or value not in (0, 1):
        raise InputError(
            f"{table}: annotation {short_repr(value)}; expected 1 or True, 0 or False, "
            "or -1 or None for unknown"
        )
    return int(value)
