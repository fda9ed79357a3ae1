"""One frame pair solved at once, here in the server, so that an answer shows without waiting for the worker."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import numpy as np

from clew.annotation.store.answers import Answer
from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array
from clew.tracking.events import Annotations, EventTable
from clew.tracking.model.pairs import FramePair, Pairs
from clew.tracking.model.solve import Step, solve

KEPT_PAIRS = 32
"""Frame pairs whose candidates and features stay in memory."""


@dataclass(frozen=True)
class Weights:
    """What was learned last."""

    version: int
    values: Array


@dataclass(frozen=True, eq=False)
class Solved:
    """The predicted events of a frame pair, and what they follow from."""

    version: int
    """Of the weights."""
    marks: bytes
    """The annotations of the pair, see `marks_of`."""
    step: Step


def marks_of(here: Annotations) -> bytes:
    """A value that is the same exactly for the same annotations of a frame pair, in whatever order."""
    order = np.argsort(keys := here.events.keys(), kind="stable")
    return bytes(keys[order].tobytes() + here.happened[order].tobytes())


def with_answer(here: Annotations, answer: Answer) -> Annotations:
    """The annotations of a frame pair as they are after an answer that replaces what it contradicts."""
    new, events = EventTable.of([answer.fact]), here.events
    clashes = events.keys() == new.keys()
    if answer.happened:
        shared = np.isin(events.sources, answer.sources) | np.isin(events.targets, answer.targets)
        clashes |= here.happened & shared.any(axis=1)
    kept = here[~clashes]
    return Annotations.of(EventTable.join([kept.events, new]), [*kept.happened.tolist(), answer.happened])


class Predictor:
    """Solves frame pairs with the present weights; several threads may ask at once."""

    def __init__(self, pairs: Pairs, weights: Weights) -> None:
        self.pairs, self.weights = pairs, weights
        self._kept: OrderedDict[int, FramePair] = OrderedDict()
        self._lock = Lock()

    def solve(self, frame: int, here: Annotations, before: Solved | None = None) -> Solved:
        """The best events of a frame pair that agree with its annotations `here`; see `stream.solve`.

        Confidences of events that were in the one `before` are renewed by the worker soon.
        """
        weights = self.weights
        pair = self._pair(frame)
        if len(pair.rows(here.events)) < len(here):  # something was annotated that is no candidate
            pair = self.pairs.pair(frame, here.events)
        try:
            step = solve(pair, weights.values, here, None if before is None else before.step)[1]
        except InfeasibleAnnotation as error:
            raise InfeasibleAnnotation(
                f"from frame {frame} to {frame + 1}, no assignment would be left in which every cell has one fate and "
                "one history; take back something that was denied there",
                frame,
            ) from error
        return Solved(weights.version, marks_of(here), step)

    def _pair(self, frame: int) -> FramePair:
        with self._lock:
            if frame in self._kept:
                self._kept.move_to_end(frame)
                return self._kept[frame]
        made = self.pairs.pair(frame)
        with self._lock:
            self._kept[frame] = made
            while len(self._kept) > KEPT_PAIRS:
                self._kept.popitem(last=False)
        return made
