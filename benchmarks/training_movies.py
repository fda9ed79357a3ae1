"""Simulated movies that the generic weights and their probabilities are learned from.

Movies are drawn at random within each kind and kept in a folder. Beside the kinds of
`clew.simulation` at their own frame rate there are the same movies with every second to
fourth frame, epithelia (tissue whose masks tile the field, with few frames and much
turnover) and crowds (points that come close and cross, see `crowds.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from crowds import write_crowd
from generic_calibration import Sequence
from kinds_movies import Scene
from thinned import TRUTH, thin_sequence, tile_sequence

from clew.learning.task import Array
from clew.simulation.kinds import KINDS, random_settings
from clew.simulation.write import write_simulation
from clew.tracking.detections import GROUPS, OVERLAP, Detections, Overlap, Source
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.tables import read_detections
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.training.generic_weights import GENERIC_SETS

EVERY = (2, 3, 4, 2, 2, 3)
"""One frame in so many is kept of a thinned movie, by its seed."""
CROWD = "crowd"
EPITHELIUM = "epithelium"
N_MOVIES = {"masks": (2, 1), "masks with intensities": (4, 0)}
"""Movies of each kind that weights of a set are learned from, from seed 0 on: whole ones
and thinned ones. With thinned movies, weights of intensities grow, which real cells do
not bear out: simulated light does not change."""
N_CROWDS = 20
N_EPITHELIA = 12
HELD_OUT = 100
"""First seed of crowds that are not learned from."""


class RestrictedSource:
    """A source with some of its measurements alone."""

    movie = None

    def __init__(self, source: Source, groups: frozenset[str]) -> None:
        self.source = source
        self.has = groups & source.has
        self.n_frames = source.n_frames
        self.ndim = source.ndim
        self.name = source.name
        names = [GROUPS[group] for group in self.has - {OVERLAP}]
        self.columns = frozenset(name for group in names for name in group)

    def detections(self, t: int) -> Detections:
        """Return the cells of a frame."""
        cells = self.source.detections(t)
        columns = {
            name: column
            for name, column in cells.columns.items()
            if name in self.columns
        }
        return replace(cells, columns=columns)

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """Return the overlap with the next frame, if it counts."""
        if OVERLAP not in self.has:
            return Overlap.empty()
        return self.source.overlap(t, shift)


def open_sequence(path: Path, kind: str, cache: Path) -> Sequence:
    """Open a sequence with a truth beside it."""
    movie = open_movie(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a real truth has a cell with three daughters
        known = derive_annotations(
            open_ctc_lineage(path.with_name(f"{path.name}_GT") / "TRA"), movie
        )
    return Sequence(
        kind,
        f"{path.parent.name}/{path.name}",
        measure_movie(movie, cache=cache, n_jobs=2),
        known,
    )


def simulated(kind: str, seed: int, folder: Path, every: int = 1) -> Sequence:
    """Open a movie of a kind, or one frame in so many of it."""
    place = folder / f"{kind}{seed}"
    if not place.exists():
        write_simulation(place, random_settings(kind, seed, seed=1000 + seed))
    if every > 1:
        thin = folder / f"{kind}{seed}-{every}"
        if not thin.exists():
            thin_sequence(place, thin, every)
        place = thin
    return open_sequence(place / "01", kind, folder / "measured" / place.name)


def epithelium(seed: int, folder: Path) -> Sequence:
    """Open a tissue whose masks tile the field, in 12 frames far apart."""
    rng = np.random.default_rng([seed, 7])
    every = int(rng.integers(2, 6))
    home = folder / f"{EPITHELIUM}{seed}"
    if not (home / "tiled").exists():
        write_simulation(home / "full", _draw_epithelium(rng, seed, every))
        thin_sequence(home / "full", home / "thin", every)
        tile_sequence(home / "thin", home / "tiled")
    labels = home / "tiled" / TRUTH
    movie = open_movie(None, labels=labels)
    source = measure_movie(movie, cache=folder / "measured" / home.name, n_jobs=2)
    truth = derive_annotations(open_ctc_lineage(labels), movie)
    return Sequence(EPITHELIUM, home.name, source, truth)


def _draw_epithelium(rng: np.random.Generator, seed: int, every: int) -> Any:
    """Draw settings of tissue; steps and cycles are of frames that are kept."""

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    drawn = random_settings(
        "tissue",
        seed,
        seed=5000 + seed,
        frames=12 * every,
        cells=int(rng.integers(60, 160)),
    )
    spacing = drawn.radius * np.sqrt(np.pi / drawn.density)
    step = spacing / every
    return replace(
        drawn,
        dims=2,
        spacing=(1.0, 1.0),
        shape=(),
        current=2 * step * between(0.005, 0.1),
        flow=step * between(0.02, 0.2),
        speed=step * between(0.1, 0.6),
        cycle=max(8.0, every * between(4, 25)),
        missed=0.0,
        over_segmentation=0.0,
        under_segmentation=0.0,
        missing_frames=0.0,
    )


def crowd(seed: int, folder: Path) -> Sequence:
    """Open a crowd."""
    home = folder / f"{CROWD}{seed}"
    if not home.exists():
        write_crowd(home, seed)
    points = read_detections(home / "points.csv")
    scene = Scene(points, points, read_track_table(home / "tracks.csv"))
    return Sequence(CROWD, home.name, points, scene.truth)


def kinds_of(name: str) -> list[str]:
    """List the kinds that weights of a set are learned from."""
    if name == "points":
        return [CROWD]
    return [*KINDS, EPITHELIUM] if name == "masks" else [*KINDS]


def training_movies(name: str, folder: Path) -> Iterator[Sequence]:
    """Open the movies that weights of a set are learned from."""
    if name == "points":
        yield from (crowd(seed, folder) for seed in range(N_CROWDS))
        return
    n_whole, n_thinned = N_MOVIES[name]
    for kind in KINDS:
        for seed in range(n_whole):
            yield restrict(simulated(kind, seed, folder), name)
        for seed in range(n_thinned):
            yield restrict(simulated(kind, seed, folder, EVERY[seed]), name)
    if name == "masks":
        for seed in range(N_EPITHELIA):
            yield restrict(epithelium(seed, folder), name)


def held_out_movies(name: str, folder: Path, n: int = 2) -> Iterator[Sequence]:
    """Open movies that no weights are learned from, `n` of each kind."""
    for kind in KINDS:
        for seed in range(4, 4 + n):
            every = EVERY[seed % len(EVERY)] if seed % 2 else 1
            yield restrict(simulated(kind, seed, folder, every), name)
    if name == "points":
        for seed in range(HELD_OUT, HELD_OUT + n):
            yield crowd(seed, folder)
    if name == "masks":
        for seed in range(N_EPITHELIA, N_EPITHELIA + n):
            yield restrict(epithelium(seed, folder), name)


def restrict(movie: Sequence, name: str) -> Sequence:
    """Leave the measurements of a set of groups."""
    return replace(movie, source=RestrictedSource(movie.source, GENERIC_SETS[name]))
