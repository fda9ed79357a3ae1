"""A movie's own units: medians by which features become dimensionless, so that weights carry over to other movies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.detections import Detections, Floats, Source

SAMPLED_PAIRS = 20
"""Pairs of frames, evenly spread over the movie, that the medians are taken from."""
LEAST_DISPLACEMENT = 0.05
"""In diameters: cells that hardly move are not told apart more finely than this."""


@dataclass(frozen=True, slots=True)
class Scales:
    """What is usual in a movie, in its physical units and intensities."""

    diameter: float = 1.0
    """Of a ball with the median volume; without volumes, the median distance of a cell to the next."""
    displacement: float = 1.0
    """Median way from one frame to the next, relative to the flow, among cells that are each other's nearest."""
    volume: float | None = None
    """Median; None without volumes."""
    intensity: float | None = None
    """Median above background, negative where cells are darker than it, but no less than their texture's median
    deviation (cells in phase contrast may be as bright as the background on average); None without images."""

    def as_dict(self) -> dict[str, float | None]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """What `as_dict` gave."""
        try:
            given: dict[str, Any] = {name: None if value is None else float(value) for name, value in values.items()}
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise InputError(f"scales {values} are not what this clew stores: {error}") from error


def estimate_scales(source: Source, way: float = 0.0) -> Scales:
    """The medians of a movie, from some of its frames; 1 where it has no cells to tell.

    `way` is the usual displacement, see `model.flow.estimate_motion`.
    """
    gaps: list[Floats] = []
    volumes: list[Floats] = []
    intensities: list[Floats] = []
    deviations: list[Floats] = []
    for a, _ in sampled_pairs(source):
        gaps.append(_gaps(a))
        if "size" in source.has:
            volumes.append(a.columns["volume"])
        if "intensity" in source.has:
            intensities.append(a.columns["intensity"])
        if "histogram" in source.has:
            deviations.append(a.columns["deviation"])
    volume = _median(volumes) if "size" in source.has else None
    diameter = ball_diameter(volume, source.ndim) if volume is not None else _median(gaps)
    displacement = max(way, LEAST_DISPLACEMENT * diameter)
    intensity = None
    if "intensity" in source.has:
        usual = _median(intensities)
        intensity = float(np.copysign(max(abs(usual), _median(deviations, default=0.0)), usual))
    return Scales(diameter, displacement, volume, intensity)


def sampled_pairs(source: Source) -> Iterator[tuple[Detections, Detections]]:
    """Some pairs of consecutive frames, evenly spread; a movie of one frame is paired with itself."""
    last = max(source.n_frames - 2, 0)
    for t in np.unique(np.linspace(0, last, SAMPLED_PAIRS).round().astype(int)).tolist() if source.n_frames else ():
        yield source.detections(t), source.detections(min(t + 1, source.n_frames - 1))


def ball_diameter(volume: float, ndim: int) -> float:
    """Of the disc or ball that has this volume."""
    return float((volume * 4 / np.pi) ** 0.5 if ndim == 2 else (volume * 6 / np.pi) ** (1 / 3))


def _gaps(cells: Detections) -> Array:
    """(n,) the distance of each cell to the nearest other of its frame."""
    if len(cells) < 2:
        return np.zeros(0)
    return np.asarray(cKDTree(cells.position).query(cells.position, k=2)[0][:, 1], dtype=np.float64)


def _median(values: list[Floats], default: float = 1.0) -> float:
    """Of all values that are not zero, which would divide nothing; the default if there are none."""
    whole = np.concatenate([np.zeros(0), *values])
    whole = whole[whole != 0]
    return float(np.median(whole)) if len(whole) else default
