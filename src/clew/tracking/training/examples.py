"""The training recipe: every annotated frame pair is one example, a 0/1 programme with partial annotation.

`Tracker.fit`, the annotation page and the experiments all learn from what is made here. With a prior, what it is almost
certain about is learned from too (`pseudo_labels.py`). The page shows the learner parts of frame pairs instead of whole
ones: `annotation/training_windows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from clew.learning.algorithm import Algorithm, get_algorithm
from clew.learning.task import Array
from clew.models.binary_program import BinaryProgram, Program
from clew.tracking.assignment.assignment import assign, make_program
from clew.tracking.candidates.frame_pairs import FramePair, Pairs
from clew.tracking.events import Annotations
from clew.tracking.training.context import Explained, InContext
from clew.tracking.training.prior import joined, with_prior
from clew.tracking.training.pseudo_labels import PseudoLabels

if TYPE_CHECKING:
    from clew.estimators.svm import StructuredSVM

MODEL = BinaryProgram(normalize=False)
"""Δ counts missed events: each annotated event weighs the same, in a frame pair with many of them or with few."""

DEFAULT, STARTS = "clew", 3
"""The preset of `Tracker`, and its starts of CCCP: the mean of the folds' weights, the prior, and `learning.start`.
Rough ones are cheap, since all share their bounds; only the best is refined."""
STIFFNESS = (25.0, 6.0, 1.5)
"""λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed event. Features are of order 1
whatever the movie, so that this is an absolute measure: at 25 a handful of mistakes hardly moves a weight, at 1.5 each
may. Held-out annotations seldom tell three from one another, and then the first is taken; with 100 before it, HeLa at
25 % was at 0.36 % instead of 0.30 % (benchmarks/tracking.py, three draws)."""


@dataclass(frozen=True, eq=False)
class TrainingExample:
    """One input x with its partial annotation y*."""

    pair: FramePair
    program: Program
    """A variable for each candidate; its last feature is the prior's score, if there is a prior."""
    annotated: dict[int, int]
    """{candidate: 1 if it happened, 0 if it did not}; pseudo-labels are the programme's."""
    explained: Explained | None = field(default=None, kw_only=True)
    """What is annotated and not learned from, since the frames around it explain it."""

    @classmethod
    def of(
        cls,
        pair: FramePair,
        annotations: Annotations,
        prior: Array | None = None,
        pseudo: PseudoLabels | None = None,
    ) -> Self:
        """A whole frame pair; `prior` is (d,), see `prior_direction`."""
        program = make_program(pair.candidates, with_prior(pair.features(), prior))
        return cls(
            pair,
            program if pseudo is None else pseudo.added(program, pair),
            pair.annotated(annotations),
        )

    def mistakes(self, w: Array) -> int:
        """Δ: how many annotations the best events by weights `w`, (d,), contradict."""
        chosen = set(assign(self.pair.candidates, self.pair.scores(w)).chosen.tolist())
        return sum(
            (row in chosen) != happened for row, happened in self.annotated.items()
        )

    def without_explained(self, pairs: Pairs, here: Annotations, w: Array) -> Self:
        """The same without what weights `w`, (d,), explain by more than the frame pair; `here` is all annotated."""
        if not self.mistakes(w):
            return self
        frame = self.pair.a.frame
        explained = InContext.of(pairs, w, frame).explains(here)
        if not explained.any():
            return self
        learned = self.pair.annotated(here[~explained])
        return replace(
            self, annotated=learned, explained=Explained(pairs, frame, here[explained])
        )

    def with_annotations(self, annotations: Annotations) -> Self:
        """The same input with other annotations, of which those of its frame pair count."""
        return replace(
            self,
            annotated=self.pair.annotated(annotations.select_frame(self.pair.a.frame)),
        )


def training_examples(
    pairs: Pairs,
    annotations: Annotations,
    prior: Array | None = None,
    pseudo: PseudoLabels | None = None,
) -> list[TrainingExample]:
    """One example for each frame pair that carries an annotation; all that is annotated is among its candidates.

    What the prior explains by more than a frame pair is not learned from, unless nothing else is annotated.
    """
    by_frame = [
        (frame, annotations.select_frame(frame))
        for frame in annotations.annotated_frames()
    ]
    examples = [
        TrainingExample.of(pairs.pair(frame, here.events), here, prior, pseudo)
        for frame, here in by_frame
    ]
    if prior is None:
        return examples
    learnable = [
        one.without_explained(pairs, here, prior)
        for one, (_, here) in zip(examples, by_frame, strict=True)
    ]
    return learnable if any(one.annotated for one in learnable) else examples


def with_starts(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm; the default one with several starts.

    From few annotations, whether an unannotated pair of cells is a division or a move and an appearance depends on
    where CCCP starts, and the lowest objective is the better explanation.
    """
    chosen = get_algorithm(algorithm)
    return replace(chosen, starts=STARTS) if algorithm == DEFAULT else chosen


def lambdas(lam: Any, n_pairs: int, prior: Array | None) -> Any:
    """The λ to choose from: what was asked for; by default, with a prior, those of `STIFFNESS`.

    Without a prior the learner takes them from its data (`learning.path.lambda_grid`), which a prior's column would
    mislead, being ten times as large as the others.
    """
    if prior is None or not isinstance(lam, str) or lam != "auto":
        return lam
    return [stiffness / n_pairs for stiffness in STIFFNESS]


def improves(
    learner: StructuredSVM, examples: Sequence[TrainingExample], prior: Array
) -> bool:
    """Whether a learner that starts from a prior makes no more mistakes on held-out annotations than the prior does.

    Few annotations can lead away from weights that were learned from many. Every annotation is held out once by the
    folds that choose λ, so that both are judged by the same events, and neither has seen them. The prior makes no
    mistake about what the frames around explain, which nothing was learned from. With a λ that was given nothing was
    held out, and the answer is yes.
    """
    held_out = held_out_mistakes(learner)
    if held_out is None:
        return True
    others = [one.explained for one in examples if one.explained is not None]
    lost = sum(one.lost(joined(learner.coef_, prior)) for one in others)
    return held_out + lost <= sum(one.mistakes(prior) for one in examples)


def held_out_mistakes(learner: StructuredSVM) -> float | None:
    """Annotations that weights learned from the others got wrong, at the λ that was chosen; None with a given λ."""
    return next(
        (
            float(point.losses.sum())
            for point in learner.path_
            if point.lam == learner.lam_
        ),
        None,
    )


def held_out_folds(
    learner: StructuredSVM, prior: Array | None
) -> list[tuple[Array, list[dict[int, int]]]]:
    """Of each fold at the λ that was chosen, its weights, and what it held out of each example; none with a given λ."""
    weights = next(
        (point.weights for point in learner.path_ if point.lam == learner.lam_), ()
    )
    return [
        (joined(w, prior), [{} if part is None else part for part in parts])
        for w, parts in zip(weights, learner.held_out_, strict=True)
    ]
