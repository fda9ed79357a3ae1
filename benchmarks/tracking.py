"""Tracking HeLa nuclei: learn from a part of the events of 20 frame pairs, test on later frames.

Run it with `CLEW_DATA=… python benchmarks/tracking.py`. Of the first 60 frames of Fluo-N2DL-HeLa 01 (Cell Tracking
Challenge) 20 frame pairs are drawn; of their events 100 %, 25 % and 5 % are annotated (stratified), five draws each.
The task loss is counted on all frame pairs from frame 60 on.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.annotation.sampling import sample
from clew.tracking.assignment.assignment import assign
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import PAIRWISE, Event, EventTable
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker

FRACTIONS = (1.0, 0.25, 0.05)
TRAINING_FRAMES, TRAINING_PAIRS = 60, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--draws",
        type=int,
        default=5,
        help="draws of pairs and annotations for each fraction",
    )
    parser.add_argument("--fractions", type=float, nargs="+", default=FRACTIONS)
    parser.add_argument("--lam", default="auto", help="a number, or auto")
    parser.add_argument("--prior", default="generic", choices=["generic", "none"])
    parser.add_argument("--show", action="store_true", help="print each missed event")
    options = parser.parse_args()
    folder = Path(os.environ["CLEW_DATA"]) / "Fluo-N2DL-HeLa"
    console = Console(width=150)
    movie = open_movie(folder / "01")
    started = time.perf_counter()
    source = measure_movie(
        movie, cache=Path(tempfile.gettempdir()) / "clew-benchmark-hela", n_jobs=2
    )
    console.print(
        f"measured {movie.n_frames} frames in {time.perf_counter() - started:.1f} s"
    )
    truth = derive_annotations(open_ctc_lineage(folder / "01_GT/TRA"), movie)
    counts = np.bincount(truth.events.event, minlength=len(Event))
    console.print(
        "events known: " + ", ".join(f"{counts[event]} {event}" for event in Event)
    )
    test = truth[truth.events.frame >= TRAINING_FRAMES]

    table = Table(title="Test task loss on HeLa 01, frames 60 to 91")
    for name in (
        "annotated",
        "draw",
        "events",
        "λ",
        "train s",
        "CPU s",
        "total",
        *(f"{event}" for event in PAIRWISE),
    ):
        table.add_column(name, justify="right")
    for fraction in options.fractions:
        losses = []
        for draw in range(options.draws):
            rng = np.random.default_rng(draw)
            frames = np.sort(
                rng.choice(TRAINING_FRAMES - 1, TRAINING_PAIRS, replace=False)
            )
            given = sample(truth, fraction, rng, frames=frames.tolist())
            lam = options.lam if options.lam == "auto" else float(options.lam)
            wall, cpu = time.perf_counter(), time.process_time()
            prior = None if options.prior == "none" else options.prior
            tracker = Tracker(lam=lam, prior=prior, n_jobs=1, random_state=draw).fit(
                source, given
            )
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            pairs = tracker.pairs(source, tracker.groups_)
            steps = []
            for t in range(TRAINING_FRAMES, movie.n_frames - 1):
                pair = pairs.build(t)
                chosen = assign(pair.candidates, pair.scores(tracker.coef_)).chosen
                steps.append(pair.candidates.table(pair.a, pair.b, chosen))
            predicted = EventTable.join(steps)
            loss = compute_task_loss(test, predicted)
            losses.append(loss.total)
            if options.show:
                told = (
                    test.to_pairwise().events
                )  # as the loss has it: a gap is a disappearance and an appearance here
                for row in np.flatnonzero(
                    ~np.isin(told.row_keys(), predicted.row_keys())
                ):
                    console.print("  missed", told.describe(int(row)))
            table.add_row(
                f"{fraction:.0%}",
                str(draw),
                str(len(given)),
                f"{tracker.lam_:.2g}",
                f"{wall:.1f}",
                f"{cpu:.1f}",
                f"{loss.total:.2%}",
                *(
                    f"{loss.missed[event]} of {loss.annotated[event]}"
                    for event in PAIRWISE
                ),
            )
        console.print(
            f"{fraction:.0%}: test task loss {np.mean(losses):.3%} ± {np.std(losses):.3%}"
        )
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
