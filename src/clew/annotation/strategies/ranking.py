"""How much each open event is worth asking about: the query strategies of active learning.

Random order, uncertainty sampling by margins, query by committee and expected model change, all as in Settles 2009,
"Active learning literature survey".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.strategies.feature_difference import feature_differences
from clew.annotation.strategies.pool import Pool
from clew.learning.task import Array, Indices
from clew.tracking.events import Annotations

MEMBERS = 4
"""Models of the committee."""
RESAMPLED = 0.6
"""The share of the annotations that each of them learns from, about that of a bootstrap."""

Ranking = Callable[[Learner, Annotations, Pool, np.random.Generator], Array]
"""Gives (n,) values of the pool's events; the more the better."""


def random(
    learner: Learner, annotations: Annotations, pool: Pool, rng: np.random.Generator
) -> Array:
    """Random sampling, the baseline: any event is worth as much as another."""
    return rng.random(len(pool))


def least_margin(
    learner: Learner, annotations: Annotations, pool: Pool, rng: np.random.Generator
) -> Array:
    """Uncertainty sampling (Lewis & Gale 1994) by the margin: the less score is lost without the event, the better."""
    return pool.doubt


def disagreement(
    learner: Learner, annotations: Annotations, pool: Pool, rng: np.random.Generator
) -> Array:
    """Query by committee (Seung et al. 1992): the more models of other parts of the annotations disagree, the better.

    Whether they would is read off the scores of the prediction and of its best alternative. Among events that all
    models agree on, the one with the widest spread of margins comes first.
    """
    weights = committee(learner, annotations, rng)
    if not len(weights):
        return pool.doubt
    margin = feature_differences(learner, pool) @ weights.T  # (n, members)
    margin /= np.maximum(
        np.abs(margin).mean(axis=0), 1e-12
    )  # models differ in the scale of their scores
    against = (margin < 0).mean(axis=1)
    lean = margin.mean(axis=1) / np.maximum(margin.std(axis=1), 1e-9)
    return np.asarray(
        against * (1.0 - against) + pool.doubt * 0.1 / (1.0 + np.maximum(lean, 0.0))
    )


def expected_change(
    learner: Learner, annotations: Annotations, pool: Pool, rng: np.random.Generator
) -> Array:
    """Expected model change (Settles et al. 2008): chance that a prediction is wrong × √(length of the step × rarity).

    The step is φ(y') − φ(y), as of a perceptron, each feature in units of its usual size; kinds of events that were
    rarely annotated count for more. Without the root, steps that are long because a cell is odd come too early.
    """
    steps = feature_differences(learner, pool)
    usual = np.sqrt((steps**2).mean(axis=0))
    length = np.linalg.norm(steps / np.where(usual > 0, usual, 1.0), axis=1)
    return np.asarray(pool.doubt * np.sqrt(length * rarity(pool)))


def rarity(pool: Pool) -> Array:
    """(n,) more for kinds of events of which few were annotated."""
    share = (1.0 + pool.annotated) / (len(pool.annotated) + pool.annotated.sum())
    return np.asarray(1.0 / np.sqrt(share[pool.events.event]))


def committee(
    learner: Learner, annotations: Annotations, rng: np.random.Generator
) -> Array:
    """(k, d) weights of models that learned from a random part of the annotations each; none if there are too few."""
    n = len(annotations)
    size = round(RESAMPLED * n)
    if size < 1:
        return np.zeros((0, len(learner.w)))
    draws: list[Indices] = [
        np.sort(rng.choice(n, size, replace=False)) for _ in range(MEMBERS)
    ]
    return np.array([learner.weights_from(annotations[rows]) for rows in draws])
