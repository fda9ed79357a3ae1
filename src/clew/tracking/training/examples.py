"""Training examples: each annotated frame pair is a 0/1 program, partially annotated.

`Tracker.fit`, the annotation page and the experiments learn from these.

Some annotations contradict a frame pair and are explained by the pairs around it: a
mask that is torn for one frame parts and merges between two frames, and over three of
them its cell moves on. Weights that learn that move from the torn frame pair take
splits for moves elsewhere. Such annotations are not learned from, but learned weights
are judged by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import scipy.sparse as sp

from clew.learning.task import Array, Mask
from clew.models.binary_program import BinaryProgram, Program
from clew.tracking.assignment.assignment import make_program
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage.build import repair_events
from clew.tracking.solve import solve_pairs

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


class ContextPrediction(NamedTuple):
    """Events that weights predict for a frame pair."""

    alone: EventTable
    """By the frame pair itself."""
    in_context: EventTable
    """By the pairs before and after it too; events of all three."""


def predict_in_context(
    builder: FramePairBuilder, w: Array, frame: int
) -> ContextPrediction:
    """Predict the events of a frame pair, alone and together with its neighbors."""
    frames = range(max(frame - 1, 0), min(frame + 2, len(builder)))
    solutions = solve_pairs(builder, w, frames)
    alone = solutions[frames.index(frame)].events
    return ContextPrediction(alone, repair_events(builder.source, solutions))


@dataclass(frozen=True)
class ExplainedAnnotations:
    """Annotations of a frame pair that only its neighbors explain."""

    builder: FramePairBuilder
    frame: int
    annotations: Annotations

    def count_mistakes(self, w: Array) -> int:
        """Return how many of them weights `w`, (d,), do not explain."""
        prediction = predict_in_context(self.builder, w, self.frame)
        return int(self.annotations.contradicted_by(prediction.in_context).sum())


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """An input x with its partial annotation y*."""

    pair: FramePair
    program: Program
    """A variable for each candidate."""
    annotated: dict[int, int]
    """{candidate: 1 if it happened, 0 if not}."""
    explained: ExplainedAnnotations | None = field(default=None, kw_only=True)
    """Annotations that are not learned from, since the frames around explain them."""

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

    def without_explained(
        self, builder: FramePairBuilder, annotations: Annotations, w: Array
    ) -> Self:
        """Leave out annotations that weights `w` explain by the frames around.

        Parameters
        ----------
        builder : FramePairBuilder
        annotations : Annotations
            All of this frame pair.
        w : ndarray of shape (d,)

        Returns
        -------
        TrainingExample
        """
        if not self.count_mistakes(w):
            return self
        frame = self.pair.a.frame
        prediction = predict_in_context(builder, w, frame)
        is_explained: Mask = annotations.contradicted_by(prediction.alone)
        is_explained = is_explained & ~annotations.contradicted_by(
            prediction.in_context
        )
        if not is_explained.any():
            return self
        return replace(
            self,
            annotated=self.pair.find_annotated(annotations[~is_explained]),
            explained=ExplainedAnnotations(builder, frame, annotations[is_explained]),
        )

    def with_annotations(self, annotations: Annotations) -> Self:
        """Return the same input with other annotations of the movie."""
        of_pair = annotations.select_frame(self.pair.a.frame)
        return replace(self, annotated=self.pair.find_annotated(of_pair))


def build_examples(
    builder: FramePairBuilder,
    annotations: Annotations,
    prior: Array | None = None,
) -> list[TrainingExample]:
    """Return one example for each annotated frame pair.

    Annotations that the prior explains by more than a frame pair are not learned from,
    unless nothing else is annotated.
    """
    of_pairs = [
        annotations.select_frame(frame) for frame in annotations.annotated_frames()
    ]
    examples = [
        TrainingExample.of(builder.build(frame, of_pair.events), of_pair)
        for frame, of_pair in zip(annotations.annotated_frames(), of_pairs, strict=True)
    ]
    if prior is None:
        return examples
    learnable = [
        example.without_explained(builder, of_pair, prior)
        for example, of_pair in zip(examples, of_pairs, strict=True)
    ]
    return learnable if any(item.annotated for item in learnable) else examples


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
    basis: Any,
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
    lost = sum(
        example.explained.count_mistakes(basis @ learner.coef_)
        for example in examples
        if example.explained is not None
    )
    of_prior = sum(example.count_mistakes(prior) for example in examples)
    return bool(point.losses.sum() + lost < of_prior)


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
