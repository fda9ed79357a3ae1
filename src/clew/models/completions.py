"""Bounds that follow the completion of the annotation between CCCP iterations.

The reward's output ỹ completes what is annotated. If ỹ changes at some nodes, v changes
by all of φ(ỹ_new) − φ(ỹ_old), while the outputs of the bounds still agree with ỹ_old
there: w(α) would jump, and passes would have to find the same mistakes again around the
new completion. But an output that takes over ỹ_new where it agreed with ỹ_old is an
output too, and has a bound. If it replaces the old one, with its α, w hardly changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from clew.learning.sparse_rows import subtract_sparse
from clew.learning.task import Array, Indices, Mask, Matrix

if TYPE_CHECKING:
    from clew.learning.bounds import Bundle
    from clew.models._forest_online import ForestOracle

CHUNK = 2048
"""Bounds whose features are written at a time, to save memory."""


def follow(
    oracle: ForestOracle, bundle: Bundle, old: Indices, old_offsets: Array
) -> None:
    """Rewrite the bounds as differences from the oracle's new references.

    Outputs change where they agreed with the old references. Bounds whose outputs are
    not known stay the same functions of w.
    """
    bounds = bundle.bounds
    n_rows = len(bundle)
    offsets = bounds.offsets[:n_rows]
    example = oracle.examples[bounds.group[:n_rows]]
    n_changed = np.add.reduceat(old != oracle.reference, oracle.task.offsets[:-1])
    n_entries = np.diff(bounds.indptr[: n_rows + 1])
    is_reference = (n_entries == 0) & (offsets == 0.0)
    is_moved = (n_changed[example] > 0) & ~is_reference
    is_known = is_moved & (bundle.bounds.tags[:n_rows] >= 0)
    is_unknown = is_moved & ~is_known
    slopes = _move_known(oracle, bundle, np.flatnonzero(is_known), old)
    _replace_rows(bundle, is_known, slopes)
    slopes = _move_unknown(oracle, bundle, np.flatnonzero(is_unknown), old)
    _replace_rows(bundle, is_unknown, slopes)
    offset_change = (old_offsets - oracle.base_offsets)[example]
    offsets[is_unknown] += offset_change[is_unknown]
    bundle.n_multiplied = 0


def _move_known(
    oracle: ForestOracle, bundle: Bundle, rows: Indices, old: Indices
) -> Matrix:
    """Change the outputs and offsets of these bounds; return their slopes."""
    bounds = bundle.bounds
    new = oracle.reference
    slopes = []
    for chunk in _split_rows(rows):
        example = oracle.examples[bounds.group[chunk]]
        lengths = oracle.lengths[example]
        n_before = np.cumsum(lengths) - lengths
        place = np.arange(lengths.sum()) + np.repeat(
            bundle.bounds.tags[chunk] - n_before, lengths
        )
        nodes = oracle.task.nodes_of(example)
        before = oracle.outputs[place]
        states = np.where(before == old[nodes], new[nodes], before)
        is_output = np.repeat(_is_legal(oracle, nodes, lengths, states), lengths)
        states = np.where(is_output, states, before)
        oracle.outputs[place] = states
        difference, loss = _describe_difference(
            oracle, bundle, example, states, new[nodes]
        )
        wrong = oracle.weights[example] * oracle.loss.penalty_weight * loss
        if oracle.loss.margin:
            contradicts = ~oracle.task.allowed[nodes, states]
            wrong += oracle.loss.margin * np.logical_or.reduceat(contradicts, n_before)
        bounds.offsets[chunk] = wrong - oracle.base_offsets[example]
        slopes.append(difference)
    return sp.vstack(slopes, format="csr")


def _is_legal(
    oracle: ForestOracle, nodes: Indices, lengths: Indices, states: Indices
) -> Mask:
    """(n,) whether labelings of examples, one after the other, have no forbidden pair."""
    forbidden = oracle.forest.forbidden
    n_states = oracle.n_states
    last = np.cumsum(lengths) - 1
    first = last + 1 - lengths
    parent = oracle.forest.parent[nodes]
    has_parent = parent >= 0
    above = np.where(has_parent, np.arange(len(nodes)) + parent - nodes, 0)
    is_bad = has_parent & forbidden[states[above], states]
    is_bad[first] |= forbidden[n_states, states[first]]
    is_bad[last] |= forbidden[states[last], n_states]
    return ~np.logical_or.reduceat(is_bad, first)


def _move_unknown(
    oracle: ForestOracle, bundle: Bundle, rows: Indices, old: Indices
) -> Matrix:
    """Return the slopes of these bounds relative to the new references."""
    bounds = bundle.bounds
    slopes_before = bundle.rows
    slopes = []
    for chunk in _split_rows(rows):
        example = oracle.examples[bounds.group[chunk]]
        nodes = oracle.task.nodes_of(example)
        change, _ = _describe_difference(
            oracle, bundle, example, oracle.reference[nodes], old[nodes]
        )
        slopes.append(subtract_sparse(slopes_before[chunk], change))
    return sp.vstack(slopes, format="csr")


def _split_rows(rows: Indices) -> list[Indices]:
    """Split rows into chunks, at least one."""
    return np.array_split(rows, max(1, -(-len(rows) // CHUNK)))


def _describe_difference(
    oracle: ForestOracle,
    bundle: Bundle,
    example: Indices,
    states: Indices,
    reference: Indices,
) -> tuple[Matrix, Array]:
    """Return the weighted φ(states) − φ(reference) in the bundle's order, and Δ.

    `example` may repeat examples; the labelings have the nodes of each in turn.
    """
    task = oracle.task
    has_output = np.ones(len(example), dtype=bool)
    answer = task.describe(states.astype(np.intp), has_output, example)
    other = task.describe(reference, has_output, example)
    difference = subtract_sparse(answer.features, other.features)
    difference.data *= np.repeat(oracle.weights[example], np.diff(difference.indptr))
    assert bundle.place is not None
    difference.indices = bundle.place[difference.indices].astype(np.int32)
    return difference, answer.loss


def _replace_rows(bundle: Bundle, mask: Mask, slopes: Matrix) -> None:
    """Replace the slopes of the bounds in the mask."""
    if not mask.any():
        return
    bounds = bundle.bounds
    n_rows = len(bundle)
    n_before = np.diff(bounds.indptr[: n_rows + 1])
    n_after = n_before.copy()
    n_after[mask] = np.diff(slopes.indptr)
    is_kept_before = np.repeat(~mask, n_before)
    is_kept_after = np.repeat(~mask, n_after)
    data = np.empty(len(is_kept_after))
    indices = np.empty(len(is_kept_after), dtype=np.uint32)
    data[is_kept_after] = bounds.data[: len(is_kept_before)][is_kept_before]
    data[~is_kept_after] = slopes.data
    indices[is_kept_after] = bounds.indices[: len(is_kept_before)][is_kept_before]
    indices[~is_kept_after] = slopes.indices
    indptr = np.zeros_like(bounds.indptr)
    np.cumsum(n_after, out=indptr[1 : n_rows + 1])
    bundle.bounds = bounds._replace(data=data, indices=indices, indptr=indptr)
