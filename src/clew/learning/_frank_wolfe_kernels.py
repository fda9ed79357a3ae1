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


kernel = njit(cache=True, nogil=True)
inner_kernel = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Called from kernels only, and compiled with them."""


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


def link_bounds(b: Bounds, n_rows: int) -> None:
    """Rebuild the linked lists of the groups, the newest bound first."""
    group = b.group[:n_rows]
    order = np.argsort(group, kind="stable")
    is_first = np.diff(group[order], prepend=-1) > 0
    b.following[order] = np.where(is_first, -1, np.roll(order, 1))
    b.head[:] = -1
    b.head[group] = np.arange(n_rows)
    b.sizes[:] = np.bincount(group, minlength=len(b.sizes))


def compact_bounds(b: Bounds, mask: Mask, n_rows: int) -> int:
    """Move the bounds in the mask to the front, in place; return their number.

    `link_bounds` must be called afterwards.
    """
    group = b.group[:n_rows]
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(b.sizes) - b.sizes
    place = np.arange(n_rows) - begins[group[order]]
    kept_group = group[mask]
    kept = len(kept_group)
    first = np.searchsorted(group[order][mask[order]], np.arange(len(b.sizes) + 1))
    move_products(
        b.products,
        b.start,
        b.room,
        place[mask[order]],
        first,
        b.products,
        b.start,
        b.room,
    )
    move_rows(b.data, b.indices, b.indptr, mask)
    for array in (b.offsets, b.alpha, b.idle, b.tags, b.group):
        array[:kept] = array[:n_rows][mask]
    return kept


def copy_products(b: Bounds, products: Array, start: Indices, room: Indices) -> None:
    """Copy the inner products into blocks of other sizes."""
    first = np.concatenate([[0], np.cumsum(b.sizes)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], b.sizes)
    move_products(b.products, b.start, b.room, place, first, products, start, room)


@kernel  # type: ignore[untyped-decorator]
def move_rows(
    data: Array, indices: Indices, indptr: NDArray[np.int64], mask: Mask
) -> None:
    """Move the rows in the mask to the front."""
    kept = 0
    end = indptr[0]
    first = indptr[0]
    for k in range(len(mask)):
        last = indptr[k + 1]
        if mask[k]:
            for p in range(first, last):
                data[end] = data[p]
                indices[end] = indices[p]
                end += 1
            kept += 1
            indptr[kept] = end  # kept ≤ k + 1, whose start has been read
        first = last


@kernel  # type: ignore[untyped-decorator]
def move_products(
    products: Array,
    start: NDArray[np.int64],
    room: NDArray[np.int64],
    place: Indices,
    first: Indices,
    out: Array,
    out_start: NDArray[np.int64],
    out_room: NDArray[np.int64],
) -> None:
    """Write the inner products of some bounds to the front of their group's block.

    ``place[first[g] : first[g + 1]]`` are their ascending positions in group g. They
    only move to the front, so that `out` may be `products`.
    """
    for g in range(len(start)):
        begin = first[g]
        for i in range(first[g + 1] - begin):
            source = start[g] + place[begin + i] * room[g]
            target = out_start[g] + i * out_room[g]
            for j in range(first[g + 1] - begin):
                out[target + j] = products[source + place[begin + j]]


@inner_kernel  # type: ignore[untyped-decorator]
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


@kernel  # type: ignore[untyped-decorator]
def multiply_groups(b: Bounds, groups: Indices, dense: Array) -> None:
    """Recompute all inner products of these groups."""
    for g in groups:
        k = b.head[g]
        for place in range(b.sizes[g] - 1, -1, -1):
            multiply_bound(b, g, k, place, dense)
            k = b.following[k]


@inner_kernel  # type: ignore[untyped-decorator]
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


@inner_kernel  # type: ignore[untyped-decorator]
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
    value = b.offsets[k]
    for p in range(b.indptr[k], b.indptr[k + 1]):
        value += b.data[p] * w[b.indices[p]]
    if not value > best + 1e-12 * (1.0 + abs(value)):
        return False
    size = b.sizes[g]
    b.alpha[k] = 0.0
    b.idle[k] = 0
    b.tags[k] = tag
    b.group[k] = g
    b.following[k] = b.head[g]
    b.head[g] = k
    multiply_bound(b, g, k, size, dense)
    scratch.rows[size] = k
    scratch.score[size] = value
    b.sizes[g] = size + 1
    return True


@kernel  # type: ignore[untyped-decorator]
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
        n_rows += link_if_higher(b, groups[i], n_rows, w, -1, dense, scratch)
    return n_rows


@inner_kernel  # type: ignore[untyped-decorator]
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


@kernel  # type: ignore[untyped-decorator]
def visit_groups(
    b: Bounds,
    groups: Indices,
    w: Array,
    lam: float,
    max_steps: int,
    gaps: Array,
    scratch: Scratch,
) -> None:
    """Take pairwise steps on groups in turn.

    `gaps` (n_groups,) receives the gap of each visited group before its steps.
    """
    for g in groups:
        score_group(b, g, w, scratch)
        gaps[g] = improve_group(b, g, w, lam, max_steps, scratch)
