"""State of simulated nuclei: one array for each property."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.simulation.rows import Array, Rng, Rows, draw_unit_vectors, rotate_randomly
from clew.simulation.settings import NucleiSettings

WAVES = 3
"""Number of waves that make an outline irregular."""
MITOSIS = 3
"""Longest visible mitosis, in frames."""
AGONY = 4
"""Frames for which a dying cell is visible."""
DECONDENSING = 2.2
"""Time constant of decondensation after a division, in frames."""


@dataclass
class Cells(Rows):
    """All n cells, in view and outside; positions are ((z,) y, x)."""

    position: Array
    """(n, d)"""
    velocity: Array
    """(n, d) per frame"""
    pace: Array
    """(n,) factor on the speed"""
    axis: Array
    """(n, d) unit vector of the long axis, which is also the axis of division"""
    aspect: Array
    """(n,) length along the axis over width"""
    age: Array
    """(n,) frames since birth"""
    cycle: Array
    """(n,) age at division"""
    mitosis: NDArray[np.int64]
    """(n,) frames of condensed chromatin before the division"""
    birth_size: Array
    """(n,) area or volume"""
    growth: Array
    """(n,) growth factor over the cycle"""
    brightness: Array
    """(n,) signal per area or volume before condensation; inherited"""
    wave: Array
    """(n, WAVES, 4) direction and phase of the waves of its outline"""
    texture: Array
    """(n, 3) offset in the common texture"""
    dying: NDArray[np.int64]
    """(n,) frames until the dying cell is gone, -1 if alive"""

    @property
    def size(self) -> Array:
        """Area or volume without condensation, (n,)."""
        grown: Array = self.birth_size * self.growth ** np.minimum(
            self.age / self.cycle, 1.0
        )
        return grown

    @property
    def mass(self) -> Array:
        """Total light of a nucleus, (n,); condensation does not change it."""
        return self.brightness * self.size

    @property
    def until_division(self) -> Array:
        """Frames until division, (n,); infinite for dying cells."""
        return np.where(self.dying < 0, np.ceil(self.cycle - self.age), np.inf)

    @property
    def condensation(self) -> Array:
        """Condensed size over size, (n,), in (0, 1]."""
        plate = self.until_division <= 1
        prophase = (self.until_division <= self.mitosis) & ~plate
        relaxing = 1 - 0.5 * np.exp(-self.age / DECONDENSING)
        living = np.select(
            [plate, prophase], [np.float64(0.36), np.float64(0.72)], relaxing
        )
        return np.where(self.dying >= 0, 0.25 + 0.6 * self.dying / AGONY, living)

    @property
    def elongation(self) -> Array:
        """Length over width, (n,); a metaphase plate lies across the axis."""
        late = np.clip(self.until_division - 1, 0, 1)  # 0 for the plate
        young = np.exp(-self.age / DECONDENSING)
        shape = self.aspect ** (1 - young) * 0.65**young
        return np.where(self.dying >= 0, 1.0, np.where(late == 0, 0.36, shape))

    @property
    def grain(self) -> Array:
        """Contrast of the texture, (n,)."""
        coarse = (self.until_division <= self.mitosis) | (self.dying >= 0)
        return np.where(coarse, 0.45, 0.12 + 0.2 * np.exp(-self.age / DECONDENSING))

    def semi_axes(self, dims: int) -> tuple[Array, Array]:
        """Visible semi-axes along and across the axis, (n,) each."""
        radius = radius_of(self.size * self.condensation, dims)
        across = radius * self.elongation ** (-1 / dims)
        return across * self.elongation, across


def radius_of(size: Array, dims: int) -> Array:
    """Return the radius of a disc or ball of a given area or volume."""
    return np.sqrt(size / np.pi) if dims == 2 else np.cbrt(size * 3 / (4 * np.pi))


def make_newcomers(settings: NucleiSettings, rng: Rng, position: Array) -> Cells:
    """Make unrelated cells at (n, d) positions, with the ages of a growing culture."""
    n, dims = position.shape
    phase = -np.log2(
        1 - rng.random(n) / 2
    )  # in exponential growth, new cells are twice as frequent as old ones
    family = _draw_individual(settings, rng, n)
    return Cells(
        position=position.copy(),
        velocity=np.zeros((n, dims)),
        axis=draw_unit_vectors(rng, n, dims),
        age=np.floor(phase * (family["cycle"] - 1)),
        birth_size=settings.size * 0.69 * np.exp(0.15 * rng.standard_normal(n)),
        brightness=settings.brightness
        * np.exp(settings.brightness_spread * rng.standard_normal(n)),
        track=np.zeros(n, np.int64),
        mother=np.zeros(n, np.int64),
        **family,
    )


def make_daughters(settings: NucleiSettings, rng: Rng, mothers: Cells) -> Cells:
    """Make two daughters of each mother, which share her light."""
    n = len(mothers)
    share = 0.5 + 0.03 * np.clip(rng.standard_normal(n), -2, 2)
    axis = rotate_randomly(rng, mothers.axis, 0.3)
    half_way = 1.5 * radius_of(mothers.size / 2, settings.dims)
    sides = []
    for sign, part in ((1.0, share), (-1.0, 1 - share)):
        birth_size = mothers.size * part
        family = _draw_individual(settings, rng, n)
        # cells that are born small grow more, so that sizes stay stable
        family["growth"] = 2 * np.sqrt(settings.size * 0.69 / birth_size)
        away = sign * axis
        sides.append(
            mothers.make_daughters(
                position=mothers.position + away * half_way[:, None],
                velocity=away * (0.25 * half_way)[:, None],
                axis=rotate_randomly(rng, axis, 0.3),
                age=np.zeros(n),
                birth_size=birth_size,
                **family,
            )
        )
    return sides[0] + sides[1]


def _draw_individual(settings: NucleiSettings, rng: Rng, n: int) -> dict[str, Any]:
    """Draw the properties that a cell does not inherit."""
    return {
        "pace": np.exp(0.4 * rng.standard_normal(n)),
        "aspect": 1.0 + 0.25 * rng.gamma(2.0, 0.6, n),
        "cycle": np.maximum(
            2 * MITOSIS,
            np.round(settings.cycle * np.exp(0.13 * rng.standard_normal(n))),
        ),
        "mitosis": rng.integers(1, MITOSIS + 1, n),
        "growth": np.full(n, 2.0),
        "wave": np.concatenate(
            [
                2.2 * rng.standard_normal((n, WAVES, 3)),
                rng.uniform(0, 7, (n, WAVES, 1)),
            ],
            axis=2,
        ),
        "texture": rng.uniform(0, 1000, (n, 3)),
        "dying": np.full(n, -1),
    }
