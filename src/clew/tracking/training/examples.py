"""Training examples: each annotated frame pair is a 0/1 program, partially annotated.

`Tracker.fit`, the annotation page and the experiments learn from these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import scipy.sparse as sp

from clew.learning.task import Array
from clew.models.binary_program import BinaryProgram, Program
from clew.tracking.assignment.assignment import make_program
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.events import Annotations, Event

if TYPE_CHECKING:
    from clew.estimators.svm import StructuredSVM
    from clew.learning.selection import PathPoint

MODEL = BinaryProgram(normalize=False)
"""Δ counts missed events: each annotated event weighs the same in any frame pair."""
LAMBDA_GRID = (100.0, 12.0, 1.5)
"""λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed
event. Features are of order 1 in any movie, so that this is an absolute measure. Each
fit begins at the weights of the λ before, so that the first, which hardly leaves the
prior, decides which local minimum the others are in."""


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


def choose_lambdas(lam: Any, n_examples: int, prior: Array | None) -> Any:
    """Return the λ to choose from: the requested ones, or those of `LAMBDA_GRID`.

    Without a prior the learner takes them from its data. The prior's feature, ten times
    as large as the others, would mislead it.
    """
    if prior is None or not isinstance(lam, str) or lam != "auto":
        return lam
    return [value / n_examples for value in LAMBDA_GRID]


def beats_prior(
    learner: StructuredSVM,
    examples: Sequence[TrainingExample],
    prior: Array,
) -> bool:
    """Whether learned weights make fewer mistakes on held-out annotations.

    Few annotations can lead away from weights that were learned from many. The folds
    that choose λ hold out every annotation once, so that both are judged by the same
    events. As many mistakes are no evidence: learned weights were then worse on events
    that nobody annotated more often than better. With a given λ nothing was held out,
    and the answer is yes.
    """
    point = find_chosen_point(learner)
    if point is None:
        return True
    of_prior = sum(example.count_mistakes(prior) for example in examples)
    return bool(point.losses.sum() < of_prior)


def find_chosen_point(learner: StructuredSVM) -> PathPoint | None:
    """Return what the folds tell of the chosen λ; None with a given λ."""
    return next((point for point in learner.path_ if point.lam == learner.lam_), None)


def held_out_folds(
    learner: StructuredSVM, basis: Any
) -> list[tuple[Array, list[dict[int, int]]]]:
    """Return the weights of each fold at the chosen λ, and what it held out.

    Empty with a given λ.
    """
    point = find_chosen_point(learner)
    if point is None:
        return []
    folds = zip(point.weights, learner.held_out_, strict=True)
    return [(basis @ w, [part or {} for part in parts]) for w, parts in folds]
