"""Weights of another movie that a movie begins with: kept in its store, so that it begins so again."""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clew.annotation.learner import Learner
from clew.annotation.store.store import Store
from clew.app.predictor import Weights
from clew.errors import ClewError, InputError
from clew.tracking.archive import load_tracker
from clew.tracking.detections import Source
from clew.tracking.events import Event
from clew.tracking.model.pairs import Pairs
from clew.tracking.tracker import Tracker

BEGINNING = "beginning"
"""The note in a store that has them."""
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
        return None if noted is None else cls(noted["name"], base64.b64decode(noted["content"]))


def begin(source: Source, tracker: Tracker, events: frozenset[Event]) -> tuple[Tracker, Pairs, Weights]:
    """A tracker for a movie of some kinds of events, its frame pairs, and the weights that it begins with."""
    decided = tracker.set_params(events=sorted(str(event) for event in events))
    learner = Learner(source, tracker=decided)
    return learner.tracker, learner.pairs, Weights(learner.version, learner.w)
