"""The training recipe: every annotated frame pair is one example, a 0/1 programme with partial annotation.

`Tracker.fit`, the annotation page and the experiments all learn from what is made here. The page shows the learner
parts of frame pairs instead of whole ones, and adds pseudo-labels: `annotation/training_windows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from clew.estimator import get_algorithm
from clew.learning.cccp import Algorithm
from clew.learning.task import Array
from clew.models.program import BinaryProgram, Program
from clew.tracking.events import Annotations
from clew.tracking.model.assignment import make_program
from clew.tracking.model.pairs import FramePair, Pairs
from clew.tracking.model.prior import with_prior

MODEL = BinaryProgram(normalize=False)
"""Δ counts missed events: each annotated event weighs the same, in a frame pair with many of them or with few."""


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """One input x with its partial annotation y*."""

    pair: FramePair
    program: Program
    """A variable for each candidate; its last feature is the prior's score, if there is a prior."""
    annotated: dict[int, int]
    """{candidate: 1 if it happened, 0 if it did not}"""

    @classmethod
    def of(cls, pair: FramePair, annotations: Annotations, prior: Array | None = None) -> Self:
        """A whole frame pair; `prior` is (d,), see `prior_direction`."""
        program = make_program(pair.candidates, with_prior(pair.features(), prior))
        return cls(pair, program, pair.annotated(annotations))

    def with_annotations(self, annotations: Annotations) -> Self:
        """The same input with other annotations, of which those of its frame pair count."""
        return replace(self, annotated=self.pair.annotated(annotations.at(self.pair.a.frame)))


def training_examples(pairs: Pairs, annotations: Annotations, prior: Array | None = None) -> list[TrainingExample]:
    """One example for each frame pair that carries an annotation; all that is annotated is among its candidates."""
    by_frame = [(frame, annotations.at(frame)) for frame in annotations.frames()]
    return [TrainingExample.of(pairs.pair(frame, here.events), here, prior) for frame, here in by_frame]


def by_event(algorithm: str | Algorithm, annotated: Sequence[int]) -> Algorithm:
    """The algorithm with precisions that are meant for the loss of one event, while pairs have several annotated."""
    chosen = get_algorithm(algorithm)
    n = max(float(np.mean(annotated)), 1.0)
    return replace(chosen, epsilon=n * chosen.epsilon, tol=n * chosen.tol, eta=n * chosen.eta)
