"""Compiled kernels of the block-coordinate Frank–Wolfe method.

The bounds of each group form a linked list. A visit to a group reads and changes only
the bounds in its list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clew.learning.gram import pairwise_steps
from clew.learning.task import Array, Indices, Mask


class Bounds(NamedTuple):
    """Arrays of the bounds for compiled code, with spare capacity."""

    data: Array
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    """Bound k has the columns `indices[indptr[k]:indptr[k+1]]`."""
    offsets: Array
    alpha: Array
    """Dual weights, on the simplex in each group."""
    idle: NDArray[np.int64]
    """Passes since α was last positive."""
    tags: NDArray[np.int64]
    """Identifier by which an oracle recognizes the output of a bound, or −1."""
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def make_scratch(b: Bounds, groups: Indices) -> Scratch:
    """Allocate buffers for the largest of these groups and one more bound."""
    largest = 1
    for g in groups:
        largest = max(largest, b.sizes[g] + 1)
    return Scratch(np.empty(largest, np.int64), np.empty(largest), np.zeros(largest))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_weighted_rows(
    data: Array,
    indices: Indices,
    indptr: Indices,
    weights: Array,
    n_rows: int,
    out: Array,
) -> None:
    """Add Σ_k weights_k · row_k to out (d,)."""
    for k in range(n_rows):
        if weights[k] != 0.0:
            for p in range(indptr[k], indptr[k + 1]):
                out[indices[p]] += weights[k] * data[p]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def link_bounds(b: Bounds, n_rows: int) -> None:
    """Rebuild the linked lists of the groups, the newest bound first."""
    b.head[:] = -1
    b.sizes[:] = 0
    for k in range(n_rows):
        g = b.group[k]
        b.following[k] = b.head[g]
        b.head[g] = k
        b.sizes[g] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def compact_bounds(b: Bounds, mask: Mask, n_rows: int) -> int:
    """Move the bounds in the mask to the front, in place; return their number.

    `link_bounds` must be called afterwards.
    """
    _compact_products(b, mask)
    kept = 0
    end = b.indptr[0]
    for k in range(n_rows):
        first = b.indptr[k]
        last = b.indptr[k + 1]
        if not mask[k]:
            continue
        for p in range(first, last):
            b.data[end + p - first] = b.data[p]
            b.indices[end + p - first] = b.indices[p]
        b.offsets[kept] = b.offsets[k]
        b.alpha[kept] = b.alpha[k]
        b.idle[kept] = b.idle[k]
        b.tags[kept] = b.tags[k]
        b.group[kept] = b.group[k]
        # kept ≤ k, so that this overwrites no start that is still needed
        b.indptr[kept] = end
        end += last - first
        kept += 1
    b.indptr[kept] = end
    return kept


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _compact_products(b: Bounds, mask: Mask) -> None:
    """Move the inner products of the bounds in the mask to the front, by group."""
    places = np.empty(max(1, b.sizes.max()), np.int64)
    for g in range(len(b.head)):
        size = b.sizes[g]
        kept = 0
        k = b.head[g]
        for place in range(size - 1, -1, -1):
            if mask[k]:
                kept += 1
                places[size - kept] = place
            k = b.following[k]
        if kept == size:
            continue
        chosen = places[size - kept : size]
        for i in range(kept):  # in place: reads never precede writes
            for j in range(kept):
                source = b.start[g] + chosen[i] * b.room[g] + chosen[j]
                b.products[b.start[g] + i * b.room[g] + j] = b.products[source]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def copy_products(b: Bounds, products: Array, start: Indices, room: Indices) -> None:
    """Copy the inner products into blocks of other sizes."""
    for g in range(len(b.head)):
        for i in range(b.sizes[g]):
            for j in range(b.sizes[g]):
                products[start[g] + i * room[g] + j] = b.products[
                    b.start[g] + i * b.room[g] + j
                ]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def multiply_bound(b: Bounds, g: int, k: int, place: int, dense: Array) -> None:
    """Compute the inner products of bound k with the earlier bounds of group g.

    Bound k is at position `place` of its group; `dense` (d,) is scratch and stays zero.
    """
    for p in range(b.indptr[k], b.indptr[k + 1]):
        dense[b.indices[p]] = b.data[p]
    origin = b.start[g]
    room = b.room[g]
    other = k
    for i in range(place, -1, -1):
        product = 0.0
        for p in range(b.indptr[other], b.indptr[other + 1]):
            product += b.data[p] * dense[b.indices[p]]
        b.products[origin + place * room + i] = product
        b.products[origin + i * room + place] = product
        other = b.following[other]
    for p in range(b.indptr[k], b.indptr[k + 1]):
        dense[b.indices[p]] = 0.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def multiply_groups(b: Bounds, groups: Indices, dense: Array) -> None:
    """Recompute all inner products of these groups."""
    for g in groups:
        k = b.head[g]
        for place in range(b.sizes[g] - 1, -1, -1):
            multiply_bound(b, g, k, place, dense)
            k = b.following[k]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def bound_value(b: Bounds, k: int, w: Array) -> float:
    """Return the value of bound k at w, relative to its group's base."""
    total = 0.0
    for p in range(b.indptr[k], b.indptr[k + 1]):
        total += b.data[p] * w[b.indices[p]]
    return total + float(b.offsets[k])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def score_group(b: Bounds, g: int, w: Array, scratch: Scratch) -> float:
    """Write the rows of a group's bounds and their values at w to the scratch.

    Returns
    -------
    best : float
        The highest value.
    """
    k = b.head[g]
    best = -np.inf
    for i in range(b.sizes[g] - 1, -1, -1):
        scratch.rows[i] = k
        scratch.score[i] = bound_value(b, k, w)
        best = max(best, scratch.score[i])
        k = b.following[k]
    return float(best)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def link_if_higher(
    b: Bounds, g: int, k: int, w: Array, tag: int, dense: Array, scratch: Scratch
) -> bool:
    """Link the new bound k into group g if it is above the group's other bounds at w.

    The bound is already written at the end, and its group's block of inner products has
    capacity for it. A linked bound is the last one in the scratch.

    Returns
    -------
    linked : bool
    """
    best = score_group(b, g, w, scratch)
    value = bound_value(b, k, w)
    if not value > best + 1e-12 * (1.0 + abs(value)):
        return False
    b.alpha[k] = 0.0
    b.idle[k] = 0
    b.tags[k] = tag
    b.group[k] = g
    b.following[k] = b.head[g]
    b.head[g] = k
    multiply_bound(b, g, k, b.sizes[g], dense)
    scratch.rows[b.sizes[g]] = k
    scratch.score[b.sizes[g]] = value
    b.sizes[g] += 1
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def append_rows(
    b: Bounds,
    n_rows: int,
    data: Array,
    indices: Indices,
    indptr: Indices,
    offsets: Array,
    groups: Indices,
    w: Array,
    dense: Array,
) -> int:
    """Write rows at the end; link those above their group's other bounds at w.

    Returns
    -------
    n_rows : int
        Number of bounds afterwards.
    """
    scratch = make_scratch(b, groups)
    for i in range(len(groups)):
        begin = b.indptr[n_rows]
        size = indptr[i + 1] - indptr[i]
        for p in range(size):
            b.data[begin + p] = data[indptr[i] + p]
            b.indices[begin + p] = indices[indptr[i] + p]
        b.indptr[n_rows + 1] = begin + size
        b.offsets[n_rows] = offsets[i]
        n_rows += link_if_higher(b, groups[i], n_rows, w, -1, dense, scratch)
    return n_rows


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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
    rows = scratch.rows[:size]
    score = scratch.score[:size]
    moved = scratch.moved[:size]
    best = -np.inf
    mean = 0.0
    for i in range(size):
        best = max(best, score[i])
        mean += b.alpha[rows[i]] * score[i]
    gap = max(best - mean, 0.0) if size else 0.0
    tol = max(0.1 * gap, 1e-14 * abs(best))
    pairwise_steps(
        score,
        moved,
        b.alpha,
        rows,
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def visit_groups(
    b: Bounds, groups: Indices, w: Array, lam: float, max_steps: int, gaps: Array
) -> None:
    """Take pairwise steps on groups in turn.

    `gaps` (n_groups,) receives the gap of each visited group before its steps.
    """
    scratch = make_scratch(b, groups)
    for g in groups:
        score_group(b, g, w, scratch)
        gaps[g] = improve_group(b, g, w, lam, max_steps, scratch)
