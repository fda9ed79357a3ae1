"""Rows of sparse matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array, Indices, Matrix


def row_of_entries(matrix: Matrix) -> Indices:
    """Return the row of each entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def sparse(dense: Array) -> Matrix:
    """Convert a small dense (n, d) array to CSR.

    scipy.sparse converts through coordinates, which takes longer.
    """
    row, column = np.nonzero(dense)
    indptr = np.searchsorted(row, np.arange(len(dense) + 1))
    return sp.csr_array((dense[row, column], column, indptr), shape=dense.shape)


def subtract_sparse(matrix: Matrix, reference: Matrix) -> Matrix:
    """Subtract two CSR matrices of the same shape; store no zeros."""
    return sp.csr_array(matrix) - sp.csr_array(reference)
