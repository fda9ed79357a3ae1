"""Which of its possible displacements each cell took, if neighbours move alike: a Markov random field over the cells.

Each cell has a few labels, the displacements that would bring it onto cells of the next frame. A labelling costs

    E(ℓ) = Σ_i θ_i(ℓ_i) + Σ_(i,j) min(τ, ω_ij ‖u_i(ℓ_i) − u_j(ℓ_j)‖²),

the last sum over neighbouring cells: a truncated quadratic, so that a cell that goes its own way, or has left, does not
bend the others. It is minimised by **sequential tree-reweighted message passing** (TRW-S, Kolmogorov 2006), which is
exact on trees and close to the optimum on graphs like these.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numba import njit

from clew.learning.task import Array, Indices

ASKEW = np.array([1.0, 0.41421356, 0.31783725])
"""A direction along which no two pixels lie equally far. It decides what two cells that are exactly as near would leave
to rounding, or to how cells are numbered: masks of a few pixels have many such ties."""
SAME = 1e-9
"""Relative difference below which two distances are one."""


class Neighbours(NamedTuple):
    """A graph of points: the edges of each, one after the other, every edge in both directions."""

    begin: Indices
    """(n + 1,) the edges of point i are those from `begin[i]` to `begin[i + 1]`."""
    end: Indices
    """(m,) the point to which an edge leads."""
    reverse: Indices
    """(m,) the same edge in the other direction."""
    distance: Array
    """(m,) between its points."""
    order: Indices
    """(n,) the points from one end to the other, as messages pass."""

    @classmethod
    def of(cls, x: Array, distance: Array, near: Indices, k: int) -> Self:
        """Points (n, ndim), each joined to the k nearest others, all that are as near, and those to which it is so.

        `near` (n, m) are the nearest of each, itself the first, at the `distance` (n, m), ascending.
        """
        n = len(x)
        from_, which = np.nonzero(
            distance <= (1 + SAME) * distance[:, [min(k, distance.shape[1] - 1)]]
        )
        to = near[from_, which]
        pairs = np.unique(np.minimum(from_, to) * n + np.maximum(from_, to))
        low, high = pairs // n, pairs % n
        low, high = low[low < high], high[low < high]
        start, end = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort([end, start])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        reverse = place[np.roll(np.arange(len(order)), -len(low))[order]]
        start, end = start[order], end[order]
        distance = np.sqrt(((x[start] - x[end]) ** 2).sum(axis=1))
        return cls(
            np.searchsorted(start, np.arange(n + 1)),
            end,
            reverse,
            distance,
            _from_end_to_end(x),
        )


def _from_end_to_end(x: Array) -> Indices:
    """(n,) points (n, ndim) along a direction between their principal axes.

    What messages find depends a little on the order in which they pass. This one follows from the points alone, so that
    a frame that is turned or mirrored has the same flow. An axis points to where fewer of them are, farther off; where
    that is not clear, or axes are as long, those of the frame are taken.
    """
    offset = x - x.mean(axis=0)
    square, axes = np.linalg.eigh(offset.T @ offset)
    along = offset @ axes[:, ::-1]  # the longest first
    cubes = along**3
    clear = np.abs(cubes.sum(axis=0)) > SAME * np.abs(cubes).sum(axis=0)
    if clear.all() and (np.diff(square) > SAME * square[-1]).all():
        offset = along * np.sign(cubes.sum(axis=0))
    return np.argsort(offset @ ASKEW[: x.shape[1]], kind="stable")


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def labelled(
    unary: Array,
    label: Array,
    graph: Neighbours,
    weight: Array,
    most: float,
    sweeps: int,
) -> Indices:  # pragma: no cover  # compiled
    """(n,) the label of each point by so many sweeps of TRW-S, there and back.

    `unary` (n, k) are θ; `label` (n, ndim, k) the displacements u; `weight` (m,) ω of each edge, and `most` is τ.
    """
    n, k = unary.shape
    begin, end, reverse = graph.begin, graph.end, graph.reverse
    message, share, rank = np.zeros((len(end), k)), np.empty(n), np.empty(n, np.intp)
    rank[graph.order] = np.arange(n)
    for i in range(n):
        later = 0
        for edge in range(begin[i], begin[i + 1]):
            later += rank[end[edge]] > rank[i]
        share[i] = 1 / max(later, begin[i + 1] - begin[i] - later, 1)
    total, rest, cost = np.empty(k), np.empty(k), np.empty(k)
    for sweep in range(2 * sweeps):
        there = sweep % 2 == 0
        for step in range(n):
            i = graph.order[step if there else n - 1 - step]
            _gather(total, unary, message, begin, reverse, i)
            for edge in range(begin[i], begin[i + 1]):
                if (rank[end[edge]] > rank[i]) == there:
                    for a in range(k):
                        rest[a] = share[i] * total[a] - message[reverse[edge], a]
                    _send(
                        message[edge],
                        cost,
                        rest,
                        label[i],
                        label[end[edge]],
                        weight[edge],
                        most,
                    )
    found = np.empty(n, np.intp)
    for i in range(n):
        _gather(total, unary, message, begin, reverse, i)
        found[i] = np.argmin(total)
    return found


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _gather(
    total: Array, unary: Array, message: Array, begin: Indices, reverse: Indices, i: int
) -> None:  # pragma: no cover  # compiled
    """The cost of each label of a point: its own, and all messages that reach it."""
    for a in range(len(total)):
        total[a] = unary[i, a]
    for edge in range(begin[i], begin[i + 1]):
        for a in range(len(total)):
            total[a] += message[reverse[edge], a]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _send(
    message: Array,
    cost: Array,
    rest: Array,
    here: Array,
    there: Array,
    weight: float,
    most: float,
) -> None:  # pragma: no cover  # compiled
    """The least cost with each label of the point at the other end; less the least of these, so that none grows."""
    k = len(rest)
    low = rest.min() + most
    for b in range(k):
        message[b] = low
    for a in range(k):
        # inner loops are over what lies side by side in memory, so that several are done at once
        cost[:] = rest[a]
        for d in range(len(here)):
            at = here[d, a]
            for b in range(k):
                cost[b] += weight * (at - there[d, b]) ** 2
        for b in range(k):
            message[b] = min(message[b], cost[b])
    least = message.min()
    for b in range(k):
        message[b] -= least
