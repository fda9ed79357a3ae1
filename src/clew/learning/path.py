"""A path of λ on shared bounds, and the choice of λ from held-out annotations.

Bounds do not depend on λ: the path runs from strong to weak regularisation, and each fit starts from the last one's
weights and bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.cccp import Algorithm, Callback, learn
from clew.learning.losses import Loss, loss_values, penalty_part, reward_part, simplify
from clew.learning.master import Regulariser, regularisation
from clew.learning.result import Result, Status
from clew.learning.start import Start, coarsened
from clew.learning.task import Array, Space, Task

PATH_LENGTH = 8
PATH_RATIO = {"l2": 10**-0.5, "l1": 10**-0.4}
CLEARLY = 1.0
"""Standard errors by which a held-out loss must lie above the best one for the path to end."""


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
    passes: float
    """Over all folds, in units of one fold's examples."""
    w: Array
    """The mean of the folds' weights: a better start for the fit on everything than any single solution, since where
    the folds found different local minima it is no part of either's peculiarities."""

    standard_error: float
    """Of the mean held-out loss, from its spread over all held-out examples; a few folds alone cannot tell it."""

    @property
    def mean(self) -> float:
        """The mean held-out loss over folds."""
        return float(np.mean(self.held_out))


def lambda_grid(task: Task, loss: Loss, regulariser: Regulariser = "l2", length: int = PATH_LENGTH) -> Array:
    """(length,) λ from strong to weak, in proportion to the data.

    With the subgradients g_n of the examples' losses at w = 0 and their mean loss L there, the first λ for L2 is
    mean ‖g_n‖² / (N L): one step −g/λ along the part of the mean gradient that is mere chance, which has the squared
    norm mean ‖g_n‖² / N, would then change the loss by as much as there is of it. For L1 it is ‖mean g_n‖∞, below which
    the first weight leaves zero.
    """
    part = task.annotated_part() or task
    zero = np.zeros(task.n_features)
    loss = simplify(loss, part)
    slopes = sp.csr_array(penalty_part(part, loss, zero).features) - sp.csr_array(
        reward_part(part, loss, zero).features
    )
    if regulariser == "l1":
        top = float(np.abs(slopes.mean(axis=0)).max())
    else:
        at_zero = float(loss_values(part, loss, zero).sum())
        top = float(slopes.power(2).sum()) / task.n_examples / max(at_zero, 1e-12)
    if not top > 0:
        top = 1.0  # all outputs share their features at w = 0: nothing to scale by
    return np.asarray(top * PATH_RATIO[regulariser] ** np.arange(length))


def fit_path(
    task: Task,
    loss: Loss,
    lams: Sequence[float],
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    start: Array | None = None,
    warm_start: Result | None = None,
    patience: int = 6,
    callback: Callback | None = None,
) -> Iterator[Result]:
    """Fit every λ from the strongest to the weakest on shared bounds, one at each step of the iteration.

    The first λ starts at `start`, or where a single fit would (start.py); each other one from the weights before it,
    unless those are stuck at zero, where strong regularisation can hold them. `patience` multiplies the algorithm's: a
    bound that is idle at this λ may be needed at the next one, and keeping it is cheaper than another pass where the
    argmax is dear.
    """
    algorithm = algorithm or Algorithm()
    algorithm = replace(algorithm, patience=patience * algorithm.patience)
    first = None if start is not None else Start(task, loss, regulariser, algorithm)
    result = warm_start
    w = start
    for lam in check_path(lams):
        if first is not None and (result is None or _at_zero(result)):
            w = first.at(lam)
        result = learn(
            task, loss, lam, regulariser=regulariser, algorithm=algorithm, start=w, warm_start=result, callback=callback
        )
        w = None
        yield result


def _at_zero(result: Result) -> bool:
    """Whether the weights have no part in the objective."""
    return result.lam * regularisation(result.w, "l2") <= 1e-9 * abs(result.objective)


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
    """The held-out task loss along a path, which ends where it has clearly become worse."""
    coarse = coarsened(algorithm or Algorithm(), folds[0].train, loss)
    lams = check_path(lams)
    paths = [
        fit_path(
            fold.train,
            loss,
            lams,
            regulariser=regulariser,
            algorithm=coarse,
            start=start,
            patience=1,
            callback=callback,
        )
        for fold in folds
    ]
    points: list[PathPoint] = []
    for lam in lams:
        results = [next(path) for path in paths]
        if any(result.status is Status.INTERRUPTED for result in results):
            raise KeyboardInterrupt
        losses = [fold.test.argmax(result.w, Space.ALL, 0.0).loss for fold, result in zip(folds, results, strict=True)]
        every = np.concatenate(losses)
        points.append(
            PathPoint(
                lam,
                tuple(float(loss.mean()) for loss in losses),
                sum(result.passes for result in results),
                np.mean([result.w for result in results], axis=0),
                float(every.std() / np.sqrt(len(every))),
            )
        )
        best = best_point(points)
        if points[-1].mean > best.mean + CLEARLY * best.standard_error:
            break
    return points


def check_path(lams: Sequence[float]) -> list[float]:
    """The values of λ from the strongest to the weakest."""
    if len(lams) == 0 or not all(np.isfinite(lam) and lam > 0 for lam in lams):
        raise InputError(f"a path needs positive values of λ, not {list(lams)}")
    return sorted((float(lam) for lam in lams), reverse=True)


def best_point(points: Sequence[PathPoint]) -> PathPoint:
    """The smallest held-out loss; of equal ones, the strongest regularisation.

    The loss is a smooth function of log λ, but counted on few examples. So that no lucky point is chosen, those within
    a standard error of the smallest are compared by the average with their neighbours, with weights 1, 2, 1.
    """
    means = np.array([point.mean for point in points])
    lowest = points[int(np.argmin(means))]
    around = np.pad(means, 1, mode="reflect" if len(means) > 1 else "edge")
    smooth = (around[:-2] + 2 * means + around[2:]) / 4
    return points[int(np.argmin(np.where(means <= lowest.mean + lowest.standard_error, smooth, np.inf)))]
