"""Max-marginals and marginals on forests: messages up to the roots and down again, for many examples in one call.

Arrays are stacked as in max_product.py; `transition` is [child state, parent state] here too. `soft` sums over
labelings in log space (sum-product: log Z and probabilities), otherwise the best one counts (max-product:
max-marginals). Nothing is subtracted anywhere, so that states which are not allowed may score minus infinity.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clew.learning.task import Array, Indices

kernel = njit(cache=True, nogil=True)


@kernel  # type: ignore[untyped-decorator]
def log_sum(values: Array) -> float:
    """The logarithm of Σ exp(values); minus infinity where all of them are."""
    top = values.max()
    if top == -np.inf:
        return float(top)
    total = 0.0
    for value in values:
        total += np.exp(value - top)
    return float(top + np.log(total))


@kernel  # type: ignore[untyped-decorator]
def combine(
    values: Array,
    transition: Array,
    weights: Array,
    shift: float,
    soft: bool,
    message: Array,
) -> None:
    """message[i] = max_j or log Σ_j exp of [transition[j, i] + values[j]]; weights = exp(transition − shift).

    A sum takes one exponential for each state, and not for each pair; where it nearly underflows, all of them.
    """
    top = values.max()
    if top == -np.inf:
        message[:] = -np.inf
        return
    if not soft:
        message[:] = -np.inf
        for j in range(len(values)):
            for i in range(len(message)):
                message[i] = max(message[i], transition[j, i] + values[j])
        return
    message[:] = 0.0
    for j in range(len(values)):
        share = np.exp(values[j] - top)
        for i in range(len(message)):
            message[i] += share * weights[j, i]
    for i in range(len(message)):
        exact = message[i] < 1e-200
        message[i] = (
            log_sum(transition[:, i] + values)
            if exact
            else top + shift + np.log(message[i])
        )


@kernel  # type: ignore[untyped-decorator]
def send_messages(
    scores: Array,
    chosen: Indices,
    offsets: Indices,
    order: Indices,
    parent: Indices,
    transition: Array,
    soft: bool,
    rest: Array,
    nodes: Indices,
) -> Array:
    """Fill `nodes` and `rest`; returns the total of each example: its best score, or log Z.

    `scores` become those of the subtrees, B_v(j). nodes[v, j] is the best score (log sum) of v's tree with state j at
    v. rest[v, i] is that of all but v's subtree, with state i at v's parent: with A(i, j) + B_v(j) it makes the edge's.
    Each child finds the sum over its siblings in two halves: those before it on the way up, those after it on the way
    down, when the same order is walked from the other end.
    """
    n_states = scores.shape[1]
    shift = transition.max() if transition.size else 0.0
    weights = np.exp(transition - shift)
    totals = np.zeros(len(chosen))
    up = np.empty_like(scores)
    outside = np.zeros_like(
        scores
    )  # all that is known of v's surroundings, then with the subtrees of its later children
    back = weights.T.copy()
    to_parent = transition.T.copy()
    row = 0
    for n in range(len(chosen)):
        first, last = offsets[chosen[n]], offsets[chosen[n] + 1]
        at = row - first  # from a node to its row
        row += last - first
        for position in range(last - 1, first - 1, -1):
            v = order[position]
            p = parent[v]
            if p >= 0:
                combine(scores[v + at], transition, weights, shift, soft, up[v + at])
                for i in range(n_states):
                    rest[v + at, i] = scores[p + at, i]
                    scores[p + at, i] += up[v + at, i]
            else:
                totals[n] += log_sum(scores[v + at]) if soft else scores[v + at].max()
        for position in range(first, last):
            v = order[position]
            p = parent[v]
            if p >= 0:
                for i in range(n_states):
                    rest[v + at, i] += outside[p + at, i]
                    outside[p + at, i] += up[v + at, i]
                combine(rest[v + at], to_parent, back, shift, soft, outside[v + at])
            for j in range(n_states):
                nodes[v + at, j] = scores[v + at, j] + outside[v + at, j]
    return totals


@kernel  # type: ignore[untyped-decorator]
def expected_transitions(
    below: Array,
    rest: Array,
    chosen: Indices,
    offsets: Indices,
    parent: Indices,
    transition: Array,
    share: Array,
    expected: Array,
) -> None:
    """Add to expected[i, j] (parent, child) the sum over all edges of share[n] · P(i, j), from `send_messages`."""
    n_states = below.shape[1]
    shift = transition.max()
    weights = np.exp(transition - shift)
    p_rest, p_below = np.empty(n_states), np.empty(n_states)
    pair = np.empty((n_states, n_states))
    row = 0
    for n in range(len(chosen)):
        for v in range(offsets[chosen[n]], offsets[chosen[n] + 1]):
            if parent[v] >= 0:
                top, bottom = rest[row].max(), below[row].max()
                for s in range(n_states):
                    p_rest[s] = np.exp(rest[row, s] - top)
                    p_below[s] = np.exp(below[row, s] - bottom)
                total = 0.0
                for j in range(n_states):
                    for i in range(n_states):
                        pair[i, j] = p_rest[i] * weights[j, i] * p_below[j]
                        total += pair[i, j]
                if (
                    total < 1e-200
                ):  # the likely ends do not go together: all in log space
                    most = -np.inf
                    for j in range(n_states):
                        for i in range(n_states):
                            pair[i, j] = rest[row, i] + transition[j, i] + below[row, j]
                            most = max(most, pair[i, j])
                    pair = np.exp(pair - most)
                    total = pair.sum()
                for i in range(n_states):
                    for j in range(n_states):
                        expected[i, j] += share[n] * pair[i, j] / total
            row += 1
