"""Compiled sum-product and max-marginals on forests, for many examples in one call.

Arrays are stacked as in `clew.models._forest_kernels`.
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Indices
from clew.models._forest_kernels import Forest, max_of_row, send_best
from clew.utils.kernels import inner_kernel, kernel

SMALLEST_SUM = 1e-200
"""Sums of exponentials below this are computed again in log space."""


@inner_kernel
def add_log_sum(values: Array, k: int, transition: Array, i: int) -> float:
    """Return log Σ_j exp(transition[j, i] + values[k, j])."""
    top = -np.inf
    for j in range(values.shape[1]):
        top = max(top, transition[j, i] + values[k, j])
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(values.shape[1]):
        total += np.exp(transition[j, i] + values[k, j] - top)
    return float(top + np.log(total))


@inner_kernel
def send_sum(
    values: Array,
    k: int,
    transition: Array,
    weights: Array,
    highest: float,
    messages: Array,
) -> None:
    """Set messages[k, i] = log Σ_j exp(transition[j, i] + values[k, j]).

    `weights` is exp(transition - highest), so that a message takes one exponential
    for each state; where the sum nearly underflows, one for each pair.
    """
    S = values.shape[1]
    top = max_of_row(values, k)
    for i in range(S):
        messages[k, i] = 0.0 if top > -np.inf else -np.inf
    if top == -np.inf:
        return
    for j in range(S):
        share = np.exp(values[k, j] - top)
        for i in range(S):
            messages[k, i] += share * weights[j, i]
    for i in range(S):
        if messages[k, i] < SMALLEST_SUM:
            messages[k, i] = add_log_sum(values, k, transition, i)
        else:
            messages[k, i] = top + highest + np.log(messages[k, i])


def send_messages(
    forest: Forest,
    chosen: Indices,
    transition: Array,
    weights: Array,
    highest: float,
    scores: Array,
) -> tuple[Array, Array]:
    """Send messages to the roots and back; `scores` become those of the subtrees.

    `weights` has no rows for max-product; see `send_sum` for sum-product.

    Returns
    -------
    nodes : ndarray of shape (n_nodes, S)
        The log sum (the best score) of v's tree with state j at v.
    rest : ndarray of shape (n_nodes, S)
        That of all but v's subtree, with state i at v's parent: with A(i, j) and the
        subtree's score it makes the edge's.
    """
    nodes = np.empty_like(scores)
    rest = np.empty_like(scores)
    _send_both_ways(
        forest,
        chosen,
        transition,
        weights,
        highest,
        scores,
        nodes,
        rest,
        np.empty_like(scores),
        np.zeros_like(scores),
        np.ascontiguousarray(transition.T),
        np.ascontiguousarray(weights.T),
    )
    return nodes, rest


@kernel
def _send_both_ways(
    forest: Forest,
    chosen: Indices,
    transition: Array,
    weights: Array,
    highest: float,
    scores: Array,
    nodes: Array,
    rest: Array,
    up: Array,
    outside: Array,
    down_transition: Array,
    down_weights: Array,
) -> None:
    """Fill nodes and rest.

    A child finds the sum over its siblings in two halves: those before it on the way
    up, those after it on the way down, in the same order backwards. Nothing is
    subtracted, so that states that are not allowed may score minus infinity.
    `outside` (n_nodes, S) has the surroundings of v and its later children.
    """
    S = scores.shape[1]
    sums = len(weights) > 0
    row = 0
    for e in chosen:
        first = forest.offsets[e]
        last = forest.offsets[e + 1]
        shift = row - first
        row += last - first
        for position in range(last - 1, first - 1, -1):
            v = forest.order[position]
            k = v + shift
            p = forest.parent[v] + shift
            if forest.parent[v] < 0:
                continue
            if sums:
                send_sum(scores, k, transition, weights, highest, up)
            else:
                send_best(scores, k, transition, True, up, k)
            for i in range(S):
                rest[k, i] = scores[p, i]
                scores[p, i] += up[k, i]
        for position in range(first, last):
            v = forest.order[position]
            k = v + shift
            p = forest.parent[v] + shift
            if forest.parent[v] >= 0:
                for i in range(S):
                    rest[k, i] += outside[p, i]
                    outside[p, i] += up[k, i]
                if sums:
                    send_sum(rest, k, down_transition, down_weights, highest, outside)
                else:
                    send_best(rest, k, down_transition, True, outside, k)
            for j in range(S):
                nodes[k, j] = scores[k, j] + outside[k, j]
