"""Block-coordinate Frank–Wolfe on the dual (Lacoste-Julien et al. 2013).

A pass visits the groups in random order. The argmax at the current w gives a group a
new bound, and pairwise steps on the group's bounds move its α and w at once (Osokin et
al. 2016; Shah et al. 2015). Every α on the simplices gives a lower bound, and one exact
pass at a single w certifies the result. Until then, the sum of the groups' gaps, each
measured when its group was visited, estimates the gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.learning._frank_wolfe_kernels import (
    Bounds,
    append_rows,
    make_scratch,
    sweep_groups,
)
from clew.learning.algorithm import STOCHASTIC_GROUPS, STOCHASTIC_WEIGHTS, Algorithm
from clew.learning.bounds import (
    PEAK,
    Bundle,
    dual_value,
    fits_in_memory,
    normalize_dual_weights,
    sort_by_group,
    sum_by_group,
    sum_rows_by_group,
)
from clew.learning.gram import Gram, fill_blocks, find_slots
from clew.learning.losses import LinearBounds, Loss
from clew.learning.model_update import Regulariser, choose_solver
from clew.learning.sparse_rows import ENTRY_BYTES, Rows, subtract_sparse
from clew.learning.task import (
    Array,
    Indices,
    Kept,
    Layout,
    Mask,
    OnlineOracle,
    SameOrder,
    Space,
    Task,
    dot,
)

ROOM = 1.25
"""Capacity over need when arrays are reallocated."""
FILLED = 0.8
"""Share of bounds in use below which the others are dropped."""
ROW_COST = 56
"""Bytes of a bound beside its entries."""


class WorkingSet:
    """Bounds of a bundle with α and w(α) = −(v + Σ α_k a_k) / λ, Eq. 15.

    The columns are in the order of the oracle's layout.
    """

    def __init__(self, bundle: Bundle, lam: float, layout: Layout) -> None:
        self.bundle = bundle
        self.lam = lam
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
        b = self.bounds
        n = self.n_rows
        end = self.n_entries
        content = (b.data[:end], b.indices[:end].view(np.int32), b.indptr[: n + 1])
        slopes = sp.csr_array(content, shape=(n, len(self.v)))
        self.w = (self.v + slopes.T @ b.alpha[:n]) / -self.lam

    def dual_value(self) -> float:
        """Return Eq. 14 at α, without the constant of the linear term."""
        b = self.bounds
        n = self.n_rows
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
        sweep_groups(
            self.bounds,
            rng.permutation(groups),
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


Evaluate = Callable[[Array, Indices], LinearBounds]
"""Maps w and examples to C_n and its subgradients."""


@dataclass(frozen=True)
class StochasticSettings:
    """Batches of a pass and sweeps over cached bounds."""

    batches: int = 12
    """Batches in a full pass, if the task has no online oracle.

    More batches evaluate the argmax at a more recent w, but a pass costs more.
    """
    period: int = 4
    """The first `period` passes and then every `period`-th visit all groups.

    The others visit groups with a gap above `far` times the mean.
    """
    far: float = 0.3
    sweeps: int = 6
    """Sweeps over the cached bounds of such groups after each pass.

    They cost a fraction of it. Three took a third more passes and a fifth more time
    (letters, partial annotation; 1,000 sentences).
    """
    steps: int = 4
    """Pairwise steps in one visit to a group."""
    cached_sweeps: int = 100
    """Largest number of sweeps over recycled bounds before the first pass."""
    patience: int = 3
    """Passes that a bound may be inactive before it is dropped."""
    chunk: int = 2**21
    """Entries reserved at a time."""


DEFAULTS = StochasticSettings()


class FrankWolfeState:
    """α on the bundle with w(α), and the gap of each group at its last visit.

    With an `oracle` the argmax handles one example at a time, otherwise `evaluate`
    handles batches.
    """

    def __init__(
        self,
        bundle: Bundle,
        lam: float,
        evaluate: Evaluate,
        oracle: OnlineOracle | None = None,
        settings: StochasticSettings = DEFAULTS,
    ) -> None:
        self.bundle = bundle
        self.evaluate = evaluate
        self.oracle = oracle
        self.settings = settings
        self.set = WorkingSet(bundle, lam, oracle or SameOrder())
        self.gaps = np.full(bundle.n_groups, np.inf)
        self.passes = 0

    def groups_with_large_gap(self) -> Indices:
        """Return the groups with a gap above a share of the mean."""
        return np.flatnonzero(self.gaps > self.settings.far * self.gaps.mean())

    @property
    def estimate(self) -> float:
        """Sum of the groups' gaps at their last visits, an estimate of the gap at w."""
        return float(self.gaps.sum())

    def set_linear_term(self, v: Array) -> None:
        """Set the linear term; the groups' gaps are unknown until the next pass."""
        self.set.set_linear_term(v)
        self.gaps[:] = np.inf

    def run_pass(self, rng: np.random.Generator) -> float:
        """Visit all groups, or those with a large gap; return the share visited."""
        unknown = self.passes < self.settings.period or not np.isfinite(self.estimate)
        full = unknown or self.passes % self.settings.period == 0
        chosen = (
            np.arange(self.bundle.n_groups) if full else self.groups_with_large_gap()
        )
        self.passes += 1
        order = rng.permutation(chosen)
        if self.oracle is None:
            self._visit_batches(order, rng)
        else:
            self._visit_one_at_a_time(order, self.oracle)
        # the sweeps measure only cached bounds
        self.set.sweep(
            np.arange(self.bundle.n_groups),
            self.settings.steps,
            self.gaps.copy(),
            rng,
            max_sweeps=self.settings.sweeps,
            far=self.settings.far,
        )
        self.set.age(self.settings.patience)
        return len(chosen) / self.bundle.n_groups

    def sweep_cached_bounds(self, precision: float, rng: np.random.Generator) -> None:
        """Sweep over the cached bounds until their summed gap is at most `precision`.

        After a change of λ or of the linear term this is far cheaper than a pass.
        """
        self.set.sweep(
            np.arange(self.bundle.n_groups),
            self.settings.steps,
            np.full(self.bundle.n_groups, np.inf),
            rng,
            max_sweeps=self.settings.cached_sweeps,
            precision=precision,
        )

    def _visit_one_at_a_time(self, order: Indices, oracle: OnlineOracle) -> None:
        """Visit groups of one example each with the oracle, in chunks that fit."""
        need = oracle.capacity(order)
        for chunk in np.array_split(order, 1 + need // self.settings.chunk):
            self.set.reserve(len(chunk), oracle.capacity(chunk), chunk)
            oracle.run(self.set, chunk, self.settings.steps, self.gaps)

    def _visit_batches(self, order: Indices, rng: np.random.Generator) -> None:
        """Visit groups in batches.

        All passes have batches of the same size: each costs in proportion to the
        weights.
        """
        bundle = self.bundle
        count = max(1, round(self.settings.batches * len(order) / bundle.n_groups))
        for batch in np.array_split(order, count):
            groups = np.sort(batch)
            is_in_batch = np.zeros(bundle.n_groups, dtype=bool)
            is_in_batch[groups] = True
            examples = np.flatnonzero(is_in_batch[bundle.group_of])
            linear = self.evaluate(self.set.weights, examples)
            local = np.searchsorted(groups, bundle.group_of[examples])
            slopes = subtract_sparse(
                sum_rows_by_group(sp.csr_array(linear.features), local),
                bundle.base[groups],
            )
            offsets = (
                sum_by_group(linear.offsets, local, len(groups))
                - bundle.base_offsets[groups]
            )
            self.set.append(slopes, offsets, groups)
            self.set.sweep(batch, self.settings.steps, self.gaps, rng)


WINDOW = 8
PROGRESS = 0.8
"""Stop the passes if the gap is above this share of that WINDOW passes earlier."""
FLOOR = 0.01
"""Stop the passes if the estimate is below this share of an unconfirmed precision."""
TIGHTER = 0.6
"""Factor on the target if the certified gap was larger than the estimate."""


def uses_stochastic_phase(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    n_groups: int,
) -> bool:
    """Return whether a fit has a stochastic phase.

    By default it has one if the task has an online oracle. Batches pay only with many
    groups that each concern few of the weights.
    """
    if regulariser == "l1" or algorithm.stochastic is False:
        return False
    if algorithm.stochastic is True:
        return True
    if algorithm.solver == "interior-point":
        return False
    if answers_one_at_a_time(task, loss) and n_groups == task.n_examples:
        return True
    by_ascent = choose_solver(algorithm.solver, task.n_features) == "ascent"
    is_large = task.is_online or task.n_features >= STOCHASTIC_WEIGHTS
    return by_ascent and is_large and n_groups >= STOCHASTIC_GROUPS


def answers_one_at_a_time(task: Task, loss: Loss) -> bool:
    """Return whether the task's online oracle supports this loss.

    It needs one group per example.
    """
    if loss.reward is None or not task.is_online:
        return False
    if loss.penalty is Space.INCOMPATIBLE:
        return loss.reward is Space.COMPATIBLE
    return loss.penalty is Space.ALL and loss.margin == 0


def knows_groups_in_advance(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    reward: LinearBounds,
) -> bool:
    """Return whether the groups are known before the first evaluation of C.

    If so, a stochastic phase can start at once.
    """
    base = sp.csr_array(reward.features)
    online = answers_one_at_a_time(task, loss)
    fits = algorithm.groups == "auto" and fits_in_memory(
        task.n_examples, base, algorithm.memory, online
    )
    phased = uses_stochastic_phase(algorithm, regulariser, task, loss, task.n_examples)
    return fits and loss.reward is not None and phased


@dataclass(frozen=True)
class Watch:
    """Callbacks of a stochastic phase into its fit."""

    reward: Callable[[Array], LinearBounds]
    """Evaluates R_n and its subgradients at w."""
    passed: Callable[[float, float], None]
    """Called after a pass with its share of the examples and its seconds."""
    progress: Callable[[float, float, float], None]
    """Called with estimated gap, lower bound and precision, as sums over examples."""
    over: Callable[[], object]
    """Returns a true value once a limit is reached."""


class StochasticPhase:
    """CCCP by Frank–Wolfe passes on a bundle; sums over examples, as in `cccp`."""

    def __init__(
        self,
        task: Task,
        loss: Loss,
        lam: float,
        algorithm: Algorithm,
        bundle: Bundle,
        evaluate: Evaluate,
        watch: Watch,
    ) -> None:
        self.task = task
        self.loss = loss
        self.lam = lam
        self.algorithm = algorithm
        self.watch = watch
        self.bundle = bundle
        self.evaluate = evaluate
        self.rng = np.random.default_rng(algorithm.random_state)
        self.interrupted = self.fixed_reward = False
        self.exhausted = False
        """Whether passes no longer reduce the gap, so that exact updates pay."""
        self.point: FrankWolfeState
        self.constant = 0.0
        self.target = np.inf
        """Estimate at which passes end; below the precision if that was optimistic."""

    def run(self, w: Array, reward: LinearBounds) -> Array:
        """Run CCCP from w with the reward at w; return the last w.

        After Ctrl-C, the current state is returned.
        """
        oracle = self._make_oracle(w)
        if oracle is not None and len(self.bundle):
            # bounds of an earlier fit may have other bases
            self.bundle.relative_to(reward)
        if self.loss.reward is not None:
            self.bundle.start_at_base()
        self.point = FrankWolfeState(self.bundle, self.lam, self.evaluate, oracle)
        self.fixed_reward = oracle is not None and oracle.fixed_reward
        try:
            self._run_iterations(reward)
        except KeyboardInterrupt:
            self.interrupted = True
        self.point.set.store_bounds()
        return self.point.set.weights

    def _run_iterations(self, reward: LinearBounds) -> None:
        """Iterate CCCP until J falls by at most η, or until passes make no progress.

        At full precision the dual value equals J to within the precision.
        """
        options = self.algorithm
        n = self.task.n_examples
        convex = self.fixed_reward or self.loss.reward is None
        precision = options.epsilon
        before = np.inf
        while True:
            precision = (
                max(precision * options.rho, options.tol)
                if options.adaptive and not convex
                else options.tol
            )
            self.constant = -float(reward.offsets.sum())
            self.point.set_linear_term(-np.asarray(reward.features.sum(axis=0)).ravel())
            self.point.sweep_cached_bounds(precision * n, self.rng)
            self._run_passes(precision * n)
            value = self.point.set.dual_value() + self.constant
            settled = precision <= options.tol and (
                convex or before - value <= options.eta * n
            )
            if settled or self.exhausted or self.watch.over():
                return
            before = value
            w = self.point.set.weights
            reward = self.watch.reward(w)
            if self.point.oracle is not None:
                self.point.oracle.follow(self.point.set, w)
                self.bundle.set_base(reward)

    def update(self, v: Array, precision: float) -> tuple[Array, float]:
        """Run passes on the current bundle to the given precision.

        Returns
        -------
        w : ndarray of shape (n_features,)
        lower_bound : float
        """
        self.target = min(TIGHTER * self.target, precision)
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._run_passes(self.target)
        self.exhausted |= self.target < FLOOR * precision
        self.point.set.store_bounds()
        return self.point.set.weights, dual_value(
            self.bundle, v, self.lam, self.bundle.alpha
        )

    def run_single_pass(self, v: Array) -> None:
        """Run one pass on the current bundle."""
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._run_pass(np.nan)
        self.point.set.store_bounds()

    def _run_passes(self, precision: float) -> None:
        """Run passes until the estimated gap is small enough, or progress ends."""
        estimates: list[float] = []
        while True:
            self._run_pass(precision)
            estimates.append(self.point.estimate)
            self.target = estimates[-1]
            self.exhausted = (
                len(estimates) > WINDOW
                and estimates[-1] > PROGRESS * estimates[-1 - WINDOW]
            )
            if estimates[-1] <= precision or self.exhausted or self.watch.over():
                return

    def _run_pass(self, precision: float) -> None:
        """Run one pass and report it."""
        began = time.perf_counter()
        share = self.point.run_pass(self.rng)
        if self.point.oracle is not None:  # batches are counted in `evaluate`
            self.watch.passed(share, time.perf_counter() - began)
        self.watch.progress(
            self.point.estimate, self.point.set.dual_value() + self.constant, precision
        )

    def _make_oracle(self, w: Array) -> OnlineOracle | None:
        """Return the task's online oracle if loss and groups allow it."""
        possible = (
            answers_one_at_a_time(self.task, self.loss)
            and self.bundle.n_groups == self.task.n_examples
        )
        return self.task.online(w, self.loss) if possible else None
