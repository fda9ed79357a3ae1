"""How many cells a detection holds, carried through the movie: what tells the end of a merge from a division.

Between two frames a split and a division look alike. Over the whole movie they do not: a detection that cells merged
into holds several, and one that holds a single cell cannot split. As in conservation tracking (Schiegg et al., ICCV
2013) the number of cells is kept from frame to frame; but instead of one programme for the movie, whose size would grow
with it, the pairwise answers are gone through once in order, and an event with one source and two targets is called a
split or a division by its own lead, by the size of its parts and by what happened before. Since both take the same
detections, nothing else changes. A mask that is torn for one frame and one again holds as many cells as before: what
tears it is a split, and what puts it together says nothing of cells that could split.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # its parts are imported when they are used, and scipy.optimize takes a second
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array, Indices
from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.nodes import event_nodes
from clew.tracking.lineage.repair import Torn, torn_nodes
from clew.tracking.training.generic_weights import (
    MERGED_BEFORE,
    NOT_MERGED_BEFORE,
    PART_RANK,
    SPLIT_SLOPE,
)

UNKNOWN, SINGLE = 0, -1
"""The cells of the first frame, and those that appear, may be several. One that came out of a division is single; above
`UNKNOWN` is the number of cells that merged into another."""

USUAL_RANK = 0.25
"""About the mean rank of what comes apart; where sizes are not known, this is taken for it."""


def split_by_size(rank: Array) -> Array:
    """(n,) what the size of the smaller part adds to the lead of a split, in norms of the weights.

    Daughters are the youngest cells of a movie and among the smallest, parts of a mask that held two cells are of any
    size. `rank` (n,) is the share of the cells before that are smaller, NaN where it is not known: unlike the size
    itself, it says the same of cells that grow until they divide and of those that only get smaller, as in embryos.
    """
    return PART_RANK * (np.nan_to_num(rank, nan=USUAL_RANK) - USUAL_RANK)


def by_counts(
    events: EventTable, confidence: Array, lead: Array, unit: float
) -> tuple[EventTable, Array]:
    """The events of a movie with splits and divisions told apart by what happened before, and their confidences.

    `lead` (n,) is by how much an event is rather a split than a division, by scores and sizes, NaN where it must stay
    what it is, and `unit` the norm of the weights. A movie without merges and splits is left as it is.
    """
    if not has_mask_faults(events.event):
        return events, confidence
    sources, targets = event_nodes(events)
    kind, sure = kinds_by_counts(
        events.frame, events.event, sources, targets, confidence, lead, unit
    )
    return replace(events, event=kind), sure


def has_mask_faults(event: NDArray[np.int8]) -> bool:
    """Whether there are splits or merges among the kinds (n,) of events."""
    return bool(np.isin(event, [Event.SPLIT, Event.MERGE]).any())


def merged_before(events: EventTable, lead: Array) -> NDArray[np.bool_]:
    """(n,) whether the source of an event is known to hold several cells; `lead` in norms of the weights."""
    nodes = event_nodes(events)
    return _follow_counts(
        events.frame, events.event, *nodes, lead, 0.0, torn_nodes(events.event, *nodes)
    ).merged


def kinds_by_counts(
    frame: NDArray[np.int64],
    event: NDArray[np.int8],
    sources: Indices,
    targets: Indices,
    confidence: Array,
    lead: Array,
    unit: float,
) -> tuple[NDArray[np.int8], Array]:
    """Kinds and confidences (m,) of events between nodes (m, 2), −1 filled up, as `by_counts` has them.

    `frame` (m,) is that of the sources. Moves may lead over many frames: nothing happens to the number on the way.
    """
    torn = torn_nodes(event, sources, targets)
    found = _follow_counts(frame, event, sources, targets, lead / unit, 0.0, torn)
    bias = _conserving(
        found.ahead[~torn.events], int((event[~torn.events] == Event.MERGE).sum())
    )
    if bias:
        found = _follow_counts(frame, event, sources, targets, lead / unit, bias, torn)
    return found.kind, np.where(
        np.isfinite(lead),
        np.minimum(confidence, unit * np.abs(found.ahead)),
        confidence,
    )


class _Followed(NamedTuple):
    """What the counts say of the events of a movie."""

    kind: NDArray[np.int8]
    """(m,) of each event."""
    merged: NDArray[np.bool_]
    """(m,) whether its source is known to hold several cells."""
    ahead: Array
    """(m,) by how much it is rather a split, in norms of the weights; NaN where it must stay what it is."""


def _follow_counts(
    frame: NDArray[np.int64],
    event: NDArray[np.int8],
    sources: Indices,
    targets: Indices,
    lead: Array,
    bias: float,
    torn: Torn,
) -> _Followed:
    """Events are gone through in order of time; `lead` is in norms of the weights, and `bias` is added to all."""
    kind, merged, ahead = (
        event.copy(),
        np.zeros(len(event), bool),
        np.full(len(event), np.nan),
    )
    # one place more at the end, which −1 leads to: of no node nothing is known
    held = np.full(max(sources.max(initial=-1), targets.max(initial=-1)) + 2, UNKNOWN)
    # what puts a torn mask together leads on from it as a move does
    as_move = torn.mended >= 0
    sources = np.where(
        as_move[:, None],
        np.column_stack([torn.mended, np.full(len(event), -1)]),
        sources,
    )
    order = np.argsort(frame, kind="stable")
    starts = np.unique(frame[order], return_index=True)[1]
    for rows in np.split(order, starts[1:]):
        cells = held[sources[rows]]
        merged[rows] = cells[:, 0] > UNKNOWN
        either = rows[np.isfinite(lead[rows])]
        ahead[either] = (
            lead[either]
            + bias
            + np.where(merged[either], MERGED_BEFORE, NOT_MERGED_BEFORE)
        )
        # nothing divides that is one again in the next frame
        kind[either] = np.where(
            (ahead[either] > 0) | torn.events[either], Event.SPLIT, Event.DIVIDE
        )
        held[targets[rows]] = _carried(
            np.where(as_move[rows], Event.MOVE, kind[rows]), cells
        )[:, None]
        held[-1] = UNKNOWN
    return _Followed(kind, merged, ahead)


def _conserving(ahead: Array, n_merges: int) -> float:
    """What is to be added to all leads, 0 or less, so that no more splits are expected than merges, up to chance.

    Cells are conserved: what splits has merged before. Where weights take many more events for splits than there are
    merges, as on a kind of cells whose divisions they do not know, their odds are adjusted to the rate that the merges
    tell (Saerens et al. 2002).
    """
    ahead = ahead[np.isfinite(ahead)]
    allowed = n_merges + 2 * np.sqrt(n_merges + 1)

    def surplus(bias: float) -> float:
        return float(expit(SPLIT_SLOPE * (ahead + bias)).sum() - allowed)

    if surplus(0.0) <= 0:
        return 0.0
    lowest = -float(ahead.max()) - 50 / SPLIT_SLOPE  # there all odds are under e⁻⁵⁰
    return float(scipy.optimize.brentq(surplus, lowest, 0.0, xtol=1e-9))


def _carried(kind: NDArray[np.int8], cells: Indices) -> Indices:
    """(n,) the number for the targets of each event, given those (n, 2) for its sources."""
    extra = np.maximum(cells, UNKNOWN).sum(axis=1)
    out = cells[:, 0].copy()
    out[kind == Event.APPEAR] = UNKNOWN
    out[kind == Event.MERGE] = extra[kind == Event.MERGE] + 1
    apart = np.isin(kind, [Event.DIVIDE, Event.SPLIT])
    out[apart] = np.where(
        extra[apart] > 1, UNKNOWN, SINGLE
    )  # of three, it is not known where the third went
    return out
