"""Exact margins: the score lost if an event of an assignment is forbidden or forced.

Two consistent choices y and y' of columns with reduced scores r differ in score by
Σ r (y − y'): each detection is covered once in both, so that the prices cancel. Hence
the cost of an alternative is a sum over the few columns that leave and enter. A local
search removes the column in question, covers one open
detection after another, cheapest column first, and stops where the cost must exceed
that of the best alternative so far.

The search is depth-first branch and bound, compiled. Each level adds one column, which
covers an open detection and removes the columns that covered its detections before.
Columns, detections and levels are records: a kernel takes a few arguments, where
parallel arrays would be a dozen, and took three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from clew.learning.task import Array, Indices

MAX_STEPS = 500
"""Columns tried for one event; beyond, the best alternative so far counts. Among 1,000
cells this concerns 4 % of the events, none of them among the least certain, and takes a
fifth of the time of 4,000."""
MAX_DEPTH = 12
"""Events that an alternative may add."""
N_BALANCING_SWEEPS = 6
WIDTH = 4
"""Detections of a column at most: two sources and two targets."""
TOLERANCE = 1e-9

COLUMN = np.dtype(
    [
        ("rows", np.intp, WIDTH),  # its detections, padded with -1
        ("reduced", np.float64),  # reduced score; -inf if it is ruled out
    ]
)
DETECTION = np.dtype(
    [
        ("begin", np.intp),  # its columns are order[begin:end], cheapest first
        ("end", np.intp),
        ("cover", np.intp),  # the column that covers it; -1 while it is open
        ("share", np.float64),  # lower bound of its cost while it is open
        ("alone", np.intp),  # the column by which it appears or disappears, or -1
    ]
)
LEVEL = np.dtype(
    [
        ("added", np.intp),  # column added by this level, or -1
        ("removed", np.intp, WIDTH),  # columns removed by it; n_removed count
        ("n_removed", np.intp),
        ("row", np.intp),  # detection that the next level covers
        ("next", np.intp),  # place in `order` of the next column to try for it
        ("cost", np.float64),  # of this level and those above
        ("n_open", np.intp),  # length of the log of opened detections up to here
    ]
)
Records = Any
"""An array of one of these types, whose fields are attributes in compiled code."""

kernel = njit(cache=True, nogil=True)


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


@kernel  # type: ignore[untyped-decorator]
def balance_prices(
    columns: Records, detections: Records, order: Indices, chosen: Indices
) -> None:  # pragma: no cover  # compiled
    """Balance prices within chosen columns by changing reduced scores in place.

    The simplex method ends at a vertex, where many columns that are not chosen have the
    reduced score 0 and give no bound. Prices may pass from one detection of a chosen
    column to another until their nearest alternatives are equally far; all differences
    between choices stay the same.
    """
    for _ in range(N_BALANCING_SWEEPS):
        for k in chosen:
            for p in range(WIDTH):
                for q in range(p + 1, WIDTH):
                    a = columns[k].rows[p]
                    b = columns[k].rows[q]
                    if a < 0 or b < 0:
                        continue
                    cost_a = _cheapest_without(columns, detections, order, a, b)
                    cost_b = _cheapest_without(columns, detections, order, b, a)
                    shift = (cost_b - cost_a) / 2
                    if np.isfinite(shift) and shift != 0.0:
                        _add_without(columns, detections, order, a, b, -shift)
                        _add_without(columns, detections, order, b, a, shift)


@kernel  # type: ignore[untyped-decorator]
def _cheapest_without(
    columns: Records, detections: Records, order: Indices, row: int, excluded: int
) -> float:  # pragma: no cover  # compiled
    """Return the least cost of a detection's other columns without `excluded`."""
    least = np.inf
    for place in range(detections[row].begin, detections[row].end):
        column = order[place]
        if detections[row].cover != column and not _has_detection(
            columns, column, excluded
        ):
            least = min(least, -columns[column].reduced)
    return least


@kernel  # type: ignore[untyped-decorator]
def _add_without(
    columns: Records,
    detections: Records,
    order: Indices,
    row: int,
    excluded: int,
    value: float,
) -> None:  # pragma: no cover  # compiled
    """Add to the reduced scores of a detection's columns without `excluded`."""
    for place in range(detections[row].begin, detections[row].end):
        if not _has_detection(columns, order[place], excluded):
            columns[order[place]].reduced += value


@kernel  # type: ignore[untyped-decorator]
def _has_detection(
    columns: Records, column: int, row: int
) -> bool:  # pragma: no cover  # compiled
    """Whether a column covers a detection."""
    for p in range(WIDTH):  # noqa: SIM110  # a plain loop compiles
        if columns[column].rows[p] == row:
            return True
    return False


@kernel  # type: ignore[untyped-decorator]
def sort_columns(
    columns: Records, detections: Records, order: Indices
) -> None:  # pragma: no cover  # compiled
    """Sort the columns of each detection by cost, in place (stable insertion sort)."""
    for detection in detections:
        for place in range(detection.begin + 1, detection.end):
            column = order[place]
            reduced = columns[column].reduced
            k = place
            while k > detection.begin and columns[order[k - 1]].reduced < reduced:
                order[k] = order[k - 1]
                k -= 1
            order[k] = column


@kernel  # type: ignore[untyped-decorator]
def search_alternatives(
    columns: Records,
    detections: Records,
    order: Indices,
    slack: float,
    queries: Indices,
    added: Indices,
    removed: Indices,
) -> Array:  # pragma: no cover  # compiled
    """Return (m,) the cost of the best alternative to each queried column.

    `slack` is what alternatives may gain where prices are not optimal; every bound is
    lowered by it. The columns of the alternatives are written to the rows of `added`
    and `removed`, unless these are empty.
    """
    levels = np.zeros(MAX_DEPTH + 1, LEVEL)
    for k in range(len(levels)):
        levels[k].added = -1
    log = np.empty((MAX_DEPTH + 1) * WIDTH * WIDTH + WIDTH, dtype=np.intp)
    cost = np.empty(len(queries))
    for k in range(len(queries)):
        cost[k] = _search_one(
            columns,
            detections,
            order,
            slack,
            queries[k],
            levels,
            log,
            added,
            removed,
            k,
        )
    return cost


@kernel  # type: ignore[untyped-decorator]
def _search_one(
    columns: Records,
    detections: Records,
    order: Indices,
    slack: float,
    query: int,
    levels: Records,
    log: Indices,
    added: Indices,
    removed: Indices,
    place: int,
) -> float:  # pragma: no cover  # compiled
    """Return the cost of the best alternative to one column; restore the records."""
    best = np.inf
    # cost of an alternative in which all open detections appear or disappear
    fallback = np.inf
    if columns[query].reduced == -np.inf:
        return best
    forbidden = _start_search(columns, detections, query, levels, log)
    n_steps = 0
    level = 0
    is_new = True
    while level >= 0:
        if is_new:
            row, lower, upper = _bound_cost(
                columns, detections, levels[level], log, forbidden
            )
            if row < 0 and levels[level].cost < best:  # a consistent choice
                best = levels[level].cost
                _record_alternative(levels, level, added, removed, place)
            fallback = min(fallback, upper)
            lower -= slack
            if (
                row < 0
                or level == MAX_DEPTH
                or lower >= best
                or lower > fallback + TOLERANCE
            ):
                is_new = False
                level = _undo_level(columns, detections, levels, level)
                continue
            levels[level].row = row
            levels[level].next = detections[row].begin
        limit = min(best, fallback + TOLERANCE) + slack
        is_new = _add_next_column(
            columns, detections, order, levels, log, level, forbidden, limit
        )
        if is_new:
            n_steps += 1
            level += 1
        if n_steps > MAX_STEPS and min(best, fallback) < np.inf:
            while level >= 0:
                level = _undo_level(columns, detections, levels, level)
        elif not is_new:
            level = _undo_level(columns, detections, levels, level)
    return max(min(best, fallback), 0.0)


@kernel  # type: ignore[untyped-decorator]
def _start_search(
    columns: Records, detections: Records, query: int, levels: Records, log: Indices
) -> int:  # pragma: no cover  # compiled
    """Remove the queried column if it is chosen, else add it.

    Return the column that no alternative may contain, or -1.
    """
    levels[0].n_open = 0
    for p in range(WIDTH):
        row = columns[query].rows[p]
        if row >= 0 and detections[row].cover == query:
            levels[0].cost = columns[query].reduced
            levels[0].added = -1
            levels[0].n_removed = 0
            _remove_column(columns, detections, query, levels[0], log)
            return query
    levels[0].cost = _add_column(columns, detections, query, levels[0], log)
    return -1


@kernel  # type: ignore[untyped-decorator]
def _bound_cost(
    columns: Records, detections: Records, level: Any, log: Indices, forbidden: int
) -> tuple[int, float, float]:  # pragma: no cover  # compiled
    """Return the open detection to cover next, and bounds of the cost from here.

    -1 if none is open. At least, each open detection costs its share of the cheapest
    column. At most, each appears or disappears.
    """
    row = -1
    lower = level.cost
    upper = level.cost
    for k in range(level.n_open):
        is_repeated = False
        for earlier in range(k):
            is_repeated |= log[earlier] == log[k]
        detection = detections[log[k]]
        if detection.cover != -1 or is_repeated:
            continue
        lower += detection.share
        if detection.alone < 0 or detection.alone == forbidden:
            upper = np.inf
        else:
            upper -= columns[detection.alone].reduced
        # the most expensive first: it decides most
        if row < 0 or detection.share > detections[row].share:
            row = log[k]
    return row, lower, upper


@kernel  # type: ignore[untyped-decorator]
def _add_next_column(
    columns: Records,
    detections: Records,
    order: Indices,
    levels: Records,
    log: Indices,
    level: int,
    forbidden: int,
    limit: float,
) -> bool:  # pragma: no cover  # compiled
    """Add the next column that covers the level's detection and may cost below `limit`.

    Return whether there is one.
    """
    current = levels[level]
    end = detections[current.row].end
    while current.next < end:
        column = order[current.next]
        if current.cost - columns[column].reduced >= limit:
            current.next = end  # all further ones cost more
            return False
        current.next += 1
        if column != forbidden and _can_add(columns, detections, levels, column, level):
            levels[level + 1].n_open = current.n_open
            levels[level + 1].cost = current.cost + _add_column(
                columns, detections, column, levels[level + 1], log
            )
            return True
    return False


@kernel  # type: ignore[untyped-decorator]
def _can_add(
    columns: Records, detections: Records, levels: Records, column: int, level: int
) -> bool:  # pragma: no cover  # compiled
    """Whether no column that the search added covers a detection of this one."""
    for p in range(WIDTH):
        row = columns[column].rows[p]
        if row >= 0 and detections[row].cover >= 0:
            holder = detections[row].cover
            if holder == column:
                return False
            for other in range(level + 1):
                if levels[other].added == holder:
                    return False
    return True


@kernel  # type: ignore[untyped-decorator]
def _add_column(
    columns: Records, detections: Records, column: int, level: Any, log: Indices
) -> float:  # pragma: no cover  # compiled
    """Cover the detections of a column by it; return what that costs."""
    cost: float = -columns[column].reduced
    level.added = column
    level.n_removed = 0
    for p in range(WIDTH):
        row = columns[column].rows[p]
        if row >= 0 and detections[row].cover >= 0 and detections[row].cover != column:
            cost += columns[detections[row].cover].reduced
            _remove_column(columns, detections, detections[row].cover, level, log)
    _set_cover(columns, detections, column, column)
    return cost


@kernel  # type: ignore[untyped-decorator]
def _remove_column(
    columns: Records, detections: Records, column: int, level: Any, log: Indices
) -> None:  # pragma: no cover  # compiled
    """Open the detections of a column, and note both in the level."""
    level.removed[level.n_removed] = column
    level.n_removed += 1
    for p in range(WIDTH):
        if columns[column].rows[p] >= 0:
            log[level.n_open] = columns[column].rows[p]
            level.n_open += 1
    _set_cover(columns, detections, column, -1)


@kernel  # type: ignore[untyped-decorator]
def _set_cover(
    columns: Records, detections: Records, column: int, cover: int
) -> None:  # pragma: no cover  # compiled
    """Set what covers the detections of a column."""
    for p in range(WIDTH):
        if columns[column].rows[p] >= 0:
            detections[columns[column].rows[p]].cover = cover


@kernel  # type: ignore[untyped-decorator]
def _record_alternative(
    levels: Records, level: int, added: Indices, removed: Indices, place: int
) -> None:  # pragma: no cover  # compiled
    """Write what was added and removed up to a level into a row of both tables."""
    if not len(added):
        return
    for k in range(added.shape[1]):
        added[place, k] = -1
    for k in range(removed.shape[1]):
        removed[place, k] = -1
    n_added = 0
    n_removed = 0
    for above in range(level + 1):
        if levels[above].added >= 0:
            added[place, n_added] = levels[above].added
            n_added += 1
        for k in range(levels[above].n_removed):
            removed[place, n_removed] = levels[above].removed[k]
            n_removed += 1


@kernel  # type: ignore[untyped-decorator]
def _undo_level(
    columns: Records, detections: Records, levels: Records, level: int
) -> int:  # pragma: no cover  # compiled
    """Undo a level; return the one above it."""
    if levels[level].added >= 0:
        _set_cover(columns, detections, levels[level].added, -1)
    for k in range(levels[level].n_removed):
        column = levels[level].removed[k]
        _set_cover(columns, detections, column, column)
    levels[level].added = -1
    levels[level].n_removed = 0
    return level - 1
