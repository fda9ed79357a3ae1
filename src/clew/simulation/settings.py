"""Settings of simulated movies, given or drawn at random; those of all kinds, and those of nuclei."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np

from clew.errors import InputError
from clew.simulation.rows import Rng

MAX_PIXELS = 2**28
"""Largest number of pixels in a frame."""
PIXELS_ACROSS = 3
"""Smallest radius, in pixels."""
NON_NEGATIVE = (0.0, math.inf)
POSITIVE = (math.ulp(0.0), math.inf)
SHARE = (0.0, 1.0)
RANGES: dict[str, tuple[float, float]] = {
    "frames": (1, 100_000),
    "cells": (1, 100_000),
    "dims": (2, 3),
    "seed": NON_NEGATIVE,
    "radius": POSITIVE,
    "density": (0.001, 0.9),
    "noise": NON_NEGATIVE,
    "blur": NON_NEGATIVE,
    "background": NON_NEGATIVE,
    "unevenness": SHARE,
    "over_segmentation": SHARE,
    "missed": SHARE,
    "drift": NON_NEGATIVE,
    "shake": NON_NEGATIVE,
    "stage_jumps": SHARE,
    "jump_size": NON_NEGATIVE,
    "missing_frames": (0.0, 0.9),
}
"""Smallest and largest value of each shared setting."""


@dataclass(frozen=True)
class SimulationSettings:
    """Settings that all kinds of cells share.

    Lengths are in the unit of `spacing`, times in frames, rates per cell and frame.
    """

    kind: ClassVar[str]
    """The name of the kind on the command line."""
    ranges: ClassVar[dict[str, tuple[float, float]]] = RANGES

    frames: int = 60
    cells: int = 40
    """Approximate number of cells in view."""
    dims: int = 2
    seed: int = 0
    """The same settings give the same movie."""
    spacing: tuple[float, ...] = ()
    """((z,) y, x) pixel size; default (1, 1) or (3, 1, 1)."""
    shape: tuple[int, ...] = ()
    """((z,) y, x) pixels of a frame; default: from `cells` and `density`."""
    radius: float = 12.0
    """Radius of an average cell or nucleus."""
    density: float = 0.1
    """Share of the field that cells cover."""
    background: float = 1000.0
    unevenness: float = 0.04
    """Relative variation of the background over the field."""
    noise: float = 1.0
    """Factor on shot and read noise."""
    blur: float = 1.2
    """Standard deviation of the point spread function in the plane; three times as wide along z."""
    over_segmentation: float = 0.003
    """Rate of cells that are cut in two for a frame."""
    missed: float = 0.003
    """Rate of cells that are not detected in a frame."""
    drift: float = 0.0
    """Drift of the stage per frame."""
    shake: float = 0.0
    """Standard deviation of the stage's motion per frame and direction."""
    stage_jumps: float = 0.0
    """Share of frames before which the stage jumps."""
    jump_size: float = 3.0
    """Standard deviation of a jump per direction, in cell radii."""
    missing_frames: float = 0.0
    """Share of frames that are missing in the movie."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in self.ranges:
                _check_number(
                    field.name,
                    getattr(self, field.name),
                    field.type == "int",
                    self.ranges[field.name],
                )
        spacing = self.spacing or ((1.0, 1.0) if self.dims == 2 else (3.0, 1.0, 1.0))
        object.__setattr__(
            self, "spacing", _check_axes("spacing", spacing, self.dims, Real)
        )
        object.__setattr__(
            self,
            "shape",
            _check_axes(
                "shape", self.shape or self._default_shape(), self.dims, Integral
            ),
        )
        if math.prod(self.shape) > MAX_PIXELS:
            raise InputError(
                f"shape: {' × '.join(map(str, self.shape))} pixels are more than the {MAX_PIXELS} that a frame may "
                "have; ask for fewer cells, a higher density or a wider spacing"
            )
        cover = self.cells * self.size / math.prod(self.extent)
        if min(self.extent) < 2 * self.radius or cover > 1:
            raise InputError(
                f"shape: {' × '.join(map(str, self.shape))} pixels have no room for {self.cells} cells of radius "
                f"{self.radius:g}; expected at least the diameter of a cell along each axis, and the area of all cells"
            )
        if min(self.spacing[-2:]) > self.radius / PIXELS_ACROSS:
            raise InputError(
                f"radius: {self.radius:g} is less than {PIXELS_ACROSS} pixels at a spacing of {self.spacing}; such a "
                "cell has no shape. Give the radius in the unit of the spacing"
            )

    @property
    def size(self) -> float:
        """Area or volume of an average cell."""
        return ball_volume(self.radius, self.dims)

    @property
    def extent(self) -> tuple[float, ...]:
        """((z,) y, x): the field of view."""
        return tuple(n * step for n, step in zip(self.shape, self.spacing, strict=True))

    @property
    def min_pixels(self) -> int:
        """Smallest number of visible pixels of a cell in view."""
        return max(4, round(0.06 * self.size / math.prod(self.spacing)))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def _default_shape(self) -> tuple[int, ...]:
        """Return the default shape ((z,) y, x)."""
        proportions = (1.0, 1.3) if self.dims == 2 else (0.5, 1.0, 1.3)
        volume = self.cells * self.size / self.density
        unit = max(
            (volume / math.prod(proportions)) ** (1 / self.dims), 4 * self.radius
        )
        return tuple(
            max(1, math.ceil(unit * p / step))
            for p, step in zip(proportions, self.spacing, strict=True)
        )


@dataclass(frozen=True)
class NucleiSettings(SimulationSettings):
    """Nuclei of cultured cells under a fluorescence microscope."""

    kind: ClassVar[str] = "nuclei"
    ranges: ClassVar[dict[str, tuple[float, float]]] = RANGES | {
        "density": (0.001, 0.6),
        "speed": NON_NEGATIVE,
        "persistence": (0.0, 0.99),
        "cohesion": SHARE,
        "softness": SHARE,
        "cycle": (8.0, math.inf),
        "death": SHARE,
        "brightness": POSITIVE,
        "brightness_spread": (0.0, 2.0),
        "merging": SHARE,
    }

    speed: float = 3.0
    """Mean displacement of a cell per frame."""
    persistence: float = 0.5
    """Correlation of a cell's velocity from one frame to the next."""
    cohesion: float = 0.25
    """Strength of clustering."""
    softness: float = 0.4
    """How often nuclei overlap: 0 rarely, 1 often."""
    cycle: float = 90.0
    """Mean time from a cell's birth to its division."""
    death: float = 0.0005
    """Rate of dying cells."""
    brightness: float = 900.0
    """Mean signal of a nucleus above the background, in gray values."""
    brightness_spread: float = 0.45
    """Standard deviation of the logarithm of the brightness between families of cells."""
    merging: float = 0.5
    """How often touching cells are fused: 0 never, 1 always."""


@dataclass(frozen=True)
class BodySettings(SimulationSettings):
    """Settings that all kinds with bodies share."""

    ranges: ClassVar[dict[str, tuple[float, float]]] = RANGES | {
        "under_segmentation": (0.0, 0.9),
        "outline_error": SHARE,
    }

    under_segmentation: float = 0.003
    """Share of touching pairs that are fused."""
    outline_error: float = 0.06
    """Standard deviation of the detected outline, relative to the radius."""


def draw_between(rng: Rng, low: float, high: float, log: bool = False) -> float:
    """Draw a number between two, uniformly or log-uniformly."""
    return (
        float(np.exp(rng.uniform(np.log(low), np.log(high))))
        if log
        else float(rng.uniform(low, high))
    )


def draw_sometimes(rng: Rng, share: float, low: float, high: float) -> float:
    """Draw a log-uniform number with probability `share`, else 0."""
    value = draw_between(rng, low, high, log=True)
    return value if rng.random() < share else 0.0


def draw_shared_settings(rng: Rng) -> dict[str, Any]:
    """Draw the settings that all kinds share."""
    return {
        "seed": int(rng.integers(2**31)),
        "noise": draw_between(rng, 0.5, 3.0, log=True),
        "unevenness": rng.uniform(0, 0.15),
        "over_segmentation": draw_sometimes(rng, 0.6, 0.0005, 0.02),
        "missed": draw_sometimes(rng, 0.6, 0.0005, 0.02),
        "shake": draw_sometimes(rng, 0.4, 0.2, 3.0),
        "stage_jumps": draw_sometimes(rng, 0.2, 0.02, 0.2),
        "jump_size": draw_between(rng, 0.5, 4.0, log=True),
        "missing_frames": draw_sometimes(rng, 0.15, 0.02, 0.2),
    }


def draw_body_settings(rng: Rng) -> dict[str, Any]:
    """Draw the settings that all kinds with bodies share."""
    return draw_shared_settings(rng) | {
        "under_segmentation": draw_sometimes(rng, 0.6, 0.0005, 0.05),
        "outline_error": draw_between(rng, 0.02, 0.15, log=True),
    }


def ball_volume(radius: float, dims: int) -> float:
    """Return the area of a disc or the volume of a ball."""
    return math.pi * radius**2 if dims == 2 else math.pi * radius**3 * 4 / 3


def _check_number(
    name: str, value: Any, whole: bool, limits: tuple[float, float]
) -> None:
    """Raise InputError unless a setting is a number in its range."""
    low, high = limits
    if not _is_number(value, Integral if whole else Real) or not low <= value <= high:
        if low == high:
            raise InputError(
                f"{name}: must be {low:g} for this kind of cells; it is {value!r}"
            )
        what = "a whole number" if whole else "a finite number"
        wanted = (
            "above 0"
            if low == math.ulp(0.0)
            else f"from {low:g}" + (f" to {high:g}" if high < math.inf else " on")
        )
        raise InputError(f"{name}: must be {what} {wanted}; it is {value!r}")


def _check_axes(name: str, values: Any, dims: int, kind: type) -> tuple[Any, ...]:
    """Return one positive number for each axis, or raise InputError."""
    try:
        values = tuple(values)
    except TypeError:
        values = (values,)
    if len(values) != dims or not all(_is_number(v, kind) and v > 0 for v in values):
        what = "whole numbers" if kind is Integral else "numbers"
        raise InputError(
            f"{name}: must be {dims} positive {what}, ((z,) y, x), for dims = {dims}; it is {values!r}"
        )
    return (
        tuple(int(v) for v in values)
        if kind is Integral
        else tuple(float(v) for v in values)
    )


def _is_number(value: Any, kind: type) -> bool:
    """Whether a value is a finite number, and not a bool."""
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return math.isfinite(cast("float", value))
