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
from dataclasses import dataclass

import numpy as np

from clew.errors import InputError
from clew.learning.algorithm import LAMBDAS, PRESETS, Algorithm
from clew.learning.bounds import Bundle, make_groups
from clew.learning.frank_wolfe import (
    FrankWolfe,
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
    ModelUpdate,
    Regulariser,
    check_regulariser,
    choose_solver,
    lower_bound_from_duals,
    solve_model_update,
)
from clew.learning.problem import Callback, LimitReached, Problem, sum_features
from clew.learning.result import Result, Status, warn_if_not_converged
from clew.learning.sparse_rows import subtract_sparse
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
    problem = Problem(finest or task, loss, lam, regulariser, algorithm, callback)
    search = Search(problem)
    try:
        point = run_frank_wolfe(problem, search, w, warm_start)
        point = run_cccp(problem, search, point)
        # rounding may make the gap negative
        converged = abs(search.gap) <= algorithm.tol
        status = Status.CONVERGED if converged else Status.STALLED
    except (LimitReached, KeyboardInterrupt) as stop:
        status = stop.status if isinstance(stop, LimitReached) else Status.INTERRUPTED
        if search.best is None:  # before the first iterate, which a result needs
            convex, reward = search.make_bundle(w, warm_start)
            search.best = search.evaluate(w, convex)
        else:
            reward = problem.reward(search.best.w)
        point = linearize_reward(problem, search.best, reward)
    warn_if_not_converged(status, search.gap, algorithm.tol, search.inexactness)
    costs = problem.costs
    return Result(
        w=point.iterate.w,
        objective=point.objective,
        lower_bound=search.lower_bound,
        gap=search.gap,
        status=status,
        lam=lam,
        regulariser=regulariser,
        loss=loss,
        passes=costs.passes,
        reward_passes=costs.reward_passes,
        bounds=search.bundle.added,
        iterations=costs.iterations,
        seconds={
            "oracle": costs.oracle_seconds,
            "master": costs.update_seconds,
            "total": costs.elapsed,
        },
        residual=search.residual,
        inexactness=search.inexactness,
        n_examples=task.n_examples,
        history=tuple(problem.history),
        bundle=search.bundle,
        n_groups=search.bundle.n_groups,
        fallbacks=costs.fallbacks,
    )


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
class Iterate:
    """Weights with Σ_n C_n there, and the bounds that are tight there."""

    w: Array
    total: float
    linear: LinearBounds


@dataclass(frozen=True)
class Point:
    """Iterate w_t, with J and the linear upper bound on −R there."""

    iterate: Iterate
    objective: float
    v: Array
    """−Σ_n φ(x_n, ỹ_n): N times Eq. 10 with its sign."""
    constant: float
    """−Σ_n of the reward's offsets: ⟨v, w⟩ + constant ≥ −Σ R_n(w) for every w."""


class Search:
    """Bounds and best iterate so far: what a limit or Ctrl-C leaves."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.bundle: Bundle
        self.passes: FrankWolfe | None = None
        """Frank–Wolfe passes on the bundle, if the fit has any."""
        self.best: Iterate | None = None
        self.lower_bound = -np.inf
        self.gap = np.inf
        self.residual = 0.0
        """Duality gap of the last model update."""
        self.step_size = INITIAL_STEP_SIZE
        """Step from the best w towards the model's minimizer."""
        self.inexactness = 0.0
        """Largest shortfall of an argmax below an earlier output."""

    def make_bundle(
        self, w: Array, warm_start: Result | None
    ) -> tuple[LinearBounds | None, LinearBounds]:
        """Make the bundle, with the bounds of an earlier fit that still hold.

        Returns
        -------
        convex : LinearBounds or None
            C at w; None if the groups do not depend on it.
        reward : LinearBounds
            R at w.
        """
        problem = self.problem
        task = problem.task
        options = problem.algorithm
        reward = problem.reward(w)
        convex: LinearBounds | None = None
        groups = np.arange(problem.n)
        if not knows_groups_in_advance(problem, reward):
            convex = problem.penalty(w)
            plane = subtract_sparse(convex.features, reward.features)
            groups = make_groups(problem.n, options.groups, plane, options.memory)
        self.bundle = Bundle(
            task.n_features,
            groups,
            task.keys,
            reward,
            options.memory,
            task.column_order,
        )
        old = None if warm_start is None else warm_start.bundle
        if (
            old is not None
            and warm_start is not None
            and warm_start.loss == problem.loss
            and old.n_features == task.n_features
        ):
            self.bundle = old.transfer_bounds(self.bundle)
        return convex, reward

    def evaluate(self, w: Array, linear: LinearBounds | None = None) -> Iterate:
        """Evaluate Σ C_n(w), unless it is given, and add the bounds there (line 8).

        An argmax below a bound that it returned earlier is inexact; that is recorded
        here.
        """
        linear = self.problem.penalty(w) if linear is None else linear
        began = time.perf_counter()
        values = self.bundle.sum_by_group(linear.values)
        known = self.bundle.values(w)
        short = float(np.max(known - values, initial=0.0))
        if short > 1e-7 * (1.0 + float(np.abs(values).max())):
            self.inexactness = max(self.inexactness, short)
        self.bundle.add(linear, w, known)
        self.problem.costs.update_seconds += time.perf_counter() - began
        return Iterate(w, float(np.maximum(values, known).sum()), linear)

    def record(self, upper: float, lower: float, precision: float) -> None:
        """Record the certificate after a model update."""
        self.lower_bound = lower
        self.gap = upper - lower
        self.problem.record(self.bundle.added, upper, lower, precision)


def run_frank_wolfe(
    problem: Problem, search: Search, w: Array, warm_start: Result | None
) -> Point:
    """Make the bundle, and run Frank–Wolfe passes from w if they pay.

    Returns
    -------
    point : Point
        Where the passes ended, or the start if its J is lower.
    """
    convex, reward = search.make_bundle(w, warm_start)
    pays = uses_stochastic_phase(problem, search.bundle.n_groups)
    if pays and warm_start is not None and warm_start.lam == problem.lam:
        convex = problem.penalty(w) if convex is None else convex
        pays = not is_solved(problem, search.bundle, w, convex, reward)
    if not pays:
        search.best = search.evaluate(w, convex)
        return linearize_reward(problem, search.best, reward)
    if convex is not None and problem.loss.reward is None:
        search.evaluate(w, convex)  # without a base, every group needs a bound
    search.passes = FrankWolfe(problem, search.bundle, w)
    is_fixed = search.passes.fixed_reward
    try:
        search.passes.run(reward)
    finally:  # after Ctrl-C too
        end = search.passes.point.weights
        end_reward = reward.at(end) if is_fixed else problem.reward(end)
        final = end, problem.penalty(end), end_reward
        if not is_fixed and w.any():
            start = w, problem.penalty(w) if convex is None else convex, reward
            final = min(final, start, key=lambda point: problem.objective(*point))
        search.best = search.evaluate(*final[:2])
    return linearize_reward(problem, search.best, final[2])


def is_solved(
    problem: Problem,
    bundle: Bundle,
    w: Array,
    convex: LinearBounds,
    reward: LinearBounds,
) -> bool:
    """Return whether the bounds of an earlier fit already certify w."""
    lower = lower_bound_from_duals(
        bundle, -sum_features(reward), problem.lam * problem.n, problem.regulariser
    ) - float(reward.offsets.sum())
    gap = problem.objective(w, convex, reward) - lower
    return gap <= problem.algorithm.tol * problem.n


def linearize_reward(problem: Problem, iterate: Iterate, reward: LinearBounds) -> Point:
    """Return J and the linear upper bound on −R, given R at the iterate (line 4)."""
    objective = problem.regularization(iterate.w) + iterate.total
    objective -= float(reward.values.sum())
    return Point(
        iterate,
        objective / problem.n,
        -sum_features(reward),
        -float(reward.offsets.sum()),
    )


def run_cccp(problem: Problem, search: Search, point: Point) -> Point:
    """Run the CCCP iterations (lines 3 to 15); return the last iterate."""
    options = problem.algorithm
    bundle = search.bundle
    solver = choose_solver(options.solver, problem.task.n_features)
    is_exact = search.passes is None
    keeps_sparse = is_exact and solver == "ascent" and problem.loss.reward is not None
    precision = options.epsilon if options.adaptive else options.tol
    stalls = 0
    while True:
        problem.costs.iterations += 1
        precision = (
            max(precision * options.rho, options.tol)
            if options.adaptive and is_exact  # passes were adaptive themselves
            else options.tol
        )
        if not options.recycle and problem.costs.iterations > 1:
            bundle.clear()
            search.evaluate(point.iterate.w, point.iterate.linear)
        best, stalled = minimize_convexified(problem, search, point, precision)
        stalls = stalls + 1 if stalled and best is point.iterate else 0
        if best is point.iterate:
            # no improvement within the precision: v is the same, so R is not needed
            decrease = 0.0
            precision = min(precision, max(search.gap, options.tol))
        else:
            reward = problem.reward(best.w)
            following = linearize_reward(problem, best, reward)
            decrease = point.objective - following.objective
            point = following
            if keeps_sparse:
                bundle.relative_to(reward)
        if (precision <= options.tol or stalls >= STALLS) and decrease <= options.eta:
            return point
        # stalled iterations evaluate no data, so that passes do not count them
        problem.check_limits()


def minimize_convexified(
    problem: Problem, search: Search, point: Point, precision: float
) -> tuple[Iterate, bool]:
    """Minimize J̃_t to the given precision (lines 6 to 12).

    While Frank–Wolfe passes make progress, they are the model update. Later, passes
    around the last minimizer precede each exact update.

    Returns
    -------
    best : Iterate
        w_{t+1}; the point's own iterate if no value was lower.
    stalled : bool
        Whether floating-point precision ended it first.
    """
    n = problem.n
    bundle = search.bundle
    passes = search.passes
    best = point.iterate
    upper = point.objective
    lower = lower_bound_from_duals(
        bundle, point.v, problem.lam * n, problem.regulariser
    )
    lower = (lower + point.constant) / n
    if passes is not None and upper - lower <= precision:
        search.record(upper, lower, precision)
        return best, False
    share = coarsest = MODEL_PRECISION if passes is None else COARSE_PRECISION
    proposed: Array | None = None
    repeats = 0
    while True:
        gap = upper - lower
        by_passes = passes is not None and not passes.exhausted
        if passes is not None and by_passes:
            search.step_size = 1.0
            update = passes.update_model(point.v, precision * n)
        else:
            if passes is not None and proposed is not None:
                value = passes.run_passes_around(proposed, point.v)
                if value + point.constant < upper * n:
                    search.step_size = 1.0
            reference = gap if passes is None else min(gap, upper)  # as J̃ ≥ 0
            if not np.isfinite(gap):
                reference = precision
            tol = share * max(precision, reference)
            update = _solve_exactly(problem, bundle, point, tol)
        search.residual = update.residual / n
        value = (update.lower_bound + point.constant) / n
        stalled = value <= lower and search.residual > 0.5 * gap
        lower = max(lower, value)
        search.record(upper, lower, precision)
        if upper - lower <= precision:
            return best, False
        if stalled and share > FINEST_PRECISION:
            problem.check_limits()
            # the update was too imprecise: repeat it with more precision
            proposed = None if by_passes else update.w
            share /= 4
            continue
        if stalled or repeats > REPEATS:
            log.warning(
                "the gap stays at %.3g: limited by floating-point precision; "
                "consider scaling the features",
                upper - lower,
            )
            return best, True
        problem.check_limits()
        w = update.w
        if problem.algorithm.stabilise:
            w = best.w + search.step_size * (w - best.w)
        iterate = search.evaluate(w)
        value = problem.regularization(w) + iterate.total + float(dot(point.v, w))
        value = (value + point.constant) / n
        if value < upper:
            search.step_size = min(1.0, 1.5 * search.step_size)
            search.best = best = iterate
            upper = value
        else:
            search.step_size = max(SMALLEST_STEP_SIZE, 0.7 * search.step_size)
        if upper - lower <= precision:
            search.record(upper, lower, precision)
            return best, False
        is_repeated = proposed is not None and np.array_equal(update.w, proposed)
        repeats = repeats + 1 if upper - lower == gap and is_repeated else 0
        proposed = None if by_passes else update.w
        # An imprecise model update proposes a similar w again: if the gap hardly
        # changes, increase the precision. The limit matters for the paper's method,
        # whose gap changes little for hundreds of passes.
        share = (
            coarsest if upper - lower <= 0.9 * gap else max(share / 2, FINEST_PRECISION)
        )


def _solve_exactly(
    problem: Problem, bundle: Bundle, point: Point, tol: float
) -> ModelUpdate:
    """Solve the model update (line 9) to a mean precision of `tol`."""
    began = time.perf_counter()
    with single_threaded_blas():
        update = solve_model_update(
            bundle,
            point.v,
            problem.lam * problem.n,
            problem.regulariser,
            max(point.objective, 0.0) / problem.lam,
            tol * problem.n,
            problem.algorithm.solver,
        )
    bundle.prune(problem.algorithm.patience)
    problem.costs.update_seconds += time.perf_counter() - began
    problem.costs.fallbacks += update.fell_back
    return update
