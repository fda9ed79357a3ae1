"""Solve a movie in blocks of frame pairs, in threads or on a cluster.

Each block is solved by itself from two frames at a time. Solved blocks may be kept in
files, so that an interrupted run continues. `clew.tracking.lineage.build` joins them.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, StoreError
from clew.learning.task import Array
from clew.parallel import Executor, ThreadExecutor
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import Source, WindowedSource
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.displacement_vote import VOTE_SETTINGS
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.lineage.build import JoinedMovie, SolvedBlock, join_movie
from clew.tracking.lineage.fill import GapFiller
from clew.tracking.lineage.lineage import Lineage, LineagePart, RecoveredCells
from clew.tracking.lineage.links import MovieLinks, NodeEvents
from clew.tracking.scales import sample_frames
from clew.tracking.solve import solve_pairs
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.utils.progress import ProgressBar

FORMAT_VERSION = 10
"""Of a block's file and of how it is solved; other versions are solved again."""
PAIRS_PER_BLOCK = 16
"""Enough that reading the shared frame twice costs little, and few enough that a movie
of some hundred frames keeps a dozen workers busy."""

# Memory in bytes, measured by benchmarks/large_frames.py and benchmarks/cluster.py.
BYTES_PER_CELL = 200
"""Of a detection in a solved block, twice while it is written."""
BYTES_PER_CELL_OF_PAIR = 8_000
"""Of a detection while its frame pair is solved."""
BYTES_PER_VOTER = 38_000
"""Of each cell that votes for the shift of its frame, in 3D."""
BYTES_OF_PROCESS = 450 * 2**20
"""Of a process that has imported everything."""
IMAGE_COPIES = 6
"""Copies of a frame's pixels while cells are measured."""

LINK_ARRAYS = (
    "first_node",
    "label",
    "position",
    "successor",
    "move_confidence",
    "move_context",
    "limits",
)
"""Arrays of a stored block; those of its columns and events have prefixes."""
EVENT_ARRAYS = tuple(item.name for item in fields(NodeEvents))
COLUMN = "column."
OTHER = "other."

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_memory(text: str | float) -> int:
    """Return bytes from a text such as 4GB, 512MiB or 2e9."""
    pattern = r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]i?)?b?\s*"
    match = re.fullmatch(pattern, str(text).lower())
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if not match or not 0 < number < math.inf:
        raise InputError(
            f"memory per worker is {text!r}; expected bytes, as in 4GB or 512MiB"
        )
    return int(number * _UNITS[match[2] or ""])


def split_pairs(n_frames: int, pairs_per_block: int = PAIRS_PER_BLOCK) -> list[range]:
    """Return the frame pairs of each block; a movie of one frame has one empty block."""
    if pairs_per_block < 1:
        raise InputError(
            f"a block has {pairs_per_block} frame pairs; expected at least 1"
        )
    n_pairs = max(n_frames - 1, 0)
    return [
        range(first, min(first + pairs_per_block, n_pairs))
        for first in range(0, max(n_pairs, 1), pairs_per_block)
    ]


def frame_size(source: Source) -> tuple[int, int]:
    """Return the cells of the fullest sampled frame, and the bytes of its pixels."""
    samples = sample_frames(source)
    n_cells = max((len(sample.read()[0]) for sample in samples), default=0)
    movie = source.movie
    if movie is None:
        return n_cells, 0
    bytes_per_pixel = movie.labels.dtype.itemsize
    if movie.images is not None:
        bytes_per_pixel += movie.images.dtype.itemsize
    return n_cells, math.prod(movie.shape) * bytes_per_pixel


def block_length(
    memory: int,
    n_cells: int,
    frame_bytes: int = 0,
    longest: int = PAIRS_PER_BLOCK,
) -> int:
    """Return the number of frame pairs of a block that fits into memory.

    Parameters
    ----------
    memory : int
        Bytes that a worker has.
    n_cells : int
        Of the fullest frame.
    frame_bytes : int
        Pixels of a frame, label image and raw image together.
    longest : int
        Most frame pairs of a block.

    Returns
    -------
    int
    """
    needed = (
        BYTES_OF_PROCESS
        + IMAGE_COPIES * frame_bytes
        + (BYTES_PER_CELL_OF_PAIR + 2 * BYTES_PER_CELL) * n_cells
        + BYTES_PER_VOTER * min(n_cells, VOTE_SETTINGS.max_voters)
    )
    if needed > memory:
        raise InputError(
            f"a worker has {memory / 2**20:,.0f} MiB; expected at least "
            f"{needed / 2**20:,.0f} MiB for a frame pair of {n_cells:,} cells in frames "
            f"of {frame_bytes / 2**20:,.0f} MiB"
        )
    further = (memory - needed) // (BYTES_PER_CELL * max(n_cells, 1))
    return max(1, min(longest, 1 + further))


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """Frame pairs to solve, with all that their solution depends on."""

    builder: FramePairBuilder
    """Of the frames that these pairs need."""
    w: Array
    annotations: Annotations | None
    """Of these pairs."""
    pairs: range
    """By their first frames."""
    is_last: bool
    """Whether the last frame of the last pair belongs to this block."""

    @property
    def frames(self) -> range:
        """The frames whose cells the solved block has."""
        return range(self.pairs.start, self.pairs.stop + self.is_last)

    def solve(self) -> SolvedBlock:
        """Solve one frame pair after the other."""
        solutions = solve_pairs(self.builder, self.w, self.pairs, self.annotations)
        return SolvedBlock.of(self.builder.source, self.frames, solutions)

    def key(self) -> str:
        """Return a digest of pixels, settings, weights and annotations."""
        source = self.builder.source
        profile = self.builder.profile
        settings = (
            FORMAT_VERSION,
            self.pairs,
            self.is_last,
            sorted(profile.groups),
            profile.motion,
            profile.scales,
            profile.reach,
            profile.neighbours,
            sorted(profile.events),
            b"" if self.annotations is None else self.annotations.content_key(),
        )
        digest = hashlib.blake2b(repr(settings).encode(), digest_size=20)
        for weights in (self.w, self.builder.weights):
            if weights is not None:
                digest.update(np.ascontiguousarray(weights, dtype="<f8").tobytes())
        first = self.builder.frames_of_pair(self.pairs.start).start
        for frame in range(first, self.pairs.stop + 1):
            # A source without a digest is never taken for another.
            if isinstance(source, WindowedSource):
                digest.update(source.content(frame))
            else:
                digest.update(secrets.token_bytes(8))
        return digest.hexdigest()


@dataclass(frozen=True)
class MovieProblem:
    """A movie to track, and how it is cut into blocks."""

    builder: FramePairBuilder
    w: Array
    annotations: Annotations | None = None
    pairs_per_block: int = PAIRS_PER_BLOCK
    calibration: Calibration = GENERIC_CALIBRATION
    max_gap: int | None = 1
    """See `join_movie`."""
    fills_gaps: bool = False

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.builder.source.n_frames

    def join(self, blocks: list[SolvedBlock], executor: Executor) -> JoinedMovie:
        """Join the solved blocks; the list is emptied to free its memory."""
        builder = self.builder
        fill = None
        if self.fills_gaps:
            fill = GapFiller(builder.source.movie, executor.map)
        max_gap = self.max_gap if Event.GAP in builder.profile.events else 0
        return join_movie(blocks, self.annotations, self.calibration, max_gap, fill)

    def blocks(self) -> list[BlockProblem]:
        """Return the blocks, in order of time."""
        ranges = split_pairs(self.n_frames, self.pairs_per_block)
        return [self._block(pairs, pairs is ranges[-1]) for pairs in ranges]

    def _block(self, pairs: range, is_last: bool) -> BlockProblem:
        """The block of some pairs."""
        annotations = self.annotations
        if annotations is not None:
            # A gap that begins before the first pair has an end in it.
            frame = annotations.events.frame
            annotations = annotations[(frame >= pairs.start - 1) & (frame < pairs.stop)]
        builder = self.builder.window(pairs.start, pairs.stop)
        return BlockProblem(builder, self.w, annotations, pairs, is_last)


def solve_movie(
    problem: MovieProblem, executor: Executor | None = None, verbose: bool = False
) -> Lineage:
    """Track a movie in memory."""
    executor = executor or ThreadExecutor(None)
    blocks = _map_blocks(problem, executor, BlockProblem.solve, verbose)
    return problem.join(blocks, executor).lineage()


def _map_blocks(
    problem: MovieProblem, executor: Executor, solve: Any, verbose: bool
) -> list[Any]:
    """Apply a function to each block, with a progress bar."""
    total = max(problem.n_frames - 1, 0)
    name = f"tracking {problem.builder.source.name}"
    with ProgressBar(name, verbose, "frame pairs") as bar:

        def progress(done: int, _: int) -> None:
            bar(min(done * problem.pairs_per_block, total), total)

        return list(executor.map(solve, problem.blocks(), progress))


@dataclass(frozen=True)
class SolveOnce:
    """Solves a block unless a checkpoint has it."""

    checkpoints: Checkpoints

    def __call__(self, problem: BlockProblem) -> tuple[SolvedBlock, bool]:
        """Return the block, and whether it was solved now."""
        key = problem.key()
        arrays = self.checkpoints.load_block(key)
        if arrays is not None:
            return read_block(arrays), False
        block = problem.solve()
        self.checkpoints.save_block(key, block_arrays(block))
        return block, True


@dataclass(frozen=True, eq=False)
class StoredLineage(JoinedMovie):
    """A tracked movie whose blocks are in files."""

    checkpoints: Checkpoints = field(kw_only=True)
    n_solved: int = field(kw_only=True)
    """Blocks that were solved in this run; the others came from checkpoints."""

    @classmethod
    def of(
        cls,
        problem: MovieProblem,
        executor: Executor,
        checkpoints: Checkpoints,
        verbose: bool = False,
    ) -> Self:
        """Solve the blocks without a checkpoint, and join all."""
        results = _map_blocks(problem, executor, SolveOnce(checkpoints), verbose)
        n_solved = sum(is_new for _, is_new in results)
        blocks = [block for block, _ in results]
        results.clear()
        movie = problem.join(blocks, executor)
        return cls(**vars(movie), checkpoints=checkpoints, n_solved=n_solved)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.block_frames)

    def sample(self, n_cells: int) -> tuple[range, Lineage]:
        """Return about so many cells of consecutive frames in the middle of the movie."""
        first_node = self.links.first_node
        sizes = [
            int(first_node[frames.stop] - first_node[frames.start])
            for frames in self.block_frames
        ]
        first = len(sizes) // 2
        stop = first + 1
        while stop - first < len(sizes):
            if sum(sizes[first:stop]) + max(sizes) > n_cells:
                break
            if stop < len(sizes) and len(sizes) - stop >= first:
                stop += 1
            else:
                first -= 1
        parts = [reader.read() for reader in self.readers()[first:stop]]
        frames = range(parts[0].frames[0], parts[-1].frames[1] + 1)
        return frames, cut_lineage(parts, frames, self.recovered)


def cut_lineage(
    parts: Sequence[LineagePart],
    frames: range,
    recovered: RecoveredCells | None = None,
) -> Lineage:
    """Return the lineage of some frames alone, counted from 0.

    A gap that leads out of the frames ends in them, and one that leads into them begins
    in them.
    """
    whole = join_tables(parts)
    events, confidence, probability = whole
    inside = events.frame < frames.stop - 1
    events = events[inside]
    kind = events.event.copy()
    targets = events.targets.copy()
    leaves = events.end_frames() >= frames.stop
    kind[leaves] = Event.DISAPPEAR
    targets[leaves] = 0
    columns = {
        name: np.concatenate([part.nodes.columns[name] for part in parts])
        for name in parts[0].nodes.columns
    }
    frame = np.concatenate([part.nodes.frame for part in parts])
    label = np.concatenate([part.nodes.label for part in parts])
    begins_inside = (frame == frames.start + 1) & ~np.isin(
        label, events.targets[events.end_frames() == frames.start + 1]
    )
    n_new = int(begins_inside.sum())
    new = np.zeros((n_new, 2), dtype=np.int64)
    new[:, 0] = label[begins_inside]
    table = EventTable.join(
        [
            EventTable(events.frame, kind, events.sources, targets),
            EventTable(
                np.full(n_new, frames.start, dtype=np.int64),
                np.full(n_new, Event.APPEAR, dtype=np.int8),
                np.zeros((n_new, 2), dtype=np.int64),
                new,
            ),
        ]
    )
    return Lineage(
        len(frames),
        frame - frames.start,
        label,
        np.concatenate([part.nodes.position for part in parts]),
        table.shift_frames(-frames.start),
        np.append(confidence[inside], np.full(n_new, np.inf)),
        columns,
        None if probability is None else np.append(probability[inside], np.ones(n_new)),
        None if recovered is None else recovered.within(frames),
    )


def join_tables(
    parts: Sequence[LineagePart],
) -> tuple[EventTable, Array, Array | None]:
    """Return the events of several parts with confidences and probabilities."""
    probabilities = [part.probability for part in parts]
    known = [values for values in probabilities if values is not None]
    return (
        EventTable.join([part.events for part in parts]),
        np.concatenate([part.confidence for part in parts]),
        np.concatenate(known) if len(known) == len(parts) else None,
    )


def block_arrays(block: SolvedBlock) -> dict[str, NDArray[Any]]:
    """Return a block as plain arrays, to be stored."""
    frames = block.frames
    links = block.links
    return {
        "integers": np.array([frames.start, frames.stop, block.n_added]),
        "numbers": np.array([links.weight_norm, links.typical_volume]),
        **{name: getattr(links, name) for name in LINK_ARRAYS},
        **{COLUMN + name: column for name, column in links.columns.items()},
        **{OTHER + name: getattr(links.others, name) for name in EVENT_ARRAYS},
    }


def read_block(arrays: Mapping[str, NDArray[Any]]) -> SolvedBlock:
    """Return the block that `block_arrays` stored."""
    try:
        start, stop, n_added = arrays["integers"].tolist()
        weight_norm, typical_volume = arrays["numbers"].tolist()
        columns = {
            name.removeprefix(COLUMN): column
            for name, column in arrays.items()
            if name.startswith(COLUMN)
        }
        links = MovieLinks(
            columns=columns,
            others=NodeEvents(*(arrays[OTHER + name] for name in EVENT_ARRAYS)),
            weight_norm=weight_norm,
            typical_volume=typical_volume,
            **{name: arrays[name] for name in LINK_ARRAYS},
        )
        return SolvedBlock(range(start, stop), links, n_added)
    except (KeyError, ValueError, IndexError) as error:
        raise StoreError(f"not a block of this version of clew ({error})") from error
