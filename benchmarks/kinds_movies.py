"""The movies of benchmarks/kinds.py: simulated kinds, made once into a folder, and the real ones of CLEW_DATA."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from golden_tables import convert_worm, every_fifth_frame
from numpy.typing import NDArray
from thinned import TRUTH, thin_sequence

from clew.simulation.simulate import settings_of
from clew.simulation.write import write_simulation
from clew.tracking.detections import DetectionTable, Source
from clew.tracking.evaluation.evaluate import Evaluation, evaluate
from clew.tracking.evaluation.matching import make_cell_reader, match_positions
from clew.tracking.evaluation.truth import derive_annotations, derive_events
from clew.tracking.events import Annotations
from clew.tracking.io.ctc import CtcLineage, open_ctc_lineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.tables import read_detections
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.lineage.graph import events_of_links
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import MAX_CHILDREN
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie

SIMULATED: dict[str, dict[str, Any]] = {
    "nuclei": {},
    "rods": {},
    "rods500": {"cells": 500},
    "flat": {},
    "tissue": {},
    "embryo": {},
    "sparse": {},
}
"""Kinds with the settings in which they differ from the kind's own."""
SEQUENCES = {
    "hela": "Fluo-N2DL-HeLa",
    "sim+": "Fluo-N2DH-SIM+",
    "psc": "PhC-C2DL-PSC",
    "bacteria": "bacteria",
    "dic": "DIC-C2DH-HeLa",
    "u373": "PhC-C2DH-U373",
}
"""Folders of CLEW_DATA; the masks are those that `open_movie` finds beside sequence 01."""
MARKERS = {"hela-markers": "Fluo-N2DL-HeLa", "psc-markers": "PhC-C2DL-PSC"}
"""The same with the markers of the truth in place of masks."""
POINTS: dict[str, Callable[[Path, Path], None] | str] = {
    "c2c12": "c2c12/",
    "c2c12-fifth": every_fifth_frame,
    "pm02": "ascidian/Pm02-",
    "pm03": "ascidian/Pm03-",
    "worm": convert_worm,
    "worm-unscaled": partial(convert_worm, z=1.0),
}
"""Tables points.csv and tracks.csv: the beginning of their names in CLEW_DATA, or a function that writes them."""
REAL = (*SEQUENCES, *MARKERS, "epidermis", "bacteria-second", *POINTS)
KINDS = (*SIMULATED, *REAL)
TUNED_ON = 100
"""Added to the seed of a simulated movie: the other movie of its kind, on whose truth peers are tuned."""


@dataclass(frozen=True)
class Points:
    """The detections of a movie as most trackers take them."""

    frame: NDArray[np.int64]
    """(n,) ascending."""
    label: NDArray[np.int64]
    """(n,)"""
    position: NDArray[np.float64]
    """(n, d)"""

    @cached_property
    def frames(self) -> list[NDArray[np.intp]]:
        """The rows of each frame."""
        ends = np.searchsorted(self.frame, np.arange(int(self.frame.max()) + 2))
        return [np.arange(begin, end) for begin, end in pairwise(ends)]

    @cached_property
    def spacing(self) -> float:
        """Median distance of a cell from its nearest neighbour."""
        from scipy.spatial import cKDTree

        near = [
            cKDTree(self.position[r]).query(self.position[r], 2)[0][:, 1]
            for r in self.frames
            if len(r) > 1
        ]
        return float(np.median(np.concatenate(near)))


@dataclass(frozen=True)
class Scene:
    """A movie with its truth, and the frames of it that count."""

    movie: Movie | DetectionTable
    source: Source
    lineage: CtcLineage | PointLineage

    @cached_property
    def truth(self) -> Annotations:
        """All true events of the movie's own detections."""
        if isinstance(self.lineage, PointLineage):
            return self._truth_of_points(self.lineage)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # a real truth has a cell with three daughters
            return derive_annotations(self.lineage, self.movie)

    def _truth_of_points(self, lineage: PointLineage) -> Annotations:
        """True events of points, matched by their positions."""

        def read(t: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
            cells = self.source.detections(t)
            return cells.label, cells.position

        spacing = getattr(self.source, "spacing", None)
        matched, _ = match_positions(
            make_cell_reader(lineage, spacing), read, self.source.n_frames
        )
        return Annotations.of(derive_events(lineage.tracks, matched))

    @cached_property
    def points(self) -> Points:
        """All detections."""
        found = [self.source.detections(t) for t in range(self.source.n_frames)]
        frame = np.repeat(np.arange(len(found)), [len(one) for one in found])
        return Points(
            frame,
            np.concatenate([one.label for one in found]),
            np.concatenate([one.position for one in found]),
        )

    def evaluate(self, lineage: Lineage) -> Evaluation:
        """By clew's own scorer, the same for all."""
        return evaluate(lineage, self.lineage, self.movie)

    def lineage_of(self, links: NDArray[np.int64]) -> Lineage:
        """A peer's result: (k, 2) rows of `points` that it links. Links over gaps and third daughters are left out."""
        points = self.points
        near = points.frame[links[:, 1]] - points.frame[links[:, 0]] == 1
        links = _at_most(_at_most(links[near], 0, MAX_CHILDREN), 1, 2)
        fates = np.bincount(links[:, 0], minlength=len(points.frame))
        histories = np.bincount(links[:, 1], minlength=len(points.frame))
        links = links[~((fates[links[:, 0]] > 1) & (histories[links[:, 1]] > 1))]
        events, _, _ = events_of_links(
            points.frame,
            points.label,
            links[:, 0],
            links[:, 1],
            split=np.zeros(len(links), bool),
            frames=(0, self.source.n_frames - 1),
            where="a peer's result",
        )
        return Lineage(
            self.source.n_frames,
            points.frame,
            points.label,
            points.position,
            events,
            np.zeros(len(events)),
        )


def _at_most(links: NDArray[np.int64], side: int, most: int) -> NDArray[np.int64]:
    """Links of which a cell has at most so many on one side."""
    order = np.argsort(links[:, side], kind="stable")
    cell = links[order, side]
    rank = np.arange(len(cell)) - np.searchsorted(cell, cell)
    return links[np.sort(order[rank < most])]


def open_kind(kind: str, seed: int, folder: Path) -> Scene:
    """A movie of a kind; the seed is of simulated ones."""
    if kind in REAL:
        return _open_real(kind, Path(os.environ["CLEW_DATA"]), folder)
    home = folder / f"{kind}-{seed}"
    if not (home / "01_simulation.json").exists():
        write_simulation(
            home,
            settings_of(
                kind.rstrip("0123456789"), **(SIMULATED[kind] | {"seed": seed})
            ),
        )
    return _scene(home / "01", folder)


def tuning_scene(
    kind: str, seed: int, folder: Path
) -> tuple[Scene, Callable[[Evaluation], float]]:
    """Another movie of a kind with its whole truth, and what tuning minimises.

    Of the real movies there is one each in CLEW_DATA with masks of the same sort: there peers are tuned on the very
    movie on which they are tested, which is to their advantage.
    """
    scene = open_kind(kind, seed if kind in REAL else seed + TUNED_ON, folder)
    return scene, lambda found: found.loss.total


def _open_real(kind: str, data: Path, folder: Path) -> Scene:
    """A movie of CLEW_DATA, or one made of it in a folder."""
    if kind in SEQUENCES:
        return _scene(data / SEQUENCES[kind] / "01", folder)
    if kind in MARKERS:
        home = data / MARKERS[kind]
        return _scene(home / "01", folder, labels=home / TRUTH)
    if kind == "epidermis":
        home = data / kind
        return _scene(home / "01", folder, labels=home / TRUTH, has_images=False)
    if kind == "bacteria-second":
        if not (folder / kind).exists():
            thin_sequence(data / "bacteria", folder / kind, 2)
        return _scene(folder / kind / "01", folder)
    tables = POINTS[kind]
    prefix = f"{data}/{tables}"
    if not isinstance(tables, str):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        tables(data, folder / kind)
        prefix = f"{folder / kind}/"
    points = read_detections(f"{prefix}points.csv")
    return Scene(points, points, read_track_table(f"{prefix}tracks.csv"))


def _scene(
    sequence: Path, folder: Path, labels: Path | None = None, has_images: bool = True
) -> Scene:
    movie = open_movie(sequence if has_images else None, labels=labels)
    source = measure_movie(movie, cache=folder / "measured", n_jobs=1)
    return Scene(movie, source, open_ctc_lineage(sequence.with_name("01_GT") / "TRA"))
