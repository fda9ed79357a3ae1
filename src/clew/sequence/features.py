"""From feature dicts of tokens to sparse rows, by a dictionary of all features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from clew.errors import InputError
from clew.utils.validation import check_int, short_repr

Token: TypeAlias = Any
"""A dict from names to strings, numbers, booleans, lists, sets or dicts; or a list of names."""
UNKNOWN = -1
"""Column of a feature that the fit has not seen."""


class FeatureDictionary(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Turns feature dicts of tokens into sparse rows, with CRFsuite's rules.

    A string value makes the feature "name:value" with value 1, a number or boolean the
    feature "name" with that value, a list or set of strings one feature each, and a
    dict features "name:inner". A token may also be a list of names.

    Parameters
    ----------
    min_freq : int
        Features of fewer tokens are left out.

    Attributes
    ----------
    columns_ : dict from str to int
        The column of each feature.
    """

    columns_: dict[str, int]

    def __init__(self, min_freq: int = 0) -> None:
        self.min_freq = min_freq

    def fit(self, X: Sequence[Sequence[Token]], y: object = None) -> Self:  # noqa: ARG002
        """Find all features."""
        self.fit_transform(X)
        return self

    def fit_transform(
        self,
        X: Sequence[Sequence[Token]],
        y: object = None,  # noqa: ARG002
    ) -> list[Any]:
        """Find all features, and return the rows of each sentence."""
        min_freq = check_int(self.min_freq, "min_freq", 0)
        columns: dict[str, int] = {}
        rows = _read_rows(X, _Items(columns, grows=True))
        if min_freq > 1:
            counts = np.bincount(rows.columns, minlength=len(columns))
            is_kept = counts >= min_freq
            new = np.where(is_kept, np.cumsum(is_kept) - 1, UNKNOWN)
            rows = rows.select_columns(new)
            columns = {name: int(new[k]) for name, k in columns.items() if is_kept[k]}
        self.columns_ = columns
        return rows.split(len(columns))

    def transform(self, X: Sequence[Sequence[Token]]) -> list[Any]:
        """Return the rows of each sentence; unknown features are left out."""
        check_is_fitted(self, "columns_")
        rows = _read_rows(X, _Items(self.columns_, grows=False))
        return rows.split(len(self.columns_))

    def get_feature_names_out(
        self,
        input_features: object = None,  # noqa: ARG002
    ) -> NDArray[np.object_]:
        """Return the features in the order of their columns."""
        check_is_fitted(self, "columns_")
        return np.array(list(self.columns_), dtype=object)


class _Items(dict[tuple[str, Any], int]):
    """From an item of a token's dict to its column.

    Most items were met before. Then the lookup is one of a built-in dict, so that
    `map` reads a token without a line of Python for each feature.
    """

    def __init__(self, columns: dict[str, int], grows: bool) -> None:
        super().__init__()
        self.columns = columns
        self.grows = grows

    def __missing__(self, item: tuple[str, Any]) -> int:
        """Return the column of an item whose value is a string, 1 or 0."""
        name, value = item
        if isinstance(value, str):
            column = self.find_column(f"{name}:{value}")
        elif value in (0, 1):
            column = self.find_column(str(name)) if value else UNKNOWN
        else:
            raise TypeError(f"{value!r} is no value of an indicator")
        self[item] = column
        return column

    def find_column(self, name: str) -> int:
        """Return the column of a feature, a new one if the dictionary grows."""
        if self.grows:
            return self.columns.setdefault(name, len(self.columns))
        return self.columns.get(name, UNKNOWN)


class _Rows:
    """Features of all tokens, with the number of features and tokens."""

    def __init__(
        self,
        columns: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        lengths: Sequence[int],
    ) -> None:
        self.columns = columns
        self.values = values
        self.counts = counts
        self.lengths = lengths

    def select_columns(self, new: NDArray[np.int64]) -> _Rows:
        """Return the rows with other columns, without those that are unknown."""
        columns = new[self.columns].astype(np.int32)
        return _Rows(columns, self.values, self.counts, self.lengths).drop_unknown()

    def drop_unknown(self) -> _Rows:
        """Return the rows without unknown features."""
        is_known = self.columns >= 0
        if is_known.all():
            return self
        before = np.concatenate([[0], np.cumsum(is_known)])
        ends = before[np.cumsum(self.counts)]
        counts = np.diff(ends, prepend=0)
        return _Rows(
            self.columns[is_known], self.values[is_known], counts, self.lengths
        )

    def split(self, n_columns: int) -> list[Any]:
        """Return a csr_array for each sentence."""
        indptr = np.concatenate([[0], np.cumsum(self.counts)])
        matrix = sp.csr_array(
            (self.values, self.columns, indptr), shape=(len(self.counts), n_columns)
        )
        ends = np.cumsum(self.lengths)
        return [
            matrix[end - length : end]
            for end, length in zip(ends, self.lengths, strict=True)
        ]


def _read_rows(X: Sequence[Sequence[Token]], items: _Items) -> _Rows:
    """Look up the features of all tokens."""
    columns: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    numeric: list[tuple[int, list[float]]] = []  # where values are not all 1
    get_column = items.__getitem__
    for sentence in X:
        if isinstance(sentence, str | Mapping):
            raise InputError(
                f"a sentence is {short_repr(sentence)}; expected a list with the "
                "features of each token"
            )
        for token in sentence:
            begin = len(columns)
            try:
                columns.extend(map(get_column, token.items()))
            except (AttributeError, TypeError):  # a list of names, or other values
                del columns[begin:]
                features = list(_iterate_features(token))
                columns.extend(items.find_column(name) for name, _ in features)
                numeric.append((begin, [value for _, value in features]))
            counts.append(len(columns) - begin)
        lengths.append(len(sentence))
    values = np.ones(len(columns))
    for begin, token_values in numeric:
        values[begin : begin + len(token_values)] = token_values
    return _Rows(
        np.array(columns, dtype=np.int32),
        values,
        np.array(counts, dtype=np.int64),
        lengths,
    ).drop_unknown()


def _iterate_features(token: Token) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each feature of a token."""
    if isinstance(token, Mapping):
        for name, value in token.items():
            yield from _iterate_values(str(name), value)
    elif isinstance(token, Iterable) and not isinstance(token, str | bytes):
        for name in token:
            yield str(name), 1.0
    else:
        raise InputError(
            f"a token is {short_repr(token)}; expected a dict of features, or a list "
            "of their names"
        )


def _iterate_values(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the features that one entry of a token's dict stands for."""
    if isinstance(value, str):
        yield f"{name}:{value}", 1.0
    elif isinstance(value, bool | int | float | np.number | np.bool_):
        if value:
            yield name, float(value)
    elif isinstance(value, Mapping):
        for inner, inner_value in value.items():
            yield from _iterate_values(f"{name}:{inner}", inner_value)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for inner in value:
            yield f"{name}:{inner}", 1.0
    elif value is not None:
        raise InputError(
            f"feature {name!r} is {short_repr(value)}; expected a string, a number, a "
            "list, a set or a dict"
        )
