"""Examples of different weight: Σ_n s_n L_n / Σ_n s_n in place of the mean of L_n.

With φ and Δ both multiplied by s_n > 0, the same outputs are best, and the loss of example n becomes s_n L_n: every
loss without a fixed margin is homogeneous in them. So the optimiser needs to know nothing of weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from clew.learning.task import (
    Argmax,
    Array,
    Indices,
    OnlineOracle,
    OnlineTask,
    Space,
    Task,
)


def weighted(task: Task, weights: Array | None) -> Task:
    """The task with these weights of its examples, positive and 1 in the mean; None leaves it as it is."""
    return (
        task
        if weights is None
        else _with(task, np.asarray(weights, dtype=float) / np.mean(weights))
    )


def _with(task: Task, weights: Array) -> Weighted:
    """The task with these weights; one that looks and learns example by example still does."""
    return (
        WeightedOnline(task, weights)
        if isinstance(task, OnlineTask)
        else Weighted(task, weights)
    )


class Weighted:
    """A task whose examples have weights."""

    def __init__(self, task: Task, weights: Array) -> None:
        self.task, self.weights = task, weights
        self.n_examples, self.n_features = task.n_examples, task.n_features
        self.spaces, self.loss_zero_iff_compatible = (
            task.spaces,
            task.loss_zero_iff_compatible,
        )

    @property
    def keys(self) -> Sequence[bytes] | None:
        """The examples' fingerprints, which change with the weights."""
        keys = self.task.keys
        return (
            None
            if keys is None
            else [k + s.tobytes() for k, s in zip(keys, self.weights, strict=True)]
        )

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """The same outputs, with φ and Δ times the weight."""
        found = self.task.argmax(w, space, loss_weight, examples)
        scale = self.weights if examples is None else self.weights[examples]
        features = sp.csr_array(sp.diags_array(scale) @ sp.csr_array(found.features))
        return Argmax(features, scale * found.loss, found.found)

    def annotated_part(self) -> Task | None:
        """The annotated part with the same weights."""
        part = self.task.annotated_part()
        return None if part is None else _with(part, self.weights)


class WeightedOnline(Weighted):
    """The same of a task that looks and learns example by example."""

    task: OnlineTask

    def online(
        self,
        w: Array,
        reward: Space,
        reward_weight: float,
        penalty_weight: float,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle:
        """The task's oracle, with φ and Δ times the weights."""
        weights = self.weights if weights is None else self.weights * weights
        return self.task.online(
            w, reward, reward_weight, penalty_weight, examples, weights
        )
