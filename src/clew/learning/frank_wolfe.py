"""Block-coordinate Frank–Wolfe on the dual (Lacoste-Julien et al. 2013).

A pass visits the groups in random order. The argmax at the current w gives a group a
new bound, and pairwise steps on the group's bounds move its α and w at once (Osokin et
al. 2016; Shah et al. 2015). Every α on the simplices gives a lower bound, and one exact
pass at a single w certifies the result. Until then, the sum of the groups' gaps, each
measured when its group was visited, estimates the gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from clew.learning.algorithm import STOCHASTIC_GROUPS, STOCHASTIC_WEIGHTS
from clew.learning.bounds import (
    Bundle,
    dual_value,
    fits_in_memory,
    normalize_dual_weights,
    sum_by_group,
    sum_rows_by_group,
)
from clew.learning.losses import LinearBounds, Loss
from clew.learning.model_update import ModelUpdate, choose_solver
from clew.learning.problem import Problem, sum_features
from clew.learning.task import (
    Array,
    Indices,
    OnlineOracle,
    Space,
    Task,
    dot,
)

Evaluate = Callable[[Array, Indices], LinearBounds]
"""Maps w and examples to C_n and its subgradients."""


@dataclass(frozen=True)
class StochasticSettings:
    """Batches of a pass and sweeps over cached bounds."""

    batches: int = 12
    """Batches in a full pass, if the task has no online oracle.

    More batches evaluate the argmax at a more recent w, but a pass costs more.
    """
    period: int = 4
    """The first `period` passes and then every `period`-th visit all groups.

    The others visit groups with a gap above `far` times the mean.
    """
    far: float = 0.3
    sweeps: int = 6
    """Sweeps over the cached bounds of such groups after each pass.

    They cost a fraction of it. Three took a third more passes and a fifth more time
    (letters, partial annotation; 1,000 sentences).
    """
    steps: int = 4
    """Pairwise steps in one visit to a group."""
    cached_sweeps: int = 100
    """Largest number of sweeps over recycled bounds before the first pass."""
    patience: int = 3
    """Passes that a bound may be inactive before it is dropped."""
    proximal_share: float = 0.01
    """Smallest λ + κ, as a share of that at which one dual weight corrects a bound.

    At smaller λ, w may run to and fro, and the passes make no progress. Then a proximal
    term κ/2 ‖w − c‖² with c = w after each pass (Rockafellar 1976) keeps w where the
    bounds were found.
    """
    passes_around: int = 2
    """Passes around the minimizer of an exact update.

    They take less time than the update, and halve the number of updates.
    """
    chunk: int = 2**21
    """Entries reserved at a time."""


DEFAULTS = StochasticSettings()


class FrankWolfeState:
    """α on the bundle with w(α) = −(v + Σ α_k a_k) / λ (Eq. 15), and the groups' gaps.

    With an `oracle` the argmax handles one example at a time, otherwise `evaluate`
    handles batches. Vectors are in the order of the bundle's columns. With a proximal
    term κ/2 ‖w − c‖² beside the regularizer, v − κc takes the place of v, and λ + κ
    that of λ.
    """

    def __init__(
        self,
        bundle: Bundle,
        lam: float,
        evaluate: Evaluate,
        oracle: OnlineOracle | None = None,
        settings: StochasticSettings = DEFAULTS,
    ) -> None:
        self.bundle = bundle
        self.lam = lam
        """λ + κ."""
        self.pull = 0.0
        """κ."""
        self.center = np.zeros(bundle.n_features)
        """The vector c of the proximal term."""
        self.evaluate = evaluate
        self.oracle = oracle
        self.settings = settings
        self.gaps = np.full(bundle.n_groups, np.inf)
        """Gap of each group at its last visit."""
        self.passes = 0
        self.last_value = np.inf
        """Estimate of the objective after the last pass."""
        self.v: Array
        self.w = np.zeros(bundle.n_features)

    @property
    def weights(self) -> Array:
        """The vector w in the order of φ."""
        return self.bundle.restore(self.w)

    def set_linear_term(self, v: Array) -> None:
        """Set the linear term, in the order of φ, and compute w from α.

        The groups' gaps are unknown until the next pass.
        """
        self.bundle.alpha[:] = normalize_dual_weights(self.bundle)
        self.v = self.bundle.arrange(v + self.bundle.shared[0])
        self._compute_weights()
        self.gaps[:] = np.inf

    def set_proximal_term(self, pull: float, center: Array) -> None:
        """Set κ and c, in the order of φ, and compute w from α."""
        self.lam += pull - self.pull
        self.pull = pull
        self.center = self.bundle.arrange(center)
        self._compute_weights()

    def _compute_weights(self) -> None:
        """Compute w(α)."""
        bundle = self.bundle
        slopes = bundle.rows.T @ bundle.alpha
        self.w = (self.v - self.pull * self.center + slopes) / -self.lam

    def groups_with_large_gap(self, gaps: Array) -> Indices:
        """Return the groups with a gap above a share of the mean."""
        return np.flatnonzero(gaps > self.settings.far * gaps.mean())

    @property
    def estimate(self) -> float:
        """Sum of the groups' gaps at their last visits, an estimate of the gap at w."""
        return float(self.gaps.sum())

    @property
    def is_proximal(self) -> bool:
        """Whether there is a proximal term, so that the estimate has no certificate."""
        return self.pull > 0

    def dual_value(self) -> float:
        """Return Eq. 14 at α, without the constant of the linear term."""
        bundle = self.bundle
        reached = float(dot(bundle.offsets, bundle.alpha))
        reached -= 0.5 * self.lam * float(dot(self.w, self.w))
        reached += 0.5 * self.pull * float(dot(self.center, self.center))
        return bundle.shared_offset + reached

    def value(self) -> float:
        """Estimate the objective at w, without the constant of the linear term."""
        if not self.is_proximal:
            return self.dual_value()
        change = self.w - self.center
        proximal_term = 0.5 * self.pull * float(dot(change, change))
        return self.dual_value() + self.estimate - proximal_term

    def add_proximal_term(self, w: Array) -> bool:
        """Add a proximal term with the center w if λ is small; return whether it is.

        It counts as small if a whole dual weight would more than correct a bound at
        w = 0, by the mean ‖a‖² and the mean offset of the bounds.
        """
        norms = float(self.bundle.squared_norms().sum())
        offsets = float(self.bundle.offsets.sum())
        cost = norms / offsets if offsets > 0 else 0.0
        least = self.settings.proximal_share * cost
        if self.is_proximal or least <= self.lam:
            return False
        self.set_proximal_term(least - self.lam, w)
        self.gaps[:] = np.inf
        return True

    def _move_center(self) -> None:
        """Make w the center; w moves with it."""
        change = self.w - self.center
        self.center = self.w.copy()
        self.w += (self.pull / self.lam) * change

    def run_pass(self, rng: np.random.Generator, drops: bool = True) -> float:
        """Visit all groups, or those with a large gap; return the share visited.

        Inactive bounds are dropped if `drops`.
        """
        bundle = self.bundle
        unknown = self.passes < self.settings.period or not np.isfinite(self.estimate)
        full = unknown or self.passes % self.settings.period == 0
        chosen = (
            np.arange(bundle.n_groups)
            if full
            else self.groups_with_large_gap(self.gaps)
        )
        self.passes += 1
        order = rng.permutation(chosen)
        if self.oracle is None:
            self._visit_batches(order, rng)
        else:
            self._visit_one_at_a_time(order, self.oracle)
        gaps = self.gaps.copy()  # sweeps measure only cached bounds
        for _ in range(self.settings.sweeps):
            self._visit(rng.permutation(self.groups_with_large_gap(gaps)), gaps)
        bundle.idle[:] = np.where(bundle.alpha > 0, 0, bundle.idle + 1)
        if drops:
            bundle.prune(self.settings.patience)
        self.last_value = self.value()
        if self.is_proximal:
            self._move_center()
        return len(chosen) / bundle.n_groups

    def sweep_cached_bounds(self, precision: float, rng: np.random.Generator) -> None:
        """Sweep over the cached bounds until their summed gap is at most `precision`.

        After a change of λ or of the linear term this is far cheaper than a pass.
        """
        gaps = np.empty(self.bundle.n_groups)
        for _ in range(self.settings.cached_sweeps):
            self._visit(rng.permutation(self.bundle.n_groups), gaps)
            if gaps.sum() <= precision:
                return

    def _visit(self, groups: Indices, gaps: Array) -> None:
        """Take pairwise steps on these groups in turn; write their gaps before."""
        self.bundle.visit_groups(groups, self.w, self.lam, self.settings.steps, gaps)

    def _visit_one_at_a_time(self, order: Indices, oracle: OnlineOracle) -> None:
        """Visit groups of one example each with the oracle, in chunks that fit."""
        need = oracle.capacity(order)
        for chunk in np.array_split(order, 1 + need // self.settings.chunk):
            self.bundle.reserve(oracle.capacity(chunk), chunk)
            self.bundle.multiply()
            steps = self.settings.steps
            oracle.run(self.bundle, self.w, self.lam, chunk, steps, self.gaps)

    def _visit_batches(self, order: Indices, rng: np.random.Generator) -> None:
        """Visit groups in batches.

        All passes have batches of the same size: each costs in proportion to the
        weights.
        """
        bundle = self.bundle
        count = max(1, round(self.settings.batches * len(order) / bundle.n_groups))
        for batch in np.array_split(order, count):
            groups = np.sort(batch)
            is_in_batch = np.zeros(bundle.n_groups, dtype=bool)
            is_in_batch[groups] = True
            examples = np.flatnonzero(is_in_batch[bundle.group_of])
            linear = self.evaluate(self.weights, examples)
            local = np.searchsorted(groups, bundle.group_of[examples])
            slopes = sum_rows_by_group(sp.csr_array(linear.features), local)
            offsets = sum_by_group(linear.offsets, local, len(groups))
            values = sum_by_group(linear.values, local, len(groups))
            bundle.extend_where_higher(slopes, offsets, values, groups, self.w)
            self._visit(rng.permutation(batch), self.gaps)


WINDOW = 8
PROGRESS = 0.8
PROXIMAL_PROGRESS = 0.5
"""Stop the passes if the gap is above this share of that WINDOW passes earlier.

The second value holds with a proximal term, where exact updates close the rest.
"""
FLOOR = 0.01
"""Stop the passes if the estimate is below this share of an unconfirmed precision."""
TIGHTER = 0.6
"""Factor on the target if the certified gap was larger than the estimate."""


def uses_stochastic_phase(problem: Problem, n_groups: int) -> bool:
    """Return whether a fit has a stochastic phase.

    By default it has one if the task has an online oracle. Batches pay only with many
    groups that each concern few of the weights.
    """
    task = problem.task
    algorithm = problem.algorithm
    if problem.regulariser == "l1" or algorithm.stochastic is False:
        return False
    if algorithm.stochastic is True:
        return True
    if algorithm.solver == "interior-point":
        return False
    if answers_one_at_a_time(task, problem.loss) and n_groups == task.n_examples:
        return True
    by_ascent = choose_solver(algorithm.solver, task.n_features) == "ascent"
    is_large = task.is_online or task.n_features >= STOCHASTIC_WEIGHTS
    return by_ascent and is_large and n_groups >= STOCHASTIC_GROUPS


def answers_one_at_a_time(task: Task, loss: Loss) -> bool:
    """Return whether the task's online oracle supports this loss.

    It needs one group per example.
    """
    if loss.reward is None or not task.is_online:
        return False
    if loss.penalty is Space.INCOMPATIBLE:
        return loss.reward is Space.COMPATIBLE
    return loss.penalty is Space.ALL and loss.margin == 0


def knows_groups_in_advance(problem: Problem, reward: LinearBounds) -> bool:
    """Return whether the groups are known before the first evaluation of C.

    If so, a stochastic phase can start at once.
    """
    algorithm = problem.algorithm
    base = sp.csr_array(reward.features)
    online = answers_one_at_a_time(problem.task, problem.loss)
    fits = algorithm.groups == "auto" and fits_in_memory(
        problem.n, base, algorithm.memory, online
    )
    has_reward = problem.loss.reward is not None
    return fits and has_reward and uses_stochastic_phase(problem, problem.n)


class FrankWolfe:
    """CCCP by Frank–Wolfe passes on a bundle; sums over examples, as in `cccp`."""

    def __init__(self, problem: Problem, bundle: Bundle, start: Array) -> None:
        self.problem = problem
        self.bundle = bundle
        self.start = start
        self.rng = np.random.default_rng(problem.algorithm.random_state)
        oracle = make_oracle(problem, bundle, start)
        self.fixed_reward = oracle is not None and oracle.fixed_reward
        self.point = FrankWolfeState(
            bundle, problem.lam * problem.n, problem.penalty, oracle
        )
        self.point.w = bundle.arrange(start)
        self.constant = 0.0
        """Constant of the linearized reward."""
        self.target = np.inf
        """Estimate at which passes end; below the precision if that was optimistic."""
        self.exhausted = False
        """Whether passes no longer reduce the gap, so that exact updates pay."""

    def run(self, reward: LinearBounds) -> None:
        """Iterate CCCP until J falls by at most η, or until passes make no progress.

        `reward` is R at the start. At full precision the dual value equals J to within
        the precision.
        """
        options = self.problem.algorithm
        n = self.problem.n
        if self.point.oracle is not None and len(self.bundle):
            # bounds of an earlier fit may have other bases
            self.bundle.relative_to(reward)
        if self.problem.loss.reward is not None:
            self.bundle.start_at_base()
        convex = self.fixed_reward or self.problem.loss.reward is None
        precision = options.epsilon
        before = np.inf
        while True:
            precision = (
                max(precision * options.rho, options.tol)
                if options.adaptive and not convex
                else options.tol
            )
            self.constant = -float(reward.offsets.sum())
            self.point.set_linear_term(-sum_features(reward))
            self.point.sweep_cached_bounds(precision * n, self.rng)
            self._run_passes(precision * n)
            value = self.point.last_value + self.constant
            settled = precision <= options.tol and (
                convex or before - value <= options.eta * n
            )
            if settled or self.exhausted or self.problem.reached_limit():
                break
            before = value
            w = self.point.weights
            reward = self.problem.reward(w)
            if self.point.oracle is not None:
                self.point.oracle.follow(self.bundle, w)
                self.bundle.set_base(reward)
        self.exhausted |= self.point.is_proximal

    def update_model(self, v: Array, precision: float) -> ModelUpdate:
        """Run passes with the linear term v to the given precision."""
        self.target = min(TIGHTER * self.target, precision)
        self.point.set_linear_term(v)
        self._run_passes(self.target)
        self.exhausted |= self.target < FLOOR * precision or self.point.is_proximal
        lower = dual_value(
            self.bundle, v, self.problem.lam * self.problem.n, self.bundle.alpha
        )
        return ModelUpdate(self.point.weights, lower, 0.0)

    def run_passes_around(self, w: Array, v: Array) -> float:
        """Run passes from w on the bundle, and keep all bounds.

        A proximal term keeps the weights close to w. Without one they start at w(α),
        which is w after an exact update.

        Returns
        -------
        value : float
            Estimate of the objective after the passes, without the constant of v.
        """
        self.point.set_linear_term(v)
        self.point.set_proximal_term(self.point.pull, w)
        for _ in range(self.point.settings.passes_around):
            self._run_pass(np.nan, drops=False)
        return self.point.last_value

    def _run_passes(self, precision: float) -> None:
        """Run passes until the estimated gap is small enough, or progress ends.

        If it ends early, a proximal term is added, and the passes go on.
        """
        estimates: list[float] = []
        while True:
            self._run_pass(precision)
            estimates.append(self.point.estimate)
            self.target = estimates[-1]
            progress = PROXIMAL_PROGRESS if self.point.is_proximal else PROGRESS
            self.exhausted = (
                len(estimates) > WINDOW
                and estimates[-1] > progress * estimates[-1 - WINDOW]
            )
            if estimates[-1] <= precision or self.problem.reached_limit():
                return
            if self.exhausted:
                if not self.point.add_proximal_term(self.start):
                    return
                estimates = []

    def _run_pass(self, precision: float, drops: bool = True) -> None:
        """Run one pass and report it."""
        n = self.problem.n
        began = time.perf_counter()
        share = self.point.run_pass(self.rng, drops)
        if self.point.oracle is not None:  # batches are counted by the problem
            self.problem.count_inferences(share, time.perf_counter() - began)
        estimate = self.point.estimate
        lower = self.point.last_value + self.constant
        if self.point.is_proximal:
            lower -= estimate
        self.problem.record(
            self.bundle.added,
            (lower + estimate) / n,
            lower / n,
            precision / n,
            certified=False,
        )


def make_oracle(problem: Problem, bundle: Bundle, w: Array) -> OnlineOracle | None:
    """Return the task's online oracle if loss and groups allow it."""
    task = problem.task
    possible = (
        answers_one_at_a_time(task, problem.loss) and bundle.n_groups == task.n_examples
    )
    return task.online(w, problem.loss) if possible else None
