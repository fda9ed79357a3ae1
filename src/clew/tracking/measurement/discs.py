"""Discs in place of masks, so that points can be seen, asked about and written as label images.

A disc is drawn around each point when a frame is asked for. Where discs meet, a pixel belongs to the nearest point.
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

LARGEST = 2**28
"""Pixels of a frame around points for which there are no images: beyond, positions are in another unit."""


@dataclass(frozen=True)
class Discs:
    """Label images of discs, or balls in 3D, around the points of a table; read as any frames are."""

    points: DetectionTable
    """In pixels."""
    radius: float
    """In the unit of the spacing."""
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
        offsets = self._offsets()
        middle = np.rint(cells.position).astype(np.int64)
        pixel = (middle[:, None] + offsets).reshape(-1, len(self.shape))
        cell = np.repeat(np.arange(len(cells)), len(offsets))
        apart = (((pixel - cells.position[cell]) * self.spacing) ** 2).sum(axis=1)
        apart[
            np.all(pixel == middle[cell], axis=1)
        ] = -1.0  # its own pixel is a point's in any case
        kept = np.all((pixel >= 0) & (pixel < self.shape), axis=1) & (
            apart <= self.radius**2
        )
        order = np.flatnonzero(kept)[
            np.argsort(-apart[kept], kind="stable")
        ]  # the nearest is written last
        frame[tuple(pixel[order].T)] = cells.label[cell[order]]
        return frame

    def _offsets(self) -> NDArray[np.int64]:
        """(k, ndim) from the middle of a disc to all pixels that may be in it."""
        sides = [
            np.arange(-reach, reach + 1)
            for reach in (int(self.radius / size) + 1 for size in self.spacing)
        ]
        return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(
            -1, len(sides)
        )


def make_disc_movie(
    points: DetectionTable,
    radius: float,
    images: Frames | None = None,
    spacing: Sequence[float] | None = None,
) -> Movie:
    """A movie of discs around points whose positions are in pixels: of the images, if there are any.

    `radius` is in the unit of `spacing`, the size of a pixel.
    """
    radius = check_positive(radius, "radius", 1e6)
    size = tuple(
        spacing
        or (images.spacing if images is not None else None)
        or (1.0,) * points.ndim
    )
    if len(size) != points.ndim:
        raise InputError(
            f"spacing is {size}; {points.name} has positions along {', '.join('zyx'[-points.ndim :])}"
        )
    shape = _box(points, radius, size) if images is None else images.shape
    n = points.n_frames if images is None else len(images)
    if len(shape) != points.ndim:
        raise InputError(
            f"{points.name} has positions in {points.ndim}D, but the images are of shape {shape}"
        )
    if points.n_frames > n:
        raise InputError(
            f"{points.name} has points in frame {points.n_frames - 1}, but there are images of frames 0 to {n - 1}"
        )
    _check_places(points, shape)
    source = f"discs of radius {radius:g} around {points.source}" + (
        ", no images" if images is None else ", images"
    )
    return Movie(
        points.name, Discs(points, radius, shape, size, n), images, size, source
    )


def _box(
    points: DetectionTable, radius: float, spacing: Sequence[float]
) -> tuple[int, ...]:
    """The shape of frames that hold all discs."""
    far = np.max(
        [
            points.detections(t).position.max(axis=0, initial=0)
            for t in range(points.n_frames)
        ],
        axis=0,
    )
    shape = tuple(
        math.ceil(end + radius / size) + 1
        for end, size in zip(far.tolist(), spacing, strict=True)
    )
    if math.prod(shape) > LARGEST:
        raise InputError(
            f"{points.name} has positions up to {', '.join(f'{end:g}' for end in far)}, which makes frames of shape "
            f"{shape}; expected positions in pixels"
        )
    return shape


def _check_places(points: DetectionTable, shape: tuple[int, ...]) -> None:
    """Each point needs a pixel of its own."""
    for t in range(points.n_frames):
        cells = points.detections(t)
        pixel = np.rint(cells.position).astype(np.int64)
        outside = np.any((pixel < 0) | (pixel >= shape), axis=1)
        if outside.any():
            at = int(np.argmax(outside))
            place = ", ".join(f"{value:g}" for value in cells.position[at])
            raise InputError(
                f"{points.name}: label {cells.label[at]} of frame {t} is at ({place}), outside of frames of shape "
                f"{shape}; expected positions in pixels, counted from 0"
            )
        _, first, which = np.unique(
            pixel, axis=0, return_index=True, return_inverse=True
        )
        again = first[which.ravel()] != np.arange(len(pixel))
        if again.any():
            at = int(np.argmax(again))
            other = cells.label[first[which.ravel()[at]]]
            raise InputError(
                f"{points.name}: labels {other} and {cells.label[at]} of frame {t} are at the same pixel; expected "
                "points that are at least a pixel apart"
            )
