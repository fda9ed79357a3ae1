"""Algorithm 1: CCCP with bounds recycling and adaptive precision.

Minimize J(w) = λΩ(w) + (1/N) Σ_n [C_n(w) − R_n(w)], see `losses`. CCCP iteration t
replaces −R by its linear upper bound at w_t (Eq. 8), which makes the problem convex,
and solves it with linear lower bounds under C until the gap is ε_t. The paper's method,
Yu & Joachims' procedure, BMRM and clew's default differ only in the arguments:
`PRESETS`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import numpy as np

from clew.errors import InputError
from clew.learning.algorithm import LAMBDAS, PRESETS, Algorithm
from clew.learning.bounds import Bundle
from clew.learning.frank_wolfe import (
    StochasticPhase,
    Watch,
    knows_groups_in_advance,
    uses_stochastic_phase,
)
from clew.learning.losses import (
    LinearBounds,
    Loss,
    require_spaces,
    simplify,
)
from clew.learning.model_update import (
    Regulariser,
    check_regulariser,
    choose_solver,
    lower_bound_from_duals,
    regularisation,
    solve_model_update,
)
from clew.learning.passes import Callback, LimitReached, OracleCounter
from clew.learning.result import Result, Status, warn_if_not_converged
from clew.learning.task import Array, Task, as_task, dot
from clew.utils.threads import single_threaded_blas
from clew.utils.validation import (
    check_callable,
    check_floats,
    check_positive,
    short_repr,
)

__all__ = ["PRESETS", "Algorithm", "Callback", "learn"]

log = logging.getLogger("clew")

INITIAL_STEP_SIZE = 0.5
SMALLEST_STEP_SIZE = 0.2
"""Initial and smallest step from the best w towards the model's minimizer."""
MODEL_PRECISION = 0.2
COARSE_PRECISION = 1.0
FINEST_PRECISION = 1e-3
"""Precision of a model update as a share of the remaining gap.

The second value holds after a stochastic phase, where passes around the minimizer make
up for its error. The interior point is ten times as precise. The third one is the
finest that is tried before a fit counts as stalled.
"""
REPEATS = 10
"""Consecutive passes with the same w and bounds, after which rounding hides the gap."""
STALLS = 3
"""Consecutive CCCP iterations that may stall at their initial point."""


def learn(
    task: Task,
    loss: Loss,
    lam: float,
    *,
    regulariser: Regulariser = "l2",
    algorithm: Algorithm | None = None,
    start: Array | None = None,
    warm_start: Result | None = None,
    callback: Callback | None = None,
) -> Result:
    """Minimize J by CCCP.

    Parameters
    ----------
    task : Task
    loss : Loss
    lam : float
        Strength λ of the regularization.
    regulariser : "l2" or "l1"
    algorithm : Algorithm, optional
    start : ndarray of shape (n_features,), optional
        Initial weights; those of `warm_start`, or zero, if None.
    warm_start : Result, optional
        Earlier fit, whose bounds are reused if they still hold.
    callback : callable, optional
        ``callback(record)`` is called after each model update.

    Returns
    -------
    result : Result
    """
    algorithm = Algorithm() if algorithm is None else algorithm
    task = as_task(task)
    lam = check_positive(lam, "λ", LAMBDAS[1])
    if lam < LAMBDAS[0]:
        raise InputError(f"λ is {lam}; expected at least {LAMBDAS[0]:g}")
    for argument, kind in (
        (loss, Loss),
        (algorithm, Algorithm),
        (warm_start, Result | None),
    ):
        if not isinstance(argument, kind):
            raise InputError(
                f"learn got {short_repr(argument)}; expected a "
                f"{getattr(kind, '__name__', 'Result or None')}"
            )
    check_callable(callback, "callback")
    if task.n_examples == 0:
        raise InputError("there are no examples to learn from")
    check_regulariser(regulariser)
    if algorithm.identities:
        loss = simplify(loss, task)
    require_spaces(loss, task)
    w = _check_start(task, start, warm_start)
    finest = task.separated() if algorithm.groups == "auto" else None
    result = _Run(finest or task, loss, lam, regulariser, algorithm, callback).fit(
        w, warm_start
    )
    return replace(result, n_examples=task.n_examples)


def _check_start(task: Task, start: Array | None, warm_start: Result | None) -> Array:
    """Return the validated initial weights."""
    if start is None:
        start = np.zeros(task.n_features) if warm_start is None else warm_start.w
    w = np.array(check_floats(start, "start"))
    if w.shape != (task.n_features,) or not np.isfinite(w).all():
        raise InputError(
            f"the start must be {task.n_features} finite weights; got shape {w.shape}"
        )
    return w


@dataclass(frozen=True)
class _Convex:
    """Σ_n C_n at a point w, and the bounds that are tight there."""

    total: float
    linear: LinearBounds


@dataclass(frozen=True)
class _Point:
    """Iterate w_t, with J and the linear upper bound on −R there."""

    w: Array
    convex: _Convex
    objective: float
    v: Array
    """−Σ_n φ(x_n, ỹ_n): N times Eq. 10 with its sign."""
    reward: LinearBounds
    """R_n and its subgradients there."""
    constant: float
    """−Σ_n of the reward's offsets: ⟨v, w⟩ + constant ≥ −Σ R_n(w) for every w."""


class _Run:
    """State of one call of `learn`; sums over examples inside, means in reports."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        lam: float,
        regulariser: Regulariser,
        algorithm: Algorithm,
        callback: Callback | None,
    ) -> None:
        self.task = task
        self.loss = loss
        self.lam = lam
        self.regulariser = regulariser
        self.algorithm = algorithm
        self.n = task.n_examples
        self.passes = OracleCounter(task, loss, algorithm, callback)
        self.reach = INITIAL_STEP_SIZE
        self.master = 0.0
        self.residual = self.inexactness = 0.0
        self.iteration = self.fallbacks = 0
        self.rebases = False
        """Whether CCCP iterations change the bases; not with a stochastic phase."""
        self.phase: StochasticPhase | None = None
        self.bundle: Bundle
        self.best: tuple[Array, _Convex]
        self.has_best = False
        self.proposed: Array | None = None
        """Minimizer of the last exact model update of this CCCP iteration."""
        self.lower_bound = -np.inf
        self.gap = np.inf

    def fit(self, w: Array, warm_start: Result | None) -> Result:
        """Run Algorithm 1; return the best iterate even after a limit or Ctrl-C."""
        try:
            point = self._run_cccp(self._find_start(w, warm_start))
            status = (
                Status.CONVERGED
                if abs(self.gap) <= self.algorithm.tol  # rounding may make it negative
                else Status.STALLED
            )
        except LimitReached as limit:
            point = self._linearize_reward(*self.best)
            status = limit.status
        except KeyboardInterrupt:
            reward = None
            if not self.has_best:  # before the first iterate, which a result needs
                convex, reward = self._evaluate_start(w, warm_start)
                self._set_best(w, convex)
            point = self._linearize_reward(*self.best, reward)
            status = Status.INTERRUPTED
        warn_if_not_converged(status, self.gap, self.algorithm.tol, self.inexactness)
        return Result(
            w=point.w,
            objective=point.objective,
            lower_bound=self.lower_bound,
            gap=self.gap,
            status=status,
            lam=self.lam,
            regulariser=self.regulariser,
            loss=self.loss,
            passes=self.passes.count,
            reward_passes=self.passes.reward_count,
            bounds=self.bundle.added,
            iterations=self.iteration,
            seconds={
                "oracle": self.passes.seconds,
                "master": self.master,
                "total": self.passes.elapsed,
            },
            residual=self.residual,
            inexactness=self.inexactness,
            n_examples=self.n,
            history=tuple(self.passes.history),
            bundle=self.bundle,
            n_groups=self.bundle.n_groups,
            fallbacks=self.fallbacks,
        )

    def _find_start(self, w: Array, warm_start: Result | None) -> _Point:
        """Return the iterate from which exact steps begin, after Frank–Wolfe passes."""
        convex, reward = self._evaluate_start(w, warm_start)
        phased = uses_stochastic_phase(
            self.algorithm, self.regulariser, self.task, self.loss, self.bundle.n_groups
        )
        if phased and warm_start is not None and warm_start.lam == self.lam:
            convex = self.passes.penalty(w) if convex is None else convex
            phased = not self._is_solved(w, convex, reward)
        if phased:
            w, convex, reward = self._run_stochastic_phase(w, convex, reward)
        by_ascent = (
            choose_solver(self.algorithm.solver, self.task.n_features) == "ascent"
        )
        self.rebases = by_ascent and self.phase is None and self.loss.reward is not None
        self._set_best(w, convex)
        if self.phase is not None and self.phase.interrupted:
            raise KeyboardInterrupt
        return self._linearize_reward(*self.best, reward)

    def _evaluate_start(
        self, w: Array, warm_start: Result | None
    ) -> tuple[LinearBounds | None, LinearBounds]:
        """Make the bundle; return C and R at w, without C if no group depends on it."""
        reward = self.passes.reward(w)
        convex: LinearBounds | None = None
        if not knows_groups_in_advance(
            self.algorithm, self.regulariser, self.task, self.loss, reward
        ):
            convex = self.passes.penalty(w)
        self.bundle = self.passes.first_bundle(convex, reward, warm_start)
        return convex, reward

    def _set_best(self, w: Array, convex: LinearBounds | None) -> None:
        """Make w the best iterate, with the bounds of C there."""
        convex = self.passes.penalty(w) if convex is None else convex
        self.best = w, self._add(convex, w)
        self.has_best = True

    def _run_cccp(self, point: _Point) -> _Point:
        """Run the CCCP iterations (lines 3 to 15)."""
        options = self.algorithm
        precision = options.epsilon if options.adaptive else options.tol
        stalls = 0
        while True:
            self.iteration += 1
            precision = (
                max(precision * options.rho, options.tol)
                if options.adaptive and self.phase is None  # which was adaptive itself
                else options.tol
            )
            if not options.recycle and self.iteration > 1:
                self.bundle.clear()
                self._add(point.convex.linear, point.w)
            if self.iteration > 1 and self.rebases:
                self.bundle.relative_to(point.reward)
            stalled = self._minimize_convexified(point, precision)
            stalls = stalls + 1 if stalled and self.best[0] is point.w else 0
            w, convex = self.best
            if w is point.w:
                # no improvement within the precision: v is the same, so R is not needed
                decrease = 0.0
                precision = min(precision, max(self.gap, options.tol))
            else:
                following = self._linearize_reward(w, convex)
                decrease = point.objective - following.objective
                point = following
            if (
                precision <= options.tol or stalls >= STALLS
            ) and decrease <= options.eta:
                return point
            # stalled iterations evaluate no data, so that passes do not count them
            self.passes.check_limits()

    def _minimize_convexified(self, point: _Point, precision: float) -> bool:
        """Minimize J̃_t to the given precision (lines 6 to 12); `best` becomes w_{t+1}.

        Returns
        -------
        stalled : bool
            Whether floating-point precision ended it first.
        """
        upper = point.objective
        lower = lower_bound_from_duals(
            self.bundle, point.v, self.lam * self.n, self.regulariser
        )
        lower = (lower + point.constant) / self.n
        share = coarsest = MODEL_PRECISION if self.phase is None else COARSE_PRECISION
        self.proposed = None
        proposed = point.w
        repeats = 0
        if self.phase is not None and upper - lower <= precision:
            self.lower_bound = lower
            self.gap = upper - lower
            self._record(upper, lower, precision)
            return False
        while True:
            gap = upper - lower
            reference = gap if self.phase is None else min(gap, upper)  # as J̃ ≥ 0
            if not np.isfinite(gap):
                reference = precision
            w, value = self._model_update(
                point, precision, share * max(precision, reference), upper
            )
            stalled = value <= lower and self.residual > 0.5 * gap
            lower = max(lower, value)
            self.lower_bound = lower
            self.gap = upper - lower
            self._record(upper, lower, precision)
            if upper - lower <= precision:
                return False
            if stalled and share > FINEST_PRECISION:
                self.passes.check_limits()
                # the update was too imprecise: repeat it with more precision
                share /= 4
                continue
            if stalled or repeats > REPEATS:
                log.warning(
                    "the gap stays at %.3g: limited by floating-point precision; "
                    "consider scaling the features",
                    upper - lower,
                )
                return True
            self.passes.check_limits()
            upper = self._evaluate_step(point, w, upper)
            self.gap = upper - lower
            if upper - lower <= precision:
                self._record(upper, lower, precision)
                return False
            repeats = (
                repeats + 1
                if upper - lower == gap and np.array_equal(w, proposed)
                else 0
            )
            proposed = w
            # An imprecise model update proposes a similar w again: if the gap hardly
            # changes, increase the precision. The limit matters for the paper's method,
            # whose gap changes little for hundreds of passes.
            share = (
                coarsest
                if upper - lower <= 0.9 * gap
                else max(share / 2, FINEST_PRECISION)
            )

    def _run_stochastic_phase(
        self, w: Array, linear: LinearBounds | None, reward: LinearBounds
    ) -> tuple[Array, LinearBounds, LinearBounds]:
        """Run Frank–Wolfe passes from w; return w, C and R at the end.

        Returns the initial point if its J is lower.
        """
        if linear is not None and self.loss.reward is None:
            # without a base, every group needs an initial bound
            self._add(linear, w)
        watch = Watch(
            self.passes.reward,
            self.passes.add_inferences,
            self._report_estimate,
            self.passes.limit_reached,
        )
        self.phase = StochasticPhase(
            self.task,
            self.loss,
            self.lam * self.n,
            self.algorithm,
            self.bundle,
            self.passes.batch,
            watch,
        )
        following = self.phase.run(w, reward)
        final = (
            following,
            self.passes.penalty(following),
            reward.at(following)
            if self.phase.fixed_reward
            else self.passes.reward(following),
        )
        if self.phase.fixed_reward or not w.any():
            return final
        initial = w, self.passes.penalty(w) if linear is None else linear, reward
        return min(final, initial, key=lambda candidate: self._objective(*candidate))

    def _objective(self, w: Array, convex: LinearBounds, reward: LinearBounds) -> float:
        """Return J(w), Eq. 7, as a sum over examples."""
        return (
            self._regularization(w)
            + float(convex.values.sum())
            - float(reward.values.sum())
        )

    def _is_solved(self, w: Array, convex: LinearBounds, reward: LinearBounds) -> bool:
        """Return whether the bounds of an earlier fit already certify w."""
        v = -np.asarray(reward.features.sum(axis=0)).ravel()
        lower = lower_bound_from_duals(
            self.bundle, v, self.lam * self.n, self.regulariser
        ) - float(reward.offsets.sum())
        return self._objective(w, convex, reward) - lower <= self.algorithm.tol * self.n

    def _report_estimate(self, estimate: float, lower: float, precision: float) -> None:
        """Report the estimates of the stochastic phase to the callback."""
        lower /= self.n
        self._record(
            lower + estimate / self.n, lower, precision / self.n, certified=False
        )

    def _evaluate_step(self, point: _Point, w: Array, upper: float) -> float:
        """Evaluate J̃_t on the way from the best w to this one; return the best value.

        The bounds at the evaluated point are added.
        """
        if self.algorithm.stabilise:
            w = self.best[0] + self.reach * (w - self.best[0])
        convex = self._add(self.passes.penalty(w), w)
        value = (
            self._regularization(w)
            + convex.total
            + float(dot(point.v, w))
            + point.constant
        ) / self.n
        self.reach = (
            min(1.0, 1.5 * self.reach)
            if value < upper
            else max(SMALLEST_STEP_SIZE, 0.7 * self.reach)
        )
        if value < upper:
            self.best = w, convex
        return min(value, upper)

    def _model_update(
        self, point: _Point, precision: float, tol: float, upper: float
    ) -> tuple[Array, float]:
        """Return the model's minimizer and its lower bound on J̃_t (line 9).

        While Frank–Wolfe passes make progress, they are the update. Later, passes around
        the last minimizer precede each exact update. If they find a value below the
        best one, `upper`, the next step goes all the way. The lower bound is a mean
        over examples.
        """
        if self.phase is not None and not self.phase.exhausted:
            self.reach = 1.0
            w, lower = self.phase.update(point.v, precision * self.n)
            return w, (lower + point.constant) / self.n
        if self.phase is not None and self.proposed is not None:
            value = self.phase.run_passes_around(self.proposed, point.v)
            if value + point.constant < upper * self.n:
                self.reach = 1.0
        return self._exact_update(point, tol)

    def _exact_update(self, point: _Point, tol: float) -> tuple[Array, float]:
        """Solve the model update; return its minimizer and lower bound."""
        began = time.perf_counter()
        radius = max(point.objective, 0.0) / self.lam
        with single_threaded_blas():
            solved = solve_model_update(
                self.bundle,
                point.v,
                self.lam * self.n,
                self.regulariser,
                radius,
                tol * self.n,
                self.algorithm.solver,
            )
        self.proposed = solved.w
        self.bundle.prune(self.algorithm.patience)
        self.master += time.perf_counter() - began
        self.residual = solved.residual / self.n
        self.fallbacks += solved.fell_back
        return solved.w, (solved.lower_bound + point.constant) / self.n

    def _linearize_reward(
        self, w: Array, convex: _Convex, reward: LinearBounds | None = None
    ) -> _Point:
        """Return J and the linear upper bound on −R at w (line 4)."""
        reward = self.passes.reward(w) if reward is None else reward
        v = -np.asarray(reward.features.sum(axis=0)).ravel()
        objective = (
            self._regularization(w) + convex.total - float(reward.values.sum())
        ) / self.n
        return _Point(w, convex, objective, v, reward, -float(reward.offsets.sum()))

    def _add(self, linear: LinearBounds, w: Array) -> _Convex:
        """Add bounds (line 8) and return Σ C_n(w).

        An argmax below a bound that it returned earlier is inexact; that is recorded
        here.
        """
        began = time.perf_counter()
        values = self.bundle.sum_by_group(linear.values)
        known = self.bundle.values(w)
        short = float(np.max(known - values, initial=0.0))
        if short > 1e-7 * (1.0 + float(np.abs(values).max())):
            self.inexactness = max(self.inexactness, short)
        self.bundle.add(linear, w, known)
        self.master += time.perf_counter() - began
        return _Convex(float(np.maximum(values, known).sum()), linear)

    def _regularization(self, w: Array) -> float:
        """Return N λ Ω(w)."""
        return self.lam * self.n * regularisation(w, self.regulariser)

    def _record(
        self, upper: float, lower: float, precision: float, certified: bool = True
    ) -> None:
        """Record the state after a model update."""
        self.passes.record(
            self.iteration, self.bundle.added, upper, lower, precision, certified
        )
