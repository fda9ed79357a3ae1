"""StructuredSVM: large-margin learning of a structured model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.estimators.base import (
    HoldOut,
    RegularizedEstimator,
    select_annotated,
)
from clew.estimators.data import (
    TrainingData,
    check_sample_weight,
    choose_annotations,
    convert_annotations,
    count_parts,
    make_generator,
    parse_annotations,
)
from clew.estimators.model_selection import Split, make_folds
from clew.learning.algorithm import Algorithm, get_algorithm
from clew.learning.initialization import learn_from, make_starts
from clew.learning.losses import LOSSES, Loss, get_loss, require_spaces, simplify
from clew.learning.model_update import Regulariser, check_regulariser
from clew.learning.passive_aggressive import MINI_BATCH, OnlineResult, learn_batch
from clew.learning.path import lambda_grid
from clew.learning.result import Record, Result
from clew.learning.selection import PathPoint, best_point, cross_validate
from clew.learning.task import Array, Space, Task, weight_examples
from clew.models.base import CLPL, ListedLoss, StructuredModel
from clew.models.examples import Annotation, Examples, check_lengths, n_examples
from clew.models.labels import Classes, ClassWeight, check_classes
from clew.parallel import Client
from clew.utils.parameters import clone
from clew.utils.progress import ProgressLine
from clew.utils.validation import Seed, check_callable, check_floats, short_repr

Callback = Callable[[Record], None]
ALL_LOSSES: dict[str, Loss] = {**LOSSES, CLPL.name: CLPL}
"""Losses by name: Eq. 6, and Formulation I."""


class StructuredSVM(RegularizedEstimator):
    """Large-margin learning of a structured model from partial annotations.

    Parameters
    ----------
    model : StructuredModel
        One of `clew.models`, or any object with `n_features`, `joint_features`, `loss`
        and `argmax`.
    loss : str or Loss
        "bridge" (the paper's), "hinge", "ramp", "max", "ramp-delta", "max-delta",
        "pair", "clpl" for Formulation I on outputs that can be listed (Eqs. 2 and 3),
        or a `clew.Loss`.
    lam : float, "auto" or sequence of float
        Weight λ of the regularizer; "auto" or a list of values chooses it by
        cross-validation on the annotations.
    C : float, optional
        In place of `lam`: ½‖w‖² + C Σ loss has λ = 1 / (C N) for N annotated examples.
    class_weight : mapping, "balanced" or None
        Cost of a mistake at a part of each class; "balanced" gives rare classes more.
    regulariser : {"l2", "l1"}
    algorithm : str or Algorithm
        "clew", another preset ("paper", "yu-joachims", "recycling-only",
        "adaptive-only", "bmrm"), or a `clew.Algorithm` with its own precision and
        limits.
    start : "auto", "zero" or ndarray of shape (n_features,)
        Initial weights; "auto" takes them from the annotations, see
        `clew.learning.initialization`.
    folds : int
        Number of folds to choose λ by.
    hold_out : {"auto", "examples", "parts"}
        What a fold leaves out: examples, or parts of their annotation. "auto" takes
        examples if there are at least ten for each fold.
    n_jobs : int or None
        Threads for models that answer one example at a time; -1 for all cores.
    verbose : bool
        Show a progress line.
    random_state : int, Generator, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The weights w.
    model_ : StructuredModel
        The model with its labels and sizes.
    result_ : Result
        The certificate of the fit.
    lam_ : float
    path_ : list of PathPoint
        What λ was chosen from.
    held_out_ : list
        For each fold, what it held out of each annotated example.
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
        Y: Examples = None,
        *,
        y: Examples = None,
        sample_weight: ArrayLike | None = None,
        warm_start: Result | OnlineResult | StructuredSVM | None = None,
        client: Client | None = None,
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
        warm_start : StructuredSVM, Result or OnlineResult, optional
            An earlier fit. Its bounds are reused for examples whose annotation is the
            same; after `partial_fit`, only its weights.
        client : distributed.Client, optional
            Run the argmax on a Dask cluster.
        callback : callable, optional
            Called with a `clew.learning.result.Record` after each model update.
        """
        earlier = check_warm_start(warm_start)
        check_callable(callback, "callback")
        data = self._prepare_training(X, choose_annotations(Y, y), sample_weight)
        return self._learn(data, warm_start=earlier, client=client, callback=callback)

    def _learn(
        self,
        data: TrainingData,
        *,
        warm_start: Result | OnlineResult | None = None,
        client: Client | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from parsed annotations with a prepared model."""
        algorithm = get_algorithm(self.algorithm)
        check_regulariser(self.regulariser)
        lam = self._resolve_lam(len(data.Y))
        loss = get_loss(self.loss, ALL_LOSSES)
        check_margin(loss, data.weights)

        def make_test_task(X: Examples, Y: Examples) -> Task:
            return self._make_task(data.model, X, Y, client)

        def make_training_task(X: Examples, Y: Examples) -> Task:
            if isinstance(loss, ListedLoss):
                return loss.task(data.model, X, Y)
            return make_test_task(X, Y)

        task = weight_examples(make_training_task(data.X, data.Y), data.weights)
        if not isinstance(loss, ListedLoss):
            require_spaces(simplify(loss, task), task)  # before any argmax is asked for
        if Space.COMPATIBLE in task.spaces - loss.spaces:
            # finds annotations that no output satisfies
            task.argmax(np.zeros(task.n_features), Space.COMPATIBLE, 0.0)
        start = self._resolve_start(task)
        known_weights = [] if start is None else [start]
        path: list[PathPoint] = []
        splits: list[Split] = []
        with ProgressLine(self.verbose) as line:

            def report_update(record: Record) -> None:
                line(record)
                if callback is not None:
                    callback(record)

            settings: dict[str, Any] = {
                "regulariser": self.regulariser,
                "algorithm": algorithm,
            }
            if not isinstance(lam, float):
                if isinstance(lam, str):
                    lam = lambda_grid(task, loss, self.regulariser).tolist()
                splits = self._split_annotations(data)
                path = cross_validate(
                    make_folds(data, make_training_task, make_test_task, splits),
                    loss,
                    lam,
                    start=start,
                    callback=report_update,
                    **settings,
                )
                best = best_point(path)
                lam = best.lam
                known_weights = [best.w, *best.weights]
            elif start is None and warm_start is not None:
                known_weights = [warm_start.w]
            result = learn_from(
                make_starts(task, loss, lam, known_weights, given=start, **settings),
                task,
                loss,
                lam,
                warm_start=warm_start if isinstance(warm_start, Result) else None,
                callback=report_update,
                **settings,
            )
        self.held_out_ = [held_out for _, held_out in splits]
        return self._set_result(data.model, result, path)

    def _resolve_start(self, task: Task) -> Array | None:
        """Return the initial weights of the user; None for the default."""
        if not isinstance(self.start, str):
            return check_floats(self.start, "start")
        if self.start not in ("auto", "zero"):
            raise InputError(
                "start must be 'auto', 'zero' or an array of weights, not "
                f"{short_repr(self.start)}"
            )
        return np.zeros(task.n_features) if self.start == "zero" else None

    def partial_fit(
        self,
        X: Examples,
        Y: Examples,
        classes: Classes | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from one more batch, by a step for each example.

        λ must be a number, and weights of classes a mapping. `result_` is an
        `OnlineResult`, without a certificate; ``fit(X, Y, warm_start=online)`` has one.

        Parameters
        ----------
        X, Y : sequences
            Inputs and annotations. The first batch defines labels and features, unless
            the model or `classes` does; later ones may have no annotation.
        classes : sequence, optional
            All labels.
        sample_weight : array of shape (n_examples,), optional
        """
        lam, loss = self._check_partial_fit()
        if "model_" in self.__dict__:
            data = self._prepare_batch(X, Y, classes, sample_weight)
            if data is None:
                return self
        else:
            estimator = self
            if classes is not None:
                estimator = clone(self).set_params(model__classes=classes)
            data = estimator._prepare_training(X, Y, sample_weight)
            if hasattr(estimator, "feature_names_in_"):
                self.feature_names_in_ = estimator.feature_names_in_
        check_margin(loss, data.weights)
        task = self._make_task(data.model, data.X, data.Y, None)
        task = weight_examples(task, data.weights)
        state = self._get_online_state(task, lam)
        result = learn_batch(task, loss, state, make_generator(self.random_state))
        self.model_ = data.model
        self.path_ = []
        self.result_ = result
        self.coef_ = result.w
        self.lam_ = lam
        self.__dict__.pop("calibration_", None)
        return self

    def _check_partial_fit(self) -> tuple[float, Loss]:
        """Return λ and the loss if `partial_fit` can use them."""
        lam = self._resolve_lam(1) if self.C is None else None
        loss = get_loss(self.loss, ALL_LOSSES)
        check_regulariser(self.regulariser)
        if (
            not isinstance(lam, float)
            or isinstance(loss, ListedLoss)
            or self.regulariser != "l2"
        ):
            raise InputError(
                "partial_fit sees one batch at a time: expected lam as a number, "
                "regulariser 'l2', and a loss of LOSSES"
            )
        if isinstance(self.class_weight, str):
            raise InputError(
                f"class_weight is {short_repr(self.class_weight)}, and partial_fit "
                "sees one batch at a time; expected a mapping from classes to weights"
            )
        return lam, loss

    def _prepare_batch(
        self,
        X: Examples,
        Y: Examples,
        classes: Classes | None,
        sample_weight: ArrayLike | None,
    ) -> TrainingData | None:
        """Prepare a later batch; None if nothing in it is annotated."""
        model = self.model_
        X = self._convert_inputs(X)
        Y = convert_annotations(Y)
        check_lengths(X, Y)
        if classes is not None:
            if not hasattr(self, "classes_"):
                raise InputError(
                    "classes are given, but the model has no labels; expected None"
                )
            known_classes = tuple(self.classes_.tolist())
            if check_classes(classes, None) != known_classes:
                raise InputError(
                    f"classes is {short_repr(classes)}; expected those of the first "
                    f"batch, {self.classes_}"
                )
        weights = check_sample_weight(sample_weight, n_examples(X))
        Y = parse_annotations(model, X, Y)
        if not count_parts(model, Y).any():
            if hasattr(model, "check_inputs"):
                model.check_inputs(X)
            return None
        data = select_annotated(TrainingData(model, X, Y, weights))
        return self._apply_class_weight(data)

    def _get_online_state(self, task: Task, lam: float) -> OnlineResult:
        """Return the state after the last batch.

        After `fit`, the state is as if its examples had been seen in batches.
        """
        result = self.__dict__.get("result_")
        if isinstance(result, OnlineResult):
            return replace(result, lam=lam)
        if result is None:
            zero = np.zeros(task.n_features)
            return OnlineResult(zero, zero, lam)
        n = result.n_examples
        n_batches = n // MINI_BATCH + 1
        largest = 1.0 / (lam * n)
        return OnlineResult(result.w, result.w, lam, n_batches, n, largest=largest)

    def _fit_again(self, X: Examples, Y: Examples) -> Self:
        """Learn from other annotations; refuse if the weights are from batches."""
        if isinstance(self.result_, OnlineResult):
            raise InputError(
                "weights of partial_fit cannot be learned again from X and Y alone; "
                "expected folds=None, with X and Y that were held out"
            )
        return super()._fit_again(X, Y)


def check_margin(loss: Loss, weights: Array | None) -> None:
    """Refuse weights of examples for a loss with a fixed margin.

    Such a loss is not homogeneous in φ and Δ, see `clew.learning.task`.
    """
    if weights is not None and loss.margin:
        raise InputError(
            f"the loss {loss.name!r} has a fixed margin; sample_weight expects a loss "
            "without one"
        )


def check_warm_start(warm_start: object) -> Result | OnlineResult | None:
    """Return the result of an earlier fit, from the estimator or the result."""
    result = getattr(warm_start, "result_", warm_start)
    if result is not None and not isinstance(result, Result | OnlineResult):
        raise InputError(
            f"warm_start is a {type(warm_start).__name__}; expected a fitted "
            "StructuredSVM or its result_"
        )
    return result
