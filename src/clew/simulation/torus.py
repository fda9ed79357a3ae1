"""A periodic world, larger than the field of view."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.simulation.rows import Array, sum_over_pairs
from clew.simulation.scene import Rng
from clew.simulation.settings import BodySettings

Pairs = NDArray[np.int64]


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

    def pairs(self, reach: float) -> tuple[Pairs, Pairs, Array, Array]:
        """Find pairs closer than `reach`: both rows, unit vectors (m, d), distances."""
        wrapped = (self.cells.position - self.low) % self.size
        reach = min(reach, 0.49 * float(self.size.min()))
        pairs = (
            cKDTree(wrapped, boxsize=self.size)
            .query_pairs(reach, output_type="ndarray")
            .astype(np.int64)
        )
        first, second = pairs[
            np.lexsort(pairs.T)
        ].T  # a fixed order makes sums reproducible
        apart = (
            self.cells.position[first] - self.cells.position[second] + self.size / 2
        ) % self.size - self.size / 2
        distance = np.sqrt((apart**2).sum(axis=1))
        return first, second, apart / np.maximum(distance, 1e-9)[:, None], distance

    def separate(self, radius: Array, rounds: int, stiffness: float = 0.5) -> None:
        """Push apart cells closer than the sum of their radii (n,), in several rounds."""
        for _ in range(rounds):
            first, second, direction, distance = self.pairs(
                2 * float(radius.max(initial=0))
            )
            missing = np.maximum(radius[first] + radius[second] - distance, 0)
            if not missing.any():
                return
            push = direction * (stiffness * missing / 2)[:, None]
            self.shift(sum_over_pairs(len(self.cells), first, second, push))


def random_walk(
    rng: Rng, velocity: Array, deviation: Array | float, persistence: float
) -> Array:
    """Return (n, d) velocities after an Ornstein–Uhlenbeck step."""
    impulse = np.sqrt(1 - persistence**2) * rng.standard_normal(velocity.shape)
    walk: Array = persistence * velocity + np.reshape(deviation, (-1, 1)) * impulse
    return walk
