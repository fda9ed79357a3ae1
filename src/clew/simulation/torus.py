"""A periodic world, larger than the field of view."""

from __future__ import annotations

from typing import Any

import numpy as np

from clew.simulation.rows import Array, Rng, find_pairs, sum_over_pairs
from clew.simulation.settings import BodySettings


class Torus:
    """Positions (n, d) in coordinates of the field, which wrap around beyond a margin."""

    cells: Any
    """A `Rows` with `position` (n, d)."""

    def __init__(self, settings: BodySettings, rng: Rng, margin: float) -> None:
        self.rng = rng
        self.extent = np.array(settings.extent)
        self.low = np.full(len(self.extent), -margin)
        self.size = self.extent + 2 * margin
        self.room = float(np.prod(self.size / self.extent))
        """Size of the world, relative to the field of view."""

    def shift(self, way: Array) -> None:
        """Shift cells by (d,) or (n, d); cells that wrap around become new cells."""
        moved = self.cells.position + way
        self.cells.position = self.low + (moved - self.low) % self.size
        wrapped = (np.abs(self.cells.position - moved) > 1e-6 * self.size).any(axis=1)
        self.cells.track = np.where(wrapped, 0, self.cells.track)
        self.cells.mother = np.where(wrapped, 0, self.cells.mother)

    def separate(self, radius: Array, rounds: int, stiffness: float = 0.5) -> None:
        """Push apart cells closer than the sum of their radii (n,), in several rounds."""
        widest = 0.49 * float(self.size.min())
        for _ in range(rounds):
            reach = min(2 * float(radius.max(initial=0)), widest)
            first, second, direction, distance = find_pairs(
                self.cells.position, reach, self.low, self.size
            )
            missing = np.maximum(radius[first] + radius[second] - distance, 0)
            if not missing.any():
                return
            push = direction * (stiffness * missing / 2)[:, None]
            self.shift(sum_over_pairs(len(self.cells), first, second, push))
