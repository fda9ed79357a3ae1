"""Bounds that follow the completion of the annotation from one CCCP iteration to the next.

The reward's output ỹ completes what is annotated. When ỹ changes at some nodes, v changes by all of φ(ỹ_new) −
φ(ỹ_old), while the outputs of the bounds still agree with ỹ_old there: w(α) would leap, and passes would have to find
the same mistakes again around the new completion. But an output that takes over ỹ_new where it agreed with ỹ_old is an
output too, and so has a bound. With it in the old one's place, and its α, w stays almost where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clew.learning._frank_wolfe_kernels import Bounds
from clew.learning.frank_wolfe import WorkingSet
from clew.learning.task import Array, Indices
from clew.models._forest_kernels import (
    Forest,
    collect_sums,
    is_legal,
    write_difference,
)
from clew.models.node_features import NodeFeatures, kernel

if TYPE_CHECKING:
    from clew.models._forest_online import ForestOracle


def follow(
    oracle: ForestOracle, working_set: WorkingSet, old: Indices, old_offsets: Array
) -> None:
    """Rewrite the bounds as differences from the oracle's references, their outputs changed where these did.

    Bounds of outputs that nobody knows stay what they were, relative to the new references.
    """
    new, row, bounds = oracle.reference, 0, working_set.bounds
    size = working_set.n_entries + int(oracle.largest.max(initial=0))
    data = np.empty(size)
    indices = np.empty(size, np.uint32)
    begins = np.zeros_like(bounds.indptr)
    while True:
        written = bounds._replace(data=data, indices=indices, indptr=begins)
        row = follow_references(
            oracle.features,
            oracle.forest,
            oracle.examples,
            bounds,
            working_set.n_rows,
            written,
            row,
            oracle.largest,
            oracle.outputs,
            old,
            new,
            oracle.penalty,
            old_offsets,
            oracle.base_offsets,
            oracle.weights,
            working_set.dense,
        )
        if row == working_set.n_rows:
            break
        size = int(1.5 * size) + int(oracle.largest.max()) + working_set.n_entries
        data, indices = np.resize(data, size), np.resize(indices, size)
    working_set.bounds = written
    working_set.multiply(np.arange(len(oracle.examples)))


@kernel  # type: ignore[untyped-decorator]
def follow_references(
    inputs: NodeFeatures,
    forest: Forest,
    examples: Indices,
    bounds: Bounds,
    n_rows: int,
    written: Bounds,
    row: int,
    largest: Indices,
    outputs: NDArray[np.int32],
    old: Indices,
    new: Indices,
    penalty: Array,
    old_offsets: Array,
    new_offsets: Array,
    weights: Array,
    dense: Array,
) -> int:
    """Write the rows from `row` on; returns the first one for which there is no room, or how many there are."""
    offsets = forest.offsets
    allowed = forest.allowed
    costs = forest.costs
    longest = 0
    for e in examples:
        longest = max(longest, offsets[e + 1] - offsets[e])
    all_states = np.empty(longest, np.intp)
    for k in range(row, n_rows):
        e = examples[bounds.group[k]]
        first, last = offsets[e], offsets[e + 1]
        begin, size = written.indptr[k], bounds.indptr[k + 1] - bounds.indptr[k]
        if begin + largest[e] + size > len(written.data):
            return k
        tag = bounds.tags[k]
        same = True
        for v in range(first, last):
            same &= old[v] == new[v]
        reference_itself = size == 0 and bounds.offsets[k] == 0.0
        if same or reference_itself:
            for p in range(size):
                written.data[begin + p] = bounds.data[bounds.indptr[k] + p]
                written.indices[begin + p] = bounds.indices[bounds.indptr[k] + p]
            written.indptr[k + 1] = begin + size
        elif tag >= 0:
            states = all_states[: last - first]
            for v in range(first, last):
                states[v - first] = outputs[tag + v - first]
                if states[v - first] == old[v]:
                    states[v - first] = new[v]
            if not is_legal(forest, e, states):  # no output: the old one stays
                for v in range(first, last):
                    states[v - first] = outputs[tag + v - first]
            wrong = 0.0
            for v in range(first, last):
                outputs[tag + v - first] = states[v - first]
                if not allowed[v, states[v - first]]:
                    wrong += costs[v]
            written.indptr[k + 1] = write_difference(
                inputs,
                forest,
                e,
                states,
                new,
                weights[e],
                dense,
                written.data,
                written.indices,
                begin,
            )
            bounds.offsets[k] = weights[e] * penalty[e] * wrong - new_offsets[e]
        else:
            written.indptr[k + 1] = write_difference(
                inputs,
                forest,
                e,
                old[first:last],
                new,
                weights[e],
                dense,
                written.data,
                written.indices,
                begin,
            )
            add_row(bounds, k, written, dense)
            bounds.offsets[k] += old_offsets[e] - new_offsets[e]
    return n_rows


@kernel  # type: ignore[untyped-decorator]
def add_row(bounds: Bounds, k: int, written: Bounds, dense: Array) -> None:
    """Add row k of one set of bounds to that of another, without entries that cancel."""
    begin, end = written.indptr[k], written.indptr[k + 1]
    for p in range(begin, end):
        dense[written.indices[p]] += written.data[p]
    for p in range(bounds.indptr[k], bounds.indptr[k + 1]):
        dense[bounds.indices[p]] += bounds.data[p]
        written.indices[end] = bounds.indices[p]
        end += 1
    written.indptr[k + 1] = collect_sums(
        dense, written.indices, written.data, begin, end
    )
