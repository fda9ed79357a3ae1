"""Kriging: predict the displacement of a cell from those of the linked cells around it.

Ordinary kriging (Matheron 1963), which is Gaussian process regression (Rasmussen &
Williams 2006, section 2.7). Displacements are a smooth flow plus noise, the **nugget**:
what cells do independently of their neighbors. The flow has a Matérn covariance of
order 5/2 and unit variance around an unknown local level. A local affine map would take
the curvature of the flow for noise and lose waves that are a few cells long.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clew.learning.task import Array, Indices


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def krige_displacements(
    x: Array,
    displacement: Array,
    doubt: Array,
    default: Array,
    around: Indices,
    max_used: int,
    nugget: float,
    length: float,
) -> Array:  # pragma: no cover  # compiled
    """Predict the displacement of each cell by its linked neighbors, itself left out.

    Parameters
    ----------
    x : ndarray of shape (n, ndim)
        Positions.
    displacement : ndarray of shape (n, ndim)
        Displacements of the linked cells.
    doubt : ndarray of shape (n,)
        The nugget of a link is multiplied by 1 + doubt; -1 for cells without a link.
    default : ndarray of shape (n, ndim)
        The prediction for cells without linked neighbors.
    around : ndarray of shape (n, k)
        Cells around each cell, nearest first.
    max_used : int
        Linked neighbors that are used at most.
    nugget : float
        Variance of the noise, relative to that of the flow.
    length : float
        Length scale of the covariance.

    Returns
    -------
    ndarray of shape (n, ndim)
    """
    n, ndim = x.shape
    prediction = np.empty_like(x)
    used = np.empty(max_used, np.intp)
    covariance = np.empty((max_used, max_used))
    # displacements, covariances with the predicted cell, and ones
    columns = np.empty((max_used, ndim + 2))
    for i in range(n):
        count = 0
        for k in range(around.shape[1]):
            j = around[i, k]
            if j != i and doubt[j] >= 0:
                used[count] = j
                count += 1
                if count == max_used:
                    break
        if count == 0:
            for d in range(ndim):
                prediction[i, d] = default[i, d]
            continue
        for p in range(count):
            for q in range(p):
                covariance[p, q] = _matern_covariance(x, used[p], used[q], length)
            covariance[p, p] = 1 + nugget * (1 + doubt[used[p]])
            for d in range(ndim):
                columns[p, d] = displacement[used[p], d]
            columns[p, ndim] = _matern_covariance(x, used[p], i, length)
            columns[p, ndim + 1] = 1.0
        _whiten_columns(covariance, columns, count)
        covered = _inner_product(columns, ndim, ndim + 1, count)
        ones = _inner_product(columns, ndim + 1, ndim + 1, count)
        for d in range(ndim):
            # the local level by generalized least squares
            level = _inner_product(columns, d, ndim + 1, count) / ones
            smooth = _inner_product(columns, d, ndim, count)
            prediction[i, d] = level * (1 - covered) + smooth
    return prediction


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _matern_covariance(
    x: Array, i: int, j: int, length: float
) -> float:  # pragma: no cover  # compiled
    """Matérn covariance of order 5/2 between two cells."""
    square = 0.0
    for d in range(x.shape[1]):
        square += (x[i, d] - x[j, d]) ** 2
    r = np.sqrt(5 * square) / length
    return float((1 + r + r * r / 3) * np.exp(-r))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _whiten_columns(
    matrix: Array, columns: Array, n: int
) -> None:  # pragma: no cover  # compiled
    """Replace the first n rows of `columns` by L⁻¹ `columns`, with L Lᵀ = `matrix`.

    Only the lower half of the matrix is read. Inner products of the new columns are
    those of the old ones in the inverse of the matrix.
    """
    for p in range(n):
        for q in range(p + 1):
            rest = matrix[p, q]
            for r in range(q):
                rest -= matrix[p, r] * matrix[q, r]
            matrix[p, q] = np.sqrt(rest) if p == q else rest / matrix[q, q]
        for d in range(columns.shape[1]):
            rest = columns[p, d]
            for r in range(p):
                rest -= matrix[p, r] * columns[r, d]
            columns[p, d] = rest / matrix[p, p]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _inner_product(
    columns: Array, p: int, q: int, n: int
) -> float:  # pragma: no cover  # compiled
    """Inner product of two columns over the first n rows."""
    total = 0.0
    for r in range(n):
        total += columns[r, p] * columns[r, q]
    return total
