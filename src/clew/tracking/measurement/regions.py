"""Measure the cells of a label image by sums over runs of equal pixels.

Along the last axis, a label image is a sequence of runs, far fewer than pixels.
Volume, centroid and second moments of a cell are sums over its runs in closed form;
the support function is a maximum over the ends of its runs.

A frame takes at most 45 bytes for each pixel of a cell while it is measured, beside
the arrays given, and 2 for each other pixel: 700 MB for 50,000 cells of 320 pixels.
This is ten times as fast as `regionprops` of scikit-image.
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
"""Raised when a column changes its meaning, so that old measurements are not used."""
N_QUANTILES = 12
MAX_BACKGROUND_SAMPLES = 200_000
"""Pixels from which the median of the background is estimated."""
MAX_LEVEL = 2**16 - 1
"""Largest level of intensities from which quantiles are computed."""
MAX_SAMPLES = 1_000_000
"""Pixels of a frame that show whether it is a raw image."""
MIN_GRAY_VALUES = 10
"""Labels that spread over a quarter of a raw image."""

LabelImage = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of equal labels along the last axis, without background.

    Attributes
    ----------
    label : ndarray of shape (m,)
    start : tuple of ndarray of shape (m,)
        Where each run begins, for each axis.
    length : ndarray of shape (m,)
        In pixels.
    """

    label: Labels
    start: tuple[Indices, ...]
    length: Indices

    @classmethod
    def from_labels(cls, labels: LabelImage) -> Self:
        """Find the runs of a label image."""
        flat = labels.reshape(-1)
        is_start = np.ones(flat.size + 1, dtype=bool)
        np.not_equal(flat[1:], flat[:-1], out=is_start[1:-1])
        is_start[: -1 : labels.shape[-1]] = True  # runs end with their line
        limits = np.flatnonzero(is_start)
        start = limits[:-1]
        length = np.diff(limits)
        cells = np.flatnonzero(flat[start])
        start = start[cells]
        label = flat[start].astype(np.int64)
        return cls(label, np.unravel_index(start, labels.shape), length[cells])


def measure_frame(
    frame: int,
    labels: LabelImage,
    image: NDArray[Any] | None,
    spacing: tuple[float, ...],
) -> Detections:
    """Measure the cells of one frame.

    Parameters
    ----------
    frame : int
        Number of the frame.
    labels : ndarray of shape (y, x) or (z, y, x)
    image : ndarray of the same shape, optional
        Raw image.
    spacing : tuple of float
        Size of a pixel.

    Returns
    -------
    detections : Detections
        With these columns, in physical units: volume; axes (n, ndim), standard
        deviations along the principal axes, longest first; direction (n, ndim), unit
        vector of the longest axis, of either sign; eccentricity of the ellipse with
        the longest and the shortest axis; support (n, K), how far the cell reaches
        from its centroid in the `support_directions`; border_distance from the
        centroid to the nearest border; border_share, the face of the cell on the
        border relative to volume^((ndim − 1)/ndim). With an image also: intensity,
        mean above the median of the background; deviation, standard deviation;
        quantiles (n, 12) of intensities above background.
    """
    check_images(frame, labels, image)
    runs = Runs.from_labels(labels)
    label, row = np.unique(runs.label, return_inverse=True)
    sums = _CellSums(row, len(label))
    scale = np.asarray(spacing, dtype=float)
    pixels = sums.add(runs.length)
    volume = pixels * scale.prod()
    middle = [start.astype(float) for start in runs.start]
    middle[-1] += (runs.length - 1) / 2
    centroid = [sums.add(runs.length * coordinate) / pixels for coordinate in middle]
    position = np.column_stack(centroid) * scale
    # (m, ndim) from the centroid; differences first, so large coordinates lose no digits
    offset = np.column_stack(middle) * scale - position[row]
    variance, direction = _find_principal_axes(sums, runs.length, offset, pixels, scale)
    columns: dict[str, Array] = {
        "volume": volume,
        "axes": np.sqrt(variance),
        "direction": direction,
        "eccentricity": np.sqrt(1 - variance[:, -1] / variance[:, 0]),
        "support": _measure_support(row, len(label), runs.length, offset, scale),
        "border_distance": _measure_border_distance(labels.shape, position, scale),
        "border_share": _measure_border_share(sums, runs, labels.shape, volume, scale),
    }
    if image is not None:
        columns |= _measure_intensities(frame, labels, image, row, runs.length, pixels)
    return Detections(frame, label, position, columns)


def is_raw_image(labels: LabelImage) -> bool:
    """Whether a label image looks like a raw image.

    Ten labels or more spread over a quarter of it or more, and make up most of what
    is labelled. A cell is in one place; a gray value is wherever it is as bright.
    """
    step = int(np.ceil((labels.size / MAX_SAMPLES) ** (1 / labels.ndim)))
    sampled = labels[(slice(None, None, max(1, step)),) * labels.ndim]
    values, index = np.unique(sampled, return_inverse=True)
    index = index.reshape(sampled.shape)
    boxes = ndimage.find_objects(index + 1)
    box_size = np.array(
        [np.prod([side.stop - side.start for side in box]) for box in boxes]
    )
    pixels = np.bincount(index.ravel())
    is_label = values != 0
    is_everywhere = is_label & (4 * box_size > sampled.size)
    if is_everywhere.sum() < MIN_GRAY_VALUES:
        return False
    return bool(2 * pixels[is_everywhere].sum() > pixels[is_label].sum())


def measure_overlap(
    first: LabelImage, second: LabelImage | None, spacing: tuple[float, ...]
) -> tuple[Labels, Labels, Array]:
    """Measure what the cells of two frames share.

    Parameters
    ----------
    first, second : ndarray
        Label images of one shape; None for no second frame.
    spacing : tuple of float

    Returns
    -------
    source, target, volume : ndarray of shape (m,)
        Labels that share pixels, ascending, and the shared volume.
    """
    if second is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    if first.shape != second.shape:
        raise InputError(
            f"two frames have shapes {first.shape} and {second.shape}; all frames of a "
            "movie must agree"
        )
    before = first.reshape(-1)
    after = second.reshape(-1)
    is_start = np.ones(before.size + 1, dtype=bool)
    is_start[1:-1] = (before[1:] != before[:-1]) | (after[1:] != after[:-1])
    limits = np.flatnonzero(is_start)
    start = limits[:-1]
    length = np.diff(limits)
    is_shared = (before[start] > 0) & (after[start] > 0)
    start = start[is_shared]
    source = before[start].astype(np.int64)
    target = after[start].astype(np.int64)
    return _sum_pairs(source, target, length[is_shared], spacing)


def measure_shifted_overlap(
    first: LabelImage,
    second: LabelImage,
    labels: Labels,
    shift: Array,
    spacing: tuple[float, ...],
) -> tuple[Indices, Labels, Array]:
    """Measure what the cells of two frames share after a shift.

    Parameters
    ----------
    first, second : ndarray
        Label images of one shape.
    labels : ndarray of shape (n,)
        Cells of the first frame, ascending.
    shift : ndarray of shape (n, ndim)
        Moves each of these cells; rounded to whole pixels.
    spacing : tuple of float

    Returns
    -------
    row, target, volume : ndarray of shape (m,)
        Rows of `labels` and labels of the second frame, ascending, and the shared
        volume.
    """
    runs = Runs.from_labels(first)
    row = np.searchsorted(labels, runs.label)
    step = np.rint(shift / np.asarray(spacing)).astype(np.intp)[row]
    start = [at + step[:, axis] for axis, at in enumerate(runs.start)]
    end = np.minimum(start[-1] + runs.length, first.shape[-1])
    start[-1] = np.maximum(start[-1], 0)
    is_inside = end > start[-1]
    for at, size in zip(start[:-1], first.shape[:-1], strict=True):
        is_inside &= (at >= 0) & (at < size)
    row = row[is_inside]
    length = (end - start[-1])[is_inside]
    begin = np.ravel_multi_index([at[is_inside] for at in start], first.shape)

    # labels of the second frame below all runs, one run after the other
    offset = np.cumsum(length) - length
    pixel = np.repeat(begin - offset, length) + np.arange(length.sum())
    below = second.reshape(-1)[pixel]
    is_start = np.ones(below.size + 1, dtype=bool)
    np.not_equal(below[1:], below[:-1], out=is_start[1:-1])
    is_start[offset] = True
    limits = np.flatnonzero(is_start)
    at = limits[:-1]
    is_shared = below[at] > 0
    pixels = np.diff(limits)[is_shared]
    at = at[is_shared]
    source = row[np.searchsorted(offset, at, side="right") - 1]
    target = below[at].astype(np.int64)
    source, target, volume = _sum_pairs(source, target, pixels, spacing)
    return source.astype(np.intp), target, volume


def _sum_pairs(
    source: NDArray[Any], target: Labels, pixels: Indices, spacing: tuple[float, ...]
) -> tuple[NDArray[Any], Labels, Array]:
    """Sum the volumes of runs (m,) with the same source and target; ascending."""
    order = np.lexsort((target, source))
    source = source[order]
    target = target[order]
    is_new = np.ones(len(source), dtype=bool)
    is_new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    first = np.flatnonzero(is_new)
    total = np.add.reduceat(pixels[order], first) if len(first) else np.zeros(0)
    return source[first], target[first], total * float(np.prod(spacing))


@cache
def support_directions(ndim: int) -> Array:
    """Evenly spread unit vectors; the second half is opposite to the first.

    Returns
    -------
    directions : ndarray of shape (16, 2) or (26, 3)
    """
    if ndim == 2:
        angle = np.arange(8) * np.pi / 8
        half = np.column_stack([np.cos(angle), np.sin(angle)])
    else:  # from the center of a cube to its faces, edges and corners
        grid = np.stack(np.meshgrid(*[(-1, 0, 1)] * 3, indexing="ij"), axis=-1)
        half = grid.reshape(-1, 3)[14:]
        half = half / np.linalg.norm(half, axis=1, keepdims=True)
    return np.concatenate([half, -half])


def check_images(frame: int, labels: LabelImage, image: NDArray[Any] | None) -> None:
    """Refuse label images and raw images that cannot be measured."""
    if labels.dtype.kind not in "iu" or labels.ndim not in (2, 3):
        raise InputError(
            f"labels of frame {frame} are {labels.dtype} of shape {labels.shape}; "
            "expected integers in 2D or 3D"
        )
    if labels.size and labels.dtype.kind == "i" and labels.min() < 0:
        raise InputError(
            f"frame {frame} has the label {labels.min()}; cells have positive labels, "
            "background has 0"
        )
    if image is not None and image.shape != labels.shape:
        raise InputError(
            f"frame {frame}: the image has shape {image.shape} and the labels "
            f"{labels.shape}; they must agree"
        )


@dataclass(frozen=True)
class _CellSums:
    """Sums over the runs of each of n cells; `row` (m,) is the cell of each run."""

    row: Indices
    n: int

    def add(self, values: NDArray[Any]) -> Array:
        """(n,) sums of values (m,)."""
        sums = np.bincount(self.row, weights=values, minlength=self.n)
        return sums.astype(np.float64, copy=False)


def _find_principal_axes(
    sums: _CellSums, length: Indices, offset: Array, pixels: Array, scale: Array
) -> tuple[Array, Array]:
    """Principal axes of the pixels of each cell, each a box and not a point.

    Returns eigenvalues (n, ndim) of their covariance, largest first, and the unit
    vector (n, ndim) of the largest.
    """
    ndim = len(scale)
    moments = np.empty((sums.n, ndim, ndim))
    for i in range(ndim):
        for j in range(i, ndim):
            moment = sums.add(length * offset[:, i] * offset[:, j]) / pixels
            moments[:, i, j] = moment
            moments[:, j, i] = moment
    within_runs = sums.add(length * (length.astype(float) ** 2 - 1))
    moments[:, -1, -1] += within_runs * scale[-1] ** 2 / 12 / pixels
    moments += np.diag(scale**2 / 12)
    values, vectors = np.linalg.eigh(moments)
    return values[:, ::-1].astype(np.float64), vectors[:, :, -1].astype(np.float64)


def _measure_support(
    row: Indices, n: int, length: Indices, offset: Array, scale: Array
) -> Array:
    """(n, K) support function of each cell around its centroid."""
    directions = support_directions(len(scale))
    if not n:
        return np.zeros((0, len(directions)))
    order = np.argsort(row, kind="stable")
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    along = offset[order] @ directions.T
    half_length = (length[order] - 1) * scale[-1] / 2
    along += half_length[:, None] * np.abs(directions[:, -1])
    half_pixel = np.abs(directions) @ scale / 2
    return np.maximum.reduceat(along, first) + half_pixel


def _measure_border_distance(
    shape: tuple[int, ...], position: Array, scale: Array
) -> Array:
    """(n,) distance from each centroid to the nearest border."""
    edges = np.array(shape) * scale - scale / 2
    return np.asarray(np.minimum(position + scale / 2, edges - position).min(axis=1))


def _measure_border_share(
    sums: _CellSums, runs: Runs, shape: tuple[int, ...], volume: Array, scale: Array
) -> Array:
    """(n,) face of each cell on the border, relative to its size."""
    face = np.zeros(sums.n)
    for axis, size in enumerate(shape):
        is_last_axis = axis == len(shape) - 1
        start = runs.start[axis]
        end = start + runs.length - 1 if is_last_axis else start
        n_borders = (start == 0) + 1 * (end == size - 1)
        pixels = n_borders if is_last_axis else runs.length * n_borders
        face += sums.add(pixels) * scale.prod() / scale[axis]
    return np.asarray(face / volume ** (1 - 1 / len(shape)))


def _measure_intensities(
    frame: int,
    labels: LabelImage,
    image: NDArray[Any],
    row: Indices,
    length: Indices,
    pixels: Array,
) -> dict[str, Array]:
    """Columns of intensities above background."""
    flat = image.reshape(-1)
    is_cell = labels.reshape(-1) != 0
    step = max(1, flat.size // MAX_BACKGROUND_SAMPLES)
    outside = flat[::step][~is_cell[::step]]
    background = float(np.median(outside)) if outside.size else float(flat.min())
    values = flat[is_cell].astype(np.float64)
    values -= background
    if not np.isfinite(values.sum()):
        raise InputError(
            f"the image of frame {frame} has NaN or infinity; intensities must be "
            "finite numbers"
        )
    first = np.cumsum(length) - length
    sums = _CellSums(row, len(pixels))
    mean = sums.add(_sum_runs(values, first)) / pixels
    square = sums.add(_sum_runs(values**2, first)) / pixels
    return {
        "intensity": mean,
        "deviation": np.sqrt(np.maximum(square - mean**2, 0)),
        "quantiles": _compute_quantiles(values, row, length, pixels),
    }


def _sum_runs(values: Array, first: Indices) -> Array:
    """(m,) sums of values from each first index to the next."""
    return np.asarray(np.add.reduceat(values, first) if len(first) else np.zeros(0))


def _compute_quantiles(
    values: Array, row: Indices, length: Indices, pixels: Array
) -> Array:
    """(n, N_QUANTILES) quantiles of each cell by one sort of cells and levels."""
    if not len(values):
        return np.zeros((len(pixels), N_QUANTILES))
    low = float(values.min())
    above = values - low
    extent = float(above.max())
    # integers of 16 bits are exact
    is_exact = extent <= MAX_LEVEL and np.array_equal(above, np.rint(above))
    step = 1.0 if is_exact else extent / MAX_LEVEL
    # the shorter type sorts three times as fast
    dtype = np.dtype(np.uint32 if len(pixels) <= MAX_LEVEL else np.uint64)
    key = np.repeat((row * (MAX_LEVEL + 1)).astype(dtype), length)
    key += np.rint(above / step).astype(dtype)
    key.sort()
    begin = np.cumsum(pixels) - pixels
    # multiplied first: a rounded share would move a quantile by a pixel
    place = np.floor(pixels[:, None] * (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)
    at = begin[:, None] + place
    level = key[at.astype(np.intp)] & MAX_LEVEL
    return np.asarray(level * step + low, dtype=np.float64)
