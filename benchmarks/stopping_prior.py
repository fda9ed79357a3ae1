"""How far the doubts of clew's calibration are off on one movie: the prior of annotation/error_estimate.py.

    python benchmarks/stopping_prior.py --folder F [--movies 3]

Movies are drawn at random within each simulated kind and tracked with the generic weights, frame pair by frame pair as
the page does it. On a movie of its own, an event of doubt d (how likely it is wrong, by the calibration) is wrong with
log-odds level + slope (logit d − PIVOT). The two are taken to be normal over movies; their means and covariance are
fitted by EM (Dempster et al. 1977), with the likelihood of each movie on a grid.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from generic_calibration import Sequence
from rich.console import Console
from scipy.special import log_expit
from scipy.stats import multivariate_normal
from training_movies import simulated

from clew.annotation.error_estimate import GROUP, PIVOT, log_odds
from clew.annotation.progress import event_probabilities
from clew.annotation.questions import find_settled
from clew.learning.task import Array
from clew.simulation.kinds import KINDS
from clew.tracking.events import EventTable
from clew.tracking.solve import solve_pairs
from clew.tracking.tracker import Tracker

FIRST = 100
"""Seeds from here on: no movie that the generic weights were learned from."""
ROUNDS = 200
GRID = np.stack(
    np.meshgrid(np.linspace(-8, 2, 81), np.linspace(0, 5, 61), indexing="ij"), axis=-1
).reshape(-1, 2)
"""(g, 2) levels and slopes."""


def doubts(movie: Sequence) -> tuple[Array, Array]:
    """(n,) of each event whose truth is known, its log-odds to be wrong by the calibration, and whether it is."""
    tracker, truth = Tracker.generic(), movie.truth.to_pairwise()
    pairs = tracker.pairs(movie.source, tracker.groups_for(movie.source))
    solved = solve_pairs(pairs, tracker.coef_, range(len(pairs)))
    told = EventTable.join([one.events for one in solved])
    right = event_probabilities(solved)
    used = find_settled(told, truth) & (right < 1)
    return log_odds(1 - right[used]), ~np.isin(
        told.row_keys(), truth.events.row_keys()
    )[used]


def likelihood(odds: Array, wrong: Array) -> Array:
    """(g,) the log-likelihood of a movie at each level and slope of the grid; mistakes come in twos, so half of it."""
    sign = np.where(wrong, 1.0, -1.0)
    return np.array(
        [
            log_expit(sign * (level + slope * (odds - PIVOT))).sum() / GROUP
            for level, slope in GRID
        ]
    )


def fit(movies: list[Array]) -> tuple[Array, Array]:
    """Mean (2,) and covariance (2, 2) of level and slope over movies, from their likelihoods (g,)."""
    mean, covariance = np.array([PIVOT, 1.0]), np.eye(2)
    for _ in range(ROUNDS):
        prior = multivariate_normal(mean, covariance).logpdf(GRID)
        weight = np.array(
            [np.exp((one + prior) - np.logaddexp.reduce(one + prior)) for one in movies]
        )
        mean = (weight @ GRID).mean(axis=0)
        away = GRID - mean
        covariance = np.einsum("mg,gi,gj->ij", weight, away, away) / len(
            movies
        ) + 1e-6 * np.eye(2)
    return mean, covariance


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder",
        type=Path,
        required=True,
        help="where the movies are, or are to be made",
    )
    parser.add_argument("--movies", type=int, default=3, help="of each kind")
    options = parser.parse_args()
    console, found = Console(), []
    for kind in KINDS:
        for seed in range(FIRST, FIRST + options.movies):
            odds, wrong = doubts(simulated(kind, seed, options.folder))
            found.append(likelihood(odds, wrong))
            level, slope = GRID[np.argmax(found[-1])]
            expected = float((1 / (1 + np.exp(-odds))).sum())
            console.print(
                f"{kind} {seed}: {wrong.sum()} of {len(wrong)} wrong, {expected:.0f} expected; "
                f"likeliest level {level:.2f}, slope {slope:.2f}"
            )
    mean, covariance = fit(found)
    console.print(
        f"mean {mean.round(3).tolist()}, covariance {covariance.round(3).tolist()}"
    )


if __name__ == "__main__":
    main()
