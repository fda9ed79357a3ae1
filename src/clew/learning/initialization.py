"""Default initial weights for CCCP, and fits from several starts.

At w = 0 all outputs of Y* tie. CCCP would follow an arbitrary one, often into a local
minimum at w = 0 itself. Two better starts use the annotations alone:

- The minimizer on the annotated part of the task (`Task.annotated_part`). There,
  all of Y* has the same features, so that the reward is linear and the problem convex.
- For tasks without such a part, the mean of φ(argmax over Y*) − φ(argmax over Y) under
  random weights: the direction of the annotations, since what they leave open mostly
  cancels. The start is the multiple of it with the lowest objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clew.learning.algorithm import Algorithm
from clew.learning.cccp import Callback, learn
from clew.learning.losses import Loss, loss_values, simplify
from clew.learning.model_update import Regulariser, regularisation
from clew.learning.result import Result, Status
from clew.learning.task import Array, Space, Task, as_task, dot

COARSE = 0.01
"""Precision of starts, as a share of the loss at w = 0."""
OF_START = 0.1
"""Precision of starts and comparisons as a share of the loss at a known start.

The smaller precision counts. With 0.3 nothing was learned from starts that were mostly
right; 0.03 leads to weights with which programs are hard.
"""
OWN_SHARE = 0.03
"""Precision of starts as a share of their own objective, if that is less."""
SAMPLES = 20
FIRST_SAMPLES = 3
"""Number of random weights for the contrast.

If the first FIRST_SAMPLES agree on Y*, it counts as a single output.
"""
LENGTHS = 2.0 ** np.arange(-3, 5)
"""Lengths along the contrast.

At length 1 the score would rise by the loss at w = 0, if it rose equally everywhere.
"""


class Initializer:
    """Initial weights at any λ; one object serves a path and reuses its bounds."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        regulariser: Regulariser = "l2",
        algorithm: Algorithm | None = None,
    ) -> None:
        self.task = task = as_task(task)
        self.regulariser = regulariser
        self.algorithm = algorithm or Algorithm()
        self.loss = simplify(loss, task)
        self.result: Result | None = None
        """The last fit on the annotated part, if any."""
        convex = loss.reward is None or (
            loss.reward is Space.COMPATIBLE and task.determined
        )
        self.part = None if convex else task.annotated_part()
        searchable = not convex and Space.COMPATIBLE in task.spaces
        self.contrast = (
            estimate_contrast(task) if self.part is None and searchable else None
        )
        if self.part is not None:
            self.loss = replace(
                simplify(loss, self.part), reward=Space.COMPATIBLE, reward_weight=0.0
            )
            self.coarse = coarsen_precision(self.algorithm, self.part, self.loss)

    def weights_for(self, lam: float) -> Array | None:
        """Return the initial weights at λ, or None if the problem is convex."""
        if self.part is not None:
            result = self._fit(self.part, lam, self.coarse)
            precision = max(self.algorithm.tol, OWN_SHARE * result.objective)
            if result.converged and result.gap > precision:
                result = self._fit(
                    self.part, lam, replace(self.coarse, tol=precision, eta=precision)
                )
            return result.w
        if self.contrast is None:
            return None
        g = self.contrast
        unit = float(
            loss_values(self.task, self.loss, np.zeros_like(g)).mean()
        ) / float(dot(g, g))
        candidates = [float(length) * unit * g for length in LENGTHS]
        return candidates[int(np.argmin([self._objective(w, lam) for w in candidates]))]

    def _fit(self, part: Task, lam: float, algorithm: Algorithm) -> Result:
        """Minimize on the annotated part, warm-started from the last fit there."""
        self.result = learn(
            part,
            self.loss,
            lam,
            regulariser=self.regulariser,
            algorithm=algorithm,
            warm_start=self.result,
        )
        if self.result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # there is no iterate to return yet
        return self.result

    def _objective(self, w: Array, lam: float) -> float:
        """Return J(w), Eq. 7."""
        return lam * regularisation(w, self.regulariser) + float(
            loss_values(self.task, self.loss, w).mean()
        )


def estimate_contrast(task: Task) -> Array | None:
    """Estimate how the annotations change the features of the best output.

    Returns
    -------
    contrast : ndarray of shape (n_features,) or None
        Mean over fixed random weights. None if Y* seems to have one output per
        example, or if the annotations change nothing.
    """
    rng = np.random.default_rng(0)
    total = np.zeros(task.n_features)
    agreed = []
    for k in range(SAMPLES):
        w = rng.normal(size=task.n_features)
        compatible = task.argmax(w, Space.COMPATIBLE, 0.0).features
        total += np.asarray(
            (compatible - task.argmax(w, Space.ALL, 0.0).features).sum(axis=0)
        ).ravel()
        agreed.append(compatible)
        if k == FIRST_SAMPLES - 1 and all(
            abs(other - agreed[0]).max() <= 1e-12 for other in agreed[1:]
        ):
            return None
    return total / (SAMPLES * task.n_examples) if total.any() else None


def coarsen_precision(
    algorithm: Algorithm,
    task: Task,
    loss: Loss,
    share: float = COARSE,
    start: Array | None = None,
) -> Algorithm:
    """Reduce the precision to what a start or a comparison needs.

    That is a share of the loss at w = 0, and at most OF_START of the loss at a known
    start: a good start leaves little to gain. The loss at w = 0 is the largest Δ, to
    which only annotated parts contribute. It is computed on the annotated part: on the
    whole task all outputs of equal Δ tie, and a relaxation is fractional almost
    everywhere.

    Parameters
    ----------
    algorithm : Algorithm
    task : Task
    loss : Loss
    share : float
        Precision as a share of the loss at w = 0.
    start : ndarray of shape (n_features,), optional

    Returns
    -------
    algorithm : Algorithm
    """
    part = task.annotated_part() or task
    at_zero = float(
        loss_values(part, simplify(loss, part), np.zeros(task.n_features)).mean()
    )
    # most hinges of a sum are zero almost everywhere else
    precision = (
        share * at_zero * task.n_examples / (task.separated() or task).n_examples
    )
    if start is not None:
        precision = min(
            precision,
            OF_START * float(loss_values(task, simplify(loss, task), start).mean()),
        )
    return replace(
        algorithm, tol=max(algorithm.tol, precision), eta=max(algorithm.eta, precision)
    )


def make_starts(
    task: Task,
    loss: Loss,
    lam: float,
    known: Sequence[Array] = (),
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    given: Array | None = None,
) -> list[Array]:
    """Collect the number of starts that the algorithm asks for.

    They are, in this order: the first known one, `given`, the default initial weights,
    the other known ones, and perturbations of the first.

    Parameters
    ----------
    task : Task
    loss : Loss
    lam : float
    known : sequence of ndarray
    regulariser : "l2" or "l1"
    algorithm : Algorithm, optional
    given : ndarray of shape (n_features,), optional

    Returns
    -------
    starts : list of ndarray
        Only the first known one, or none, if the problem is convex.
    """
    algorithm = algorithm or Algorithm()
    if known and algorithm.starts == 1:
        return [known[0]]
    default = Initializer(task, loss, regulariser, algorithm).weights_for(lam)
    if default is None:
        return list(known[:1])
    requested = (
        [given]
        if given is not None and not any(given is other for other in known)
        else []
    )
    starts = [*known[:1], *requested, default, *known[1:]]
    missing = max(0, algorithm.starts - len(starts))
    return [*starts, *perturb_start(starts[0], missing)][: algorithm.starts]


def perturb_start(
    start: Array, count: int, spread: float = 1.0, seed: int = 0
) -> list[Array]:
    """Return normal perturbations of a start, of relative norm `spread`."""
    rng = np.random.default_rng(seed)
    size = spread * float(np.sqrt(np.mean(start**2)))
    return [start + size * rng.normal(size=len(start)) for _ in range(count)]


def learn_from(
    starts: Sequence[Array],
    task: Task,
    loss: Loss,
    lam: float,
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    warm_start: Result | None = None,
    callback: Callback | None = None,
) -> Result:
    """Run CCCP from each start, and return the fit with the lowest objective.

    Bounds are valid for all starts, so that the runs share them. Runs are coarse; the
    best one continues to full precision.

    Parameters
    ----------
    starts : sequence of ndarray
    task : Task
    loss : Loss
    lam : float
    regulariser : "l2" or "l1"
    algorithm : Algorithm, optional
    warm_start : Result, optional
    callback : callable, optional

    Returns
    -------
    result : Result
        `objectives` are those of all runs. Passes, bounds, fallbacks and seconds are
        sums over all runs; iterations and history are those of the last one.
    """
    algorithm = algorithm or Algorithm()

    def run(start: Array | None, warm: Result | None, options: Algorithm) -> Result:
        return learn(
            task,
            loss,
            lam,
            regulariser=regulariser,
            algorithm=options,
            start=start,
            warm_start=warm,
            callback=callback,
        )

    runs: list[Result] = []
    if len(starts) > 1:
        coarse = coarsen_precision(algorithm, task, loss, start=starts[0])
        for start in starts:
            runs.append(run(start, runs[-1] if runs else warm_start, coarse))
            if runs[-1].status is Status.INTERRUPTED:
                break
    best = (
        min(runs, key=lambda result: result.objective).w
        if runs
        else next(iter(starts), None)
    )
    result = run(best, runs[-1] if runs else warm_start, algorithm)
    return replace(
        result,
        objectives=(*(rough.objective for rough in runs), result.objective),
        passes=result.passes + sum(rough.passes for rough in runs),
        reward_passes=result.reward_passes + sum(rough.reward_passes for rough in runs),
        bounds=result.bounds + sum(rough.bounds for rough in runs),
        fallbacks=result.fallbacks + sum(rough.fallbacks for rough in runs),
        seconds={
            name: value + sum(rough.seconds[name] for rough in runs)
            for name, value in result.seconds.items()
        },
    )
