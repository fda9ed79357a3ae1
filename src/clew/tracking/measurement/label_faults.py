"""Label images in which a label is no cell: wrapped numbers, a labelled background.

A program that saves label images with too few bits numbers cell 256 as 0 and cell 257
as 1. Nothing in a single pixel shows that; a label in two distant places does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.events import Labels
from clew.tracking.frames import Frames
from clew.tracking.measurement.regions import LabelImage, Runs

N_SAMPLED_FRAMES = 8
LARGEST_LABELS = (2**8 - 1, 2**16 - 1)
"""Largest labels of the unsigned types in which label images are usually saved."""
NEAR = 5
"""How far below the largest label of a type the labels of a wrapped movie may end."""
MIN_DISTANT = 3
"""Labels in distant places that show, with labels up to a type's largest, a wrap."""
MIN_SHARE = 0.1
"""Share of a label's pixels on either side of a gap; specks have less."""
MIN_BORDER_SHARE = 0.5
"""Share of the border of a frame that a labelled background covers."""
MAX_NAMED = 5
"""Frames and labels that a message names."""


@dataclass(frozen=True)
class FrameFaults:
    """What is odd about the labels of one frame.

    Attributes
    ----------
    frame : int
    n_labels : int
    largest : int
        The largest label; 0 if there is none.
    distant : list of int
        Labels that are in two distant places.
    background : int
        The label of the background, if it is not 0.
    """

    frame: int
    n_labels: int
    largest: int
    distant: list[int]
    background: int

    @classmethod
    def of(cls, frame: int, labels: LabelImage) -> FrameFaults:
        """Look at one label image."""
        if not labels.size:
            return cls(frame, 0, 0, [], 0)
        runs = Runs.from_labels(labels)
        label, row = np.unique(runs.label, return_inverse=True)
        counts = np.bincount(row, weights=runs.length, minlength=len(label))
        pixels = counts.astype(float, copy=False)
        background = _find_background(labels, label, pixels)
        distant = label[_find_distant(runs, row, pixels)]
        return cls(
            frame,
            len(label),
            int(label[-1]) if len(label) else 0,
            [number for number in distant.tolist() if number != background],
            background,
        )


@dataclass(frozen=True)
class LabelFaults:
    """What is odd about the labels of a movie.

    Attributes
    ----------
    messages : list of str
        Each names frames and a remedy.
    is_unreliable : bool
        Whether cells are missing or are none, so that no number of wrong events can be
        estimated.
    """

    messages: list[str]
    is_unreliable: bool


NO_FAULTS = LabelFaults([], False)


def find_label_faults(labels: Frames) -> LabelFaults:
    """Look for labels that are no cells, in at most `N_SAMPLED_FRAMES` frames.

    Parameters
    ----------
    labels : Frames of integers

    Returns
    -------
    LabelFaults
    """
    n_frames = len(labels)
    places = np.linspace(0, n_frames - 1, min(N_SAMPLED_FRAMES, n_frames)).round()
    frames = [FrameFaults.of(t, labels[t]) for t in places.astype(int).tolist()]
    fatal = [*_describe_wrap(frames), *_describe_background(frames)]
    messages = fatal or [*_describe_distant(frames)]
    return LabelFaults(messages, bool(fatal))


def _find_distant(runs: Runs, row: Indices, pixels: Array) -> Indices:
    """Find the cells with a gap wider than a ball of their size along some axis."""
    ndim = len(runs.start)
    ball = (pixels * (4 / np.pi if ndim == 2 else 6 / np.pi)) ** (1 / ndim)
    is_distant = np.zeros(len(pixels), dtype=bool)
    before_cell = np.cumsum(pixels) - pixels
    for axis, start in enumerate(runs.start):
        length = runs.length if axis == ndim - 1 else np.ones_like(runs.length)
        order = np.lexsort((start, row))
        cell = row[order]
        # one cell after the other on a line, so that no cell reaches into the next
        shift = cell * (int((start + length).max(initial=0)) + 1)
        begin = start[order] + shift
        reach = np.maximum.accumulate(begin + length[order])
        gap = np.zeros(len(begin))
        gap[1:] = np.where(cell[1:] == cell[:-1], begin[1:] - reach[:-1], 0)
        run_pixels = runs.length[order]
        share = (np.cumsum(run_pixels) - run_pixels - before_cell[cell]) / pixels[cell]
        is_split = (gap > ball[cell]) & (share >= MIN_SHARE) & (share <= 1 - MIN_SHARE)
        is_distant[cell[is_split]] = True
    return np.flatnonzero(is_distant)


def _find_background(labels: LabelImage, label: Labels, pixels: Array) -> int:
    """Return the label that surrounds a frame as a background does; 0 if none does."""
    sides = [
        labels[..., 0, :],
        labels[..., -1, :],
        labels[..., :, 0],
        labels[..., :, -1],
    ]
    if not len(label) or min(labels.shape[-2:]) < 3:
        return 0
    largest = label[np.argmax(pixels)]
    shares = [np.mean(side == largest) for side in sides]
    is_around = min(shares) > 0 and np.mean(shares) > MIN_BORDER_SHARE
    return int(largest) if is_around else 0


def _describe_wrap(frames: Sequence[FrameFaults]) -> Iterable[str]:
    """Say that labels wrapped at 8 or 16 bits."""
    largest = max(frame.largest for frame in frames)
    for limit in LARGEST_LABELS:
        if not limit - NEAR <= largest <= limit:
            continue
        bits = limit.bit_length()
        full = [frame for frame in frames if frame.n_labels >= limit]
        split = [frame for frame in frames if frame.distant]
        n_split = sum(len(frame.distant) for frame in split)
        if n_split >= MIN_DISTANT or any(limit in frame.distant for frame in split):
            yield (
                f"labels up to {largest} are in distant places at once "
                f"({_name_frames(split)}; {_name_labels(split)}): the labels wrapped "
                f"at {bits} bits, and cells are missing or joined; save the label "
                f"images again with more bits, as uint{2 * bits}"
            )
        elif full:
            yield (
                f"every label from 1 to {limit} is used ({_name_frames(full)}), as many "
                f"as {bits} bits can number: cells beyond may be missing; save the "
                f"label images again with more bits, as uint{2 * bits}"
            )


def _describe_background(frames: Sequence[FrameFaults]) -> Iterable[str]:
    """Say that the background has a label."""
    around = [frame for frame in frames if frame.background]
    if around:
        label = around[0].background
        yield (
            f"label {label} surrounds everything ({_name_frames(around)}), as a "
            f"background does, and is tracked as a cell; set its pixels to 0 "
            f"(labels[labels == {label}] = 0)"
        )


def _describe_distant(frames: Sequence[FrameFaults]) -> Iterable[str]:
    """Say that a label is in distant places."""
    split = [frame for frame in frames if frame.distant]
    if split:
        yield (
            f"one label is in distant places at once ({_name_frames(split)}; "
            f"{_name_labels(split)}) and is tracked as one cell; give each cell its "
            "own label, for instance by skimage.measure.label"
        )


def _name_frames(frames: Sequence[FrameFaults]) -> str:
    """Name the first of some frames."""
    numbers = [frame.frame for frame in frames]
    return _name_numbers("frame", numbers)


def _name_labels(frames: Sequence[FrameFaults]) -> str:
    """Name the labels in distant places of the first of some frames."""
    return _name_numbers("label", frames[0].distant) + f" in frame {frames[0].frame}"


def _name_numbers(what: str, numbers: Sequence[int]) -> str:
    """Name a few numbers, and say how many more there are."""
    text = ", ".join(map(str, numbers[:MAX_NAMED]))
    if len(numbers) > MAX_NAMED:
        text += f" and {len(numbers) - MAX_NAMED} more"
    return f"{what} {text}" if len(numbers) == 1 else f"{what}s {text}"
