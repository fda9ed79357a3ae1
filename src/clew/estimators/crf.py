"""StructuredCRF: a conditional random field learned from partial annotations by their marginal likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import MissingCapability
from clew.estimators.base import StructuredEstimator
from clew.estimators.conversion import as_examples, as_objects, make_generator, parse
from clew.estimators.model_selection import make_folds, split_annotations
from clew.estimators.regularized import HoldOut, RegularisedEstimator
from clew.learning.likelihood import (
    LikelihoodResult,
    log_likelihood,
    maximise_likelihood,
)
from clew.learning.losses import LOSSES
from clew.learning.path import lambda_grid
from clew.learning.task import Array, Task
from clew.learning.weighted import weighted
from clew.models.base import StructuredModel, check_lengths
from clew.models.examples import Answers, Examples
from clew.utils.parameters import check_fitted
from clew.utils.progress import ProgressLine
from clew.utils.validation import Seed, check_callable

Callback = Callable[[int, float, float], None]


class MarginalModel(StructuredModel, Protocol):
    """A model that can sum over all outputs."""

    def marginals(self, X: Examples, w: Array, /) -> Sequence[Array] | Array:
        """For each input (parts, choices) the probability of each choice of each part."""
        ...


class StructuredCRF(RegularisedEstimator):
    """Maximum marginal likelihood of partial annotations: minimises λ/2 ‖w‖² − (1/N) Σ log P(Y* | x).

    The same models, data and `fit` as `StructuredSVM`, for those who want probabilities: `predict_proba` gives the true
    marginals of P(y | x) ∝ exp⟨w, φ(x, y)⟩, and needs no calibration. For `Multiclass` (multinomial logistic regression
    with candidate sets), `Chain` and `Tree`.

    Args:
        model: a `Multiclass`, `Chain` or `Tree`.
        lam: the weight λ of ½‖w‖²; "auto" or a list of values chooses it by the likelihood of held-out annotations.
        C: λ by another name: 1 / (λ N) for N annotated examples. In place of `lam`.
        tol: of `result_.gap`, at which L-BFGS ends; `max_iterations` ends it with a warning.
        folds: for choosing λ; `hold_out` as in `StructuredSVM`.
        n_jobs: threads of predictions.
        verbose: show a progress line.
        random_state: seed of the folds.

    After `fit`: `coef_`, `model_`, `result_` (a `LikelihoodResult`), `lam_`, and `path_`: for each λ that was tried, λ
    and the mean held-out −log P.
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
        Y: Examples,
        *,
        sample_weight: ArrayLike | None = None,
        warm_start: StructuredEstimator | Array | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from inputs X and partial annotations Y.

        `sample_weight` are weights of the examples; `warm_start` is an earlier fit, or weights to start from;
        `callback` hears of iteration, objective and gap.
        """
        start = (
            warm_start.coef_
            if warm_start is not None and hasattr(warm_start, "coef_")
            else warm_start
        )
        check_callable(callback, "callback")
        return self._learn(
            *self._prepared(X, Y, sample_weight), start=start, callback=callback
        )

    def _learn(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None = None,
        *,
        start: Array | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from parsed annotations with a model that knows its domain."""
        lams = self._lams(len(Y))
        if not hasattr(model, "marginals"):
            raise MissingCapability(
                f"a conditional random field sums over all outputs, and {type(model).__name__} offers no marginals; "
                "expected a Multiclass, Chain or Tree"
            )
        task = weighted(self._task(model, X, Y, None), weights)
        with ProgressLine(self.verbose, "likelihood") as line:

            def progress(iteration: int, objective: float, gap: float) -> None:
                line.show_text(
                    f"iteration {iteration}, objective {objective:.5g}, gap {gap:.2g}"
                )
                if callback is not None:
                    callback(iteration, objective, gap)

            def learn(task: Task, lam: float, start: Array | None) -> LikelihoodResult:
                return maximise_likelihood(
                    task,
                    lam,
                    start=start,
                    tol=self.tol,
                    max_iterations=self.max_iterations,
                    callback=progress,
                )

            path: list[tuple[float, float]] = []
            if not isinstance(lams, float):
                grid = (
                    lambda_grid(task, LOSSES["hinge"])
                    if isinstance(lams, str)
                    else np.array(lams)
                )
                path = self._held_out(model, X, Y, weights, np.sort(grid)[::-1], learn)
                lams = min(path, key=lambda point: (point[1], -point[0]))[0]
            result = learn(task, lams, start)
        return self._keep(model, result, path)

    def _held_out(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None,
        lams: Array,
        learn: Callable[[Task, float, Array | None], LikelihoodResult],
    ) -> list[tuple[float, float]]:
        """Each λ from strong to weak with the mean −log P of held-out annotations, as long as that falls."""

        def make(X: Examples, Y: Examples) -> Task:
            return self._task(model, X, Y, None)

        rng = make_generator(self.random_state)
        splits = split_annotations(model, Y, self.folds, self.hold_out, rng)
        folds = make_folds(model, X, Y, make, make, splits, weights)
        starts: list[Array | None] = [None] * len(folds)
        path: list[tuple[float, float]] = []
        for lam in lams:
            losses = []
            for k, fold in enumerate(folds):
                w = starts[k] = learn(fold.train, float(lam), starts[k]).w
                losses.append(-log_likelihood(fold.test, w))
            path.append((float(lam), float(np.concatenate(losses).mean())))
            if len(path) > 1 and path[-1][1] > path[-2][1]:
                break
        return path

    def predict_proba(self, X: Examples) -> Answers:
        """(N,) for each input (parts, classes) the marginals P(y_t = s | x); (N, classes) for `Multiclass`.

        After `calibrate`, which needs not be, the probabilities of the calibration.
        """
        if hasattr(self, "calibration_"):
            return self._calibrated(X)
        X = self._examples(X)
        w, _ = self._fitted(X)
        return as_objects(self.model_.marginals(X, w))

    def log_likelihood(self, X: Examples, Y: Examples) -> Array:
        """(N,) log P(Y* | x): how probable the annotation of each example is; 0 where nothing is annotated."""
        check_fitted(self, "coef_")
        X, Y = self._examples(X), as_examples(Y)
        check_lengths(X, Y)
        return log_likelihood(
            self._task(self.model_, X, parse(self.model_, X, Y), None), self.coef_
        )
