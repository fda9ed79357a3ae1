"""Block-coordinate Frank–Wolfe on the dual (Lacoste-Julien et al. 2013).

A pass visits the groups in random order. The argmax at the current w gives a group a new
bound, and pairwise steps on the group's bounds move its α and w at once (Osokin et al.
2016; Shah et al. 2015). Every α on the simplices gives a lower bound, and one exact pass
at a single w certifies the result. Until then, the sum of the groups' gaps, each measured
when its group was visited, estimates the gap.
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
    append,
    combine,
    compact,
    copy_products,
    link,
    multiply_all,
    visit_groups,
)
from clew.learning.algorithm import STOCHASTIC_GROUPS, STOCHASTIC_WEIGHTS, Algorithm
from clew.learning.bounds import (
    PEAK,
    Bundle,
    by_group,
    dual_value,
    fit_unseen,
    normalize_dual_weights,
    sum_rows_by_group,
    sums,
)
from clew.learning.gram import Gram, places
from clew.learning.losses import LinearBounds, Loss
from clew.learning.model_update import Regulariser, choose_solver
from clew.learning.sparse_rows import ENTRY_BYTES, Rows, differences
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
    online_task,
)

ROOM = 1.25
"""Capacity over need when arrays move."""
ROW_COST = 56
"""Bytes of a bound beside its entries."""


class WorkingSet:
    """The bounds of a bundle with α and w(α) = −(v + Σ α_k a_k) / λ, Eq. 15, in a layout of the columns that suits."""

    def __init__(self, bundle: Bundle, lam: float, layout: Layout) -> None:
        self.bundle = bundle
        self.lam = lam
        self.layout = layout
        self.dense = np.zeros(bundle.n_features)
        """Scratch for compiled code, zero between two calls."""
        self.w = np.zeros(0)
        self.v = np.zeros(0)
        self.n_rows = 0
        self.bounds: Bounds
        self.load_bounds()

    def load_bounds(self) -> None:
        """Take the bounds and dual weights of the bundle."""
        rows = self.bundle.slopes
        n = len(self.bundle)
        n_groups = self.bundle.n_groups
        gram = self.bundle.inner_products()
        indices = self.layout.columns_in(rows.indices)
        whole = np.int64
        self.bounds = Bounds(
            rows.data.copy(),
            indices.astype(np.uint32),
            rows.indptr.copy(),
            self.bundle.offsets.copy(),
            normalize_dual_weights(self.bundle),
            self.bundle.idle.astype(whole),
            np.full(n, -1, whole),
            self.bundle.group.astype(whole),
            np.full(n, -1, whole),
            np.full(n_groups, -1, whole),
            np.zeros(n_groups, whole),
            gram.blocks.copy(),
            gram.start[:n_groups].astype(whole),
            gram.size.astype(whole),
        )
        self.n_rows = n
        self._link()

    def store_bounds(self) -> None:
        """Give bounds and dual weights back to the bundle."""
        b = self.bounds
        n = self.n_rows
        bundle = self.bundle
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
        b = self.bounds
        n = self.n_rows
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


Evaluate = Callable[[Array, Indices], LinearBounds]
"""C_n and its subgradients at w for some of the examples."""


@dataclass(frozen=True)
class StochasticSettings:
    """How a pass is cut into batches, and how much is made of the bounds that are there."""

    batches: int = 12
    """In a full pass, where a task cannot answer one example after the other: the more, the fresher is the w at which
    the argmax is asked, and the more a pass costs."""
    period: int = 4
    """The first so many passes, and then every so manyth, are over all groups; the others only over those whose gap was
    above `far` of the mean."""
    far: float = 0.3
    sweeps: int = 6
    """Sweeps over the cached bounds of such groups after each pass; they cost a fraction of it. Three took a third more
    passes and a fifth more time (letters, partial annotation; 1,000 sentences)."""
    steps: int = 4
    """Pairwise steps in one visit to a group."""
    cached_sweeps: int = 100
    """At most so many sweeps over recycled bounds before the first pass."""
    patience: int = 3
    """Passes that a bound may be inactive before it is dropped."""
    chunk: int = 2**21
    """Entries for which there is room at a time."""


DEFAULTS = StochasticSettings()


class FrankWolfeState:
    """α on the bundle with w(α), which moves with it, and the gap that each group had when last visited.

    With an `oracle` examples are answered one after the other, else in batches by `evaluate`.
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
        """The groups whose gap was above a share of the mean."""
        return np.flatnonzero(self.gaps > self.settings.far * self.gaps.mean())

    @property
    def estimate(self) -> float:
        """The sum of the groups' gaps when last visited: about the gap, were it measured at one w."""
        return float(self.gaps.sum())

    def set_linear_term(self, v: Array) -> None:
        """Take another linear term; what the groups' gaps are then, the next pass has to find out."""
        self.set.set_linear_term(v)
        self.gaps[:] = np.inf

    def run_pass(self, rng: np.random.Generator) -> float:
        """A pass over all groups or those that are far off; returns its share of the groups."""
        unknown = self.passes < self.settings.period or not np.isfinite(self.estimate)
        full = unknown or self.passes % self.settings.period == 0
        chosen = (
            np.arange(self.bundle.n_groups) if full else self.groups_with_large_gap()
        )
        self.passes += 1
        order = rng.permutation(chosen)
        if self.oracle is None:
            self._in_batches(order)
        else:
            self._one_by_one(order, self.oracle)
        found = self.gaps.copy()
        for _ in range(self.settings.sweeps):
            self.set.visit(
                rng.permutation(self.groups_with_large_gap()),
                self.settings.steps,
                self.gaps,
            )
        self.gaps = (
            found  # at fresh bounds; those of the sweeps only say what is cached
        )
        self.set.age(self.settings.patience)
        return len(chosen) / self.bundle.n_groups

    def sweep_cached_bounds(self, precision: float, rng: np.random.Generator) -> None:
        """Move α and w on the bounds that are there, until their own gap is at most `precision`.

        After a change of λ or of the linear term that is far cheaper than passes over the data.
        """
        gaps = np.zeros(self.bundle.n_groups)
        for _ in range(self.settings.cached_sweeps):
            self.set.visit(
                rng.permutation(self.bundle.n_groups), self.settings.steps, gaps
            )
            if gaps.sum() <= precision:
                break

    def _one_by_one(self, order: Indices, oracle: OnlineOracle) -> None:
        """Groups are examples; as many at a time as there is room for."""
        need = oracle.capacity(order)
        for chunk in np.array_split(order, 1 + need // self.settings.chunk):
            self.set.reserve(len(chunk), oracle.capacity(chunk), chunk)
            oracle.run(self.set, chunk, self.settings.steps, self.gaps)

    def _in_batches(self, order: Indices) -> None:
        """Batches of a smaller pass are as large as those of a full one: each costs in proportion to the weights."""
        bundle = self.bundle
        count = max(1, round(self.settings.batches * len(order) / bundle.n_groups))
        for batch in np.array_split(order, count):
            groups = np.sort(batch)
            inside = np.zeros(bundle.n_groups, dtype=bool)
            inside[groups] = True
            examples = np.flatnonzero(inside[bundle.group_of])
            linear = self.evaluate(self.set.weights, examples)
            local = np.searchsorted(groups, bundle.group_of[examples])
            slopes = differences(
                sum_rows_by_group(sp.csr_array(linear.features), local),
                bundle.base[groups],
            )
            offsets = (
                sums(linear.offsets, local, len(groups)) - bundle.base_offsets[groups]
            )
            self.set.append(slopes, offsets, groups)
            self.set.visit(batch, self.settings.steps, self.gaps)


WINDOW = 8
PROGRESS = 0.8
"""Passes are given up when so many of them in a row did not bring the gap under this share of what it was."""
FLOOR = 0.01
"""An estimate below this share of a precision that no certificate confirms is rounding: passes are given up."""
TIGHTER = 0.6
"""Where the certificate found more than the passes had estimated, they go on to this share of the estimate."""


def uses_stochastic_phase(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    n_groups: int,
) -> bool:
    """Whether a fit has a stochastic phase.

    By default it has one wherever examples can be answered one at a time. By batches it pays only with many groups, of
    which none concerns most of the weights.
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
    enough = online_task(task) is not None or task.n_features >= STOCHASTIC_WEIGHTS
    return by_ascent and enough and n_groups >= STOCHASTIC_GROUPS


def answers_one_at_a_time(task: Task, loss: Loss) -> bool:
    """Whether the task's online oracle serves this loss, given a group for each example."""
    plain = loss.penalty is Space.ALL and not loss.needs_clipping and loss.margin == 0
    return plain and loss.reward is not None and online_task(task) is not None


def begins_unseen(
    algorithm: Algorithm,
    regulariser: Regulariser,
    task: Task,
    loss: Loss,
    reward: LinearBounds,
) -> bool:
    """Whether the groups are known before C was evaluated, so that a stochastic phase can begin at once."""
    base = sp.csr_array(reward.features)
    online = answers_one_at_a_time(task, loss)
    fits = algorithm.groups == "auto" and fit_unseen(
        task.n_examples, base, algorithm.memory, online
    )
    phased = uses_stochastic_phase(algorithm, regulariser, task, loss, task.n_examples)
    return fits and loss.reward is not None and phased


def asked(ask: Callable[[Array], LinearBounds], w: Array) -> tuple[LinearBounds, bool]:
    """What is found at w, asked once more after Ctrl-C: without it there is no iterate to keep. Whether that was so."""
    try:
        return ask(w), False
    except KeyboardInterrupt:
        return ask(w), True


@dataclass(frozen=True)
class Watch:
    """What a phase tells the fit that it is part of, and asks it."""

    reward: Callable[[Array], LinearBounds]
    """R_n and its subgradients at w."""
    passed: Callable[[float, float], None]
    """A pass has ended: the share of the examples that it looked at, its seconds."""
    progress: Callable[[float, float, float], None]
    """Estimated gap, lower bound and precision, as sums over examples."""
    over: Callable[[], object]
    """True or something like it when a limit was reached."""


class StochasticPhase:
    """Passes in batches or example by example on a bundle. Sums over examples, as in `cccp`."""

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
        """Whether passes alone no longer close the gap, so that exact model updates are worth their price."""
        self.point: FrankWolfeState
        self.constant = 0.0
        self.target = np.inf
        """The estimate at which passes end; below the precision where the estimate was too rosy."""

    def run(self, w: Array, reward: LinearBounds) -> Array:
        """CCCP from w, where the reward is known; returns the last w. What Ctrl-C leaves is kept as well."""
        oracle = self._oracle(w)
        if oracle is not None and len(self.bundle):
            self.bundle.relative_to(
                reward
            )  # bounds of an earlier fit may have other bases
        if self.loss.reward is not None:
            self.bundle.start_at_base()
        self.point = FrankWolfeState(self.bundle, self.lam, self.evaluate, oracle)
        self.fixed_reward = oracle is not None and oracle.fixed_reward
        try:
            self._iterate(reward)
        except KeyboardInterrupt:
            self.interrupted = True
        self.point.set.store_bounds()
        return self.point.set.weights

    def _iterate(self, reward: LinearBounds) -> None:
        """The CCCP iterations: until the last one lowered the objective by no more than η, or passes lead no further.

        At full precision the dual value is the objective to within that.
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
            self._passes(precision * n)
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
        """More passes on the bundle as it is now, until about the precision; w and the lower bound there."""
        self.target = min(TIGHTER * self.target, precision)
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._passes(self.target)
        self.exhausted |= self.target < FLOOR * precision
        self.point.set.store_bounds()
        return self.point.set.weights, dual_value(
            self.bundle, v, self.lam, self.bundle.alpha
        )

    def one_pass(self, v: Array) -> None:
        """One pass on the bundle as it is now."""
        self.point.set.load_bounds()
        self.point.set_linear_term(v)
        self._pass(np.nan)
        self.point.set.store_bounds()

    def _passes(self, precision: float) -> None:
        """Passes until the estimated gap is at most this, or until they lead no further."""
        estimates: list[float] = []
        while True:
            self._pass(precision)
            estimates.append(self.point.estimate)
            self.target = estimates[-1]
            self.exhausted = (
                len(estimates) > WINDOW
                and estimates[-1] > PROGRESS * estimates[-1 - WINDOW]
            )
            if estimates[-1] <= precision or self.exhausted or self.watch.over():
                return

    def _pass(self, precision: float) -> None:
        began = time.perf_counter()
        share = self.point.run_pass(self.rng)
        if self.point.oracle is not None:  # batches count themselves
            self.watch.passed(share, time.perf_counter() - began)
        self.watch.progress(
            self.point.estimate, self.point.set.dual_value() + self.constant, precision
        )

    def _oracle(self, w: Array) -> OnlineOracle | None:
        """What answers one example after the other, where the task has it, loss and groups allow it."""
        found = online_task(self.task)
        loss = self.loss
        possible = (
            answers_one_at_a_time(self.task, loss)
            and self.bundle.n_groups == self.task.n_examples
        )
        if found is None or loss.reward is None or not possible:
            return None
        task, examples = found
        return task.online(
            w, loss.reward, loss.reward_weight, loss.penalty_weight, examples
        )
