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

from clew.errors import InputError
from clew.learning import gram
from clew.learning.losses import LinearBounds
from clew.learning.sparse_rows import ENTRY_BYTES, ROW_BYTES, Rows, subtract_sparse
from clew.learning.task import Array, Indices, Mask, Matrix, dot

EXPECTED_BOUNDS = 2
"""Bounds per group that must fit into memory at the size of the first ones.

The first ones are the largest. Later ones differ less from the reward's features; a
tenth of the first is common in text. If they do not fit, inactive bounds are dropped
and active ones merged: too many groups cost passes, not memory.
"""
ONLINE_SHARE = 0.25
"""Share of that size if the argmax handles one example at a time.

Then w has moved before most examples are visited, so that their first bounds are as
short as later ones. `WorkingSet.reserve` enforces the memory limit in any case.
"""
BOUND_BYTES = ROW_BYTES + 32
"""Bytes of a bound beside its entries: offset, group, dual weight, idle count."""
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
        n_bytes = (
            PEAK
            * EXPECTED_BOUNDS
            * (ENTRY_BYTES * _count_entries(plane, group_of) + BOUND_BYTES * count)
        )
        if n_bytes <= memory or count == 1:
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
    return (
        PEAK * EXPECTED_BOUNDS * (ENTRY_BYTES * entries + BOUND_BYTES * n_examples)
        <= memory
    )


def _assign_consecutive_groups(n_examples: int, count: int) -> Indices:
    """Assign consecutive examples to `count` groups."""
    return (np.arange(n_examples) * count) // n_examples


def _count_entries(plane: Matrix, group_of: Indices) -> int:
    """Count the entries of the rows' sums by group."""
    return int(sum_rows_by_group(sp.csr_array(plane), group_of).nnz)


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
    function such as the reward's, is stored once.

    Attributes
    ----------
    slopes : Rows of shape (n_bounds, n_features)
        Sparse differences a_k from the base.
    offsets : ndarray of shape (n_bounds,)
        Differences b_k from the offset of the base.
    group : ndarray of shape (n_bounds,)
    alpha : ndarray of shape (n_bounds,)
        Dual weights of Theorem 1, which sum to one in each group.
    idle : ndarray of shape (n_bounds,)
        Model updates since alpha was last positive.
    memory : int
        Limit in bytes, including copies while arrays are replaced.
    """

    def __init__(
        self,
        n_features: int,
        group_of: Indices,
        keys: Sequence[bytes] | None = None,
        base: LinearBounds | None = None,
        memory: int = UNLIMITED,
    ) -> None:
        self.n_features = n_features
        self.group_of = group_of
        self.n_groups = int(group_of.max()) + 1
        self.keys = None if keys is None else group_keys(group_of, keys)
        self.memory = memory
        self.base = sp.csr_array((self.n_groups, n_features))
        self.base_offsets = np.zeros(self.n_groups)
        if base is not None:
            self.base = sum_rows_by_group(sp.csr_array(base.features), group_of)
            self.base_offsets = sum_by_group(base.offsets, group_of, self.n_groups)
        self.slopes = Rows(n_features)
        self.offsets: Array = np.zeros(0)
        self.group: Indices = np.zeros(0, dtype=np.intp)
        self.alpha: Array = np.zeros(0)
        self.idle: Indices = np.zeros(0, dtype=np.intp)
        self.added = 0
        self._gram: gram.Gram | None = None

    def __len__(self) -> int:
        return len(self.offsets)

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
            self.slopes.n_entries, self.group
        )

    def _count_bytes(self, n_entries: int, group: Indices) -> int:
        """Return the bytes of bounds with these entries and groups, without base."""
        pairs = int((np.bincount(group, minlength=self.n_groups) ** 2).sum())
        return ENTRY_BYTES * n_entries + BOUND_BYTES * len(group) + 8 * pairs

    def copy(self) -> Self:
        """Return an independent bundle; arrays are replaced on change."""
        return copy.copy(self)

    def sum_by_group(self, values: Array) -> Array:
        """Return (n_groups,) sums over the examples of each group."""
        return sum_by_group(values, self.group_of, self.n_groups)

    def scores(self, w: Array) -> Array:
        """Return (n_bounds,) the value of each bound at w."""
        base = np.asarray(self.base @ w) + self.base_offsets
        return np.asarray(base[self.group] + self.slopes.multiply(w) + self.offsets)

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
        return self._append(
            sum_rows_by_group(sp.csr_array(linear.features), self.group_of),
            linear.offsets,
            new,
        )

    def _append(self, slopes: Matrix, offsets: Array, new: Indices) -> int:
        """Add bounds of the groups `new`, given slopes (G, d) and offsets (N,)."""
        if not len(new):
            return 0
        return self.extend(slopes[new], self.sum_by_group(offsets)[new], new)

    def extend(self, slopes: Matrix, offsets: Array, group: Indices) -> int:
        """Add one bound to each of these groups, within the memory limit.

        Parameters
        ----------
        slopes : csr_array of shape (n, n_features)
        offsets : ndarray of shape (n,)
        group : ndarray of shape (n,)
        """
        fresh = subtract_sparse(slopes, self.base[group])
        self.make_room(int(fresh.nnz), group)
        n = len(group)
        self.slopes = self.slopes.append(fresh)
        self.offsets = np.concatenate(
            [self.offsets, offsets - self.base_offsets[group]]
        )
        self.group = np.concatenate([self.group, group])
        self.alpha = np.concatenate([self.alpha, np.zeros(n)])
        self.idle = np.concatenate([self.idle, np.zeros(n, dtype=np.intp)])
        self.added += n
        return n

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
        self.alpha = alpha
        active = alpha > 0 if is_slack is None else (alpha > 0) & ~is_slack
        self.idle = np.where(active, 0, self.idle + 1)

    def find_slack_bounds(self, w: Array, radius: float) -> Mask:
        """Find bounds below another bound of their group wherever ‖w' − w‖ ≤ radius.

        With radius = √(2 gap / λ) that ball contains the model's minimum, by strong
        convexity. An interior point leaves a little dual weight on such bounds.

        Returns
        -------
        is_slack : ndarray of bool of shape (n_bounds,)
        """
        scores = self.scores(w)
        steepness = np.sqrt(self.slopes.squared_norms())
        # within the ball, a group's maximum is at least `assured`
        assured = np.full(self.n_groups, -np.inf)
        np.maximum.at(assured, self.group, scores - radius * steepness)
        rounding = 1e-9 * (1.0 + np.abs(scores))
        return np.asarray(scores + radius * steepness + rounding < assured[self.group])

    def sorted_by_group(self) -> tuple[Indices, Indices]:
        """Return bounds sorted by group, and (n_groups + 1,) starts of groups."""
        return sort_by_group(self.group, self.n_groups)

    def inner_products(self) -> gram.Gram:
        """Return ⟨a_j, a_k⟩ within the groups, computing each pair only once."""
        self._gram = gram.update_gram(self._gram, self.slopes, *self.sorted_by_group())
        return self._gram

    def rebase(self) -> None:
        """Make the bound with the largest α the base of its group; sort by group.

        The initial base is the reward at the start. With few annotations the reward
        changes between CCCP iterations, and differences from the old base fill up.
        Differences from an active bound are sparse again.
        """
        members, first = self.sorted_by_group()
        if not len(members):
            return
        gram = self.inner_products()
        alpha = normalize_dual_weights(self)
        references = argmax_per_group(alpha, members, first)
        unweighted = references < 0
        chosen = np.where(unweighted, members[0], references)
        shift = sp.csr_array(self.slopes.csr[chosen])
        if unweighted.any():  # a group without bounds keeps its base
            shift = sp.csr_array(sp.diags_array((~unweighted).astype(float)) @ shift)
        offsets = np.where(unweighted, 0.0, self.offsets[chosen])
        group = self.group[members]
        self.slopes = Rows.of(subtract_sparse(self.slopes.csr[members], shift[group]))
        self.offsets = self.offsets[members] - offsets[group]
        self.base = sp.csr_array(self.base + shift)
        self.base_offsets = self.base_offsets + offsets
        self._gram = gram.relative_to(references).select(members)
        self.group = group
        self.alpha = self.alpha[members]
        self.idle = self.idle[members]

    def replace(
        self,
        slopes: Rows,
        offsets: Array,
        group: Indices,
        alpha: Array,
        idle: Indices,
        products: gram.Gram,
    ) -> None:
        """Replace all bounds and their inner products, relative to the same bases."""
        self.slopes = slopes
        self.offsets = offsets
        self.group = group
        self.alpha = alpha
        self.idle = idle
        self._gram = products

    def set_base(self, base: LinearBounds) -> None:
        """Set the base only; `replace` must provide slopes relative to it."""
        self.base = sum_rows_by_group(sp.csr_array(base.features), self.group_of)
        self.base_offsets = self.sum_by_group(base.offsets)

    def relative_to(self, base: LinearBounds) -> None:
        """Change the base, and rewrite the bounds as differences from it."""
        whole = sp.csr_array(self.slopes.csr + self.base[self.group])
        offsets = self.offsets + self.base_offsets[self.group]
        self.set_base(base)
        self.slopes = Rows.of(subtract_sparse(whole, self.base[self.group]))
        self._gram = None
        self.offsets = offsets - self.base_offsets[self.group]

    def keep(self, mask: Mask) -> None:
        """Drop the bounds that are not in the mask."""
        if mask.all():
            return
        self.slopes = self.slopes.select(np.flatnonzero(mask))
        self.offsets = self.offsets[mask]
        self.group = self.group[mask]
        self.alpha = self.alpha[mask]
        self.idle = self.idle[mask]
        known = 0 if self._gram is None else len(self._gram.slot)
        self._gram = None if self._gram is None else self._gram.select(mask[:known])

    def clear(self) -> None:
        """Drop all bounds."""
        self.keep(np.zeros(len(self), dtype=bool))

    def prune(self, patience: int) -> None:
        """Drop bounds inactive for more than `patience` model updates.

        They have no dual weight, so that the lower bound stays valid.
        """
        self.keep(self.idle <= patience)

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
            whole = self._count_bytes(
                self.slopes.n_entries + n_entries, np.concatenate([self.group, group])
            )
            return PEAK * whole + ENTRY_BYTES * int(self.base.nnz) > self.memory

        while too_large() and (self.idle > 0).any():
            self.keep(self.idle < max(1, int(np.median(self.idle[self.idle > 0]))))
        while too_large():
            counts = np.bincount(self.group, minlength=self.n_groups)
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
        members, first = self.sorted_by_group()
        order = members[np.lexsort((alpha[members], self.group[members]))]
        sizes = np.diff(first)
        rank = np.arange(len(self)) - first[self.group[order]]
        light = rank < np.maximum(2, (sizes + 1) // 2)[self.group[order]]
        which = order[light & np.isin(self.group[order], groups)]
        place = np.searchsorted(groups, self.group[which])
        total = np.bincount(place, weights=alpha[which], minlength=len(groups))
        count = np.bincount(place, minlength=len(groups))
        # groups without dual weight use the plain mean
        share = np.where(
            total[place] > 0,
            alpha[which] / np.where(total > 0, total, 1.0)[place],
            1.0 / count[place],
        )
        mix = sp.csr_array((share, (place, which)), shape=(len(groups), len(self)))
        slopes = sp.csr_array(mix @ self.slopes.csr)
        offsets = np.asarray(mix @ self.offsets)
        self.alpha = alpha
        stays = np.ones(len(self), dtype=bool)
        stays[which] = False
        self.keep(stays)
        self.slopes = self.slopes.append(slopes)
        self.offsets = np.concatenate([self.offsets, offsets])
        self.group = np.concatenate([self.group, groups])
        self.alpha = np.concatenate([self.alpha, total])
        self.idle = np.concatenate([self.idle, np.zeros(len(groups), dtype=np.intp)])

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
            bundle.idle = np.zeros(len(self), dtype=np.intp)
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
        stays = (place[self.group] >= 0) & (last[place[self.group]] == self.group)
        bundle.slopes = self.slopes.select(np.flatnonzero(stays))
        bundle.offsets = self.offsets[stays]
        bundle.group = place[self.group][stays]
        bundle.alpha = self.alpha[stays]
        bundle.idle = np.zeros(int(stays.sum()), dtype=np.intp)
        return bundle


def sort_by_group(group: Indices, n_groups: int) -> tuple[Indices, Indices]:
    """Sort bounds by group.

    Returns
    -------
    members : ndarray of shape (n_bounds,)
    first : ndarray of shape (n_groups + 1,)
        Start of each group in `members`.
    """
    members = np.argsort(group, kind="stable")
    return members, np.searchsorted(group[members], np.arange(n_groups + 1))


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


def argmax_per_group(alpha: Array, members: Indices, first: Indices) -> Indices:
    """Return (n_groups,) the bound with the largest α; −1 without bounds.

    `members` and `first` are as in `sort_by_group`.
    """
    order = members[
        np.lexsort(
            (-alpha[members], np.repeat(np.arange(len(first) - 1), np.diff(first)))
        )
    ]
    return np.where(
        np.diff(first) > 0, order[np.minimum(first[:-1], len(order) - 1)], -1
    )


def dual_value(bundle: Bundle, v: Array, lam: float, alpha: Array) -> float:
    """Compute Eq. 14 for several groups.

    For every α on the simplices it is a lower bound on the model's minimum.
    """
    shared, constant = bundle.shared
    u = v + shared + bundle.slopes.combine(alpha)
    return constant + float(dot(bundle.offsets, alpha)) - float(dot(u, u)) / (2 * lam)
