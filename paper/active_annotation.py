"""Active annotation, the paper's outlook: test task loss against annotated events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.sampling import sample
from clew.tracking.events import EventTable
from clew.tracking.tracker import Tracker
from paper.dataset import Dataset, Examiner
from paper.experiment_data import ExperimentData, cpu_seconds
from paper.simulated_annotator import annotate
from paper.strategies import STRATEGIES

BUDGETS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
"""Shares of the events after which the loss is measured."""
REFERENCE = 0.25
"""Share at random to compare with."""
QUICK_BUDGETS = (0.01, 0.02, 0.04, 0.08)
ROUNDS = 2
"""How often the model learns and asks between two budgets."""
OWN = "own"
"""Annotate the test movie."""
OTHER = "other"
"""Annotate the training movie."""
GENERIC = "generic"
"""Start with clew's generic weights."""
NOTHING = "nothing"
"""Start with zero weights."""
RANDOM = "random"
ACTIVE = tuple(name for name in STRATEGIES if name != RANDOM)


def list_jobs(
    draws: int, budgets: Sequence[float], strategies: Sequence[str] = ACTIVE
) -> list[dict[str, Any]]:
    """List the sessions, and random draws as in Figure 3."""
    return [
        {
            "movie": movie,
            "prior": prior,
            "strategy": strategy,
            "draw": draw,
            "budgets": list(shares),
        }
        for draw in range(draws)
        for movie in (OWN, OTHER)
        for prior in (GENERIC, NOTHING)
        for strategy, shares in [
            (RANDOM, (*budgets, REFERENCE)),
            *((name, tuple(budgets)) for name in strategies),
        ]
    ]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Run one session; measure the loss of the weights and of the annotated movie."""
    dataset = data.test if job["movie"] == OWN else data.train
    learner = Learner(dataset.source, tracker=make_tracker(job["prior"]))
    examiner = (
        data.examiner
        if learner.groups == data.groups
        else Examiner(data.test, learner.groups)
    )
    seed = data.setup.seed + 1000 * job["draw"]
    points: list[dict[str, float]] = []
    with cpu_seconds() as spent:
        if job["prior"] == GENERIC:
            points.append(_point(0, dataset, learner, examiner))
        for answers in _session(dataset, learner, job, seed):
            points.append(_point(answers, dataset, learner, examiner))
    return {"events": len(dataset.truth), "points": points, "seconds": spent[0]}


def make_tracker(prior: str) -> Tracker:
    """Make the tracker that a session starts with."""
    start = Tracker.generic()
    if prior == NOTHING:
        start.coef_ = np.zeros_like(start.coef_)
    return start


def _session(
    dataset: Dataset, learner: Learner, job: dict[str, Any], seed: int
) -> Iterator[int]:
    """Yield the number of answers when the learner has learned from each budget."""
    numbers = [max(round(share * len(dataset.truth)), 1) for share in job["budgets"]]
    if job["strategy"] != RANDOM:
        yield from annotate(
            learner, dataset.truth, job["strategy"], numbers, seed, ROUNDS
        )
        return
    for number in numbers:
        learner.learn(
            sample(
                dataset.truth, number=number, rng=np.random.default_rng([seed, number])
            )
        )
        yield len(learner.annotations)


def _point(
    answers: int, dataset: Dataset, learner: Learner, examiner: Examiner
) -> dict[str, float]:
    """Measure the test task loss, and the errors left in the annotated movie."""
    predicted = EventTable.join(
        [learner.solve(frame).events for frame in range(len(learner.pairs))]
    )
    left = 1.0 - np.isin(dataset.truth.events.row_keys(), predicted.row_keys()).mean()
    return {"answers": answers, "loss": examiner.loss(learner.w), "left": float(left)}
