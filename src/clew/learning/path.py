"""A path of λ on shared bounds, and the choice of λ from held-out annotations.

Bounds do not depend on λ: the path runs from strong to weak regularisation, and each fit starts from the last one's
weights and bounds. Held-out fits re-use the bounds of the full fit for every example whose annotation is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clew.errors import InputError
from clew.learning.cccp import Algorithm, Callback, learn
from clew.learning.losses import Loss, loss_values, penalty_part, reward_part, simplify
from clew.learning.master import Regulariser
from clew.learning.result import Result
from clew.learning.task import Array, Space, Task

PATH_LENGTH = 8
PATH_RATIO = {"l2": 10**-0.5, "l1": 10**-0.4}
COARSE = 10.0
"""Held-out fits are solved to this many times the precision: their loss is only compared."""


@dataclass(frozen=True)
class Fold:
    """One split of the annotations: learn from `train`, count the mistakes on `test`."""

    train: Task
    test: Task


@dataclass(frozen=True)
class PathPoint:
    """One λ of a path."""

    lam: float
    result: Result
    held_out: tuple[float, ...]
    """The mean task loss on each fold's held-out annotations; empty without folds."""

    @property
    def mean_held_out(self) -> float:
        """The mean over folds."""
        return float(np.mean(self.held_out)) if self.held_out else float("nan")


def starting_point(
    task: Task, loss: Loss, lam: float, regulariser: Regulariser = "l2", algorithm: Algorithm | None = None
) -> tuple[Array, Result | None]:
    """Where CCCP starts: the minimiser on the annotated parts alone, a convex problem; zero if the task has none.

    At w = 0 every output of Y* ties, and CCCP would follow whichever the argmax happens to return.
    """
    part = task.annotated_part()
    if part is None or loss.reward is None:
        return np.zeros(task.n_features), None
    convex = replace(simplify(loss, part), reward=Space.COMPATIBLE, reward_weight=0.0)
    coarse = algorithm or Algorithm()
    result = learn(part, convex, lam, regulariser=regulariser, algorithm=replace(coarse, tol=COARSE * coarse.tol))
    return result.w, result


def lambda_grid(task: Task, loss: Loss, regulariser: Regulariser = "l2", length: int = PATH_LENGTH) -> Array:
    """(length,) λ from strong to weak, in proportion to the data.

    The first is the λ at which one subgradient step from w = 0 would, were the loss linear, remove all of it:
    ‖g‖²/L(0) for L2; for L1 it is ‖g‖∞, below which the first weight leaves zero.
    """
    part = task.annotated_part() or task
    zero = np.zeros(task.n_features)
    loss = simplify(loss, part)
    slope = penalty_part(part, loss, zero).features.sum(axis=0) - reward_part(part, loss, zero).features.sum(axis=0)
    g = np.asarray(slope).ravel() / task.n_examples
    at_zero = max(float(loss_values(part, loss, zero).mean()), 1e-12)
    top = float(np.abs(g).max()) if regulariser == "l1" else float(g @ g) / at_zero
    if not top > 0:
        top = 1.0  # all outputs share their features at w = 0: nothing to scale by
    return np.asarray(top * PATH_RATIO[regulariser] ** np.arange(length))


def fit_path(
    task: Task,
    loss: Loss,
    lams: Sequence[float],
    *,
    folds: Sequence[Fold] = (),
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    start: Array | None = None,
    warm_start: Result | None = None,
    give_up: int = 2,
    callback: Callback | None = None,
) -> list[PathPoint]:
    """Fit every λ from the strongest to the weakest, and each fold at the same λ.

    With folds, the path ends early when the held-out loss was above its best for `give_up` λ in a row.
    """
    if len(lams) == 0 or not all(np.isfinite(lam) and lam > 0 for lam in lams):
        raise InputError(f"a path needs positive values of λ, not {list(lams)}")
    algorithm = algorithm or Algorithm()
    coarse = replace(algorithm, tol=COARSE * algorithm.tol, eta=COARSE * algorithm.eta)
    ordered = sorted((float(lam) for lam in lams), reverse=True)
    points: list[PathPoint] = []
    current = warm_start
    fold_w: list[Array | None] = [None] * len(folds)
    for lam in ordered:
        first = start if not points else None
        current = learn(
            task,
            loss,
            lam,
            regulariser=regulariser,
            algorithm=algorithm,
            start=first,
            warm_start=current,
            callback=callback,
        )
        held_out = []
        for i, fold in enumerate(folds):
            w = fold_w[i]
            if w is None:
                w = starting_point(fold.train, loss, lam, regulariser, algorithm)[0]
            fitted = learn(
                fold.train, loss, lam, regulariser=regulariser, algorithm=coarse, start=w, warm_start=current,
                callback=callback,
            )  # fmt: skip
            fold_w[i] = fitted.w
            held_out.append(float(fold.test.argmax(fitted.w, Space.ALL, 0.0).loss.mean()))
        points.append(PathPoint(lam, current, tuple(held_out)))
        if folds and len(points) - 1 - best_point(points) >= give_up:
            break
    return points


def best_point(points: Sequence[PathPoint]) -> int:
    """The index of the smallest held-out loss; of equal ones, that of the strongest regularisation."""
    return int(np.argmin([point.mean_held_out for point in points]))
