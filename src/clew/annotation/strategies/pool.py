"""The pool of pool-based active learning: predicted events that nobody has answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from clew.annotation.learner import Learner
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import Detections
from clew.tracking.events import NONE, Annotations, Event, EventTable, Labels


@dataclass(frozen=True)
class Pool:
    """Open events of a movie with what the present weights say of them."""

    events: EventTable
    confidence: Array
    """(n,) the score that is lost when the event is forbidden; finite, for what has no alternative is not asked."""
    scale: float
    """The usual confidence of an event in this movie."""
    annotated: NDArray[np.int64]
    """(kinds,) how many events of each kind are annotated."""

    @classmethod
    def of(cls, learner: Learner, annotations: Annotations) -> Self:
        """What the learner predicts and no annotation settles."""
        solved = [learner.solved(frame) for frame in range(len(learner.pairs))]
        events = EventTable.join([one.events for one in solved])
        confidence = np.concatenate([np.zeros(0), *(one.confidence for one in solved)])
        finite = np.isfinite(confidence)
        kinds = np.bincount(
            annotations.events.event[annotations.happened], minlength=len(Event)
        )
        rows = np.flatnonzero(finite & ~settled(events, annotations))
        return cls(
            events[rows], confidence[rows], usual_confidence([confidence]), kinds
        )

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, rows: Indices) -> Self:
        """Some of the events."""
        return type(self)(
            self.events[rows], self.confidence[rows], self.scale, self.annotated
        )

    @property
    def doubt(self) -> Array:
        """(n,) how likely a prediction is wrong as far as its confidence tells: from 1/2 for a tie down to 0."""
        return np.asarray(
            1.0 / (1.0 + np.exp(np.minimum(4.0 * self.confidence / self.scale, 700.0)))
        )

    def least_certain(self, n: int) -> Self:
        """The `n` events of least confidence, in their order in the movie."""
        if n >= len(self):
            return self
        return self[np.sort(np.argpartition(self.confidence, n)[:n])]

    def places(self, learner: Learner) -> Array:
        """(n, ndim) where each event is: the middle of its cells."""
        places = np.zeros((len(self), learner.source.ndim))
        for frame in np.unique(self.events.frame).tolist():
            here = np.flatnonzero(self.events.frame == frame)
            pair = learner.pair(frame)
            sides = (
                _positions(pair.a, self.events.sources[here]),
                _positions(pair.b, self.events.targets[here]),
            )
            places[here] = np.nanmean(np.concatenate(sides, axis=1), axis=1)
        return places


def usual_confidence(parts: Sequence[Array]) -> float:
    """The median of the finite confidences of a movie, by which others are judged; 1 where there is none."""
    confidence = np.concatenate([np.zeros(0), *parts])
    finite = confidence[np.isfinite(confidence)]
    return (float(np.median(finite)) if len(finite) else 0.0) or 1.0


def is_open(events: EventTable, annotations: Annotations) -> Mask:
    """(n,) whether nobody has answered an event: it can still be, and is not known to be or denied."""
    known = np.isin(events.row_keys(), annotations.events.row_keys())
    return np.asarray(~known & ~settled(events, annotations))


def settled(events: EventTable, annotations: Annotations) -> Mask:
    """(n,) whether one of the event's cells has an annotated fate (as a source) or history (as a target)."""
    known = annotations.events[annotations.happened]

    def shared(cells: Labels, known_cells: Labels) -> Mask:
        return np.asarray(np.isin(cells, known_cells[known_cells >= 0]).any(axis=1))

    fates = shared(_cells(events, events.sources), _cells(known, known.sources))
    histories = shared(_cells(events, events.targets), _cells(known, known.targets))
    return np.asarray(fates | histories)


def _cells(events: EventTable, labels: Labels) -> Labels:
    """(n, 2) one number for each cell of the movie; negative for no cell."""
    return np.where(labels == NONE, -1, (events.frame[:, None] << 40) + labels)


def _positions(detections: Detections, labels: Labels) -> Array:
    """(n, 2, ndim) of cells by their labels, NaN for none."""
    rows = detections.rows(labels)
    known = np.vstack(
        [detections.position, np.full((1, detections.position.shape[1]), np.nan)]
    )
    return np.asarray(known[rows])
