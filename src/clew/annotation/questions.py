"""What to ask next: strategies that rank the open events of a movie, each question with a reason in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.strategies import ranking
from clew.annotation.strategies.diversify import diversify
from clew.annotation.strategies.pool import Pool
from clew.annotation.strategies.ranking import Ranking
from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.events import Annotations, Event

LOOKED_AT = 12
"""Of the least certain events, so many for each question are looked at closely."""
FEWEST_LOOKED_AT = 200
NEAR = 2.0
"""Events within so many cell diameters are about the same place."""
AT_RANDOM = "drawn at random"
TIE, UNSURE = 0.1, 0.4
"""Confidence as a share of the usual one, below which explanations almost tie, or the model is unsure."""


@dataclass(frozen=True)
class Question:
    """Did this event happen?"""

    frame: int
    event: Event
    sources: tuple[int, ...]
    """Labels in `frame`."""
    targets: tuple[int, ...]
    """Labels in the next."""
    value: float
    """By which the strategy ranks it; comparable within one list only."""
    reason: str
    """Why it is asked, in words."""


Strategy = Callable[[Learner, Annotations, int, np.random.Generator], list[Question]]
"""(learner, annotations, n, rng) → at most n questions, the best first, about nothing that is annotated already."""


def strategy(rank: Ranking, why: str, everywhere: bool = False) -> Strategy:
    """The strategy that asks about the most valuable events by a ranking, spread over frames, places and kinds.

    Events of which the model is certain are left out unless it is to look `everywhere`. `why` is the ranking's own
    reason, if it has one.
    """

    def ask(
        learner: Learner, annotations: Annotations, n: int, rng: np.random.Generator
    ) -> list[Question]:
        if n < 1:
            raise InputError(f"{n} questions were asked for; expected at least one")
        pool = Pool.of(learner, annotations)
        blind = (
            everywhere or not learner.w.any()
        )  # weights that are all zero have no doubts to tell of
        if not blind:
            pool = pool.least_certain(max(LOOKED_AT * n, FEWEST_LOOKED_AT))
        value = (ranking.random if blind else rank)(learner, annotations, pool, rng)
        if blind:
            chosen = np.argsort(-value, kind="stable")[:n].tolist()
        else:
            near = NEAR * learner.pairs.scales.diameter
            chosen = diversify(
                value,
                pool.events.frame,
                pool.events.event,
                pool.places(learner),
                near,
                n,
            )
        return [
            Question(
                *event,
                value=float(value[row]),
                reason=AT_RANDOM if blind else _reason(pool, row, why),
            )
            for row, event in zip(
                chosen, pool.events[np.array(chosen, dtype=np.intp)], strict=True
            )
        ]

    ask.__doc__ = rank.__doc__
    return ask


STRATEGIES: dict[str, Strategy] = {
    "random": strategy(ranking.random, AT_RANDOM, everywhere=True),
    "least-margin": strategy(ranking.least_margin, ""),
    "disagreement": strategy(
        ranking.disagreement, "models that saw other answers disagree here"
    ),
    "expected-change": strategy(ranking.expected_change, "the answer would teach much"),
}
DEFAULT = "expected-change"
"""The strategy that needs the fewest answers, as docs/experiments.md measures it."""


def answer_from_truth(question: Question, truth: Annotations) -> Indices:
    """Rows of a truth that answer a question: the true fate of its sources, or the true history of what appears.

    None where the truth leaves it open.
    """
    events = truth.events
    side, cells = (
        (events.sources, question.sources)
        if question.sources
        else (events.targets, question.targets)
    )
    return np.flatnonzero(
        (events.frame == question.frame)
        & truth.happened
        & np.isin(side, cells).any(axis=1)
    )


def _reason(pool: Pool, row: int, why: str) -> str:
    """Why a question is asked, in words; what is remarkable about the event comes before the ranking's own reason."""
    event = Event(pool.events.event[row])
    share = float(pool.confidence[row]) / pool.scale
    words = []
    if event is not Event.MOVE and not pool.annotated[event]:
        words.append(f"no {NOUNS[event]} was annotated yet")
    elif (
        event is not Event.MOVE and pool.annotated[event] < RARE * pool.annotated.sum()
    ):
        words.append(f"{NOUNS[event]}s are rare")
    if share < TIE:
        words.append("two explanations almost tie")
    elif share < UNSURE:
        words.append("another explanation is not much worse")
    return "; ".join([*words, why][:2] if why else words) or "nothing is less certain"


RARE = 0.05
"""Kinds of events below this share of the annotations are called rare."""
NOUNS = {
    Event.MOVE: "move",
    Event.DIVIDE: "division",
    Event.APPEAR: "appearance",
    Event.DISAPPEAR: "disappearance",
    Event.SPLIT: "split",
    Event.MERGE: "merger",
}
