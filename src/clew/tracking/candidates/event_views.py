"""Views of candidate events: the dimensionless quantities that features are made of.

A view holds all candidates of one kind between two frames. Its cells are selections of
rows of a frame, so that ``move.source.size`` is an array with one entry for each move.
Lengths are in typical diameters, volumes and intensities in medians of the movie.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections, Overlap
from clew.tracking.measurement.regions import support_directions
from clew.tracking.scales import Scales
from clew.tracking.user_columns import Links

MIN_BRIGHTNESS = 0.05
"""Least brightness, relative to the median: logarithms of less would be noise."""
MAX_ISOLATION = 20.0
"""Distance to the nearest cell, in diameters, where there is none."""


class Cells:
    """The cells of one frame with dimensionless measurements."""

    def __init__(self, frame: Detections, scales: Scales) -> None:
        self.frame = frame
        self.scales = scales
        self.position: Array = frame.position / scales.diameter

    @property
    def typical_step(self) -> float:
        """Typical displacement from one frame to the next, in diameters."""
        return self.scales.displacement / self.scales.diameter

    def get_column(self, name: str, unit: float = 1.0) -> Array:
        """Return a measured column in a unit."""
        return np.asarray(self.frame.columns[name], dtype=np.float64) / unit

    @cached_property
    def size(self) -> Array:
        """(n,) volume."""
        return self.get_column("volume", self.scales.volume or 1.0)

    @cached_property
    def brightness(self) -> Array:
        """(n,) mean contrast to the background; positive for dark cells too."""
        brightness = self.get_column("intensity", self.scales.intensity or 1.0)
        return np.maximum(brightness, MIN_BRIGHTNESS)

    @cached_property
    def mass(self) -> Array:
        """(n,) brightness summed over the cell."""
        return self.size * self.brightness

    @cached_property
    def deviation(self) -> Array:
        """(n,) standard deviation of the intensity within the cell."""
        return self.get_column("deviation", abs(self.scales.intensity or 1.0))

    @cached_property
    def quantiles(self) -> Array:
        """(n, q) quantiles of the intensity within the cell."""
        return self.get_column("quantiles", abs(self.scales.intensity or 1.0))

    @cached_property
    def axes(self) -> Array:
        """(n, ndim) lengths of the principal axes, longest first."""
        return self.get_column("axes", self.scales.diameter)

    @cached_property
    def eccentricity(self) -> Array:
        """(n,)"""
        return self.get_column("eccentricity")

    @cached_property
    def elongation(self) -> Array:
        """(n,) 0 for a round cell, near 1 for a rod: how much its direction means."""
        return np.asarray(1 - (self.axes[:, -1] / self.axes[:, 0]) ** 2)

    @cached_property
    def direction(self) -> Array:
        """(n, ndim) unit vector along the longest axis, of either sign."""
        return self.get_column("direction")

    @cached_property
    def length(self) -> Array:
        """(n,) of a rod with the same second moment along its axis."""
        return np.asarray(np.sqrt(12) * self.axes[:, 0])

    @cached_property
    def border_distance(self) -> Array:
        """(n,)"""
        return self.get_column("border_distance", self.scales.diameter)

    @cached_property
    def border_share(self) -> Array:
        """(n,) share of the cell's outline on the border."""
        return self.get_column("border_share")

    @cached_property
    def support(self) -> Array:
        """(n, K) support function around the origin of the frame."""
        toward = support_directions(self.position.shape[1])
        around_cell = self.get_column("support", self.scales.diameter)
        return around_cell + self.position @ toward.T


class CellSelection:
    """Rows of a frame; attributes are those of `Cells` for these rows.

    ``selection.cells`` are all cells of the frame, for features of neighborhoods.
    """

    def __init__(self, cells: Cells, rows: Indices) -> None:
        self.cells = cells
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> Array:
        return np.asarray(getattr(self.cells, name)[self.rows])

    def get_column(self, name: str) -> Array:
        """Return (n,) a measured column."""
        return self.cells.get_column(name)[self.rows]


class SharedVolumes:
    """Volumes that masks of two frames share, in median volumes; numbers of links."""

    def __init__(
        self,
        overlap: Overlap,
        n_sources: int,
        n_targets: int,
        scales: Scales,
        links: Links | None = None,
    ) -> None:
        self.n_targets = n_targets
        self._links = links
        volume = overlap.volume / (scales.volume or 1.0)
        # ascending, as the overlaps are
        self._keys = overlap.source * n_targets + overlap.target
        self._volume = np.append(volume, 0.0)
        self.of_source = np.bincount(overlap.source, volume, n_sources).astype(float)
        self.of_target = np.bincount(overlap.target, volume, n_targets).astype(float)

    def get_volumes(self, sources: Indices, targets: Indices) -> Array:
        """Return (n,) the shared volume of each pair of rows."""
        keys = sources * self.n_targets + targets
        place = np.searchsorted(self._keys, keys)
        is_shared = np.append(self._keys, -1)[place] == keys
        return np.where(is_shared, self._volume[place], 0.0)

    def get_links(
        self, group: str, sources: Indices, targets: Indices
    ) -> tuple[Array, Array]:
        """Return (n,) each: a number of pairs of rows, 0 if not listed; 1 if listed."""
        assert self._links is not None
        known = self._links.source * self.n_targets + self._links.target
        order = np.argsort(known, kind="stable")
        keys = sources * self.n_targets + targets
        place = np.searchsorted(known[order], keys)
        is_listed = np.append(known[order], -1)[place] == keys
        values = np.append(self._links.columns[group][order], 0.0)[place]
        return np.where(is_listed, values, 0.0), is_listed.astype(float)


class MoveView:
    """Moves: one cell of each frame."""

    def __init__(
        self, source: CellSelection, target: CellSelection, shared: SharedVolumes
    ) -> None:
        self.source = source
        self.target = target
        self._shared = shared

    def __len__(self) -> int:
        return len(self.source)

    @property
    def typical_step(self) -> float:
        """Typical displacement, in diameters."""
        return self.source.cells.typical_step

    @cached_property
    def distance(self) -> Array:
        """(n,)"""
        return measure_lengths(self.target.position - self.source.position)

    @cached_property
    def shared_volume(self) -> Array:
        """(n,)"""
        return self._shared.get_volumes(self.source.rows, self.target.rows)

    def link_values(self, group: str) -> tuple[Array, Array]:
        """Return (n,) each: the number of each link, and whether it is listed."""
        return self._shared.get_links(group, self.source.rows, self.target.rows)

    @cached_property
    def turn(self) -> Array:
        """(n,) change of direction, 0 to 1; round cells have none."""
        return turn_between(self.source, self.target)


class FamilyView:
    """One cell of a frame and two of the other.

    A mother and her daughters, or a whole and its parts; either may come first.
    """

    def __init__(
        self,
        whole: CellSelection,
        first: CellSelection,
        second: CellSelection,
        shared: SharedVolumes,
        whole_is_source: bool,
    ) -> None:
        self.whole = whole
        self.first = first
        self.second = second
        self._shared = shared
        self._whole_is_source = whole_is_source

    def __len__(self) -> int:
        return len(self.whole)

    @cached_property
    def shared_volumes(self) -> tuple[Array, Array]:
        """(n,) each: what the first and the second part share with the whole."""
        whole = self.whole.rows
        first = self.first.rows
        second = self.second.rows
        shared = self._shared
        if self._whole_is_source:
            return shared.get_volumes(whole, first), shared.get_volumes(whole, second)
        return shared.get_volumes(first, whole), shared.get_volumes(second, whole)

    def link_values(self, group: str) -> list[tuple[Array, Array]]:
        """Return the numbers of the links of both parts, as of `MoveView`."""
        whole = self.whole.rows
        parts = (self.first.rows, self.second.rows)
        if self._whole_is_source:
            return [self._shared.get_links(group, whole, part) for part in parts]
        return [self._shared.get_links(group, part, whole) for part in parts]

    @cached_property
    def arms(self) -> tuple[Array, Array]:
        """(n, ndim) each: vectors from the whole to its parts."""
        center = self.whole.position
        return self.first.position - center, self.second.position - center

    @cached_property
    def distances(self) -> tuple[Array, Array]:
        """(n,) each: of the nearer and the farther part to the whole."""
        first = measure_lengths(self.arms[0])
        second = measure_lengths(self.arms[1])
        return np.minimum(first, second), np.maximum(first, second)

    @cached_property
    def center_distance(self) -> Array:
        """(n,) from the whole to the midpoint between its parts."""
        return measure_lengths(self.arms[0] + self.arms[1]) / 2

    @cached_property
    def cosine(self) -> Array:
        """(n,) of the angle between the arms: −1 if the parts lie on opposite sides."""
        near, far = self.distances
        product = (self.arms[0] * self.arms[1]).sum(axis=1)
        return np.asarray(product / np.maximum(near * far, 1e-12))

    @cached_property
    def off_halves(self) -> Array:
        """(n,) mean distance of the parts from the midpoints of the whole's halves.

        A rod that divides in its middle leaves its daughters there.
        """
        half = (self.whole.length / 4)[:, None] * self.whole.direction
        first, second = self.arms
        one_way = measure_lengths(first - half) + measure_lengths(second + half)
        other_way = measure_lengths(first + half) + measure_lengths(second - half)
        return np.minimum(one_way, other_way) / 2

    @cached_property
    def across(self) -> Array:
        """(n,) how much the parts lie beside the whole's axis, 0 to 1; 0 if round."""
        apart = self.arms[0] - self.arms[1]
        axis = apart / np.maximum(measure_lengths(apart), 1e-12)[:, None]
        return squared_sine(axis, self.whole.direction) * self.whole.elongation

    @cached_property
    def bend(self) -> Array:
        """(n,) difference between the directions of the parts, 0 to 1."""
        return turn_between(self.first, self.second)

    @cached_property
    def compactness(self) -> Array:
        """(n,) volume of the parts relative to a ball as wide as their convex hull.

        1 at most, by Urysohn's inequality.
        """
        width = 2 * np.maximum(self.first.support, self.second.support).mean(axis=1)
        ndim = self.arms[0].shape[1]
        # a ball of width 1 has the median volume
        volume = self.first.size + self.second.size
        return np.asarray(np.minimum(volume / width**ndim, 1.0))


class LoneView:
    """Cells without a partner in the other frame."""

    def __init__(self, cell: CellSelection, others: Cells, covered: Array) -> None:
        """`covered` (n_cells,) is the volume that each cell of the frame shares."""
        self.cell = cell
        self.others = others
        self.covered = covered[cell.rows]

    def __len__(self) -> int:
        return len(self.cell)

    @property
    def typical_step(self) -> float:
        """Typical displacement, in diameters."""
        return self.cell.cells.typical_step

    @cached_property
    def isolation(self) -> Array:
        """(n,) distance to the nearest cell of the other frame."""
        if not len(self) or not len(self.others.position):
            return np.full(len(self), MAX_ISOLATION)
        return np.asarray(cKDTree(self.others.position).query(self.cell.position)[0])


def measure_lengths(vectors: Array) -> Array:
    """Return (n,) the lengths of vectors (n, ndim)."""
    return np.asarray(np.linalg.norm(vectors, axis=1))


def squared_sine(first: Array, second: Array) -> Array:
    """Return (n,) the squared sine of the angle between axes, (n, ndim) each."""
    cosine = (first * second).sum(axis=1)
    return np.asarray(1 - np.minimum(cosine**2, 1))


def turn_between(first: CellSelection, second: CellSelection) -> Array:
    """Return (n,) the difference in direction, weighted by how elongated cells are."""
    sine = squared_sine(first.direction, second.direction)
    return sine * first.elongation * second.elongation
