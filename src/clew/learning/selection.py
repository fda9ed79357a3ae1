"""Selection of λ by cross-validation on held-out annotations.

Two losses are measured on the held-out part of each fold: the task loss Δ of the
prediction, which matters but is coarse with few annotations, and the surrogate loss L,
which is smooth in λ. The task loss decides if its differences are significant;
otherwise the surrogate loss does.

Where most annotations are candidate sets, a prediction may be a candidate by chance, the
more so at strong regularization, which predicts common classes. There the share of
mistakes decides alone, each weighted by the probability that a compatible prediction is
right (`Task.certainty`).
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
from clew.learning.task import (
    Argmax,
    Array,
    Space,
    Task,
)

N_STANDARD_ERRORS = 1.5
"""Standard errors from which a difference counts: three mistakes more and none less."""
HELD_OUT_PRECISION = 0.03
"""Precision of held-out fits, as a share of the loss at w = 0."""
ALL_AT_ONCE = 3
"""Up to this many λ, all are tried.

Of more λ, every second one is tried first, then the neighbors of the best.
"""
MAX_STRONGER = 6
"""Largest number of λ that are tried above the first one of the path."""


@dataclass(frozen=True)
class Fold:
    """Split of the annotations: learn from `train`, measure the loss on `test`."""

    train: Task
    test: Task


@dataclass(frozen=True)
class PathPoint:
    """One λ of a path with its held-out losses."""

    lam: float
    held_out: tuple[float, ...]
    """Mean task loss on the held-out annotations of each fold."""
    losses: Array
    """(M,) task loss of each held-out example, fold after fold."""
    surrogates: Array
    """(M,) surrogate loss of the same examples."""
    passes: float
    """Sum over all folds, in units of one fold's examples."""
    weights: tuple[Array, ...]
    """Weights of each fold."""
    certainty: Array | None = None
    """(M,) `Task.certainty` of the same examples; None if not known."""

    def __repr__(self) -> str:
        return (
            f"<PathPoint: λ = {self.lam:.3g}, held-out task loss {self.mean:.4g} ± "
            f"{self.standard_error:.2g}>"
        )

    @property
    def is_ambiguous(self) -> bool:
        """Whether most of the held-out annotations are candidate sets."""
        return self.certainty is not None and float(np.median(self.certainty)) < 1.0

    @property
    def judged_losses(self) -> Array:
        """(M,) task losses, weighted by certainty if annotations are ambiguous."""
        if self.certainty is None or not self.is_ambiguous:
            return self.losses
        return self.losses * self.certainty

    @property
    def mean(self) -> float:
        """Mean held-out task loss over all held-out examples."""
        return float(self.losses.mean())

    @property
    def surrogate(self) -> float:
        """Mean held-out surrogate loss."""
        return float(self.surrogates.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean held-out task loss."""
        return float(self.losses.std() / np.sqrt(len(self.losses)))

    @property
    def w(self) -> Array:
        """Mean of the folds' weights, the start for the fit on all annotations.

        It is a better start than the weights of a single fold, whose local minimum may
        be peculiar to that fold.
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
    """Measure held-out losses along a path from strong to weak regularization.

    Of many λ every second one is tried first. The path ends when the losses are
    significantly worse; then the neighbors of the best λ are tried. If the strongest λ
    is the best of several, stronger ones are tried in the same steps; if annotations
    are ambiguous, until they are significantly worse.

    Parameters
    ----------
    folds : sequence of Fold
    loss : Loss
    lams : sequence of float
    regulariser : "l2" or "l1"
    algorithm : Algorithm, optional
    start : ndarray of shape (n_features,), optional
    callback : callable, optional

    Returns
    -------
    points : list of PathPoint
        From strong to weak regularization.
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
        points[i] = _evaluate_lambda(folds, paths, loss, grid[i])
        if _is_clearly_worse(points[i], best_point(list(points.values()))):
            break
    best = best_point(list(points.values()))
    near = grid.index(best.lam)
    for i in (near - 1, near + 1):
        if 0 <= i < len(grid) and i not in points:
            points[i] = _evaluate_lambda(folds, paths, loss, grid[i])
    path = [points[i] for i in sorted(points)]
    for n_tried in range(MAX_STRONGER if len(grid) > ALL_AT_ONCE else 0):
        best = best_point(path)
        is_open = best.is_ambiguous and not _is_clearly_worse(path[0], best)
        # one that is as good as the one before promises nothing of still stronger ones
        is_promising = not n_tried or path[0].mean < path[1].mean
        if not (best is path[0] and is_promising) and not is_open:
            break
        stronger = path[0].lam * grid[0] / grid[1]
        path.insert(0, _evaluate_lambda(folds, paths, loss, stronger))
    return path


def _evaluate_lambda(
    folds: Sequence[Fold], paths: Sequence[Path], loss: Loss, lam: float
) -> PathPoint:
    """Fit every fold at this λ, and measure the held-out losses."""
    results = [path.fit(lam) for path in paths]
    if any(result.status is Status.INTERRUPTED for result in results):
        raise KeyboardInterrupt
    pairs = list(zip(folds, results, strict=True))
    predicted = [fold.test.argmax(result.w, Space.ALL, 0.0) for fold, result in pairs]
    losses = [argmax.loss for argmax in predicted]
    surrogates = [
        _surrogate_losses(fold.test, loss, result.w, argmax)
        for (fold, result), argmax in zip(pairs, predicted, strict=True)
    ]
    return PathPoint(
        lam,
        tuple(float(values.mean()) for values in losses),
        np.concatenate(losses),
        np.concatenate(surrogates),
        sum(result.passes for result in results),
        tuple(result.w for result in results),
        np.concatenate([fold.test.certainty() for fold in folds]),
    )


def _surrogate_losses(test: Task, loss: Loss, w: Array, predicted: Argmax) -> Array:
    """Return (n,) surrogate losses of held-out examples.

    If the loss is not defined on them, as CLPL outside of listed outputs, return the
    task losses. A prediction that agrees with the annotation is the reward's argmax, so
    that these examples need no second search.
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
    """Choose the strongest λ that is not significantly worse than the best.

    Points that are not significantly worse in task loss are compared by surrogate loss,
    and the strongest λ not significantly worse in that is chosen. Differences are
    paired by example; N_STANDARD_ERRORS of them count as significant. If annotations
    are ambiguous, the point with the lowest weighted task loss is chosen.
    """
    if points[0].is_ambiguous:
        return min(points, key=lambda p: (float(p.judged_losses.mean()), -p.lam))
    lowest = min(points, key=lambda point: (point.mean, -point.lam))
    close = [
        point
        for point in points
        if _significant_excess(point.losses, lowest.losses) <= 0
    ]
    smooth = min(close, key=lambda point: (point.surrogate, -point.lam))
    return max(
        (p for p in close if _significant_excess(p.surrogates, smooth.surrogates) <= 0),
        key=lambda point: point.lam,
    )


def _is_clearly_worse(point: PathPoint, best: PathPoint) -> bool:
    """Return whether a point is significantly worse in both losses.

    If annotations are ambiguous, in the weighted task loss alone.
    """
    return _significant_excess(point.judged_losses, best.judged_losses) > 0 and (
        point.is_ambiguous or _significant_excess(point.surrogates, best.surrogates) > 0
    )


def _significant_excess(losses: Array, reference: Array) -> float:
    """Return by how much `losses` exceed `reference` beyond N_STANDARD_ERRORS."""
    difference = losses - reference
    return float(
        difference.mean()
        - N_STANDARD_ERRORS * difference.std() / np.sqrt(len(difference))
    )
