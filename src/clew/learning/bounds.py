"""The bundle: linear lower bounds under Σ_{n ∈ g} C_n(w), kept by group g of examples (Eqs. 11 and 12).

One group is the paper's method, a group for each example the tightest model. Bounds do not depend on λ, on v, or on
the other groups: they are recycled across CCCP iterations, across λ, and across fits for examples that did not change.
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
from clew.learning.sparse_rows import ENTRY_BYTES, ROW_BYTES, Rows, differences
from clew.learning.task import Array, Indices, Mask, Matrix, dot

EXPECTED_BOUNDS = 2
"""Bounds of each group that must fit into the memory at the size of the first ones, which are the largest.

Later ones differ less and less from the reward's features, a tenth of the first is common in text. Where they still do
not fit, inactive ones are dropped and active ones merged: too many groups cost passes, never memory.
"""
ONLINE_SHARE = 0.25
"""Of that size, where examples are answered one after the other: w has moved before most of them are looked at, so that
their first bounds are as short as later ones. Whatever comes is kept within the memory as well (WorkingSet.reserve)."""
BOUND_BYTES = ROW_BYTES + 32
"""Of each bound beside its entries: offset, group, dual weight, idle count."""
PEAK = 2.25
"""Memory that bounds take while their arrays move: the old ones, and the new ones with room at the end (rows.SPARE)."""


def make_groups(
    n_examples: int, groups: int | str, plane: Matrix, memory: int
) -> Indices:
    """(N,) the group of each example: consecutive examples share a group, groups are of almost equal size.

    "auto" starts with a group for each example and halves their number until EXPECTED_BOUNDS bounds of each fit into
    `memory` bytes; `plane` is the first evaluation's (N, d) sparse rows, to measure from. A number is taken as it is.
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
        return _consecutive(n_examples, min(int(groups), n_examples))
    count = n_examples
    while True:
        group_of = _consecutive(n_examples, count)
        need = (
            PEAK
            * EXPECTED_BOUNDS
            * (ENTRY_BYTES * _entries(plane, group_of) + BOUND_BYTES * count)
        )
        if need <= memory or count == 1:
            return group_of
        count = (count + 1) // 2


def fit_unseen(
    n_examples: int, base: Matrix, memory: int, online: bool = False
) -> bool:
    """Whether bounds of a group for each example fit into the memory even if all have twice the base's entries.

    Then nobody has to look at the first bounds to know. With `online` examples are answered one after the other.
    """
    entries = 2 * int(base.nnz) * (ONLINE_SHARE if online else 1.0)
    return (
        PEAK * EXPECTED_BOUNDS * (ENTRY_BYTES * entries + BOUND_BYTES * n_examples)
        <= memory
    )


def _consecutive(n_examples: int, count: int) -> Indices:
    return (np.arange(n_examples) * count) // n_examples


def _entries(plane: Matrix, group_of: Indices) -> int:
    """Entries of the rows' sums by group."""
    return int(sum_rows_by_group(sp.csr_array(plane), group_of).nnz)


def sum_rows_by_group(rows: Matrix, group_of: Indices) -> Matrix:
    """(G, d) CSR: the sums of sparse rows (n, d) over each group."""
    n = len(group_of)
    n_groups = int(group_of.max(initial=-1)) + 1
    if n == n_groups and (group_of == np.arange(n)).all():
        return rows
    sums = sp.csr_array((np.ones(n), (group_of, np.arange(n))), shape=(n_groups, n))
    return sp.csr_array(sums @ rows)


def sums(values: Array, group_of: Indices, n_groups: int) -> Array:
    """(G,) the sums of values (n,) over each group."""
    return np.asarray(
        np.bincount(group_of, weights=values, minlength=n_groups), dtype=float
    )


def group_keys(group_of: Indices, keys: Sequence[bytes]) -> list[bytes]:
    """A fingerprint of each group: that of its examples together."""
    digests = [blake2b(digest_size=16) for _ in range(int(group_of.max()) + 1)]
    for g, key in zip(group_of, keys, strict=True):
        digests[g].update(key)
    return [digest.digest() for digest in digests]


UNLIMITED = 2**62


class Bundle:
    """Bounds ⟨base_g + a_k, w⟩ + base_offset_g + b_k, each under the sum of C_n over the examples of its group g.

    What the bounds of a group have in common, for structured outputs most of their features, is kept once: `base`,
    any linear function, for instance the reward's. `slopes` (K, d) are the sparse differences a_k from it; `offsets`
    b_k, `group`, `alpha` (the dual weight of Theorem 1, summing to one in each group) and `idle` (model updates since
    alpha was last positive) have one entry for each bound. `memory` limits the bytes that all of it takes, while
    arrays are being replaced too.
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
            self.base_offsets = sums(base.offsets, group_of, self.n_groups)
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
        """What all groups' bases add to the linear term and to the constant: Σ_g base_g (d,) and Σ_g base_offset_g."""
        return sums(
            self.base.data, self.base.indices, self.n_features
        ), self.shared_offset

    @property
    def shared_offset(self) -> float:
        """Σ_g base_offset_g."""
        return float(self.base_offsets.sum())

    @property
    def nbytes(self) -> int:
        """Memory that the bounds take, with their inner products if they are all computed."""
        return ENTRY_BYTES * int(self.base.nnz) + self._bytes(
            self.slopes.n_entries, self.group
        )

    def _bytes(self, n_entries: int, group: Indices) -> int:
        """Memory of bounds with so many entries and these groups, without the base."""
        pairs = int((np.bincount(group, minlength=self.n_groups) ** 2).sum())
        return ENTRY_BYTES * n_entries + BOUND_BYTES * len(group) + 8 * pairs

    def copy(self) -> Self:
        """A bundle that can change without changing this one; arrays are replaced on change, never written into."""
        return copy.copy(self)

    def sum_by_group(self, values: Array) -> Array:
        """(G,) sums over the examples of each group."""
        return sums(values, self.group_of, self.n_groups)

    def scores(self, w: Array) -> Array:
        """(K,) the value of each bound at w."""
        base = np.asarray(self.base @ w) + self.base_offsets
        return np.asarray(base[self.group] + self.slopes.multiply(w) + self.offsets)

    def values(self, w: Array) -> Array:
        """(G,) the model's value of each group at w; minus infinity for a group without bounds."""
        best = np.full(self.n_groups, -np.inf)
        np.maximum.at(best, self.group, self.scores(w))
        return best

    def add(self, linear: LinearBounds, w: Array, known: Array | None = None) -> int:
        """Add the bounds that say something new at w; returns how many. `known` are the model's `values(w)`."""
        value = self.sum_by_group(linear.values)
        model = self.values(w) if known is None else known
        new = np.flatnonzero(value > model + 1e-12 * (1 + np.abs(value)))
        return self._append(
            sum_rows_by_group(sp.csr_array(linear.features), self.group_of),
            linear.offsets,
            new,
        )

    def _append(self, slopes: Matrix, offsets: Array, new: Indices) -> int:
        """Add the bounds of some groups, where there are slopes (G, d) for all and offsets (N,) for all examples."""
        if not len(new):
            return 0
        return self.extend(slopes[new], self.sum_by_group(offsets)[new], new)

    def extend(self, slopes: Matrix, offsets: Array, group: Indices) -> int:
        """Add bounds with these slopes (n, d) and offsets (n,), one for each of these groups; room is made for them."""
        fresh = differences(slopes, self.base[group])
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
        """Let groups without dual weights start at their base, where that is itself a bound, as C ≥ R (losses.py)."""
        weights = np.bincount(self.group, weights=self.alpha, minlength=self.n_groups)
        bare = np.flatnonzero(weights <= 0)
        self.extend(self.base[bare], self.base_offsets[bare], bare)
        self.alpha[len(self) - len(bare) :] = 1.0

    def set_alpha(self, alpha: Array, is_slack: Mask | None = None) -> None:
        """Store the dual weights of a model update, and age the bounds that were inactive in it.

        A bound is inactive without dual weight, or if it `is_slack` at the model's minimum. A small weight proves
        nothing: bounds of a flat optimum share the weight of their group in small parts.
        """
        self.alpha = alpha
        active = alpha > 0 if is_slack is None else (alpha > 0) & ~is_slack
        self.idle = np.where(active, 0, self.idle + 1)

    def find_slack_bounds(self, w: Array, radius: float) -> Mask:
        """(K,) bounds that lie below another one of their group wherever ‖w' − w‖ ≤ radius.

        With radius = √(2 gap / λ) that ball holds the model's minimum, by strong convexity. An interior point leaves a
        little dual weight to such bounds too.
        """
        scores = self.scores(w)
        steepness = np.sqrt(self.slopes.squared_norms())
        # the highest value that a group certainly keeps within the ball, against what each bound can rise to
        assured = np.full(self.n_groups, -np.inf)
        np.maximum.at(assured, self.group, scores - radius * steepness)
        rounding = 1e-9 * (1.0 + np.abs(scores))
        return np.asarray(scores + radius * steepness + rounding < assured[self.group])

    def sorted_by_group(self) -> tuple[Indices, Indices]:
        """(K,) the bounds group by group, and (G + 1,) where each group begins among them."""
        return by_group(self.group, self.n_groups)

    def inner_products(self) -> gram.Gram:
        """⟨a_j, a_k⟩ within the groups; computed once for each pair of bounds."""
        self._gram = gram.updated(self._gram, self.slopes, *self.sorted_by_group())
        return self._gram

    def rebase(self) -> None:
        """Make the argmax_per_group bound of each group its base, and put the bounds in the order of the groups.

        The base was what the reward said at the start. Where little is annotated that changes from one CCCP iteration
        to the next, and the differences from it fill up; those from a bound that is active now are sparse again.
        """
        members, first = self.sorted_by_group()
        if not len(members):
            return
        gram = self.inner_products()
        alpha = normalize_dual_weights(self)
        references = argmax_per_group(alpha, members, first)
        bare = references < 0
        chosen = np.where(bare, members[0], references)
        shift = sp.csr_array(self.slopes.csr[chosen])
        if bare.any():  # a group without bounds keeps its base
            shift = sp.csr_array(sp.diags_array((~bare).astype(float)) @ shift)
        offsets = np.where(bare, 0.0, self.offsets[chosen])
        group = self.group[members]
        self.slopes = Rows.of(differences(self.slopes.csr[members], shift[group]))
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
        """Have these bounds instead, with their inner products, relative to the same bases."""
        self.slopes = slopes
        self.offsets = offsets
        self.group = group
        self.alpha = alpha
        self.idle = idle
        self._gram = products

    def set_base(self, base: LinearBounds) -> None:
        """Take another linear function of each group, for bounds that will be given relative to it (`replace`)."""
        self.base = sum_rows_by_group(sp.csr_array(base.features), self.group_of)
        self.base_offsets = self.sum_by_group(base.offsets)

    def relative_to(self, base: LinearBounds) -> None:
        """Keep the bounds as differences from another linear function of each group."""
        whole = sp.csr_array(self.slopes.csr + self.base[self.group])
        offsets = self.offsets + self.base_offsets[self.group]
        self.set_base(base)
        self.slopes = Rows.of(differences(whole, self.base[self.group]))
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
        """Drop every bound."""
        self.keep(np.zeros(len(self), dtype=bool))

    def prune(self, patience: int) -> None:
        """Drop bounds that were inactive for long; they do not carry the dual value, so the lower bound survives."""
        self.keep(self.idle <= patience)

    def make_room(self, n_entries: int, group: Indices) -> None:
        """Let so many entries, of bounds of these groups, be added within the memory.

        First go the bounds that were inactive for longest. Where that is not enough, the active bounds of the groups
        that have most are merged: a convex combination of bounds is a bound, and with the dual weights as its
        coefficients the model update's lower bound survives. At the least, each group is left with one bound.
        """

        def too_large() -> bool:
            whole = self._bytes(
                self.slopes.n_entries + n_entries, np.concatenate([self.group, group])
            )
            return PEAK * whole + ENTRY_BYTES * int(self.base.nnz) > self.memory

        while too_large() and (self.idle > 0).any():
            self.keep(self.idle < max(1, int(np.median(self.idle[self.idle > 0]))))
        while too_large():
            counts = np.bincount(self.group, minlength=self.n_groups)
            if counts.max(initial=0) <= 1:
                return
            self._merge(
                np.flatnonzero(counts >= max(2, int(np.median(counts[counts > 1]))))
            )

    def _merge(self, groups: Indices) -> None:
        """Replace the lighter half of the bounds of each of these groups, two at least, by their combination."""
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
        # without any dual weight, all are equally good
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
        """An empty bundle of another fit with the bounds of every group that is in both."""
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
        # a carried group keeps the base that its bounds are relative to
        source = np.arange(fresh.n_groups)
        source[place[place >= 0]] = fresh.n_groups + np.flatnonzero(place >= 0)
        bundle.base = sp.vstack([fresh.base, self.base], format="csr")[source]
        bundle.base_offsets = np.concatenate([fresh.base_offsets, self.base_offsets])[
            source
        ]
        # of several old groups that are alike, the bases may differ: the last one's is kept, and only its bounds
        last = np.full(fresh.n_groups, -1)
        last[place[place >= 0]] = np.flatnonzero(place >= 0)
        stays = (place[self.group] >= 0) & (last[place[self.group]] == self.group)
        bundle.slopes = self.slopes.select(np.flatnonzero(stays))
        bundle.offsets = self.offsets[stays]
        bundle.group = place[self.group][stays]
        bundle.alpha = self.alpha[stays]
        bundle.idle = np.zeros(int(stays.sum()), dtype=np.intp)
        return bundle


def by_group(group: Indices, n_groups: int) -> tuple[Indices, Indices]:
    """(K,) bounds sorted by their group, and (G + 1,) where each group begins among them."""
    members = np.argsort(group, kind="stable")
    return members, np.searchsorted(group[members], np.arange(n_groups + 1))


def normalize_dual_weights(bundle: Bundle) -> Array:
    """The bundle's α, scaled to sum to one in each group; a group that has none yet starts at its newest bound."""
    alpha = np.maximum(bundle.alpha, 0.0)
    totals = np.bincount(bundle.group, weights=alpha, minlength=bundle.n_groups)
    newest = np.zeros(bundle.n_groups, dtype=np.intp)
    newest[bundle.group] = np.arange(len(bundle))
    bare = np.flatnonzero(
        (totals <= 0) & (np.bincount(bundle.group, minlength=bundle.n_groups) > 0)
    )
    alpha[newest[bare]] = 1.0
    totals[bare] = 1.0
    return np.asarray(alpha / totals[bundle.group])


def argmax_per_group(alpha: Array, members: Indices, first: Indices) -> Indices:
    """(G,) the bound of each group with the largest α; −1 for a group without bounds. `members` are sorted by group."""
    order = members[
        np.lexsort(
            (-alpha[members], np.repeat(np.arange(len(first) - 1), np.diff(first)))
        )
    ]
    return np.where(
        np.diff(first) > 0, order[np.minimum(first[:-1], len(order) - 1)], -1
    )


def dual_value(bundle: Bundle, v: Array, lam: float, alpha: Array) -> float:
    """Eq. 14, with several groups: a lower bound on the model's minimum for every α on the simplices."""
    shared, constant = bundle.shared
    u = v + shared + bundle.slopes.combine(alpha)
    return constant + float(dot(bundle.offsets, alpha)) - float(dot(u, u)) / (2 * lam)
