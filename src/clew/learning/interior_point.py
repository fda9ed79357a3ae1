"""Primal-dual interior-point method for the L2 model update with few weights.

Minimize over w and the slacks ξ of the groups

    q/2 ‖w‖² + ⟨c, w⟩ + Σ_g ξ_g   subject to   s_k = ξ_g(k) − ⟨a_k, w⟩ − b_k ≥ 0,

with duals z_k ≥ 0, which are the dual weights α. Mehrotra's predictor and corrector
(1992), with two simplifications. Any z on the simplices gives a w (Eq. 15), and any w a
ξ, so that all iterates are feasible on both sides and the duality gap is ⟨s, z⟩. And
eliminating s, z and ξ leaves d equations: the covariances of the groups' slopes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotrs

from clew.learning.bounds import Bundle, normalize_dual_weights
from clew.learning.task import Array, Indices

MAX_STEPS = 100
"""Five times as many as it mostly takes."""
WARM_START_SHARE = 0.9
"""Share of the last update's α in the first z; the rest is uniform and positive."""
STEP_SHARE = 0.99
"""Share of the longest feasible step that is taken."""
SMALLEST_GAP = 1e-9
GAP_SHARE = 0.1
"""Duality gap to reach, as a share of the precision of the update."""
NEGLIGIBLE = 1e-7
"""Dual weights below this share of the group's largest are set to zero."""

Newton = Callable[[Array], tuple[Array, Array, Array]]


class _Program:
    """The quadratic program above, with the bounds sorted by group.

    Parameters
    ----------
    slopes : ndarray of shape (K, d)
    offsets : ndarray of shape (K,)
    group : ndarray of shape (K,)
    q : float
    c : ndarray of shape (d,)
    """

    def __init__(
        self, slopes: Array, offsets: Array, group: Indices, q: float, c: Array
    ) -> None:
        self.slopes = slopes
        self.offsets = offsets
        self.group = group
        self.q = q
        self.c = c
        sizes = np.bincount(group)
        self.indptr = np.cumsum(sizes) - sizes
        ends = np.append(self.indptr, len(group))
        content = np.ones(len(group)), np.arange(len(group)), ends
        self.members = sp.csr_array(content, shape=(len(sizes), len(group)))
        # fresh memory at every step takes longer than the arithmetic
        self.centered = np.empty_like(slopes)
        self.scaled = np.empty_like(slopes)

    def initial_point(self, z: Array) -> tuple[Array, Array]:
        """Return w from z on the simplices (Eq. 15), and slacks s > 0."""
        w = -(self.c + z @ self.slopes) / self.q
        scores = self.slopes @ w + self.offsets
        below = np.maximum.reduceat(scores, self.indptr)[self.group] - scores
        mean_gap = float(below @ z) / len(z)
        return w, below + max(mean_gap, np.finfo(float).tiny)

    def factorize(self, s: Array, z: Array) -> Newton | None:
        """Factorize the Newton system.

        Returns
        -------
        step : callable or None
            Maps the wanted change of s·z to the changes of w, s and z. None if the
            matrix is singular to rounding.
        """
        ratio = z / s
        self.members.data = ratio
        total = np.add.reduceat(ratio, self.indptr)
        mean = (self.members @ self.slopes) / total[:, None]
        centered = self.centered
        np.take(mean, self.group, axis=0, out=centered, mode="clip")
        np.subtract(self.slopes, centered, out=centered)
        np.multiply(centered, np.sqrt(ratio)[:, None], out=self.scaled)
        # BLAS computes half of a product with itself
        matrix = self.scaled.T @ self.scaled
        matrix.flat[:: len(self.c) + 1] += self.q
        # scipy.linalg's own checks take longer than the factorization of small matrices
        factor, failed = dpotrf(matrix)
        if failed:
            return None

        def step(change: Array) -> tuple[Array, Array, Array]:
            wanted = change / s
            dw = dpotrs(factor, -(wanted @ centered))[0]
            height = np.add.reduceat(wanted, self.indptr) / total + mean @ dw
            ds = height[self.group] - self.slopes @ dw
            return dw, ds, wanted - ratio * ds

        return step

    def solve(self, z: Array, gap: float) -> tuple[Array, Array]:
        """Return z and w with at most this duality gap, or what rounding allows."""
        w, s = self.initial_point(z)
        for _ in range(MAX_STEPS):
            product = s * z
            if not product.sum() > gap:
                break
            step = self.factorize(s, z)
            if step is None:
                break
            # predictor: its length determines how much the corrector centers
            _, ds, dz = step(-product)
            length = _longest_step(s, ds, z, dz)
            predicted = float((s + length * ds) @ (z + length * dz))
            centering = (predicted / product.sum()) ** 3
            dw, ds, dz = step(centering * product.mean() - product - ds * dz)
            length = STEP_SHARE * _longest_step(s, ds, z, dz)
            w = w + length * dw
            s = s + length * ds
            z = z + length * dz
        return z, w


def solve_interior_point(
    bundle: Bundle, v: Array, lam: float, tol: float
) -> tuple[Array, Array] | None:
    """Solve the model update to the precision `tol`.

    Slopes and offsets are scaled to 1, so that tolerances do not depend on the scale of
    the features.

    Returns
    -------
    alpha, w : ndarray of shape (n_bounds,) and (n_features,), or None
        None if the numbers are not finite, or a group has no bound.
    """
    if not bundle.bounds.sizes.all():
        return None
    members = np.argsort(bundle.group, kind="stable")
    slope, height = find_scales(bundle)
    group = bundle.group[members]
    program = _Program(
        bundle.slopes[members].toarray() / slope,
        bundle.offsets[members] / height,
        group,
        height * lam / slope**2,
        (v + bundle.shared[0]) / slope,
    )
    warm = normalize_dual_weights(bundle)[members]
    z = WARM_START_SHARE * warm + (1.0 - WARM_START_SHARE) / bundle.bounds.sizes[group]
    with np.errstate(all="ignore"):  # overflow is noticed below
        z, w = program.solve(z, max(SMALLEST_GAP, GAP_SHARE * tol / height))
    w = w * (height / slope)
    alpha = np.empty(len(z))
    alpha[members] = z
    if not (np.isfinite(alpha).all() and np.isfinite(w).all()):
        return None
    return project_to_simplices(alpha, bundle), w


def find_scales(bundle: Bundle) -> tuple[float, float]:
    """Return the norm of the steepest slope, and the largest offset, 1 at least."""
    slope = float(np.sqrt(bundle.squared_norms().max())) or 1.0
    return slope, max(1.0, float(np.abs(bundle.offsets).max()))


def project_to_simplices(alpha: Array, bundle: Bundle) -> Array:
    """Make dual weights feasible: non-negative, negligible ones zero, sums of one.

    Returns
    -------
    alpha : ndarray of shape (n_bounds,)
    """
    group = bundle.group
    alpha = np.maximum(alpha, 0.0)
    largest = np.zeros(bundle.n_groups)
    np.maximum.at(largest, group, alpha)
    alpha = np.where(alpha > NEGLIGIBLE * largest[group], alpha, 0.0)
    total = np.bincount(group, weights=alpha, minlength=bundle.n_groups)
    count = np.bincount(group, minlength=bundle.n_groups)
    alpha = np.where(total[group] > 0, alpha, 1.0)
    return np.asarray(alpha / np.where(total > 0, total, count)[group])


def _longest_step(s: Array, ds: Array, z: Array, dz: Array) -> float:
    """Return the longest step up to 1 that leaves s and z non-negative."""
    shares = -np.concatenate([ds / s, dz / z])
    return 1.0 / max(1.0, float(shares.max()))
