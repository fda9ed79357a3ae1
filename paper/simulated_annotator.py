"""A simulated annotator that answers questions from the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.questions import Question, answer_from_truth
from clew.learning.task import Indices
from clew.tracking.events import Annotations
from paper.strategies import STRATEGIES

SPARE = 20
"""Additional questions, since the truth leaves some open."""


def annotate(
    learner: Learner,
    truth: Annotations,
    strategy: str,
    budgets: Sequence[int],
    seed: int,
    rounds: int,
) -> Iterator[int]:
    """Answer questions until each budget is reached; yield the number of answers.

    The learner learns, and the strategy asks, `rounds` times between two budgets.
    """
    ask = STRATEGIES[strategy]
    rng = np.random.default_rng(seed)
    rows: Indices = np.zeros(0, dtype=np.intp)
    extra = SPARE
    for budget in budgets:
        goals = (
            np.linspace(len(rows), min(budget, len(truth)), rounds + 1)
            .round()
            .astype(int)[1:]
        )
        for goal in goals.tolist():
            while len(rows) < goal:
                n = goal - len(rows) + extra
                asked = ask(learner, truth[rows], n, rng)
                rows = np.union1d(rows, answers(asked, truth, rows, goal - len(rows)))
                if len(rows) < goal:
                    if len(asked) < n:  # nothing else is open
                        break
                    extra *= 2
            learner.learn(truth[rows])
        yield len(rows)


def answers(
    asked: Sequence[Question], truth: Annotations, known: Indices, wanted: int
) -> Indices:
    """Return new rows of the truth that answer the first questions."""
    new: list[int] = []
    taken = set(known.tolist())
    for question in asked:
        found = [
            row
            for row in answer_from_truth(question, truth).tolist()
            if row not in taken
        ]
        new += found[: wanted - len(new)]
        taken.update(new)
        if len(new) == wanted:
            break
    return np.array(new, dtype=np.intp)
