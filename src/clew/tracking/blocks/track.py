"""A whole movie in blocks, solved in threads or on a cluster and joined: to a lineage in memory, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from clew.errors import StoreError
from clew.learning.task import Array
from clew.parallel import Executor, ThreadExecutor
from clew.tracking.blocks.block import Block, BlockProblem
from clew.tracking.blocks.join import BlockIds, Part, Summary, join_blocks
from clew.tracking.blocks.plan import PAIRS, cut
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.lineage.gaps import Gaps, Joined
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.solve import Nodes, join_events
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.utils.progress import ProgressBar


def track_pairs(
    pairs: Pairs,
    w: Array,
    annotations: Annotations | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
    *,
    executor: Executor | None = None,
    per_block: int = PAIRS,
) -> Lineage:
    """The lineage of a whole movie, in memory; blocks are solved in `n_jobs` threads or by an executor."""
    return track_problems(
        Problems(pairs, w, annotations, per_block),
        executor or ThreadExecutor(n_jobs),
        verbose,
    )


def track_problems(
    work: Problems, executor: Executor, verbose: bool = False
) -> Lineage:
    """The lineage of a movie that is cut into blocks."""
    blocks = _solved(work, executor, BlockProblem.solve, verbose)
    return lineage_of(blocks, work.pairs.source.n_frames, work.calibration)


def lineage_of(
    blocks: Sequence[Block],
    n_frames: int,
    calibration: Calibration = GENERIC_CALIBRATION,
) -> Lineage:
    """All blocks of a movie as one lineage."""
    parts = [block.nodes(shared=block is blocks[-1]) for block in blocks]
    columns = {
        name: np.concatenate([part.columns[name] for part in parts])
        for name in parts[0].columns
    }
    frame, label, position = (
        np.concatenate([part[k] for part in parts]) for k in range(3)
    )
    nodes = Nodes(frame, label, position, columns)
    events = EventTable.join([block.events() for block in blocks])
    confidence = np.concatenate([block.lineage.confidence for block in blocks])
    lead = np.concatenate([block.lead for block in blocks])
    border = np.concatenate([block.border for block in blocks])
    # each gap once, and none that leads out of these frames
    gaps = Gaps.join(
        [
            block.gaps.within(block.first, n_frames - 1 - Event.GAP.span)
            for block in blocks
        ]
    )
    unit = max(block.unit for block in blocks)
    return join_events(
        n_frames,
        nodes,
        Joined(events, confidence, lead, border),
        gaps,
        unit,
        calibration,
    )


@dataclass(frozen=True)
class Problems:
    """The blocks that a movie is cut into."""

    pairs: Pairs
    w: Array
    annotations: Annotations | None = None
    per_block: int = PAIRS
    calibration: Calibration = GENERIC_CALIBRATION

    @cached_property
    def blocks(self) -> list[BlockProblem]:
        """In order."""
        ranges = cut(self.pairs.source.n_frames, self.per_block)
        return [
            BlockProblem.of(self.pairs, self.w, self.annotations, which)
            for which in ranges
        ]


def _solved(
    work: Problems,
    executor: Executor,
    solve: Callable[[BlockProblem], Any],
    verbose: bool,
) -> list[Any]:
    """What `solve` makes of each block, with a bar that tells the frame pairs done and the time left."""
    total = max(work.pairs.source.n_frames - 1, 0)
    with ProgressBar(
        f"tracking {work.pairs.source.name}", verbose, "frame pairs"
    ) as bar:

        def progress(done: int, _: int) -> None:
            bar(min(done * work.per_block, total), total)

        return list(executor.map(solve, work.blocks, progress))


@dataclass(frozen=True)
class SolveOnce:
    """Solves a block unless it was kept before, keeps it, and tells what the others must know of it."""

    checkpoints: Checkpoints

    def __call__(self, problem: BlockProblem) -> tuple[str, bool, Summary]:
        """Its name among the checkpoints, whether it was solved now, and its summary."""
        key = problem.key()
        kept = self.checkpoints.load_block(key)
        if kept is None:
            block = problem.solve()
            self.checkpoints.save_block(key, block.arrays())
        else:
            block = Block.from_arrays(kept)
        return key, kept is None, Summary.of(block)


@dataclass(frozen=True, eq=False)
class TrackedBlocks:
    """A tracked movie whose parts lie in files: nothing here is larger than the table of tracks and the borders."""

    n_frames: int
    checkpoints: Checkpoints
    keys: Sequence[str]
    """Of the blocks, in order."""
    summaries: Sequence[Summary]
    tracks: Tracks
    ids: Sequence[BlockIds]
    n_solved: int
    """Blocks that were solved in this run; the others were kept from an earlier one."""
    calibration: Calibration = GENERIC_CALIBRATION
    """For this movie."""

    @classmethod
    def of(
        cls,
        work: Problems,
        executor: Executor,
        checkpoints: Checkpoints,
        verbose: bool = False,
    ) -> Self:
        """Solve what is not solved yet, and join."""
        found = _solved(work, executor, SolveOnce(checkpoints), verbose)
        keys, new, summaries = ([each[k] for each in found] for k in range(3))
        tracks, ids, seen = join_blocks(summaries, executor)
        calibration = work.calibration.of_movie(seen)
        return cls(
            work.pairs.source.n_frames,
            checkpoints,
            keys,
            summaries,
            tracks,
            ids,
            sum(new),
            calibration,
        )

    @property
    def n_cells(self) -> int:
        """Detections of the whole movie."""
        shared = sum(int(summary.cells[-1]) for summary in self.summaries[:-1])
        return sum(int(summary.cells.sum()) for summary in self.summaries) - shared

    def __len__(self) -> int:
        return len(self.keys)

    def readers(self) -> Sequence[PartFile]:
        """The parts of the movie that the blocks are, to be read here or by workers."""
        last = len(self) - 1
        return [
            PartFile(
                self.checkpoints,
                key,
                ids,
                (summary.first, summary.first + len(summary.cells) - 1 - (k != last)),
                self.calibration,
            )
            for k, (key, ids, summary) in enumerate(
                zip(self.keys, self.ids, self.summaries, strict=True)
            )
        ]

    def lineage(self) -> Lineage:
        """All of it in memory."""
        blocks = [_recalled(self.checkpoints, key) for key in self.keys]
        return lineage_of(blocks, self.n_frames, self.calibration)

    def sample(self, cells: int) -> tuple[range, Lineage]:
        """Consecutive frames from the middle of the movie, of about so many cells, and what happened in them."""
        size = [int(summary.cells.sum()) for summary in self.summaries]
        first = last = len(size) // 2
        while (
            last - first + 1 < len(size)
            and sum(size[first : last + 1]) + max(size) <= cells
        ):
            first, last = (
                (first - 1, last)
                if last == len(size) - 1 or (first and first > len(size) - last)
                else (first, last + 1)
            )
        blocks = [
            _recalled(self.checkpoints, key) for key in self.keys[first : last + 1]
        ]
        begin, end = blocks[0].first, blocks[-1].first + blocks[-1].n_pairs
        moved = [
            replace(block, first=block.first - begin, gaps=block.gaps.later(-begin))
            for block in blocks
        ]
        return range(begin, end + 1), lineage_of(
            moved, end + 1 - begin, calibration=self.calibration
        )


@dataclass(frozen=True, eq=False)
class PartFile:
    """Where a part lies, and what makes it part of the whole."""

    checkpoints: Checkpoints
    key: str
    ids: BlockIds
    frames: tuple[int, int]
    """The first and the last frame whose cells it has."""
    calibration: Calibration = GENERIC_CALIBRATION

    def read(self) -> Part:
        """The part."""
        block = _recalled(self.checkpoints, self.key)
        return Part.of(
            block,
            self.ids,
            self.frames[1] == block.first + block.n_pairs,
            self.calibration,
        )


def _recalled(checkpoints: Checkpoints, key: str) -> Block:
    kept = checkpoints.load_block(key)
    if kept is None:
        raise StoreError(
            f"{checkpoints.folder}: block {key} of this run is gone or damaged; the same command solves it again"
        )
    return Block.from_arrays(kept)
