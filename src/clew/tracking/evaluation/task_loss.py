"""The task loss Δ: annotated events against predicted ones, by kind of event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Mask
from clew.tracking.evaluation.metrics import MatchCounts
from clew.tracking.events import (
    NONE,
    PAIRWISE,
    Annotations,
    Event,
    EventIndex,
    EventTable,
)
from clew.tracking.lineage.lineage import Lineage

NOTHING = len(Event)
"""Column of the confusion matrix for cells without a predicted event."""


@dataclass(frozen=True, slots=True)
class TaskLoss:
    """Annotations that a prediction contradicts, counted by kind of event.

    Attributes
    ----------
    annotated : ndarray of shape (n_kinds,)
        Events that happened.
    missed : ndarray of shape (n_kinds,)
        Those of them that were not predicted.
    denied : ndarray of shape (n_kinds,)
        Events that did not happen.
    invented : ndarray of shape (n_kinds,)
        Those of them that were predicted.
    confusion : ndarray of shape (n_kinds, n_kinds + 1)
        What was predicted for the sources of missed events (the target of an
        appearance); nothing in the last column. The diagonal counts the right kind
        with wrong cells.
    """

    annotated: NDArray[np.int64]
    missed: NDArray[np.int64]
    denied: NDArray[np.int64]
    invented: NDArray[np.int64]
    confusion: NDArray[np.int64]

    @property
    def n_annotations(self) -> int:
        """Number of annotations."""
        return int(self.annotated.sum() + self.denied.sum())

    @property
    def n_errors(self) -> int:
        """Number of annotations that the prediction contradicts."""
        return int(self.missed.sum() + self.invented.sum())

    @property
    def total(self) -> float:
        """Δ: the share of annotations that are contradicted; 0 if there are none."""
        return self.n_errors / self.n_annotations if self.n_annotations else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All figures for JSON."""
        return {
            "total": self.total,
            "annotated": self.n_annotations,
            "missed": self.n_errors,
            "events": {str(event): self._describe_kind(event) for event in PAIRWISE},
        }

    def _describe_kind(self, event: Event) -> dict[str, Any]:
        """The figures of one kind of event."""
        names = [*map(str, Event), "nothing"]
        counts = zip(names, self.confusion[event].tolist(), strict=True)
        return {
            "annotated": int(self.annotated[event]),
            "missed": int(self.missed[event]),
            "denied": int(self.denied[event]),
            "invented": int(self.invented[event]),
            "instead": {name: n for name, n in counts if n},
        }


def compute_task_loss(truth: Annotations, predicted: Lineage | EventTable) -> TaskLoss:
    """Compare annotations with a prediction.

    Parameters
    ----------
    truth : Annotations
    predicted : Lineage or EventTable
        Each cell must be a source of one event and a target of one event at most.

    Returns
    -------
    loss : TaskLoss
        About pairs of frames: a gap counts as a disappearance and an appearance;
        see `count_gaps` for gaps.
    """
    events = _get_events(predicted).to_pairwise()
    truth = truth.to_pairwise()
    annotated = truth.events.to_lineage_kinds()
    index = EventIndex(events)
    is_predicted = index.find(annotated) >= 0
    is_missed = truth.happened & ~is_predicted
    has_no_source = annotated.sources[:, 0] == NONE
    confusion = np.zeros((len(Event), NOTHING + 1), dtype=np.int64)
    for cells, is_target in (
        (annotated.sources[:, 0], False),
        (annotated.sources[:, 1], False),
        (annotated.targets[:, 0], True),
    ):
        counts_here = has_no_source if is_target else np.ones(len(cells), dtype=bool)
        rows = np.flatnonzero(is_missed & (cells != NONE) & counts_here)
        frame = annotated.frame[rows] + is_target
        instead = index.find_cell(frame, np.full(len(rows), is_target), cells[rows])
        kind = np.full(len(rows), NOTHING)
        kind[instead >= 0] = events.event[instead[instead >= 0]]
        np.add.at(confusion, (annotated.event[rows], kind), 1)

    def count_kinds(is_counted: Mask) -> NDArray[np.int64]:
        return np.bincount(annotated.event[is_counted], minlength=len(Event))

    return TaskLoss(
        annotated=count_kinds(truth.happened),
        missed=count_kinds(is_missed),
        denied=count_kinds(~truth.happened),
        invented=count_kinds(~truth.happened & is_predicted),
        confusion=confusion,
    )


def count_gaps(truth: Annotations, predicted: Lineage | EventTable) -> MatchCounts:
    """Count the gaps that were found.

    A predicted gap is false if the truth has an event of its source or target, and
    not this gap.
    """
    events = _get_events(predicted)
    gaps = events[events.event == Event.GAP]
    true_events = truth.events[truth.happened]
    index = EventIndex(true_events)
    is_right = index.find(gaps) >= 0
    is_source = np.zeros(len(gaps), dtype=bool)
    sources = index.find_cell(gaps.frame, is_source, gaps.sources[:, 0])
    targets = index.find_cell(gaps.end_frames(), ~is_source, gaps.targets[:, 0])
    is_false = ~is_right & ((sources >= 0) | (targets >= 0))
    n_right = int(is_right.sum())
    n_true = int((true_events.event == Event.GAP).sum())
    return MatchCounts(n_right, int(is_false.sum()), n_true - n_right)


def _get_events(predicted: Lineage | EventTable) -> EventTable:
    return predicted.events if isinstance(predicted, Lineage) else predicted
