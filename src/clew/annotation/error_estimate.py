"""When to stop annotating: about how many events of a movie are wrong, as the answers so far have corrected it.

The calibration that comes with clew (`tracking/training/calibration.py`) says of each predicted event how likely it is
wrong: its doubt d. It was fitted to many movies at once. On one movie all events may be wrong more often than that, and
doubts may tell more or less than they do on average, as in Cox's (1958) recalibration:

    logit P(wrong) = level + slope (logit d − PIVOT).

Level and slope are normal over movies before the first answer. Each kind of event has its own: where the divisions of a
movie are wrong more often than expected, its moves need not be, and what is asked about is mostly of rare kinds. Each
answer to a question is a check, a Bernoulli variable with this probability; the posterior is kept on a grid, so that
nothing is assumed of its shape. Given level and slope, the number of wrong events among those that nobody answered has
the sum of their probabilities as its mean. It varies more than a sum of independent ones, for mistakes come in groups:
where a cell went elsewhere, the prediction for the cell that is there is wrong too. With groups of s events in the mean
the variance is s times the mean; that of the mean over the posterior is added. The number of all kinds is taken to be
negative binomial with this mean and variance, whose quantiles are the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit, nbdtrik

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.training.calibration import Expectation

Kinds = NDArray[np.int8]
"""(n,) the kinds of events."""
TAIL = 0.05
"""On either side of the interval, which holds the number in 90 of 100 movies."""
PIVOT = -2.0
"""Log-odds of a doubt of 12 %, about where most wrong events are: level and slope hardly depend on each other there."""
MEAN = np.array([-1.88, 1.19])
COVARIANCE = np.array([[0.85, 0.05], [0.05, 0.05]])
"""Of level and slope over movies, fitted to simulated ones of every kind by benchmarks/stopping_prior.py --movies 4."""
NODES = 15
REACH = 3.0
"""The grid has so many nodes in either direction, to so many standard deviations on both sides."""
GROUP = 2.0
"""Wrong events in a group, before the first is found; counts as much as one that is found."""
KNOTS = 500
"""Log-odds at which a chance is computed at most; between them it is interpolated, 10⁻³ of it off at most."""
LEAST = 1e-9
"""Doubts are at least this, and at most 1 less this."""


@dataclass(frozen=True, slots=True)
class Check:
    """What an answer says of the prediction that was asked about."""

    expected: float
    """Its doubt: how likely it was wrong."""
    wrong: int
    """0 if it was right; else how many predictions the answer shows to be wrong, this one and those beside it."""
    event: Event
    """What was predicted."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What the answers say of level and slope, and of how many events are wrong together."""

    weight: Array
    """(kinds, g) for each kind of event, the posterior probability of each node of `GRID`."""
    group: float

    @classmethod
    def of(cls, checks: Iterable[Check]) -> Correction:
        """After some checks."""
        done = list(checks)
        argument = _recalibrated(log_odds(np.array([check.expected for check in done])))
        wrong = np.array([check.wrong > 0 for check in done], dtype=bool)
        likelihood = log_expit(np.where(wrong, argument, -argument))  # (g, n)
        of_kind = [
            np.array([check.event == event for check in done], dtype=bool)
            for event in Event
        ]
        weight = [
            _normalised(PRIOR + likelihood[:, mine].sum(axis=1)) for mine in of_kind
        ]
        found = [check.wrong for check in done if check.wrong]
        return cls(np.array(weight), (GROUP + sum(found)) / (1 + len(found)))

    def chance(self, events: Kinds, doubt: Array) -> Array:
        """(n,) how likely events are wrong, by their kinds and doubts."""
        found = np.zeros(len(doubt))
        for event in np.unique(events[doubt > 0]).tolist():
            mine = (events == event) & (doubt > 0)
            odds = log_odds(doubt[mine])
            # one value for each would be half a second for a hundred thousand events, several times an answer
            knots = (
                odds
                if len(odds) <= KNOTS
                else np.linspace(odds.min(), odds.max(), KNOTS)
            )
            chance = self.weight[event] @ chance_of(knots)
            found[mine] = chance if knots is odds else np.interp(odds, knots, chance)
        return found


def wrong_events(
    events: Kinds, probability: Array, correction: Correction
) -> Expectation:
    """How many events are wrong, from their kinds and the probability (n,) that each is right; 1 if it was answered."""
    number = variance = 0.0
    for event in np.unique(events).tolist():
        odds, count = _binned(1 - probability[events == event])
        mean, weight = chance_of(odds) @ count, correction.weight[event]
        middle = float(weight @ mean)
        number, variance = (
            number + middle,
            variance + correction.group * middle + float(weight @ (mean - middle) ** 2),
        )
    n = len(probability)
    if not number:
        return Expectation(0.0, 0.0, 0.0, n)
    # quantiles of the negative binomial distribution; scipy.stats, which has it too, takes two seconds to import
    bounds = np.ceil(
        nbdtrik([TAIL, 1 - TAIL], number**2 / (variance - number), number / variance)
    )
    low, high = (min(max(float(bound), 0.0), n) for bound in bounds)
    return Expectation(min(number, n), low, high, n)


def answers_until(
    events: Kinds, probability: Array, correction: Correction, target: float
) -> int:
    """How many answers until fewer than `target` events are expected to be wrong, if the likeliest are asked about.

    What answers teach is not counted, so that fewer may do.
    """
    chance = np.sort(correction.chance(events, 1 - probability))[::-1]
    left = chance.sum() - np.concatenate([[0.0], np.cumsum(chance)])
    enough = left < max(target, LEAST)
    return int(np.argmax(enough)) if enough.any() else len(chance)


def chance_of(odds: Array) -> Array:
    """(g, n) how likely events are wrong at each node of the grid, by the log-odds of their doubts."""
    return np.asarray(expit(_recalibrated(odds)))


def log_odds(doubt: Array) -> Array:
    """(n,) of doubts, finite."""
    return np.asarray(logit(np.clip(doubt, LEAST, 1 - LEAST)))


def _recalibrated(odds: Array) -> Array:
    """(g, n) log-odds to be wrong at each node of the grid."""
    level, slope = GRID.T
    return np.asarray(level[:, None] + slope[:, None] * (odds - PIVOT))


def _binned(doubt: Array, bins: int = 200) -> tuple[Array, Array]:
    """Log-odds of doubts over 0, and how many events have about these: a movie has many events and few doubts."""
    odds = log_odds(doubt[doubt > 0])
    if not len(odds):
        return odds, odds
    count, edges = np.histogram(odds, bins)
    sums, _ = np.histogram(odds, edges, weights=odds)
    return sums[count > 0] / count[count > 0], count[count > 0].astype(float)


def _normalised(log_weight: Array) -> Array:
    """Weights that add up to 1, from their logarithms up to a constant."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _grid() -> tuple[Array, Array]:
    """(g, 2) levels and slopes, and (g,) the logarithm of their prior probability but for a constant."""
    side = np.linspace(-REACH, REACH, NODES)
    standard = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    return MEAN + standard @ np.linalg.cholesky(COVARIANCE).T, -0.5 * (standard**2).sum(
        axis=1
    )


GRID, PRIOR = _grid()
