"""Dense tissue in a divergence-free flow.

The flow is a constant current plus periodic waves that change slowly. Cells follow it
with little additional motion. Masks are discs.
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
    mean_length,
    normalize_rows,
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

WAVES = 8
"""Number of waves in the flow."""


@dataclass(frozen=True)
class TissueSettings(BodySettings):
    """Settings of a flowing tissue."""

    kind: ClassVar[str] = "tissue"
    ranges: ClassVar[dict[str, tuple[float, float]]] = BodySettings.ranges | {
        "current": NON_NEGATIVE,
        "flow": NON_NEGATIVE,
        "swirl": POSITIVE,
        "speed": NON_NEGATIVE,
        "unsteadiness": SHARE,
        "cycle": (8.0, math.inf),
        "elongation": (1.0, 3.0),
        "size_spread": (0.0, 0.5),
        "brightness": POSITIVE,
        "regularity": (0.0, 1.0),
    }

    frames: int = 40
    cells: int = 100
    radius: float = 8.0
    """Radius of a mask."""
    density: float = 0.3
    current: float = 10.0
    """Displacement of the whole tissue per frame."""
    flow: float = 8.0
    """Root mean square of the wave displacement per frame."""
    swirl: float = 0.5
    """Wavelength, relative to the field."""
    unsteadiness: float = 0.15
    """Change of the flow per frame: 0 constant, 1 independent."""
    speed: float = 3.0
    """Mean displacement of a cell relative to the flow per frame."""
    cycle: float = 60.0
    """Mean age at division; as many cells leave as divide."""
    elongation: float = 1.15
    """Length over width of a nucleus; masks are discs."""
    size_spread: float = 0.05
    """Standard deviation of the logarithm of the radius."""
    regularity: float = 0.85
    """Minimal cell distance, relative to a perfect lattice."""
    brightness: float = 1200.0
    """Mean signal of a nucleus above the background."""


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    radius = draw_between(rng, 5.0, 12.0, log=True)
    density = draw_between(rng, 0.12, 0.5, log=True)
    spacing = radius * math.sqrt(math.pi / density)
    return draw_body_settings(rng) | {
        "radius": radius,
        "density": density,
        "current": spacing * draw_between(rng, 0.02, 0.6, log=True),
        "flow": spacing * draw_between(rng, 0.02, 0.4, log=True),
        "swirl": draw_between(rng, 0.3, 1.0),
        "unsteadiness": draw_between(rng, 0.02, 0.6, log=True),
        "speed": spacing * draw_between(rng, 0.03, 0.2, log=True),
        "cycle": draw_between(rng, 30, 300, log=True),
        "elongation": draw_between(rng, 1.0, 1.6),
        "size_spread": draw_sometimes(rng, 0.7, 0.02, 0.15),
        "regularity": rng.uniform(0.6, 0.95),
        "brightness": draw_between(rng, 400, 2500, log=True),
        "blur": draw_between(rng, 0.8, 2.0),
    }


@dataclass
class Nuclei(Rows):
    """All n nuclei, in view and outside."""

    position: Array
    """(n, d)"""
    velocity: Array
    """(n, d) velocity relative to the flow"""
    axis: Array
    """(n, d) unit vector"""
    factor: Array
    """(n,) factor on the radius"""
    age: Array
    """(n,) frames since birth"""
    cycle: Array
    """(n,) age at division"""
    tone: Array
    """(n,) factor on the brightness; inherited"""
    texture: Array
    """(n, 3)"""


class Tissue(Torus):
    """The nuclei and their dynamics."""

    cells: Nuclei

    def __init__(self, settings: TissueSettings, rng: Rng) -> None:
        super().__init__(
            settings,
            rng,
            margin=max(4 * settings.radius, 2 * (settings.current + settings.flow)),
        )
        self.settings = settings
        self.number = max(1, round(settings.cells * self.room))
        dims = settings.dims
        volume = float(np.prod(self.size)) / self.number
        # the spacing of a triangular lattice, or of densely packed balls
        lattice = (
            math.sqrt(2 * volume / math.sqrt(3))
            if dims == 2
            else (math.sqrt(2) * volume) ** (1 / 3)
        )
        self.keep = settings.regularity * lattice
        self.direction = draw_unit_vectors(rng, 1, dims)[0]
        # periodic: a whole number of waves along each axis
        longest = settings.swirl * self.extent.max()
        wish = (
            draw_unit_vectors(rng, WAVES, dims)
            * self.size
            / longest
            * np.exp(0.3 * rng.standard_normal((WAVES, 1)))
        )
        whole = np.rint(wish)
        whole[~whole.any(axis=1), -1] = 1
        self.wave = 2 * math.pi * whole / self.size
        self.amplitude = self._make_divergence_free(rng.standard_normal((WAVES, dims)))
        self.phase = rng.uniform(0, 2 * math.pi, WAVES)
        self.cells = self._make_newcomers(
            self.low + self.size * rng.random((self.number, dims))
        )
        self.separate(np.full(self.number, self.keep / 2), rounds=40)

    def step(self) -> None:
        """Advance by one frame: flow, move, divide, remove and separate cells."""
        settings = self.settings
        rng = self.rng
        self.cells.age += 1
        self._divide_ripe()
        cells = self.cells
        dims = settings.dims
        change = settings.unsteadiness
        self.phase += change * rng.standard_normal(WAVES)
        fresh = self._make_divergence_free(rng.standard_normal(self.amplitude.shape))
        self.amplitude = math.sqrt(1 - change**2) * self.amplitude + change * fresh
        self.direction = rotate_randomly(rng, self.direction[None], change)[0]
        cells.velocity = random_walk(
            rng, cells.velocity, settings.speed / mean_length(dims), 0.3
        )
        self.shift(self.flow(cells.position) + cells.velocity)
        cells.axis = rotate_randomly(rng, cells.axis, 0.1)
        self.separate(np.full(len(cells), self.keep / 2), rounds=3, stiffness=0.3)

    def flow(self, position: Array) -> Array:
        """Return the displacement of the tissue at (n, d) positions."""
        waves = np.cos((position - self.low) @ self.wave.T + self.phase)
        around: Array = (
            self.settings.current * self.direction
            + self.settings.flow * waves @ self.amplitude
        )
        return around

    def make_bodies(self) -> Bodies:
        """Return the outlines; the light is elongated, masks are round."""
        cells = self.cells
        settings = self.settings
        radius = settings.radius * cells.factor * np.where(cells.age < 3, 0.85, 1.0)
        ready = cells.cycle - cells.age <= 2
        half = ((settings.elongation - 1) * radius * 0.5)[:, None] * cells.axis
        spine = make_spine(cells.position, half)
        level = (
            settings.brightness
            * cells.tone
            * np.where(ready | (cells.age < 2), 1.6, 1.0)
        )
        inset = radius * np.where(ready, 0.35, 0.15)
        return make_bodies(
            cells,
            spine,
            radius,
            level,
            inset=inset,
        )

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        settings = self.settings
        return Optics(
            settings,
            grain=0.15,
            grain_size=settings.radius / 6,
        )

    def _make_divergence_free(self, amplitude: Array) -> Array:
        """Project amplitudes (WAVES, d) across the waves, and scale them to unit variance."""
        way = normalize_rows(self.wave)
        across = amplitude - (amplitude * way).sum(axis=1, keepdims=True) * way
        unit: Array = across / math.sqrt(max((across**2).sum() / 2, 1e-12))
        return unit

    def _make_newcomers(self, position: Array) -> Nuclei:
        """Make unrelated cells of all ages."""
        n = len(position)
        rng = self.rng
        dims = position.shape[1]
        none = np.zeros(n, np.int64)
        family = self._draw_individual(n)
        return Nuclei(
            none,
            none,
            position,
            np.zeros((n, dims)),
            draw_unit_vectors(rng, n, dims),
            age=np.floor(rng.random(n) * family["cycle"]),
            tone=np.exp(0.3 * rng.standard_normal(n)),
            **family,
        )

    def _draw_individual(self, n: int) -> dict[str, Any]:
        """Draw the properties that a cell does not inherit."""
        rng = self.rng
        settings = self.settings
        return {
            "factor": np.exp(settings.size_spread * rng.standard_normal(n)),
            "cycle": np.maximum(
                6, np.round(settings.cycle * np.exp(0.2 * rng.standard_normal(n)))
            ),
            "texture": rng.uniform(0, 1000, (n, 3)),
        }

    def _divide_ripe(self) -> None:
        """Divide ripe cells, and remove as many others as are too many."""
        rng = self.rng
        ripe = self.cells.age >= self.cells.cycle
        mothers = self.cells[ripe]
        n = int(ripe.sum())
        axis = rotate_randomly(rng, mothers.axis, 0.3)
        sides = [
            mothers.make_daughters(
                position=mothers.position + sign * 0.32 * self.keep * axis,
                axis=rotate_randomly(rng, axis, 0.3),
                velocity=sign * 0.06 * self.keep * axis,
                age=np.zeros(n),
                **self._draw_individual(n),
            )
            for sign in (1.0, -1.0)
        ]
        others = self.cells[~ripe]
        surplus = len(others) + 2 * n - self.number
        if surplus > 0 and len(others):
            leave = rng.choice(len(others), min(surplus, len(others)), replace=False)
            others = others[np.setdiff1d(np.arange(len(others)), leave)]
        self.cells = others + (sides[0] + sides[1])
