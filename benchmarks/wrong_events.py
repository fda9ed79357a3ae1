"""How many events are wrong, as expected and as counted, on kinds of cells that the calibration did not see.

    python benchmarks/wrong_events.py --folder F [--movies 24] [--fresh 20] [--test SEQUENCE …] [--write | --weights]
    python benchmarks/wrong_events.py --folder F --learned 0.05 [25 …] [--fresh 4] [--first 200] [--test SEQUENCE …]

Movies of each simulated kind are drawn at random and tracked with the generic weights. For each kind, the calibration
is fitted to the movies of all other kinds and tried on movies of this kind: on those that the others were fitted with,
by which `spread` and the form of the calibration were chosen, and on fresh ones, by which nothing was. Both with
margins and kinds of events alone, and with all that `calibration.py` looks at. `--test` adds real sequences with a
truth beside them, tried with the calibration from all kinds. `--write` puts that into
generic_weights.json. With `--weights` the weights, too, are learned without the kind that is tried.

With `--learned` weights are learned from a share of each movie's events, or from so many, drawn at random, and events
that nobody annotated are judged: by the generic calibration, and as held-out annotations have changed it. Gains of the
learned weights are compared as well, by what they would have given on the simulated kinds.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from generic_calibration import (
    Judged,
    Sequence,
    calibrate,
    held_by,
    judge,
    platt,
    probability,
    usual_rank,
)
from generic_file import calibration_section, update_generic
from generic_weights import LAM, learn
from rich.console import Console
from rich.progress import track as bar
from rich.table import Table
from training_movies import open_sequence, simulated

from clew.annotation.sampling import sample
from clew.learning.task import Array
from clew.simulation.kinds import KINDS
from clew.tracking.tracker import Tracker
from clew.tracking.training import recalibration
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import SPREAD
from clew.tracking.training.recalibration import (
    GENERIC,
    LEARNED,
    GainPrior,
    HeldOutEvents,
    posterior_mode,
)

LEARNED_FROM = 4
"""Seeds before this are movies that the generic weights were learned from, in a third of the frame pairs."""
LEAST = 6
"""Events that are annotated at least."""
GAINS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Means of the gain that are compared."""
COLUMNS = (
    "movies",
    "expected",
    "counted",
    "ratio",
    "of a movie",
    "within 1.5",
    "held",
    "log loss",
    "Brier",
)
"""Wrong events, expected over counted; the root mean square of the logarithm of that over movies, and the share of
movies within a factor of 1.5, each with one event more; the share whose number the interval of 90 % holds."""


Movies = list[tuple[Judged, Calibration]]


def row(name: str, found: Movies) -> tuple[list[str], float]:
    """The figures of some movies, and the logarithm of expected over counted."""
    movies = [each for each, _ in found]
    chances = [probability(calibration, each) for each, calibration in found]
    wrong = [~each.right for each in movies]
    expected, counted = (
        np.array([each.sum() for each in parts])
        for parts in ([1 - p for p in chances], wrong)
    )
    total = np.log(expected.sum() / max(counted.sum(), 1))
    by_movie = np.log((expected + 1) / (counted + 1))
    p, y = np.concatenate(chances), np.concatenate(wrong)
    one_by_one = zip(chances, counted.tolist(), found, strict=True)
    held = np.mean(
        [
            held_by([(chance, n)], calibration.spread)
            for chance, n, (_, calibration) in one_by_one
        ]
    )
    cells = [
        name,
        str(len(movies)),
        f"{expected.sum():.0f}",
        str(counted.sum()),
        f"{np.exp(total):.2f}",
        f"{np.sqrt(np.mean(by_movie**2)):.2f}",
        f"{np.mean(np.abs(by_movie) < np.log(1.5)):.0%}",
        f"{held:.0%}",
        f"{_log_loss(p, y):.0f}",
        f"{((1 - p - y) ** 2).sum():.1f}",
    ]
    return cells, float(total)


def _log_loss(p: Array, wrong: Array) -> float:
    return float(-np.log(np.clip(np.where(wrong, 1 - p, p), 1e-12, 1)).sum())


def reliability(judged: Movies, edges: Array) -> list[str]:
    """Of events in ranges of their chance to be wrong, the mean of that and the share that is."""
    chance = np.concatenate(
        [1 - probability(calibration, each) for each, calibration in judged]
    )
    wrong = np.concatenate([~each.right for each, _ in judged])
    place = np.digitize(chance, edges) - 1
    mine = [place == k for k in range(len(edges) - 1)]
    return [
        f"{chance[m].mean():.3f}: {wrong[m].mean():.3f} of {m.sum():,}"
        for m in mine
        if m.any()
    ]


def without_weights(
    folder: Path, n_fitted: int, seeds: range, console: Console
) -> None:
    """Fresh movies of each kind by weights and a calibration that were learned from the other kinds."""
    tables = [
        Table("kind", *COLUMNS, title=name)
        for name in ("margins and kinds alone", "all that is looked at")
    ]
    for kind in KINDS:
        others = [
            (one, seed) for one in KINDS if one != kind for seed in range(n_fitted)
        ]
        tracker = learn(
            [simulated(*at, folder) for at in others if at[1] < LEARNED_FROM], LAM
        )
        fitted = [
            judge(tracker, simulated(*at, folder), at[1] < LEARNED_FROM)
            for at in others
        ]
        fresh = [judge(tracker, simulated(kind, seed, folder), False) for seed in seeds]
        for beyond, table in enumerate(tables):
            calibration = replace(platt(fitted, bool(beyond)), spread=SPREAD)
            cells, _ = row(kind, [(each, calibration) for each in fresh])
            table.add_row(*cells)
            console.print(*cells)  # the next kind takes minutes
    console.print(*tables)


@dataclass(frozen=True)
class Fitted:
    """A movie tracked with weights learned from a part of its events."""

    judged: Judged
    calibration: Calibration
    found: HeldOutEvents
    """What held-out annotations told."""
    improved: bool

    def with_gain(self, gain: GainPrior) -> Calibration:
        """The calibration if another gain were expected."""
        (level, slope), _ = posterior_mode(
            self.found, SPREAD, gain if self.improved else GENERIC
        )
        before = GENERIC_CALIBRATION
        return replace(
            before, slope=before.slope + slope, intercept=before.intercept + level
        )


def fit(movie: Sequence, amount: float, seed: int) -> Fitted:
    """Weights learned from a share of the events, or from so many."""
    number = int(
        np.clip(
            amount if amount > 1 else amount * len(movie.truth),
            LEAST,
            len(movie.truth) // 2,
        )
    )
    given = sample(movie.truth, rng=np.random.default_rng([seed, 5]), number=number)
    told: list[HeldOutEvents] = []

    def listening(found: HeldOutEvents, *args: Any) -> Any:
        told.append(found)
        return posterior_mode(found, *args)

    with patch.object(recalibration, "posterior_mode", listening):
        tracker = Tracker(n_jobs=1, random_state=seed).fit(movie.source, given)
    return Fitted(
        judge(tracker, movie, False, given),
        tracker.calibration_,
        told[0],
        tracker.improved_,
    )


def learned(
    amount: float, movies: list[tuple[Sequence, int]], console: Console
) -> None:
    """Movies by weights learned from their own events."""
    every = [
        fit(movie, amount, seed)
        for movie, seed in bar(movies, f"learning from {amount:g}", console=console)
    ]
    names = dict.fromkeys(
        each.judged.kind if each.judged.kind in KINDS else each.judged.name
        for each in every
    )
    for title in ("by the generic calibration", "as held-out annotations changed it"):
        table = Table(
            "movies of", *COLUMNS, title=f"weights learned from {amount:g}, {title}"
        )
        for name in names:
            mine = [
                each for each in every if name in (each.judged.kind, each.judged.name)
            ]
            generic = title.endswith("generic calibration")
            table.add_row(
                *row(
                    name,
                    [
                        (e.judged, GENERIC_CALIBRATION if generic else e.calibration)
                        for e in mine
                    ],
                )[0]
            )
        console.print(table)
    for gain in product(GAINS, (LEARNED[1] / 2, LEARNED[1], 2 * LEARNED[1])):
        kinds = {
            kind: [
                (e.judged, e.with_gain(gain)) for e in every if e.judged.kind == kind
            ]
            for kind in KINDS
        }
        found = [row(kind, some) for kind, some in kinds.items() if some]
        off = np.sqrt(np.mean([log**2 for _, log in found]))
        loss = sum(float(cells[COLUMNS.index("log loss") + 1]) for cells, _ in found)
        console.print(
            f"gain {gain[0]:g} ± {gain[1]:g}: log loss {loss:.0f}, ratio of a kind off by {off:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where simulated movies are kept"
    )
    parser.add_argument(
        "--movies", type=int, default=24, help="of each kind, to fit to"
    )
    parser.add_argument("--fresh", type=int, default=20, help="of each kind, to try on")
    parser.add_argument(
        "--first", type=int, default=100, help="the seed of the first of these"
    )
    parser.add_argument("--test", nargs="*", type=Path, default=[], metavar="SEQUENCE")
    parser.add_argument(
        "--write", action="store_true", help="put the calibration into the sources"
    )
    parser.add_argument(
        "--learned",
        nargs="+",
        type=float,
        default=[],
        metavar="SHARE",
        help="or number of events",
    )
    parser.add_argument(
        "--weights",
        action="store_true",
        help="leave the kind out of the weights as well",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = {
        "fitted": range(options.movies),
        "fresh": range(options.first, options.first + options.fresh),
    }
    if options.learned:
        at = [(kind, seed) for kind in KINDS for seed in seeds["fresh"]]
        movies = [(simulated(kind, seed, options.folder), seed) for kind, seed in at]
        movies += [
            (
                open_sequence(
                    path, "real", options.folder / "measured" / path.parent.name
                ),
                1,
            )
            for path in options.test
        ]
        for amount in options.learned:
            learned(amount, movies, Console(width=140))
        return
    if options.weights:
        without_weights(
            options.folder, options.movies, seeds["fresh"], Console(width=140)
        )
        return
    console, tracker = Console(width=140), Tracker.generic(n_jobs=1)
    found: dict[str, list[Judged]] = defaultdict(list)
    wanted = [
        (of, kind, seed)
        for of, some in seeds.items()
        for kind in KINDS
        for seed in some
    ]
    for of, kind, seed in bar(wanted, "tracking", console=console):
        found[of].append(
            judge(tracker, simulated(kind, seed, options.folder), seed < LEARNED_FROM)
        )
    real = [
        open_sequence(path, "real", options.folder / "measured" / path.parent.name)
        for path in options.test
    ]
    best = calibrate(found["fitted"])
    console.print(calibration_section(best, usual_rank(found["fitted"])))
    for beyond in (False, True):
        of_kind = {
            kind: replace(
                platt([e for e in found["fitted"] if e.kind != kind], beyond),
                spread=best.spread,
            )
            for kind in KINDS
        }
        for of in seeds:
            title = f"{of} movies of kinds left out, {'all that is looked at' if beyond else 'margins and kinds alone'}"
            table = Table("kind", *COLUMNS, title=title)
            logs = []
            for kind in KINDS:
                cells, log = row(
                    kind, [(e, of_kind[kind]) for e in found[of] if e.kind == kind]
                )
                table.add_row(*cells)
                logs.append(log)
            console.print(
                table, f"spread over kinds {np.sqrt(np.mean(np.square(logs))):.3f}"
            )
            edges = np.array([0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
            told = reliability(
                [(each, of_kind[each.kind]) for each in found[of]], edges
            )
            console.print("expected: wrong, " + "; ".join(told))
        table = Table("movie", *COLUMNS)
        for movie in real:
            each = judge(tracker, movie, False)
            table.add_row(
                *row(
                    movie.name,
                    [
                        (
                            each,
                            replace(platt(found["fitted"], beyond), spread=best.spread),
                        )
                    ],
                )[0]
            )
        console.print(table)
    if options.write:
        section = calibration_section(best, usual_rank(found["fitted"]))
        update_generic(calibration=section)


if __name__ == "__main__":
    main()
