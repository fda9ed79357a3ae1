"""Gaps put into the events of a movie, in place of the disappearance before and the appearance after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clew.learning.task import Array
from clew.tracking.events import Event, EventIndex, EventTable


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a pair's events when a cell is made to disappear or appear."""

    went: EventTable
    came: EventTable


NO_CHANGE = Change(EventTable.empty(), EventTable.empty())


@dataclass(frozen=True, slots=True)
class GapLink:
    """A cell that is missing in one frame, and what closing the gap changes in the pairs before and after it."""

    frame: int
    """The last in which it was seen."""
    source: int
    """Its label there."""
    target: int
    """Its label two frames later."""
    confidence: float
    """The score that is lost when the gap stays open."""
    before: Change
    after: Change

    def ends(self) -> EventTable:
        """What pairs of frames see of it."""
        return EventTable.of([(self.frame, Event.GAP, (self.source,), (self.target,))]).pairwise()


class OpenEnd(NamedTuple):
    """A disappearance or appearance that might have been the end of a gap, and how sure it is that it is none."""

    frame: int
    event: Event
    label: int
    confidence: float


class Joined(NamedTuple):
    """Events with their confidences and, where there are any, their leads as a split; (n,) each."""

    events: EventTable
    confidence: Array
    lead: Array


def close_gaps(joined: Joined, links: Sequence[GapLink], stays: Sequence[OpenEnd]) -> tuple[Joined, list[GapLink]]:
    """The events with all that gaps change in them, and the gaps, over which `with_gaps` then leads.

    The surest come first; one that needs an event which a surer one has changed stays open.
    """
    if not links and not stays:
        return joined, []
    events, confidence = joined.events, joined.confidence.copy()
    index, kept = EventIndex(events), np.ones(len(events), dtype=bool)
    closed: list[GapLink] = []
    added: list[EventTable] = []
    sure: list[Array] = []
    for link in sorted(links, key=lambda link: -link.confidence):
        came = EventTable.join([link.before.came, link.after.came])
        # ends that come with a change are not among the pairs' own events
        own = link.ends()[~np.isin(link.ends().keys(), came.keys())]
        rows, went = index.find(own), index.find(EventTable.join([link.before.went, link.after.went]))
        if (rows < 0).any() or (went < 0).any() or not kept[rows].all() or not kept[went].all():
            continue
        kept[went] = False
        closed.append(link)
        added.append(came)
        sure.append(np.full(len(came), link.confidence))
    for end, row in zip(stays, index.find(_ends(stays)).tolist(), strict=True):
        if row >= 0:
            confidence[row] = min(confidence[row], end.confidence)
    new = np.full(sum(map(len, added)), np.nan)
    events = EventTable.join([events[kept], *added])
    return Joined(events, np.concatenate([confidence[kept], *sure]), np.concatenate([joined.lead[kept], new])), closed


def with_gaps(events: EventTable, confidence: Array, gaps: Sequence[GapLink]) -> tuple[EventTable, Array]:
    """The events with gaps in place of their ends, and their confidences."""
    if not gaps:
        return events, confidence
    kept = np.ones(len(events), dtype=bool)
    kept[EventIndex(events).find(EventTable.join([gap.ends() for gap in gaps]))] = False
    over = EventTable.of([(gap.frame, Event.GAP, (gap.source,), (gap.target,)) for gap in gaps])
    sure = np.array([gap.confidence for gap in gaps])
    return EventTable.join([events[kept], over]), np.concatenate([confidence[kept], sure])


def _ends(stays: Sequence[OpenEnd]) -> EventTable:
    """As events."""
    gone = Event.DISAPPEAR
    return EventTable.of(
        [(end.frame, end.event, *(((end.label,), ()) if end.event is gone else ((), (end.label,)))) for end in stays]
    )
