"""Several starts of CCCP: it goes downhill from where it starts, and local minima differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clew.learning.algorithm import Algorithm
from clew.learning.cccp import Callback, learn
from clew.learning.initialization import Start, coarsen_precision
from clew.learning.losses import Loss
from clew.learning.model_update import Regulariser
from clew.learning.result import Result, Status
from clew.learning.task import Array, Task


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
