"""Algorithm 1: CCCP with bounds recycling and adaptive precision.

min_w J(w) = λΩ(w) + (1/N) Σ_n [C_n(w) − R_n(w)], see losses.py. CCCP iteration t replaces −R by its linear upper bound
at w_t (Eq. 8), which makes the problem convex, and solves it with linear lower bounds under C until the gap is ε_t.
The paper's method, Yu & Joachims' procedure, BMRM and clew's default are this code with other arguments: `PRESETS`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.algorithm import LAMBDAS, PRESETS, Algorithm
from clew.learning.bounds import Bundle, make_groups
from clew.learning.frank_wolfe import (
    StochasticPhase,
    Watch,
    asked,
    begins_unseen,
    uses_stochastic_phase,
)
from clew.learning.losses import (
    LinearBounds,
    Loss,
    concave_part,
    convex_part,
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
from clew.learning.result import Record, Result, Status, warn_if_not_converged
from clew.learning.sparse_rows import differences
from clew.learning.task import Array, Indices, Task, dot, separated
from clew.utils.threads import single_threaded_blas
from clew.utils.validation import (
    check_callable,
    check_floats,
    check_positive,
    short_repr,
)

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
        self.count = self.count + share
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
        task = self.task
        options = self.algorithm
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


__all__ = ["PRESETS", "Algorithm", "Callback", "learn"]

log = logging.getLogger("clew")

INITIAL_STEP_SIZE = 0.5
SMALLEST_STEP_SIZE = 0.2
"""The share of the way from the best w to the model's minimiser."""
MODEL_PRECISION = 0.2
FINEST_PRECISION = 1e-3
"""How precisely a model update is solved, as a share of the gap that is still open; and what is asked for before a fit
that gets no further is said to have stalled."""
REPEATS = 10
"""OracleCounter in a row that propose the same w and move neither bound: rounding hides what is left of the gap."""
STALLS = 3
"""CCCP iterations in a row that stalled where they began: more precision is asked for in vain."""


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
    """Minimise J from `start` (zero if None); bounds of `warm_start` are re-used where they still hold."""
    algorithm = Algorithm() if algorithm is None else algorithm
    lam = check_positive(lam, "λ", LAMBDAS[1])
    if lam < LAMBDAS[0]:
        raise InputError(f"λ is {lam}; expected at least {LAMBDAS[0]:g}")
    for given, kind in (
        (task, Task),
        (loss, Loss),
        (algorithm, Algorithm),
        (warm_start, Result | None),
    ):
        if not isinstance(given, kind):
            raise InputError(
                f"learn got {short_repr(given)}; expected a {getattr(kind, '__name__', 'Result or None')}"
            )
    check_callable(callback, "callback")
    if task.n_examples == 0:
        raise InputError("there are no examples to learn from")
    check_regulariser(regulariser)
    if algorithm.identities:
        loss = simplify(loss, task)
    require_spaces(loss, task)
    w = _start(task, start, warm_start)
    finest = separated(task) if algorithm.groups == "auto" else task
    result = _Run(finest, loss, lam, regulariser, algorithm, callback).fit(
        w, warm_start
    )
    return replace(result, n_examples=task.n_examples)


def _start(task: Task, start: Array | None, warm_start: Result | None) -> Array:
    """The first w, checked."""
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
    """Σ_n C_n(w) at some w, and the bounds that are tight there."""

    total: float
    linear: LinearBounds


@dataclass(frozen=True)
class _Point:
    """Where the algorithm stands: w_t with J and the linear upper bound on −R there."""

    w: Array
    convex: _Convex
    objective: float
    v: Array
    """−Σ_n φ(x_n, ỹ_n): N times Eq. 10 with its sign."""
    constant: float
    """−Σ_n of the reward's offsets, so that ⟨v, w⟩ + constant ≥ −Σ R_n(w) for every w."""


class _Run:
    """One call of `learn`. Sums over examples inside, means in what it reports."""

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
        """Whether the bounds get new bases while CCCP goes on; the stochastic phase keeps sums over the old ones."""
        self.phase: StochasticPhase | None = None
        self.bundle: Bundle
        self.best: tuple[Array, _Convex]
        self.lower_bound = -np.inf
        self.gap = np.inf

    def fit(self, w: Array, warm_start: Result | None) -> Result:
        """Algorithm 1; whatever ends it, the best iterate is returned."""
        reward, interrupted = asked(self.passes.reward, w)
        linear: LinearBounds | None = None
        if not begins_unseen(
            self.algorithm, self.regulariser, self.task, self.loss, reward
        ):
            linear, again = asked(self.passes.penalty, w)
            interrupted |= again
        self.bundle = self.passes.first_bundle(linear, reward, warm_start)
        phased = uses_stochastic_phase(
            self.algorithm, self.regulariser, self.task, self.loss, self.bundle.n_groups
        )
        if (
            phased
            and warm_start is not None
            and warm_start.lam == self.lam
            and not interrupted
        ):
            linear = self.passes.penalty(w) if linear is None else linear
            phased = not self._is_solved(w, linear, reward)
        if phased and not interrupted:
            w, linear, reward = self._stochastic_phase(w, linear, reward)
            interrupted = self.phase is not None and self.phase.interrupted
        by_ascent = (
            choose_solver(self.algorithm.solver, self.task.n_features) == "ascent"
        )
        self.rebases = by_ascent and self.phase is None and self.loss.reward is not None
        self.best = (
            w,
            self._add(self.passes.penalty(w) if linear is None else linear, w),
        )
        try:
            if interrupted:
                raise KeyboardInterrupt
            point = self._outer(self._point(*self.best, reward))
            status = (
                Status.CONVERGED if self.gap <= self.algorithm.tol else Status.STALLED
            )
        except LimitReached as limit:
            point = self._point(*self.best)
            status = limit.status
        except KeyboardInterrupt:
            point = self._point(*self.best, reward if interrupted else None)
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

    def _outer(self, point: _Point) -> _Point:
        """The CCCP iterations: lines 3 to 15."""
        options = self.algorithm
        precision = options.epsilon if options.adaptive else options.tol
        stalls = 0
        while True:
            self.iteration += 1
            precision = (
                max(precision * options.rho, options.tol)
                if options.adaptive
                else options.tol
            )
            if not options.recycle and self.iteration > 1:
                self.bundle.clear()
                self._add(point.convex.linear, point.w)
            if self.iteration > 1 and self.rebases:
                self.bundle.rebase()
            stalled = self._inner(point, precision)
            stalls = stalls + 1 if stalled and self.best[0] is point.w else 0
            w, convex = self.best
            if (
                w is point.w
            ):  # nothing better within the precision: same v, so no new inference for R
                decrease = 0.0
                precision = min(precision, max(self.gap, options.tol))
            else:
                following = self._point(w, convex)
                decrease = point.objective - following.objective
                point = following
            if (
                precision <= options.tol or stalls >= STALLS
            ) and decrease <= options.eta:
                return point
            self.passes.check_limits()  # iterations that stall look at no data, and so are not counted by passes

    def _inner(self, point: _Point, precision: float) -> bool:
        """Minimise J̃_t to the given precision: lines 6 to 12. `best` is w_{t+1} then; whether it stalled before."""
        upper = point.objective
        lower = lower_bound_from_duals(
            self.bundle, point.v, self.lam * self.n, self.regulariser
        )
        lower = (lower + point.constant) / self.n
        share = MODEL_PRECISION
        proposed = point.w
        repeats = 0
        if self.phase is not None and upper - lower <= precision:
            self.lower_bound = lower
            self.gap = upper - lower
            self._record(upper, lower, precision)
            return False
        while True:
            gap = upper - lower
            w, value = self._model_update(
                point,
                precision,
                share * (max(precision, gap) if np.isfinite(gap) else precision),
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
                share /= (
                    4  # the update was all too rough: the same again, more precisely
                )
                continue
            if stalled or repeats > REPEATS:
                log.warning(
                    "the gap stays at %.3g: limited by floating-point precision; consider scaling the features",
                    upper - lower,
                )
                return True
            self.passes.check_limits()
            upper = self._look(point, w, upper)
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
            # An imprecise model update proposes much the same w again: where the gap hardly moves, ask for more. But no
            # more than helps: the paper's method moves it little for hundreds of passes in a row.
            share = (
                MODEL_PRECISION
                if upper - lower <= 0.9 * gap
                else max(share / 2, FINEST_PRECISION)
            )

    def _stochastic_phase(
        self, w: Array, linear: LinearBounds | None, reward: LinearBounds
    ) -> tuple[Array, LinearBounds, LinearBounds]:
        """Where passes that learn while they look lead from w, with C and R there; or w itself, if J is lower there."""
        if linear is not None and self.loss.reward is None:
            self._add(
                linear, w
            )  # without a base, every group needs a bound to begin with
        watch = Watch(
            self.passes.reward,
            self.passes.passed,
            self._progress,
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
        found = (
            following,
            self.passes.penalty(following),
            reward.at(following)
            if self.phase.fixed_reward
            else self.passes.reward(following),
        )
        if self.phase.fixed_reward or not w.any():
            return found
        known = w, self.passes.penalty(w) if linear is None else linear, reward
        return min(found, known, key=lambda at: self._objective(*at))

    def _objective(self, w: Array, convex: LinearBounds, reward: LinearBounds) -> float:
        """J(w), Eq. 7, as a sum over examples."""
        return (
            self._regularised(w)
            + float(convex.values.sum())
            - float(reward.values.sum())
        )

    def _is_solved(self, w: Array, convex: LinearBounds, reward: LinearBounds) -> bool:
        """Whether the bounds of an earlier fit certify w already."""
        v = -np.asarray(reward.features.sum(axis=0)).ravel()
        lower = lower_bound_from_duals(
            self.bundle, v, self.lam * self.n, self.regulariser
        ) - float(reward.offsets.sum())
        return self._objective(w, convex, reward) - lower <= self.algorithm.tol * self.n

    def _progress(self, estimate: float, lower: float, precision: float) -> None:
        """Tell the callback where the stochastic phase stands, by its own estimate."""
        lower /= self.n
        self._record(
            lower + estimate / self.n, lower, precision / self.n, certified=False
        )

    def _look(self, point: _Point, w: Array, upper: float) -> float:
        """Evaluate J̃_t between the best w and this one, add the bounds found there, and return the best value."""
        if self.algorithm.stabilise:
            w = self.best[0] + self.reach * (w - self.best[0])
        convex = self._add(self.passes.penalty(w), w)
        value = (
            self._regularised(w)
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
        self, point: _Point, precision: float, tol: float
    ) -> tuple[Array, float]:
        """Line 9: the model's minimiser and its lower bound on J̃_t, as a mean over examples.

        While the stochastic phase still gets on, its passes are the update; later they come before an exact one.
        """
        if self.phase is not None and not self.phase.exhausted:
            self.reach = 1.0
            w, lower = self.phase.update(point.v, precision * self.n)
            return w, (lower + point.constant) / self.n
        if self.phase is not None:
            self.phase.one_pass(point.v)
        return self._exact_update(point, tol)

    def _exact_update(self, point: _Point, tol: float) -> tuple[Array, float]:
        """The model's minimiser and its lower bound, whatever the data would say there."""
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
        self.bundle.prune(self.algorithm.patience)
        self.master += time.perf_counter() - began
        self.residual = solved.residual / self.n
        self.fallbacks += solved.fell_back
        return solved.w, (solved.lower_bound + point.constant) / self.n

    def _point(
        self, w: Array, convex: _Convex, reward: LinearBounds | None = None
    ) -> _Point:
        """J and the linear upper bound on −R at w: line 4."""
        reward = self.passes.reward(w) if reward is None else reward
        v = -np.asarray(reward.features.sum(axis=0)).ravel()
        objective = (
            self._regularised(w) + convex.total - float(reward.values.sum())
        ) / self.n
        return _Point(w, convex, objective, v, -float(reward.offsets.sum()))

    def _add(self, linear: LinearBounds, w: Array) -> _Convex:
        """Add bounds (line 8) and return Σ C_n(w); an argmax below a bound that it gave itself is noticed here."""
        began = time.perf_counter()
        found = self.bundle.sum_by_group(linear.values)
        known = self.bundle.values(w)
        short = float(np.max(known - found, initial=0.0))
        if short > 1e-7 * (1.0 + float(np.abs(found).max())):
            self.inexactness = max(self.inexactness, short)
        self.bundle.add(linear, w, known)
        self.master += time.perf_counter() - began
        return _Convex(float(np.maximum(found, known).sum()), linear)

    def _regularised(self, w: Array) -> float:
        return self.lam * self.n * regularisation(w, self.regulariser)

    def _record(
        self, upper: float, lower: float, precision: float, certified: bool = True
    ) -> None:
        self.passes.record(
            self.iteration, self.bundle.added, upper, lower, precision, certified
        )
