"""How far a movie is: about how many of its events are wrong, and how that went down with the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.error_estimate import (
    Check,
    Correction,
    Kinds,
    answers_until,
    wrong_events,
)
from clew.annotation.predictions import Predictor
from clew.annotation.store.store import Store
from clew.learning.task import Array
from clew.tracking.events import EventTable
from clew.tracking.solve import SolvedPair, in_context
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)

CURVE = "curve"
"""The note in a store that has the estimates so far."""
MOST_POINTS = 300
"""Of the curve; beyond, every other one of the older half is dropped."""
Point = list[float]
"""Answers, about how many events were wrong, and the interval."""


class Progress:
    """The estimate of what is wrong, and its history, which the store keeps."""

    def __init__(self, store: Store, predictor: Predictor) -> None:
        self.store, self.predictor = store, predictor
        self.curve: list[Point] = store.noted(CURVE, [])

    def wrong(self, target: int = 0) -> dict[str, Any] | None:
        """About how many events are wrong now, with an interval, and how many answers until fewer than `target` are.

        None as long as not the whole movie was predicted.
        """
        solved = self.predictor.solved
        if len(solved) < self.predictor.n_pairs or not solved:
            return None
        kinds = kinds_of(solved.values())
        probability = probabilities(solved.values(), self.predictor.margin_scale)
        correction = Correction.of(self._checks())
        found = wrong_events(kinds, probability, correction)
        until = (
            answers_until(kinds, probability, correction, target) if target else None
        )
        return {
            "number": round(found.number, 1),
            "low": round(found.low),
            "high": round(found.high),
            "events": found.n_events,
            "until": until,
        }

    def _checks(self) -> list[Check]:
        return [
            entry.check for entry in self.store.holding() if entry.check is not None
        ]

    def knows(self, answers: int) -> bool:
        """Whether there is an estimate after so many answers, or none can be made yet."""
        can = len(self.predictor.solved) == self.predictor.n_pairs
        return not can or (bool(self.curve) and self.curve[-1][0] == answers)

    def with_point(self, answers: int) -> list[Point]:
        """The curve with the present estimate, in place of earlier ones of as many answers or more."""
        now = self.wrong()
        if now is not None:
            kept = [point for point in self.curve if point[0] < answers]
            if len(kept) > MOST_POINTS:
                kept = kept[: MOST_POINTS // 2 : 2] + kept[MOST_POINTS // 2 :]
            self.curve = [*kept, [answers, now["number"], now["low"], now["high"]]]
        return self.curve


def kinds_of(solved: Iterable[SolvedPair]) -> Kinds:
    """(n,) the kinds of the events of some frame pairs."""
    return np.concatenate(
        [np.zeros(0, dtype=np.int8), *(one.events.event for one in solved)]
    )


def calibration_of(solved: Iterable[SolvedPair], scale: float = 1.0) -> Calibration:
    """For the movie of these frame pairs, in their context; `scale` is `Predictor.margin_scale`."""
    return GENERIC_CALIBRATION.of_movie(
        MovieMargins.sum(one.margins(scale) for one in solved)
    )


def probabilities(solved: Iterable[SolvedPair], scale: float = 1.0) -> Array:
    """(n,) that each event of a movie's frame pairs is right; 1 where it was answered."""
    known = in_context(solved)
    calibration = calibration_of(known, scale)
    return np.concatenate(
        [np.zeros(0), *(one.probability(calibration, scale) for one in known)]
    )


def check_of(
    movie: Mapping[int, SolvedPair],
    answer: Answer,
    asked: Answer | None,
    scale: float = 1.0,
) -> Check | None:
    """What the answer to a question says of the predictions before it; nothing if the person chose what to answer.

    `movie` has the frame pairs that were predicted, by their first frames.

    Who looks around answers where something is wrong, so that such answers are no sample of the predictions. Nor are
    the events beside the one that was asked about, which come to light only where that one is wrong: what was
    expected is expected of it alone.
    """
    if answer.frame not in movie or asked is None or answer.event.span > 1:
        return None
    solved = movie[answer.frame]
    events = solved.events
    about = events.row_keys() == EventTable.of([asked.fact]).row_keys()
    same = events.row_keys() == EventTable.of([answer.fact]).row_keys()
    refuted = same
    if answer.happened:
        shared = np.isin(events.sources, answer.sources) | np.isin(
            events.targets, answer.targets
        )
        refuted = shared.any(axis=1) & ~same
    is_open = np.isfinite(
        solved.confidence
    )  # what was answered before is no prediction
    settled = about & is_open & (same | refuted)
    if not settled.any():
        return None
    known = dict(zip(movie, in_context(movie.values()), strict=True))
    doubt = 1 - known[answer.frame].probability(
        calibration_of(known.values(), scale), scale
    )
    wrong = int((refuted & is_open).sum()) if refuted[settled].any() else 0
    return Check(round(float(doubt[settled].sum()), 6), wrong, asked.event)
