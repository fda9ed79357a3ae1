"""One frame pair solved at once, here in the server, so that an answer shows without waiting for the worker."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import numpy as np

from clew.annotation.answers import Answer
from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array
from clew.tracking.assignment import assign
from clew.tracking.events import Annotations, EventTable
from clew.tracking.pairs import FramePair, Pairs
from clew.tracking.stream import Step

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
        """The best events of a frame pair that agree with its annotations `here`; see `stream.solve_pair`.

        Confidences take longer than the solution. Events that were in the one `before` keep theirs, which the worker
        soon replaces.
        """
        weights = self.weights
        pair = self._pair(frame)
        if len(pair.rows(here.events)) < len(here):  # something was annotated that is no candidate
            pair = self.pairs.pair(frame, here.events)
        pinned = pair.annotated(here)
        try:
            answer = assign(pair.candidates, pair.scores(weights.values), pinned)
        except InfeasibleAnnotation as error:
            raise InfeasibleAnnotation(
                f"from frame {frame} to {frame + 1}, no assignment would be left in which every cell has one fate and "
                "one history; take back something that was denied there",
                frame,
            ) from error
        events = pair.candidates.table(pair.a, pair.b, answer.chosen)
        confidence = _recalled(events, before)
        new = np.isnan(confidence) | np.isin(answer.chosen, list(pinned))
        confidence[new] = answer.confidence(answer.chosen[new])
        return Solved(weights.version, marks_of(here), Step(events, confidence, len(pair.candidates)))

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


def _recalled(events: EventTable, before: Solved | None) -> Array:
    """(n,) the confidences that events had before, NaN for those that are new."""
    confidence = np.full(len(events), np.nan)
    if before is not None:
        _, now, then = np.intersect1d(events.keys(), before.step.events.keys(), return_indices=True)
        confidence[now] = before.step.confidence[then]
    confidence[np.isinf(confidence)] = np.nan  # what was certain because of an answer may be so no longer
    return confidence
