"""The stochastic phase of a fit: CCCP on passes that learn while they look, before anything is certified.

CCCP needs a certificate only for its last convexified problem. Until then the groups' gaps, each measured when its
group was visited, say well enough how far a problem is solved; their sum costs nothing. So a fit on large data is some
such passes, and one pass at a single w at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from clew.learning.algorithm import STOCHASTIC_GROUPS, STOCHASTIC_WEIGHTS, Algorithm
from clew.learning.bounds import Bundle, dual_value
from clew.learning.frank_wolfe import Evaluate, FrankWolfeState
from clew.learning.groups import fit_unseen
from clew.learning.losses import LinearBounds, Loss
from clew.learning.model_update import Regulariser, choose_solver
from clew.learning.task import Array, OnlineOracle, Space, Task, online_task

WINDOW, PROGRESS = 8, 0.8
"""Passes are given up when so many of them in a row did not bring the gap under this share of what it was."""
FLOOR = 0.01
"""An estimate below this share of a precision that no certificate confirms is rounding: passes are given up."""
TIGHTER = 0.6
"""Where the certificate found more than the passes had estimated, they go on to this share of the estimate."""


def uses_stochastic_phase(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    n_groups: int,
) -> bool:
    """Whether a fit has a stochastic phase.

    By default it has one wherever examples can be answered one at a time. By batches it pays only with many groups, of
    which none concerns most of the weights.
    """
    if regulariser == "l1" or algorithm.stochastic is False:
        return False
    if algorithm.stochastic is True:
        return True
    if algorithm.solver == "interior-point":
        return False
    if answers_one_at_a_time(task, loss) and n_groups == task.n_examples:
        return True
    by_ascent = choose_solver(algorithm.solver, task.n_features) == "ascent"
    enough = online_task(task) is not None or task.n_features >= STOCHASTIC_WEIGHTS
    return by_ascent and enough and n_groups >= STOCHASTIC_GROUPS


def answers_one_at_a_time(task: Task, loss: Loss) -> bool:
    """Whether the task's online oracle serves this loss, given a group for each example."""
    plain = loss.penalty is Space.ALL and not loss.needs_clipping and loss.margin == 0
    return plain and loss.reward is not None and online_task(task) is not None


def begins_unseen(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    reward: LinearBounds,
) -> bool:
    """Whether the groups are known before C was evaluated, so that a stochastic phase can begin at once."""
    base, online = sp.csr_array(reward.features), answers_one_at_a_time(task, loss)
    fits = algorithm.groups == "auto" and fit_unseen(
        task.n_examples, base, algorithm.memory, online
    )
    phased = uses_stochastic_phase(algorithm, regulariser, task, loss, task.n_examples)
    return fits and loss.reward is not None and phased


def asked(ask: Callable[[Array], LinearBounds], w: Array) -> tuple[LinearBounds, bool]:
    """What is found at w, asked once more after Ctrl-C: without it there is no iterate to keep. Whether that was so."""
    try:
        return ask(w), False
    except KeyboardInterrupt:
        return ask(w), True


@dataclass(frozen=True)
class Watch:
    """What a phase tells the fit that it is part of, and asks it."""

    reward: Callable[[Array], LinearBounds]
    """R_n and its subgradients at w."""
    passed: Callable[[float, float], None]
    """A pass has ended: the share of the examples that it looked at, its seconds."""
    progress: Callable[[float, float, float], None]
    """Estimated gap, lower bound and precision, as sums over examples."""
    over: Callable[[], object]
    """True or something like it when a limit was reached."""


class StochasticPhase:
    """Passes in batches or example by example on a bundle. Sums over examples, as in `cccp`."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        lam: float,
        algorithm: Algorithm,
        bundle: Bundle,
        evaluate: Evaluate,
        watch: Watch,
    ) -> None:
        self.task, self.loss, self.lam, self.algorithm, self.watch = (
            task,
            loss,
            lam,
            algorithm,
            watch,
        )
        self.bundle, self.evaluate = bundle, evaluate
        self.rng = np.random.default_rng(algorithm.random_state)
        self.interrupted = self.fixed_reward = False
        self.exhausted = False
        """Whether passes alone no longer close the gap, so that exact model updates are worth their price."""
        self.point: FrankWolfeState
        self.constant = 0.0
        self.target = np.inf
        """The estimate at which passes end; below the precision where the estimate was too rosy."""

    def run(self, w: Array, reward: LinearBounds) -> Array:
        """CCCP from w, where the reward is known; returns the last w. What Ctrl-C leaves is kept as well."""
        oracle = self._oracle(w)
        if oracle is not None and len(self.bundle):
            self.bundle.relative_to(
                reward
            )  # bounds of an earlier fit may have other bases
        if self.loss.reward is not None:
            self.bundle.start_at_base()
        self.point = FrankWolfeState(self.bundle, self.lam, self.evaluate, oracle)
        self.fixed_reward = oracle is not None and oracle.fixed_reward
        try:
            self._iterate(reward)
        except KeyboardInterrupt:
            self.interrupted = True
        self.point.set.store_bounds()
        return self.point.set.weights

    def _iterate(self, reward: LinearBounds) -> None:
        """The CCCP iterations: until the last one lowered the objective by no more than η, or passes lead no further.

        At full precision the dual value is the objective to within that.
        """
        options, n = self.algorithm, self.task.n_examples
        convex = self.fixed_reward or self.loss.reward is None
        precision, before = options.epsilon, np.inf
        while True:
            precision = (
                max(precision * options.rho, options.tol)
                if options.adaptive and not convex
                else options.tol
            )
            self.constant = -float(reward.offsets.sum())
            self.point.set_linear_term(-np.asarray(reward.features.sum(axis=0)).ravel())
            self.point.sweep_cached_bounds(precision * n, self.rng)
            self._passes(precision * n)
            value = self.point.set.dual_value() + self.constant
            settled = precision <= options.tol and (
                convex or before - value <= options.eta * n
            )
            if settled or self.exhausted or self.watch.over():
                return
            before = value
            w = self.point.set.weights
            reward = self.watch.reward(w)
            if self.point.oracle is not None:
                self.point.oracle.follow(self.point.set, w)
                self.bundle.set_base(reward)

    def update(self, v: Array, precision: float) -> tuple[Array, float]:
        """More passes on the bundle as it is now, until about the precision; w and the lower bound there."""
        self.target = min(TIGHTER * self.target, precision)
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._passes(self.target)
        self.exhausted |= self.target < FLOOR * precision
        self.point.set.store_bounds()
        return self.point.set.weights, dual_value(
            self.bundle, v, self.lam, self.bundle.alpha
        )

    def one_pass(self, v: Array) -> None:
        """One pass on the bundle as it is now."""
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._pass(np.nan)
        self.point.set.store_bounds()

    def _passes(self, precision: float) -> None:
        """Passes until the estimated gap is at most this, or until they lead no further."""
        estimates: list[float] = []
        while True:
            self._pass(precision)
            estimates.append(self.point.estimate)
            self.target = estimates[-1]
            self.exhausted = (
                len(estimates) > WINDOW
                and estimates[-1] > PROGRESS * estimates[-1 - WINDOW]
            )
            if estimates[-1] <= precision or self.exhausted or self.watch.over():
                return

    def _pass(self, precision: float) -> None:
        began = time.perf_counter()
        share = self.point.run_pass(self.rng)
        if self.point.oracle is not None:  # batches count themselves
            self.watch.passed(share, time.perf_counter() - began)
        self.watch.progress(
            self.point.estimate, self.point.set.dual_value() + self.constant, precision
        )

    def _oracle(self, w: Array) -> OnlineOracle | None:
        """What answers one example after the other, where the task has it, loss and groups allow it."""
        found, loss = online_task(self.task), self.loss
        possible = (
            answers_one_at_a_time(self.task, loss)
            and self.bundle.n_groups == self.task.n_examples
        )
        if found is None or loss.reward is None or not possible:
            return None
        task, examples = found
        return task.online(
            w, loss.reward, loss.reward_weight, loss.penalty_weight, examples
        )
