"""The feature rows of all nodes of all examples, stacked once, and their products with weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Matrix
from clew.models.examples import Input
from clew.models.labels import Place, name_place

DENSE_FROM = 0.5
"""The share of non-zero entries from which rows are stored with their zeros."""

ENTRIES_AT_A_TIME = 2**19
"""Of all examples' features, while their fingerprints are taken."""

LARGEST = 1e100
"""Features whose squares, summed over any data, are still numbers."""


@dataclass(frozen=True)
class Inputs:
    """Feature rows (n, F). Row r has `data[begins[r]:begins[r+1]]` in the columns from `columns[column_begins[r]]` on.

    Dense rows share one `columns`, so that the same kernels run on dense and on sparse rows, and sum in the same order.
    """

    data: Array
    begins: NDArray[np.int64]
    columns: NDArray[np.int32]
    column_begins: NDArray[np.int64]
    n_inputs: int

    @classmethod
    def of(cls, matrix: Matrix, place: Place) -> Inputs:
        """Store a (n, F) matrix, dense or sparse, in the smaller of both ways; NaN and infinity are refused."""
        n, n_inputs = matrix.shape
        dense = (
            None
            if sp.issparse(matrix)
            else np.ascontiguousarray(matrix, dtype=np.float64)
        )
        if dense is None or np.count_nonzero(dense) < DENSE_FROM * dense.size:
            csr = sp.csr_array(matrix, dtype=np.float64, copy=True)
            csr.sum_duplicates()
            csr.eliminate_zeros()
            begins = csr.indptr.astype(np.int64)
            inputs = cls(
                csr.data, begins, csr.indices.astype(np.int32), begins[:-1], n_inputs
            )
        else:
            begins = np.arange(n + 1, dtype=np.int64) * n_inputs
            shared = np.arange(n_inputs, dtype=np.int32)
            inputs = cls(
                dense.reshape(-1), begins, shared, np.zeros(n, dtype=np.int64), n_inputs
            )
        bad = np.flatnonzero(~(np.abs(inputs.data) <= LARGEST))  # NaN too
        if len(bad):
            row = int(np.searchsorted(begins, bad[0], side="right")) - 1
            column = inputs.columns[inputs.column_begins[row] + bad[0] - begins[row]]
            value = inputs.data[bad[0]]
            raise InputError(
                f"{name_place(*place(row))}: feature {column} is {value}; features must be finite, at most {LARGEST:g},"
                " no NaN, no inf"
            )
        return inputs

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.begins) - 1

    def scores(self, weights: Array, rows: Indices) -> Array:
        """(len(rows), S) the product of rows with `weights` (S, F)."""
        scores = np.zeros((len(rows), len(weights)))
        multiply_rows(
            self.data,
            self.begins,
            self.columns,
            self.column_begins,
            rows,
            np.ascontiguousarray(weights.T),
            scores,
        )
        return scores

    def weighted_sum(self, weights: Array, rows: Indices) -> Array:
        """(S, F) Σ_k weights[k, s] · row k, for `weights` (len(rows), S): the transpose of `scores`."""
        total = np.zeros((self.n_inputs, weights.shape[1]))
        add_rows(
            self.data,
            self.begins,
            self.columns,
            self.column_begins,
            rows,
            weights,
            total,
        )
        return np.ascontiguousarray(total.T)

    def contents(self, offsets: Indices) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """For the rows of each example, their non-zeros' places and values, the same however rows are stored.

        Example n has the rows offsets[n] … offsets[n+1]-1; some thousand entries are computed at a time.
        """
        for examples in _chunks(self.begins[offsets], ENTRIES_AT_A_TIME):
            first, last = offsets[examples.start], offsets[examples.stop]
            data = self.data[self.begins[first] : self.begins[last]]
            counts = np.diff(self.begins[first : last + 1])
            lengths = np.diff(offsets[examples.start : examples.stop + 1])
            row = np.arange(last - first) - np.repeat(
                offsets[examples.start : examples.stop] - first, lengths
            )
            # from an entry to its place among the columns
            shift = self.column_begins[first:last] - self.begins[first:last]
            entry = np.arange(self.begins[first], self.begins[last]) + np.repeat(
                shift, counts
            )
            places = np.repeat(row, counts) * self.n_inputs + self.columns[entry]
            used = np.concatenate([[0], np.cumsum(data != 0)])
            places, data = places[data != 0], data[data != 0]
            ends = used[
                self.begins[offsets[examples.start : examples.stop + 1]]
                - self.begins[first]
            ]
            for begin, end in pairwise(ends):
                yield places[begin:end], data[begin:end]


def _chunks(begins: Indices, entries: int) -> Iterator[slice]:
    """Consecutive examples with about so many entries together, at least one."""
    first, n = 0, len(begins) - 1
    while first < n:
        last = int(np.searchsorted(begins, begins[first] + entries, side="right")) - 1
        last = min(max(last, first + 1), n)
        yield slice(first, last)
        first = last


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def multiply_rows(
    data: Array,
    begins: Indices,
    columns: Indices,
    column_begins: Indices,
    rows: Indices,
    weights: Array,
    scores: Array,
) -> None:
    """Add row · weights (F, S) to scores; every row is summed in the order of its columns, whichever are asked for."""
    for k in range(len(rows)):
        r = rows[k]
        shift = column_begins[r] - begins[r]
        for entry in range(begins[r], begins[r + 1]):
            value = data[entry]
            column = columns[entry + shift]
            for s in range(weights.shape[1]):
                scores[k, s] += value * weights[column, s]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_rows(
    data: Array,
    begins: Indices,
    columns: Indices,
    column_begins: Indices,
    rows: Indices,
    weights: Array,
    total: Array,
) -> None:
    """Add row ⊗ weights[row] to total (F, S)."""
    for k in range(len(rows)):
        r = rows[k]
        shift = column_begins[r] - begins[r]
        for entry in range(begins[r], begins[r + 1]):
            column = columns[entry + shift]
            for s in range(weights.shape[1]):
                total[column, s] += data[entry] * weights[k, s]


def stack(
    parts: Sequence[Input], n_inputs: int | None = None
) -> tuple[Inputs, Indices]:
    """The feature rows of all examples, and the offsets (n_examples + 1,) of each example's first row."""
    matrices = [as_matrix(part, i) for i, part in enumerate(parts)]
    expected = matrices[0].shape[1] if n_inputs is None and matrices else n_inputs
    for i, matrix in enumerate(matrices):
        if matrix.shape[0] == 0:
            raise InputError(f"example {i} is empty: it has no rows of features")
        if matrix.shape[1] != expected:
            raise InputError(
                f"example {i} has {matrix.shape[1]} features, where {expected} are expected"
            )
    offsets = np.zeros(len(matrices) + 1, dtype=np.intp)
    np.cumsum([matrix.shape[0] for matrix in matrices], out=offsets[1:])
    if any(sp.issparse(matrix) for matrix in matrices):
        together: Matrix = sp.vstack(
            [sp.csr_array(matrix) for matrix in matrices], format="csr"
        )
    else:
        together = np.concatenate([*matrices, np.zeros((0, expected or 0))])
    return Inputs.of(together, place_in(offsets)), offsets


def as_matrix(x: Input, example: int | None) -> Matrix:
    """A numeric matrix (T, F), dense or sparse."""
    name = name_place(example, unnamed="x")
    try:
        matrix: Matrix = x if sp.issparse(x) else np.asarray(x)
    except ValueError:
        raise InputError(
            f"{name}: features must be a matrix, with rows of the same length"
        ) from None
    if matrix.ndim != 2:
        message = "Reshape your data to (rows, features)"
        if matrix.dtype.kind in "OUS":
            message = "Words and dicts become rows of numbers by clew.preprocessing.NodeTransformer"
        raise InputError(
            f"{name}: features must be a matrix with a row for each node, not {matrix.shape}. {message}"
        )
    if matrix.dtype.kind == "c":
        raise InputError(
            f"{name}: features must be numbers. Complex data not supported"
        )
    if matrix.dtype.kind not in "biuf":
        try:
            matrix = matrix.astype(
                np.float64, casting="unsafe" if matrix.dtype.kind == "O" else "safe"
            )
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{name}: features must be numbers, not {matrix.dtype}"
            ) from None
    return matrix


def place_in(offsets: Indices) -> Place:
    """From a stacked row to its example and position."""

    def place(row: int) -> tuple[int, int]:
        example = int(np.searchsorted(offsets, row, side="right")) - 1
        return example, row - int(offsets[example])

    return place
