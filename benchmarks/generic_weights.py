"""The weights that come with clew: learned from simulated movies of every kind, tried on kinds that they do not know.

    python benchmarks/generic_weights.py --folder F [--set NAME …] [--write] [--without KIND …]

There is a set of weights for each of `GENERIC_SETS`, learned from the movies of `training_movies.py`,
which are kept in the folder. The table has a row for each movie that was not learned from, tracked with weights that were
learned from all kinds; with `--leave-one-out` (or `--without` some) each kind is tracked with weights that were learned
from the others. `--write` puts the weights, and what `generic_calibration.py` fits, into generic_weights.json;
`wrong_events.py` then fits the probabilities to more movies, and says how far they are off. Real movies are never learned
from: `kinds.py` tries what was written on them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from generic_calibration import Sequence, false_share_of_merges, in_twos
from generic_file import update_generic
from rich.console import Console
from rich.table import Table
from split_odds import SplitOdds, rows_of
from training_movies import held_out_movies, kinds_of, training_movies

from clew.learning.algorithm import get_algorithm
from clew.tracking.candidates.features import FEATURES, feature_names
from clew.tracking.evaluation.task_loss import compute_task_loss, count_gaps
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.profile import (
    Appearance,
    TrainingRange,
    appearance_of_pairs,
    sample_evenly,
)
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import (
    GENERIC_SETS,
    POINTS_3D,
    TILED_MASKS,
    load_generic,
    weights_by_name,
)

DISTANCE = "distance in usual steps"
SQUARE = "squared distance in usual steps"
LEFT_OUT = {"points": DISTANCE, "masks": DISTANCE, "masks with intensities": SQUARE}
"""A feature of moves that has no weight in a set. With both, weights of points stay near
the concave one, which swaps near points; masks with intensities need no other."""
MARKERS = "points with intensities"
"""A set whose weights are those of masks with intensities, for the features that it has:
better on markers of real cells than weights that were learned for it."""
"""The weights of masks are the mean of those learned for them and those of masks with
intensities: what epithelia teach alone is wrong for fast sparse cells. Masks that tile the field take what was learned."""
LAM = 0.05
"""Tried beside 0.2 on held-out movies of all kinds: better on nuclei and fast cells. Not chosen by leaving one out."""


def learn_set(name: str, movies: list[Sequence], lam: float) -> Tracker:
    """Learn weights of a set, without the feature that it leaves out."""
    kept = tuple(one for one in FEATURES[Event.MOVE] if one.name != LEFT_OUT[name])
    with patch.dict(FEATURES, {Event.MOVE: kept}):
        tracker = learn(movies, lam)
    tracker.feature_names_, tracker.coef_ = (
        feature_names(tracker.groups_),
        weights_by_name(tracker, feature_names(tracker.groups_)),
    )
    return tracker


def learn(movies: list[Sequence], lam: float) -> Tracker:
    given = [in_twos(movie.truth) for movie in movies]
    tracker = Tracker(
        prior=None,
        lam=lam,
        events=[str(event) for event in Event],
        n_jobs=2,
        random_state=0,
        algorithm=get_algorithm("clew"),  # one start: frame pairs are annotated whole
    )
    tracker.fit([movie.source for movie in movies], given)
    tracker.coef_ = tracker.coef_ / np.linalg.norm(tracker.coef_)
    # all kinds are learned; which of them a movie has is for the movie to say
    tracker.events, tracker.events_ = "auto", frozenset()
    return tracker


def rows(
    tracker: Tracker, movies: list[Sequence], table: Table, without: str
) -> list[float]:
    losses = []
    for movie in movies:
        lineage = tracker.track(movie.source)
        loss = compute_task_loss(movie.truth, lineage)
        losses.append(loss.total)
        gaps = count_gaps(movie.truth, lineage)
        true, told = movie.truth.events, lineage.events
        divided, said = (
            each[each.event == Event.DIVIDE].row_keys() for each in (true, told)
        )
        f1 = 2 * np.isin(divided, said).sum() / max(len(divided) + len(said), 1)
        table.add_row(
            movie.name,
            without,
            f"{loss.total:.2%}",
            f"{f1:.2f}",
            *(f"{loss.missed[event]} of {loss.annotated[event]}" for event in PAIRWISE),
            f"{gaps.right} right, {gaps.false} false, {gaps.missed} missed",
        )
    return losses


def make_sections(
    trackers: dict[str, Tracker], folder: Path, console: Console
) -> dict[str, Any]:
    """Make the sections of the file that sets of weights determine."""
    weights = {
        name: {
            feature: round(w, 5)
            for feature, w in zip(
                tracker.feature_names_, tracker.coef_.tolist(), strict=True
            )
        }
        for name, tracker in trackers.items()
    }
    largest = [*GENERIC_SETS][-1]
    if largest in weights:
        names = feature_names(GENERIC_SETS[MARKERS])
        weights[MARKERS] = {feature: weights[largest][feature] for feature in names}
        names = feature_names(GENERIC_SETS["points"])
        weights[POINTS_3D] = {feature: weights[largest][feature] for feature in names}
    if {"masks", largest} <= weights.keys():
        pairs = [(weights["masks"][f], weights[largest][f]) for f in weights["masks"]]
        weights[TILED_MASKS] = weights["masks"]
        both = np.array(pairs) / np.linalg.norm(pairs, axis=0)
        mean = both.mean(axis=1).round(5).tolist()
        weights["masks"] = dict(zip(weights["masks"], mean, strict=True))
    sections: dict[str, Any] = {"weights": load_generic()["weights"] | weights}
    if largest in trackers:
        tracker = trackers[largest]
        movies = [*training_movies(largest, folder), *held_out_movies(largest, folder)]
        odds = SplitOdds.of(
            np.concatenate([rows_of(tracker, movie) for movie in movies])
        )
        false = false_share_of_merges(tracker, movies, console)
        sections |= {
            "splits": odds.section(),
            "false_rates": {"merges": float(f"{false:.2g}")},
        }
    samples = [
        sample
        for name, tracker in trackers.items()
        for sample in training_appearances(tracker, training_movies(name, folder))
    ]
    if len(trackers) == len(LEFT_OUT):
        quantiles = TrainingRange.of(samples).quantiles
        sections["quantiles"] = {
            name: [round(value, 3) for value in values]
            for name, values in quantiles.items()
        }
    return sections


def training_appearances(
    tracker: Tracker, movies: Iterable[Sequence]
) -> Iterator[Appearance]:
    """Sample the cells and moves of movies, for warnings about other movies."""
    for movie in movies:
        builder = tracker.pairs(movie.source, tracker.groups_for(movie.source))
        w = weights_by_name(tracker, feature_names(builder.profile.groups))
        frames = sample_evenly(range(len(builder)))
        yield appearance_of_pairs([builder.build(t) for t in frames], w)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where simulated movies are kept"
    )
    parser.add_argument("--set", nargs="+", default=[*LEFT_OUT], choices=[*LEFT_OUT])
    parser.add_argument("--lam", type=float, default=LAM)
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument(
        "--without", nargs="+", default=[], help="leave out each of these kinds only"
    )
    parser.add_argument(
        "--write", action="store_true", help="into generic_weights.json"
    )
    options = parser.parse_args()
    console = Console(width=150)
    names = (
        "movie",
        "learned without",
        "missed",
        "division F1",
        *map(str, PAIRWISE),
        "gap",
    )
    trackers = {}
    for name in options.set:
        training = [*training_movies(name, options.folder)]
        tests = [*held_out_movies(name, options.folder)]
        table = Table(*names, title=f"Movies never learned from: {name}")
        kinds = kinds_of(name) if options.leave_one_out else options.without
        for kind in kinds:
            others = [movie for movie in training if movie.kind != kind]
            mine = [movie for movie in tests if movie.kind == kind]
            losses = rows(learn_set(name, others, options.lam), mine, table, kind)
            console.print(f"{name}, without {kind}: {np.mean(losses):.2%} missed")
        if not kinds:
            began = time.process_time()
            tracker = trackers[name] = learn_set(name, training, options.lam)
            console.print(
                f"{name}: {len(tracker.coef_)} weights from {tracker.n_annotated_} events "
                f"in {time.process_time() - began:.0f} CPU s: {tracker.result_}"
            )
            rows(tracker, tests, table, "")
        console.print(table)
    if options.write:
        update_generic(**make_sections(trackers, options.folder, console))


if __name__ == "__main__":
    main()
