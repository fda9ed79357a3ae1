"""Learn weights from training examples; keep the prior's if they are no better.

The score of the prior's weights is one more feature of each event, see `prior`. Folds of
the annotations choose λ, compare the learned weights with the prior's, and calibrate
the probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clew.estimators.svm import StructuredSVM
from clew.learning.selection import PathPoint
from clew.learning.task import Array
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.examples import (
    MODEL,
    TrainingExample,
    change_basis,
    mean_annotated_features,
)
from clew.tracking.training.prior import (
    initial_weights,
    make_basis,
    prior_calibration,
)
from clew.tracking.training.recalibration import GENERIC, recalibrate

if TYPE_CHECKING:
    from clew.learning.result import Result
    from clew.tracking.tracker import Tracker

LAMBDA_GRID = (100.0, 12.0, 1.5)
"""λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed
event. Features are of order 1 in any movie, so that this is an absolute measure. Each
fit begins at the weights of the λ before, so that the first, which hardly leaves the
prior, decides which local minimum the others are in."""


@dataclass(frozen=True, eq=False)
class LearnedWeights:
    """Weights of events, and how they were found."""

    coef: Array
    """(d,)"""
    svm: StructuredSVM
    """The learner."""
    improved: bool
    """Whether the weights are better than the prior's; otherwise they are these."""
    calibration: Calibration


def learn_weights(
    tracker: Tracker,
    examples: Sequence[TrainingExample],
    names: Sequence[str],
    prior: Array | None,
    warm_start: Result | None = None,
    client: Any = None,
) -> LearnedWeights:
    """Learn the weights of events with the bridge loss, or another one.

    Parameters
    ----------
    tracker : Tracker
        Its parameters are those of the learner.
    examples : sequence of TrainingExample
    names : sequence of str
        Names of the d features.
    prior : ndarray of shape (d,), optional
        The prior's weights, in the scale of the examples.
    warm_start : Result, optional
        See `Tracker.fit`.
    client : dask.distributed.Client, optional

    Returns
    -------
    LearnedWeights
    """
    basis = make_basis(prior, names, mean_annotated_features(examples))
    svm = StructuredSVM(
        MODEL,
        loss=tracker.loss,
        lam=choose_lambdas(tracker.lam, len(examples), prior),
        regulariser=tracker.regulariser,
        algorithm=tracker.algorithm,
        start=initial_weights(prior) if warm_start is None else "auto",
        n_jobs=tracker.n_jobs,
        verbose=tracker.verbose,
        random_state=tracker.random_state,
    )
    svm.fit(
        [change_basis(example.program, basis) for example in examples],
        [example.annotated for example in examples],
        warm_start=warm_start,
        client=client,
    )
    improved = prior is None or beats_prior(svm, examples, prior)
    coef = basis @ (svm.coef_ if improved else initial_weights(prior))
    annotated = [example for example in examples if example.annotated]
    pairs = [example.pair for example in annotated]
    if improved:
        folds = held_out_folds(svm, basis)
        calibration = recalibrate(pairs, coef, folds, GENERIC_CALIBRATION)
    else:
        # The prior's weights have not seen any annotation.
        folds = [(coef, [example.annotated for example in annotated])]
        before = prior_calibration(tracker.prior)
        calibration = recalibrate(pairs, coef, folds, before, GENERIC)
    return LearnedWeights(coef, svm, improved, calibration)


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
