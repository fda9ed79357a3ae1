"""The choice of λ from held-out annotations.

Two things are measured on what a fold left out: the task loss Δ of the prediction, which is what counts but comes in
whole mistakes, of which few annotations show few; and the surrogate loss L that is learned, which is smooth in λ. The
task loss decides as far as it can tell, and among λ that it cannot tell apart the surrogate does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clew.learning.algorithm import Algorithm
from clew.learning.cccp import Callback
from clew.learning.initialization import coarsen_precision
from clew.learning.losses import Loss, concave_part, convex_part, loss_values, simplify
from clew.learning.model_update import Regulariser
from clew.learning.path import Path, check_path
from clew.learning.result import Status
from clew.learning.task import Argmax, Array, Space, Task

N_STANDARD_ERRORS = 1.5
"""Standard errors of a difference between two λ from which on it counts: three mistakes more and none less."""
HELD_OUT_PRECISION = 0.03
"""The precision of held-out fits, as a share of the loss at w = 0: what is compared is coarser than that."""
ALL_AT_ONCE = 3
"""Up to so many λ are all tried; of more, every second one first, and then the neighbours of the best."""


@dataclass(frozen=True)
class Fold:
    """One split of the annotations: learn from `train`, count the mistakes on `test`."""

    train: Task
    test: Task


@dataclass(frozen=True)
class PathPoint:
    """One λ of a path, and how it did on held-out annotations."""

    lam: float
    held_out: tuple[float, ...]
    """The mean task loss on each fold's held-out annotations."""
    losses: Array
    """(M,) the task loss of every held-out example, fold after fold."""
    surrogates: Array
    """(M,) the loss that is learned, on the same examples."""
    passes: float
    """Over all folds, in units of one fold's examples."""
    weights: tuple[Array, ...]
    """Of the folds: starts for the fit on everything."""

    @property
    def mean(self) -> float:
        """The mean held-out task loss, over all held-out examples."""
        return float(self.losses.mean())

    @property
    def surrogate(self) -> float:
        """The mean held-out surrogate loss."""
        return float(self.surrogates.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean held-out task loss, from its spread over all held-out examples."""
        return float(self.losses.std() / np.sqrt(len(self.losses)))

    @property
    def w(self) -> Array:
        """The mean of the folds' weights: a better start for the fit on everything than any single solution, since
        where the folds found different local minima it is no part of either's peculiarities.
        """
        return np.asarray(np.mean(self.weights, axis=0))


def cross_validate(
    folds: Sequence[Fold],
    loss: Loss,
    lams: Sequence[float],
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    start: Array | None = None,
    callback: Callback | None = None,
) -> list[PathPoint]:
    """The held-out losses along a path, from strong to weak regularisation.

    Of many λ every second one is tried first; the path ends where it has clearly become worse, and then the neighbours
    of the best one are tried.
    """
    coarse = coarsen_precision(
        algorithm or Algorithm(), folds[0].train, loss, HELD_OUT_PRECISION, start
    )
    paths = [
        Path(
            fold.train,
            loss,
            regulariser=regulariser,
            algorithm=coarse,
            start=start,
            callback=callback,
        )
        for fold in folds
    ]
    grid = check_path(lams)
    points: dict[int, PathPoint] = {}
    for i in range(0, len(grid), 2 if len(grid) > ALL_AT_ONCE else 1):
        points[i] = _measured(folds, paths, loss, grid[i])
        if _clearly_worse(points[i], best_point(list(points.values()))):
            break
    best = best_point(list(points.values()))
    near = grid.index(best.lam)
    for i in (near - 1, near + 1):
        if 0 <= i < len(grid) and i not in points:
            points[i] = _measured(folds, paths, loss, grid[i])
    return [points[i] for i in sorted(points)]


def _measured(
    folds: Sequence[Fold], paths: Sequence[Path], loss: Loss, lam: float
) -> PathPoint:
    """Learn on every fold at this λ, and look at what was left out."""
    results = [path.fit(lam) for path in paths]
    if any(result.status is Status.INTERRUPTED for result in results):
        raise KeyboardInterrupt
    pairs = list(zip(folds, results, strict=True))
    predicted = [fold.test.argmax(result.w, Space.ALL, 0.0) for fold, result in pairs]
    losses = [found.loss for found in predicted]
    surrogates = [
        _surrogates(fold.test, loss, result.w, found)
        for (fold, result), found in zip(pairs, predicted, strict=True)
    ]
    return PathPoint(
        lam,
        tuple(float(values.mean()) for values in losses),
        np.concatenate(losses),
        np.concatenate(surrogates),
        sum(result.passes for result in results),
        tuple(result.w for result in results),
    )


def _surrogates(test: Task, loss: Loss, w: Array, predicted: Argmax) -> Array:
    """(n,) the loss that is learned, on held-out examples; their task loss where it is not defined on them.

    That is so for CLPL, which is defined on listed outputs. Where the prediction agrees with the annotation it is the
    best output that does, and nothing is searched for the reward of these examples.
    """
    loss = simplify(loss, test)
    if loss.reward is None or not loss.spaces <= test.spaces:
        return predicted.loss
    if (
        loss.reward is not Space.COMPATIBLE
        or loss.reward_weight
        or not test.loss_zero_iff_compatible
    ):
        return loss_values(test, loss, w)
    rewards = predicted.values(w, 0.0)
    wrong = np.flatnonzero(predicted.loss > 0)
    if len(wrong):
        rewards[wrong] = concave_part(test, loss, w, wrong).values
    return convex_part(test, loss, w).values - rewards


def best_point(points: Sequence[PathPoint]) -> PathPoint:
    """The strongest regularisation that is as good as the best one, as far as the held-out annotations can tell.

    Those that cannot be told from the smallest held-out task loss are compared by their held-out surrogate loss, and of
    those that cannot be told from the smallest of these, the strongest is chosen. "Cannot be told": by less than a
    standard error of the difference, example by example. Whatever is chosen was measured.
    """
    lowest = min(points, key=lambda point: (point.mean, -point.lam))
    close = [point for point in points if _excess(point.losses, lowest.losses) <= 0]
    smooth = min(close, key=lambda point: (point.surrogate, -point.lam))
    return max(
        (p for p in close if _excess(p.surrogates, smooth.surrogates) <= 0),
        key=lambda point: point.lam,
    )


def _clearly_worse(point: PathPoint, best: PathPoint) -> bool:
    """Whether the path need not go on."""
    return (
        _excess(point.losses, best.losses) > 0
        and _excess(point.surrogates, best.surrogates) > 0
    )


def _excess(one: Array, other: Array) -> float:
    """By how much the mean of `one` exceeds that of `other` beyond what is mere chance, from paired differences."""
    difference = one - other
    return float(
        difference.mean()
        - N_STANDARD_ERRORS * difference.std() / np.sqrt(len(difference))
    )
