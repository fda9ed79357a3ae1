"""Query strategies of active learning that the experiments compare.

The page uses expected model change (`clew.annotation.questions`); the others are here
for comparison, as in Settles 2009, "Active learning literature survey".
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np

from clew.annotation.feature_steps import feature_steps
from clew.annotation.learner import Learner
from clew.annotation.questions import (
    NEAR_DIAMETERS,
    OpenEvents,
    Question,
    Reason,
    collect_open_events,
    diversify,
    locate_events,
    next_questions,
)
from clew.learning.task import Array
from clew.tracking.events import Annotations

N_MEMBERS = 4
"""Models of the committee."""
MEMBER_SHARE = 0.6
"""Of the annotations that each of them learns from, about that of a bootstrap."""
CANDIDATES_PER_QUESTION = 12
MIN_CANDIDATES = 200

Strategy = Callable[[Learner, Annotations, int, np.random.Generator], list[Question]]
"""(learner, annotations, n, rng) → at most n questions, the best first."""


def ask_at_random(
    learner: Learner, annotations: Annotations, n: int, rng: np.random.Generator
) -> list[Question]:
    """Random sampling, the baseline."""
    open_events = _collect(learner, annotations, None)
    value = rng.random(len(open_events))
    rows = np.argsort(-value, kind="stable")[:n].tolist()
    return _make_questions(open_events, value, rows)


def ask_least_margin(
    learner: Learner, annotations: Annotations, n: int, rng: np.random.Generator
) -> list[Question]:
    """Uncertainty sampling by the margin (Lewis & Gale 1994)."""
    if not learner.w.any():
        return ask_at_random(learner, annotations, n, rng)
    open_events = _collect(learner, annotations, n)
    return _ask(learner, open_events, open_events.chance_wrong, n)


def ask_disagreement(
    learner: Learner, annotations: Annotations, n: int, rng: np.random.Generator
) -> list[Question]:
    """Query by committee (Seung et al. 1992).

    Models that learned from parts of the annotations vote by the scores of the
    prediction and of its best alternative. Among events that all agree on, the one
    with the widest spread of margins comes first.
    """
    if not learner.w.any():
        return ask_at_random(learner, annotations, n, rng)
    open_events = _collect(learner, annotations, n)
    committee = fit_committee(learner, annotations, rng)
    value = open_events.chance_wrong
    if len(committee):
        margin = _find_steps(learner, open_events) @ committee.T
        # Models differ in the scale of their scores.
        margin /= np.maximum(np.abs(margin).mean(axis=0), 1e-12)
        against = (margin < 0).mean(axis=1)
        lean = margin.mean(axis=1) / np.maximum(margin.std(axis=1), 1e-9)
        agreement = 0.1 / (1.0 + np.maximum(lean, 0.0))
        value = against * (1.0 - against) + value * agreement
    return _ask(learner, open_events, value, n)


def ask_expected_change(
    learner: Learner, annotations: Annotations, n: int, rng: np.random.Generator
) -> list[Question]:
    """Expected model change (Settles et al. 2008), as the page asks."""
    return next_questions(
        learner.predict_all(),
        annotations,
        learner.source,
        n,
        diameter=learner.pairs.profile.scales.diameter,
        seed=int(rng.integers(2**31)),
    )


def fit_committee(
    learner: Learner, annotations: Annotations, rng: np.random.Generator
) -> Array:
    """Return (k, d) weights that follow from random parts of the annotations."""
    n = len(annotations)
    size = round(MEMBER_SHARE * n)
    if size < 1:
        return np.zeros((0, len(learner.w)))
    draws = [np.sort(rng.choice(n, size, replace=False)) for _ in range(N_MEMBERS)]
    members = []
    for rows in draws:
        member = copy(learner)
        member.result = None
        member.learn(annotations[rows])
        members.append(member.w)
    return np.array(members)


def _collect(learner: Learner, annotations: Annotations, n: int | None) -> OpenEvents:
    limit = None if n is None else max(CANDIDATES_PER_QUESTION * n, MIN_CANDIDATES)
    return collect_open_events(
        learner.predict_all(), annotations, learner.source, limit
    )


def _find_steps(learner: Learner, open_events: OpenEvents) -> Array:
    """Return (n, d) φ(y) − φ(y') of each open event, see `feature_steps`."""
    events = open_events.events
    steps = np.zeros((len(events), len(learner.w)))
    for frame in np.unique(events.frame).tolist():
        rows = np.flatnonzero(events.frame == frame)
        pair = learner.get_pair(frame)
        assignment = learner.solve(frame).assignment
        assert assignment is not None
        row_of_candidate = pair.find_events(events[rows])
        candidates = np.fromiter(row_of_candidate, dtype=np.intp)
        own = rows[np.fromiter(row_of_candidate.values(), dtype=np.intp)]
        steps[own] = feature_steps(pair, assignment, candidates)
    return steps


def _ask(
    learner: Learner, open_events: OpenEvents, value: Array, n: int
) -> list[Question]:
    places = locate_events(open_events.events, learner.source)
    near = NEAR_DIAMETERS * learner.pairs.profile.scales.diameter
    rows = diversify(value, open_events.events, places, near, n)
    return _make_questions(open_events, value, rows)


def _make_questions(
    open_events: OpenEvents, value: Array, rows: list[int]
) -> list[Question]:
    chosen = open_events.events[np.array(rows, dtype=np.intp)]
    return [
        Question(*event, float(value[row]), (Reason.RANDOM,))
        for row, event in zip(rows, chosen, strict=True)
    ]


STRATEGIES: dict[str, Strategy] = {
    "random": ask_at_random,
    "least-margin": ask_least_margin,
    "disagreement": ask_disagreement,
    "expected-change": ask_expected_change,
}
DEFAULT = "expected-change"
"""The strategy of the page."""
