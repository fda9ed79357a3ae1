"""Gram matrices of the bounds within each group, and pairwise Frank–Wolfe steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.sparse_rows import Rows
from clew.learning.task import Array, Indices, Mask
from clew.utils.kernels import inlined_kernel, kernel


class Gram(NamedTuple):
    """Inner products ⟨a_j, a_k⟩ within groups: `blocks[start[g] + j·size[g] + k]`.

    A group may have fewer bounds than `size`, which leaves capacity for more.
    """

    blocks: Array
    start: Indices
    size: Indices
    slot: Indices
    """(K,) position of each bound within its group's block."""

    def select(self, mask: Mask | Indices) -> Gram:
        """Restrict to the bounds in a mask, or to bounds in the given order."""
        return Gram(self.blocks, self.start, self.size, self.slot[mask])

    def relative_to(self, references: Indices) -> Gram:
        """Return ⟨a_j − a_r, a_k − a_r⟩ for one reference bound r per group.

        Parameters
        ----------
        references : ndarray of shape (n_groups,)
            Row of the reference bound; −1 for a group without bounds.
        """
        blocks = self.blocks.copy()
        slot = np.where(references >= 0, self.slot[np.maximum(references, 0)], -1)
        _shift_origin(self.blocks, blocks, self.start, self.size, slot)
        return Gram(blocks, self.start, self.size, self.slot)


@kernel
def _shift_origin(
    blocks: Array, shifted: Array, start: Indices, size: Indices, slot: Indices
) -> None:
    """Write G_jk − G_jr − G_rk + G_rr of each block."""
    for g in range(len(size)):
        n = size[g]
        r = slot[g]
        if r < 0:
            continue
        origin = start[g]
        row = origin + r * n
        for j in range(n):
            for k in range(n):
                change = blocks[row + r] - blocks[row + j] - blocks[row + k]
                shifted[origin + j * n + k] = blocks[origin + j * n + k] + change


NOTHING = np.zeros(0, dtype=np.intp)


def update_gram(old: Gram | None, rows: Rows, members: Indices, first: Indices) -> Gram:
    """Compute the inner products of rows, reusing those that `old` contains.

    Parameters
    ----------
    old : Gram or None
        Inner products of the first rows.
    rows : Rows
    members : ndarray of shape (n_bounds,)
        Rows sorted by group.
    first : ndarray of shape (n_groups + 1,)
        Start of each group in `members`.
    """
    size = np.diff(first)
    start = np.cumsum(size**2) - size**2
    slot = find_slots(members, first)
    old = old or Gram(np.zeros(0), start, size, NOTHING)
    n_new = len(rows) - len(old.slot)
    old_slot = np.concatenate([old.slot, np.full(n_new, -1, dtype=np.intp)])
    gram = Gram(np.empty(int((size**2).sum())), start, size, slot)
    content = rows.data, rows.indices, rows.indptr
    old = Gram(old.blocks, old.start, old.size, old_slot)
    fill_blocks(*content, np.zeros(rows.n_columns), members, first, gram, old)
    return gram


def find_slots(members: Indices, first: Indices) -> Indices:
    """Return (n_bounds,) the position of each bound within its group.

    `members` and `first` are as in `update_gram`.
    """
    slot = np.empty(len(members), dtype=np.intp)
    slot[members] = np.arange(len(members)) - np.repeat(first[:-1], np.diff(first))
    return slot


@kernel
def fill_blocks(
    data: Array,
    indices: NDArray[np.uint32],
    indptr: Indices,
    dense: Array,
    members: Indices,
    first: Indices,
    gram: Gram,
    old: Gram,
) -> None:
    """Copy the inner products that are in the old blocks and compute the others.

    The old slot of a new row is −1. Both may share their blocks if rows only move to
    lower slots of blocks at the same place. `dense` (d,) is scratch, zero before and
    after.
    """
    blocks = gram.blocks
    for g in range(len(first) - 1):
        stride = gram.size[g]
        for i in range(first[g + 1] - first[g]):
            a = members[first[g] + i]
            row = gram.start[g] + i * stride
            known = old.slot[a]
            known_row = old.start[g] + known * old.size[g]
            if known < 0:
                for p in range(indptr[a], indptr[a + 1]):
                    dense[indices[p]] += data[p]
            for j in range(first[g + 1] - first[g]):
                b = members[first[g] + j]
                if known >= 0:
                    if (
                        old.slot[b] >= 0
                    ):  # else filled by symmetry when it is row b's turn
                        blocks[row + j] = old.blocks[known_row + old.slot[b]]
                else:
                    value = 0.0
                    for p in range(indptr[b], indptr[b + 1]):
                        value += data[p] * dense[indices[p]]
                    blocks[row + j] = value
                    blocks[gram.start[g] + j * stride + i] = value
            if known < 0:
                for p in range(indptr[a], indptr[a + 1]):
                    dense[indices[p]] = 0.0


@inlined_kernel
def pairwise_steps(
    score: Array,
    moved: Array,
    alpha: Array,
    members: Indices,
    size: int,
    gram: Array,
    origin: int,
    stride: int,
    lam: float,
    tol: float,
    max_steps: int,
) -> None:
    """Ascend in the dual on one group's simplex by pairwise Frank–Wolfe steps.

    Each step moves dual weight from the lowest active bound to the highest bound.

    Parameters
    ----------
    score : ndarray
        Values of the group's bounds at w; updated in place.
    moved : ndarray
        The changes of α are added to it; the caller moves w by them.
    alpha : ndarray of shape (n_bounds,)
        Dual weights of all bounds; updated in place.
    members : ndarray of int
        Rows of the group's bounds.
    size : int
        Number of these bounds; the arrays may be longer.
    gram, origin, stride : ndarray, int, int
        ⟨a_i, a_j⟩ is ``gram[origin + i * stride + j]``.
    lam : float
    tol : float
        Stop when the highest and the lowest active bound differ by at most this.
    max_steps : int
    """
    for _ in range(max_steps):
        up = -1
        down = -1
        for i in range(size):
            if up < 0 or score[i] > score[up]:
                up = i
            if alpha[members[i]] > 0.0 and (down < 0 or score[i] < score[down]):
                down = i
        if down < 0 or score[up] - score[down] <= tol:
            break
        a = members[up]
        b = members[down]
        curvature = (
            gram[origin + up * stride + up] + gram[origin + down * stride + down]
        )
        curvature -= 2.0 * gram[origin + up * stride + down]
        step = alpha[b]
        if curvature > 0.0:
            step = min(step, lam * (score[up] - score[down]) / curvature)
        alpha[a] += step
        alpha[b] = 0.0 if step >= alpha[b] else alpha[b] - step
        moved[up] += step
        moved[down] -= step
        for i in range(size):
            score[i] -= (
                step
                / lam
                * (gram[origin + i * stride + up] - gram[origin + i * stride + down])
            )
