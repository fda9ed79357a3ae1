"""A scene: a world of cells under a microscope, as the simulation loop sees it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clew.simulation.bodies import Bodies, BodyView, draw_bodies
from clew.simulation.mask_faults import MaskFaults
from clew.simulation.optics import Microscope, Optics
from clew.simulation.rows import Array, Ids, Rows
from clew.simulation.settings import BodySettings

Rng = np.random.Generator


class Scene(Protocol):
    """What the loop asks for, frame by frame: time passes, the stage moves, a picture is taken."""

    @property
    def cells(self) -> Rows:
        """The cells, with their tracks."""
        ...

    def step(self) -> None:
        """One frame passes."""
        ...

    def shift(self, way: Array) -> None:
        """The stage moves: all cells go that way, (d,)."""
        ...

    def count_visible_pixels(self) -> Ids:
        """(n,) the pixels of each cell in view; what follows is of this look."""
        ...

    def render_image(self) -> NDArray[np.uint16]:
        """(z, y, x) grey values."""
        ...

    def make_detections(self) -> NDArray[np.int32]:
        """(z, y, x) what a segmentation finds."""
        ...

    def make_truth(self, dtype: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
        """(z, y, x) each cell's pixels with its track as label."""
        ...


class BodyWorld(Protocol):
    """A kind of cells whose outlines are bodies."""

    cells: Any
    """A `Rows` of the kind's own."""

    def step(self) -> None:
        """One frame passes."""
        ...

    def shift(self, way: Array) -> None:
        """All cells go that way, (d,)."""
        ...

    def make_bodies(self) -> Bodies:
        """The cells as they look now, in the same order."""
        ...


class BodyScene:
    """Any kind of cells whose outlines are bodies, under a microscope."""

    bodies: Bodies
    view: BodyView

    def __init__(
        self,
        settings: BodySettings,
        world: BodyWorld,
        optics: Optics,
        of_light: Rng,
        of_errors: Rng,
    ) -> None:
        self.world = world
        self.of_light = of_light
        self.of_errors = of_errors
        self.faults = MaskFaults(settings)
        flat = settings.dims == 2
        self.shape = (1, *settings.shape) if flat else settings.shape
        self.spacing = np.array((1.0, *settings.spacing) if flat else settings.spacing)
        self.microscope = Microscope(optics, self.shape, self.spacing, of_light)
        self.step = world.step
        self.shift = world.shift

    @property
    def cells(self) -> Rows:
        """The cells, with their tracks."""
        cells: Rows = self.world.cells
        return cells

    def count_visible_pixels(self) -> Ids:
        """(n,) pixels in view."""
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
