"""What a simulated movie shall be like: settings that all kinds of cells share, and the nuclei's own."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, cast

from clew.errors import InputError

MAX_PIXELS = 2**28
"""The largest frame that is simulated."""
PIXELS_ACROSS = 3
"""A radius has at least so many pixels."""
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
"""What each setting that all kinds share may be: (least, most)."""


@dataclass(frozen=True)
class SimulationSettings:
    """What the simulated movies of all kinds of cells share; each kind adds its own.

    Lengths are in the unit of `spacing`, times in frames, rates per cell and frame.
    """

    kind: ClassVar[str]
    """The name of the kind on the command line."""
    ranges: ClassVar[dict[str, tuple[float, float]]] = RANGES

    frames: int = 60
    cells: int = 40
    """About so many are in view at any time."""
    dims: int = 2
    seed: int = 0
    """The same settings give the same movie."""
    spacing: tuple[float, ...] = ()
    """((z,) y, x): the distance of two pixels; (1, 1) or (3, 1, 1) where it is left empty."""
    shape: tuple[int, ...] = ()
    """((z,) y, x): pixels of a frame; room for the cells at the given density where it is left empty."""
    radius: float = 12.0
    """Of an average cell or nucleus."""
    density: float = 0.1
    """The share of the field that cells cover."""
    background: float = 1000.0
    unevenness: float = 0.04
    """By how much the background varies over the field, as a share of it."""
    noise: float = 1.0
    """Factor on shot and read noise."""
    blur: float = 1.2
    """Standard deviation of the point spread function, in the plane; along z it is three times as wide."""
    over_segmentation: float = 0.003
    """Rate of cells that are detected as two for a frame."""
    missed: float = 0.003
    """Rate of cells that are not detected in a frame."""
    drift: float = 0.0
    """Way of the stage in a frame, always in the same direction."""
    shake: float = 0.0
    """Standard deviation of the stage's way in a frame, in each direction of the plane."""
    stage_jumps: float = 0.0
    """The share of frames before which the stage jumps."""
    jump_size: float = 3.0
    """How far it jumps: standard deviation in each direction of the plane, in radii of a cell."""
    missing_frames: float = 0.0
    """The share of frames that were not taken: time passes, and the movie has no picture of it."""

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
        """A cell with fewer pixels in view is out of view."""
        return max(4, round(0.06 * self.size / math.prod(self.spacing)))

    def as_dict(self) -> dict[str, Any]:
        """All settings as JSON can hold them; the class takes them back."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def _default_shape(self) -> tuple[int, ...]:
        """((z,) y, x): a field for the cells, a little wider than high and, in 3D, flat."""
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
    """Nuclei of cultured cells under a fluorescence microscope: round, dividing, crawling each its own way."""

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
    """Mean way of a cell in a frame."""
    persistence: float = 0.5
    """Correlation of a cell's velocity from one frame to the next."""
    cohesion: float = 0.25
    """How much cells keep together in clusters."""
    softness: float = 0.4
    """How easily one nucleus slides over another: 0 rarely, 1 often."""
    cycle: float = 90.0
    """Mean time from a cell's birth to its division."""
    death: float = 0.0005
    """Rate of cells that die, besides those that must to keep the number of cells."""
    brightness: float = 900.0
    """Mean signal of a nucleus above the background, in grey values."""
    brightness_spread: float = 0.45
    """Standard deviation of the logarithm of the brightness between families of cells."""
    merging: float = 0.5
    """How easily cells that touch are detected as one: 0 never, 1 at the first touch."""


@dataclass(frozen=True)
class BodySettings(SimulationSettings):
    """What kinds whose cells are drawn as bodies share."""

    ranges: ClassVar[dict[str, tuple[float, float]]] = RANGES | {
        "under_segmentation": (0.0, 0.9),
        "outline_error": SHARE,
    }

    under_segmentation: float = 0.003
    """The share of pairs of touching cells that are detected as one; once fused, they are so for some frames."""
    outline_error: float = 0.06
    """Standard deviation of a detected outline from the true one, as a share of the radius."""


def ball_volume(radius: float, dims: int) -> float:
    """Area of a disc or volume of a ball."""
    return math.pi * radius**2 if dims == 2 else math.pi * radius**3 * 4 / 3


def _check_number(
    name: str, value: Any, whole: bool, limits: tuple[float, float]
) -> None:
    """One setting is a number of the right kind and within its range."""
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
    """One positive number for each axis, as a tuple."""
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
    """A finite number of that kind; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return math.isfinite(cast("float", value))
