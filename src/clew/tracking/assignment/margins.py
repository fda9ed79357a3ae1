"""Exact margins: the score lost if an event of an assignment is forbidden or forced.

Two consistent choices y and y' of columns with reduced scores r differ in score by
Σ r (y − y'): each detection is covered once in both, so that the prices cancel. Hence
the cost of an alternative is a sum over the few columns that leave and enter. A local
search (`_alternative_search.py`) removes the column in question, covers one open
detection after another, cheapest column first, and stops where the cost must exceed
that of the best alternative so far.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.learning.task import Array, Indices
from clew.tracking.assignment._alternative_search import (
    COLUMN,
    DETECTION,
    MAX_DEPTH,
    WIDTH,
    balance_prices,
    search_alternatives,
    sort_columns,
)


def compute_margins(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array, queries: Indices
) -> Array:
    """Compute the margin of each queried column.

    Parameters
    ----------
    rows : ndarray of shape (n, 4)
        The detections of each column, padded with −1.
    n_detections : int
    chosen : ndarray of shape (c,)
        Columns of the best choice; they cover each detection once.
    reduced : ndarray of shape (n,)
        Reduced scores; −inf for columns that are ruled out.
    queries : ndarray of shape (m,)
        Columns.

    Returns
    -------
    ndarray of shape (m,)
        The score lost if the column is forbidden (if it is chosen) or forced (if it is
        not); inf if that is impossible.
    """
    none = np.zeros((0, 0), dtype=np.intp)
    return _run_search(rows, n_detections, chosen, reduced, queries, none, none)


def find_alternatives(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array, queries: Indices
) -> tuple[Array, Indices, Indices]:
    """Find the best alternative to each queried column.

    Parameters are those of `compute_margins`.

    Returns
    -------
    margins : ndarray of shape (m,)
    added : ndarray of shape (m, a)
        Columns that the alternative adds, padded with −1; none where the margin is inf.
    removed : ndarray of shape (m, b)
        Columns that it removes. A column may be added and removed.
    """
    added = np.full((len(queries), MAX_DEPTH + 1), -1, dtype=np.intp)
    removed = np.full((len(queries), (MAX_DEPTH + 1) * WIDTH), -1, dtype=np.intp)
    margins = _run_search(rows, n_detections, chosen, reduced, queries, added, removed)
    return margins, _trim_columns(added), _trim_columns(removed)


def _trim_columns(table: Indices) -> Indices:
    """Remove the columns at the end that have no entry."""
    is_used = (table >= 0).any(axis=0)
    width = int(np.max(np.flatnonzero(is_used), initial=-1)) + 1
    return table[:, :width]


def _run_search(
    rows: Indices,
    n_detections: int,
    chosen: Indices,
    reduced: Array,
    queries: Indices,
    added: Indices,
    removed: Indices,
) -> Array:
    """Compute margins; write alternatives to `added` and `removed` if not empty."""
    columns, detections, order = _prepare_search(rows, n_detections, chosen, reduced)
    balanced = columns["reduced"]
    # Where the LP was fractional, a chosen column's reduced score may be negative:
    # removing it gains something.
    slack = float(np.maximum(-balanced[chosen], 0.0).sum())
    slack += float(np.maximum(balanced, 0.0).sum())
    slack -= float(np.maximum(balanced[chosen], 0.0).sum())
    margins: Array = search_alternatives(
        columns,
        detections,
        order,
        slack,
        np.asarray(queries, dtype=np.intp),
        added,
        removed,
    )
    return margins


def _prepare_search(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array
) -> tuple[NDArray[np.void], NDArray[np.void], Indices]:
    """Return records of columns and detections, and the columns of each detection.

    Prices are balanced: the reduced scores differ from `reduced`, but every alternative
    costs the same.
    """
    columns = np.zeros(len(rows), COLUMN)
    columns["rows"] = rows
    columns["reduced"] = reduced
    covers = rows >= 0
    column, place = np.nonzero(covers & (reduced > -np.inf)[:, None])
    detection = rows[column, place]

    detections = np.zeros(n_detections, DETECTION)
    ones = np.ones(len(column), dtype=np.int8)
    shape = (n_detections, len(rows))
    incidence = sp.csr_array((ones, (detection, column)), shape=shape)
    detections["begin"] = incidence.indptr[:-1]
    detections["end"] = incidence.indptr[1:]
    detections["cover"] = -1
    for k in range(WIDTH):
        is_covered = covers[chosen, k]
        detections["cover"][rows[chosen, k][is_covered]] = chosen[is_covered]
    order = incidence.indices.astype(np.intp)
    balance_prices(columns, detections, order, chosen)
    sort_columns(columns, detections, order)

    cost = -columns["reduced"][column]
    size = covers.sum(axis=1)[column]
    is_alone = size == 1
    detections["alone"] = -1
    detections["alone"][detection[is_alone]] = column[is_alone]
    is_other = detections["cover"][detection] != column
    bound = np.maximum(cost[is_other], 0.0) / size[is_other]
    share = np.full(n_detections, np.inf)
    np.minimum.at(share, detection[is_other], bound)
    detections["share"] = share
    return columns, detections, order
