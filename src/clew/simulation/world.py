"""The world of nuclei, larger than the field of view."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.simulation.cells import (
    AGONY,
    make_daughters,
    make_newcomers,
    radius_of,
    rotate_randomly,
)
from clew.simulation.rows import Array, sum_over_pairs
from clew.simulation.settings import NucleiSettings

MARGIN = 4.5
"""Margin of the world around the field of view, in radii."""
REACH = 1.7
"""Largest extent of a nucleus from its center, in radii."""
CLOSEST = 0.68
"""Smallest distance of two nuclei, relative to the sum of their radii."""
WARM_UP = 25
"""Frames simulated before the movie begins."""


class World:
    """All nuclei and their dynamics.

    The number of cells in view stays about constant: the culture spreads outwards, more
    cells die where there are too many, and hidden cells are added or removed.
    """

    def __init__(self, settings: NucleiSettings, rng: np.random.Generator) -> None:
        self.settings = settings
        self.rng = rng
        self.extent = np.array(settings.extent)
        self.margin = MARGIN * settings.radius
        # cells with centers slightly outside are partly visible
        self.seen = self.extent + 0.8 * settings.radius
        self.room = math.prod((self.extent + 2 * self.margin) / self.seen)
        n = round(settings.cells * self.room)
        self.cells = make_newcomers(
            settings,
            rng,
            rng.uniform(-self.margin, self.extent + self.margin, (n, settings.dims)),
        )
        for _ in range(WARM_UP):
            self.step()

    def step(self) -> None:
        """Advance by one frame."""
        self.cells.age += 1
        self._divide_ripe()
        self._move_cells()
        self._remove_dying()
        self._balance_hidden_cells()

    def shift(self, way: Array) -> None:
        """Shift all cells by (d,); cells that leave the world re-enter as new cells."""
        low = -self.margin
        size = self.extent + 2 * self.margin
        moved = self.cells.position + way
        self.cells.position = low + (moved - low) % size
        left = (np.abs(self.cells.position - moved) > 1e-6 * size).any(axis=1)
        self.cells.track = np.where(left, 0, self.cells.track)
        self.cells.mother = np.where(left, 0, self.cells.mother)

    def _divide_ripe(self) -> None:
        """Divide ripe cells."""
        ripe = self.cells.until_division <= 0
        if ripe.any():
            self.cells = self.cells[~ripe] + make_daughters(
                self.settings, self.rng, self.cells[ripe]
            )

    def _move_cells(self) -> None:
        """Move cells: persistent random walk, interaction with neighbors, spreading."""
        cells = self.cells
        settings = self.settings
        rng = self.rng
        n, dims = cells.position.shape
        # the mean length of a normal vector with standard deviation sigma is the speed
        sigma = settings.speed / (
            math.sqrt(2) * math.gamma((dims + 1) / 2) / math.gamma(dims / 2)
        )
        rho = settings.persistence
        impulse = (
            sigma
            * math.sqrt(1 - rho**2)
            * cells.pace[:, None]
            * rng.standard_normal((n, dims))
        )
        still = (cells.until_division <= cells.mitosis) | (cells.dying >= 0)
        cells.velocity = (
            rho * cells.velocity + np.where(still[:, None], 0.3, 1.0) * impulse
        )
        cells.position = (
            cells.position
            + cells.velocity
            + self._push_neighbors()
            + self._spread_outwards()
        )
        self._separate_overlapping()
        self._reflect_at_border()
        cells.axis = rotate_randomly(rng, cells.axis, 0.12)
        cells.aspect = 1 + (cells.aspect - 1) * np.exp(0.08 * rng.standard_normal(n))
        cells.aspect = np.clip(cells.aspect, 1.0, 1.9)
        cells.wave[:, :, 3] += 0.25 * rng.standard_normal(cells.wave.shape[:2])

    def _push_neighbors(self) -> Array:
        """Return displacements (n, d) by short-range repulsion and attraction."""
        settings = self.settings
        first, second, direction, distance, contact = self._find_close_pairs(2.2)
        touching = 1.3 * contact
        # overlapping nuclei are not driven apart
        barrier = np.clip((distance / contact - 0.75) / 0.3, 0.15, 1)
        push = (
            (1.3 - settings.softness) * barrier * np.maximum(touching - distance, 0) / 2
        )
        hold = (
            settings.cohesion
            * 0.25
            * settings.speed
            * np.sin(
                np.pi
                * np.clip((distance - touching) / (2.2 * contact - touching), 0, 1)
            )
        )
        drag = (
            0.3
            * (distance < contact)[:, None]
            * (self.cells.velocity[second] - self.cells.velocity[first])
        )
        return sum_over_pairs(
            len(self.cells), first, second, direction * (push - hold)[:, None] + drag
        )

    def _separate_overlapping(self) -> None:
        """Push apart nuclei that overlap too much, in several rounds."""
        for _ in range(6):
            first, second, direction, distance, contact = self._find_close_pairs(
                CLOSEST
            )
            if not len(first):
                return
            missing = (CLOSEST + 0.01) * contact - distance
            self.cells.position = self.cells.position + sum_over_pairs(
                len(self.cells), first, second, direction * (missing / 2)[:, None]
            )

    def _find_close_pairs(
        self, share: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array, Array]:
        """Find pairs closer than a share of the sum of their radii."""
        radius = radius_of(self.cells.size, self.settings.dims)
        pairs = cKDTree(self.cells.position).query_pairs(
            2 * share * float(radius.max(initial=0)), output_type="ndarray"
        )
        pairs = pairs[np.lexsort(pairs.T)]  # a fixed order makes sums reproducible
        first, second = pairs.T
        apart = self.cells.position[first] - self.cells.position[second]
        distance = np.sqrt((apart**2).sum(axis=1))
        contact = radius[first] + radius[second]
        near = distance < share * contact
        direction = apart[near] / np.maximum(distance[near], 1e-9)[:, None]
        return first[near], second[near], direction, distance[near], contact[near]

    def _spread_outwards(self) -> Array:
        """Return the outward flow (n, d) that makes room for new cells."""
        rate = math.log(2) / self.settings.cycle / self.settings.dims
        crowd = np.clip(1 + 3 * (self._count_in_view() / self.settings.cells - 1), 0, 2)
        flow = rate * crowd * (self.cells.position - self.extent / 2)
        length = np.sqrt((flow**2).sum(axis=1, keepdims=True))
        limit = 0.4 * self.settings.speed
        slowed: Array = flow * np.minimum(1, limit / np.maximum(length, 1e-9))
        return slowed

    def _reflect_at_border(self) -> None:
        """Reflect cells at the border of the world."""
        low = -self.margin
        high = self.extent + self.margin
        outside = (self.cells.position < low) | (self.cells.position > high)
        self.cells.velocity = np.where(
            outside, -self.cells.velocity, self.cells.velocity
        )
        self.cells.position = np.clip(self.cells.position, low, high)

    def _remove_dying(self) -> None:
        """Let some cells begin to die, and remove dead ones."""
        cells = self.cells[self.cells.dying != 0]
        excess = max(0.0, self._count_in_view() / self.settings.cells - 1.0)
        begins = self.rng.random(len(cells)) < self.settings.death + 0.04 * excess
        begins &= (
            (cells.dying < 0) & (cells.until_division > cells.mitosis) & (cells.age > 5)
        )
        cells.dying = np.where(
            begins, AGONY, np.where(cells.dying > 0, cells.dying - 1, cells.dying)
        )
        self.cells = cells

    def _balance_hidden_cells(self) -> None:
        """Add or remove hidden cells to keep the density."""
        wanted = (self.room - 1) * max(
            0.0, 2 * self.settings.cells - self._count_in_view()
        )
        surplus = len(self.cells) - self._count_in_view() - round(wanted)
        reach = REACH * radius_of(self.cells.size, self.settings.dims)
        hidden = np.flatnonzero(
            (self._distance_outside() > reach) & (self.cells.track == 0)
        )
        if surplus > 0:
            leave = self.rng.permutation(hidden)[:surplus]
            self.cells = self.cells[np.setdiff1d(np.arange(len(self.cells)), leave)]
        elif surplus < 0:
            self.cells = self.cells + make_newcomers(
                self.settings, self.rng, self._hidden_places(-surplus)
            )

    def _distance_outside(self) -> Array:
        """Return the distance of each center outside the view, (n,); negative inside."""
        far: Array = np.maximum(
            -self.cells.position, self.cells.position - self.extent
        ).max(axis=1)
        return far

    def _count_in_view(self) -> int:
        """Count cells that are at least partly in view."""
        return int(
            np.count_nonzero(self._distance_outside() < 0.4 * self.settings.radius)
        )

    def _hidden_places(self, n: int) -> Array:
        """Draw hidden points (n, d), each the most isolated of several."""
        rng = self.rng
        dims = self.settings.dims
        tries = 8
        points = rng.uniform(-self.margin, self.extent + self.margin, (n * tries, dims))
        axis = rng.integers(0, dims, n * tries)
        rows = np.arange(n * tries)
        outwards = rng.uniform(
            1.35 * REACH * self.settings.radius, self.margin, n * tries
        )
        points[rows, axis] = np.where(
            rng.random(n * tries) < 0.5, -outwards, self.extent[axis] + outwards
        )
        lonely = (
            cKDTree(self.cells.position).query(points)[0]
            if len(self.cells)
            else np.zeros(n * tries)
        )
        best = lonely.reshape(n, tries).argmax(axis=1)
        places: Array = points.reshape(n, tries, dims)[np.arange(n), best]
        return places
