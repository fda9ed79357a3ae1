"""A session without a web server: questions, answers, mask edits, undo, exports."""

import asyncio
import time

import numpy as np
import pytest

from clew.annotation.annotator import Annotator, name_event
from clew.annotation.answers import Answer
from clew.annotation.changes import StaleMasks
from clew.annotation.files import ExportKind
from clew.annotation.questions import NO_FILTER
from clew.annotation.worker import Fit
from clew.errors import InputError
from clew.tracking.events import Event


class WorkerInThread:
    """Stands for the learning process: initial weights, predictions by the session."""

    is_given_up = False

    def __init__(self, movies, on_status):
        on_status(True, "")
        self.fits = 0

    async def fit(self, number, task, *_):
        self.fits += 1
        return Fit(self.session.predictions.weights.values, True)

    async def predict(self, number, frames, version, *_):
        annotations = self.session.state.annotations
        return [
            await asyncio.to_thread(
                self.session.predictions.solve, t, annotations.select_frame(t)
            )
            for t in frames
        ]

    def interrupt(self):
        pass

    def close(self):
        pass


@pytest.fixture
def annotator(simulated, source, tmp_path):
    from clew.annotation.session import MovieSession

    session = MovieSession.open(0, simulated.movie, source, tmp_path / "a.clewdb")

    def make_worker(movies, on_status):
        worker = WorkerInThread(movies, on_status)
        worker.session = session
        return worker

    with Annotator(session, make_worker=make_worker) as annotator:
        deadline = time.monotonic() + 60
        while session.is_learning:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield annotator


def test_questions_are_those_of_the_session(annotator):
    asked = annotator.list_questions(5)
    ranked = annotator.session.rank_questions(5, NO_FILTER)
    assert [one.question for one in asked] == ranked


def test_answer_holds_until_it_is_undone(annotator):
    (asked,) = annotator.list_questions()
    annotator.confirm(asked)
    assert annotator.n_answers == 1
    assert annotator.list_questions()[0].question.fact != asked.question.fact
    outcome = annotator.undo()
    assert outcome.entry.change == asked.answer
    assert annotator.n_answers == 0
    annotator.redo()
    assert annotator.n_answers == 1


def test_denied_event_is_not_predicted(annotator):
    (asked,) = annotator.list_questions()
    annotator.deny(asked)
    prediction = annotator.session.predictions.by_frame[asked.question.frame]
    assert asked.question.fact not in set(prediction.events)


def test_skipped_question_is_not_asked_again(annotator):
    first, second = annotator.list_questions(2)
    annotator.skip(first)
    facts = {one.question.fact for one in annotator.list_questions(10)}
    assert first.question.fact not in facts
    assert second.question.fact in facts


def test_answer_to_changed_masks_is_rejected(annotator):
    asked = annotator.list_questions(50)[-1]
    frame = asked.question.frame
    masks = annotator.session.movie.label(frame)
    pixels = np.flatnonzero(masks.reshape(-1) == masks.max())[:3]
    annotator.edit_masks(frame, lambda state, _: state.paint(frame, pixels, 0))
    with pytest.raises(StaleMasks):
        annotator.confirm(asked)


def test_painted_pixels_are_in_the_movie_until_they_are_undone(annotator):
    before = annotator.session.movie.label(3)
    pixels = np.flatnonzero(before.reshape(-1) == before.max())
    annotator.edit_masks(3, lambda state, _: state.paint(3, pixels, 0))
    assert annotator.session.movie.label(3).max() < before.max()
    annotator.undo()
    np.testing.assert_array_equal(annotator.session.movie.label(3), before)


def test_lineage_has_the_answers(annotator):
    (asked,) = annotator.list_questions()
    annotator.confirm(asked)
    lineage = annotator.build_lineage()
    assert asked.question.fact in set(lineage.events)


def test_tracks_are_exported(annotator, tmp_path):
    path = tmp_path / "tracks.zip"
    annotator.export(ExportKind.CSV, path)
    assert path.stat().st_size > 1000


def test_impossible_answer_is_rejected(annotator):
    with pytest.raises(InputError, match="no label 9999"):
        annotator.say(Answer.of(0, Event.MOVE, [9999], [1]))
    assert annotator.n_answers == 0


@pytest.mark.parametrize(
    ("cells", "event"),
    [
        ((1, 1), Event.MOVE),
        ((1, 2), Event.DIVIDE),
        ((2, 1), Event.MERGE),
        ((0, 1), Event.APPEAR),
        ((1, 0), Event.DISAPPEAR),
        ((0, 0), None),
        ((2, 2), None),
    ],
)
def test_event_is_named_by_its_numbers_of_cells(cells, event):
    assert name_event(*cells) == event
