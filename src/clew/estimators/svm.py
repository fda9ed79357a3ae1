"""StructuredSVM and StructuredPerceptron: scikit-learn's fit / predict / score over a structured model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.estimators.base import StructuredEstimator
from clew.estimators.conversion import (
    as_examples,
    check_sample_weight,
    count_parts,
    make_generator,
    make_task,
    parse,
)
from clew.estimators.model_selection import make_folds, split_annotations
from clew.estimators.regularized import HoldOut, RegularisedEstimator, check_lam
from clew.learning.algorithm import Algorithm, get_algorithm
from clew.learning.losses import LOSSES, Loss, get_loss
from clew.learning.model_update import Regulariser, check_regulariser
from clew.learning.multistart import learn_from, starting_points
from clew.learning.passive_aggressive import MINI_BATCH, OnlineResult, learn_batch
from clew.learning.path import lambda_grid
from clew.learning.perceptron import perceptron
from clew.learning.result import Record, Result
from clew.learning.selection import PathPoint, best_point, cross_validate
from clew.learning.task import Array, Space, Task
from clew.learning.weighted import weighted
from clew.models.base import StructuredModel, check_lengths, n_examples
from clew.models.examples import Annotation, Examples
from clew.models.labels import Classes, ClassWeight, declared_classes
from clew.models.listed import CLPL, ListedLoss
from clew.parallel import Client
from clew.utils.parameters import clone
from clew.utils.progress import ProgressLine
from clew.utils.validation import Seed, check_callable, check_floats, short_repr

__all__ = ["StructuredPerceptron", "StructuredSVM", "make_task"]

Callback = Callable[[Record], None]
PseudoLabeller = Callable[[Examples, Examples], Examples]
ALL_LOSSES: dict[str, Loss] = {**LOSSES, CLPL.name: CLPL}
"""The losses by name: Eq. 6, and Formulation I."""


class StructuredSVM(RegularisedEstimator):
    """Large-margin learning of a structured model from partial annotations.

    Args:
        model: one of `clew.models`, or any object with `n_features`, `joint_features`, `loss` and `argmax`.
        loss: "bridge" (the paper's), "hinge", "ramp", "max", "ramp-delta", "max-delta", "pair", "clpl" for
            Formulation I on outputs that can be listed (Eqs. 2 and 3), or a `clew.Loss`.
        lam: the weight λ of the regulariser; "auto" or a list of values chooses it by cross-validation on the
            annotations.
        C: λ by another name, for those used to it: ½‖w‖² + C Σ loss has λ = 1 / (C N) for N annotated examples. In
            place of `lam`.
        class_weight: what a mistake costs at a part of each class, as a mapping, or "balanced": the rarer, the more.
        regulariser: "l2" or "l1".
        algorithm: "clew", or another preset ("paper", "yu-joachims", "recycling-only", "adaptive-only", "bmrm"), or a
            `clew.Algorithm` with precision, limits and memory of your own.
        start: "auto" (what the annotations point to, see `clew.learning.initialization`), "zero", or
            weights.
        folds: for choosing λ; `hold_out` says what a fold leaves out: "examples", "parts" of the annotation, or "auto"
            (examples where there are at least ten for each fold).
        n_jobs: threads for models that answer one example at a time; -1 for all cores.
        verbose: show a progress line.
        random_state: seed of the folds.

    After `fit`: `coef_` (the weights w), `model_`, `result_` (the certificate; `.plot()`), `lam_`, and `path_`, the
    list of `PathPoint` from which λ was chosen. `held_out_` has for each fold what it held out of each example that
    carries an annotation.
    """

    path_: list[PathPoint]
    held_out_: list[list[Annotation]]

    def __init__(
        self,
        model: StructuredModel,
        *,
        loss: str | Loss = "bridge",
        lam: float | str | Sequence[float] = "auto",
        C: float | None = None,
        class_weight: ClassWeight | None = None,
        regulariser: Regulariser = "l2",
        algorithm: str | Algorithm = "clew",
        start: Literal["auto", "zero"] | Array = "auto",
        folds: int = 3,
        hold_out: HoldOut = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Seed = None,
    ) -> None:
        super().__init__(model, lam, C, folds, hold_out, n_jobs, verbose, random_state)
        self.loss = loss
        self.class_weight = class_weight
        self.regulariser = regulariser
        self.algorithm = algorithm
        self.start = start

    def fit(
        self,
        X: Examples,
        Y: Examples,
        *,
        sample_weight: ArrayLike | None = None,
        warm_start: Result | OnlineResult | StructuredSVM | None = None,
        client: Client | None = None,
        callback: Callback | None = None,
        pseudo_labels: PseudoLabeller | None = None,
    ) -> Self:
        """Learn from inputs X and partial annotations Y.

        `sample_weight` are weights of the examples. `warm_start` is an earlier fit, or its `result_`: its bounds are
        re-used for every example whose annotation is the same; after `partial_fit`, which keeps none, the fit starts at
        its weights. `client` is a Dask client, to run the argmax on its cluster. `callback` hears of every model
        update, as a `clew.learning.result.Record`. `pseudo_labels(X, Y)` adds to the annotations Y of some examples
        what is assumed of them: that is learned from too, but not held out to choose λ by.
        """
        warm_start = check_warm_start(warm_start)
        check_callable(callback, "callback")
        check_callable(pseudo_labels, "pseudo_labels")
        prepared = self._prepared(X, Y, sample_weight)
        return self._learn(
            *prepared,
            warm_start=warm_start,
            client=client,
            callback=callback,
            pseudo_labels=pseudo_labels,
        )

    def _learn(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None = None,
        *,
        warm_start: Result | OnlineResult | None = None,
        client: Client | None = None,
        callback: Callback | None = None,
        pseudo_labels: PseudoLabeller | None = None,
    ) -> Self:
        """Learn from parsed annotations with a model that knows its domain."""
        algorithm = get_algorithm(self.algorithm)
        check_regulariser(self.regulariser)
        lams = self._lams(len(Y))
        loss = get_loss(self.loss, ALL_LOSSES)
        check_margin(loss, weights)

        def ordinary(X: Examples, Y: Examples) -> Task:
            return self._task(model, X, Y, client)

        def trained(X: Examples, Y: Examples) -> Task:
            Y = Y if pseudo_labels is None else pseudo_labels(X, Y)
            return (
                loss.task(model, X, Y)
                if isinstance(loss, ListedLoss)
                else ordinary(X, Y)
            )

        with ProgressLine(self.verbose) as line:

            def progress(record: Record) -> None:
                line(record)
                if callback is not None:
                    callback(record)

            task = weighted(trained(X, Y), weights)
            if (
                Space.COMPATIBLE in task.spaces - loss.spaces
            ):  # else an annotation that no output satisfies goes unseen
                task.argmax(np.zeros(task.n_features), Space.COMPATIBLE, 0.0)
            path, start, splits = [], self._given_start(task), []
            known = [] if start is None else [start]
            if not isinstance(lams, float):
                rng = make_generator(self.random_state)
                splits = split_annotations(model, Y, self.folds, self.hold_out, rng)
                folds = make_folds(model, X, Y, trained, ordinary, splits, weights)
                grid = (
                    lambda_grid(task, loss, self.regulariser)
                    if isinstance(lams, str)
                    else np.array(lams)
                )
                path = cross_validate(
                    folds,
                    loss,
                    grid.tolist(),
                    regulariser=self.regulariser,
                    algorithm=algorithm,
                    start=start,
                    callback=progress,
                )
                best = best_point(path)
                lams, known = best.lam, [best.w, *best.weights]
            elif start is None and warm_start is not None:
                known = [warm_start.w]
            starts = starting_points(
                task,
                loss,
                lams,
                known,
                regulariser=self.regulariser,
                algorithm=algorithm,
                given=start,
            )
            result = learn_from(
                starts,
                task,
                loss,
                lams,
                regulariser=self.regulariser,
                algorithm=algorithm,
                warm_start=warm_start if isinstance(warm_start, Result) else None,
                callback=progress,
            )
        self.held_out_ = [held_out for _, held_out in splits]
        return self._keep(model, result, path)

    def partial_fit(
        self,
        X: Examples,
        Y: Examples,
        classes: Classes | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one more batch, by a step for each example; it may be forgotten afterwards.

        The first batch says what labels and features there are, unless the model declares its `classes` or they are
        given here; after a `fit`, batches go on from it. A later batch may be without annotations: nothing is learned
        from it. λ must be given as a number, and weights of classes as a mapping. `result_` is an `OnlineResult`,
        without a certificate: `fit(X, Y, warm_start=online)` has one.
        """
        lam, loss = check_lam(self.lam), get_loss(self.loss, ALL_LOSSES)
        check_regulariser(self.regulariser)
        other_task = isinstance(loss, ListedLoss)
        if (
            self.C is not None
            or not isinstance(lam, float)
            or other_task
            or self.regulariser != "l2"
        ):
            raise InputError(
                "partial_fit sees one batch at a time: expected lam as a number, regulariser 'l2', and a loss of LOSSES"
            )
        if isinstance(self.class_weight, str):
            raise InputError(
                f"class_weight is {short_repr(self.class_weight)}, and partial_fit sees one batch at a time; expected a "
                "mapping from classes to weights"
            )
        if "model_" in self.__dict__:
            X, Y = self._examples(X), as_examples(Y)
            check_lengths(X, Y)
            if classes is not None and declared_classes(classes, None) != tuple(
                self.classes_.tolist()
            ):
                raise InputError(
                    f"classes is {short_repr(classes)}; expected those of the first batch, {self.classes_}"
                )
            weights = check_sample_weight(sample_weight, n_examples(X))
            Y = parse(self.model_, X, Y)
            if not count_parts(self.model_, Y).any():
                if hasattr(self.model_, "check_inputs"):
                    self.model_.check_inputs(X)  # as in `_annotated`
                return self
            prepared = self._class_weighted(
                self.model_, *self._annotated(self.model_, X, Y, weights)
            )
        else:
            other = (
                self
                if classes is None
                else clone(self).set_params(model__classes=classes)
            )
            prepared = other._prepared(X, Y, sample_weight)
            if hasattr(other, "feature_names_in_"):
                self.feature_names_in_ = other.feature_names_in_
        model, X, Y, weights = prepared
        check_margin(loss, weights)
        task = weighted(self._task(model, X, Y, None), weights)
        result = learn_batch(
            task, loss, self._online_state(task, lam), make_generator(self.random_state)
        )
        self.model_, self.path_ = model, []
        self.result_ = result  # type: ignore[assignment]  # a state of its own kind, without a certificate
        self.coef_, self.lam_ = result.w, lam
        self.__dict__.pop("calibration_", None)
        return self

    def _refitted(self, X: Examples, Y: Examples) -> Self:
        """As of any learner, but for weights of batches: X and Y are not all that they were learned from."""
        if isinstance(self.result_, OnlineResult):
            raise InputError(
                "weights of partial_fit cannot be learned again from X and Y alone; expected folds=None, with X and Y "
                "that were held out"
            )
        return super()._refitted(X, Y)

    def _online_state(self, task: Task, lam: float) -> OnlineResult:
        """Where the last batch ended; after a fit, as if its examples had been seen in batches."""
        before = self.__dict__.get("result_")
        if isinstance(before, OnlineResult):
            return replace(before, lam=lam)
        if before is None:
            zero = np.zeros(task.n_features)
            return OnlineResult(zero, zero, lam)
        n = before.n_examples
        return OnlineResult(
            before.w, before.w, lam, n // MINI_BATCH + 1, n, largest=1.0 / (lam * n)
        )

    def _given_start(self, task: Task) -> Array | None:
        """The first weights that the user asked for; None for clew's own."""
        if not isinstance(self.start, str):
            return check_floats(self.start, "start")
        if self.start not in ("auto", "zero"):
            raise InputError(
                f"start must be 'auto', 'zero' or an array of weights, not {short_repr(self.start)}"
            )
        return np.zeros(task.n_features) if self.start == "zero" else None


class StructuredPerceptron(StructuredEstimator):
    """The structured perceptron with partial annotations: a baseline with the same interface."""

    def __init__(
        self,
        model: StructuredModel,
        *,
        averaged: bool = True,
        max_epochs: int = 200,
        patience: int = 10,
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.model = model
        self.averaged = averaged
        self.max_epochs = max_epochs
        self.patience = patience
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Examples,
        Y: Examples,
        *,
        sample_weight: ArrayLike | None = None,
        client: Client | None = None,
        callback: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Learn from inputs X and partial annotations Y.

        `sample_weight` are weights of the examples; `callback` hears of each epoch and the mean task loss after it.
        """
        check_callable(callback, "callback")
        return self._learn(
            *self._prepared(X, Y, sample_weight), client=client, callback=callback
        )

    def _learn(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None = None,
        *,
        client: Client | None = None,
        callback: Callable[[int, float], None] | None = None,
    ) -> Self:
        """Learn from parsed annotations with a model that knows its domain."""
        with ProgressLine(self.verbose, "perceptron") as line:

            def progress(epoch: int, loss: float) -> None:
                line.show_text(f"epoch {epoch}, task loss {loss:.4g}")
                if callback is not None:
                    callback(epoch, loss)

            self.result_ = perceptron(
                weighted(self._task(model, X, Y, client), weights),
                averaged=self.averaged,
                max_epochs=self.max_epochs,
                patience=self.patience,
                rng=make_generator(self.random_state),
                callback=progress,
            )
        self.model_, self.coef_ = model, self.result_.w
        return self


def check_margin(loss: Loss, weights: Array | None) -> None:
    """Refuse weights of examples for a loss that is not homogeneous in φ and Δ, see `clew.learning.weighted`."""
    if weights is not None and loss.margin:
        raise InputError(
            f"the loss {loss.name!r} has a fixed margin; sample_weight expects a loss without one"
        )


def check_warm_start(warm_start: object) -> Result | OnlineResult | None:
    """The result of an earlier fit, which may be given as the estimator that has it."""
    result = getattr(warm_start, "result_", warm_start)
    if result is not None and not isinstance(result, Result | OnlineResult):
        kind = type(warm_start).__name__
        raise InputError(
            f"warm_start is a {kind}; expected a fitted StructuredSVM or its result_"
        )
    return result
