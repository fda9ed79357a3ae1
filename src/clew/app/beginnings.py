"""Weights of another movie that a movie begins with: kept in its store, so that it begins so again."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.predictions import Weights
from clew.annotation.store.store import Store
from clew.errors import ClewError, InputError
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import Source, WindowedSource
from clew.tracking.events import Event
from clew.tracking.measurement.store import hash_parts
from clew.tracking.persistence import load_tracker
from clew.tracking.profiling.event_kinds import parse_events
from clew.tracking.tracker import Tracker

BEGINNING = "beginning"
"""The note in a store that has them."""
KINDS = "kinds"
"""The note that has the kinds of events which were found in it."""
SUFFIX = ".clew"
"""Of files of weights."""


@dataclass(frozen=True)
class Beginning:
    """A file of weights, as `clew train` and the page write it."""

    name: str
    """Where it comes from, in words."""
    content: bytes

    def tracker(self) -> Tracker:
        """What is in the file; refused with an InputError if that is none."""
        with tempfile.TemporaryDirectory(prefix="clew-") as folder:
            path = Path(folder) / f"weights{SUFFIX}"
            path.write_bytes(self.content)
            try:
                return load_tracker(path)
            except ClewError as error:
                why = str(error).replace(str(path), self.name)
                raise InputError(
                    f"{self.name}: expected weights, as clew train and the page write them ({why})"
                ) from error

    def to_json(self) -> Any:
        """As a note in a store has it."""
        return {"name": self.name, "content": base64.b64encode(self.content).decode()}

    @classmethod
    def kept(cls, store: Store) -> Self | None:
        """Those that a store has."""
        noted = store.noted(BEGINNING)
        return (
            None
            if noted is None
            else cls(noted["name"], base64.b64decode(noted["content"]))
        )


def decided(tracker: Tracker, events: Iterable[Event]) -> Tracker:
    """A tracker that does not look for the kinds of events of a movie, since they are known."""
    other = copy(tracker)
    other.events = sorted(str(event) for event in events)
    return other


def begin(
    source: Source, tracker: Tracker, events: frozenset[Event]
) -> tuple[Pairs, Weights]:
    """The frame pairs of a movie of some kinds of events, and the weights that it begins with."""
    learner = Learner(source, tracker=decided(tracker, events))
    return learner.pairs, Weights(learner.version, learner.w)


def as_looked_at(store: Store, source: Source, tracker: Tracker) -> Tracker:
    """A tracker with the kinds of events that these weights found in these very masks before, which takes seconds."""
    noted = store.noted(KINDS)
    if noted is None or not noted["of"] or noted["of"] != _mark(source, tracker):
        return tracker
    return decided(tracker, parse_events(noted["events"]) or ())


def keep_kinds(
    store: Store, source: Source, tracker: Tracker, events: frozenset[Event]
) -> None:
    """Keep the kinds of events that were found, for `as_looked_at`."""
    found = {
        "of": _mark(source, tracker),
        "events": sorted(str(event) for event in events),
    }
    if store.noted(KINDS) != found:
        store.note(KINDS, found)


def _mark(source: Source, tracker: Tracker) -> str:
    """A digest of what the kinds of events follow from: the cells, the weights, and what a person said of kinds."""
    if not isinstance(source, WindowedSource):  # it cannot tell what it holds
        return ""
    cells = [source.content(t) for t in range(source.n_frames)]
    kinds = repr((tracker.events, sorted(tracker.events_))).encode()
    return hash_parts([*cells, np.ascontiguousarray(tracker.coef_).tobytes(), kinds])
