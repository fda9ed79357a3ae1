"""{0, ½} Chvátal-Gomory cuts: rows that hold for every 0/1 output at any costs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from clew.learning.sparse_rows import row_of_entries, sparse
from clew.learning.task import Array, Mask, Matrix

TIGHTNESS_TOLERANCE = 1e-7
WHOLE_TOLERANCE = 1e-9


def find_half_cuts(
    A: Matrix, row_lower: Array, row_upper: Array, y: Array, is_fractional: Mask
) -> tuple[Matrix, Array]:
    """Find rows C z ≤ c of all outputs z, with C y = c + ½ for the LP's answer y.

    Add rows a z ≤ b that y meets with equality so that all coefficients of fractional
    variables become even and the right-hand side odd; halve; round down (Caprara &
    Fischetti 1996). Which rows to add is a linear system modulo 2. Variables at 1 are
    replaced by 1 - z.

    Parameters
    ----------
    A : CSR matrix of shape (m, n)
    row_lower, row_upper : ndarray of shape (m,)
    y : ndarray of shape (n,)
    is_fractional : ndarray of shape (n,)

    Returns
    -------
    rows : CSR matrix of shape (n_cuts, n)
    sides : ndarray of shape (n_cuts,)
    """
    row = row_of_entries(A)
    sums = A @ y
    at_upper = np.abs(sums - row_upper) < TIGHTNESS_TOLERANCE
    at_lower = np.abs(sums - row_lower) < TIGHTNESS_TOLERANCE
    n_fractional = np.bincount(row[is_fractional[A.indices]], minlength=len(sums))
    is_used = (at_upper | at_lower) & (n_fractional > 0)
    rows = np.flatnonzero(is_used)

    # The rows and their columns are few: dense arrays are faster from here on.
    entries = np.flatnonzero(is_used[row])
    columns, place = np.unique(A.indices[entries], return_inverse=True)
    y = y[columns]
    is_fractional = is_fractional[columns]
    signed = np.where(at_upper[row], A.data, -A.data)[entries]
    a = np.zeros((len(rows), len(columns)))
    np.add.at(a, (np.searchsorted(rows, row[entries]), place), signed)
    b = np.where(at_upper, row_upper, -row_lower)[rows]
    distance = np.abs(a - np.rint(a)).sum(axis=1) + np.abs(b - np.rint(b))
    is_whole = distance < WHOLE_TOLERANCE
    a = np.rint(a[is_whole])
    b = np.rint(b[is_whole])

    is_one = (np.rint(y) == 1) & ~is_fractional
    odd_sides = (b - a @ is_one) % 2 == 1
    combinations = _find_even_combinations(a[:, is_fractional] % 2 == 1, odd_sides)
    total = combinations.astype(float) @ a
    odd_at_one = (total % 2 == 1) & is_one
    cuts = sparse(np.floor((total + odd_at_one) / 2))
    sides = np.floor((combinations @ b + odd_at_one.sum(axis=1)) / 2)
    shape = (len(sides), A.shape[1])
    matrix = sp.csr_array((cuts.data, columns[cuts.indices], cuts.indptr), shape=shape)
    return matrix, sides


def _find_even_combinations(is_odd: Mask, odd_sides: Mask) -> Mask:
    """(k, n_rows) sets of rows that add up to even columns and an odd right-hand side.

    By elimination modulo 2.
    """
    is_odd = is_odd.copy()
    odd_sides = odd_sides.copy()
    combinations = np.eye(len(is_odd), dtype=bool)
    is_left = np.ones(len(is_odd), dtype=bool)  # rows that are no pivot
    for column in range(is_odd.shape[1]):
        candidates = np.flatnonzero(is_left & is_odd[:, column])
        if not len(candidates):
            continue
        # the row that combines fewest others keeps the cuts sparse
        sizes = combinations[candidates].sum(axis=1)
        pivot = candidates[np.argmin(sizes)]
        others = candidates[candidates != pivot]
        is_odd[others] ^= is_odd[pivot]
        odd_sides[others] ^= odd_sides[pivot]
        combinations[others] ^= combinations[pivot]
        is_left[pivot] = False
    return combinations[is_left & odd_sides]
