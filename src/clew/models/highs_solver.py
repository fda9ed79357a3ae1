"""A 0/1 linear programme kept inside HiGHS: between two questions only the costs change."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from clew.learning.sparse_rows import row_of_entries
from clew.learning.task import Array, Mask, Matrix
from clew.models.cuts import half_cuts
from clew.models.highs_model import check, make_model, over_units, row_units, run

Binary = NDArray[np.int8]

INTEGRAL = 1e-6
"""How far from 0 and 1 the LP's answer may lie and still count as integral."""

INITIAL_REACH = 0.01
"""Reduced cost up to which the first integer programme leaves variables free, for costs of at most 1."""

MOST_CUTS = 1000
"""How many rows a programme may grow by; each takes a few hundred bytes and some of the simplex method's time."""


class KeptProgram:
    """max ⟨scores, y⟩ over y in {0, 1}ⁿ with row_lower ≤ A y ≤ row_upper and lower ≤ y ≤ upper.

    The model is passed once. Each question changes the costs and re-solves the LP relaxation from the last basis. A fractional answer is cut off
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
        self._first: tuple[Array, Binary] | None = None
        self._start()

    def _start(self) -> None:
        """Without a solver as yet: it is made at the first question, and after unpickling."""
        self._lock = threading.Lock()
        self._highs: Any = (
            None  # a highspy.Highs once it is asked; highspy has no types
        )

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
            if self._highs is not None:
                self._highs.changeColsBounds(
                    len(self.columns), self.columns, self.lower, self.upper
                )

    def _relaxed(self, costs: Array) -> Array | None:
        """The LP's answer from the last basis; None if infeasible."""
        self.lp_solves += 1
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
        data, sides = over_units(rows, sides)
        check(
            self._highs.addRows(
                len(sides), none, sides, rows.nnz, starts, indices, data
            ),
            "adding cuts",
        )
        return True

    def _integer(self, costs: Array, relaxed: Array) -> Array | None:
        """The answer of the integer programme, cuts included; None if infeasible.

        An output that differs from the LP's answer in a variable of reduced cost r
        is worth at most U − |r|, where U is the LP's value. So variables with
        |r| > reach are fixed at first; the best output V is the best of all if
        U − V ≤ reach.
        """
        reduced = np.abs(costs - self.A.T @ self._prices())
        fractional = _fractional(relaxed)
        at = np.rint(relaxed)
        reach = INITIAL_REACH
        while True:
            free = (reduced <= reach) | fractional
            self.mip_solves += 1
            model = make_model(
                self.A,
                self.row_lower,
                self.row_upper,
                np.where(free, self.lower, at),
                np.where(free, self.upper, at),
                costs,
                integer=True,
            )
            y = run(model)
            gap = np.inf if y is None else max(0.0, float(costs @ (relaxed - y)))
            if gap <= reach or free.all():
                return y
            reach = 8 * reach if y is None else gap * (1 + 1e-6)

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
            if name not in ("_lock", "_highs")
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
