"""Outlines and brightness of simulated cells.

A body is a spine of three points with a radius at each. A disc has a spine of length
zero, a rod a straight spine with equal radii, a spindle a bent one with thin ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clew.simulation.rows import Array, Rows

kernel = njit(cache=True, nogil=True)


@dataclass
class Bodies(Rows):
    """n bodies in d dimensions, ((z,) y, x)."""

    spine: Array
    """(n, 3, d)"""
    radius: Array
    """(n, 3) at the points of the spine"""
    level: Array
    """(n,) signal relative to the background; negative for dark cells"""
    halo: Array
    """(n,) signal of the halo around the outline"""
    inset: Array
    """(n,) distance from the outline to the edge of the light, inwards"""
    texture: Array
    """(n, 3) offset in the common texture"""

    @property
    def axis(self) -> Array:
        """Unit vectors from end to end, (n, d); the first axis for discs."""
        along: Array = self.spine[:, 2] - self.spine[:, 0]
        length = np.sqrt((along**2).sum(axis=1, keepdims=True))
        unit: Array = np.where(
            length > 1e-9, along / np.maximum(length, 1e-9), np.eye(along.shape[1])[0]
        )
        return unit


def make_bodies(
    cells: Any,
    spine: Array,
    radius: Array,
    level: Array,
    halo: Array | float = 0.0,
    inset: Array | float = 0.0,
) -> Bodies:
    """Make the outlines of cells that have a texture; `radius` is (n,) or (n, 3)."""
    n = len(cells)
    return Bodies(
        cells.track,
        cells.mother,
        spine,
        np.broadcast_to(np.reshape(radius, (n, -1)), (n, 3)),
        level,
        np.broadcast_to(halo, n),
        np.broadcast_to(inset, n),
        cells.texture,
    )


def make_spine(position: Array, half: Array, aside: Array | float = 0.0) -> Array:
    """Return spines (n, 3, d) about positions: half the way to the end, and a bend."""
    return np.stack(
        [
            position - half - aside / 2,
            position + aside / 2,
            position + half - aside / 2,
        ],
        axis=1,
    )


@dataclass(frozen=True)
class BodyView:
    """The pixels of n bodies in one frame."""

    owner: NDArray[np.int32]
    """(z, y, x) row + 1 of the body that owns a pixel; 0 far from all"""
    distance: NDArray[np.float32]
    """(z, y, x) distance from the owner's outline, positive inside"""
    kept: NDArray[np.int64]
    """(n,) number of pixels that each body owns inside its outline"""


def draw_bodies(
    bodies: Bodies, shape: tuple[int, ...], spacing: Array, reach: float
) -> BodyView:
    """Assign pixels up to `reach` from an outline to bodies; 2D has one slice."""
    owner = np.zeros(shape, np.int32)
    distance = np.full(shape, -np.inf, np.float32)
    flat = bodies.spine.shape[2] == 2
    spine = np.ascontiguousarray(
        np.pad(bodies.spine, ((0, 0), (0, 0), (1 if flat else 0, 0)))
    )
    _draw(spine, np.ascontiguousarray(bodies.radius), spacing, reach, owner, distance)
    inside = owner[distance >= 0]
    return BodyView(owner, distance, np.bincount(inside, minlength=len(bodies) + 1)[1:])


@kernel  # type: ignore[untyped-decorator]
def _draw(
    spine: Array,
    radius: Array,
    spacing: Array,
    reach: float,
    owner: NDArray[np.int32],
    distance: NDArray[np.float32],
) -> None:
    """Assign each pixel to the body in which it lies deepest."""
    first = np.empty(3, np.int64)
    last = np.empty(3, np.int64)
    for c in range(len(spine)):
        widest = radius[c].max() + reach
        for k in range(3):
            low = spine[c, :, k].min() - widest
            high = spine[c, :, k].max() + widest
            first[k] = max(0, math.ceil(low / spacing[k]))
            last[k] = min(owner.shape[k] - 1, math.floor(high / spacing[k]))
        for z in range(first[0], last[0] + 1):
            for y in range(first[1], last[1] + 1):
                for x in range(first[2], last[2] + 1):
                    deep = _depth_in_body(
                        spine[c],
                        radius[c],
                        z * spacing[0],
                        y * spacing[1],
                        x * spacing[2],
                    )
                    if deep > -reach and deep > distance[z, y, x]:
                        distance[z, y, x] = deep
                        owner[z, y, x] = c + 1


@kernel  # type: ignore[untyped-decorator]
def _depth_in_body(spine: Array, radius: Array, z: float, y: float, x: float) -> float:
    """Return the depth of a point in a body; negative outside."""
    deepest = -1e30
    for k in range(2):
        az, ay, ax = spine[k]
        bz = spine[k + 1, 0] - az
        by = spine[k + 1, 1] - ay
        bx = spine[k + 1, 2] - ax
        pz = z - az
        py = y - ay
        px = x - ax
        square = bz * bz + by * by + bx * bx
        t = (pz * bz + py * by + px * bx) / square if square > 1e-12 else 0.0
        t = min(max(t, 0.0), 1.0)
        away = math.sqrt((pz - t * bz) ** 2 + (py - t * by) ** 2 + (px - t * bx) ** 2)
        # a quadratic radius makes the outline smooth at the middle of the spine
        m = t if k == 0 else 1.0 - t
        width = radius[2 * k] + (radius[1] - radius[2 * k]) * m * (2.0 - m)
        deepest = max(deepest, width - away)
    return deepest
