"""Outputs of a programme put together from those that were found before: good ones at other weights, without a search.

Where two outputs differ, variables that share no row, nor are linked by a chain of rows and other such variables, can
change one without the other: each of these pieces of the difference, added to the one output, gives an output again.
So a few outputs stand for very many, and the best of these bounds C from below as any output does, at the cost of some
sums where an argmax takes a linear programme. Where there are few examples with many parts each, that is what a model
of one bound for each example and pass lacks (docs/mathematics.md).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit

from clew.learning.task import Array, Indices, Matrix
from clew.models.highs_solver import Binary

REMEMBERED = 30
"""Outputs that are remembered of each programme; 10 take a sixth more passes, 100 no fewer: optimiser.py."""


class Recombination:
    """The last outputs that were found of one programme with rows A, and the pieces in which the newest differs."""

    def __init__(self, A: Matrix) -> None:
        columns = sp.csc_array(A)
        self.begins, self.rows = columns.indptr, columns.indices
        self.n_rows = A.shape[0]
        self.outputs: Binary = np.empty((0, A.shape[1]), dtype=np.int8)
        """(K, n), the newest first."""
        self._pieces: tuple[Indices, Indices, Binary, Indices, Indices] | None = None

    def remember(self, z: Binary) -> None:
        """Keep an output; from now on pieces are of what differs from it."""
        others = self.outputs[(self.outputs != z).any(axis=1)]
        self.outputs = np.concatenate([z[None], others[: REMEMBERED - 1]])
        self._pieces = None

    def best(self, scores: Array) -> Binary:
        """The newest output with the pieces that raise its score: those that do so most for each row come first."""
        if self._pieces is None:
            self._pieces = _pieces(self.outputs, self.begins, self.rows, self.n_rows)
        z: Binary = self.outputs[0].copy()
        _take(z, scores, *self._pieces, self.n_rows)
        return z


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pieces(
    outputs: Binary, begins: Indices, rows: Indices, n_rows: int
) -> tuple[Indices, Indices, Binary, Indices, Indices]:
    """What the other outputs have instead of the first one, in pieces that can each be taken alone.

    Where each piece begins among the variables that change, with their changes; and among the rows that they touch.
    Variables that share a row are in one piece: union–find, where the first variable stands for its piece.
    """
    n = outputs.shape[1]
    first, count = outputs[0], 0
    for k in range(1, len(outputs)):
        for j in range(n):
            count += outputs[k, j] != first[j]
    variables, changes = np.empty(count, np.intp), np.empty(count, np.int8)
    variable_begins, row_begins = (
        np.zeros(count + 1, np.intp),
        np.zeros(count + 1, np.intp),
    )
    touched = np.empty(n_rows * max(len(outputs) - 1, 0), np.intp)
    differing, root, piece = (
        np.empty(n, np.intp),
        np.empty(n, np.intp),
        np.empty(n, np.intp),
    )
    holder = np.full(n_rows, -1)  # a variable that touches the row
    met = np.empty(n_rows, np.intp)  # the rows that have one
    n_pieces = 0
    for k in range(1, len(outputs)):
        n_differing = n_met = 0
        for j in range(n):
            if outputs[k, j] == first[j]:
                continue
            i = n_differing
            differing[i] = j
            root[i] = i
            n_differing += 1
            for p in range(begins[j], begins[j + 1]):
                row = rows[p]
                if holder[row] < 0:
                    holder[row] = i
                    met[n_met] = row
                    n_met += 1
                    continue
                a, b = i, holder[row]
                while root[a] != a:
                    a = root[a]
                while root[b] != b:
                    b = root[b]
                root[max(a, b)] = min(a, b)
        before = n_pieces
        for i in range(n_differing):
            root[i] = root[root[i]]  # the earlier ones were shortened before
            if root[i] == i:
                piece[i] = n_pieces
                n_pieces += 1
            else:
                piece[i] = piece[root[i]]
            variable_begins[piece[i] + 1] += 1
        for i in range(n_met):
            row_begins[piece[holder[met[i]]] + 1] += 1
        for q in range(before, n_pieces):
            variable_begins[q + 1] += variable_begins[q]
            row_begins[q + 1] += row_begins[q]
        # counted sort: each piece is filled from its beginning on
        placed, row_placed = (
            variable_begins[before:n_pieces].copy(),
            row_begins[before:n_pieces].copy(),
        )
        for i in range(n_differing):
            q = piece[i] - before
            variables[placed[q]] = differing[i]
            changes[placed[q]] = outputs[k, differing[i]] - first[differing[i]]
            placed[q] += 1
        for i in range(n_met):
            q = piece[holder[met[i]]] - before
            touched[row_placed[q]] = met[i]
            row_placed[q] += 1
            holder[met[i]] = -1
    return (
        variable_begins[: n_pieces + 1],
        variables,
        changes,
        row_begins[: n_pieces + 1],
        touched,
    )


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _take(
    z: Binary,
    scores: Array,
    begins: Indices,
    variables: Indices,
    changes: Binary,
    row_begins: Indices,
    rows: Indices,
    n_rows: int,
) -> None:
    """Add to z, in place, the pieces that raise its score, where none before has one of their rows."""
    gains = np.zeros(len(begins) - 1)
    for q in range(len(gains)):
        for p in range(begins[q], begins[q + 1]):
            gains[q] += changes[p] * scores[variables[p]]
        gains[q] /= max(1, row_begins[q + 1] - row_begins[q])
    used = np.zeros(n_rows, np.bool_)
    for q in np.argsort(-gains, kind="mergesort"):
        if gains[q] <= 0.0:
            break
        free = True
        for p in range(row_begins[q], row_begins[q + 1]):
            free = free and not used[rows[p]]
        for p in range(
            begins[q], begins[q + 1]
        ):  # variables without rows may be in several pieces
            free = free and 0 <= z[variables[p]] + changes[p] <= 1
        if free:
            for p in range(row_begins[q], row_begins[q + 1]):
                used[rows[p]] = True
            for p in range(begins[q], begins[q + 1]):
                z[variables[p]] += changes[p]
