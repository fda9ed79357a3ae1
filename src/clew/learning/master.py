"""The model update: the minimum of regulariser + bounds + linear term (Eq. 13, Theorem 1), for L2 and L1.

Which solver: benchmarks/master.py measured Clarabel, PIQP and DAQP on the primal and the dual, and clew's ascent.py.
Whatever solver proposed them, the dual weights α are put on the simplices here and the lower bound is computed from
them by its formula (Eq. 14). It is therefore a valid bound even where the solver was imprecise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import clarabel
import highspy
import numpy as np
import scipy.sparse as sp

from clew.errors import InputError, SolverError
from clew.learning.ascent import ascend, dual_value, on_simplices
from clew.learning.bounds import Bundle
from clew.learning.task import Array

Regulariser = Literal["l2", "l1"]
Solver = Literal["auto", "interior-point", "ascent"]
SOLVERS = ("auto", "interior-point", "ascent")

INTERIOR_POINT_WEIGHTS = 500
"""Up to this many weights the interior point is taken: its time does not depend on λ, where the ascent's does.

benchmarks/master.py: with 40 weights it is the fastest on one group; with many groups the ascent is faster, but either
is fast beside an argmax. With 4,000 weights nothing else than the ascent is usable.
"""


@dataclass(frozen=True)
class Update:
    """The minimiser of the model and what certifies it."""

    w: Array
    lower_bound: float
    """Dual value: under the model's minimum, and so under J̃'s."""
    residual: float
    """Primal minus dual value of the model update itself."""


def regularisation(w: Array, regulariser: Regulariser) -> float:
    """Ω(w): ½‖w‖² or ‖w‖₁."""
    return float(np.abs(w).sum()) if regulariser == "l1" else 0.5 * float(w @ w)


def check_regulariser(regulariser: str) -> None:
    """Refuse a regulariser that does not exist."""
    if regulariser not in ("l2", "l1"):
        raise InputError(f"regulariser must be 'l2' or 'l1', not {regulariser!r}")


def known_bound(bundle: Bundle, v: Array, lam: float, regulariser: Regulariser) -> float:
    """What the dual weights of the last update say about the model with another v: a lower bound for free."""
    return dual_value(bundle, v, lam, on_simplices(bundle)) if regulariser == "l2" else -np.inf


def update(
    bundle: Bundle, v: Array, lam: float, regulariser: Regulariser, radius: float, tol: float, solver: Solver = "auto"
) -> Update:
    """min_w λΩ(w) + <v, w> + Σ_g max_{k ∈ g} (<a_k, w> + b_k); the bundle takes over the dual weights.

    `radius` bounds ‖w‖₁ from outside (λΩ(w) ≤ J(w) ≤ J(w_t) at the minimiser); only L1 needs it, whose model can be
    unbounded while it has few bounds. `tol` is how precise an iterative solver must be.
    """
    if regulariser == "l1":
        return _l1(bundle, v, lam, radius)
    if solver == "auto":
        solver = "interior-point" if bundle.n_features <= INTERIOR_POINT_WEIGHTS else "ascent"
    if solver == "ascent":
        alpha = ascend(bundle, v, lam, tol)
        w = np.asarray(-(v + bundle.slopes.T @ alpha) / lam)  # Eq. 15
    else:
        alpha, w = _interior_point(bundle, v, lam)
    bundle.set_alpha(alpha)
    lower = dual_value(bundle, v, lam, alpha)  # Eq. 14
    primal = 0.5 * lam * float(w @ w) + float(v @ w) + float(bundle.values(w).sum())
    return Update(w, lower, primal - lower)


def _interior_point(bundle: Bundle, v: Array, lam: float) -> tuple[Array, Array]:
    """α and w from Clarabel on the primal (w, ξ): min λ/2 ‖w‖² + <v, w> + Σ ξ_g with a_k w + b_k ≤ ξ_g.

    Its own w is taken, for Eq. 15 would multiply the last digits of α by ‖A‖/λ.
    """
    d, g, k = bundle.n_features, bundle.n_groups, len(bundle)
    # In units where the steepest bound has slope 1 the solver's tolerances mean the same for every scale of features.
    unit = float(np.sqrt(bundle.slopes.power(2).sum(axis=1).max())) or 1.0
    curvature = lam / unit**2
    height = max(1.0, float(np.abs(bundle.offsets).max()))
    quadratic = sp.diags_array(np.concatenate([np.full(d, curvature), np.zeros(g)]), format="csc")
    linear = np.concatenate([v / unit, np.ones(g)])
    minus_slack = sp.csr_array((-np.ones(k), (np.arange(k), bundle.group)), shape=(k, g))
    rows = sp.csc_array(sp.hstack([bundle.slopes / unit, minus_slack]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    solution: Any = clarabel.DefaultSolver(
        _csc(quadratic * height), linear, _csc(rows), -bundle.offsets / height, [clarabel.NonnegativeConeT(k)], settings
    ).solve()
    alpha = np.asarray(solution.z)
    if not np.isfinite(alpha).all():
        raise SolverError(f"the model update failed: Clarabel says {solution.status}")
    return _project(alpha, bundle), np.asarray(solution.x)[:d] * (height / unit)


def _csc(matrix: Any) -> Any:
    """The type of matrix that Clarabel reads."""
    return sp.csc_matrix(matrix)


def _project(alpha: Array, bundle: Bundle) -> Array:
    """A solver's dual weights, made exactly feasible: non-negative, small ones zero, each group sums to one."""
    alpha = np.maximum(alpha, 0.0)
    peak = np.zeros(bundle.n_groups)
    np.maximum.at(peak, bundle.group, alpha)
    alpha = np.where(alpha > 1e-7 * peak[bundle.group], alpha, 0.0)
    total = np.bincount(bundle.group, weights=alpha, minlength=bundle.n_groups)
    count = np.bincount(bundle.group, minlength=bundle.n_groups)
    alpha = np.where(total[bundle.group] > 0, alpha, 1.0)
    return np.asarray(alpha / np.where(total > 0, total, count)[bundle.group])


def _l1(bundle: Bundle, v: Array, lam: float, radius: float) -> Update:
    """The linear programme with w = p − q, 0 ≤ p, q ≤ radius, by HiGHS."""
    d, g, k = bundle.n_features, bundle.n_groups, len(bundle)
    unit = float(np.sqrt(bundle.slopes.power(2).sum(axis=1).max())) or 1.0
    slopes = bundle.slopes / unit
    minus_slack = sp.csr_array((-np.ones(k), (np.arange(k), bundle.group)), shape=(k, g))
    rows = sp.csr_array(sp.hstack([slopes, -slopes, minus_slack]))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 2 * d + g, k
    lp.col_cost_ = np.concatenate([(lam + v) / unit, (lam - v) / unit, np.ones(g)])
    lp.col_lower_ = np.concatenate([np.zeros(2 * d), np.full(g, -highspy.kHighsInf)])
    lp.col_upper_ = np.concatenate([np.full(2 * d, radius * unit), np.full(g, highspy.kHighsInf)])
    lp.row_lower_, lp.row_upper_ = np.full(k, -highspy.kHighsInf), -bundle.offsets
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.indptr, rows.indices, rows.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    solution = solver.getSolution()
    if not solution.value_valid or not solution.dual_valid:
        raise SolverError(f"the L1 model update failed: HiGHS says {solver.getModelStatus()}")
    x = np.asarray(solution.col_value)
    w = (x[:d] - x[d : 2 * d]) / unit
    alpha = _project(-np.asarray(solution.row_dual), bundle)
    bundle.set_alpha(alpha)
    # The dual value for any α: what the box lets |v + Aα| gain beyond λ is taken off.
    excess = np.maximum(np.abs(v + bundle.slopes.T @ alpha) - lam, 0.0)
    lower = float(bundle.offsets @ alpha) - radius * float(excess.sum())
    primal = lam * float(np.abs(w).sum()) + float(v @ w) + float(bundle.values(w).sum())
    return Update(w, lower, primal - lower)
