"""Judge detections without a truth: what a person would notice at a glance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array

FEW_CELLS = 2.0
"""Fewer cells a frame are hardly any."""
FOREGROUND = 0.5
"""Largest share of a frame that the built-in method covers with cells plausibly."""
COUNT_JUMP = 0.25
"""Relative change in the number of cells from one frame to the next that is implausible.

Cells of a movie at a usual frame rate appear and vanish by a few percent a frame.
"""
JUMPING_FRAMES = 0.05
"""Share of frames with such a change that is tolerated: one may be out of focus."""
SIZE_SPREAD = 1.0
"""Standard deviation of the logarithm of sizes that is implausible: a factor of e.

Cells double in size over a cycle, which is about .2; debris beside cells gives more.
"""


@dataclass(frozen=True)
class FrameSummary:
    """What was found in one frame."""

    n_cells: int
    foreground: float
    """Share of the pixels that belong to a cell."""
    sizes: NDArray[np.int64]
    """(n_cells,) pixels of each cell"""


def summarize_frame(labels: NDArray[np.integer]) -> FrameSummary:
    """Count the cells of a label image and their pixels."""
    sizes = np.bincount(labels.ravel())[1:]
    sizes = sizes[sizes > 0]
    return FrameSummary(len(sizes), float(sizes.sum() / labels.size), sizes)


def find_doubts(frames: list[FrameSummary]) -> list[str]:
    """Describe what is implausible in the detections of a movie.

    Parameters
    ----------
    frames : list of FrameSummary

    Returns
    -------
    doubts : list of str
        One clause each; empty if nothing is.
    """
    counts = np.array([frame.n_cells for frame in frames], float)
    doubts = []
    if counts.mean() < FEW_CELLS:
        doubts.append(
            f"hardly anything was found: {int(counts.sum())} cells in "
            f"{len(counts)} frames"
        )
    else:
        doubts += _find_count_jumps(counts)
    covered = float(np.median([frame.foreground for frame in frames]))
    if covered > FOREGROUND:
        doubts.append(f"{covered:.0%} of the picture is foreground")
    sizes = np.concatenate([frame.sizes for frame in frames])
    if len(sizes) and counts.mean() >= FEW_CELLS:
        spread = float(np.log(sizes).std())
        if spread > SIZE_SPREAD:
            low, high = np.quantile(sizes, [0.1, 0.9])
            doubts.append(
                f"sizes vary wildly: a tenth of the cells has less than {low:,.0f} "
                f"pixels, a tenth more than {high:,.0f}"
            )
    return doubts


def _find_count_jumps(counts: Array) -> list[str]:
    """Describe numbers of cells that change more than cells do."""
    if len(counts) < 3:
        return []
    change = np.abs(np.diff(counts))
    # a count of n varies by √n for the few cells at the border and in doubt
    allowed = COUNT_JUMP * counts[:-1] + np.sqrt(counts[:-1]) + 1
    if (change > allowed).mean() <= JUMPING_FRAMES:
        return []
    worst = int(change.argmax())
    return [
        f"the number of cells jumps from frame to frame: {counts[worst]:.0f} in frame "
        f"{worst}, {counts[worst + 1]:.0f} in frame {worst + 1}"
    ]
