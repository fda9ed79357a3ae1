"""How many predicted events of a movie are wrong, corrected by the answers so far.

The calibration that comes with clew (`tracking/training/calibration.py`) says how
likely each predicted event is wrong: its doubt d. It was fitted to many movies. In one
movie, events may be wrong more often, and doubts may be more or less informative. This
is Cox's (1958) recalibration:

    logit P(wrong) = level + slope (logit d − PIVOT).

- Level and slope have a normal prior over movies. Each kind of event has its own:
  divisions may be wrong more often than expected while moves are not, and questions
  are mostly about rare kinds.
- Each answer to a question is a check, a Bernoulli variable with this probability. The
  posterior is kept on a grid, so that nothing is assumed about its shape.
- Given level and slope, the expected number of wrong events is the sum of their
  probabilities. Its variance is larger than that of independent events, since errors
  come in groups: if a cell went elsewhere, the prediction for the cell that is there is
  wrong too. With groups of s events on average, the variance is s times the mean, plus
  that of the mean over the posterior.
- The total is taken to be negative binomial with this mean and variance; its quantiles
  are the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit, nbdtrik

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.training.calibration import INTERVAL, Expectation

Kinds = NDArray[np.int8]
"""(n,) the kinds of events."""
TAIL = (1 - INTERVAL) / 2
"""Probability on either side of the interval."""
PIVOT = -2.0
"""Log-odds of a doubt of 12 %, near which most wrong events are: there level and slope
are almost independent."""
MEAN = np.array([-1.88, 1.19])
COVARIANCE = np.array([[0.85, 0.05], [0.05, 0.05]])
"""Of level and slope over movies, fitted to simulated movies of every kind by
benchmarks/stopping_prior.py --movies 4."""
GRID_SIZE = 15
GRID_REACH = 3.0
"""Nodes of the grid in either direction, and standard deviations to either side."""
GROUP = 2.0
"""Wrong events in a group, before the first is found; counts as one found group."""
MAX_KNOTS = 500
"""Log-odds at which the chance is computed; it is interpolated between them, with an
error of at most 10⁻³ of it."""
MIN_DOUBT = 1e-9
"""Doubts are at least this, and at most 1 minus this."""


@dataclass(frozen=True, slots=True)
class Check:
    """What an answer says about the prediction in question."""

    expected: float
    """Its doubt: how likely it was wrong."""
    wrong: int
    """0 if it was right; else the number of predictions that the answer refutes."""
    event: Event
    """What was predicted."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What the answers say about level, slope, and the size of groups of errors."""

    weight: Array
    """(kinds, g) the posterior probability of each node of `GRID`, by kind."""
    group: float
    """The mean number of wrong events in a group."""

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Correction:
        """Return the posterior after some checks."""
        known = list(checks)
        doubts = np.array([check.expected for check in known])
        log_odds_wrong = _recalibrate(log_odds(doubts))
        was_wrong = np.array([check.wrong > 0 for check in known], dtype=bool)
        log_likelihood = log_expit(np.where(was_wrong, log_odds_wrong, -log_odds_wrong))
        kinds = np.array([check.event for check in known], dtype=int)
        weight = [
            _normalize(LOG_PRIOR + log_likelihood[:, kinds == event].sum(axis=1))
            for event in Event
        ]
        groups = [check.wrong for check in known if check.wrong]
        group = (GROUP + sum(groups)) / (1 + len(groups))
        return cls(np.array(weight), group)

    def chance_wrong(self, events: Kinds, doubt: Array) -> Array:
        """Return (n,) how likely events are wrong.

        Parameters
        ----------
        events : ndarray of shape (n,)
            Their kinds.
        doubt : ndarray of shape (n,)
            0 for events that were answered.
        """
        result = np.zeros(len(doubt))
        is_open = doubt > 0
        for event in np.unique(events[is_open]).tolist():
            rows = (events == event) & is_open
            odds = log_odds(doubt[rows])
            if len(odds) <= MAX_KNOTS:
                result[rows] = self.weight[event] @ chance_on_grid(odds)
            else:
                # One value for each of 100,000 events would take half a second.
                knots = np.linspace(odds.min(), odds.max(), MAX_KNOTS)
                chance = self.weight[event] @ chance_on_grid(knots)
                result[rows] = np.interp(odds, knots, chance)
        return result


def estimate_wrong_events(
    events: Kinds, probability: Array, correction: Correction
) -> Expectation:
    """Return the expected number of wrong events, with its interval.

    Parameters
    ----------
    events : ndarray of shape (n,)
        Their kinds.
    probability : ndarray of shape (n,)
        That each event is right, by the calibration; 1 if it was answered.
    correction : Correction
    """
    number = 0.0
    variance = 0.0
    for event in np.unique(events).tolist():
        odds, count = _bin_doubts(1 - probability[events == event])
        mean_on_grid = chance_on_grid(odds) @ count
        weight = correction.weight[event]
        mean = float(weight @ mean_on_grid)
        number += mean
        variance += correction.group * mean
        variance += float(weight @ (mean_on_grid - mean) ** 2)
    n_events = len(probability)
    if not number:
        return Expectation(0.0, 0.0, 0.0, n_events)
    # Quantiles of the negative binomial; scipy.stats takes two seconds to import.
    n_successes = number**2 / (variance - number)
    quantiles = nbdtrik([TAIL, 1 - TAIL], n_successes, number / variance)
    low, high = np.clip(np.ceil(quantiles), 0.0, n_events).tolist()
    return Expectation(min(number, n_events), low, high, n_events)


def estimate_answers_needed(
    events: Kinds, probability: Array, correction: Correction, target: float
) -> int:
    """Return how many answers are needed until fewer than `target` events are wrong.

    The likeliest errors are asked about first. What answers teach is not counted, so
    fewer may be enough.
    """
    chance = correction.chance_wrong(events, 1 - probability)
    ordered = np.sort(chance)[::-1]
    left = ordered.sum() - np.concatenate([[0.0], np.cumsum(ordered)])
    is_enough = left < max(target, MIN_DOUBT)
    return int(np.argmax(is_enough)) if is_enough.any() else len(chance)


def chance_on_grid(odds: Array) -> Array:
    """Return (g, n) how likely events are wrong at each node of the grid."""
    return np.asarray(expit(_recalibrate(odds)))


def log_odds(doubt: Array) -> Array:
    """Return (n,) the log-odds of doubts, finite."""
    return np.asarray(logit(np.clip(doubt, MIN_DOUBT, 1 - MIN_DOUBT)))


def _recalibrate(odds: Array) -> Array:
    """Return (g, n) the log-odds to be wrong at each node of the grid."""
    level, slope = GRID.T
    return np.asarray(level[:, None] + slope[:, None] * (odds - PIVOT))


def _bin_doubts(doubt: Array, n_bins: int = 200) -> tuple[Array, Array]:
    """Return mean log-odds of positive doubts, and how many events are in each bin."""
    odds = log_odds(doubt[doubt > 0])
    if not len(odds):
        return odds, odds
    count, edges = np.histogram(odds, n_bins)
    total, _ = np.histogram(odds, edges, weights=odds)
    is_filled = count > 0
    return total[is_filled] / count[is_filled], count[is_filled].astype(float)


def _normalize(log_weight: Array) -> Array:
    """Return weights that sum to 1, from their logarithms up to a constant."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _make_grid() -> tuple[Array, Array]:
    """Return (g, 2) levels and slopes, and (g,) their log prior up to a constant."""
    axis = np.linspace(-GRID_REACH, GRID_REACH, GRID_SIZE)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    grid = MEAN + nodes @ np.linalg.cholesky(COVARIANCE).T
    return grid, -0.5 * (nodes**2).sum(axis=1)


GRID, LOG_PRIOR = _make_grid()
