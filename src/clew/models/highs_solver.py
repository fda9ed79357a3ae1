"""A 0/1 linear programme kept inside HiGHS: between two questions only the costs change."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from clew.learning.rows import row_of_entries
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.cuts import half_cuts
from clew.models.highs_model import check, make_model, over_units, row_units, run
from clew.models.simplex import MOST_ROWS, Basis

Binary = NDArray[np.int8]

INTEGRAL = 1e-6
"""How far from 0 and 1 the LP's answer may lie and still count as integral."""

SMALL = 200
"""Variables up to which an integer programme is solved as it is."""

MOST_CUTS = 1000
"""How many rows a programme may grow by; each takes a few hundred bytes and some of the simplex method's time."""


class KeptProgram:
    """max ⟨scores, y⟩ over y in {0, 1}ⁿ with row_lower ≤ A y ≤ row_upper and lower ≤ y ≤ upper.

    The model is passed once. Each question changes the costs and re-solves the LP relaxation from the last basis, which
    HiGHS does, or compiled code from HiGHS' basis where there are few rows (simplex.py). A fractional answer is cut off
    by rows that hold for every output; where none is found, an integer programme is solved around the fractional
    variables. Feasibility does not depend on the scores, so that an infeasible programme is remembered as such. So is
    the answer to the first question of all: a learner that is fitted again and again from the same weights begins with
    it each time. What was done is counted: LPs, simplex iterations, questions with a fractional first answer, cuts,
    integer programmes.
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
        self.row_lower, self.row_upper = (
            np.array(row_lower, dtype=float),
            np.array(row_upper, dtype=float),
        )
        self.lower, self.upper = (
            np.array(lower, dtype=float),
            np.array(upper, dtype=float),
        )
        self.columns = np.arange(self.A.shape[1], dtype=np.int32)
        self.lp_solves = self.simplex_iterations = self.fractional_lps = self.cuts = (
            self.mip_solves
        ) = 0
        self.infeasible = False
        self.reach = (
            0.01  # how far `_integer` looks at first, for costs that are at most 1
        )
        self._first: tuple[Array, Binary] | None = None
        self._start()

    def _start(self) -> None:
        """Without a solver as yet: it is made at the first question, and after unpickling."""
        self._lock = threading.Lock()
        self._highs: Any = (
            None  # a highspy.Highs once it is asked; highspy has no types
        )
        self._forget_basis()

    def _forget_basis(self) -> None:
        """Let HiGHS answer the next question: what is known belongs to other rows or bounds, or to costs far away."""
        self._basis: Basis | None = None
        self._near: Array | None = None  # HiGHS' last answer, if it did not take long

    def maximise(self, scores: ArrayLike) -> Binary | None:
        """(n,) an exact maximiser, or None if there is no output at all.

        Of outputs that tie, to 1e-9 of the largest score for each variable, which one depends on the questions before.
        """
        scores = np.asarray(scores, dtype=float)
        with self._lock:  # one example may be asked for twice in one threaded call
            if self._first is not None and np.array_equal(self._first[0], scores):
                return self._first[1].copy()
            y = self._answer(scores)
            if self._first is None and y is not None:
                self._first = scores.copy(), y.copy()
            return y

    def maximise_with_prices(self, scores: ArrayLike) -> tuple[Binary, Array] | None:
        """(n,) an exact maximiser, and (m,) the rows' prices: optimal duals of the LP relaxation.

        Rows that were added as cuts by earlier questions have prices too, after those of the programme itself.
        """
        with self._lock:
            prices: list[Array] = []
            y = self._answer(np.asarray(scores, dtype=float), prices)
            return (
                None
                if y is None
                else (y, prices[0] if prices else np.zeros(self.A.shape[0]))
            )

    def _answer(
        self, scores: Array, prices: list[Array] | None = None
    ) -> Binary | None:
        """An exact maximiser; the first LP's duals are put into `prices` where that is given."""
        if self.infeasible:
            return None
        if not len(self.columns):
            return np.zeros(0, dtype=np.int8) if self._satisfied(np.zeros(0)) else None
        costs, scale = _scaled(scores)
        y = self._relaxed(costs)
        if y is not None and prices is not None:
            prices.append(scale * self._prices())
        integral = _integral(y)
        self.fractional_lps += not integral
        while not integral and y is not None and self._cut_off(y):
            y = self._relaxed(costs)
            integral = _integral(y)
        if not integral and y is not None:
            y = self._integer(costs, y)
        self.infeasible = y is None
        return None if y is None else np.rint(y).astype(np.int8)

    def maximise_relaxed(self, scores: ArrayLike) -> Array | None:
        """(n,) a maximiser of the LP relaxation, from the last basis; None if there is none."""
        with self._lock:
            if not len(self.columns):
                return np.zeros(0) if self._satisfied(np.zeros(0)) else None
            y = self._relaxed(_scaled(np.asarray(scores, dtype=float))[0])
            return None if y is None else np.where(_fractional(y), y, np.rint(y))

    def rebound(self, lower: ArrayLike, upper: ArrayLike) -> None:
        """Give the variables other bounds; the basis is kept."""
        with self._lock:
            self.lower, self.upper = (
                np.array(lower, dtype=float),
                np.array(upper, dtype=float),
            )
            self.infeasible, self._first = False, None
            self._forget_basis()
            if self._highs is not None:
                self._highs.changeColsBounds(
                    len(self.columns), self.columns, self.lower, self.upper
                )

    def _relaxed(self, costs: Array) -> Array | None:
        """The LP's answer from the last basis; None if infeasible."""
        self.lp_solves += 1
        if self._basis is not None and self._basis.pivots > self.A.shape[0]:
            self._forget_basis()  # where costs change a lot, HiGHS is the faster one
        if self._basis is None and self._near is not None:
            self._basis = self._compiled(self._near)
        y = None if self._basis is None else self._basis.maximise(costs)
        if self._basis is not None and y is not None:
            self.simplex_iterations += self._basis.pivots
            return y
        self._forget_basis()
        before = self.simplex_iterations
        y = self._by_highs(costs)
        if self.simplex_iterations - before <= self.A.shape[0]:
            self._near = y
        return y

    def _compiled(self, y: Array) -> Basis | None:
        """The basis of HiGHS' last answer y for compiled code to go on from; None where there are too many rows.

        And where HiGHS has them empty, without the entries that it takes for zero: it answers without a basis then, and
        crashes when it is asked for one.
        """
        if self.A.shape[0] > MOST_ROWS or not self._highs.getNumNz():
            return None
        basic = self._highs.getBasicVariables()[1]
        return Basis(
            self.A, self.row_lower, self.row_upper, self.lower, self.upper, basic, y
        )

    def _by_highs(self, costs: Array) -> Array | None:
        """The LP's answer from the last basis that HiGHS had; None if infeasible."""
        if self._highs is None:
            self._highs = make_model(
                self.A, self.row_lower, self.row_upper, self.lower, self.upper, costs
            )
            self._highs.setOptionValue("solver", "simplex")
            # It would drop the basis of every later question, and takes longer than it saves at the first one.
            self._highs.setOptionValue("presolve", "off")
        else:
            check(
                self._highs.changeColsCost(len(self.columns), self.columns, costs),
                "passing costs",
            )
        y = run(self._highs)
        self.simplex_iterations += max(
            0, self._highs.getInfoValue("simplex_iteration_count")[1]
        )
        return y

    def _prices(self) -> Array:
        """(m,) the rows' duals at the last answer."""
        if self._basis is not None:
            return self._basis.prices
        return np.array(self._highs.getSolution().row_dual) / row_units(self.A)

    def _cut_off(self, relaxed: Array) -> bool:
        """Add rows that hold for every output but not for this answer; whether there were any.

        They hold for other costs too, so they stay: the fractional answers of later questions are mostly the same.
        """
        if self.cuts >= MOST_CUTS:
            return False
        rows, sides = half_cuts(
            self.A, self.row_lower, self.row_upper, relaxed, _fractional(relaxed)
        )
        if not len(sides):
            return False
        self.cuts += len(sides)
        self.A = sp.vstack([self.A, rows], format="csr")
        none = np.full(len(sides), -np.inf)
        self.row_lower, self.row_upper = (
            np.append(self.row_lower, none),
            np.append(self.row_upper, sides),
        )
        starts, indices = (
            rows.indptr[:-1].astype(np.int32),
            rows.indices.astype(np.int32),
        )
        self._forget_basis()
        data, sides = over_units(rows, sides)
        check(
            self._highs.addRows(
                len(sides), none, sides, rows.nnz, starts, indices, data
            ),
            "adding cuts",
        )
        return True

    def _integer(self, costs: Array, relaxed: Array) -> Array | None:
        """The integer programme's answer, from the LP's.

        An output that differs from the LP's in a variable of reduced cost r is worth at most U − |r|, where U is the
        LP's value. So variables with |r| > reach are held where the LP has them; the best output V of the rest is the
        best of all once U − V ≤ reach, which another round ensures.
        """
        reduced = np.abs(costs - self.A.T @ self._prices())
        fractional = _fractional(relaxed)
        reach = self.reach if len(relaxed) > SMALL else np.inf
        while True:
            free = (reduced <= reach) | fractional
            y = self._around(costs, relaxed, fractional, free)
            gap = np.inf if y is None else max(0.0, float(costs @ (relaxed - y)))
            if gap <= reach or free.all():
                self.reach = max(
                    1e-4, gap / 2
                )  # two small programmes cost less than one that is too large
                return y
            reach = 8 * reach if y is None else gap * (1 + 1e-6)

    def _around(
        self, costs: Array, relaxed: Array, fractional: Mask, free: Mask
    ) -> Array | None:
        """The best output in which only `free` variables differ from the LP's answer.

        Free variables that share no row fall into separate programmes. Where the LP's answer is integral throughout
        such a part, it is optimal there; the others, small as a rule, go to the integer solver together.
        """
        at = np.rint(relaxed)
        lower, upper = np.where(free, self.lower, at), np.where(free, self.upper, at)
        if not propagate(self.A, self.row_lower, self.row_upper, lower, upper):
            return None
        y = np.where(lower == upper, lower, at)
        undecided = self._undecided(
            np.flatnonzero(lower < upper), fractional, moved=fractional | (y != at)
        )
        if not len(undecided):
            return y if self._satisfied(y) else None
        return self._with_integers(y, undecided, costs, lower, upper)

    def _undecided(self, open_: Indices, fractional: Mask, moved: Mask) -> Indices:
        """The open variables that are fractional, or linked by rows and open variables to one that left the LP's value.

        In all other parts the LP's own answer is integral and may stay.
        """
        m, of_open = self.A.shape[0], self.A[:, open_]
        # rows and open variables as the two sides of a graph: its components are the separate programmes
        _, part = connected_components(
            sp.block_array([[None, of_open], [of_open.T, None]]), directed=False
        )
        touched = np.unique(self.A[:, np.flatnonzero(moved)].nonzero()[0])
        return open_[np.isin(part[m:], part[touched]) | fractional[open_]]

    def _with_integers(
        self, y: Array, undecided: Indices, costs: Array, lower: Array, upper: Array
    ) -> Array | None:
        """Y with its undecided variables set by an integer programme of their own; None where that is infeasible."""
        A = self.A[:, undecided]
        rows = np.unique(A.nonzero()[0])
        y[undecided] = 0.0
        rest = self.A[rows] @ y  # what the decided variables leave of the rows' bounds
        self.mip_solves += 1
        small = make_model(
            A[rows],
            self.row_lower[rows] - rest,
            self.row_upper[rows] - rest,
            lower[undecided],
            upper[undecided],
            costs[undecided],
            integer=True,
        )
        answer = run(small)
        if answer is None:
            return None
        y[undecided] = np.rint(answer)
        return y

    def _satisfied(self, y: Array) -> bool:
        """Whether y keeps within all rows."""
        sums = self.A @ y
        return bool(
            (
                (sums >= self.row_lower - INTEGRAL)
                & (sums <= self.row_upper + INTEGRAL)
            ).all()
        )

    def __getstate__(self) -> dict[str, object]:
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("_lock", "_highs", "_basis", "_near")
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._start()


def propagate(
    A: Matrix, row_lower: Array, row_upper: Array, lower: Array, upper: Array
) -> bool:
    """Tighten the bounds of 0/1 variables in place, row by row of CSR; False where a variable is left no value.

    A variable is fixed where its other value would push a row's least sum over its upper bound, or its greatest sum
    under its lower bound. What takes two rows at once to see stays open.
    """
    row, column, a = row_of_entries(A), A.indices, A.data
    size, rising = np.abs(a), a > 0
    while True:
        least = np.bincount(
            row, a * np.where(rising, lower[column], upper[column]), A.shape[0]
        )
        most = np.bincount(
            row, a * np.where(rising, upper[column], lower[column]), A.shape[0]
        )
        if (least > row_upper + INTEGRAL).any() or (most < row_lower - INTEGRAL).any():
            return False
        open_ = (lower < upper)[column]
        to_least = open_ & (least[row] + size > row_upper[row] + INTEGRAL)
        to_most = open_ & (most[row] - size < row_lower[row] - INTEGRAL)
        zeros = column[(to_least & rising) | (to_most & ~rising)]
        ones = column[(to_least & ~rising) | (to_most & rising)]
        if not len(zeros) and not len(ones):
            return True
        upper[zeros], lower[ones] = 0.0, 1.0
        if (lower > upper).any():
            return False


def _fractional(y: Array) -> Mask:
    """(n,) which values are neither 0 nor 1."""
    return np.asarray(np.abs(y - np.rint(y)) > INTEGRAL)


def _integral(y: Array | None) -> bool:
    """Whether nothing is left to be decided: all values are 0 or 1, or there are none."""
    return y is None or not _fractional(y).any()


def _scaled(scores: Array) -> tuple[Array, float]:
    """Scores over a power of two, and that: HiGHS' tolerances are absolute, but an argmax does not depend on scale."""
    exponent = int(np.frexp(np.abs(scores).max(initial=0.0))[1])
    return np.ldexp(scores, -exponent), float(np.ldexp(1.0, exponent))
