"""Compiled kernels of the bounds: storage by group, and pairwise Frank–Wolfe steps.

A visit to a group reads and changes only the bounds of that group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.utils.kernels import inlined_kernel, inner_kernel, kernel


class Bounds(NamedTuple):
    """Arrays of the bounds for compiled code, with spare capacity."""

    data: Array
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    """Bound k has the columns `indices[indptr[k]:indptr[k+1]]`."""
    offsets: Array
    alpha: Array
    """Dual weights."""
    group: NDArray[np.int64]
    idle: NDArray[np.int64]
    """Updates since alpha was last positive."""
    tags: NDArray[np.int64]
    """By which an oracle recognizes the output of each bound, or −1."""
    members: NDArray[np.int64]
    """Bounds of group g, the oldest first, at `first[g]`."""
    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """(G,) number of bounds in each group."""
    room: NDArray[np.int64]
    """(G,) capacity of each group."""
    products: Array
    """⟨a_i, a_j⟩ of group g at `start[g] + i·room[g] + j`; the oldest bound has i = 0."""
    start: NDArray[np.int64]


class Scratch(NamedTuple):
    """Values at w and changes of α for the bounds of the visited group."""

    score: Array
    moved: Array


def make_scratch(b: Bounds, groups: Indices) -> Scratch:
    """Allocate buffers for the largest of these groups and one more bound."""
    largest = int(b.sizes[groups].max(initial=0)) + 1
    return Scratch(np.empty(largest), np.zeros(largest))


@inlined_kernel
def multiply_bound(b: Bounds, g: int, position: int, dense: Array) -> None:
    """Compute the inner products of a bound with the earlier ones of group g.

    `position` is that in the group; `dense` (d,) is scratch and stays zero.
    """
    data = b.data
    indices = b.indices
    indptr = b.indptr
    products = b.products
    origin = b.start[g]
    room = b.room[g]
    k = b.members[b.first[g] + position]
    for p in range(indptr[k], indptr[k + 1]):
        dense[indices[p]] = data[p]
    for i in range(position + 1):
        other = b.members[b.first[g] + i]
        product = 0.0
        for p in range(indptr[other], indptr[other + 1]):
            product += data[p] * dense[indices[p]]
        products[origin + position * room + i] = product
        products[origin + i * room + position] = product
    for p in range(indptr[k], indptr[k + 1]):
        dense[indices[p]] = 0.0


@kernel
def multiply_bounds(b: Bounds, oldest: int, dense: Array) -> None:
    """Compute the inner products of the bounds from `oldest` on within their groups."""
    for g in range(len(b.sizes)):
        for i in range(b.sizes[g]):
            if b.members[b.first[g] + i] >= oldest:
                multiply_bound(b, g, i, dense)


@kernel
def copy_products(old: Bounds, new: Bounds) -> None:
    """Copy the inner products to groups of larger capacity."""
    for g in range(len(old.sizes)):
        for i in range(old.sizes[g]):
            source = old.start[g] + i * old.room[g]
            target = new.start[g] + i * new.room[g]
            for j in range(old.sizes[g]):
                new.products[target + j] = old.products[source + j]


@kernel
def keep_products(b: Bounds, mask: Mask) -> None:
    """Move the inner products of the bounds in the mask to the front of their group."""
    for g in range(len(b.sizes)):
        n_rows = 0
        for i in range(b.sizes[g]):
            if not mask[b.members[b.first[g] + i]]:
                continue
            source = b.start[g] + i * b.room[g]
            target = b.start[g] + n_rows * b.room[g]
            n_columns = 0
            for j in range(b.sizes[g]):
                if mask[b.members[b.first[g] + j]]:
                    b.products[target + n_columns] = b.products[source + j]
                    n_columns += 1
            n_rows += 1


@inner_kernel
def score_group(b: Bounds, g: int, w: Array, scratch: Scratch) -> float:
    """Write the values of a group's bounds at w to the scratch.

    Returns
    -------
    best : float
        The highest value.
    """
    data = b.data
    indices = b.indices
    indptr = b.indptr
    score = scratch.score
    best = -np.inf
    for i in range(b.sizes[g]):
        k = b.members[b.first[g] + i]
        value = b.offsets[k]
        for p in range(indptr[k], indptr[k + 1]):
            value += data[p] * w[indices[p]]
        score[i] = value
        best = max(best, value)
    return best


@inner_kernel
def link_if_higher(
    b: Bounds, g: int, k: int, w: Array, dense: Array, scratch: Scratch
) -> bool:
    """Add the new bound k to group g if it is above the group's other bounds at w.

    Its slope and offset are already written at the end, and the group has capacity for
    it. A bound that was added is the last one in the scratch.

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
    b.idle[k] = 0
    b.members[b.first[g] + size] = k
    multiply_bound(b, g, size, dense)
    scratch.score[size] = value
    b.sizes[g] = size + 1
    return True


@inner_kernel
def improve_group(
    b: Bounds, g: int, w: Array, lam: float, max_steps: int, scratch: Scratch
) -> float:
    """Take pairwise Frank–Wolfe steps on a group whose values at w are in the scratch.

    Each step moves dual weight from the lowest active bound to the highest bound. The
    inner products give the values after a step, so that w moves once for all steps.

    Returns
    -------
    gap : float
        The group's gap before the steps.
    """
    size = b.sizes[g]
    first = b.first[g]
    room = b.room[g]
    start = b.start[g]
    members = b.members
    products = b.products
    score = scratch.score
    moved = scratch.moved
    alpha = b.alpha
    best = -np.inf
    mean = 0.0
    for i in range(size):
        best = max(best, score[i])
        mean += alpha[members[first + i]] * score[i]
    gap = max(best - mean, 0.0) if size else 0.0
    tol = max(0.1 * gap, 1e-14 * abs(best))
    for _ in range(max_steps):
        up = -1
        down = -1
        for i in range(size):
            if up < 0 or score[i] > score[up]:
                up = i
            is_active = alpha[members[first + i]] > 0.0
            if is_active and (down < 0 or score[i] < score[down]):
                down = i
        if down < 0 or score[up] - score[down] <= tol:
            break
        up_row = start + up * room
        down_row = start + down * room
        curvature = products[up_row + up] + products[down_row + down]
        curvature -= 2.0 * products[up_row + down]
        highest = members[first + up]
        lowest = members[first + down]
        step = alpha[lowest]
        if curvature > 0.0:
            step = min(step, lam * (score[up] - score[down]) / curvature)
        alpha[highest] += step
        alpha[lowest] = 0.0 if step >= alpha[lowest] else alpha[lowest] - step
        moved[up] += step
        moved[down] -= step
        for i in range(size):
            change = products[up_row + i] - products[down_row + i]
            score[i] -= step / lam * change
    for i in range(size):
        if moved[i] != 0.0:
            move = moved[i] / lam
            k = members[first + i]
            for p in range(b.indptr[k], b.indptr[k + 1]):
                w[b.indices[p]] -= move * b.data[p]
            moved[i] = 0.0
    return gap


@kernel
def visit_groups(
    b: Bounds,
    groups: Indices,
    w: Array,
    lam: float,
    max_steps: int,
    gaps: Array,
    scratch: Scratch,
) -> None:
    """Take pairwise steps on these groups in turn; write their gaps before the steps."""
    for g in groups:
        score_group(b, g, w, scratch)
        gaps[g] = improve_group(b, g, w, lam, max_steps, scratch)


@kernel
def find_highest(
    b: Bounds, groups: Indices, w: Array, highest: Array, scratch: Scratch
) -> None:
    """Write the highest value at w of the bounds of each of these groups."""
    for i in range(len(groups)):
        highest[i] = score_group(b, groups[i], w, scratch)
