"""How many cells a detection holds, carried through the movie: what tells the end of a merge from a division.

Between two frames a split and a division look alike. Over the whole movie they do not: a detection that cells merged
into holds several, and one that holds a single cell cannot split. As in conservation tracking (Schiegg et al., ICCV
2013) the number of cells is kept from frame to frame; but instead of one programme for the movie, whose size would grow
with it, the pairwise answers are gone through once in order, and an event with one source and two targets is called a
split or a division by its own lead and by what happened before. Since both take the same detections, nothing else
changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices
from clew.tracking.events import NONE, Event, EventTable

UNKNOWN, SINGLE = 0, -1
"""The cells of the first frame, and those that appear, may be several. One that came out of a division is single; above
`UNKNOWN` is the number of cells that merged into another."""
MERGED_BEFORE, NOT_MERGED_BEFORE = 0.09, -0.03
"""What is added to a split's lead over the division, in norms of the weights, after a merge and without one: the ratio
of the log-odds to the slope on the lead, worked out by hand from 308 splits and divisions of nine simulated movies of
nuclei, rods and flat cells; no benchmark prints it yet."""


def by_counts(events: EventTable, confidence: Array, lead: Array, unit: float) -> tuple[EventTable, Array]:
    """The events of a movie with splits and divisions told apart by what happened before, and their confidences.

    `lead` (n,) is by how much an event scores more as a split than as a division, NaN where it must stay what it is,
    and `unit` the norm of the weights. A movie without merges and splits is left as it is.
    """
    if not has_mask_faults(events.event):
        return events, confidence
    cells = np.concatenate([events.sources, events.targets], axis=1)
    there = cells != NONE
    labels, rank = np.unique(cells[there], return_inverse=True)  # ranks, for frame × label could overflow
    frame = (events.frame[:, None] + np.array([0, 0, 1, 1]))[there]
    nodes = np.full(cells.shape, -1, dtype=np.intp)
    nodes[there] = np.unique(frame * len(labels) + rank.ravel(), return_inverse=True)[1].ravel()
    kind, sure = told_apart(events.frame, events.event, nodes[:, :2], nodes[:, 2:], confidence, lead, unit)
    return replace(events, event=kind), sure


def has_mask_faults(event: NDArray[np.int8]) -> bool:
    """Whether there are splits or merges among the kinds (n,) of events."""
    return bool(np.isin(event, [Event.SPLIT, Event.MERGE]).any())


def told_apart(
    frame: NDArray[np.int64], event: NDArray[np.int8], sources: Indices, targets: Indices, confidence: Array,
    lead: Array, unit: float,
) -> tuple[NDArray[np.int8], Array]:  # fmt: skip
    """Kinds and confidences (m,) of events between nodes (m, 2), −1 filled up, as `by_counts` has them.

    `frame` (m,) is that of the sources. Moves may lead over many frames: nothing happens to the number on the way.
    """
    kind, sure = event.copy(), confidence.copy()
    # one place more at the end, which −1 leads to: of no node nothing is known
    held = np.full(max(sources.max(initial=-1), targets.max(initial=-1)) + 2, UNKNOWN)
    order = np.argsort(frame, kind="stable")
    starts = np.unique(frame[order], return_index=True)[1]
    for rows in np.split(order, starts[1:]):
        cells = held[sources[rows]]
        either = np.flatnonzero(np.isfinite(lead[rows]))
        shift = unit * np.where(cells[either, 0] > UNKNOWN, MERGED_BEFORE, NOT_MERGED_BEFORE)
        ahead = lead[rows[either]] + shift
        kind[rows[either]] = np.where(ahead > 0, Event.SPLIT, Event.DIVIDE)
        sure[rows[either]] = np.minimum(sure[rows[either]], np.abs(ahead))
        held[targets[rows]] = _carried(kind[rows], cells)[:, None]
        held[-1] = UNKNOWN
    return kind, sure


def _carried(kind: NDArray[np.int8], cells: Indices) -> Indices:
    """(n,) the number for the targets of each event, given those (n, 2) for its sources."""
    extra = np.maximum(cells, UNKNOWN).sum(axis=1)
    out = cells[:, 0].copy()
    out[kind == Event.APPEAR] = UNKNOWN
    out[kind == Event.MERGE] = extra[kind == Event.MERGE] + 1
    apart = np.isin(kind, [Event.DIVIDE, Event.SPLIT])
    out[apart] = np.where(extra[apart] > 1, UNKNOWN, SINGLE)  # of three, it is not known where the third went
    return out
