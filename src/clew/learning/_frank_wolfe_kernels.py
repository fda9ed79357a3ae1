"""Bounds linked by group, as compiled code sees them: what a visit to one group reads and changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clew.learning.gram import pairwise_steps
from clew.learning.task import Array, Indices, Mask


class Bounds(NamedTuple):
    """The arrays, as compiled code sees them; those of the bounds have room at the end."""

    data: Array
    indices: NDArray[np.uint32]
    begins: NDArray[np.int64]
    """Bound k has the columns `indices[begins[k]:begins[k+1]]`."""
    offsets: Array
    alpha: Array
    """On the simplex in each group."""
    idle: NDArray[np.int64]
    """Passes since α was last positive."""
    tags: NDArray[np.int64]
    """What an oracle knows the output of a bound by; −1 where it does not."""
    group: NDArray[np.int64]
    following: NDArray[np.int64]
    """The next bound of the same group; −1 at the end."""
    head: NDArray[np.int64]
    """(G,) the first bound of each group; −1 where there is none."""
    sizes: NDArray[np.int64]
    """(G,) how many it has."""
    products: Array
    """Inner products: ⟨a_i, a_j⟩ of bounds i and j of group g, counted from the oldest, at start[g] + i·room[g] + j."""
    start: NDArray[np.int64]
    room: NDArray[np.int64]
    """(G,) for how many bounds of a group there is room among the products."""


class Scratch(NamedTuple):
    """What a visit to a group writes: the rows of its bounds from the oldest on, their values at w, changes of α."""

    rows: NDArray[np.int64]
    score: Array
    moved: Array


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def make_scratch(b: Bounds, groups: Indices) -> Scratch:
    """Large enough for each of these groups and one bound more."""
    largest = 1
    for g in groups:
        largest = max(largest, b.sizes[g] + 1)
    return Scratch(np.empty(largest, np.int64), np.empty(largest), np.zeros(largest))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def combine(
    data: Array,
    indices: Indices,
    begins: Indices,
    weights: Array,
    n_rows: int,
    out: Array,
) -> None:
    """Add Σ_k weights_k · row_k to out (d,)."""
    for k in range(n_rows):
        if weights[k] != 0.0:
            for p in range(begins[k], begins[k + 1]):
                out[indices[p]] += weights[k] * data[p]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def link(b: Bounds, n_rows: int) -> None:
    """The lists of the groups, anew; the newest bound first."""
    b.head[:] = -1
    b.sizes[:] = 0
    for k in range(n_rows):
        g = b.group[k]
        b.following[k] = b.head[g]
        b.head[g] = k
        b.sizes[g] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def compact(b: Bounds, mask: Mask, n_rows: int) -> int:
    """Move the bounds in the mask to the front, in place; returns how many there are. `link` must follow."""
    _compact_products(b, mask)
    kept = 0
    end = b.begins[0]
    for k in range(n_rows):
        first = b.begins[k]
        last = b.begins[k + 1]
        if not mask[k]:
            continue
        for p in range(first, last):
            b.data[end + p - first] = b.data[p]
            b.indices[end + p - first] = b.indices[p]
        b.offsets[kept], b.alpha[kept] = b.offsets[k], b.alpha[k]
        b.idle[kept], b.tags[kept], b.group[kept] = b.idle[k], b.tags[k], b.group[k]
        b.begins[kept] = (
            end  # kept ≤ k, so that the begins that are still to be read stay
        )
        end += last - first
        kept += 1
    b.begins[kept] = end
    return kept


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _compact_products(b: Bounds, mask: Mask) -> None:
    """Move the inner products of the bounds in the mask to the front of their groups' blocks, in place."""
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
        for i in range(kept):  # what is read lies at or behind what is written
            for j in range(kept):
                there = b.start[g] + chosen[i] * b.room[g] + chosen[j]
                b.products[b.start[g] + i * b.room[g] + j] = b.products[there]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def copy_products(b: Bounds, products: Array, start: Indices, room: Indices) -> None:
    """Write the inner products into blocks of other sizes."""
    for g in range(len(b.head)):
        for i in range(b.sizes[g]):
            for j in range(b.sizes[g]):
                products[start[g] + i * room[g] + j] = b.products[
                    b.start[g] + i * b.room[g] + j
                ]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def multiply(b: Bounds, g: int, k: int, place: int, dense: Array) -> None:
    """The inner products of bound k, at this place of group g, with the bounds before it; `dense` (d,) is scratch."""
    for p in range(b.begins[k], b.begins[k + 1]):
        dense[b.indices[p]] = b.data[p]
    origin = b.start[g]
    room = b.room[g]
    other = k
    for i in range(place, -1, -1):
        product = 0.0
        for p in range(b.begins[other], b.begins[other + 1]):
            product += b.data[p] * dense[b.indices[p]]
        b.products[origin + place * room + i] = product
        b.products[origin + i * room + place] = product
        other = b.following[other]
    for p in range(b.begins[k], b.begins[k + 1]):
        dense[b.indices[p]] = 0.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def multiply_all(b: Bounds, groups: Indices, dense: Array) -> None:
    """All inner products of these groups, anew."""
    for g in groups:
        k = b.head[g]
        for place in range(b.sizes[g] - 1, -1, -1):
            multiply(b, g, k, place, dense)
            k = b.following[k]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def bound_value(b: Bounds, k: int, w: Array) -> float:
    """Bound k at w, relative to its group's base."""
    total = 0.0
    for p in range(b.begins[k], b.begins[k + 1]):
        total += b.data[p] * w[b.indices[p]]
    return total + float(b.offsets[k])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def score_group(b: Bounds, g: int, w: Array, scratch: Scratch) -> float:
    """The rows of a group's bounds and their values at w, into the scratch; returns the highest."""
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
    """Score group g and add bound k, written at the end, if it is above all others at w; says whether it was.

    There is room for it among the group's inner products; the scratch has it as the last one then.
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
    multiply(b, g, k, b.sizes[g], dense)
    scratch.rows[b.sizes[g]] = k
    scratch.score[b.sizes[g]] = value
    b.sizes[g] += 1
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def append(
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
    """Write rows at the end and link those that are above their group's other bounds at w."""
    scratch = make_scratch(b, groups)
    for i in range(len(groups)):
        begin = b.begins[n_rows]
        size = indptr[i + 1] - indptr[i]
        for p in range(size):
            b.data[begin + p] = data[indptr[i] + p]
            b.indices[begin + p] = indices[indptr[i] + p]
        b.begins[n_rows + 1] = begin + size
        b.offsets[n_rows] = offsets[i]
        n_rows += link_if_higher(b, groups[i], n_rows, w, -1, dense, scratch)
    return n_rows


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def improve_group(
    b: Bounds, g: int, w: Array, lam: float, max_steps: int, scratch: Scratch
) -> float:
    """Pairwise steps on a group whose values at w are in the scratch; α and w move, returns the gap before.

    The inner products tell the values after a step, so that w moves once for all steps.
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
            for p in range(b.begins[k], b.begins[k + 1]):
                w[b.indices[p]] -= move * b.data[p]
            moved[i] = 0.0
    return gap


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def visit_groups(
    b: Bounds, groups: Indices, w: Array, lam: float, max_steps: int, gaps: Array
) -> None:
    """Pairwise steps on groups in turn; `gaps` (G,) has what each was before."""
    scratch = make_scratch(b, groups)
    for g in groups:
        score_group(b, g, w, scratch)
        gaps[g] = improve_group(b, g, w, lam, max_steps, scratch)
