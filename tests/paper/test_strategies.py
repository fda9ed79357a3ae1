"""Strategies ask about open events, each in its own order."""

import numpy as np
import pytest

from clew.annotation.learner import Learner
from clew.annotation.questions import collect_open_events
from clew.tracking.events import Annotations, EventTable
from clew.tracking.measurement.measure import measure_movie
from paper.strategies import DEFAULT, STRATEGIES


@pytest.fixture(scope="module")
def learner(simulated):
    learner = Learner(measure_movie(simulated.movie, cache=None, n_jobs=1))
    learner.learn(simulated.some)
    return learner


def ask(name, learner, annotations, n=20, seed=0):
    return STRATEGIES[name](learner, annotations, n, np.random.default_rng(seed))


@pytest.mark.parametrize("name", STRATEGIES)
def test_questions_are_open_and_differ(name, learner, simulated):
    open_events = collect_open_events(
        learner.predict_all(), simulated.some, learner.source
    )
    facts = [question.fact for question in ask(name, learner, simulated.some)]
    assert len(set(facts)) == len(facts) == 20
    assert set(facts) <= set(open_events.events)


@pytest.mark.parametrize("name", STRATEGIES)
def test_first_question_needs_no_annotation(name, learner):
    nothing = Annotations.of(EventTable.empty())
    assert len(ask(name, Learner(learner.source), nothing, 3)) == 3


def test_seeds_differ_at_random(learner, simulated):
    assert DEFAULT in STRATEGIES
    one, other = (ask("random", learner, simulated.some, seed=s) for s in (1, 2))
    assert one != other


def test_least_margin_starts_with_the_least_certain(learner, simulated):
    (first,) = ask("least-margin", learner, simulated.some, 1)
    open_events = collect_open_events(
        learner.predict_all(), simulated.some, learner.source
    )
    row = int(np.argmin(open_events.confidence))
    assert first.fact == next(iter(open_events.events[[row]]))
