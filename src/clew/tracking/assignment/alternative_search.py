"""The search for the best alternative to one event, compiled: depth first, with bounds (branch and bound).

Each level of the search brings in one column, which covers an open detection and pushes out what covered the column's
detections before.
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.search_records import (
    LEVEL,
    WIDTH,
    Columns,
    Detections,
    Level,
    Levels,
    cover,
    kernel,
)

MOST_STEPS = 500
"""Columns that are tried for one event; beyond that the best alternative so far counts. Among 1,000 cells this matters
for 4 % of the events, none of them among the least certain, and takes a fifth of the time of trying 4,000."""
TIE = 1e-9
DEEPEST = 12
"""How many events an alternative may bring in."""


@kernel  # type: ignore[untyped-decorator]
def search_all(
    columns: Columns,
    detections: Detections,
    order: Indices,
    slack: float,
    asked: Indices,
    came: Indices,
    went: Indices,
) -> Array:  # pragma: no cover  # compiled
    """(m,) what the best alternative to each asked column costs; `came` and `went`, if not empty, take its columns.

    `slack` is what alternatives may earn where the prices are not optimal: it is taken off every bound.
    """
    levels = np.zeros(
        DEEPEST + 1, LEVEL
    )  # to work in, as is the log of detections that lost their column
    for k in range(len(levels)):
        levels[k].added = -1
    log = np.empty((DEEPEST + 1) * WIDTH * WIDTH + WIDTH, dtype=np.intp)
    found = np.empty(len(asked))
    for k in range(len(asked)):
        kept = slice(k, k + 1)
        found[k] = _search(
            columns,
            detections,
            order,
            slack,
            asked[k],
            levels,
            log,
            came[kept],
            went[kept],
        )
    return found


@kernel  # type: ignore[untyped-decorator]
def _search(
    columns: Columns,
    detections: Detections,
    order: Indices,
    slack: float,
    asked: int,
    levels: Levels,
    log: Indices,
    came: Indices,
    went: Indices,
) -> float:  # pragma: no cover  # compiled
    """What the best alternative to one column costs; covers and levels are left as they were."""
    best, steps = np.inf, 0
    within = np.inf  # what an alternative costs at most in which all that is left over appears or disappears
    if columns[asked].reduced == -np.inf:
        return best
    forbidden = _begin(columns, detections, asked, levels, log)
    level, descend = 0, True
    while level >= 0:
        if descend:
            row, least, enough = _bounds(
                columns, detections, levels[level], log, forbidden
            )
            if row < 0 and levels[level].cost < best:  # a consistent choice
                best = levels[level].cost
                _keep(levels, level, came, went)
            within = min(within, enough)
            if (
                row < 0
                or level == DEEPEST
                or least - slack >= best
                or least - slack > within + TIE
            ):
                descend = False
                level = _back(columns, detections, levels, level)
                continue
            levels[level].row, levels[level].next = row, detections[row].begin
        descend = _deeper(
            columns,
            detections,
            order,
            levels,
            log,
            level,
            forbidden,
            min(best, within + TIE) + slack,
        )
        if descend:
            steps += 1
            level += 1
        if steps > MOST_STEPS and min(best, within) < np.inf:
            while level >= 0:
                level = _back(columns, detections, levels, level)
        elif not descend:
            level = _back(columns, detections, levels, level)
    return max(min(best, within), 0.0)


@kernel  # type: ignore[untyped-decorator]
def _begin(
    columns: Columns, detections: Detections, asked: int, levels: Levels, log: Indices
) -> int:  # pragma: no cover  # compiled
    """Remove the asked column if it is chosen, bring it in if not; the column that no alternative may have, or −1."""
    levels[0].n_open = 0
    for p in range(WIDTH):
        row = columns[asked].rows[p]
        if row >= 0 and detections[row].cover == asked:
            levels[0].cost, levels[0].added, levels[0].n_removed = (
                columns[asked].reduced,
                -1,
                0,
            )
            _push_out(columns, detections, asked, levels[0], log)
            return asked
    levels[0].cost = _bring_in(columns, detections, asked, levels[0], log)
    return -1


@kernel  # type: ignore[untyped-decorator]
def _bounds(
    columns: Columns, detections: Detections, level: Level, log: Indices, forbidden: int
) -> tuple[int, float, float]:  # pragma: no cover  # compiled
    """The open detection to cover next (−1: none is open), what any alternative from here costs at least, and at most.

    At least: each open detection its share of the cheapest column. At most: each appears or disappears.
    """
    row, least, enough = -1, level.cost, level.cost
    for u in range(level.n_open):
        if detections[log[u]].cover == -1 and not _seen(log, u):
            least += detections[log[u]].share
            lone = detections[log[u]].alone
            enough += (
                np.inf if lone < 0 or lone == forbidden else -columns[lone].reduced
            )
            if row < 0 or detections[log[u]].share > detections[row].share:
                row = log[u]  # the dearest first: what it needs decides most
    return row, least, enough


@kernel  # type: ignore[untyped-decorator]
def _deeper(
    columns: Columns,
    detections: Detections,
    order: Indices,
    levels: Levels,
    log: Indices,
    level: int,
    forbidden: int,
    limit: float,
) -> bool:  # pragma: no cover  # compiled
    """Bring in the next column that covers the level's detection and may cost less than the limit, if there is one."""
    here, end = levels[level], detections[levels[level].row].end
    while here.next < end:
        column = order[here.next]
        if (
            here.cost - columns[column].reduced >= limit
        ):  # so do all further ones, which are dearer
            here.next = end
            return False
        here.next += 1
        if column != forbidden and _free(columns, detections, levels, column, level):
            levels[level + 1].n_open = here.n_open
            levels[level + 1].cost = here.cost + _bring_in(
                columns, detections, column, levels[level + 1], log
            )
            return True
    return False


@kernel  # type: ignore[untyped-decorator]
def _seen(log: Indices, place: int) -> bool:  # pragma: no cover  # compiled
    """Whether an entry of the log stands in it before."""
    for earlier in range(place):  # noqa: SIM110  # a plain loop compiles
        if log[earlier] == log[place]:
            return True
    return False


@kernel  # type: ignore[untyped-decorator]
def _free(
    columns: Columns, detections: Detections, levels: Levels, column: int, level: int
) -> bool:  # pragma: no cover  # compiled
    """Whether no column that was brought in takes one of this column's detections."""
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
def _bring_in(
    columns: Columns, detections: Detections, column: int, level: Level, log: Indices
) -> float:  # pragma: no cover  # compiled
    """Cover the column's detections by it, push out what covered them; what that costs."""
    cost = -columns[column].reduced
    level.added, level.n_removed = column, 0
    for p in range(WIDTH):
        row = columns[column].rows[p]
        if row >= 0 and detections[row].cover >= 0 and detections[row].cover != column:
            cost += columns[detections[row].cover].reduced
            _push_out(columns, detections, detections[row].cover, level, log)
    cover(columns, detections, column, column)
    return cost


@kernel  # type: ignore[untyped-decorator]
def _push_out(
    columns: Columns, detections: Detections, column: int, level: Level, log: Indices
) -> None:  # pragma: no cover  # compiled
    """Leave the detections of a column open, and note it among those that the level removed."""
    level.removed[level.n_removed] = column
    level.n_removed += 1
    for p in range(WIDTH):
        if columns[column].rows[p] >= 0:
            log[level.n_open] = columns[column].rows[p]
            level.n_open += 1
    cover(columns, detections, column, -1)


@kernel  # type: ignore[untyped-decorator]
def _keep(
    levels: Levels, level: int, came: Indices, went: Indices
) -> None:  # pragma: no cover  # compiled
    """Write down what came and went up to a level, if that is asked for."""
    if not len(came):
        return
    came[:], went[:] = -1, -1
    n_came = n_went = 0
    for above in range(level + 1):
        if levels[above].added >= 0:
            came[0, n_came] = levels[above].added
            n_came += 1
        for k in range(levels[above].n_removed):
            went[0, n_went] = levels[above].removed[k]
            n_went += 1


@kernel  # type: ignore[untyped-decorator]
def _back(
    columns: Columns, detections: Detections, levels: Levels, level: int
) -> int:  # pragma: no cover  # compiled
    """Undo a level; the one above it."""
    if levels[level].added >= 0:
        cover(columns, detections, levels[level].added, -1)
    for k in range(levels[level].n_removed):
        cover(columns, detections, levels[level].removed[k], levels[level].removed[k])
    levels[level].added, levels[level].n_removed = -1, 0
    return level - 1
