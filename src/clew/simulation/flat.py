"""Flat cells in phase contrast: spindles that round up and brighten before division."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clew.simulation.bodies import Bodies, make_bodies, make_spine
from clew.simulation.optics import Optics
from clew.simulation.rows import (
    Array,
    Ids,
    Rng,
    Rows,
    draw_unit_vectors,
    random_walk,
    rotate_randomly,
)
from clew.simulation.settings import (
    NON_NEGATIVE,
    SHARE,
    BodySettings,
    draw_between,
    draw_body_settings,
    draw_sometimes,
)
from clew.simulation.torus import Torus

FLATTENING = 5.0
"""Time constant of flattening after a division, in frames."""
ENDS = 0.3
"""Radius at the ends of a spindle, relative to the middle."""
CROWDED = 1.8
"""Growth stops at this multiple of the requested number of cells."""
ROUND = 0.8
"""Area of a round cell, relative to the flat cell."""


@dataclass(frozen=True)
class FlatSettings(BodySettings):
    """Settings of a culture of flat cells."""

    kind: ClassVar[str] = "flat"
    ranges: ClassVar[dict[str, tuple[float, float]]] = BodySettings.ranges | {
        "dims": (2, 2),
        "aspect": (1.2, 12.0),
        "speed": NON_NEGATIVE,
        "persistence": (0.0, 0.99),
        "cycle": (8.0, math.inf),
        "mitosis": (1.0, 50.0),
        "bend": SHARE,
        "rounding": SHARE,
        "death": SHARE,
        "contrast": (-5.0, 5.0),
        "halo": NON_NEGATIVE,
        "flash": NON_NEGATIVE,
        "wobble": SHARE,
    }

    cells: int = 60
    radius: float = 7.5
    """Radius of a disc with the area of an average cell."""
    density: float = 0.045
    blur: float = 1.8
    unevenness: float = 0.12
    aspect: float = 3.0
    """Length over width of an average cell."""
    speed: float = 0.6
    """Mean displacement of a cell per frame."""
    persistence: float = 0.6
    """Correlation of a cell's velocity from one frame to the next."""
    cycle: float = 150.0
    """Mean time from a cell's birth to its division."""
    mitosis: float = 3.0
    """Frames for which a cell is round before its division."""
    rounding: float = 0.5
    """Smallest roundness before a division: 0 flat, 1 round."""
    wobble: float = 0.05
    """Change of length, bend and direction per frame."""
    bend: float = 0.2
    """Distance of the middle from the axis, relative to the length."""
    death: float = 0.0003
    """Rate of cells that round up and die."""
    contrast: float = 1.0
    """Signal of a flat cell, relative to the background."""
    halo: float = 0.1
    """Brightness of the halo, relative to the background."""
    flash: float = 0.8
    """Additional brightness of a round cell."""


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    radius = draw_between(rng, 6.0, 14.0, log=True)
    return draw_body_settings(rng) | {
        "radius": radius,
        "density": draw_between(rng, 0.04, 0.35, log=True),
        "aspect": draw_between(rng, 1.8, 5.0),
        "speed": radius * draw_between(rng, 0.03, 0.5, log=True),
        "persistence": rng.uniform(0.2, 0.9),
        "cycle": draw_between(rng, 40, 300, log=True),
        "mitosis": draw_between(rng, 1, 6, log=True),
        "rounding": rng.uniform(0.3, 1),
        "wobble": draw_between(rng, 0.02, 0.12, log=True),
        "bend": rng.uniform(0.05, 0.3),
        "death": draw_between(rng, 1e-4, 2e-3, log=True),
        "contrast": draw_between(rng, 0.15, 1.2) * rng.choice([1.0, 1.0, -0.5]),
        "halo": draw_between(rng, 0.02, 0.4, log=True),
        "flash": draw_between(rng, 0.3, 2.0),
        "blur": draw_between(rng, 0.8, 2.2),
        "drift": draw_sometimes(rng, 0.2, 0.1, 3.0),
    }


@dataclass
class Spindles(Rows):
    """All n cells, in view and outside."""

    position: Array
    """(n, 2)"""
    velocity: Array
    """(n, 2) per frame"""
    axis: Array
    """(n, 2) unit vector"""
    area: Array
    """(n,) of the flat cell"""
    stretch: Array
    """(n,) length over width of the flat cell"""
    bend: Array
    """(n,) distance of the middle from the axis, relative to the length"""
    roundness: Array
    """(n,) 0 flat, 1 round"""
    peak: Array
    """(n,) largest roundness before division"""
    age: Array
    """(n,) frames since birth"""
    cycle: Array
    """(n,) age at division"""
    dying: Ids
    """(n,) frames until the dying cell is gone, -1 if alive"""
    tone: Array
    """(n,) factor on the contrast"""
    texture: Array
    """(n, 3)"""


class Culture(Torus):
    """The flat cells and their dynamics."""

    cells: Spindles

    def __init__(self, settings: FlatSettings, rng: Rng) -> None:
        super().__init__(settings, rng, margin=2.5 * settings.aspect * settings.radius)
        self.settings = settings
        # grow so that the middle of the movie has the requested number of cells
        growth = min(2 ** min(settings.frames / settings.cycle, 10), CROWDED**2)
        n = max(1, round(settings.cells * self.room / math.sqrt(growth)))
        self.cells = self._make_newcomers(self.low + self.size * rng.random((n, 2)))
        self.separate(self._exclusion_radius(), rounds=30)
        for _ in range(10):
            self.step()

    def step(self) -> None:
        """Advance by one frame."""
        cells = self.cells
        settings = self.settings
        rng = self.rng
        cells.age += 1
        self._divide_ripe()
        self._remove_dying()
        cells = self.cells
        mitotic = (cells.cycle - cells.age <= settings.mitosis) | (cells.dying >= 0)
        pace = 1 - 1 / FLATTENING
        cells.roundness = np.where(
            mitotic,
            np.minimum(cells.peak, cells.roundness + 0.55),
            cells.roundness * pace,
        )
        still = 1 - 0.8 * cells.roundness
        deviation = settings.speed / math.sqrt(math.pi / 2) * still
        cells.velocity = random_walk(
            rng, cells.velocity, deviation, settings.persistence
        )
        # a spindle moves along its axis more than across it
        along = (cells.velocity * cells.axis).sum(axis=1, keepdims=True) * cells.axis
        self.shift(1.25 * along + 0.6 * (cells.velocity - along))
        wobble = settings.wobble
        n = len(cells)
        cells.axis = rotate_randomly(rng, cells.axis, wobble)
        cells.stretch = np.clip(
            cells.stretch * np.exp(wobble * rng.standard_normal(n)),
            1.2,
            3 * settings.aspect,
        )
        cells.bend = random_walk(
            rng, cells.bend[:, None], settings.bend / 2, 1 - wobble
        )[:, 0]
        self.separate(self._exclusion_radius(), rounds=2)

    def make_bodies(self) -> Bodies:
        """Return the outlines of the cells."""
        cells = self.cells
        settings = self.settings
        shape, flat = self._length_and_width()
        length, width = shape
        middle = width / 2
        ends = middle * (1 - flat * (1 - ENDS))
        half = np.maximum(length / 2 - ends, 0)[:, None] * cells.axis
        across = cells.axis[:, ::-1] * np.array([1.0, -1.0])
        aside = (flat * cells.bend * length)[:, None] * across
        spine = make_spine(cells.position, half, aside)
        bright = (
            settings.background
            * cells.tone
            * (settings.contrast + abs(settings.contrast) * settings.flash * (1 - flat))
        )
        return make_bodies(
            cells,
            spine,
            np.column_stack([ends, middle, ends]),
            bright,
            settings.background * settings.halo * (1 + (1 - flat)),
        )

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        settings = self.settings
        return Optics(
            settings,
            grain=0.25,
            grain_size=settings.radius / 4,
            halo_width=0.35 * settings.radius,
            dirt=0.006,
        )

    def _length_and_width(self) -> tuple[tuple[Array, Array], Array]:
        """Return (length, width) and flatness of the cells, (n,) each."""
        cells = self.cells
        flat = 1 - cells.roundness
        grown = (
            cells.area
            * (0.7 + 0.6 * np.minimum(cells.age / cells.cycle, 1))
            * (ROUND + (1 - ROUND) * flat)
        )
        dying = np.where(cells.dying >= 0, 0.5 + 0.1 * cells.dying, 1.0)
        stretch = cells.stretch**flat
        # corrects for the thin ends, which cover less than an ellipse
        width = np.sqrt(4 / math.pi * grown * dying / stretch) * (1 + 0.12 * flat)
        return (width * stretch, width), flat

    def _exclusion_radius(self) -> Array:
        """Return the radius within which a cell repels others, (n,)."""
        (length, width), _ = self._length_and_width()
        return 0.35 * width + 0.25 * np.sqrt(length * width)

    def _make_newcomers(self, position: Array) -> Spindles:
        """Make unrelated cells with the ages of a growing culture."""
        n = len(position)
        rng = self.rng
        none = np.zeros(n, np.int64)
        area = self.settings.size * np.exp(0.25 * rng.standard_normal(n))
        family = self._draw_individual(n)
        age = np.floor(-np.log2(1 - rng.random(n) / 2) * (family["cycle"] - 1))
        axis = draw_unit_vectors(rng, n, 2)
        still = np.zeros((n, 2))
        return Spindles(
            none,
            none,
            position,
            still,
            axis,
            area,
            roundness=np.zeros(n),
            age=age,
            **family,
        )

    def _draw_individual(self, n: int) -> dict[str, Any]:
        """Draw the properties that a cell does not inherit."""
        rng = self.rng
        settings = self.settings
        cycle = np.round(settings.cycle * np.exp(0.2 * rng.standard_normal(n)))
        return {
            "stretch": np.maximum(
                1.2, settings.aspect * np.exp(0.3 * rng.standard_normal(n))
            ),
            "bend": settings.bend * rng.standard_normal(n) / 2,
            "cycle": np.maximum(3 + 2 * settings.mitosis, cycle),
            "peak": rng.uniform(self.settings.rounding, 1, n),
            "dying": np.full(n, -1),
            "tone": np.exp(0.25 * rng.standard_normal(n)),
            "texture": rng.uniform(0, 1000, (n, 3)),
        }

    def _divide_ripe(self) -> None:
        """Divide cells at the end of their cycle into two round ones."""
        ripe = (self.cells.age >= self.cells.cycle) & (self.cells.dying < 0)
        if not ripe.any():
            return
        mothers = self.cells[ripe]
        rng = self.rng
        n = int(ripe.sum())
        axis = rotate_randomly(rng, mothers.axis, 0.5)
        apart = rng.uniform(0.4, 0.8, n) * np.sqrt(mothers.area / math.pi)
        share = 0.5 + 0.04 * np.clip(rng.standard_normal(n), -2, 2)
        sides = []
        for sign, part in ((1.0, share), (-1.0, 1 - share)):
            # cells that are born small grow more, so that sizes stay stable
            area = np.sqrt(mothers.area * 2 * part * self.settings.size)
            sides.append(
                mothers.make_daughters(
                    position=mothers.position + (sign * apart)[:, None] * axis,
                    axis=rotate_randomly(rng, axis, 0.4),
                    velocity=(0.2 * sign * apart)[:, None] * axis,
                    area=area,
                    age=np.zeros(n),
                    roundness=0.75 * mothers.peak,
                    **self._draw_individual(n),
                )
            )
        self.cells = self.cells[~ripe] + (sides[0] + sides[1])

    def _remove_dying(self) -> None:
        """Let some cells round up and die, more in a crowded culture."""
        cells = self.cells[self.cells.dying != 0]
        crowd = len(cells) / (CROWDED * self.room * self.settings.cells)
        rate = self.settings.death + max(0.0, crowd - 1) / self.settings.cycle * 4
        begins = (
            (self.rng.random(len(cells)) < rate) & (cells.dying < 0) & (cells.age > 5)
        )
        cells.dying = np.where(
            begins, 5, np.where(cells.dying > 0, cells.dying - 1, cells.dying)
        )
        self.cells = cells
