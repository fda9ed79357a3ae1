"""Compiled kernels of the block-coordinate Frank–Wolfe method.

The bounds of each group form a linked list. A visit to a group reads and changes only
the bounds in its list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.gram import pairwise_steps
from clew.learning.task import Array, Indices
from clew.utils.kernels import inlined_kernel, inner_kernel, kernel


class Bounds(NamedTuple):
    """Arrays of the bounds for compiled code, with spare capacity."""

    data: Array
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    """Bound k has the columns `indices[indptr[k]:indptr[k+1]]`."""
    offsets: Array
    alpha: Array
    """Dual weights, on the simplex in each group."""
    group: NDArray[np.int64]
    following: NDArray[np.int64]
    """Next bound of the same group; −1 at the end."""
    head: NDArray[np.int64]
    """(G,) first bound of each group; −1 if it has none."""
    sizes: NDArray[np.int64]
    """(G,) number of bounds in each group."""
    products: Array
    """⟨a_i, a_j⟩ of group g at start[g] + i·room[g] + j; the oldest bound has i = 0."""
    start: NDArray[np.int64]
    room: NDArray[np.int64]
    """(G,) capacity of each group's block of inner products."""


class Scratch(NamedTuple):
    """Buffers of a visit to a group, ordered from its oldest bound to its newest.

    They hold the rows of its bounds, their values at w and the changes of α.
    """

    rows: NDArray[np.int64]
    score: Array
    moved: Array


def make_scratch(b: Bounds, groups: Indices) -> Scratch:
    """Allocate buffers for the largest of these groups and one more bound."""
    largest = int(b.sizes[groups].max(initial=0)) + 1
    return Scratch(np.empty(largest, np.int64), np.empty(largest), np.zeros(largest))


@inlined_kernel
def multiply_bound(b: Bounds, g: int, k: int, place: int, dense: Array) -> None:
    """Compute the inner products of bound k with the earlier bounds of group g.

    Bound k is at position `place` of its group; `dense` (d,) is scratch and stays zero.
    """
    data = b.data
    indices = b.indices
    indptr = b.indptr
    products = b.products
    for p in range(indptr[k], indptr[k + 1]):
        dense[indices[p]] = data[p]
    origin = b.start[g]
    room = b.room[g]
    other = k
    for i in range(place, -1, -1):
        product = 0.0
        for p in range(indptr[other], indptr[other + 1]):
            product += data[p] * dense[indices[p]]
        products[origin + place * room + i] = product
        products[origin + i * room + place] = product
        other = b.following[other]
    for p in range(indptr[k], indptr[k + 1]):
        dense[indices[p]] = 0.0


@inner_kernel
def score_group(b: Bounds, g: int, w: Array, scratch: Scratch) -> float:
    """Write the rows of a group's bounds and their values at w to the scratch.

    Returns
    -------
    best : float
        The highest value.
    """
    data = b.data
    indices = b.indices
    indptr = b.indptr
    rows = scratch.rows
    score = scratch.score
    k = b.head[g]
    best = -np.inf
    for i in range(b.sizes[g] - 1, -1, -1):
        value = b.offsets[k]
        for p in range(indptr[k], indptr[k + 1]):
            value += data[p] * w[indices[p]]
        rows[i] = k
        score[i] = value
        best = max(best, value)
        k = b.following[k]
    return best


@inner_kernel
def link_if_higher(
    b: Bounds, g: int, k: int, w: Array, dense: Array, scratch: Scratch
) -> bool:
    """Link the new bound k into group g if it is above the group's other bounds at w.

    The bound is already written at the end, and its group's block of inner products has
    capacity for it. A linked bound is the last one in the scratch.

    Returns
    -------
    linked : bool
    """
    best = score_group(b, g, w, scratch)
    value = b.offsets[k]
    for p in range(b.indptr[k], b.indptr[k + 1]):
        value += b.data[p] * w[b.indices[p]]
    if not value > best + 1e-12 * (1.0 + abs(value)):
        return False
    size = b.sizes[g]
    b.alpha[k] = 0.0
    b.group[k] = g
    b.following[k] = b.head[g]
    b.head[g] = k
    multiply_bound(b, g, k, size, dense)
    scratch.rows[size] = k
    scratch.score[size] = value
    b.sizes[g] = size + 1
    return True


@kernel
def append_rows(
    b: Bounds,
    n_rows: int,
    data: Array,
    indices: NDArray[np.uint32],
    indptr: Indices,
    offsets: Array,
    groups: Indices,
    w: Array,
    dense: Array,
    scratch: Scratch,
) -> int:
    """Write rows at the end; link those above their group's other bounds at w.

    Returns
    -------
    n_rows : int
        Number of bounds afterwards.
    """
    for i in range(len(groups)):
        end = b.indptr[n_rows]
        for p in range(indptr[i], indptr[i + 1]):
            b.data[end] = data[p]
            b.indices[end] = indices[p]
            end += 1
        b.indptr[n_rows + 1] = end
        b.offsets[n_rows] = offsets[i]
        n_rows += link_if_higher(b, groups[i], n_rows, w, dense, scratch)
    return n_rows


@inner_kernel
def improve_group(
    b: Bounds, g: int, w: Array, lam: float, max_steps: int, scratch: Scratch
) -> float:
    """Take pairwise steps on a group whose values at w are in the scratch.

    The inner products give the values after a step, so that w moves once for all steps.

    Returns
    -------
    gap : float
        The group's gap before the steps.
    """
    size = b.sizes[g]
    rows = scratch.rows
    score = scratch.score
    moved = scratch.moved
    alpha = b.alpha
    best = -np.inf
    mean = 0.0
    for i in range(size):
        best = max(best, score[i])
        mean += alpha[rows[i]] * score[i]
    gap = max(best - mean, 0.0) if size else 0.0
    tol = max(0.1 * gap, 1e-14 * abs(best))
    pairwise_steps(
        score,
        moved,
        alpha,
        rows,
        size,
        b.products,
        b.start[g],
        b.room[g],
        lam,
        tol,
        max_steps,
    )
    for i in range(size):
        if moved[i] != 0.0:
            move = moved[i] / lam
            k = rows[i]
            for p in range(b.indptr[k], b.indptr[k + 1]):
                w[b.indices[p]] -= move * b.data[p]
            moved[i] = 0.0
    return gap


@kernel
def sweep_groups(
    b: Bounds,
    orders: Indices,
    w: Array,
    lam: float,
    max_steps: int,
    gaps: Array,
    far: float,
    precision: float,
    max_sweeps: int,
    scratch: Scratch,
) -> None:
    """Take pairwise steps on groups, sweep after sweep, in each order in turn.

    Parameters
    ----------
    orders : ndarray of shape (n_orders, n_groups)
    gaps : ndarray of shape (n_groups,)
        Receives the gap of each visited group before its steps.
    far : float
        A sweep visits the groups with a gap above this share of the mean; all if 0.
    precision : float
        Stop when the groups' gaps add up to at most this.
    max_sweeps : int
    """
    for sweep in range(max_sweeps):
        groups = orders[sweep % len(orders)]
        total = 0.0
        for g in groups:
            total += gaps[g]
        if total <= precision:
            return
        threshold = far * total / len(groups) if far > 0.0 else -1.0
        for g in groups:
            if gaps[g] > threshold:
                score_group(b, g, w, scratch)
                gaps[g] = improve_group(b, g, w, lam, max_steps, scratch)
