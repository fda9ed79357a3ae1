"""What all estimators of a structured model share: data in; predictions, scores and confidences out; files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from clew import parallel
from clew.errors import InputError, MissingCapability, NotCalibrated
from clew.estimators.calibration import Calibration, Method, calibrate
from clew.estimators.conversion import (
    as_examples,
    as_objects,
    check_sample_weight,
    count_parts,
    make_generator,
    make_task,
    parse,
    why_nothing_is_annotated,
)
from clew.estimators.model_selection import split_annotations
from clew.estimators.uncertainty import Query, least_certain
from clew.learning.plotting import plot_blocks
from clew.learning.task import Array, Space, Task
from clew.models.base import (
    Model,
    StructuredModel,
    check_kind,
    check_lengths,
    check_weights,
    forced_margins,
    n_examples,
    take,
)
from clew.models.examples import Annotation, Answers, Examples, Output
from clew.models.labels import ClassWeight
from clew.models.weight_blocks import feature_names
from clew.parallel import Client
from clew.utils.parameters import check_fitted, clone
from clew.utils.validation import Seed, check_int, short_repr

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sklearn.utils import Tags


class StructuredEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """What the learners of a structured model share: data in, predictions, scores and confidences out, files."""

    model: StructuredModel
    n_jobs: int | None
    random_state: Seed
    model_: StructuredModel
    coef_: Array
    calibration_: Calibration
    feature_names_in_: NDArray[np.object_]

    def predict(self, X: Examples) -> Answers:
        """(N,) the best output for each input: labels, or an array of objects where an output has several parts."""
        X = self._examples(X)
        w, jobs = self._fitted(X)
        if hasattr(self.model_, "predict"):
            return as_objects(self.model_.predict(X, w, n_jobs=jobs))
        return as_objects(
            parallel.map_examples(
                lambda x: self.model_.argmax(x, w, None, Space.ALL, 0.0), X, jobs
            )
        )

    def score(
        self, X: Examples, Y: Examples, sample_weight: ArrayLike | None = None
    ) -> float:
        """The fraction of annotated parts that are predicted right.

        For a model of one's own that does not count parts: minus the mean task loss. `sample_weight` are weights of
        the examples.
        """
        check_fitted(self, "coef_")
        X, Y = self._examples(X), as_examples(Y)
        check_lengths(X, Y)
        weights = check_sample_weight(sample_weight, n_examples(X))
        model, predicted = self.model_, self.predict(X)
        counted = hasattr(model, "n_parts")
        Y = parse(model, X, Y)
        parts = count_parts(model, Y) * (1.0 if weights is None else weights)
        if not parts.any():
            raise InputError(
                "nothing is annotated in Y, so there is nothing to score against"
            )
        measure: Callable[[Annotation, Output], float] = getattr(
            model, "mistakes" if counted else "loss"
        )
        wrong = np.array(
            [
                measure(Y[n], predicted[n]) if parts[n] else 0.0
                for n in range(len(parts))
            ]
        )
        lost = float(
            wrong @ (np.ones(len(parts)) if weights is None else weights)
        ) / float(parts.sum())
        return 1.0 - lost if counted else -lost

    def margins(self, X: Examples) -> Answers:
        """(N,) for each input (parts,) the score that is lost when a part is forced to be other than predicted.

        For `Multiclass` (N,) numbers. A model of one's own needs `parts(x, y)`, see docs/own-model.md.
        """
        X = self._examples(X)
        w, jobs = self._fitted(X)
        if hasattr(self.model_, "margins"):
            return as_objects(self.model_.margins(X, w, n_jobs=jobs))
        return as_objects(
            parallel.map_examples(lambda x: forced_margins(self.model_, x, w), X, jobs)
        )

    def decision_function(self, X: Examples) -> Answers:
        """(N,) for each input (parts, choices) what the best output loses when a part is forced to each choice.

        These are its max-marginals less the best score: 0 for what is predicted. Choices are the classes, the columns
        of an assignment, or 0 and 1; for a model of one's own, as predicted and otherwise. `Multiclass`: (N, classes).
        """
        X = self._examples(X)
        w, jobs = self._fitted(X)
        if hasattr(self.model_, "max_marginals"):
            return as_objects(self.model_.max_marginals(X, w, n_jobs=jobs))
        return as_objects(
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
        """Learn how margins become probabilities, for `predict_proba`; `calibration_` is what was learned.

        Probabilities must be learned from annotations that the weights have not seen. With `folds`, X and Y may be
        those of `fit`: a share of their annotations is hidden in turn, and weights learned from the rest (with the same
        λ) are judged by it. With folds=None, X and Y are held-out data. `method` is "platt" or "isotonic", which needs
        many annotations: see `clew.estimators.calibration`.
        """
        check_fitted(self, "coef_")
        X, Y = self._examples(X), as_examples(Y)
        check_lengths(X, Y)
        if not hasattr(self.model_, "candidates"):
            raise MissingCapability(
                f"calibration compares choices with annotations: {type(self.model_).__name__} needs a method "
                "candidates(x, annotation), the (parts, choices) that an annotation allows"
            )
        Y = parse(self.model_, X, Y)
        if folds is None:
            judged = [(self, Y)]
        else:
            rng = make_generator(self.random_state)
            splits = split_annotations(self.model_, Y, folds, "auto", rng)
            judged = [(self._refitted(X, train), test) for train, test in splits]
        marginals, candidates = [], []
        for estimator, test in judged:
            used = np.flatnonzero(count_parts(self.model_, test))
            some = take(X, used)
            marginals += [np.atleast_2d(m) for m in estimator.decision_function(some)]
            candidates += [
                self.model_.candidates(x, test[n])
                for x, n in zip(some, used, strict=True)
            ]
        self.calibration_ = calibrate(marginals, candidates, method)
        return self

    @property
    def predict_proba(self) -> Callable[[Examples], Answers]:
        """(N,) for each input (parts, choices) the probability of each choice of each part; after `calibrate`.

        Before, the estimator does not have it, as scikit-learn's do.
        """
        check_fitted(self, "coef_")
        if not hasattr(self, "calibration_"):
            raise NotCalibrated(
                "margins are no probabilities until they are calibrated: call calibrate(X, Y) first, for instance with "
                "the X and Y of fit"
            )
        return self._calibrated

    def _calibrated(self, X: Examples) -> Answers:
        """The probabilities from `calibration_`."""
        marginals = self.decision_function(X)
        if marginals.dtype != object:
            return self.calibration_.probabilities(marginals)
        return as_objects([self.calibration_.probabilities(m) for m in marginals])

    def suggest(
        self, X: Examples, n: int, Y: Examples = None, *, per_example: int | None = None
    ) -> list[Query]:
        """The n parts to annotate next: those with the smallest margins (uncertainty sampling, Lewis & Gale 1994).

        Parts that Y annotates already are left out, and no example gets more than `per_example` questions.
        """
        X = self._examples(X)
        margins = [np.atleast_1d(m) for m in self.margins(X)]
        n = check_int(n, "n, the number of parts to suggest,", 0)
        per_example = (
            None if per_example is None else check_int(per_example, "per_example", 0)
        )
        if Y is not None:
            Y = as_examples(Y)
            check_lengths(X, Y)
            model: Any = (
                self.model_
            )  # one of a user's own may lack candidates, and then Python says so
            for k, y in enumerate(parse(model, X, Y)):
                known = ~np.asarray(model.candidates(X[k], y)).all(axis=1)
                margins[k] = np.where(known, np.inf, margins[k])
        return least_certain(margins, n, per_example)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file (JSON and arrays, no pickle); `clew.load` reads it."""
        from clew.estimators import persistence as archive

        archive.save(self, path)

    @property
    def classes_(self) -> NDArray[np.generic]:
        """(S,) the labels, in the order of `decision_function` and `predict_proba`."""
        model = self._model_with("labels", "classes_")
        return np.asarray(model.labels.decode(np.arange(model.labels.n_states)))

    @property
    def n_features_in_(self) -> int:
        """How many features a row of the input has."""
        model = self._model_with("n_features", "n_features_in_")
        return int(getattr(model, "n_inputs_", model.n_features))

    @property
    def weights_(self) -> dict[str, Array]:
        """The weights by block: "input", "bias", "transition", "begin", "end", "pair"; what each adds to the score."""
        model = self._model_with("blocks", "weights_")
        w = self.coef_ * model.column_scale
        return {block.name: block.values(w) for block in model.blocks()}

    def get_feature_names(
        self, input_names: Sequence[str] | None = None
    ) -> NDArray[np.object_]:
        """(d,) a name for each weight, such as "input[b, x3]" or "transition[a, b]"."""
        check_fitted(self, "coef_")
        model = self._model_with("blocks", "get_feature_names")
        names = (
            getattr(self, "feature_names_in_", None)
            if input_names is None
            else input_names
        )
        return np.array(
            feature_names(model.blocks(names), int(model.n_features)), dtype=object
        )

    def plot_weights(
        self, input_names: Sequence[str] | None = None, top: int = 20
    ) -> Figure:
        """A picture of the weights by block; of many inputs the `top` ones with the largest weights."""
        check_fitted(self, "coef_")
        model = self._model_with("blocks", "plot_weights")
        names = (
            getattr(self, "feature_names_in_", None)
            if input_names is None
            else input_names
        )
        return plot_blocks(model.blocks(names), self.coef_ * model.column_scale, top)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def _model_with(self, attribute: str, wanted: str) -> Any:
        """The prepared model, if it has what is needed; else an attribute that this estimator does not have."""
        model = self.__dict__.get("model_")
        if model is None or not hasattr(model, attribute):
            raise AttributeError(
                f"this {type(self).__name__} has no {wanted}: "
                + (
                    "it is not fitted yet"
                    if model is None
                    else f"its model offers no {attribute}"
                )
            )
        return model

    def _examples(self, X: Examples) -> Examples:
        """X, where it is a table as an array; its columns must then be those of the fit, in their order."""
        expected = self.__dict__.get("feature_names_in_")
        if expected is not None and hasattr(X, "columns"):
            given = list(X.columns)
            if (
                all(isinstance(name, str) for name in given)
                and given != expected.tolist()
            ):
                raise InputError(
                    f"X has the columns {short_repr(given)}; expected {short_repr(expected.tolist())}, in this order, as in fit"
                )
        return as_examples(X)

    def _fitted(self, X: Examples) -> tuple[Array, int]:
        """The weights and the number of threads, after a look at X."""
        check_fitted(self, "coef_")
        n_examples(X)
        check_kind(self.model_, X)
        return check_weights(self.coef_, self.model_.n_features), parallel.resolve_jobs(
            self.n_jobs
        )

    def _prepared(
        self, X: Examples, Y: Examples, sample_weight: ArrayLike | None = None
    ) -> tuple[StructuredModel, Examples, Examples, Array | None]:
        """The prepared model, and the examples that carry an annotation, parsed; only those take part in learning."""
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(
                [str(name) for name in X.columns], dtype=object
            )
        X, Y = as_examples(X), as_examples(Y)
        check_lengths(X, Y)
        try:
            model = clone(self.model)
        except TypeError as error:  # of copy.deepcopy
            raise InputError(
                f"the model cannot be copied ({error}); expected parameters that are values"
            ) from None
        if lacking := [
            name
            for name in ("joint_features", "loss", "argmax")
            if not callable(getattr(model, name, None))
        ]:
            raise InputError(
                f"model is {short_repr(model)}, without {lacking[0]}; expected one of clew.models, or your own"
            )
        if isinstance(model, type):
            raise InputError(
                f"model is the class {model.__name__}; expected an object of it, {model.__name__}()"
            )
        if isinstance(model, Model):
            model.check_parameters()
        check_kind(model, X)
        if hasattr(model, "learn_domain"):
            model = model.learn_domain(X, Y)
        elif hasattr(model, "prepare"):
            model = model.prepare(X, Y)
        weights = check_sample_weight(sample_weight, n_examples(X))
        self.__dict__.pop("calibration_", None)  # of an earlier fit
        return self._class_weighted(
            model, *self._annotated(model, X, parse(model, X, Y), weights)
        )

    def _class_weighted(
        self, model: StructuredModel, X: Examples, Y: Examples, weights: Array | None
    ) -> tuple[StructuredModel, Examples, Examples, Array | None]:
        """The same with `class_weight`, where the learner has one: in the model's Δ, or in weights of the examples."""
        class_weight: ClassWeight | None = getattr(self, "class_weight", None)
        if class_weight is not None:
            if not hasattr(model, "with_class_weight"):
                raise MissingCapability(
                    f"class_weight: {type(model).__name__} offers no with_class_weight"
                )
            model, of_class = model.with_class_weight(class_weight, Y)
            weights = (
                weights
                if of_class is None
                else of_class * (1.0 if weights is None else weights)
            )
        return model, X, Y, weights

    def _annotated(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None = None,
    ) -> tuple[Examples, Examples, Array | None]:
        """The examples that carry an annotation and some weight."""
        annotated = count_parts(model, Y) > 0
        if not annotated.any():
            raise InputError(why_nothing_is_annotated(model))
        if weights is not None:
            annotated &= weights > 0
            if not annotated.any():
                raise InputError(
                    "sample_weight is zero for every annotated example; expected a positive one"
                )
        if annotated.all():
            return X, Y, weights
        if hasattr(model, "check_inputs"):
            model.check_inputs(X)  # a damaged input is refused, annotated or not
        used = np.flatnonzero(annotated)
        return take(X, used), take(Y, used), None if weights is None else weights[used]

    def _refitted(self, X: Examples, Y: Examples) -> Self:
        """The same estimator learned from other annotations, with the domain and the λ that were found before."""
        other: Self = clone(self)
        if hasattr(self, "lam_"):
            other.set_params(lam=self.lam_, C=None)
        _, X, Y, weights = self._class_weighted(
            self.model_, *self._annotated(self.model_, X, Y)
        )
        return other._learn(self.model_, X, Y, weights)

    def _learn(
        self,
        model: StructuredModel,
        X: Examples,
        Y: Examples,
        weights: Array | None = None,
    ) -> Self:
        """Learn from parsed annotations with a model that knows its domain."""
        raise NotImplementedError

    def _task(
        self, model: StructuredModel, X: Examples, Y: Examples, client: Client | None
    ) -> Task:
        """The learning problem, here or on a Dask cluster."""
        jobs = parallel.resolve_jobs(self.n_jobs)
        if client is not None:
            return parallel.distribute_task(
                client, lambda x, y: make_task(model, x, y, jobs), X, Y
            )
        return make_task(model, X, Y, jobs)
