"""The weights that come with clew: learned from simulated movies of every kind, tried on kinds that they do not know.

    python benchmarks/generic_weights.py --folder F [--movies 4] [--write] [--without KIND …] [--test SEQUENCE …]

Movies are drawn at random within each kind (`random_settings`) and kept in the folder, so that a second run begins at
once. By default the table has a row for each movie that was not learned from, tracked with weights that were learned
from all kinds; with `--leave-one-out` each kind is tracked with weights that were learned from the others. `--test`
adds real sequences with a truth beside them (…/01); they are never learned from. `--write` puts the weights into
src/clew/tracking/model/generic.py.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track as bar
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from clew.learning.task import Array
from clew.tracking.evaluation.evaluate import task_loss
from clew.tracking.evaluation.truth import truth_annotations
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.formats.ctc import open_truth
from clew.tracking.formats.simulated import write_simulation
from clew.tracking.measurement.measure import Measured, measure
from clew.tracking.model.probability import LARGEST, Calibration
from clew.tracking.movie import open_movie
from clew.tracking.simulation.kinds import KINDS, random_settings
from clew.tracking.tracker import Tracker

EVERY = 3
"""One frame pair in so many is learned from: neighbouring ones tell little that is new."""
LAM = 0.05
"""Tried beside 0.2 on held-out movies of all kinds: better on nuclei and fast cells. Not chosen by leaving one out."""
HELD_OUT = 2
"""Movies of each kind that are tracked and never learned from."""
HEADER = (
    '"""Weights that come with clew, learned from simulated movies by benchmarks/generic_weights.py; by feature."""\n'
)


@dataclass(frozen=True)
class Sequence:
    """A measured movie with all of its true events."""

    kind: str
    name: str
    source: Measured
    truth: Annotations


def open_sequence(path: Path, kind: str, cache: Path) -> Sequence:
    movie = open_movie(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a real truth has a cell with three daughters
        known = truth_annotations(open_truth(path.with_name(f"{path.name}_GT") / "TRA"), movie)
    return Sequence(kind, f"{path.parent.name}/{path.name}", measure(movie, cache=cache, n_jobs=2), known)


def simulated(kind: str, seed: int, folder: Path) -> Sequence:
    place = folder / f"{kind}{seed}"
    if not place.exists():
        write_simulation(place, random_settings(kind, seed, seed=1000 + seed))
    return open_sequence(place / "01", kind, folder / "measured" / f"{kind}{seed}")


def learn(movies: list[Sequence], lam: float) -> Tracker:
    given = [movie.truth[movie.truth.events.frame % EVERY == 0] for movie in movies]
    tracker = Tracker(prior=None, lam=lam, events=[str(event) for event in Event], n_jobs=2, random_state=0)
    tracker.fit([movie.source for movie in movies], given)
    tracker.coef_ = tracker.coef_ / np.linalg.norm(tracker.coef_)
    # all kinds are learned; which of them a movie has is for the movie to say
    tracker.events, tracker.events_ = "auto", frozenset()
    return tracker


def rows(tracker: Tracker, movies: list[Sequence], table: Table, without: str) -> list[float]:
    losses = []
    for movie in movies:
        lineage = tracker.track(movie.source)
        loss = task_loss(movie.truth, lineage)
        losses.append(loss.total)
        true, told = movie.truth.events, lineage.events
        divided, said = (each[each.event == Event.DIVIDE].keys() for each in (true, told))
        f1 = 2 * np.isin(divided, said).sum() / max(len(divided) + len(said), 1)
        table.add_row(
            movie.name, without, f"{loss.total:.2%}", f"{f1:.2f}",
            *(f"{loss.missed[event]} of {loss.annotated[event]}" for event in Event),
        )  # fmt: skip
    return losses


@dataclass(frozen=True)
class Judged:
    """Events of a movie whose truth is known, in frame pairs that were not learned from."""

    kind: str
    event: NDArray[np.int8]
    margin: Array
    right: NDArray[np.bool_]


def judge(tracker: Tracker, movie: Sequence, learned: bool) -> Judged:
    """An event that takes a cell whose true event is another one is wrong; where the truth is silent, so is this."""
    lineage = tracker.track(movie.source)
    told, true = lineage.events, movie.truth.events
    right = np.isin(told.keys(), true.keys())
    known = right | _shares(told, true, "sources") | _shares(told, true, "targets")
    used = known & np.isfinite(lineage.confidence) & ((told.frame % EVERY != 0) | (not learned))
    margin = lineage.confidence / np.linalg.norm(tracker.coef_)
    return Judged(movie.kind, told.event[used], np.minimum(margin[used], LARGEST), right[used])


def _shares(told: EventTable, true: EventTable, side: str) -> NDArray[np.bool_]:
    mine, theirs = getattr(told, side), getattr(true, side)
    span = int(max(mine.max(initial=0), theirs.max(initial=0))) + 1
    taken = (true.frame[:, None] * span + theirs)[theirs > 0]
    return (np.isin(told.frame[:, None] * span + mine, taken) & (mine > 0)).any(axis=1)


def platt(judged: list[Judged]) -> Calibration:
    """Platt scaling over movies that count alike, however many events they have."""
    rows = np.concatenate([np.column_stack([each.margin, np.eye(len(Event))[each.event]]) for each in judged])
    weight = np.concatenate([np.full(len(each.right), 1 / len(each.right)) for each in judged])
    model = LogisticRegression(C=10.0, max_iter=5000)
    model.fit(rows, np.concatenate([each.right for each in judged]), sample_weight=weight * len(weight) / weight.sum())
    slope, *by_kind = model.coef_[0].tolist()
    return Calibration(slope, np.array(by_kind) + model.intercept_[0], 0.0)


def calibrate(judged: list[Judged], console: Console) -> Calibration:
    """The scaling from all kinds; its spread is that of expected over counted errors on kinds left out."""
    ratios = []
    for kind in sorted({each.kind for each in judged}):
        others = platt([each for each in judged if each.kind != kind])
        mine = [each for each in judged if each.kind == kind]
        expected = sum(float((1 - others.probability(each.event, each.margin, 1.0)).sum()) for each in mine)
        counted = sum(int((~each.right).sum()) for each in mine)
        ratios.append(np.log((expected + 0.5) / (counted + 0.5)))
        console.print(f"{kind}, left out: {expected:.0f} wrong events expected, {counted} counted")
    return replace(platt(judged), spread=float(np.sqrt(np.mean(np.square(ratios)))))


def write(names: list[str], weights: Array, calibration: Calibration) -> Path:
    target = Path(__file__).parents[1] / "src/clew/tracking/model/generic.py"
    lines = [f'    "{name}": {w:.5f},\n' for name, w in zip(names, weights, strict=True)]
    kinds = [f'    "{event}": {b:.4f},\n' for event, b in zip(Event, calibration.intercept, strict=True)]
    target.write_text(
        f"{HEADER}\nGENERIC = {{\n{''.join(lines)}}}\n"
        f"SLOPE = {calibration.slope:.4f}\nINTERCEPTS = {{\n{''.join(kinds)}}}\n"
        '"""Of the probability that an event is right, see `probability.py`."""\n'
        f"SPREAD = {calibration.spread:.4f}\n"
        '"""Of the logarithm of the number of wrong events, as expected over as counted, on kinds left out."""\n'
    )
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where simulated movies are kept")
    parser.add_argument("--movies", type=int, default=4, help="movies of each kind to learn from")
    parser.add_argument("--lam", type=float, default=LAM)
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--test", nargs="*", type=Path, default=[], metavar="SEQUENCE")
    parser.add_argument("--write", action="store_true", help="put the weights into src/clew/tracking/model/generic.py")
    options = parser.parse_args()
    console = Console(width=150)
    wanted = [(kind, seed) for kind in options.kinds for seed in range(options.movies + HELD_OUT)]
    movies = {at: simulated(*at, options.folder) for at in bar(wanted, "simulating and measuring", console=console)}
    real = [open_sequence(path, "real", options.folder / "measured" / path.parent.name) for path in options.test]
    training = [movie for (_, seed), movie in movies.items() if seed < options.movies]
    table = Table(
        "movie", "learned without", "missed", "division F1", *map(str, Event), title="Movies never learned from"
    )
    if options.leave_one_out:
        for kind in options.kinds:
            tracker = learn([movie for movie in training if movie.kind != kind], options.lam)
            tests = [movies[kind, seed] for seed in range(options.movies, options.movies + HELD_OUT)]
            losses = rows(tracker, [*tests, *real], table, kind)
            table.add_section()
            console.print(f"without {kind}: {np.mean(losses[:HELD_OUT]):.2%} of the events of {kind} are missed")
    else:
        started = time.perf_counter()
        tracker = learn(training, options.lam)
        console.print(
            f"learned {len(tracker.coef_)} weights from {tracker.n_annotated_} events in {tracker.n_pairs_} frame "
            f"pairs in {time.perf_counter() - started:.0f} s: {tracker.result_}"
        )
        rows(tracker, [*(m for (_, seed), m in movies.items() if seed >= options.movies), *real], table, "")
    console.print(table)
    if options.write:
        judged = [judge(tracker, movie, seed < options.movies) for (_, seed), movie in movies.items()]
        calibration = calibrate(judged, console)
        console.print(f"written {write(tracker.feature_names_, tracker.coef_, calibration).name}")


if __name__ == "__main__":
    main()
