"""The weights that come with clew: learned from simulated movies of many kinds, tried on others.

    python benchmarks/generic_weights.py [--write] [--test SEQUENCE …]

Movies differ in density, speed, brightness, size, cell cycle, dimensions and in how often cells merge. `--write` puts
the weights into src/clew/tracking/model/generic.py; `--test` tracks real sequences with a truth beside them (…/01).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from clew.annotation.sampling import sample
from clew.tracking.evaluation.evaluate import task_loss
from clew.tracking.evaluation.truth import truth_annotations
from clew.tracking.events import Annotations, Event
from clew.tracking.formats.ctc import open_truth
from clew.tracking.formats.simulated import write_simulation
from clew.tracking.measurement.measure import Measured, measure
from clew.tracking.movie import open_movie
from clew.tracking.simulation.simulate import NucleiSettings
from clew.tracking.tracker import Tracker

TRAINING = (
    NucleiSettings(seed=11, frames=40),
    NucleiSettings(seed=12, frames=40, speed=6.0, density=0.2),
    NucleiSettings(seed=13, frames=40, brightness=300.0, cycle=50.0),
    NucleiSettings(seed=14, frames=30, cells=50, dims=3),
    NucleiSettings(seed=15, frames=40, density=0.06, speed=5.0, softness=0.9),
    NucleiSettings(seed=16, frames=40, cells=60, radius=6.0, speed=2.0, cycle=40.0),
    NucleiSettings(seed=17, frames=40, merging=0.1, over_segmentation=0.0, cycle=30.0),
    NucleiSettings(seed=18, frames=40, merging=0.1, speed=1.0, cycle=30.0, brightness_spread=0.2),
)
TEST = (
    NucleiSettings(seed=91),
    NucleiSettings(seed=92, speed=5.0, cycle=60.0),
    NucleiSettings(seed=93, dims=3, frames=30),
)
EVERY = 3
"""One frame pair in so many is learned from: neighbouring ones tell little that is new."""
LAMS = (0.5, 0.12, 0.03, 0.008)
HEADER = (
    '"""Weights that come with clew, learned from simulated movies by benchmarks/generic_weights.py; by feature."""\n'
)


def open_sequence(folder: Path, sequence: str = "01", cache: Path | None = None) -> tuple[Measured, Annotations]:
    movie = open_movie(folder / sequence)
    known = truth_annotations(open_truth(folder / f"{sequence}_GT/TRA"), movie)
    return measure(movie, cache=cache, n_jobs=2), known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the weights into src/clew/tracking/model/generic.py")
    parser.add_argument("--test", nargs="*", type=Path, default=[], metavar="SEQUENCE")
    options = parser.parse_args()
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as place:
        movies = {}
        for settings in track([*TRAINING, *TEST], "simulating", console=console):
            folder = Path(place) / str(settings.seed)
            write_simulation(folder, settings)
            movies[settings.seed] = open_sequence(folder)
        sources = [movies[settings.seed][0] for settings in TRAINING]
        marks = [sample(movies[s.seed][1], 1.0, 0, frames=range(0, s.frames, EVERY)) for s in TRAINING]
        started = time.perf_counter()
        tracker = Tracker(prior=None, lam=LAMS, n_jobs=2).fit(sources, marks)
        console.print(
            f"learned {len(tracker.coef_)} weights from {tracker.n_annotated_} events in {tracker.n_pairs_} frame "
            f"pairs in {time.perf_counter() - started:.0f} s; held-out loss by λ: "
            + ", ".join(f"{point.lam:g}: {point.mean:.4f}" for point in tracker.svm_.path_)
        )
        tests = {f"simulated, seed {s.seed}": movies[s.seed] for s in TEST}
        tests |= {str(path): open_sequence(path.parent, path.name) for path in options.test}
        table = Table(
            "movie", "task loss", *(str(event) for event in Event), title="Missed events of movies never seen"
        )
        for name, (source, known) in tests.items():
            loss = task_loss(known, tracker.track(source))
            table.add_row(
                name, f"{loss.total:.2%}", *(f"{loss.missed[event]} of {loss.annotated[event]}" for event in Event)
            )
        console.print(table)
    if options.write:
        weights = tracker.coef_ / np.linalg.norm(tracker.coef_)
        lines = [f'    "{name}": {w:.5f},\n' for name, w in zip(tracker.feature_names_, weights, strict=True)]
        target = Path(__file__).parents[1] / "src/clew/tracking/model/generic.py"
        target.write_text(f"{HEADER}\nGENERIC = {{\n{''.join(lines)}}}\n")
        console.print(f"written {target.name}")


if __name__ == "__main__":
    main()
