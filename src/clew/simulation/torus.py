"""A world without borders, larger than the field of view: what leaves on one side comes in on the other, as new."""

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
    """Where cells are: positions (n, d) are in the field's coordinates, and wrap around beyond its margin."""

    cells: Any
    """A `Rows` with `position` (n, d)."""

    def __init__(self, settings: BodySettings, rng: Rng, margin: float) -> None:
        self.rng = rng
        self.extent = np.array(settings.extent)
        self.low = np.full(len(self.extent), -margin)
        self.size = self.extent + 2 * margin
        self.room = float(np.prod(self.size / self.extent))
        """How many times the field of view the world is."""

    def shift(self, way: Array) -> None:
        """Move all cells, by one way (d,) or each its own (n, d); those that wrap around are others from then on."""
        moved = self.cells.position + way
        self.cells.position = self.low + (moved - self.low) % self.size
        wrapped = (np.abs(self.cells.position - moved) > 1e-6 * self.size).any(axis=1)
        self.cells.track = np.where(wrapped, 0, self.cells.track)
        self.cells.mother = np.where(wrapped, 0, self.cells.mother)

    def pairs(self, reach: float) -> tuple[Pairs, Pairs, Array, Array]:
        """Pairs closer than `reach`: rows of both, unit vectors (m, d) from the second to the first, distance."""
        wrapped = (self.cells.position - self.low) % self.size
        reach = min(reach, 0.49 * float(self.size.min()))
        pairs = (
            cKDTree(wrapped, boxsize=self.size)
            .query_pairs(reach, output_type="ndarray")
            .astype(np.int64)
        )
        first, second = pairs[
            np.lexsort(pairs.T)
        ].T  # sums over pairs do not depend on how the tree was walked
        apart = (
            self.cells.position[first] - self.cells.position[second] + self.size / 2
        ) % self.size - self.size / 2
        distance = np.sqrt((apart**2).sum(axis=1))
        return first, second, apart / np.maximum(distance, 1e-9)[:, None], distance

    def separate(self, radius: Array, rounds: int, stiffness: float = 0.5) -> None:
        """Cells closer than the sum of their radii (n,) give way, in some rounds, for one push may lead to another."""
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
    """(n, d) velocities after a frame: an Ornstein–Uhlenbeck step with that stationary deviation."""
    impulse = np.sqrt(1 - persistence**2) * rng.standard_normal(velocity.shape)
    walk: Array = persistence * velocity + np.reshape(deviation, (-1, 1)) * impulse
    return walk
