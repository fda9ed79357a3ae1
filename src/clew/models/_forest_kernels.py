"""Max-product on forests, for many examples in one call. A chain is a tree in which each node has one child.

All arrays of nodes are stacked: example e has the nodes offsets[e] … offsets[e+1]-1. `chosen` are the examples that are
asked for; `scores` and `states` have rows for their nodes only, in the order of `chosen`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask

kernel = njit(cache=True, nogil=True)


@kernel  # type: ignore[untyped-decorator]
def topological_order(parent: Indices, order: Indices) -> int:
    """Fill `order` with all nodes, parents first; returns a node on a cycle, or -1.

    Examples stay together and in place: nodes are visited in turn, and no edge leaves an example.
    """
    unseen, on_path, done = 0, 1, 2
    mark = np.zeros(len(parent), np.int8)
    path = np.empty(len(parent), np.int64)
    written = 0
    for v in range(len(parent)):
        length = 0
        u = v
        while u >= 0 and mark[u] == unseen:
            mark[u] = on_path
            path[length] = u
            length += 1
            u = parent[u]
        if u >= 0 and mark[u] == on_path:
            return int(u)
        for step in range(length - 1, -1, -1):
            mark[path[step]] = done
            order[written] = path[step]
            written += 1
    return -1


@kernel  # type: ignore[untyped-decorator]
def complete_scores(
    scores: Array,
    chosen: Indices,
    offsets: Indices,
    allowed: Mask,
    counted: Mask,
    penalty: Array,
    costs: Array,
    bias: Array,
    begin: Array,
    end: Array,
) -> None:
    """From unary scores to all that depends on one node: bias, boundary, and `penalty` for a state not allowed.

    penalty[e] is loss_weight · Δ's unit for example e, or minus infinity for the search in Y*; costs[v] > 0 is what a
    mistake counts at node v. A node that is not counted has no features, only its penalty.
    """
    n_states = scores.shape[1]
    k = 0
    for e in chosen:
        for v in range(offsets[e], offsets[e + 1]):
            if not counted[v]:
                scores[k] = 0.0
            else:
                for s in range(n_states):
                    scores[k, s] += bias[s]
                if v == offsets[e]:
                    scores[k] += begin
                if v == offsets[e + 1] - 1:
                    scores[k] += end
            for s in range(n_states):
                scores[k, s] += 0.0 if allowed[v, s] else penalty[e] * costs[v]
            k += 1


@kernel  # type: ignore[untyped-decorator]
def best_child(
    values: Array, transition: Array, edge_counts: bool, message: Array
) -> None:
    """message[i] = max_j transition[j, i] + values[j]; `transition` is [child state, parent state] here."""
    message[:] = -np.inf
    for j in range(len(values)):
        value = values[j]
        if edge_counts:
            for i in range(len(message)):
                candidate = transition[j, i] + value
                message[i] = candidate if candidate > message[i] else message[i]
        else:
            for i in range(len(message)):
                message[i] = value if value > message[i] else message[i]


@kernel  # type: ignore[untyped-decorator]
def maximise(
    scores: Array,
    chosen: Indices,
    offsets: Indices,
    order: Indices,
    parent: Indices,
    allowed: Mask,
    counted: Mask,
    transition: Array,
    deviate: bool,
    states: Indices,
) -> Mask:
    """Fill `states` with the best labelings (the lowest states among equals); returns which examples have one.

    `scores` become the best scores of the subtrees, B_v(i) = score_v(i) + Σ_children max_j [A(i, j) + B_c(j)].
    With `deviate`, only labelings that choose a state not allowed at some node count. The bit "has deviated" is carried
    as a slack: S_v(i) is what the best labeling of v's subtree with state i at v loses when it must deviate there. That
    is 0 where i itself deviates, and else the least loss among the children, infinite at a leaf.
    """
    found = np.ones(len(chosen), np.bool_)
    longest = 0
    for e in chosen:
        longest = max(longest, offsets[e + 1] - offsets[e])
    # the arrays of one example, made once; those of slacks have no rows where nothing must deviate
    slack = np.empty((longest if deviate else 0, scores.shape[1]))
    carrier = np.empty(slack.shape, np.int64)  # the child that deviates at least cost
    must = np.zeros(longest, np.bool_)
    messages = np.empty((2, scores.shape[1]))
    row = 0
    for n in range(len(chosen)):
        first, last = offsets[chosen[n]], offsets[chosen[n] + 1]
        rows = slice(row, row + last - first)
        row += last - first
        nodes = order[first:last]  # parents before children
        root = _pass_up(
            scores[rows],
            nodes,
            first,
            parent,
            allowed,
            counted,
            transition,
            slack,
            carrier,
            messages,
        )
        found[n] = not deviate or root >= 0
        _pass_down(
            scores[rows],
            nodes,
            first,
            parent,
            allowed,
            counted,
            transition,
            slack,
            carrier,
            root,
            must,
            states[rows],
        )
    return found


@kernel  # type: ignore[untyped-decorator]
def _pass_up(
    scores: Array,
    nodes: Indices,
    first: int,
    parent: Indices,
    allowed: Mask,
    counted: Mask,
    transition: Array,
    slack: Array,
    carrier: Indices,
    messages: Array,
) -> int:
    """Children before parents: messages are added to the parents' scores, and slacks passed on if these have rows.

    `scores`, `slack` and `carrier` begin at the example's node `first`. Returns the root of the tree that deviates at
    least cost, or −1 where none can.
    """
    n_states = scores.shape[1]
    message, forced_message = messages  # room for them
    slack[: len(nodes)] = np.inf
    least, root = np.inf, -1
    for position in range(len(nodes) - 1, -1, -1):
        v = nodes[position]
        p = parent[v]
        own = scores[v - first]
        if p >= 0:
            best_child(own, transition, counted[v] and counted[p], message)
            scores[p - first] += message
        if not len(slack):
            continue
        for s in range(n_states):
            if not allowed[v, s]:
                slack[v - first, s] = 0.0
        forced = own - slack[v - first]
        if p >= 0:
            best_child(forced, transition, counted[v] and counted[p], forced_message)
            for i in range(n_states):
                if message[i] - forced_message[i] <= slack[p - first, i]:
                    slack[p - first, i] = message[i] - forced_message[i]
                    carrier[p - first, i] = v
        elif own.max() - forced.max() <= least:
            least, root = own.max() - forced.max(), v
    return root if least < np.inf else -1


@kernel  # type: ignore[untyped-decorator]
def _pass_down(
    scores: Array,
    nodes: Indices,
    first: int,
    parent: Indices,
    allowed: Mask,
    counted: Mask,
    transition: Array,
    slack: Array,
    carrier: Indices,
    root: int,
    must: Mask,
    states: Indices,
) -> None:
    """Parents before children: each node takes its best state given its parent's.

    `must` follows the way of the least slack from the root that deviates to the node that does.
    """
    deviate = len(slack) > 0
    for v in nodes:
        p = parent[v]
        above = states[p - first] if p >= 0 else -1
        if deviate and p < 0:
            must[v - first] = v == root
        elif deviate:
            must[v - first] = (
                must[p - first] and allowed[p, above] and carrier[p - first, above] == v
            )
        edge_counts = p >= 0 and counted[v] and counted[p]
        best = -np.inf
        states[v - first] = 0
        for s in range(scores.shape[1]):
            value = scores[v - first, s]
            if must[v - first]:
                value -= slack[v - first, s]
            if edge_counts:
                value += transition[s, above]
            if value > best:
                best = value
                states[v - first] = s


class InputRows(NamedTuple):
    """The features of all nodes, as `clew.models.node_features.Inputs` stacks them."""

    data: Array
    begins: Indices
    columns: NDArray[np.int32]
    column_begins: Indices
    n_inputs: int


class Forest(NamedTuple):
    """All examples: their nodes, what is annotated of them, and where the blocks of w begin."""

    offsets: Indices
    parent: Indices
    allowed: Mask
    costs: Array
    counted: Mask
    blocks: Indices
    """The first columns of bias, transition, begin and end; -1 where a model lacks them."""


class SparseRows(NamedTuple):
    """CSR rows to be filled, and the task loss of each."""

    values: Array
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    mistakes: Array


@kernel  # type: ignore[untyped-decorator]
def collect_features(
    inputs: InputRows,
    forest: Forest,
    n_features: int,
    states: Indices,
    chosen: Indices,
    found: Mask,
    rows: SparseRows,
) -> None:
    """φ of each labeling as a CSR row without duplicates, and the costs of its states that are not allowed."""
    data, begins, columns, column_begins, n_inputs = inputs
    offsets, parent, allowed, costs, counted, blocks = forest
    values, indices, indptr, mistakes = rows
    n_states = allowed.shape[1]
    slot = np.full(
        n_features, -1, np.int64
    )  # where a column was last written; before this row's start means never
    written = 0
    row = 0
    for n in range(len(chosen)):
        first, last = offsets[chosen[n]], offsets[chosen[n] + 1]
        start = written
        for v in range(first, last if found[n] else first):
            s = states[row + v - first]
            if not allowed[v, s]:
                mistakes[n] += costs[v]
            if not counted[v]:
                continue
            here = begins[v + 1] - begins[v]
            p = parent[v]
            for entry in range(here + 4):
                value = 1.0
                if entry < here:
                    value = data[begins[v] + entry]
                    column = s * n_inputs + columns[column_begins[v] + entry]
                else:
                    block = entry - here
                    if blocks[block] < 0:
                        continue
                    if (block == 2 and v != first) or (block == 3 and v != last - 1):
                        continue
                    column = blocks[block] + s
                    if block == 1:
                        if p < 0 or not counted[p]:
                            continue
                        column += states[row + p - first] * n_states
                if slot[column] < start:
                    slot[column] = written
                    indices[written] = column
                    values[written] = value
                    written += 1
                else:
                    values[slot[column]] += value
        row += last - first
        indptr[n + 1] = written
