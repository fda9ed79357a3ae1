"""Marginal likelihood of partial annotations: conditional random fields with latent parts.

    J(w) = λ/2 ‖w‖² + (1/N) Σ_n [log Z_n(Y) − log Z_n(Y*)],   Z(S) = Σ_{y ∈ S} exp⟨w, φ(x, y)⟩

is minus the mean log-probability P(Y* | x) that the annotation holds, under P(y | x) ∝ exp⟨w, φ(x, y)⟩ (Lafferty et al.
2001; with parts that nobody annotated: Quattoni et al. 2007, Tsuboi et al. 2008). Its gradient is λw plus the mean of
E[φ | Y] − E[φ | Y*]. Where everything is annotated it is strongly convex, and ‖gradient‖² / (2λ) bounds how far J lies
above its minimum; otherwise the same number says how flat it is where the search ended.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import scipy  # its parts are imported when they are used, and scipy.optimize takes a second

from clew.errors import InputError, MissingCapability, NotConverged, NotConvergedWarning
from clew.learning.task import Array, Indices, Space, Subset, Task, WeightedTask, dot
from clew.utils.threads import single_threaded_blas
from clew.utils.validation import check_floats, check_int, check_positive


@runtime_checkable
class SummableTask(Task, Protocol):
    """A task that can sum over all outputs of a space, and not only find the best."""

    def log_partition(
        self, w: Array, space: Space, share: Array, examples: Indices | None = None
    ) -> tuple[Array, Array]:
        """(n,) log Z of Y or Y*, and (d,) Σ_n share_n E[φ_n]."""
        ...


@dataclass(frozen=True)
class LikelihoodResult:
    """Weights of a conditional random field, and what is known of them."""

    w: Array
    objective: float
    """J(w)."""
    gap: float
    """‖gradient‖² / (2λ): certified where everything is annotated, see above."""
    convex: bool
    """Whether everything is annotated, so that `gap` bounds the distance from the minimum of J."""
    converged: bool
    lam: float
    iterations: int
    evaluations: int
    """How often log Z and its gradient were computed for every example, in Y and in Y*."""
    seconds: float
    n_examples: int
    history: tuple[float, ...] = ()
    """J after each iteration."""

    def require(self) -> LikelihoodResult:
        """The result itself, or NotConverged if the search ended at its limit."""
        if not self.converged:
            raise NotConverged(
                f"L-BFGS ended with a gap of {self.gap:.3g} at λ = {self.lam:.3g}"
            )
        return self

    def __str__(self) -> str:
        end = "converged" if self.converged else "not converged"
        kind = "gap" if self.convex else "‖gradient‖²/2λ"
        return (
            f"{end}: objective {self.objective:.6g}, {kind} {self.gap:.2g}, λ = {self.lam:.4g}; {self.n_examples} "
            f"examples, {self.evaluations} passes in {self.seconds:.2g} s"
        )


def maximise_likelihood(
    task: Task,
    lam: float,
    *,
    start: Array | None = None,
    tol: float = 1e-3,
    max_iterations: int = 1000,
    callback: Callable[[int, float, float], None] | None = None,
) -> LikelihoodResult:
    """Minimise J by L-BFGS (Liu & Nocedal 1989) from `start`, zero if None, until `gap` ≤ tol.

    `callback` hears of iteration, objective and gap.
    """
    if not (np.isfinite(lam) and lam > 0):
        raise InputError(f"λ is {lam}; expected a positive number")
    check_positive(tol, "tol")
    max_iterations = check_int(max_iterations, "max_iterations", 1)
    problem = _Problem(task, lam)
    w = np.zeros(task.n_features) if start is None else check_floats(start, "the start")
    if w.shape != (task.n_features,) or not np.isfinite(w).all():
        raise InputError(
            f"the start has shape {w.shape}; expected {task.n_features} finite weights"
        )
    began = time.perf_counter()
    history: list[float] = []

    def stop_when_flat(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        history.append(float(intermediate_result.fun))
        if callback is not None:
            callback(len(history), history[-1], problem.gap(intermediate_result.x))
        if problem.gap(intermediate_result.x) <= tol:
            raise StopIteration

    if problem.gap(w) > tol:
        options = {
            "maxiter": max_iterations,
            "maxfun": 10 * max_iterations,
            "ftol": 0.0,
            "gtol": 0.0,
            "maxcor": 20,
        }
        with single_threaded_blas():  # SciPy's corrections are long vectors
            found = scipy.optimize.minimize(
                problem,
                w,
                jac=True,
                method="L-BFGS-B",
                callback=stop_when_flat,
                options=options,
            )
        w = np.asarray(found.x, dtype=float)
    objective = problem(w)[0]
    gap = problem.gap(w)
    if gap > tol:
        warnings.warn(
            f"L-BFGS ended after {len(history)} iterations with a gap of {gap:.3g} (asked: {tol:.3g})",
            NotConvergedWarning,
            stacklevel=3,
        )
    return LikelihoodResult(
        w=w,
        objective=objective,
        gap=gap,
        convex=problem.convex,
        converged=gap <= tol,
        lam=lam,
        iterations=len(history),
        evaluations=problem.evaluations,
        seconds=time.perf_counter() - began,
        n_examples=task.n_examples,
        history=tuple(history),
    )


class _Problem:
    """J and its gradient. The last point is kept, since the callback asks about it again."""

    def __init__(self, task: Task, lam: float) -> None:
        self.task, self.examples, self.share = summable(task)
        self.lam = lam
        self.evaluations = 0
        # with everything annotated, Y* has one output for each example, whose features do not depend on w
        zero = np.zeros(task.n_features)
        free, self.known = self.task.log_partition(
            zero, Space.COMPATIBLE, self.share, self.examples
        )
        self.convex = bool((free < 1e-9).all())
        self.last: tuple[Array, float, Array] | None = None

    def __call__(self, w: Array) -> tuple[float, Array]:
        if self.last is not None and np.array_equal(self.last[0], w):
            return self.last[1], self.last[2]
        self.evaluations += 1
        every, slope = self.task.log_partition(w, Space.ALL, self.share, self.examples)
        if self.convex:
            value = float(dot(self.share, every) - dot(self.known, w))
            known = self.known
        else:
            agreeing, known = self.task.log_partition(
                w, Space.COMPATIBLE, self.share, self.examples
            )
            value = float(dot(self.share, every - agreeing))
        value += 0.5 * self.lam * float(dot(w, w))
        gradient = self.lam * w + slope - known
        self.last = w.copy(), value, gradient
        return value, gradient

    def gap(self, w: Array) -> float:
        """‖gradient‖² / (2λ)."""
        gradient = self(w)[1]
        return float(dot(gradient, gradient)) / (2.0 * self.lam)


def log_likelihood(task: Task, w: Array) -> Array:
    """(n,) log P(Y* | x) of each example."""
    whole, examples, share = summable(task)
    every, agreeing = (
        whole.log_partition(w, space, share, examples)[0]
        for space in (Space.ALL, Space.COMPATIBLE)
    )
    return np.asarray(agreeing - every)


def summable(task: Task) -> tuple[SummableTask, Indices | None, Array]:
    """The task that sums over outputs, which of its examples are meant (None for all), and their shares of the mean."""
    examples = task.examples if isinstance(task, Subset) else None
    share = np.ones(task.n_examples)
    whole = task.task if isinstance(task, Subset) else task
    if isinstance(whole, WeightedTask):
        share = whole.weights if examples is None else whole.weights[examples]
        whole = whole.task
    if not isinstance(whole, SummableTask):
        raise MissingCapability(
            "a likelihood sums over all outputs, which the task of this model does not offer (log_partition); those of "
            "Multiclass, Chain and Tree do"
        )
    return whole, examples, share / share.sum()
