"""Which kinds of events a movie has: what neither annotations nor evidence speak for is switched off.

Splits and merges are faults of a segmentation, and a movie whose masks have none is better tracked without them: a
division looks much like a split. A merge looks like nothing else, and a split is a merge run backwards, so that a movie
without merges has no splits either. Merges are what is looked for. Gaps are another fault, cells that are missed in a
frame, and looked for as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import pdtrc

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.assignment.gaps import find_gaps
from clew.tracking.assignment.loose_ends import LooseEnds, loose_ends
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import features_of
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.events import BY_NAME, Event
from clew.tracking.profiling.scales import Over
from clew.tracking.training.generic_weights import FALSE_GAPS, FALSE_MERGES
from clew.utils.validation import check_list, short_repr

MASK_FAULTS = frozenset({Event.SPLIT, Event.MERGE})
GAPS = frozenset({Event.GAP})
LOOKED_AT = 60
"""Frame pairs, in twos that are evenly spread over the movie, in which merges and gaps are looked for."""
FALSE_RATE = {Event.MERGE: FALSE_MERGES, Event.GAP: FALSE_GAPS}
UNLIKELY = 0.01
"""So few movies without any merge or gap would show as many: then they are merges or gaps."""


@dataclass(frozen=True, slots=True)
class EventKinds:
    """The kinds of events of a movie, and why."""

    events: frozenset[Event]
    reason: str

    def __str__(self) -> str:
        on = ", ".join(str(event) for event in Event if event in self.events)
        off = _listed([str(event) for event in Event if event not in self.events])
        return f"events: {on}" + (
            f" ({off} off: {self.reason})" if off else f" ({self.reason})"
        )


def _listed(words: list[str]) -> str:
    """One, two or more words as a list."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def parse_events(events: str | Iterable[str | Event]) -> frozenset[Event] | None:
    """The kinds that a user names; None for "auto"."""
    if isinstance(events, str):
        if events == "auto":
            return None
        events = events.replace(",", " ").split()
    named = set()
    for event in (
        [events] if isinstance(events, Event) else check_list(events, "events")
    ):
        if not isinstance(event, Event) and str(event) not in BY_NAME:
            raise InputError(
                f"there is no event {short_repr(event)}; expected 'auto', or some of {', '.join(BY_NAME)}"
            )
        named.add(event if isinstance(event, Event) else BY_NAME[str(event)])
    # each detection needs some fate and history whatever else is switched off
    return frozenset(named | {Event.MOVE, Event.APPEAR, Event.DISAPPEAR})


def with_annotated(
    events: frozenset[Event], annotated: frozenset[Event]
) -> frozenset[Event]:
    """Kinds of events with those that were annotated after all; splits and merges come together."""
    return events.union(
        annotated, *(kinds for kinds in (MASK_FAULTS, GAPS) if kinds & annotated)
    )


def decide_events(
    pairs: Pairs, w: Array | None, known: Iterable[Event] = (), over: Over = map
) -> EventKinds:
    """The kinds of a movie: all but splits, merges and gaps, and these if they are known to happen or seen to.

    They are seen if the weights find so many merges, or gaps, that hardly any movie without them would show them.
    Without weights there is no evidence, nor is there for kinds that these were learned without. `over` maps over the
    frame pairs that are looked at.
    """
    known = frozenset(known)
    annotated = [
        (kinds, word)
        for kinds, word in ((MASK_FAULTS, "splits or merges"), (GAPS, "gaps"))
        if kinds & known
    ]
    events = (ALL_EVENTS - MASK_FAULTS - GAPS).union(*(kinds for kinds, _ in annotated))
    reasons = [f"{word} were annotated" for _, word in annotated]
    told = ALL_EVENTS if w is None else scored_kinds(w, pairs.groups) | events
    if w is None or events == told:
        return EventKinds(events, ", ".join(reasons) or "none was annotated")
    windows = [
        (pairs.window(frames.start, frames.stop), frames)
        for frames in _looked_at(len(pairs))
    ]
    seen = Seen(
        *np.array([[0, 0, 0, 0], *over(partial(_look, w, told), windows)])
        .sum(axis=0)
        .tolist()
    )
    for event, kinds in ((Event.MERGE, MASK_FAULTS), (Event.GAP, GAPS)):
        if not kinds & known and seen.is_evidence(event):
            events |= kinds
    return EventKinds(events, ", ".join([*reasons, str(seen)]))


def scored_kinds(w: Array, groups: frozenset[str]) -> frozenset[Event]:
    """The kinds of events that weights tell apart by anything; all weights of the others are 0."""
    blocks = np.split(
        w, np.cumsum([len(features_of(event, groups)) for event in Event])[:-1]
    )
    return frozenset(
        event for event, block in zip(Event, blocks, strict=True) if block.any()
    )


def _looked_at(n_pairs: int) -> list[range]:
    """Frame pairs in twos that share a frame, evenly spread; where they touch or overlap, they are one range."""
    if not n_pairs:
        return []
    begins = np.linspace(0, max(n_pairs - 2, 0), LOOKED_AT // 2).round().astype(int)
    frames = np.unique(np.minimum(np.concatenate([begins, begins + 1]), n_pairs - 1))
    runs = np.split(frames, np.flatnonzero(np.diff(frames) > 1) + 1)
    return [range(int(run[0]), int(run[-1]) + 1) for run in runs]


class Seen(NamedTuple):
    """How many events of some frame pairs look like merges and gaps."""

    n_pairs: int
    total: int
    merges: int
    gaps: int

    def is_evidence(self, event: Event) -> bool:
        """Whether hardly any movie without events of this kind would show as many."""
        n = self.merges if event is Event.MERGE else self.gaps
        return n > 0 and bool(pdtrc(n - 1, FALSE_RATE[event] * self.total) < UNLIKELY)

    def __str__(self) -> str:
        among = f"of {self.total} events in {self.n_pairs} frame pairs"
        return f"{self.merges} {among} look like merges, {self.gaps} like gaps"


def _look(w: Array, kinds: frozenset[Event], item: tuple[Pairs, range]) -> Seen:
    """What frame pairs that share a frame look like to weights, with events of these kinds."""
    pairs, frames = item
    total = merges = 0
    ends: list[tuple[int, LooseEnds]] = []
    for frame in frames:
        pair = pairs.looked_at(frame, w)
        pair = pair if kinds == ALL_EVENTS else pair.only(kinds)
        answer = pair.best()
        total, merges = (
            total + len(answer.chosen),
            merges + int((answer.events == Event.MERGE).sum()),
        )
        # only cells that are alone by the best choice: to ask about others would take longer than the choice
        found = loose_ends(
            (pair.a, pair.b),
            answer,
            np.full(len(answer.chosen), np.inf),
            w,
            pair.around,
        )
        ends += [] if found is None else [(frame, found)]
    return Seen(len(frames), total, merges, len(find_gaps(ends)[0]))
