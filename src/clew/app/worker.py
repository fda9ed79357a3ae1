"""The process that learns: it follows the newest annotations, and renews predictions, the nearest first.

It works in short turns and looks for news between them. A thread of its own reads the pipe, so that the server never
waits for it, and ends the process as soon as the server is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from time import monotonic

import numpy as np

from clew.annotation.learner import Learner
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
from clew.app.predictor import marks_of
from clew.errors import ClewError
from clew.tracking.events import Annotations, EventTable
from clew.tracking.stream import Step

LEARN_SECONDS = 1.0
"""That learning may take; what is left then is learned with the next answer."""
TURN = 0.15
"""Seconds of predictions between two looks for news."""
QUESTIONS = 60
"""That are kept ready: a fast hand must not run out of them while the next are thought of."""
MAX_BEHIND = 8
"""Answers after which new questions are due: learning from still newer answers then waits for them."""
NICENESS = 5
"""The page comes first."""


def work(connection: Connection, subjects: Sequence[Subject]) -> None:
    """The process's main function; ends when the connection does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server says when to end
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICENESS)
    inbox = Inbox(connection)
    pupils = [Pupil(number, subject) for number, subject in enumerate(subjects)]
    while True:
        for reply in turn(pupils, inbox):
            connection.send(reply)


def turn(pupils: Sequence[Pupil], inbox: Inbox) -> Iterator[Reply]:
    """What is most urgent: an export, then a turn of the movie that was annotated last, then of others."""
    for command in inbox.take():
        if isinstance(command, Export):
            yield from pupils[command.learn.movie].export(command)
        else:
            pupils[command.movie].take(command)
    for pupil in sorted(pupils, key=lambda pupil: -pupil.urgency):
        if pupil.is_behind:
            yield from pupil.turn()
            return
    inbox.wait()


class Inbox:
    """Commands as they come."""

    def __init__(self, connection: Connection, gone: Callable[[], None] = lambda: os._exit(0)) -> None:
        self._connection, self._gone = connection, gone
        self._commands: list[Command] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                command = self._connection.recv()
            except (EOFError, OSError):
                self._gone()
                return
            with self._news:
                self._commands.append(command)
                self._news.notify()

    def take(self) -> list[Command]:
        """What came since the last look; of several lessons of a movie, the newest alone."""
        with self._news:
            commands, self._commands = self._commands, []
        newest = {command.movie: command for command in commands if isinstance(command, Learn)}
        return [*newest.values(), *(command for command in commands if isinstance(command, Export))]

    def wait(self) -> None:
        """Until there is something to take."""
        with self._news:
            self._news.wait_for(lambda: bool(self._commands))


class Pupil:
    """One movie in the worker: its learner, and what is still to be done about the newest annotations."""

    def __init__(self, number: int, subject: Subject) -> None:
        self.number, self.subject = number, subject
        self.urgency = 0.0
        self.lesson = Learn(number, -1, Annotations.of(EventTable.empty()), 0)
        self.taken = self.lesson
        """The lesson that the learner has had."""
        self.asked = self.estimated = -1
        self.due: list[int] = []
        """Frames whose predictions are to be renewed, the most urgent last."""
        self.sent: dict[int, Step] = {}
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """Made when it is first needed, for that takes a moment."""
        if self._learner is None:
            self._learner = Learner(self.subject.source, tracker=self.subject.tracker, seconds=LEARN_SECONDS)
        return self._learner

    @property
    def is_behind(self) -> bool:
        """Whether anything is left to do."""
        return self.lesson.revision >= 0 and min(self.taken.revision, self.asked, self.estimated) < self.lesson.revision

    def take(self, lesson: Learn) -> None:
        """Be told of new annotations."""
        self.lesson, self.urgency = lesson, monotonic()

    def turn(self) -> Iterator[Reply]:
        """The next short piece of work."""
        try:
            patient = 0 <= self.asked <= self.taken.revision - MAX_BEHIND
            if self.taken.revision < self.lesson.revision and not patient:
                yield self._learn()
            elif self.due:
                yield from self._predict()
            elif self.asked < self.taken.revision:
                yield self._ask()
            else:
                yield from self._estimate()
        except ClewError as error:
            yield self._give_up(str(error))
        except Exception as error:  # one movie's trouble is not to end the work on the others
            yield self._give_up(f"unexpected {type(error).__name__}: {error}")

    def _give_up(self, problem: str) -> Failed:
        """Leave this revision; the next answer is a new beginning."""
        self.taken, self.due = self.lesson, []
        self.asked = self.estimated = self.lesson.revision
        return Failed(self.number, self.lesson.revision, problem)

    def _learn(self) -> Learned:
        lesson = self.lesson
        self.learner.learn(lesson.annotations)
        self.taken = lesson
        frames = np.arange(max(self.subject.source.n_frames - 1, 0))
        self.due = frames[np.argsort(-np.abs(frames - lesson.frame), kind="stable")].tolist()
        return Learned(self.number, lesson.revision, self.learner.version, self.learner.w)

    def _predict(self) -> Iterator[Predicted]:
        """Renew predictions for a moment; those that are the same as before are not sent again."""
        steps, until = [], monotonic() + TURN
        events = self.taken.annotations.events
        while self.due and monotonic() < until:
            frame = self.due.pop()
            step = self.learner.step(frame)
            if self.sent.get(frame) is not step:
                self.sent[frame] = step
                steps.append((frame, marks_of(self.taken.annotations[events.frame == frame]), step))
        if steps:
            yield Predicted(self.number, self.learner.version, tuple(steps))

    def _ask(self) -> Asked:
        revision = self.taken.revision
        rng = np.random.default_rng(revision)
        questions = STRATEGIES[DEFAULT](self.learner, self.taken.annotations, QUESTIONS, rng)
        self.asked = revision
        return Asked(self.number, revision, tuple(questions))

    def _estimate(self) -> Iterator[Estimated]:
        self.estimated = self.taken.revision
        found = self.learner.estimated_error()
        if found is not None:
            yield Estimated(self.number, len(self.taken.annotations), *map(float, found))

    def export(self, export: Export) -> Iterator[Reply]:
        """Write a file, after learning from the annotations that it is to follow from."""
        try:
            if self.taken.revision < export.learn.revision:
                self.take(export.learn)
                yield self._learn()
            write_export(export.kind, export.path, self.learner, self.subject.source)
            problem = None
        except Exception as error:
            problem = str(error) if isinstance(error, ClewError) else f"unexpected {type(error).__name__}: {error}"
        yield Exported(export.job, problem)
