"""Models on forests, and their Task that answers for all examples in one pass of compiled code."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from clew.errors import InputError
from clew.learning.task import Argmax, Array, Indices, Mask, Space, Task
from clew.models import _forest_kernels as max_product
from clew.models import sum_product
from clew.models._forest_kernels import Forest, InputRows, SparseRows
from clew.models._forest_online import ForestOracle
from clew.models.base import check_lengths, check_weights, identity
from clew.models.epochs import ForestEpochs
from clew.models.examples import Annotation, Examples, Input, Output
from clew.models.fingerprint import fingerprint, fingerprint_arrays
from clew.models.labels import ClassWeight
from clew.models.node_features import stack
from clew.models.node_task import NodeTask
from clew.models.nodes import NodeModel, stack_allowed
from clew.models.weight_blocks import Block, make_blocks
from clew.parallel import map_examples, resolve_jobs


class ForestModel(NodeModel):
    """Base of Chain and Tree: w has unary (S, F), bias (S), transition (S, S) [parent, child], begin (S), end (S)."""

    boundary: bool = False

    def node_parents(
        self, x: Input, n_nodes: int, example: int | None = None
    ) -> NDArray[np.int64]:
        """(T,) the parent of each node, -1 for a root."""
        raise NotImplementedError

    def n_edge_features(self, n_states: int) -> int:
        """S² transitions, and begin and end."""
        return n_states * (n_states + 2 * bool(self.boundary))

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and labels, of transitions [from, to], and of the ends."""
        nodes = super().blocks(names)
        labels = nodes[0].axes[0]
        parts: list[tuple[str, Sequence[Sequence[str]]]] = [
            ("transition", [labels, labels])
        ]
        parts += [("begin", [labels]), ("end", [labels])] * bool(self.boundary)
        return nodes + make_blocks(
            *parts, begin=sum(block.places.size for block in nodes)
        )

    def with_class_weight(
        self, class_weight: ClassWeight, Y: Examples
    ) -> tuple[Self, Array | None]:
        """A copy whose Δ counts a wrong node with the weight of the class that was annotated there."""
        model = copy.copy(self)
        model.class_weight_ = self.labels.class_weights(
            class_weight, np.concatenate(Y)
        ).tolist()
        return model, None

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Refuse features that are not finite or not as many as expected, and parents that make no forest."""
        ForestTask(self, X, [None] * len(X))

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> Task:
        """All examples as one compiled Task."""
        task = ForestTask(self, X, Y, n_jobs)
        task.keys = task.fingerprints()
        return task

    def predict(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> list[NDArray[np.generic]]:
        """The best labeling for each input, max_y ⟨w, φ(x, y)⟩."""
        if len(X) == 0:
            return []
        task = ForestTask(self, X, [None] * len(X), n_jobs)
        labels = self.labels.decode(task.best_states(w, Space.ALL, 0.0)[0])
        return np.split(labels, task.offsets[1:-1])

    def max_marginals(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> list[Array]:
        """For each input (T, S) what the best labeling loses when node t has label s, by max-product up and down."""
        if len(X) == 0:
            return []
        task = ForestTask(self, X, [None] * len(X))
        return np.split(task.marginals(w), task.offsets[1:-1])

    def marginals(self, X: Sequence[Input], w: Array) -> list[Array]:
        """For each input (T, S) P(y_t = s) under P(y) ∝ exp⟨w, φ(x, y)⟩, by sum-product up and down."""
        if len(X) == 0:
            return []
        task = ForestTask(self, X, [None] * len(X))
        return np.split(np.exp(task.marginals(w, soft=True)), task.offsets[1:-1])

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y): Σ_t [x_t in the block of y_t] + counts of labels, transitions and ends."""
        task = ForestTask(self, [x], [None])
        states = self.labels.encode(y, int(task.offsets[-1]))
        return np.asarray(
            task.rows_of(
                states, np.ones(1, dtype=bool), np.arange(1)
            ).features.toarray()[0]
        )

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> NDArray[np.generic] | None:
        """The best labeling in `space`; None where Y° is empty."""
        states, found = ForestTask(self, [x], [annotation]).best_states(
            w, space, loss_weight
        )
        return self.labels.decode(states) if found[0] else None


class ForestTask(NodeTask):
    """Partially annotated forests. Only nodes in `counted` have features, and edges between two of them."""

    def __init__(
        self,
        model: ForestModel,
        X: Sequence[Input],
        Y: Sequence[Annotation],
        n_jobs: int = 1,
    ) -> None:
        check_lengths(X, Y)
        self.model, self.n_jobs = model, resolve_jobs(n_jobs)
        self.n_examples, self.n_features = len(X), int(model.n_features)
        self.inputs, self.offsets = stack(
            [model.node_features(x, i) for i, x in enumerate(X)], model.n_inputs_
        )
        self.allowed: Mask = stack_allowed(model.labels, Y, self.offsets)
        self.counted: Mask = np.ones(len(self.allowed), dtype=bool)
        self.parent, self.order = self._stack_parents(X)
        self.costs = model.node_costs(self.allowed)
        annotated = np.add.reduceat(
            self.costs * ~self.allowed.all(axis=1), self.offsets[:-1]
        )
        divided = model.normalize and annotated > 0
        self.scale: Array = np.where(divided, annotated, 1.0)
        self.column_scale = model.column_scale
        S, F = self.allowed.shape[1], self.inputs.n_inputs
        transition = S * (F + bool(model.bias))
        begin = transition + S * S
        self.blocks = np.array(
            [
                S * F if model.bias else -1,
                transition,
                *((begin, begin + S) if model.boundary else (-1, -1)),
            ],
            np.int64,
        )

    def _stack_parents(
        self, X: Sequence[Input]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The parents as indices of stacked nodes, and an order of the nodes with parents first."""
        lengths = np.diff(self.offsets)
        parents = [
            self.model.node_parents(x, int(n), i)
            for i, (x, n) in enumerate(zip(X, lengths, strict=True))
        ]
        local = np.concatenate(parents)
        parent = np.where(local < 0, -1, local + np.repeat(self.offsets[:-1], lengths))
        order = np.empty_like(parent)
        looping = max_product.topological_order(parent, order)
        if looping >= 0:
            example = int(np.searchsorted(self.offsets, looping, side="right")) - 1
            raise InputError(
                f"example {example}: node {looping - self.offsets[example]} is its own ancestor"
            )
        return parent, order

    def fingerprints(self) -> list[bytes]:
        """A fingerprint of each example: what its features and its annotation are, however they were given."""
        common = fingerprint(*identity(self.model))
        lengths = np.diff(self.offsets)
        parent = np.maximum(self.parent - np.repeat(self.offsets[:-1], lengths), -1)
        keys = []
        for i, content in enumerate(self.inputs.contents(self.offsets)):
            nodes = slice(self.offsets[i], self.offsets[i + 1])
            keys.append(
                fingerprint_arrays(
                    common,
                    *content,
                    parent[nodes],
                    self.allowed[nodes],
                    self.counted[nodes],
                )
            )
        return keys

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """The best labelings in `space`; n_jobs threads share the examples."""
        chosen = self._chosen(examples)

        def answer(some: Indices) -> Argmax:
            return self.rows_of(*self.best_states(w, space, loss_weight, some), some)

        jobs = min(self.n_jobs, len(chosen))
        if jobs <= 1:
            return answer(chosen)
        answers = map_examples(answer, np.array_split(chosen, jobs), jobs)
        features = sp.vstack([part.features for part in answers], format="csr")
        loss, found = (
            np.concatenate([getattr(part, name) for part in answers])
            for name in ("loss", "found")
        )
        return Argmax(features, loss, found)

    def _chosen(self, examples: Indices | None) -> Indices:
        """The examples that are asked for, as indices from 0 on; the compiled code checks no bounds."""
        every = np.arange(self.n_examples)
        return every if examples is None else every[np.asarray(examples)]

    def nodes_of(self, chosen: Indices) -> Indices:
        """The stacked nodes of these examples, one example after the other."""
        lengths = np.diff(self.offsets)[chosen]
        before = np.cumsum(lengths) - lengths
        nodes: Indices = np.arange(lengths.sum()) + np.repeat(
            self.offsets[chosen] - before, lengths
        )
        return nodes

    def best_states(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> tuple[Indices, Mask]:
        """The states of all nodes of these examples, and the examples for which `space` is not empty."""
        chosen = self._chosen(examples)
        scores, transition = self._scores(w, space, loss_weight, chosen)
        states = np.empty(len(scores), dtype=np.intp)
        found = max_product.maximise(
            scores,
            chosen,
            self.offsets,
            self.order,
            self.parent,
            self.allowed,
            self.counted,
            transition,
            space is Space.INCOMPATIBLE,
            states,
        )
        return states, found

    def _scores(
        self, w: Array, space: Space, loss_weight: float, chosen: Indices
    ) -> tuple[Array, Array]:
        """(nodes, S) all that depends on one node, with Δ or what keeps to the space, and (S, S) [child, parent]."""
        w = check_weights(w, self.n_features) * self.column_scale
        S = self.allowed.shape[1]
        none = np.zeros(S)
        bias, begin, end = (
            w[b : b + S] if b >= 0 else none for b in self.blocks[[0, 2, 3]]
        )
        transition = w[self.blocks[1] : self.blocks[1] + S * S].reshape(S, S)
        penalty = (
            np.full(self.n_examples, -np.inf)
            if space is Space.COMPATIBLE
            else loss_weight / self.scale
        )
        scores = self.inputs.scores(
            w[: S * self.inputs.n_inputs].reshape(S, -1), self.nodes_of(chosen)
        )
        max_product.complete_scores(
            scores,
            chosen,
            self.offsets,
            self.allowed,
            self.counted,
            penalty,
            self.costs,
            bias,
            begin,
            end,
        )
        return scores, np.ascontiguousarray(transition.T)

    def marginals(
        self, w: Array, space: Space = Space.ALL, soft: bool = False
    ) -> Array:
        """(nodes, S) log P(y_v = s) with `soft`; else the best score with y_v = s, less the best of all."""
        chosen = self._chosen(None)
        scores, transition = self._scores(w, space, 0.0, chosen)
        nodes, rest = np.empty_like(scores), np.empty_like(scores)
        sum_product.send_messages(
            scores,
            chosen,
            self.offsets,
            self.order,
            self.parent,
            transition,
            soft,
            rest,
            nodes,
        )
        return np.asarray(
            nodes
            - (
                logsumexp(nodes, axis=1, keepdims=True)
                if soft
                else nodes.max(axis=1, keepdims=True)
            )
        )

    def log_partition(
        self, w: Array, space: Space, share: Array, examples: Indices | None = None
    ) -> tuple[Array, Array]:
        """(n,) log Σ over `space` of exp⟨w, φ⟩, and (d,) its gradient summed with `share`: Σ_n share_n E[φ_n]."""
        chosen = self._chosen(examples)
        scores, transition = self._scores(w, space, 0.0, chosen)
        nodes, rest = np.empty_like(scores), np.empty_like(scores)
        totals = sum_product.send_messages(
            scores,
            chosen,
            self.offsets,
            self.order,
            self.parent,
            transition,
            True,
            rest,
            nodes,
        )
        lengths = np.diff(self.offsets)[chosen]
        probability = softmax(nodes, axis=1) * np.repeat(share, lengths)[:, None]
        S, model = self.allowed.shape[1], self.model
        expected = np.zeros((S, S))
        sum_product.expected_transitions(
            scores, rest, chosen, self.offsets, self.parent, transition, share, expected
        )
        first = np.cumsum(lengths) - lengths
        blocks = [self.inputs.weighted_sum(probability, self.nodes_of(chosen))]
        blocks += [probability.sum(axis=0)] * bool(model.bias) + [expected]
        blocks += [
            probability[first].sum(axis=0),
            probability[first + lengths - 1].sum(axis=0),
        ] * bool(model.boundary)
        return totals, np.concatenate(
            [block.ravel() for block in blocks]
        ) * self.column_scale

    @property
    def input_rows(self) -> InputRows:
        """The features of all nodes, as compiled code sees them."""
        inputs = self.inputs
        return InputRows(
            inputs.data,
            inputs.begins,
            inputs.columns,
            inputs.column_begins,
            inputs.n_inputs,
        )

    @property
    def forest(self) -> Forest:
        """All examples, as compiled code sees them."""
        return Forest(
            self.offsets,
            self.parent,
            self.allowed,
            self.costs,
            self.counted,
            self.blocks,
        )

    def online(
        self,
        w: Array,
        reward: Space,
        reward_weight: float,
        penalty_weight: float,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> ForestOracle:
        """An oracle that answers one example after the other while w moves."""
        weights = np.ones(self.n_examples) if weights is None else weights
        return ForestOracle(
            self,
            w,
            reward,
            reward_weight,
            penalty_weight,
            self._chosen(examples),
            weights,
        )

    def epochs(self) -> ForestEpochs:
        """The perceptron's state before its first step."""
        return ForestEpochs(self)

    def rows_of(self, states: Indices, found: Mask, chosen: Indices) -> Argmax:
        """φ and Δ of given labelings of the chosen examples."""
        nodes, inputs = self.nodes_of(chosen), self.inputs
        capacity = (
            int(np.diff(inputs.begins)[nodes].sum()) + 2 * len(nodes) + 2 * len(chosen)
        )
        index_type: type[np.integer] = (
            np.int32 if max(capacity, self.n_features) < 2**31 else np.int64
        )
        values, indices = np.empty(capacity), np.empty(capacity, dtype=index_type)
        indptr, mistakes = (
            np.zeros(len(chosen) + 1, dtype=index_type),
            np.zeros(len(chosen)),
        )
        max_product.collect_features(
            self.input_rows,
            self.forest,
            self.n_features,
            states,
            chosen,
            found,
            SparseRows(values, indices, indptr, mistakes),
        )
        n = indptr[-1]
        values[:n] *= self.column_scale[indices[:n]]
        features = sp.csr_array(
            (values[:n], indices[:n], indptr), shape=(len(chosen), self.n_features)
        )
        return Argmax(features, mistakes / self.scale[chosen], found)
