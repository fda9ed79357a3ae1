"""A process that fits and predicts, so that the program that shows a movie never waits.

`LearningWorker` is used in an asyncio event loop. It hands one call at a time to the
process; the movie that was annotated last comes first. If the process dies, the next
call starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from clew.annotation.edited_movie import Edits, edit_source, find_changed_frames
from clew.annotation.learner import Learner
from clew.annotation.predictions import Prediction
from clew.errors import ClewError
from clew.learning.task import Array
from clew.tracking.detections import Source
from clew.tracking.events import Annotations
from clew.tracking.profile import MovieProfile
from clew.tracking.tracker import Tracker

T = TypeVar("T")

NICENESS = 5
"""The browser comes first; at 10, a busy machine leaves the worker next to nothing."""
SHORT_LIFE = 20.0
"""Seconds: a process that dies sooner will hardly live longer next time."""
MAX_SHORT_LIVES = 3


class WorkerLost(ClewError):
    """The learning process ended before it answered."""


@dataclass(frozen=True)
class LearningTask:
    """What to learn from."""

    revision: int
    """Of the store that has the annotations."""
    annotations: Annotations
    profile: MovieProfile
    """Of the movie, with the kinds of events that can happen."""
    edits: Edits
    """All mask edits: the worker has the movie without them."""
    tracker: Tracker
    """Has the initial weights."""
    start: int = 0
    """How often a person has chosen other initial weights: learning starts again."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The weights that a task led to."""

    weights: Array
    is_complete: bool
    """Whether the fit converged; otherwise a longer one continues from its bounds."""


class LearningWorker:
    """One process for all movies.

    Parameters
    ----------
    sources : sequence of Source
        The cells of the movies without mask edits; calls name them by their index.
    on_status : callable
        Called with whether the process runs, and with the problem if it does not.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        on_status: Callable[[bool, str], None] = lambda *_: None,
    ) -> None:
        self.sources = sources
        self.on_status = on_status
        self.pid: int | None = None
        self._context = multiprocessing.get_context("spawn")
        self._interruption = self._context.Event()
        self._executor: ProcessPoolExecutor | None = None
        self._started_at = 0.0
        self._short_lives = 0
        self._turns = _Turns()

    async def start(self) -> None:
        """Start the process."""
        self._started_at = time.monotonic()
        self._executor = ProcessPoolExecutor(
            1, self._context, _initialize, (self.sources, self._interruption)
        )
        self.pid = await self._run(os.getpid)
        self.on_status(True, "")

    async def fit(
        self,
        number: int,
        task: LearningTask,
        time_limit: float,
        can_interrupt: bool,
        priority: float,
    ) -> Fit:
        """Learn for some seconds at most, or until `interrupt` if it can."""
        return await self._call(priority, _fit, number, task, time_limit, can_interrupt)

    async def predict(
        self,
        number: int,
        frames: Sequence[int],
        version: int,
        seconds: float,
        priority: float,
    ) -> list[Prediction]:
        """Predict as many of the frame pairs as the time allows, at least one."""
        return await self._call(priority, _predict, number, frames, version, seconds)

    def interrupt(self) -> None:
        """End the fit that is running."""
        self._interruption.set()

    def close(self) -> None:
        """End the process at once; there is nothing to save in it."""
        executor = self._executor
        self._executor = None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)

    async def _call(
        self, priority: float, function: Callable[..., T], *arguments: Any
    ) -> T:
        """Call a function in the process, when no call of higher priority waits."""
        async with self._turns.take(-priority):
            if self._executor is None:
                await self.start()
            self._interruption.clear()
            return await self._run(function, *arguments)

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        executor = self._executor
        try:
            return await loop.run_in_executor(executor, function, *arguments)
        except BrokenProcessPool as error:
            if self._executor is executor:
                self._executor = None
                self.pid = None  # another process may have it later
                self._report_loss()
            raise WorkerLost("the learning process ended unexpectedly") from error

    def _report_loss(self) -> None:
        lived = time.monotonic() - self._started_at
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE else 0
        action = "it is restarted"
        if self.is_given_up:
            action = f"{self._short_lives} times in a row; nothing is learned any more"
        self.on_status(False, f"the learning process ended unexpectedly, {action}")

    @property
    def is_given_up(self) -> bool:
        """Whether the process died too often to be started again."""
        return self._short_lives >= MAX_SHORT_LIVES


class _Turns:
    """A lock whose waiters are served by priority: the smallest number first."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    @contextlib.asynccontextmanager
    async def take(self, priority: float) -> AsyncIterator[None]:
        """Wait until it is free."""
        while self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (priority, next(self._order), turn))
            await turn
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False
            while self._waiting:
                _, _, turn = heapq.heappop(self._waiting)
                if not turn.done():
                    turn.set_result(None)
                    break


# What follows runs in the process.


class _MovieLearner:
    """The learner of one movie; it is made when it is first needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.task: LearningTask | None = None
        self._learner: Learner | None = None

    def prepare(self, task: LearningTask) -> Learner:
        """Return the learner with the masks and kinds of events of a task."""
        before = self.task
        if before is None or before.start != task.start:
            source = edit_source(self.source, (), task.edits)
            self._learner = Learner(source, tracker=task.tracker, profile=task.profile)
        elif frames := find_changed_frames(before.edits, task.edits):
            source = edit_source(self.learner.source, before.edits, task.edits)
            changed = self.learner.pairs.pairs_using(frames)
            self.learner.use_source(source, changed)
        self.task = task
        self.learner.use_events(task.profile.events)
        return self.learner

    @property
    def learner(self) -> Learner:
        """The learner of the last task."""
        if self._learner is None:
            raise RuntimeError("predict was called before fit")
        return self._learner


class _ProcessState:
    """What the process keeps from call to call."""

    learners: list[_MovieLearner]
    interruption: Any


def _initialize(sources: Sequence[Source], interruption: Any) -> None:
    """Prepare the process: it ignores Ctrl-C, and ends when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _ProcessState.learners = [_MovieLearner(source) for source in sources]
    _ProcessState.interruption = interruption


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _fit(
    number: int, task: LearningTask, time_limit: float, can_interrupt: bool
) -> Fit:
    learner = _ProcessState.learners[number].prepare(task)
    is_interrupted = _ProcessState.interruption.is_set if can_interrupt else None
    learner.learn(
        task.annotations, time_limit=time_limit, is_interrupted=is_interrupted
    )
    return Fit(learner.w, not learner.is_cut_short)


def _predict(
    number: int, frames: Sequence[int], version: int, seconds: float
) -> list[Prediction]:
    learner = _ProcessState.learners[number].learner
    deadline = time.monotonic() + seconds
    predictions = []
    for frame in frames:
        predictions.append(learner.predict(frame, version))
        if time.monotonic() > deadline:
            break
    return predictions
