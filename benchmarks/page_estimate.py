"""What the page says of wrong events beside the truth, after some answers, over kinds of movies; no server is needed."""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from kinds_movies import Scene, open_kind
from page_annotator import by_pairs
from page_server import console
from rich.table import Table

from clew.annotation.answers import Answer
from clew.annotation.error_estimate import Check, Correction, estimate_wrong_events
from clew.annotation.learner import Learner
from clew.annotation.predictions import Predictions
from clew.annotation.progress import check_prediction, event_probabilities, join_kinds
from clew.annotation.questions import answer_from_truth, find_settled, next_questions
from clew.tracking.events import Annotations, EventTable
from clew.tracking.tracker import Tracker

LEARNS = 8
"""Answers between two fits; the page learns from each one."""


class Person:
    """Somebody who answers the first question from the truth, and the estimate that they see."""

    def __init__(self, scene: Scene) -> None:
        self.truth = by_pairs(scene.truth)
        self.learner = Learner(scene.source, tracker=Tracker.generic())
        self.predictions = Predictions(self.learner.pairs, self.learner.w)
        self.said: dict[tuple, bool] = {}
        self.checks: list[Check] = []
        self.predict(range(len(self.learner.pairs)))

    @property
    def annotations(self) -> Annotations:
        """All answers."""
        if not self.said:
            return Annotations.of(EventTable.empty())
        return Annotations.of(EventTable.of(list(self.said)), list(self.said.values()))

    def predict(self, frames) -> None:
        """Renew predictions."""
        self.learner.annotate(self.annotations)
        version = self.predictions.weights.version
        for frame in frames:
            self.predictions.by_frame[frame] = self.learner.predict(frame, version)

    def answer_next(self) -> bool:
        """Answer a question; False if there is none that the truth can answer."""
        ordered = [
            self.predictions.by_frame[t] for t in range(self.predictions.n_pairs)
        ]
        diameter = self.learner.pairs.profile.scales.diameter
        questions = next_questions(
            ordered, self.annotations, self.learner.source, 100, diameter=diameter
        )
        for question in questions:
            rows = answer_from_truth(question, self.truth)
            facts = list(self.truth.events[rows])
            if not facts:
                continue
            fact = question.fact if question.fact in facts else facts[0]
            answer = Answer.of(*fact)
            scale = self.predictions.margin_scale
            asked = Answer.of(*question.fact)
            check = check_prediction(self.predictions.by_frame, answer, asked, scale)
            self.checks += [] if check is None else [check]
            self.said[fact] = True
            if len(self.said) % LEARNS:
                self.predict([question.frame])
            else:
                self.learner.learn(self.annotations)
                self.predictions.set_weights(self.learner.w)
                self.predict(range(len(ordered)))
            return True
        return False

    def judge(self) -> tuple[int, float, float, float]:
        """Return wrong events of known truth, and the estimate of these alone with its interval."""
        ordered = [
            self.predictions.by_frame[t] for t in range(self.predictions.n_pairs)
        ]
        events = EventTable.join([one.events for one in ordered])
        is_known = find_settled(events, self.truth)
        is_true = np.isin(events.row_keys(), self.truth.events.row_keys())
        probability = event_probabilities(ordered, self.predictions.margin_scale)
        expected = estimate_wrong_events(
            join_kinds(ordered)[is_known],
            probability[is_known],
            Correction.of(self.checks),
        )
        n_wrong = int((~is_true & is_known).sum())
        return n_wrong, expected.number, expected.low, expected.high


def estimate(options: argparse.Namespace) -> None:
    """Compare the estimate with the truth at several numbers of answers."""
    table = Table(
        "movie", *map(str, options.answers), title="wrong: estimate (interval)"
    )
    inside = defaultdict(list)
    for kind in options.kinds:
        person = Person(open_kind(kind, options.seed, options.folder))
        cells = []
        for n in options.answers:
            while len(person.said) < n and person.answer_next():
                pass
            if len(person.said) < n:
                break
            wrong, number, low, high = person.judge()
            is_inside = low <= wrong <= high
            inside[n].append(is_inside)
            mark = "" if is_inside else " OUTSIDE"
            cells.append(f"{wrong}: {number:.0f} ({low:.0f}–{high:.0f}){mark}")
        console.print(kind, *cells, sep="; ")
        table.add_row(kind, *cells)
    shares = [f"{sum(one)} of {len(one)} inside" for one in inside.values()]
    table.add_row("", *shares)
    console.print(table)
