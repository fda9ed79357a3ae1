"""A movie's own units: medians by which features become dimensionless, so that weights carry over to other movies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.detections import Detections, Floats, Source, take_window

SAMPLED = 20
"""Pairs of frames, evenly spread over the movie, that the medians are taken from."""
Over = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Maps a function over items, in order: Python's `map`, or an executor's."""
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
            given: dict[str, Any] = {
                name: None if value is None else float(value)
                for name, value in values.items()
            }
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"scales {values} are not what this clew stores: {error}"
            ) from error


def estimate_scales(source: Source, way: float = 0.0, over: Over = map) -> Scales:
    """The medians of a movie, from some of its frames; 1 where it has no cells to tell.

    `way` is the usual displacement, see `model.motion.estimate_motion`; `over` maps over the frames, in threads or on a
    cluster for example.
    """
    found = list(over(_usual, sampled_frames(source)))
    gaps, volumes, intensities, deviations = (
        [values[k] for values in found] for k in range(4)
    )
    volume = _median(volumes) if "size" in source.has else None
    diameter = (
        float(ball_diameter(volume, source.ndim))
        if volume is not None
        else _median(gaps)
    )
    displacement = max(way, LEAST_DISPLACEMENT * diameter)
    intensity = None
    if "intensity" in source.has:
        usual = _median(intensities)
        intensity = float(
            np.copysign(max(abs(usual), _median(deviations, default=0.0)), usual)
        )
    return Scales(diameter, displacement, volume, intensity)


@dataclass(frozen=True, slots=True)
class SampledFrames:
    """Some consecutive frames that stand for the movie, read when they are asked for."""

    source: Source
    frames: tuple[int, ...]

    def read(self) -> list[Detections]:
        """All of them."""
        return [self.source.detections(t) for t in self.frames]


def sampled_frames(
    source: Source, length: int = 2, n: int = SAMPLED
) -> list[SampledFrames]:
    """Some runs of consecutive frames, evenly spread, each with what it needs of the source.

    In a movie that is shorter than a run, its last frame stands for those that are missing.
    """
    last = source.n_frames - 1
    starts = (
        np.unique(
            np.linspace(0, max(last - length + 1, 0), n).round().astype(int)
        ).tolist()
        if last >= 0
        else []
    )
    runs = [tuple(min(t + k, last) for k in range(length)) for t in starts]
    return [SampledFrames(take_window(source, run[0], run[-1]), run) for run in runs]


def _usual(pair: SampledFrames) -> tuple[Floats, Floats, Floats, Floats]:
    """Distances to the nearest cell, volumes, intensities and deviations of the first frame; none where not known."""
    cells, none = pair.read()[0], np.zeros(0)
    known = {"volume": "size", "intensity": "intensity", "deviation": "histogram"}
    columns = (
        cells.columns[name] if group in pair.source.has else none
        for name, group in known.items()
    )
    volume, intensity, deviation = columns
    return _gaps(cells), volume, intensity, deviation


def ball_diameter(volume: Any, ndim: int) -> Any:
    """Of the disc or ball that has this volume; of each of several."""
    return (volume * 4 / np.pi) ** 0.5 if ndim == 2 else (volume * 6 / np.pi) ** (1 / 3)


def ball_volume(diameter: float, ndim: int) -> float:
    """Of the disc or ball with this diameter."""
    return np.pi / 4 * diameter**2 if ndim == 2 else np.pi / 6 * diameter**3


def _gaps(cells: Detections) -> Array:
    """(n,) the distance of each cell to the nearest other of its frame."""
    if len(cells) < 2:
        return np.zeros(0)
    return np.asarray(
        cKDTree(cells.position).query(cells.position, k=2)[0][:, 1], dtype=np.float64
    )


def _median(values: list[Floats], default: float = 1.0) -> float:
    """Of all values that are not zero, which would divide nothing; the default if there are none."""
    whole = np.concatenate([np.zeros(0), *values])
    whole = whole[whole != 0]
    return float(np.median(whole)) if len(whole) else default
