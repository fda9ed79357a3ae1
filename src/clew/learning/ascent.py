"""The model update by block-coordinate ascent in the dual of Theorem 1, for many weights and many bounds.

One block is a group's α on its simplex. A visit to a group computes its bounds' values at w, solves the block's small
quadratic programme by pairwise steps on the group's inner products, and moves w along. Warm-started from the last α,
a model update costs a few sweeps; every α on the simplices gives a valid lower bound, so it may stop early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from clew.learning.task import Array, Indices, Mask

if TYPE_CHECKING:
    from clew.learning.bounds import Bundle

SWEEPS = 9
"""Sweeps between two steps in the subspace: full ones, each but the last followed by three over what is far off."""
SLACK = 4.0
MAX_ROUNDS = 300
MAX_GRADIENTS = 25
"""More do not pay: bounds that become inactive end a step before its precision does."""
MAX_HALVINGS = 8


@dataclass(frozen=True)
class Gram:
    """Inner products <a_j, a_k> of the bounds within each group: `blocks[start[g] + j·size[g] + k]`."""

    blocks: Array
    start: Indices
    size: Indices
    slot: Indices
    """(K,) the place of each bound within its group's block; −1 for one that was added since."""

    @property
    def nbytes(self) -> int:
        """Memory that the inner products take."""
        return self.blocks.nbytes

    def kept(self, mask: Mask) -> Gram:
        """The same inner products, for the bounds in the mask."""
        return Gram(self.blocks, self.start, self.size, self.slot[mask])


@dataclass(frozen=True)
class _Dual:
    """The dual problem with bounds sorted by group, each as its difference from one bound of its group.

    As a group's α sums to one, <v, w> takes over what its bounds have in common, which for structured outputs is most
    of their features. What is left is sparser, and gaps and steps are the same.
    """

    slopes: Any
    """(K, d) CSR."""
    offsets: Array
    group: Indices
    first: Indices
    """(G + 1,) where each group begins."""
    v: Array
    lam: float

    def weights(self, alpha: Array) -> Array:
        """w(α), Eq. 15."""
        return np.asarray(-(self.v + self.slopes.T @ alpha) / self.lam)

    def value(self, alpha: Array) -> float:
        """Eq. 14 but for a constant."""
        w = self.weights(alpha)
        return float(self.offsets @ alpha) - 0.5 * self.lam * float(w @ w)

    def gap(self, alpha: Array) -> float:
        """Primal value at w(α) minus dual value at α."""
        scores = self.slopes @ self.weights(alpha) + self.offsets
        best = np.maximum.reduceat(scores, self.first[:-1][np.diff(self.first) > 0])
        return float(best.sum() - alpha @ scores)


def ascend(bundle: Bundle, v: Array, lam: float, tol: float) -> Array:
    """α for min_w λ/2 ‖w‖² + <v, w> + Σ_g max_{k ∈ g} (<a_k, w> + b_k), to a duality gap of about `tol`.

    About: the sweeps add the groups' gaps up while w moves; at one w it may be SLACK times as large. Sweeps find out
    quickly which bounds are active, but then creep; a step of conjugate gradients on the active bounds jumps to where
    the creeping leads.
    """
    members = np.argsort(bundle.group, kind="stable")
    first = np.searchsorted(bundle.group[members], np.arange(bundle.n_groups + 1))
    bundle.gram = gram = _updated_gram(bundle, members, first)
    alpha = on_simplices(bundle)[members]
    dual = _relative(bundle, v, lam, alpha, members, first)
    csr = dual.slopes
    columns = _unsigned(csr.indices)
    for _ in range(MAX_ROUNDS):
        w = dual.weights(alpha)
        gap = _sweeps(
            csr.data, columns, csr.indptr, dual.offsets, first, gram.blocks, gram.start, alpha, w, lam, tol, SWEEPS
        )
        if gap <= tol and dual.gap(alpha) <= SLACK * tol:
            break
        alpha = _subspace_step(dual, alpha)
    unsorted = np.empty_like(alpha)
    unsorted[members] = alpha
    return unsorted


def _relative(bundle: Bundle, v: Array, lam: float, alpha: Array, members: Indices, first: Indices) -> _Dual:
    """The dual problem relative to the bound of each group that weighs most."""
    csr = bundle.slopes
    reference = _heaviest(alpha, first)
    chosen = members[reference[reference >= 0]]
    size = np.diff(csr.indptr)
    room = int(size.sum()) + int((size[members[reference]] * np.diff(first)).sum())
    data, indices = np.empty(room), np.empty(room, dtype=csr.indices.dtype)
    indptr = np.zeros(len(members) + 1, dtype=csr.indptr.dtype)
    used = _differences(
        csr.data,
        _unsigned(csr.indices),
        csr.indptr,
        bundle.n_features,
        members,
        first,
        reference,
        data,
        indices,
        indptr,
    )
    slopes = sp.csr_array((data[:used], indices[:used], indptr), shape=csr.shape)
    group, offsets = bundle.group[members], bundle.offsets[members]
    shared = np.asarray(csr[chosen].sum(axis=0)).ravel()
    return _Dual(slopes, offsets - offsets[reference][group], group, first, v + shared, lam)


def _subspace_step(dual: _Dual, alpha: Array) -> Array:
    """Maximise the dual over the bounds that are active now, as if α ≥ 0 did not matter, and go as far as it allows."""
    n_groups = len(dual.first) - 1
    shared = np.bincount(dual.group, weights=alpha > 0, minlength=n_groups) > 1
    active = np.flatnonzero((alpha > 0) & shared[dual.group])
    if not len(active):
        return alpha
    rows, group = dual.slopes[active], dual.group[active]
    columns = rows.T
    size = np.bincount(group, minlength=n_groups)

    def centred(p: Array) -> Array:
        """What of a direction keeps every group's sum."""
        return np.asarray(p - (np.bincount(group, weights=p, minlength=n_groups) / np.maximum(size, 1))[group])

    residual = centred(dual.offsets[active] + rows @ dual.weights(alpha))
    step, direction = np.zeros(len(active)), residual
    norm = enough = float(residual @ residual)
    for _ in range(MAX_GRADIENTS):
        if norm <= 1e-6 * enough:
            break
        curved = centred(rows @ (columns @ direction)) / dual.lam
        curvature = float(direction @ curved)
        if curvature <= 1e-15 * norm:
            break
        step = step + (norm / curvature) * direction
        residual = residual - (norm / curvature) * curved
        previous, norm = norm, float(residual @ residual)
        direction = residual + (norm / previous) * direction
    before = dual.value(alpha)
    length = 1.0
    for _ in range(MAX_HALVINGS):
        moved = alpha.copy()
        moved[active] = np.maximum(alpha[active] + length * step, 0.0)
        total = np.bincount(dual.group, weights=moved, minlength=n_groups)
        with np.errstate(invalid="ignore"):  # a step that empties a group gives NaN, and is halved
            moved /= total[dual.group]
        if dual.value(moved) > before:
            return moved
        length /= 2
    return alpha


def dual_value(bundle: Bundle, v: Array, lam: float, alpha: Array) -> float:
    """Eq. 14, with several groups: a lower bound on the model's minimum for every α on the simplices."""
    u = v + bundle.slopes.T @ alpha
    return float(bundle.offsets @ alpha) - float(u @ u) / (2 * lam)


def on_simplices(bundle: Bundle) -> Array:
    """The bundle's α, scaled to sum to one in each group; a group that has none yet starts at its newest bound."""
    alpha = np.maximum(bundle.alpha, 0.0)
    totals = np.bincount(bundle.group, weights=alpha, minlength=bundle.n_groups)
    newest = np.zeros(bundle.n_groups, dtype=np.intp)
    newest[bundle.group] = np.arange(len(bundle))
    bare = np.flatnonzero((totals <= 0) & np.isin(np.arange(bundle.n_groups), bundle.group))
    alpha[newest[bare]] = 1.0
    totals[bare] = 1.0
    return np.asarray(alpha / totals[bundle.group])


def _unsigned(indices: Indices) -> Any:
    """The same indices without a sign, which spares compiled code the check for negative ones."""
    return indices.view(f"u{indices.itemsize}")


def _updated_gram(bundle: Bundle, members: Indices, first: Indices) -> Gram:
    """The inner products for the bundle as it is now; only those of new bounds are computed."""
    size = np.diff(first)
    start = np.concatenate([[0], np.cumsum(size**2)]).astype(np.intp)
    old: Gram | None = bundle.gram
    slot = np.empty(len(bundle), dtype=np.intp)
    slot[members] = np.arange(len(bundle)) - np.repeat(first[:-1], size)
    csr = bundle.slopes
    if old is None:
        old = Gram(np.zeros(0), start, size, np.zeros(0, dtype=np.intp))
    old_slot = np.concatenate([old.slot, np.full(len(bundle) - len(old.slot), -1, dtype=np.intp)])
    blocks = np.empty(start[-1])
    _fill_gram(
        csr.data, _unsigned(csr.indices), csr.indptr, bundle.n_features, members, first, blocks, start,
        old.blocks, old.start, old.size, old_slot,
    )  # fmt: skip
    return Gram(blocks, start, size, slot)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fill_gram(
    data: Any, indices: Any, indptr: Any, n_features: int, members: Any, first: Any, blocks: Any, start: Any,
    old_blocks: Any, old_start: Any, old_size: Any, old_slot: Any,
) -> None:  # fmt: skip
    """Copy the inner products that are known and compute the others."""
    dense = np.zeros(n_features)
    for g in range(len(first) - 1):
        size = first[g + 1] - first[g]
        for i in range(size):
            a = members[first[g] + i]
            known_a = old_slot[a]
            if known_a < 0:
                for p in range(indptr[a], indptr[a + 1]):
                    dense[indices[p]] += data[p]
            for j in range(size):
                b = members[first[g] + j]
                if known_a >= 0 and old_slot[b] >= 0:
                    value = old_blocks[old_start[g] + known_a * old_size[g] + old_slot[b]]
                elif known_a < 0:
                    value = 0.0
                    for p in range(indptr[b], indptr[b + 1]):
                        value += data[p] * dense[indices[p]]
                else:
                    continue  # filled from the other side, where b is the new one
                blocks[start[g] + i * size + j] = value
                blocks[start[g] + j * size + i] = value
            if known_a < 0:
                for p in range(indptr[a], indptr[a + 1]):
                    dense[indices[p]] = 0.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _heaviest(alpha: Any, first: Any) -> Any:
    """The bound with the largest α in each group, as a place in the sorted order; −1 for a group without bounds."""
    heaviest = np.full(len(first) - 1, -1)
    for g in range(len(first) - 1):
        for k in range(first[g], first[g + 1]):
            if heaviest[g] < 0 or alpha[k] > alpha[heaviest[g]]:
                heaviest[g] = k
    return heaviest


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _differences(
    data: Any, indices: Any, indptr: Any, n_features: int, members: Any, first: Any, reference: Any,
    out: Any, out_indices: Any, out_indptr: Any,
) -> int:  # fmt: skip
    """Write each bound's slopes minus its reference's, sorted by group, in CSR form; returns how many entries."""
    dense = np.zeros(n_features)  # the reference
    seen = np.full(n_features, -1)
    used = 0
    for g in range(len(first) - 1):
        r = members[reference[g]]
        for p in range(indptr[r], indptr[r + 1]):
            dense[indices[p]] = data[p]
        for m in range(first[g], first[g + 1]):
            k = members[m]
            if k != r:
                for p in range(indptr[k], indptr[k + 1]):
                    j = indices[p]
                    seen[j] = m
                    if data[p] != dense[j]:
                        out[used] = data[p] - dense[j]
                        out_indices[used] = j
                        used += 1
                for p in range(indptr[r], indptr[r + 1]):
                    if seen[indices[p]] != m:
                        out[used] = -data[p]
                        out_indices[used] = indices[p]
                        used += 1
            out_indptr[m + 1] = used
        for p in range(indptr[r], indptr[r + 1]):
            dense[indices[p]] = 0.0
    return used


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sweeps(
    data: Any, indices: Any, indptr: Any, offsets: Any, first: Any, gram: Any, start: Any,
    alpha: Any, w: Any, lam: float, tol: float, max_sweeps: int,
) -> float:  # fmt: skip
    """Sweep over the groups until the summed gap is below tol; changes alpha and w in place, returns the gap."""
    n_groups = len(first) - 1
    largest = 0
    for g in range(n_groups):
        largest = max(largest, first[g + 1] - first[g])
    score = np.empty(largest)
    moved = np.empty(largest)
    gap_of = np.full(n_groups, np.inf)
    total = np.inf
    for sweep in range(max_sweeps):
        # Every fourth sweep visits all groups and decides; the others only those that are still far off.
        full = sweep % 4 == 0
        threshold = 0.0 if full else 0.2 * total / n_groups
        if full:
            total = 0.0
        for g in range(n_groups):
            if gap_of[g] <= threshold and not full:
                continue
            size = first[g + 1] - first[g]
            if size == 0:
                gap_of[g] = 0.0
                continue
            mean = 0.0
            best = -np.inf
            for i in range(size):
                k = first[g] + i
                s = offsets[k]
                for p in range(indptr[k], indptr[k + 1]):
                    s += data[p] * w[indices[p]]
                score[i] = s
                moved[i] = 0.0
                best = max(best, s)
                mean += alpha[k] * s
            gap = max(best - mean, 0.0)
            gap_of[g] = gap
            if full:
                total += gap
            if gap <= 1e-3 * tol / n_groups:
                continue
            _block(score, moved, alpha, first[g], size, gram, start[g], lam, 0.1 * gap)
            for i in range(size):
                if moved[i] != 0.0:
                    k = first[g] + i
                    factor = moved[i] / lam
                    for p in range(indptr[k], indptr[k + 1]):
                        w[indices[p]] -= factor * data[p]
        if full and total <= tol:
            break
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _block(
    score: Any, moved: Any, alpha: Any, base: int, size: int, gram: Any, origin: int,
    lam: float, tol: float,
) -> None:  # fmt: skip
    """Pairwise ascent on one group's simplex: mass goes from its worst active bound to its best one."""
    for _ in range(20 * size):
        up, down = -1, -1
        for i in range(size):
            if up < 0 or score[i] > score[up]:
                up = i
            if alpha[base + i] > 0.0 and (down < 0 or score[i] < score[down]):
                down = i
        if score[up] - score[down] <= tol:
            break
        a, b = base + up, base + down
        curvature = gram[origin + up * size + up] + gram[origin + down * size + down]
        curvature -= 2.0 * gram[origin + up * size + down]
        step = alpha[b]
        if curvature > 0.0:
            step = min(step, lam * (score[up] - score[down]) / curvature)
        alpha[a] += step
        alpha[b] = 0.0 if step >= alpha[b] else alpha[b] - step
        moved[up] += step
        moved[down] -= step
        for i in range(size):
            score[i] -= step / lam * (gram[origin + i * size + up] - gram[origin + i * size + down])
