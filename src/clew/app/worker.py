"""The process that learns: it follows the newest annotations, and renews predictions, the nearest first.

It works in short turns and looks for news between them. A thread of its own reads the pipe, so that the server never
waits for it, and ends the process as soon as the server is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import numpy as np

from clew.annotation.queries import DEFAULT, STRATEGIES
from clew.app.exports import write_export
from clew.app.messages import (
    Asked,
    Command,
    Estimated,
    Export,
    Exported,
    Failed,
    Learn,
    Learned,
    Predicted,
    Reply,
    Subject,
)
from clew.app.stale_learner import RecentLearner
from clew.errors import ClewError
from clew.tracking.events import Annotations, EventTable

LEARN_SECONDS = 0.8
"""That learning may take before predictions are renewed; what is left then is learned with the next answer, or if none
comes, next."""
TURN = 0.15
"""Seconds of predictions between two looks for news."""
NEAR = 2
"""Frame pairs to both sides of the last answer that are predicted anew right after what the person sees."""
QUESTIONS = 40
"""That are kept ready: a fast hand must not run out of them while the next are thought of."""
MAX_BEHIND = 6
"""Lessons after which new questions are due, even if others wait and not all predictions have been renewed."""
IDLE = 1.0
"""Seconds without an answer, after which there is time to estimate the error."""
LAST_SECONDS = 0.3
"""To come to an end when the server has."""
NICENESS = 10
"""The page comes first."""


def work(connection: Connection, subjects: Sequence[Subject]) -> None:
    """The process's main function; ends when the connection does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server says when to end
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICENESS)
    inbox = Inbox(connection)
    pupils = [Pupil(number, subject) for number, subject in enumerate(subjects)]
    with contextlib.suppress(BrokenPipeError):
        while not inbox.ended:
            for reply in turn(pupils, inbox):
                connection.send(reply)


def turn(pupils: Sequence[Pupil], inbox: Inbox) -> Iterator[Reply]:
    """What is most urgent: an export, then a turn of the movie that was annotated last, then of others."""
    for command in inbox.take():
        if isinstance(command, Export):
            yield from pupils[command.learn.movie].export(command)
        else:
            pupils[command.movie].take(command)
    by_urgency = sorted(pupils, key=lambda pupil: -pupil.urgency)
    if behind := [pupil for pupil in by_urgency if pupil.is_behind]:
        yield from behind[0].turn()
        return
    curious = [pupil for pupil in by_urgency if pupil.estimated < pupil.taken.revision]
    rest = 0.0 if curious and curious[0].is_estimating else IDLE
    if not inbox.wait(rest if curious else None) and curious:
        yield from curious[0].estimate()


class Inbox:
    """Commands as they come."""

    def __init__(self, connection: Connection) -> None:
        self.ended = False
        """Whether the server is gone."""
        self._connection = connection
        self._commands: list[Command] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                command = self._connection.recv()
            except (EOFError, OSError):
                with self._news:
                    self.ended = True
                    self._news.notify()
                time.sleep(LAST_SECONDS)
                os._exit(0)  # whatever it was busy with
            with self._news:
                self._commands.append(command)
                self._news.notify()

    def take(self) -> list[Command]:
        """What came since the last look; of several lessons of a movie, the newest alone."""
        with self._news:
            commands, self._commands = self._commands, []
        newest = {command.movie: command for command in commands if isinstance(command, Learn)}
        return [*newest.values(), *(command for command in commands if isinstance(command, Export))]

    def wait(self, seconds: float | None) -> bool:
        """Until there is something to take, but not for longer; whether there is."""
        with self._news:
            return self._news.wait_for(lambda: bool(self._commands) or self.ended, seconds)


class Pupil:
    """One movie in the worker: its learner, and what is still to be done about the newest annotations."""

    def __init__(self, number: int, subject: Subject) -> None:
        self.number, self.subject = number, subject
        self.urgency = 0.0
        self.lesson = Learn(number, -1, Annotations.of(EventTable.empty()), (0,))
        self.taken = self.lesson
        """The lesson that the learner has had."""
        self.asked = self.estimated = -1
        """The revisions of the last questions and of the last estimate."""
        self.near: list[int] = []
        self.due: list[int] = []
        """Frames whose predictions are to be renewed, the most urgent last."""
        self.unasked, self.renewed = 0, False
        """Lessons since the last questions, and whether predictions were renewed since."""
        self.unfinished = False
        """Whether learning was cut short."""
        self._learner: RecentLearner | None = None
        self._estimation: Iterator[tuple[float, float] | None] | None = None

    @property
    def learner(self) -> RecentLearner:
        """Made when it is first needed, for that takes a moment."""
        if self._learner is None:
            subject = self.subject
            self._learner = RecentLearner(subject.source, tracker=subject.tracker, seconds=LEARN_SECONDS)
        return self._learner

    @property
    def is_behind(self) -> bool:
        """Whether there is anything to do that does not wait until the person rests."""
        told = self.lesson.revision > min(self.taken.revision, self.asked)
        return told or bool(self.due) or self.renewed or self.unfinished

    def take(self, lesson: Learn) -> None:
        """Be told of new annotations; an estimate that is under way would be of the old ones."""
        self.lesson, self.urgency, self._estimation = lesson, time.monotonic(), None

    def turn(self) -> Iterator[Reply]:
        """The next short piece of work."""
        try:
            if self.unasked >= MAX_BEHIND:  # a fast hand gives no rest in which to think of new questions
                yield self._ask()
            elif self.taken.revision < self.lesson.revision:
                yield self._learn()
            elif self.near:
                yield self._predict(self.near)
            elif self.unfinished:  # nobody answers at the moment: there is time to learn to the end
                yield self._learn()
            elif not self.due:
                yield self._ask()
            else:
                yield self._predict(self.due)
        except ClewError as error:
            yield self._give_up(str(error))
        except Exception as error:  # one movie's trouble is not to end the work on the others
            yield self._give_up(f"unexpected {type(error).__name__}: {error}")

    def _give_up(self, problem: str) -> Failed:
        """Leave this revision; the next answer is a new beginning."""
        self.taken, self.near, self.due, self.renewed, self.unfinished = self.lesson, [], [], False, False
        self.asked = self.estimated = self.lesson.revision
        return Failed(self.number, self.lesson.revision, problem)

    def _learn(self) -> Learned:
        """Learn, and put what the person sees before what is near it, then what already waited, then all others."""
        lesson = self.lesson
        self.unasked += lesson.revision > self.taken.revision
        self.learner.learn(lesson.annotations)
        self.taken, self.unfinished = lesson, self.learner.is_cut_short
        frames = np.arange(len(self.learner.pairs))
        seen = [frame for frame in dict.fromkeys(lesson.frames) if frame < len(frames)]
        nearness = -np.abs(frames - lesson.frames[0])
        near = frames[np.argsort(nearness, kind="stable")][-2 * NEAR - 1 :]
        self.near = [*(frame for frame in near.tolist() if frame not in seen), *reversed(seen)]
        order = frames[np.lexsort((nearness, np.isin(frames, self.due)))]
        self.due = order[~np.isin(order, self.near)].tolist()
        return Learned(self.number, lesson.revision, self.learner.version, self.learner.w)

    def _predict(self, frames: list[int]) -> Predicted:
        """Renew predictions for a moment."""
        steps, until = [], time.monotonic() + TURN
        while frames:
            made = self.learner.renew(frame := frames.pop())
            steps.append((frame, made.marks, made.step))
            if time.monotonic() > until:
                break
        self.renewed = True
        return Predicted(self.number, self.learner.version, tuple(steps))

    def _ask(self) -> Asked:
        revision = self.taken.revision
        rng = np.random.default_rng(revision)
        questions = STRATEGIES[DEFAULT](self.learner, self.taken.annotations, QUESTIONS, rng)
        self.asked, self.unasked, self.renewed = revision, 0, False
        return Asked(self.number, revision, tuple(questions))

    @property
    def is_estimating(self) -> bool:
        """Whether an estimate of the error is under way."""
        return self._estimation is not None

    def estimate(self) -> Iterator[Reply]:
        """A step towards the error, and in the end the error itself, if enough is annotated to tell."""
        try:
            if self._estimation is None:
                self._estimation = self.learner.error_by_fold()
            found = next(self._estimation)
        except StopIteration:
            self.estimated, self._estimation = self.taken.revision, None
        except Exception as error:
            self.estimated, self._estimation = self.taken.revision, None
            yield Failed(self.number, self.taken.revision, f"the error could not be estimated ({error})")
        else:
            if found is not None:
                yield Estimated(self.number, len(self.taken.annotations), *map(float, found))

    def export(self, export: Export) -> Iterator[Reply]:
        """Write a file, after learning from the annotations that it is to follow from."""
        try:
            if self.taken.revision < export.learn.revision:
                self.take(export.learn)
                yield self._learn()
            while self.unfinished:
                yield self._learn()
            write_export(export.kind, export.path, self.learner, self.subject.source)
            problem = None
        except Exception as error:
            problem = str(error) if isinstance(error, ClewError) else f"unexpected {type(error).__name__}: {error}"
        yield Exported(export.job, problem)
