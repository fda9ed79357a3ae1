"""The command that runs the paper's experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clew.cli.movies import Jobs
from clew.cli.options import check_folder, command, make_folder, note, shown
from clew.errors import InputError
from clew.utils.progress import ProgressBar


@command()
def reproduce(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[fig3|fig4|table3|fig5|fig6|beyond|all]...",
            help="What to run; all if not given.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where results go.")
    ] = Path("results"),
    train: Annotated[
        str | None,
        typer.Option(
            metavar="MOVIE",
            show_default=False,
            help="The movie to learn from: a sequence folder with its truth beside it, or frames of one, as in "
            "data/01[0:60]. Simulated if not given.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="MOVIE", show_default=False, help="The movie to test on, likewise."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="Draws of annotations: 10, or 2 with --quick.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small edition of everything, in minutes.")
    ] = False,
    jobs: Jobs = -1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of all draws.")] = 0,
) -> None:
    """Run the paper's experiments and what lies beyond it; an interrupted run continues where it stopped."""
    from clew.experiments import setup as setups
    from clew.experiments.outputs import write_results
    from clew.experiments.plan import QUICK, WHOLE, experiments_for, jobs_for
    from clew.experiments.run import run_jobs

    if (train is None) != (test is None):
        raise InputError(
            "give both --train and --test, or neither: then both movies are simulated"
        )
    edition = QUICK if quick else WHOLE
    experiments = experiments_for(parts or [])
    wanted = jobs_for(experiments, edition, draws)
    check_folder(output)
    make_folder(output)
    began, made = time.monotonic(), {}
    if train is None or test is None:
        settings = setups.QUICK if quick else setups.SIMULATED
        with ProgressBar("simulating") as progress:
            train, test = setups.simulate_movies(output / "movies", settings, progress)
        made = {name: one.as_dict() for name, one in settings.items()}
    setup = setups.Setup(
        train, test, str(output / "measurements"), edition.pairs, seed, simulated=made
    )
    data = setups.ExperimentData(setup)
    note(
        f"training on {edition.pairs} frame pairs of {data.train.name}, testing on {data.test.name}"
    )
    with ProgressBar("experiments", unit="fits") as progress:
        entries = run_jobs(wanted, setup, output / "jobs", jobs, progress)
    results = {
        name: [entry for entry in entries if entry["experiment"] == name]
        for name in experiments
    }
    judged = write_results(output, results, data, seed)
    console = Console(highlight=False, soft_wrap=True)
    for claim in judged:
        console.print(str(claim), markup=False)
    console.print(
        f"Written {shown(output)}/report.html after {time.monotonic() - began:.0f} s",
        markup=False,
    )
