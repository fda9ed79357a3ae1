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
)
from clew.models.examples import (
    Annotation,
    Examples,
    Input,
    n_examples,
)
from clew.models.labels import Classes, ClassWeight, Label, LabelSpace
from clew.models.node_features import NodeFeatures, as_matrix
from clew.models.nodes import NodeTask
from clew.models.weight_blocks import Block, input_names
from clew.utils.validation import is_number


class Multiclass(Model):
    """x is a feature row; y is one label. X is (n, F), dense or sparse.

    ⟨w, φ(x, y)⟩ = U(y)·x + b(y); w is (S, F + 1) row by row, the last of each row
    being b ((S, F) without `bias`). Δ(y*, y) = 1 if y is no candidate, else 0. Y has
    labels, candidate sets and unknown markers, see `clew.models.labels.LabelSpace`, or
    is a boolean (n, S) matrix of candidates.

    Parameters
    ----------
    classes : sequence of labels, optional
        The classes; by default those that are annotated.
    n_classes : int, optional
        Their number.
    bias : bool
        Whether there is a weight of each class.
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
    def n_features(self) -> int:  # type: ignore[override]  # follows from the domain
        """The number of weights: S·F, or S·(F + 1) with bias."""
        return self.labels.n_states * (self.n_inputs_ + bool(self.bias))

    def learn_domain(self, X: Examples, Y: Examples) -> Self:
        """Return a copy with the classes and the number of input features."""
        matrix = as_matrix(X, None)
        check_rows(matrix, Y)
        n_rows, n_inputs = matrix.shape
        if n_inputs == 0:
            raise InputError(
                f"X has 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is "
                "required."
            )
        n_states = 0
        if is_number(self.n_classes):
            n_states = int(max(0, min(self.n_classes, 10**18)))
        name = f"a Multiclass with {n_states} classes"
        check_size(n_states * (n_inputs + 1.0), MAX_WEIGHTS, f"{name}: its weights")
        check_size(n_states * float(n_rows), MAX_TABLE, f"{name}: its scores")
        model = copy.copy(self)
        model.classes_ = list(LabelSpace.of([Y], self.classes, self.n_classes).classes)
        model.n_inputs_ = int(n_inputs)
        return model

    def check_inputs(self, X: Examples) -> None:
        """Raise an error for rows that are not finite."""
        self._encode_inputs(X)

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and classes; in w, a class' bias follows its inputs."""
        labels = tuple(map(str, self.classes_))
        inputs = tuple(input_names(names, self.n_inputs_))
        places = np.arange(self.n_features, dtype=np.intp).reshape(len(labels), -1)
        blocks = [Block("input", (labels, inputs), places[:, : len(inputs)])]
        if self.bias:
            blocks.append(Block("bias", (labels,), places[:, -1]))
        return blocks

    def with_class_weight(
        self, class_weight: ClassWeight, Y: Mask
    ) -> tuple[Self, Array | None]:
        """Return example weights: the mean weight of their candidates."""
        weights = self.labels.class_weights(class_weight, Y)
        return self, Y @ weights / Y.sum(axis=1)

    def encode_annotations(self, X: Examples, Y: Examples) -> Mask:
        """Return the annotations as one boolean (n, S) matrix of candidates."""
        return self.labels.allowed(Y, n_examples(X), lambda row: (row, None))

    def count_parts(self, Y: Examples) -> Indices:
        """(n,) 1 if not all classes are candidates, else 0."""
        allowed = self.labels.allowed(Y, n_examples(Y, "Y"))
        return np.asarray(~allowed.all(axis=1), dtype=np.intp)

    def _encode_inputs(self, X: Examples) -> NodeFeatures:
        """Return the rows of X; raise an error if they do not fit this model."""
        matrix = as_matrix(X, None)
        if matrix.shape[1] != self.n_inputs_:
            raise InputError(
                f"X has {matrix.shape[1]} features, but Multiclass is expecting "
                f"{self.n_inputs_} features as input"
            )
        return NodeFeatures.from_matrix(matrix, lambda row: (row, None))

    def task(
        self,
        X: Examples,
        Y: Examples,
        n_jobs: int = 1,  # noqa: ARG002
    ) -> MulticlassTask:
        """Return all examples as one vectorized Task."""
        check_rows(as_matrix(X, None), Y)
        features = self._encode_inputs(X)
        allowed = self.labels.allowed(Y, features.n_rows, lambda row: (row, None))
        task = MulticlassTask(self, features, allowed)
        task.keys = task.fingerprints()
        return task

    def predict(
        self,
        X: Examples,
        w: Array,
        n_jobs: int = 1,  # noqa: ARG002
    ) -> list[Label]:
        """Return the best label for each row."""
        task = self._unannotated_task(X)
        states, _ = task.best_states(w, Space.ALL, 0.0, np.arange(task.n_examples))
        return [self.classes_[state] for state in states]

    def candidates(self, x: Input, annotation: Annotation) -> Mask:  # noqa: ARG002
        """(1, S) the classes that the annotation allows."""
        return self.allowed(annotation)

    def max_marginals(
        self,
        X: Examples,
        w: Array,
        n_jobs: int = 1,  # noqa: ARG002
    ) -> Array:
        """(n, S) the score of each class, less the best one."""
        scores = self._unannotated_task(X).compute_scores(w)
        return np.asarray(scores - scores.max(axis=1, keepdims=True))

    def margins(self, X: Examples, w: Array, n_jobs: int = 1) -> Array:
        """(n,) by how much the second best class of each row is worse."""
        return best_alternative(self.max_marginals(X, w, n_jobs))

    def marginals(self, X: Examples, w: Array) -> Array:
        """(n, S) P(y = s) ∝ exp(score of s), as in logistic regression."""
        return np.asarray(softmax(self._unannotated_task(X).compute_scores(w), axis=1))

    def _unannotated_task(self, X: Examples) -> MulticlassTask:
        """Return the rows as a task in which nothing is annotated."""
        n_states = self.labels.n_states
        features = self._encode_inputs(X)
        allowed = np.ones((features.n_rows, n_states), dtype=bool)
        return MulticlassTask(self, features, allowed)

    def _single_task(self, x: Input, annotation: Annotation) -> MulticlassTask:
        """Return one example as a task."""
        row: Matrix = x if sp.issparse(x) else np.asarray(x)
        features = self._encode_inputs(row.reshape(1, -1))
        return MulticlassTask(self, features, self.allowed(annotation))

    def allowed(self, annotation: Annotation, n_parts: int | None = None) -> Mask:  # noqa: ARG002
        """(1, S) the classes that one annotation allows."""
        allowed = self.labels.allowed([annotation], place=lambda _: (None, None))
        return allowed.reshape(1, -1)

    def encode_output(self, y: Label) -> Indices:
        """(1,) the state of the label."""
        return self.labels.encode([y])

    def joint_features(self, x: Input, y: Label) -> Array:
        """(d,) x, and 1 for the bias, in the block of y."""
        states = self.encode_output(y)
        task = self._single_task(x, None)
        answer = task.describe(states, np.ones(1, dtype=bool), np.arange(1))
        return np.asarray(answer.features.toarray()[0])

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Label | None:
        """Return the best label in `space`; None where Y° is empty."""
        task = self._single_task(x, annotation)
        states, found = task.best_states(w, space, loss_weight, np.arange(1))
        return self.classes_[states[0]] if found[0] else None

    def outputs(self, x: Input) -> Iterator[Label]:  # noqa: ARG002
        """Every class."""
        return iter(self.classes_)

    def listed(self, X: Examples, Y: Examples) -> tuple[Matrix, Indices, Mask]:
        """List every class for every row, for CLPL (Eq. 2).

        Returns
        -------
        features : sparse matrix of shape (n · S, d)
        example_of : ndarray of shape (n · S,)
        is_compatible : ndarray of shape (n · S,)
        """
        task = self.task(X, Y)
        n_states = self.labels.n_states
        example_of = np.repeat(np.arange(task.n_examples), n_states)
        states = np.tile(np.arange(n_states), task.n_examples)
        found = np.ones(len(states), dtype=bool)
        answer = task.describe(states, found, example_of)
        return answer.features, example_of, answer.loss == 0

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """None if the one part is marked."""
        hidden = super().hide(annotation, parts)
        return None if np.any(parts) else hidden


def check_rows(matrix: Matrix, Y: Examples) -> None:
    """Raise an error unless there are as many labels as rows, at least one."""
    n = matrix.shape[0]
    if n == 0:
        raise InputError("there are no examples: X is empty")
    if not hasattr(Y, "__len__") or len(Y) != n:
        raise InputError(f"X has {n} examples; Y must be a sequence of as many labels")


class MulticlassTask(NodeTask):
    """Rows with candidate classes; rows that are not `counted` have no features."""

    model: Multiclass

    def __init__(
        self, model: Multiclass, features: NodeFeatures, allowed: Mask
    ) -> None:
        self.model = model
        self.features = features
        self.allowed = allowed
        self.n_examples = len(allowed)
        self.offsets = np.arange(self.n_examples + 1)
        self.n_features = model.n_features
        self.counted: Mask = np.ones(self.n_examples, dtype=bool)
        self.parent = np.full(self.n_examples, -1)

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return the best classes in `space`."""
        chosen = self._resolve_examples(examples)
        states, found = self.best_states(w, space, loss_weight, chosen)
        return self.describe(states, found, chosen)

    def compute_scores(self, w: Array, examples: Indices | None = None) -> Array:
        """(n, S) ⟨w, φ⟩ of every class of the chosen rows."""
        chosen = self._resolve_examples(examples)
        blocks = check_weights(w, self.n_features).reshape(self.allowed.shape[1], -1)
        n_inputs = self.features.n_inputs
        scores = self.features.compute_scores(blocks[:, :n_inputs], chosen)
        if self.model.bias:
            scores += blocks[:, n_inputs]
        scores[~self.counted[chosen]] = 0.0
        return scores

    def log_loss(
        self, w: Array, share: Array, examples: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return -log P(Y* | x), and its weighted gradient.

        Returns
        -------
        losses : ndarray of shape (n_examples,)
        gradient : ndarray of shape (d,)
        """
        chosen = self._resolve_examples(examples)
        scores = self.compute_scores(w, chosen)
        compatible = np.where(self.allowed[chosen], scores, -np.inf)
        losses = logsumexp(scores, axis=1) - logsumexp(compatible, axis=1)
        excess = softmax(scores, axis=1) - softmax(compatible, axis=1)
        return losses, self._sum_features(excess * share[:, None], chosen)

    def curvature(self, share: Array, examples: Indices | None = None) -> Array:
        """Return (d,) the sum of φ² at classes of equal probability, times 1 − 1/S."""
        chosen = self._resolve_examples(examples)
        n_states = self.allowed.shape[1]
        uniform = share * (1.0 - 1.0 / n_states) / n_states
        features = self.features._replace(data=self.features.data**2)
        weights = np.repeat(uniform[:, None], n_states, axis=1)
        return self._sum_features(weights, chosen, features)

    def _sum_features(
        self, weights: Array, chosen: Indices, features: NodeFeatures | None = None
    ) -> Array:
        """Return (d,) the sum of φ with these weights (n, S) of the classes.

        `features` are taken in place of the task's.
        """
        features = features or self.features
        blocks = [features.sum_weighted(weights, chosen)]
        if self.model.bias:
            blocks.append(weights.sum(axis=0)[:, None])
        return np.hstack(blocks).ravel()

    def best_states(
        self, w: Array, space: Space, loss_weight: float, chosen: Indices
    ) -> tuple[Indices, Mask]:
        """Return the class of each row, the lowest among equals.

        Returns
        -------
        states : ndarray of shape (n,)
        found : ndarray of shape (n,)
            Where `space` is not empty.
        """
        scores = self.compute_scores(w, chosen)
        allowed = self.allowed[chosen]
        found: Mask = np.ones(len(chosen), dtype=bool)
        if space is Space.COMPATIBLE:
            scores[~allowed] = -np.inf
        else:
            scores[~allowed] += loss_weight
        if space is Space.INCOMPATIBLE:
            scores[allowed] = -np.inf
            found = np.asarray(~allowed.all(axis=1))
        return scores.argmax(axis=1), found

    def describe(self, states: Indices, found: Mask, chosen: Indices) -> Argmax:
        """Return φ and Δ of given classes of the chosen rows."""
        features = self.features
        n_bias = int(self.model.bias)
        width = features.n_inputs + n_bias
        has_features = found & self.counted[chosen]
        n_entries = np.diff(features.begins)[chosen] + n_bias
        counts = np.where(has_features, n_entries, 0)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(indptr[-1]) - np.repeat(indptr[:-1], counts)
        is_input = within < np.repeat(counts, counts) - n_bias
        entry = np.repeat(features.begins[chosen], counts) + within
        column = np.repeat(features.column_begins[chosen], counts) + within
        data = np.ones(indptr[-1])
        data[is_input] = features.data[entry[is_input]]
        columns = np.full(indptr[-1], features.n_inputs)
        columns[is_input] = features.columns[column[is_input]]
        columns += np.repeat(states * width, counts)
        shape = (len(chosen), self.n_features)
        rows = sp.csr_array((data, columns, indptr), shape=shape)
        is_wrong = found & ~self.allowed[chosen, states]
        return Argmax(rows, is_wrong.astype(float), found)
