"""Model update by block-coordinate ascent in the dual of Theorem 1.

For many weights and many bounds. A block is the α of a group on its simplex. A visit to
a group computes its bounds' values at w, solves the block's small quadratic program by
pairwise steps on the group's inner products, and moves w accordingly. Warm-started from
the last α, a model update costs a few sweeps. Every α on the simplices gives a valid
lower bound, so that the ascent may stop early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clew.learning.bounds import Bundle, normalize_dual_weights
from clew.learning.task import Array, Indices, Matrix


@dataclass(frozen=True)
class AscentSettings:
    """Schedule and limits of the ascent; benchmarks/master.py measures their cost."""

    sweeps: int = 9
    """Sweeps between two subspace steps.

    Every fourth sweep is over all groups, the others over groups with a large gap.
    """
    slack: float = 4.0
    """Largest ratio of the gap at one w to the gaps that a sweep sums while w moves."""
    rounds: int = 300
    """Largest number of rounds; a round is a set of sweeps and a subspace step."""
    gradients: int = 25
    """Conjugate-gradient iterations of a subspace step.

    More do not pay: a bound that becomes inactive ends the step first.
    """
    halvings: int = 8
    """Halvings of a subspace step that does not raise the dual value."""
    rise: float = 1e-15
    """Smallest relative increase of the dual value; a smaller one is rounding."""
    patience: int = 10
    """Consecutive rounds that may be too slow to close the gap within the limit."""


DEFAULTS = AscentSettings()


@dataclass(frozen=True)
class _Dual:
    """max_α ⟨b, α⟩ − λ/2 ‖w(α)‖² on the simplices, w(α) = −(v + Aα)/λ (Eqs. 14, 15).

    `v` includes the groups' bases. The α of a group sums to one, so that this does not
    change gaps and steps.
    """

    slopes: Matrix
    offsets: Array
    group: Indices
    n_groups: int
    v: Array
    lam: float

    def weights(self, alpha: Array) -> Array:
        """Return w(α), Eq. 15."""
        return np.asarray(-(self.v + self.slopes.T @ alpha) / self.lam)

    def value(self, alpha: Array) -> float:
        """Return Eq. 14 up to a constant."""
        w = self.weights(alpha)
        return float(self.offsets @ alpha) - 0.5 * self.lam * float(w @ w)

    def gap(self, alpha: Array) -> float:
        """Return the primal value at w(α) minus the dual value at α."""
        scores = self.slopes @ self.weights(alpha) + self.offsets
        best = np.full(self.n_groups, -np.inf)
        np.maximum.at(best, self.group, scores)
        return float(best[np.isfinite(best)].sum() - alpha @ scores)


def ascend(
    bundle: Bundle,
    v: Array,
    lam: float,
    tol: float,
    settings: AscentSettings = DEFAULTS,
) -> Array:
    """Minimize λ/2 ‖w‖² + ⟨v, w⟩ + Σ_g max_{k ∈ g} (⟨a_k, w⟩ + b_k) in the dual.

    Sweeps identify the active bounds quickly but converge slowly; conjugate gradients
    on the active bounds then make the long steps.

    Parameters
    ----------
    bundle : Bundle
        Its dual weights are the starting point.
    v : ndarray of shape (n_features,)
    lam : float
    tol : float
        Approximate duality gap: sweeps sum the groups' gaps while w moves, and the
        gap at a single w may be `slack` times as large.
    settings : AscentSettings

    Returns
    -------
    alpha : ndarray of shape (n_bounds,)
    """
    dual = _Dual(
        bundle.rows,
        bundle.offsets,
        bundle.group,
        bundle.n_groups,
        bundle.arrange(v + bundle.shared[0]),
        lam,
    )
    before = bundle.alpha.copy()
    alpha = normalize_dual_weights(bundle)
    if dual.gap(alpha) <= tol:
        return alpha
    bundle.alpha[:] = alpha
    gaps = np.empty(bundle.n_groups)
    last_value = -np.inf
    slow_rounds = 0
    for rounds_left in reversed(range(settings.rounds)):
        gap = _sweep(bundle, dual, tol, settings, gaps)
        alpha = bundle.alpha.copy()
        if gap <= tol and dual.gap(alpha) <= settings.slack * tol:
            break
        value = dual.value(alpha)
        if not value - last_value > settings.rise * abs(value):  # NaN too
            break
        # with features of very different scales, the dual value rises too slowly
        slow_rounds = (
            slow_rounds + 1 if rounds_left * (value - last_value) < gap - tol else 0
        )
        if slow_rounds > settings.patience:
            break
        last_value = value
        bundle.alpha[:] = _subspace_step(dual, alpha, value, settings)
    bundle.alpha[:] = before
    return alpha


def _sweep(
    bundle: Bundle, dual: _Dual, tol: float, settings: AscentSettings, gaps: Array
) -> float:
    """Sweep over the groups until the summed gap is at most tol; return that gap.

    The bundle's dual weights change in place; `gaps` (n_groups,) is scratch.
    """
    w = dual.weights(bundle.alpha)
    steps = 20 * int(bundle.bounds.sizes.max())
    total = np.inf
    for sweep in range(settings.sweeps):
        # Every fourth sweep visits all groups and measures the gap; the others visit
        # only groups with a large gap.
        is_full = sweep % 4 == 0
        groups = np.arange(bundle.n_groups)
        if not is_full:
            groups = np.flatnonzero(gaps > 0.2 * total / bundle.n_groups)
        bundle.visit_groups(groups, w, dual.lam, steps, gaps)
        if is_full:
            total = float(gaps.sum())
            if total <= tol:
                break
    return total


def _subspace_step(
    dual: _Dual, alpha: Array, before: float, settings: AscentSettings
) -> Array:
    """Maximize the dual over the active bounds without α ≥ 0, then clip the step.

    `before` is the dual value at `alpha`.
    """
    shared = np.bincount(dual.group, weights=alpha > 0, minlength=dual.n_groups) > 1
    active = np.flatnonzero((alpha > 0) & shared[dual.group])
    if not len(active):
        return alpha
    step = _conjugate_gradients(dual, alpha, active, settings.gradients)
    length = 1.0
    for _ in range(settings.halvings):
        candidate = alpha.copy()
        candidate[active] = np.maximum(alpha[active] + length * step, 0.0)
        total = np.bincount(dual.group, weights=candidate, minlength=dual.n_groups)
        # a step that empties a group gives NaN and is halved
        with np.errstate(invalid="ignore"):
            candidate /= total[dual.group]
        if dual.value(candidate) > before:
            return candidate
        length /= 2
    return alpha


def _conjugate_gradients(
    dual: _Dual, alpha: Array, active: Indices, steps: int
) -> Array:
    """Return the change of the active α that maximizes the dual at fixed group sums."""
    rows = dual.slopes[active]
    group = dual.group[active]
    size = np.maximum(np.bincount(group, minlength=dual.n_groups), 1)

    def center_by_group(p: Array) -> Array:
        """Project a direction to those that preserve the sum of each group."""
        return np.asarray(
            p - (np.bincount(group, weights=p, minlength=dual.n_groups) / size)[group]
        )

    residual = center_by_group(dual.offsets[active] + rows @ dual.weights(alpha))
    step = np.zeros(len(active))
    direction = residual
    norm = initial_norm = float(residual @ residual)
    for _ in range(steps):
        if norm <= 1e-6 * initial_norm:
            break
        image = center_by_group(rows @ (rows.T @ direction)) / dual.lam
        curvature = float(direction @ image)
        if curvature <= 1e-15 * norm:
            break
        step = step + (norm / curvature) * direction
        residual = residual - (norm / curvature) * image
        previous = norm
        norm = float(residual @ residual)
        direction = residual + (norm / previous) * direction
    return step
