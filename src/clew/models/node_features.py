"""Feature rows of all nodes of all examples, stacked once, and their products with weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError, InputTypeError
from clew.learning.task import Array, Indices, Matrix
from clew.models.examples import Input
from clew.models.labels import Place, name_place
from clew.utils.kernels import kernel

DENSE_FROM = 0.5
"""Share of non-zero entries from which rows are stored with their zeros."""

LARGEST = 1e100
"""Largest feature: sums of squares of such features are finite."""


class NodeFeatures(NamedTuple):
    """Feature rows (n, F), dense or sparse, for compiled code.

    Row r has the values ``data[begins[r]:begins[r + 1]]``, in the columns from
    ``columns[column_begins[r]]`` on. Dense rows share one ``columns``, so the same
    kernels run on dense and sparse rows and sum in the same order.
    """

    data: Array
    begins: NDArray[np.int64]
    columns: NDArray[np.int32]
    column_begins: NDArray[np.int64]
    n_inputs: int

    @classmethod
    def from_matrix(cls, matrix: Matrix, place: Place) -> NodeFeatures:
        """Store a matrix in the smaller of both ways.

        Parameters
        ----------
        matrix : (n, F) array or sparse matrix
        place : callable
            Maps a row to its example and position, for error messages.
        """
        n, n_inputs = matrix.shape
        if sp.issparse(matrix):
            matrix = sp.csr_array(matrix, dtype=np.float64, copy=True)
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            n_nonzero = matrix.nnz
        else:
            matrix = np.ascontiguousarray(matrix, dtype=np.float64)
            n_nonzero = np.count_nonzero(matrix)
        if n_nonzero < DENSE_FROM * n * n_inputs:
            csr = sp.csr_array(matrix)
            data = csr.data
            begins = csr.indptr.astype(np.int64)
            columns = csr.indices.astype(np.int32)
            column_begins = begins[:-1].copy()
        else:
            dense = matrix.toarray() if sp.issparse(matrix) else matrix
            data = dense.reshape(-1)
            begins = np.arange(n + 1, dtype=np.int64) * n_inputs
            columns = np.arange(n_inputs, dtype=np.int32)
            column_begins = np.zeros(n, dtype=np.int64)
        features = cls(data, begins, columns, column_begins, n_inputs)
        features._check_finite(place)
        return features

    def _check_finite(self, place: Place) -> None:
        """Raise an error that names the first NaN, infinite or too large feature."""
        bad = np.flatnonzero(~(np.abs(self.data) <= LARGEST))  # NaN too
        if not len(bad):
            return
        entry = bad[0]
        row = int(np.searchsorted(self.begins, entry, side="right")) - 1
        column = self.columns[self.column_begins[row] + entry - self.begins[row]]
        raise InputError(
            f"{name_place(*place(row))}: feature {column} is {self.data[entry]}; "
            f"features must be finite, at most {LARGEST:g}, no NaN, no inf"
        )

    @property
    def is_dense(self) -> bool:
        """Whether rows are stored with their zeros."""
        return len(self.data) == self.n_rows * self.n_inputs

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.begins) - 1

    def compute_scores(self, weights: Array, rows: Indices) -> Array:
        """(len(rows), S) product of rows with `weights` (S, F)."""
        scores = np.zeros((len(rows), len(weights)))
        multiply_rows(self, rows, np.ascontiguousarray(weights.T), scores)
        return scores

    def sum_weighted(self, weights: Array, rows: Indices) -> Array:
        """(S, F) Σₖ weights[k, s] · row k, for `weights` (len(rows), S)."""
        total = np.zeros((self.n_inputs, weights.shape[1]))
        add_rows(self, rows, weights, total)
        return np.ascontiguousarray(total.T)

    def iterate_examples(
        self, offsets: Indices
    ) -> Iterator[tuple[Array, NDArray[np.int32], NDArray[np.int64]]]:
        """Yield the values of each example, their columns, and the ends of its rows.

        Example n has the rows ``offsets[n]`` to ``offsets[n + 1] - 1``. The columns of
        dense rows are empty.
        """
        data = self.data + 0.0  # without -0
        is_dense = self.is_dense
        for first, last in pairwise(offsets):
            begin = self.begins[first]
            end = self.begins[last]
            columns = self.columns[:0] if is_dense else self.columns[begin:end]
            ends = self.begins[first + 1 : last + 1] - begin
            yield data[begin:end], columns, ends


@kernel
def multiply_rows(
    features: NodeFeatures, rows: Indices, weights: Array, scores: Array
) -> None:
    """Add row · weights (F, S) to `scores`, in the order of the columns."""
    for k in range(len(rows)):
        r = rows[k]
        shift = features.column_begins[r] - features.begins[r]
        for entry in range(features.begins[r], features.begins[r + 1]):
            value = features.data[entry]
            column = features.columns[entry + shift]
            for s in range(weights.shape[1]):
                scores[k, s] += value * weights[column, s]


@kernel
def add_rows(
    features: NodeFeatures, rows: Indices, weights: Array, total: Array
) -> None:
    """Add row ⊗ weights[row] to `total` (F, S)."""
    for k in range(len(rows)):
        r = rows[k]
        shift = features.column_begins[r] - features.begins[r]
        for entry in range(features.begins[r], features.begins[r + 1]):
            column = features.columns[entry + shift]
            for s in range(weights.shape[1]):
                total[column, s] += features.data[entry] * weights[k, s]


def stack_features(
    parts: Sequence[Input], n_inputs: int | None = None
) -> tuple[NodeFeatures, Indices]:
    """Stack the feature rows of all examples.

    Parameters
    ----------
    parts : sequence of (T, F) matrices
    n_inputs : int, optional
        Expected number of columns; by default that of the first example.

    Returns
    -------
    features : NodeFeatures
    offsets : ndarray of shape (n_examples + 1,)
        First row of each example.
    """
    matrices = [as_matrix(part, i) for i, part in enumerate(parts)]
    if n_inputs is None and matrices:
        n_inputs = matrices[0].shape[1]
    for i, matrix in enumerate(matrices):
        if matrix.shape[0] == 0:
            raise InputError(f"example {i} is empty: it has no rows of features")
        if matrix.shape[1] != n_inputs:
            raise InputError(
                f"example {i} has {matrix.shape[1]} features, where {n_inputs} are "
                "expected"
            )
    offsets = np.zeros(len(matrices) + 1, dtype=np.intp)
    np.cumsum([matrix.shape[0] for matrix in matrices], out=offsets[1:])
    if any(sp.issparse(matrix) for matrix in matrices):
        rows = [sp.csr_array(matrix) for matrix in matrices]
        stacked: Matrix = sp.vstack(rows, format="csr")
    else:
        stacked = np.concatenate([*matrices, np.zeros((0, n_inputs or 0))])
    return NodeFeatures.from_matrix(stacked, place_in(offsets)), offsets


def as_matrix(x: Input, example: int | None) -> Matrix:
    """Return x as a numeric matrix (T, F), dense or sparse; name `example` in errors."""
    name = name_place(example, unnamed="x")
    try:
        matrix: Matrix = x if sp.issparse(x) else np.asarray(x)
    except ValueError:
        raise InputError(
            f"{name}: features must be a matrix, with rows of the same length"
        ) from None
    if matrix.ndim != 2:
        hint = "Reshape your data to (rows, features)"
        if matrix.dtype.kind in "OUS":
            hint = (
                "Words and dicts become rows of numbers by "
                "clew.preprocessing.NodeTransformer"
            )
        raise InputError(
            f"{name}: features must be a matrix with a row for each node, "
            f"not {matrix.shape}. {hint}"
        )
    kind = matrix.dtype.kind
    if kind == "c":
        raise InputError(
            f"{name}: features must be numbers. Complex data not supported"
        )
    if kind not in "biuf":
        casting = "unsafe" if kind == "O" else "safe"
        try:
            matrix = matrix.astype(np.float64, casting=casting)
        except TypeError as error:
            raise InputTypeError(f"{name}: features must be numbers: {error}") from None
        except (ValueError, OverflowError):
            raise InputError(
                f"{name}: features must be numbers, not {matrix.dtype}"
            ) from None
    return matrix


def place_in(offsets: Indices) -> Place:
    """Return a function from a stacked row to its example and position."""

    def find_place(row: int) -> tuple[int, int]:
        example = int(np.searchsorted(offsets, row, side="right")) - 1
        return example, row - int(offsets[example])

    return find_place
