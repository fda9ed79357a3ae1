"""Simulated movies of nuclei that move, grow, divide, touch and cross the border, with their full truth.

movie = simulate(Settings(frames=60, cells=40, dims=2, seed=0))
for frame in movie:                  # one at a time, nothing is kept
    frame.image, frame.detections, frame.truth
movie.tracks                         # the tracks of all frames so far
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.simulation.book import TrackBook
from clew.tracking.simulation.render import Camera
from clew.tracking.simulation.segmentation import detections, truth_masks
from clew.tracking.simulation.settings import Settings
from clew.tracking.simulation.world import World
from clew.tracking.tracks import Tracks

__all__ = ["Settings", "SimulatedFrame", "Simulation", "simulate"]


@dataclass(frozen=True)
class SimulatedFrame:
    """One frame of a simulated movie; all arrays have the settings' shape, ((z,) y, x)."""

    index: int
    """From 0."""
    image: NDArray[np.uint16]
    """Grey values."""
    detections: NDArray[Any]
    """What a segmentation would find, with its errors. Labels are numbered from top left in each frame."""
    truth: NDArray[Any]
    """Each cell's true mask, with its track as label."""


class Simulation:
    """A movie that is made while it is looked at: each iteration makes it anew from the seed, frame by frame."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._book = TrackBook()

    def __len__(self) -> int:
        return self.settings.frames

    @property
    def tracks(self) -> Tracks:
        """The true tracks in the frames that the latest iteration made; a division is two tracks with one parent."""
        return self._book.tracks()

    def __iter__(self) -> Iterator[SimulatedFrame]:
        settings = self.settings
        # apart, so that the same cells live in a movie with other noise
        of_life, of_light, of_errors = map(np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(3))
        book = self._book = TrackBook()
        world, camera = World(settings, of_life), Camera(settings, of_light)
        # 16 bits, as the Cell Tracking Challenge has it, unless a movie could have more tracks than that
        label_type = np.uint16 if 2 * settings.cells * settings.frames < 2**16 else np.uint32
        for t in range(settings.frames):
            if t:
                world.step()
            cells = world.cells
            view = camera.view(cells)
            cells.track = book.record(t, cells.track, cells.mother, view.kept, settings.min_pixels)
            cells.mother = np.zeros_like(cells.mother)
            yield SimulatedFrame(
                t,
                camera.expose(view.light, of_light).reshape(settings.shape),
                detections(settings, view, cells, camera.spacing, of_errors).astype(label_type).reshape(settings.shape),
                truth_masks(view, cells.track, label_type).reshape(settings.shape),
            )


def simulate(settings: Settings | None = None) -> Simulation:
    """A simulated movie; by default 60 frames of about 40 nuclei in 2D."""
    return Simulation(settings or Settings())
