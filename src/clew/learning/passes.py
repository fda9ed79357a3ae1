"""The passes of a fit over its data: C and R at some w, what they cost, when they were enough, and their first bundle.

OracleCounter are what a fit is measured by: one of them is an augmented inference for each example. All questions about the
data go through here, so that none is left uncounted, whichever phase of a fit asks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from clew.learning.algorithm import Algorithm
from clew.learning.bounds import Bundle
from clew.learning.groups import make_groups
from clew.learning.losses import LinearBounds, Loss, concave_part, convex_part
from clew.learning.result import Record, Result, Status
from clew.learning.sparse_rows import differences
from clew.learning.task import Array, Indices, Task

log = logging.getLogger("clew")
Callback = Callable[[Record], None]


class LimitReached(Exception):  # not an error: a limit that ends the loops
    """The passes or the time that were allowed are used up."""

    def __init__(self, status: Status) -> None:
        self.status = status


class OracleCounter:
    """What a fit has asked of its data, how long that took, and the lines of its history."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        algorithm: Algorithm,
        callback: Callback | None = None,
    ) -> None:
        self.task, self.loss, self.algorithm, self.callback = (
            task,
            loss,
            algorithm,
            callback,
        )
        self.count = self.reward_count = 0.0
        """Inferences for C and for R, in units of the number of examples."""
        self.seconds = 0.0
        self.began = time.perf_counter()
        self.history: list[Record] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.began

    def reward(self, w: Array) -> LinearBounds:
        """R_n and its subgradients at w."""
        began = time.perf_counter()
        reward = concave_part(self.task, self.loss, w)
        self.seconds += time.perf_counter() - began
        self.reward_count += self.loss.reward is not None
        return reward

    def penalty(self, w: Array) -> LinearBounds:
        """C_n and its subgradients at w: line 7."""
        return self._penalty(w, None, 1.0)

    def batch(self, w: Array, examples: Indices) -> LinearBounds:
        """C_n and its subgradients at w for some examples, counted as their share of a pass."""
        return self._penalty(w, examples, len(examples) / self.task.n_examples)

    def _penalty(
        self, w: Array, examples: Indices | None, share: float
    ) -> LinearBounds:
        began = time.perf_counter()
        linear = convex_part(self.task, self.loss, w, examples)
        self.seconds += time.perf_counter() - began
        self.count += share
        self.reward_count += self.loss.needs_clipping * share
        return linear

    def passed(self, share: float, seconds: float) -> None:
        """Count inferences for C that a task made on its own, while w moved."""
        self.count, self.seconds = self.count + share, self.seconds + seconds

    def record(
        self,
        iteration: int,
        bounds: int,
        upper: float,
        lower: float,
        precision: float,
        certified: bool,
    ) -> None:
        """Tell the callback where the fit stands; what is certified goes into the history too."""
        record = Record(
            iteration,
            self.count,
            bounds,
            upper,
            lower,
            precision,
            self.elapsed,
            certified,
        )
        if certified:
            self.history.append(record)
        log.debug("%s", record)
        if self.callback is not None:
            self.callback(record)

    def limit_reached(self) -> Status | None:
        """The limit that was reached, if any."""
        if self.count >= self.algorithm.max_passes:
            return Status.PASS_LIMIT
        limit = self.algorithm.time_limit
        return Status.TIME_LIMIT if limit is not None and self.elapsed > limit else None

    def check_limits(self) -> None:
        """Raise where a limit was reached."""
        status = self.limit_reached()
        if status is not None:
            raise LimitReached(status)

    def first_bundle(
        self, convex: LinearBounds | None, base: LinearBounds, warm_start: Result | None
    ) -> Bundle:
        """An empty bundle, or the bounds of an earlier fit that still hold. Without C, examples are groups."""
        task, options = self.task, self.algorithm
        groups = np.arange(task.n_examples)
        if convex is not None:
            plane = differences(
                sp.csr_array(convex.features), sp.csr_array(base.features)
            )
            groups = make_groups(task.n_examples, options.groups, plane, options.memory)
        bundle = Bundle(task.n_features, groups, task.keys, base, options.memory)
        old = None if warm_start is None else warm_start.bundle
        if (
            old is None
            or warm_start is None
            or warm_start.loss != self.loss
            or old.n_features != task.n_features
        ):
            return bundle
        return old.transfer_bounds(bundle)
