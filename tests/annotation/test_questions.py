"""Questions are about open events, spread over the movie, and have reasons."""

import numpy as np
import pytest

from clew.annotation.feature_steps import feature_steps
from clew.annotation.learner import Learner
from clew.annotation.questions import (
    Certainty,
    Question,
    QuestionFilter,
    Reason,
    answer_from_truth,
    classify_certainty,
    collect_open_events,
    diversify,
    find_settled,
    next_questions,
)
from clew.errors import InputError
from clew.tracking.assignment.assignment import assign
from clew.tracking.events import NONE, Annotations, Event, EventTable

NOTHING = Annotations.of(EventTable.empty())


@pytest.fixture(scope="module")
def learner(source, simulated):
    learner = Learner(source)
    learner.learn(simulated.some)
    return learner


@pytest.fixture(scope="module")
def predictions(learner):
    return learner.predict_all()


@pytest.fixture
def ask(predictions, source, learner, simulated):
    def ask(n=20, annotations=simulated.some, of=predictions, **options):
        diameter = learner.pairs.profile.scales.diameter
        return next_questions(of, annotations, source, n, diameter=diameter, **options)

    return ask


def test_questions_are_about_predicted_events_without_an_annotation(
    ask, predictions, simulated
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
    questions = ask()
    assert len(questions) == 20
    predicted = {one.frame: set(one.events) for one in predictions}
    for question in questions:
        assert question.fact in predicted[question.frame]
        assert not any((question.frame, cell) in fates for cell in question.sources)
        assert not any((question.frame, cell) in pasts for cell in question.targets)
        assert question.reasons
        assert np.isfinite(question.value)


def test_no_question_is_asked_twice(ask):
    questions = ask(40)
    assert questions == ask(40)
    assert len({question.fact for question in questions}) == len(questions)


def test_first_question_needs_no_annotation(ask, source):
    fresh = Learner(source).predict_all()
    assert len(ask(3, annotations=NOTHING, of=fresh)) == 3


def test_fewer_questions_where_little_is_open(ask, source, simulated):
    known = Learner(source)
    known.annotate(simulated.known)
    predictions = known.predict_all()
    open_events = collect_open_events(predictions, simulated.known, source)
    questions = ask(10_000, annotations=simulated.known, of=predictions)
    assert len(questions) == len(open_events)


def test_number_of_questions_must_be_positive(ask):
    with pytest.raises(InputError, match="at least one"):
        ask(0)


def test_limit_keeps_the_least_certain(predictions, source, simulated):
    every = collect_open_events(predictions, simulated.some, source)
    some = collect_open_events(predictions, simulated.some, source, 25)
    assert len(some) <= 25
    least = np.sort(every.confidence)[: len(some)]
    assert np.array_equal(np.sort(some.confidence), least)
    assert some.typical_confidence == every.typical_confidence


def test_filter_by_kind_time_place_and_track(ask, predictions, source):
    moves = ask(50, chosen=QuestionFilter(Event.MOVE, 3, 5))
    assert {(one.event, 3 <= one.frame <= 5) for one in moves} == {(Event.MOVE, True)}
    cell = moves[0].frame, moves[0].sources[0]
    track = ask(50, chosen=QuestionFilter(track=[cell]))
    assert moves[0].fact in [one.fact for one in track]
    for one in track:
        before = {(one.frame, label) for label in one.sources}
        after = {(one.frame + 1, label) for label in one.targets}
        assert cell in before | after
    boxed = ask(50, chosen=QuestionFilter(box=(0, 0, 100, 100)))
    assert 0 < len(boxed) < 50


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
    assert find_settled(asked, known).tolist() == [True, False, True]


@pytest.mark.parametrize("frame", [0, 5, 10])
def test_steps_are_the_prediction_minus_the_best_one_without_the_event(learner, frame):
    pair = learner.get_pair(frame)
    solution = learner.solve(frame)
    assignment = solution.assignment
    order = np.argsort(solution.confidence)[:5]
    order = order[np.isfinite(solution.confidence[order])]
    rows = assignment.chosen[order]
    steps = feature_steps(pair, assignment, rows)
    assert np.allclose(steps @ learner.w, solution.confidence[order], atol=1e-9)
    annotated = pair.find_annotated(learner.annotations.select_frame(frame))
    features = pair.features
    for row, step in zip(rows.tolist(), steps, strict=True):
        other = assign(pair.candidates, pair.scores(learner.w), {**annotated, row: 0})
        here = features[assignment.chosen].sum(axis=0)
        there = features[other.chosen].sum(axis=0)
        assert np.allclose(np.asarray(here - there).ravel(), step, atol=1e-7)


def test_diversity_prefers_other_frames_and_places():
    value = np.array([1.0, 0.95, 0.9, 0.85])
    frames = [4, 4, 4, 9]
    events = EventTable.of([(t, Event.MOVE, [n], [n]) for n, t in enumerate(frames, 1)])
    place = np.array([[0.0, 0.0], [1.0, 0.0], [50.0, 0.0], [0.0, 0.0]])
    assert diversify(value, events, place, 2.0, 4) == [0, 3, 2, 1]
    assert diversify(value, events, place, 2.0, 9) == [0, 3, 2, 1]


def test_truth_answers_with_the_fate_of_the_sources():
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
        question = Question(3, event, sources, targets, 0.0, ())
        return answer_from_truth(question, truth).tolist()

    assert rows(Event.DISAPPEAR, (5,), ()) == [0]
    assert rows(Event.MERGE, (5, 7), (6,)) == [0, 1]
    assert rows(Event.APPEAR, (), (5,)) == [2]
    assert rows(Event.APPEAR, (), (9,)) == [1]
    assert rows(Event.MOVE, (99,), (6,)) == []


def test_reasons_name_what_is_new(ask, source):
    questions = ask(30, annotations=NOTHING, of=Learner(source).predict_all())
    assert len({question.event for question in questions}) > 1
    for question in questions:
        is_first = Reason.FIRST_OF_KIND in question.reasons
        assert is_first == (question.event is not Event.MOVE)


def test_certainty_is_relative_to_the_movie():
    confidence = np.array([0.0, 0.19, 0.2, 0.79, 0.8, np.inf])
    unsure, fair, sure = Certainty
    expected = [unsure, unsure, fair, fair, sure, sure]
    assert classify_certainty(confidence, 2.0) == expected


def test_weights_that_know_nothing_ask_at_random(ask, source):
    from clew.tracking.tracker import Tracker

    blank = Tracker.generic()
    blank.coef_ = np.zeros_like(blank.coef_)
    predictions = Learner(source, tracker=blank).predict_all()
    questions = ask(annotations=NOTHING, of=predictions, seed=1)
    assert {question.reasons for question in questions} == {(Reason.RANDOM,)}
    assert questions != ask(annotations=NOTHING, of=predictions, seed=2)
