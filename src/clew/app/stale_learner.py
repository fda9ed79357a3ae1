"""A learner for a person who does not wait: predictions may be a few answers old until it is their turn."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.annotation.learner import Learner
from clew.app.predictor import marks_of
from clew.tracking.lineage import Lineage
from clew.tracking.model.assignment import Assignment
from clew.tracking.model.pairs import FramePair
from clew.tracking.model.solve import Step


class Prediction(NamedTuple):
    """Of one frame pair."""

    marks: bytes
    """The annotations that it agrees with, see `marks_of`."""
    version: int
    """Of the weights that it was made with."""
    pair: FramePair
    assignment: Assignment
    step: Step


class RecentLearner(Learner):
    """A learner whose `step` and `assignment` are of recent weights, though not always of the last.

    They always agree with the annotations. New weights change little after the first answers, so that questions can be
    chosen by predictions that are renewed one after the other, while answers keep coming.
    """

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._recent: dict[int, Prediction] = {}

    def renew(self, frame: int) -> Prediction:
        """The prediction of the present weights."""
        pair, assignment = super().assignment(frame)
        made = Prediction(self._marks(frame), self.version, pair, assignment, super().step(frame))
        self._recent[frame] = made
        return made

    def step(self, frame: int) -> Step:
        """What happens from a frame to the next, by recent weights and in accord with the annotations."""
        return self._prediction(frame).step

    def assignment(self, frame: int) -> tuple[FramePair, Assignment]:
        """The candidates of a frame pair and the choice among them, likewise."""
        recent = self._prediction(frame)
        return recent.pair, recent.assignment

    def lineage(self) -> Lineage:
        """The whole movie, by the present weights."""
        for frame in range(len(self.pairs)):
            self.renew(frame)
        return super().lineage()

    def _prediction(self, frame: int) -> Prediction:
        known = self._recent.get(frame)
        return known if known is not None and known.marks == self._marks(frame) else self.renew(frame)

    def _marks(self, frame: int) -> bytes:
        return marks_of(self.annotations[self.annotations.events.frame == frame])
