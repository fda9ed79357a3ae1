"""Bodies: the outlines of simulated cells of any kind, and how bright they are.

A body is a spine of three points with a radius at each, between which the radius changes smoothly. A disc has a spine
of length zero, a rod a straight one with equal radii, a spindle a bent one that is thin at its ends. One kernel draws
them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """(n,) signal within, against the background; below 0 where the cell is darker"""
    halo: Array
    """(n,) signal just outside"""
    inset: Array
    """(n,) so far within its outline its light ends; below 0 where it shines beyond it"""
    texture: Array
    """(n, 3) where in the common texture it lies"""

    @property
    def axis(self) -> Array:
        """(n, d) from end to end, of length 1; along the first axis for discs."""
        along: Array = self.spine[:, 2] - self.spine[:, 0]
        length = np.sqrt((along**2).sum(axis=1, keepdims=True))
        unit: Array = np.where(
            length > 1e-9, along / np.maximum(length, 1e-9), np.eye(along.shape[1])[0]
        )
        return unit


@dataclass(frozen=True)
class BodyView:
    """One frame of n bodies."""

    owner: NDArray[np.int32]
    """(z, y, x) row of the body in which a pixel lies deepest, plus one; outside of all the nearest; 0 far away"""
    distance: NDArray[np.float32]
    """(z, y, x) from the owner's outline, above 0 within it"""
    kept: NDArray[np.int64]
    """(n,) pixels that a body owns within its outline"""


def draw_bodies(
    bodies: Bodies, shape: tuple[int, ...], spacing: Array, reach: float
) -> BodyView:
    """Draw bodies and their surroundings, as far as `reach`, onto (z, y, x) pixels; one slice in 2D."""
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
    """Give each pixel near a body to the one in which it lies deepest."""
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
    """How deep a point lies in a body: the radius where the spine is nearest, less the distance; below 0 outside."""
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
        # the outline is smooth in the middle of the spine: the radius falls with the square of the way from there
        m = t if k == 0 else 1.0 - t
        width = radius[2 * k] + (radius[1] - radius[2 * k]) * m * (2.0 - m)
        deepest = max(deepest, width - away)
    return deepest
