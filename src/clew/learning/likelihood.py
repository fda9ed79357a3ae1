"""Marginal likelihood of partial annotations: latent conditional random fields.

    J(w) = λ/2 ‖w‖² + (1/N) Σ_n [log Z_n(Y) − log Z_n(Y*)],
    Z(S) = Σ_{y ∈ S} exp⟨w, φ(x, y)⟩

J is minus the mean log-probability P(Y* | x) of the annotation under P(y | x) ∝ exp⟨w,
φ(x, y)⟩ (Lafferty et al. 2001; with latent parts: Quattoni et al. 2007, Tsuboi et al.
2008). Its gradient is λw plus the mean of E[φ | Y] − E[φ | Y*]. If everything is
annotated, J is strongly convex, and ‖gradient‖² / (2λ) bounds its distance from the
minimum; otherwise this number measures stationarity.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clew.errors import InputError, NotConverged, NotConvergedWarning
from clew.learning.lbfgs import Point, minimize_smooth
from clew.learning.task import Array, Task, as_task, dot
from clew.utils.threads import single_threaded_blas
from clew.utils.validation import check_floats, check_int, check_positive

MAX_EPOCHS = 30
"""Most epochs of stochastic steps."""


@dataclass(frozen=True)
class LikelihoodResult:
    """Weights of a conditional random field, with objective and gap."""

    w: Array
    objective: float
    """J(w)."""
    gap: float
    """‖gradient‖² / (2λ): a certificate if everything is annotated."""
    convex: bool
    """Whether everything is annotated, so that `gap` is a certificate."""
    converged: bool
    lam: float
    iterations: int
    evaluations: int
    """Number of evaluations of log Z and its gradient on all examples, in Y and Y*."""
    seconds: float
    n_examples: int
    history: tuple[float, ...] = ()
    """J after each iteration."""

    def require(self) -> LikelihoodResult:
        """Return the result, or raise NotConverged at the iteration limit."""
        if not self.converged:
            raise NotConverged(
                f"L-BFGS ended with a gap of {self.gap:.3g} at λ = {self.lam:.3g}"
            )
        return self

    def __repr__(self) -> str:
        return f"<LikelihoodResult: {self}>"

    def __str__(self) -> str:
        end = "converged" if self.converged else "not converged"
        kind = "gap" if self.convex else "‖gradient‖²/2λ"
        return (
            f"{end}: objective {self.objective:.6g}, {kind} {self.gap:.2g}, λ = "
            f"{self.lam:.4g}; {self.n_examples} "
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
    """Minimize J by stochastic steps, if the task has them, and then by L-BFGS.

    The steps are those of dual coordinate ascent with a dual vector for each example
    (Shalev-Shwartz 2016), and L-BFGS (Liu & Nocedal 1989) is faster near the minimum.

    Parameters
    ----------
    task : Task
        With `log_loss`.
    lam : float
    start : ndarray of shape (n_features,), optional
        Initial weights, from which L-BFGS starts.
    tol : float
        Largest `gap`.
    max_iterations : int
    callback : callable, optional
        ``callback(iteration, objective, gap)`` is called after each iteration.

    Returns
    -------
    result : LikelihoodResult
    """
    if not (np.isfinite(lam) and lam > 0):
        raise InputError(f"λ is {lam}; expected a positive number")
    check_positive(tol, "tol")
    max_iterations = check_int(max_iterations, "max_iterations", 1)
    problem = _Problem(task, lam)
    began = time.perf_counter()
    w = problem.run_ascent() if start is None else check_floats(start, "the start")
    if w.shape != (task.n_features,) or not np.isfinite(w).all():
        raise InputError(
            f"the start has shape {w.shape}; expected {task.n_features} finite weights"
        )
    history: list[float] = []
    unit = problem.find_units()

    def evaluate(scaled: Array) -> tuple[float, Array]:
        value, gradient = problem(scaled * unit)
        return value, gradient * unit

    def is_flat(point: Point) -> bool:
        history.append(point.value)
        gap = problem.gap(point.gradient / unit)
        if callback is not None:
            callback(len(history), point.value, gap)
        return gap <= tol

    point = Point(w / unit, *evaluate(w / unit))
    if problem.gap(point.gradient / unit) > tol:
        with single_threaded_blas():  # the corrections are long vectors
            point = minimize_smooth(evaluate, point, is_flat, max_iterations)
    gap = problem.gap(point.gradient / unit)
    if gap > tol:
        warnings.warn(
            f"L-BFGS ended after {len(history)} iterations with a gap of {gap:.3g} "
            f"(asked: {tol:.3g})",
            NotConvergedWarning,
            stacklevel=3,
        )
    return LikelihoodResult(
        w=point.w * unit,
        objective=point.value,
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
    """J and its gradient."""

    def __init__(self, task: Task, lam: float) -> None:
        self.task = task = as_task(task)
        self.share = find_shares(task)
        self.lam = lam
        self.evaluations = 0
        self.convex = task.determined

    def __call__(self, w: Array) -> tuple[float, Array]:
        self.evaluations += 1
        losses, gradient = self.task.log_loss(w, self.share)
        value = float(dot(self.share, losses)) + 0.5 * self.lam * float(dot(w, w))
        gradient += self.lam * w
        return value, gradient

    def run_ascent(self) -> Array:
        """Take stochastic steps until L-BFGS is faster, and return the weights.

        That is about when the estimated gap is no more than the loss.
        """
        ascent = self.task.ascent(self.lam, self.share)
        if ascent is None:
            return np.zeros(self.task.n_features)
        rng = np.random.default_rng(0)
        n_passes = 0.0
        for _ in range(MAX_EPOCHS):
            order = rng.permutation(self.task.n_examples)
            loss, gap, n_evaluations = ascent.run(order)
            n_passes += n_evaluations
            if gap <= loss:
                break
        self.evaluations += round(n_passes)
        return ascent.w

    def find_units(self) -> Array:
        """Return (d,) units of the weights in which J is more equally curved.

        They are halfway between 1 and those of equal curvature at w = 0, since
        likely labels flatten J where w is large. They are 1 if J is not convex: they
        would lead to other local minima, which are often worse.
        """
        if not self.convex:
            return np.ones(self.task.n_features)
        curvature = self.task.curvature(self.share)
        return np.asarray((self.lam + curvature) ** -0.25)

    def gap(self, gradient: Array) -> float:
        """Return ‖gradient‖² / (2λ)."""
        return float(dot(gradient, gradient)) / (2.0 * self.lam)


def log_likelihood(task: Task, w: Array) -> Array:
    """Return (n,) log P(Y* | x) of each example."""
    return -task.log_loss(w, find_shares(task))[0]


def find_shares(task: Task) -> Array:
    """Return (n,) the share of each example in the mean, by its weight."""
    weights = task.weights_of_examples
    return np.asarray(weights / weights.sum())
