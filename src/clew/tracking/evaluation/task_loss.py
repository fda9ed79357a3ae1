"""The task loss Δ: annotated events against predicted ones, by kind of event; and gaps that were found."""

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
"""The column of a confusion matrix for cells about which nothing was predicted."""


@dataclass(frozen=True, slots=True)
class TaskLoss:
    """Annotated events that were missed, and events that were said not to happen and yet predicted; (k,) by event."""

    annotated: NDArray[np.int64]
    """Events that happened."""
    missed: NDArray[np.int64]
    """Those of them that were not predicted."""
    denied: NDArray[np.int64]
    """Events that did not happen, as annotated."""
    invented: NDArray[np.int64]
    """Those of them that were predicted."""
    confusion: NDArray[np.int64]
    """(k, k + 1) what was predicted instead for the sources of missed events (the target of an appearance), in the last
    column nothing. The diagonal counts the right event with wrong cells."""

    @property
    def total(self) -> float:
        """Δ: the fraction of all annotations that the prediction contradicts; 0 where there are none."""
        n = int(self.annotated.sum() + self.denied.sum())
        return int(self.missed.sum() + self.invented.sum()) / n if n else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        instead = [*map(str, Event), "nothing"]
        return {
            "total": self.total,
            "annotated": int(self.annotated.sum() + self.denied.sum()),
            "missed": int(self.missed.sum() + self.invented.sum()),
            "events": {
                str(event): {
                    "annotated": int(self.annotated[event]),
                    "missed": int(self.missed[event]),
                    "denied": int(self.denied[event]),
                    "invented": int(self.invented[event]),
                    "instead": {
                        name: int(n)
                        for name, n in zip(instead, self.confusion[event], strict=True)
                        if n
                    },
                }
                for event in PAIRWISE
            },
        }


def compute_task_loss(truth: Annotations, predicted: Lineage | EventTable) -> TaskLoss:
    """Compare annotations with a prediction in which every cell has one fate and one history at most.

    This is about pairs of frames, so that a gap on either side counts as the disappearance and the appearance that it
    is there; `count_gaps` tells of gaps.
    """
    events = (
        predicted.events if isinstance(predicted, Lineage) else predicted
    ).to_pairwise()
    truth = truth.to_pairwise()
    said, happened = truth.events, truth.happened
    find = EventIndex(events)
    no_source = said.sources[:, 0] == NONE
    same = find.find(said) >= 0
    missed = happened & ~same
    confusion = np.zeros((len(Event), NOTHING + 1), dtype=np.int64)
    for cells, later in [
        (said.sources[:, 0], False),
        (said.sources[:, 1], False),
        (said.targets[:, 0], True),
    ]:
        asked = np.flatnonzero(missed & (cells != NONE) & (no_source | (not later)))
        instead = find.find_cell(
            said.frame[asked] + later, np.full(len(asked), later), cells[asked]
        )
        kind = np.full(len(asked), NOTHING)
        kind[instead >= 0] = events.event[instead[instead >= 0]]
        np.add.at(confusion, (said.event[asked], kind), 1)

    def number(which: Mask) -> NDArray[np.int64]:
        return np.bincount(said.event[which], minlength=len(Event))

    return TaskLoss(
        number(happened),
        number(missed),
        number(~happened),
        number(~happened & same),
        confusion,
    )


def count_gaps(truth: Annotations, predicted: Lineage | EventTable) -> MatchCounts:
    """Gaps that were found; one is false where the truth knows of an end of it, and not of this gap."""
    told = predicted.events if isinstance(predicted, Lineage) else predicted
    told, true = told[told.event == Event.GAP], truth.events[truth.happened]
    known = EventIndex(true)
    right = known.find(told) >= 0
    sources = known.find_cell(
        told.frame, np.zeros(len(told), dtype=bool), told.sources[:, 0]
    )
    targets = known.find_cell(
        told.end_frames(), np.ones(len(told), dtype=bool), told.targets[:, 0]
    )
    false = ~right & ((sources >= 0) | (targets >= 0))
    return MatchCounts(
        int(right.sum()),
        int(false.sum()),
        int((true.event == Event.GAP).sum() - right.sum()),
    )
