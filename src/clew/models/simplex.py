"""A small linear programme that is solved again and again: a primal simplex method in compiled code.

Between two questions only the costs change, so that the last answer stays feasible and few pivots lead to the next one.
Of a programme of some dozen rows HiGHS takes most of its time to begin and to end, whatever there is to do; here the
inverse of the basis is kept as a dense matrix, and a question costs what its pivots cost. Whatever pivots led to an
answer, it is checked against the conditions of optimality by the programme's own numbers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from clew.learning.rows import row_of_entries
from clew.learning.task import Array, Indices, Mask, Matrix

MOST_ROWS = 200
"""Rows up to which an inverse is kept: it takes their square in memory, and in the time of a pivot."""
TOLERANCE = 1e-9
"""Of rows, bounds and reduced costs, as in HiGHS (highs.py), for costs that are at most 1."""
ROUNDING = 1e-13
"""Of row sums, over the largest coefficient: what is more precise cannot be asked of them."""
SMALLEST_PIVOT = 1e-7
PIVOTS, PIVOTS_PER_ROW = 100, 4
"""How many a question may take: far more than it does where costs change little, and else HiGHS is faster."""
DEGENERATE = 50
"""Pivots in a row that change no value; from then on by Bland's rule (1977), which cannot cycle."""


class Basis:
    """max ⟨costs, y⟩ over row_lower ≤ A y ≤ row_upper and lower ≤ y ≤ upper, from a basis that is feasible.

    The row sums are variables too, s = A y, so that the programme is [A, −I] (y, s) = 0 within bounds. `head` is the
    basis, a variable for each row; all others lie at one of their bounds. The first one is given as HiGHS names it:
    `basic` has columns from 0 on and rows as −1 − row, and y is its answer. Rows with large coefficients are kept over
    `units`, powers of two: what is gained for each 1 of a row sum is as small as these are large, and would be taken
    for nothing.
    """

    def __init__(
        self,
        A: Matrix,
        row_lower: Array,
        row_upper: Array,
        lower: Array,
        upper: Array,
        basic: Indices,
        y: Array,
    ) -> None:
        m, n = A.shape
        row, largest = row_of_entries(A), np.zeros(m)
        np.maximum.at(largest, row, np.abs(A.data))
        self.units = np.ldexp(1.0, np.maximum(np.frexp(largest)[1] - 1, 0))
        by_column = np.argsort(A.indices, kind="stable")
        sizes = np.concatenate(
            [[0], np.bincount(A.indices, minlength=n), np.ones(m, dtype=np.intp)]
        )
        self.begins = np.cumsum(sizes)
        # without a sign, which spares compiled code the check for negative ones
        self.rows = np.concatenate([row[by_column], np.arange(m)]).astype(np.uint32)
        self.entries = np.concatenate(
            [(A.data / self.units[row])[by_column], np.full(m, -1.0)]
        )
        self.lower = np.concatenate([lower, row_lower / self.units])
        self.upper = np.concatenate([upper, row_upper / self.units])
        self.tolerances = np.maximum(
            TOLERANCE / np.concatenate([np.ones(n), self.units]), ROUNDING
        )
        """Of values and their bounds: those of the rows as they were given."""
        at = np.concatenate([y, (A @ y) / self.units])
        self.values = np.where(
            at - self.lower <= self.upper - at, self.lower, self.upper
        )
        self.costs, self._prices = np.zeros(n + m), np.zeros(m)
        self.head, self.inverse = np.arange(n, n + m), -np.eye(m)
        self.pivots = 0
        """Of the last question."""
        basic = np.where(basic < 0, n - 1 - basic, basic).astype(np.intp)
        regular = _enter(
            basic, self.begins, self.rows, self.entries, self.head, self.inverse
        )
        self.values[self.head] = 0.0
        self.values[self.head] = -self.inverse @ _row_sums(
            self.begins, self.rows, self.entries, self.values, m
        )
        self.usable = bool(regular and np.isfinite(self.values).all())

    @property
    def prices(self) -> Array:
        """(m,) of the rows, at the last answer: costs − Aᵀ prices is what variables gain by leaving their bounds."""
        return np.asarray(self._prices / self.units)

    def maximise(self, costs: Array) -> Array | None:
        """(n,) an optimal y; None where pivots or precision did not suffice, and then for ever."""
        if not self.usable:
            return None
        self.costs[: len(costs)] = costs
        self.pivots = _maximise(
            self.costs,
            self.begins,
            self.rows,
            self.entries,
            self.lower,
            self.upper,
            self.tolerances,
            self.values,
            self.head,
            self.inverse,
            self._prices,
        )
        self.usable = self.pivots >= 0
        return self.values[: len(costs)].copy() if self.usable else None


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _enter(
    basic: Indices,
    begins: Indices,
    rows: Indices,
    entries: Array,
    head: Indices,
    inverse: Array,
) -> bool:
    """From the basis of all row sums to this one; False where it is singular."""
    m = len(head)
    n = len(begins) - 1 - m
    leaves = np.ones(m, np.bool_)
    for j in basic:
        if j >= n:
            leaves[j - n] = False
    column = np.empty(m)
    for j in basic:
        if j >= n:
            continue
        _transform(j, begins, rows, entries, inverse, column)
        r = -1
        for i in range(m):
            if leaves[i] and (r < 0 or abs(column[i]) > abs(column[r])):
                r = i
        if r < 0 or abs(column[r]) < SMALLEST_PIVOT:
            return False
        _exchange(inverse, column, r)
        head[r] = j
        leaves[r] = False
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _maximise(
    costs: Array,
    begins: Indices,
    rows: Indices,
    entries: Array,
    lower: Array,
    upper: Array,
    tolerances: Array,
    values: Array,
    head: Indices,
    inverse: Array,
    prices: Array,
) -> int:
    """Pivot until no variable gains by leaving its bound; how many pivots it took, −1 where they led to no answer."""
    m = len(head)
    column = np.empty(m)
    free = np.empty(len(values), np.bool_)  # which variables may enter the basis
    for j in range(len(values)):
        free[j] = lower[j] < upper[j]
    for j in head:
        free[j] = False
    pivots = idle = 0
    _price(costs, head, inverse, prices)
    fresh = True  # whether prices are those of the basis itself, not of one step after the other
    while True:
        q, gain = _entering(
            costs,
            begins,
            rows,
            entries,
            lower,
            upper,
            values,
            prices,
            free,
            idle > DEGENERATE,
        )
        if q < 0 and fresh:
            break
        if q < 0:
            _price(costs, head, inverse, prices)
            fresh = True
            continue
        _transform(q, begins, rows, entries, inverse, column)
        sign = (
            1.0 if gain > 0.0 else -1.0
        )  # up from its lower bound or down from its upper one
        length, r = _leaving(
            sign,
            column,
            lower,
            upper,
            values,
            head,
            upper[q] - lower[q],
            idle > DEGENERATE,
        )
        idle = 0 if length > TOLERANCE else idle + 1
        for i in range(m):
            values[head[i]] -= sign * length * column[i]
        if r < 0:
            values[q] = upper[q] if gain > 0.0 else lower[q]
            continue
        if pivots >= PIVOTS + PIVOTS_PER_ROW * m:
            return -1
        pivots += 1
        values[q] += sign * length
        leaving = head[r]
        values[leaving] = lower[leaving] if sign * column[r] > 0.0 else upper[leaving]
        free[q], free[leaving] = False, lower[leaving] < upper[leaving]
        head[r] = q
        _exchange(inverse, column, r)
        for k in range(m):
            prices[k] += gain * inverse[r, k]
        fresh = False
    return (
        pivots
        if _holds(
            costs, begins, rows, entries, lower, upper, tolerances, values, head, prices
        )
        else -1
    )


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _entering(
    costs: Array,
    begins: Indices,
    rows: Indices,
    entries: Array,
    lower: Array,
    upper: Array,
    values: Array,
    prices: Array,
    free: Mask,
    first: bool,
) -> tuple[int, float]:
    """The variable that gains most by leaving its bound, or the first that gains, and its gain; −1 if none does."""
    q, gain = -1, TOLERANCE
    for j in range(len(values)):
        if not free[j]:
            continue
        reduced = costs[j]
        for p in range(begins[j], begins[j + 1]):
            reduced -= prices[rows[p]] * entries[p]
        if abs(reduced) > abs(gain) and values[j] == (
            lower[j] if reduced > 0.0 else upper[j]
        ):
            q, gain = j, reduced
            if first:
                break
    return q, gain


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _leaving(
    sign: float,
    column: Array,
    lower: Array,
    upper: Array,
    values: Array,
    head: Indices,
    length: float,
    first: bool,
) -> tuple[float, int]:
    """How far a variable can move, `length` at the most, and the place of the basis that ends it, or −1.

    Of several, the largest pivot, for precision; or the first variable, by Bland's rule.
    """
    r = -1
    for i in range(len(head)):
        if abs(column[i]) < SMALLEST_PIVOT:
            continue
        k = head[i]
        falls = sign * column[i]
        room = max(0.0, (values[k] - (lower[k] if falls > 0.0 else upper[k])) / falls)
        if room < length:
            length, r = room, i
        elif (
            room == length
            and r >= 0
            and (k < head[r] if first else abs(column[i]) > abs(column[r]))
        ):
            r = i
    return length, r


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _transform(
    j: int,
    begins: Indices,
    rows: Indices,
    entries: Array,
    inverse: Array,
    column: Array,
) -> None:
    """What each variable of the basis loses when variable j grows by 1."""
    for i in range(len(column)):
        total = 0.0
        for p in range(begins[j], begins[j + 1]):
            total += inverse[i, rows[p]] * entries[p]
        column[i] = total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _exchange(inverse: Array, column: Array, r: int) -> None:
    """The inverse, in place, after a variable with this transformed column came to place r of the basis."""
    m = len(column)
    for k in range(m):
        inverse[r, k] /= column[r]
    for i in range(m):
        share = column[i]
        if i != r and share != 0.0:
            for k in range(m):
                inverse[i, k] -= share * inverse[r, k]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _price(costs: Array, head: Indices, inverse: Array, prices: Array) -> None:
    """The rows' prices by which no variable of the basis gains or loses."""
    m = len(head)
    for k in range(m):
        prices[k] = 0.0
    for i in range(m):
        cost = costs[head[i]]
        if cost != 0.0:
            for k in range(m):
                prices[k] += cost * inverse[i, k]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _row_sums(
    begins: Indices, rows: Indices, entries: Array, values: Array, m: int
) -> Array:
    """(m,) A y − s, zero where s are the row sums."""
    sums = np.zeros(m)
    for j in range(len(values)):
        for p in range(begins[j], begins[j + 1]):
            sums[rows[p]] += entries[p] * values[j]
    return sums


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _holds(
    costs: Array,
    begins: Indices,
    rows: Indices,
    entries: Array,
    lower: Array,
    upper: Array,
    tolerances: Array,
    values: Array,
    head: Indices,
    prices: Array,
) -> bool:
    """Whether all bounds and rows hold, and no variable of the basis gains or loses by these prices.

    With what pivots end at, that no other variable gains, these are the conditions of optimality: an inverse that
    rounding has spoilt cannot meet them.
    """
    n = len(values) - len(head)
    sums = _row_sums(begins, rows, entries, values, len(head))
    for i in range(len(head)):
        if not abs(sums[i]) <= tolerances[n + i]:
            return False
    for j in range(len(values)):
        if not lower[j] - tolerances[j] <= values[j] <= upper[j] + tolerances[j]:
            return False
    for j in head:
        reduced = costs[j]
        for p in range(begins[j], begins[j + 1]):
            reduced -= prices[rows[p]] * entries[p]
        if not abs(reduced) <= TOLERANCE:
            return False
    return True
