"""How likely each event is right: margins turned into probabilities, and how many events of a movie are wrong.

Platt scaling (Platt 1999) with an intercept for each kind of event: P(right) = 1 / (1 + exp(−(a m + b))), where the
margin m is the event's confidence in norms of the weights, so that one scale serves weights of any length. Four things
besides the margin tell how likely an event is right, on every kind of cells and without a truth:

- Where a cell appears or disappears: near the border of the image cells do that, inside it is mostly a mistake.
- What the frame pairs before and after it say: a cell that is two for one frame and one again was torn by the
  segmentation (`linking/torn.py`), so that nothing divided or merged.
- How common an event is in the movie. Mistakes are made everywhere, so that of few divisions more are false than of
  many: the odds of a division, and of splits and merges, are proportional to their share of the movie's events, as
  they are to the prior probability of a class (Saerens et al. 2002). Torn masks are not counted.
- How margins near 0 are distributed. Let the signed margin of an event be the margin if it is right and minus the
  margin if it is wrong, with a density proportional to exp(α s) near 0. Then the odds of being right are exp(2 α m),
  and the density of the margins themselves, which needs no truth, grows with α as well; Balasubramanian, Donmez and
  Lebanon (2011) estimate a classifier's errors without labels in this way. So the slope a follows how far up the
  doubtful margins of the movie's moves are.

The coefficients come with clew. They were fitted to frame pairs of simulated movies of every kind that the generic
weights were not learned from, by benchmarks/wrong_events.py; `spread` is how far the expected number of wrong events
was off on movies of kinds left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.lineage.repair import TEARING
from clew.tracking.training.generic_weights import (
    BORDER,
    GROWTH,
    INTERCEPTS,
    SLOPE,
    SPREAD,
    TORN,
    USUAL_RANK,
)

LARGEST = 2.0
"""Margins beyond count as this: so sure an event was never seen to be wrong often enough to tell."""
DOUBTFUL, BINS = 0.4, 40
"""Moves with smaller margins than this tell the slope, counted in so many bins: whole numbers, so that the parts of a
movie add up to the same in any order."""
FAINT = 10
"""So many usual doubtful moves are assumed before any is seen, so that a short movie is judged as others are."""
ENDS = (Event.APPEAR, Event.DISAPPEAR)
TOGETHER = ((Event.DIVIDE,), (Event.SPLIT, Event.MERGE))
"""Kinds of events whose odds follow their share; what splits has merged before, so that these have one share."""
Z90 = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""


@dataclass(frozen=True, eq=False, slots=True)
class MovieMargins:
    """What the events of a movie, or of a part of it, tell of how likely they are right."""

    kinds: NDArray[np.int64]
    """(7,) events of each kind."""
    doubtful: NDArray[np.int64]
    """(BINS,) moves by their margins, from 0 to `DOUBTFUL`."""

    @classmethod
    def of(
        cls, event: NDArray[np.int8], confidence: Array, unit: float
    ) -> MovieMargins:
        """From the kinds (n,) of events and their confidences; `unit` is the norm of the weights."""
        place = confidence[event == Event.MOVE] * (BINS / DOUBTFUL / (unit or 1.0))
        place = place[place < BINS].astype(np.int64)
        return cls(
            np.bincount(event, minlength=len(Event)).astype(np.int64),
            np.bincount(place, minlength=BINS).astype(np.int64),
        )

    @classmethod
    def sum(cls, parts: Iterable[MovieMargins]) -> MovieMargins:
        """Of all parts."""
        every = list(parts)
        nothing = (np.zeros(len(Event), dtype=np.int64), np.zeros(BINS, dtype=np.int64))
        return cls(
            sum((part.kinds for part in every), start=nothing[0]),
            sum((part.doubtful for part in every), start=nothing[1]),
        )

    def rank(self, usual: float = USUAL_RANK, faint: float = FAINT) -> float:
        """How far up from 0 to `DOUBTFUL` the doubtful margins are, in the mean; ½ if they are evenly spread."""
        middle = (np.arange(BINS) + 0.5) / BINS
        return float(
            (self.doubtful @ middle + faint * usual) / (self.doubtful.sum() + faint)
        )

    @property
    def steepness(self) -> float:
        """2 α, by which the log-odds grow with the margin if the density of signed margins near 0 is exp(α s).

        Of the density exp(α m) from 0 to `DOUBTFUL`, the mean rank is about ½ + α `DOUBTFUL` / 12.
        """
        return 24 / DOUBTFUL * (self.rank() - 0.5)

    @property
    def log_share(self) -> Array:
        """(7,) the logarithm of the share of the events that are of a kind; 0 for kinds whose odds do not follow it."""
        found = np.zeros(len(Event))
        for kinds in TOGETHER:
            found[list(kinds)] = np.log(
                (self.kinds[list(kinds)].sum() + 1) / (self.kinds.sum() + 1)
            )
        return found


@dataclass(frozen=True, slots=True)
class Calibration:
    """From margins to probabilities."""

    slope: float
    intercept: Array
    """(kinds,) by kind of event."""
    spread: float
    """Standard deviation of the logarithm of the number of wrong events, as expected over as counted."""
    growth: float = 0.0
    """What `MovieMargins.steepness` counts, as a part of the slope."""
    share: float = 0.0
    """What `MovieMargins.log_share` counts: 1, or 0 where shares are not looked at."""
    border: float = 0.0
    """What is added for a cell that appears or disappears on the border,"""
    torn: float = 0.0
    """and for an event that tears a mask apart for one frame or puts it together."""

    @classmethod
    def generic(cls) -> Calibration:
        """The one that comes with clew."""
        # of a kind that the generic weights do not know, nothing is known before it is learned
        intercept = np.array([INTERCEPTS.get(str(event), 0.0) for event in Event])
        return cls(SLOPE, intercept, SPREAD, GROWTH, 1.0, BORDER, TORN)

    def of_movie(self, seen: MovieMargins) -> Calibration:
        """For the events of one movie. What that follows from is spent: asked again, it stays the same."""
        slope = max(self.slope + self.growth * seen.steepness, 0.0)
        return replace(
            self,
            slope=slope,
            intercept=self.intercept + self.share * seen.log_share,
            growth=0.0,
            share=0.0,
        )

    def probability(
        self,
        event: NDArray[np.int8],
        confidence: Array,
        unit: float,
        context: Array | float = 0.0,
    ) -> Array:
        """(n,) that each event is right; 1 where nothing else is possible.

        `unit` is the norm of the weights, and `context` (n,) what is known besides: how near the border a cell appears
        or disappears, from 1 on it to 0 inside; 1 for divisions, splits and merges of torn masks; 0 for others.
        """
        margin = np.minimum(confidence / (unit or 1.0), LARGEST)
        counts = np.zeros(len(Event))
        counts[list(ENDS)], counts[list(TEARING)] = self.border, self.torn
        log_odds = self.slope * margin + self.intercept[event] + counts[event] * context
        return np.where(np.isinf(confidence), 1.0, expit(log_odds))


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
            f"about {self.number:,.0f} of {self.n_events:,} events are wrong (90 % interval {self.low:,.0f} to "
            f"{self.high:,.0f})"
        )


def expected_wrong(probability: Array, spread: float = SPREAD) -> Expectation:
    """From the probabilities of a movie's events.

    Given them, the number is a sum of independent 0/1 variables; that they may all be off by a common factor, as they
    were on kinds of cells left out, widens the interval.
    """
    variance = float((probability * (1 - probability)).sum())
    return expectation(
        float((1 - probability).sum()), variance, len(probability), spread
    )


def expectation(
    number: float, variance: float, n_events: int, spread: float = SPREAD
) -> Expectation:
    """From the sum and the variance of the chances to be wrong, as parts of a movie can be added up."""
    chance = float(np.sqrt(variance))
    factor = float(np.exp(Z90 * spread))
    low, high = number / factor - Z90 * chance, number * factor + Z90 * chance
    return Expectation(number, max(low, 0.0), min(high, float(n_events)), n_events)
