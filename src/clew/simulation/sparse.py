"""Fast sparse cells that run and rest, and do not divide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clew.simulation.bodies import Bodies, make_bodies
from clew.simulation.optics import Optics
from clew.simulation.rows import (
    Array,
    Rng,
    Rows,
    draw_unit_vectors,
    mean_length,
    random_walk,
    rotate_randomly,
)
from clew.simulation.settings import (
    NON_NEGATIVE,
    POSITIVE,
    SHARE,
    BodySettings,
    draw_between,
    draw_body_settings,
    draw_sometimes,
)
from clew.simulation.torus import Torus

BEND = 0.25
"""Distance of the middle from the axis, in widths."""


@dataclass(frozen=True)
class SparseSettings(BodySettings):
    """Settings of fast cells."""

    kind: ClassVar[str] = "sparse"
    ranges: ClassVar[dict[str, tuple[float, float]]] = BodySettings.ranges | {
        "speed": NON_NEGATIVE,
        "persistence": (0.0, 0.99),
        "resting": SHARE,
        "pause": (1.0, math.inf),
        "aspect": (1.0, 6.0),
        "wobble": SHARE,
        "size_spread": (0.0, 0.8),
        "brightness": POSITIVE,
        "brightness_spread": (0.0, 2.0),
    }

    cells: int = 25
    radius: float = 8.0
    """Radius of a disc or ball of the same size."""
    density: float = 0.03
    speed: float = 18.0
    """Mean displacement of a running cell per frame."""
    persistence: float = 0.8
    """Correlation of a cell's velocity from one frame to the next."""
    resting: float = 0.25
    """Share of resting cells."""
    pause: float = 6.0
    """Mean duration of a rest, in frames."""
    aspect: float = 1.8
    """Length over width of a running cell; resting ones are round."""
    wobble: float = 0.15
    """Change of shape per frame."""
    size_spread: float = 0.2
    """Standard deviation of the logarithm of a cell's size."""
    brightness: float = 900.0
    """Mean signal of a cell above the background."""
    brightness_spread: float = 0.35
    """Standard deviation of its logarithm."""


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    radius = draw_between(rng, 5.0, 12.0, log=True)
    density = draw_between(rng, 0.01, 0.08, log=True)
    spacing = radius * math.sqrt(math.pi / density)
    return draw_body_settings(rng) | {
        "radius": radius,
        "density": density,
        "speed": spacing * draw_between(rng, 0.05, 0.5, log=True),
        "persistence": rng.uniform(0.2, 0.95),
        "resting": rng.uniform(0, 0.5),
        "pause": draw_between(rng, 2, 20, log=True),
        "aspect": draw_between(rng, 1.1, 3.0),
        "wobble": draw_between(rng, 0.05, 0.3),
        "size_spread": draw_between(rng, 0.05, 0.4),
        "brightness": draw_between(rng, 400, 2500, log=True),
        "brightness_spread": rng.uniform(0.1, 0.6),
        "drift": draw_sometimes(rng, 0.2, 0.1, 3.0),
    }


@dataclass
class Runners(Rows):
    """All n cells, in view and outside."""

    position: Array
    """(n, d)"""
    velocity: Array
    """(n, d) velocity while running"""
    runs: Array
    """(n,) 1 if running, 0 if resting"""
    axis: Array
    """(n, d) unit vector"""
    stretch: Array
    """(n,) length over width"""
    bend: Array
    """(n,) bend of the spine, in widths"""
    size: Array
    """(n,) area or volume"""
    tone: Array
    """(n,) signal"""
    texture: Array
    """(n, 3)"""


class Runs(Torus):
    """The fast cells and their dynamics."""

    cells: Runners

    def __init__(self, settings: SparseSettings, rng: Rng) -> None:
        # cells that leave must not return on the other side in the next frame
        super().__init__(
            settings,
            rng,
            margin=4 * settings.radius * settings.aspect + 2 * settings.speed,
        )
        self.settings = settings
        n = max(1, round(settings.cells * self.room))
        dims = settings.dims
        none = np.zeros(n, np.int64)
        self.deviation = settings.speed / mean_length(dims)
        self.cells = Runners(
            none,
            none,
            self.low + self.size * rng.random((n, dims)),
            self.deviation * rng.standard_normal((n, dims)),
            (rng.random(n) >= settings.resting).astype(np.float64),
            draw_unit_vectors(rng, n, dims),
            np.full(n, settings.aspect),
            np.zeros(n),
            settings.size * np.exp(settings.size_spread * rng.standard_normal(n)),
            settings.brightness
            * np.exp(settings.brightness_spread * rng.standard_normal(n)),
            rng.uniform(0, 1000, (n, 3)),
        )
        for _ in range(5):
            self.step()

    def step(self) -> None:
        """Advance by one frame: start and stop, move, and change shape."""
        cells = self.cells
        settings = self.settings
        rng = self.rng
        n = len(cells)
        wakes = 1 / settings.pause
        tires = min(
            1.0, wakes * settings.resting / max(1 - settings.resting, 1e-9)
        )  # as many stop as start
        cells.runs = np.where(
            rng.random(n) < np.where(cells.runs > 0, tires, wakes),
            1 - cells.runs,
            cells.runs,
        )
        cells.velocity = random_walk(
            rng, cells.velocity, self.deviation, settings.persistence
        )
        self.shift(cells.velocity * np.maximum(cells.runs, 0.05)[:, None])
        # fast cells turn into their direction of motion
        ahead = (
            cells.axis
            + cells.velocity * (cells.runs / max(settings.speed, 1e-9))[:, None]
        )
        cells.axis = rotate_randomly(
            rng, ahead / np.sqrt((ahead**2).sum(axis=1, keepdims=True)), settings.wobble
        )
        wish = 1 + (settings.aspect - 1) * cells.runs
        cells.stretch = cells.stretch + 0.4 * (wish - cells.stretch)
        cells.stretch = np.clip(
            cells.stretch * np.exp(settings.wobble * rng.standard_normal(n)), 1, 6
        )
        cells.bend = random_walk(rng, cells.bend[:, None], BEND, 0.6)[:, 0]
        self.separate(self._half_width(), rounds=2)

    def make_bodies(self) -> Bodies:
        """Return the outlines: bent, with a wide front."""
        cells = self.cells
        radius = self._half_width()
        half = ((cells.stretch - 1) * radius)[:, None] * cells.axis
        across = np.zeros_like(cells.axis)
        across[:, -2], across[:, -1] = cells.axis[:, -1], -cells.axis[:, -2]
        aside = (cells.bend * radius * (cells.stretch - 1))[:, None] * across
        spine = np.stack(
            [cells.position - half, cells.position + aside, cells.position + half],
            axis=1,
        )
        thin = 1 / np.sqrt(cells.stretch)
        widths = radius[:, None] * np.column_stack(
            [thin, np.ones(len(cells)), (1 + thin) / 2]
        )
        return make_bodies(
            cells,
            spine,
            widths,
            cells.tone,
        )

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        settings = self.settings
        return Optics(
            settings,
            grain=0.25,
            grain_size=settings.radius / 5,
        )

    def _half_width(self) -> Array:
        """Return half widths, (n,), that keep the size of stretched cells."""
        dims = self.settings.dims
        unit = math.pi if dims == 2 else 4 / 3 * math.pi
        width: Array = (self.cells.size / unit / self.cells.stretch) ** (1 / dims)
        return width
