"""How many predicted events of a movie are wrong, and how answers reduced that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.error_estimate import (
    Check,
    Correction,
    Kinds,
    estimate_answers_needed,
    estimate_wrong_events,
)
from clew.annotation.predictions import Predictions
from clew.annotation.store.store import Store
from clew.learning.task import Array
from clew.tracking.events import EventTable
from clew.tracking.solve import PairSolution, mark_torn_events
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)

CURVE = "curve"
"""The setting in a store that has the estimates so far."""
MAX_POINTS = 300
"""Of the curve; beyond, every other point of the older half is dropped."""
ENOUGH_CHECKS = 25
"""Answers to questions after which the estimate is one of this movie; before, it is
little more than what holds of other movies."""
Point = list[float]
"""Answers, wrong events, and the interval of these."""


class Progress:
    """The estimate of wrong events, and its history, which the store keeps."""

    def __init__(self, store: Store, predictions: Predictions) -> None:
        self.store = store
        self.predictions = predictions
        self.curve: list[Point] = store.get_setting(CURVE, [])

    def estimate_errors(self, target: int = 0) -> dict[str, Any] | None:
        """Return about how many events are wrong, with an interval.

        Parameters
        ----------
        target : int
            If positive, the answers needed until fewer events are wrong are estimated.

        Returns
        -------
        estimate : dict or None
            None until the whole movie is predicted.
        """
        predictions = list(self.predictions.by_frame.values())
        if not self.predictions.is_complete or not predictions:
            return None
        kinds = join_kinds(predictions)
        probability = event_probabilities(predictions, self.predictions.margin_scale)
        entries = self.store.active_entries()
        checks = [entry.check for entry in entries if entry.check is not None]
        correction = Correction.of(checks)
        expected = estimate_wrong_events(kinds, probability, correction)
        until = None
        if target:
            until = estimate_answers_needed(kinds, probability, correction, target)
        return {
            "number": round(expected.number, 1),
            "low": round(expected.low),
            "high": round(expected.high),
            "events": expected.n_events,
            "until": until,
            "checked": len(checks) >= ENOUGH_CHECKS,
        }

    def needs_point(self, n_answers: int) -> bool:
        """Return whether an estimate can be made, and the curve lacks it."""
        is_known = bool(self.curve) and self.curve[-1][0] == n_answers
        return self.predictions.is_complete and not is_known

    def add_point(self, n_answers: int) -> list[Point]:
        """Add the present estimate to the curve; it replaces those of more answers."""
        estimate = self.estimate_errors()
        if estimate is not None:
            earlier = [point for point in self.curve if point[0] < n_answers]
            if len(earlier) > MAX_POINTS:
                half = MAX_POINTS // 2
                earlier = earlier[:half:2] + earlier[half:]
            point = [n_answers, estimate["number"], estimate["low"], estimate["high"]]
            self.curve = [*earlier, point]
        return self.curve


def join_kinds(predictions: Iterable[PairSolution]) -> Kinds:
    """Return (n,) the kinds of all events."""
    parts = [prediction.events.event for prediction in predictions]
    return np.concatenate([np.zeros(0, dtype=np.int8), *parts])


def calibrate(predictions: Iterable[PairSolution], scale: float = 1.0) -> Calibration:
    """Return the calibration for a movie; `scale` as in `Predictions.margin_scale`."""
    margins = MovieMargins.sum(one.margins(scale) for one in predictions)
    return GENERIC_CALIBRATION.of_movie(margins)


def event_probabilities(
    predictions: Iterable[PairSolution], scale: float = 1.0
) -> Array:
    """Return (n,) how likely each event of a movie is right; 1 if it was answered."""
    known = mark_torn_events(predictions)
    calibration = calibrate(known, scale)
    parts = [one.probability(calibration, scale) for one in known]
    return np.concatenate([np.zeros(0), *parts])


def check_prediction(
    predictions: Mapping[int, PairSolution],
    answer: Answer,
    asked: Answer | None,
    scale: float = 1.0,
) -> Check | None:
    """Return what an answer says about the prediction that was asked about.

    Parameters
    ----------
    predictions : mapping of int to PairSolution
        By first frame.
    answer : Answer
    asked : Answer or None
        The event in question; None if the person chose what to annotate.
    scale : float
        See `Predictions.margin_scale`.

    Returns
    -------
    check : Check or None
        None if the person chose the event: people look for errors, so such answers
        are no sample of the predictions. Nor are the events beside the one in
        question, which come to light only if that one is wrong: what was expected
        counts for the event in question alone.
    """
    if answer.frame not in predictions or asked is None or answer.event.span > 1:
        return None
    prediction = predictions[answer.frame]
    events = prediction.events
    is_asked = events.row_keys() == EventTable.of([asked.fact]).row_keys()
    is_same = events.row_keys() == EventTable.of([answer.fact]).row_keys()
    is_refuted = is_same
    if answer.happened:
        same_source = np.isin(events.sources, answer.sources)
        same_target = np.isin(events.targets, answer.targets)
        is_refuted = (same_source | same_target).any(axis=1) & ~is_same
    # Events that were answered before have an infinite confidence.
    is_open = np.isfinite(prediction.confidence)
    is_settled = is_asked & is_open & (is_same | is_refuted)
    if not is_settled.any():
        return None
    in_movie = mark_torn_events(predictions.values())
    by_frame = dict(zip(predictions, in_movie, strict=True))
    calibration = calibrate(in_movie, scale)
    doubt = 1 - by_frame[answer.frame].probability(calibration, scale)
    n_wrong = 0
    if is_refuted[is_settled].any():
        n_wrong = int((is_refuted & is_open).sum())
    return Check(round(float(doubt[is_settled].sum()), 6), n_wrong, asked.event)
