"""From clicks and strokes to mask edits: pure functions of a frame.

Points are (x, y) in pixels of the picture that a person sees; pixel (i, j) covers
[j, j + 1) × [i, i + 1). In 3D the picture is slice `z`, or the projection along z if
`z` is None:

- a **cut** goes through all slices, along the stroke as seen from above;
- an **outline** is drawn in its slice, and inflated to a body as deep as it is wide;
- a region **grows** from the clicked voxel in all directions, in the way by which the
  cells nearby would grow into their masks best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.ndimage as ndi
from numpy.typing import NDArray
from skimage.draw import line, polygon2mask

from clew.annotation.mask_edits import Edit, EditKind, find_free_label
from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.measurement.regions import LabelImage

Point = Sequence[float]
Points = Sequence[Point]
Image = NDArray[np.generic]
REACH = 1.0
"""How far a region grows from the click, in diameters of a typical cell: across a cell
that was clicked at its edge."""
SMOOTHING = 0.08
"""Standard deviation of the Gaussian before a region grows, in diameters: it removes
noise and keeps outlines."""
NEIGHBORHOOD = 6.0
MAX_NEIGHBORS = 6
"""Cells within so many diameters of a click, and how many of them, on which the ways to
grow a region are tried."""
MIN_OVERLAP = 0.5
"""Intersection over union that the best way must reach there."""


@dataclass(frozen=True)
class MaskFrame:
    """A frame whose masks a person edits."""

    number: int
    labels: LabelImage
    image: Image | None = None
    """The raw frame."""
    spacing: Sequence[float] = (1.0, 1.0)
    """Of the pixels."""
    diameter: float = 1.0
    """Of a typical cell, in the unit of the spacing."""
    z: int | None = None
    """The slice that was shown; None for the projection, or in 2D."""
    used_labels: Sequence[int] = ()
    """Labels that a new cell must not have."""

    def give_to(self, kind: EditKind, pixels: Indices, label: int) -> Edit:
        """Return the edit that gives pixels, places in the flat image, to a label."""
        return Edit.of(self.number, kind, self.labels, pixels, label)

    def give_to_new_cell(self, kind: EditKind, pixels: Indices) -> Edit:
        """Return the edit that gives pixels to a new cell."""
        label = find_free_label(self.labels, self.used_labels)
        return self.give_to(kind, pixels, label)

    def find_pixels(self, cell: int) -> Indices:
        """Return (m,) the pixels of a cell in the flat image."""
        pixels = np.flatnonzero(self.labels == cell) if cell else np.zeros(0, np.intp)
        if not len(pixels):
            raise InputError(f"there is no cell {cell} in frame {self.number}")
        return pixels

    def flatten(self) -> LabelImage:
        """Return (y, x) what a person sees; along z, the largest label counts."""
        if self.labels.ndim == 2:
            return self.labels
        if self.z is None:
            return np.asarray(self.labels.max(axis=0))
        return np.asarray(self.labels[self.z])


def merge_cells(frame: MaskFrame, cells: Sequence[int]) -> Edit:
    """Merge two cells; the label of the larger one stays."""
    if len(set(cells)) != 2:
        raise InputError(
            f"cells {list(cells)} of frame {frame.number} cannot be merged; expected "
            "two different ones"
        )
    first, second = (frame.find_pixels(cell) for cell in cells)
    if len(first) >= len(second):
        return frame.give_to(EditKind.MERGE, second, int(cells[0]))
    return frame.give_to(EditKind.MERGE, first, int(cells[1]))


def delete_cell(frame: MaskFrame, cells: Sequence[int]) -> Edit:
    """Give the pixels of a cell to the background."""
    if len(cells) != 1:
        raise InputError(f"cells is {list(cells)}; expected the cell to delete")
    return frame.give_to(EditKind.DELETE, frame.find_pixels(cells[0]), 0)


def cut_cell(frame: MaskFrame, stroke: Points) -> Edit:
    """Cut the cell that most of a stroke lies in; the larger part keeps its label.

    A stroke that ends within the cell is extended. Pixels that belong to neither part,
    such as those under the stroke, go to the nearest one.

    Parameters
    ----------
    frame : MaskFrame
    stroke : sequence of (x, y)
    """
    labels = frame.labels
    z = frame.z
    plane = frame.flatten()
    cell = _find_cell_under(plane, _rasterize(stroke, plane.shape))
    if not cell:
        raise InputError(
            f"there is no cell under the stroke in frame {frame.number}; draw it across "
            "the cell to cut"
        )
    is_cell = labels == cell
    face = is_cell
    if labels.ndim == 3:
        face = is_cell.any(axis=0) if z is None else is_cell[z]
    sides = _split_face(face, _rasterize(stroke, plane.shape))
    if sides is None:
        extended = _extend_stroke(stroke, sum(plane.shape))
        sides = _split_face(face, _rasterize(extended, plane.shape))
    if sides is None:
        raise InputError(
            f"the stroke does not cut cell {cell} of frame {frame.number}; draw it from "
            "one side to the other"
        )
    # Other slices reach beyond the face: take the nearest side for every pixel.
    nearest = ndi.distance_transform_edt(
        sides == 0, return_distances=False, return_indices=True
    )
    side = sides[tuple(nearest)]
    part = is_cell & (side == 2)
    if 2 * int(part.sum()) > int(is_cell.sum()):
        part = is_cell & (side == 1)
    return frame.give_to_new_cell(EditKind.CUT, np.flatnonzero(part))


def add_outline(frame: MaskFrame, points: Points) -> Edit:
    """Add a cell inside a drawn line, without the pixels of other cells.

    In a projection, the cell is at the brightest slice.

    Parameters
    ----------
    frame : MaskFrame
    points : sequence of (x, y)
    """
    labels = frame.labels
    shape = labels.shape[-2:]
    corners = np.asarray(points, dtype=float)[:, ::-1] - 0.5  # centers of pixels
    inside: Mask = np.zeros(shape, bool)
    if len(corners) > 2:
        inside = polygon2mask(shape, corners)
    if not inside.any():
        raise InputError("the outline contains no pixel; draw it around the cell")
    body = inside
    if labels.ndim == 3:
        depth = len(labels)
        middle = frame.z
        if middle is None:
            middle = _find_brightest(frame.image, inside, depth)
        body = _inflate(inside, depth, middle, frame.spacing)
    body = body & (labels == 0)
    return _add_body(frame, body, "other cells fill the outline")


def grow_cell(frame: MaskFrame, point: Point) -> Edit:
    """Add a cell around a click, in the way that suits the cells nearby.

    `GROWERS` are tried on cells near the click, from their middles. The one whose
    regions overlap best with their masks is used; if none does well, an InputError
    asks for an outline.

    Parameters
    ----------
    frame : MaskFrame
    point : (x, y)
    """
    labels = frame.labels
    image = frame.image
    if image is None:
        raise InputError("the movie has no raw images; draw an outline instead")
    x, y = (int(np.floor(value)) for value in point)
    if not (0 <= y < labels.shape[-2] and 0 <= x < labels.shape[-1]):
        raise InputError(f"the click at {x}, {y} is not in the picture")
    seed: tuple[int, ...] = (y, x)
    if labels.ndim == 3:
        seed = (int(np.argmax(image[:, y, x])) if frame.z is None else frame.z, y, x)
    if labels[seed]:
        raise InputError(
            f"there is cell {labels[seed]} already; click where none is, or delete it"
        )
    grow = _choose_grower(frame, image, seed)
    around = Surroundings.of(frame, image, seed)
    body = np.zeros(labels.shape, bool)
    body[around.box] = grow(around)
    return _add_body(frame, body, "nothing grew from the click; draw an outline")


@dataclass(frozen=True)
class Surroundings:
    """The pixels around a click."""

    box: tuple[slice, ...]
    center: tuple[int, ...]
    """Of the click in the box."""
    image: NDArray[np.float32]
    """Smoothed."""
    is_free: Mask
    """Pixels of no cell within `REACH`."""
    distance: Array
    """From the click, in diameters."""

    @classmethod
    def of(cls, frame: MaskFrame, image: Image, seed: tuple[int, ...]) -> Self:
        """Cut out what is near; the cell that was clicked counts as free."""
        labels = frame.labels
        diameter = frame.diameter
        pixel = np.asarray(frame.spacing, dtype=float)
        box = _make_box(seed, REACH * diameter / pixel, labels.shape)
        center = tuple(at - part.start for at, part in zip(seed, box, strict=True))
        raw = np.asarray(image[box], dtype=np.float32)
        smooth = ndi.gaussian_filter(raw, SMOOTHING * diameter / pixel)
        distance = _distance_from(center, smooth.shape, pixel) / diameter
        part = labels[box]
        is_free = ((part == 0) | (part == labels[seed])) & (distance <= REACH)
        return cls(box, center, smooth, is_free, distance)

    def connected(self, region: Mask) -> Mask:
        """Return the free part of a region that is connected with the click."""
        parts, _ = ndi.label(region & self.is_free)
        return np.asarray(parts == parts[self.center])


def grow_by_brightness(around: Surroundings) -> Mask:
    """Return the pixels as bright, or dark, as the click by Otsu's threshold (1979)."""
    from skimage.filters import threshold_otsu  # imports all filters

    values = around.image[around.is_free]
    if values.min() == values.max():
        return np.zeros(around.image.shape, bool)
    is_bright = around.image > threshold_otsu(values)
    region = around.connected(is_bright == is_bright[around.center])
    return np.asarray(ndi.binary_fill_holes(region) & around.is_free)


def grow_by_size(around: Surroundings) -> Mask:
    """Return a disc or ball of the size of a typical cell."""
    return around.connected(around.distance <= 0.5)


GROWERS = (grow_by_brightness, grow_by_size)


def _choose_grower(
    frame: MaskFrame, image: Image, seed: tuple[int, ...]
) -> Callable[[Surroundings], Mask]:
    """Return the grower by which cells near a click grow into their masks best."""
    labels = frame.labels
    pixel = np.asarray(frame.spacing, dtype=float)
    box = _make_box(seed, NEIGHBORHOOD * frame.diameter / pixel, labels.shape)
    offset = np.array([part.start for part in box])
    part = labels[box]
    inner = part[(slice(1, -1),) * part.ndim]
    cut_off = part.copy()
    cut_off[(slice(1, -1),) * part.ndim] = 0
    cells = np.setdiff1d(inner, np.append(np.unique(cut_off), 0))
    if not len(cells):
        return grow_by_brightness
    centers = np.reshape(ndi.center_of_mass(part, part, cells), (-1, labels.ndim))
    away = np.linalg.norm((centers + offset - seed) * pixel, axis=1)
    overlaps = []
    for row in np.argsort(away)[:MAX_NEIGHBORS].tolist():
        own = np.argwhere(part == cells[row])
        middle = own[np.argmin((((own - centers[row]) * pixel) ** 2).sum(axis=1))]
        place = tuple((middle + offset).tolist())
        around = Surroundings.of(frame, image, place)
        is_own = labels[around.box] == cells[row]
        grown = [grow(around) for grow in GROWERS]
        shared = np.array([np.count_nonzero(one & is_own) for one in grown])
        sizes = np.array([np.count_nonzero(one) for one in grown])
        overlaps.append(shared / (sizes + len(own) - shared))
    overlap = np.mean(overlaps, axis=0)
    if overlap.max() < MIN_OVERLAP:
        raise InputError(
            "cells near the click would not grow into their masks; draw an outline"
        )
    return GROWERS[int(np.argmax(overlap))]


def _add_body(frame: MaskFrame, body: Mask, problem: str) -> Edit:
    """Add a cell: the largest connected part of a body."""
    parts, n_parts = ndi.label(body)
    if not n_parts:
        raise InputError(f"{problem}, in frame {frame.number}")
    largest = int(np.argmax(np.bincount(parts.reshape(-1))[1:])) + 1
    return frame.give_to_new_cell(EditKind.ADD, np.flatnonzero(parts == largest))


def _rasterize(stroke: Points, shape: tuple[int, ...]) -> Mask:
    """Return (y, x) the pixels under a stroke, connected by sides or corners."""
    under = np.zeros(shape, bool)
    corners = [(int(np.floor(y)), int(np.floor(x))) for x, y in stroke]
    ends = [*corners[1:], corners[-1]]
    for (y0, x0), (y1, x1) in zip(corners, ends, strict=True):
        ys, xs = line(y0, x0, y1, x1)
        is_inside = (ys >= 0) & (ys < shape[0]) & (xs >= 0) & (xs < shape[1])
        under[ys[is_inside], xs[is_inside]] = True
    return under


def _find_cell_under(plane: LabelImage, stroke: Mask) -> int:
    """Return the label with most pixels under a stroke; 0 if there is none."""
    labels, counts = np.unique(plane[stroke & (plane > 0)], return_counts=True)
    return int(labels[np.argmax(counts)]) if len(labels) else 0


def _split_face(face: Mask, stroke: Mask) -> NDArray[np.int8] | None:
    """Return (y, x) 1 and 2 on the two largest parts beside a stroke.

    None if the stroke leaves one part. Parts are connected by the sides of pixels, and
    the stroke by corners too, so that it has no holes.
    """
    parts, _ = ndi.label(face & ~stroke)
    beside = np.unique(parts[ndi.binary_dilation(stroke & face, np.ones((3, 3)))])
    beside = beside[beside > 0]
    if len(beside) < 2:
        return None
    sizes = np.bincount(parts.reshape(-1))[beside]
    first, second = beside[np.argsort(-sizes, kind="stable")[:2]]
    sides = np.zeros(parts.shape, dtype=np.int8)
    sides[parts == first] = 1
    sides[parts == second] = 2
    return sides


def _extend_stroke(stroke: Points, length: float) -> Points:
    """Extend a stroke at both ends, in the direction from its other end."""
    first = np.asarray(stroke[0], float)
    last = np.asarray(stroke[-1], float)
    extent = float(np.hypot(*(last - first)))
    if not extent:
        return stroke
    step = (last - first) / extent * length
    return [(first - step).tolist(), *stroke, (last + step).tolist()]


def _find_brightest(image: Image | None, inside: Mask, depth: int) -> int:
    """Return the brightest slice within an outline; the middle without an image."""
    if image is None:
        return depth // 2
    return int(np.argmax([plane[inside].astype(float).mean() for plane in image]))


def _inflate(inside: Mask, depth: int, z: int, spacing: Sequence[float]) -> Mask:
    """Return (z, y, x) a round body with a given section, as deep as it is wide.

    At distance d from the outline its half height is √(R² − (R − d)²), where R is the
    largest d.
    """
    padded = np.pad(inside, 1)
    distance = ndi.distance_transform_edt(padded, sampling=spacing[1:])[1:-1, 1:-1]
    radius = float(distance.max())
    half = np.sqrt(np.maximum(radius**2 - (radius - distance) ** 2, 0.0))
    height = np.abs(np.arange(depth) - z)[:, None, None] * spacing[0]
    return np.asarray(inside & ((height <= half) | (height == 0)))


def _make_box(
    center: Sequence[int], reach: Array, shape: tuple[int, ...]
) -> tuple[slice, ...]:
    """Return the part of an image within a reach of a pixel."""
    size = np.ceil(reach).astype(int)
    begins = np.maximum(0, np.asarray(center) - size)
    ends = np.minimum(shape, np.asarray(center) + size + 1)
    return tuple(
        slice(begin, end)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    )


def _distance_from(
    center: Sequence[int], shape: tuple[int, ...], spacing: Array
) -> Array:
    """Return the distance of each pixel from one of them."""
    offsets = np.indices(shape) - np.reshape(center, (-1, *[1] * len(shape)))
    scaled = offsets * np.reshape(spacing, (-1, *[1] * len(shape)))
    return np.asarray(np.sqrt((scaled**2).sum(axis=0)))
