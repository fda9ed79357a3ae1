"""Structured perceptron with partial annotations (Fernandes & Brefeld 2011).

It is the paper's baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array, Epochs, Indices, Space, Task, as_task
from clew.utils.validation import check_bool, check_int


@dataclass(frozen=True)
class PerceptronResult:
    """Weights, and the mean task loss on the training examples after each epoch."""

    w: Array
    losses: tuple[float, ...]
    converged: bool
    """Whether the task loss became zero."""

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.losses)

    def __repr__(self) -> str:
        return f"<PerceptronResult: {self}>"

    def __str__(self) -> str:
        end = "no mistakes left" if self.converged else "stopped improving"
        return f"{end}: task loss {self.losses[-1]:.4g} after {self.epochs} epochs"


class _Epochs:
    """Epochs of any task by its argmax."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.steps = 0
        self.weights = np.zeros(task.n_features), np.zeros(task.n_features)

    def run(self, order: Indices) -> None:
        """Take one step for each of these examples in turn."""
        w, late = self.weights
        for n in order:
            example = np.array([n])
            predicted = self.task.argmax(w, Space.ALL, 0.0, example)
            if predicted.loss[0] > 0:
                wanted = self.task.argmax(w, Space.COMPATIBLE, 0.0, example)
                for features, sign in (
                    (wanted.features, 1.0),
                    (predicted.features, -1.0),
                ):
                    row = sp.coo_array(features)
                    np.add.at(w, row.col, sign * row.data)
                    np.add.at(late, row.col, sign * self.steps * row.data)
            self.steps += 1


def perceptron(
    task: Task,
    *,
    averaged: bool = True,
    max_epochs: int = 200,
    patience: int = 10,
    rng: np.random.Generator | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> PerceptronResult:
    """Train a structured perceptron; return the weights of the best epoch.

    For each example whose prediction ŷ = argmax_Y f contradicts its annotation, w moves
    by φ(ỹ) − φ(ŷ) with ỹ = argmax_{Y*} f.

    Parameters
    ----------
    task : Task
    averaged : bool
        Return the mean of w over all steps up to the best epoch, which is less noisy.
    max_epochs : int
    patience : int
        Stop after this many epochs without improvement, or at a task loss of zero.
    rng : numpy.random.Generator, optional
    callback : callable, optional
        ``callback(epoch, loss)`` is called after each epoch.

    Returns
    -------
    result : PerceptronResult
    """
    task = as_task(task)
    max_epochs = check_int(max_epochs, "max_epochs", 1)
    patience = check_int(patience, "patience", 1)
    check_bool(averaged, "averaged")
    rng = rng or np.random.default_rng(0)
    epochs: Epochs = task.epochs() or _Epochs(task)
    steps = 0
    best_w = np.zeros(task.n_features)
    losses = list[float]()
    while len(losses) < max_epochs:
        epochs.run(rng.permutation(task.n_examples))
        steps += task.n_examples
        # The mean of w over all steps is w − late / steps, where late sums each change
        # times the steps before it. A step then costs as much as its change.
        w, late = epochs.weights
        candidate = w - late / steps if averaged else w.copy()
        loss = float(task.argmax(candidate, Space.ALL, 0.0).loss.mean())
        if not losses or loss < min(losses):
            best_w = candidate
        losses.append(loss)
        if callback is not None:
            callback(len(losses), loss)
        if loss == 0 or len(losses) - int(np.argmin(losses)) > patience:
            break
    return PerceptronResult(best_w, tuple(losses), losses[-1] == 0)
