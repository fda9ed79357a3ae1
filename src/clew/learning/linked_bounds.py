"""Bounds linked by group, as compiled code sees them: what a visit to one group reads and changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def combine(data: Array, indices: Indices, begins: Indices, weights: Array, n_rows: int, out: Array) -> None:
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
    """Move the bounds in the mask to the front, in place; returns how many there are."""
    kept = 0
    end = b.begins[0]
    for k in range(n_rows):
        first, last = b.begins[k], b.begins[k + 1]
        if not mask[k]:
            continue
        for p in range(first, last):
            b.data[end + p - first] = b.data[p]
            b.indices[end + p - first] = b.indices[p]
        b.offsets[kept], b.alpha[kept] = b.offsets[k], b.alpha[k]
        b.idle[kept], b.tags[kept], b.group[kept] = b.idle[k], b.tags[k], b.group[k]
        b.begins[kept] = end  # kept ≤ k, so that the begins that are still to be read stay
        end += last - first
        kept += 1
    b.begins[kept] = end
    return kept


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def bound_value(b: Bounds, k: int, w: Array) -> float:
    """Bound k at w, relative to its group's base."""
    total = 0.0
    for p in range(b.begins[k], b.begins[k + 1]):
        total += b.data[p] * w[b.indices[p]]
    return total + float(b.offsets[k])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def says_more(b: Bounds, g: int, k: int, w: Array) -> bool:
    """Whether bound k, written at the end but not linked, is above all bounds of group g at w."""
    value = bound_value(b, k, w)
    other = b.head[g]
    best = -np.inf
    while other >= 0:
        best = max(best, bound_value(b, other, w))
        other = b.following[other]
    return bool(value > best + 1e-12 * (1.0 + abs(value)))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def link_bound(b: Bounds, g: int, k: int, tag: int) -> None:
    """Add bound k, whose entries and offset are written, to group g, which has one already."""
    b.alpha[k] = 0.0
    b.idle[k] = 0
    b.tags[k] = tag
    b.group[k] = g
    b.following[k] = b.head[g]
    b.head[g] = k
    b.sizes[g] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def append(
    b: Bounds, n_rows: int, data: Array, indices: Indices, indptr: Indices, offsets: Array, groups: Indices, w: Array
) -> int:
    """Write rows at the end and link those that are above their group's other bounds at w."""
    for i in range(len(groups)):
        begin = b.begins[n_rows]
        size = indptr[i + 1] - indptr[i]
        for p in range(size):
            b.data[begin + p] = data[indptr[i] + p]
            b.indices[begin + p] = indices[indptr[i] + p]
        b.begins[n_rows + 1] = begin + size
        b.offsets[n_rows] = offsets[i]
        if says_more(b, groups[i], n_rows, w):
            link_bound(b, groups[i], n_rows, -1)
            n_rows += 1
    return n_rows


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def visit_group(
    b: Bounds, g: int, w: Array, lam: float, max_steps: int, dense: Array, which: Array, score: Array
) -> float:
    """Pairwise steps on one group: mass goes from the worst active bound to the best one; returns the gap before.

    A step along a_up − a_down changes the value of bound i by −length/λ · ⟨a_i, a_up − a_down⟩: one product for each
    bound gives all values after the step, and the curvature.
    """
    size = 0
    k = b.head[g]
    mean = 0.0
    while k >= 0:
        which[size] = k
        score[size] = bound_value(b, k, w)
        mean += b.alpha[k] * score[size]
        size += 1
        k = b.following[k]
    gap = 0.0
    for step in range(max_steps + 1):
        up, down = -1, -1
        for i in range(size):
            if up < 0 or score[i] > score[up]:
                up = i
            if b.alpha[which[i]] > 0.0 and (down < 0 or score[i] < score[down]):
                down = i
        if up < 0 or down < 0:
            return 0.0
        difference = score[up] - score[down]
        if step == 0:
            gap = max(score[up] - mean, 0.0)
        if step == max_steps or difference <= 0.1 * gap or difference <= 1e-14 * abs(score[up]):
            break
        one, other = which[up], which[down]
        for p in range(b.begins[one], b.begins[one + 1]):
            dense[b.indices[p]] += b.data[p]
        for p in range(b.begins[other], b.begins[other + 1]):
            dense[b.indices[p]] -= b.data[p]
        curvature = 0.0
        for p in range(b.begins[one], b.begins[one + 1]):
            curvature += b.data[p] * dense[b.indices[p]]
        for p in range(b.begins[other], b.begins[other + 1]):
            curvature -= b.data[p] * dense[b.indices[p]]
        length = b.alpha[other]
        if curvature > 0.0:
            length = min(length, lam * difference / curvature)
        b.alpha[one] += length
        b.alpha[other] = 0.0 if length >= b.alpha[other] else b.alpha[other] - length
        move = length / lam
        if step + 1 < max_steps:
            for i in range(size):
                product = 0.0
                for p in range(b.begins[which[i]], b.begins[which[i] + 1]):
                    product += b.data[p] * dense[b.indices[p]]
                score[i] -= move * product
        for k in (one, other):  # a column of both rows is moved once, and the scratch is zero again
            for p in range(b.begins[k], b.begins[k + 1]):
                w[b.indices[p]] -= move * dense[b.indices[p]]
                dense[b.indices[p]] = 0.0
    return gap


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def visit_groups(b: Bounds, groups: Indices, w: Array, lam: float, max_steps: int, dense: Array, gaps: Array) -> None:
    """Visit groups in turn; `gaps` (G,) has what each was before."""
    largest = 0
    for g in groups:
        largest = max(largest, b.sizes[g])
    which, score = np.empty(largest, np.int64), np.empty(largest)
    for g in groups:
        gaps[g] = visit_group(b, g, w, lam, max_steps, dense, which, score)
