"""Masks that are torn for one frame: what tells an over-segmentation from two cells that touch.

Between two frames both are splits and merges. Over three frames they differ: one detection that becomes two and one
again was torn, and two that become one and two again are cells that were segmented as one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Indices, Mask
from clew.tracking.events import Event, EventTable
from clew.tracking.linking.nodes import event_nodes

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
    found, rows = np.zeros(len(events), dtype=bool), np.flatnonzero(np.isin(events.event, TEARING))
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
    into, out = np.full((2, max(sources.max(initial=-1), targets.max(initial=-1)) + 2), -1)
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
