"""Simulate movies of moving and dividing cells with their true lineage.

movie = simulate(NucleiSettings(frames=60, cells=40, dims=2, seed=0))
for frame in movie:                  # one frame at a time
    frame.image, frame.detections, frame.truth
movie.tracks                         # the true tracks so far
simulate(settings_of("rods", cells=500))         # another kind
simulate(random_settings("tissue", rng))         # random settings
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.simulation.kinds import make_scene, random_settings, settings_of
from clew.simulation.rows import Ids
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


@dataclass(frozen=True)
class SimulatedFrame:
    """One frame of a simulated movie; all arrays have the settings' shape, ((z,) y, x)."""

    index: int
    """Index from 0."""
    image: NDArray[np.uint16]
    """Gray values."""
    detections: NDArray[Any]
    """Detected labels with segmentation errors, numbered from top left."""
    truth: NDArray[Any]
    """True masks labeled by track ids."""


class Simulation:
    """A simulated movie; each iteration makes its frames again from the seed."""

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self._book = TrackBook()

    def __len__(self) -> int:
        return self.settings.frames

    @property
    def tracks(self) -> Tracks:
        """True tracks of the latest iteration; daughters have their mother as parent."""
        return self._book.tracks()

    def __iter__(self) -> Iterator[SimulatedFrame]:
        settings = self.settings
        # separate generators: other noise does not change the cells
        of_life, of_light, of_errors, of_stage = map(
            np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(4)
        )
        book = self._book = TrackBook()
        scene = make_scene(settings, of_life, of_light, of_errors)
        stage = Stage(settings, of_stage)
        # 16 bits as in the Cell Tracking Challenge, unless there may be more tracks
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


class TrackBook:
    """Begin, end and parent of all tracks; row i has the track id i + 1."""

    def __init__(self) -> None:
        self.begin = self.end = self.parent = np.zeros(0, np.int64)

    def record(
        self, frame: int, track: Ids, mother: Ids, pixels: Ids, min_pixels: int
    ) -> Ids:
        """Assign track ids to the cells of a new frame.

        A cell enters the view with twice the pixels with which it leaves, so that it
        does not flicker at the border. A single visible daughter continues the track
        of her mother, because the division cannot be seen.

        Parameters
        ----------
        track : (n,) track ids in the previous frame, 0 if out of view
        mother : (n,) track ids of the mothers of newborn cells, else 0
        pixels : (n,) visible pixels

        Returns
        -------
        (n,) track ids, 0 if out of view
        """
        visible = pixels >= np.where(
            (track > 0) | (mother > 0), min_pixels, 2 * min_pixels
        )
        sisters = np.bincount(mother[visible], minlength=mother.max(initial=0) + 1)[
            mother
        ]
        divided = (mother > 0) & (sisters == 2)
        track = np.where(
            visible, np.where((mother > 0) & (sisters == 1), mother, track), 0
        )
        new = np.flatnonzero(visible & (track == 0))
        track[new] = len(self.begin) + 1 + np.arange(len(new))
        self.begin = np.concatenate([self.begin, np.full(len(new), frame)])
        self.end = np.concatenate([self.end, np.full(len(new), frame)])
        self.parent = np.concatenate([self.parent, np.where(divided, mother, 0)[new]])
        self.end[track[visible] - 1] = frame
        return track

    def tracks(self) -> Tracks:
        """Return the table of tracks."""
        return Tracks(
            np.arange(1, len(self.begin) + 1),
            self.begin.copy(),
            self.end.copy(),
            self.parent.copy(),
        )


class Stage:
    """Motion of the stage, and missing frames."""

    def __init__(self, settings: SimulationSettings, rng: np.random.Generator) -> None:
        self.settings = settings
        self.rng = rng
        angle = rng.uniform(0, 2 * math.pi)
        self.drift = (
            settings.drift
            * np.array([0.0, math.sin(angle), math.cos(angle)])[-settings.dims :]
        )

    def frames_until_next(self) -> int:
        """Return 1, or more before missing frames."""
        return int(self.rng.geometric(1 - self.settings.missing_frames))

    def draw_shift(self) -> NDArray[np.float64]:
        """Draw the shift of all cells before the next frame, (d,); 0 along z."""
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
    """Simulate a movie; the default has 60 frames of about 40 nuclei in 2D."""
    return Simulation(settings or NucleiSettings())
