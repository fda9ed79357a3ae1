"""What each switch of learning from answers earns: errors left after answering questions, one switch changed at a time.

    CLEW_DATA=… python benchmarks/ablation.py [--answers 4 8 16 32] [--frames 40] [--sessions 2] [--only HeLa]

A simulated person answers the suggested questions from the truth, in the last frames of each movie, where cells are
densest. Printed for each movie and setting: the share of the events that the adapted weights miss by themselves, and
that are wrong in the lineage, which keeps to the answers; in the mean over the numbers of answers, and with the
standard deviation over sessions that begin with different random answers; and the seconds of processor time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.annotation.learner import Learner
from clew.annotation.sampling import sample
from clew.annotation.settings import DEFAULT, LearnerSettings
from clew.tracking.events import EventTable
from clew.tracking.movie import open_movie
from paper.dataset import Dataset, Examiner, open_dataset
from paper.simulated_annotator import annotate
from paper.strategies import DEFAULT as STRATEGY

SETTINGS: dict[str, LearnerSettings] = {
    "default": DEFAULT,
    "stiffness 1": replace(DEFAULT, stiffness=1.0),
    "stiffness 25": replace(DEFAULT, stiffness=25.0),
    "trust 1": replace(DEFAULT, trust=1.0),
    "trust 100": replace(DEFAULT, trust=100.0),
    "window of 10 cells": replace(DEFAULT, window=10),
    "whole frame pairs": replace(DEFAULT, window=10**6, pseudo_window=10**6),
    "no pseudo-labels": replace(DEFAULT, pseudo_pairs=0),
    "pseudo-labels from 0.9 on": replace(DEFAULT, pseudo_probability=0.9),
    "pseudo-window 30": replace(DEFAULT, pseudo_window=30),
}
REAL = {
    "HeLa 01": "Fluo-N2DL-HeLa/01",
    "SIM+ 01": "Fluo-N2DH-SIM+/01",
    "bacteria 01": "bacteria/01",
}


def datasets(folder: Path, frames: int, only: str) -> Iterator[tuple[str, Dataset]]:
    """The movies, one after the other; real ones where CLEW_DATA has them."""
    data = os.environ.get("CLEW_DATA")
    for name, path in REAL.items() if data else ():
        if only.lower() in name.lower() and (Path(data or "") / path).is_dir():
            address = Path(data or "") / path
            begin = max(0, open_movie(address).n_frames - frames)
            yield name, open_dataset(f"{address}[{begin}:]", folder / name)
    if only.lower() in "simulated":
        from clew.simulation.simulate import NucleiSettings
        from clew.simulation.write import write_simulation

        home = folder / "movie"
        home.mkdir()
        write_simulation(
            home,
            NucleiSettings(
                frames=frames, cells=60, density=0.17, speed=4.5, cycle=20, merging=0.7
            ),
        )
        yield "simulated", open_dataset(str(home / "01"), folder / "simulated")


def session(
    dataset: Dataset, settings: LearnerSettings, answers: list[int], seed: int
) -> tuple[float, float, float]:
    """Loss of the weights alone, loss of the lineage with the answers, both in the mean, and seconds."""
    learner = Learner(dataset.source, settings=settings)
    examiner = Examiner(dataset, learner.groups)
    learner.learn(
        sample(dataset.truth, number=2, rng=seed)
    )  # two to begin with, so that sessions differ
    losses, spent = [], -time.process_time()
    for _ in annotate(learner, dataset.truth, STRATEGY, answers, seed, rounds=1):
        spent += time.process_time()
        predicted = EventTable.join(
            [learner.solve(frame).events for frame in range(len(learner.pairs))]
        )
        left = (
            1.0 - np.isin(dataset.truth.events.row_keys(), predicted.row_keys()).mean()
        )
        losses.append((examiner.loss(learner.w), float(left)))
        spent -= time.process_time()
    alone, kept = np.mean(losses, axis=0).tolist()
    return alone, kept, spent + time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--answers", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of a movie's name")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        for name, dataset in datasets(Path(folder), options.frames, options.only):
            begin = Learner(dataset.source)
            start = Examiner(dataset, begin.groups).loss(begin.w)
            title = f"{name}: {len(dataset.truth)} events, {start:.2%} missed before, {options.answers} answers"
            table = Table(
                "setting",
                "weights alone",
                "with answers",
                "seconds",
                title=title,
                title_justify="left",
            )
            for setting, settings in SETTINGS.items():
                found = np.array(
                    [
                        session(dataset, settings, options.answers, seed)
                        for seed in range(options.sessions)
                    ]
                )
                (loss, left, spent), spread = found.mean(axis=0), found.std(axis=0)
                table.add_row(
                    setting,
                    f"{loss:.2%} ± {spread[0]:.2%}",
                    f"{left:.2%} ± {spread[1]:.2%}",
                    f"{spent:.1f}",
                )
            console.print(table)


if __name__ == "__main__":
    main()
