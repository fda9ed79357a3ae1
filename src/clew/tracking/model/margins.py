"""What forbidding or forcing one event of an assignment would cost, by a local search in the neighbourhood."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from clew.learning.task import Array, Indices

MOST_STEPS = 500
"""Columns that are tried for one event; beyond that the best alternative so far counts. Among 1,000 cells this matters
for 4 % of the events, none of them among the least certain, and takes a fifth of the time of trying 4,000."""
TIE = 1e-9
SWEEPS = 6
"""Over the chosen columns, when prices are balanced."""
DEEPEST = 12
"""How many events an alternative may bring in."""


def margins(rows: Indices, n_detections: int, chosen: Indices, reduced: Array, asked: Indices) -> Array:
    """(m,) the score lost when each asked column is forbidden (if it is chosen) or forced (if not).

    Two consistent choices y and y' of columns with reduced scores r differ in score by Σ r (y − y'), since each
    detection is counted once in both: the prices cancel. So an alternative costs a sum over the few columns that leave
    and that come. The search removes the column in question, covers one uncovered detection after the other, cheapest
    column first, removes what is in its way, and is cut off where it must cost more than the best alternative so far.
    `rows` is (n, 4): the detections of each column, −1 filled in.
    """
    nothing = np.zeros((0, 0), dtype=np.intp)
    return _searched(rows, n_detections, chosen, reduced, asked, nothing, nothing)


def alternatives(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array, asked: Indices
) -> tuple[Array, Indices, Indices]:
    """The `margins`, (m,), and the columns that come, (m, a), and go, (m, b), in the best alternative; −1 filled in.

    A column may both come and go. Where there is no alternative, the margin is inf and there are no columns.
    """
    came = np.full((len(asked), DEEPEST + 1), -1, dtype=np.intp)
    went = np.full((len(asked), (DEEPEST + 1) * rows.shape[1]), -1, dtype=np.intp)
    found = _searched(rows, n_detections, chosen, reduced, asked, came, went)
    return found, _narrow(came), _narrow(went)


def _narrow(columns: Indices) -> Indices:
    """Without the places at the end that no row uses."""
    width = int(np.max(np.flatnonzero((columns >= 0).any(axis=0)), initial=-1)) + 1
    return columns[:, :width]


def _searched(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array, asked: Indices, came: Indices, went: Indices
) -> Array:
    """The margins; the alternatives are written into `came` and `went` unless these are empty."""
    columns, starts = _by_detection(rows, reduced, n_detections)
    cover = np.full(n_detections, -1, dtype=np.intp)
    for side in rows[chosen].T:
        cover[side[side >= 0]] = chosen[side >= 0]
    reduced = reduced.copy()
    _balance(rows, columns, starts, chosen, cover, reduced, SWEEPS)
    _cheapest_first(columns, starts, reduced)
    # where the LP was fractional, a chosen column's reduced score may be negative: removing it then earns something
    slack = float(np.maximum(-reduced[chosen], 0.0).sum() + np.maximum(reduced, 0.0).sum())
    slack -= float(np.maximum(reduced[chosen], 0.0).sum())
    share, alone = _least(rows, reduced, cover, n_detections)
    asked = np.asarray(asked, dtype=np.intp)
    found: Array = _search_all(rows, columns, starts, cover, reduced, share, alone, asked, slack, came, went)
    return found


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _by_detection(rows: Any, reduced: Any, n_detections: int) -> Any:  # pragma: no cover  # compiled
    """The columns of each detection that are possible, in the columns' order, and where those of each begin."""
    starts = np.zeros(n_detections + 1, dtype=np.intp)
    for k in range(len(rows)):
        if reduced[k] > -np.inf:
            for p in range(rows.shape[1]):
                if rows[k, p] >= 0:
                    starts[rows[k, p] + 1] += 1
    starts = np.cumsum(starts)
    columns = np.empty(starts[-1], dtype=np.intp)
    place = starts.copy()
    for k in range(len(rows)):
        if reduced[k] > -np.inf:
            for p in range(rows.shape[1]):
                if rows[k, p] >= 0:
                    columns[place[rows[k, p]]] = k
                    place[rows[k, p]] += 1
    return columns, starts


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _cheapest_first(columns: Any, starts: Any, reduced: Any) -> None:  # pragma: no cover  # compiled
    """Sort the columns of each detection, in place."""
    for row in range(len(starts) - 1):
        here = columns[starts[row] : starts[row + 1]]
        here[:] = here[np.argsort(-reduced[here], kind="mergesort")]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _least(rows: Any, reduced: Any, cover: Any, n_detections: int) -> Any:  # pragma: no cover  # compiled
    """What each detection costs at least when it is left over, (n,), and the column that it can always take, (n,).

    It takes a column that is not chosen, which it shares with the column's other detections; or it appears or
    disappears. Without such a column, −1.
    """
    share = np.full(n_detections, np.inf)
    alone = np.full(n_detections, -1, dtype=np.intp)
    for k in range(len(rows)):
        if reduced[k] == -np.inf:
            continue
        size, first = 0, -1
        for p in range(rows.shape[1]):
            if rows[k, p] >= 0:
                size += 1
                first = rows[k, p]
        if size == 0:
            continue
        if size == 1:
            alone[first] = k
        if cover[first] == k:
            continue
        for p in range(rows.shape[1]):
            if rows[k, p] >= 0:
                share[rows[k, p]] = min(share[rows[k, p]], max(-reduced[k], 0.0) / size)
    return share, alone


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _balance(
    rows: Any, columns: Any, starts: Any, chosen: Any, cover: Any, reduced: Any, sweeps: int
) -> None:  # pragma: no cover  # compiled
    """Shift prices within chosen columns until their detections' nearest alternatives are equally far, in place.

    The simplex method ends at a vertex, where many columns that are not chosen have the reduced score 0 and say
    nothing. Prices may go from one detection of a chosen column to another: all reduced scores stay right.
    """
    for _ in range(sweeps):
        for k in chosen:
            for p in range(rows.shape[1]):
                for q in range(p + 1, rows.shape[1]):
                    a, b = rows[k, p], rows[k, q]
                    if a < 0 or b < 0:
                        continue
                    shift = _nearest(rows, columns, starts, cover, reduced, b, a)
                    shift = (shift - _nearest(rows, columns, starts, cover, reduced, a, b)) / 2
                    if np.isfinite(shift) and shift != 0.0:
                        _add(rows, columns, starts, reduced, a, b, -shift)
                        _add(rows, columns, starts, reduced, b, a, shift)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _nearest(
    rows: Any, columns: Any, starts: Any, cover: Any, reduced: Any, row: int, without: int
) -> float:  # pragma: no cover  # compiled
    """How little any other column of a detection costs, of those that do not have a certain other detection."""
    least = np.inf
    for at in range(starts[row], starts[row + 1]):
        if cover[row] != columns[at] and not _has(rows, columns[at], without):
            least = min(least, -reduced[columns[at]])
    return least


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add(
    rows: Any, columns: Any, starts: Any, reduced: Any, row: int, without: int, value: float
) -> None:  # pragma: no cover  # compiled
    for at in range(starts[row], starts[row + 1]):
        if not _has(rows, columns[at], without):
            reduced[columns[at]] += value


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _has(rows: Any, column: int, row: int) -> bool:  # pragma: no cover  # compiled
    for p in range(rows.shape[1]):  # noqa: SIM110  # a plain loop compiles
        if rows[column, p] == row:
            return True
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _search_all(
    rows: Any,
    columns: Any,
    starts: Any,
    cover: Any,
    reduced: Any,
    share: Any,
    alone: Any,
    asked: Any,
    slack: float,
    came: Any,
    went: Any,
) -> Any:  # pragma: no cover  # compiled
    found = np.empty(len(asked))
    for k in range(len(asked)):
        kept = slice(k, k + 1)
        found[k] = _search(rows, columns, starts, cover, reduced, share, alone, asked[k], slack, came[kept], went[kept])
    return found


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _search(
    rows: Any,
    columns: Any,
    starts: Any,
    cover: Any,
    reduced: Any,
    share: Any,
    alone: Any,
    asked: int,
    slack: float,
    came: Any,
    went: Any,
) -> Any:  # pragma: no cover  # compiled
    width = rows.shape[1]
    added = np.full(DEEPEST + 1, -1, dtype=np.intp)  # the column that each level brought in
    removed = np.full((DEEPEST + 1, width), -1, dtype=np.intp)  # and those that it pushed out
    n_removed = np.zeros(DEEPEST + 1, dtype=np.intp)
    row_of = np.zeros(DEEPEST + 1, dtype=np.intp)  # the detection that the level covers
    next_of = np.zeros(DEEPEST + 1, dtype=np.intp)  # the next column to try for it
    cost = np.zeros(DEEPEST + 1)
    uncovered = np.empty((DEEPEST + 1) * width * width + width, dtype=np.intp)  # a log; `open_` marks those still open
    n_uncovered = np.zeros(DEEPEST + 1, dtype=np.intp)
    best, steps = np.inf, 0
    within = np.inf  # what an alternative costs at most in which all that is left over appears or disappears

    forbidden = -1
    if reduced[asked] == -np.inf:
        return best
    if cover[_first(rows, asked)] == asked:
        forbidden = asked
        cost[0] = reduced[asked]
        removed[0, 0], n_removed[0] = asked, 1
        for p in range(width):
            if rows[asked, p] >= 0:
                cover[rows[asked, p]] = -1
                uncovered[n_uncovered[0]] = rows[asked, p]
                n_uncovered[0] += 1
    else:
        cost[0] = _bring_in(rows, cover, reduced, asked, 0, added, removed, n_removed, uncovered, n_uncovered)

    level = 0
    descend = True
    while level >= 0:
        if descend:
            row, least, enough = -1, cost[level] - slack, cost[level]
            for u in range(n_uncovered[level]):
                if cover[uncovered[u]] == -1 and not _seen(uncovered, u):
                    least += share[uncovered[u]]
                    lone = alone[uncovered[u]]
                    enough += np.inf if lone < 0 or lone == forbidden else -reduced[lone]
                    if row < 0 or share[uncovered[u]] > share[row]:
                        row = uncovered[u]  # the dearest first: what it needs decides most
            if row < 0 and cost[level] < best:  # a consistent choice
                best = cost[level]
                _keep(level, added, removed, n_removed, came, went)
            within = min(within, enough)
            if row < 0 or level == DEEPEST or least >= best or least > within + TIE:
                descend = False
                level = _back(rows, cover, level, added, removed, n_removed)
                continue
            row_of[level], next_of[level] = row, starts[row]
        # try the next column for the open detection of this level
        descend = False
        row = row_of[level]
        while next_of[level] < starts[row + 1]:
            j = columns[next_of[level]]
            next_of[level] += 1
            least = cost[level] - reduced[j] - slack
            if least >= best or least > within + TIE:  # so do all further ones
                next_of[level] = starts[row + 1]
                break
            if j == forbidden or not _free(rows, cover, j, level, added):
                continue
            steps += 1
            n_uncovered[level + 1] = n_uncovered[level]
            cost[level + 1] = cost[level] + _bring_in(
                rows, cover, reduced, j, level + 1, added, removed, n_removed, uncovered, n_uncovered
            )
            level += 1
            descend = True
            break
        if steps > MOST_STEPS and min(best, within) < np.inf:
            while level >= 0:
                level = _back(rows, cover, level, added, removed, n_removed)
            break
        if not descend:
            level = _back(rows, cover, level, added, removed, n_removed)
    return max(min(best, within), 0.0)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _seen(log: Any, place: int) -> bool:  # pragma: no cover  # compiled
    """Whether an entry of the log stands in it before."""
    for earlier in range(place):  # noqa: SIM110  # a plain loop compiles
        if log[earlier] == log[place]:
            return True
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _first(rows: Any, column: int) -> int:  # pragma: no cover  # compiled
    for p in range(rows.shape[1]):
        if rows[column, p] >= 0:
            return int(rows[column, p])
    return -1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _free(rows: Any, cover: Any, column: int, level: int, added: Any) -> bool:  # pragma: no cover  # compiled
    """Whether no column that was brought in takes one of this column's detections."""
    for p in range(rows.shape[1]):
        if rows[column, p] >= 0:
            holder = cover[rows[column, p]]
            if holder == column:
                return False
            if holder >= 0:
                for other in range(level + 1):
                    if added[other] == holder:
                        return False
    return True


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _bring_in(
    rows: Any, cover: Any, reduced: Any, column: int, level: int, added: Any, removed: Any, n_removed: Any,
    uncovered: Any, n_uncovered: Any,
) -> Any:  # fmt: skip  # pragma: no cover  # compiled
    """Cover the column's detections by it, push out what covered them; what that costs."""
    cost = -reduced[column]
    added[level] = column
    n_removed[level] = 0
    for p in range(rows.shape[1]):
        row = rows[column, p]
        if row < 0:
            continue
        out = cover[row]
        if out >= 0 and out != column:
            cost += reduced[out]
            removed[level, n_removed[level]] = out
            n_removed[level] += 1
            for q in range(rows.shape[1]):
                if rows[out, q] >= 0:
                    cover[rows[out, q]] = -1
                    uncovered[n_uncovered[level]] = rows[out, q]
                    n_uncovered[level] += 1
    for p in range(rows.shape[1]):
        if rows[column, p] >= 0:
            cover[rows[column, p]] = column
    return cost


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _keep(
    level: int, added: Any, removed: Any, n_removed: Any, came: Any, went: Any
) -> None:  # pragma: no cover  # compiled
    """Write down what came and went up to a level, if that is asked for."""
    if not len(came):
        return
    came[:], went[:] = -1, -1
    n_came = n_went = 0
    for above in range(level + 1):
        if added[above] >= 0:
            came[0, n_came] = added[above]
            n_came += 1
        for k in range(n_removed[above]):
            went[0, n_went] = removed[above, k]
            n_went += 1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _back(
    rows: Any, cover: Any, level: int, added: Any, removed: Any, n_removed: Any
) -> int:  # pragma: no cover  # compiled
    """Undo a level; the one above it."""
    if added[level] >= 0:
        for p in range(rows.shape[1]):
            if rows[added[level], p] >= 0:
                cover[rows[added[level], p]] = -1
    for k in range(n_removed[level]):
        out = removed[level, k]
        for p in range(rows.shape[1]):
            if rows[out, p] >= 0:
                cover[rows[out, p]] = out
    added[level] = -1
    n_removed[level] = 0
    return level - 1
