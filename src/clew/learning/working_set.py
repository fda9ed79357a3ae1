"""Bounds in arrays with room at the end, linked by group, with α and the w that moves along: what passes work on.

A `Bundle` replaces its arrays when it changes, which costs in proportion to all bounds. A pass that learns while it
looks (stochastic.py) changes something at every example: here a new bound, a step in α and the move of w cost in
proportion to the entries of the bounds of one group, whatever the number of weights and of other groups.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.learning._frank_wolfe_kernels import (
    Bounds,
    append,
    combine,
    compact,
    copy_products,
    link,
    multiply_all,
    visit_groups,
)
from clew.learning.bounds import Bundle, by_group, normalize_dual_weights
from clew.learning.gram import Gram, places
from clew.learning.groups import PEAK
from clew.learning.sparse_rows import ENTRY_BYTES, Rows
from clew.learning.task import Array, Indices, Kept, Layout, Mask, dot

ROOM = 1.25
"""Capacity over need when arrays move."""
ROW_COST = 56
"""Bytes of a bound beside its entries."""


class WorkingSet:
    """The bounds of a bundle with α and w(α) = −(v + Σ α_k a_k) / λ, Eq. 15, in a layout of the columns that suits."""

    def __init__(self, bundle: Bundle, lam: float, layout: Layout) -> None:
        self.bundle, self.lam, self.layout = bundle, lam, layout
        self.dense = np.zeros(bundle.n_features)
        """Scratch for compiled code, zero between two calls."""
        self.w, self.v = np.zeros(0), np.zeros(0)
        self.n_rows = 0
        self.bounds: Bounds
        self.load_bounds()

    def load_bounds(self) -> None:
        """Take the bounds and dual weights of the bundle."""
        rows, n, n_groups = self.bundle.slopes, len(self.bundle), self.bundle.n_groups
        gram = self.bundle.inner_products()
        indices = self.layout.columns_in(rows.indices)
        whole = np.int64
        self.bounds = Bounds(
            rows.data.copy(), indices.astype(np.uint32), rows.indptr.copy(), self.bundle.offsets.copy(),
            normalize_dual_weights(self.bundle), self.bundle.idle.astype(whole), np.full(n, -1, whole),
            self.bundle.group.astype(whole), np.full(n, -1, whole), np.full(n_groups, -1, whole),
            np.zeros(n_groups, whole), gram.blocks.copy(), gram.start[:n_groups].astype(whole), gram.size.astype(whole),
        )  # fmt: skip
        self.n_rows = n
        self._link()

    def store_bounds(self) -> None:
        """Give bounds and dual weights back to the bundle."""
        b, n, bundle = self.bounds, self.n_rows, self.bundle
        end = int(b.begins[n])
        columns = self.layout.columns_out(b.indices[:end]).astype(np.int32)
        shape = (n, bundle.n_features)
        rows = Rows.of(
            sp.csr_array((b.data[:end], columns, b.begins[: n + 1]), shape=shape)
        )
        group = b.group[:n].astype(np.intp)
        members, first = by_group(group, bundle.n_groups)
        products = Gram(b.products, b.start, b.room, places(members, first))
        bundle.replace(
            rows,
            b.offsets[:n].copy(),
            group,
            b.alpha[:n].copy(),
            b.idle[:n].copy(),
            products,
        )

    def set_linear_term(self, v: Array) -> None:
        """Take a linear term, in the order of the bundle; w is computed anew from α."""
        self.v = self.layout.vector_in(v + self.bundle.shared[0])
        b = self.bounds
        total = self.v.copy()
        combine(b.data, b.indices, b.begins, b.alpha, self.n_rows, total)
        self.w = total / -self.lam

    def dual_value(self) -> float:
        """Eq. 14 at α, but for the constant of the linear term."""
        b, n = self.bounds, self.n_rows
        reached = float(dot(b.offsets[:n], b.alpha[:n])) - 0.5 * self.lam * float(
            dot(self.w, self.w)
        )
        return self.bundle.shared_offset + reached

    @property
    def weights(self) -> Array:
        """W in the order of the bundle."""
        return self.layout.vector_out(self.w)

    @property
    def n_entries(self) -> int:
        """Entries that are stored."""
        return int(self.bounds.begins[self.n_rows])

    def reserve(self, n_rows: int, n_entries: int, groups: Indices) -> None:
        """Make room for so many bounds more, of these groups, with so many entries, within the bundle's memory."""

        def too_large() -> bool:
            need = ENTRY_BYTES * (self.n_entries + n_entries) + ROW_COST * (
                self.n_rows + n_rows
            )
            need += 8 * int((self._rooms(groups) ** 2).sum())
            return PEAK * need > self.bundle.memory

        if too_large():
            self.keep(self.bounds.alpha[: self.n_rows] > 0)
        if too_large():  # merging the active bounds is the bundle's business
            self.store_bounds()
            self.bundle.make_room(n_entries, groups)
            self.load_bounds()
        b = self.bounds
        if self.n_rows + n_rows >= len(b.begins) or self.n_rows + n_rows > len(
            b.offsets
        ):
            rows = int(ROOM * (self.n_rows + n_rows)) + 2
            names = ("offsets", "alpha", "idle", "tags", "group", "following")
            grown = {
                name: _grown(getattr(b, name), rows, self.n_rows) for name in names
            }
            b = b._replace(begins=_grown(b.begins, rows + 1, self.n_rows + 1), **grown)
        if self.n_entries + n_entries > len(b.data):
            entries = int(ROOM * self.n_entries) + n_entries
            b = b._replace(
                data=_grown(b.data, entries, self.n_entries),
                indices=_grown(b.indices, entries, self.n_entries),
            )
        self.bounds = b
        self._make_room_for_products(groups)

    def _rooms(self, groups: Indices) -> NDArray[np.int64]:
        """(G,) for how many bounds each group should have inner products, with one more in each of these."""
        sizes = self.bounds.sizes + 0
        sizes[groups] += 1
        return np.asarray(sizes + sizes // 2)

    def _make_room_for_products(self, groups: Indices) -> None:
        """Larger blocks of inner products, where some of these groups are full."""
        b = self.bounds
        if not (b.sizes[groups] >= b.room[groups]).any():
            return
        room = self._rooms(groups)
        start = np.cumsum(room**2) - room**2
        products = np.zeros(int((room**2).sum()))
        copy_products(b, products, start, room)
        self.bounds = b._replace(products=products, start=start, room=room)

    def multiply(self, groups: Indices) -> None:
        """Compute the inner products of these groups anew, after their bounds have changed."""
        multiply_all(self.bounds, groups, self.dense)

    def keep(self, mask: Mask) -> None:
        """Drop the bounds that are not in the mask."""
        self.n_rows = int(compact(self.bounds, mask, self.n_rows))
        self._link()

    def age(self, patience: int) -> None:
        """A pass has ended: drop the bounds that were inactive for longer than `patience` passes."""
        b, n = self.bounds, self.n_rows
        b.idle[:n] = np.where(b.alpha[:n] > 0, 0, b.idle[:n] + 1)
        keep = b.idle[:n] <= patience
        if not keep.all():
            self.keep(keep)

    def append(self, rows: sp.csr_array, offsets: Array, groups: Indices) -> None:
        """Add the bounds that say something new at w, one for each of these groups, relative to the bundle's bases."""
        self.reserve(rows.shape[0], int(rows.indptr[-1]), groups)
        indices = self.layout.columns_in(rows.indices).astype(np.uint32)
        before = self.n_rows
        self.n_rows = int(
            append(
                self.bounds,
                before,
                rows.data,
                indices,
                rows.indptr,
                offsets,
                groups,
                self.w,
                self.dense,
            )
        )
        self.bundle.added += self.n_rows - before

    def visit(self, groups: Indices, steps: int, gaps: Array) -> None:
        """Pairwise steps on each of these groups, in order; their gaps before go to `gaps` (G,)."""
        visit_groups(self.bounds, groups, self.w, self.lam, steps, gaps)

    def _link(self) -> None:
        link(self.bounds, self.n_rows)


def _grown(array: NDArray[Kept], size: int, used: int) -> NDArray[Kept]:
    """The array in a larger one; what lies beyond its used part is not set."""
    larger = np.empty(size, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
