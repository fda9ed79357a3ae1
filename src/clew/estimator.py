"""StructuredSVM and StructuredPerceptron: scikit-learn's fit / predict / score over a structured model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from clew import parallel
from clew.errors import InputError
from clew.folds import make_folds
from clew.learning.algorithm import PRESETS, Algorithm
from clew.learning.losses import CONVEX, Loss, get_loss
from clew.learning.master import Regulariser, check_regulariser
from clew.learning.multistart import learn_from, starting_points
from clew.learning.path import lambda_grid
from clew.learning.perceptron import perceptron
from clew.learning.result import Result
from clew.learning.selection import best_point, cross_validate
from clew.learning.task import Array, Indices, Space, Task
from clew.models.base import ExampleTask, check_lengths, check_weights, n_examples, take
from clew.models.listed import list_outputs
from clew.progress import ProgressLine


class StructuredEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """What the learners of a structured model share: data in, predictions and scores out, files."""

    model: Any
    n_jobs: int | None
    model_: Any
    coef_: Array

    def predict(self, X: Any) -> NDArray[Any]:
        """(N,) the best output for each input: labels, or an array of objects where an output has several parts."""
        check_is_fitted(self, "coef_")
        n_examples(X)
        w = check_weights(self.coef_, self.model_.n_features)
        jobs = parallel.resolve_jobs(self.n_jobs)
        if hasattr(self.model_, "predict"):
            return as_objects(self.model_.predict(X, w, n_jobs=jobs))
        return as_objects(parallel.map_examples(lambda x: self.model_.argmax(x, w, None, Space.ALL, 0.0), X, jobs))

    def score(self, X: Any, Y: Any) -> float:
        """The fraction of annotated parts that are predicted right.

        For a model of one's own that does not count parts: minus the mean task loss.
        """
        check_is_fitted(self, "coef_")
        check_lengths(X, Y)
        model, predicted = self.model_, self.predict(X)
        if not hasattr(model, "n_parts"):
            losses = [model.loss(y, p) for y, p in zip(Y, predicted, strict=True) if y is not None]
            if not losses:
                raise InputError("nothing is annotated in Y, so there is nothing to score against")
            return -float(np.mean(losses))
        Y = parse(model, X, Y)
        parts = int(count_parts(model, Y).sum())
        if parts == 0:
            raise InputError("nothing is annotated in Y, so there is nothing to score against")
        return 1.0 - float(sum(model.mistakes(y, p) for y, p in zip(Y, predicted, strict=True))) / parts

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file (JSON and arrays, no pickle); `clew.load` reads it."""
        from clew import archive  # which makes these classes by name, so it cannot be imported before them

        archive.save(self, path)

    def _prepared(self, X: Any, Y: Any) -> tuple[Any, Any, Any]:
        """The prepared model, and the examples that carry an annotation, parsed; only those take part in learning."""
        check_lengths(X, Y)
        model = clone(self.model, safe=False)
        if hasattr(model, "learn_domain"):
            model = model.learn_domain(X, Y)
        elif hasattr(model, "prepare"):
            model = model.prepare(X, Y)
        Y = parse(model, X, Y)
        annotated = count_parts(model, Y) > 0
        if not annotated.any():
            raise InputError(why_nothing_is_annotated(model))
        if annotated.all():
            return model, X, Y
        if hasattr(model, "check_inputs"):
            model.check_inputs(X)  # a damaged input is refused, annotated or not
        used = np.flatnonzero(annotated)
        return model, take(X, used), take(Y, used)

    def _task(self, model: Any, X: Any, Y: Any, client: Any) -> Task:
        """The learning problem, here or on a Dask cluster."""
        jobs = parallel.resolve_jobs(self.n_jobs)
        if client is not None:
            return parallel.spread(client, lambda x, y: make_task(model, x, y, jobs), X, Y)
        return make_task(model, X, Y, jobs)


class StructuredSVM(StructuredEstimator):
    """Large-margin learning of a structured model from partial annotations.

    Args:
        model: one of `clew.models`, or any object with `n_features`, `joint_features`, `loss` and `argmax`.
        loss: "bridge" (the paper's), "hinge", "ramp", "max", "ramp-delta", "max-delta", "pair", "clpl" for
            Formulation I on outputs that can be listed (Eqs. 2 and 3), or a `clew.Loss`.
        lam: the weight λ of the regulariser; "auto" or a list of values chooses it by cross-validation on the
            annotations.
        regulariser: "l2" or "l1".
        algorithm: "clew", or another preset ("paper", "yu-joachims", "recycling-only", "adaptive-only", "bmrm"), or a
            `clew.Algorithm` with precision, limits and memory of your own.
        start: "auto" (what the annotations point to, see `clew.learning.start`), "zero", or
            weights.
        folds: for choosing λ; `hold_out` says what a fold leaves out: "examples", "parts" of the annotation, or "auto"
            (examples where there are at least ten for each fold).
        n_jobs: threads for models that answer one example at a time; -1 for all cores.
        verbose: show a progress line.
        random_state: seed of the folds.

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

    def fit(self, X: Any, Y: Any, *, warm_start: Result | StructuredSVM | None = None, client: Any = None) -> Self:
        """Learn from inputs X and partial annotations Y.

        `warm_start` is an earlier fit, or its `result_`: its bounds are re-used for every example whose annotation is
        the same. `client` is a Dask client, to run the argmax on its cluster.
        """
        warm_start = check_warm_start(warm_start)
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
            known = [] if start is None else [start]
            if not isinstance(lams, float):
                rng = make_generator(self.random_state)
                folds = make_folds(model, X, Y, trained, ordinary, self.folds, self.hold_out, rng)
                grid = lambda_grid(task, loss, self.regulariser) if isinstance(lams, str) else np.array(lams)
                path = cross_validate(
                    folds, loss, grid.tolist(), regulariser=self.regulariser, algorithm=algorithm,
                    start=start, callback=progress,
                )  # fmt: skip
                best = best_point(path)
                lams, known = best.lam, [best.w, *best.weights]
            elif start is None and warm_start is not None:
                known = [warm_start.w]
            starts = starting_points(task, loss, lams, known, regulariser=self.regulariser, algorithm=algorithm)
            result = learn_from(
                starts, task, loss, lams, regulariser=self.regulariser, algorithm=algorithm, warm_start=warm_start,
                callback=progress,
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
        with ProgressLine(self.verbose, "perceptron") as progress:
            self.result_ = perceptron(
                self._task(model, X, Y, client), averaged=self.averaged, max_epochs=self.max_epochs,
                patience=self.patience, rng=make_generator(self.random_state),
                callback=lambda epoch, loss: progress.say(f"epoch {epoch}, task loss {loss:.4g}"),
            )  # fmt: skip
        self.model_, self.coef_ = model, self.result_.w
        return self


def parse(model: Any, X: Any, Y: Any) -> Any:
    """The annotations as the model reads them fastest, where it offers that: parsed once, not at each use."""
    return model.parsed(X, Y) if hasattr(model, "parsed") else Y


def count_parts(model: Any, Y: Any) -> Indices:
    """(N,) how many parts of each example are annotated; a model that does not count them has one or none."""
    if hasattr(model, "count_parts"):
        return np.asarray(model.count_parts(Y), dtype=np.intp)
    count = getattr(model, "n_parts", lambda annotation: annotation is not None)
    return np.array([int(count(annotation)) for annotation in Y], dtype=np.intp)


def why_nothing_is_annotated(model: Any) -> str:
    """The message for annotations from which nothing can be learned."""
    classes: Sequence[Any] = getattr(model, "classes_", [])
    if len(classes) == 1:
        return (
            f"Y has one class only, {classes[0]!r}, so that no output can be wrong; expected at least two classes. "
            "Give the model classes=[…] if there are others that were not annotated"
        )
    return "nothing is annotated: every one of the examples is unknown in all its parts"


def as_objects(outputs: Sequence[Any]) -> NDArray[Any]:
    """(N,) outputs as an array: of labels where each is one, else of objects, so that they may differ in length."""
    if {type(output) for output in outputs} in ({str}, {bool}, {int}, {float}, {int, float}):
        return np.array(outputs)
    array = np.empty(len(outputs), dtype=object)
    for n, output in enumerate(outputs):
        array[n] = output
    return array


def make_generator(random_state: Any) -> np.random.Generator:
    """NumPy's generator from what scikit-learn takes (None, a number, a RandomState), or a generator itself."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise InputError(
            f"random_state is {random_state!r}; expected None, a seed, a RandomState or a NumPy Generator"
        ) from None


def check_warm_start(warm_start: Any) -> Result | None:
    """The result of an earlier fit, which may be given as the estimator that has it."""
    result = getattr(warm_start, "result_", warm_start)
    if result is not None and not isinstance(result, Result):
        kind = type(warm_start).__name__
        raise InputError(f"warm_start is a {kind}; expected a fitted StructuredSVM or its result_")
    return result


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
