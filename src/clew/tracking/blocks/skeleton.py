"""The part of a lineage that blocks are joined by: where runs of moves begin and end, and what happens there.

A run of moves is one link from its first cell to its last, whatever lies between. Track ids, and what tells a split
from a division, follow from this graph alone (`linking.merges`, `linking.counts`), and its size is that of the table of
tracks and not of the movie. Joining two blocks is joining two such graphs at the cells that they share, and drawing the
runs together that go on there: the result is of the same kind, so that a tree of joins gives that of the whole movie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices
from clew.tracking.blocks.block import ROW, Block
from clew.tracking.events import Event, Labels
from clew.tracking.lineage.gaps import Gaps
from clew.tracking.lineage.lineage import NO_NODE
from clew.tracking.lineage.track_ids import runs

ROW_BITS = 32
"""A cell's key is its frame, then its row in the frame: sorted as the nodes of a lineage are."""
KEPT = (Event.MOVE, Event.DIVIDE, Event.SPLIT, Event.MERGE)
"""Kinds that link cells; what appears or disappears begins or ends a run by itself."""


@dataclass(frozen=True, eq=False)
class Skeleton:
    """First and last cells of runs of moves as nodes (n,), and what links them as events (m,)."""

    key: NDArray[np.int64]
    """(n,) ascending."""
    position: Array
    """(n, ndim)"""
    columns: Mapping[str, NDArray[Any]]
    """(n,) each."""
    event: NDArray[np.int8]
    """(m,) values of `Event`."""
    sources: Indices
    """(m, 2) nodes, `NO_NODE` filled up."""
    targets: Indices
    """(m, 2) likewise."""
    confidence: Array
    """(m,)"""
    lead: Array
    """(m,) NaN for all but splits and divisions that either could be."""
    origin: NDArray[np.int64]
    """(m, 2) the first frame of the block that an event was found in, and its row there; of moves nobody asks."""

    @property
    def frame(self) -> NDArray[np.int64]:
        """(n,) of each node."""
        return self.key >> ROW_BITS

    @property
    def event_frame(self) -> NDArray[np.int64]:
        """(m,) of each event's sources."""
        return (
            self.frame[self.sources[:, 0]] if len(self.event) else np.zeros(0, np.int64)
        )

    @classmethod
    def of(cls, block: Block) -> Self:
        """That of a block."""
        inside, beyond = block.lineage, block.beyond
        rows = np.flatnonzero(np.isin(inside.events.event, KEPT))
        gaps = block.gaps.within(block.first, block.first + block.n_pairs)
        before, after = _ends_of(block, gaps)
        n = len(before)
        columns = {
            name: np.concatenate([column, beyond.columns.get(name, column[:0])])
            for name, column in inside.columns.items()
        }
        whole = cls(
            np.concatenate([keys_of(block), _keys_beyond(block)]),
            np.concatenate([inside.position, beyond.position]),
            columns,
            np.concatenate([inside.events.event[rows], gaps.events.event]),
            np.concatenate([inside.sources[rows].astype(np.intp), before]),
            np.concatenate([inside.targets[rows].astype(np.intp), after]),
            np.concatenate([inside.confidence[rows], gaps.confidence]),
            np.concatenate([block.lead[rows], np.full(n, np.nan)]),
            np.concatenate(
                [
                    np.column_stack([np.full(len(rows), block.first), rows]),
                    np.full((n, 2), -1),
                ]
            ),
        )
        return whole._contracted()

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Those of neighbouring blocks, in order, as one."""
        if len(parts) == 1:
            return parts[0]
        every = np.concatenate([part.key for part in parts])
        key, at = np.unique(every, return_index=True)
        names = set.intersection(*(set(part.columns) for part in parts))

        def nodes(side: str) -> Indices:
            found = []
            for part in parts:
                ends = getattr(part, side)
                place = np.searchsorted(key, part.key)
                found.append(
                    np.where(ends == NO_NODE, NO_NODE, place[ends])
                    if len(place)
                    else ends
                )
            return np.concatenate(found)

        def column(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate(list(values))

        whole = cls(
            key,
            column([part.position for part in parts])[at],
            {
                name: column([part.columns[name] for part in parts])[at]
                for name in sorted(names)
            },
            column([part.event for part in parts]),
            nodes("sources"),
            nodes("targets"),
            column([part.confidence for part in parts]),
            column([part.lead for part in parts]),
            column([part.origin for part in parts]),
        )
        return whole._contracted()

    def heads(self) -> NDArray[np.int64]:
        """(n,) for each node the first node of its run."""
        return runs(len(self.key), self.event, self.sources, self.targets)

    def _contracted(self) -> Self:
        """Without the cells within runs: each run is one move from its first to its last cell, or a cell alone."""
        n, head = len(self.key), self.heads()
        tail = np.zeros(n, dtype=np.intp)
        tail[head] = np.arange(
            n
        )  # the last assignment stays, and nodes are in order of time
        first = np.flatnonzero(head == np.arange(n))
        kept = np.zeros(n, dtype=bool)
        kept[first] = kept[tail[first]] = True
        place = np.cumsum(kept) - 1
        long = first[tail[first] != first]
        other = np.flatnonzero(self.event != Event.MOVE)
        none, no = np.full((len(long), 1), NO_NODE), np.full(len(long), np.nan)

        def ends(moves: Indices, nodes: Indices) -> Indices:
            again = np.where(nodes == NO_NODE, NO_NODE, place[nodes]) if n else nodes
            return np.concatenate([np.hstack([place[moves][:, None], none]), again])

        return type(self)(
            self.key[kept],
            self.position[kept],
            {name: column[kept] for name, column in self.columns.items()},
            np.concatenate(
                [np.full(len(long), Event.MOVE, dtype=np.int8), self.event[other]]
            ),
            ends(long, self.sources[other]),
            ends(tail[long], self.targets[other]),
            np.concatenate([no, self.confidence[other]]),
            np.concatenate([no, self.lead[other]]),
            np.concatenate([np.full((len(long), 2), -1), self.origin[other]]),
        )


def _keys_beyond(block: Block) -> NDArray[np.int64]:
    """(k,) the keys of the cells after the block's last frame that gaps lead to, ascending."""
    beyond = block.beyond
    row = beyond.columns.get(ROW, np.zeros(0)).astype(np.int64)
    return np.asarray((beyond.frame << ROW_BITS) + row, dtype=np.int64)


def _ends_of(block: Block, gaps: Gaps) -> tuple[Indices, Indices]:
    """(g, 2) each: the nodes that the block's gaps lead from and to, those beyond its last frame after all others."""
    inside, beyond = block.lineage, block.beyond
    frame = np.concatenate([inside.frame + block.first, beyond.frame])
    label = np.concatenate([inside.label, beyond.label])

    def nodes(frames: NDArray[np.int64], labels: Labels) -> Indices:
        found = np.empty(len(frames), dtype=np.intp)
        for t in np.unique(frames):  # cells are in order of frames, then labels
            here, (begin, end) = frames == t, np.searchsorted(frame, [t, t + 1])
            found[here] = begin + np.searchsorted(label[begin:end], labels[here])
        return np.column_stack([found, np.full(len(found), NO_NODE, dtype=np.intp)])

    return nodes(gaps.events.frame, gaps.events.sources[:, 0]), nodes(
        gaps.events.end_frames(), gaps.events.targets[:, 0]
    )


def keys_of(block: Block) -> NDArray[np.int64]:
    """(n,) the key of each cell of a block."""
    frame = block.lineage.frame
    begin = np.searchsorted(frame, np.arange(block.lineage.n_frames))
    row = np.arange(len(frame)) - begin[frame]
    return (frame + block.first << ROW_BITS) + row
