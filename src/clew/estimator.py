"""StructuredSVM and StructuredPerceptron: scikit-learn's fit / predict / score over a structured model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from clew import parallel
from clew.errors import InputError
from clew.folds import make_folds
from clew.learning.cccp import PRESETS, Algorithm, learn
from clew.learning.losses import CONVEX, Loss, get_loss
from clew.learning.master import Regulariser, check_regulariser
from clew.learning.path import best_point, cross_validate, lambda_grid
from clew.learning.perceptron import perceptron
from clew.learning.result import Result
from clew.learning.start import Start
from clew.learning.task import Array, Space, Task
from clew.models.base import ExampleTask, check_lengths, check_weights, take
from clew.models.listed import list_outputs
from clew.progress import ProgressLine


class StructuredEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """What the learners of a structured model share: data in, predictions and scores out, files."""

    model: Any
    n_jobs: int | None
    model_: Any
    coef_: Array

    def predict(self, X: Any) -> list[Any]:
        """The best output for each input."""
        check_is_fitted(self, "coef_")
        w = check_weights(self.coef_, self.model_.n_features)
        if hasattr(self.model_, "predict"):
            return list(self.model_.predict(X, w, n_jobs=parallel.resolve_jobs(self.n_jobs)))
        return parallel.map_examples(
            lambda x: self.model_.argmax(x, w, None, Space.ALL, 0.0), X, parallel.resolve_jobs(self.n_jobs)
        )

    def score(self, X: Any, Y: Any) -> float:
        """The fraction of annotated parts that are predicted right.

        For a model of one's own that does not count parts: minus the mean task loss.
        """
        check_lengths(X, Y)
        predicted = self.predict(X)
        pairs = list(zip(Y, predicted, strict=True))
        if not hasattr(self.model_, "n_parts"):
            losses = [self.model_.loss(annotation, y) for annotation, y in pairs if annotation is not None]
            if not losses:
                raise InputError("nothing is annotated in Y, so there is nothing to score against")
            return -float(np.mean(losses))
        parts = sum(self.model_.n_parts(annotation) for annotation, _ in pairs)
        if parts == 0:
            raise InputError("nothing is annotated in Y, so there is nothing to score against")
        return 1.0 - float(sum(self.model_.mistakes(annotation, y) for annotation, y in pairs) / parts)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file (JSON and arrays, no pickle); `clew.load` reads it."""
        from clew import archive  # which makes these classes by name, so it cannot be imported before them

        archive.save(self, path)

    def _prepared(self, X: Any, Y: Any) -> tuple[Any, Any, Any]:
        """The prepared model and the examples that carry an annotation; only those take part in learning."""
        check_lengths(X, Y)
        model = clone(self.model, safe=False)
        if hasattr(model, "prepare"):
            model = model.prepare(X, Y)
        counts = getattr(model, "n_parts", lambda annotation: int(annotation is not None))
        used = [i for i, annotation in enumerate(Y) if counts(annotation) > 0]
        if not used:
            raise InputError("nothing is annotated: every one of the examples is unknown in all its parts")
        if len(used) == len(Y):
            return model, X, Y
        return model, take(X, used), take(Y, used)

    def _task(self, model: Any, X: Any, Y: Any, client: Any) -> Task:
        """The learning problem, here or on a Dask cluster."""
        jobs = parallel.resolve_jobs(self.n_jobs)
        if client is not None:
            return parallel.spread(client, lambda x, y: make_task(model, x, y, jobs), X, Y)
        return make_task(model, X, Y, jobs)


class StructuredSVM(StructuredEstimator):
    """Large-margin learning of a structured model from partial annotations.

    Parameters
    ----------
    model : one of `clew.models`, or any object with `n_features`, `joint_features`, `loss` and `argmax`.
    loss : "bridge" (the paper's), "hinge", "ramp", "max", "ramp-delta", "max-delta", "pair", "clpl" for Formulation I
        on outputs that can be listed (Eqs. 2 and 3), or a `clew.Loss`.
    lam : the weight λ of the regulariser; "auto" or a list of values chooses it by cross-validation on the annotations.
    regulariser : "l2" or "l1".
    algorithm : "clew", or another preset ("paper", "yu-joachims", "recycling-only", "adaptive-only", "bmrm"), or a
        `clew.Algorithm` with precision, limits and memory of your own.
    start : "auto" (what the annotations point to, see `clew.learning.start`), "zero", or
        weights.
    folds : for choosing λ; `hold_out` says what a fold leaves out: "examples", "parts" of the annotation, or "auto"
        (examples where there are at least ten for each fold).
    n_jobs : threads for models that answer one example at a time; -1 for all cores.
    verbose : show a progress line.
    random_state : seed of the folds.

    After `fit`: `coef_` (the weights w), `model_`, `result_` (the certificate; `.plot()`), `lam_`, and `path_`, the
    list of `PathPoint` from which λ was chosen.
    """

    def __init__(
        self,
        model: Any,
        *,
        loss: str | Loss = "bridge",
        lam: float | str | Sequence[float] = "auto",
        regulariser: Regulariser = "l2",
        algorithm: str | Algorithm = "clew",
        start: Literal["auto", "zero"] | Array = "auto",
        folds: int = 3,
        hold_out: Literal["auto", "examples", "parts"] = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.lam = lam
        self.regulariser = regulariser
        self.algorithm = algorithm
        self.start = start
        self.folds = folds
        self.hold_out = hold_out
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, Y: Any, *, warm_start: Result | None = None, client: Any = None) -> Self:
        """Learn from inputs X and partial annotations Y.

        `warm_start` is the `result_` of an earlier fit: its bounds are re-used for every example whose annotation is
        the same. `client` is a Dask client, to run the argmax on its cluster.
        """
        algorithm = get_algorithm(self.algorithm)
        check_regulariser(self.regulariser)
        lams = check_lam(self.lam)
        model, X, Y = self._prepared(X, Y)
        loss = CONVEX if self.loss == "clpl" else get_loss(self.loss)

        def ordinary(X: Any, Y: Any) -> Task:
            return self._task(model, X, Y, client)

        def trained(X: Any, Y: Any) -> Task:
            return list_outputs(model, X, Y) if self.loss == "clpl" else ordinary(X, Y)

        with ProgressLine(self.verbose) as progress:
            task = trained(X, Y)
            if Space.COMPATIBLE in task.spaces - loss.spaces:  # else an annotation that no output satisfies goes unseen
                task.argmax(np.zeros(task.n_features), Space.COMPATIBLE, 0.0)
            path, start = [], self._given_start(task)
            if not isinstance(lams, float):
                rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
                folds = make_folds(model, X, Y, trained, ordinary, self.folds, self.hold_out, rng)
                grid = lambda_grid(task, loss, self.regulariser) if isinstance(lams, str) else np.array(lams)
                path = cross_validate(
                    folds, loss, grid.tolist(), regulariser=self.regulariser, algorithm=algorithm,
                    start=start, callback=progress,
                )  # fmt: skip
                best = best_point(path)
                lams, start = best.lam, best.w
            if start is None and warm_start is None:
                start = Start(task, loss, self.regulariser, algorithm).at(lams)
            result = learn(
                task, loss, lams, regulariser=self.regulariser, algorithm=algorithm, start=start,
                warm_start=warm_start, callback=progress,
            )  # fmt: skip
        self.model_, self.result_, self.path_ = model, result, path
        self.coef_, self.lam_ = result.w, result.lam
        return self

    def _given_start(self, task: Task) -> Array | None:
        """The first weights that the user asked for; None for clew's own."""
        if not isinstance(self.start, str):
            return np.asarray(self.start, dtype=float)
        if self.start not in ("auto", "zero"):
            raise InputError(f"start must be 'auto', 'zero' or an array of weights, not {self.start!r}")
        return np.zeros(task.n_features) if self.start == "zero" else None


class StructuredPerceptron(StructuredEstimator):
    """The structured perceptron with partial annotations: a baseline with the same interface."""

    def __init__(
        self,
        model: Any,
        *,
        averaged: bool = True,
        max_epochs: int = 200,
        patience: int = 10,
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.averaged = averaged
        self.max_epochs = max_epochs
        self.patience = patience
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, Y: Any, *, client: Any = None) -> Self:
        """Learn from inputs X and partial annotations Y."""
        model, X, Y = self._prepared(X, Y)
        seed = check_random_state(self.random_state).randint(2**31)
        with ProgressLine(self.verbose, "perceptron") as progress:
            self.result_ = perceptron(
                self._task(model, X, Y, client), averaged=self.averaged, max_epochs=self.max_epochs,
                patience=self.patience, rng=np.random.default_rng(seed),
                callback=lambda epoch, loss: progress.say(f"epoch {epoch}, task loss {loss:.4g}"),
            )  # fmt: skip
        self.model_, self.coef_ = model, self.result_.w
        return self


def make_task(model: Any, X: Any, Y: Any, n_jobs: int = 1) -> Task:
    """The model's own Task if it makes one, else one that asks example by example."""
    make: Callable[..., Task] | None = getattr(model, "task", None)
    return ExampleTask(model, X, Y, n_jobs) if make is None else make(X, Y, n_jobs=n_jobs)


def get_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """A preset by its name, or the algorithm itself."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in PRESETS:
        raise InputError(f"unknown algorithm {algorithm!r}; the presets are {', '.join(PRESETS)}")
    return PRESETS[algorithm]


def check_lam(lam: Any) -> float | str | list[float]:
    """One positive number, "auto", or a list of positive numbers."""
    if isinstance(lam, str):
        if lam == "auto":
            return lam
    elif np.ndim(lam) == 0:
        if not isinstance(lam, bool) and lam is not None and np.isfinite(lam) and lam > 0:
            return float(lam)
    elif np.ndim(lam) == 1 and np.size(lam) and np.isfinite(lam).all() and (np.asarray(lam) > 0).all():
        return [float(value) for value in lam]
    raise InputError(f"lam must be a positive number, a list of them, or 'auto'; not {lam!r}")
