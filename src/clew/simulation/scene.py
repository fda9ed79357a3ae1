"""A scene is a world of cells under a microscope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clew.simulation.bodies import Bodies, BodyView, draw_bodies
from clew.simulation.mask_faults import MaskFaults
from clew.simulation.optics import Microscope, Optics
from clew.simulation.rows import Array, Ids, Rng, Rows
from clew.simulation.settings import BodySettings


class World(Protocol):
    """Cells and their dynamics."""

    cells: Any
    """A subclass of `Rows`."""

    def step(self) -> None:
        """Advance by one frame."""
        ...

    def shift(self, way: Array) -> None:
        """Shift all cells by (d,)."""
        ...


class BodyWorld(World, Protocol):
    """Cells whose outlines are bodies."""

    def make_bodies(self) -> Bodies:
        """Return the outlines, in the order of the cells."""
        ...

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        ...


class Scene(ABC):
    """What the simulation loop calls in each frame."""

    def __init__(self, world: World, of_light: Rng, of_errors: Rng) -> None:
        self.world = world
        self.of_light = of_light
        self.of_errors = of_errors
        self.step = world.step
        self.shift = world.shift

    @property
    def cells(self) -> Rows:
        """The cells with their track ids."""
        cells: Rows = self.world.cells
        return cells

    @abstractmethod
    def count_visible_pixels(self) -> Ids:
        """Draw the cells and count the visible pixels of each, (n,)."""

    @abstractmethod
    def render_image(self) -> NDArray[np.uint16]:
        """Return gray values, (z, y, x)."""

    @abstractmethod
    def make_detections(self) -> NDArray[np.int32]:
        """Return detected labels, (z, y, x)."""

    @abstractmethod
    def make_truth(self, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """Return true masks labeled by track ids, (z, y, x)."""


class BodyScene(Scene):
    """Cells with bodies under a microscope."""

    world: BodyWorld
    bodies: Bodies
    view: BodyView

    def __init__(
        self, settings: BodySettings, world: BodyWorld, of_light: Rng, of_errors: Rng
    ) -> None:
        super().__init__(world, of_light, of_errors)
        self.faults = MaskFaults(settings)
        flat = settings.dims == 2
        self.shape = (1, *settings.shape) if flat else settings.shape
        self.spacing = np.array((1.0, *settings.spacing) if flat else settings.spacing)
        optics = world.make_optics()
        self.microscope = Microscope(optics, self.shape, self.spacing, of_light)

    def count_visible_pixels(self) -> Ids:
        """Count the visible pixels of each cell, (n,)."""
        self.bodies = self.world.make_bodies()
        self.view = draw_bodies(
            self.bodies, self.shape, self.spacing, self.microscope.optics.reach
        )
        return self.view.kept

    def render_image(self) -> NDArray[np.uint16]:
        """(z, y, x)."""
        return self.microscope.expose(self.bodies, self.view, self.of_light)

    def make_detections(self) -> NDArray[np.int32]:
        """(z, y, x)."""
        self.bodies.track = self.cells.track
        return self.faults.make_labels(
            self.bodies, self.view, self.spacing, self.of_errors
        )

    def make_truth(self, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """(z, y, x)."""
        name = np.concatenate([[0], self.cells.track]).astype(dtype)
        return np.where(self.view.distance >= 0, name[self.view.owner], 0).astype(dtype)
