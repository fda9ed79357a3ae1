"""Simulated movies of cells that move, grow, divide, touch and cross the border, with their full truth.

movie = simulate(NucleiSettings(frames=60, cells=40, dims=2, seed=0))
for frame in movie:                  # one at a time, nothing is kept
    frame.image, frame.detections, frame.truth
movie.tracks                         # the tracks of all frames so far
simulate(settings_of("rods", cells=500))         # another kind of cells
simulate(random_settings("tissue", rng))         # one with settings drawn at random
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.simulation.book import TrackBook
from clew.simulation.kinds import make_scene, random_settings, settings_of
from clew.simulation.settings import NucleiSettings, SimulationSettings
from clew.tracking.lineage.tracks import Tracks

__all__ = [
    "NucleiSettings",
    "SimulatedFrame",
    "Simulation",
    "SimulationSettings",
    "random_settings",
    "settings_of",
    "simulate",
]

Settings = NucleiSettings
"""Its name when nuclei were the only kind."""


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

    def __init__(self, settings: SimulationSettings) -> None:
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
        of_life, of_light, of_errors, of_stage = map(
            np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(4)
        )
        book = self._book = TrackBook()
        scene = make_scene(settings, of_life, of_light, of_errors)
        stage = Stage(settings, of_stage)
        # 16 bits, as the Cell Tracking Challenge has it, unless a movie could have more tracks than that
        label_type = (
            np.uint16 if 2 * settings.cells * settings.frames < 2**16 else np.uint32
        )
        for t in range(settings.frames):
            if t:
                for _ in range(stage.frames_until_next()):
                    scene.step()
                if (way := stage.draw_shift()).any():
                    scene.shift(way)
            pixels = scene.count_visible_pixels()
            cells = scene.cells
            cells.track = book.record(
                t, cells.track, cells.mother, pixels, settings.min_pixels
            )
            cells.mother = np.zeros_like(cells.mother)
            yield SimulatedFrame(
                t,
                scene.render_image().reshape(settings.shape),
                scene.make_detections().astype(label_type).reshape(settings.shape),
                scene.make_truth(label_type).reshape(settings.shape),
            )


class Stage:
    """What the microscope does besides taking pictures: it drifts, shakes and jumps, and it misses frames."""

    def __init__(self, settings: SimulationSettings, rng: np.random.Generator) -> None:
        self.settings = settings
        self.rng = rng
        angle = rng.uniform(0, 2 * math.pi)
        self.drift = (
            settings.drift
            * np.array([0.0, math.sin(angle), math.cos(angle)])[-settings.dims :]
        )

    def frames_until_next(self) -> int:
        """1, and more after frames that were not taken."""
        return int(self.rng.geometric(1 - self.settings.missing_frames))

    def draw_shift(self) -> NDArray[np.float64]:
        """(d,) by which all cells are shifted before the next frame; the stage does not move along z."""
        settings = self.settings
        rng = self.rng
        jump = (
            settings.jump_size
            * settings.radius
            * rng.standard_normal(2)
            * (rng.random() < settings.stage_jumps)
        )
        shake = settings.shake * rng.standard_normal(2)
        way: NDArray[np.float64] = self.drift + np.concatenate(
            [np.zeros(settings.dims - 2), jump + shake]
        )
        return way


def simulate(settings: SimulationSettings | None = None) -> Simulation:
    """A simulated movie of the kind whose settings these are; by default 60 frames of about 40 nuclei in 2D."""
    return Simulation(settings or NucleiSettings())
