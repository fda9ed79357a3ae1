"""Which examples share a group of bounds: each has its own where the memory allows it, else neighbours share one."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.sparse_rows import ENTRY_BYTES, ROW_BYTES
from clew.learning.task import Array, Indices, Matrix

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
    n, n_groups = len(group_of), int(group_of.max(initial=-1)) + 1
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
