"""Label images from raw ones, good enough to start with: smoothing, a local threshold, a watershed between cells.

For crowded or textured cells, masks by a trained network (Cellpose, StarDist) are better; clew tracks any.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
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
from clew.parallel import ThreadExecutor
from clew.tracking.frames import Frames
from clew.tracking.io import tiff
from clew.tracking.io.ctc import check_result_folder, is_mask_file
from clew.tracking.io.manifest import write_atomically
from clew.tracking.io.names import DETECT
from clew.tracking.measurement.store import hash_frame, hash_parts
from clew.utils.validation import check_list, check_positive, is_number, short_repr

LEAST_DIAMETER = 4.0
"""In pixels; what is smaller cannot be told from noise."""
FRAMES_FOR_DIAMETER = 3
COARSE, FINE = 4.0, 12.0
"""Points along a diameter at which the background is measured, and the centres of cells are looked for."""


@dataclass(frozen=True)
class DetectionSettings:
    """How cells are found. Lengths are counted in pixels along x."""

    diameter: float | None = None
    """Of a typical cell; None estimates it from the images."""
    smoothing: float = 0.05
    """The standard deviation of the Gaussian, in diameters."""
    window: float = 4.0
    """The width, in diameters, over which the background is taken to be even."""
    sensitivity: float = 0.5
    """From 0 to 1: the higher, the dimmer a cell may be in the noise."""
    edge: float = 0.33
    """Where a cell ends: at this part of its own brightness over the background."""
    min_size: float = 0.12
    """The smallest cell, as a part of the area (or volume) of a typical one."""
    separation: float = 0.06
    """How deep the waist between touching cells is at least, in diameters."""
    spacing: tuple[float, ...] | None = None
    """The size of a pixel along (z,) y, x, in any unit; None is the same along all."""

    def __post_init__(self) -> None:
        for name in ("diameter", "smoothing", "window", "min_size", "separation"):
            value = getattr(self, name)
            if value is not None or name != "diameter":
                check_positive(value, name, sys.float_info.max)
        for name in ("sensitivity", "edge"):
            if not is_number(value := getattr(self, name)) or not 0 < value < 1:
                raise InputError(
                    f"{name} is {short_repr(value)}; expected a number between 0 and 1"
                )
        for size in () if self.spacing is None else check_list(self.spacing, "spacing"):
            check_positive(size, "spacing", sys.float_info.max)


def detect_frame(
    image: NDArray[Any], *, settings: DetectionSettings | None = None
) -> NDArray[np.int32]:
    """The cells of one image (y, x) or (z, y, x), labelled from 1 on; bright cells on a darker ground."""
    image, settings = _checked(image), settings or DetectionSettings()
    diameter = settings.diameter or _diameter(image, settings)
    pixel = _pixel(settings, image.ndim)
    if diameter > (across := max(LEAST_DIAMETER, *(image.shape[-2:] * pixel[-2:]))):
        raise InputError(
            f"diameter is {diameter:g}; expected no more than {across:g} pixels, which the image is across"
        )
    cells = _foreground(image, diameter, settings)
    apart = _split(cells, diameter, settings)
    sizes = np.bincount(apart.ravel())
    apart[sizes[apart] < settings.min_size * _size(diameter, pixel)] = 0
    labels: NDArray[np.int32] = relabel_sequential(apart)[0].astype(np.int32)
    return labels


def fit_settings(
    images: Frames, settings: DetectionSettings | None = None
) -> DetectionSettings:
    """The settings with the diameter of a typical cell, the median over a few frames if it is not given."""
    settings = settings or DetectionSettings()
    if settings.diameter is not None:
        return settings
    which = np.unique(np.linspace(0, len(images) - 1, FRAMES_FOR_DIAMETER).astype(int))
    return replace(
        settings,
        diameter=float(
            np.median([_diameter(_checked(images[t]), settings) for t in which])
        ),
    )


def write_detections(
    images: Frames,
    folder: str | Path,
    settings: DetectionSettings | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Detect the cells of all frames into `mask000.tif`, `mask001.tif` … in a folder; returns how many there are.

    One frame for each job is in memory. The frames keep the numbers that the images have. Older masks that clew
    detected are replaced when the new ones are complete; a folder with anything else is refused, also with masks that
    were corrected since.
    """
    check_result_folder(folder, DETECT)
    fitted = fit_settings(images, settings)
    n, first = len(images), images.first
    digits = max(3, len(str(first + n - 1)))

    def write_one(stage: Path, t: int) -> tuple[int, bytes]:
        image = images[t]
        labels = detect_frame(image, settings=fitted)
        tiff.write_frame(stage / f"mask{t + first:0{digits}}.tif", labels)
        return int(labels.max(initial=0)), hash_frame(image)

    total, contents = 0, []
    made_from: dict[str, Any] = {"settings": asdict(fitted), "frames": n}
    with write_atomically(Path(folder), DETECT, is_mask_file, made_from) as stage:
        for count, content in ThreadExecutor(n_jobs).map(
            partial(write_one, stage), range(n), progress
        ):
            total += count
            contents.append(content)
        made_from["images_blake2b"] = hash_parts(contents)
    return total


def _checked(image: NDArray[Any]) -> NDArray[np.float32]:
    """The image as floats, if it is one."""
    if image.ndim not in (2, 3) or image.dtype.kind not in "iuf" or not image.size:
        raise InputError(
            f"an image of shape {image.shape} and dtype {image.dtype}; expected numbers (y, x) or (z, y, x)"
        )
    centred = image - np.median(image).astype(
        np.float64
    )  # a large offset would cost digits
    values: NDArray[np.float32] = centred.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(
            "the image has NaN or infinite pixels; all are finite in an image of cells"
        )
    return values


def _pixel(settings: DetectionSettings, ndim: int) -> Array:
    """(ndim,) the size of a pixel in units of its size along x."""
    if settings.spacing is None:
        return np.ones(ndim)
    if len(settings.spacing) != ndim:
        raise InputError(
            f"spacing is {settings.spacing}; an image in {ndim} dimensions has {ndim} numbers"
        )
    return np.array(settings.spacing) / settings.spacing[-1]


def _foreground(
    image: NDArray[np.float32], diameter: float, settings: DetectionSettings
) -> Mask:
    """Pixels that are brighter than noise, and than a part of the brightness of the cell they lie in."""
    pixel = _pixel(settings, image.ndim)
    smooth = gaussian(
        image,
        np.maximum(settings.smoothing * diameter, 0.7) / pixel,
        preserve_range=True,
    )
    bright = smooth - _background(smooth, diameter, settings)
    # Background is the darker part of the pixels. Two quantiles of a normal distribution give its middle and width.
    low, high = np.quantile(bright, [0.05, 0.25])
    noise = (high - low) / (1.645 - 0.674)
    bright -= high + 0.674 * noise
    floor = max(
        10 * (1 - settings.sensitivity) * noise,
        1e-3 * float(np.quantile(bright, 0.999)),
    )
    above = bright > floor
    blurred = gaussian(bright, 0.2 * diameter / pixel, preserve_range=True)
    peaks = _peaks(blurred, 0.5 * diameter / pixel) & above
    basins = watershed(-blurred, ndi.label(peaks)[0], mask=above)
    # Each cell has a threshold of its own, for it may be ten times as bright as its neighbour: a part of its mean,
    # weighted by brightness itself, so that the halo around it does not count and bright spots in it do not rule.
    light = bright[above]
    mass, square = (
        np.bincount(basins[above], light**power, basins.max() + 1) for power in (1, 2)
    )
    own = square / np.maximum(mass, np.finfo(float).tiny)
    own[0] = np.inf
    return np.asarray(
        ndi.binary_fill_holes(above & (bright > settings.edge * own[basins]))
    )


def _size(diameter: float, pixel: Array) -> float:
    """The pixels in a disc or ball."""
    return float(
        np.pi / (4 if len(pixel) == 2 else 6) * diameter ** len(pixel) / pixel.prod()
    )


def _background(
    smooth: NDArray[np.float32], diameter: float, settings: DetectionSettings
) -> NDArray[np.float32]:
    """The lower quartile in a window around each pixel, measured on a coarse grid."""
    pixel = _pixel(settings, smooth.ndim)
    steps = _steps(diameter / COARSE, pixel)
    coarse = smooth[tuple(slice(step // 2, None, step) for step in steps)]
    quartile = coarse
    for axis, size in enumerate(
        _steps(settings.window * diameter, pixel * steps)
    ):  # axis by axis: as good, and fast
        shape = [1] * smooth.ndim
        shape[axis] = min(size, coarse.shape[axis])
        quartile = ndi.percentile_filter(
            quartile, 25, size=tuple(shape), mode="nearest"
        )
    for axis, size in enumerate(_steps(settings.window * diameter, pixel * steps)):
        quartile = ndi.uniform_filter1d(
            quartile, min(size, coarse.shape[axis]), axis, mode="nearest"
        )
    at = np.ix_(
        *(
            (np.arange(n) - step // 2) / step
            for n, step in zip(smooth.shape, steps, strict=True)
        )
    )
    fine: NDArray[np.float32] = ndi.map_coordinates(
        quartile, np.broadcast_arrays(*at), order=1, mode="nearest", output=np.float32
    )
    return fine


def _peaks(image: NDArray[Any], reach: Array) -> Mask:
    """Pixels that are the highest within a reach."""
    size = tuple(2 * np.maximum(1, np.round(reach / 2)).astype(int) + 1)
    return np.asarray(image == ndi.maximum_filter(image, size=size, mode="nearest"))


def _split(cells: Mask, diameter: float, settings: DetectionSettings) -> NDArray[Any]:
    """Labels of cells that touch: parts with a waist between them are two."""
    pixel = _pixel(settings, cells.ndim)
    distance = ndi.distance_transform_edt(
        np.pad(cells, 1, constant_values=False), sampling=pixel
    )
    distance = distance[(slice(1, -1),) * cells.ndim]
    distance = gaussian(distance, 0.04 * diameter / pixel, preserve_range=True)
    steps = _steps(
        diameter / FINE, pixel
    )  # h_maxima is slow, so that it sees blocks only; and exact on integers
    levels = np.round(
        block_reduce(distance, steps, np.max) / (settings.separation * diameter) * 8
    ).astype(np.int32)
    seeds = ndi.label(h_maxima(levels, 8), np.ones((3,) * cells.ndim))[0] * (levels > 0)
    for axis, step in enumerate(steps):
        seeds = seeds.repeat(step, axis).take(np.arange(cells.shape[axis]), axis)
    return np.asarray(watershed(-distance, seeds, mask=cells))


def _steps(length: float, pixel: Array) -> tuple[int, ...]:
    """A length in whole pixels along each axis, at least one."""
    return tuple(np.maximum(1, length / pixel).astype(int).tolist())


def _diameter(image: NDArray[np.float32], settings: DetectionSettings) -> float:
    """Of a typical cell: twice the distance from its innermost pixel to its edge, the median over the area covered."""
    pixel = _pixel(settings, image.ndim)
    guess = float(min(image.shape[-2:])) / 8
    for _ in range(3):
        cells = _foreground(
            image,
            guess,
            replace(settings, smoothing=min(settings.smoothing, 1.5 / guess)),
        )
        parts, count = ndi.label(cells)
        if not count:
            break
        distance = ndi.distance_transform_edt(cells, sampling=pixel)
        inner = np.asarray(ndi.maximum(distance, parts, np.arange(1, count + 1)))
        area = np.bincount(parts.ravel())[1:]
        order = np.argsort(inner)
        middle = np.searchsorted(np.cumsum(area[order]), area.sum() / 2)
        guess = max(LEAST_DIAMETER, 2.2 * float(inner[order][middle]))
    return max(LEAST_DIAMETER, guess)
