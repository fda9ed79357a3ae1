"""Epochs of the structured perceptron on forests: one example after the other, in one compiled pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clew.learning._frank_wolfe_kernels import Bounds
from clew.learning.task import Array, Indices, Space
from clew.models._forest_kernels import Forest, InputRows, kernel
from clew.models._forest_online import ForestOracle, label_forest
from clew.models.completions import write_difference

if TYPE_CHECKING:
    from clew.models.forest import ForestTask


class ForestEpochs:
    """`Epochs` of a ForestTask; see `clew.learning.task`. The weights lie as in `clew.models._forest_online`."""

    def __init__(self, task: ForestTask) -> None:
        zero, n = np.zeros(task.n_features), task.n_examples
        self.oracle = ForestOracle(
            task, zero, Space.COMPATIBLE, 0.0, 0.0, np.arange(n), np.ones(n)
        )
        self.w, self.late, self.steps = zero, np.zeros(task.n_features), 0
        size, none = int(self.oracle.largest.max()), np.zeros(1, np.int64)
        self.row = Bounds(
            np.empty(size),
            np.empty(size, np.uint32),
            np.zeros(2, np.int64),
            np.zeros(1),
            np.zeros(1),
            none,
            none,
            none,
            none,
            none,
            none,
            np.zeros(1),
            none,
            none,
        )

    def run(self, order: Indices) -> None:
        """Visit these examples in turn."""
        oracle = self.oracle
        perceptron_epoch(
            oracle.inputs,
            oracle.forest,
            oracle.order,
            oracle.label_scale,
            order,
            self.row,
            np.zeros_like(self.w),
            oracle.reference,
            self.w,
            self.late,
            self.steps,
        )
        self.steps += len(order)

    @property
    def weights(self) -> tuple[Array, Array]:
        """W, and the sum of all its changes times the steps before them."""
        return self.oracle.vector_out(self.w), self.oracle.vector_out(self.late)


@kernel  # type: ignore[untyped-decorator]
def perceptron_epoch(
    inputs: InputRows,
    forest: Forest,
    order: Indices,
    label_scale: float,
    examples: Indices,
    row: Bounds,
    dense: Array,
    predicted: Indices,
    w: Array,
    late: Array,
    steps: int,
) -> None:
    """W moves by φ(ỹ) − φ(ŷ) wherever ŷ contradicts the annotation, `late` by that times the steps so far."""
    offsets, _, allowed, _, _, _ = forest
    S = allowed.shape[1]
    longest = 0
    for e in examples:
        longest = max(longest, offsets[e + 1] - offsets[e])
    scores, states = np.empty((longest, S)), np.empty(longest, np.intp)
    nothing, forbidden = np.zeros(len(offsets) - 1), np.full(len(offsets) - 1, -np.inf)
    transition, labels = np.empty((S, S)), np.zeros((3, S))
    for e in examples:
        first, last = offsets[e], offsets[e + 1]
        label_forest(
            inputs,
            forest,
            order,
            nothing,
            label_scale,
            e,
            w,
            transition,
            labels,
            scores,
            states,
        )
        contradicts = False
        for v in range(first, last):
            predicted[v] = states[v - first]
            contradicts |= not allowed[v, states[v - first]]
        if contradicts:
            label_forest(
                inputs,
                forest,
                order,
                forbidden,
                label_scale,
                e,
                w,
                transition,
                labels,
                scores,
                states,
            )
            write_difference(
                inputs, forest, e, states, predicted, label_scale, 1.0, dense, row, 0
            )
            for p in range(row.begins[1]):
                w[row.indices[p]] += row.data[p]
                late[row.indices[p]] += steps * row.data[p]
        steps += 1
