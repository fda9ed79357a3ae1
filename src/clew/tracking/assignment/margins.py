"""What forbidding or forcing one event of an assignment would cost, by a local search in the neighbourhood."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.alternative_search import DEEPEST, search_all
from clew.tracking.assignment.search_records import search_records


def margins(
    rows: Indices, n_detections: int, chosen: Indices, reduced: Array, asked: Indices
) -> Array:
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
    rows: Indices,
    n_detections: int,
    chosen: Indices,
    reduced: Array,
    asked: Indices,
    came: Indices,
    went: Indices,
) -> Array:
    """The margins; the alternatives are written into `came` and `went` unless these are empty."""
    columns, detections, order = search_records(rows, n_detections, chosen, reduced)
    balanced = columns["reduced"]
    # where the LP was fractional, a chosen column's reduced score may be negative: removing it then earns something
    slack = float(
        np.maximum(-balanced[chosen], 0.0).sum() + np.maximum(balanced, 0.0).sum()
    )
    slack -= float(np.maximum(balanced[chosen], 0.0).sum())
    found: Array = search_all(
        columns, detections, order, slack, np.asarray(asked, dtype=np.intp), came, went
    )
    return found
