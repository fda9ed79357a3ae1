"""Passes that learn while they look: block-coordinate ascent in the dual, one example or one batch after the other.

An exact pass asks the argmax about all examples at one w, and then solves the model update. On large data both are
wasteful: w could have improved after the first examples, and few weights depend on any one of them. Here a pass goes
over the groups in random order: the argmax at the current w gives a group a new bound, and pairwise steps on the
group's bounds move its α and w at once. That is block-coordinate Frank–Wolfe (Lacoste-Julien et al. 2013) with pairwise
steps and a cache of bounds (Osokin et al. 2016; Shah et al. 2015), on the bounds of the exact phase: every α on the
simplices gives a lower bound, and one pass at a single w certifies what was reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from clew.learning.bounds import Bundle
from clew.learning.groups import sum_rows_by_group, sums
from clew.learning.losses import LinearBounds
from clew.learning.sparse_rows import differences
from clew.learning.task import Array, Indices, OnlineOracle, SameOrder
from clew.learning.working_set import WorkingSet

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
        self.bundle, self.evaluate, self.oracle, self.settings = (
            bundle,
            evaluate,
            oracle,
            settings,
        )
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
