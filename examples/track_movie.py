"""Track a movie from Python: learn from a few annotated events, track, look at what is least certain, write it all.

Run it with `python examples/track_movie.py` for a simulated movie, or `python examples/track_movie.py data/01 some.csv`
for one of yours with its annotations (see docs/train-evaluate.md). Results go to ./tracked.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import clew
from clew.annotation.sampling import sample
from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import Annotations
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.results import write_results


def simulated(frames: int) -> tuple[clew.Movie, Annotations]:
    """A small movie, and all that truly happened in it."""
    folder = Path(tempfile.mkdtemp())
    write_simulation(folder, NucleiSettings(frames=frames, cells=30, seed=1))
    movie = clew.open_movie(folder / "01")
    return movie, read_annotations(folder / "01_GT/TRA", movie)


def main(frames: int = 20) -> None:
    """Learn, track, report; a movie that is simulated has so many `frames`."""
    if len(sys.argv) > 2:
        movie = clew.open_movie(sys.argv[1])
        known = read_annotations(sys.argv[2], movie)
        some = known
    else:
        movie, known = simulated(frames)
        some = sample(known, 0.1, rng=0)  # a tenth of the events, rare ones too

    before = clew.Tracker.generic(cache=None).track(movie)  # without any annotation
    tracker = clew.Tracker(cache=None).fit(movie, some)
    lineage = tracker.track(movie, annotations=some)
    print(f"learned from {tracker.n_annotated_} events; {tracker.result_}")
    print(
        f"{len(lineage.frame)} cells in {lineage.n_frames} frames are {len(lineage.tracks)} tracks"
    )

    unseen = known[~np.isin(known.events.row_keys(), some.events.row_keys())]
    if len(unseen):
        print(
            f"task loss on {len(unseen)} other events: {compute_task_loss(unseen, lineage).total:.2%}",
            end=" ",
        )
        print(f"(with generic weights {compute_task_loss(unseen, before).total:.2%})")
    print("least certain:")
    for row in lineage.least_certain(3):
        print(
            f"  {lineage.events.describe(row)}, confidence {lineage.confidence[row]:.3f}"
        )

    written = write_results(
        Path("tracked"), lineage, movie, ["ctc", "csv", "geff", "napari"]
    )
    tracker.save("tracked.clew")  # clew.load reads it
    print(f"written to tracked: {', '.join(written)}; weights in tracked.clew")


if __name__ == "__main__":
    main()
