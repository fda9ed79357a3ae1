"""Calibrate learned weights on held-out annotations.

Learned weights are more certain of what is right than generic ones: at the same margin
fewer of their events are wrong. The log-odds are those of the generic calibration +
level + gain · margin, as in Cox's (1958) recalibration. Both coefficients have a normal
prior from simulated movies of other kinds (benchmarks/wrong_events.py --learned), and
the posterior mode given the held-out annotations is taken.

An annotation is compared with the predicted event of each of its cells. A wrong event
of n cells is found n times as often as it is annotated, so that each time counts 1 / n
(Horvitz and Thompson 1952).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # imports scipy.optimize on first use, which takes a second
from scipy.special import expit, logit

from clew.learning.task import Array, Mask
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.profile import sample_evenly
from clew.tracking.solve import PairSolution, solve_frame_pair
from clew.tracking.training.calibration import MAX_MARGIN, Calibration, MovieMargins

GainPrior = tuple[float, float]
"""Mean and standard deviation of the gain over movies."""
LEARNED: GainPrior = (0.5, 2.0)
"""Brings the number of wrong events of a kind left out nearest to the truth. The log
loss is least at a mean of 2 with many annotations, and at 0 with 25."""
GENERIC: GainPrior = (0.0, 2.0)
"""Of weights that the calibration was fitted to."""
EVENTS_PER_MISTAKE = 2.0
"""Wrong events come in twos, as when two cells are swapped; each counts half."""
SMALLEST_PROBABILITY = 1e-12


class HeldOutEvents(NamedTuple):
    """Predicted events that held-out annotations confirm or contradict, (n,) each."""

    log_odds: Array
    """Of being right, by the calibration before."""
    margin: Array
    is_right: Mask
    weight: Array

    @classmethod
    def join(cls, parts: Iterable[HeldOutEvents]) -> HeldOutEvents:
        """Concatenate parts."""
        none = np.zeros(0)
        empty = cls(none, none, np.zeros(0, dtype=bool), none)
        columns = zip(empty, *parts, strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def compare_with_annotations(
    pair: FramePair, annotated: Mapping[int, int], w: Array, calibration: Calibration
) -> HeldOutEvents:
    """Compare predictions with the annotated events of a frame pair.

    Events annotated as not happened are left out: they were chosen because they are
    wrong. Other frame pairs distinguish a split from a division of the same cells,
    so that either is right here.

    Parameters
    ----------
    pair : FramePair
    annotated : mapping of int to int
        {candidate: 1 if it happened, 0 if not}.
    w : ndarray of shape (d,)
    calibration : Calibration
        Of the pair's movie.

    Returns
    -------
    HeldOutEvents
    """
    happened = [row for row, value in annotated.items() if value]
    if not happened:
        return HeldOutEvents.join([])
    solution = solve_frame_pair(pair, w)
    assert solution.assignment is not None
    true_cells = pair.candidates.detections_of(happened)
    cells = pair.candidates.detections_of(solution.assignment.chosen)
    event_of_cell = np.full(pair.candidates.n_detections, -1)
    event, side = np.nonzero(cells >= 0)
    event_of_cell[cells[event, side]] = event
    annotation, side = np.nonzero(true_cells >= 0)
    predicted = event_of_cell[true_cells[annotation, side]]
    is_finite = np.isfinite(solution.confidence[predicted])
    predicted = predicted[is_finite]
    annotation = annotation[is_finite]
    log_odds, margin = _log_odds_and_margins(solution, calibration)
    return HeldOutEvents(
        log_odds[predicted],
        margin[predicted],
        (cells[predicted] == true_cells[annotation]).all(axis=1),
        1 / (cells[predicted] >= 0).sum(axis=1),
    )


def _log_odds_and_margins(
    solution: PairSolution, calibration: Calibration
) -> tuple[Array, Array]:
    """Log-odds of predicted events, and margins in norms of the weights, (n,) each."""
    probability = solution.probability(calibration)
    probability = np.clip(probability, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    margin = solution.confidence / (solution.weight_norm or 1.0)
    return logit(probability), np.minimum(margin, MAX_MARGIN)


def recalibrate(
    pairs: Sequence[FramePair],
    w: Array,
    held_out: Iterable[tuple[Array, Sequence[Mapping[int, int]]]],
    before: Calibration,
    gain: GainPrior = LEARNED,
) -> Calibration:
    """Return the calibration of learned weights.

    Parameters
    ----------
    pairs : sequence of FramePair
    w : ndarray of shape (d,)
        The learned weights.
    held_out : iterable of (ndarray, sequence of mapping)
        For each fold, the weights that were learned without it, and the annotations
        that it holds out of each pair.
    before : Calibration
        Of weights in general.
    gain : tuple of float
        Prior of the gain.

    Returns
    -------
    Calibration
    """
    solutions = [solve_frame_pair(pair, w) for pair in sample_evenly(pairs)]
    margins = MovieMargins.sum(solution.margins() for solution in solutions)
    of_movie = before.of_movie(margins)
    events = HeldOutEvents.join(
        compare_with_annotations(pair, annotated, fold_w, of_movie)
        for fold_w, parts in held_out
        for pair, annotated in zip(pairs, parts, strict=True)
    )
    (level, slope), covariance = posterior_mode(events, before.spread, gain)

    # Propagate the covariance to the logarithm of the number of wrong events.
    predicted = [_log_odds_and_margins(solution, of_movie) for solution in solutions]
    log_odds = np.concatenate([part[0] for part in predicted])
    margin = np.concatenate([part[1] for part in predicted])
    wrong = expit(-(log_odds + level + slope * margin))
    design = np.column_stack([np.ones_like(margin), margin])
    gradient = (wrong * (1 - wrong)) @ design / wrong.sum()
    return replace(
        before,
        slope=before.slope + slope,
        intercept=before.intercept + level,
        spread=float(np.sqrt(gradient @ covariance @ gradient)),
    )


def posterior_mode(
    events: HeldOutEvents, spread: float, gain: GainPrior = LEARNED
) -> tuple[tuple[float, float], Array]:
    """Return the mode of level and gain, and the covariance there.

    The prior of the level is normal with mean 0 and standard deviation `spread`.
    """
    design = np.column_stack([np.ones_like(events.margin), events.margin])
    mean = np.array([0.0, gain[0]])
    precision = np.diag([spread**-2, gain[1] ** -2])
    weight = events.weight / EVENTS_PER_MISTAKE
    sign = np.where(events.is_right, -1.0, 1.0)

    def loss(b: Array) -> float:
        fit = weight @ np.logaddexp(0, sign * (events.log_odds + design @ b))
        return float(fit + (b - mean) @ precision @ (b - mean) / 2)

    def gradient(b: Array) -> Array:
        probability = expit(events.log_odds + design @ b)
        slope = design.T @ (weight * (probability - events.is_right))
        return np.asarray(slope + precision @ (b - mean))

    def hessian(b: Array) -> Array:
        probability = expit(events.log_odds + design @ b)
        variance = weight * probability * (1 - probability)
        return np.asarray((design * variance[:, None]).T @ design + precision)

    optimum = scipy.optimize.minimize(
        loss, mean, jac=gradient, hess=hessian, method="trust-exact"
    )
    covariance = np.asarray(np.linalg.inv(hessian(optimum.x)), dtype=np.float64)
    return (float(optimum.x[0]), float(optimum.x[1])), covariance
