"""How the cells of a movie move: with their surroundings or alone, and how persistently.

Where cells move with their surroundings, displacements are measured relative to the
**flow**. Part of the rest persists: a cell that overtook its neighbors does so again.
This is a **first-order autoregressive model**; its coefficient, the persistence, is
estimated from links within the movie. Cells that move alone may persist too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clew.learning.task import Array
from clew.tracking.detections import Detections, Source
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.flow.registration import Links, link_resting_cells, register_frames
from clew.tracking.profiling.scales import Over, SampledFrames, sampled_frames

MIN_EXPLAINED = 0.25
"""Share of the squared displacements that the flow, or persistence without flow, must
explain to be used. Below, it would add more noise than it removes."""
FAR_QUANTILE = 0.95
ROUNDING = 1e-6
"""Relative to a typical step: what is left where all cells move alike."""
OUTLIER_STEPS = 3.0
"""Typical steps at which a step has half its weight: longer ones are mostly wrong links."""


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
            step[links.target] = self.persistence * weight[:, None] * links.deviation
        return step


def estimate_motion(source: Source, over: Over = map) -> Motion:
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
    samples = list(over(_measure_steps, _sample_triples(source)))
    if not samples:
        return Motion(False, 0.0, 0.0)
    total, relative, resting, *steps = map(np.concatenate, zip(*samples, strict=True))
    flow_first, flow_second, resting_first, resting_second = steps
    alone = _fit_steps(resting_first, resting_second, _summarize_lengths(resting)[0])
    if len(alone.remainder) and not _explains(alone.remainder, alone.length):
        alone = alone._replace(persistence=0.0)
    if len(total) and _explains(relative, total):
        median_step, far_step = _summarize_lengths(relative)
        flow = _fit_steps(flow_first, flow_second, median_step)
        # A flow is found among cells that move alone, too, by links that suit it: it
        # must leave no more than their persistence does.
        limit = np.inf
        if alone.persistence > 0:
            limit = np.median(alone.remainder) + ROUNDING * np.median(total)
        if not len(flow.remainder) or limit >= np.median(flow.remainder):
            return Motion(True, median_step, far_step, flow.persistence)
    return Motion(False, *_summarize_lengths(resting), alone.persistence)


def fit_persistence(previous: Array, current: Array, typical_step: float) -> float:
    """Fit ``current = persistence * previous`` by robust least squares, from 0 to 1."""
    weight = cauchy_weights(previous, typical_step)
    weight = weight * cauchy_weights(current, typical_step)
    variance = weight @ (previous**2).sum(axis=1)
    if variance <= 0:
        return 0.0
    covariance = weight @ (previous * current).sum(axis=1)
    return float(np.clip(covariance / variance, 0.0, 1.0))


def cauchy_weights(steps: Array, typical_step: float) -> Array:
    """Return (n,) the Cauchy weights of steps (n, ndim), which discount outliers."""
    square = (steps**2).sum(axis=1)
    return np.asarray(1 / (1 + square / (OUTLIER_STEPS * typical_step) ** 2))


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


def _explains(remainder: Array, length: Array) -> bool:
    """Whether what remains of displacements is enough shorter than these.

    By medians, since one wrong link in ten would double a mean of squares.
    """
    explained = 1 - MIN_EXPLAINED
    return bool(np.median(remainder) ** 2 < explained * np.median(length) ** 2)


FramePairs = frozenset[tuple[int, ...]]


def _sample_triples(source: Source) -> list[tuple[SampledFrames, FramePairs]]:
    """Sample runs of three frames, each with the sampled pairs that it contains.

    Pairs and runs are spread evenly over the movie, so that each pair is in some run.
    """
    pairs = {sample.frames for sample in sampled_frames(source)}
    samples = []
    for triple in sampled_frames(source, 3):
        contained = pairs & {triple.frames[:2], triple.frames[1:]}
        pairs -= contained
        samples.append((triple, frozenset(contained)))
    return samples


def _measure_steps(sample: tuple[SampledFrames, FramePairs]) -> tuple[Array, ...]:
    """Measure the steps of linked cells in a run of three frames.

    Returns
    -------
    total, relative, resting : ndarray of shape (n,)
        In the sampled pairs: displacements of cells linked by the flow, these relative
        to the flow, and displacements of cells linked without it.
    flow_first, flow_second, resting_first, resting_second : ndarray of shape (m, ndim)
        Successive steps of cells linked twice, relative to the flow and without it.
    """
    triple, pairs = sample
    frames = triple.read()
    flow_links = []
    resting_links = []
    total = [np.zeros(0)]
    relative = [np.zeros(0)]
    resting = [np.zeros(0)]
    for k in range(2):
        source = frames[k]
        target = frames[k + 1]
        links = register_frames(source, target).links
        flow_links.append(links)
        resting_links.append(link_resting_cells(source, target))
        if triple.frames[k : k + 2] in pairs:
            rows, partners = find_mutual_nearest(source.position, target.position)
            step = target.position[partners] - source.position[rows]
            total.append(np.linalg.norm(links.displacement, axis=1))
            relative.append(np.linalg.norm(links.deviation, axis=1))
            resting.append(np.linalg.norm(step, axis=1))
    return (
        np.concatenate(total),
        np.concatenate(relative),
        np.concatenate(resting),
        *_chain_steps(*flow_links),
        *_chain_steps(*resting_links),
    )


def _chain_steps(previous: Links, current: Links) -> tuple[Array, Array]:
    """Return (m, ndim) each: the steps of cells that are linked in both frame pairs."""
    _, i, j = np.intersect1d(previous.target, current.source, return_indices=True)
    return previous.deviation[i], current.deviation[j]
