"""Training examples: each annotated frame pair is a 0/1 program, partially annotated.

`Tracker.fit`, the annotation page and the experiments learn from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import scipy.sparse as sp

from clew.learning.task import Array
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import Program
from clew.tracking.assignment.assignment import make_program
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.events import Annotations, Event

MODEL = BinaryProgram(normalize=False)
"""Δ counts missed events: each annotated event weighs the same in any frame pair."""


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """An input x with its partial annotation y*."""

    pair: FramePair
    program: Program
    """A variable for each candidate."""
    annotated: dict[int, int]
    """{candidate: 1 if it happened, 0 if not}."""

    @classmethod
    def of(cls, pair: FramePair, annotations: Annotations) -> Self:
        """Return the example of a frame pair."""
        program = make_program(pair.candidates, pair.features)
        return cls(pair, program, pair.find_annotated(annotations))

    def count_mistakes(self, w: Array) -> int:
        """Return Δ: how many annotations weights `w`, (d,), contradict."""
        chosen = set(self.pair.solve(w).chosen.tolist())
        return sum(
            (row in chosen) != happened for row, happened in self.annotated.items()
        )


def build_examples(
    builder: FramePairBuilder, annotations: Annotations
) -> list[TrainingExample]:
    """Return one example for each annotated frame pair."""
    examples = []
    for frame in annotations.annotated_frames():
        of_pair = annotations.select_frame(frame)
        pair = builder.build(frame, of_pair.events)
        examples.append(TrainingExample.of(pair, of_pair))
    return examples


def change_basis(program: Program, basis: Any) -> Program:
    """Return a program whose weights are those that `basis`, (d, k), multiplies."""
    return replace(program, features=sp.csr_array(program.features @ basis))


def mean_annotated_features(
    examples: Iterable[TrainingExample],
) -> dict[Event, Array]:
    """Return the mean features (d,) of the annotated events of each kind.

    Zero for kinds that are annotated as not happened alone.
    """
    totals: dict[Event, Array] = {}
    counts = Counter[Event]()
    for example in examples:
        pair = example.pair
        features = pair.features
        for row, happened in example.annotated.items():
            event = Event(pair.candidates.event[row])
            counts[event] += happened
            value = happened * features[[row]].toarray()[0]
            totals[event] = totals.get(event, 0.0) + value
    return {event: total / max(counts[event], 1) for event, total in totals.items()}
