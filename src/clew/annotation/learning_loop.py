"""Learns from each answer to a movie, and renews its predictions, the nearest first.

One asyncio task for each movie; the work is done by a `LearningWorker`. It needs no
web server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clew.annotation.edited_movie import find_changed_frames
from clew.annotation.predictions import Prediction, Predictions
from clew.annotation.worker import Fit, LearningTask, LearningWorker, WorkerLost
from clew.errors import ClewError

FIT_SECONDS = 0.8
"""The time limit of the first fit after an answer: new predictions are due within a
second. It doubles while the fit does not converge and there is no new answer."""
PREDICT_SECONDS = 0.15
"""Of predictions between two checks for new answers."""
NEAR_PAIRS = 2
"""Frame pairs on both sides of the last answer that are predicted early."""

Listener = Callable[[str, dict[str, Any]], None]
"""Called with the kind of news ("learned", "predictions", "questions" or "problem"), and
with details."""


class LearningLoop:
    """Keeps the predictions of one movie up to date with its annotations.

    Parameters
    ----------
    number : int
        Of the movie in the worker.
    worker : LearningWorker
    predictions : Predictions
        Updated by the loop.
    task : LearningTask
        What to learn from first.
    listener : callable
        Told about news, see `Listener`.
    """

    def __init__(
        self,
        number: int,
        worker: LearningWorker,
        predictions: Predictions,
        task: LearningTask,
        listener: Listener,
    ) -> None:
        self.number = number
        self.worker = worker
        self.predictions = predictions
        self.task = task
        self.listener = listener
        self.fit: Fit | None = None
        """Of the task with revision `fit_revision`."""
        self.fit_revision = -1
        self.is_busy = True
        """Whether predictions that follow from the last answer are still to come."""
        self._frames: Sequence[int] = (0,)
        self._waiting: set[int] = set()
        self._updated_at = 0.0
        self._is_changed = asyncio.Event()
        self._is_changed.set()

    def update(self, task: LearningTask, frames: Sequence[int]) -> None:
        """Learn from another task.

        Parameters
        ----------
        task : LearningTask
        frames : sequence of int
            First frames of the pairs that are shown now or next; they are predicted
            before others.
        """
        if task.start != self.task.start:
            self.fit = None
            self.fit_revision = -1
        self.task = task
        self._frames = frames
        self._updated_at = time.monotonic()
        self.is_busy = True
        self._is_changed.set()
        self.worker.interrupt()

    @property
    def is_learned(self) -> bool:
        """Whether the weights follow from all answers, and the fit converged."""
        return (
            self.fit is not None
            and self.fit.is_complete
            and self.fit_revision == self.task.revision
        )

    async def run(self) -> None:
        """Learn until cancelled."""
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            try:
                await self._learn(self.task)
            except WorkerLost:
                if not self.worker.is_given_up:
                    self._is_changed.set()
            except ClewError as error:
                self._report_problem(str(error))
            except Exception as error:
                # The trouble of one movie must not end the work on others.
                self._report_problem(f"unexpected {type(error).__name__}: {error}")

    async def _learn(self, task: LearningTask) -> None:
        """Fit, and predict, until there is nothing left to do or a new task."""
        near, others = self._order_frames()
        time_limit = FIT_SECONDS
        is_complete = False
        while not is_complete:
            is_first = time_limit == FIT_SECONDS
            fit = await self.worker.fit(
                self.number, task, time_limit, not is_first, self._updated_at
            )
            if self._is_changed.is_set() and not (is_first or fit.is_complete):
                return  # interrupted: the weights of the shorter fit are better
            self.use_fit(task, fit)
            if not await self._predict(task, near):
                return
            is_complete = fit.is_complete
            time_limit *= 2
        if await self._predict(task, others):
            self.is_busy = False
            self.listener("questions", {"revision": task.revision})

    async def _predict(self, task: LearningTask, frames: list[int]) -> bool:
        """Predict frame pairs; return False if a new task came."""
        left = list(frames)
        while left and not self._is_changed.is_set():
            predictions = await self.worker.predict(
                self.number,
                left,
                self.predictions.weights.version,
                PREDICT_SECONDS,
                self._updated_at,
            )
            del left[: len(predictions)]
            self.use_predictions(task, predictions)
        return not self._is_changed.is_set()

    def use_fit(self, task: LearningTask, fit: Fit) -> None:
        """Predict with new weights from now on."""
        if task.start != self.task.start:
            return
        self.fit = fit
        self.fit_revision = task.revision
        self.predictions.set_weights(fit.weights)
        self._waiting = set(range(self.predictions.n_pairs))
        self.listener("learned", {"version": self.predictions.weights.version})

    def use_predictions(
        self, task: LearningTask, predictions: Sequence[Prediction]
    ) -> None:
        """Take over predictions, unless a newer task rules them out."""
        if task.start != self.task.start:
            return
        if task.profile.events != self.task.profile.events:
            return
        edited = find_changed_frames(task.edits, self.task.edits)
        outdated = self.predictions.cache.pairs.pairs_using(edited) if edited else []
        usable = [one for one in predictions if one.frame not in outdated]
        accepted = self.predictions.update(usable, self.task.annotations)
        self._waiting -= {one.frame for one in accepted}
        if accepted:
            version = max(one.version for one in accepted)
            frames = [one.frame for one in accepted]
            self.listener("predictions", {"version": version, "frames": frames})

    def _order_frames(self) -> tuple[list[int], list[int]]:
        """Return the frame pairs to predict: those shown and near, then all others.

        Among the others, those that already wait for a prediction come first.
        """
        n_pairs = self.predictions.n_pairs
        if not n_pairs:
            return [], []
        shown = [frame for frame in dict.fromkeys(self._frames) if frame < n_pairs]
        every = np.arange(n_pairs)
        distance = np.abs(every - self._frames[0])
        nearest = every[np.argsort(distance, kind="stable")][: 2 * NEAR_PAIRS + 1]
        near = list(dict.fromkeys([*shown, *nearest.tolist()]))
        is_waiting = np.isin(every, list(self._waiting))
        order = every[np.lexsort((distance, ~is_waiting))]
        return near, order[~np.isin(order, near)].tolist()

    def _report_problem(self, problem: str) -> None:
        """Give this task up; the next answer is a new attempt."""
        self.is_busy = False
        self.listener("problem", {"revision": self.task.revision, "problem": problem})
