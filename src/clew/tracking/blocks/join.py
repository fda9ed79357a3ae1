"""Blocks joined to one movie: track ids, and what tells splits from divisions, as if it had been solved as a whole.

Each block sends a `Summary`: its skeleton, and where the runs begin that its last frame ends. Skeletons are joined in a
tree. The ids that follow go back block by block: cells of a block's first frame have those of the block before, all
others those of the skeleton. Ids are in the order of the tracks' first cells, so that they do not depend on the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.parallel import Executor
from clew.tracking.blocks.block import Block
from clew.tracking.blocks.skeleton import ROW_BITS, Skeleton, keys_of
from clew.tracking.events import Event, EventTable, Labels
from clew.tracking.lineage.gaps import with_gaps
from clew.tracking.lineage.repair import torn_nodes
from clew.tracking.lineage.splits import has_mask_faults, kinds_by_counts
from clew.tracking.lineage.track_ids import resolve, runs
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.solve import Nodes
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)

FAN_IN = 8
"""Skeletons that are joined at a time: all but the last levels of the tree stay near the leaves."""


@dataclass(frozen=True, eq=False)
class Summary:
    """What the other blocks must know of one."""

    first: int
    """Its first frame."""
    cells: NDArray[np.int64]
    """(n_pairs + 1,) cells of each frame."""
    margins: MovieMargins
    """Of the events as the frame pairs have them; there a gap is none."""
    unit: float
    skeleton: Skeleton
    leaving: NDArray[np.int64]
    """(cells of the last frame,) the key of the first cell of the run that each ends."""

    @classmethod
    def of(cls, block: Block) -> Self:
        """That of a block."""
        inside = block.lineage
        last = np.searchsorted(inside.frame, block.n_pairs)
        return cls(
            block.first,
            np.bincount(inside.frame, minlength=inside.n_frames).astype(np.int64),
            MovieMargins.of(inside.events.event, inside.confidence, block.unit),
            block.unit,
            Skeleton.of(block),
            keys_of(block)[_heads(block)][last:],
        )


@dataclass(frozen=True, eq=False)
class BlockIds:
    """What a block learns from the others."""

    entering: Labels
    """(cells of the first frame,) their tracks."""
    key: NDArray[np.int64]
    """(h,) keys of the cells after the first frame that begin runs, ascending."""
    track: Labels
    """(h,) their tracks."""
    row: Indices
    """(c,) events of the block that are told apart by the past."""
    kind: NDArray[np.int8]
    """(c,) what they are."""
    confidence: Array
    """(c,)"""
    torn: Indices
    """(d,) events of the block that tear a mask apart for one frame, or put it together: that takes three frames."""

    def tracks_of(self, keys: NDArray[np.int64], first: int) -> Labels:
        """(n,) the tracks of cells that begin runs in the block, whose first frame is `first`."""
        if not len(keys):
            return np.zeros(0, np.int64)
        at_once = keys >> ROW_BITS == first
        row = np.where(at_once, keys & ((1 << ROW_BITS) - 1), 0)
        if not len(self.key):
            return self.entering[row]
        later = self.track[
            np.minimum(np.searchsorted(self.key, keys), len(self.key) - 1)
        ]
        return (
            np.where(at_once, self.entering[row], later)
            if len(self.entering)
            else later
        )


@dataclass(frozen=True, eq=False)
class Part:
    """A block as a part of the whole movie: frames, tracks, kinds and probabilities are final."""

    frames: tuple[int, int]
    """The first and the last frame whose cells it has."""
    nodes: Nodes
    """The cells of its frames, but for the last one of a block, which the next block has."""
    track: Labels
    """(n,)"""
    events: EventTable
    """(m,)"""
    confidence: Array
    """(m,)"""
    probability: Array | None
    """(m,) None where nobody calibrated the confidences."""

    @classmethod
    def of(
        cls,
        block: Block,
        ids: BlockIds,
        is_last: bool,
        calibration: Calibration = GENERIC_CALIBRATION,
    ) -> Self:
        """A block with what the others told it; the calibration is the movie's, see `Calibration.of_movie`."""
        nodes = block.nodes(shared=is_last)
        track = ids.tracks_of(keys_of(block)[_heads(block)], block.first)[
            : len(nodes.frame)
        ]
        kind, sure = block.lineage.events.event.copy(), block.lineage.confidence.copy()
        kind[ids.row], sure[ids.row] = ids.kind, ids.confidence
        context = block.border.copy()
        context[ids.torn] = 1.0
        events, sure, context = with_gaps(
            replace(block.events(), event=kind), sure, context, block.gaps
        )
        probability = calibration.probability(events.event, sure, block.unit, context)
        frames = (block.first, block.first + block.n_pairs - (not is_last))
        return cls(frames, nodes, track, events, sure, probability)


def join_blocks(
    summaries: Sequence[Summary], executor: Executor
) -> tuple[Tracks, list[BlockIds], MovieMargins]:
    """The table of tracks, for each block what it needs to be part of the whole, and what all events tell together.

    Summaries are in order.
    """
    whole = _reduced([summary.skeleton for summary in summaries], executor)
    kind, sure = whole.event, whole.confidence
    if has_mask_faults(kind):
        unit = max(summary.unit for summary in summaries)
        of_pairs = np.flatnonzero(kind != Event.GAP)  # which counts do not go through
        by_counts = kinds_by_counts(
            whole.event_frame[of_pairs],
            kind[of_pairs],
            whole.sources[of_pairs],
            whole.targets[of_pairs],
            sure[of_pairs],
            whole.lead[of_pairs],
            unit,
        )
        kind, sure = kind.copy(), sure.copy()
        kind[of_pairs], sure[of_pairs] = by_counts
    track, tracks = resolve(
        whole.frame,
        whole.position,
        whole.columns,
        whole.event_frame,
        kind,
        whole.sources,
        whole.targets,
    )
    changed = _by_block(whole, np.isfinite(whole.lead) & has_mask_faults(whole.event))
    is_torn = torn_nodes(whole.event, whole.sources, whole.targets).events
    torn = _by_block(whole, is_torn)
    ids: list[BlockIds] = []
    entering = np.zeros(0, np.int64)
    for summary in summaries:
        first, last = summary.first, summary.first + len(summary.cells)
        if first == 0:
            entering = track[: int(np.searchsorted(whole.key, 1 << ROW_BITS))]
        inside = slice(
            *np.searchsorted(whole.key, [first + 1 << ROW_BITS, last << ROW_BITS])
        )
        rows, pieces = (
            of[slice(*np.searchsorted(whole.origin[of, 0], [first, first + 1]))]
            for of in (changed, torn)
        )
        ids.append(
            BlockIds(
                entering,
                whole.key[inside],
                track[inside],
                whole.origin[rows, 1],
                kind[rows],
                sure[rows],
                whole.origin[pieces, 1],
            )
        )
        entering = ids[-1].tracks_of(summary.leaving, first)
    seen = MovieMargins.sum(summary.margins for summary in summaries)
    now, before = (
        np.bincount(kinds, minlength=len(Event))
        for kinds in (kind[~is_torn], whole.event)
    )
    return tracks, ids, replace(seen, kinds=seen.kinds + now - before)


def _by_block(whole: Skeleton, chosen: Mask) -> Indices:
    """Some events (m,) of a skeleton, in the order of the blocks that they are in."""
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(whole.origin[rows, 0], kind="stable")]


def _reduced(skeletons: Sequence[Skeleton], executor: Executor) -> Skeleton:
    """Neighbours joined again and again, until there is one."""
    while len(skeletons) > 1:
        groups = [skeletons[k : k + FAN_IN] for k in range(0, len(skeletons), FAN_IN)]
        skeletons = list(executor.map(Skeleton.join, groups))
    return skeletons[0]


def _heads(block: Block) -> NDArray[np.int64]:
    """(n,) for each cell of a block, the first of its run."""
    inside = block.lineage
    return runs(len(inside.frame), inside.events.event, inside.sources, inside.targets)
