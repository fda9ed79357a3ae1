"""The model update (Eq. 13, Theorem 1): minimize regularizer + linear term + bounds.

The lower bound of an update is computed from its dual weights by Eq. 14. It is valid
for every solver, even an imprecise one. If the duality gap of one solver is too large,
another one continues from its dual weights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import clarabel
import numpy as np
import scipy  # scipy.optimize takes a second to import, so only when it is used
import scipy.sparse as sp

from clew.errors import SolverError
from clew.learning.bounds import Bundle, dual_value, normalize_dual_weights
from clew.learning.dual_ascent import DEFAULTS, ascend
from clew.learning.interior_point import (
    GAP_SHARE,
    SMALLEST_GAP,
    find_scales,
    project_to_simplices,
    solve_interior_point,
)
from clew.learning.task import Array, Matrix, dot
from clew.utils.validation import check_choice

log = logging.getLogger("clew")

Regulariser = Literal["l2", "l1"]
Solver = Literal["auto", "interior-point", "ascent"]
SOLVERS = ("auto", "interior-point", "ascent")

INTERIOR_POINT_WEIGHTS = 500
"""Most weights for which "auto" is the interior point; its time is independent of λ."""
DENSE_ENTRIES = 10_000_000
"""Largest number of bounds times weights for the dense interior point."""
FALLBACK_WEIGHTS = 2000
"""With more weights an interior point would take minutes."""


@dataclass(frozen=True)
class ModelUpdate:
    """The minimizer of the model, with its certificate."""

    w: Array
    lower_bound: float
    """Dual value: at most the model's minimum, and so at most that of J̃."""
    residual: float
    """Duality gap of the update itself."""
    fell_back: bool = False
    """Whether the first solver was not precise enough."""


Attempt = Callable[[Bundle, Array, float, float], tuple[Array, Array] | None]
"""Maps (bundle, v, λ, tol) to α on the simplices and w; None without finite numbers."""


def regularisation(w: Array, regulariser: Regulariser) -> float:
    """Return Ω(w): ½‖w‖² or ‖w‖₁."""
    if regulariser == "l1":
        return float(np.abs(w).sum())
    return 0.5 * float(dot(w, w))


def check_regulariser(regulariser: str) -> None:
    """Raise InputError unless the regularizer exists."""
    check_choice(regulariser, "regulariser", ("l2", "l1"))


def lower_bound_from_duals(
    bundle: Bundle, v: Array, lam: float, regulariser: Regulariser
) -> float:
    """Bound the model's minimum for a new v by the dual weights of the last update."""
    if regulariser == "l1":
        return -np.inf
    return dual_value(bundle, v, lam, normalize_dual_weights(bundle))


def choose_solver(solver: Solver, n_features: int) -> Solver:
    """Return the solver of the L2 model update that "auto" stands for."""
    if solver != "auto":
        return solver
    return "interior-point" if n_features <= INTERIOR_POINT_WEIGHTS else "ascent"


def solve_model_update(
    bundle: Bundle,
    v: Array,
    lam: float,
    regulariser: Regulariser,
    radius: float,
    tol: float,
    solver: Solver = "auto",
) -> ModelUpdate:
    """Minimize λΩ(w) + ⟨v, w⟩ + Σ_g max_{k ∈ g} (⟨a_k, w⟩ + b_k).

    Parameters
    ----------
    bundle : Bundle
        Its dual weights are the starting point, and those of the solution afterwards.
    v : ndarray of shape (n_features,)
    lam : float
    regulariser : "l2" or "l1"
    radius : float
        Upper bound on ‖w‖₁ at the minimizer of J. Only L1 needs it, because its model
        is unbounded with few bounds.
    tol : float
        Largest duality gap.
    solver : str
        Solver of the L2 update that is tried first.

    Returns
    -------
    update : ModelUpdate
    """
    if regulariser == "l1":
        return _solve_l1(bundle, v, lam, radius)
    if bundle.n_features > FALLBACK_WEIGHTS:
        attempts: list[Attempt] = [_solve_by_ascent]
    else:
        attempts = [solve_interior_point, _solve_by_clarabel]
        if len(bundle) * bundle.n_features > DENSE_ENTRIES:
            attempts = [_solve_by_clarabel]
        by_ascent = choose_solver(solver, bundle.n_features) == "ascent"
        attempts.insert(0 if by_ascent else len(attempts), _solve_by_ascent)
    return _solve_with_fallback(attempts, bundle, v, lam, tol)


def _solve_with_fallback(
    attempts: list[Attempt], bundle: Bundle, v: Array, lam: float, tol: float
) -> ModelUpdate:
    """Run solvers until the gap is small; keep the best dual and primal values.

    Each solver starts from the best α so far.
    """
    alpha = normalize_dual_weights(bundle)
    w = np.zeros(bundle.n_features)
    lower = dual_value(bundle, v, lam, alpha)
    primal = _primal_value(bundle, v, lam, w)
    n_solvers = 0
    for attempt in attempts:
        answer = attempt(bundle, v, lam, tol)
        n_solvers += 1
        if answer is not None:
            value = dual_value(bundle, v, lam, answer[0])  # Eq. 14
            if value >= lower:
                alpha = answer[0]
                lower = value
            # the solver's own w, and that of Eq. 15: either may be more precise
            for candidate in (answer[1], _primal_weights(bundle, v, lam, answer[0])):
                value = _primal_value(bundle, v, lam, candidate)
                if value <= primal:
                    w = candidate
                    primal = value
                if primal - lower <= tol:
                    break
        # the ascent only estimates its gap
        enough = DEFAULTS.slack * tol if attempt is _solve_by_ascent else tol
        if primal - lower <= enough:
            break
        bundle.alpha[:] = alpha
    if n_solvers > 1:
        log.debug("model update: gap %.3g after %d solvers", primal - lower, n_solvers)
    # by strong convexity, the model's minimum lies in this ball around w
    radius = float(np.sqrt(2.0 * max(primal - lower, 0.0) / lam))
    bundle.set_alpha(alpha, bundle.find_slack_bounds(w, radius))
    return ModelUpdate(w, lower, primal - lower, n_solvers > 1)


def _primal_value(bundle: Bundle, v: Array, lam: float, w: Array) -> float:
    """Return the model's value at w."""
    linear = float(dot(v, w)) + float(bundle.values(w).sum())
    return 0.5 * lam * float(dot(w, w)) + linear


def _primal_weights(bundle: Bundle, v: Array, lam: float, alpha: Array) -> Array:
    """Return w(α), Eq. 15."""
    return np.asarray(-(v + bundle.shared[0] + bundle.combine(alpha)) / lam)


def _solve_by_ascent(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:
    """Return α and w by dual ascent."""
    alpha = ascend(bundle, v, lam, tol)
    return alpha, _primal_weights(bundle, v, lam, alpha)


def _solve_by_clarabel(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:
    """Return α and w by Clarabel, on the primal program over w and ξ.

    Its equilibration copes with features of very different sizes.
    """
    n_features = bundle.n_features
    n_columns = n_features + bundle.n_groups
    slope, height = find_scales(bundle)
    quadratic = np.zeros(n_columns)
    quadratic[:n_features] = height * lam / slope**2
    linear = np.concatenate([(v + bundle.shared[0]) / slope, np.ones(bundle.n_groups)])
    rows = sp.hstack([bundle.slopes / slope, _slack_columns(bundle)], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = max(SMALLEST_GAP, GAP_SHARE * tol / height)
    settings.tol_gap_rel = SMALLEST_GAP
    settings.tol_feas = min(1e-6, settings.tol_gap_abs)
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(sp.diags_array(quadratic)),
        linear,
        sp.csc_matrix(rows),
        -bundle.offsets / height,
        [clarabel.NonnegativeConeT(len(bundle))],
        settings,
    ).solve()
    alpha = np.asarray(solution.z)
    w = np.asarray(solution.x)[:n_features] * (height / slope)
    if not (np.isfinite(alpha).all() and np.isfinite(w).all()):
        return None
    return project_to_simplices(alpha, bundle), w


def _slack_columns(bundle: Bundle) -> Matrix:
    """Return (n_bounds, n_groups) with −1 at the group of each bound."""
    n_bounds = len(bundle)
    return sp.csr_array(
        (-np.ones(n_bounds), (np.arange(n_bounds), bundle.group)),
        shape=(n_bounds, bundle.n_groups),
    )


def _solve_l1(bundle: Bundle, v: Array, lam: float, radius: float) -> ModelUpdate:
    """Solve the linear program with w = p − q and 0 ≤ p, q ≤ radius.

    The lower bound follows from its α: the box lets |v + Aα| gain what exceeds λ.
    """
    n_features = bundle.n_features
    shared, constant = bundle.shared
    linear = v + shared
    slope, _ = find_scales(bundle)
    slopes = bundle.slopes / slope
    cost = np.concatenate(
        [(lam + linear) / slope, (lam - linear) / slope, np.ones(bundle.n_groups)]
    )
    limits: list[tuple[float | None, float | None]]
    limits = [(0.0, radius * slope)] * (2 * n_features)
    limits += [(None, None)] * bundle.n_groups
    rows = sp.csr_array(sp.hstack([slopes, -slopes, _slack_columns(bundle)]))
    solution = scipy.optimize.linprog(cost, rows, -bundle.offsets, bounds=limits)
    fell_back = solution.status != 0
    if fell_back:  # presolve can spoil the scaling
        solution = scipy.optimize.linprog(
            cost, rows, -bundle.offsets, bounds=limits, options={"presolve": False}
        )
    if solution.x is None or solution.ineqlin.marginals is None:
        raise SolverError(f"the L1 model update failed: {solution.message}")

    alpha = project_to_simplices(-solution.ineqlin.marginals, bundle)
    bundle.set_alpha(alpha)
    w = (solution.x[:n_features] - solution.x[n_features : 2 * n_features]) / slope
    excess = np.maximum(np.abs(linear + bundle.combine(alpha)) - lam, 0.0)
    lower = constant + float(dot(bundle.offsets, alpha)) - radius * float(excess.sum())
    primal = lam * float(np.abs(w).sum()) + float(dot(v, w))
    primal += float(bundle.values(w).sum())
    return ModelUpdate(w, lower, primal - lower, fell_back)
