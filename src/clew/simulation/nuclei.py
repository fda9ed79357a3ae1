"""Nuclei of cultured cells under a fluorescence microscope."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.simulation.draws import draw_between, draw_shared_settings
from clew.simulation.render import Camera, View
from clew.simulation.rows import Ids, Rows
from clew.simulation.scene import Rng
from clew.simulation.segmentation import make_detections, make_truth_masks
from clew.simulation.settings import NucleiSettings
from clew.simulation.world import World


def random_settings(rng: Rng, **fixed: Any) -> NucleiSettings:
    """Draw random settings; keyword arguments fix some of them."""
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
    return NucleiSettings(**(values | fixed))


class NucleiScene:
    """Nuclei under a microscope: a `World` and a `Camera`."""

    view: View

    def __init__(
        self, settings: NucleiSettings, of_life: Rng, of_light: Rng, of_errors: Rng
    ) -> None:
        self.settings = settings
        self.of_light = of_light
        self.of_errors = of_errors
        self.world = World(settings, of_life)
        self.camera = Camera(settings, of_light)
        self.step = self.world.step
        self.shift = self.world.shift

    @property
    def cells(self) -> Rows:
        """The cells with their track ids."""
        return self.world.cells

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


def make_scene(
    settings: NucleiSettings, of_life: Rng, of_light: Rng, of_errors: Rng
) -> NucleiScene:
    """Make nuclei under a fluorescence microscope."""
    return NucleiScene(settings, of_life, of_light, of_errors)
