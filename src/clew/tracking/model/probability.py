"""How likely each event is right: margins turned into probabilities, and how many events of a movie are wrong.

Platt scaling (Platt 1999) with an intercept for each kind of event: P(right) = 1 / (1 + exp(−(a m + b_kind))), where
the margin m is the event's confidence in norms of the weights, so that one scale serves weights of any length. The
coefficients come with clew. They were fitted to frame pairs of simulated movies of every kind that the generic weights
were not learned from; `spread` is how far the expected number of wrong events was off on kinds left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.model.generic import INTERCEPTS, SLOPE, SPREAD

LARGEST = 2.0
"""Margins beyond count as this: so sure an event was never seen to be wrong often enough to tell."""
Z90 = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """From margins to probabilities."""

    slope: float
    intercept: Array
    """(kinds,) by kind of event."""
    spread: float
    """Standard deviation of the logarithm of the number of wrong events, as expected over as counted."""

    @classmethod
    def generic(cls) -> Calibration:
        """The one that comes with clew."""
        # of a kind that the generic weights do not know, nothing is known before it is learned
        return cls(SLOPE, np.array([INTERCEPTS.get(str(event), 0.0) for event in Event]), SPREAD)

    def recalibrated(self, expected: float, counted: float) -> Calibration:
        """After `counted` wrong events were found among annotated ones of which `expected` were to be wrong.

        The odds of being wrong are r times as high for all events (calibration in the large). Before, r is gamma
        distributed about 1 with the spread σ on kinds left out, shape a = σ⁻²; counts are Poisson, so that afterwards
        its mean is (a + counted) / (a + expected), and its spread (a + counted)^−½.
        """
        shape = self.spread**-2
        factor = (shape + counted) / (shape + expected)
        return Calibration(self.slope, self.intercept - np.log(factor), float((shape + counted) ** -0.5))

    def probability(self, event: NDArray[np.int8], confidence: Array, unit: float) -> Array:
        """(n,) that each event is right; 1 where nothing else is possible. `unit` is the norm of the weights."""
        margin = np.minimum(confidence / (unit or 1.0), LARGEST)
        return np.where(np.isinf(confidence), 1.0, expit(self.slope * margin + self.intercept[event]))


GENERIC_CALIBRATION = Calibration.generic()


@dataclass(frozen=True, slots=True)
class Expectation:
    """How many events of a movie are wrong, with an interval that holds the number in 90 of 100 movies."""

    number: float
    low: float
    high: float
    n_events: int

    def __str__(self) -> str:
        return (
            f"about {self.number:.0f} of {self.n_events:,} events are wrong (90 % interval {self.low:.0f} to "
            f"{self.high:.0f})"
        )


def expected_wrong(probability: Array, spread: float = SPREAD) -> Expectation:
    """From the probabilities of a movie's events.

    Given them, the number is a sum of independent 0/1 variables; that they may all be off by a common factor, as they
    were on kinds of cells left out, widens the interval.
    """
    variance = float((probability * (1 - probability)).sum())
    return expectation(float((1 - probability).sum()), variance, len(probability), spread)


def expectation(number: float, variance: float, n_events: int, spread: float = SPREAD) -> Expectation:
    """From the sum and the variance of the chances to be wrong, as parts of a movie can be added up."""
    chance = float(np.sqrt(variance))
    factor = float(np.exp(Z90 * spread))
    low, high = number / factor - Z90 * chance, number * factor + Z90 * chance
    return Expectation(number, max(low, 0.0), min(high, float(n_events)), n_events)
