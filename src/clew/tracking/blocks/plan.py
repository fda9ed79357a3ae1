"""How a movie is cut into blocks of frame pairs, so that each fits into the memory of a worker.

A block of pairs `first … last` reads the frames `first … last + 1`; two neighbours share one frame. What is in memory
at a time is the pixels of two frames, the candidates of one pair with their features, and what was found in the block
so far. Only the last grows with the block, so that memory limits its length; the first two limit what a worker can do.
"""

from __future__ import annotations

import math
import re

from clew.errors import InputError
from clew.tracking.detections import Source
from clew.tracking.flow.displacement_vote import VOTE_SETTINGS
from clew.tracking.profiling.scales import sampled_frames

PAIRS = 16
"""Frame pairs of a block where nothing else limits it: the frame that two blocks share costs a sixteenth more reading,
and a movie of a few hundred frames still keeps a dozen workers busy."""
CELL = 200
"""Bytes of a detection in a block's result: label, place, measurements and its events, twice while it is written."""
PAIR = 8_000
"""Bytes of a detection while its frame pair is solved: flow, candidates, scores, and the programme of a tile. More than
benchmarks/large_frames.py prints for pairs of 20,000 to a million cells in 3D, 0.8 to 7.5 kB."""
VOTE = 38_000
"""Bytes of each cell that votes for the shift of its frame, in 3D; `FlowSettings.voters` do at most."""
BASE = 450 * 2**20
"""Bytes of a process that has imported everything, and what it remembers of earlier frame pairs: benchmarks/cluster.py
prints 420 MiB for workers that solve pairs of 1,000 cells."""
PIXELS = 6
"""Copies of a frame's label image and raw image while cells are measured: two frames of each, runs, and a mask."""

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def parse_memory(text: str | float) -> int:
    """Bytes from a text as 4GB, 512MiB or 2e9."""
    found = re.fullmatch(
        r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]i?)?b?\s*", str(text).lower()
    )
    try:
        number = float(found[1]) if found else math.nan
    except ValueError:
        number = math.nan
    if not found or not 0 < number < math.inf:
        raise InputError(
            f"memory per worker is {text!r}; expected bytes, as in 4GB or 512MiB"
        )
    return int(number * _UNITS[found[2] or ""])


def cut(n_frames: int, per_block: int = PAIRS) -> list[range]:
    """Frame pairs in blocks, in order; a movie of one frame is one block without a pair."""
    if per_block < 1:
        raise InputError(f"a block has {per_block} frame pairs; expected at least 1")
    pairs = max(n_frames - 1, 0)
    return [
        range(first, min(first + per_block, pairs))
        for first in range(0, max(pairs, 1), per_block)
    ]


def sizes(source: Source) -> tuple[int, int]:
    """How many cells the fullest of some frames has, and the bytes of a frame's pixels."""
    cells = max((len(pair.read()[0]) for pair in sampled_frames(source)), default=0)
    movie = source.movie
    if movie is None:
        return cells, 0
    pixel = movie.labels.dtype.itemsize + (
        0 if movie.images is None else movie.images.dtype.itemsize
    )
    return cells, math.prod(movie.shape) * pixel


def block_length(
    memory: int, cells: int, frame_bytes: int = 0, longest: int = PAIRS
) -> int:
    """Frame pairs of a block that fits into `memory` bytes, with so many cells in the fullest frame.

    `frame_bytes` is what a frame's pixels take, label image and raw image together.
    """
    needed = (
        BASE
        + PIXELS * frame_bytes
        + (PAIR + 2 * CELL) * cells
        + VOTE * min(cells, VOTE_SETTINGS.max_voters)
    )
    if needed > memory:
        raise InputError(
            f"a worker has {memory / 2**20:,.0f} MiB; expected at least {needed / 2**20:,.0f} MiB for a frame pair of "
            f"{cells:,} cells in frames of {frame_bytes / 2**20:,.0f} MiB"
        )
    return max(1, min(longest, 1 + (memory - needed) // (CELL * max(cells, 1))))
