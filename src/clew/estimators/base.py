"""Base classes of the estimators: data, predictions, confidences, λ and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, column_or_1d

from clew.errors import InputError, MissingCapability, NotCalibrated
from clew.estimators.calibration import Calibration, Method, fit_calibration
from clew.estimators.data import (
    TrainingData,
    check_sample_weight,
    choose_annotations,
    convert_annotations,
    convert_inputs,
    convert_outputs,
    count_parts,
    explain_missing_annotations,
    list_columns,
    make_generator,
    make_task,
    parse_annotations,
)
from clew.estimators.model_selection import Split, split_annotations
from clew.estimators.uncertainty import Query, select_least_certain
from clew.learning.algorithm import LAMBDAS
from clew.learning.likelihood import LikelihoodResult
from clew.learning.plotting import plot_blocks
from clew.learning.result import Result
from clew.learning.task import Array, Space, Task
from clew.models.base import (
    Model,
    StructuredModel,
    check_kind,
    check_weights,
    forced_margins,
)
from clew.models.examples import (
    Annotation,
    Answers,
    Examples,
    Output,
    check_lengths,
    n_examples,
    take,
)
from clew.models.labels import ClassWeight
from clew.models.weight_blocks import feature_names
from clew.parallel import Client, map_examples, resolve_jobs
from clew.shards import distribute_task
from clew.utils.parameters import check_fitted, clone
from clew.utils.validation import (
    Seed,
    check_floats,
    check_int,
    check_positive,
    short_repr,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sklearn.utils import Tags

HoldOut = Literal["auto", "examples", "parts"]


class StructuredEstimator(BaseEstimator):  # type: ignore[misc]  # untyped
    """Base of the learners of a structured model."""

    model: StructuredModel
    n_jobs: int | None
    random_state: Seed
    model_: StructuredModel
    coef_: Array
    result_: Any
    calibration_: Calibration
    feature_names_in_: NDArray[np.object_]

    def predict(self, X: Examples) -> Answers:
        """Predict the best output for each input.

        Returns
        -------
        outputs : ndarray of shape (n_examples,)
            Labels, or objects if an output has several parts.
        """
        X = self._convert_inputs(X)
        w, n_jobs = self._check_before_predicting(X)
        model = self.model_
        if hasattr(model, "predict"):
            return convert_outputs(model.predict(X, w, n_jobs=n_jobs))

        def predict_one(x: Any) -> Output:
            return model.argmax(x, w, None, Space.ALL, 0.0)

        return convert_outputs(map_examples(predict_one, X, n_jobs))

    def score(
        self,
        X: Examples,
        Y: Examples = None,
        sample_weight: ArrayLike | None = None,
        *,
        y: Examples = None,
    ) -> float:
        """Return the fraction of annotated parts that are predicted right.

        If an own model does not count parts, this is minus the mean task loss.

        Parameters
        ----------
        X, Y : sequences
            Inputs and annotations.
        sample_weight : array of shape (n_examples,), optional
        y : sequence, optional
            Another name of `Y`.
        """
        check_fitted(self, "coef_")
        X = self._convert_inputs(X)
        Y = convert_annotations(choose_annotations(Y, y))
        check_lengths(X, Y)
        weights = check_sample_weight(sample_weight, n_examples(X))
        predicted = self.predict(X)
        model = self.model_
        Y = parse_annotations(model, X, Y)
        if weights is None:
            weights = np.ones(len(predicted))
        n_parts = count_parts(model, Y) * weights
        if not n_parts.any():
            raise InputError(
                "nothing is annotated in Y, so there is nothing to score against"
            )
        counts_parts = hasattr(model, "n_parts")
        count_mistakes: Callable[[Annotation, Output], float] = getattr(
            model, "mistakes" if counts_parts else "loss"
        )
        mistakes = np.array(
            [
                count_mistakes(Y[n], predicted[n]) if n_parts[n] else 0.0
                for n in range(len(n_parts))
            ]
        )
        share = float(mistakes @ weights) / float(n_parts.sum())
        return 1.0 - share if counts_parts else -share

    def margins(self, X: Examples) -> Answers:
        """Return the score that is lost if a part is forced to differ.

        An own model needs ``parts(x, y)``, see docs/own-model.md.

        Returns
        -------
        margins : ndarray of shape (n_examples,)
            Arrays of shape (n_parts,) for each input; numbers for `Multiclass`.
        """
        X = self._convert_inputs(X)
        w, n_jobs = self._check_before_predicting(X)
        model = self.model_
        if hasattr(model, "margins"):
            return convert_outputs(model.margins(X, w, n_jobs=n_jobs))

        def force_parts(x: Any) -> Array:
            return forced_margins(model, x, w)

        return convert_outputs(map_examples(force_parts, X, n_jobs))

    def decision_function(self, X: Examples) -> Answers:
        """Return what the best output loses if a part is forced to each choice.

        These are its max-marginals less the best score: 0 for the prediction. Choices
        are the classes, the columns of an assignment, or 0 and 1; for an own model, as
        predicted and otherwise.

        Returns
        -------
        scores : ndarray of shape (n_examples,)
            Arrays of shape (n_parts, n_choices) for each input. For `Multiclass` the
            array has shape (n_examples, n_classes), and (n_examples,) with two
            classes, as in scikit-learn: positive for the second.
        """
        marginals = self._max_marginals(X)
        if (
            marginals.dtype != object
            and marginals.ndim == 2
            and marginals.shape[1] == 2
        ):
            return np.asarray(marginals[:, 1] - marginals[:, 0])
        return marginals

    def _max_marginals(self, X: Examples) -> Answers:
        """Return the max-marginals of each input less its best score."""
        X = self._convert_inputs(X)
        w, n_jobs = self._check_before_predicting(X)
        if hasattr(self.model_, "max_marginals"):
            return convert_outputs(self.model_.max_marginals(X, w, n_jobs=n_jobs))
        return convert_outputs(
            [np.column_stack([np.zeros(len(m)), -m]) for m in self.margins(X)]
        )

    def calibrate(
        self,
        X: Examples,
        Y: Examples,
        *,
        method: Method = "platt",
        folds: int | None = 3,
    ) -> Self:
        """Fit the map from margins to probabilities, for `predict_proba`.

        Probabilities must be fitted to annotations that the weights have not seen.

        Parameters
        ----------
        X, Y : sequences
            Inputs and annotations: those of `fit` if `folds` is a number.
        method : {"platt", "isotonic"}
            "isotonic" needs many annotations; see `clew.estimators.calibration`.
        folds : int or None
            Hide each share of the annotations in turn, and compare it with weights
            that are learned from the rest, with the same λ. None if X and Y are
            held-out data.

        Returns
        -------
        self : StructuredEstimator
            With the attribute `calibration_`.
        """
        check_fitted(self, "coef_")
        X = self._convert_inputs(X)
        Y = convert_annotations(Y)
        check_lengths(X, Y)
        model = self.model_
        if not hasattr(model, "candidates"):
            raise MissingCapability(
                "calibration compares choices with annotations: "
                f"{type(model).__name__} needs a method candidates(x, annotation), the "
                "(parts, choices) that an annotation allows"
            )
        Y = parse_annotations(model, X, Y)
        if folds is None:
            tests = [(self, Y)]
        else:
            rng = make_generator(self.random_state)
            splits = split_annotations(model, Y, folds, "auto", rng)
            tests = [(self._fit_again(X, train), test) for train, test in splits]
        marginals = []
        candidates = []
        for estimator, held_out in tests:
            used = np.flatnonzero(count_parts(model, held_out))
            inputs = take(X, used)
            marginals += [np.atleast_2d(m) for m in estimator._max_marginals(inputs)]
            candidates += [
                model.candidates(x, held_out[n])
                for x, n in zip(inputs, used, strict=True)
            ]
        self.calibration_ = fit_calibration(marginals, candidates, method)
        return self

    @property
    def predict_proba(self) -> Callable[[Examples], Answers]:
        """Predict the probability of each choice of each part, after `calibrate`.

        Arrays of shape (n_parts, n_choices) for each input. Before `calibrate`, the
        estimator does not have this method, as in scikit-learn.
        """
        check_fitted(self, "coef_")
        if not hasattr(self, "calibration_"):
            raise NotCalibrated(
                "margins are no probabilities until they are calibrated: call "
                "calibrate(X, Y) first, for instance with the X and Y of fit"
            )
        return self._predict_calibrated

    def _predict_calibrated(self, X: Examples) -> Answers:
        """Return the probabilities of the calibration."""
        marginals = self._max_marginals(X)
        if marginals.dtype != object:
            return self.calibration_.probabilities(marginals)
        return convert_outputs([self.calibration_.probabilities(m) for m in marginals])

    def suggest(
        self, X: Examples, n: int, Y: Examples = None, *, per_example: int | None = None
    ) -> list[Query]:
        """Suggest the parts to annotate next: those with the smallest margins.

        Parameters
        ----------
        X : sequence of inputs
        n : int
            Number of parts.
        Y : sequence of annotations, optional
            Parts that are annotated already are left out.
        per_example : int, optional
            Most parts of one example.
        """
        X = self._convert_inputs(X)
        margins = [np.atleast_1d(m) for m in self.margins(X)]
        n = check_int(n, "n, the number of parts to suggest,", 0)
        if per_example is not None:
            per_example = check_int(per_example, "per_example", 0)
        if Y is not None:
            Y = convert_annotations(Y)
            check_lengths(X, Y)
            model: Any = self.model_  # an own model may lack candidates
            for k, annotation in enumerate(parse_annotations(model, X, Y)):
                candidates = np.asarray(model.candidates(X[k], annotation))
                is_annotated = ~candidates.all(axis=1)
                margins[k] = np.where(is_annotated, np.inf, margins[k])
        return select_least_certain(margins, n, per_example)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file without pickle, for `clew.load`."""
        from clew.estimators.persistence import save_estimator

        save_estimator(self, path)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the bounds of the fit, which may be large."""
        state: dict[str, Any] = dict(super().__getstate__())
        if isinstance(state.get("result_"), Result):
            state["result_"] = replace(state["result_"], bundle=None)
        return state

    @property
    def classes_(self) -> NDArray[np.generic]:
        """Labels in the order of `decision_function` and `predict_proba`."""
        model = self._get_model_with("labels", "classes_")
        return np.asarray(model.labels.decode(np.arange(model.labels.n_states)))

    @property
    def n_features_in_(self) -> int:
        """Number of features of an input row."""
        model = self._get_model_with("n_features", "n_features_in_")
        return int(getattr(model, "n_inputs_", model.n_features))

    @property
    def weights_(self) -> dict[str, Array]:
        """Weights by block: "input", "bias", "transition", "begin", "end", "pair"."""
        model = self._get_model_with("blocks", "weights_")
        w = self.coef_ * model.column_scale
        return {block.name: block.values(w) for block in model.blocks()}

    def get_feature_names(
        self, input_names: Sequence[str] | None = None
    ) -> NDArray[np.object_]:
        """Return the name of each weight, as "input[b, x3]" or "transition[a, b]"."""
        check_fitted(self, "coef_")
        model = self._get_model_with("blocks", "get_feature_names")
        blocks = model.blocks(self._get_input_names(input_names))
        return np.array(feature_names(blocks, int(model.n_features)), dtype=object)

    def plot_weights(
        self, input_names: Sequence[str] | None = None, top: int = 20
    ) -> Figure:
        """Plot the weights by block; of many inputs the `top` largest."""
        check_fitted(self, "coef_")
        model = self._get_model_with("blocks", "plot_weights")
        blocks = model.blocks(self._get_input_names(input_names))
        return plot_blocks(blocks, self.coef_ * model.column_scale, top)

    def _get_input_names(self, input_names: Sequence[str] | None) -> Any:
        """Return the names of the input columns, by default those of the fit."""
        if input_names is not None:
            return input_names
        return getattr(self, "feature_names_in_", None)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if getattr(self.model, "of_rows", False):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        return tags

    def _get_model_with(self, attribute: str, name: str) -> Any:
        """Return the fitted model, or raise AttributeError if it lacks an attribute."""
        model = self.__dict__.get("model_")
        if model is not None and hasattr(model, attribute):
            return model
        if model is None:
            reason = "it is not fitted yet"
        else:
            reason = f"its model offers no {attribute}"
        raise AttributeError(f"this {type(self).__name__} has no {name}: {reason}")

    def _convert_inputs(self, X: Examples) -> Examples:
        """Convert inputs; columns of a table must be those of the fit, in order."""
        expected = self.__dict__.get("feature_names_in_")
        if expected is None:
            return convert_inputs(X)
        for table in X if isinstance(X, list) else [X]:
            columns = list_columns(table) or []
            is_named = columns and all(isinstance(name, str) for name in columns)
            if is_named and columns != expected.tolist():
                raise InputError(
                    f"X has the columns {short_repr(columns)}; expected "
                    f"{short_repr(expected.tolist())}, in this order, as in fit"
                )
        return convert_inputs(X)

    def _check_before_predicting(self, X: Examples) -> tuple[Array, int]:
        """Check the fit and the inputs; return the weights and number of threads."""
        check_fitted(self, "coef_")
        n_examples(X)
        check_kind(self.model_, X)
        w = check_weights(self.coef_, self.model_.n_features)
        return w, resolve_jobs(self.n_jobs)

    def _prepare_training(
        self, X: Examples, Y: Examples, sample_weight: ArrayLike | None = None
    ) -> TrainingData:
        """Prepare a copy of the model, and select the examples with annotations."""
        self.__dict__.pop("feature_names_in_", None)
        columns = list_columns(X)
        if columns is not None:
            names = [str(name) for name in columns]
            self.feature_names_in_ = np.array(names, dtype=object)
            self._convert_inputs(X)  # tables in a list have the same columns
        X = convert_inputs(X)
        Y = convert_annotations(Y)
        check_lengths(X, Y)
        model = _copy_model(self.model)
        check_kind(model, X)
        is_column = isinstance(Y, np.ndarray) and Y.ndim == 2 and Y.shape[1] == 1
        if getattr(model, "of_rows", False) and is_column:
            Y = column_or_1d(Y, warn=True)
        if hasattr(model, "learn_domain"):
            model = model.learn_domain(X, Y)
        elif hasattr(model, "prepare"):
            model = model.prepare(X, Y)
        weights = check_sample_weight(sample_weight, n_examples(X))
        self.__dict__.pop("calibration_", None)  # of an earlier fit
        data = TrainingData(model, X, parse_annotations(model, X, Y), weights)
        return self._apply_class_weight(select_annotated(data))

    def _apply_class_weight(self, data: TrainingData) -> TrainingData:
        """Put `class_weight` into the model's Δ, or into weights of the examples."""
        class_weight: ClassWeight | None = getattr(self, "class_weight", None)
        if class_weight is None:
            return data
        if not hasattr(data.model, "with_class_weight"):
            raise MissingCapability(
                f"class_weight: {type(data.model).__name__} offers no with_class_weight"
            )
        model, weights = data.model.with_class_weight(class_weight, data.Y)
        if weights is None:
            weights = data.weights
        elif data.weights is not None:
            weights = weights * data.weights
        return data._replace(model=model, weights=weights)

    def _fit_again(self, X: Examples, Y: Examples) -> Self:
        """Learn from other annotations, with the same domain and λ."""
        other: Self = clone(self)
        if hasattr(self, "lam_"):
            other.set_params(lam=self.lam_, C=None)
        data = select_annotated(TrainingData(self.model_, X, Y, None))
        weights = self._apply_class_weight(data).weights
        return other._learn(data._replace(weights=weights))

    def _learn(self, data: TrainingData) -> Self:
        """Learn from parsed annotations with a prepared model."""
        raise NotImplementedError

    def _make_task(
        self, model: StructuredModel, X: Examples, Y: Examples, client: Client | None
    ) -> Task:
        """Make the learning problem, here or on a Dask cluster."""
        n_jobs = resolve_jobs(self.n_jobs)
        if client is None:
            return make_task(model, X, Y, n_jobs)
        return distribute_task(
            client, lambda inputs, y: make_task(model, inputs, y, n_jobs), X, Y
        )


class RegularizedEstimator(StructuredEstimator):
    """Base of the learners that minimize λ Ω(w) + a mean loss, and may choose λ."""

    path_: Sequence[object]
    """What was measured of each λ that was tried."""

    def __init__(
        self,
        model: StructuredModel,
        lam: float | str | Sequence[float],
        C: float | None,
        folds: int,
        hold_out: HoldOut,
        n_jobs: int | None,
        verbose: bool,
        random_state: Seed,
    ) -> None:
        self.model = model
        self.lam = lam
        self.C = C
        self.folds = folds
        self.hold_out = hold_out
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _resolve_lam(self, n_examples: int) -> float | str | list[float]:
        """Return λ, "auto", or the values to choose from."""
        if self.C is None:
            return check_lam(self.lam)
        return convert_c(self.C, self.lam, n_examples)

    def _split_annotations(self, data: TrainingData) -> list[Split]:
        """Split the annotations to choose λ by."""
        rng = make_generator(self.random_state)
        return split_annotations(data.model, data.Y, self.folds, self.hold_out, rng)

    def _set_result(
        self,
        model: StructuredModel,
        result: Result | LikelihoodResult,
        path: Sequence[object],
    ) -> Self:
        """Set the fitted attributes."""
        self.model_ = model
        self.result_ = result
        self.path_ = path
        self.coef_ = result.w
        self.lam_ = result.lam
        return self


def check_lam(lam: object) -> float | str | list[float]:
    """Return a positive number, "auto", or a list of positive numbers."""
    if isinstance(lam, str) and lam == "auto":
        return lam
    smallest, largest = LAMBDAS
    if not isinstance(lam, bool | str | None):
        values = check_floats(lam, "lam")
        is_in_range = (values >= smallest) & (values <= largest)
        if values.size and values.ndim < 2 and is_in_range.all():
            return float(values) if values.ndim == 0 else [float(v) for v in values]
    raise InputError(
        f"lam must be a positive number ({smallest:g} to {largest:g}), a list of them, "
        f"or 'auto'; not {short_repr(lam)}"
    )


def convert_c(C: object, lam: object, n_examples: int) -> float:
    """Return λ = 1 / (C N), for the scaling ½‖w‖² + C Σ loss."""
    if not isinstance(lam, str) or lam != "auto":
        raise InputError(
            f"C is {short_repr(C)} and lam is {short_repr(lam)}; expected one of both"
        )
    converted = 1.0 / (check_positive(C, "C", sys.float_info.max) * n_examples)
    smallest, largest = LAMBDAS
    if not smallest <= converted <= largest:
        raise InputError(
            f"C is {short_repr(C)}, so that λ is {converted:g}; expected "
            f"{smallest:g} to {largest:g}"
        )
    return converted


def _copy_model(model: StructuredModel) -> StructuredModel:
    """Copy a model, after a check that it is one."""
    try:
        copy = clone(model)
    except TypeError as error:  # of copy.deepcopy
        raise InputError(
            f"the model cannot be copied ({error}); expected parameters that are values"
        ) from None
    for name in ("joint_features", "loss", "argmax"):
        if not callable(getattr(copy, name, None)):
            raise InputError(
                f"model is {short_repr(copy)}, without {name}; expected one of "
                "clew.models, or your own"
            )
    if isinstance(copy, type):
        raise InputError(
            f"model is the class {copy.__name__}; expected an object of it, "
            f"{copy.__name__}()"
        )
    if isinstance(copy, Model):
        copy.check_parameters()
    return copy


def select_annotated(data: TrainingData) -> TrainingData:
    """Select the examples that have an annotation and a positive weight."""
    model, X, Y, weights = data
    is_used = count_parts(model, Y) > 0
    if not is_used.any():
        raise InputError(explain_missing_annotations(model))
    if weights is not None:
        is_used &= weights > 0
        if not is_used.any():
            raise InputError(
                "sample_weight is zero for every annotated example; expected a "
                "positive one"
            )
    if is_used.all():
        return data
    if hasattr(model, "check_inputs"):
        model.check_inputs(X)  # wrong inputs are refused even without annotations
    used = np.flatnonzero(is_used)
    weights = None if weights is None else weights[used]
    return TrainingData(model, take(X, used), take(Y, used), weights)
