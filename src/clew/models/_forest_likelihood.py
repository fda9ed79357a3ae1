"""Compiled log-likelihood of forests: losses, gradients, and stochastic steps.

Messages are probabilities up to a factor, so that a node takes one exponential for each
state. Where they underflow, a loss is NaN: states of an example then differ by more
than 450 in score, and `_forest_marginals` has the same sums in log space.

Rows of scratch arrays are the nodes of one example. Weights have the unary block as
(F, S); sums over edges are (S, S) [child, parent].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.models._forest_kernels import (
    Forest,
    fill_transition_rows,
    max_of_row,
    score_example,
)
from clew.models._forest_online import arrange_by_input, transpose_unary
from clew.utils.kernels import inner_kernel, kernel

if TYPE_CHECKING:
    from clew.models.forest import ForestTask

SMALLEST = 1e-200
"""Sums of probabilities below this have lost precision."""
SLOPE_LEFT = 0.1
"""A step is shortened while the slope behind it is steeper than this, of that before."""
MAX_TRIALS = 8
MAX_GROWTH = 4.0
"""Largest factor on the length of an example's next step."""

Single = NDArray[np.float32]


class SumScratch(NamedTuple):
    """Messages of one example, and the exponentials of the transitions."""

    weights: Array
    """(S, S) [child, parent]"""
    down_weights: Array
    """(S, S) [parent, child]"""
    below: Array
    """(T, S) of v's subtree."""
    up: Array
    """(T, S) v's message to its parent's states."""
    rest: Array
    """(T, S) of all but v's subtree, by the state of v's parent."""
    outside: Array
    """(T, S) of all but v's subtree, by the state of v."""


class StepScratch(NamedTuple):
    """Arrays (T + S, S) of one step of stochastic ascent.

    The rows after the nodes of an example are those of the transitions, so that one
    loop goes over all that a likelihood depends on.
    """

    scores: Array
    trial_scores: Array
    change: Array
    """Of the scores along the step."""
    gradient: Array
    trial_gradient: Array


def make_sum_scratch(n_states: int, longest: int) -> SumScratch:
    """Return arrays for examples of at most `longest` nodes."""
    squares = [np.empty((n_states, n_states)) for _ in range(2)]
    rows = [np.empty((longest, n_states)) for _ in range(4)]
    return SumScratch(*squares, *rows)


def make_step_scratch(n_states: int, longest: int) -> StepScratch:
    """Return arrays for examples of at most `longest` nodes."""
    return StepScratch(*(np.empty((longest + n_states, n_states)) for _ in range(5)))


@inner_kernel
def fill_scores(forest: Forest, e: int, w: Array, scores: Array) -> None:
    """Fill the scores of the nodes of one example, and of the transitions."""
    first = forest.offsets[e]
    score_example(forest, e, -first, w, 0.0, scores)
    fill_transition_rows(forest, w, scores, forest.offsets[e + 1] - first)


@inner_kernel
def fill_exponentials(scores: Array, n_nodes: int, sums: SumScratch) -> float:
    """Set weights = exp(transition - highest), both ways, and return the highest."""
    S = scores.shape[1]
    highest = -np.inf
    for j in range(S):
        highest = max(highest, max_of_row(scores, n_nodes + j))
    for j in range(S):
        for i in range(S):
            sums.weights[j, i] = np.exp(scores[n_nodes + j, i] - highest)
            sums.down_weights[i, j] = sums.weights[j, i]
    return highest


@inner_kernel
def divide_by_largest(values: Array, k: int) -> float:
    """Divide row k by its largest value, and return that."""
    largest = max_of_row(values, k)
    factor = 1.0 / largest
    for s in range(values.shape[1]):
        values[k, s] *= factor
    return largest


@inner_kernel
def add_probabilities(
    forest: Forest,
    e: int,
    scores: Array,
    highest: float,
    sign: float,
    sums: SumScratch,
    gradient: Array,
) -> float:
    """Add sign · P of each node's state and of each edge's pair; return log Z.

    The sums are over Y if `sign` is 1, and over Y* if it is -1. `sums.weights` and
    `highest` are those of `fill_exponentials`.
    """
    weights, down_weights, below, up, rest, outside = sums
    is_compatible = sign < 0.0
    S = scores.shape[1]
    first = forest.offsets[e]
    last = forest.offsets[e + 1]
    n_nodes = last - first
    log_sum = 0.0
    for v in range(first, last):
        k = v - first
        top = -np.inf
        for s in range(S):
            if not is_compatible or forest.allowed[v, s]:
                top = max(top, scores[k, s])
        for s in range(S):
            is_in = not is_compatible or forest.allowed[v, s]
            below[k, s] = np.exp(scores[k, s] - top) if is_in else 0.0
            outside[k, s] = 1.0
        log_sum += top
    for position in range(last - 1, first - 1, -1):
        v = forest.order[position]
        k = v - first
        p = forest.parent[v] - first
        if forest.parent[v] < 0:
            continue
        for i in range(S):
            up[k, i] = 0.0
        for j in range(S):
            value = below[k, j]
            for i in range(S):
                up[k, i] += value * weights[j, i]
        largest = divide_by_largest(up, k)
        if not largest > SMALLEST:
            return np.nan
        log_sum += highest + np.log(largest)
        for i in range(S):
            rest[k, i] = below[p, i]
            below[p, i] *= up[k, i]
    for position in range(first, last):
        v = forest.order[position]
        k = v - first
        p = forest.parent[v] - first
        if forest.parent[v] >= 0:
            for i in range(S):
                rest[k, i] *= outside[p, i]
                outside[p, i] *= up[k, i]
            for j in range(S):
                outside[k, j] = 0.0
            for i in range(S):
                value = rest[k, i]
                for j in range(S):
                    outside[k, j] += value * down_weights[i, j]
        total = 0.0
        for s in range(S):
            total += below[k, s] * outside[k, s]
        if not total > SMALLEST:
            return np.nan
        scale = sign / total
        for s in range(S):
            gradient[k, s] += scale * below[k, s] * outside[k, s]
        if forest.parent[v] < 0:
            log_sum += np.log(total)
            continue
        for j in range(S):
            share = scale * below[k, j]
            for i in range(S):
                gradient[n_nodes + j, i] += share * weights[j, i] * rest[k, i]
        divide_by_largest(outside, k)
    return log_sum


@inner_kernel
def find_log_loss(
    forest: Forest,
    e: int,
    is_determined: bool,
    scores: Array,
    sums: SumScratch,
    gradient: Array,
) -> float:
    """Return -log P(Y* | x), and fill its gradient by the scores."""
    S = scores.shape[1]
    first = forest.offsets[e]
    n_nodes = forest.offsets[e + 1] - first
    for k in range(n_nodes + S):
        for s in range(S):
            gradient[k, s] = 0.0
    highest = fill_exponentials(scores, n_nodes, sums)
    loss = add_probabilities(forest, e, scores, highest, 1.0, sums, gradient)
    if not is_determined:
        return loss - add_probabilities(
            forest, e, scores, highest, -1.0, sums, gradient
        )
    states = sums.up  # column 0 has the annotated states
    for k in range(n_nodes):
        for s in range(S):
            if forest.allowed[first + k, s]:
                states[k, 0] = s
                loss -= scores[k, s]
                gradient[k, s] -= 1.0
    for k in range(n_nodes):
        if forest.parent[first + k] >= 0:
            row = n_nodes + int(states[k, 0])
            above = int(states[forest.parent[first + k] - first, 0])
            loss -= scores[row, above]
            gradient[row, above] -= 1.0
    return loss


@inner_kernel
def add_features(
    forest: Forest, e: int, gradient: Array, scale: float, w: Array
) -> None:
    """Add `scale` times the features with these weights of labels and edges to w."""
    S = gradient.shape[1]
    features = forest.features
    first = forest.offsets[e]
    last = forest.offsets[e + 1]
    label_scale = scale * forest.label_scale
    for v in range(first, last):
        k = v - first
        shift = features.column_begins[v] - features.begins[v]
        for entry in range(features.begins[v], features.begins[v + 1]):
            place = features.columns[entry + shift] * S
            value = scale * features.data[entry]
            for s in range(S):
                w[place + s] += value * gradient[k, s]
        for s in range(S):
            if forest.bias >= 0:
                w[forest.bias + s] += label_scale * gradient[k, s]
            if forest.begin >= 0 and v == first:
                w[forest.begin + s] += label_scale * gradient[k, s]
            if forest.end >= 0 and v == last - 1:
                w[forest.end + s] += label_scale * gradient[k, s]
    for i in range(S):
        for j in range(S):
            w[forest.transition + i * S + j] += (
                label_scale * gradient[last - first + j, i]
            )


@kernel
def sum_log_losses(
    forest: Forest,
    chosen: Indices,
    is_determined: Mask,
    share: Array,
    w: Array,
    sums: SumScratch,
    step: StepScratch,
    losses: Array,
    gradient: Array,
) -> None:
    """Fill -log P(Y* | x) of the chosen examples, and add its gradient by `share`.

    The loss is NaN where probabilities underflow; such an example adds no gradient.
    """
    for row in range(len(chosen)):
        e = chosen[row]
        fill_scores(forest, e, w, step.scores)
        losses[row] = find_log_loss(
            forest, e, is_determined[e], step.scores, sums, step.gradient
        )
        if not np.isnan(losses[row]):
            add_features(forest, e, step.gradient, share[row], gradient)


@kernel
def take_ascent_steps(
    forest: Forest,
    chosen: Indices,
    rows: Indices,
    is_determined: Mask,
    strength: Array,
    w: Array,
    duals: Single,
    dual_begins: Indices,
    lengths: Array,
    sums: SumScratch,
    step: StepScratch,
) -> tuple[float, float, int]:
    """Visit ``chosen[row]`` for each of `rows`, and change w and the duals in place.

    Example n has the dual vector α_n, of its nodes and transitions, minus the gradient of its loss ℓ_n at the
    optimum, and w = Σ_n α_n / strength_n. A step of length γ moves α_n to (1 - γ) α_n -
    γ ∇ℓ_n(w). It is shortened until the proximal objective of the example, ℓ_n(w) +
    strength_n ‖w - (w without α_n / strength_n)‖² / 2, is about as low as on its way.

    Returns
    -------
    loss : float
        Σ ℓ_n(w) / strength_n, before each step.
    residual : float
        Σ ‖∇ℓ_n(w) + α_n‖² / (2 strength_n²).
    n_evaluations : int
        Number of losses with gradients that this took.
    """
    S = forest.allowed.shape[1]
    gradient = step.gradient
    total = 0.0
    residual = 0.0
    n_evaluations = 0
    last_length = 1.0
    for row in rows:
        e = chosen[row]
        n_rows = forest.offsets[e + 1] - forest.offsets[e] + S
        begin = dual_begins[row]
        fill_scores(forest, e, w, step.scores)
        loss = find_log_loss(forest, e, is_determined[e], step.scores, sums, gradient)
        if np.isnan(loss):
            continue
        # the residual in place of the gradient, and the scores behind a first trial
        for k in range(n_rows):
            for s in range(S):
                gradient[k, s] += duals[begin + k, s]
        tried = lengths[row] if lengths[row] > 0.0 else last_length
        add_features(forest, e, gradient, -tried / strength[row], w)
        fill_scores(forest, e, w, step.trial_scores)
        norm = 0.0
        for k in range(n_rows):
            for s in range(S):
                # in Y alone, states and pairs that are forbidden score -inf
                change = 0.0
                if step.scores[k, s] > -np.inf:
                    change = (step.trial_scores[k, s] - step.scores[k, s]) / tried
                step.change[k, s] = change
                norm -= gradient[k, s] * change
        length = tried
        slope = 0.0
        n_evaluations += 1
        for _ in range(MAX_TRIALS):
            n_evaluations += 1
            for k in range(n_rows):
                for s in range(S):
                    move = length * step.change[k, s]
                    step.trial_scores[k, s] = step.scores[k, s] + move
            trial_loss = find_log_loss(
                forest,
                e,
                is_determined[e],
                step.trial_scores,
                sums,
                step.trial_gradient,
            )
            # ⟨∇ℓ_n + α_n, residual⟩ / strength_n behind the step; before it, `norm`
            slope = -length * norm
            for k in range(n_rows):
                for s in range(S):
                    remainder = step.trial_gradient[k, s] + duals[begin + k, s]
                    slope -= remainder * step.change[k, s]
            if slope >= -SLOPE_LEFT * norm:
                break
            if np.isnan(trial_loss):
                length *= 0.1
            else:
                length *= max(norm / (norm - slope), 0.1)
        total += loss / strength[row]
        residual += norm / (2.0 * strength[row])
        if length != tried:
            add_features(forest, e, gradient, (tried - length) / strength[row], w)
        for k in range(n_rows):
            for s in range(S):
                duals[begin + k, s] -= length * gradient[k, s]
        last_length = length
        lengths[row] = length
        if norm > 0.0 and not np.isnan(slope):
            growth = norm / max(norm - slope, norm / MAX_GROWTH)
            lengths[row] = min(length * growth, 1.0)
    return total, residual, n_evaluations


class ForestAscent:
    """`Ascent` of a ForestTask; see `clew.learning.task`."""

    def __init__(
        self, task: ForestTask, chosen: Indices, lam: float, share: Array
    ) -> None:
        n_states = task.allowed.shape[1]
        longest = int(np.diff(task.offsets)[chosen].max(initial=0))
        self.task = task
        self.forest = arrange_by_input(task.forest)
        self.chosen = chosen
        self.lam = lam
        self.strength = lam / share
        self.is_determined = task.find_determined()
        self.weights = np.zeros(task.n_features)
        ends = np.cumsum(np.diff(task.offsets)[chosen] + n_states)
        self.dual_begins = np.concatenate([[0], ends])
        self.duals = np.zeros((self.dual_begins[-1], n_states), dtype=np.float32)
        self.lengths = np.zeros(len(chosen))
        self.sums = make_sum_scratch(n_states, longest)
        self.step = make_step_scratch(n_states, longest)

    def run(self, order: Indices) -> tuple[float, float, float]:
        """Visit these examples in turn."""
        total, residual, n_evaluations = take_ascent_steps(
            self.forest,
            self.chosen,
            order,
            self.is_determined,
            self.strength,
            self.weights,
            self.duals,
            self.dual_begins,
            self.lengths,
            self.sums,
            self.step,
        )
        n_passes = n_evaluations / len(self.chosen)
        return self.lam * total, self.lam * residual, n_passes

    @property
    def w(self) -> Array:
        """The weights."""
        n_states = self.task.allowed.shape[1]
        return transpose_unary(self.weights, self.task.features.n_inputs, n_states)
