"""What forbidding or forcing one event of an assignment would cost, by a local search in the neighbourhood."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices
from clew.tracking.model.alternative_search import COLUMN, DEEPEST, DETECTION, LEVEL, balance, search_all

SWEEPS = 6
"""Over the chosen columns, when prices are balanced."""


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
    column, place = np.nonzero((rows >= 0) & (reduced > -np.inf)[:, None])
    detection = rows[column, place]
    columns, detections = np.zeros(len(rows), COLUMN), np.zeros(n_detections, DETECTION)
    columns["rows"], columns["reduced"] = -1, reduced
    columns["rows"][:, : rows.shape[1]] = rows
    detections["end"] = np.cumsum(np.bincount(detection, minlength=n_detections))
    detections["begin"][1:] = detections["end"][:-1]
    detections["cover"] = -1
    for side in rows[chosen].T:
        detections["cover"][side[side >= 0]] = chosen[side >= 0]
    balance(columns, detections, column[np.argsort(detection, kind="stable")], chosen, SWEEPS)
    reduced = columns["reduced"]
    # the search ends at the first column that is too dear, so that the cheapest of a detection must come first
    order = column[np.lexsort((-reduced[column], detection))]
    detections["share"], detections["alone"] = _least(columns, detections["cover"], column, detection)
    # where the LP was fractional, a chosen column's reduced score may be negative: removing it then earns something
    slack = float(np.maximum(-reduced[chosen], 0.0).sum() + np.maximum(reduced, 0.0).sum())
    slack -= float(np.maximum(reduced[chosen], 0.0).sum())
    levels = np.zeros(DEEPEST + 1, LEVEL)
    levels["added"] = -1
    found: Array = search_all(columns, detections, order, slack, np.asarray(asked, dtype=np.intp), levels, came, went)
    return found


def _least(columns: NDArray[np.void], cover: Indices, column: Indices, detection: Indices) -> tuple[Array, Indices]:
    """What each detection costs at least when it is left over, (n,), and the column that it can always take, (n,).

    It takes a column that is not chosen, which it shares with the column's other detections; or it appears or
    disappears. Without such a column, −1. `column` and `detection` are the pairs of which the one has the other.
    """
    share = np.full(len(cover), np.inf)
    alone = np.full(len(cover), -1, dtype=np.intp)
    size = (columns["rows"] >= 0).sum(axis=1)[column]
    alone[detection[size == 1]] = column[size == 1]
    other = cover[detection] != column
    np.minimum.at(share, detection[other], (np.maximum(-columns["reduced"][column], 0.0) / size)[other])
    return share, alone
