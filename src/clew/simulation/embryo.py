"""An early embryo in 3D: nuclei divide nearly synchronously and halve in volume.

The egg is an ellipsoid of constant volume that rotates slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clew.simulation.bodies import Bodies, make_bodies, make_spine
from clew.simulation.optics import Optics
from clew.simulation.rows import (
    Array,
    Rng,
    Rows,
    draw_unit_vectors,
    find_pairs,
    mean_length,
    random_walk,
    rotate_randomly,
    sum_over_pairs,
)
from clew.simulation.settings import (
    NON_NEGATIVE,
    POSITIVE,
    SHARE,
    BodySettings,
    draw_between,
    draw_body_settings,
)

EGG = 0.42
"""Semi-axes of the egg, as a share of the field."""

DIVIDES = 1.4
"""Nuclei above this volume divide, in units of the last frame."""
BEGIN = 0.35
"""Share of the cycle at which the movie begins."""


@dataclass(frozen=True)
class EmbryoSettings(BodySettings):
    """Settings of an embryo; the last frame has about `cells` nuclei."""

    kind: ClassVar[str] = "embryo"
    ranges: ClassVar[dict[str, tuple[float, float]]] = BodySettings.ranges | {
        "cycle": (5.0, math.inf),
        "asynchrony": NON_NEGATIVE,
        "speed": NON_NEGATIVE,
        "turning": NON_NEGATIVE,
        "mitosis": (1.0, 50.0),
        "brightness": POSITIVE,
        "attenuation": SHARE,
    }

    frames: int = 40
    cells: int = 60
    dims: int = 3
    radius: float = 7.0
    """Radius of a nucleus in the last frame."""
    density: float = 0.04
    cycle: float = 14.0
    """Frames between two rounds of divisions."""
    asynchrony: float = 0.6
    """Standard deviation of the time of a division within a round, in frames."""
    speed: float = 1.2
    """Mean displacement of a nucleus per frame, without pushes."""
    turning: float = 0.02
    """Rotation per frame, in radians."""
    mitosis: float = 2.0
    """Frames of condensed chromatin before a division."""
    brightness: float = 1000.0
    """Mean signal of a nucleus above the background."""
    attenuation: float = 0.5
    """Share of the light lost from the nearest to the farthest slice."""

    @property
    def founders(self) -> int:
        """Number of cells in the first frame."""
        most = math.floor(math.log2(self.cells))
        rounds = min(
            most, math.floor((self.frames - 1 + BEGIN * self.cycle) / self.cycle)
        )
        return max(1, round(self.cells / float(2**rounds)))


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    radius = draw_between(rng, 5.0, 9.0, log=True)
    return draw_body_settings(rng) | {
        "radius": radius,
        "density": draw_between(rng, 0.02, 0.08, log=True),
        "cycle": draw_between(rng, 8, 30, log=True),
        "asynchrony": draw_between(rng, 0.1, 3.0, log=True),
        "speed": radius * draw_between(rng, 0.05, 0.4, log=True),
        "turning": draw_between(rng, 0.002, 0.08, log=True),
        "mitosis": draw_between(rng, 1, 3),
        "brightness": draw_between(rng, 400, 2500, log=True),
        "attenuation": rng.uniform(0, 0.7),
        "blur": draw_between(rng, 0.8, 2.0),
    }


@dataclass
class Blastomeres(Rows):
    """All n nuclei."""

    position: Array
    """(n, d)"""
    velocity: Array
    """(n, d)"""
    axis: Array
    """(n, d) unit vector of the axis of division"""
    volume: Array
    """(n,) volume relative to the last frame"""
    age: Array
    """(n,) frames since birth"""
    cycle: Array
    """(n,) age at division"""
    tone: Array
    """(n,) factor on the brightness; inherited"""
    texture: Array
    """(n, 3)"""


class Embryo:
    """The nuclei and their dynamics."""

    cells: Blastomeres

    def __init__(self, settings: EmbryoSettings, rng: Rng) -> None:
        self.settings = settings
        self.rng = rng
        self.centre = np.array(settings.extent) / 2
        self.half = EGG * np.array(settings.extent)
        n = settings.founders
        dims = settings.dims
        inside = draw_unit_vectors(rng, n, dims) * rng.random((n, 1)) ** (1 / dims)
        none = np.zeros(n, np.int64)
        self.cells = Blastomeres(
            none,
            none,
            self.centre + 0.8 * self.half * inside,
            np.zeros((n, dims)),
            draw_unit_vectors(rng, n, dims),
            np.full(n, settings.cells / n),
            np.full(n, BEGIN * settings.cycle),
            np.zeros(n),
            np.exp(0.2 * rng.standard_normal(n)),
            rng.uniform(0, 1000, (n, 3)),
        )
        self.cells.cycle = self._draw_cycles(n)
        self._separate_overlapping(30)

    def step(self) -> None:
        """Advance by one frame: divide, move and separate nuclei, rotate the egg."""
        settings = self.settings
        rng = self.rng
        self.cells.age += 1
        self._divide_ripe()
        cells = self.cells
        cells.velocity = random_walk(
            rng, cells.velocity, settings.speed / mean_length(settings.dims), 0.5
        )
        cells.position = cells.position + cells.velocity
        self._rotate_embryo()
        cells.axis = rotate_randomly(rng, cells.axis, 0.1)
        self._separate_overlapping(6)

    def shift(self, way: Array) -> None:
        """Shift the egg by (d,)."""
        self.centre = self.centre + way
        self.cells.position = self.cells.position + way

    def make_bodies(self) -> Bodies:
        """Return the outlines; nuclei in mitosis are small and bright."""
        cells = self.cells
        settings = self.settings
        n = len(cells)
        ready = (cells.cycle - cells.age <= settings.mitosis) & (cells.volume > DIVIDES)
        grown = np.where(ready, 0.55, 1 - 0.4 * np.exp(-cells.age / 2))
        radius = settings.radius * (cells.volume * grown) ** (1 / settings.dims)
        half = (0.15 * radius)[:, None] * cells.axis
        spine = make_spine(cells.position, half)
        depth = (
            cells.position[:, 0] / settings.extent[0]
            if settings.dims == 3
            else np.zeros(n)
        )
        dimmed = 1 - settings.attenuation * np.clip(depth, 0, 1)
        level = settings.brightness * cells.tone * dimmed / np.sqrt(grown)
        return make_bodies(
            cells,
            spine,
            radius,
            level,
        )

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        settings = self.settings
        return Optics(
            settings,
            grain=0.2,
            grain_size=settings.radius / 5,
        )

    def _draw_cycles(self, n: int) -> Array:
        """Draw ages at division, (n,)."""
        late = self.settings.asynchrony * self.rng.standard_normal(n)
        return np.maximum(3 + self.settings.mitosis, self.settings.cycle + late)

    def _divide_ripe(self) -> None:
        """Divide ripe nuclei into two of half the volume."""
        # the last generation does not divide
        rng = self.rng
        ripe = (self.cells.age >= self.cells.cycle) & (self.cells.volume > DIVIDES)
        if not ripe.any():
            return
        mothers = self.cells[ripe]
        n = int(ripe.sum())
        axis = rotate_randomly(rng, mothers.axis, 0.2)
        apart = (
            1.1
            * self.settings.radius
            * (mothers.volume / 2) ** (1 / self.settings.dims)
        )
        share = 0.5 + 0.03 * np.clip(rng.standard_normal(n), -2, 2)
        sides = [
            mothers.make_daughters(
                position=mothers.position + (sign * apart)[:, None] * axis,
                velocity=(0.4 * sign * apart)[:, None] * axis,
                axis=draw_unit_vectors(rng, n, axis.shape[1]),
                volume=mothers.volume * part,
                age=mothers.age - mothers.cycle,  # keeps rounds synchronous
                cycle=self._draw_cycles(n),
                texture=rng.uniform(0, 1000, (n, 3)),
            )
            for sign, part in ((1.0, share), (-1.0, 1 - share))
        ]
        self.cells = self.cells[~ripe] + (sides[0] + sides[1])

    def _rotate_embryo(self) -> None:
        """Rotate the nuclei in the plane; the outline of the egg stays."""
        angle = self.settings.turning
        away = (self.cells.position - self.centre) / self.half
        y = away[:, -2].copy()
        x = away[:, -1].copy()
        away[:, -2], away[:, -1] = (
            math.cos(angle) * y - math.sin(angle) * x,
            math.sin(angle) * y + math.cos(angle) * x,
        )
        self.cells.position = self.centre + away * self.half

    def _separate_overlapping(self, rounds: int) -> None:
        """Push nuclei apart and keep them inside the egg."""
        cells = self.cells
        dims = self.settings.dims
        for _ in range(rounds):
            room = float(np.prod(2 * self.half)) / len(cells)
            keep = 0.75 * room ** (1 / dims)
            first, second, direction, distance = find_pairs(cells.position, keep)
            push = 0.12 * (keep - distance)[:, None] * direction
            cells.position = cells.position + sum_over_pairs(
                len(cells), first, second, push
            )
            away = (cells.position - self.centre) / self.half
            far = np.sqrt((away**2).sum(axis=1, keepdims=True))
            cells.position = self.centre + self.half * away / np.maximum(far, 1)
