"""Weights of another movie that a movie starts with; kept in its store."""

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
from clew.annotation.store.store import Store
from clew.errors import ClewError, InputError
from clew.learning.task import Array
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import Source, WindowedSource
from clew.tracking.events import Event
from clew.tracking.measurement.store import hash_parts
from clew.tracking.persistence import load_tracker
from clew.tracking.profile import parse_events
from clew.tracking.tracker import Tracker

INITIAL_WEIGHTS = "beginning"
EVENT_KINDS = "kinds"
"""Settings in a store: the weights, and the kinds of events that they found."""
SUFFIX = ".clew"
"""Of files with weights."""


@dataclass(frozen=True)
class InitialWeights:
    """A file of weights, as `clew train` and the page write it."""

    name: str
    """Of the file or movie that the weights come from."""
    content: bytes

    def load(self) -> Tracker:
        """Return the tracker in the file; raise InputError if there is none."""
        with tempfile.TemporaryDirectory(prefix="clew-") as folder:
            path = Path(folder) / f"weights{SUFFIX}"
            path.write_bytes(self.content)
            try:
                return load_tracker(path)
            except ClewError as error:
                reason = str(error).replace(str(path), self.name)
                raise InputError(
                    f"{self.name} has no weights; expected a file of clew train or of "
                    f"the page ({reason})"
                ) from error

    def to_json(self) -> Any:
        """Return the content of the setting in a store."""
        return {"name": self.name, "content": base64.b64encode(self.content).decode()}

    @classmethod
    def read(cls, store: Store) -> Self | None:
        """Return the weights that a store has."""
        setting = store.get_setting(INITIAL_WEIGHTS)
        if setting is None:
            return None
        return cls(setting["name"], base64.b64decode(setting["content"]))


def with_events(tracker: Tracker, events: Iterable[Event]) -> Tracker:
    """Return a tracker that does not have to detect the kinds of events."""
    other = copy(tracker)
    other.events = sorted(str(event) for event in events)
    return other


def build_pairs(
    source: Source, tracker: Tracker, events: frozenset[Event]
) -> tuple[FramePairBuilder, Array]:
    """Return how a tracker builds the frame pairs of a movie, and its weights."""
    learner = Learner(source, tracker=with_events(tracker, events))
    return learner.pairs, learner.w


def reuse_event_kinds(store: Store, source: Source, tracker: Tracker) -> Tracker:
    """Return a tracker with the kinds of events found earlier in the same masks.

    Detecting them takes seconds.
    """
    setting = store.get_setting(EVENT_KINDS)
    fingerprint = _fingerprint(source, tracker)
    if setting is None or not fingerprint or setting["of"] != fingerprint:
        return tracker
    return with_events(tracker, parse_events(setting["events"]) or ())


def store_event_kinds(
    store: Store, source: Source, tracker: Tracker, events: frozenset[Event]
) -> None:
    """Store the kinds of events that were found, for `reuse_event_kinds`."""
    setting = {
        "of": _fingerprint(source, tracker),
        "events": sorted(str(event) for event in events),
    }
    if store.get_setting(EVENT_KINDS) != setting:
        store.set_setting(EVENT_KINDS, setting)


def _fingerprint(source: Source, tracker: Tracker) -> str:
    """Return a digest of the detections, the weights, and the requested kinds."""
    if not isinstance(source, WindowedSource):
        return ""
    cells = [source.content(t) for t in range(source.n_frames)]
    weights = np.ascontiguousarray(tracker.coef_).tobytes()
    kinds = repr((tracker.events, sorted(tracker.events_))).encode()
    return hash_parts([*cells, weights, kinds])
