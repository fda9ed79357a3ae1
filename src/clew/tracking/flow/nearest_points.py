"""The nearest of some points: by a sweep along the first axis where there are few, by a k-d tree where there are many.

Registration asks for them several hundred times in a frame pair. Among some hundred cells, building a tree takes longer
than everything else; a sweep looks at points left and right of the one in question until they are too far to the side
to be nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices

FEW = 1_000
"""Points up to which they are swept. Measured in the plane and in space, a tree is faster from some 2,000 on."""


@dataclass(frozen=True, slots=True)
class NearestPoints:
    """Points to look for the nearest of."""

    points: Array
    """(m, k), at least one"""
    order: Indices
    """(m,) their rows, ascending along the first axis; none where there is a tree."""
    tree: cKDTree | None

    @classmethod
    def of(cls, points: Array) -> Self:
        """For (m, k) points."""
        if len(points) > FEW:
            return cls(points, np.zeros(0, np.intp), cKDTree(points))
        points = np.ascontiguousarray(points, dtype=np.float64)
        return cls(points, np.argsort(points[:, 0], kind="stable"), None)

    def query(self, x: Array) -> tuple[Array, Indices]:
        """The distance and the row of the point that is nearest to each of `x`, (n, k)."""
        if self.tree is not None:
            distance, row = self.tree.query(x)
            return distance, row.astype(np.intp)
        found: tuple[Array, Indices] = _swept(
            np.ascontiguousarray(x), self.points, self.order
        )
        return found

    def mutual(self, x: Array) -> Indices:
        """(n,) the row of the point that each of `x`, (n, k), is nearest to and that is nearest to it; −1 for none."""
        if self.tree is None and len(x) <= FEW:
            found: Indices = _mutual(np.ascontiguousarray(x), self.points, self.order)
            return found
        ahead, back = self.query(x)[1], NearestPoints.of(x).query(self.points)[1]
        return np.where(back[ahead] == np.arange(len(x)), ahead, -1)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mutual(
    x: Array, points: Array, order: Indices
) -> Indices:  # pragma: no cover  # compiled
    """The same for few points."""
    ahead: Indices = _swept(x, points, order)[1]
    back = _swept(points, x, np.argsort(x[:, 0], kind="mergesort"))[1]
    for i in range(len(x)):
        if back[ahead[i]] != i:
            ahead[i] = -1
    return ahead


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _swept(
    x: Array, points: Array, order: Indices
) -> tuple[Array, Indices]:  # pragma: no cover  # compiled
    """Distance and row of the nearest; `order` has the points' rows, ascending along the first axis."""
    distance, row, n = np.empty(len(x)), np.empty(len(x), np.intp), len(order)
    for i in range(len(x)):
        right = _first_from(points, order, x[i, 0])
        left, nearest, least = right - 1, -1, np.inf
        while left >= 0 or right < n:
            # the side on which the next point is nearer along the axis
            ahead = points[order[right], 0] - x[i, 0] if right < n else np.inf
            behind = x[i, 0] - points[order[left], 0] if left >= 0 else np.inf
            if min(ahead, behind) ** 2 >= least:
                break
            if ahead <= behind:
                at, right = order[right], right + 1
            else:
                at, left = order[left], left - 1
            square = 0.0
            for d in range(x.shape[1]):
                square += (x[i, d] - points[at, d]) ** 2
            if square < least:
                nearest, least = at, square
        distance[i], row[i] = np.sqrt(least), nearest
    return distance, row


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _first_from(
    points: Array, order: Indices, place: float
) -> int:  # pragma: no cover  # compiled
    """Where in the order points begin that are not before a place along the first axis: by halving."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if points[order[middle], 0] < place:
            low = middle + 1
        else:
            high = middle
    return low
