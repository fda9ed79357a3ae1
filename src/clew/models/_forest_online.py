"""Argmax on forests while the weights move: one example after the other, compiled.

The weights have the unary block as (F, S), so that the scores of a node read
consecutive memory; the weights of labels follow. The bound of an example is the
difference of its best labeling from its reference labeling, so that it has entries
only where the two differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clew.learning._bundle_kernels import (
    Bounds,
    Scratch,
    improve_group,
    link_if_higher,
    make_scratch,
)
from clew.learning.task import Array, Indices, Kept, Space
from clew.models._forest_kernels import (
    Forest,
    LabelingScratch,
    deviate_example,
    fill_transition,
    label_example,
    make_labeling_scratch,
    max_of_row,
    write_difference,
)
from clew.models.completions import follow
from clew.utils.kernels import inlined_kernel, kernel

if TYPE_CHECKING:
    from clew.learning.bounds import Bundle
    from clew.learning.losses import Loss
    from clew.models.forest import ForestTask


def transpose_unary(w: NDArray[Kept], n_rows: int, n_columns: int) -> NDArray[Kept]:
    """(d,) w with its first block, (n_rows, n_columns), transposed."""
    size = n_rows * n_columns
    unary = w[:size].reshape(n_rows, n_columns)
    return np.concatenate([unary.T.ravel(), w[size:]])


def arrange_by_input(forest: Forest) -> Forest:
    """Return the forest for weights with the unary block as (F, S)."""
    return forest._replace(input_stride=forest.allowed.shape[1], state_stride=1)


class ForestOracle:
    """`OnlineOracle` of a ForestTask; see `clew.learning.task`."""

    def __init__(
        self,
        task: ForestTask,
        w: Array,
        loss: Loss,
        examples: Indices,
        weights: Array,
    ) -> None:
        self.task = task
        self.forest = arrange_by_input(task.forest)
        self.examples = examples
        self.weights = weights
        self.nodes = task.nodes_of(examples)
        self.n_states = task.allowed.shape[1]
        self.loss = loss
        self.penalty = loss.penalty_weight / task.scale
        self.reference: Indices
        """(nodes,) the reward's labelings."""
        self.base_offsets: Array
        self._set_reference(w)
        is_single = task.allowed[self.nodes].sum(axis=1) == 1
        is_settled = is_single | ~task.counted[self.nodes]
        self.fixed_reward = loss.reward is Space.COMPATIBLE and bool(is_settled.all())
        self.lengths = np.diff(task.offsets)
        n_entries = np.diff(task.features.begins[task.offsets])
        # both labelings of every node: inputs, bias, edge and the two ends
        self.largest = 2 * (n_entries + 2 * self.lengths + 2)
        self.outputs = np.zeros(0, dtype=np.int32)
        """Labelings of all bounds that were found; a bound's tag is where it begins."""
        self.n_written = 0
        self.dense = np.zeros(task.n_features)
        """Scratch for compiled code; zero between calls."""

    def capacity(self, groups: Indices) -> int:
        """Return the entries of bounds in which every node differs.

        There is space for the reward's output of one example beside its new bound.
        """
        largest = self.largest[self.examples[groups]]
        return int(largest.sum() + largest.max(initial=0))

    def follow(self, bundle: Bundle, w: Array) -> None:
        """Take the reward's outputs at w as the references, and change the bounds."""
        old = self.reference
        old_offsets = self.base_offsets
        self._set_reference(w)
        self._make_room(bundle, np.zeros(0, dtype=np.intp))
        follow(self, bundle, old, old_offsets)

    def _set_reference(self, w: Array) -> None:
        """Set the reward's labelings at w, and what the reward adds to their scores."""
        task = self.task
        nodes = self.nodes
        loss = self.loss
        assert loss.reward is not None
        states, _ = task.best_states(w, loss.reward, loss.reward_weight, self.examples)
        self.reference = np.zeros(len(task.allowed), dtype=np.intp)
        self.reference[nodes] = states
        costs = np.zeros(len(task.allowed))
        costs[nodes] = task.costs[nodes] * ~task.allowed[nodes, states]
        mistakes = np.add.reduceat(costs, task.offsets[:-1]) / task.scale
        self.base_offsets = loss.reward_weight * self.weights * mistakes

    def _make_room(self, bundle: Bundle, groups: Indices) -> None:
        """Drop labelings of bounds that are gone, to have room for these groups."""
        need = int(self.lengths[self.examples[groups]].sum())
        if len(groups) and self.n_written + need <= len(self.outputs):
            return
        n = len(bundle)
        tags = bundle.bounds.tags
        lengths = self.lengths[self.examples[bundle.group]]
        lengths = lengths * (tags[:n] >= 0)
        begins = np.cumsum(lengths) - lengths
        kept = int(lengths.sum())
        outputs = np.empty(2 * kept + need, dtype=np.int32)
        within = np.arange(kept) - np.repeat(begins, lengths)
        outputs[:kept] = self.outputs[np.repeat(tags[:n], lengths) + within]
        tags[:n] = np.where(tags[:n] >= 0, begins, -1)
        self.outputs = outputs
        self.n_written = kept

    def run(
        self,
        bundle: Bundle,
        w: Array,
        lam: float,
        groups: Indices,
        steps: int,
        gaps: Array,
    ) -> None:
        """Visit groups of one example each: argmax at w, new bound, pairwise steps."""
        self._make_room(bundle, groups)
        longest = int(self.lengths[self.examples[groups]].max(initial=0))
        arguments = (
            self.forest,
            self.reference,
            self.base_offsets,
            self.penalty,
            self.weights,
            self.examples,
            groups,
            bundle.bounds,
            len(bundle),
            self.outputs,
            self.n_written,
            w,
            lam,
            steps,
            self.dense,
            gaps,
            make_scratch(bundle.bounds, groups),
            make_labeling_scratch(self.n_states, longest),
        )
        if self.loss.penalty is Space.INCOMPATIBLE:
            n_rows = visit_examples_in_pairs(
                *arguments,
                self.loss.margin,
                np.empty((longest, self.n_states)),
                np.empty((longest, self.n_states), np.int64),
                make_labeling_scratch(self.n_states, longest),
            )
        else:
            n_rows = visit_examples(*arguments)
        new = bundle.bounds.group[len(bundle) : n_rows]
        lengths = self.lengths[self.examples[new]]
        ends = self.n_written + np.cumsum(lengths)
        bundle.count_written(n_rows, ends - lengths)
        self.n_written += int(lengths.sum())


@inlined_kernel
def sum_of_roots(forest: Forest, e: int, scores: Array) -> float:
    """Return the score of the best labeling, which `label_example` leaves in `scores`."""
    first = forest.offsets[e]
    total = 0.0
    for v in range(first, forest.offsets[e + 1]):
        if forest.parent[v] < 0:
            total += max_of_row(scores, v - first)
    return total


@inlined_kernel
def count_cost(forest: Forest, e: int, states: Indices) -> float:
    """Return the costs of the states of example e that are not allowed."""
    first = forest.offsets[e]
    cost = 0.0
    for v in range(first, forest.offsets[e + 1]):
        if not forest.allowed[v, states[v - first]]:
            cost += forest.costs[v]
    return cost


@inlined_kernel
def add_bound(
    forest: Forest,
    e: int,
    g: int,
    states: Indices,
    reference: Indices,
    share: float,
    offset: float,
    bounds: Bounds,
    n_rows: int,
    outputs: NDArray[np.int32],
    n_written: int,
    w: Array,
    lam: float,
    steps: int,
    dense: Array,
    gaps: Array,
    scratch: Scratch,
) -> bool:
    """Write the bound of a labeling of example e, and improve its group.

    Returns
    -------
    is_added : bool
        Whether the bound is higher at w than those that the group has.
    """
    bounds.indptr[n_rows + 1] = write_difference(
        forest,
        e,
        states,
        reference,
        share,
        dense,
        bounds.data,
        bounds.indices,
        bounds.indptr[n_rows],
    )
    bounds.offsets[n_rows] = offset
    is_added = link_if_higher(bounds, g, n_rows, w, dense, scratch)
    if is_added:
        for t in range(forest.offsets[e + 1] - forest.offsets[e]):
            outputs[n_written + t] = states[t]
    gaps[g] = improve_group(bounds, g, w, lam, steps, scratch)
    return is_added


@kernel
def visit_examples(
    forest: Forest,
    reference: Indices,
    base_offsets: Array,
    penalty: Array,
    weights: Array,
    examples: Indices,
    groups: Indices,
    bounds: Bounds,
    n_rows: int,
    outputs: NDArray[np.int32],
    n_written: int,
    w: Array,
    lam: float,
    steps: int,
    dense: Array,
    gaps: Array,
    scratch: Scratch,
    labeling: LabelingScratch,
) -> int:
    """Add bounds, and change α, w and gaps in place.

    Group g has the one example ``examples[g]``, whose φ and Δ are multiplied by its
    weight.

    Returns
    -------
    n_rows : int
        Number of bounds.
    """
    states = labeling.states
    for g in groups:
        e = examples[g]
        fill_transition(forest, w, labeling.transition)
        label_example(forest, e, w, penalty[e], labeling)
        offset = weights[e] * penalty[e] * count_cost(forest, e, states)
        offset -= base_offsets[e]
        if add_bound(
            forest,
            e,
            g,
            states,
            reference,
            weights[e],
            offset,
            bounds,
            n_rows,
            outputs,
            n_written,
            w,
            lam,
            steps,
            dense,
            gaps,
            scratch,
        ):
            n_rows += 1
            n_written += forest.offsets[e + 1] - forest.offsets[e]
    return n_rows


@kernel
def visit_examples_in_pairs(
    forest: Forest,
    reference: Indices,
    base_offsets: Array,
    penalty: Array,
    weights: Array,
    examples: Indices,
    groups: Indices,
    bounds: Bounds,
    n_rows: int,
    outputs: NDArray[np.int32],
    n_written: int,
    w: Array,
    lam: float,
    steps: int,
    dense: Array,
    gaps: Array,
    scratch: Scratch,
    labeling: LabelingScratch,
    margin: float,
    slack: Array,
    carrier: NDArray[np.int64],
    rewarded: LabelingScratch,
) -> int:
    """Add bounds of the pair loss; see `visit_examples`.

    An example gets the bound of its best labeling in Y°, or of its best one in Y* if
    that has the higher value. It is a kernel of its own so that other losses do not
    wait until it is compiled.
    """
    for g in groups:
        e = examples[g]
        states = labeling.states
        fill_transition(forest, w, labeling.transition)
        label_example(forest, e, w, penalty[e], labeling)
        ahead = sum_of_roots(forest, e, labeling.scores)
        ahead -= deviate_example(forest, e, slack, carrier, labeling)
        fill_transition(forest, w, rewarded.transition)
        label_example(forest, e, w, -np.inf, rewarded)
        ahead -= sum_of_roots(forest, e, rewarded.scores)
        offset = 0.0
        if weights[e] * ahead + margin - base_offsets[e] > 0.0:
            offset = weights[e] * penalty[e] * count_cost(forest, e, states)
            offset += margin - base_offsets[e]
        else:
            states = rewarded.states
        if add_bound(
            forest,
            e,
            g,
            states,
            reference,
            weights[e],
            offset,
            bounds,
            n_rows,
            outputs,
            n_written,
            w,
            lam,
            steps,
            dense,
            gaps,
            scratch,
        ):
            n_rows += 1
            n_written += forest.offsets[e + 1] - forest.offsets[e]
    return n_rows


class ForestEpochs:
    """`Epochs` of a ForestTask; see `clew.learning.task`."""

    def __init__(self, task: ForestTask) -> None:
        self.task = task
        self.forest = arrange_by_input(task.forest)
        self.shape = (task.allowed.shape[1], task.features.n_inputs)
        self.w = np.zeros(task.n_features)
        self.late = np.zeros(task.n_features)
        self.n_steps = 0

    def run(self, order: Indices) -> None:
        """Visit these examples in turn."""
        task = self.task
        longest = int(np.diff(task.offsets)[order].max(initial=0))
        n_inputs = np.diff(task.features.begins[task.offsets])[order]
        # both labelings of every node: inputs, bias, edge and the two ends
        most_entries = 2 * (int(n_inputs.max(initial=0)) + 2 * longest + 2)
        run_perceptron_epoch(
            self.forest,
            order,
            self.n_steps,
            self.w,
            self.late,
            make_labeling_scratch(task.allowed.shape[1], longest),
            np.empty(len(task.allowed), np.intp),
            np.zeros(task.n_features),
            np.empty(most_entries),
            np.empty(most_entries, np.uint32),
        )
        self.n_steps += len(order)

    @property
    def weights(self) -> tuple[Array, Array]:
        """W, and the sum of all its changes times the steps before them."""
        n_states, n_inputs = self.shape
        w = transpose_unary(self.w, n_inputs, n_states)
        late = transpose_unary(self.late, n_inputs, n_states)
        return w, late


@kernel
def run_perceptron_epoch(
    forest: Forest,
    examples: Indices,
    n_steps: int,
    w: Array,
    late: Array,
    labeling: LabelingScratch,
    predicted: Indices,
    dense: Array,
    values: Array,
    columns: NDArray[np.uint32],
) -> None:
    """Add φ(ỹ) - φ(ŷ) to w wherever ŷ contradicts the annotation.

    `late` gets that times the number of steps before. `predicted`, for all nodes,
    `dense` (d,), which is zero, and `values` and `columns`, for the largest difference,
    are scratch.
    """
    states = labeling.states
    for e in examples:
        first = forest.offsets[e]
        fill_transition(forest, w, labeling.transition)
        label_example(forest, e, w, 0.0, labeling)
        contradicts = False
        for v in range(first, forest.offsets[e + 1]):
            predicted[v] = states[v - first]
            contradicts |= not forest.allowed[v, states[v - first]]
        if contradicts:
            label_example(forest, e, w, -np.inf, labeling)
            end = write_difference(
                forest,
                e,
                states,
                predicted,
                1.0,
                dense,
                values,
                columns,
                int(np.int64(0)),  # a literal would be compiled once more
            )
            for p in range(end):
                w[columns[p]] += values[p]
                late[columns[p]] += n_steps * values[p]
        n_steps += 1
