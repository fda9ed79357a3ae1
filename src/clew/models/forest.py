"""Models on forests, and their Task, which solves all examples in compiled code."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.losses import Loss
from clew.learning.task import Argmax, Array, Indices, Mask, Space, Task
from clew.models import _forest_kernels as kernels
from clew.models._forest_kernels import Forest
from clew.models._forest_likelihood import (
    ForestAscent,
    make_step_scratch,
    make_sum_scratch,
    sum_log_losses,
)
from clew.models._forest_marginals import send_messages
from clew.models._forest_online import (
    ForestEpochs,
    ForestOracle,
    arrange_by_input,
    transpose_unary,
)
from clew.models.base import check_weights
from clew.models.examples import (
    Annotation,
    Examples,
    Input,
    Output,
    check_lengths,
)
from clew.models.labels import ClassWeight, name_place
from clew.models.node_features import NodeFeatures, stack_features
from clew.models.nodes import NodeModel, NodeTask, stack_allowed
from clew.models.weight_blocks import Block, make_blocks
from clew.parallel import map_examples, resolve_jobs

MAX_EDGE_DUALS = 2**26
"""Most numbers in single precision that stochastic ascent stores for edges."""


class ForestModel(NodeModel):
    """Base of Chain and Tree.

    w has the blocks unary (S, F), bias (S), transition (S, S) [parent, child],
    begin (S) and end (S).
    """

    boundary: bool = False

    def node_parents(
        self, x: Input, n_nodes: int, example: int | None = None
    ) -> NDArray[np.int64]:
        """(T,) the parent of each node, -1 for a root."""
        raise NotImplementedError

    def forbidden_states(self) -> Mask:
        """(S + 1, S + 1) the pairs of states that no labeling has.

        The last row is for first labels, the last column for last ones.
        """
        n_states = self.labels.n_states
        return np.zeros((n_states + 1, n_states + 1), dtype=bool)

    def n_edge_features(self, n_states: int) -> int:
        """S² transitions, and begin and end."""
        return n_states * (n_states + 2 * bool(self.boundary))

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs, labels, transitions [from, to] and ends."""
        blocks = super().blocks(names)
        labels = blocks[0].axes[0]
        parts: list[tuple[str, Sequence[Sequence[str]]]] = []
        parts.append(("transition", [labels, labels]))
        if self.boundary:
            parts.append(("begin", [labels]))
            parts.append(("end", [labels]))
        n_node_weights = sum(block.places.size for block in blocks)
        return blocks + make_blocks(*parts, begin=n_node_weights)

    def with_class_weight(
        self, class_weight: ClassWeight, Y: Examples
    ) -> tuple[Self, Array | None]:
        """Return a copy whose Δ weighs a wrong node by its annotated class."""
        model = copy.copy(self)
        weights = self.labels.class_weights(class_weight, np.concatenate(Y))
        model.class_weight_ = weights.tolist()
        return model, None

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Raise an error for features or parents that are no forest of this model."""
        self._unannotated_task(X)

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> Task:
        """Return all examples as one compiled Task."""
        task = ForestTask(self, X, Y, n_jobs)
        task.keys = task.fingerprints()
        return task

    def predict(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> list[NDArray[np.generic]]:
        """Return the best labeling for each input, argmax_y ⟨w, φ(x, y)⟩."""
        if len(X) == 0:
            return []
        task = self._unannotated_task(X, n_jobs)
        states, _ = task.best_states(w, Space.ALL, 0.0)
        return np.split(self.labels.decode(states), task.offsets[1:-1])

    def max_marginals(
        self,
        X: Sequence[Input],
        w: Array,
        n_jobs: int = 1,  # noqa: ARG002
    ) -> list[Array]:
        """For each input (T, S) what the best labeling loses if node t has label s."""
        if len(X) == 0:
            return []
        task = self._unannotated_task(X)
        return np.split(task.max_marginals(w), task.offsets[1:-1])

    def marginals(self, X: Sequence[Input], w: Array) -> list[Array]:
        """For each input (T, S) P(y_t = s) under P(y) ∝ exp⟨w, φ(x, y)⟩."""
        if len(X) == 0:
            return []
        task = self._unannotated_task(X)
        return np.split(np.exp(task.log_marginals(w)), task.offsets[1:-1])

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y): sums of x_t by label, counts of labels, transitions and ends."""
        task = self._unannotated_task([x])
        states = self.labels.encode(y, int(task.offsets[-1]))
        answer = task.describe(states, np.ones(1, dtype=bool), np.arange(1))
        return np.asarray(answer.features.toarray()[0])

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> NDArray[np.generic] | None:
        """Return the best labeling in `space`; None where Y° is empty."""
        task = ForestTask(self, [x], [annotation])
        states, found = task.best_states(w, space, loss_weight)
        return self.labels.decode(states) if found[0] else None

    def _unannotated_task(self, X: Sequence[Input], n_jobs: int = 1) -> ForestTask:
        """Return the inputs as a task in which nothing is annotated."""
        return ForestTask(self, X, [None] * len(X), n_jobs)


class ForestTask(NodeTask):
    """Partially annotated forests."""

    is_online = True
    model: ForestModel

    def __init__(
        self,
        model: ForestModel,
        X: Sequence[Input],
        Y: Sequence[Annotation],
        n_jobs: int = 1,
    ) -> None:
        check_lengths(X, Y)
        self.model = model
        self.n_jobs = resolve_jobs(n_jobs)
        self.n_examples = len(X)
        self.n_features = int(model.n_features)
        node_features = [model.node_features(x, i) for i, x in enumerate(X)]
        self.features, self.offsets = stack_features(node_features, model.n_inputs_)
        self.allowed: Mask = stack_allowed(model.labels, Y, self.offsets)
        self.counted: Mask = np.ones(len(self.allowed), dtype=bool)
        self.parent, self.order = self._stack_parents(X)
        self.costs = model.node_costs(self.allowed)
        annotated_costs = self.costs * ~self.allowed.all(axis=1)
        totals = np.add.reduceat(annotated_costs, self.offsets[:-1])
        is_divided = model.normalize and totals > 0
        self.scale: Array = np.where(is_divided, totals, 1.0)
        self.column_scale = model.column_scale
        self.forbidden = model.forbidden_states()
        if self.forbidden.any():
            check_feasible(self.allowed, self.forbidden, self.offsets)

    def _stack_parents(
        self, X: Sequence[Input]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the parents as stacked nodes, and an order with parents first."""
        lengths = np.diff(self.offsets)
        parents = [
            self.model.node_parents(x, int(n), i)
            for i, (x, n) in enumerate(zip(X, lengths, strict=True))
        ]
        local = np.concatenate(parents)
        parent = np.where(local < 0, -1, local + np.repeat(self.offsets[:-1], lengths))
        if (parent < np.arange(len(parent))).all():
            return parent, np.arange(len(parent))
        example_of = np.repeat(np.arange(self.n_examples), lengths)
        depth = self._find_depths(parent, example_of)
        return parent, np.lexsort((depth, example_of))

    def _find_depths(self, parent: Indices, example_of: Indices) -> Indices:
        """Return the number of ancestors of each node, by jumps of doubled length."""
        depth = (parent >= 0).astype(np.intp)
        ancestor = parent.copy()
        for _ in range(len(parent).bit_length()):
            has_more = ancestor >= 0
            depth[has_more] += depth[ancestor[has_more]]
            ancestor[has_more] = ancestor[ancestor[has_more]]
        if (ancestor >= 0).any():  # after more jumps than there are nodes
            node = int(ancestor[ancestor >= 0].min())
            example = int(example_of[node])
            raise InputError(
                f"example {example}: node {node - self.offsets[example]} is its own "
                "ancestor"
            )
        return depth

    @property
    def forest(self) -> Forest:
        """All examples for compiled code."""
        model = self.model
        S = self.allowed.shape[1]
        bias = S * self.features.n_inputs
        transition = bias + S * bool(model.bias)
        begin = transition + S * S
        return Forest(
            features=self.features,
            offsets=self.offsets,
            parent=self.parent,
            order=self.order,
            allowed=self.allowed,
            costs=self.costs,
            counted=self.counted,
            bias=bias if model.bias else -1,
            transition=transition,
            begin=begin if model.boundary else -1,
            end=begin + S if model.boundary else -1,
            input_stride=1,
            state_stride=self.features.n_inputs,
            label_scale=float(model.label_scale_),
            forbidden=self.forbidden,
        )

    @property
    def column_order(self) -> Indices:
        """(d,) order with the unary block as (F, S)."""
        columns = np.arange(self.n_features)
        return transpose_unary(columns, self.allowed.shape[1], self.features.n_inputs)

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return the best labelings in `space`; n_jobs threads share the examples."""
        chosen = self._resolve_examples(examples)

        def solve(part: Indices) -> Argmax:
            states, found = self.best_states(w, space, loss_weight, part)
            return self.describe(states, found, part)

        n_jobs = min(self.n_jobs, len(chosen))
        if n_jobs <= 1:
            return solve(chosen)
        answers = map_examples(solve, np.array_split(chosen, n_jobs), n_jobs)
        return Argmax(
            sp.vstack([answer.features for answer in answers], format="csr"),
            np.concatenate([answer.loss for answer in answers]),
            np.concatenate([answer.found for answer in answers]),
        )

    def nodes_of(self, chosen: Indices) -> Indices:
        """Return the stacked nodes of these examples, one example after the other."""
        lengths = np.diff(self.offsets)[chosen]
        n_before = np.cumsum(lengths) - lengths
        shift = np.repeat(self.offsets[chosen] - n_before, lengths)
        return np.asarray(np.arange(lengths.sum()) + shift)

    def best_states(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> tuple[Indices, Mask]:
        """Return the states of all nodes, and where `space` is not empty.

        Returns
        -------
        states : ndarray of shape (n_nodes,)
        found : ndarray of shape (n_examples,)
        """
        chosen = self._resolve_examples(examples)
        lengths = np.diff(self.offsets)[chosen]
        longest = int(lengths.max(initial=0))
        n_states = self.allowed.shape[1]
        penalty = loss_weight / self.scale
        if space is Space.COMPATIBLE:
            penalty = np.full(self.n_examples, -np.inf)
        states = np.empty(lengths.sum(), dtype=np.intp)
        found = np.ones(len(chosen), dtype=bool)
        weights = self._arrange_weights(w)
        scratch = kernels.make_labeling_scratch(n_states, longest)
        if space is Space.INCOMPATIBLE:
            kernels.label_incompatible_examples(
                self.forest,
                chosen,
                weights,
                penalty,
                scratch,
                np.empty((longest, n_states)),
                np.empty((longest, n_states), dtype=np.int64),
                states,
                found,
            )
        else:
            kernels.label_examples(
                self.forest, chosen, weights, penalty, scratch, states
            )
        return states, found

    def _arrange_weights(self, w: Array) -> Array:
        """Return the weights with the unary block as (F, S)."""
        w = check_weights(w, self.n_features)
        return transpose_unary(w, self.allowed.shape[1], self.features.n_inputs)

    def _compute_scores(self, w: Array, chosen: Indices) -> tuple[Array, Array]:
        """Return the scores of nodes (n, S) and of edges (S, S)."""
        S = self.allowed.shape[1]
        n_nodes = int(np.diff(self.offsets)[chosen].sum())
        scores = np.empty((n_nodes, S))
        transition = np.empty((S, S))
        kernels.score_examples(
            self.forest, chosen, self._arrange_weights(w), scores, transition
        )
        return scores, transition

    def max_marginals(self, w: Array) -> Array:
        """(nodes, S) the best score with y_v = s, less the best score."""
        chosen = np.arange(self.n_examples)
        scores, transition = self._compute_scores(w, chosen)
        nodes, _ = send_messages(
            self.forest, chosen, transition, np.empty((0, 0)), 0.0, scores
        )
        return np.asarray(nodes - nodes.max(axis=1, keepdims=True))

    def log_marginals(self, w: Array) -> Array:
        """(nodes, S) log P(y_v = s)."""
        chosen = np.arange(self.n_examples)
        scores, transition = self._compute_scores(w, chosen)
        nodes, _ = self._sum_in_log_space(scores, transition, chosen)
        return np.asarray(nodes - logsumexp(nodes, axis=1, keepdims=True))

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
        n_states = self.allowed.shape[1]
        longest = int(np.diff(self.offsets)[chosen].max(initial=0))
        losses = np.empty(len(chosen))
        gradient = np.zeros(self.n_features)
        sum_log_losses(
            arrange_by_input(self.forest),
            chosen,
            self.find_determined(),
            share,
            self._arrange_weights(w),
            make_sum_scratch(n_states, longest),
            make_step_scratch(n_states, longest),
            losses,
            gradient,
        )
        gradient = transpose_unary(gradient, self.features.n_inputs, n_states)
        failed = np.flatnonzero(np.isnan(losses))
        if len(failed):
            losses[failed], part = self._log_loss_of_extremes(
                w, share[failed], chosen[failed]
            )
            gradient += part
        return losses, gradient

    def _log_loss_of_extremes(
        self, w: Array, share: Array, chosen: Indices
    ) -> tuple[Array, Array]:
        """Return the same as `log_loss`, by sums in log space."""
        scores, transition = self._compute_scores(w, chosen)
        compatible = np.where(self.allowed[self.nodes_of(chosen)], scores, -np.inf)
        log_all, nodes, edges = self._sum_outputs(scores, transition, share, chosen)
        log_compatible, compatible_nodes, compatible_edges = self._sum_outputs(
            compatible, transition, share, chosen
        )
        nodes -= compatible_nodes
        edges -= compatible_edges
        return log_all - log_compatible, self._expect_features(nodes, edges, chosen)

    def _sum_outputs(
        self, scores: Array, transition: Array, share: Array, chosen: Indices
    ) -> tuple[Array, Array, Array]:
        """Return log Z of each example, and shares of P(y_v = s) and of edges."""
        nodes, rest = self._sum_in_log_space(scores, transition, chosen)
        example_of = np.repeat(np.arange(len(chosen)), np.diff(self.offsets)[chosen])
        shares = share[example_of]
        is_root = self.parent[self.nodes_of(chosen)] < 0
        sums: Array = logsumexp(nodes[is_root], axis=1)
        totals: Array = np.bincount(example_of[is_root], sums).astype(float)
        edges = np.zeros_like(transition)
        for row in np.flatnonzero(~is_root):
            pairs = rest[row][:, None] + transition.T + scores[row]
            edges += shares[row] * softmax(pairs)
        return totals, softmax(nodes, axis=1) * shares[:, None], edges

    def _sum_in_log_space(
        self, scores: Array, transition: Array, chosen: Indices
    ) -> tuple[Array, Array]:
        """Return the log sums of `send_messages`; `scores` become the subtrees'."""
        highest = transition.max()
        weights = np.exp(transition - highest)
        return send_messages(self.forest, chosen, transition, weights, highest, scores)

    def find_determined(self) -> Mask:
        """(n_examples,) whether every node has one allowed state."""
        is_single = self.allowed.sum(axis=1) == 1
        return np.asarray(np.logical_and.reduceat(is_single, self.offsets[:-1]))

    def ascent(
        self, lam: float, share: Array, examples: Indices | None = None
    ) -> ForestAscent | None:
        """Return stochastic steps that maximize the likelihood."""
        chosen = self._resolve_examples(examples)
        n_duals = len(chosen) * self.allowed.shape[1] ** 2
        if n_duals > MAX_EDGE_DUALS:
            return None
        return ForestAscent(self, chosen, lam, share)

    def curvature(self, share: Array, examples: Indices | None = None) -> Array:
        """Return (d,) the sum of φ² at labels of equal probability, times 1 − 1/S."""
        chosen = self._resolve_examples(examples)
        n_states = self.allowed.shape[1]
        lengths = np.diff(self.offsets)[chosen]
        uniform = np.repeat(share, lengths) * (1.0 - 1.0 / n_states) / n_states
        nodes = np.repeat(uniform[:, None], n_states, axis=1)
        edges = np.full((n_states, n_states), nodes.sum() / n_states**2)
        features = self.features._replace(data=self.features.data**2)
        total = self._expect_features(nodes, edges, chosen, features)
        return np.asarray(total * self.column_scale)

    def _expect_features(
        self,
        nodes: Array,
        edges: Array,
        chosen: Indices,
        features: NodeFeatures | None = None,
    ) -> Array:
        """Return (d,) the sum of φ with these weights of labels and edges.

        `features` are taken in place of the task's.
        """
        features = features or self.features
        blocks = [features.sum_weighted(nodes, self.nodes_of(chosen))]
        if self.model.bias:
            blocks.append(nodes.sum(axis=0))
        blocks.append(edges)
        if self.model.boundary:
            lengths = np.diff(self.offsets)[chosen]
            first = np.cumsum(lengths) - lengths
            blocks.append(nodes[first].sum(axis=0))
            blocks.append(nodes[first + lengths - 1].sum(axis=0))
        gradient = np.concatenate([block.ravel() for block in blocks])
        gradient *= self.column_scale
        return gradient

    def online(
        self,
        w: Array,
        loss: Loss,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> ForestOracle:
        """Return an oracle that answers one example after the other while w moves."""
        return ForestOracle(
            self,
            w,
            loss,
            self._resolve_examples(examples),
            np.ones(self.n_examples) if weights is None else weights,
        )

    def epochs(self) -> ForestEpochs:
        """Return the perceptron's state before its first step."""
        return ForestEpochs(self)

    def describe(self, states: Indices, found: Mask, chosen: Indices) -> Argmax:
        """Return φ and Δ of given labelings of the chosen examples."""
        nodes = self.nodes_of(chosen)
        n_inputs = int(np.diff(self.features.begins)[nodes].sum())
        capacity = n_inputs + 2 * len(nodes) + 2 * len(chosen)
        values = np.empty(capacity)
        columns = np.empty(capacity, dtype=np.uint32)
        indptr = np.zeros(len(chosen) + 1, dtype=np.int64)
        mistakes = np.zeros(len(chosen))
        dense = np.zeros(self.n_features)
        kernels.write_features(
            self.forest,
            chosen,
            found,
            states,
            dense,
            values,
            columns,
            indptr,
            mistakes,
        )
        n_entries = indptr[-1]
        columns = columns[:n_entries]
        data = values[:n_entries] * self.column_scale[columns]
        fits = n_entries < 2**31  # scipy copies arrays of two index types
        indptr = indptr.astype(np.int32) if fits else indptr
        indices = columns.view(np.int32) if fits else columns.astype(np.int64)
        shape = (len(chosen), self.n_features)
        features = sp.csr_array((data, indices, indptr), shape=shape)
        return Argmax(features, mistakes / self.scale[chosen], found)


def check_feasible(allowed: Mask, forbidden: Mask, offsets: Indices) -> None:
    """Raise an error where each labeling that is annotated has a forbidden pair.

    Parameters
    ----------
    allowed : ndarray of shape (n_nodes, S)
        The states that the annotations of all chains allow.
    forbidden : ndarray of shape (S + 1, S + 1)
        As in `ForestModel.forbidden_states`.
    offsets : ndarray of shape (n_examples + 1,)
        First node of each chain.
    """
    may_follow = ~forbidden[:-1, :-1]
    may_end = ~forbidden[:-1, -1]
    lengths = np.diff(offsets)
    reached = allowed[offsets[:-1]] & ~forbidden[-1, :-1]
    for position in range(int(lengths.max())):
        chains = np.flatnonzero(lengths > position)
        if position:
            follows = (reached[chains][:, :, None] & may_follow).any(axis=1)
            reached[chains] = follows & allowed[offsets[chains] + position]
        ends = np.flatnonzero(lengths == position + 1)
        reached[ends] &= may_end
        stuck = chains[~reached[chains].any(axis=1)]
        if len(stuck):
            raise InfeasibleAnnotation(
                f"{name_place(int(stuck[0]), position)}: every label that is annotated "
                "here is forbidden after those before it",
                int(stuck[0]),
                (position,),
            )
