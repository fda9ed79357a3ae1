"""The argmax on forests while the weights move: one example after the other, in one compiled pass.

The weights lie feature by feature, (F, S), so that the scores of a node read whole lines of memory; what labels alone
have follows. An example's new bound is the difference of its best labeling from its reference labeling: where
the two agree nothing is written, so that a bound has as many entries as the nodes that went wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clew.learning._frank_wolfe_kernels import (
    Bounds,
    improve_group,
    link_if_higher,
    make_scratch,
)
from clew.learning.frank_wolfe import WorkingSet
from clew.learning.task import Array, Indices, Space
from clew.models._forest_kernels import (
    Forest,
    InputRows,
    complete_scores,
    kernel,
    maximise,
)
from clew.models.completions import follow, write_difference
from clew.models.node_features import multiply_rows

if TYPE_CHECKING:
    from clew.models.forest import ForestTask


class ForestOracle:
    """`OnlineOracle` of a ForestTask; see `clew.learning.task`."""

    def __init__(
        self,
        task: ForestTask,
        w: Array,
        reward: Space,
        reward_weight: float,
        penalty_weight: float,
        examples: Indices,
        weights: Array,
    ) -> None:
        self.examples, self.weights = examples, weights
        self.n_states, self.n_inputs = task.allowed.shape[1], task.inputs.n_inputs
        self.inputs, self.forest = task.input_rows, task.forest
        self.order = task.order
        self.task, self.nodes = task, task.nodes_of(examples)
        self.reward, self.reward_weight = reward, reward_weight
        self.reference: Indices
        self.base_offsets: Array
        self._refer_to(w)
        nodes = self.nodes
        settled = (task.allowed[nodes].sum(axis=1) == 1) | ~task.counted[nodes]
        self.fixed_reward = reward is Space.COMPATIBLE and bool(settled.all())
        self.penalty = penalty_weight / task.scale
        self.label_scale = float(task.model.label_scale_)
        lengths = np.diff(task.offsets)
        entries = np.diff(task.inputs.begins[task.offsets])
        # both labelings of every node: inputs, bias, edge and the two ends
        self.largest = 2 * (entries + 2 * lengths + 2)
        self.lengths = lengths
        self.outputs, self.n_written = np.zeros(0, dtype=np.int32), 0
        """The labelings of all bounds that were found here; a bound's tag is where its own begins."""

    def columns_in(self, columns: NDArray[np.integer]) -> NDArray[np.integer]:
        """From s·F + f to f·S + s."""
        f_part = columns < self.n_states * self.n_inputs
        s, f = np.divmod(columns, self.n_inputs)
        return np.where(f_part, f * self.n_states + s, columns)

    def columns_out(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        """From f·S + s to s·F + f."""
        f_part = places < self.n_states * self.n_inputs
        f, s = np.divmod(places, self.n_states)
        return np.where(f_part, s * self.n_inputs + f, places)

    def vector_in(self, w: Array) -> Array:
        """(d,) with the unary weights as (F, S)."""
        return self._transposed(w, self.n_states, self.n_inputs)

    def vector_out(self, w: Array) -> Array:
        """(d,) with the unary weights as (S, F)."""
        return self._transposed(w, self.n_inputs, self.n_states)

    def _transposed(self, w: Array, rows: int, columns: int) -> Array:
        unary = w[: rows * columns].reshape(rows, columns)
        return np.concatenate([unary.T.ravel(), w[rows * columns :]])

    def capacity(self, groups: Indices) -> int:
        """Entries of bounds in which every node went wrong."""
        return int(self.largest[self.examples[groups]].sum())

    def follow(self, working_set: WorkingSet, w: Array) -> None:
        """Take the reward's outputs at w as the references, and let the bounds follow (completions.py)."""
        old, old_offsets = self.reference, self.base_offsets
        self._refer_to(w)
        self._make_room(working_set, np.zeros(0, dtype=np.intp))
        follow(self, working_set, old, old_offsets)

    def _refer_to(self, w: Array) -> None:
        """The reward's labelings at w, and what the reward adds to their scores."""
        task, nodes = self.task, self.nodes
        states, _ = task.best_states(w, self.reward, self.reward_weight, self.examples)
        self.reference = np.zeros(len(task.allowed), dtype=np.intp)
        self.reference[nodes] = states
        wrong = np.zeros(len(task.allowed))
        wrong[nodes] = task.costs[nodes] * ~task.allowed[nodes, states]
        wrong = np.add.reduceat(wrong, task.offsets[:-1])
        self.base_offsets = self.reward_weight * self.weights * wrong / task.scale

    def _make_room(self, working_set: WorkingSet, groups: Indices) -> None:
        """Room for a labeling of each of these groups; labelings of bounds that are gone make it."""
        need = int(self.lengths[self.examples[groups]].sum())
        if len(groups) and self.n_written + need <= len(self.outputs):
            return
        tags, n = working_set.bounds.tags, working_set.n_rows
        lengths = self.lengths[self.examples[working_set.bounds.group[:n]]] * (
            tags[:n] >= 0
        )
        begins = np.cumsum(lengths) - lengths
        kept = int(lengths.sum())
        outputs = np.empty(2 * kept + need, dtype=np.int32)
        within = np.arange(kept) - np.repeat(begins, lengths)
        outputs[:kept] = self.outputs[np.repeat(tags[:n], lengths) + within]
        tags[:n] = np.where(tags[:n] >= 0, begins, -1)
        self.outputs, self.n_written = outputs, kept

    def run(
        self, working_set: WorkingSet, groups: Indices, steps: int, gaps: Array
    ) -> None:
        """For each of these groups, an example each, in turn: argmax at w, new bound, pairwise steps on its bounds."""
        self._make_room(working_set, groups)
        before = working_set.n_rows
        working_set.n_rows, self.n_written = online_pass(
            self.inputs,
            self.forest,
            self.order,
            self.reference,
            self.base_offsets,
            self.penalty,
            self.label_scale,
            self.weights,
            self.examples,
            groups,
            working_set.bounds,
            before,
            self.outputs,
            self.n_written,
            working_set.w,
            working_set.lam,
            steps,
            working_set.dense,
            gaps,
        )
        working_set.bundle.added += working_set.n_rows - before


@kernel  # type: ignore[untyped-decorator]
def online_pass(
    inputs: InputRows,
    forest: Forest,
    order: Indices,
    reference: Indices,
    base_offsets: Array,
    penalty: Array,
    label_scale: float,
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
) -> tuple[int, int]:
    """Returns how many bounds and how much of `outputs` there are then; α, w and gaps change in place.

    Group g has one example, examples[g], whose φ and Δ are multiplied by its weight.
    """
    offsets, _, allowed, costs, _, _ = forest
    S = allowed.shape[1]
    longest = 0
    for g in groups:
        longest = max(longest, offsets[examples[g] + 1] - offsets[examples[g]])
    all_scores, all_states = np.empty((longest, S)), np.empty(longest, np.intp)
    scratch = make_scratch(bounds, groups)
    transition, labels = np.empty((S, S)), np.zeros((3, S))
    for g in groups:
        e = examples[g]
        first, last = offsets[e], offsets[e + 1]
        label_forest(
            inputs,
            forest,
            order,
            penalty,
            label_scale,
            e,
            w,
            transition,
            labels,
            all_scores,
            all_states,
        )
        states = all_states[: last - first]
        write_difference(
            inputs,
            forest,
            e,
            states,
            reference,
            label_scale,
            weights[e],
            dense,
            bounds,
            n_rows,
        )
        wrong = 0.0
        for v in range(first, last):
            if not allowed[v, states[v - first]]:
                wrong += costs[v]
        bounds.offsets[n_rows] = weights[e] * penalty[e] * wrong - base_offsets[e]
        if link_if_higher(bounds, g, n_rows, w, n_written, dense, scratch):
            n_rows += 1
            for t in range(last - first):
                outputs[n_written + t] = states[t]
            n_written += last - first
        gaps[g] = improve_group(bounds, g, w, lam, steps, scratch)
    return n_rows, n_written


@kernel  # type: ignore[untyped-decorator]
def label_forest(
    inputs: InputRows,
    forest: Forest,
    order: Indices,
    penalty: Array,
    label_scale: float,
    e: int,
    w: Array,
    transition: Array,
    labels: Array,
    scores: Array,
    states: Indices,
) -> None:
    """Fill `states` with the best labeling of example e at w, with a penalty as `complete_scores` has it.

    `transition` (S, S), `labels` (3, S), for bias, begin and end, and `scores` are scratch.
    """
    offsets, parent, allowed, costs, counted, blocks = forest
    S = allowed.shape[1]
    for row, block in enumerate((0, 2, 3)):
        if blocks[block] >= 0:
            labels[row] = label_scale * w[blocks[block] : blocks[block] + S]
    for i in range(S):
        for j in range(S):
            transition[j, i] = label_scale * w[blocks[1] + i * S + j]
    first, last = offsets[e], offsets[e + 1]
    here, there = scores[: last - first], states[: last - first]
    here[:] = 0.0
    one = np.full(1, e)
    unary = w[: S * inputs.n_inputs].reshape(inputs.n_inputs, S)
    nodes = np.arange(first, last)
    multiply_rows(
        inputs.data,
        inputs.begins,
        inputs.columns,
        inputs.column_begins,
        nodes,
        unary,
        here,
    )
    complete_scores(
        here,
        one,
        offsets,
        allowed,
        counted,
        penalty,
        costs,
        labels[0],
        labels[1],
        labels[2],
    )
    maximise(
        here, one, offsets, order, parent, allowed, counted, transition, False, there
    )
