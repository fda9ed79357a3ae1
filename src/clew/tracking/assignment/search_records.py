"""What the search for alternatives works on: candidate events, detections and levels of the search as records.

Arrays of records let a kernel take a few arguments and not a dozen parallel arrays. What is done for every column of a
frame pair is compiled, for on frames of some hundred cells the same steps in NumPy took longer than the search itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clew.learning.task import Array, Indices

SWEEPS = 6
"""Over the chosen columns, when prices are balanced."""
WIDTH = 4
"""Detections of a column at most: two sources and two targets."""


class Column(Protocol):
    """A record of a candidate event."""

    rows: Indices
    """(WIDTH,) its detections, −1 filled in."""
    reduced: float
    """Its reduced score; −inf where it is ruled out."""


class Detection(Protocol):
    """A record of a cell of either frame."""

    begin: int
    end: int
    """Where its columns stand in `order`, cheapest first."""
    cover: int
    """The column that covers it; −1 while it is open."""
    share: float
    """What it costs at least when it is left over."""
    alone: int
    """The column by which it appears or disappears, or −1."""
    price: float
    """By how much balancing raised its price."""


class Level(Protocol):
    """A record of one level of the search."""

    added: int
    """The column that it brought in, or −1."""
    removed: Indices
    """(WIDTH,) those that it pushed out, of which n_removed count."""
    n_removed: int
    row: int
    """The detection that the next level is to cover."""
    next: int
    """The place in `order` of the column to try next for it."""
    cost: float
    """What this level and all above it cost."""
    n_open: int
    """How much of the log of detections that lost their column belongs to this level and those above it."""


COLUMN = np.dtype([("rows", np.intp, WIDTH), ("reduced", np.float64)])
DETECTION = np.dtype(
    [
        ("begin", np.intp),
        ("end", np.intp),
        ("cover", np.intp),
        ("share", np.float64),
        ("alone", np.intp),
        ("price", np.float64),
    ]
)
LEVEL = np.dtype(
    [
        ("added", np.intp),
        ("removed", np.intp, WIDTH),
        ("n_removed", np.intp),
        ("row", np.intp),
        ("next", np.intp),
        ("cost", np.float64),
        ("n_open", np.intp),
    ]
)
Columns = Sequence[Column]
Detections = Sequence[Detection]
Levels = Sequence[Level]

kernel = njit(cache=True, nogil=True)


def search_records(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array
) -> tuple[NDArray[np.void], NDArray[np.void], Indices]:
    """Records of the columns and of the detections, and the possible columns of each detection, cheapest first.

    `rows` is (n, 4): the detections of each column, −1 filled in. Prices are balanced: the records have other reduced
    scores than `reduced`, but every alternative costs the same.
    """
    columns, detections = np.zeros(len(rows), COLUMN), np.zeros(n_detections, DETECTION)
    columns["rows"], columns["reduced"] = -1, reduced
    columns["rows"][:, : rows.shape[1]] = rows
    return columns, detections, _arrange(columns, detections, chosen)


@kernel  # type: ignore[untyped-decorator]
def _arrange(
    columns: Columns, detections: Detections, chosen: Indices
) -> Indices:  # pragma: no cover  # compiled
    """Fill in the detections' records and balance prices; the columns of each detection, one after the other."""
    order: Indices = _by_detection(columns, detections)
    for k in range(len(detections)):
        detections[k].cover = -1
    for column in chosen:
        cover(columns, detections, column, column)
    _balance(columns, detections, order, chosen)
    _cheapest_first(columns, detections, order)
    _least_costs(columns, detections)
    return order


@kernel  # type: ignore[untyped-decorator]
def _by_detection(
    columns: Columns, detections: Detections
) -> Indices:  # pragma: no cover  # compiled
    """The possible columns of each detection, in the columns' order; where those of a detection begin and end."""
    for column in columns:
        for p in range(WIDTH):
            if column.rows[p] >= 0 and column.reduced > -np.inf:
                detections[column.rows[p]].end += 1  # a count at first
    total = 0
    for k in range(len(detections)):
        detections[k].begin, total = total, total + detections[k].end
        detections[k].end = detections[k].begin
    order = np.empty(total, dtype=np.intp)
    for k in range(len(columns)):
        for p in range(WIDTH):
            row = columns[k].rows[p]
            if row >= 0 and columns[k].reduced > -np.inf:
                order[detections[row].end] = k
                detections[row].end += 1
    return order


@kernel  # type: ignore[untyped-decorator]
def _cheapest_first(
    columns: Columns, detections: Detections, order: Indices
) -> None:  # pragma: no cover  # compiled
    """Sort the columns of each detection, in place: the search ends at the first column that is too dear."""
    for detection in detections:
        here = order[detection.begin : detection.end]
        price = np.empty(len(here))
        for at in range(len(here)):
            price[at] = -columns[here[at]].reduced
        here[:] = here[np.argsort(price, kind="mergesort")]


@kernel  # type: ignore[untyped-decorator]
def _least_costs(
    columns: Columns, detections: Detections
) -> None:  # pragma: no cover  # compiled
    """What each detection costs at least when it is left over, and the column that it can always take.

    It takes a column that is not chosen, which it shares with the column's other detections; or it appears or
    disappears.
    """
    for k in range(len(detections)):
        detections[k].share, detections[k].alone = np.inf, -1
    for k in range(len(columns)):
        if columns[k].reduced == -np.inf:
            continue
        size = 0
        for p in range(WIDTH):
            size += columns[k].rows[p] >= 0
        for p in range(WIDTH):
            row = columns[k].rows[p]
            if row < 0:
                continue
            if size == 1:
                detections[row].alone = k
            if detections[row].cover != k:
                detections[row].share = min(
                    detections[row].share, max(-columns[k].reduced, 0.0) / size
                )


@kernel  # type: ignore[untyped-decorator]
def _balance(
    columns: Columns, detections: Detections, order: Indices, chosen: Indices
) -> None:  # pragma: no cover  # compiled
    """Shift prices within chosen columns until their detections' nearest alternatives are equally far, in place.

    The simplex method ends at a vertex, where many columns that are not chosen have the reduced score 0 and say
    nothing. Prices may go from one detection of a chosen column to another: all reduced scores stay right.
    """
    for _ in range(SWEEPS):
        for k in chosen:
            for p in range(WIDTH):
                for q in range(p + 1, WIDTH):
                    a, b = columns[k].rows[p], columns[k].rows[q]
                    if a < 0 or b < 0:
                        continue
                    shift = _nearest(columns, detections, order, b, a)
                    shift = (shift - _nearest(columns, detections, order, a, b)) / 2
                    if np.isfinite(shift) and shift != 0.0:
                        _add(columns, detections, order, a, b, -shift)
                        _add(columns, detections, order, b, a, shift)
                        detections[a].price += shift
                        detections[b].price -= shift


@kernel  # type: ignore[untyped-decorator]
def _nearest(
    columns: Columns, detections: Detections, order: Indices, row: int, without: int
) -> float:  # pragma: no cover  # compiled
    """How little any other column of a detection costs, of those that do not have a certain other detection."""
    least = np.inf
    for at in range(detections[row].begin, detections[row].end):
        if detections[row].cover != order[at] and not _has(columns, order[at], without):
            least = min(least, -columns[order[at]].reduced)
    return least


@kernel  # type: ignore[untyped-decorator]
def _add(
    columns: Columns,
    detections: Detections,
    order: Indices,
    row: int,
    without: int,
    value: float,
) -> None:  # pragma: no cover  # compiled
    """Change the score of every column of a detection that does not have a certain other detection."""
    for at in range(detections[row].begin, detections[row].end):
        if not _has(columns, order[at], without):
            columns[order[at]].reduced += value


@kernel  # type: ignore[untyped-decorator]
def _has(
    columns: Columns, column: int, row: int
) -> bool:  # pragma: no cover  # compiled
    for p in range(WIDTH):  # noqa: SIM110  # a plain loop compiles
        if columns[column].rows[p] == row:
            return True
    return False


@kernel  # type: ignore[untyped-decorator]
def cover(
    columns: Columns, detections: Detections, column: int, by: int
) -> None:  # pragma: no cover  # compiled
    """Let the detections of a column be covered by another one, or by none."""
    for p in range(WIDTH):
        if columns[column].rows[p] >= 0:
            detections[columns[column].rows[p]].cover = by
