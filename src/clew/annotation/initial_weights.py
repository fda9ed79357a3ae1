"""Weights of another movie that a movie starts with; kept in its store."""

from __future__ import annotations

import base64
import tempfile
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clew.annotation.learner import Learner
from clew.annotation.store.store import Store
from clew.errors import ClewError, InputError
from clew.learning.task import Array
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import Source
from clew.tracking.events import Event
from clew.tracking.persistence import load_tracker
from clew.tracking.tracker import Tracker

INITIAL_WEIGHTS = "beginning"
"""Setting in a store."""
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


def build_pairs(
    source: Source, tracker: Tracker, events: frozenset[Event]
) -> tuple[FramePairBuilder, Array]:
    """Return how a tracker builds the frame pairs of a movie, and its weights."""
    enabling = copy(tracker)
    enabling.events = sorted(str(event) for event in events)
    learner = Learner(source, tracker=enabling)
    learner.use_events(events)
    return learner.pairs, learner.w
