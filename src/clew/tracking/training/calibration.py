"""Calibration: turn margins of events into probabilities that they are right.

Platt scaling (Platt 1999) with an intercept for each kind of event:
P(right) = 1 / (1 + exp(−(a m + b))), where the margin m is the confidence in norms of
the weights. Besides the margin, five things matter on every kind of cells:

- Two cells that are close swap with a small margin, however clear their moves are.
  Where a swap is the best alternative, the change of the cells' relative position tells
  as well (`assignment/assignment.py`), and the surer of both counts.
- Near the border cells appear and disappear; elsewhere that is mostly a mistake.
- A detection that is two for one frame and one again was torn by the segmentation
  (`lineage/splits.py`), so that nothing divided or merged.
- Mistakes are made everywhere, so that of few divisions more are false than of many.
  The odds of divisions, and of splits and merges, are proportional to their share of
  the movie's events, as to the prior of a class (Saerens et al. 2002). Torn masks do
  not count.
- Let the signed margin of an event be the margin if it is right and minus the margin if
  it is wrong, with a density proportional to exp(α s) near 0. Then the odds of being
  right are exp(2 α m), and the density of the margins themselves, which needs no truth,
  grows with α as well (Balasubramanian, Donmez and Lebanon 2011). So the slope a
  follows the mean of the small margins of the movie's moves.

Why an event has its probability: `PairSolution.probability` (`tracking/solve.py`) hands
`Calibration.probability` the kind of the event, its confidence and its context.

- The confidence is what the best other explanation of its cells costs
  (`Assignment.alternatives` lists what comes and goes). It is infinite, and the
  probability 1, if an answer settled the event or nothing else is possible.
- The context is from `measure_context` in the same module, and 1 where a mask is torn.
- In a lineage, `lineage/splits.py` lowers the confidence of splits and divisions, and
  `lineage/gaps.py` sets that of gaps. Moves of recovered cells have a probability of
  their own, that the cell is there.

The coefficients come with clew. They were fitted on simulated movies of every kind that
the generic weights were not learned from, by benchmarks/wrong_events.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from clew.learning.task import Array
from clew.tracking.events import END_OF_FALSE, Event
from clew.tracking.lineage.splits import TEARING
from clew.tracking.training.generic_weights import (
    BORDER,
    CLEARNESS,
    GROWTH,
    INTERCEPTS,
    SLOPE,
    SPREAD,
    SWAP,
    TORN,
    TYPICAL_RANK,
)

MAX_MARGIN = 2.0
"""Larger margins count as this: too few of such events are wrong to tell them apart."""
SMALL_MARGIN = 0.4
"""Moves with smaller margins determine the slope."""
N_BINS = 40
"""Their margins are counted in bins: the sum over parts of a movie is then exact."""
PRIOR_COUNT = 10
"""Typical small margins that are assumed before any is seen, for short movies."""
ENDS = (Event.APPEAR, Event.DISAPPEAR, *END_OF_FALSE)
SHARED_ODDS = ((Event.DIVIDE,), (Event.SPLIT, Event.MERGE))
"""Kinds of events whose odds follow their share; splits and merges have one share."""
INTERVAL = 0.9
"""Probability of the interval of the number of wrong events, in all estimates.

The page and the guides write it too; a test names the files. The stored `SPREAD` was
fitted for 0.9: benchmarks/wrong_events.py fits it again."""
Z_SCORE = float(ndtri((1 + INTERVAL) / 2))
"""Standard deviations on either side that hold `INTERVAL` of a normal distribution."""


@dataclass(frozen=True, eq=False, slots=True)
class MovieMargins:
    """Numbers of events, and the distribution of small margins, in a movie."""

    kinds: NDArray[np.int64]
    """(9,) events of each kind."""
    small: NDArray[np.int64]
    """(N_BINS,) moves by their margins, from 0 to `SMALL_MARGIN`."""

    @classmethod
    def of(
        cls,
        event: NDArray[np.int8],
        confidence: NDArray[np.floating[Any]],
        weight_norm: float,
    ) -> MovieMargins:
        """Count events of kinds (n,) with confidences (n,)."""
        scale = N_BINS / SMALL_MARGIN / (weight_norm or 1.0)
        moves = confidence[event == Event.MOVE]
        place = (moves[moves < N_BINS / scale] * scale).astype(np.int64)
        place = place[place < N_BINS]
        return cls(
            np.bincount(event, minlength=len(Event)).astype(np.int64),
            np.bincount(place, minlength=N_BINS).astype(np.int64),
        )

    @classmethod
    def sum(cls, parts: Iterable[MovieMargins]) -> MovieMargins:
        """Add up parts of a movie."""
        kinds = np.zeros(len(Event), dtype=np.int64)
        small = np.zeros(N_BINS, dtype=np.int64)
        for part in parts:
            kinds = kinds + part.kinds
            small = small + part.small
        return cls(kinds, small)

    def mean_rank(
        self, typical: float = TYPICAL_RANK, prior_count: float = PRIOR_COUNT
    ) -> float:
        """Return the mean of the small margins, from 0 to 1; ½ if evenly spread."""
        centers = (np.arange(N_BINS) + 0.5) / N_BINS
        total = self.small @ centers + prior_count * typical
        return float(total / (self.small.sum() + prior_count))

    @property
    def steepness(self) -> float:
        """2 α: the growth of the log-odds with the margin.

        The density exp(α m) from 0 to `SMALL_MARGIN` has a mean rank of about
        ½ + α `SMALL_MARGIN` / 12. A smaller rank than ½ is not from such a density.
        """
        return 24 / SMALL_MARGIN * max(self.mean_rank() - 0.5, 0.0)

    @property
    def log_share(self) -> Array:
        """(9,) log share of each kind of events; 0 for kinds that it does not matter."""
        share = np.zeros(len(Event))
        for kinds in SHARED_ODDS:
            count = self.kinds[list(kinds)].sum()
            share[list(kinds)] = np.log((count + 1) / (self.kinds.sum() + 1))
        return share


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients of the probability that an event is right."""

    slope: float
    intercept: Array
    """(9,) by kind of event."""
    spread: float
    """Standard deviation of log(expected / true number of wrong events), as if normal.

    It is the least one whose `INTERVAL` holds for that share of movies left out."""
    growth: float = 0.0
    """Coefficient of `MovieMargins.steepness` in the slope."""
    share: float = 0.0
    """Coefficient of `MovieMargins.log_share`: 1, or 0 where shares do not matter."""
    border: float = 0.0
    """Added for a cell that appears or disappears on the border."""
    torn: float = 0.0
    """Added for an event of a torn mask."""
    swap: float = 0.0
    """Log-odds of a move that might as well be a swap."""
    clearness: float = 0.0
    """Coefficient of the clearness of moves that two cells might swap; 0 if it does not
    matter."""

    @classmethod
    def generic(cls) -> Calibration:
        """Return the calibration that comes with clew."""
        kinds = [END_OF_FALSE.get(event, event) for event in Event]
        intercept = np.array([INTERCEPTS.get(str(kind), 0.0) for kind in kinds])
        return cls(SLOPE, intercept, SPREAD, GROWTH, 1.0, BORDER, TORN, SWAP, CLEARNESS)

    def of_movie(self, margins: MovieMargins) -> Calibration:
        """Return the calibration of one movie; applied twice, it stays the same."""
        return replace(
            self,
            slope=max(self.slope + self.growth * margins.steepness, 0.0),
            intercept=self.intercept + self.share * margins.log_share,
            growth=0.0,
            share=0.0,
        )

    def probability(
        self,
        event: NDArray[np.int8],
        confidence: Array,
        weight_norm: float,
        context: Array | float = 0.0,
    ) -> Array:
        """Return the probability that each event is right, (n,).

        Parameters
        ----------
        event : ndarray of shape (n,)
            Kinds of events.
        confidence : ndarray of shape (n,)
            Infinite where nothing else is possible; the probability is 1 there.
        weight_norm : float
        context : ndarray of shape (n,)
            For appearances and disappearances the proximity of the border, from 0 to 1;
            1 for events of torn masks; for moves that two cells might swap, their
            clearness; 0 for others.

        Returns
        -------
        ndarray of shape (n,)
        """
        margin = np.minimum(confidence / (weight_norm or 1.0), MAX_MARGIN)
        of_context = np.zeros(len(Event))
        of_context[list(ENDS)] = self.border
        of_context[list(TEARING)] = self.torn
        log_odds = (
            self.slope * margin + self.intercept[event] + of_context[event] * context
        )
        if self.clearness:
            is_swap = (event == Event.MOVE) & (np.asarray(context) > 0)
            of_swap = self.swap + self.clearness * np.asarray(context)
            log_odds = np.where(is_swap, np.maximum(log_odds, of_swap), log_odds)
        return np.where(np.isinf(confidence), 1.0, expit(log_odds))


GENERIC_CALIBRATION = Calibration.generic()


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected number of wrong events, with the interval of `INTERVAL`."""

    number: float
    low: float
    high: float
    n_events: int

    def __str__(self) -> str:
        return (
            f"about {self.number:,.0f} of {self.n_events:,} events are wrong "
            f"({100 * INTERVAL:.0f} % interval {self.low:,.0f} to {self.high:,.0f})"
        )


def expected_wrong(probability: Array, spread: float = SPREAD) -> Expectation:
    """Return the expected number of wrong events.

    Given their probabilities, it is a sum of independent 0/1 variables. A common factor
    in all odds, as found on kinds of cells left out, widens the interval.
    """
    variance = float((probability * (1 - probability)).sum())
    number = float((1 - probability).sum())
    return expectation(number, variance, len(probability), spread)


def expectation(
    number: float, variance: float, n_events: int, spread: float = SPREAD
) -> Expectation:
    """Return the expectation from sums of mean and variance, as parts add up."""
    deviation = Z_SCORE * float(np.sqrt(variance))
    factor = float(np.exp(Z_SCORE * spread))
    low = max(number / factor - deviation, 0.0)
    high = min(number * factor + deviation, float(n_events))
    return Expectation(number, low, high, n_events)
