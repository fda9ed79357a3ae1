"""The command demo: simulate, learn, track, evaluate and report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from clew.cli.data import describe_counts
from clew.cli.lineages import make_report_page, print_evaluation, print_lineage
from clew.cli.movies import Jobs
from clew.cli.options import (
    check_folder,
    command,
    make_folder,
    path_text,
    print_note,
    print_result,
)
from clew.cli.track import describe_training
from clew.errors import InputError
from clew.utils.extras import is_installed
from clew.utils.progress import ProgressBar

DEMO = ("sim", "some.csv", "weights.clew", "result", "report.html")
"""Files and folders that a demo writes."""


@command()
def demo(
    folder: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where movie, weights, result and report go.",
        ),
    ] = Path("demo"),
    frames: Annotated[
        int, typer.Option(metavar="N", help="Frames of the simulated movie.")
    ] = 60,
    cells: Annotated[
        int, typer.Option(metavar="N", help="Approximate number of cells in view.")
    ] = 40,
    dims: Annotated[int, typer.Option(metavar="2|3", help="Dimensions of space.")] = 2,
    fraction: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of the events that are annotated."),
    ] = 0.25,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Seed of the movie and of the annotated part."
        ),
    ] = 0,
    jobs: Jobs = -1,
) -> None:
    """Run all steps on a simulated movie.

    Simulate a movie, annotate a part of it, learn, track, evaluate, and write
    report.html.
    """
    import numpy as np

    from clew.annotation.sampling import sample
    from clew.simulation.simulate import NucleiSettings
    from clew.simulation.write import write_simulation
    from clew.tracking.evaluation.evaluate import evaluate
    from clew.tracking.evaluation.task_loss import compute_task_loss
    from clew.tracking.evaluation.truth import derive_annotations
    from clew.tracking.io.annotations import write_annotations
    from clew.tracking.io.ctc import open_ctc_lineage
    from clew.tracking.io.names import FORMATS, REPORT
    from clew.tracking.io.results import write_results
    from clew.tracking.movie import open_movie
    from clew.tracking.tracker import Tracker
    from clew.utils.storage import write_bytes

    check_folder(folder)
    _check_demo_folder(folder)
    settings = NucleiSettings(frames=frames, cells=cells, dims=dims, seed=seed)
    make_folder(folder)
    with ProgressBar("simulating") as progress:
        write_simulation(folder / "sim", settings, "01", progress)
    movie = open_movie(folder / "sim/01", spacing=settings.spacing)
    truth = open_ctc_lineage(folder / "sim/01_GT/TRA")
    with ProgressBar("matching masks") as progress:
        known = derive_annotations(truth, movie, progress)
    some = sample(known, fraction, seed)
    write_annotations(folder / "some.csv", some)
    print_note(
        f"simulated {movie.n_frames} frames; annotated {len(some)} of {len(known)} events: "
        f"{describe_counts(some.events.event)}"
    )

    started = time.perf_counter()
    tracker = Tracker(n_jobs=jobs, verbose=True).fit(movie, some)
    learned = time.perf_counter() - started
    tracker.save(folder / "weights.clew")
    print_note(f"learned {len(tracker.coef_)} weights in {learned:.1f} s")
    started = time.perf_counter()
    lineage = tracker.track(movie)
    tracked = time.perf_counter() - started
    result = folder / "result"
    with ProgressBar("writing masks") as progress:
        formats = [
            name for name in FORMATS if name != "parquet" or is_installed("parquet")
        ]
        write_results(result, lineage, movie, formats, progress, jobs)
    with ProgressBar("evaluating") as progress:
        found = evaluate(result, truth, progress=progress)
    others = ~np.isin(known.events.row_keys(), some.events.row_keys())
    unseen = compute_task_loss(known[others], lineage)
    facts = describe_training(tracker) | {
        "annotated": f"{len(some)} of {len(known)} events ({describe_counts(some.events.event)})",
        "learned in": f"{learned:.1f} s",
        "tracked in": f"{tracked:.1f} s",
        "task loss on events that were not annotated": f"{unseen.total:.2%}",
    }
    write_bytes(
        folder / REPORT, make_report_page(lineage, movie, tracker, facts, found)
    )
    print_lineage(lineage, tracked)
    print_evaluation(found, "Against the simulation's truth")
    where = path_text(folder)
    print_result(
        f"Task loss on the {others.sum()} events that were not annotated: {unseen.total:.2%}\n"
        f"\nWritten\n"
        f"  {where}/{REPORT}: the report; open it in a browser\n"
        f"  {where}/sim: the movie; {where}/some.csv: the annotated events\n"
        f"  {where}/weights.clew, {where}/result: what was learned, and the lineage\n"
        f"\nNext\n"
        f"  clew explain {where}/weights.clew\n"
        f"  clew demo --fraction 0.05\n"
        f"  clew track YOUR_MOVIE --weights {where}/weights.clew"
    )


def _check_demo_folder(folder: Path) -> None:
    """Raise InputError if the folder has files that are not a demo's."""
    there = (
        sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if folder.exists()
        else []
    )
    strange = [name for name in there if name not in DEMO]
    if strange or (there and "sim" not in there):
        raise InputError(
            f"{path_text(folder)} contains {(strange or there)[0]}, which is not from a demo; choose a new or empty "
            "folder"
        )
