"""Bounds of a bundle in arrays with spare capacity, for Frank–Wolfe steps."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.learning._frank_wolfe_kernels import (
    Bounds,
    append_rows,
    make_scratch,
    sweep_groups,
)
from clew.learning.bounds import PEAK, Bundle, normalize_dual_weights, sort_by_group
from clew.learning.gram import Gram, fill_blocks, find_slots
from clew.learning.sparse_rows import ENTRY_BYTES, Rows
from clew.learning.task import Array, Indices, Kept, Layout, Mask, dot

ROOM = 1.25
"""Capacity over need when arrays are reallocated."""
FILLED = 0.8
"""Share of bounds in use below which the others are dropped."""
ORDERS = 3
"""Random orders of the groups, which sweeps take in turn.

With one order, fits to partially annotated letters took a sixth more passes (λ = 1).
"""
ROW_COST = 56
"""Bytes of a bound beside its entries."""


class WorkingSet:
    """Bounds of a bundle with α and w(α) = −(v + Σ α_k a_k) / λ, Eq. 15.

    The columns are in the order of the oracle's layout. With a proximal term
    κ/2 ‖w − c‖² beside the regularizer, v − κc takes the place of v, and λ + κ that
    of λ.
    """

    def __init__(self, bundle: Bundle, lam: float, layout: Layout) -> None:
        self.bundle = bundle
        self.lam = lam
        """λ + κ."""
        self.pull = 0.0
        """κ."""
        self.center = np.zeros(bundle.n_features)
        """The vector c of the proximal term."""
        self.layout = layout
        self.dense = np.zeros(bundle.n_features)
        """Scratch for compiled code; zero between calls."""
        self.w = np.zeros(0)
        self.v = np.zeros(0)
        self.n_rows = 0
        self.bounds: Bounds
        self.idle: NDArray[np.int64]
        """Passes since α was last positive, for each bound."""
        self.tags: NDArray[np.int64]
        """By which an oracle recognizes the output of each bound, or −1."""
        self.load_bounds()

    def load_bounds(self) -> None:
        """Copy the bounds and dual weights from the bundle."""
        rows = self.bundle.slopes
        n = len(self.bundle)
        n_groups = self.bundle.n_groups
        gram = self.bundle.inner_products()
        indices = self.layout.columns_in(rows.indices)
        self.bounds = Bounds(
            rows.data.copy(),
            indices.astype(np.uint32),
            rows.indptr.copy(),
            self.bundle.offsets.copy(),
            normalize_dual_weights(self.bundle),
            self.bundle.group.astype(np.int64),
            np.full(n, -1, np.int64),
            np.full(n_groups, -1, np.int64),
            np.zeros(n_groups, np.int64),
            gram.blocks.copy(),
            gram.start[:n_groups].astype(np.int64),
            gram.size.astype(np.int64),
        )
        self.idle = self.bundle.idle.astype(np.int64)
        self.tags = np.full(n, -1, np.int64)
        self.n_rows = n
        self._link()

    def store_bounds(self) -> None:
        """Write bounds and dual weights back to the bundle."""
        b = self.bounds
        n = self.n_rows
        bundle = self.bundle
        end = int(b.indptr[n])
        columns = self.layout.columns_out(b.indices[:end]).astype(np.int32)
        shape = (n, bundle.n_features)
        rows = Rows.of(
            sp.csr_array((b.data[:end], columns, b.indptr[: n + 1]), shape=shape)
        )
        group = b.group[:n].astype(np.intp)
        members, first = sort_by_group(group, bundle.n_groups)
        products = Gram(b.products, b.start, b.room, find_slots(members, first))
        bundle.replace(
            rows,
            b.offsets[:n].copy(),
            group,
            b.alpha[:n].copy(),
            self.idle[:n].copy(),
            products,
        )

    def set_linear_term(self, v: Array) -> None:
        """Set the linear term, in the order of the bundle, and recompute w from α."""
        self.v = self.layout.vector_in(v + self.bundle.shared[0])
        self._recompute_weights()

    def set_proximal_term(self, pull: float, center: Array) -> None:
        """Set κ and c, in the order of the bundle, and recompute w from α."""
        self.lam += pull - self.pull
        self.pull = pull
        self.center = self.layout.vector_in(center)
        self._recompute_weights()

    def _recompute_weights(self) -> None:
        """Compute w(α)."""
        b = self.bounds
        n = self.n_rows
        end = self.n_entries
        content = (b.data[:end], b.indices[:end].view(np.int32), b.indptr[: n + 1])
        slopes = sp.csr_array(content, shape=(n, len(self.v)))
        self.w = (self.v - self.pull * self.center + slopes.T @ b.alpha[:n]) / -self.lam

    def move_center(self) -> None:
        """Make w the center; w moves with it."""
        change = self.w - self.center
        self.center = self.w.copy()
        self.w += (self.pull / self.lam) * change

    def proximal_term(self) -> float:
        """Return κ/2 ‖w − c‖²."""
        change = self.w - self.center
        return 0.5 * self.pull * float(dot(change, change))

    def correction_cost(self) -> float:
        """Return the κ at which a whole dual weight corrects a bound at w = 0.

        That is the mean ‖a‖² over the mean offset of the bounds.
        """
        data = self.bounds.data[: self.n_entries]
        norms = float(dot(data, data))
        offsets = float(self.bounds.offsets[: self.n_rows].sum())
        return norms / offsets if offsets > 0 else 0.0

    def dual_value(self) -> float:
        """Return Eq. 14 at α, without the constant of the linear term."""
        b = self.bounds
        n = self.n_rows
        reached = float(dot(b.offsets[:n], b.alpha[:n])) - 0.5 * self.lam * float(
            dot(self.w, self.w)
        )
        reached += 0.5 * self.pull * float(dot(self.center, self.center))
        return self.bundle.shared_offset + reached

    @property
    def weights(self) -> Array:
        """W in the order of the bundle."""
        return self.layout.vector_out(self.w)

    @property
    def n_entries(self) -> int:
        """Number of stored entries."""
        return int(self.bounds.indptr[self.n_rows])

    def reserve(self, n_rows: int, n_entries: int, groups: Indices) -> None:
        """Make room for new bounds within the bundle's memory limit.

        Parameters
        ----------
        n_rows : int
            Number of new bounds.
        n_entries : int
            Their entries.
        groups : ndarray of int
            Groups that get at most one new bound each.
        """

        def too_large() -> bool:
            need = ENTRY_BYTES * (self.n_entries + n_entries) + ROW_COST * (
                self.n_rows + n_rows
            )
            need += 8 * int((self._product_capacity(groups) ** 2).sum())
            return PEAK * need > self.bundle.memory

        if too_large():
            self.keep(self.bounds.alpha[: self.n_rows] > 0)
        if too_large():  # the bundle merges active bounds
            self.store_bounds()
            self.bundle.make_room(n_entries, groups)
            self.load_bounds()
        b = self.bounds
        if self.n_rows + n_rows >= len(b.indptr) or self.n_rows + n_rows > len(
            b.offsets
        ):
            rows = int(ROOM * (self.n_rows + n_rows)) + 2
            names = ("offsets", "alpha", "group", "following")
            grown = {
                name: _grow_array(getattr(b, name), rows, self.n_rows) for name in names
            }
            b = b._replace(
                indptr=_grow_array(b.indptr, rows + 1, self.n_rows + 1), **grown
            )
            self.idle = _grow_array(self.idle, rows, self.n_rows)
            self.tags = _grow_array(self.tags, rows, self.n_rows)
        if self.n_entries + n_entries > len(b.data):
            entries = int(ROOM * self.n_entries) + n_entries
            b = b._replace(
                data=_grow_array(b.data, entries, self.n_entries),
                indices=_grow_array(b.indices, entries, self.n_entries),
            )
        self.bounds = b
        self._grow_product_blocks(groups)

    def _product_capacity(self, groups: Indices) -> NDArray[np.int64]:
        """Return (n_groups,) capacities with one more bound in each of these groups."""
        sizes = self.bounds.sizes + 0
        sizes[groups] += 1
        return np.asarray(sizes + sizes // 2)

    def _grow_product_blocks(self, groups: Indices) -> None:
        """Enlarge the blocks of inner products if one of these groups is full."""
        b = self.bounds
        if not (b.sizes[groups] >= b.room[groups]).any():
            return
        room = self._product_capacity(groups)
        start = np.cumsum(room**2) - room**2
        products = np.empty(int((room**2).sum()))
        self.bounds = b._replace(products=products, start=start, room=room)
        self._fill_products(b)

    def _fill_products(self, old: Bounds, slot: Indices | None = None) -> None:
        """Fill the blocks of inner products, with those of the old ones.

        Parameters
        ----------
        old : Bounds
        slot : ndarray of shape (n_rows,), optional
            Position of each bound in its group's old block, −1 if it was none; by
            default the present one.
        """
        b = self.bounds
        members, first = sort_by_group(b.group[: self.n_rows], len(b.sizes))
        new_slot = find_slots(members, first)
        fill_blocks(
            b.data,
            b.indices,
            b.indptr,
            self.dense,
            members,
            first,
            Gram(b.products, b.start, b.room, new_slot),
            Gram(old.products, old.start, old.room, new_slot if slot is None else slot),
        )

    def multiply(self) -> None:
        """Recompute the inner products after the bounds changed."""
        self._fill_products(self.bounds, np.full(self.n_rows, -1))

    def keep(self, mask: Mask) -> None:
        """Drop the bounds that are not in the mask."""
        b = self.bounds
        n = self.n_rows
        slot = find_slots(*sort_by_group(b.group[:n], len(b.sizes)))[mask]
        lengths = np.diff(b.indptr[: n + 1])
        is_kept = np.repeat(mask, lengths)
        kept = int(np.count_nonzero(mask))
        end = int(lengths[mask].sum())
        for entries in (b.data, b.indices):
            entries[:end] = entries[: len(is_kept)][is_kept]
        b.indptr[1 : kept + 1] = np.cumsum(lengths[mask])
        for values in (b.offsets, b.alpha, b.group, self.idle, self.tags):
            values[:kept] = values[:n][mask]
        self.n_rows = kept
        self._link()
        self._fill_products(b, slot)

    def age(self, patience: int) -> None:
        """End a pass: drop bounds inactive for more than `patience` passes."""
        idle = self.idle[: self.n_rows]
        idle += 1
        idle[self.bounds.alpha[: self.n_rows] > 0] = 0
        is_kept = idle <= patience
        if np.count_nonzero(is_kept) < FILLED * self.n_rows:
            self.keep(is_kept)

    def append(self, rows: sp.csr_array, offsets: Array, groups: Indices) -> None:
        """Add the bounds that are above the others of their group at w.

        Parameters
        ----------
        rows : csr_array of shape (n, n_features)
            Slopes relative to the bundle's bases.
        offsets : ndarray of shape (n,)
        groups : ndarray of shape (n,)
        """
        self.reserve(rows.shape[0], int(rows.indptr[-1]), groups)
        indices = self.layout.columns_in(rows.indices).astype(np.uint32)
        n_rows = append_rows(
            self.bounds,
            self.n_rows,
            rows.data,
            indices,
            rows.indptr,
            offsets,
            groups,
            self.w,
            self.dense,
            make_scratch(self.bounds, groups),
        )
        self.add_linked(n_rows)

    def add_linked(self, n_rows: int, tags: Indices | int = -1) -> None:
        """Count the bounds up to `n_rows`, which compiled code has written and linked.

        `tags` are those of the new bounds.
        """
        new = slice(self.n_rows, n_rows)
        self.idle[new] = 0
        self.tags[new] = tags
        self.bundle.added += n_rows - self.n_rows
        self.n_rows = n_rows

    def sweep(
        self,
        groups: Indices,
        steps: int,
        gaps: Array,
        rng: np.random.Generator,
        *,
        max_sweeps: int = 1,
        far: float = 0.0,
        precision: float = -1.0,
    ) -> None:
        """Take pairwise steps on groups in random order; write their prior gaps.

        The arguments are those of `sweep_groups`.
        """
        n_orders = min(max(max_sweeps, 1), ORDERS)
        sweep_groups(
            self.bounds,
            np.array([rng.permutation(groups) for _ in range(n_orders)]),
            self.w,
            self.lam,
            steps,
            gaps,
            far,
            precision,
            max_sweeps,
            make_scratch(self.bounds, groups),
        )

    def _link(self) -> None:
        """Rebuild the linked lists of the groups, the newest bound first."""
        b = self.bounds
        members, first = sort_by_group(b.group[: self.n_rows], len(b.sizes))
        b.sizes[:] = np.diff(first)
        b.following[members[1:]] = members[:-1]
        has_bounds = b.sizes > 0
        b.following[members[first[:-1][has_bounds]]] = -1
        b.head[:] = -1
        b.head[has_bounds] = members[first[1:][has_bounds] - 1]


def _grow_array(array: NDArray[Kept], size: int, used: int) -> NDArray[Kept]:
    """Copy the used part into a larger array; the rest is uninitialized."""
    larger = np.empty(size, dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
