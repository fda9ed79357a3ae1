"""The objective J of a fit: its evaluations, what they cost, and their limits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from clew.learning.algorithm import Algorithm
from clew.learning.losses import LinearBounds, Loss, concave_part, convex_part
from clew.learning.model_update import Regulariser, regularisation
from clew.learning.result import Record, Status
from clew.learning.task import Array, Indices, Task

log = logging.getLogger("clew")
Callback = Callable[[Record], None]


class LimitReached(Exception):
    """Raised to end the loops when the pass or time limit is reached."""

    def __init__(self, status: Status) -> None:
        self.status = status


@dataclass
class Costs:
    """What a fit has cost so far."""

    passes: float = 0.0
    """Inferences for C, in units of the number of examples."""
    reward_passes: float = 0.0
    """Inferences for R, in the same units."""
    oracle_seconds: float = 0.0
    update_seconds: float = 0.0
    iterations: int = 0
    """CCCP iterations."""
    fallbacks: int = 0
    """Model updates that needed a second solver."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the fit."""
        return time.perf_counter() - self.began


@dataclass(frozen=True)
class Problem:
    """Minimize J(w) = λΩ(w) + (1/N) Σ_n [C_n(w) − R_n(w)]; evaluations are counted."""

    task: Task
    loss: Loss
    lam: float
    regulariser: Regulariser
    algorithm: Algorithm
    callback: Callback | None
    costs: Costs = field(default_factory=Costs)
    history: list[Record] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of examples N."""
        return self.task.n_examples

    def regularization(self, w: Array) -> float:
        """Return N λ Ω(w)."""
        return self.lam * self.n * regularisation(w, self.regulariser)

    def objective(self, w: Array, convex: LinearBounds, reward: LinearBounds) -> float:
        """Return N J(w), Eq. 7, given C and R at w."""
        sums = float(convex.values.sum()) - float(reward.values.sum())
        return self.regularization(w) + sums

    def reward(self, w: Array) -> LinearBounds:
        """Evaluate R_n and its subgradients at w."""
        began = time.perf_counter()
        reward = concave_part(self.task, self.loss, w)
        self.costs.oracle_seconds += time.perf_counter() - began
        self.costs.reward_passes += self.loss.reward is not None
        return reward

    def penalty(self, w: Array, examples: Indices | None = None) -> LinearBounds:
        """Evaluate C_n and its subgradients at w (line 7), for some examples or all."""
        began = time.perf_counter()
        linear = convex_part(self.task, self.loss, w, examples)
        share = 1.0 if examples is None else len(examples) / self.n
        self.count_inferences(share, time.perf_counter() - began)
        return linear

    def count_inferences(self, share: float, seconds: float) -> None:
        """Count inferences for C as a share of a pass."""
        self.costs.passes += share
        self.costs.reward_passes += self.loss.needs_clipping * share
        self.costs.oracle_seconds += seconds

    def record(
        self,
        bounds: int,
        upper: float,
        lower: float,
        precision: float,
        certified: bool = True,
    ) -> None:
        """Report progress to the callback; add certified records to the history."""
        record = Record(
            self.costs.iterations,
            self.costs.passes,
            bounds,
            upper,
            lower,
            precision,
            self.costs.elapsed,
            certified,
        )
        if certified:
            self.history.append(record)
        log.debug("%s", record)
        if self.callback is not None:
            self.callback(record)

    def reached_limit(self) -> Status | None:
        """Return the limit that was reached, or None."""
        if self.costs.passes >= self.algorithm.max_passes:
            return Status.PASS_LIMIT
        limit = self.algorithm.time_limit
        if limit is not None and self.costs.elapsed > limit:
            return Status.TIME_LIMIT
        return None

    def check_limits(self) -> None:
        """Raise LimitReached if a limit was reached."""
        status = self.reached_limit()
        if status is not None:
            raise LimitReached(status)


def sum_features(linear: LinearBounds) -> Array:
    """Return (d,) the sum of the examples' features."""
    return np.asarray(linear.features.sum(axis=0)).ravel()
