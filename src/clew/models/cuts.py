"""Inequalities that cut a fractional answer off, and hold for every 0/1 output whatever the costs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from clew.learning.sparse_rows import row_of_entries, sparse
from clew.learning.task import Array, Mask, Matrix

TIGHT = 1e-7


def half_cuts(
    A: Matrix, row_lower: Array, row_upper: Array, y: Array, fractional: Mask
) -> tuple[Matrix, Array]:
    """CSR rows C and right-hand sides c with C z ≤ c for all outputs z, and C y = c + ½ for the LP's answer y.

    They are {0, ½} Chvátal–Gomory cuts (Caprara & Fischetti 1996): add rows a z ≤ b that y meets with equality so that
    all coefficients of fractional variables become even and the right-hand side odd; halve; round down. Which rows to
    add is a linear system modulo 2. Variables at 1 are counted from the other side, by 1 − z.
    """
    row, sums = row_of_entries(A), A @ y
    at_upper = np.abs(sums - row_upper) < TIGHT
    tight = at_upper | (np.abs(sums - row_lower) < TIGHT)
    tight &= np.bincount(row[fractional[A.indices]], minlength=len(sums)) > 0
    rows = np.flatnonzero(tight)
    # dense from here on, in the columns that these rows have: both are few, and of a sparse matrix every step would
    # cost more than all of its numbers
    entries = np.flatnonzero(tight[row])
    columns, place = np.unique(A.indices[entries], return_inverse=True)
    y, fractional = y[columns], fractional[columns]
    a = np.zeros((len(rows), len(columns)))
    np.add.at(
        a,
        (np.searchsorted(rows, row[entries]), place),
        np.where(at_upper[row], A.data, -A.data)[entries],
    )
    b = np.where(at_upper, row_upper, -row_lower)[rows]
    whole = np.abs(a - np.rint(a)).sum(axis=1) + np.abs(b - np.rint(b)) < 1e-9
    a, b = np.rint(a[whole]), np.rint(b[whole])
    one = (np.rint(y) == 1) & ~fractional
    odd_sides = (b - a @ one) % 2 == 1
    chosen = _even_combinations(a[:, fractional] % 2 == 1, odd_sides)
    total = chosen.astype(float) @ a
    odd_at_one = (total % 2 == 1) & one
    cuts = np.floor((total + odd_at_one) / 2)
    sides = np.floor((chosen @ b + odd_at_one.sum(axis=1)) / 2)
    found = sparse(cuts)
    return sp.csr_array(
        (found.data, columns[found.indices], found.indptr),
        shape=(len(cuts), A.shape[1]),
    ), sides


def _even_combinations(odd: Mask, odd_sides: Mask) -> Mask:
    """(k, n_rows) sets of rows whose sum is even in every column and odd in `odd_sides`, by elimination modulo 2."""
    odd, sides = odd.copy(), odd_sides.copy()
    combination = np.eye(len(odd), dtype=bool)
    left = np.ones(len(odd), dtype=bool)  # rows that are no pivot
    for column in range(odd.shape[1]):
        candidates = np.flatnonzero(left & odd[:, column])
        if not len(candidates):
            continue
        # the row that mixes fewest others keeps the cuts sparse
        pivot = candidates[np.argmin(combination[candidates].sum(axis=1))]
        others = candidates[candidates != pivot]
        odd[others] ^= odd[pivot]
        sides[others] ^= sides[pivot]
        combination[others] ^= combination[pivot]
        left[pivot] = False
    return combination[left & sides]
