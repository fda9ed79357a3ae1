"""Gaps put into the events of a movie, in place of the disappearance before and the appearance after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    def needs(self) -> EventTable:
        """The events of its frame pairs that it takes or changes: its ends, unless they come with a change."""
        ends = EventTable.of(
            [(self.frame, Event.GAP, (self.source,), (self.target,))]
        ).to_pairwise()
        came = EventTable.join([self.before.came, self.after.came])
        return EventTable.join(
            [
                self.before.went,
                self.after.went,
                ends[~np.isin(ends.row_keys(), came.row_keys())],
            ]
        )


class OpenEnd(NamedTuple):
    """A disappearance or appearance that might have been the end of a gap, and how sure it is that it is none."""

    frame: int
    event: Event
    label: int
    confidence: float


class Joined(NamedTuple):
    """Events with confidences, leads as a split where there are any, and `CandidatePair.border`; (n,) each."""

    events: EventTable
    confidence: Array
    lead: Array
    border: Array


class Gaps(NamedTuple):
    """Gaps with their confidences, (n,) each."""

    events: EventTable
    confidence: Array

    @classmethod
    def join(cls, parts: Sequence[Gaps]) -> Gaps:
        """Several as one."""
        return cls(
            EventTable.join([part.events for part in parts]),
            np.concatenate([np.zeros(0), *(part.confidence for part in parts)]),
        )

    def later(self, frames: int) -> Gaps:
        """The same, so many frames later: by another count of frames."""
        return Gaps(self.events.shift_frames(frames), self.confidence)

    def within(self, first: int, last: int) -> Gaps:
        """Those from frames `first` to `last`."""
        rows = np.flatnonzero(
            (self.events.frame >= first) & (self.events.frame <= last)
        )
        return Gaps(self.events[rows], self.confidence[rows])


def close_gaps(
    joined: Joined, links: Sequence[GapLink], stays: Sequence[OpenEnd]
) -> tuple[Joined, Gaps]:
    """The events, in the order of frames, with all that gaps change in them, and the gaps, for `with_gaps`.

    Of gaps that need the same event only the surest is closed. So whether one is depends on its neighbours in time
    alone, and a movie can be cut anywhere.
    """
    if not links and not stays:
        return joined, Gaps(EventTable.empty(), np.zeros(0))
    events, confidence = joined.events, joined.confidence.copy()
    index, kept = EventIndex(events), np.ones(len(events), dtype=bool)
    order = sorted(links, key=lambda link: (-link.confidence, link.frame, link.source))
    needs = [index.find(link.needs()) for link in order]
    # the surest link that needs each event
    first = np.full(len(events) + 1, len(order))
    for rank in range(len(order) - 1, -1, -1):
        first[needs[rank]] = rank
    closed = [
        link
        for rank, link in enumerate(order)
        if (needs[rank] >= 0).all() and (first[needs[rank]] == rank).all()
    ]
    for link in closed:
        kept[index.find(EventTable.join([link.before.went, link.after.went]))] = False
    for end, row in zip(stays, index.find(_ends(stays)).tolist(), strict=True):
        if row >= 0:
            confidence[row] = min(confidence[row], end.confidence)
    added = EventTable.join(
        [table for link in closed for table in (link.before.came, link.after.came)]
    )
    sure = [
        np.full(len(link.before.came) + len(link.after.came), link.confidence)
        for link in closed
    ]
    events = EventTable.join([events[kept], added])
    confidence = np.concatenate([confidence[kept], *sure])
    lead = np.concatenate([joined.lead[kept], np.full(len(added), np.nan)])
    border = np.concatenate(
        [joined.border[kept], np.zeros(len(added))]
    )  # they end inside, or the gap would not be one
    by_frame = np.argsort(events.frame, kind="stable")
    gaps = Gaps(
        EventTable.of(
            [(link.frame, Event.GAP, (link.source,), (link.target,)) for link in closed]
        ),
        np.array([link.confidence for link in closed]),
    )
    return Joined(
        events[by_frame], confidence[by_frame], lead[by_frame], border[by_frame]
    ), gaps


def with_gaps(
    events: EventTable, confidence: Array, context: Array, gaps: Gaps
) -> tuple[EventTable, Array, Array]:
    """The events with gaps in place of the disappearances before them, and without the appearances after them.

    Confidences and contexts (n,) go with them. In a part of a movie, ends that other parts have are passed
    over.
    """
    if not len(gaps.events):
        return events, confidence, context
    gone, back = EventIndex(events).find(gaps.events.to_pairwise()).reshape(2, -1)
    here = gone >= 0
    kind, targets, sure = events.event.copy(), events.targets.copy(), confidence.copy()
    kind[gone[here]], targets[gone[here]], sure[gone[here]] = (
        Event.GAP,
        gaps.events.targets[here],
        gaps.confidence[here],
    )
    kept = np.ones(len(events), dtype=bool)
    kept[back[back >= 0]] = False
    return replace(events, event=kind, targets=targets)[kept], sure[kept], context[kept]


def _ends(stays: Sequence[OpenEnd]) -> EventTable:
    """As events."""
    gone = Event.DISAPPEAR
    return EventTable.of(
        [
            (
                end.frame,
                end.event,
                *(((end.label,), ()) if end.event is gone else ((), (end.label,))),
            )
            for end in stays
        ]
    )
