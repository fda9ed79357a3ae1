"""Base of models with a label at each node: domain, task loss, parts, and task."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask, Matrix, Task
from clew.models.base import (
    MAX_TABLE,
    MAX_WEIGHTS,
    Model,
    check_size,
    find_annotated,
    identity,
)
from clew.models.examples import (
    Annotation,
    Input,
    Output,
    check_lengths,
    fingerprint,
    fingerprint_arrays,
)
from clew.models.labels import Classes, Label, LabelSpace, is_candidate_mask, is_flat
from clew.models.node_features import NodeFeatures, as_matrix, place_in
from clew.models.weight_blocks import Block, input_names, make_blocks
from clew.utils.validation import is_number, short_repr

SMALLEST_SCALE = 1e-30
LARGEST_SCALE = 1e30
"""Sizes of label features between which sums of squares are finite."""


class NodeModel(Model):
    """Base of the models whose output is a label for each node of x.

    A subclass has `node_features`, `n_edge_features`, `joint_features`, `argmax` and
    `max_marginals`, and adds its edges to `blocks`. Features of labels and edges are
    multiplied by `column_scale`. Outputs hold labels; weights and `allowed` are by
    state, the index of a label in `labels`.

    Δ(y*, y) counts the annotated nodes whose label is no candidate, divided by the
    number of annotated nodes if `normalize`. A node is annotated if its candidates are
    not all the classes.
    """

    domain_names: tuple[str, ...] = (
        "classes_",
        "n_inputs_",
        "label_scale_",
        "class_weight_",
    )
    class_weight_: list[float] | None = None
    """Cost of a mistake at a node of each class; None for 1."""
    classes_: list[Label]
    n_inputs_: int
    label_scale_: float

    def __init__(
        self,
        n_states: int | None = None,
        classes: Classes | None = None,
        bias: bool = True,
        normalize: bool = False,
        label_scale: float | str = "auto",
    ) -> None:
        self.n_states = n_states
        self.classes = classes
        self.bias = bias
        self.normalize = normalize
        # Size of the features that depend on labels alone; "auto" is the root mean
        # square norm of an input row. Under ‖w‖² a weight is the cheaper the larger
        # its feature: with size 1 beside pixels of norm 5, transitions would be
        # regularized 25 times as hard as the inputs, and the result would depend on
        # the unit of the inputs.
        self.label_scale = label_scale

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(T, F) the features of x's nodes; `example` is for error messages."""
        raise NotImplementedError

    def n_edge_features(self, n_states: int) -> int:
        """Number of features after those of the nodes."""
        raise NotImplementedError

    @property
    def labels(self) -> LabelSpace:
        """The labels of a node."""
        if not hasattr(self, "classes_"):
            raise InputError(
                f"this {type(self).__name__} does not know its classes yet: call "
                "prepare(X, Y)"
            )
        return LabelSpace(tuple(self.classes_))

    @property
    def n_features(self) -> int:  # type: ignore[override]  # follows from the domain
        """The number of weights: S·F (unary) + S (bias) + the features of the edges."""
        n_states = self.labels.n_states
        n_node_features = n_states * (self.n_inputs_ + bool(self.bias))
        return n_node_features + self.n_edge_features(n_states)

    def learn_domain(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """Return a copy with the classes, the number of inputs and the label scale."""
        check_lengths(X, Y)
        model = copy.copy(self)
        matrices = [as_matrix(self.node_features(x, i), i) for i, x in enumerate(X)]
        model.n_inputs_ = int(matrices[0].shape[1])
        self._check_states(self.n_states, matrices)
        model.classes_ = list(LabelSpace.of(Y, self.classes, self.n_states).classes)
        self._check_states(len(model.classes_), matrices)
        model.label_scale_ = resolve_label_scale(self.label_scale, matrices)
        return model

    def _check_states(self, n_states: object, matrices: Sequence[Matrix]) -> None:
        """Raise an error if weights or scores would not fit into memory."""
        if not is_number(n_states) or n_states <= 1:
            return
        S = float(min(n_states, 10**18))
        name = f"a {type(self).__name__} with {short_repr(n_states)} states"
        n_weights = S * matrices[0].shape[1] + S * S
        check_size(n_weights, MAX_WEIGHTS, f"{name}: its weights")
        n_nodes = sum(matrix.shape[0] for matrix in matrices)
        check_size(S * n_nodes, MAX_TABLE, f"{name}: its scores")

    def encode_annotations(
        self, X: Sequence[Input], Y: Sequence[Annotation]
    ) -> list[Mask]:
        """Return each annotation as a boolean (T, S) matrix of allowed states."""
        lengths = [self._count_nodes(x, i) for i, x in enumerate(X)]
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
        return np.split(stack_allowed(self.labels, Y, offsets), offsets[1:-1])

    def _count_nodes(self, x: Input, example: int | None = None) -> int:
        """Return the number of nodes of x."""
        return int(as_matrix(self.node_features(x, example), example).shape[0])

    @property
    def column_scale(self) -> Array:
        """(d,) the size of each feature: 1 for inputs, `label_scale_` for others."""
        scale = np.full(self.n_features, self.label_scale_)
        scale[: self.labels.n_states * self.n_inputs_] = 1.0
        return scale

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and labels."""
        labels = [str(label) for label in self.classes_]
        parts: list[tuple[str, Sequence[Sequence[str]]]] = []
        parts.append(("input", [labels, input_names(names, self.n_inputs_)]))
        if self.bias:
            parts.append(("bias", [labels]))
        return make_blocks(*parts)

    def node_costs(self, allowed: Mask) -> Array:
        """(T,) cost of a mistake at each node: the mean weight of its candidates."""
        if self.class_weight_ is None:
            return np.ones(len(allowed))
        n_candidates = np.maximum(allowed.sum(axis=1), 1)
        return np.asarray(allowed @ np.array(self.class_weight_) / n_candidates)

    def outputs(self, x: Input) -> Iterator[NDArray[np.generic]]:
        """All S^T labelings."""
        space = self.labels
        for states in product(range(space.n_states), repeat=self._count_nodes(x)):
            yield space.decode(np.array(states, dtype=np.intp))

    def allowed(self, annotation: Annotation, n_parts: int | None = None) -> Mask:
        """(T, S) the states that an annotation allows."""
        return self.labels.allowed(annotation, n_parts)

    def encode_output(self, y: Output) -> Indices:
        """(T,) the states of the labels."""
        return self.labels.encode(y)

    def loss(self, annotation: Annotation, y: Output) -> float:
        """Δ(y*, y): the cost of wrong annotated nodes (/ that of all annotated)."""
        states = self.encode_output(y)
        allowed = self.allowed(annotation, len(states))
        costs = self.node_costs(allowed)
        loss = float(costs[~allowed[np.arange(len(states)), states]].sum())
        if self.normalize and loss:
            return loss / float(costs[find_annotated(allowed)].sum())
        return loss

    def candidates(self, x: Input, annotation: Annotation) -> Mask:
        """(T, S) the states that the annotation allows at each node."""
        return self.allowed(annotation, self._count_nodes(x))


def resolve_label_scale(label_scale: object, matrices: Sequence[Matrix]) -> float:
    """Return the size of label features; "auto" is the RMS norm of all input rows."""
    if isinstance(label_scale, str) and label_scale == "auto":
        squares = 0.0
        with np.errstate(over="ignore"):
            for matrix in matrices:
                entries = matrix.data if sp.issparse(matrix) else matrix
                squares += float(np.square(np.asarray(entries, dtype=float)).sum())
        n_rows = sum(matrix.shape[0] for matrix in matrices)
        rms = np.sqrt(squares / max(1, n_rows))
        return float(rms) if np.isfinite(rms) and rms > 0 else 1.0
    in_range = is_number(label_scale) and SMALLEST_SCALE <= label_scale <= LARGEST_SCALE
    if not in_range:
        raise InputError(
            f"label_scale is {short_repr(label_scale)}; expected a positive number "
            f"from {SMALLEST_SCALE:g} to {LARGEST_SCALE:g}, or 'auto'"
        )
    return float(label_scale)  # type: ignore[arg-type]


def stack_allowed(space: LabelSpace, Y: Sequence[Annotation], offsets: Indices) -> Mask:
    """(total T, S) the states that all annotations allow.

    Annotations of one kind are encoded at once, which is far faster.
    """
    n_nodes = int(offsets[-1])
    pairs = list(zip(Y, np.diff(offsets), strict=True))
    if pairs and all(
        is_candidate_mask(y) and y.shape == (n, space.n_states) for y, n in pairs
    ):
        return space.allowed(np.concatenate(Y), n_nodes, place_in(offsets))
    is_vector = [isinstance(y, list) or is_flat(y) for y in Y]
    if pairs and all(is_vector) and all(len(y) == n for y, n in pairs):
        kinds = {y.dtype.kind if is_flat(y) else "list" for y in Y}
        is_array = len(kinds) == 1 and is_flat(Y[0])
        labels = np.concatenate(Y) if is_array else list(chain.from_iterable(Y))
        return space.allowed(labels, n_nodes, place_in(offsets))
    rows = [np.ones((0, space.n_states), dtype=bool)]
    for i, (y, n) in enumerate(pairs):
        rows.append(space.allowed(y, int(n), lambda k, i=i: (i, k)))  # type: ignore[misc]
    return np.concatenate(rows)


class NodeTask(Task):
    """Base of the Tasks whose outputs are labels of nodes."""

    loss_zero_iff_compatible = True
    model: Model
    features: NodeFeatures
    allowed: Mask
    """(nodes, S) the labels that the annotation allows at each node."""
    counted: Mask
    """(nodes,) whether a node has features; so have edges between two such nodes."""
    offsets: Indices
    """(n_examples + 1,) the first node of each example."""
    parent: NDArray[np.int64]
    """(nodes,) -1 for a root."""

    @property
    def determined(self) -> bool:
        """Whether Y* is one output for each example."""
        return bool((self.allowed.sum(axis=1) == 1).all())

    def certainty(self, examples: Indices | None = None) -> Array:
        """(n,) mean of 1 / (number of candidates) over the annotated nodes.

        This is the probability that a compatible label is right if all candidates are
        equally likely; 1 where nothing is annotated.
        """
        n_candidates = self.allowed.sum(axis=1)
        is_annotated = n_candidates < self.allowed.shape[1]
        example_of = np.searchsorted(
            self.offsets, np.arange(len(self.allowed)), side="right"
        )
        weights = is_annotated / np.maximum(n_candidates, 1)
        n = len(self.offsets) - 1
        counts = np.bincount(example_of - 1, is_annotated, minlength=n)
        totals = np.bincount(example_of - 1, weights, minlength=n)
        certainty = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
        return certainty if examples is None else certainty[examples]

    def fingerprints(self) -> list[bytes]:
        """Return a fingerprint of each example's features and annotation."""
        common = fingerprint(*identity(self.model))
        begins = np.repeat(self.offsets[:-1], np.diff(self.offsets))
        parent = np.maximum(self.parent - begins, -1)
        keys = []
        for i, content in enumerate(self.features.iterate_examples(self.offsets)):
            nodes = slice(self.offsets[i], self.offsets[i + 1])
            annotation = parent[nodes], self.allowed[nodes], self.counted[nodes]
            keys.append(fingerprint_arrays(common, *content, *annotation))
        return keys

    def _resolve_examples(self, examples: Indices | None) -> Indices:
        """Return the examples as indices from 0 on; compiled code checks no bounds."""
        indices = np.arange(self.n_examples)
        return indices if examples is None else indices[np.asarray(examples)]

    def annotated_part(self) -> Self | None:
        """Return the same examples, without features at nodes that are open."""
        determined = self.allowed.sum(axis=1) == 1
        if not determined.any() or determined.all():
            return None
        part = copy.copy(self)
        part.counted = determined
        part.keys = part.fingerprints()
        return part
