"""Flat classification: one label for each feature row, possibly ambiguous."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from clew.errors import InputError
from clew.learning.task import Argmax, Array, Indices, Mask, Matrix, Space
from clew.models.base import (
    MAX_TABLE,
    MAX_WEIGHTS,
    Model,
    best_alternative,
    check_size,
    check_weights,
    identity,
    n_examples,
)
from clew.models.examples import Annotation, Examples, Input
from clew.models.fingerprint import fingerprint, fingerprint_arrays
from clew.models.labels import Classes, ClassWeight, Label, LabelSpace
from clew.models.node_features import Inputs, as_matrix
from clew.models.node_task import NodeTask
from clew.models.weight_blocks import Block, input_names
from clew.utils.validation import is_number


class Multiclass(Model):
    """x is a feature row; y is one label. X is (n, F), dense or sparse.

    ⟨w, φ(x, y)⟩ = U(y)·x + b(y); w is (S, F + 1) row by row, the last of each row being b (S, F without `bias`).
    Δ(y*, y) = 1 where y is not among the candidates, else 0. Y has labels, candidate sets and unknown markers, see
    `clew.models.labels.LabelSpace`, or is a boolean (n, S) matrix of candidates.
    """

    of_rows = True
    domain_names: tuple[str, ...] = ("classes_", "n_inputs_")
    classes_: list[Label]
    n_inputs_: int

    def __init__(
        self,
        classes: Classes | None = None,
        n_classes: int | None = None,
        bias: bool = True,
    ) -> None:
        self.classes = classes
        self.n_classes = n_classes
        self.bias = bias

    @property
    def labels(self) -> LabelSpace:
        """The labels."""
        if not hasattr(self, "classes_"):
            raise InputError(
                "this Multiclass does not know its classes yet: call prepare(X, Y)"
            )
        return LabelSpace(tuple(self.classes_))

    @property
    def n_features(self) -> int:  # type: ignore[override]  # follows from the domain, nobody sets it
        """The number of weights: S·F, or S·(F + 1) with bias."""
        return self.labels.n_states * (self.n_inputs_ + bool(self.bias))

    def learn_domain(self, X: Examples, Y: Examples) -> Self:
        """A copy that knows the classes and the number of input features."""
        matrix = as_matrix(X, None)
        check_rows(matrix, Y)
        model = copy.copy(self)
        n_states = (
            max(0, min(self.n_classes or 0, 10**18)) if is_number(self.n_classes) else 0
        )
        check_size(
            float(n_states * (matrix.shape[1] + 1.0)),
            MAX_WEIGHTS,
            f"a Multiclass with {n_states} classes: its weights",
        )
        check_size(
            float(n_states * float(matrix.shape[0])),
            MAX_TABLE,
            f"a Multiclass with {n_states} classes: its scores",
        )
        model.classes_ = list(LabelSpace.of([Y], self.classes, self.n_classes).classes)
        model.n_inputs_ = int(matrix.shape[1])
        return model

    def check_inputs(self, X: Examples) -> None:
        """Refuse rows that are not finite."""
        self._inputs(X)

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and classes; in w, the bias of a class follows its inputs."""
        labels, inputs = (
            tuple(map(str, self.classes_)),
            tuple(input_names(names, self.n_inputs_)),
        )
        places = np.arange(self.n_features, dtype=np.intp).reshape(len(labels), -1)
        blocks = [Block("input", (labels, inputs), places[:, : len(inputs)])]
        return blocks + [Block("bias", (labels,), places[:, -1])] * bool(self.bias)

    def with_class_weight(
        self, class_weight: ClassWeight, Y: Mask
    ) -> tuple[Self, Array | None]:
        """Weights of the examples: those of their classes, the mean where there are several candidates."""
        weights = self.labels.class_weights(class_weight, Y)
        return self, Y @ weights / Y.sum(axis=1)

    def parsed(self, X: Examples, Y: Examples) -> Mask:
        """The annotations as one boolean (n, S) matrix of candidates."""
        return self.labels.allowed(Y, n_examples(X), lambda row: (row, None))

    def count_parts(self, Y: Examples) -> Indices:
        """(n,) 1 where some class is wrong, else 0."""
        return np.asarray(
            ~self.labels.allowed(Y, n_examples(Y, "Y")).all(axis=1), dtype=np.intp
        )

    def _inputs(self, X: Examples) -> Inputs:
        """The checked rows of X."""
        matrix = as_matrix(X, None)
        if matrix.shape[1] != self.n_inputs_:
            raise InputError(
                f"X has {matrix.shape[1]} features, where {self.n_inputs_} are expected"
            )
        return Inputs.of(matrix, lambda row: (row, None))

    def task(self, X: Examples, Y: Examples, n_jobs: int = 1) -> MulticlassTask:  # noqa: ARG002  # one product is all the work
        """All examples as one vectorised Task."""
        check_rows(as_matrix(X, None), Y)
        inputs = self._inputs(X)
        task = MulticlassTask(
            self, inputs, self.labels.allowed(Y, inputs.n_rows, lambda row: (row, None))
        )
        task.keys = task.fingerprints()
        return task

    def predict(self, X: Examples, w: Array, n_jobs: int = 1) -> list[Label]:  # noqa: ARG002
        """The best label for each row."""
        task = self._unannotated(X)
        states, _ = task.best_states(w, Space.ALL, 0.0, np.arange(task.n_examples))
        return [self.classes_[state] for state in states]

    def parts(self, x: Input, y: Label) -> list[Label]:  # noqa: ARG002
        """The label is the one part."""
        return [y]

    def candidates(self, x: Input, annotation: Annotation) -> Mask:  # noqa: ARG002
        """(1, S) the classes that the annotation allows."""
        return self._allowed(annotation)[None]

    def max_marginals(self, X: Examples, w: Array, n_jobs: int = 1) -> Array:  # noqa: ARG002
        """(n, S) the score of each class, less the best one."""
        scores = self._unannotated(X).scores(w)
        return np.asarray(scores - scores.max(axis=1, keepdims=True))

    def margins(self, X: Examples, w: Array, n_jobs: int = 1) -> Array:
        """(n,) how far the second best class of each row lies below the best."""
        return best_alternative(self.max_marginals(X, w, n_jobs))

    def marginals(self, X: Examples, w: Array) -> Array:
        """(n, S) P(y = s) ∝ exp(score of s): logistic regression's."""
        return np.asarray(softmax(self._unannotated(X).scores(w), axis=1))

    def _unannotated(self, X: Examples) -> MulticlassTask:
        """All rows, of which nothing is known."""
        n_states, inputs = self.labels.n_states, self._inputs(X)
        return MulticlassTask(
            self, inputs, np.ones((inputs.n_rows, n_states), dtype=bool)
        )

    def _one(self, x: Input, annotation: Annotation) -> MulticlassTask:
        """One example as a task."""
        row: Matrix = x if sp.issparse(x) else np.asarray(x)
        return MulticlassTask(
            self, self._inputs(row.reshape(1, -1)), self._allowed(annotation)[None]
        )

    def _allowed(self, annotation: Annotation) -> Mask:
        """(S,) the states that one annotation allows."""
        return self.labels.allowed([annotation], place=lambda _: (None, None)).reshape(
            -1
        )

    def joint_features(self, x: Input, y: Label) -> Array:
        """(d,) x, and 1 for the bias, in the block of y."""
        states = self.labels.encode([y])
        return np.asarray(
            self._one(x, None)
            .rows_of(states, np.ones(1, dtype=bool), np.arange(1))
            .features.toarray()[0]
        )

    def loss(self, annotation: Annotation, y: Label) -> float:
        """Δ(y*, y) = [y is no candidate]."""
        return float(self.mistakes(annotation, y))

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Label | None:
        """The best label in `space`; None where Y° is empty."""
        states, found = self._one(x, annotation).best_states(
            w, space, loss_weight, np.arange(1)
        )
        return self.classes_[states[0]] if found[0] else None

    def outputs(self, x: Input) -> Iterator[Label]:  # noqa: ARG002
        """Every class."""
        return iter(self.classes_)

    def listed(self, X: Examples, Y: Examples) -> tuple[Matrix, Indices, Mask]:
        """φ of every class for every row (n·S, d), the row of each, and whether it is a candidate: for CLPL (Eq. 2)."""
        task, n_states = self.task(X, Y), self.labels.n_states
        example_of = np.repeat(np.arange(task.n_examples), n_states)
        states = np.tile(np.arange(n_states), task.n_examples)
        every = task.rows_of(states, np.ones(len(states), dtype=bool), example_of)
        return every.features, example_of, every.loss == 0

    def n_parts(self, annotation: Annotation) -> int:
        """1 where some class is wrong, else 0."""
        return int(not self._allowed(annotation).all())

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """None where the one part is marked."""
        if len(parts) != self.n_parts(annotation):
            raise InputError(
                f"the mask has {len(parts)} entries for {self.n_parts(annotation)} annotated parts"
            )
        return None if np.any(parts) else annotation

    def mistakes(self, annotation: Annotation, y: Label) -> int:
        """1 where y is no candidate, else 0."""
        return int(not self._allowed(annotation)[self.labels.encode([y])[0]])


def check_rows(matrix: Matrix, Y: Examples) -> None:
    """As many labels as rows, and at least one."""
    n = matrix.shape[0]
    if n == 0:
        raise InputError("there are no examples: X is empty")
    if not hasattr(Y, "__len__") or len(Y) != n:
        raise InputError(f"X has {n} examples; Y must be a sequence of as many labels")


class MulticlassTask(NodeTask):
    """Rows with candidate classes. Rows that are not `counted` have no features."""

    def __init__(self, model: Multiclass, inputs: Inputs, allowed: Mask) -> None:
        self.model, self.inputs, self.allowed = model, inputs, allowed
        self.n_examples, self.n_features = len(allowed), model.n_features
        self.counted: Mask = np.ones(self.n_examples, dtype=bool)

    def fingerprints(self) -> list[bytes]:
        """A fingerprint of each row and its candidates."""
        common = fingerprint(*identity(self.model))
        contents = self.inputs.contents(np.arange(self.n_examples + 1))
        rows = zip(contents, self.allowed, self.counted[:, None], strict=True)
        return [
            fingerprint_arrays(common, *content, allowed, counted)
            for content, allowed, counted in rows
        ]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """The best classes in `space`."""
        every = np.arange(self.n_examples)
        chosen = every if examples is None else every[np.asarray(examples)]
        return self.rows_of(*self.best_states(w, space, loss_weight, chosen), chosen)

    def scores(self, w: Array, chosen: Indices | None = None) -> Array:
        """(n, S) ⟨w, φ⟩ of every class of the chosen rows."""
        chosen = np.arange(self.n_examples) if chosen is None else chosen
        blocks = check_weights(w, self.n_features).reshape(self.allowed.shape[1], -1)
        n_inputs = self.inputs.n_inputs
        scores = self.inputs.scores(blocks[:, :n_inputs], chosen)
        if self.model.bias:
            scores += blocks[:, n_inputs]
        scores[~self.counted[chosen]] = 0.0
        return scores

    def log_partition(
        self, w: Array, space: Space, share: Array, examples: Indices | None = None
    ) -> tuple[Array, Array]:
        """(n,) log Σ over `space` of exp⟨w, φ⟩, and (d,) its gradient summed with `share`: Σ_n share_n E[φ_n]."""
        chosen = (
            np.arange(self.n_examples) if examples is None else np.asarray(examples)
        )
        scores = self.scores(w, chosen)
        if space is Space.COMPATIBLE:
            scores[~self.allowed[chosen]] = -np.inf
        probability = softmax(scores, axis=1) * share[:, None]
        gradient = [self.inputs.weighted_sum(probability, chosen)]
        gradient += [probability.sum(axis=0)[:, None]] * bool(self.model.bias)
        return np.asarray(logsumexp(scores, axis=1)), np.hstack(gradient).ravel()

    def best_states(
        self, w: Array, space: Space, loss_weight: float, chosen: Indices
    ) -> tuple[Indices, Mask]:
        """The class of each chosen row (the lowest among equals), and the rows for which `space` is not empty."""
        scores, allowed = self.scores(w, chosen), self.allowed[chosen]
        if space is Space.COMPATIBLE:
            scores[~allowed] = -np.inf
        else:
            scores[~allowed] += loss_weight
        found: Mask = np.ones(len(chosen), dtype=bool)
        if space is Space.INCOMPATIBLE:
            scores[allowed] = -np.inf
            found = np.asarray(~allowed.all(axis=1))
        return scores.argmax(axis=1), found

    def rows_of(self, states: Indices, found: Mask, chosen: Indices) -> Argmax:
        """φ and Δ of given classes of the chosen rows."""
        inputs, bias = self.inputs, int(self.model.bias)
        counts = np.where(
            found & self.counted[chosen], np.diff(inputs.begins)[chosen] + bias, 0
        )
        indptr = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        is_bias = (
            within == np.repeat(counts, counts) - 1
            if bias
            else np.zeros(indptr[-1], dtype=bool)
        )
        data = np.ones(indptr[-1])
        columns = np.full(indptr[-1], inputs.n_inputs)
        data[~is_bias] = inputs.data[
            (np.repeat(inputs.begins[chosen], counts) + within)[~is_bias]
        ]
        columns[~is_bias] = inputs.columns[
            (np.repeat(inputs.column_begins[chosen], counts) + within)[~is_bias]
        ]
        columns += np.repeat(states * (inputs.n_inputs + bias), counts)
        features = sp.csr_array(
            (data, columns, indptr), shape=(len(chosen), self.n_features)
        )
        return Argmax(
            features,
            np.where(found, ~self.allowed[chosen, states], False).astype(float),
            found,
        )
