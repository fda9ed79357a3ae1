"""Tables of simulated cells, and the geometry of their motion.

A table has one array for each property; rows can be selected and joined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Rng = np.random.Generator
Array = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass
class Rows:
    """Arrays with a row for each cell; subclasses name them."""

    track: Ids
    """(n,) its track in the truth, 0 where it is out of view"""
    mother: Ids
    """(n,) in the frame of its birth the track of its mother, else 0"""

    def __len__(self) -> int:
        return len(self.track)

    def __getitem__(self, rows: Any) -> Self:
        """Select cells."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def __add__(self, other: Self) -> Self:
        """Join two tables."""
        return type(self)(
            **{
                f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)])
                for f in fields(self)
            }
        )

    def make_daughters(self, **changes: Any) -> Self:
        """Return newborn copies without tracks, one of each cell."""
        none = np.zeros(len(self), np.int64)
        return replace(self, track=none, mother=self.track, **changes)


def find_pairs(
    position: Array, reach: float, low: Array | float = 0.0, size: Array | None = None
) -> tuple[Ids, Ids, Array, Array]:
    """Find pairs of cells closer than `reach`.

    Parameters
    ----------
    position : ndarray of shape (n, d)
    reach : float
    low, size : ndarray of shape (d,), optional
        Corner and size of a periodic world.

    Returns
    -------
    first, second : ndarray of shape (m,)
        Rows of both cells, in a fixed order, which makes sums reproducible.
    direction : ndarray of shape (m, d)
        Unit vectors from the second to the first.
    distance : ndarray of shape (m,)
    """
    tree = cKDTree(position if size is None else (position - low) % size, boxsize=size)
    pairs = tree.query_pairs(reach, output_type="ndarray").astype(np.int64)
    first, second = pairs[np.lexsort(pairs.T)].T
    apart = position[first] - position[second]
    if size is not None:
        apart = (apart + size / 2) % size - size / 2
    distance = np.sqrt((apart**2).sum(axis=1))
    return first, second, apart / np.maximum(distance, 1e-9)[:, None], distance


def sum_over_pairs(n: int, first: Ids, second: Ids, push: Array) -> Array:
    """Return the shift (n, d) of n cells if `push` (m, d) moves the first of each pair and −`push` the second."""
    return np.column_stack(
        [
            np.bincount(first, p, minlength=n) - np.bincount(second, p, minlength=n)
            for p in push.T
        ]
    )


def random_walk(
    rng: Rng, velocity: Array, deviation: Array | float, persistence: float
) -> Array:
    """Return (n, d) velocities after an Ornstein–Uhlenbeck step."""
    impulse = np.sqrt(1 - persistence**2) * rng.standard_normal(velocity.shape)
    walk: Array = persistence * velocity + np.reshape(deviation, (-1, 1)) * impulse
    return walk


def mean_length(dims: int) -> float:
    """Return the mean length of a standard normal vector."""
    return math.sqrt(2) * math.gamma((dims + 1) / 2) / math.gamma(dims / 2)


def draw_unit_vectors(rng: Rng, n: int, dims: int) -> Array:
    """Draw n unit vectors, (n, d)."""
    return normalize_rows(rng.standard_normal((n, dims)))


def rotate_randomly(rng: Rng, vectors: Array, angle: float) -> Array:
    """Rotate (n, d) unit vectors randomly by about an angle."""
    moved = vectors + angle / np.sqrt(
        max(1, vectors.shape[1] - 1)
    ) * rng.standard_normal(vectors.shape)
    return normalize_rows(moved)


def normalize_rows(vectors: Array) -> Array:
    """Scale rows to length 1."""
    unit: Array = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return unit
