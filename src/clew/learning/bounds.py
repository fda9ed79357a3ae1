"""Bundle of linear lower bounds under Σ_{n ∈ g} C_n(w) by group g (Eqs. 11 and 12).

One group is the paper's method; one group per example is the tightest model. Bounds do
not depend on λ, v or the other groups. They are recycled across CCCP iterations, across
λ, and across fits for unchanged examples.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from hashlib import blake2b
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning._bundle_kernels import (
    Bounds,
    copy_products,
    find_highest,
    keep_products,
    make_scratch,
    multiply_bounds,
    visit_groups,
)
from clew.learning.losses import LinearBounds
from clew.learning.sparse_rows import subtract_sparse
from clew.learning.task import Array, Indices, Kept, Mask, Matrix, dot

ENTRY_BYTES = 12
"""Bytes of an entry: value and column."""

EXPECTED_BOUNDS = 2
"""Bounds per group that must fit into memory at the size of the first ones.

The first ones are the largest. Later ones differ less from the reward's features; a
tenth of the first is common in text. If they do not fit, inactive bounds are dropped
and active ones merged: too many groups cost passes, not memory.
"""
ONLINE_SHARE = 0.25
"""Share of that size if the argmax handles one example at a time.

Then w has moved before most examples are visited, so that their first bounds are as
short as later ones. `Bundle.make_room` enforces the memory limit in any case.
"""
BOUND_BYTES = 40
"""Bytes of a bound beside its entries: their start, offset, group, α, idle count."""
SPARE = 1.25
"""Capacity over need when arrays of bounds are reallocated."""
PEAK = 2.25
"""Peak memory over need, while arrays are copied into larger ones."""


def make_groups(
    n_examples: int, groups: int | str, plane: Matrix, memory: int
) -> Indices:
    """Assign consecutive examples to groups of almost equal size.

    Parameters
    ----------
    n_examples : int
    groups : int or "auto"
        "auto" starts with one group per example and halves the number until
        EXPECTED_BOUNDS bounds of each group fit into `memory`.
    plane : csr_array of shape (n_examples, n_features)
        Features of the first evaluation, from which the size is estimated.
    memory : int
        In bytes.

    Returns
    -------
    group_of : ndarray of shape (n_examples,)
    """
    if groups != "auto":
        if (
            not isinstance(groups, (int, np.integer))
            or isinstance(groups, bool)
            or groups < 1
        ):
            raise InputError(
                f"groups must be 'auto' or a number of at least 1, not {groups!r}"
            )
        return _assign_consecutive_groups(n_examples, min(int(groups), n_examples))
    count = n_examples
    while True:
        group_of = _assign_consecutive_groups(n_examples, count)
        entries = sum_rows_by_group(sp.csr_array(plane), group_of).nnz
        if _expect_bytes(entries, count) <= memory or count == 1:
            return group_of
        count = (count + 1) // 2


def fits_in_memory(
    n_examples: int, base: Matrix, memory: int, online: bool = False
) -> bool:
    """Return whether one group per example fits into memory in the worst case.

    The worst case is twice the base's entries per bound, so that no bound has to be
    computed first.

    Parameters
    ----------
    n_examples : int
    base : csr_array of shape (n_examples, n_features)
    memory : int
        In bytes.
    online : bool
        Whether the argmax handles one example at a time.
    """
    entries = 2 * int(base.nnz) * (ONLINE_SHARE if online else 1.0)
    return _expect_bytes(entries, n_examples) <= memory


def _expect_bytes(n_entries: float, n_groups: int) -> float:
    """Return the peak memory of EXPECTED_BOUNDS bounds with these entries in all."""
    n_bytes = ENTRY_BYTES * n_entries + BOUND_BYTES * n_groups
    return PEAK * EXPECTED_BOUNDS * n_bytes


def _assign_consecutive_groups(n_examples: int, count: int) -> Indices:
    """Assign consecutive examples to `count` groups."""
    return (np.arange(n_examples) * count) // n_examples


def sum_rows_by_group(rows: Matrix, group_of: Indices) -> Matrix:
    """Sum sparse rows (n, d) over each group.

    Returns
    -------
    sums : csr_array of shape (n_groups, n_features)
    """
    n = len(group_of)
    n_groups = int(group_of.max(initial=-1)) + 1
    if n == n_groups and (group_of == np.arange(n)).all():
        return rows
    membership = sp.csr_array(
        (np.ones(n), (group_of, np.arange(n))), shape=(n_groups, n)
    )
    return sp.csr_array(membership @ rows)


def sum_by_group(values: Array, group_of: Indices, n_groups: int) -> Array:
    """Return (n_groups,) sums of values (n,) over each group."""
    return np.asarray(
        np.bincount(group_of, weights=values, minlength=n_groups), dtype=float
    )


def group_keys(group_of: Indices, keys: Sequence[bytes]) -> list[bytes]:
    """Compute a fingerprint of each group from those of its examples."""
    digests = [blake2b(digest_size=16) for _ in range(int(group_of.max()) + 1)]
    for g, key in zip(group_of, keys, strict=True):
        digests[g].update(key)
    return [digest.digest() for digest in digests]


UNLIMITED = 2**62


class Bundle:
    """Bounds ⟨base_g + a_k, w⟩ + base_offset_g + b_k under the sum of C_n over group g.

    The bounds of a group share most of their features, so that `base`, any linear
    function such as the reward's, is stored once. Bounds are stored in arrays with
    spare capacity, which compiled code reads and writes (`bounds`).

    Parameters
    ----------
    n_features : int
    group_of : ndarray of shape (n_examples,)
    keys : sequence of bytes, optional
        Fingerprints of the examples.
    base : LinearBounds, optional
    memory : int
        Limit in bytes, including copies while arrays are replaced.
    order : ndarray of shape (n_features,), optional
        Order of the stored columns, see `Task.column_order`.
    """

    def __init__(
        self,
        n_features: int,
        group_of: Indices,
        keys: Sequence[bytes] | None = None,
        base: LinearBounds | None = None,
        memory: int = UNLIMITED,
        order: Indices | None = None,
    ) -> None:
        self.n_features = n_features
        self.group_of = group_of
        self.n_groups = int(group_of.max()) + 1
        self.keys = None if keys is None else group_keys(group_of, keys)
        self.memory = memory
        self.order = order
        self.place: Indices | None = None
        if order is not None:
            self.place = np.empty_like(order)
            self.place[order] = np.arange(n_features)
        self.base = sp.csr_array((self.n_groups, n_features))
        self.base_offsets = np.zeros(self.n_groups)
        if base is not None:
            self.set_base(base)
        self.added = 0
        self.n_bounds = 0
        self.n_multiplied = 0
        """Number of the oldest bounds whose inner products are known."""
        self.bounds: Bounds
        nothing = np.zeros(0)
        self._set_bounds(
            sp.csr_array((0, n_features)), nothing, np.zeros(0, int), nothing
        )

    def __len__(self) -> int:
        return self.n_bounds

    @property
    def offsets(self) -> Array:
        """(n_bounds,) differences b_k from the offset of the base."""
        return self.bounds.offsets[: self.n_bounds]

    @property
    def group(self) -> NDArray[np.int64]:
        """(n_bounds,) group of each bound."""
        return self.bounds.group[: self.n_bounds]

    @property
    def alpha(self) -> Array:
        """(n_bounds,) dual weights of Theorem 1, which sum to one in each group."""
        return self.bounds.alpha[: self.n_bounds]

    @property
    def idle(self) -> NDArray[np.int64]:
        """(n_bounds,) updates since alpha was last positive."""
        return self.bounds.idle[: self.n_bounds]

    @property
    def n_entries(self) -> int:
        """Number of stored entries."""
        return int(self.bounds.indptr[self.n_bounds])

    @property
    def rows(self) -> Matrix:
        """(n_bounds, n_features) stored differences a_k, with columns in `order`."""
        b = self.bounds
        n = self.n_bounds
        end = self.n_entries
        content = (b.data[:end], b.indices[:end].view(np.int32), b.indptr[: n + 1])
        return sp.csr_array(content, shape=(n, self.n_features))

    @property
    def slopes(self) -> Matrix:
        """(n_bounds, n_features) differences a_k from the base."""
        rows = self.rows
        if self.order is None:
            return rows
        content = (rows.data, self.order[rows.indices], rows.indptr)
        return sp.csr_array(content, shape=rows.shape)

    @property
    def shared(self) -> tuple[Array, float]:
        """Sums of all groups' bases (d,) and of their offsets."""
        return sum_by_group(
            self.base.data, self.base.indices, self.n_features
        ), self.shared_offset

    @property
    def shared_offset(self) -> float:
        """Σ_g base_offset_g."""
        return float(self.base_offsets.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the bounds, including all inner products."""
        return ENTRY_BYTES * int(self.base.nnz) + self._count_bytes(
            self.n_entries, self.bounds.sizes
        )

    def _count_bytes(self, n_entries: int, sizes: NDArray[np.int64]) -> int:
        """Return the bytes of bounds with these entries, without base.

        `sizes` are the numbers of bounds in each group.
        """
        pairs = int((sizes**2).sum())
        return ENTRY_BYTES * n_entries + BOUND_BYTES * int(sizes.sum()) + 8 * pairs

    def copy(self) -> Self:
        """Return an independent bundle."""
        bundle = copy.copy(self)
        bundle.bounds = copy.deepcopy(self.bounds)
        return bundle

    def arrange(self, w: Array) -> Array:
        """Return weights in the order of the stored columns."""
        return w.copy() if self.order is None else w[self.order]

    def restore(self, w: Array) -> Array:
        """Return weights that are in the order of the stored columns in that of φ."""
        return w.copy() if self.place is None else w[self.place]

    def sum_by_group(self, values: Array) -> Array:
        """Return (n_groups,) sums over the examples of each group."""
        return sum_by_group(values, self.group_of, self.n_groups)

    def combine(self, alpha: Array) -> Array:
        """Return (d,) Σ_k α_k a_k."""
        return self.restore(np.asarray(self.rows.T @ alpha))

    def scores(self, w: Array) -> Array:
        """Return (n_bounds,) the value of each bound at w."""
        base = np.asarray(self.base @ w) + self.base_offsets
        return np.asarray(base[self.group] + self.rows @ self.arrange(w) + self.offsets)

    def values(self, w: Array) -> Array:
        """Return (n_groups,) the model's values at w; −∞ for groups without bounds."""
        best = np.full(self.n_groups, -np.inf)
        np.maximum.at(best, self.group, self.scores(w))
        return best

    def add(self, linear: LinearBounds, w: Array, known: Array | None = None) -> int:
        """Add the bounds that are above the model at w.

        Parameters
        ----------
        linear : LinearBounds
            Bounds of all examples.
        w : ndarray of shape (n_features,)
        known : ndarray of shape (n_groups,), optional
            `values(w)`, if already computed.

        Returns
        -------
        n_added : int
        """
        value = self.sum_by_group(linear.values)
        model = self.values(w) if known is None else known
        new = np.flatnonzero(value > model + 1e-12 * (1 + np.abs(value)))
        if len(new):
            slopes = sum_rows_by_group(sp.csr_array(linear.features), self.group_of)
            self.extend(slopes[new], self.sum_by_group(linear.offsets)[new], new)
        return len(new)

    def extend(self, slopes: Matrix, offsets: Array, group: Indices) -> None:
        """Add one bound to each of these groups, within the memory limit.

        Parameters
        ----------
        slopes : csr_array of shape (n, n_features)
        offsets : ndarray of shape (n,)
        group : ndarray of shape (n,)
        """
        fresh = subtract_sparse(slopes, self.base[group])
        self.reserve(int(fresh.nnz), group)
        self._append(fresh, offsets - self.base_offsets[group], group)
        self.added += len(group)

    def extend_where_higher(
        self, slopes: Matrix, offsets: Array, values: Array, group: Indices, w: Array
    ) -> None:
        """Add the bounds that are above the others of their group.

        Parameters
        ----------
        slopes : csr_array of shape (n, n_features)
        offsets : ndarray of shape (n,)
        values : ndarray of shape (n,)
            Values of the bounds at w.
        group : ndarray of shape (n,)
        w : ndarray of shape (n_features,)
            In the order of the stored columns.
        """
        highest = np.empty(len(group))
        find_highest(self.bounds, group, w, highest, make_scratch(self.bounds, group))
        base = self.base[group] @ self.restore(w) + self.base_offsets[group]
        new = np.flatnonzero(values > base + highest + 1e-12 * (1 + np.abs(values)))
        self.extend(slopes[new], offsets[new], group[new])

    def visit_groups(
        self, groups: Indices, w: Array, lam: float, steps: int, gaps: Array
    ) -> None:
        """Take pairwise Frank–Wolfe steps on the dual weights of groups in turn.

        Parameters
        ----------
        groups : ndarray of int
        w : ndarray of shape (n_features,)
            w(α), in the order of the stored columns, which moves with α.
        lam : float
        steps : int
            Largest number of steps per group.
        gaps : ndarray of shape (n_groups,)
            Receives the gap of each visited group before its steps.
        """
        self.multiply()
        scratch = make_scratch(self.bounds, groups)
        visit_groups(self.bounds, groups, w, lam, steps, gaps, scratch)

    def _append(self, slopes: Matrix, offsets: Array, group: Indices) -> None:
        """Write one bound for each of these groups, relative to the base."""
        b = self.bounds
        begin = self.n_entries
        end = begin + int(slopes.nnz)
        new = np.arange(self.n_bounds, self.n_bounds + len(group))
        b.data[begin:end] = slopes.data
        b.indices[begin:end] = (
            slopes.indices if self.place is None else self.place[slopes.indices]
        )
        b.indptr[new + 1] = begin + slopes.indptr[1:]
        b.offsets[new] = offsets
        b.alpha[new] = 0.0
        b.group[new] = group
        b.idle[new] = 0
        b.tags[new] = -1
        b.members[b.first[group] + b.sizes[group]] = new
        b.sizes[group] += 1
        self.n_bounds += len(group)

    def count_written(self, n_bounds: int, tags: Indices) -> None:
        """Count the bounds up to `n_bounds`, which compiled code has added."""
        new = slice(self.n_bounds, n_bounds)
        self.bounds.tags[new] = tags
        self.bounds.idle[new] = self.bounds.alpha[new] == 0
        self.added += n_bounds - self.n_bounds
        self.n_bounds = n_bounds
        self.n_multiplied = n_bounds

    def _set_bounds(
        self, slopes: Matrix, offsets: Array, group: Indices, alpha: Array
    ) -> None:
        """Replace all bounds by these, relative to the base."""
        n = len(offsets)
        indices = slopes.indices if self.place is None else self.place[slopes.indices]
        sizes = np.bincount(group, minlength=self.n_groups).astype(np.int64)
        self.bounds = Bounds(
            data=np.array(slopes.data, dtype=float),
            indices=indices.astype(np.uint32),
            indptr=slopes.indptr.astype(np.int64),
            offsets=np.array(offsets, dtype=float),
            alpha=np.array(alpha, dtype=float),
            group=group.astype(np.int64),
            idle=np.zeros(n, np.int64),
            tags=np.full(n, -1, np.int64),
            members=np.argsort(group, kind="stable").astype(np.int64),
            first=np.cumsum(sizes) - sizes,
            sizes=sizes,
            room=sizes.copy(),
            products=np.zeros(0),
            start=np.cumsum(sizes**2) - sizes**2,
        )
        self.n_bounds = n
        self.n_multiplied = 0

    def start_at_base(self) -> None:
        """Add the base as a bound with α = 1 to groups without dual weights.

        This requires that the base is a bound itself, as for C ≥ R (`losses`).
        """
        weights = np.bincount(self.group, weights=self.alpha, minlength=self.n_groups)
        unweighted = np.flatnonzero(weights <= 0)
        self.extend(self.base[unweighted], self.base_offsets[unweighted], unweighted)
        self.alpha[len(self) - len(unweighted) :] = 1.0

    def set_alpha(self, alpha: Array, is_slack: Mask | None = None) -> None:
        """Store the dual weights of a model update, and age the inactive bounds.

        A bound is inactive if it has no dual weight or `is_slack` at the model's
        minimum. A small weight is no sign of inactivity: at a flat optimum the bounds
        of a group share its weight in small parts.
        """
        self.alpha[:] = alpha
        active = alpha > 0 if is_slack is None else (alpha > 0) & ~is_slack
        self.idle[:] = np.where(active, 0, self.idle + 1)

    def find_slack_bounds(self, w: Array, radius: float) -> Mask:
        """Find bounds below another bound of their group wherever ‖w' − w‖ ≤ radius.

        With radius = √(2 gap / λ) that ball contains the model's minimum, by strong
        convexity. An interior point leaves a little dual weight on such bounds.

        Returns
        -------
        is_slack : ndarray of bool of shape (n_bounds,)
        """
        scores = self.scores(w)
        steepness = np.sqrt(self.squared_norms())
        # within the ball, a group's maximum is at least `assured`
        assured = np.full(self.n_groups, -np.inf)
        np.maximum.at(assured, self.group, scores - radius * steepness)
        rounding = 1e-9 * (1.0 + np.abs(scores))
        return np.asarray(scores + radius * steepness + rounding < assured[self.group])

    def squared_norms(self) -> Array:
        """Return (n_bounds,) ‖a_k‖²."""
        b = self.bounds
        sums = np.concatenate([[0.0], np.cumsum(b.data[: self.n_entries] ** 2)])
        return np.asarray(np.diff(sums[b.indptr[: self.n_bounds + 1]]))

    def multiply(self) -> None:
        """Compute the inner products within the groups that are not known yet."""
        if self.n_multiplied == self.n_bounds:
            return
        if self.n_multiplied == 0:
            size = int((self.bounds.room**2).sum())
            self.bounds = self.bounds._replace(products=np.empty(size))
        multiply_bounds(self.bounds, self.n_multiplied, np.zeros(self.n_features))
        self.n_multiplied = self.n_bounds

    def set_base(self, base: LinearBounds) -> None:
        """Set the base only; the caller makes the bounds relative to it."""
        self.base = sum_rows_by_group(sp.csr_array(base.features), self.group_of)
        self.base_offsets = self.sum_by_group(base.offsets)

    def relative_to(self, base: LinearBounds) -> None:
        """Change the base, and rewrite the bounds as differences from it.

        Where the reward changes between CCCP iterations, differences from an old one
        fill up; differences from the present one are sparse again.
        """
        idle = self.idle.copy()
        whole = sp.csr_array(self.slopes + self.base[self.group])
        offsets = self.offsets + self.base_offsets[self.group]
        self.set_base(base)
        self._set_bounds(
            subtract_sparse(whole, self.base[self.group]),
            offsets - self.base_offsets[self.group],
            self.group,
            self.alpha,
        )
        self.idle[:] = idle

    def keep(self, mask: Mask) -> None:
        """Drop the bounds that are not in the mask."""
        if mask.all():
            return
        b = self.bounds
        if self.n_multiplied:
            keep_products(b, mask)
            self.n_multiplied = int(np.count_nonzero(mask[: self.n_multiplied]))
        lengths = np.diff(b.indptr[: self.n_bounds + 1])
        is_kept = np.repeat(mask, lengths)
        n_kept = int(np.count_nonzero(mask))
        end = int(lengths[mask].sum())
        for entries in (b.data, b.indices):
            entries[:end] = entries[: len(is_kept)][is_kept]
        b.indptr[1 : n_kept + 1] = np.cumsum(lengths[mask])
        for values in (b.offsets, b.alpha, b.group, b.idle, b.tags):
            values[:n_kept] = values[: self.n_bounds][mask]
        self.n_bounds = n_kept
        self._index_groups()

    def _index_groups(self) -> None:
        """Write the size and the members of each group."""
        b = self.bounds
        sizes = np.bincount(self.group, minlength=self.n_groups)
        positions = np.arange(len(self)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        b.sizes[:] = sizes
        b.members[np.repeat(b.first, sizes) + positions] = np.argsort(
            self.group, kind="stable"
        )

    def clear(self) -> None:
        """Drop all bounds."""
        self.keep(np.zeros(len(self), dtype=bool))

    def prune(self, patience: int) -> None:
        """Drop bounds inactive for more than `patience` updates.

        They have no dual weight, so that the lower bound stays valid.
        """
        self.keep(self.idle <= patience)

    def reserve(self, n_entries: int, groups: Indices) -> None:
        """Make room for one new bound in each of these groups.

        Parameters
        ----------
        n_entries : int
            Entries of the new bounds.
        groups : ndarray of int
        """
        self.make_room(n_entries, groups)
        b = self.bounds
        n_bounds = self.n_bounds + len(groups)
        if n_bounds > len(b.offsets):
            room = int(SPARE * n_bounds)
            b = b._replace(
                indptr=_grow_array(b.indptr, room + 1, self.n_bounds + 1),
                offsets=_grow_array(b.offsets, room, self.n_bounds),
                alpha=_grow_array(b.alpha, room, self.n_bounds),
                group=_grow_array(b.group, room, self.n_bounds),
                idle=_grow_array(b.idle, room, self.n_bounds),
                tags=_grow_array(b.tags, room, self.n_bounds),
            )
        if self.n_entries + n_entries > len(b.data):
            room = int(SPARE * self.n_entries) + n_entries
            b = b._replace(
                data=_grow_array(b.data, room, self.n_entries),
                indices=_grow_array(b.indices, room, self.n_entries),
            )
        self.bounds = b
        if (b.sizes[groups] >= b.room[groups]).any():
            self._grow_groups(groups)

    def _grow_groups(self, groups: Indices) -> None:
        """Enlarge the capacity of all groups, with one more bound in each of these."""
        old = self.bounds
        sizes = old.sizes.copy()
        sizes[groups] += 1
        room = sizes + sizes // 2
        n_products = int((room**2).sum()) if self.n_multiplied else 0
        self.bounds = old._replace(
            members=np.empty(int(room.sum()), np.int64),
            first=np.cumsum(room) - room,
            room=room,
            products=np.empty(n_products),
            start=np.cumsum(room**2) - room**2,
        )
        self._index_groups()
        if self.n_multiplied:
            copy_products(old, self.bounds)

    def make_room(self, n_entries: int, group: Indices) -> None:
        """Free memory for new bounds.

        Bounds that were inactive for longest are dropped first. If that is not enough,
        active bounds of the largest groups are merged: a convex combination of bounds
        is a bound, and with the dual weights as coefficients the lower bound stays
        valid. Each group keeps at least one bound.

        Parameters
        ----------
        n_entries : int
            Entries of the new bounds.
        group : ndarray of int
            Groups of the new bounds.
        """

        def too_large() -> bool:
            sizes = self.bounds.sizes.copy()
            sizes[group] += 1
            whole = self._count_bytes(self.n_entries + n_entries, sizes)
            return PEAK * whole + ENTRY_BYTES * int(self.base.nnz) > self.memory

        while too_large() and (self.idle > 0).any():
            self.keep(self.idle < max(1, int(np.median(self.idle[self.idle > 0]))))
        while too_large():
            counts = self.bounds.sizes
            if counts.max(initial=0) <= 1:
                return
            self._merge_light_bounds(
                np.flatnonzero(counts >= max(2, int(np.median(counts[counts > 1]))))
            )

    def _merge_light_bounds(self, groups: Indices) -> None:
        """Replace the bounds of lower weight in each group by their convex combination.

        That is half of the group's bounds, and at least two.
        """
        alpha = normalize_dual_weights(self)
        group = self.group
        order = np.lexsort((alpha, group))
        sizes = self.bounds.sizes
        rank = np.arange(len(self)) - (np.cumsum(sizes) - sizes)[group[order]]
        light = rank < np.maximum(2, (sizes + 1) // 2)[group[order]]
        which = order[light & np.isin(group[order], groups)]
        place = np.searchsorted(groups, group[which])
        total = np.bincount(place, weights=alpha[which], minlength=len(groups))
        count = np.bincount(place, minlength=len(groups))
        # groups without dual weight use the plain mean
        share = np.where(
            total[place] > 0,
            alpha[which] / np.where(total > 0, total, 1.0)[place],
            1.0 / count[place],
        )
        mix = sp.csr_array((share, (place, which)), shape=(len(groups), len(self)))
        slopes = sp.csr_array(mix @ self.slopes)
        offsets = np.asarray(mix @ self.offsets)
        self.alpha[:] = alpha
        stays = np.ones(len(self), dtype=bool)
        stays[which] = False
        self.keep(stays)
        self._append(slopes, offsets, groups)
        self.alpha[len(self) - len(groups) :] = total

    def transfer_bounds(self, fresh: Bundle) -> Bundle:
        """Copy the bounds of groups with the same fingerprint into an empty bundle.

        Returns
        -------
        bundle : Bundle
        """
        if self.keys is None or fresh.keys is None or not len(self):
            return fresh
        if self.keys == fresh.keys and np.array_equal(self.group_of, fresh.group_of):
            bundle = self.copy()
            bundle.added = 0
            bundle.idle[:] = 0
            bundle.memory = fresh.memory
            return bundle
        index = {key: g for g, key in enumerate(fresh.keys)}
        place = np.array([index.get(key, -1) for key in self.keys], dtype=np.intp)
        bundle = fresh.copy()
        # transferred bounds are relative to the base of the old group
        source = np.arange(fresh.n_groups)
        source[place[place >= 0]] = fresh.n_groups + np.flatnonzero(place >= 0)
        bundle.base = sp.vstack([fresh.base, self.base], format="csr")[source]
        bundle.base_offsets = np.concatenate([fresh.base_offsets, self.base_offsets])[
            source
        ]
        # old groups with equal fingerprints may differ in their base: keep the last one
        last = np.full(fresh.n_groups, -1)
        last[place[place >= 0]] = np.flatnonzero(place >= 0)
        stays = np.flatnonzero(
            (place[self.group] >= 0) & (last[place[self.group]] == self.group)
        )
        bundle._set_bounds(
            self.slopes[stays],
            self.offsets[stays],
            place[self.group[stays]],
            self.alpha[stays],
        )
        return bundle


def _grow_array(array: NDArray[Kept], size: int, used: int) -> NDArray[Kept]:
    """Copy the used part into a larger array; the rest is uninitialized."""
    larger = np.empty(size, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


def normalize_dual_weights(bundle: Bundle) -> Array:
    """Scale the dual weights so that they sum to one in each group.

    A group without positive weights puts all weight on its newest bound.

    Returns
    -------
    alpha : ndarray of shape (n_bounds,)
    """
    alpha = np.maximum(bundle.alpha, 0.0)
    totals = np.bincount(bundle.group, weights=alpha, minlength=bundle.n_groups)
    newest = np.zeros(bundle.n_groups, dtype=np.intp)
    newest[bundle.group] = np.arange(len(bundle))
    unweighted = np.flatnonzero(
        (totals <= 0) & (np.bincount(bundle.group, minlength=bundle.n_groups) > 0)
    )
    alpha[newest[unweighted]] = 1.0
    totals[unweighted] = 1.0
    return np.asarray(alpha / totals[bundle.group])


def dual_value(bundle: Bundle, v: Array, lam: float, alpha: Array) -> float:
    """Compute Eq. 14 for several groups.

    For every α on the simplices it is a lower bound on the model's minimum.
    """
    shared, constant = bundle.shared
    u = v + shared + bundle.combine(alpha)
    return constant + float(dot(bundle.offsets, alpha)) - float(dot(u, u)) / (2 * lam)
