"""Lessons: a window is the pair's own problem with the rest held fixed; anchors give way to answers."""

import numpy as np
import pytest

from clew.annotation import training_windows as module
from clew.annotation.learner import Learner
from clew.annotation.training_windows import Lessons
from clew.tracking.events import Annotations, EventTable
from clew.tracking.measurement.measure import measure
from clew.tracking.model.assignment import assign, n_detections, takes_part

NOTHING = Annotations.of(EventTable.empty())


@pytest.fixture(scope="module")
def source(simulated):
    return measure(simulated.movie, cache=None, n_jobs=1)


@pytest.fixture
def small(monkeypatch):
    """Windows that are smaller than the frames of the movie."""
    monkeypatch.setattr(module, "AROUND", 5)
    monkeypatch.setattr(module, "ANCHORED_AROUND", 9)


def made(source):
    learner = Learner(source)
    return learner, Lessons(learner.first, len(learner.pairs), learner.pair)


def here(annotations, frame, n=None):
    return annotations[annotations.events.frame == frame][:n]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
def test_a_windows_problem_is_the_pairs_with_the_guess_outside_held_fixed(source, simulated, seed):
    rng = np.random.default_rng(seed)
    learner, lessons = made(source)
    frame = int(rng.integers(len(learner.pairs)))
    annotations = here(simulated.known, frame, 2)
    lesson = lessons.lesson(frame, annotations, annotations)
    pair, window = lesson.pair, lesson.window
    assert 0 < len(window.rows) < len(pair.candidates)
    guess = assign(pair.candidates, pair.scores(learner.first)).chosen
    scores = pair.scores(learner.first) + rng.normal(scale=2.0, size=len(pair.candidates))
    outside = np.setdiff1d(guess, window.rows)
    whole = assign(pair.candidates, scores, dict.fromkeys(outside.tolist(), 1))
    part = assign(window.candidates, scores[window.rows])
    assert part.value + scores[outside].sum() == pytest.approx(whole.value)
    assert set(window.rows[part.chosen]) | set(outside) == set(whole.chosen)


@pytest.mark.usefixtures("small")
def test_no_predicted_event_leads_out_of_a_window_and_all_that_is_annotated_is_in_it(source, simulated):
    learner, lessons = made(source)
    for frame in range(len(learner.pairs)):
        annotations = here(simulated.known, frame, 3)
        lesson = lessons.lesson(frame, annotations, annotations)
        cells = takes_part(lesson.pair.candidates)
        inside = np.zeros(n_detections(lesson.pair.candidates) + 1, dtype=bool)
        inside[cells[lesson.window.rows]] = True
        guess = cells[assign(lesson.pair.candidates, lesson.pair.scores(learner.first)).chosen]
        for event in guess:
            assert len(set(inside[event[event >= 0]])) == 1
        assert set(lesson.pair.annotated(annotations)) <= set(lesson.window.rows)
        assert len(lesson.known) >= len(annotations)


@pytest.mark.usefixtures("small")
def test_what_is_told_comes_before_what_was_known(source, simulated):
    learner, lessons = made(source)
    frame = lessons.anchored[3]
    anchors = lessons.lesson(frame, NOTHING, NOTHING)
    assert anchors.known
    assert all(anchors.known.values())
    sure = anchors.window.rows[list(anchors.known)]
    denied = Annotations.of(anchors.pair.candidates.table(anchors.pair.a, anchors.pair.b, sure[:1]), [False])
    told = lessons.lesson(frame, denied, denied)
    assert told.known[told.window.known({int(sure[0]): 0}).popitem()[0]] == 0
    # something else happened to the cell: the anchor of that cell is gone, and an output agrees with all that is known
    other = here(simulated.known, frame, 4)
    lesson = lessons.lesson(frame, other, other)
    assert assign(lesson.window.candidates, lesson.pair.scores(learner.first)[lesson.window.rows], lesson.known)


def test_more_may_be_told_than_was_learned_from_last(source, simulated):
    learner = Learner(source)
    frames = simulated.known.events.frame
    learner.learn(simulated.known[frames == 2])
    more = simulated.known[(frames == 2) | (frames == 5)]
    other = Learner(source)
    other.annotate(more)
    np.testing.assert_allclose(learner.weights_from(more), other.weights_from(more))


def test_half_of_what_the_first_weights_are_surest_of_counts(source):
    learner, lessons = made(source)
    counted = predicted = 0
    for frame in lessons.anchored:
        lesson = lessons.lesson(frame, NOTHING, NOTHING)
        counted += len(lesson.known)
        predicted += len(assign(lesson.pair.candidates, lesson.pair.scores(learner.first)).chosen)
    assert 0.4 * predicted < counted < 0.6 * predicted


def test_without_first_weights_there_is_nothing_to_remember_and_the_whole_pair_counts(source, simulated):
    learner = Learner(source)
    lessons = Lessons(np.zeros_like(learner.first), len(learner.pairs), learner.pair)
    assert not lessons.anchored
    annotations = here(simulated.known, 2, 3)
    lesson = lessons.lesson(2, annotations, annotations)
    assert len(lesson.window.rows) == len(lesson.pair.candidates)
    assert len(lesson.known) == len(annotations)


@pytest.mark.usefixtures("small")
def test_an_answer_changes_the_lesson_of_its_own_pair_alone(source, simulated):
    learner, some = Learner(source), simulated.some
    learner.learn(some[:-1])
    before = dict(learner._programs)
    learner.learn(some)
    changed = [frame for frame, (window, _) in learner._programs.items() if before.get(frame, [None])[0] is not window]
    assert set(changed) <= {int(some.events.frame[-1])}


def test_the_same_annotations_lead_to_the_same_weights_and_none_back_to_the_first(source, simulated):
    learner = Learner(source)
    learner.learn(simulated.some)
    once = learner.w
    learner.learn(simulated.some[:5])
    learner.learn(NOTHING)
    np.testing.assert_array_equal(learner.w, learner.first)
    learner.learn(simulated.some)
    np.testing.assert_allclose(learner.w, once, rtol=1e-6, atol=1e-9)


def test_the_error_comes_fold_by_fold(source, simulated):
    learner = Learner(source)
    learner.learn(simulated.some)
    weights = learner.w
    *steps, error = learner.error_by_fold()
    assert steps == [None] * 3
    assert error == learner.estimated_error()
    np.testing.assert_array_equal(learner.w, weights)
    learner.annotate(simulated.some[:5])
    assert learner.estimated_error() is None
