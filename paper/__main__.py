"""Run the experiments: ``python -m paper --help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from clew.errors import ClewError, InputError
from clew.utils.progress import ProgressBar
from paper import editions, experiment_data, golden
from paper.claims import Claim
from paper.experiment_data import ExperimentData, Setup
from paper.outputs import write_results
from paper.runner import run_jobs


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description="Run the paper's experiments. An interrupted run continues.",
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to run: {', '.join(editions.PARTS)} or all (default: all)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder for the results (default: results)",
    )
    parser.add_argument(
        "--train",
        metavar="MOVIE",
        help="movie to learn from: a sequence folder of the Cell Tracking Challenge "
        "with its truth, or frames of it as in data/01[0:60] (default: simulated)",
    )
    parser.add_argument("--test", metavar="MOVIE", help="movie to test on")
    parser.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="draws of annotations (default: 10, or 2 with --quick)",
    )
    parser.add_argument("--quick", action="store_true", help="run a small edition")
    parser.add_argument(
        "-j", "--jobs", type=int, default=-1, metavar="N", help="processes to use"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of all draws"
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="fail if the claims differ from those stored in FILE",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="store the claims in FILE"
    )
    return parser


def run_experiments(options: argparse.Namespace) -> list[Claim]:
    """Run the chosen experiments, write the report and return the claims."""
    if (options.train is None) != (options.test is None):
        raise InputError(
            "give both --train and --test, or neither to simulate both movies"
        )
    edition = editions.QUICK if options.quick else editions.WHOLE
    experiments = editions.experiments_for(options.parts)
    jobs = editions.jobs_for(experiments, edition, options.draws)
    output = options.output
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is not a folder")

    train = options.train
    test = options.test
    simulated = {}
    if train is None:
        settings = experiment_data.QUICK if options.quick else experiment_data.SIMULATED
        with ProgressBar("simulating") as progress:
            train, test = experiment_data.simulate_movies(
                output / "movies", settings, progress
            )
        simulated = {name: movie.as_dict() for name, movie in settings.items()}
    setup = Setup(
        train,
        test,
        str(output / "measurements"),
        edition.pairs,
        options.seed,
        simulated=simulated,
    )
    data = ExperimentData(setup)
    print(
        f"training on {edition.pairs} frame pairs of {data.train.name}, "
        f"testing on {data.test.name}",
        file=sys.stderr,
    )
    with ProgressBar("experiments", unit="fits") as progress:
        entries = run_jobs(jobs, setup, output / "jobs", options.jobs, progress)
    results = {
        name: [entry for entry in entries if entry["experiment"] == name]
        for name in experiments
    }
    return write_results(output, results, data, options.seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = build_parser().parse_args(arguments)
    start = time.monotonic()
    try:
        claims = run_experiments(options)
        for claim in claims:
            print(claim)
        print(f"{options.output}/report.html written", end=" ")
        print(f"after {time.monotonic() - start:.0f} s")
        if options.store is not None:
            golden.store_claims(options.store, claims)
        if options.compare is not None:
            differences = golden.compare_claims(options.compare, claims)
            for difference in differences:
                print(difference, file=sys.stderr)
            return 1 if differences else 0
    except ClewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
