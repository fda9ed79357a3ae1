"""A tracked movie as columns of nodes and edges, for formats that are made of whole columns.

Columns are files that are mapped into memory and filled part by part, so that a movie of any length can be written: in
memory are a part, and a few numbers for each frame and each piece of a track. Nodes are in the order of frames and
labels, so that where a frame begins tells the node of a label; edges are in the order of their first frame.
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
from clew.tracking.blocks.join import Part
from clew.tracking.blocks.parts import TrackedMovie, parts_of
from clew.tracking.events import NONE, Event, Labels
from clew.tracking.io.segments import label_components, number_pieces

ROWS = 2**18
"""Rows of a column that are changed at a time."""
SPAN = np.array([event.span for event in Event])
LINKS = np.array([event.arity[0] * event.arity[1] for event in Event])
"""Edges of an event of each kind."""
NAMES = np.array([str(event) for event in Event])


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """(n,) each."""

    id: NDArray[np.uint64]
    """Their numbers."""
    frame: NDArray[np.int64]
    label: Labels
    position: NDArray[np.float64]
    """(n, ndim)"""
    track: Labels
    segment: NDArray[np.int64]
    """The unbranched piece of a track, as `segments` numbers them."""
    family: NDArray[np.int64]
    """All that hangs together, numbered from 1."""
    alone: dict[Event, NDArray[np.float64]]
    """The confidence of an appearance or disappearance; 0 where there was none."""
    accompanied: dict[Event, NDArray[np.bool_]]
    """Where there was none."""
    begin: NDArray[np.int64]
    """(n_frames + 1,) where the nodes of each frame begin."""


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """(m,) each."""

    ends: NDArray[np.uint64]
    """(m, 2) nodes"""
    event: NDArray[np.str_]
    """By name."""
    confidence: NDArray[np.float64]
    begin: NDArray[np.int64]
    """(n_frames + 1,) where the edges that leave each frame begin."""


@contextmanager
def graph_columns(
    folder: Path, movie: TrackedMovie
) -> Iterator[tuple[NodeColumns, EdgeColumns]]:
    """The columns of a movie as long as the block lasts; their files are in a hidden folder within `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".columns-") as hidden:
        nodes, n_edges = _nodes(Path(hidden), movie)
        edges = _edges(Path(hidden), movie, nodes, n_edges)
        _number_pieces(nodes, edges)
        yield nodes, edges


def _column(folder: Path, name: str, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
    """A column in a file, or several one after the other; one without rows cannot be mapped."""
    if not shape[0]:
        return np.zeros(shape, dtype)
    return np.memmap(
        folder / name, dtype, "w+", shape=shape, order="C" if name == "ends" else "F"
    )


def _nodes(folder: Path, movie: TrackedMovie) -> tuple[NodeColumns, int]:
    """The nodes, without what follows from edges, and how many edges there are."""
    n, n_edges, at = movie.n_cells, 0, 0
    numbers = {
        name: _column(folder, name, np.int64, n)
        for name in ("frame", "label", "track", "segment", "family")
    }
    lone = (Event.APPEAR, Event.DISAPPEAR)
    alone = {event: _column(folder, str(event), np.float64, n) for event in lone}
    accompanied = {event: _column(folder, f"no {event}", np.bool_, n) for event in lone}
    count, position, ids = (
        np.zeros(movie.n_frames, np.int64),
        None,
        _column(folder, "id", np.uint64, n),
    )
    for part in parts_of(movie):
        cells = part.nodes
        if position is None:
            position = _column(
                folder, "position", np.float64, n, cells.position.shape[1]
            )
        rows, at = slice(at, at + len(cells.frame)), at + len(cells.frame)
        for name, values in (
            ("frame", cells.frame),
            ("label", cells.label),
            ("track", part.track),
            ("segment", -1),
        ):
            numbers[name][rows] = values
        position[rows], ids[rows] = cells.position, np.arange(rows.start, rows.stop)
        for column in accompanied.values():
            column[rows] = True
        count += np.bincount(cells.frame, minlength=movie.n_frames)
        n_edges += int(LINKS[part.events.event].sum())
    place = np.zeros((0, 2)) if position is None else position
    begin = np.append(0, np.cumsum(count))
    return NodeColumns(
        ids,
        position=place,
        alone=alone,
        accompanied=accompanied,
        begin=begin,
        **numbers,
    ), n_edges


def _edges(
    folder: Path, movie: TrackedMovie, nodes: NodeColumns, n: int
) -> EdgeColumns:
    """The edges; confidences of what has none go to its node."""
    ends, event = (
        _column(folder, "ends", np.uint64, n, 2),
        _column(folder, "event", NAMES.dtype, n),
    )
    confidence, count, at = (
        _column(folder, "confidence", np.float64, n),
        np.zeros(movie.n_frames, np.int64),
        0,
    )
    for part in parts_of(movie):
        sources, targets, row = _links(part, nodes)
        rows, at = slice(at, at + len(row)), at + len(row)
        ends[rows] = np.column_stack([sources, targets])
        event[rows], confidence[rows] = (
            NAMES[part.events.event[row]],
            part.confidence[row],
        )
        count += np.bincount(part.events.frame[row], minlength=movie.n_frames)
    return EdgeColumns(ends, event, confidence, np.append(0, np.cumsum(count)))


def _links(part: Part, nodes: NodeColumns) -> tuple[Indices, Indices, Indices]:
    """(k,) each: the nodes that events link, and the row of the event; in the order of frames."""
    events = part.events
    sources = _find(nodes, events.frame, events.sources)
    targets = _find(nodes, events.frame + SPAN[events.event], events.targets)
    for kind, node in ((Event.APPEAR, targets[:, 0]), (Event.DISAPPEAR, sources[:, 0])):
        mine = events.event == kind
        nodes.alone[kind][node[mine]], nodes.accompanied[kind][node[mine]] = (
            part.confidence[mine],
            False,
        )
    source, target = np.repeat(sources, 2, axis=1).ravel(), np.tile(targets, 2).ravel()
    link = np.flatnonzero((source >= 0) & (target >= 0))
    link = link[np.argsort(events.frame[link // 4], kind="stable")]
    return source[link], target[link], link // 4


def _find(nodes: NodeColumns, frame: NDArray[np.int64], labels: Labels) -> Indices:
    """(m, 2) the nodes of labels in frames (m,); −1 for no cell."""
    found = np.full(labels.shape, -1, dtype=np.intp)
    for t in np.unique(frame).tolist():
        rows = np.flatnonzero(frame == t)
        first, last = nodes.begin[t : t + 2]
        found[rows] = first + np.searchsorted(nodes.label[first:last], labels[rows])
    return np.where(labels == NONE, -1, found)


def _number_pieces(nodes: NodeColumns, edges: EdgeColumns) -> None:
    """Segments and families, frame by frame: a node that no move leads to begins a piece of a track."""
    n, track, links = 0, [np.zeros(0, np.int64)], [np.zeros((2, 0), np.int64)]
    for t in range(len(nodes.begin) - 1):
        first, last = nodes.begin[t : t + 2]
        piece = nodes.segment[
            first:last
        ]  # at first, those of moves from the frame before, and −1
        new = np.flatnonzero(piece < 0)
        piece[new], n = n + np.arange(len(new)), n + len(new)
        track.append(nodes.track[first:last][new])
        leaving = slice(*edges.begin[t : t + 2])
        source, target = edges.ends[leaving].astype(np.int64).T
        moves = edges.event[leaving] == str(Event.MOVE)
        nodes.segment[target[moves]] = piece[source[moves] - first]
        links.append(np.stack([piece[source[~moves] - first], target[~moves]]))
    segment = number_pieces(np.concatenate(track))
    source, target = np.concatenate(links, axis=1)
    family = label_components(n, source, nodes.segment[target])
    for begin in range(0, len(nodes.segment), ROWS):
        rows = slice(begin, begin + ROWS)
        piece = np.array(nodes.segment[rows])
        nodes.segment[rows], nodes.family[rows] = segment[piece], family[piece] + 1
