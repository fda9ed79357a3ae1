"""A 0/1 linear programme as a HiGHS model: made in one call, in units that suit its tolerances, and run to an end."""

from __future__ import annotations

import highspy
import numpy as np

from clew.errors import SolverError
from clew.learning.sparse_rows import row_of_entries
from clew.learning.task import Array, Matrix

OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,  # parallelism is over examples; one thread also makes the answer reproducible
    "parallel": "off",
    "mip_rel_gap": 0.0,  # HiGHS stops at 1e-4 by default, which would not be an argmax
    "mip_abs_gap": 0.0,
    "mip_heuristic_run_feasibility_jump": False,  # a third of the time on the small programmes that are left to it
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}

OWN_TOLERANCES: dict[str, bool | int | float | str] = {
    "mip_feasibility_tolerance": 1e-6,
    "primal_feasibility_tolerance": 1e-7,
    "dual_feasibility_tolerance": 1e-7,
}


def row_units(A: Matrix) -> Array:
    """(m,) powers of two over which HiGHS has the rows, for its tolerances are absolute.

    A row of large coefficients has a price below them, and sums that floating point cannot tell so precisely. At most
    the row's smallest coefficient, so that HiGHS takes none of them for zero; 1 where that is below 2.
    """
    smallest = np.full(A.shape[0], np.inf)
    np.minimum.at(smallest, row_of_entries(A), np.abs(A.data))
    exponent = np.frexp(np.where(np.isfinite(smallest), smallest, 1.0))[1] - 1
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, 0)))


def over_units(A: Matrix, *bounds: Array) -> tuple[Array, ...]:
    """The entries of the rows, and bounds of these, as HiGHS has them."""
    units = row_units(A)
    return A.data / units[row_of_entries(A)], *(bound / units for bound in bounds)


def make_model(
    A: Matrix,
    row_lower: Array,
    row_upper: Array,
    lower: Array,
    upper: Array,
    costs: Array,
    integer: bool = False,
) -> highspy.Highs:
    """A HiGHS model of the whole programme, passed as arrays in one call."""
    highs = highspy.Highs()
    for name, value in OPTIONS.items():
        check(highs.setOptionValue(name, value), f"setting {name}")
    m, n = A.shape
    data, row_lower, row_upper = over_units(A, row_lower, row_upper)
    kind = (
        highspy.HighsVarType.kInteger if integer else highspy.HighsVarType.kContinuous
    )
    status = highs.passModel(
        *(
            n,
            m,
            A.nnz,
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMaximize),
            0.0,
        ),
        *(costs, lower, upper, row_lower, row_upper),
        *(
            A.indptr.astype(np.int32),
            A.indices.astype(np.int32),
            data,
            np.full(n, int(kind), dtype=np.int32),
        ),
    )
    check(status, "passing the model")
    return highs


def run(highs: highspy.Highs) -> Array | None:
    """Solve; the optimal values, None if infeasible, SolverError on anything else.

    Once in thousands of integer programmes HiGHS gives up under tolerances of 1e-9. It then starts afresh with its own
    tolerances, which are still far below the half by which 0 and 1 are told apart, and next without presolve.
    """
    statuses = highspy.HighsModelStatus
    for options in ({}, OWN_TOLERANCES, OWN_TOLERANCES | {"presolve": "off"}):
        for name, value in options.items():
            check(highs.setOptionValue(name, value), f"setting {name}")
        if options:
            highs.clearSolver()
        ran, status = highs.run(), highs.getModelStatus()
        if ran != highspy.HighsStatus.kError and status in (
            *(statuses.kOptimal, statuses.kInfeasible, statuses.kUnboundedOrInfeasible),
        ):
            break
    else:
        raise SolverError(
            f"HiGHS stopped with status {highs.modelStatusToString(status)}"
        )
    for name in OWN_TOLERANCES if options else ():
        check(highs.setOptionValue(name, OPTIONS[name]), f"setting {name}")
    if status != statuses.kOptimal:
        return None  # all variables lie within 0 and 1: it cannot be unbounded
    return np.array(highs.getSolution().col_value, dtype=float)


def check(status: highspy.HighsStatus, what: str) -> None:
    """Refuse to go on after a call that HiGHS did not accept."""
    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS refused, while {what}: {status}")
