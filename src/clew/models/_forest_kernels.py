"""Compiled max-product on forests and their features, for many examples in one call.

A chain is a forest in which each node has one child. The nodes of all examples are
stacked: example e has the nodes ``offsets[e]`` to ``offsets[e + 1] - 1``. ``chosen``
lists the examples to solve; ``scores`` and ``states`` have rows for their nodes only,
in the order of ``chosen``. ``shift`` leads from a node to its row there.
``transition`` is indexed [child state, parent state].

Kernels use scalar loops: numba compiles one array expression as long as all the rest.
It compiles a kernel once more for each literal argument: np.int64 avoids that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.models.node_features import NodeFeatures
from clew.utils.kernels import inlined_kernel, inner_kernel, kernel


class Forest(NamedTuple):
    """All examples: their nodes, annotations, and where the blocks of w begin."""

    features: NodeFeatures
    offsets: Indices
    parent: NDArray[np.int64]
    """(nodes,) -1 for a root."""
    order: NDArray[np.int64]
    """(nodes,) parents before children, examples in place."""
    allowed: Mask
    """(nodes, S) the states that the annotation allows."""
    costs: Array
    """(nodes,) cost of a mistake, positive."""
    counted: Mask
    """(nodes,) whether a node has features; so have edges between two such nodes."""
    bias: int
    """First column of the weights of labels; -1 if there are none."""
    transition: int
    begin: int
    end: int
    """First columns of first and last labels; -1 if there are none."""
    input_stride: int
    """Distance in w between two inputs of a state."""
    state_stride: int
    label_scale: float
    """Size of the features that depend on labels alone."""
    forbidden: Mask
    """(S + 1, S + 1) [parent, child] pairs of states that no labeling has.

    The last row is for first labels, the last column for last ones.
    """


# Scores


@inner_kernel
def add_weights(scores: Array, k: int, value: float, w: Array, place: int) -> None:
    """Add value · w[place + s] to the score of each state s in row k."""
    for s in range(scores.shape[1]):
        scores[k, s] += value * w[place + s]


@inlined_kernel
def score_example(
    forest: Forest,
    e: int,
    shift: int,
    w: Array,
    penalty: float,
    scores: Array,
) -> None:
    """Fill `scores` with all that depends on one node: inputs, bias, ends, penalty.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Weights with the unary block as (F, S).
    penalty : float
        Added, times the node's cost, to the states that are not allowed;
        minus infinity for the search in Y*.
    """
    S = forest.allowed.shape[1]
    features = forest.features
    first = forest.offsets[e]
    last = forest.offsets[e + 1]
    for v in range(first, last):
        k = v + shift
        for s in range(S):
            scores[k, s] = 0.0
        if forest.counted[v]:
            to_column = features.column_begins[v] - features.begins[v]
            for entry in range(features.begins[v], features.begins[v + 1]):
                place = features.columns[entry + to_column] * S
                add_weights(scores, k, features.data[entry], w, place)
            if forest.bias >= 0:
                add_weights(scores, k, forest.label_scale, w, forest.bias)
            if forest.begin >= 0 and v == first:
                add_weights(scores, k, forest.label_scale, w, forest.begin)
            if forest.end >= 0 and v == last - 1:
                add_weights(scores, k, forest.label_scale, w, forest.end)
        for s in range(S):
            if not forest.allowed[v, s]:
                scores[k, s] += penalty * forest.costs[v]
            if v == first and forest.forbidden[S, s]:
                scores[k, s] = -np.inf
            if v == last - 1 and forest.forbidden[s, S]:
                scores[k, s] = -np.inf


@inner_kernel
def fill_transition_rows(forest: Forest, w: Array, scores: Array, row: int) -> None:
    """Fill S rows of `scores`, from `row` on, with transitions [child, parent]."""
    S = forest.allowed.shape[1]
    for i in range(S):
        for j in range(S):
            value = w[forest.transition + i * S + j]
            scores[row + j, i] = forest.label_scale * value
            if forest.forbidden[i, j]:
                scores[row + j, i] = -np.inf


@inner_kernel
def fill_transition(forest: Forest, w: Array, transition: Array) -> None:
    """Fill `transition` (S, S) [child, parent] from the weights."""
    fill_transition_rows(forest, w, transition, int(np.int64(0)))


@kernel
def score_examples(
    forest: Forest,
    chosen: Indices,
    w: Array,
    scores: Array,
    transition: Array,
) -> None:
    """Fill the scores of the chosen examples, and the transitions."""
    fill_transition(forest, w, transition)
    row = 0
    for e in chosen:
        first = forest.offsets[e]
        score_example(forest, e, row - first, w, 0.0, scores)
        row += forest.offsets[e + 1] - first


# Max-product


@inner_kernel
def send_best(
    values: Array,
    k: int,
    transition: Array,
    has_edge: bool,
    messages: Array,
    m: int,
) -> None:
    """Set messages[m, i] = max_j transition[j, i] + values[k, j]."""
    S = values.shape[1]
    for i in range(S):
        messages[m, i] = -np.inf
    for j in range(S):
        value = values[k, j]
        for i in range(S):
            candidate = transition[j, i] + value if has_edge else value
            messages[m, i] = candidate if candidate > messages[m, i] else messages[m, i]


@inner_kernel
def max_of_row(values: Array, k: int) -> float:
    """Return the largest value of row k."""
    best = -np.inf
    for s in range(values.shape[1]):
        best = max(best, values[k, s])
    return best


class LabelingScratch(NamedTuple):
    """Arrays of the search in one example; their rows are its nodes."""

    transition: Array
    """(S, S) of the current weights."""
    scores: Array
    messages: Array
    states: Indices


def make_labeling_scratch(n_states: int, longest: int) -> LabelingScratch:
    """Return arrays for examples of at most `longest` nodes."""
    return LabelingScratch(
        np.empty((n_states, n_states)),
        np.empty((longest, n_states)),
        np.empty((3, n_states)),
        np.empty(longest, np.intp),
    )


@inner_kernel
def choose_state(
    forest: Forest,
    v: int,
    first: int,
    transition: Array,
    scores: Array,
    states: Indices,
) -> None:
    """Set the best state of node v below its parent's, the lowest among equals.

    The rows of `scores` and `states` begin with node `first`.
    """
    p = forest.parent[v]
    has_edge = p >= 0 and forest.counted[v] and forest.counted[p]
    above = states[p - first] if p >= 0 else 0
    best = -np.inf
    state = 0
    for s in range(scores.shape[1]):
        value = scores[v - first, s]
        if has_edge:
            value += transition[s, above]
        if value > best:
            best = value
            state = s
    states[v - first] = state


@inner_kernel
def label_example(
    forest: Forest, e: int, w: Array, penalty: float, scratch: LabelingScratch
) -> None:
    """Write the best labeling of example e, the lowest states among equals.

    `fill_transition` comes before. The scores become the best scores of the subtrees,
    B_v(i) = score_v(i) + Σ_children max_j [A(i, j) + B_c(j)].
    """
    transition = scratch.transition
    scores = scratch.scores
    messages = scratch.messages
    first = forest.offsets[e]
    last = forest.offsets[e + 1]
    sent = int(np.int64(0))
    score_example(forest, e, -first, w, penalty, scores)
    for position in range(last - 1, first - 1, -1):  # children before parents
        v = forest.order[position]
        p = forest.parent[v]
        if p >= 0:
            has_edge = forest.counted[v] and forest.counted[p]
            send_best(scores, v - first, transition, has_edge, messages, sent)
            for i in range(scores.shape[1]):
                scores[p - first, i] += messages[sent, i]
    for position in range(first, last):  # parents before children
        v = forest.order[position]
        choose_state(forest, v, first, transition, scores, scratch.states)


@inner_kernel
def deviate_example(
    forest: Forest,
    e: int,
    slack: Array,
    carrier: Indices,
    scratch: LabelingScratch,
) -> float:
    """Change the best labeling to the best one with a state that is not allowed.

    `label_example` comes before. S_v(i), in `slack`, is what the best labeling of v's
    subtree with state i at v loses if it must deviate there: 0 where i itself deviates,
    else the least loss among the children, infinite at a leaf. `carrier` is the child
    that deviates at least loss.

    Returns
    -------
    loss : float
        What this loses. Infinite if there is no such labeling; then the states are
        unchanged.
    """
    transition = scratch.transition
    scores = scratch.scores
    messages = scratch.messages
    states = scratch.states
    S = scores.shape[1]
    first = forest.offsets[e]
    last = forest.offsets[e + 1]
    for k in range(last - first):
        for s in range(S):
            slack[k, s] = 0.0 if not forest.allowed[first + k, s] else np.inf
    sent = int(np.int64(0))
    forced = int(np.int64(1))
    forced_sent = int(np.int64(2))
    least = np.inf
    deviating = -1  # its subtree must deviate, or it itself
    for position in range(last - 1, first - 1, -1):  # children before parents
        v = forest.order[position]
        p = forest.parent[v]
        for s in range(S):
            messages[forced, s] = scores[v - first, s] - slack[v - first, s]
        if p >= 0:
            has_edge = forest.counted[v] and forest.counted[p]
            send_best(scores, v - first, transition, has_edge, messages, sent)
            send_best(messages, forced, transition, has_edge, messages, forced_sent)
            for i in range(S):
                loss = messages[sent, i] - messages[forced_sent, i]
                if forest.allowed[p, i] and loss <= slack[p - first, i]:
                    slack[p - first, i] = loss
                    carrier[p - first, i] = v
        else:
            loss = max_of_row(scores, v - first) - max_of_row(messages, forced)
            if loss <= least:
                least = loss
                deviating = v
    if not least < np.inf:
        return least
    for position in range(first, last):  # parents before children
        v = forest.order[position]
        k = v - first
        if v == deviating:
            for s in range(S):
                scores[k, s] -= slack[k, s]
        choose_state(forest, v, first, transition, scores, states)
        if v == deviating:
            deviating = carrier[k, states[k]] if forest.allowed[v, states[k]] else -1
    return least


@kernel
def label_examples(
    forest: Forest,
    chosen: Indices,
    w: Array,
    penalty: Array,
    scratch: LabelingScratch,
    states: Indices,
) -> None:
    """Fill `states` with the best labelings of the chosen examples."""
    fill_transition(forest, w, scratch.transition)
    row = 0
    for e in chosen:
        label_example(forest, e, w, penalty[e], scratch)
        for t in range(forest.offsets[e + 1] - forest.offsets[e]):
            states[row] = scratch.states[t]
            row += 1


@kernel
def label_incompatible_examples(
    forest: Forest,
    chosen: Indices,
    w: Array,
    penalty: Array,
    scratch: LabelingScratch,
    slack: Array,
    carrier: Indices,
    states: Indices,
    found: Mask,
) -> None:
    """Fill `states` with the best labelings in Y°, and `found`.

    `slack` and `carrier` are as in `deviate_example`, for the longest one.
    """
    fill_transition(forest, w, scratch.transition)
    row = 0
    for n in range(len(chosen)):
        e = chosen[n]
        label_example(forest, e, w, penalty[e], scratch)
        found[n] = deviate_example(forest, e, slack, carrier, scratch) < np.inf
        for t in range(forest.offsets[e + 1] - forest.offsets[e]):
            states[row] = scratch.states[t]
            row += 1


# Features


@inner_kernel
def add_node(
    forest: Forest,
    e: int,
    v: int,
    state: int,
    above: int,
    whole: bool,
    share: float,
    label_share: float,
    dense: Array,
    columns: NDArray[np.uint32],
    end: int,
) -> int:
    """Add φ of one node, and of its edge, to `dense` (d,).

    Parameters
    ----------
    above : int
        State of the parent; -1 without an edge.
    whole : bool
        If False, only the edge is added.
    share, label_share : float
        Factors of the features of inputs and of labels.

    Returns
    -------
    end : int
        End of `columns`, to which the columns that were met are appended.
    """
    if whole:
        features = forest.features
        to_column = features.column_begins[v] - features.begins[v]
        input_stride = forest.input_stride
        origin = state * forest.state_stride
        for entry in range(features.begins[v], features.begins[v + 1]):
            place = features.columns[entry + to_column] * input_stride + origin
            dense[place] += share * features.data[entry]
            columns[end] = place
            end += 1
        begin = forest.begin if v == forest.offsets[e] else -1
        last = forest.end if v == forest.offsets[e + 1] - 1 else -1
        for origin in (forest.bias, begin, last):
            if origin >= 0:
                dense[origin + state] += label_share
                columns[end] = origin + state
                end += 1
    if above >= 0:
        place = forest.transition + above * forest.allowed.shape[1] + state
        dense[place] += label_share
        columns[end] = place
        end += 1
    return end


@inner_kernel
def collect_sums(
    dense: Array, columns: NDArray[np.uint32], values: Array, begin: int, end: int
) -> int:
    """Move the sums in `dense` to `values`, each column once and without zeros.

    Returns
    -------
    end : int
        End of the entries that are left.
    """
    n_entries = begin
    for p in range(begin, end):  # a column that was met before is zero by now
        place = columns[p]
        if dense[place] != 0.0:
            values[n_entries] = dense[place]
            columns[n_entries] = place
            dense[place] = 0.0
            n_entries += 1
    return n_entries


@kernel
def write_features(
    forest: Forest,
    chosen: Indices,
    found: Mask,
    states: Indices,
    dense: Array,
    values: Array,
    columns: NDArray[np.uint32],
    indptr: NDArray[np.int64],
    mistakes: Array,
) -> None:
    """Write φ of each labeling as a CSR row, and the costs of its mistakes.

    Label features have the size 1. `dense` (d,) is zero before and after.
    """
    row = 0
    for n in range(len(chosen)):
        e = chosen[n]
        first = forest.offsets[e]
        shift = row - first
        end = indptr[n]
        for v in range(first, forest.offsets[e + 1] if found[n] else first):
            state = states[v + shift]
            if not forest.allowed[v, state]:
                mistakes[n] += forest.costs[v]
            if forest.counted[v]:
                p = forest.parent[v]
                has_edge = p >= 0 and forest.counted[p]
                above = states[p + shift] if has_edge else -1
                end = add_node(
                    forest,
                    e,
                    v,
                    state,
                    above,
                    forest.counted[v],
                    1.0,
                    1.0,
                    dense,
                    columns,
                    end,
                )
        indptr[n + 1] = collect_sums(dense, columns, values, indptr[n], end)
        row = shift + forest.offsets[e + 1]


@inlined_kernel
def write_difference(
    forest: Forest,
    e: int,
    states: Indices,
    reference: Indices,
    share: float,
    dense: Array,
    values: Array,
    columns: NDArray[np.uint32],
    begin: int,
) -> int:
    """Write share · (φ(states) - φ(reference)) of one example; return its end.

    `states` (T,) begins at the example's first node, `reference` has all nodes. `dense` (d,) is zero before and after.
    """
    first = forest.offsets[e]
    end = begin
    for v in range(first, forest.offsets[e + 1]):
        if not forest.counted[v]:
            continue
        p = forest.parent[v]
        has_edge = p >= 0 and forest.counted[p]
        differs = states[v - first] != reference[v]
        edge_differs = has_edge and (differs or states[p - first] != reference[p])
        if not differs and not edge_differs:
            continue
        for side in range(2):
            sign = share if side == 0 else -share
            state = states[v - first] if side == 0 else reference[v]
            above = -1
            if edge_differs:
                above = states[p - first] if side == 0 else reference[p]
            end = add_node(
                forest,
                e,
                v,
                state,
                above,
                differs,
                sign,
                sign * forest.label_scale,
                dense,
                columns,
                end,
            )
    return int(collect_sums(dense, columns, values, begin, end))
