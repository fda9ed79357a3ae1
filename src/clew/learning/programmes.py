"""The model update as a programme for a general solver: Clarabel and HiGHS for L2, HiGHS for L1.

All are written in units where the steepest bound has slope 1 and the highest offset is 1, so that the solvers'
tolerances mean the same for every scale of features. None of them is believed: master.py measures what they return.
"""

from __future__ import annotations

import logging

import clarabel
import highspy
import numpy as np
import scipy.sparse as sp

from clew.errors import SolverError
from clew.learning.bounds import Bundle
from clew.learning.task import Array, Matrix

log = logging.getLogger("clew")
FINEST, ENOUGH = 1e-9, 0.1
"""The smallest gap that an interior point is asked for, and what it is asked for as a share of the precision."""
ACTIVE_SET_ITERATIONS = 20_000
"""A thousand times as many as it mostly takes."""


def general_interior_point(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:
    """α and w from Clarabel on the primal (w, ξ): min λ/2 ‖w‖² + ⟨v, w⟩ + Σ ξ_g with a_k w + b_k ≤ ξ_g.

    None where its numbers are not finite. Its other statuses ("almost solved", "insufficient progress") are not relied
    upon in either direction: the caller measures the gap of what it returned.
    """
    d, g, k = bundle.n_features, bundle.n_groups, len(bundle)
    unit, height = units(bundle)
    quadratic = (
        np.full(d, height * lam / unit**2),
        np.arange(d),
        np.minimum(np.arange(d + g + 1), d),
    )
    linear = np.concatenate([(v + bundle.shared[0]) / unit, np.ones(g)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs, settings.tol_gap_rel = asked_gap(tol, height), FINEST
    settings.tol_feas = min(1e-6, settings.tol_gap_abs)
    solution: clarabel.DefaultSolution = clarabel.DefaultSolver(
        sp.csc_matrix(quadratic, shape=(d + g, d + g)), linear, _columns(bundle, unit), -bundle.offsets / height,
        [clarabel.NonnegativeConeT(k)], settings,
    ).solve()  # fmt: skip
    if solution.status != clarabel.SolverStatus.Solved:
        log.debug("Clarabel says %s", solution.status)
    alpha, w = np.asarray(solution.z), np.asarray(solution.x)[:d] * (height / unit)
    if not (np.isfinite(alpha).all() and np.isfinite(w).all()):
        return None
    return project(alpha, bundle), w


def asked_gap(tol: float, height: float) -> float:
    """The gap to ask an interior point for, in its units."""
    return max(FINEST, ENOUGH * tol / height)


def _columns(bundle: Bundle, unit: float) -> Matrix:
    """`_rows` as Clarabel reads them, joined by hand: scipy.sparse took as long for it as Clarabel for solving."""
    slopes, by_group = (
        bundle.slopes.csr.tocsc(),
        np.argsort(bundle.group, kind="stable"),
    )
    of_slack = slopes.nnz + np.cumsum(
        np.bincount(bundle.group, minlength=bundle.n_groups)
    )
    return sp.csc_matrix(
        (
            np.concatenate([slopes.data / unit, -np.ones(len(by_group))]),
            np.concatenate([slopes.indices, by_group]),
            np.concatenate([slopes.indptr, of_slack]),
        ),
        shape=(len(bundle), bundle.n_features + bundle.n_groups),
    )


def project(alpha: Array, bundle: Bundle) -> Array:
    """A solver's dual weights, made exactly feasible: non-negative, small ones zero, each group sums to one."""
    alpha = np.maximum(alpha, 0.0)
    peak = np.zeros(bundle.n_groups)
    np.maximum.at(peak, bundle.group, alpha)
    alpha = np.where(alpha > 1e-7 * peak[bundle.group], alpha, 0.0)
    total = np.bincount(bundle.group, weights=alpha, minlength=bundle.n_groups)
    count = np.bincount(bundle.group, minlength=bundle.n_groups)
    alpha = np.where(total[bundle.group] > 0, alpha, 1.0)
    return np.asarray(alpha / np.where(total > 0, total, count)[bundle.group])


def active_set(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:  # noqa: ARG001
    """The same programme by the active-set method of HiGHS, which fails elsewhere than an interior point does."""
    d, g, k = bundle.n_features, bundle.n_groups, len(bundle)
    unit, height = units(bundle)
    model = highspy.HighsModel()
    free = np.full(d + g, highspy.kHighsInf)
    cost = np.concatenate([(v + bundle.shared[0]) / unit, np.ones(g)])
    _fill_programme(
        model.lp_, cost, -free, free, _rows(bundle, unit), -bundle.offsets / height
    )
    hessian = model.hessian_
    hessian.dim_, hessian.format_ = d + g, highspy.HessianFormat.kTriangular
    hessian.start_ = np.minimum(np.arange(d + g + 1), d).astype(np.int32)
    hessian.index_, hessian.value_ = (
        np.arange(d, dtype=np.int32),
        np.full(d, height * lam / unit**2),
    )
    solver = _quiet_highs()
    solver.setOptionValue("qp_iteration_limit", ACTIVE_SET_ITERATIONS)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        log.debug("HiGHS says %s", solver.getModelStatus())
    solution = solver.getSolution()
    alpha, x = -np.asarray(solution.row_dual), np.asarray(solution.col_value)
    if len(alpha) != k or not (np.isfinite(alpha).all() and np.isfinite(x).all()):
        return None
    return project(alpha, bundle), x[:d] * (height / unit)


def box_programme(
    bundle: Bundle, v: Array, lam: float, radius: float
) -> tuple[Array, Array, bool]:
    """The L1 model update with w = p − q, 0 ≤ p, q ≤ radius: α, w, and whether a second attempt was needed."""
    d, g = bundle.n_features, bundle.n_groups
    unit = units(bundle)[0]
    v = v + bundle.shared[0]
    slopes = bundle.slopes.csr / unit
    rows = sp.csr_array(sp.hstack([slopes, -slopes, _minus_slack(bundle)]))
    cost = np.concatenate([(lam + v) / unit, (lam - v) / unit, np.ones(g)])
    lower = np.concatenate([np.zeros(2 * d), np.full(g, -highspy.kHighsInf)])
    upper = np.concatenate(
        [np.full(2 * d, radius * unit), np.full(g, highspy.kHighsInf)]
    )
    lp = highspy.HighsLp()
    _fill_programme(lp, cost, lower, upper, rows, -bundle.offsets)
    solver = _quiet_highs()
    solver.passModel(lp)
    solver.run()
    again = solver.getModelStatus() != highspy.HighsModelStatus.kOptimal
    if again:  # without presolve and from scratch: slower, and free of what presolve did to the scaling
        log.debug("HiGHS says %s", solver.getModelStatus())
        solver.clearSolver()
        solver.setOptionValue("presolve", "off")
        solver.run()
    solution = solver.getSolution()
    if not solution.value_valid or not solution.dual_valid:
        raise SolverError(
            f"the L1 model update failed: HiGHS says {solver.getModelStatus()}"
        )
    x = np.asarray(solution.col_value)
    return (
        project(-np.asarray(solution.row_dual), bundle),
        (x[:d] - x[d : 2 * d]) / unit,
        again,
    )


def units(bundle: Bundle) -> tuple[float, float]:
    """The slope of the steepest bound and the height of the highest one, 1 at least."""
    unit = float(np.sqrt(bundle.slopes.squared_norms().max())) or 1.0
    return unit, max(1.0, float(np.abs(bundle.offsets).max()))


def _minus_slack(bundle: Bundle) -> Matrix:
    """(K, G) −1 for the group of each bound."""
    k = len(bundle)
    return sp.csr_array(
        (-np.ones(k), (np.arange(k), bundle.group)), shape=(k, bundle.n_groups)
    )


def _rows(bundle: Bundle, unit: float) -> Matrix:
    """(K, d + G) the constraints ⟨a_k, w⟩ − ξ_g ≤ −b_k."""
    return sp.csr_array(sp.hstack([bundle.slopes.csr / unit, _minus_slack(bundle)]))


def _fill_programme(
    lp: highspy.HighsLp,
    cost: Array,
    lower: Array,
    upper: Array,
    rows: Matrix,
    right: Array,
) -> None:
    """Min ⟨cost, x⟩ with lower ≤ x ≤ upper and rows x ≤ right."""
    lp.num_col_, lp.num_row_ = len(cost), len(right)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
    lp.row_lower_, lp.row_upper_ = np.full(len(right), -highspy.kHighsInf), right
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = (
        rows.indptr,
        rows.indices,
        rows.data,
    )


def _quiet_highs() -> highspy.Highs:
    """HiGHS on one thread, without output."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver
