"""Detect bright, roundish cells: smoothing, a local threshold, a watershed.

This serves fluorescent nuclei on a dark ground. Cells in phase contrast or DIC, and
cells that fill the frame, need a trained network (`methods`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.ndimage as ndi
from numpy.typing import NDArray
from skimage.filters import gaussian
from skimage.measure import block_reduce
from skimage.morphology import h_maxima
from skimage.segmentation import relabel_sequential, watershed

from clew.errors import InputError
from clew.learning.task import Array, Mask
from clew.tracking.frames import Frames
from clew.utils.validation import check_list, check_positive, is_number, short_repr

MIN_DIAMETER = 4.0
"""In pixels; smaller cells look like noise."""
N_DIAMETER_FRAMES = 3
"""Frames from which the diameter of a cell is estimated."""
BACKGROUND_POINTS = 4.0
"""Points along a diameter at which the background is measured."""
SEED_POINTS = 12.0
"""Points along a diameter at which centers of cells are searched."""


@dataclass(frozen=True)
class DetectionSettings:
    """How cells are detected. Lengths are in pixels along x.

    Attributes
    ----------
    diameter : float or None
        Of a typical cell; None estimates it from the images.
    smoothing : float
        Standard deviation of the Gaussian, in diameters.
    window : float
        Width over which the background is even, in diameters.
    sensitivity : float
        From 0 to 1: the higher, the dimmer a cell may be in the noise.
    edge : float
        A cell ends at this part of its brightness over the background.
    min_size : float
        Smallest cell, relative to the area (or volume) of a typical one.
    separation : float
        Least depth of the waist between touching cells, in diameters.
    spacing : tuple of float or None
        Size of a pixel along (z,) y, x, in any unit; None is equal along all.
    """

    diameter: float | None = None
    smoothing: float = 0.05
    window: float = 4.0
    sensitivity: float = 0.5
    edge: float = 0.33
    min_size: float = 0.12
    separation: float = 0.06
    spacing: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        largest = sys.float_info.max
        if self.diameter is not None:
            check_positive(self.diameter, "diameter", largest)
        for name in ("smoothing", "window", "min_size", "separation"):
            check_positive(getattr(self, name), name, largest)
        for name in ("sensitivity", "edge"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < 1:
                raise InputError(
                    f"{name} is {short_repr(value)}; expected a number between 0 and 1"
                )
        if self.spacing is not None:
            for size in check_list(self.spacing, "spacing"):
                check_positive(size, "spacing", largest)


def detect_frame(
    image: NDArray[Any], *, settings: DetectionSettings | None = None
) -> NDArray[np.int32]:
    """Detect bright cells on a darker ground.

    Parameters
    ----------
    image : ndarray of shape (y, x) or (z, y, x)
    settings : DetectionSettings, optional

    Returns
    -------
    labels : ndarray of the same shape
        Cells are numbered from 1.
    """
    values = _check_image(image)
    settings = settings or DetectionSettings()
    diameter = settings.diameter or _estimate_diameter(values, settings)
    pixel = _get_pixel_size(settings, values.ndim)
    width = max(MIN_DIAMETER, *(values.shape[-2:] * pixel[-2:]))
    if diameter > width:
        raise InputError(
            f"diameter is {diameter:g}; expected no more than {width:g} pixels, the "
            "width of the image"
        )
    is_cell = _find_foreground(values, diameter, settings)
    cells = _separate_cells(is_cell, diameter, settings)
    sizes = np.bincount(cells.ravel())
    cells[sizes[cells] < settings.min_size * _count_pixels(diameter, pixel)] = 0
    labels: NDArray[np.int32] = relabel_sequential(cells)[0].astype(np.int32)
    return labels


def fit_settings(
    images: Frames, settings: DetectionSettings | None = None
) -> DetectionSettings:
    """Estimate the diameter of a typical cell from a few frames, if it is not given."""
    settings = settings or DetectionSettings()
    if settings.diameter is not None:
        return settings
    last = len(images) - 1
    frames = np.unique(np.linspace(0, last, N_DIAMETER_FRAMES).astype(int))
    diameters = [_estimate_diameter(_check_image(images[t]), settings) for t in frames]
    return replace(settings, diameter=float(np.median(diameters)))


def _check_image(image: NDArray[Any]) -> NDArray[np.float32]:
    """The image as floats around its median."""
    if image.ndim not in (2, 3) or image.dtype.kind not in "iuf" or not image.size:
        raise InputError(
            f"the image has shape {image.shape} and dtype {image.dtype}; expected "
            "numbers (y, x) or (z, y, x)"
        )
    # a large offset would cost digits
    centered = image - np.median(image).astype(np.float64)
    values: NDArray[np.float32] = centered.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError("the image has NaN or infinite pixels; all must be finite")
    return values


def _get_pixel_size(settings: DetectionSettings, ndim: int) -> Array:
    """(ndim,) size of a pixel relative to its size along x."""
    if settings.spacing is None:
        return np.ones(ndim)
    if len(settings.spacing) != ndim:
        raise InputError(
            f"spacing is {settings.spacing}; an image in {ndim} dimensions needs "
            f"{ndim} numbers"
        )
    return np.array(settings.spacing) / settings.spacing[-1]


def _find_foreground(
    image: NDArray[np.float32], diameter: float, settings: DetectionSettings
) -> Mask:
    """Pixels that are brighter than noise, and than a part of their cell."""
    pixel = _get_pixel_size(settings, image.ndim)
    sigma = np.maximum(settings.smoothing * diameter, 0.7) / pixel
    smooth = gaussian(image, sigma, preserve_range=True)
    bright = smooth - _estimate_background(smooth, diameter, settings)
    # background is the darker part of the pixels; two quantiles of a normal
    # distribution give its mean and its standard deviation
    low, high = np.quantile(bright, [0.05, 0.25])
    noise = (high - low) / (1.645 - 0.674)
    bright -= high + 0.674 * noise
    noise_floor = 10 * (1 - settings.sensitivity) * noise
    floor = max(noise_floor, 1e-3 * float(np.quantile(bright, 0.999)))
    is_above = bright > floor
    blurred = gaussian(bright, 0.2 * diameter / pixel, preserve_range=True)
    peaks = _find_peaks(blurred, 0.5 * diameter / pixel) & is_above
    basins = watershed(-blurred, ndi.label(peaks)[0], mask=is_above)
    # each cell has its own threshold, since it may be ten times as bright as its
    # neighbor: a part of its mean weighted by brightness, so that its halo does not
    # count and bright spots do not dominate
    light = bright[is_above]
    n_basins = basins.max() + 1
    mass = np.bincount(basins[is_above], light, n_basins)
    square = np.bincount(basins[is_above], light**2, n_basins)
    brightness = square / np.maximum(mass, np.finfo(float).tiny)
    brightness[0] = np.inf
    is_cell = is_above & (bright > settings.edge * brightness[basins])
    return np.asarray(ndi.binary_fill_holes(is_cell))


def _count_pixels(diameter: float, pixel: Array) -> float:
    """Pixels in a disc or ball."""
    ndim = len(pixel)
    return float(np.pi / (4 if ndim == 2 else 6) * diameter**ndim / pixel.prod())


def _estimate_background(
    smooth: NDArray[np.float32], diameter: float, settings: DetectionSettings
) -> NDArray[np.float32]:
    """Lower quartile in a window around each pixel, measured on a coarse grid."""
    pixel = _get_pixel_size(settings, smooth.ndim)
    steps = _to_pixels(diameter / BACKGROUND_POINTS, pixel)
    coarse = smooth[tuple(slice(step // 2, None, step) for step in steps)]
    window = _to_pixels(settings.window * diameter, pixel * steps)
    sizes = [
        min(size, length) for size, length in zip(window, coarse.shape, strict=True)
    ]
    quartile = coarse
    for axis, size in enumerate(sizes):  # axis by axis: as good, and fast
        shape = [1] * smooth.ndim
        shape[axis] = size
        quartile = ndi.percentile_filter(
            quartile, 25, size=tuple(shape), mode="nearest"
        )
    for axis, size in enumerate(sizes):
        quartile = ndi.uniform_filter1d(quartile, size, axis, mode="nearest")
    coordinates = [
        (np.arange(n) - step // 2) / step
        for n, step in zip(smooth.shape, steps, strict=True)
    ]
    grid = np.broadcast_arrays(*np.ix_(*coordinates))
    fine: NDArray[np.float32] = ndi.map_coordinates(
        quartile, grid, order=1, mode="nearest", output=np.float32
    )
    return fine


def _find_peaks(image: NDArray[Any], reach: Array) -> Mask:
    """Pixels that are the highest within a reach."""
    size = tuple(2 * np.maximum(1, np.round(reach / 2)).astype(int) + 1)
    return np.asarray(image == ndi.maximum_filter(image, size=size, mode="nearest"))


def _separate_cells(
    is_cell: Mask, diameter: float, settings: DetectionSettings
) -> NDArray[Any]:
    """Label cells; parts with a waist between them are two."""
    ndim = is_cell.ndim
    pixel = _get_pixel_size(settings, ndim)
    padded = np.pad(is_cell, 1, constant_values=False)
    distance = ndi.distance_transform_edt(padded, sampling=pixel)
    distance = distance[(slice(1, -1),) * ndim]
    distance = gaussian(distance, 0.04 * diameter / pixel, preserve_range=True)
    # h_maxima is slow, so it sees blocks of pixels, and exact on integers
    steps = _to_pixels(diameter / SEED_POINTS, pixel)
    blocks = block_reduce(distance, steps, np.max)
    levels = np.round(blocks / (settings.separation * diameter) * 8).astype(np.int32)
    seeds, _ = ndi.label(h_maxima(levels, 8), np.ones((3,) * ndim))
    seeds = seeds * (levels > 0)
    for axis, step in enumerate(steps):
        places = np.arange(is_cell.shape[axis])
        seeds = seeds.repeat(step, axis).take(places, axis)
    return np.asarray(watershed(-distance, seeds, mask=is_cell))


def _to_pixels(length: float, pixel: Array) -> tuple[int, ...]:
    """A length in whole pixels along each axis, at least one."""
    return tuple(np.maximum(1, length / pixel).astype(int).tolist())


def _estimate_diameter(
    image: NDArray[np.float32], settings: DetectionSettings
) -> float:
    """Diameter of a typical cell.

    Twice the distance from the innermost pixel of a cell to its edge, the median over
    the area of all cells.
    """
    pixel = _get_pixel_size(settings, image.ndim)
    diameter = float(min(image.shape[-2:])) / 8
    for _ in range(3):
        smoothing = min(settings.smoothing, 1.5 / diameter)
        is_cell = _find_foreground(
            image, diameter, replace(settings, smoothing=smoothing)
        )
        cells, n_cells = ndi.label(is_cell)
        if not n_cells:
            break
        distance = ndi.distance_transform_edt(is_cell, sampling=pixel)
        labels = np.arange(1, n_cells + 1)
        inner = np.asarray(ndi.maximum(distance, cells, labels))
        area = np.bincount(cells.ravel())[1:]
        order = np.argsort(inner)
        middle = np.searchsorted(np.cumsum(area[order]), area.sum() / 2)
        diameter = max(MIN_DIAMETER, 2.2 * float(inner[order][middle]))
    return max(MIN_DIAMETER, diameter)
