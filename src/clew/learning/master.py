"""The model update: the minimum of regulariser + bounds + linear term (Eq. 13, Theorem 1), for L2 and L1.

Which solver: benchmarks/master.py measured Clarabel, PIQP and DAQP on the primal and the dual, and clew's ascent.py.
Whatever solver proposed them, the dual weights α are put on the simplices here and the lower bound is computed from
them by its formula (Eq. 14). It is therefore a valid bound even where the solver was imprecise; and where one solver's
own gap is too large, whatever it says of itself, the next one is asked too and the best of all answers is taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clew.learning.ascent import DEFAULTS, ascend
from clew.learning.bounds import Bundle, dual_value, on_simplices
from clew.learning.interior import interior_point
from clew.learning.programmes import active_set, box_programme, general_interior_point
from clew.learning.task import Array, dot
from clew.utils.validation import check_choice

log = logging.getLogger("clew")

Regulariser = Literal["l2", "l1"]
Solver = Literal["auto", "interior-point", "ascent"]
SOLVERS = ("auto", "interior-point", "ascent")

INTERIOR_POINT_WEIGHTS = 500
"""Up to this many weights the interior point is taken: its time does not depend on λ, where the ascent's does.

benchmarks/master.py: with 40 weights it is the fastest on one group; with many groups the ascent is faster, but either
is fast beside an argmax. With 4,000 weights nothing else than the ascent is usable.
"""
DENSE_ENTRIES = 10_000_000
"""Bounds times weights up to which the slopes are made dense, for clew's own interior point: a few times 80 MB."""
GENERAL_SOLVER_LIMIT = 2000
"""With more weights no general solver is asked, not even where the ascent fell short: it would take minutes."""


@dataclass(frozen=True)
class Update:
    """The minimiser of the model and what certifies it."""

    w: Array
    lower_bound: float
    """Dual value: under the model's minimum, and so under J̃'s."""
    residual: float
    """Primal minus dual value of the model update itself."""
    fell_back: bool = False
    """Whether the first solver's answer was not precise enough, so that another one was asked too."""


def regularisation(w: Array, regulariser: Regulariser) -> float:
    """Ω(w): ½‖w‖² or ‖w‖₁."""
    return float(np.abs(w).sum()) if regulariser == "l1" else 0.5 * float(dot(w, w))


def check_regulariser(regulariser: str) -> None:
    """Refuse a regulariser that does not exist."""
    check_choice(regulariser, "regulariser", ("l2", "l1"))


def known_bound(
    bundle: Bundle, v: Array, lam: float, regulariser: Regulariser
) -> float:
    """What the dual weights of the last update say about the model with another v: a lower bound for free."""
    return (
        dual_value(bundle, v, lam, on_simplices(bundle))
        if regulariser == "l2"
        else -np.inf
    )


def choose_solver(solver: Solver, n_features: int) -> Solver:
    """The solver of the L2 model update that "auto" stands for."""
    if solver != "auto":
        return solver
    return "interior-point" if n_features <= INTERIOR_POINT_WEIGHTS else "ascent"


Attempt = Callable[[Bundle, Array, float, float], tuple[Array, Array] | None]
"""From (bundle, v, λ, tol) to α on the simplices and w, or None where a solver gave no numbers."""


def update(
    bundle: Bundle,
    v: Array,
    lam: float,
    regulariser: Regulariser,
    radius: float,
    tol: float,
    solver: Solver = "auto",
) -> Update:
    """min_w λΩ(w) + ⟨v, w⟩ + Σ_g max_{k ∈ g} (⟨a_k, w⟩ + b_k); the bundle takes over the dual weights.

    `radius` bounds ‖w‖₁ from outside (λΩ(w) ≤ J(w) ≤ J(w_t) at the minimiser); only L1 needs it, whose model can be
    unbounded while it has few bounds. `tol` is how precise the update must be.
    """
    if regulariser == "l1":
        return _l1(bundle, v, lam, radius)
    dense = len(bundle) * bundle.n_features <= DENSE_ENTRIES
    others: list[Attempt] = (
        [interior_point, general_interior_point] if dense else [general_interior_point]
    )
    if choose_solver(solver, bundle.n_features) == "ascent":
        attempts = [_by_ascent, *others, active_set]
    else:
        attempts = [*others, active_set, _by_ascent]
    if bundle.n_features > GENERAL_SOLVER_LIMIT:
        attempts = [_by_ascent]
    return _first_good(attempts, bundle, v, lam, tol)


def _first_good(
    attempts: list[Attempt], bundle: Bundle, v: Array, lam: float, tol: float
) -> Update:
    """Ask one solver after the other until the gap is small; of all answers, the highest dual and lowest primal value.

    Each starts from the best α so far, so that the second one continues where the first one fell short.
    """
    alpha, w = on_simplices(bundle), np.zeros(bundle.n_features)
    lower, primal = dual_value(bundle, v, lam, alpha), _primal(bundle, v, lam, w)
    asked = 0
    for attempt in attempts:
        answer = attempt(bundle, v, lam, tol)
        asked += 1
        if answer is not None:
            value = dual_value(bundle, v, lam, answer[0])  # Eq. 14
            if value >= lower:
                alpha, lower = answer[0], value
            # A solver's own w, and Eq. 15's from its α: either may be the more precise one.
            for candidate in (answer[1], _weights(bundle, v, lam, answer[0])):
                value = _primal(bundle, v, lam, candidate)
                if value <= primal:
                    w, primal = candidate, value
                if primal - lower <= tol:
                    break
        # The ascent measures its gap roughly, see there; for the others much less than tol is the rule.
        if primal - lower <= (DEFAULTS.slack * tol if attempt is _by_ascent else tol):
            break
        bundle.alpha = alpha
    if asked > 1:
        log.debug(
            "the first solver fell short; after %d solvers the model update's gap is %.3g",
            asked,
            primal - lower,
        )
    residual = max(primal - lower, 0.0)
    bundle.set_alpha(
        alpha, bundle.find_slack_bounds(w, float(np.sqrt(2.0 * residual / lam)))
    )
    return Update(w, lower, primal - lower, asked > 1)


def _primal(bundle: Bundle, v: Array, lam: float, w: Array) -> float:
    """The model's value at w."""
    return 0.5 * lam * float(w @ w) + float(v @ w) + float(bundle.values(w).sum())


def _weights(bundle: Bundle, v: Array, lam: float, alpha: Array) -> Array:
    """W from α, Eq. 15."""
    return np.asarray(-(v + bundle.shared[0] + bundle.slopes.combined(alpha)) / lam)


def _by_ascent(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:
    """α and w by ascent in the dual."""
    alpha = ascend(bundle, v, lam, tol)
    return alpha, _weights(bundle, v, lam, alpha)


def _l1(bundle: Bundle, v: Array, lam: float, radius: float) -> Update:
    """The linear programme with |w| ≤ radius, by HiGHS; the lower bound from its α by the formula."""
    alpha, w, again = box_programme(bundle, v, lam, radius)
    bundle.set_alpha(alpha)
    # The dual value for any α: what the box lets |v + Aα| gain beyond λ is taken off.
    shared, constant = bundle.shared
    excess = np.maximum(np.abs(v + shared + bundle.slopes.combined(alpha)) - lam, 0.0)
    lower = constant + float(bundle.offsets @ alpha) - radius * float(excess.sum())
    primal = lam * float(np.abs(w).sum()) + float(v @ w) + float(bundle.values(w).sum())
    return Update(w, lower, primal - lower, again)
