"""Questions with pictures, answered in a loop."""

import time

import imagecodecs
import pytest

from clew.annotation.annotator import Annotator
from clew.annotation.notebook import QuestionLoop, annotate
from clew.annotation.session import MovieSession
from clew.errors import InputError
from tests.annotation.test_annotator import WorkerInThread


@pytest.fixture(params=["simulated", "simulated_3d"])
def questions(request, tmp_path):
    from clew.tracking.measurement.measure import measure_movie

    movie = request.getfixturevalue(request.param).movie
    source = measure_movie(movie, cache=None, n_jobs=1)
    session = MovieSession.open(0, movie, source, tmp_path / "a.clewdb")

    def make_worker(movies, on_status):
        worker = WorkerInThread(movies, on_status)
        worker.session = session
        return worker

    with QuestionLoop(Annotator(session, make_worker=make_worker)) as questions:
        yield questions


def test_loop_asks_until_it_is_left(questions):
    facts = set()
    for question in questions:
        facts.add(question.asked.question.fact)
        question.yes()
        if questions.annotator.n_answers == 3:
            break
    assert len(facts) == 3
    assert facts <= set(questions.build_lineage().events)
    questions.undo()
    assert questions.annotator.n_answers == 2


def test_predictions_completed_during_a_look_do_not_end_the_loop():
    class TrackedDuringTheFirstLook:
        is_tracked = False

        def list_questions(self):
            if self.is_tracked:
                return ["question"]
            self.is_tracked = True
            return []

    question = next(iter(QuestionLoop(TrackedDuringTheFirstLook())))
    assert question.asked == "question"


def test_question_has_a_picture_of_both_frames(questions):
    question = next(iter(questions))
    picture = imagecodecs.png_decode(question._repr_png_())
    assert picture.shape == question.draw().shape
    colors = {tuple(color) for color in picture.reshape(-1, 3).tolist()}
    assert ((0, 208, 255) in colors) == bool(question.sources)
    assert ((255, 176, 0) in colors) == bool(question.targets)


def test_unknown_event_is_rejected(questions):
    question = next(iter(questions))
    with pytest.raises(InputError, match="expected one of move"):
        question.say("explode", [], [])


def test_movie_in_memory_needs_a_store(simulated):
    with pytest.raises(InputError, match="store is missing"):
        annotate(simulated.movie)


@pytest.mark.slow
def test_learning_process_learns_from_the_loop(simulated, tmp_path):
    from clew.tracking import annotate

    with annotate(simulated.path, tmp_path / "a.clewdb") as questions:
        next(iter(questions)).yes()
        loop = questions.annotator.session.loop
        deadline = time.monotonic() + 120
        while not loop.is_learned:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert questions.annotator.session.predictions.weights.version > 0
