"""The process that learns: it follows the newest annotations, and renews predictions, the nearest first.

It works in short turns and looks for new annotations between them. A thread of its own reads the pipe, so that the
server never waits for it, and ends the process as soon as the server is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np

from clew.annotation.edited_movie import Edits, changed_frames, edited_source
from clew.annotation.learner import Learner
from clew.annotation.questions import DEFAULT, STRATEGIES
from clew.app.messages import (
    Asked,
    Failed,
    Learn,
    Learned,
    Predicted,
    Reply,
    WorkerMovie,
)
from clew.app.settings import WORKER, WorkerSettings
from clew.errors import ClewError
from clew.tracking.events import Annotations, EventTable


def work(
    connection: Connection,
    movies: Sequence[WorkerMovie],
    settings: WorkerSettings = WORKER,
) -> None:
    """The process's main function; ends when the connection does."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the server says when to end
    with contextlib.suppress(AttributeError, OSError):
        os.nice(settings.niceness)
    inbox = Inbox(connection, settings.last_seconds)
    workers = [
        MovieWorker(number, movie, settings) for number, movie in enumerate(movies)
    ]
    with contextlib.suppress(BrokenPipeError):
        while not inbox.ended:
            for reply in turn(workers, inbox):
                connection.send(reply)


def turn(workers: Sequence[MovieWorker], inbox: Inbox) -> Iterator[Reply]:
    """One short piece of work of the movie that was annotated last and has some; if none has, wait for news."""
    for command in inbox.take():
        workers[command.movie].take(command)
    by_urgency = sorted(workers, key=lambda worker: -worker.annotated_at)
    for worker in by_urgency:
        if worker.is_behind:
            yield from worker.turn()
            return
    inbox.wait()


class Inbox:
    """Commands as they come."""

    def __init__(self, connection: Connection, last_seconds: float) -> None:
        self.ended = False
        """Whether the server is gone."""
        self._connection, self._last_seconds = connection, last_seconds
        self._newest: dict[int, Learn] = {}
        self._arrival = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                command: Learn = self._connection.recv()
            except (EOFError, OSError):
                with self._arrival:
                    self.ended = True
                    self._arrival.notify()
                time.sleep(self._last_seconds)
                os._exit(0)  # whatever it was busy with
            with self._arrival:
                self._newest[command.movie] = command
                self._arrival.notify()

    def take(self) -> list[Learn]:
        """What came since the last look: the newest command of each movie."""
        with self._arrival:
            commands, self._newest = self._newest, {}
        return list(commands.values())

    def wait(self) -> None:
        """Until there is something to take."""
        with self._arrival:
            self._arrival.wait_for(lambda: bool(self._newest) or self.ended)


class MovieWorker:
    """One movie in the worker: its learner, and what is still to be done about the newest annotations."""

    def __init__(
        self, number: int, movie: WorkerMovie, settings: WorkerSettings = WORKER
    ) -> None:
        self.number, self.settings = number, settings
        self.annotated_at = 0.0
        """When annotations came last."""
        self._begin(movie, 0)

    def _begin(self, movie: WorkerMovie, start: int) -> None:
        """Know nothing yet but the weights to begin with."""
        self.movie, self.start, number = movie, start, self.number
        self.newest = self.learned = Learn(
            number, -1, Annotations.of(EventTable.empty()), (0,)
        )
        """The newest annotations, and those that the learner has learned from."""
        self.asked = -1
        """The revision of the last questions."""
        self.urgent: list[int] = []
        self.stale: list[int] = []
        """Frames whose predictions are to be renewed, the next one last: what the person sees soon, and all others."""
        self.unasked, self.renewed = 0, False
        """Fits since the last questions, and whether predictions were renewed since."""
        self.unfinished = False
        """Whether the last fit was cut short."""
        self._learner: Learner | None = None
        self._edits: Edits = ()

    @property
    def learner(self) -> Learner:
        """Made when it is first needed, for that takes a moment."""
        if self._learner is None:
            movie, seconds = self.movie, self.settings.learn_seconds
            self._edits = self.newest.edits
            source = edited_source(movie.source, (), self._edits)
            self._learner = Learner(
                source, tracker=movie.tracker, seconds=seconds, may_lag=True
            )
        return self._learner

    def take(self, command: Learn) -> None:
        """Hear of new annotations, or of other weights to begin with."""
        if command.start != self.start:
            self._begin(WorkerMovie(self.movie.source, command.tracker), command.start)
        self.newest, self.annotated_at = command, time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether there is anything to do that does not wait until the person rests."""
        return self._next() is not None

    def _next(self) -> Callable[[], Reply] | None:
        """The most urgent piece of work, the first of these that is due."""
        if (
            self.unasked >= self.settings.most_unasked
        ):  # a fast hand leaves no pause in which to choose new questions
            return self._ask
        if (
            self.learned.revision < self.newest.revision
            or self.learned.events != self.newest.events
        ):
            return self._learn
        if self.urgent:
            return self._renew_urgent
        if (
            self.unfinished
        ):  # nobody answers at the moment: there is time to learn to the end
            return self._learn
        if self.stale:
            return self._renew_stale
        if self.renewed or self.asked < self.newest.revision:
            return self._ask
        return None

    def turn(self) -> Iterator[Reply]:
        """The next short piece of work."""
        work = self._next()
        if work is None:
            return
        try:
            reply: Reply = work()
        except ClewError as error:
            reply = self._give_up(str(error))
        except (
            Exception
        ) as error:  # one movie's trouble is not to end the work on the others
            reply = self._give_up(f"unexpected {type(error).__name__}: {error}")
        yield replace(reply, start=self.start)

    def _give_up(self, problem: str) -> Failed:
        """Leave this revision; the next answer is a new beginning."""
        self.learned, self.urgent, self.stale, self.unfinished = (
            self.newest,
            [],
            [],
            False,
        )
        self.unasked, self.renewed = 0, False
        self.asked = self.newest.revision
        return Failed(self.number, self.newest.revision, problem)

    def _learn(self) -> Learned:
        """Learn from the newest annotations; all predictions are stale then."""
        command = self.newest
        self.unasked += command.revision > self.learned.revision
        self._take_edits(command.edits)
        if command.events is not None:
            self.learner.use_events(command.events)
        self.learner.learn(command.annotations)
        self.learned, self.unfinished = command, self.learner.is_cut_short
        self._order_frames(command.frames)
        return Learned(
            self.number,
            command.revision,
            self.learner.version,
            self.learner.w,
            not self.unfinished,
        )

    def _take_edits(self, edits: Edits) -> None:
        """Learn from the masks as they are now; what is known of frames that did not change stays."""
        learner = self.learner
        if frames := changed_frames(self._edits, edits):
            source = edited_source(learner.source, self._edits, edits)
            learner.use_source(source, learner.pairs.touched(frames))
            self._edits = edits

    def _order_frames(self, frames: Sequence[int]) -> None:
        """What the person sees, then what is near it, then what already waited, then all others by their distance."""
        every = np.arange(len(self.learner.pairs))
        seen = [frame for frame in dict.fromkeys(frames) if frame < len(every)]
        nearness = -np.abs(every - frames[0])
        near = every[np.argsort(nearness, kind="stable")][
            -2 * self.settings.neighbours - 1 :
        ]
        self.urgent = [
            *(frame for frame in near.tolist() if frame not in seen),
            *reversed(seen),
        ]
        order = every[np.lexsort((nearness, np.isin(every, self.stale)))]
        self.stale = order[~np.isin(order, self.urgent)].tolist()

    def _renew_urgent(self) -> Predicted:
        return self._renew(self.urgent)

    def _renew_stale(self) -> Predicted:
        return self._renew(self.stale)

    def _renew(self, frames: list[int]) -> Predicted:
        """Renew predictions for a moment."""
        pairs, until = [], time.monotonic() + self.settings.turn_seconds
        while frames:
            pairs.append(self.learner.renew(frames.pop()).without_candidates())
            if time.monotonic() > until:
                break
        self.renewed = True
        return Predicted(self.number, tuple(pairs), self.learned.revision)

    def _ask(self) -> Asked:
        revision = self.learned.revision
        rng = np.random.default_rng(max(revision, 0))
        questions = STRATEGIES[DEFAULT](
            self.learner, self.learned.annotations, self.settings.questions, rng
        )
        self.asked, self.unasked, self.renewed = revision, 0, False
        return Asked(self.number, revision, tuple(questions))
