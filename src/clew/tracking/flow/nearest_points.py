"""Nearest-neighbor queries: a sweep for few points, a k-d tree for many.

Registration runs several hundred queries on each frame pair. Among some hundred cells,
building a tree takes longer than everything else. The sweep visits points on both sides
of the query along the first axis, until that axis alone rules out a nearer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices

MAX_SWEEP_POINTS = 1_000
"""In the plane and in space, a tree is faster from about 2,000 points on."""


@dataclass(frozen=True, slots=True)
class NearestPoints:
    """Points prepared for nearest-neighbor queries."""

    points: Array
    """(m, k) at least one point."""
    order: Indices
    """(m,) rows of the points, ascending along the first axis; empty with a tree."""
    tree: cKDTree | None

    @classmethod
    def from_points(cls, points: Array) -> Self:
        """Prepare points of shape (m, k)."""
        if len(points) > MAX_SWEEP_POINTS:
            return cls(points, np.zeros(0, np.intp), cKDTree(points))
        return cls(points, np.argsort(points[:, 0], kind="stable"), None)

    def query(self, x: Array) -> tuple[Array, Indices]:
        """Find the nearest point of each query.

        Parameters
        ----------
        x : ndarray of shape (n, k)

        Returns
        -------
        distance : ndarray of shape (n,)
        row : ndarray of shape (n,)
        """
        if self.tree is not None:
            distance, row = self.tree.query(x)
            return distance, row.astype(np.intp)
        ordered = self.points[self.order]
        start = np.searchsorted(ordered[:, 0], x[:, 0])
        distance, place = _sweep_nearest(np.ascontiguousarray(x), ordered, start)
        return distance, self.order[place]

    def query_mutual(self, x: Array) -> Indices:
        """Find the points that are mutual nearest neighbors of the queries.

        Parameters
        ----------
        x : ndarray of shape (n, k)

        Returns
        -------
        row : ndarray of shape (n,)
            -1 for queries whose nearest point is nearer to another query.
        """
        _, forward = self.query(x)
        _, backward = NearestPoints.from_points(x).query(self.points)
        return np.where(backward[forward] == np.arange(len(x)), forward, -1)


def find_mutual_nearest(x: Array, y: Array) -> tuple[Indices, Indices]:
    """Link points of two sets that are each other's nearest.

    Parameters
    ----------
    x : ndarray of shape (n, k)
    y : ndarray of shape (m, k)

    Returns
    -------
    rows_x, rows_y : ndarray of shape (n_links,)
    """
    if not len(x) or not len(y):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    partner = NearestPoints.from_points(y).query_mutual(x)
    rows = np.flatnonzero(partner >= 0)
    return rows, partner[rows]


def measure_spacing(x: Array) -> float:
    """Measure the median distance of a point to its nearest neighbor.

    Parameters
    ----------
    x : ndarray of shape (n, k)

    Returns
    -------
    float
        1 for fewer than two points, and if most have another one in the same place.
    """
    if len(x) < 2:
        return 1.0
    distance, _ = cKDTree(x).query(x, k=[2])
    return float(np.median(distance)) or 1.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sweep_nearest(
    x: Array, points: Array, start: Indices
) -> tuple[Array, Indices]:  # pragma: no cover  # compiled
    """Find distance and row of the nearest of points sorted along the first axis.

    `start` (n,) is where each query belongs among them.
    """
    n = len(points)
    distance = np.empty(len(x))
    row = np.empty(len(x), np.intp)
    for i in range(len(x)):
        right = start[i]
        left = right - 1
        nearest = -1
        least = np.inf
        while left >= 0 or right < n:
            to_right = points[right, 0] - x[i, 0] if right < n else np.inf
            to_left = x[i, 0] - points[left, 0] if left >= 0 else np.inf
            if min(to_right, to_left) ** 2 >= least:
                break
            if to_right <= to_left:
                j = right
                right += 1
            else:
                j = left
                left -= 1
            square = 0.0
            for d in range(x.shape[1]):
                square += (x[i, d] - points[j, d]) ** 2
            if square < least:
                nearest = j
                least = square
        distance[i] = np.sqrt(least)
        row[i] = nearest
    return distance, row
