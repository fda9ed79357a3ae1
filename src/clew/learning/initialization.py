"""Default initial weights for CCCP, and fits from several starts.

At w = 0 every output of Y* ties, and CCCP would follow whichever the argmax happens to return, often into a local
minimum at w = 0 itself. Two ways to know better, both from the annotations alone:

- On the annotated part of a task (`Task.annotated_part`), all of Y* has the same features: the reward is linear, the
  problem convex, and its minimiser is the start.
- Where a task offers no such part: under random weights, what does the annotation change about the best output? The
  mean of φ(argmax over Y*) − φ(argmax over Y) is a direction that the annotations point to, since what they leave open
  mostly cancels. Of a few lengths along it, the start is the one with the lowest objective.
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
from clew.learning.task import Array, Space, Task, dot, is_determined, separated

COARSE = 0.01
"""The precision of starts, as a share of the loss at w = 0: they are improved upon."""
OF_START = 0.1
"""The precision of starts and comparisons as a share of the loss at a start that is known, where that is less. With
0.3 nothing was learned where the start has most right; 0.03 leads to weights by which programmes are hard."""
OWN_SHARE = 0.03
"""And of their own objective, where that is less: a gap as large as what is left of it would say little of where."""
SAMPLES = 20
FIRST_SAMPLES = 3
"""Random weights for the contrast, and how many of them must agree on Y* for it to count as one output."""
LENGTHS = 2.0 ** np.arange(-3, 5)
"""Along the contrast, in units of the length that would pay for the loss at w = 0 if scores grew alike everywhere."""


class Start:
    """The start at any λ. One object serves a whole path: it keeps its solvers and its bounds."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        regulariser: Regulariser = "l2",
        algorithm: Algorithm | None = None,
    ) -> None:
        self.task = task
        self.regulariser = regulariser
        self.algorithm = algorithm or Algorithm()
        self.loss = simplify(loss, task)
        self.result: Result | None = None
        """The last fit on the annotated part, if there is one."""
        convex = loss.reward is None or (
            loss.reward is Space.COMPATIBLE and is_determined(task)
        )
        self.part = None if convex else task.annotated_part()
        searchable = not convex and Space.COMPATIBLE in task.spaces
        self.contrast = contrast(task) if self.part is None and searchable else None
        if self.part is not None:
            self.loss = replace(
                simplify(loss, self.part), reward=Space.COMPATIBLE, reward_weight=0.0
            )
            self.coarse = coarsen_precision(self.algorithm, self.part, self.loss)

    def at(self, lam: float) -> Array | None:
        """The weights to start from; None where any start will do, since the problem is convex."""
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
        """The minimiser on the annotated part, from that of the last fit there."""
        self.result = learn(
            part,
            self.loss,
            lam,
            regulariser=self.regulariser,
            algorithm=algorithm,
            warm_start=self.result,
        )
        if self.result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt  # there is no iterate to keep yet
        return self.result

    def _objective(self, w: Array, lam: float) -> float:
        """J(w), Eq. 7."""
        return lam * regularisation(w, self.regulariser) + float(
            loss_values(self.task, self.loss, w).mean()
        )


def contrast(task: Task) -> Array | None:
    """(d,) what the annotations change about the best output, in the mean over random weights, always the same ones.

    None where Y* seems to be one output for each example, or where the annotations change nothing.
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
    """The algorithm with a precision that is enough for a start or a comparison: a share of the loss at w = 0.

    That is the largest Δ, to which only what is annotated contributes, so that the annotated part tells it: there it is
    found at once, whereas on the whole task every output of equal Δ ties and a relaxation is fractional nearly
    everywhere. Where a good start is known it is at most a tenth of the loss there: a good start leaves little to gain,
    and what is compared is how much of it is gained.
    """
    part = task.annotated_part() or task
    at_zero = float(
        loss_values(part, simplify(loss, part), np.zeros(task.n_features)).mean()
    )
    # of a sum of hinges, most are zero almost anywhere else
    enough = share * at_zero * task.n_examples / separated(task).n_examples
    if start is not None:
        enough = min(
            enough,
            OF_START * float(loss_values(task, simplify(loss, task), start).mean()),
        )
    return replace(
        algorithm, tol=max(algorithm.tol, enough), eta=max(algorithm.eta, enough)
    )


def starting_points(
    task: Task,
    loss: Loss,
    lam: float,
    known: Sequence[Array] = (),
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    given: Array | None = None,
) -> list[Array]:
    """As many starts as the algorithm asks for: one known, one `given`, clew's own, others known, then some near them.

    None at all where nothing is known and any start will do; the first one alone where the problem is convex.
    """
    algorithm = algorithm or Algorithm()
    if known and algorithm.starts == 1:
        return [known[0]]
    own = Start(task, loss, regulariser, algorithm).at(lam)
    if own is None:
        return list(known[:1])
    asked_for = (
        [given]
        if given is not None and not any(given is other for other in known)
        else []
    )
    found = [*known[:1], *asked_for, own, *known[1:]]
    missing = max(0, algorithm.starts - len(found))
    return [*found, *nearby(found[0], missing)][: algorithm.starts]


def nearby(start: Array, count: int, spread: float = 1.0, seed: int = 0) -> list[Array]:
    """Normal perturbations of a start, whose norm is about `spread` times its own; always the same ones."""
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
    """CCCP from each of these starts; the lowest objective wins, and `Result.objectives` has them all.

    Passes, bounds, fallbacks and seconds are of all runs; iterations and history are of the last one.

    Bounds lie under C wherever they were found, so that all runs share them. Each run is as precise as a start must be;
    then the winner goes on to full precision.
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
        objectives=(*(other.objective for other in runs), result.objective),
        passes=result.passes + sum(other.passes for other in runs),
        reward_passes=result.reward_passes + sum(other.reward_passes for other in runs),
        bounds=result.bounds + sum(other.bounds for other in runs),
        fallbacks=result.fallbacks + sum(other.fallbacks for other in runs),
        seconds={
            name: value + sum(other.seconds[name] for other in runs)
            for name, value in result.seconds.items()
        },
    )
