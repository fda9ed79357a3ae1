"""A Markov random field over the cells of a frame, solved by TRW-S.

Each cell has a few labels: displacements that would bring it onto cells of the next
frame. A labeling costs

    E(ℓ) = Σ_i θ_i(ℓ_i) + Σ_(i,j) min(τ, ω_ij ‖u_i(ℓ_i) − u_j(ℓ_j)‖²),

the second sum over neighboring cells. The truncated quadratic keeps a cell that moves
independently, or has left, from bending the others. E is minimized by **sequential
tree-reweighted message passing** (TRW-S; Kolmogorov 2006), which is exact on trees and
close to the optimum on graphs like these.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numba import njit

from clew.learning.task import Array, Indices

SKEW_DIRECTION = np.array([1.0, 0.41421356, 0.31783725])
"""A direction along which no two pixels are equally far. It breaks ties that rounding
or the numbering of cells would decide otherwise; masks of few pixels have many ties."""
RELATIVE_TOLERANCE = 1e-9
"""Relative difference below which two distances count as equal."""


class NeighborGraph(NamedTuple):
    """An undirected graph of points; each edge is stored in both directions."""

    indptr: Indices
    """(n + 1,) the edges of point i are `indptr[i]` to `indptr[i + 1]`."""
    end: Indices
    """(m,) the point that an edge leads to."""
    reverse: Indices
    """(m,) the same edge in the other direction."""
    distance: Array
    """(m,) between the points of an edge."""
    order: Indices
    """(n,) the order in which messages pass."""

    @classmethod
    def from_nearest(cls, x: Array, distance: Array, nearest: Indices, k: int) -> Self:
        """Connect each point to its k nearest neighbors, ties included.

        Parameters
        ----------
        x : ndarray of shape (n, ndim)
        distance, nearest : ndarray of shape (n, m)
            Distances to and rows of the nearest points, ascending; the point itself is
            the first.
        k : int
        """
        n = len(x)
        limit = distance[:, [min(k, distance.shape[1] - 1)]]
        point, place = np.nonzero(distance <= (1 + RELATIVE_TOLERANCE) * limit)
        other = nearest[point, place]
        pairs = np.unique(np.minimum(point, other) * n + np.maximum(point, other))
        low = pairs // n
        high = pairs % n
        differ = low < high
        low = low[differ]
        high = high[differ]
        start = np.concatenate([low, high])
        end = np.concatenate([high, low])
        order = np.lexsort([end, start])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        # edge k + len(low) is edge k in the other direction
        reverse = place[np.roll(np.arange(len(order)), -len(low))[order]]
        start = start[order]
        end = end[order]
        return cls(
            np.searchsorted(start, np.arange(n + 1)),
            end,
            reverse,
            np.linalg.norm(x[start] - x[end], axis=1),
            _order_along_axes(x),
        )


def _order_along_axes(x: Array) -> Indices:
    """Order points along a direction between their principal axes.

    The result of message passing depends a little on the order. This one follows from
    the points alone, so that a rotated or mirrored frame has the same flow. An axis
    points to where fewer points lie, farther away. If that is not clear, or axes are
    equally long, those of the frame are used.
    """
    offset = x - x.mean(axis=0)
    variance, axes = np.linalg.eigh(offset.T @ offset)
    along = offset @ axes[:, ::-1]  # the longest first
    skewness = (along**3).sum(axis=0)
    magnitude = np.abs(along**3).sum(axis=0)
    has_sign = np.abs(skewness) > RELATIVE_TOLERANCE * magnitude
    differ = np.diff(variance) > RELATIVE_TOLERANCE * variance[-1]
    if has_sign.all() and differ.all():
        offset = along * np.sign(skewness)
    return np.argsort(offset @ SKEW_DIRECTION[: x.shape[1]], kind="stable")


def solve_mrf(
    unary: Array,
    displacement: Array,
    graph: NeighborGraph,
    weight: Array,
    truncation: float,
    n_sweeps: int,
) -> Indices:
    """Choose a label for each point by TRW-S.

    Parameters
    ----------
    unary : ndarray of shape (n, k)
        θ, the cost of each label.
    displacement : ndarray of shape (n, ndim, k)
        u, the displacement of each label.
    graph : NeighborGraph
    weight : ndarray of shape (m,)
        ω of each edge.
    truncation : float
        τ, the largest cost of an edge.
    n_sweeps : int
        Forward and backward sweeps.

    Returns
    -------
    label : ndarray of shape (n,)
    """
    n = len(unary)
    degree = np.diff(graph.indptr)
    rank = np.empty(n, np.intp)
    rank[graph.order] = np.arange(n)
    start = np.repeat(np.arange(n), degree)
    is_forward = rank[graph.end] > rank[start]
    n_forward = np.bincount(start[is_forward], minlength=n)
    share = 1 / np.maximum(np.maximum(n_forward, degree - n_forward), 1)
    cost: Array = _pass_messages(
        unary,
        np.ascontiguousarray(displacement),
        graph,
        is_forward,
        share,
        weight,
        truncation,
        n_sweeps,
    )
    label: Indices = np.argmin(cost, axis=1)
    return label


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pass_messages(
    unary: Array,
    displacement: Array,
    graph: NeighborGraph,
    is_forward: Array,
    share: Array,
    weight: Array,
    truncation: float,
    n_sweeps: int,
) -> Array:  # pragma: no cover  # compiled
    """Compute (n, k) the cost of each label with all messages after the last sweep."""
    n, k = unary.shape
    message = np.zeros((len(weight), k))
    belief = np.empty((n, k))
    rest = np.empty(k)
    cost = np.empty(k)
    for sweep in range(2 * n_sweeps + 1):
        forward = sweep % 2 == 0
        for step in range(n):
            i = graph.order[step if forward else n - 1 - step]
            first = graph.indptr[i]
            last = graph.indptr[i + 1]
            for a in range(k):
                belief[i, a] = unary[i, a]
            for edge in range(first, last):
                for a in range(k):
                    belief[i, a] += message[graph.reverse[edge], a]
            if sweep == 2 * n_sweeps:
                continue
            for edge in range(first, last):
                if is_forward[edge] != forward:
                    continue
                for a in range(k):
                    incoming = message[graph.reverse[edge], a]
                    rest[a] = share[i] * belief[i, a] - incoming
                _send_message(
                    message[edge],
                    cost,
                    rest,
                    displacement[i],
                    displacement[graph.end[edge]],
                    weight[edge],
                    truncation,
                )
    return belief


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _send_message(
    message: Array,
    cost: Array,
    rest: Array,
    source: Array,
    target: Array,
    weight: float,
    truncation: float,
) -> None:  # pragma: no cover  # compiled
    """Write the least cost with each label of the edge's end, less the smallest one."""
    k = len(rest)
    least = np.inf
    for a in range(k):
        least = min(least, rest[a])
    for b in range(k):
        message[b] = least + truncation
    for a in range(k):
        # inner loops run over contiguous memory, so that they are vectorized
        for b in range(k):
            cost[b] = rest[a]
        for d in range(len(source)):
            for b in range(k):
                cost[b] += weight * (source[d, a] - target[d, b]) ** 2
        for b in range(k):
            message[b] = min(message[b], cost[b])
    least = np.inf
    for b in range(k):
        least = min(least, message[b])
    for b in range(k):
        message[b] -= least
