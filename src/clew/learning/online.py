"""Learning from batches that are seen once: stochastic subgradient steps on J, with averaged weights.

Pegasos (Shalev-Shwartz et al. 2011) for any loss of Eq. 6: at step t, for a few examples together,

    w ← (1 − 1/t) w − (1 / (λ t)) · mean of (φ(penalty's output) − φ(reward's output)),

and w̄ ← (1 − ρ) w̄ + ρ w with ρ = 2 / (t + 1), which weighs late steps more (Lacoste-Julien et al. 2012): the error of w̄
falls as 1/(λ t) where the problem is convex. No bound is kept, so nothing is certified: for that there is `learn`,
which may start from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clew.errors import InputError
from clew.learning.losses import Loss, penalty_part, require_spaces, reward_part, simplify
from clew.learning.task import Array, Task

MINI_BATCH = 16
"""Examples for each step: one dense update of w, and one call of the argmax, for so many."""


@dataclass(frozen=True)
class OnlineResult:
    """The state of an online fit, a value: it goes into the next batch and comes out changed."""

    w: Array
    """w̄, the averaged weights."""
    last: Array
    """w after the last step."""
    lam: float
    steps: int = 0
    n_examples: int = 0
    """Examples seen so far."""
    loss: float = float("nan")
    """The mean loss of the last batch, each example before it was learned from."""

    def __str__(self) -> str:
        return (
            f"online: {self.n_examples} examples in {self.steps} steps, λ = {self.lam:.4g}, last loss {self.loss:.4g}"
        )


def learn_batch(task: Task, loss: Loss, state: OnlineResult, rng: np.random.Generator) -> OnlineResult:
    """One pass over a batch, in random order."""
    loss = simplify(loss, task)
    require_spaces(loss, task)
    if task.n_features != len(state.w):
        raise InputError(f"this batch has {task.n_features} features; expected {len(state.w)}, as before")
    w, mean, t = state.last.copy(), state.w.copy(), state.steps
    total = 0.0
    order = rng.permutation(task.n_examples)
    for some in np.array_split(order, max(1, -(-len(order) // MINI_BATCH))):
        t += 1
        penalty, reward = penalty_part(task, loss, w, some), reward_part(task, loss, w, some)
        total += float((penalty.values - reward.values).sum())
        slope = np.asarray((penalty.features - reward.features).sum(axis=0)).ravel() / len(some)
        w *= 1.0 - 1.0 / t
        w -= slope / (state.lam * t)
        mean += (2.0 / (t + 1.0)) * (w - mean)
    n = task.n_examples
    return replace(state, w=mean, last=w, steps=t, n_examples=state.n_examples + n, loss=total / n)
