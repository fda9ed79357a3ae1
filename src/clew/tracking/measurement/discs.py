"""Label images of discs around points, so that points can be shown and annotated.

Discs are drawn when a frame is read. Where discs meet, a pixel belongs to the nearest
point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.frames import Frames
from clew.tracking.movie import Movie
from clew.utils.validation import check_positive

MAX_PIXELS = 2**28
"""Pixels of a frame without images; if positions need more, they are no pixels."""


@dataclass(frozen=True)
class Discs:
    """Label images of discs, or balls in 3D, around the points of a table.

    Attributes
    ----------
    points : DetectionTable
        With positions in pixels.
    radius : float
        In the unit of the spacing.
    shape : tuple of int
        Shape of a frame.
    spacing : tuple of float
    length : int
        Number of frames.
    """

    points: DetectionTable
    radius: float
    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    length: int
    first: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        frame = np.zeros(self.shape, dtype=self.dtype)
        if t >= self.points.n_frames:
            return frame
        cells = self.points.detections(t)
        offsets = self._list_offsets()
        center = np.rint(cells.position).astype(np.int64)
        pixel = (center[:, None] + offsets).reshape(-1, len(self.shape))
        cell = np.repeat(np.arange(len(cells)), len(offsets))
        difference = (pixel - cells.position[cell]) * self.spacing
        distance = (difference**2).sum(axis=1)
        is_center = np.all(pixel == center[cell], axis=1)
        distance[is_center] = -1.0  # always belongs to the point
        is_inside = np.all((pixel >= 0) & (pixel < self.shape), axis=1)
        drawn = np.flatnonzero(is_inside & (distance <= self.radius**2))
        order = drawn[np.argsort(-distance[drawn], kind="stable")]  # the nearest last
        frame[tuple(pixel[order].T)] = cells.label[cell[order]]
        return frame

    def _list_offsets(self) -> NDArray[np.int64]:
        """(k, ndim) offsets from a center to all pixels that may be in its disc."""
        reaches = [int(self.radius / size) + 1 for size in self.spacing]
        sides = [np.arange(-reach, reach + 1) for reach in reaches]
        grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
        return grid.reshape(-1, len(sides))


def make_disc_movie(
    points: DetectionTable,
    radius: float,
    images: Frames | None = None,
    spacing: Sequence[float] | None = None,
) -> Movie:
    """Make a movie of discs around points.

    Parameters
    ----------
    points : DetectionTable
        With positions in pixels.
    radius : float
        In the unit of `spacing`.
    images : Frames, optional
        Raw images; their shape and number are used.
    spacing : sequence of float, optional
        Size of a pixel; that of the images by default.
    """
    radius = check_positive(radius, "radius", 1e6)
    if spacing is None and images is not None:
        spacing = images.spacing
    size = tuple(spacing or (1.0,) * points.ndim)
    if len(size) != points.ndim:
        axes = ", ".join("zyx"[-points.ndim :])
        raise InputError(f"spacing is {size}; {points.name} has positions along {axes}")
    if images is None:
        shape = _fit_shape(points, radius, size)
        n_frames = points.n_frames
    else:
        shape = images.shape
        n_frames = len(images)
    if len(shape) != points.ndim:
        raise InputError(
            f"{points.name} has positions in {points.ndim}D, but the images are of "
            f"shape {shape}"
        )
    if points.n_frames > n_frames:
        raise InputError(
            f"{points.name} has points in frame {points.n_frames - 1}, but there are "
            f"images of frames 0 to {n_frames - 1}"
        )
    _check_positions(points, shape)
    suffix = "no images" if images is None else "images"
    source = f"discs of radius {radius:g} around {points.source}, {suffix}"
    discs = Discs(points, radius, shape, size, n_frames)
    columns = points.user_columns
    return Movie(points.name, discs, images, size, source, user_columns=columns)


def _fit_shape(
    points: DetectionTable, radius: float, spacing: Sequence[float]
) -> tuple[int, ...]:
    """Shape of frames that hold all discs."""
    largest = [
        points.detections(t).position.max(axis=0, initial=0)
        for t in range(points.n_frames)
    ]
    high = np.max(largest, axis=0).tolist()
    shape = tuple(
        math.ceil(end + radius / size) + 1
        for end, size in zip(high, spacing, strict=True)
    )
    if math.prod(shape) > MAX_PIXELS:
        raise InputError(
            f"{points.name} has positions up to {', '.join(f'{end:g}' for end in high)}, "
            f"which makes frames of shape {shape}; expected positions in pixels"
        )
    return shape


def _check_positions(points: DetectionTable, shape: tuple[int, ...]) -> None:
    """Refuse points outside of the frames, and points that share a pixel."""
    for t in range(points.n_frames):
        cells = points.detections(t)
        pixel = np.rint(cells.position).astype(np.int64)
        is_outside = np.any((pixel < 0) | (pixel >= shape), axis=1)
        if is_outside.any():
            row = int(np.argmax(is_outside))
            position = ", ".join(f"{value:g}" for value in cells.position[row])
            raise InputError(
                f"{points.name}: label {cells.label[row]} of frame {t} is at "
                f"({position}), outside of frames of shape {shape}; expected positions "
                "in pixels, counted from 0"
            )
        _, first, inverse = np.unique(
            pixel, axis=0, return_index=True, return_inverse=True
        )
        earliest = first[inverse.ravel()]
        is_repeated = earliest != np.arange(len(pixel))
        if is_repeated.any():
            row = int(np.argmax(is_repeated))
            other = cells.label[earliest[row]]
            raise InputError(
                f"{points.name}: labels {other} and {cells.label[row]} of frame {t} "
                "are at the same pixel; expected points at least a pixel apart"
            )
