"""Which kinds of events a movie has: what neither annotations nor evidence speak for is switched off.

Splits and merges are faults of a segmentation, and a movie whose masks have none is better tracked without them: a
division looks much like a split. A merge looks like nothing else, and a split is a merge run backwards, so that a movie
without merges has no splits either. Merges are what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import pdtrc

from clew.checks import shown
from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.events import BY_NAME, Event
from clew.tracking.measurement.scales import Over
from clew.tracking.model.assignment import assign
from clew.tracking.model.candidates import ALL_EVENTS
from clew.tracking.model.generic import FALSE_MERGES
from clew.tracking.model.pairs import Pairs

MASK_FAULTS = frozenset({Event.SPLIT, Event.MERGE})
LOOKED_AT = 60
"""Frame pairs, evenly spread over the movie, in which merges are looked for."""
UNLIKELY = 0.01
"""Merges that so few movies without any would show are merges."""


@dataclass(frozen=True, slots=True)
class EventKinds:
    """The kinds of events of a movie, and why."""

    events: frozenset[Event]
    reason: str

    def __str__(self) -> str:
        on = ", ".join(str(event) for event in Event if event in self.events)
        off = " and ".join(f"{event}" for event in Event if event not in self.events)
        return f"events: {on}" + (f" ({off} off: {self.reason})" if off else f" ({self.reason})")


def parse_events(events: str | Iterable[str | Event]) -> frozenset[Event] | None:
    """The kinds that a user names; None for "auto"."""
    if isinstance(events, str):
        if events == "auto":
            return None
        events = events.replace(",", " ").split()
    named = set()
    for event in events if isinstance(events, Iterable) else [events]:
        if not isinstance(event, Event) and str(event) not in BY_NAME:
            raise InputError(f"there is no event {shown(event)}; expected 'auto', or some of {', '.join(BY_NAME)}")
        named.add(event if isinstance(event, Event) else BY_NAME[str(event)])
    # each detection needs some fate and history whatever else is switched off
    return frozenset(named | {Event.MOVE, Event.APPEAR, Event.DISAPPEAR})


def decide_events(pairs: Pairs, w: Array | None, known: Iterable[Event] = (), over: Over = map) -> EventKinds:
    """The kinds of a movie: all but splits and merges, and these if they are known to happen or if there are merges.

    There are if the weights see so many that hardly any movie without merges would show them. Without weights there
    is no evidence. `over` maps over the frame pairs that are looked at.
    """
    if MASK_FAULTS & set(known):
        return EventKinds(ALL_EVENTS, "splits or merges were annotated")
    if w is None:
        return EventKinds(ALL_EVENTS - MASK_FAULTS, "none was annotated")
    frames = np.unique(np.linspace(0, len(pairs) - 1, LOOKED_AT).round().astype(int)).tolist() if len(pairs) else []
    items = [(pairs.window(frame, frame + 1), frame) for frame in frames]
    counted = np.array(list(over(partial(_merges, w), items)), dtype=np.int64).reshape(-1, 2)
    seen, total = counted.sum(axis=0).tolist()
    by_chance = pdtrc(seen - 1, FALSE_MERGES * total) if seen else 1.0  # the chance of so many in a movie without any
    evidence = f"{seen} of {total} events in {len(frames)} frame pairs look like merges"
    return EventKinds(ALL_EVENTS if by_chance < UNLIKELY else ALL_EVENTS - MASK_FAULTS, evidence)


def _merges(w: Array, item: tuple[Pairs, int]) -> tuple[int, int]:
    """How many events of one frame pair look like merges, and how many there are."""
    pairs, frame = item
    pair = pairs.scored(frame, w)
    chosen = pair.candidates.event[assign(pair.candidates, pair.score).chosen]
    return int((chosen == Event.MERGE).sum()), len(chosen)
