"""Typical sizes, steps and intensities of a movie, by which features become dimensionless.

Weights carry over from one movie to another because every length is divided by a
median length of its movie, and every intensity by a median intensity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Array
from clew.tracking.detections import Detections, Floats, Source, take_window

N_SAMPLES = 20
"""Runs of frames, evenly spread over the movie, from which the medians are taken."""
MapFunction = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a function to items, in order: Python's `map`, or that of an executor."""
Z_FACTORS = 2.0 ** np.arange(0, 5.01, 0.125)
"""Factors of z that are tried."""
MIN_Z_FACTOR = 2.0
"""Smaller factors are not told from 1: the middle of an embryo has room along z."""
SMALLEST_STEP = 0.05
"""Lower bound of the typical step, in diameters."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Medians of a movie, in its physical units and intensities."""

    diameter: float = 1.0
    """Diameter of a ball of the median volume; without volumes, the median distance
    to the nearest cell."""
    displacement: float = 1.0
    """Median step from one frame to the next, relative to the flow."""
    volume: float | None = None
    """Median volume; None without volumes."""
    intensity: float | None = None
    """Median intensity above background, negative where cells are darker. Its size is
    at least the median standard deviation within a cell, since cells in phase contrast
    may be as bright as the background. None without images."""


@dataclass(frozen=True, slots=True)
class SampledFrames:
    """A run of consecutive frames, read on demand."""

    source: Source
    frames: tuple[int, ...]

    def read(self) -> list[Detections]:
        """Return the detections of each frame."""
        return [self.source.detections(t) for t in self.frames]


def sample_frames(
    source: Source, length: int = 2, n_samples: int = N_SAMPLES
) -> list[SampledFrames]:
    """Return runs of consecutive frames, evenly spread over a movie.

    In a movie that is shorter than a run, its last frame is repeated.
    """
    last = source.n_frames - 1
    if last < 0:
        return []
    latest_start = max(last - length + 1, 0)
    starts = np.unique(np.linspace(0, latest_start, n_samples).round().astype(int))
    runs = [
        tuple(min(start + k, last) for k in range(length)) for start in starts.tolist()
    ]
    return [SampledFrames(take_window(source, run[0], run[-1]), run) for run in runs]


def estimate_scales(
    source: Source,
    median_step: float = 0.0,
    map_function: MapFunction = map,
    groups: Set[str] | None = None,
) -> Scales:
    """Estimate the scales of a movie from sampled frames.

    Parameters
    ----------
    source : Source
    median_step : float
        Median step of a cell, see `clew.tracking.flow.motion.estimate_motion`.
    map_function : callable
        Applies a function to the samples, in threads or on a cluster.
    groups : set of str, optional
        Groups of measurements that count; all of the movie by default.

    Returns
    -------
    Scales
        With 1 where the movie has no cells.
    """
    groups = source.has if groups is None else groups
    samples = list(map_function(_measure_sample, sample_frames(source)))
    distances, volumes, intensities, deviations = (
        [sample[k] for sample in samples] for k in range(4)
    )
    volume = None
    diameter = _median(distances)
    if "size" in groups:
        volume = _median(volumes)
        diameter = float(ball_diameter(volume, source.ndim))
    intensity = None
    if "intensity" in groups:
        median = _median(intensities)
        size = max(abs(median), _median(deviations, default=0.0))
        intensity = float(np.copysign(size, median))
    step = max(median_step, SMALLEST_STEP * diameter)
    return Scales(diameter, step, volume, intensity)


def estimate_anisotropy(positions: Sequence[Array]) -> float:
    """Estimate how much coarser z is than y and x from points of several frames.

    Cells keep a distance from each other. Among all factors of z, relative to the
    volume that each gives to a cell, the right one leaves nearest cells farthest apart.

    Parameters
    ----------
    positions : sequence of ndarray of shape (n, 3)
        Frames with two points or more.

    Returns
    -------
    float
        1 if z is about as fine as y and x, or if there is no evidence.
    """
    apart = [
        np.mean([_mean_log_distance(x * [factor, 1, 1]) for x in positions])
        - np.log(factor) / 3
        for factor in Z_FACTORS
    ]
    best = int(np.argmax(apart))
    is_inside = best < len(Z_FACTORS) - 1
    return (
        float(Z_FACTORS[best]) if is_inside and Z_FACTORS[best] >= MIN_Z_FACTOR else 1.0
    )


def _mean_log_distance(x: Array) -> float:
    """Mean logarithm of the distances to the nearest point that are not 0."""
    distance = cKDTree(x).query(x, k=2)[0][:, 1]
    return float(np.log(distance[distance > 0]).mean()) if distance.any() else 0.0


def ball_diameter(volume: Any, ndim: int) -> Any:
    """Return the diameter of a disc or ball of this volume, or of each of several."""
    if ndim == 2:
        return (volume * 4 / np.pi) ** 0.5
    return (volume * 6 / np.pi) ** (1 / 3)


def ball_volume(diameter: float, ndim: int) -> float:
    """Return the volume of a disc or ball of this diameter."""
    if ndim == 2:
        return np.pi / 4 * diameter**2
    return np.pi / 6 * diameter**3


def nearest_distances(cells: Detections) -> Array:
    """Return the distance of each cell to the nearest other one, (n,)."""
    distance = cKDTree(cells.position).query(cells.position, k=2)[0]
    return np.asarray(distance[:, 1], dtype=np.float64)


def _measure_sample(sample: SampledFrames) -> tuple[Floats, Floats, Floats, Floats]:
    """Nearest distances, volumes, intensities and deviations; empty where unknown."""
    cells = sample.read()[0]
    distances = nearest_distances(cells) if len(cells) > 1 else np.zeros(0)

    def column(name: str, group: str) -> Floats:
        return cells.columns[name] if group in sample.source.has else np.zeros(0)

    return (
        distances,
        column("volume", "size"),
        column("intensity", "intensity"),
        column("deviation", "histogram"),
    )


def _median(values: list[Floats], default: float = 1.0) -> float:
    """Median of all values but zeros; the default if there are none."""
    pooled = np.concatenate([np.zeros(0), *values])
    pooled = pooled[pooled != 0]
    return float(np.median(pooled)) if len(pooled) else default
