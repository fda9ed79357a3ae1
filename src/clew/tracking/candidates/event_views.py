"""Candidate events as their cells, in a movie's own units: what the features are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections, Overlap
from clew.tracking.measurement.regions import support_directions
from clew.tracking.profiling.scales import Scales

DIM = 0.05
"""The least brightness, relative to the median: logarithms of less would be noise."""
FARTHEST = 20.0
"""In diameters: how far off a cell is of which there is none."""


class Cells:
    """The cells of one frame, made dimensionless: lengths in diameters, volumes and intensities in medians."""

    def __init__(self, frame: Detections, scales: Scales) -> None:
        self.frame, self.scales = frame, scales
        self.position: Array = frame.position / scales.diameter

    @property
    def step(self) -> float:
        """The usual displacement in diameters."""
        return self.scales.displacement / self.scales.diameter

    def column(self, name: str, unit: float = 1.0) -> Array:
        """A measured column in a unit."""
        return np.asarray(self.frame.columns[name], dtype=np.float64) / unit

    @cached_property
    def size(self) -> Array:
        """(n,) volume."""
        return self.column("volume", self.scales.volume or 1.0)

    @cached_property
    def brightness(self) -> Array:
        """(n,) mean above background; darker cells on a brighter background count as bright too."""
        return np.maximum(self.column("intensity", self.scales.intensity or 1.0), DIM)

    @cached_property
    def mass(self) -> Array:
        """(n,) brightness summed over the cell."""
        return self.size * self.brightness

    @cached_property
    def deviation(self) -> Array:
        """(n,) of the intensity within the cell."""
        return self.column("deviation", abs(self.scales.intensity or 1.0))

    @cached_property
    def quantiles(self) -> Array:
        """(n, q) of the intensity within the cell."""
        return self.column("quantiles", abs(self.scales.intensity or 1.0))

    @cached_property
    def axes(self) -> Array:
        """(n, ndim) longest first."""
        return self.column("axes", self.scales.diameter)

    @cached_property
    def eccentricity(self) -> Array:
        """(n,)"""
        return self.column("eccentricity")

    @cached_property
    def elongation(self) -> Array:
        """(n,) 0 for a round cell, near 1 for a rod: how much its direction means."""
        return np.asarray(1 - (self.axes[:, -1] / self.axes[:, 0]) ** 2)

    @cached_property
    def direction(self) -> Array:
        """(n, ndim) unit vector along the longest axis, of either sign."""
        return self.column("direction")

    @cached_property
    def length(self) -> Array:
        """(n,) of a rod with the same second moment along its axis."""
        return np.asarray(np.sqrt(12) * self.axes[:, 0])

    @cached_property
    def border_distance(self) -> Array:
        """(n,)"""
        return self.column("border_distance", self.scales.diameter)

    @cached_property
    def border_share(self) -> Array:
        """(n,)"""
        return self.column("border_share")

    @cached_property
    def support(self) -> Array:
        """(n, K) the support function around the origin of the frame, not of the cell."""
        toward = support_directions(self.position.shape[1])
        return self.column("support", self.scales.diameter) + self.position @ toward.T


class Shared:
    """How much the masks of two cells of two frames share, in median volumes."""

    def __init__(
        self, overlap: Overlap, n_sources: int, n_targets: int, scales: Scales
    ) -> None:
        self.n_targets = n_targets
        self.keys = (
            overlap.source * n_targets + overlap.target
        )  # ascending, as the overlaps are
        self.volume = np.append(overlap.volume, 0.0) / (scales.volume or 1.0)
        self.of_source: Array = np.bincount(
            overlap.source, self.volume[:-1], n_sources
        ).astype(float)
        self.of_target: Array = np.bincount(
            overlap.target, self.volume[:-1], n_targets
        ).astype(float)

    def between(self, sources: Indices, targets: Indices) -> Array:
        """(n,) for each pair of rows."""
        asked = sources * self.n_targets + targets
        at = np.searchsorted(self.keys, asked)
        there = np.append(self.keys, -1)[at] == asked
        return np.where(there, self.volume[at], 0.0)


class Pair:
    """Moves: one cell of each frame."""

    def __init__(
        self, a: Cells, b: Cells, shared: Shared, sources: Indices, targets: Indices
    ) -> None:
        self.a, self.b, self.shared = a, b, shared
        self.sources, self.targets = sources, targets

    def __len__(self) -> int:
        return len(self.sources)

    def both(self, name: str) -> tuple[Array, Array]:
        """A column before and after."""
        return getattr(self.a, name)[self.sources], getattr(self.b, name)[self.targets]

    @cached_property
    def distance(self) -> Array:
        """(n,) in diameters."""
        before, after = self.both("position")
        return length(after - before)

    @cached_property
    def turn(self) -> Array:
        """(n,) by how much the direction changes, 0 to 1; round cells have none."""
        return turn(self.both("direction"), self.both("elongation"))

    @property
    def step(self) -> float:
        """The usual displacement in diameters."""
        return self.a.step

    @cached_property
    def common(self) -> Array:
        """(n,) what the masks share."""
        return self.shared.between(self.sources, self.targets)


class Family:
    """One cell of a frame and two of the other: a mother and her daughters, or a whole and its parts."""

    def __init__(
        self,
        one: Cells,
        two: Cells,
        shared: Shared,
        whole: Indices,
        parts: Indices,
        whole_is_source: bool,
    ) -> None:
        self.one, self.two, self.whole, self.parts = one, two, whole, parts
        pairs = [
            (whole, part) if whole_is_source else (part, whole) for part in parts.T
        ]
        self._pairs, self._shared = pairs, shared

    def __len__(self) -> int:
        return len(self.whole)

    def of_whole(self, name: str) -> Array:
        """A column of the one cell."""
        return np.asarray(getattr(self.one, name)[self.whole])

    def of_parts(self, name: str) -> tuple[Array, Array]:
        """A column of the two."""
        values = getattr(self.two, name)
        return values[self.parts[:, 0]], values[self.parts[:, 1]]

    @cached_property
    def arms(self) -> tuple[Array, Array]:
        """(n, ndim) each: the ways from the whole to its parts."""
        first, second = self.of_parts("position")
        centre = self.of_whole("position")
        return first - centre, second - centre

    @cached_property
    def distances(self) -> tuple[Array, Array]:
        """(n,) each: of the parts to the whole, the nearer first."""
        first, second = map(length, self.arms)
        return np.minimum(first, second), np.maximum(first, second)

    @cached_property
    def centre_distance(self) -> Array:
        """(n,) from the whole to the middle between its parts."""
        return length(self.arms[0] + self.arms[1]) / 2

    @cached_property
    def cosine(self) -> Array:
        """(n,) of the angle between the ways to the parts: −1 if they lie opposite each other."""
        near, far = self.distances
        return np.asarray(
            (self.arms[0] * self.arms[1]).sum(axis=1) / np.maximum(near * far, 1e-12)
        )

    @cached_property
    def gap(self) -> Array:
        """(n,) the distance between the parts."""
        return length(self.arms[0] - self.arms[1])

    @property
    def step(self) -> float:
        """The usual displacement in diameters."""
        return self.one.step

    @cached_property
    def off_halves(self) -> Array:
        """(n,) the mean distance of the parts from the middles of the whole's halves along its axis.

        A rod that divides in its middle leaves its daughters there.
        """
        half = (self.of_whole("length") / 4)[:, None] * self.of_whole("direction")
        first, second = self.arms
        one_way = length(first - half) + length(second + half)
        other_way = length(first + half) + length(second - half)
        return np.minimum(one_way, other_way) / 2

    @cached_property
    def across(self) -> Array:
        """(n,) by how much the parts lie beside, not along the whole's axis, 0 to 1; round cells have none."""
        apart = (self.arms[0] - self.arms[1]) / np.maximum(self.gap, 1e-12)[:, None]
        return turn(
            (apart, self.of_whole("direction")),
            (self.of_whole("elongation"), np.ones(len(self))),
        )

    @cached_property
    def bend(self) -> Array:
        """(n,) by how much the parts' directions differ."""
        return turn(self.of_parts("direction"), self.of_parts("elongation"))

    @cached_property
    def common(self) -> tuple[Array, Array]:
        """(n,) each: what the parts share with the whole."""
        first, second = (self._shared.between(*pair) for pair in self._pairs)
        return first, second

    @cached_property
    def compactness(self) -> Array:
        """(n,) the parts' volume in that of a ball as wide as their convex hull; 1 at most, by Urysohn's inequality."""
        first, second = self.of_parts("support")
        width = 2 * np.maximum(first, second).mean(axis=1)
        # a ball one diameter wide has the median volume
        return np.asarray(
            np.minimum(
                total(self.of_parts("size")) / width ** self.arms[0].shape[1], 1.0
            )
        )


class Lone:
    """One cell without a partner in the other frame."""

    def __init__(
        self, cells: Cells, others: Cells, covered: Array, rows: Indices
    ) -> None:
        """`covered` (n_cells,) is what each cell of the frame shares with any of the other."""
        self.cells, self.others, self.rows, self.covered = (
            cells,
            others,
            rows,
            covered[rows],
        )

    def __len__(self) -> int:
        return len(self.rows)

    def its(self, name: str) -> Array:
        """A column of the cell."""
        return np.asarray(getattr(self.cells, name)[self.rows])

    @property
    def step(self) -> float:
        """The usual displacement in diameters."""
        return self.cells.step

    @cached_property
    def isolation(self) -> Array:
        """(n,) distance to the nearest cell of the other frame."""
        if not len(self) or not len(self.others.position):
            return np.full(len(self), FARTHEST)
        return np.asarray(
            cKDTree(self.others.position).query(self.its("position"))[0],
            dtype=np.float64,
        )


class Gap(Pair):
    """One cell before and one after a frame in which neither is, both carried into that frame by the flow."""

    def __init__(
        self,
        a: Cells,
        b: Cells,
        sources: Indices,
        targets: Indices,
        before: Mapping[str, Array],
        after: Mapping[str, Array],
    ) -> None:
        """`before` and `after` have the features of each cell of `a` as a disappearance, of `b` as an appearance."""
        super().__init__(
            a,
            b,
            Shared(Overlap.empty(), len(a.position), len(b.position), a.scales),
            sources,
            targets,
        )
        self._before, self._after = before, after

    def alone(self, name: str) -> Array:
        """(n,) the mean over both ends of a feature that a cell without a partner has."""
        return (self._before[name][self.sources] + self._after[name][self.targets]) / 2


def total(pair: tuple[Array, Array]) -> Array:
    """(n,) the sum of two columns."""
    return pair[0] + pair[1]


def turn(directions: tuple[Array, Array], meaning: tuple[Array, Array]) -> Array:
    """(n,) the squared sine of the angle between two axes, times how much each of the two directions means."""
    cosine = (directions[0] * directions[1]).sum(axis=1)
    return np.asarray((1 - np.minimum(cosine**2, 1)) * meaning[0] * meaning[1])


def length(vectors: Array) -> Array:
    """(n,) of vectors (n, ndim)."""
    return np.asarray(np.sqrt((vectors**2).sum(axis=1)))
