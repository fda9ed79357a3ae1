"""Masks that are torn for one frame: what tells an over-segmentation from two cells that touch.

Between two frames both are splits and merges. Over three frames they differ: one detection that becomes two and one
again was torn, and two that become one and two again are cells that were segmented as one.

Sizes tell more. What comes apart is a single cell if it is, before and after, nearer to the usual size than to twice
that; and if one of two parts is gone in the next frame, the other was a piece if it then has the size of the whole
again rather than its own. Such a cell moved on, by its larger piece, and the smaller one is a fault (`mended`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import NONE, Event, EventTable
from clew.tracking.lineage.gaps import Joined
from clew.tracking.lineage.nodes import event_nodes

APART = (Event.DIVIDE, Event.SPLIT)
"""Kinds with one source and two targets; which of them it is does not matter here."""
TEARING = (*APART, Event.MERGE)


class Torn(NamedTuple):
    """What is known of masks that are torn for one frame, by event (m,)."""

    events: Mask
    """Which tear one apart, or put it together again."""
    mended: Indices
    """The node that was torn, of an event that puts it together; −1 of others."""


def torn(events: EventTable) -> Mask:
    """(n,) which events of a movie tear a mask apart for one frame, or put it together again."""
    found, rows = (
        np.zeros(len(events), dtype=bool),
        np.flatnonzero(np.isin(events.event, TEARING)),
    )
    some = events[rows]
    found[rows] = torn_nodes(some.event, *event_nodes(some)).events
    return found


def torn_nodes(event: NDArray[np.int8], sources: Indices, targets: Indices) -> Torn:
    """The same of events between nodes (m, 2), −1 filled up; all but `TEARING` ones may be missing.

    A merge puts together what came from one source in the frame pair before, unless its target comes apart in the next;
    then it may as well be that two cells were seen as one. Likewise of what comes apart and merges again.
    """
    row = np.arange(len(event))[:, None]
    # of each node the event that leads to it, and from it; one place more at the end, which −1 leads to
    into, out = np.full(
        (2, max(sources.max(initial=-1), targets.max(initial=-1)) + 2), -1
    )
    into[targets], out[sources] = row, row
    into[-1] = out[-1] = -1
    merges = np.flatnonzero(event == Event.MERGE)
    before = into[sources[merges]]
    again = (before[:, 0] == before[:, 1]) & (before[:, 0] >= 0)
    together, apart = merges[again], before[again, 0]
    kind = np.append(event, -1)  # of no event
    found = np.zeros(len(event), dtype=bool)
    found[together] = ~np.isin(kind[out[targets[together, 0]]], APART)
    found[apart] = kind[into[sources[apart, 0]]] != Event.MERGE
    mended = np.full(len(event), -1, dtype=np.intp)
    mended[together] = np.where(found[together], sources[apart, 0], -1)
    return Torn(found, mended)


def mended(joined: Joined, sizes: Array, fixed: Mask, unit: float) -> Joined:
    """Events, in the order of frames, in which cells whose masks are torn for one frame move on.

    `sizes` (n, 4) are those of the sources and targets of each event, in usual volumes, NaN where they are not known;
    `fixed` (n,) says what is not to be changed. These events are as sure as the sizes are clear: by how much, as a
    logarithm, they are off those that would tell of two cells as well as of one, times `unit`, the norm of the weights.
    Whether a mask is torn depends on its two frame pairs alone, so that a movie can be cut anywhere.
    """
    events = joined.events
    found = _pieces(events, sizes, fixed)
    if not len(found.apart):
        return joined
    kind, sources, targets = (
        events.event.copy(),
        events.sources.copy(),
        events.targets.copy(),
    )
    merge = kind[found.on] == Event.MERGE
    kind[found.apart] = kind[found.on] = Event.MOVE
    nobody = np.full(len(found.apart), NONE)
    targets[found.apart] = np.column_stack([found.larger, nobody])
    sources[found.on] = np.column_stack([found.larger, nobody])
    sources[found.off[~merge], 0] = found.smaller[~merge]
    alone, none = (
        np.column_stack([found.smaller, nobody]),
        np.full((len(nobody), 2), NONE),
    )
    comes = EventTable(
        events.frame[found.apart], _all(Event.APPEAR, len(nobody)), none, alone
    )
    goes = EventTable(
        events.frame[found.on[merge]],
        _all(Event.DISAPPEAR, int(merge.sum())),
        alone[merge],
        none[merge],
    )
    whole = EventTable.join(
        [replace(events, event=kind, sources=sources, targets=targets), comes, goes]
    )
    order = np.argsort(whole.frame, kind="stable")
    n, lead, confidence = (
        len(comes) + len(goes),
        joined.lead.copy(),
        joined.confidence.copy(),
    )
    lead[found.apart], sure = np.nan, unit * found.clear
    confidence[found.apart] = confidence[found.on] = confidence[found.off] = sure
    confidence = np.concatenate([confidence, sure, sure[merge]])
    lead, border = (
        np.append(lead, np.full(n, np.nan)),
        np.append(joined.border, np.zeros(n)),
    )
    return Joined(whole[order], confidence[order], lead[order], border[order])


class _Pieces(NamedTuple):
    """Masks that are torn for one frame, (k,) each."""

    apart: Indices
    """The event by which a mask comes apart,"""
    on: Indices
    """the one by which it, or a piece of it, goes on,"""
    off: Indices
    """and that of the other piece: the same, or its disappearance."""
    larger: Indices
    """The labels of the pieces."""
    smaller: Indices
    clear: Array
    """How far the sizes are from telling of two cells, as a logarithm; positive."""


def _pieces(events: EventTable, sizes: Array, fixed: Mask) -> _Pieces:
    """What is torn by its size."""
    sources, targets = event_nodes(events)
    n = max(sources.max(initial=-1), targets.max(initial=-1)) + 2
    # of each node the event that leads from it, and its size; one place more at the end, which −1 leads to
    out, size = np.full(n, -1), np.full(n, np.nan)
    out[sources], size[np.hstack([sources, targets])] = (
        np.arange(len(events))[:, None],
        sizes,
    )
    out[-1], size[-1] = -1, np.nan
    kind = np.append(events.event, -1)  # of no event
    apart = np.flatnonzero(np.isin(events.event, APART))
    parts = targets[apart]
    parts = np.where(kind[out[parts[:, :1]]] == Event.DISAPPEAR, parts[:, ::-1], parts)
    on, off = out[parts].T
    merge = (on == off) & (kind[on] == Event.MERGE)
    gone = (kind[on] == Event.MOVE) & (kind[off] == Event.DISAPPEAR)
    before, after = (
        size[sources[apart, 0]],
        size[np.where(merge | gone, targets[on, 0], -1)],
    )
    # one cell rather than two, and whole again rather than still a part
    clear = np.log(2 / (before * after))
    clear = np.where(
        merge, clear, np.minimum(clear, np.log(after**2 / (before * size[parts[:, 0]])))
    )
    torn = (merge | gone) & (clear > 0) & ~(fixed[apart] | fixed[on] | fixed[off])
    apart, on, off = apart[torn], on[torn], off[torn]
    one, other = events.targets[apart].T
    larger = np.where(size[targets[apart, 0]] >= size[targets[apart, 1]], one, other)
    return _Pieces(apart, on, off, larger, one + other - larger, clear[torn])


def _all(event: Event, n: int) -> NDArray[np.int8]:
    """(n,) one kind."""
    return np.full(n, event, dtype=np.int8)
