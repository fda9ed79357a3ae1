"""Nuclei of cultured cells under a fluorescence microscope.

Their world is larger than the field of view.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.simulation.cells import AGONY, make_daughters, make_newcomers, radius_of
from clew.simulation.mask_faults import make_detections, make_truth_masks
from clew.simulation.render import Camera, View
from clew.simulation.rows import (
    Array,
    Ids,
    Rng,
    find_pairs,
    mean_length,
    rotate_randomly,
    sum_over_pairs,
)
from clew.simulation.scene import Scene
from clew.simulation.settings import NucleiSettings, draw_between, draw_shared_settings

MARGIN = 4.5
"""Margin of the world around the field of view, in radii."""
REACH = 1.7
"""Largest extent of a nucleus from its center, in radii."""
CLOSEST = 0.68
"""Smallest distance of two nuclei, relative to the sum of their radii."""
WARM_UP = 25
"""Frames simulated before the movie begins."""


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    values = draw_shared_settings(rng) | {
        "radius": draw_between(rng, 6.0, 18.0, log=True),
        "density": draw_between(rng, 0.05, 0.3, log=True),
        "speed": 1.0,
        "persistence": rng.uniform(0, 0.8),
        "cohesion": rng.uniform(0, 0.6),
        "softness": rng.uniform(0.1, 0.8),
        "cycle": draw_between(rng, 30, 200, log=True),
        "death": draw_between(rng, 1e-4, 2e-3, log=True),
        "brightness": draw_between(rng, 300, 2500, log=True),
        "brightness_spread": rng.uniform(0.15, 0.6),
        "merging": rng.uniform(0, 0.8),
    }
    values["speed"] = values["radius"] * draw_between(rng, 0.08, 0.6, log=True)
    return values


class World:
    """All nuclei and their dynamics.

    The number of cells in view stays about constant: the culture spreads outwards, more
    cells die where there are too many, and hidden cells are added or removed.
    """

    def __init__(self, settings: NucleiSettings, rng: Rng) -> None:
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
        sigma = settings.speed / mean_length(dims)
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

    def _find_close_pairs(self, share: float) -> tuple[Ids, Ids, Array, Array, Array]:
        """Find pairs closer than a share of the sum of their radii."""
        radius = radius_of(self.cells.size, self.settings.dims)
        first, second, direction, distance = find_pairs(
            self.cells.position, 2 * share * float(radius.max(initial=0))
        )
        contact = radius[first] + radius[second]
        near = distance < share * contact
        return first[near], second[near], direction[near], distance[near], contact[near]

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


class NucleiScene(Scene):
    """Nuclei under a microscope: a `World` and a `Camera`."""

    view: View

    def __init__(
        self, settings: NucleiSettings, world: World, of_light: Rng, of_errors: Rng
    ) -> None:
        super().__init__(world, of_light, of_errors)
        self.settings = settings
        self.camera = Camera(settings, of_light)

    def count_visible_pixels(self) -> Ids:
        """Count the visible pixels of each cell, (n,)."""
        self.view = self.camera.take_view(self.world.cells)
        return self.view.kept

    def render_image(self) -> NDArray[np.uint16]:
        """(z, y, x)."""
        return self.camera.expose(self.view.light, self.of_light)

    def make_detections(self) -> NDArray[np.int32]:
        """(z, y, x)."""
        return make_detections(
            self.settings,
            self.view,
            self.world.cells,
            self.camera.spacing,
            self.of_errors,
        )

    def make_truth(self, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """(z, y, x)."""
        return make_truth_masks(self.view, self.world.cells.track, dtype)
