"""Probabilities of learned weights, from annotations that were held out.

The calibration that comes with clew turns margins into probabilities (`probability.py`). Learned weights are surer of
what is right: at the same margin fewer of their events are wrong, the fewer the larger it is. So the log-odds of being
right are those by the generic coefficients + level + gain · margin, as in Cox's (1958) recalibration. Before anything
is held out, both are normal with what was seen on simulated movies of other kinds (benchmarks/wrong_events.py
--learned); held-out annotations move them as far as they can tell, by the posterior mode.

What an annotation tells of predictions is told by each of its cells: which event is predicted there, and whether that
is the annotated one. A wrong event of n cells is found n times as often as it is annotated, so that each time counts
1 / n (Horvitz and Thompson 1952); then as many are found among annotations as in the same share of the movie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from clew.learning.task import Array, Mask
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.profiling.domain import some
from clew.tracking.solve import SolvedPair, solve
from clew.tracking.training.calibration import LARGEST, Calibration, MovieMargins

Gain = tuple[float, float]
"""Mean and standard deviation of the gain over movies."""
LEARNED: Gain = (0.5, 2.0)
"""By which the number of wrong events of a kind left out is nearest to the truth. Log loss is least at a mean of 2
with many annotations, and at 0 with 25."""
GENERIC: Gain = (0.0, 2.0)
"""Of weights that the calibration was fitted to."""
GROUP = 2.0
"""Wrong events come in twos (two cells that are swapped), so that each tells half as much."""
TOLERANCE, HALVINGS = 1e-9, 60
"""Of Newton's method: where it ends, and how often a step is halved until it leads down."""
CERTAIN = 1e-12
"""Probabilities are at least this far from 0 and 1."""


class Found(NamedTuple):
    """Predicted events of which held-out annotations tell whether they are right, (n,) each."""

    log_odds: Array
    """Of being right, by the calibration before."""
    margin: Array
    right: Mask
    weight: Array

    @classmethod
    def join(cls, parts: Iterable[Found]) -> Found:
        """All of some."""
        nothing = cls(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0))
        return cls(
            *(np.concatenate(columns) for columns in zip(nothing, *parts, strict=True))
        )


def look_up(
    pair: FramePair, annotated: Mapping[int, int], w: Array, calibration: Calibration
) -> Found:
    """What weights `w` predict for the cells of annotated events of a frame pair; `calibration` is of its movie.

    What is annotated as not happened tells nothing: it was chosen because it is wrong. A split and a division of the
    same cells are told apart by other frame pairs (`linking/counts.py`), so that either is right here.
    """
    happened = [row for row, value in annotated.items() if value]
    if not happened:
        return Found.join([])
    solved = solve(pair, w)
    assert solved.assignment is not None
    true, chosen = (
        pair.candidates.detections_of(happened),
        pair.candidates.detections_of(solved.assignment.chosen),
    )
    predicted = np.full(pair.candidates.n_detections, -1)
    event, side = np.nonzero(chosen >= 0)
    predicted[chosen[event, side]] = event  # every detection takes part in one event
    annotation, side = np.nonzero(true >= 0)
    found = predicted[true[annotation, side]]
    found, annotation = (
        each[np.isfinite(solved.confidence[found])] for each in (found, annotation)
    )
    log_odds, margin = _of_events(solved, calibration)
    right = (chosen[found] == true[annotation]).all(axis=1)
    return Found(
        log_odds[found], margin[found], right, 1 / (chosen[found] >= 0).sum(axis=1)
    )


def _of_events(solved: SolvedPair, calibration: Calibration) -> tuple[Array, Array]:
    """(n,) the log-odds of predicted events, and their margins in norms of the weights."""
    probability = np.clip(solved.probability(calibration), CERTAIN, 1 - CERTAIN)
    return logit(probability), np.minimum(
        solved.confidence / (solved.unit or 1.0), LARGEST
    )


def recalibrate(
    pairs: Sequence[FramePair],
    w: Array,
    held_out: Iterable[tuple[Array, Sequence[Mapping[int, int]]]],
    before: Calibration,
    gain: Gain = LEARNED,
) -> Calibration:
    """The calibration of weights `w`; `before` is what is known of any weights.

    `held_out` has, for each fold, weights that were learned without it and what it holds out of each of the `pairs`.
    """
    usual = [solve(pair, w) for pair in some(pairs)]
    of_movie = before.of_movie(MovieMargins.sum(one.margins() for one in usual))
    found = Found.join(
        look_up(pair, annotated, fold, of_movie)
        for fold, parts in held_out
        for pair, annotated in zip(pairs, parts, strict=True)
    )
    (level, slope), covariance = posterior(found, before.spread, gain)
    log_odds, margin = (
        np.concatenate(each)
        for each in zip(*(_of_events(one, of_movie) for one in usual), strict=True)
    )
    wrong = expit(-(log_odds + level + slope * margin))
    # by how much the logarithm of the number of wrong events changes with level and gain
    change = (
        (wrong * (1 - wrong))
        @ np.column_stack([np.ones_like(margin), margin])
        / wrong.sum()
    )
    spread = float(np.sqrt(change @ covariance @ change))
    return replace(
        before,
        slope=before.slope + slope,
        intercept=before.intercept + level,
        spread=spread,
    )


def posterior(
    found: Found, spread: float, gain: Gain = LEARNED
) -> tuple[tuple[float, float], Array]:
    """The mode of level and gain, by Newton's method, and their covariance there; the level has this `spread`."""
    X = np.column_stack([np.ones_like(found.margin), found.margin])
    mean, precision = np.array([0.0, gain[0]]), np.diag([spread**-2, gain[1] ** -2])
    weight, sign = found.weight / GROUP, np.where(found.right, -1.0, 1.0)

    def loss(b: Array) -> float:
        fit = weight @ np.logaddexp(0, sign * (found.log_odds + X @ b))
        return float(fit + (b - mean) @ precision @ (b - mean) / 2)

    b, last = mean, np.inf
    while last - loss(b) > TOLERANCE:
        last, right = loss(b), expit(found.log_odds + X @ b)
        curvature = (X * (weight * right * (1 - right))[:, None]).T @ X + precision
        step = np.linalg.solve(
            curvature, X.T @ (weight * (right - found.right)) + precision @ (b - mean)
        )
        b = next(
            (new for k in range(HALVINGS) if loss(new := b - step / 2**k) <= last), b
        )
    return (float(b[0]), float(b[1])), np.linalg.inv(curvature)
