"""How the cells of a movie move: with their surroundings or alone, and persistence.

Where cells move with their surroundings, displacements are measured relative to the
**flow**. Part of the rest persists: a cell that overtook its neighbors does so again.
This is a **first-order autoregressive model**; its coefficient, the persistence, is
estimated from links within the movie. Cells that move alone may persist too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clew.learning.task import Array
from clew.tracking.detections import Detections, Source
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.flow.registration import (
    Links,
    link_resting_cells,
    measure_strain,
    register_frames,
)
from clew.tracking.scales import (
    MapFunction,
    SampledFrames,
    nearest_distances,
    sample_frames,
)

MIN_EXPLAINED = 0.25
"""Share of the squared displacements that the flow, or persistence without flow, must
explain to be used. Below, it would add more noise than it removes."""
FAR_QUANTILE = 0.95
ROUNDING = 1e-6
"""Relative to a typical step: what is left where all cells move alike."""
OUTLIER_STEPS = 3.0
"""Typical steps at which a step has half its weight: longer ones are mostly errors."""


FramePairs = frozenset[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Motion:
    """How the cells of a movie move, relative to the flow if they follow one."""

    follows_flow: bool
    """Whether cells move with their surroundings."""
    median_step: float
    """Median displacement from one frame to the next; 0 if nothing moves."""
    far_step: float
    """Displacement that one cell in twenty exceeds."""
    persistence: float = 0.0
    """Share of its step that a cell repeats in the next frame pair."""
    strain: float = 0.0
    """Mean squared strain of the flow of a typical frame pair; 0 without flow."""

    @property
    def uses_previous_frame(self) -> bool:
        """Whether the previous frame helps to predict where cells will be."""
        return self.follows_flow or self.persistence > 0

    def predict_persistent_step(self, links: Links, cells: Detections) -> Array:
        """Predict the step that each cell repeats.

        Parameters
        ----------
        links : Links
            Between the previous frame and that of the cells.
        cells : Detections
            n cells.

        Returns
        -------
        ndarray of shape (n, ndim)
            0 for cells without a link.
        """
        step = np.zeros_like(cells.position)
        if self.persistence > 0:
            weight = cauchy_weights(links.deviation, self.median_step)
            weight = weight * _find_unique_links(links, cells)
            step[links.target] = self.persistence * weight[:, None] * links.deviation
        return step


def estimate_motion(source: Source, over: MapFunction = map) -> Motion:
    """Estimate how the cells of a movie move from sampled frames, without any truth.

    Parameters
    ----------
    source : Source
    over : callable, optional
        Maps a function over the samples, as the built-in `map` does.

    Returns
    -------
    Motion
    """
    samples = list(over(_measure_steps, _sample_runs(source)))
    if not samples:
        return Motion(False, 0.0, 0.0)
    steps = _Steps(*map(np.concatenate, zip(*samples, strict=True)))
    resting_step, far_resting_step = _summarize_lengths(steps.resting)
    alone = _fit_steps(steps.resting_first, steps.resting_second, resting_step)
    if len(alone.remainder) and not _explains_enough(alone.remainder, alone.length):
        alone = alone._replace(persistence=0.0)
    if len(steps.total) and _explains_enough(steps.relative, steps.total):
        flow_step, far_flow_step = _summarize_lengths(steps.relative)
        flow = _fit_steps(steps.flow_first, steps.flow_second, flow_step)
        # A flow is found among cells that move alone, too, by links that suit it: it
        # must leave no more than their persistence does.
        limit = np.inf
        if alone.persistence > 0:
            limit = np.median(alone.remainder) + ROUNDING * np.median(steps.total)
        if not len(flow.remainder) or limit >= np.median(flow.remainder):
            strain = float(np.median(steps.strain))
            return Motion(True, flow_step, far_flow_step, flow.persistence, strain)
    return Motion(False, resting_step, far_resting_step, alone.persistence)


def fit_persistence(previous: Array, current: Array, typical_step: float) -> float:
    """Fit ``current = persistence * previous`` by robust least squares.

    Parameters
    ----------
    previous, current : ndarray of shape (n, ndim)
        Successive steps of cells.
    typical_step : float
        Their typical length.

    Returns
    -------
    float
        From 0 to 1; 0 if nothing moved.
    """
    weight = cauchy_weights(previous, typical_step)
    weight = weight * cauchy_weights(current, typical_step)
    variance = weight @ (previous**2).sum(axis=1)
    if variance <= 0:
        return 0.0
    covariance = weight @ (previous * current).sum(axis=1)
    return float(np.clip(covariance / variance, 0.0, 1.0))


def cauchy_weights(steps: Array, typical_step: float) -> Array:
    """Weigh steps so that outliers count little.

    Parameters
    ----------
    steps : ndarray of shape (n, ndim)
    typical_step : float

    Returns
    -------
    ndarray of shape (n,)
        1 for no step, 1/2 at `OUTLIER_STEPS` typical ones.
    """
    square = (steps**2).sum(axis=1)
    return np.asarray(1 / (1 + square / (OUTLIER_STEPS * typical_step) ** 2))


def _find_unique_links(links: Links, cells: Detections) -> Array:
    """Return (n_links,) 1 for steps shorter than the way to the nearest cell, else 0.

    Two near cells that were swapped both seem to step from one to the other.
    """
    if len(cells) < 2:
        return np.ones(len(links.target))
    spacing = nearest_distances(cells)[links.target]
    is_unique = np.linalg.norm(links.deviation, axis=1) < spacing
    return np.asarray(is_unique, dtype=np.float64)


class _Steps(NamedTuple):
    """Steps of linked cells in sampled frames."""

    total: Array
    """(n,) lengths, in cells linked by the flow."""
    relative: Array
    """(n,) the same relative to the flow."""
    resting: Array
    """(m,) lengths, in cells linked without the flow."""
    strain: Array
    """(p,) mean squared strain of the flow of each sampled pair."""
    flow_first: Array
    """(k, ndim) steps relative to the flow, of cells linked through three frames,"""
    flow_second: Array
    """(k, ndim) and the steps after them."""
    resting_first: Array
    """(l, ndim) the same, in cells linked without the flow."""
    resting_second: Array
    """(l, ndim)"""


class _Persistence(NamedTuple):
    """Fit of the steps of cells that are linked through three frames."""

    persistence: float
    length: Array
    """(m,) of the second steps."""
    remainder: Array
    """(m,) length of what persistence leaves of them."""


def _fit_steps(first: Array, second: Array, typical_step: float) -> _Persistence:
    """Fit successive steps, (m, ndim) each; none are used if nothing moves."""
    if typical_step == 0:
        return _Persistence(0.0, np.zeros(0), np.zeros(0))
    persistence = fit_persistence(first, second, typical_step)
    remainder = np.linalg.norm(second - persistence * first, axis=1)
    return _Persistence(persistence, np.linalg.norm(second, axis=1), remainder)


def _summarize_lengths(lengths: Array) -> tuple[float, float]:
    """Return the median and a far quantile of the lengths above 0."""
    moving = lengths[lengths > 0]
    if not len(moving):
        return 0.0, 0.0
    median, far = np.quantile(moving, [0.5, FAR_QUANTILE]).tolist()
    return median, far


def _explains_enough(remainder: Array, length: Array) -> bool:
    """Whether what remains of displacements is enough shorter than these.

    By medians, since one wrong link in ten would double a mean of squares.
    """
    explained = 1 - MIN_EXPLAINED
    return bool(np.median(remainder) ** 2 < explained * np.median(length) ** 2)


def _sample_runs(source: Source) -> list[tuple[SampledFrames, FramePairs]]:
    """Sample runs of three frames, each with the sampled pairs that it contains.

    Pairs and runs are spread evenly over the movie, so that each pair is in some run.
    """
    pairs = {sample.frames for sample in sample_frames(source)}
    samples = []
    for run in sample_frames(source, min(3, source.n_frames)):
        contained = pairs.intersection(pairwise(run.frames))
        pairs -= contained
        samples.append((run, frozenset(contained)))
    return samples


def _measure_steps(sample: tuple[SampledFrames, FramePairs]) -> _Steps:
    """Measure steps in a run of frames: lengths in the sampled pairs alone."""
    run, pairs = sample
    frames = run.read()
    flow_links = []
    resting_links = []
    total = [np.zeros(0)]
    relative = [np.zeros(0)]
    resting = [np.zeros(0)]
    strain = [np.zeros(0)]
    for source, target in pairwise(frames):
        flow = register_frames(source, target)
        links = flow.links
        flow_links.append(links)
        resting_links.append(link_resting_cells(source, target))
        if (source.frame, target.frame) in pairs:
            rows, partners = find_mutual_nearest(source.position, target.position)
            step = target.position[partners] - source.position[rows]
            total.append(np.linalg.norm(links.displacement, axis=1))
            relative.append(np.linalg.norm(links.deviation, axis=1))
            resting.append(np.linalg.norm(step, axis=1))
            strain.append(np.array([measure_strain(flow.position, flow.shift)]))
    ndim = frames[0].position.shape[1]
    return _Steps(
        np.concatenate(total),
        np.concatenate(relative),
        np.concatenate(resting),
        np.concatenate(strain),
        *_chain_steps(flow_links, ndim),
        *_chain_steps(resting_links, ndim),
    )


def _chain_steps(links: list[Links], ndim: int) -> tuple[Array, Array]:
    """Return (m, ndim) each: the steps of cells that are linked in two frame pairs."""
    if len(links) < 2:
        return np.zeros((0, ndim)), np.zeros((0, ndim))
    previous, current = links
    _, i, j = np.intersect1d(previous.target, current.source, return_indices=True)
    return previous.deviation[i], current.deviation[j]
