"""Growable sparse rows, which store the slopes of the bounds.

A CSR matrix must be copied to append a row. Here the arrays have spare capacity, so
that appending costs in proportion to the new rows. Written rows never change: a `Rows`
is a value, and an older one stays valid while a newer one grows in the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Matrix

SPARE = 1.25
"""Capacity over need when the arrays are reallocated.

All copies of a growing matrix add up to five times its size.
"""
ENTRY_BYTES = 12
ROW_BYTES = 8
"""Bytes of an entry (value and column) and of a row (its start)."""


@dataclass
class _Buffer:
    """Arrays with spare capacity, which several `Rows` may share."""

    data: Array
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    n_rows: int
    """Rows written; only a `Rows` of this length may append in place."""


class Rows:
    """Sparse (n, d) rows; row k has the columns `indices[indptr[k]:indptr[k+1]]`.

    A column occurs at most once in a row.
    """

    def __init__(
        self, n_columns: int, buffer: _Buffer | None = None, n_rows: int = 0
    ) -> None:
        self.n_columns = n_columns
        self.n_rows = n_rows
        empty = _Buffer(
            np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64), 0
        )
        self._buffer = empty if buffer is None else buffer

    @classmethod
    def of(cls, matrix: Matrix) -> Rows:
        """Copy the rows of a CSR matrix without duplicate entries."""
        return cls(int(matrix.shape[1])).append(matrix)

    def __len__(self) -> int:
        return self.n_rows

    @property
    def indptr(self) -> NDArray[np.int64]:
        """(n + 1,) start of each row."""
        return self._buffer.indptr[: self.n_rows + 1]

    @property
    def n_entries(self) -> int:
        """Number of stored entries."""
        return int(self._buffer.indptr[self.n_rows])

    @property
    def data(self) -> Array:
        """Stored values, row after row."""
        return self._buffer.data[: self.n_entries]

    @property
    def indices(self) -> NDArray[np.uint32]:
        """Columns of the stored values.

        They are unsigned, so that compiled code does not check for negative indices.
        """
        return self._buffer.indices[: self.n_entries].view(np.uint32)

    @property
    def nbytes(self) -> int:
        """Memory that the rows need, in bytes."""
        return ENTRY_BYTES * self.n_entries + ROW_BYTES * (self.n_rows + 1)

    @property
    def csr(self) -> Matrix:
        """The rows as a scipy.sparse.csr_array."""
        shape = (self.n_rows, self.n_columns)
        return sp.csr_array(
            (self.data, self._buffer.indices[: self.n_entries], self.indptr),
            shape=shape,
        )

    def append(self, matrix: Matrix) -> Rows:
        """Return these rows followed by those of a CSR matrix."""
        n_rows = self.n_rows + matrix.shape[0]
        n_entries = self.n_entries + int(matrix.indptr[-1])
        buffer = self._buffer
        if (
            buffer.n_rows != self.n_rows
            or n_entries > len(buffer.data)
            or n_rows >= len(buffer.indptr)
        ):
            buffer = self._grow(n_rows, n_entries)
        buffer.data[self.n_entries : n_entries] = matrix.data[: matrix.indptr[-1]]
        buffer.indices[self.n_entries : n_entries] = matrix.indices[: matrix.indptr[-1]]
        buffer.indptr[self.n_rows + 1 : n_rows + 1] = self.n_entries + matrix.indptr[
            1:
        ].astype(np.int64)
        buffer.n_rows = n_rows
        return Rows(self.n_columns, buffer, n_rows)

    def _grow(self, n_rows: int, n_entries: int) -> _Buffer:
        """Copy the rows into arrays with spare capacity."""
        room = int(SPARE * n_entries)
        data = np.empty(room)
        indices = np.empty(room, dtype=np.int32)
        indptr = np.zeros(int(SPARE * n_rows) + 2, dtype=np.int64)
        data[: self.n_entries] = self.data
        indices[: self.n_entries] = self._buffer.indices[: self.n_entries]
        indptr[: self.n_rows + 1] = self.indptr
        return _Buffer(data, indices, indptr, self.n_rows)

    def select(self, rows: Indices) -> Rows:
        """Copy some of the rows."""
        return Rows.of(self.csr[rows])

    def dense(self, rows: Indices) -> Array:
        """Return some of the rows as a dense (n, d) array."""
        return np.asarray(self.csr[rows].toarray())

    def multiply(self, w: Array) -> Array:
        """Return (n,) ⟨row, w⟩."""
        return np.asarray(self.csr @ w)

    def combine(self, weights: Array) -> Array:
        """Return (d,) Σ_k weights_k · row_k."""
        return np.asarray(self.csr.T @ weights)

    def squared_norms(self) -> Array:
        """Return (n,) ‖row‖²."""
        sums = np.concatenate([[0.0], np.cumsum(self.data**2)])
        return np.asarray(np.diff(sums[self.indptr]))


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
