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
from clew.tracking.events import Event, EventTable

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
    if not np.isin(events.event, [Event.SPLIT, Event.MERGE]).any():
        return events, confidence
    kind, sure = events.event.copy(), confidence.copy()
    order = np.argsort(events.frame, kind="stable")
    frames, starts = np.unique(events.frame[order], return_index=True)
    labels, held = np.zeros(0, np.int64), np.zeros(0, np.int64)
    before = None
    for frame, rows in zip(frames.tolist(), np.split(order, starts[1:]), strict=True):
        if before is not None and frame != before + 1:
            labels, held = labels[:0], held[:0]
        before = frame
        cells = _held_by(events.sources[rows], labels, held)
        either = np.flatnonzero(np.isfinite(lead[rows]))
        shift = unit * np.where(cells[either, 0] > UNKNOWN, MERGED_BEFORE, NOT_MERGED_BEFORE)
        ahead = lead[rows[either]] + shift
        kind[rows[either]] = np.where(ahead > 0, Event.SPLIT, Event.DIVIDE)
        sure[rows[either]] = np.minimum(sure[rows[either]], np.abs(ahead))
        labels, held = _carried(events.targets[rows], kind[rows], cells)
    return replace(events, event=kind), sure


def _held_by(sources: Indices, labels: Indices, held: Indices) -> Indices:
    """(n, 2) the number for each source; `UNKNOWN` for cells that nothing is known of, and where there is none."""
    if not len(labels):
        return np.full(sources.shape, UNKNOWN)
    at = np.minimum(np.searchsorted(labels, sources), len(labels) - 1)
    return np.where(labels[at] == sources, held[at], UNKNOWN)


def _carried(targets: Indices, kind: NDArray[np.int8], cells: Indices) -> tuple[Indices, Indices]:
    """The labels of the next frame, ascending, with the number for each."""
    extra = np.maximum(cells, UNKNOWN).sum(axis=1)
    out = cells[:, 0].copy()
    out[kind == Event.APPEAR] = UNKNOWN
    out[kind == Event.MERGE] = extra[kind == Event.MERGE] + 1
    apart = np.isin(kind, [Event.DIVIDE, Event.SPLIT])
    out[apart] = np.where(extra[apart] > 1, UNKNOWN, SINGLE)  # of three, it is not known where the third went
    row, place = np.nonzero(targets)
    label = targets[row, place]
    order = np.argsort(label, kind="stable")
    return label[order], out[row[order]]
