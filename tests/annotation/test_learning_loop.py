"""The learning process and the loop around it."""

import asyncio
import contextlib
import os
import signal

import numpy as np
import pytest

from clew.annotation.learner import Learner
from clew.annotation.learning_loop import LearningLoop
from clew.annotation.predictions import Predictions
from clew.annotation.worker import Fit, LearningTask, LearningWorker
from clew.tracking.events import Annotations, Event, EventTable
from tests.app.conftest import no_loop

NOTHING = Annotations.of(EventTable.empty())
PATIENCE = 120


@pytest.fixture(autouse=True)
def own_loop():
    with no_loop():
        yield


@pytest.fixture(scope="module")
def learner(source):
    return Learner(source)


def make_predictions(learner):
    return Predictions(learner.pairs, learner.initial)


def make_task(learner, annotations, revision=0):
    return LearningTask(
        revision, annotations, learner.pairs.profile, (), learner.tracker
    )


class Recorder:
    """Collects what a loop tells, and waits for news of a kind."""

    def __init__(self):
        self.news = []
        self.arrival = asyncio.Event()

    def __call__(self, event, data):
        self.news.append((event, data))
        self.arrival.set()

    async def wait_for(self, kind):
        async with asyncio.timeout(PATIENCE):
            while kind not in [event for event, _ in self.news]:
                self.arrival.clear()
                await self.arrival.wait()

    def frames(self):
        return [
            frame
            for event, data in self.news
            if event == "predictions"
            for frame in data["frames"]
        ]


class LocalWorker:
    """Does the work of the process in this one, as the test allows."""

    is_given_up = False

    def __init__(self, learner, fits=()):
        self.learner = learner
        self.fits = list(fits)
        self.limits = []
        self.interrupted = 0

    async def fit(self, number, task, time_limit, can_interrupt, priority):
        self.limits.append(time_limit)
        await asyncio.sleep(0)
        self.learner.annotate(task.annotations)
        if self.fits:
            return self.fits.pop(0)
        return Fit(self.learner.initial, True)

    async def predict(self, number, frames, version, seconds, priority):
        await asyncio.sleep(0)
        return [self.learner.predict(frames[0], version)]

    def interrupt(self):
        self.interrupted += 1


async def run_until(loop, recorder, kind):
    running = asyncio.create_task(loop.run())
    try:
        await recorder.wait_for(kind)
    finally:
        running.cancel()


def test_process_learns_predicts_and_ends(source, learner, simulated):
    async def scenario():
        recorder = Recorder()
        worker = LearningWorker([source])
        predictions = make_predictions(learner)
        loop = LearningLoop(
            0, worker, predictions, make_task(learner, NOTHING), recorder
        )
        loop.update(make_task(learner, NOTHING), (6,))
        running = asyncio.create_task(loop.run())
        try:
            await recorder.wait_for("questions")
            first = recorder.frames()
            assert (first[0], sorted(first)) == (6, list(range(13)))
            recorder.news.clear()
            loop.update(make_task(learner, simulated.some, 1), (3,))
            await recorder.wait_for("questions")
            assert recorder.frames()[0] == 3
            assert loop.is_learned
            assert (loop.fit_revision, predictions.weights.version > 0) == (1, True)
            prediction = predictions.by_frame[3]
            known = simulated.some.select_frame(3)
            happened = known.events.row_keys()[known.happened]
            assert np.isin(happened, prediction.events.row_keys()).all()
            assert prediction.assignment is None  # it would take long to send
            assert np.isfinite(prediction.step_length).any()

            recorder.news.clear()
            os.kill(worker.pid, signal.SIGKILL)
            loop.update(make_task(learner, NOTHING, 2), (0,))
            await recorder.wait_for("questions")  # another process took over
            assert loop.fit_revision == 2
        finally:
            running.cancel()
            worker.close()

    asyncio.run(scenario())


def test_time_limit_grows_until_the_fit_converges(learner):
    async def scenario():
        recorder = Recorder()
        w = learner.initial
        fits = [Fit(w * 2, False), Fit(w * 3, False), Fit(w * 4, True)]
        worker = LocalWorker(learner, fits)
        task = make_task(learner, NOTHING)
        loop = LearningLoop(0, worker, make_predictions(learner), task, recorder)
        await run_until(loop, recorder, "questions")
        first, *later = worker.limits
        assert later == [2 * first, 4 * first]
        assert np.array_equal(loop.predictions.weights.values, w * 4)
        assert loop.is_learned
        assert not loop.is_busy

    asyncio.run(scenario())


def test_new_answer_comes_before_old_predictions(learner, simulated):
    async def scenario():
        recorder = Recorder()
        worker = LocalWorker(learner)
        task = make_task(learner, NOTHING)
        loop = LearningLoop(0, worker, make_predictions(learner), task, recorder)
        answered = []

        def listen(event, data):
            recorder(event, data)
            if event == "predictions" and not answered:
                answered.append(len(recorder.frames()))
                loop.update(make_task(learner, simulated.some, 1), (9,))

        loop.listener = listen
        await run_until(loop, recorder, "questions")
        frames = recorder.frames()
        assert answered == [1]
        assert frames[1:6] in ([9, 8, 10, 7, 11], [9, 10, 8, 11, 7])
        assert set(frames) == set(range(13))
        assert worker.interrupted == 1

    asyncio.run(scenario())


def test_trouble_with_a_movie_is_reported_and_passes(learner):
    async def scenario():
        recorder = Recorder()
        worker = LocalWorker(learner)
        task = make_task(learner, NOTHING)
        loop = LearningLoop(0, worker, make_predictions(learner), task, recorder)
        fit = worker.fit

        async def fail(*_):
            raise ZeroDivisionError("none")

        worker.fit = fail
        running = asyncio.create_task(loop.run())
        await recorder.wait_for("problem")
        assert "ZeroDivisionError" in recorder.news[-1][1]["problem"]
        assert not loop.is_busy
        worker.fit = fit
        loop.update(make_task(learner, NOTHING, 1), (0,))
        await recorder.wait_for("questions")
        running.cancel()

    asyncio.run(scenario())


def test_process_that_always_dies_is_given_up(source, learner):
    async def scenario():
        states = []
        worker = LearningWorker([source], lambda *state: states.append(state))
        recorder = Recorder()
        task = make_task(learner, NOTHING)
        loop = LearningLoop(0, worker, make_predictions(learner), task, recorder)
        running = asyncio.create_task(loop.run())
        async with asyncio.timeout(PATIENCE):
            while not worker.is_given_up:
                if worker.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)
                await asyncio.sleep(0.05)
        assert [is_alive for is_alive, _ in states if not is_alive] == [False] * 3
        assert "3 times in a row" in states[-1][1]
        running.cancel()
        worker.close()

    asyncio.run(scenario())


def test_movie_annotated_last_comes_first():
    async def scenario():
        worker = LearningWorker([])
        order = []

        async def call(priority):
            async with worker._turns.take(-priority):
                order.append(priority)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(call(priority) for priority in (1.0, 2.0, 3.0)))
        assert order == [1.0, 3.0, 2.0]  # the first found it free

    asyncio.run(scenario())


def test_fit_that_is_cut_short_continues_to_the_same_result(source, simulated):
    learner = Learner(source)
    learner.learn(simulated.some, time_limit=1e-9)
    assert learner.is_cut_short
    learner.learn(simulated.some, is_interrupted=lambda: True)
    assert learner.is_cut_short
    learner.learn(simulated.some)
    assert not learner.is_cut_short
    whole = Learner(source)
    whole.learn(simulated.some)
    assert learner.result.objective == pytest.approx(whole.result.objective, rel=1e-2)


def test_kinds_of_events_that_cannot_happen_are_not_predicted(source, simulated):
    learner = Learner(source)
    moves = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
    learner.use_events(moves)
    learner.learn(simulated.some)
    kinds = {int(kind) for one in learner.predict_all() for kind in one.events.event}
    happened = simulated.some.events.event[simulated.some.happened]
    assert kinds <= {int(event) for event in moves} | set(happened.tolist())
