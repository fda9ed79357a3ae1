"""Links between all detections of a movie, in 32-bit columns.

Detections are numbered by frame, then label. A move is one number, the successor of its
source; all other events are rows of a table. So a movie of 10⁷ detections fits into the
memory of one process while its frame pairs are solved in others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Mask
from clew.tracking.events import NONE, Event, EventTable

NodeIds = NDArray[np.int32]
NO_NODE = -1
"""Stands for no node where an event has fewer than two sources or targets."""


@dataclass(frozen=True, eq=False)
class NodeEvents:
    """Events between numbered detections, (m,) or (m, 2) each."""

    frame: NDArray[np.int32]
    kind: NDArray[np.int8]
    """Values of `Event`."""
    sources: NodeIds
    """Filled up with `NO_NODE`."""
    targets: NodeIds
    confidence: Array
    split_margin: Array
    """By how much an event scores more as a split than as a division; NaN for other
    kinds, and for annotated events."""
    context: Array
    """What tells beside the confidence, see `Calibration.probability`."""

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(getattr(self, item.name)[rows] for item in fields(self)))

    @classmethod
    def of_kind(
        cls,
        event: Event,
        frame: NDArray[np.int32],
        sources: NodeIds | None,
        targets: NodeIds | None,
        confidence: Array,
        context: Array | None = None,
    ) -> NodeEvents:
        """Return events of one kind with at most one source and target each."""
        n = len(frame)
        return cls(
            frame,
            np.full(n, event, dtype=np.int8),
            _pad(sources, n),
            _pad(targets, n),
            confidence,
            np.full(n, np.nan),
            np.zeros(n) if context is None else context,
        )

    @classmethod
    def join(cls, parts: Sequence[NodeEvents]) -> NodeEvents:
        """Concatenate parts and sort them by frame."""
        if not parts:
            nodes = np.zeros((0, 2), np.int32)
            none = np.zeros(0)
            kind = np.zeros(0, np.int8)
            return cls(np.zeros(0, np.int32), kind, nodes, nodes, none, none, none)
        columns = (
            np.concatenate([getattr(part, item.name) for part in parts])
            for item in fields(cls)
        )
        whole = cls(*columns)
        return whole[np.argsort(whole.frame, kind="stable")]

    def within(self, first: int, stop: int) -> Self:
        """Return the events from frames `first` up to `stop`; sorted by frame."""
        return self[slice(*np.searchsorted(self.frame, [first, stop]).tolist())]

    def table(self, label: NDArray[np.integer[Any]]) -> EventTable:
        """Return the events by the labels (n,) of all nodes."""
        padded = np.append(label, NONE).astype(np.int64)
        frame = self.frame.astype(np.int64)
        return EventTable(frame, self.kind, padded[self.sources], padded[self.targets])

    def shift(self, first: int) -> Self:
        """Return the same between nodes whose numbers are larger by `first`."""
        sources = _shift(self.sources, first)
        return replace(self, sources=sources, targets=_shift(self.targets, first))


def _pad(nodes: NodeIds | None, n: int) -> NodeIds:
    """One column of nodes, or none, as two columns."""
    table = np.full((n, 2), NO_NODE, dtype=np.int32)
    if nodes is not None:
        table[:, 0] = nodes
    return table


def _shift(nodes: NodeIds, first: int) -> NodeIds:
    """Nodes with numbers that are larger by `first`."""
    return np.where(nodes == NO_NODE, NO_NODE, nodes + first).astype(np.int32)


@dataclass(frozen=True, eq=False)
class MovieLinks:
    """Detections of a movie, or of some of its frames, and the events between them."""

    first_node: NDArray[np.int64]
    """(n_frames + 1,) where the nodes of each frame begin."""
    label: NDArray[np.integer[Any]]
    """(n,)"""
    position: Array
    """(n, ndim)"""
    columns: Mapping[str, NDArray[np.float32]]
    """(n,) measurements by which identities are matched."""
    successor: NodeIds
    """(n,) the node that each moves to; `NO_NODE` where it does not move."""
    move_confidence: NDArray[np.float32]
    """(n,) of the move from each node."""
    move_context: NDArray[np.float32]
    """(n,) likewise, see `NodeEvents.context`."""
    others: NodeEvents
    """All events but moves, sorted by frame."""
    weight_norm: float
    typical_volume: float
    limits: Array
    """(2, ndim) least coordinates at which the box of a cell ends, and largest ones at
    which it begins."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.first_node) - 1

    def __len__(self) -> int:
        """Return the number of detections."""
        return len(self.successor)

    def frame(self) -> NDArray[np.int32]:
        """Return the frame of each node, (n,)."""
        counts = np.diff(self.first_node)
        return np.repeat(np.arange(self.n_frames, dtype=np.int32), counts)

    def nodes_of(self, frame: NDArray[Any], label: NDArray[Any]) -> NodeIds:
        """Return the nodes with these labels in these frames, of any shape.

        `NO_NODE` for the label `NONE`, and where there is no such node.
        """
        nodes = np.full(label.shape, NO_NODE, dtype=np.int32)
        frames = np.broadcast_to(frame, label.shape)
        for t in np.unique(frames[label != NONE]).tolist():
            if not 0 <= t < self.n_frames:
                continue
            start, stop = self.first_node[t : t + 2]
            here = (frames == t) & (label != NONE)
            rank = np.searchsorted(self.label[start:stop], label[here])
            at = np.minimum(start + rank, len(self) - 1)
            exists = (rank < stop - start) & (self.label[at] == label[here])
            nodes[here] = np.where(exists, at, NO_NODE)
        return nodes

    def event_nodes(self, events: EventTable) -> tuple[NodeIds, NodeIds]:
        """Return the nodes of the sources and targets of events, (m, 2) each."""
        sources = self.nodes_of(events.frame[:, None], events.sources)
        return sources, self.nodes_of(events.end_frames()[:, None], events.targets)

    def relative_volume(self, nodes: NodeIds) -> Array:
        """Return the volumes of nodes, of any shape, in typical ones.

        NaN for `NO_NODE`, and where volumes are unknown.
        """
        volume = self.columns.get("volume")
        if volume is None or not len(volume):
            return np.full(nodes.shape, np.nan)
        relative = volume[nodes].astype(np.float64) / self.typical_volume
        return np.where(nodes == NO_NODE, np.nan, relative)

    def list_moves(self, first_frame: int = 0) -> NodeEvents:
        """Return the moves as events; frames count from `first_frame`."""
        source = np.flatnonzero(self.successor != NO_NODE).astype(np.int32)
        return NodeEvents.of_kind(
            Event.MOVE,
            first_frame + self.frame()[source],
            source,
            self.successor[source],
            self.move_confidence[source].astype(np.float64),
            self.move_context[source].astype(np.float64),
        )

    def shift(self, first: int) -> Self:
        """Return the same with numbers of nodes that are larger by `first`."""
        others = self.others.shift(first)
        return replace(self, successor=_shift(self.successor, first), others=others)

    def window(self, frames: range) -> Self:
        """Return some frames, whose nodes count from 0.

        Labels are also those of the next frames, to which events lead.
        """
        first_node = self.first_node[frames.start : frames.stop + 1]
        first, stop = first_node[[0, -1]].tolist()
        reached = self.first_node[min(frames.stop + Event.GAP.span, self.n_frames)]
        part = replace(
            self,
            first_node=first_node - first,
            label=self.label[first:reached],
            position=self.position[first:stop],
            columns={name: col[first:stop] for name, col in self.columns.items()},
            successor=self.successor[first:stop],
            move_confidence=self.move_confidence[first:stop],
            move_context=self.move_context[first:stop],
            others=self.others.within(frames.start, frames.stop),
        )
        return part.shift(-first)

    def with_others(self, others: NodeEvents) -> Self:
        """Return the same with other events."""
        return replace(self, others=others)


def find_heads(first_node: NDArray[np.int64], successor: NodeIds) -> NodeIds:
    """Return the first node of the run of moves that each node is part of, (n,)."""
    head = np.arange(len(successor), dtype=np.int32)
    for start, stop in pairwise(first_node):
        moves = start + np.flatnonzero(successor[start:stop] != NO_NODE)
        head[successor[moves]] = head[moves]
    return head


def is_one_of(kind: NDArray[np.int8], events: Sequence[Event]) -> Mask:
    """Return which kinds are among some events, (m,)."""
    return np.isin(kind, [int(event) for event in events])
