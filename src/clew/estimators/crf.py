"""StructuredCRF: a conditional random field learned from partial annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import MissingCapability
from clew.estimators.base import (
    HoldOut,
    RegularizedEstimator,
    StructuredEstimator,
)
from clew.estimators.data import (
    TrainingData,
    choose_annotations,
    convert_annotations,
    convert_outputs,
    parse_annotations,
)
from clew.estimators.model_selection import make_folds
from clew.learning.likelihood import (
    LikelihoodResult,
    log_likelihood,
    maximise_likelihood,
)
from clew.learning.losses import LOSSES
from clew.learning.path import lambda_grid
from clew.learning.task import Array, Task, weight_examples
from clew.models.base import StructuredModel
from clew.models.examples import Answers, Examples, check_lengths
from clew.utils.parameters import check_fitted
from clew.utils.progress import ProgressLine
from clew.utils.validation import Seed, check_callable

Callback = Callable[[int, float, float], None]
Learner = Callable[[Task, float, Array | None, float], LikelihoodResult]
"""Maximizes the likelihood of a task at λ, from initial weights, to a tolerance."""

HELD_OUT_PRECISION = 0.01
"""Tolerance of held-out fits, as a share of the loss at w = 0."""


class MarginalModel(StructuredModel, Protocol):
    """A model that can sum over all outputs."""

    def marginals(self, X: Examples, w: Array, /) -> Sequence[Array] | Array:
        """Return the probability of each choice of each part, for each input."""
        ...


class StructuredCRF(RegularizedEstimator):
    """Maximum marginal likelihood of partial annotations.

    Minimizes λ/2 ‖w‖² − (1/N) Σ log P(Y* | x). `predict_proba` returns the marginals of
    P(y | x) ∝ exp⟨w, φ(x, y)⟩ and needs no calibration. With `Multiclass` this is
    multinomial logistic regression with candidate sets.

    Parameters
    ----------
    model : Multiclass, Chain or Tree
    lam : float, "auto" or sequence of float
        Weight λ of ½‖w‖²; "auto" or a list of values chooses it by the likelihood of
        held-out annotations.
    C : float, optional
        In place of `lam`: λ = 1 / (C N) for N annotated examples.
    tol : float
        L-BFGS ends when `result_.gap` is below it.
    max_iterations : int
        L-BFGS ends here with a warning.
    folds : int
        Number of folds to choose λ by.
    hold_out : {"auto", "examples", "parts"}
        As in `StructuredSVM`.
    n_jobs : int or None
        Threads of predictions.
    verbose : bool
        Show a progress line.
    random_state : int, Generator, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    model_ : MarginalModel
    result_ : LikelihoodResult
    lam_ : float
    path_ : list of (float, float)
        Each λ that was tried, with the mean held-out −log P.
    """

    model_: MarginalModel
    path_: list[tuple[float, float]]

    def __init__(
        self,
        model: StructuredModel,
        *,
        lam: float | str | Sequence[float] = "auto",
        C: float | None = None,
        tol: float = 1e-3,
        max_iterations: int = 1000,
        folds: int = 3,
        hold_out: HoldOut = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Seed = None,
    ) -> None:
        super().__init__(model, lam, C, folds, hold_out, n_jobs, verbose, random_state)
        self.tol = tol
        self.max_iterations = max_iterations

    def fit(
        self,
        X: Examples,
        Y: Examples = None,
        *,
        y: Examples = None,
        sample_weight: ArrayLike | None = None,
        warm_start: StructuredEstimator | Array | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from inputs and partial annotations.

        Parameters
        ----------
        X, Y : sequences
            Inputs and annotations.
        y : sequence, optional
            Another name of `Y`.
        sample_weight : array of shape (n_examples,), optional
        warm_start : fitted estimator or ndarray of shape (n_features,), optional
            Initial weights.
        callback : callable, optional
            Called with the number, objective and gap of each iteration.
        """
        start = warm_start
        if warm_start is not None and hasattr(warm_start, "coef_"):
            start = warm_start.coef_
        check_callable(callback, "callback")
        data = self._prepare_training(X, choose_annotations(Y, y), sample_weight)
        return self._learn(data, start=start, callback=callback)

    def _learn(
        self,
        data: TrainingData,
        *,
        start: Array | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from parsed annotations with a prepared model."""
        lam = self._resolve_lam(len(data.Y))
        if not hasattr(data.model, "marginals"):
            raise MissingCapability(
                "a conditional random field sums over all outputs, and "
                f"{type(data.model).__name__} offers no marginals; expected a "
                "Multiclass, Chain or Tree"
            )
        task = weight_examples(
            self._make_task(data.model, data.X, data.Y, None), data.weights
        )
        with ProgressLine(self.verbose, "likelihood") as line:

            def report_iteration(iteration: int, objective: float, gap: float) -> None:
                line.show_text(
                    f"iteration {iteration}, objective {objective:.5g}, gap {gap:.2g}"
                )
                if callback is not None:
                    callback(iteration, objective, gap)

            def learn(
                task: Task, lam: float, start: Array | None, tol: float
            ) -> LikelihoodResult:
                return maximise_likelihood(
                    task,
                    lam,
                    start=start,
                    tol=tol,
                    max_iterations=self.max_iterations,
                    callback=report_iteration,
                )

            path: list[tuple[float, float]] = []
            if not isinstance(lam, float):
                if isinstance(lam, str):
                    lam = lambda_grid(task, LOSSES["hinge"]).tolist()
                path, w = self._cross_validate(data, sorted(lam, reverse=True), learn)
                lam, _ = min(path, key=lambda point: (point[1], -point[0]))
                start = w if start is None else start
            result = learn(task, lam, start, self.tol)
        return self._set_result(data.model, result, path)

    def _cross_validate(
        self, data: TrainingData, lams: Sequence[float], learn: Learner
    ) -> tuple[list[tuple[float, float]], Array]:
        """Return each λ with the mean held-out −log P, while that falls.

        Returns
        -------
        path : list of (float, float)
        w : ndarray of shape (n_features,)
            Mean of the folds' weights at the best λ.
        """

        def make_task(X: Examples, Y: Examples) -> Task:
            return self._make_task(data.model, X, Y, None)

        splits = self._split_annotations(data)
        folds = make_folds(data, make_task, make_task, splits)
        starts = [np.zeros(fold.train.n_features) for fold in folds]
        tolerances = [
            max(self.tol, -HELD_OUT_PRECISION * log_likelihood(fold.train, zero).mean())
            for fold, zero in zip(folds, starts, strict=True)
        ]
        path: list[tuple[float, float]] = []
        best = starts[0]
        for lam in lams:
            losses = []
            for k, fold in enumerate(folds):
                starts[k] = learn(fold.train, lam, starts[k], tolerances[k]).w
                losses.append(-log_likelihood(fold.test, starts[k]))
            path.append((lam, float(np.concatenate(losses).mean())))
            if len(path) > 1 and path[-1][1] > path[-2][1]:
                break
            best = np.mean(starts, axis=0)
        return path, best

    def predict_proba(self, X: Examples) -> Answers:
        """Predict the marginals P(y_t = s | x) of each part.

        After `calibrate`, which is not needed, these are the calibrated probabilities.

        Returns
        -------
        probabilities : ndarray
            Arrays of shape (n_parts, n_classes) for each input; of shape
            (n_examples, n_classes) for `Multiclass`.
        """
        if hasattr(self, "calibration_"):
            return self._predict_calibrated(X)
        X = self._convert_inputs(X)
        w, _ = self._check_before_predicting(X)
        return convert_outputs(self.model_.marginals(X, w))

    def log_likelihood(self, X: Examples, Y: Examples) -> Array:
        """Return log P(Y* | x) of each example; 0 if nothing is annotated."""
        check_fitted(self, "coef_")
        X = self._convert_inputs(X)
        Y = convert_annotations(Y)
        check_lengths(X, Y)
        Y = parse_annotations(self.model_, X, Y)
        return log_likelihood(self._make_task(self.model_, X, Y, None), self.coef_)
