"""What the displacements of the cells around a cell foretell of its own: kriging of the nearest linked cells.

**Kriging** (Matheron 1963), which is regression by a Gaussian process (Rasmussen & Williams 2006): displacements are a
smooth flow, whose values at two cells are the more alike the nearer these are (a Matérn covariance of order 5/2, of
unit variance, around a local level of which nothing is known), and noise, the **nugget**: what cells do on their own. A
local affine map takes the flow's curvature for noise, and waves a few cells long are lost to it; here only a length has
to be assumed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clew.learning.task import Array, Indices


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def foretold(
    x: Array,
    displacement: Array,
    off: Array,
    shift: Array,
    around: Indices,
    most: int,
    nugget: float,
    length: float,
) -> Array:  # pragma: no cover  # compiled
    """(n, ndim) at each cell what the displacements of the linked cells around it foretell, its own left out.

    `off` (n,) tells how doubtful the link of each cell is, by which its nugget is multiplied, less 1; −1 where it has
    none. The nearest `most` linked cells of those `around` (n, k) foretell; without any, the `shift` so far stays.
    """
    n, ndim = x.shape
    found, used = np.empty_like(x), np.empty(most, np.intp)
    factor, onto = np.empty((most, most)), np.empty((most, ndim + 2))
    for i in range(n):
        count = 0
        for k in range(around.shape[1]):
            j = around[i, k]
            if j != i and off[j] >= 0:
                used[count] = j
                count += 1
                if count == most:
                    break
        for p in range(count):
            for q in range(p):
                factor[p, q] = _covariance(x, used[p], used[q], length)
            factor[p, p] = 1 + nugget * (1 + off[used[p]])
            for d in range(ndim):
                onto[p, d] = displacement[used[p], d]
            onto[p, ndim], onto[p, ndim + 1] = _covariance(x, used[p], i, length), 1.0
        _whiten(factor, onto, count)
        here, ones = (
            _inner(onto, ndim, ndim + 1, count),
            _inner(onto, ndim + 1, ndim + 1, count),
        )
        for d in range(ndim):
            if count:
                level = (
                    _inner(onto, d, ndim + 1, count) / ones
                )  # by generalised least squares
                found[i, d] = level * (1 - here) + _inner(onto, d, ndim, count)
            else:
                found[i, d] = shift[i, d]
    return found


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _covariance(
    x: Array, i: int, j: int, length: float
) -> float:  # pragma: no cover  # compiled
    """Of the flow at two cells."""
    square = 0.0
    for d in range(x.shape[1]):
        square += (x[i, d] - x[j, d]) ** 2
    r = np.sqrt(5 * square) / length
    return float((1 + r + r * r / 3) * np.exp(-r))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _whiten(matrix: Array, onto: Array, n: int) -> None:  # pragma: no cover  # compiled
    """`onto` becomes L⁻¹ `onto`, for the first n rows, with L Lᵀ the `matrix`, of which the lower half is there.

    Inner products of its columns then are those by the inverse of the matrix.
    """
    for p in range(n):
        for q in range(p + 1):
            rest = matrix[p, q]
            for r in range(q):
                rest -= matrix[p, r] * matrix[q, r]
            matrix[p, q] = np.sqrt(rest) if p == q else rest / matrix[q, q]
        for d in range(onto.shape[1]):
            rest = onto[p, d]
            for r in range(p):
                rest -= matrix[p, r] * onto[r, d]
            onto[p, d] = rest / matrix[p, p]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _inner(
    columns: Array, p: int, q: int, n: int
) -> float:  # pragma: no cover  # compiled
    """The inner product of two columns, of which the first n rows count."""
    total = 0.0
    for r in range(n):
        total += columns[r, p] * columns[r, q]
    return total
