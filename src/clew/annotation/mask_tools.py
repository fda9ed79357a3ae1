"""From clicks and strokes to edits: each operation is a pure function of a label image.

Points are (x, y) in pixels of the picture that a person sees, where pixel (i, j) covers [j, j + 1) × [i, i + 1). In 3D
the picture is slice `z`, or the projection along z where `z` is None:

- a **cut** goes through all slices, along the stroke as seen from above;
- an **outline** is drawn in its slice and inflated to a body that is as deep as it is wide;
- a region **grows** from the voxel that was clicked, in all directions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.ndimage as ndi
from numpy.typing import NDArray
from skimage.draw import line, polygon2mask
from skimage.filters import threshold_otsu

from clew.annotation.mask_edits import Edit, EditKind, free_label
from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.measurement.regions import LabelImage

Points = Sequence[Sequence[float]]
REACH = 1.0
"""How far from the click a region grows, in diameters of a usual cell: as far as across one that was clicked at its
edge."""
SMOOTHING = 0.08
"""The standard deviation of the Gaussian before a region grows, in diameters: noise goes, outlines stay."""


def merge(frame: int, labels: LabelImage, cells: Sequence[int]) -> Edit:
    """Two cells become one, which has the label of the larger one."""
    if len(set(cells)) != 2:
        raise InputError(
            f"cells {list(cells)} of frame {frame} cannot be merged; expected two different ones"
        )
    first, second = (_pixels(frame, labels, cell) for cell in cells)
    stays, pixels = (
        (cells[0], second) if len(first) >= len(second) else (cells[1], first)
    )
    return Edit.of(frame, EditKind.MERGE, labels, pixels, int(stays))


def delete(frame: int, labels: LabelImage, cell: int) -> Edit:
    """A cell is background."""
    return Edit.of(frame, EditKind.DELETE, labels, _pixels(frame, labels, cell), 0)


def cut(
    frame: int,
    labels: LabelImage,
    stroke: Points,
    z: int | None = None,
    used: Sequence[int] = (),
) -> Edit:
    """The cell that most of a stroke lies in becomes two; the larger part keeps its label.

    A stroke that ends within the cell goes straight on. Where the rest of the cell belongs to neither part (the stroke
    itself, and what it leaves over), it goes to the nearest.
    """
    plane = _plane(labels, z)
    cell = _most_under(plane, _raster(stroke, plane.shape))
    if not cell:
        raise InputError(
            f"there is no cell under the stroke in frame {frame}; draw it across the cell to be cut"
        )
    whole = labels == cell
    face: Mask = (
        whole if labels.ndim == 2 else whole.any(axis=0) if z is None else whole[z]
    )
    sides = _sides(face, _raster(stroke, plane.shape))
    if sides is None:
        sides = _sides(face, _raster(_prolonged(stroke, sum(plane.shape)), plane.shape))
    if sides is None:
        raise InputError(
            f"the stroke does not cut cell {cell} of frame {frame}; draw it from one side to the other"
        )
    # nearest side in the plane for every pixel: slices other than the one shown reach beyond its face
    nearest = ndi.distance_transform_edt(
        sides == 0, return_distances=False, return_indices=True
    )
    everywhere = sides[tuple(nearest)]
    part = whole & (everywhere == 2)
    if 2 * int(part.sum()) > int(whole.sum()):
        part = whole & (everywhere == 1)
    return Edit.of(
        frame, EditKind.CUT, labels, np.flatnonzero(part), free_label(labels, used)
    )


def outline(
    frame: int,
    labels: LabelImage,
    image: NDArray[np.generic] | None,
    drawn: Points,
    spacing: Sequence[float],
    z: int | None = None,
    used: Sequence[int] = (),
) -> Edit:
    """A new cell inside of a drawn line, where no other cell is; in a projection, at its brightest slice."""
    shape = labels.shape[-2:]
    corners = (
        np.asarray(drawn, dtype=float)[:, ::-1] - 0.5
    )  # polygon2mask looks at the pixels' middles
    inside: Mask = (
        polygon2mask(shape, corners) if len(corners) > 2 else np.zeros(shape, bool)
    )
    if not inside.any():
        raise InputError("the outline holds no pixel; draw it around the cell")
    if labels.ndim == 2:
        body = inside
    else:
        body = _inflated(
            inside,
            len(labels),
            _brightest(image, inside, len(labels)) if z is None else z,
            spacing,
        )
    return _added(
        frame,
        labels,
        body & (labels == 0),
        used,
        "nothing inside of the outline is free of other cells",
    )


def grow(
    frame: int,
    labels: LabelImage,
    image: NDArray[np.generic] | None,
    at: Sequence[float],
    diameter: float,
    spacing: Sequence[float],
    z: int | None = None,
    used: Sequence[int] = (),
) -> Edit:
    """A new cell around a click: the pixels that are as bright, or as dark, as what was clicked.

    Otsu's threshold (1979) of the smoothed pixels that are free and within a cell's `diameter`, in the unit of the
    spacing, parts them in two; the connected part with the click in it is the cell, its holes filled.
    """
    if image is None:
        raise InputError(
            "the movie has no raw images in which a region could grow; draw an outline instead"
        )
    x, y = (int(np.floor(value)) for value in at)
    if not (0 <= y < labels.shape[-2] and 0 <= x < labels.shape[-1]):
        raise InputError(f"the click at {x}, {y} is not in the picture")
    seed = (
        (y, x)
        if labels.ndim == 2
        else (int(np.argmax(image[:, y, x])) if z is None else z, y, x)
    )
    if labels[seed]:
        raise InputError(
            f"there is cell {labels[seed]} already; click where none is, or delete it first"
        )
    size = np.asarray(spacing, dtype=float)
    box = _box(seed, REACH * diameter / size, labels.shape)
    here = tuple(at - part.start for at, part in zip(seed, box, strict=True))
    smooth = ndi.gaussian_filter(
        np.asarray(image[box], dtype=np.float32), SMOOTHING * diameter / size
    )
    free = (labels[box] == 0) & (
        _distance(smooth.shape, here, size) <= REACH * diameter
    )
    values = smooth[free]
    if values.min() == values.max():
        raise InputError(
            "all is equally bright around the click; draw an outline instead"
        )
    bright = smooth > threshold_otsu(values)
    parts, _ = ndi.label((bright == bright[here]) & free)
    region = ndi.binary_fill_holes(parts == parts[here]) & free
    body = np.zeros(labels.shape, bool)
    body[box] = region
    return _added(
        frame,
        labels,
        body,
        used,
        "nothing grew from the click; draw an outline instead",
    )


def _added(
    frame: int, labels: LabelImage, body: Mask, used: Sequence[int], problem: str
) -> Edit:
    """A new cell of the largest connected part of a body."""
    parts, n = ndi.label(body)
    if not n:
        raise InputError(f"{problem}, in frame {frame}")
    largest = int(np.argmax(np.bincount(parts.reshape(-1))[1:])) + 1
    return Edit.of(
        frame,
        EditKind.ADD,
        labels,
        np.flatnonzero(parts == largest),
        free_label(labels, used),
    )


def _pixels(frame: int, labels: LabelImage, cell: int) -> Indices:
    found = np.flatnonzero(labels == cell) if cell else np.zeros(0, np.intp)
    if not len(found):
        raise InputError(f"there is no cell {cell} in frame {frame}")
    return found


def _plane(labels: LabelImage, z: int | None) -> LabelImage:
    """(y, x) what a person sees of a label image: the largest label counts along z, as in the picture."""
    if labels.ndim == 2:
        return labels
    if z is not None and not 0 <= z < len(labels):
        raise InputError(f"there is no slice {z}; they are 0 to {len(labels) - 1}")
    plane: LabelImage = labels.max(axis=0) if z is None else labels[z]
    return plane


def _raster(stroke: Points, shape: tuple[int, ...]) -> Mask:
    """(y, x) the pixels under a stroke, connected by sides or corners."""
    found = np.zeros(shape, bool)
    points = [(int(np.floor(y)), int(np.floor(x))) for x, y in stroke]
    for (y0, x0), (y1, x1) in zip(points, [*points[1:], points[-1]], strict=True):
        ys, xs = line(y0, x0, y1, x1)
        inside = (ys >= 0) & (ys < shape[0]) & (xs >= 0) & (xs < shape[1])
        found[ys[inside], xs[inside]] = True
    return found


def _most_under(plane: LabelImage, under: Mask) -> int:
    """The label of the cell with the most of some pixels; 0 if there is none."""
    cells, counts = np.unique(plane[under & (plane > 0)], return_counts=True)
    return int(cells[np.argmax(counts)]) if len(cells) else 0


def _sides(face: Mask, stroke: Mask) -> NDArray[np.int8] | None:
    """(y, x) 1 and 2 on the two largest parts of a cell on either side of a stroke; None if it leaves one part.

    Parts are connected by sides of pixels, and the stroke by corners too, so that it has no holes.
    """
    parts, _ = ndi.label(face & ~stroke)
    beside = np.unique(parts[ndi.binary_dilation(stroke & face, np.ones((3, 3)))])
    beside = beside[beside > 0]
    if len(beside) < 2:
        return None
    sizes = np.bincount(parts.reshape(-1))[beside]
    first, second = beside[np.argsort(-sizes, kind="stable")[:2]]
    return np.where(parts == first, 1, np.where(parts == second, 2, 0)).astype(np.int8)


def _prolonged(stroke: Points, by: float) -> Points:
    """A stroke that goes straight on at both of its ends, in the direction from its other end."""
    first, last = np.asarray(stroke[0], float), np.asarray(stroke[-1], float)
    way = last - first
    length = float(np.hypot(*way))
    if not length:
        return stroke
    step = way / length * by
    return [(first - step).tolist(), *stroke, (last + step).tolist()]


def _brightest(image: NDArray[np.generic] | None, inside: Mask, depth: int) -> int:
    """The slice that is brightest within an outline; the middle one without an image."""
    return (
        depth // 2
        if image is None
        else int(np.argmax([plane[inside].astype(float).mean() for plane in image]))
    )


def _inflated(inside: Mask, depth: int, z: int, spacing: Sequence[float]) -> Mask:
    """(z, y, x) a body whose section in slice z is given: round, and as deep as it is wide.

    At distance d from the outline its half height is √(R² − (R − d)²), where R is the largest d.
    """
    away = ndi.distance_transform_edt(np.pad(inside, 1), sampling=spacing[1:])[
        1:-1, 1:-1
    ]
    radius = float(away.max())
    half = np.sqrt(np.maximum(radius**2 - (radius - away) ** 2, 0.0))
    height = np.abs(np.arange(depth) - z)[:, None, None] * spacing[0]
    body: Mask = inside & ((height <= half) | (height == 0))
    return body


def _box(at: Sequence[int], reach: Array, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The part of an image within a reach of a pixel."""
    return tuple(
        slice(
            max(0, int(middle - np.ceil(far))), min(n, int(middle + np.ceil(far)) + 1)
        )
        for middle, far, n in zip(at, reach, shape, strict=True)
    )


def _distance(shape: tuple[int, ...], at: Sequence[int], spacing: Array) -> Array:
    """The distance of each pixel from one of them."""
    axes = np.ogrid[tuple(slice(0, n) for n in shape)]
    squares = sum(
        ((axis - middle) * size) ** 2
        for axis, middle, size in zip(axes, at, spacing, strict=True)
    )
    return np.asarray(np.sqrt(squares))
