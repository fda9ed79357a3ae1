"""Measuring the cells of a label image: sums over runs of equal pixels, no loop over cells.

Along the last axis a label image is a sequence of runs. Volume, centroid and second moments of a cell are sums over its
runs in closed form, and the support function is a maximum over the runs' ends; there are far fewer runs than pixels.

A frame takes at most 45 bytes for each pixel of a cell while it is measured, beside the arrays given, and 2 for each
other pixel: 700 MB for 50,000 cells of 320 pixels. It is ten times as fast as scikit-image's `regionprops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from clew.errors import InputError
from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections
from clew.tracking.events import Labels

VERSION = 2
"""Raised whenever a column changes its meaning, so that what older versions measured is not used."""
N_QUANTILES = 12
MAX_SAMPLED = 200_000
"""Background pixels that are looked at to find their median."""
LEVELS = 2**16 - 1
MAX_LOOKED_AT = 1_000_000
"""Pixels of a frame that tell whether it is a raw image."""

LabelImage = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of equal labels along the last axis of a label image, background left out."""

    label: Labels
    """(m,)"""
    start: tuple[Indices, ...]
    """(m,) for each axis: where the run begins."""
    length: Indices
    """(m,) pixels."""

    @classmethod
    def from_labels(cls, labels: LabelImage) -> Self:
        """Find them."""
        flat, width = labels.reshape(-1), labels.shape[-1]
        begins = np.ones(flat.size + 1, dtype=bool)
        np.not_equal(flat[1:], flat[:-1], out=begins[1:-1])
        begins[:-1:width] = True  # no run goes from one line to the next
        limits = np.flatnonzero(begins)
        start, length = limits[:-1], np.diff(limits)
        cells = np.flatnonzero(flat[start])
        label = flat[start[cells]].astype(np.int64)
        return cls(label, np.unravel_index(start[cells], labels.shape), length[cells])


def measure_frame(
    frame: int,
    labels: LabelImage,
    image: NDArray[Any] | None,
    spacing: tuple[float, ...],
) -> Detections:
    """The cells of one frame with these columns, in physical units.

    volume; axes (n, ndim): standard deviations along the principal axes, longest first; direction (n, ndim): of the
    longest, a unit vector of either sign; eccentricity: of the ellipse with the longest and the shortest axis; support
    (n, K): how far the cell reaches from its centroid in the `support_directions`; border_distance: from the centroid to the
    nearest border; border_share: the cell's face on the border, relative to volume^((ndim−1)/ndim). With an image:
    intensity: mean above the median of the background; deviation: standard deviation; quantiles (n, 12): of the pixels'
    intensities above background.
    """
    check_images(frame, labels, image)
    runs = Runs.from_labels(labels)
    label, row = np.unique(runs.label, return_inverse=True)
    sums = _Sums(row, len(label))
    scale = np.asarray(spacing, dtype=float)
    pixels = sums(runs.length)
    volume = pixels * scale.prod()
    middle = [at.astype(float) for at in runs.start]
    middle[-1] += (runs.length - 1) / 2
    position = (
        np.column_stack([sums(runs.length * at) / pixels for at in middle]) * scale
    )
    # (m, ndim) the runs' middles from the centroid; differences first, so that large coordinates cost no digits
    offset = np.column_stack(middle) * scale - position[row]
    eigenvalues, direction = _principal_axes(sums, runs.length, offset, pixels, scale)
    border_distance, border_share = _border(
        sums, runs, labels.shape, position, volume, scale
    )
    columns: dict[str, Array] = {
        "volume": volume,
        "axes": np.sqrt(eigenvalues),
        "direction": direction,
        "eccentricity": np.sqrt(1 - eigenvalues[:, -1] / eigenvalues[:, 0]),
        "support": _support(row, len(label), runs.length, offset, scale),
        "border_distance": border_distance,
        "border_share": border_share,
    }
    if image is not None:
        columns |= _intensities(frame, labels, image, row, runs.length, pixels)
    return Detections(frame, label, position, columns)


def is_raw_image(labels: LabelImage) -> bool:
    """Whether a label image looks like a raw one: ten labels or more lie all over it, and most of what is labelled.

    A cell is in one place, and few can be as large as a quarter of the frame; a grey value is wherever it is as bright.
    """
    steps = int(np.ceil((labels.size / MAX_LOOKED_AT) ** (1 / labels.ndim)))
    sampled = labels[(slice(None, None, max(1, steps)),) * labels.ndim]
    values, index = np.unique(sampled, return_inverse=True)
    places = index.reshape(sampled.shape)
    boxes = ndimage.find_objects(places + 1)
    box = np.array(
        [np.prod([side.stop - side.start for side in place]) for place in boxes]
    )
    pixels, is_cell = np.bincount(places.ravel()), values != 0
    everywhere = is_cell & (4 * box > sampled.size)
    return bool(
        everywhere.sum() >= 10 and 2 * pixels[everywhere].sum() > pixels[is_cell].sum()
    )


def measure_overlap(
    first: LabelImage, second: LabelImage | None, spacing: tuple[float, ...]
) -> tuple[Labels, Labels, Array]:
    """(m,) each: the labels of two frames that share pixels, and how much; ascending. None is no frame."""
    if second is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    if first.shape != second.shape:
        raise InputError(
            f"two frames have shapes {first.shape} and {second.shape}; all frames of a movie must agree"
        )
    a, b = first.reshape(-1), second.reshape(-1)
    begins = np.ones(a.size + 1, dtype=bool)
    begins[1:-1] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    limits = np.flatnonzero(begins)
    start, length = limits[:-1], np.diff(limits)
    both = (a[start] > 0) & (b[start] > 0)
    start, length = start[both], length[both]
    return _summed(
        a[start].astype(np.int64), b[start].astype(np.int64), length, spacing
    )


def measure_shifted_overlap(
    first: LabelImage,
    second: LabelImage,
    labels: Labels,
    shift: Array,
    spacing: tuple[float, ...],
) -> tuple[Indices, Labels, Array]:
    """(m,) each: what the cells of a frame share with those of the next once each was moved by its own `shift`.

    `labels` (n,) are the cells of the first frame, ascending, and `shift` (n, ndim) is rounded to whole pixels. What
    comes back are rows of `labels`, labels of the second frame, and the volume that they share; ascending.
    """
    runs = Runs.from_labels(first)
    row = np.searchsorted(labels, runs.label)
    step = np.rint(shift / np.asarray(spacing)).astype(np.intp)[row]
    start = [at + step[:, axis] for axis, at in enumerate(runs.start)]
    end = start[-1] + runs.length  # of each run, along the last axis
    start[-1], end = np.maximum(start[-1], 0), np.minimum(end, first.shape[-1])
    inside = end > start[-1]  # what was moved out of the picture shares nothing
    for at, size in zip(start[:-1], first.shape[:-1], strict=True):
        inside &= (at >= 0) & (at < size)
    row, length = row[inside], (end - start[-1])[inside]
    begin = np.ravel_multi_index([at[inside] for at in start], first.shape)
    before = (
        np.cumsum(length) - length
    )  # where the pixels of each run begin, one run after the other
    other = second.reshape(-1)[
        np.repeat(begin - before, length) + np.arange(length.sum())
    ]
    # again as runs, for there are far fewer of them than pixels
    new = np.ones(other.size + 1, dtype=bool)
    np.not_equal(other[1:], other[:-1], out=new[1:-1])
    new[before] = True
    limits = np.flatnonzero(new)
    at, pixels = limits[:-1], np.diff(limits)
    hit = other[at] > 0
    at, pixels = at[hit], pixels[hit]
    source = row[np.searchsorted(before, at, side="right") - 1]
    rows, target, volume = _summed(source, other[at].astype(np.int64), pixels, spacing)
    return rows.astype(np.intp), target, volume


def _summed(
    source: NDArray[Any], target: Labels, pixels: Indices, spacing: tuple[float, ...]
) -> tuple[NDArray[Any], Labels, Array]:
    """The volume of all runs, (m,) each, that have the same source and target; ascending."""
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    new = np.flatnonzero(
        np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))[
            : len(source)
        ]
    )
    total = np.add.reduceat(pixels[order], new) if len(new) else np.zeros(0)
    return source[new], target[new], total * float(np.prod(spacing))


@cache
def support_directions(ndim: int) -> Array:
    """(K, ndim) unit vectors, evenly spread, the second half opposite to the first; K is 16 in 2D and 26 in 3D."""
    if ndim == 2:
        angle = np.arange(8) * np.pi / 8
        half = np.column_stack([np.cos(angle), np.sin(angle)])
    else:  # from the centre of a cube to its faces, edges and corners
        grid = np.stack(np.meshgrid(*[(-1, 0, 1)] * 3, indexing="ij"), axis=-1).reshape(
            -1, 3
        )
        half = grid[14:] / np.linalg.norm(grid[14:], axis=1, keepdims=True)
    return np.concatenate([half, -half])


def check_images(frame: int, labels: LabelImage, image: NDArray[Any] | None) -> None:
    """Refuse what cannot be measured."""
    if labels.dtype.kind not in "iu" or labels.ndim not in (2, 3):
        raise InputError(
            f"labels of frame {frame} are {labels.dtype} of shape {labels.shape}; expected integers in 2D or 3D"
        )
    if labels.size and labels.dtype.kind == "i" and labels.min() < 0:
        raise InputError(
            f"frame {frame} has the label {labels.min()}; cells have positive labels, background has 0"
        )
    if image is not None and image.shape != labels.shape:
        raise InputError(
            f"frame {frame}: the image has shape {image.shape} and the labels {labels.shape}; they must agree"
        )


class _Sums:
    """Sums of values of runs over each cell."""

    def __init__(self, row: Indices, n: int) -> None:
        self.row, self.n = row, n

    def __call__(self, values: NDArray[Any]) -> Array:
        return np.bincount(self.row, weights=values, minlength=self.n).astype(
            np.float64, copy=False
        )


def _principal_axes(
    sums: _Sums, length: Indices, offset: Array, pixels: Array, scale: Array
) -> tuple[Array, Array]:
    """Of the covariance of a cell's pixels, each a box and not a point: eigenvalues (n, ndim), largest first, and the
    unit vector (n, ndim) of the largest.
    """
    ndim = len(scale)
    moments = np.empty((sums.n, ndim, ndim))
    for i in range(ndim):
        for j in range(i, ndim):
            moments[:, i, j] = moments[:, j, i] = (
                sums(length * offset[:, i] * offset[:, j]) / pixels
            )
    moments[:, -1, -1] += (
        sums(length * (length.astype(float) ** 2 - 1)) * scale[-1] ** 2 / 12 / pixels
    )
    moments += np.diag(scale**2 / 12)
    values, vectors = np.linalg.eigh(moments)
    return values[:, ::-1].astype(np.float64), vectors[:, :, -1].astype(np.float64)


def _support(
    row: Indices, n: int, length: Indices, offset: Array, scale: Array
) -> Array:
    """(n, K) the support function of each cell around its centroid; a pixel reaches half its size further."""
    toward = support_directions(len(scale))
    if not n:
        return np.zeros((0, len(toward)))
    order = np.argsort(row, kind="stable")
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    along = offset[order] @ toward.T
    along += ((length[order] - 1) * scale[-1] / 2)[:, None] * np.abs(
        toward[:, -1]
    )  # the run's farther end
    return np.maximum.reduceat(along, first) + np.abs(toward) @ scale / 2


def _border(
    sums: _Sums,
    runs: Runs,
    shape: tuple[int, ...],
    position: Array,
    volume: Array,
    scale: Array,
) -> tuple[Array, Array]:
    """(n,) each: the distance from the centroid to the nearest border, and the cell's share on it."""
    edges = np.array(shape) * scale - scale / 2
    distance = np.minimum(position + scale / 2, edges - position).min(axis=1)
    face = np.zeros(sums.n)
    for axis, size in enumerate(shape):
        last = axis == len(shape) - 1
        ends = runs.start[axis] + (runs.length - 1 if last else 0)
        pixels = (1 if last else runs.length) * (
            (runs.start[axis] == 0) + 1 * (ends == size - 1)
        )
        face += sums(pixels) * scale.prod() / scale[axis]
    return distance, face / volume ** (1 - 1 / len(shape))


def _intensities(
    frame: int,
    labels: LabelImage,
    image: NDArray[Any],
    row: Indices,
    length: Indices,
    pixels: Array,
) -> dict[str, Array]:
    """The columns that come from the image; intensities are above background."""
    flat = image.reshape(-1)
    inside = labels.reshape(-1) != 0
    sampled = slice(None, None, max(1, flat.size // MAX_SAMPLED))
    outside = flat[sampled][~inside[sampled]]
    background = float(np.median(outside)) if outside.size else float(flat.min())
    values = flat[inside].astype(np.float64)
    values -= background
    if not np.isfinite(values.sum()):
        raise InputError(
            f"the image of frame {frame} has NaN or infinity; intensities must be finite numbers"
        )
    first = np.cumsum(length) - length
    sums = _Sums(row, len(pixels))
    mean, square = (sums(_run_sums(v, first)) / pixels for v in (values, values**2))
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return {
        "intensity": mean,
        "deviation": deviation,
        "quantiles": _quantiles(values, row, length, pixels),
    }


def _run_sums(values: Array, first: Indices) -> Array:
    """(m,) the sums of the values from each first index to the next."""
    return np.asarray(np.add.reduceat(values, first) if len(first) else np.zeros(0))


def _quantiles(values: Array, row: Indices, length: Indices, pixels: Array) -> Array:
    """(n, N_QUANTILES) of the values of each cell, to a 65,535th of their range: one sort of cell and level."""
    if not len(values):
        return np.zeros((len(pixels), N_QUANTILES))
    low = float(values.min())
    above = values - low
    extent = float(above.max())
    # integers of 16 bits stay what they are
    step = (
        1.0
        if extent <= LEVELS and np.array_equal(above, np.rint(above))
        else extent / LEVELS
    )
    number = np.dtype(
        np.uint32 if len(pixels) <= LEVELS else np.uint64
    )  # the shorter sorts three times as fast
    key = np.repeat((row * (LEVELS + 1)).astype(number), length)
    key += np.rint(above / step).astype(number)
    key.sort()
    begin = np.cumsum(pixels) - pixels
    at = begin[:, None] + np.floor(
        pixels[:, None] * (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    )
    return np.asarray((key[at.astype(np.intp)] & LEVELS) * step + low, dtype=np.float64)
