"""0/1 linear programs in HiGHS, re-solved from the last basis when the scores change."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from clew.errors import SolverError
from clew.learning.sparse_rows import row_of_entries
from clew.learning.task import Array, Mask, Matrix
from clew.models.cuts import find_half_cuts

Binary = NDArray[np.int8]
Options = dict[str, bool | int | float | str]

OPTIONS: Options = {
    "output_flag": False,
    "threads": 1,  # examples run in parallel; one thread makes answers reproducible
    "parallel": "off",
    "mip_rel_gap": 0.0,  # by default 1e-4, which is no argmax
    "mip_abs_gap": 0.0,
    "mip_heuristic_run_feasibility_jump": False,  # a third of the time when small
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}

FALLBACK_OPTIONS: Options = {
    "mip_feasibility_tolerance": 1e-6,
    "primal_feasibility_tolerance": 1e-7,
    "dual_feasibility_tolerance": 1e-7,
}
"""The tolerances that HiGHS has by default."""

INTEGRALITY_TOLERANCE = 1e-6
"""Distance from 0 and 1 up to which a value of the LP is integral."""

INITIAL_REACH = 0.01
"""Reduced cost up to which the first integer program frees variables."""

MAX_CUTS = 1000
"""Most rows that are added to a program."""

MAX_ANSWERS = 16
"""Most answers of integer programs that a program keeps."""


@dataclass(frozen=True)
class Program:
    """An input: the outputs are the y ∈ {0, 1}ⁿ with lower ≤ A y ≤ upper."""

    features: Matrix
    """(n_vars, d) dense or sparse; φ(x, y) = featuresᵀ y."""
    A: Matrix
    """(m, n_vars) sparse."""
    lower: Any
    """(m,) lower bounds of the rows, -inf for none."""
    upper: Any
    """(m,) upper bounds of the rows, inf for none."""


@dataclass(frozen=True)
class Solution:
    """An exact maximizer."""

    y: Binary
    """(n,)"""
    duals: Array
    """(m,) optimal duals of the rows in the first LP relaxation.

    Cuts of earlier questions follow after the program's rows.
    """


@dataclass
class SolverCounts:
    """Work that a program has taken so far."""

    lps: int = 0
    simplex_iterations: int = 0
    fractional: int = 0
    """Questions whose first LP had a fractional answer."""
    cuts: int = 0
    mips: int = 0


class WarmStartedProgram:
    """max ⟨scores, y⟩ over y in {0, 1}ⁿ, row_lower ≤ A y ≤ row_upper, lower ≤ y ≤ upper.

    The model is passed to HiGHS once. A question changes the costs and solves the LP
    relaxation from the last basis. A fractional answer is cut off by rows that hold
    for every output, and therefore stay; if there are none, an integer program is
    solved. The last answers of integer programs are kept: one takes as long as a
    hundred LPs, and fits that begin at the same weights ask the same question.
    """

    def __init__(
        self,
        A: Matrix,
        row_lower: ArrayLike,
        row_upper: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
    ) -> None:
        self.A: Matrix = sp.csr_array(A, dtype=float)
        self.row_lower = np.array(row_lower, dtype=float)
        self.row_upper = np.array(row_upper, dtype=float)
        self.lower = np.array(lower, dtype=float)
        self.upper = np.array(upper, dtype=float)
        self.counts = SolverCounts()
        self._is_infeasible = False  # does not depend on the scores
        self._highs: Any = None  # a highspy.Highs from the first question on
        self._integer_answers: dict[bytes, Array | None] = {}
        self._lock = threading.Lock()  # two threads may solve the same example

    def solve(self, scores: ArrayLike) -> Solution | None:
        """Return an exact maximizer; None if there is no output.

        Ties, to 1e-9 of the largest score for each variable, are broken depending on
        the questions before.

        Parameters
        ----------
        scores : array_like of shape (n,)
        """
        with self._lock:
            if self._is_infeasible:
                return None
            solution = self._solve_exactly(np.asarray(scores, dtype=float))
            self._is_infeasible = solution is None
            return solution

    def solve_relaxed(self, scores: ArrayLike) -> Array | None:
        """(n,) a maximizer of the LP relaxation; None if there is none."""
        with self._lock:
            costs, _ = _scale_costs(np.asarray(scores, dtype=float))
            y = self._solve_lp(costs)
            return None if y is None else np.where(_is_fractional(y), y, np.rint(y))

    def set_bounds(self, lower: ArrayLike, upper: ArrayLike) -> None:
        """Change the bounds of the variables."""
        with self._lock:
            self.lower = np.array(lower, dtype=float)
            self.upper = np.array(upper, dtype=float)
            self._is_infeasible = False
            self._integer_answers.clear()
            if self._highs is not None:
                columns = np.arange(len(self.lower), dtype=np.int32)
                self._highs.changeColsBounds(
                    len(columns), columns, self.lower, self.upper
                )

    def _solve_exactly(self, scores: Array) -> Solution | None:
        """Solve the LP, cut off fractional answers, and solve an integer program."""
        costs, scale = _scale_costs(scores)
        y = self._solve_lp(costs)
        if y is None:
            return None
        duals = scale * self._get_duals()
        is_integral = not _is_fractional(y).any()
        self.counts.fractional += not is_integral
        while not is_integral and self._add_cuts(y):
            y = self._solve_lp(costs)
            if y is None:
                return None
            is_integral = not _is_fractional(y).any()
        if not is_integral:
            y = self._recall_integer(costs, y)
        return None if y is None else Solution(np.rint(y).astype(np.int8), duals)

    def _solve_lp(self, costs: Array) -> Array | None:
        """Return the answer of the LP, from the last basis; None if infeasible."""
        self.counts.lps += 1
        if not len(costs):  # HiGHS does not check the rows of an empty model
            is_feasible = (self.row_lower <= 0) & (self.row_upper >= 0)
            return np.zeros(0) if is_feasible.all() else None
        if self._highs is None:
            self._highs = make_model(
                self.A, self.row_lower, self.row_upper, self.lower, self.upper, costs
            )
            self._highs.setOptionValue("solver", "simplex")
            # Presolve drops the basis, and takes longer than it saves at first.
            self._highs.setOptionValue("presolve", "off")
        else:
            columns = np.arange(len(costs), dtype=np.int32)
            status = self._highs.changeColsCost(len(costs), columns, costs)
            check_status(status, "passing costs")
        y = run_model(self._highs)
        n_iterations = self._highs.getInfoValue("simplex_iteration_count")[1]
        self.counts.simplex_iterations += max(0, n_iterations)
        return y

    def _get_duals(self) -> Array:
        """(m,) the duals of the rows at the last answer."""
        if self._highs is None:
            return np.zeros(self.A.shape[0])
        return np.array(self._highs.getSolution().row_dual) / find_row_units(self.A)

    def _add_cuts(self, relaxed: Array) -> bool:
        """Add rows that cut this fractional answer off; return whether there are any.

        They hold for all costs, and later questions mostly have the same fractional
        answers.
        """
        if self.counts.cuts >= MAX_CUTS:
            return False
        is_fractional = _is_fractional(relaxed)
        rows, sides = find_half_cuts(
            self.A, self.row_lower, self.row_upper, relaxed, is_fractional
        )
        n_cuts = len(sides)
        if not n_cuts:
            return False
        self.counts.cuts += n_cuts
        no_lower = np.full(n_cuts, -np.inf)
        self.A = sp.vstack([self.A, rows], format="csr")
        self.row_lower = np.append(self.row_lower, no_lower)
        self.row_upper = np.append(self.row_upper, sides)
        units = find_row_units(rows)
        status = self._highs.addRows(
            n_cuts,
            no_lower,
            sides / units,
            rows.nnz,
            rows.indptr[:-1].astype(np.int32),
            rows.indices.astype(np.int32),
            rows.data / units[row_of_entries(rows)],
        )
        check_status(status, "adding cuts")
        return True

    def _recall_integer(self, costs: Array, relaxed: Array) -> Array | None:
        """Return the answer of the integer program, solved if it is not known."""
        key = hashlib.blake2b(costs.tobytes(), digest_size=16).digest()
        known = self._integer_answers
        y = known.pop(key) if key in known else self._solve_integer(costs, relaxed)
        known[key] = y  # the last one is the newest
        if len(known) > MAX_ANSWERS:
            del known[next(iter(known))]
        return y

    def _solve_integer(self, costs: Array, relaxed: Array) -> Array | None:
        """Return the answer of the integer program; None if infeasible.

        An output that differs from the LP's answer in a variable of reduced cost r is
        worth at most U - |r|, where U is the LP's value. So variables with |r| > reach
        are fixed; the best output, V, is the best of all if U - V ≤ reach.
        """
        reduced = np.abs(costs - self.A.T @ self._get_duals())
        is_fractional = _is_fractional(relaxed)
        fixed = np.rint(relaxed)
        reach = INITIAL_REACH
        while True:
            is_free = (reduced <= reach) | is_fractional
            self.counts.mips += 1
            model = make_model(
                self.A,
                self.row_lower,
                self.row_upper,
                np.where(is_free, self.lower, fixed),
                np.where(is_free, self.upper, fixed),
                costs,
                is_integer=True,
            )
            y = run_model(model)
            gap = np.inf if y is None else max(0.0, float(costs @ (relaxed - y)))
            if gap <= reach or is_free.all():
                return y
            reach = 8 * reach if y is None else gap * (1 + 1e-6)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_highs": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()


def find_row_units(A: Matrix) -> Array:
    """(m,) powers of two by which the rows are divided for HiGHS.

    Its tolerances are absolute: the duals of rows with large coefficients would be
    below them. At most a row's smallest coefficient, which HiGHS would take for zero
    otherwise; 1 where that is below 2.
    """
    smallest = np.full(A.shape[0], np.inf)
    np.minimum.at(smallest, row_of_entries(A), np.abs(A.data))
    exponent = np.frexp(np.where(np.isfinite(smallest), smallest, 1.0))[1] - 1
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, 0)))


def make_model(
    A: Matrix,
    row_lower: Array,
    row_upper: Array,
    lower: Array,
    upper: Array,
    costs: Array,
    is_integer: bool = False,
) -> highspy.Highs:
    """Return a HiGHS model that maximizes ⟨costs, y⟩; see `WarmStartedProgram`."""
    highs = highspy.Highs()
    for name, value in OPTIONS.items():
        check_status(highs.setOptionValue(name, value), f"setting {name}")
    m, n = A.shape
    units = find_row_units(A)
    types = highspy.HighsVarType
    variable_type = types.kInteger if is_integer else types.kContinuous
    status = highs.passModel(
        n,
        m,
        A.nnz,
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMaximize),
        0.0,
        costs,
        lower,
        upper,
        row_lower / units,
        row_upper / units,
        A.indptr.astype(np.int32),
        A.indices.astype(np.int32),
        A.data / units[row_of_entries(A)],
        np.full(n, int(variable_type), dtype=np.int32),
    )
    check_status(status, "passing the model")
    return highs


def run_model(highs: highspy.Highs) -> Array | None:
    """Solve a model; return the optimal values, None if infeasible.

    Once in thousands of integer programs HiGHS fails under tolerances of 1e-9. It then
    starts afresh with its default tolerances, still far below the half between 0 and
    1, and then without presolve.

    Raises
    ------
    SolverError
        On any other status.
    """
    statuses = highspy.HighsModelStatus
    # all variables are bounded, so that no model is unbounded
    infeasible = (statuses.kInfeasible, statuses.kUnboundedOrInfeasible)
    without_presolve: Options = {**FALLBACK_OPTIONS, "presolve": "off"}
    for options in ({}, FALLBACK_OPTIONS, without_presolve):
        for name, value in options.items():
            check_status(highs.setOptionValue(name, value), f"setting {name}")
        if options:
            highs.clearSolver()
        has_failed = highs.run() == highspy.HighsStatus.kError
        status = highs.getModelStatus()
        if not has_failed and status in (statuses.kOptimal, *infeasible):
            break
    else:
        name = highs.modelStatusToString(status)
        raise SolverError(f"HiGHS stopped with status {name}")
    if options:
        for name in FALLBACK_OPTIONS:
            check_status(highs.setOptionValue(name, OPTIONS[name]), f"setting {name}")
    if status != statuses.kOptimal:
        return None
    return np.array(highs.getSolution().col_value, dtype=float)


def check_status(status: highspy.HighsStatus, what: str) -> None:
    """Raise an error if HiGHS did not accept a call."""
    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused, while {what}: {status}")


def propagate_bounds(
    A: Matrix, row_lower: Array, row_upper: Array, lower: Array, upper: Array
) -> tuple[Array, Array, bool]:
    """Tighten the bounds of 0/1 variables, row by row.

    A variable is fixed if its other value would push a row's least sum over its upper
    bound, or its greatest sum under its lower bound.

    Parameters
    ----------
    A : CSR matrix of shape (m, n)
    row_lower, row_upper : ndarray of shape (m,)
    lower, upper : ndarray of shape (n,)

    Returns
    -------
    lower, upper : ndarray of shape (n,)
    is_consistent : bool
        False if a variable or a row is left no value.
    """
    lower = lower.copy()
    upper = upper.copy()
    tolerance = INTEGRALITY_TOLERANCE
    row = row_of_entries(A)
    column = A.indices
    size = np.abs(A.data)
    is_positive = A.data > 0
    while True:
        at_least = np.where(is_positive, lower[column], upper[column])
        at_most = np.where(is_positive, upper[column], lower[column])
        least = np.bincount(row, A.data * at_least, A.shape[0])
        most = np.bincount(row, A.data * at_most, A.shape[0])
        is_violated = (least > row_upper + tolerance) | (most < row_lower - tolerance)
        if is_violated.any():
            return lower, upper, False
        is_open = (lower < upper)[column]
        must_stay_low = is_open & (least[row] + size > row_upper[row] + tolerance)
        must_stay_high = is_open & (most[row] - size < row_lower[row] - tolerance)
        is_zero = np.where(is_positive, must_stay_low, must_stay_high)
        is_one = np.where(is_positive, must_stay_high, must_stay_low)
        if not is_zero.any() and not is_one.any():
            return lower, upper, True
        upper[column[is_zero]] = 0.0
        lower[column[is_one]] = 1.0
        if (lower > upper).any():
            return lower, upper, False


def _is_fractional(y: Array) -> Mask:
    """(n,) whether values are neither 0 nor 1."""
    return np.asarray(np.abs(y - np.rint(y)) > INTEGRALITY_TOLERANCE)


def _scale_costs(scores: Array) -> tuple[Array, float]:
    """Divide scores by a power of two, since HiGHS' tolerances are absolute.

    Returns
    -------
    costs : ndarray of shape (n,)
        At most 1.
    scale : float
    """
    exponent = int(np.frexp(np.abs(scores).max(initial=0.0))[1])
    return np.ldexp(scores, -exponent), float(np.ldexp(1.0, exponent))
