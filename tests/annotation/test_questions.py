"""Questions: about open events only, spread, with reasons; alternatives and feature_differences against brute force."""

from dataclasses import replace

import numpy as np
import pytest
from clew.annotation.strategies.diversify import diversify
from clew.annotation.strategies.feature_difference import feature_differences
from clew.annotation.strategies.pool import Pool, settled

from clew.annotation.learner import Learner
from clew.annotation.questions import DEFAULT, STRATEGIES, Question, answer_from_truth
from clew.errors import InputError
from clew.tracking.assignment.assignment import assign
from clew.tracking.events import NONE, Annotations, Event, EventTable
from clew.tracking.measurement.measure import measure_movie


@pytest.fixture(scope="module")
def source(simulated):
    return measure_movie(simulated.movie, cache=None, n_jobs=1)


@pytest.fixture(scope="module")
def learner(source, simulated):
    learner = Learner(source)
    learner.learn(simulated.some)
    return learner


@pytest.fixture(scope="module")
def pool(learner, simulated):
    return Pool.of(learner, simulated.some).least_certain(25)


def ask(name, learner, annotations, n=20, seed=0):
    return STRATEGIES[name](learner, annotations, n, np.random.default_rng(seed))


def test_the_default_is_a_strategy():
    assert DEFAULT in STRATEGIES
    assert {"random", "least-margin", "disagreement", "expected-change"} <= set(
        STRATEGIES
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_questions_are_about_predicted_events_that_nobody_has_answered(
    name, learner, simulated
):
    known = simulated.some.events
    fates = {
        (int(t), int(c))
        for t, cells in zip(known.frame, known.sources, strict=True)
        for c in cells
        if c != NONE
    }
    pasts = {
        (int(t), int(c))
        for t, cells in zip(known.frame, known.targets, strict=True)
        for c in cells
        if c != NONE
    }
    questions = ask(name, learner, simulated.some)
    assert len(questions) == 20
    predicted = {
        frame: set(learner.solve(frame).events) for frame in range(len(learner.pairs))
    }
    for question in questions:
        assert (
            question.frame,
            question.event,
            question.sources,
            question.targets,
        ) in predicted[question.frame]
        assert not any((question.frame, cell) in fates for cell in question.sources)
        assert not any((question.frame, cell) in pasts for cell in question.targets)
        assert question.reason
        assert np.isfinite(question.value)


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_question_twice_and_the_same_seed_asks_the_same(name, learner, simulated):
    first, again = (ask(name, learner, simulated.some, 40) for _ in range(2))
    # a committee learns with warm solvers, whose last digits depend on what they solved before
    assert [replace(q, value=0.0) for q in first] == [
        replace(q, value=0.0) for q in again
    ]
    np.testing.assert_allclose(
        [q.value for q in first], [q.value for q in again], rtol=1e-6
    )
    assert len({(q.frame, q.event, q.sources, q.targets) for q in first}) == len(first)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_first_question_needs_no_annotation(name, source):
    nothing = Annotations.of(EventTable.empty())
    assert len(ask(name, Learner(source), nothing, 3)) == 3


def test_seeds_differ_at_random(learner, simulated):
    assert ask("random", learner, simulated.some, seed=1) != ask(
        "random", learner, simulated.some, seed=2
    )


def test_fewer_questions_where_little_is_open(learner, simulated):
    nearly_all = simulated.known[: len(simulated.known)]
    learner_of_all = Learner(learner.source)
    learner_of_all.annotate(nearly_all)
    open_events = Pool.of(learner_of_all, nearly_all)
    assert len(ask("least-margin", learner_of_all, nearly_all, 10_000)) == len(
        open_events
    )


def test_no_questions_are_refused(learner, simulated):
    with pytest.raises(InputError, match="at least one"):
        ask("random", learner, simulated.some, 0)


def test_least_margin_begins_with_the_least_certain(learner, simulated):
    first = ask("least-margin", learner, simulated.some, 1)[0]
    open_events = Pool.of(learner, simulated.some)
    row = int(np.argmin(open_events.confidence))
    assert (first.frame, first.event, first.sources, first.targets) == next(
        iter(open_events.events[[row]])
    )


def test_denied_events_are_not_settled():
    asked = EventTable.of(
        [
            (3, Event.MOVE, [5], [6]),
            (3, Event.MOVE, [7], [8]),
            (4, Event.APPEAR, [], [5]),
        ]
    )
    known = Annotations.of(
        EventTable.of(
            [
                (3, Event.DISAPPEAR, [5], []),
                (3, Event.MOVE, [7], [8]),
                (4, Event.MOVE, [9], [5]),
            ]
        ),
        [True, False, True],
    )
    assert settled(asked, known).tolist() == [True, False, True]


def test_feature_differences_are_prediction_minus_the_best_choice_without_the_event(
    learner, pool
):
    found = feature_differences(learner, pool)
    assert np.allclose(found @ learner.w, pool.confidence, atol=1e-9)
    for row in range(0, len(pool), 5):
        frame = int(pool.events.frame[row])
        pair, answer = learner.get_pair(frame), learner.solve(frame).assignment
        (column,) = pair.rows(pool.events[[row]])
        here = learner.annotations.select_frame(frame)
        other = assign(
            pair.candidates, pair.scores(learner.w), {**pair.annotated(here), column: 0}
        )
        assert answer.value - other.value == pytest.approx(
            found[row] @ learner.w, abs=1e-7
        )
        features = pair.features()
        difference = features[answer.chosen].sum(axis=0) - features[other.chosen].sum(
            axis=0
        )
        assert np.allclose(np.asarray(difference).ravel(), found[row], atol=1e-7)


def test_spread_prefers_other_frames_and_places():
    value = np.array([1.0, 0.95, 0.9, 0.85])
    frame = np.array([4, 4, 4, 9])
    place = np.array([[0.0, 0.0], [1.0, 0.0], [50.0, 0.0], [0.0, 0.0]])
    assert diversify(value, frame, np.zeros(4, np.intp), place, 2.0, 4) == [0, 3, 2, 1]
    assert diversify(value, frame, np.zeros(4, np.intp), place, 2.0, 9) == [0, 3, 2, 1]


def test_the_truth_answers_with_the_fate_of_the_sources():
    truth = Annotations.of(
        EventTable.of(
            [
                (3, Event.MOVE, [5], [6]),
                (3, Event.MERGE, [7, 8], [9]),
                (3, Event.APPEAR, [], [5]),
                (4, Event.MOVE, [5], [1]),
            ]
        )
    )

    def rows(event, sources, targets):
        return answer_from_truth(
            Question(3, event, sources, targets, 0.0, ""), truth
        ).tolist()

    assert rows(Event.DISAPPEAR, (5,), ()) == [0]
    assert rows(Event.MERGE, (5, 7), (6,)) == [0, 1]
    assert rows(Event.APPEAR, (), (5,)) == [2]
    assert rows(Event.APPEAR, (), (9,)) == [1]
    assert rows(Event.MOVE, (99,), (6,)) == []


def test_reasons_name_what_is_new(source, learner, simulated):
    nothing = Annotations.of(EventTable.empty())
    asked = ask("expected-change", Learner(source), nothing, 30)
    kinds = {q.event for q in asked}
    assert len(kinds) > 1
    for question in asked:
        assert ("annotated yet" in question.reason) == (
            question.event is not Event.MOVE
        )


def test_a_learner_that_knows_nothing_asks_at_random(source):
    from clew.tracking.tracker import Tracker

    blank, nothing = Tracker.generic(), Annotations.of(EventTable.empty())
    blank.coef_ = np.zeros_like(blank.coef_)
    learner = Learner(source, tracker=blank)
    asked = ask("least-margin", learner, nothing, seed=1)
    assert {question.reason for question in asked} == {"drawn at random"}
    assert asked != ask("least-margin", learner, nothing, seed=2)
