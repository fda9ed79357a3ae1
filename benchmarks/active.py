"""Questions that clew suggests against questions in random order, answered from the truth: loss against answers.

    python benchmarks/active.py SEQUENCE [--strategy expected-change random] [--answers 150]

SEQUENCE is a folder such as …/Fluo-N2DL-HeLa/01 with a truth beside it. "Alone" is the task loss on the whole movie of
what the weights predict without any answer pinned, "pinned" that of what the page shows.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.annotation.learner import Learner
from clew.annotation.questions import answer_from_truth
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from paper.strategies import DEFAULT, STRATEGIES

AT_ONCE = 5
"""Questions that are answered before the weights are learned again."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sequence", type=Path)
    parser.add_argument(
        "--strategy", nargs="+", default=[DEFAULT, "random"], choices=STRATEGIES
    )
    parser.add_argument("--answers", type=int, default=150)
    parser.add_argument(
        "--every",
        type=int,
        default=25,
        help="answers from one row of the table to the next",
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(width=100)
    movie = open_movie(options.sequence)
    source = measure_movie(movie, cache=None, n_jobs=2)
    truth = derive_annotations(
        open_ctc_lineage(options.sequence.parent / f"{options.sequence.name}_GT/TRA"),
        movie,
    )
    table = Table(
        "strategy",
        "answers",
        "loss alone",
        "loss pinned",
        "learn CPU s",
        title=f"{movie.name}",
    )
    for name in options.strategy:
        learner, rng = Learner(source), np.random.default_rng(options.seed)
        given, due, seconds = np.zeros(0, dtype=np.intp), 0, 0.0
        while True:
            if len(given) >= due:
                alone = Learner(source)
                alone.w = learner.w
                losses = [
                    compute_task_loss(truth, one.build_lineage()).total
                    for one in (alone, learner)
                ]
                table.add_row(
                    name,
                    str(len(given)),
                    *(f"{loss:.2%}" for loss in losses),
                    f"{seconds:.2f}",
                )
                due += options.every
            if len(given) >= options.answers:
                break
            asked = STRATEGIES[name](learner, truth[given], AT_ONCE, rng)
            given = np.union1d(
                given, [row for one in asked for row in answer_from_truth(one, truth)]
            ).astype(np.intp)
            started = time.process_time()
            learner.learn(truth[given])
            seconds = time.process_time() - started
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
