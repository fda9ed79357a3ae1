"""The bundle: linear lower bounds under Σ_{n ∈ g} C_n(w), kept by group g of examples (Eqs. 11 and 12).

One group is the paper's method, a group for each example the tightest model. Bounds do not depend on λ, on v, or on
the other groups: they are recycled across CCCP iterations, across λ, and across fits for examples that did not change.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.losses import Linear
from clew.learning.task import Array, Indices, Mask, Matrix

EXPECTED_BOUNDS = 30
"""Bounds that a group is expected to need, unless the task knows; only used to choose the number of groups."""


class Bundle:
    """Bounds <a_k, w> + b_k, each under the sum of C_n over the examples of its group.

    `slopes` is a (K, d) CSR matrix of the a_k; `offsets`, `group`, `alpha` (the dual weight of Theorem 1, summing to
    one in each group) and `idle` (model updates since alpha was last positive) have one entry for each bound.
    """

    def __init__(self, n_features: int, group_of: Indices, keys: Sequence[bytes] | None = None) -> None:
        self.n_features = n_features
        self.group_of = group_of
        self.n_groups = int(group_of.max()) + 1
        self.keys = None if keys is None else group_keys(group_of, keys)
        self.slopes: Any = sp.csr_array((0, n_features))
        self.offsets: Array = np.zeros(0)
        self.group: Indices = np.zeros(0, dtype=np.intp)
        self.alpha: Array = np.zeros(0)
        self.idle: Indices = np.zeros(0, dtype=np.intp)
        self.added = 0
        self.gram: Any = None  # inner products within groups, kept by ascent.py

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Memory that the bounds take."""
        csr = self.slopes
        gram = 0 if self.gram is None else self.gram.nbytes
        return int(csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes + gram + 32 * len(self))

    def copy(self) -> Self:
        """A bundle that can change without changing this one; arrays are replaced on change, never written into."""
        return copy.copy(self)

    def sum_by_group(self, values: Array) -> Array:
        """(G,) sums over the examples of each group."""
        return np.asarray(np.bincount(self.group_of, weights=values, minlength=self.n_groups), dtype=float)

    def values(self, w: Array) -> Array:
        """(G,) the model's value of each group at w; minus infinity for a group without bounds."""
        best = np.full(self.n_groups, -np.inf)
        np.maximum.at(best, self.group, np.asarray(self.slopes @ w) + self.offsets)
        return best

    def add(self, linear: Linear, w: Array) -> int:
        """Add the bounds that say something new at w; returns how many."""
        slopes, offsets = self._summed(linear)
        value = np.asarray(slopes @ w) + offsets
        model = self.values(w)
        new = np.flatnonzero(value > model + 1e-12 * (1 + np.abs(value)))
        if len(new):
            fresh = slopes[new]
            fresh.sum_duplicates()
            self.slopes = sp.vstack([self.slopes, fresh], format="csr")
            self.offsets = np.concatenate([self.offsets, offsets[new]])
            self.group = np.concatenate([self.group, new])
            self.alpha = np.concatenate([self.alpha, np.zeros(len(new))])
            self.idle = np.concatenate([self.idle, np.zeros(len(new), dtype=np.intp)])
            self.added += len(new)
        return len(new)

    def set_alpha(self, alpha: Array) -> None:
        """Take over the dual weights of a model update."""
        self.alpha = alpha
        self.idle = np.where(alpha > 1e-9, 0, self.idle + 1)

    def keep(self, mask: Mask) -> None:
        """Drop the bounds that are not in the mask."""
        if mask.all():
            return
        self.slopes = self.slopes[np.flatnonzero(mask)]
        self.offsets, self.group = self.offsets[mask], self.group[mask]
        self.alpha, self.idle = self.alpha[mask], self.idle[mask]
        if self.gram is not None:
            self.gram = self.gram.kept(mask)

    def clear(self) -> None:
        """Drop every bound."""
        self.keep(np.zeros(len(self), dtype=bool))

    def prune(self, patience: int, memory: int) -> None:
        """Drop bounds that were inactive for long; where that is not enough, merge each group's active bounds.

        Bounds with alpha = 0 do not carry the dual value, and a convex combination of bounds is a bound: the model
        update's lower bound survives both.
        """
        self.keep(self.idle <= patience)
        while self.nbytes > memory and (self.idle > 0).any():
            self.keep(self.idle < max(1, int(np.median(self.idle[self.idle > 0]))))
        if self.nbytes > memory:
            self._aggregate()

    def carried_to(self, group_of: Indices, keys: Sequence[bytes] | None) -> Bundle:
        """A bundle for another set of examples with the bounds of every group that is in both."""
        bundle = Bundle(self.n_features, group_of, keys)
        if self.keys is not None and self.keys == bundle.keys and np.array_equal(self.group_of, group_of):
            bundle = self.copy()
            bundle.added, bundle.idle = 0, np.zeros(len(self), dtype=np.intp)
            return bundle
        if self.keys is None or bundle.keys is None or not len(self):
            return bundle
        index = {key: g for g, key in enumerate(bundle.keys)}
        target = np.array([index.get(key, -1) for key in self.keys], dtype=np.intp)[self.group]
        stays = target >= 0
        bundle.slopes = self.slopes[np.flatnonzero(stays)]
        bundle.offsets, bundle.group = self.offsets[stays], target[stays]
        bundle.alpha, bundle.idle = self.alpha[stays], np.zeros(int(stays.sum()), dtype=np.intp)
        return bundle

    def _summed(self, linear: Linear) -> tuple[Any, Array]:
        """Slopes (G, d) as CSR and offsets (G,) of an evaluation, summed by group."""
        features = sp.csr_array(linear.features)
        if self.n_groups == len(self.group_of):  # group_of is then a permutation, and by construction the identity
            return features, linear.offsets
        n = len(self.group_of)
        sums = sp.csr_array((np.ones(n), (self.group_of, np.arange(n))), shape=(self.n_groups, n))
        return sp.csr_array(sums @ features), self.sum_by_group(linear.offsets)

    def _aggregate(self) -> None:
        """Replace the bounds of each group by their combination with weights alpha."""
        mix = sp.csr_array((self.alpha, (self.group, np.arange(len(self)))), shape=(self.n_groups, len(self)))
        has = np.asarray(mix.sum(axis=1)).ravel() > 0
        merged: Any = sp.csr_array(mix @ self.slopes)
        self.slopes, self.offsets = merged[np.flatnonzero(has)], (mix @ self.offsets)[has]
        self.group, self.alpha = np.flatnonzero(has), np.ones(int(has.sum()))
        self.idle, self.gram = np.zeros(int(has.sum()), dtype=np.intp), None


def make_groups(
    n_examples: int, groups: int | str, plane: Matrix, memory: int, expected_bounds: int = EXPECTED_BOUNDS
) -> Indices:
    """(N,) the group of each example: consecutive examples share a group, groups are of almost equal size.

    "auto" is a group for each example where `expected_bounds` bounds for each fit into half of `memory` bytes, and as
    many groups as do fit otherwise; `plane` is an evaluation's (N, d) features, to measure from.
    """
    if groups == "auto":
        csr = sp.csr_array(plane)
        room = memory / 2 / expected_bounds
        one_each = 12 * csr.nnz + 40 * n_examples <= room
        # A group's bound is dense in the worst case: value and index of each of its d slopes.
        fits = n_examples if one_each else int(room / (12 * csr.shape[1] + 40))
        count = min(n_examples, max(1, fits))
    elif isinstance(groups, (int, np.integer)) and groups >= 1:
        count = min(int(groups), n_examples)
    else:
        raise InputError(f"groups must be 'auto' or a number of at least 1, not {groups!r}")
    return (np.arange(n_examples) * count) // n_examples


def group_keys(group_of: Indices, keys: Sequence[bytes]) -> list[bytes]:
    """A fingerprint of each group: that of its examples together."""
    digests = [blake2b(digest_size=16) for _ in range(int(group_of.max()) + 1)]
    for g, key in zip(group_of, keys, strict=True):
        digests[g].update(key)
    return [digest.digest() for digest in digests]
