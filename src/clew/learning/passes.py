"""Evaluations of C and R, with the passes, time and history of a fit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from clew.learning.algorithm import Algorithm
from clew.learning.bounds import Bundle, make_groups
from clew.learning.losses import LinearBounds, Loss, concave_part, convex_part
from clew.learning.result import Record, Result, Status
from clew.learning.sparse_rows import subtract_sparse
from clew.learning.task import Array, Indices, Task

log = logging.getLogger("clew")
Callback = Callable[[Record], None]


class LimitReached(Exception):
    """Raised to end the loops when the pass or time limit is reached."""

    def __init__(self, status: Status) -> None:
        self.status = status


class OracleCounter:
    """Evaluates C and R, and counts passes, time and history of a fit."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        algorithm: Algorithm,
        callback: Callback | None = None,
    ) -> None:
        self.task = task
        self.loss = loss
        self.algorithm = algorithm
        self.callback = callback
        self.count = self.reward_count = 0.0
        """Inferences for C and for R, in units of the number of examples."""
        self.seconds = 0.0
        self.began = time.perf_counter()
        self.history: list[Record] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the fit."""
        return time.perf_counter() - self.began

    def reward(self, w: Array) -> LinearBounds:
        """Evaluate R_n and its subgradients at w."""
        began = time.perf_counter()
        reward = concave_part(self.task, self.loss, w)
        self.seconds += time.perf_counter() - began
        self.reward_count += self.loss.reward is not None
        return reward

    def penalty(self, w: Array) -> LinearBounds:
        """Evaluate C_n and its subgradients at w (line 7)."""
        return self._evaluate_penalty(w, None, 1.0)

    def batch(self, w: Array, examples: Indices) -> LinearBounds:
        """Evaluate C_n for some examples, counted as their share of a pass."""
        return self._evaluate_penalty(w, examples, len(examples) / self.task.n_examples)

    def _evaluate_penalty(
        self, w: Array, examples: Indices | None, share: float
    ) -> LinearBounds:
        """Evaluate C_n and count it as a share of a pass."""
        began = time.perf_counter()
        linear = convex_part(self.task, self.loss, w, examples)
        self.seconds += time.perf_counter() - began
        self.count += share
        self.reward_count += self.loss.needs_clipping * share
        return linear

    def add_inferences(self, share: float, seconds: float) -> None:
        """Count inferences for C that an online oracle made while w moved."""
        self.count = self.count + share
        self.reward_count += self.loss.needs_clipping * share
        self.seconds = self.seconds + seconds

    def record(
        self,
        iteration: int,
        bounds: int,
        upper: float,
        lower: float,
        precision: float,
        certified: bool,
    ) -> None:
        """Report progress to the callback; add certified records to the history."""
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
        """Return the limit that was reached, or None."""
        if self.count >= self.algorithm.max_passes:
            return Status.PASS_LIMIT
        limit = self.algorithm.time_limit
        return Status.TIME_LIMIT if limit is not None and self.elapsed > limit else None

    def check_limits(self) -> None:
        """Raise LimitReached if a limit was reached."""
        status = self.limit_reached()
        if status is not None:
            raise LimitReached(status)

    def first_bundle(
        self, convex: LinearBounds | None, base: LinearBounds, warm_start: Result | None
    ) -> Bundle:
        """Create the bundle, with the bounds of an earlier fit that still hold.

        Without `convex`, every example is a group.
        """
        task = self.task
        options = self.algorithm
        groups = np.arange(task.n_examples)
        if convex is not None:
            plane = subtract_sparse(
                sp.csr_array(convex.features), sp.csr_array(base.features)
            )
            groups = make_groups(task.n_examples, options.groups, plane, options.memory)
        bundle = Bundle(
            task.n_features,
            groups,
            task.keys,
            base,
            options.memory,
            task.column_order,
        )
        old = None if warm_start is None else warm_start.bundle
        if (
            old is None
            or warm_start is None
            or warm_start.loss != self.loss
            or old.n_features != task.n_features
        ):
            return bundle
        return old.transfer_bounds(bundle)
