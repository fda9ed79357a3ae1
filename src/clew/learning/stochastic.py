"""Passes that learn while they look: block-coordinate ascent in the dual with the argmax asked batch by batch.

An exact pass asks the argmax about all examples at one w, and then solves the model update. On large data both are
wasteful: w could have improved after the first examples, and few weights depend on any one of them. Here a pass goes
over the groups in random order, in batches: the argmax at the current w gives each group of the batch a new bound, and
pairwise steps on the group's bounds move its α and w at once. That is block-coordinate Frank–Wolfe (Lacoste-Julien et
al. 2013) with pairwise steps and a cache of bounds (Osokin et al. 2016; Shah et al. 2015), on the same bundle as the
exact phase: every α on the simplices gives a lower bound, and one pass at a single w certifies what was reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit

from clew.learning.bounds import Bundle, on_simplices
from clew.learning.groups import summed, sums
from clew.learning.losses import Linear
from clew.learning.task import Array, Indices

Evaluate = Callable[[Array, Indices], Linear]
"""C_n and its subgradients at w for some of the examples."""


@dataclass(frozen=True)
class StochasticSettings:
    """How a pass is cut into batches, and how much is made of the bounds that are there."""

    batches: int = 12
    """In a full pass: the more, the fresher is the w at which the argmax is asked, and the more a pass costs."""
    period: int = 4
    """The first so many passes, and then every so manyth, are over all groups; the others only over those whose gap was
    above `far` of the mean."""
    far: float = 0.3
    sweeps: int = 1
    """Sweeps over the cached bounds of such groups after each pass; they cost a fraction of it."""
    steps: int = 8
    """Pairwise steps in one visit to a group."""


DEFAULTS = StochasticSettings()


class DualPoint:
    """α on the bundle with w(α), Eq. 15, which moves with it, and the gap that each group had when last visited."""

    def __init__(self, bundle: Bundle, lam: float) -> None:
        self.bundle, self.lam = bundle, lam
        self.gaps = np.full(bundle.n_groups, np.inf)
        self.passes = 0
        self.v, self.w = np.zeros(0), np.zeros(0)

    def aim(self, v: Array) -> None:
        """Take another linear term; w is computed anew from the bundle's α."""
        self.v = v + self.bundle.shared[0]
        self.bundle.alpha = on_simplices(self.bundle)
        self.w = np.asarray(-(self.v + self.bundle.slopes.combined(self.bundle.alpha)) / self.lam)

    def visit(self, groups: Indices, steps: int) -> None:
        """Pairwise steps on each of these groups, in order; notes their gaps before."""
        bundle = self.bundle
        place = np.full(bundle.n_groups, -1)
        place[groups] = np.arange(len(groups))
        members = np.flatnonzero(place[bundle.group] >= 0)
        members = members[np.argsort(place[bundle.group[members]], kind="stable")]
        first = np.searchsorted(place[bundle.group[members]], np.arange(len(groups) + 1))
        gaps = np.zeros(len(groups))
        rows = bundle.slopes
        _visit(
            rows.data, rows.indices, rows.begins, bundle.offsets, members, first, bundle.alpha, self.w, self.lam,
            steps, gaps,
        )  # fmt: skip
        self.gaps[groups] = gaps

    def far_off(self, share: float) -> Indices:
        """The groups whose gap was above a share of the mean."""
        return np.flatnonzero(self.gaps > share * self.gaps.mean())


def stochastic_pass(
    point: DualPoint, evaluate: Evaluate, rng: np.random.Generator, settings: StochasticSettings = DEFAULTS
) -> float:
    """A pass in batches over all groups or those that are far off; returns the sum of all gaps when last visited."""
    bundle = point.bundle
    full = point.passes < settings.period or point.passes % settings.period == 0
    chosen = np.arange(bundle.n_groups) if full else point.far_off(settings.far)
    point.passes += 1
    # Batches of a smaller pass are as large as those of a full one: each costs in proportion to the weights too.
    count = max(1, round(settings.batches * len(chosen) / bundle.n_groups))
    for batch in np.array_split(rng.permutation(chosen), count):
        groups = np.sort(batch)
        inside = np.zeros(bundle.n_groups, dtype=bool)
        inside[groups] = True
        examples = np.flatnonzero(inside[bundle.group_of])
        _add_batch(bundle, evaluate(point.w, examples), point.w, groups, bundle.group_of[examples])
        point.visit(groups, settings.steps)
    total = float(point.gaps.sum())
    found = point.gaps.copy()
    for _ in range(settings.sweeps):
        point.visit(point.far_off(settings.far), settings.steps)
    point.gaps = found  # at fresh bounds; those of the sweeps only say what is cached
    return total


def _add_batch(bundle: Bundle, linear: Linear, w: Array, groups: Indices, group_of: Indices) -> None:
    """Add the bounds of a batch's groups that say something new at w."""
    local = np.searchsorted(groups, group_of)
    value = sums(linear.values, local, len(groups))
    new = np.flatnonzero(value > bundle.values_of(groups, w) + 1e-12 * (1 + np.abs(value)))
    if len(new):
        slopes = summed(sp.csr_array(linear.features), local)
        bundle.extend(slopes[new], sums(linear.offsets, local, len(groups))[new], groups[new])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _visit(
    data: Array, indices: Indices, begins: Indices, offsets: Array, members: Indices, first: Indices,
    alpha: Array, w: Array, lam: float,
    max_steps: int, gaps: Array,
) -> None:  # fmt: skip
    """Pairwise steps group by group: mass goes from the worst active bound to the best one, and w moves along."""
    largest = 0
    for g in range(len(first) - 1):
        largest = max(largest, first[g + 1] - first[g])
    score = np.empty(largest)
    dense = np.zeros(len(w))
    for g in range(len(first) - 1):
        size = first[g + 1] - first[g]
        if size < 2:
            continue
        threshold = 0.0
        for step in range(max_steps + 1):
            up, down = -1, -1
            mean = 0.0
            for i in range(size):
                k = members[first[g] + i]
                total = offsets[k]
                for p in range(begins[k], begins[k + 1]):
                    total += data[p] * w[indices[p]]
                score[i] = total
                mean += alpha[k] * total
                if up < 0 or total > score[up]:
                    up = i
                if alpha[k] > 0.0 and (down < 0 or total < score[down]):
                    down = i
            difference = score[up] - score[down]
            if step == 0:
                gaps[g] = max(score[up] - mean, 0.0)
                threshold = 0.1 * gaps[g]
            if step == max_steps or difference <= threshold or difference <= 1e-14 * abs(score[up]):
                break
            a, b = members[first[g] + up], members[first[g] + down]
            curvature = 0.0
            for p in range(begins[a], begins[a + 1]):
                dense[indices[p]] = data[p]
                curvature += data[p] * data[p]
            for p in range(begins[b], begins[b + 1]):
                curvature += data[p] * (data[p] - 2.0 * dense[indices[p]])
            for p in range(begins[a], begins[a + 1]):
                dense[indices[p]] = 0.0
            length = alpha[b]
            if curvature > 0.0:
                length = min(length, lam * difference / curvature)
            alpha[a] += length
            alpha[b] = 0.0 if length >= alpha[b] else alpha[b] - length
            for p in range(begins[a], begins[a + 1]):
                w[indices[p]] -= length / lam * data[p]
            for p in range(begins[b], begins[b + 1]):
                w[indices[p]] += length / lam * data[p]
