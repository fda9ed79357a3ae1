"""When to stop annotating: about how many events of a movie are wrong, as the answers so far have corrected it.

The sum R of the events' probabilities of being wrong is what the calibration that comes with clew expects
(`tracking/model/probability.py`). It may be off by a factor F that is the movie's own: F ~ Gamma(k, k) before the first
answer, with the spread that it had on kinds of cells left out. Each answer to a question is a check of it: where e of
the predictions that were asked about were expected to be wrong and o are, F ~ Gamma(k + o, k + e), for their number is
nearly Poisson(F e). So the number among the others is negative binomial (the Gamma–Poisson mixture), with mean F R, and
its quantiles are the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import nbinom

from clew.learning.task import Array
from clew.tracking.model.generic import SPREAD
from clew.tracking.model.probability import Expectation

TAIL = 0.05
"""On either side of the interval, which holds the number in 90 of 100 movies."""


@dataclass(frozen=True, slots=True)
class Check:
    """What an answer says of the prediction that was asked about."""

    expected: float
    """How likely it was wrong."""
    wrong: int
    """0 if it was right; else how many predictions the answer shows to be wrong, this one and those beside it."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The distribution of the factor by which predictions are wrong more often than expected: Gamma(shape, rate)."""

    shape: float
    rate: float

    @classmethod
    def of(cls, checks: Iterable[Check], spread: float = SPREAD) -> Correction:
        """After some checks; `spread` is the standard deviation of the factor's logarithm before the first."""
        first = 1 / np.expm1(spread**2)  # a log-normal factor has this squared coefficient of variation
        done = list(checks)
        shape = float(first + sum(check.wrong > 0 for check in done))
        return cls(shape, float(first + sum(check.expected for check in done)))

    @property
    def factor(self) -> float:
        """Its mean."""
        return self.shape / self.rate


def wrong_events(probability: Array, correction: Correction) -> Expectation:
    """How many events are wrong, from the probability (n,) that each is right; those that were answered have 1."""
    n, expected = len(probability), float((1 - probability).sum())
    if not expected:
        return Expectation(0.0, 0.0, 0.0, n)
    mixture = nbinom(correction.shape, correction.rate / (correction.rate + expected))
    low, high = (float(bound) for bound in mixture.ppf([TAIL, 1 - TAIL]))
    return Expectation(min(correction.factor * expected, n), min(low, n), min(high, n), n)


def answers_until(probability: Array, correction: Correction, target: float) -> int:
    """How many answers until fewer than `target` events are expected to be wrong, if the least certain are asked.

    What answers teach is not counted, so that fewer may do.
    """
    doubt = np.sort(1 - probability)[::-1] * correction.factor
    left = doubt.sum() - np.concatenate([[0.0], np.cumsum(doubt)])
    return int(np.argmax(left < max(target, 1e-9))) if (left < max(target, 1e-9)).any() else len(doubt)
