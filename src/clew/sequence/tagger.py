"""SequenceTagger: labels of tokens, with the interface of sklearn_crfsuite.CRF."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence, Set
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from clew.errors import InputError
from clew.estimators.base import StructuredEstimator
from clew.estimators.crf import StructuredCRF
from clew.estimators.perceptron import StructuredPerceptron
from clew.estimators.svm import StructuredSVM
from clew.estimators.uncertainty import Query
from clew.learning.algorithm import Algorithm
from clew.learning.task import Space
from clew.models.chain import Chain, LabelPair
from clew.models.examples import check_lengths
from clew.models.forest import ForestTask
from clew.models.labels import LabelSpace
from clew.sequence.entities import forbid_pairs, has_pair
from clew.sequence.features import FeatureDictionary, Token
from clew.utils.parameters import check_fitted
from clew.utils.validation import Seed, check_positive, short_repr

Sentence: TypeAlias = Sequence[Token]
Labels: TypeAlias = Sequence[Any]
"""For each token a label, a set of labels one of which is right, or None."""
LIMITS = {
    "bridge": "max_passes",
    "crf": "max_iterations",
    "perceptron": "max_epochs",
}
"""What `max_iterations` limits, by loss."""


class SequenceTagger(BaseEstimator):  # type: ignore[misc]  # untyped
    """Labels the tokens of sentences, learned from partial annotations.

    It takes the place of `sklearn_crfsuite.CRF`: X is a list of sentences, a sentence a
    list of tokens, and a token a dict of features. In y, a token has a label, a set of
    labels one of which is right, or None; a sentence without any label is None.

    Parameters
    ----------
    loss : {"bridge", "crf", "perceptron"}
        "bridge" has the largest margin and is the fastest with few annotations; "crf"
        is a conditional random field, whose `predict_marginals` are its own;
        "perceptron" is averaged.
    C : float, "auto" or None
        Weight of the annotations in ½‖w‖² + C Σ loss; "auto" chooses it by
        cross-validation. None is one over the mean ‖x‖² of a token for "bridge", and
        for "crf" follows from `c2`.
    constraints : "auto", None or sequence of (label, label)
        Pairs of neighboring labels that are forbidden in learning and prediction.
        "auto" are those that BIO, IOBES or BILOU exclude, unless y has such a pair.
    min_freq : int
        Features of fewer tokens are left out.
    tol : float
        Precision of the fit.
    max_iterations : int or None
        Limit of passes, iterations or epochs.
    algorithm, c1, all_possible_states, all_possible_transitions
        Parameters of `sklearn_crfsuite.CRF` that have no effect: clew has its own
        algorithm, no L1 term, and a weight for each state and transition. A warning
        names those that are set.
    c2 : float, optional
        Weight of ‖w‖² beside the sum of −log P, as in CRFsuite, where it is 1 by
        default; for "crf" only.
    n_jobs : int or None
        Threads; -1 for all cores.
    verbose : bool
        Show a progress line.
    random_state : int, Generator, RandomState or None
        Seed of the folds and of the perceptron's order.

    Attributes
    ----------
    classes_ : list of str
    estimator_ : StructuredSVM, StructuredCRF or StructuredPerceptron
        The fitted estimator of a `clew.models.Chain`.
    features_ : FeatureDictionary
    forbidden_ : list of (label, label)
    """

    def __init__(
        self,
        loss: Literal["bridge", "crf", "perceptron"] = "bridge",
        *,
        C: float | Literal["auto"] | None = None,
        constraints: Literal["auto"] | Sequence[LabelPair] | None = "auto",
        min_freq: int = 0,
        tol: float = 1e-2,
        max_iterations: int | None = None,
        algorithm: str | None = None,
        c1: float | None = None,
        c2: float | None = None,
        all_possible_states: bool = True,
        all_possible_transitions: bool = True,
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: Seed = None,
    ) -> None:
        self.loss = loss
        self.C = C
        self.constraints = constraints
        self.min_freq = min_freq
        self.tol = tol
        self.max_iterations = max_iterations
        self.algorithm = algorithm
        self.c1 = c1
        self.c2 = c2
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Sequence[Sentence], y: Sequence[Labels | None]) -> Self:
        """Learn from feature dicts and labels.

        Parameters
        ----------
        X : sequence of sentences
            Each a sequence of feature dicts, or of lists of features' names.
        y : sequence of sequences
            For each token a label, a set of labels, or None.
        """
        check_lengths(X, y)
        self.features_ = FeatureDictionary(self.min_freq)
        rows = self.features_.fit_transform(X)
        annotations = _convert_labels(y)
        self.forbidden_ = self._resolve_constraints(annotations)
        squares = sum(row.multiply(row).sum() for row in rows)
        mean_square = squares / max(1, sum(row.shape[0] for row in rows))
        model = Chain(forbidden=self.forbidden_ or None)
        estimator = self._make_estimator(model, mean_square)
        self.estimator_ = estimator.fit(rows, annotations)
        return self

    def _resolve_constraints(self, y: Sequence[Labels | None]) -> list[LabelPair]:
        """Return the pairs of labels that are forbidden."""
        if self.constraints is None:
            return []
        if not isinstance(self.constraints, str):
            return list(self.constraints)
        if self.constraints != "auto":
            raise InputError(
                f"constraints is {short_repr(self.constraints)}; expected 'auto', None "
                "or pairs of labels"
            )
        labels = LabelSpace.of(y).classes
        if not all(isinstance(label, str) for label in labels):
            return []
        pairs = forbid_pairs([str(label) for label in labels])
        return [] if has_pair(y, pairs) else pairs

    def _make_estimator(self, model: Chain, mean_square: float) -> StructuredEstimator:
        """Return the estimator of the loss; `mean_square` is that of ‖x‖."""
        loss = self.loss
        if loss not in LIMITS:
            raise InputError(
                f"loss is {short_repr(loss)}; expected 'bridge', 'crf' or 'perceptron'"
            )
        self._warn_of_ignored()
        common: dict[str, Any] = {
            "n_jobs": self.n_jobs,
            "verbose": self.verbose,
            "random_state": self.random_state,
        }
        limit: dict[str, Any] = {}
        if self.max_iterations is not None:
            limit[LIMITS[loss]] = self.max_iterations
        if loss == "perceptron":
            return StructuredPerceptron(model, **limit, **common)
        if self.C == "auto":
            common["lam"] = "auto"
        elif self.C is not None:
            common["C"] = self.C
        elif loss == "bridge":
            # the default of SVM-light: the same at every scale and number of features
            common["C"] = 1.0 / mean_square if mean_square > 0 else 1.0
        else:
            c2 = 1.0 if self.c2 is None else self.c2
            common["C"] = 0.5 / check_positive(c2, "c2", 1e100)
        if loss == "crf":
            return StructuredCRF(model, tol=self.tol, **limit, **common)
        algorithm = Algorithm(tol=self.tol, eta=self.tol, **limit)
        return StructuredSVM(model, loss=loss, algorithm=algorithm, **common)

    def _warn_of_ignored(self) -> None:
        """Warn of CRFsuite's parameters that are set and have no effect."""
        names = ["algorithm", "c1"]
        if self.loss != "crf":
            names.append("c2")
        ignored = [name for name in names if getattr(self, name)]
        if ignored:
            warnings.warn(
                f"{' and '.join(ignored)} of CRFsuite have no effect with the loss "
                f"{self.loss!r}",
                UserWarning,
                stacklevel=4,
            )

    def predict(
        self,
        X: Sequence[Sentence],
        *,
        fixed: Sequence[Labels | None] | None = None,
    ) -> list[list[str]]:
        """Return the best labels of each sentence.

        Parameters
        ----------
        X : sequence of sentences
        fixed : sequence of sequences, optional
            Labels, or sets of labels, that the caller knows; None for the rest. The
            best labels are among those that agree.
        """
        rows = self._transform(X)
        if fixed is None:
            return [labels.tolist() for labels in self.estimator_.predict(rows)]
        check_lengths(X, fixed)
        model: Any = self.estimator_.model_
        task = ForestTask(model, rows, _convert_labels(fixed))
        states, _ = task.best_states(self.estimator_.coef_, Space.COMPATIBLE, 0.0)
        labels = np.split(model.labels.decode(states), task.offsets[1:-1])
        return [sentence.tolist() for sentence in labels]

    def predict_single(
        self, xseq: Sentence, *, fixed: Labels | None = None
    ) -> list[str]:
        """Return the best labels of one sentence."""
        return self.predict([xseq], fixed=None if fixed is None else [fixed])[0]

    def predict_marginals(self, X: Sequence[Sentence]) -> list[list[dict[str, float]]]:
        """Return the probability of each label of each token.

        Those of "crf" are the model's own. Another loss has none before `calibrate`.
        """
        probabilities = self.estimator_.predict_proba(self._transform(X))
        classes = self.classes_
        return [
            [dict(zip(classes, token, strict=True)) for token in sentence.tolist()]
            for sentence in probabilities
        ]

    def predict_marginals_single(self, xseq: Sentence) -> list[dict[str, float]]:
        """Return the probability of each label of each token of one sentence."""
        return self.predict_marginals([xseq])[0]

    def calibrate(self, X: Sequence[Sentence], y: Sequence[Labels | None]) -> Self:
        """Learn from held-out folds of X and y how far margins can be trusted."""
        self.estimator_.calibrate(self._transform(X), _convert_labels(y))
        return self

    def suggest(
        self, X: Sequence[Sentence], n: int, y: Sequence[Labels | None] | None = None
    ) -> list[Query]:
        """Suggest the n tokens to annotate next: those with the smallest margins.

        Parameters
        ----------
        X : sequence of sentences
        n : int
        y : sequence of sequences, optional
            Tokens with a label here are left out.
        """
        annotations = None if y is None else _convert_labels(y)
        queries: list[Query]
        queries = self.estimator_.suggest(self._transform(X), n, annotations)
        return queries

    def score(self, X: Sequence[Sentence], y: Sequence[Labels | None]) -> float:
        """Return the fraction of annotated tokens that are labeled right."""
        check_lengths(X, y)
        n_right = 0
        n_annotated = 0
        for labels, annotation in zip(self.predict(X), y, strict=True):
            if annotation is None:
                continue
            for label, known in zip(labels, annotation, strict=True):
                if known is not None:
                    candidates = known if isinstance(known, Set) else {known}
                    n_right += label in candidates
                    n_annotated += 1
        if not n_annotated:
            raise InputError("nothing is annotated in y, so there is no score")
        return n_right / n_annotated

    def _transform(self, X: Sequence[Sentence]) -> list[Any]:
        """Return the sparse rows of the sentences."""
        check_fitted(self, "estimator_")
        return self.features_.transform(X)

    @property
    def classes_(self) -> list[str]:
        """The labels."""
        labels: list[str] = self.estimator_.classes_.tolist()
        return labels

    @property
    def attributes_(self) -> list[str]:
        """The features."""
        return list(self.features_.columns_)

    @property
    def state_features_(self) -> dict[tuple[str, str], float]:
        """The weight of each feature and label, as {(feature, label): weight}."""
        weights = self.estimator_.weights_["input"]
        names = self.attributes_
        return {
            (names[column], self.classes_[state]): float(weights[state, column])
            for state, column in zip(*np.nonzero(weights), strict=True)
        }

    @property
    def transition_features_(self) -> dict[tuple[str, str], float]:
        """The weight of each pair of neighboring labels that is not forbidden."""
        weights = self.estimator_.weights_["transition"]
        classes = self.classes_
        forbidden = set(self.forbidden_)
        return {
            (before, after): float(weights[i, j])
            for i, before in enumerate(classes)
            for j, after in enumerate(classes)
            if (before, after) not in forbidden
        }

    @property
    def size_(self) -> int:
        """Size of the weights in bytes."""
        return int(self.estimator_.coef_.nbytes)


def _convert_labels(y: Iterable[Any]) -> list[Any]:
    """Return the labels of each sentence as a list; None stays."""
    return [
        labels if labels is None or isinstance(labels, np.ndarray) else list(labels)
        for labels in y
    ]
