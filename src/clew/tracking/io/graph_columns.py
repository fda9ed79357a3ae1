"""A tracked movie as whole columns of nodes and edges, as GEFF needs them.

Columns are files that are mapped into memory and filled part by part, so that a movie
of any length can be written. In memory are one part, and a few numbers for each frame
and each piece of a track. Nodes are sorted by frame and label, edges by their first
frame.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clew.learning.task import Indices
from clew.tracking.events import NONE, Event, Labels
from clew.tracking.io.segments import CONTINUING, label_components, number_pieces
from clew.tracking.lineage.lineage import RECOVERED, LineagePart, TrackedMovie, parts_of

ROWS = 2**18
"""Rows of a column that are changed at a time."""
SPAN = np.array([event.span for event in Event])
N_LINKS = np.array([event.arity[0] * event.arity[1] for event in Event])
"""Edges of an event of each kind."""
LONE = (Event.APPEAR, Event.DISAPPEAR)
"""Events without an edge."""


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """Columns of n nodes.

    Attributes
    ----------
    id, frame, label, track : ndarray of shape (n,)
    position : ndarray of shape (n, ndim)
    recovered : ndarray of shape (n,)
        1 for cells without a given mask.
    segment : ndarray of shape (n,)
        Unbranched piece of a track, see `segments`.
    family : ndarray of shape (n,)
        Connected component, from 1.
    alone : dict of ndarray of shape (n,)
        Confidence of an appearance or disappearance; 0 if there was none.
    accompanied : dict of ndarray of bool of shape (n,)
        Where there was none.
    begin : ndarray of shape (n_frames + 1,)
        First node of each frame.
    """

    id: NDArray[np.uint64]
    frame: NDArray[np.int64]
    label: Labels
    position: NDArray[np.float64]
    track: Labels
    recovered: NDArray[np.int64]
    segment: NDArray[np.int64]
    family: NDArray[np.int64]
    alone: dict[Event, NDArray[np.float64]]
    accompanied: dict[Event, NDArray[np.bool_]]
    begin: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """Columns of m edges.

    Attributes
    ----------
    ends : ndarray of shape (m, 2)
        Nodes.
    event : ndarray of int8 of shape (m,)
        Values of `Event`.
    confidence : ndarray of shape (m,)
    probability : ndarray of shape (m,)
        Of being right; NaN if the lineage does not have it.
    begin : ndarray of shape (n_frames + 1,)
        First edge that leaves each frame.
    """

    ends: NDArray[np.uint64]
    event: NDArray[np.int8]
    confidence: NDArray[np.float64]
    probability: NDArray[np.float64]
    begin: NDArray[np.int64]


@contextmanager
def graph_columns(
    folder: Path, movie: TrackedMovie
) -> Iterator[tuple[NodeColumns, EdgeColumns]]:
    """Make the columns of a movie, in files that last as long as the block.

    Parameters
    ----------
    folder : Path
        The files are in a hidden folder within it.
    movie : TrackedMovie
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".columns-") as hidden:
        nodes, n_edges = _make_nodes(Path(hidden), movie)
        edges = _make_edges(Path(hidden), movie, nodes, n_edges)
        _number_pieces(nodes, edges)
        yield nodes, edges


def _make_column(
    folder: Path, name: str, dtype: DTypeLike, *shape: int, order: Any = "F"
) -> NDArray[Any]:
    """A column in a file; one without rows cannot be mapped."""
    if not shape[0]:
        return np.zeros(shape, dtype)
    return np.memmap(folder / name, dtype, "w+", shape=shape, order=order)


def _make_nodes(folder: Path, movie: TrackedMovie) -> tuple[NodeColumns, int]:
    """Make the columns of nodes that do not depend on edges, and count edges."""
    n = movie.n_cells
    numbers = {
        name: _make_column(folder, name, np.int64, n)
        for name in ("frame", "label", "track", RECOVERED, "segment", "family")
    }
    alone = {event: _make_column(folder, str(event), np.float64, n) for event in LONE}
    accompanied = {
        event: _make_column(folder, f"no {event}", np.bool_, n) for event in LONE
    }
    ids = _make_column(folder, "id", np.uint64, n)
    position = None
    count = np.zeros(movie.n_frames, np.int64)
    n_edges = 0
    end = 0
    for part in parts_of(movie):
        cells = part.nodes
        if position is None:
            ndim = cells.position.shape[1]
            position = _make_column(folder, "position", np.float64, n, ndim)
        start = end
        end = start + len(cells.frame)
        rows = slice(start, end)
        numbers["frame"][rows] = cells.frame
        numbers["label"][rows] = cells.label
        numbers["track"][rows] = part.track
        numbers[RECOVERED][rows] = cells.columns.get(RECOVERED, 0)
        numbers["segment"][rows] = -1
        position[rows] = cells.position
        ids[rows] = np.arange(start, end)
        for column in accompanied.values():
            column[rows] = True
        count += np.bincount(cells.frame, minlength=movie.n_frames)
        n_edges += int(N_LINKS[part.events.event].sum())
    nodes = NodeColumns(
        id=ids,
        position=np.zeros((0, 2)) if position is None else position,
        alone=alone,
        accompanied=accompanied,
        begin=np.append(0, np.cumsum(count)),
        **numbers,
    )
    return nodes, n_edges


def _make_edges(
    folder: Path, movie: TrackedMovie, nodes: NodeColumns, n: int
) -> EdgeColumns:
    """Make the columns of edges; the confidence of lone events goes to their nodes."""
    ends = _make_column(folder, "ends", np.uint64, n, 2, order="C")
    event = _make_column(folder, "event", np.int8, n)
    confidence = _make_column(folder, "confidence", np.float64, n)
    probability = _make_column(folder, "probability", np.float64, n)
    count = np.zeros(movie.n_frames, np.int64)
    stop = 0
    for part in parts_of(movie):
        source, target, row = _list_links(part, nodes)
        start = stop
        stop = start + len(row)
        ends[start:stop] = np.column_stack([source, target])
        event[start:stop] = part.events.event[row]
        confidence[start:stop] = part.confidence[row]
        probability[start:stop] = np.nan
        if part.probability is not None:
            probability[start:stop] = part.probability[row]
        count += np.bincount(part.events.frame[row], minlength=movie.n_frames)
    begin = np.append(0, np.cumsum(count))
    return EdgeColumns(ends, event, confidence, probability, begin)


def _list_links(
    part: LineagePart, nodes: NodeColumns
) -> tuple[Indices, Indices, Indices]:
    """(k,) each: nodes that events link, and rows of the events, by frame."""
    events = part.events
    sources = _find_nodes(nodes, events.frame, events.sources)
    targets = _find_nodes(nodes, events.frame + SPAN[events.event], events.targets)
    for kind, node in ((Event.APPEAR, targets[:, 0]), (Event.DISAPPEAR, sources[:, 0])):
        is_kind = events.event == kind
        nodes.alone[kind][node[is_kind]] = part.confidence[is_kind]
        nodes.accompanied[kind][node[is_kind]] = False
    # all four pairs of two sources and two targets
    source = np.repeat(sources, 2, axis=1).ravel()
    target = np.tile(targets, 2).ravel()
    link = np.flatnonzero((source >= 0) & (target >= 0))
    link = link[np.argsort(events.frame[link // 4], kind="stable")]
    return source[link], target[link], link // 4


def _find_nodes(
    nodes: NodeColumns, frame: NDArray[np.int64], labels: Labels
) -> Indices:
    """(m, 2) nodes of labels (m, 2) in frames (m,); -1 for no cell."""
    node = np.full(labels.shape, -1, dtype=np.intp)
    for t in np.unique(frame).tolist():
        rows = np.flatnonzero(frame == t)
        first, last = nodes.begin[t : t + 2]
        node[rows] = first + np.searchsorted(nodes.label[first:last], labels[rows])
    return np.where(labels == NONE, -1, node)


def _number_pieces(nodes: NodeColumns, edges: EdgeColumns) -> None:
    """Fill in segments and families; moves and gaps lead to nodes of the same piece."""
    n_pieces = 0
    tracks = [np.zeros(0, np.int64)]
    links = [np.zeros((2, 0), np.int64)]
    for t in range(len(nodes.begin) - 1):
        first, last = nodes.begin[t : t + 2]
        # a view; -1, or the piece of the cell that moved here
        piece = nodes.segment[first:last]
        new = np.flatnonzero(piece < 0)
        piece[new] = n_pieces + np.arange(len(new))
        n_pieces += len(new)
        tracks.append(nodes.track[first:last][new])
        leaving = slice(*edges.begin[t : t + 2])
        source, target = edges.ends[leaving].astype(np.int64).T
        is_move = np.isin(edges.event[leaving], CONTINUING)
        nodes.segment[target[is_move]] = piece[source[is_move] - first]
        branches = piece[source[~is_move] - first]
        links.append(np.stack([branches, target[~is_move]]))
    segment = number_pieces(np.concatenate(tracks))
    source, target = np.concatenate(links, axis=1)
    family = label_components(n_pieces, source, nodes.segment[target])
    for begin in range(0, len(nodes.segment), ROWS):
        rows = slice(begin, begin + ROWS)
        piece = np.array(nodes.segment[rows])
        nodes.segment[rows] = segment[piece]
        nodes.family[rows] = family[piece] + 1
