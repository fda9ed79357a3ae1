"""One movie that is being annotated: its store, the latest predictions, and the questions that wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from clew.annotation.queries import Question
from clew.annotation.store.history import Entry, StaleRevision
from clew.annotation.store.store import Store
from clew.annotation.strategies.pool import is_open
from clew.app.images import Pictures
from clew.app.messages import Asked, Estimated, Learn, Learned, Predicted
from clew.app.positions import Cells, Roster
from clew.app.predictor import Predictor, Solved, Weights, marks_of, with_answer
from clew.app.requests import Sent
from clew.app.views import Json, event_view, family_view, pair_view, question_view
from clew.errors import ClewError, InfeasibleAnnotation, InputError
from clew.learning.task import Array
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage import Lineage
from clew.tracking.model.solve import join_steps
from clew.tracking.movie import Movie

CURVE, PLACE = "curve", "place"
"""Notes in the store."""
MAX_QUESTIONS = 100
SOON = 3
"""Questions ahead whose frames the worker predicts before others."""


@dataclass(frozen=True)
class State:
    """What the store holds at a moment."""

    revision: int
    annotations: Annotations
    can_undo: bool
    can_redo: bool

    @classmethod
    def of(cls, store: Store) -> State:
        """The present one."""
        return cls(store.revision, store.annotations(), store.can_undo, store.can_redo)

    def here(self, frame: int) -> Annotations:
        """The annotations from one frame to the next."""
        return self.annotations[self.annotations.events.frame == frame]


class Session:
    """One movie. Its methods run in the event loop's thread; what takes longer than a moment runs in another."""

    def __init__(self, number: int, movie: Movie, source: Source, store: Store, predictor: Predictor) -> None:
        self.number, self.movie, self.source, self.store, self.predictor = number, movie, source, store, predictor
        self.pictures, self.roster = Pictures(movie), Roster(source, movie.spacing)
        self.state = State.of(store)
        self.place: Json | None = store.noted(PLACE)
        self.curve: list[Json] = store.noted(CURVE, [])
        self.solved: dict[int, Solved] = {}
        self.questions: tuple[Question, ...] = ()
        self._asked_events = EventTable.empty()
        self.asked = self.learned = -1
        """The revisions that the worker's last questions and weights are of."""
        self.tell: Callable[[str, Json], None] = _to_nobody
        self.order: Callable[[Learn], None] = _to_nobody
        self._ranks: Array = np.zeros(0)
        self._lineage: tuple[dict[int, Solved], Lineage] | None = None
        self._writer = ThreadPoolExecutor(1, f"movie-{number}")

    async def wake(self) -> None:
        """Predict where the person will begin: the very first solution takes longest, as it is compiled then."""
        if self.movie.n_frames > 1:
            with contextlib.suppress(ClewError):  # the page that asks for it will be told
                await self.pair(min((self.place or {}).get("frame", 0), self.movie.n_frames - 2))

    # what the page asks for

    def about(self) -> Json:
        """The movie in the list of movies."""
        movie = self.movie
        return {
            "id": self.number, "name": os.fsencode(movie.name).decode("utf-8", "replace"), "n_frames": movie.n_frames,
            "ndim": movie.ndim, "shape": list(movie.shape), "spacing": list(movie.spacing),
            "has_images": movie.images is not None, "annotated": len(self.state.annotations),
        }  # fmt: skip

    def status(self) -> Json:
        """How far things are."""
        state, happened = self.state, self.state.annotations.happened
        annotated = np.bincount(state.annotations.events.event[happened], minlength=len(Event)).tolist()
        return {
            "revision": state.revision, "version": self.predictor.weights.version, "annotated": len(happened),
            "can_undo": state.can_undo, "can_redo": state.can_redo,
            "learning": self.asked < state.revision, "learned": self.learned, "curve": self.curve,
            "counts": {str(event): annotated[event] for event in Event}, "denied": int((~happened).sum()),
            "predicted": self._predicted_counts(), "place": self.place,
        }  # fmt: skip

    def _predicted_counts(self) -> Json:
        counts = np.zeros(len(Event), dtype=int)
        for solved in self.solved.values():
            counts += np.bincount(solved.step.events.event, minlength=len(Event))
        return {str(event): int(counts[event]) for event in Event}

    def cells(self, frame: int) -> Cells:
        """The cells of a frame."""
        return self.roster.cells(frame)

    async def pair(self, frame: int) -> Json:
        """A frame pair with predictions of the present weights."""
        solved, view = await asyncio.to_thread(self._pair, frame)
        if solved.marks == marks_of(self.state.here(frame)):
            self.solved[frame] = solved
        return view

    def _pair(self, frame: int) -> tuple[Solved, Json]:
        state, solved = self.state, self.solved.get(frame)
        here = state.here(frame)
        if solved is None or solved.marks != marks_of(here) or solved.version < self.predictor.weights.version:
            solved = self.predictor.solve(frame, here, solved)
        return solved, self._view(frame, state, solved)

    def _view(self, frame: int, state: State, solved: Solved) -> Json:
        cells = self.cells(frame), self.cells(frame + 1)
        view = pair_view(frame, cells, solved.step, state.here(frame), self._ranks)
        return {"revision": state.revision, "version": solved.version, **view}

    def ask(self, n: int) -> list[Json]:
        """The next questions."""
        found: list[Json] = []
        for question in self._open_questions(min(n, MAX_QUESTIONS)):
            solved = self.solved.get(question.frame)
            cells = self.cells(question.frame), self.cells(question.frame + 1)
            found.append(question_view(question, cells, None if solved is None else solved.step))
        return found

    def _open_questions(self, n: int) -> list[Question]:
        """The first questions that no answer has settled."""
        rows = np.flatnonzero(is_open(self._asked_events, self.state.annotations))[:n]
        return [self.questions[row] for row in rows.tolist()]

    async def family(self, frame: int, label: int) -> Json:
        """The tracks of a cell's family; none as long as not all of the movie is tracked."""
        if len(self.solved) < self.movie.n_frames - 1:
            return {"tracks": [], "selected": None, "ready": False}
        solved, lineage = self.solved.copy(), self._lineage
        if lineage is None or lineage[0] != solved:
            steps = [solved[frame].step for frame in range(self.movie.n_frames - 1)]
            lineage = self._lineage = solved, await asyncio.to_thread(join_steps, self.roster, steps)
        return {**await asyncio.to_thread(family_view, lineage[1], frame, label), "ready": True}

    # what the person says

    async def answer(self, sent: Sent) -> Json:
        """Keep an answer; what follows from it at once."""
        frame = sent.answer.frame
        state, solved = await self._in_turn(self._answer, sent)
        self._change(state, frame, solved)
        return {"annotated": len(state.annotations), "questions": self.ask(20), **self._outcome(frame, state, solved)}

    def _answer(self, sent: Sent) -> tuple[State, Solved]:
        """Solve the frame pair as it will be, so that an impossible answer is refused; then keep the answer."""
        answer, frame = sent.answer, sent.answer.frame
        answer.check(self.movie.n_frames, lambda t: self.cells(t).label)
        try:
            here = with_answer(State.of(self.store).here(frame), answer)
            solved = self.predictor.solve(frame, here, self.solved.get(frame))
        except InfeasibleAnnotation:
            if sent.revision != self.store.revision:
                raise StaleRevision(sent.revision, self.store.revision) from None
            raise
        self.store.answer(*answer.fact, answer.happened, key=sent.key, revision=sent.revision, replace=sent.replace)
        state = State.of(self.store)
        if marks_of(here := state.here(frame)) != solved.marks:  # it had come before, and other things since
            solved = self.predictor.solve(frame, here)
        return state, solved

    async def step_back(self, key: str, revision: int) -> Json:
        """Undo the last answer."""
        return await self._travel(self.store.undo, key, revision)

    async def step_forward(self, key: str, revision: int) -> Json:
        """Redo what was undone last."""
        return await self._travel(self.store.redo, key, revision)

    async def _travel(self, move: Callable[..., int | None], key: str, revision: int) -> Json:
        state, entry, solved = await self._in_turn(self._move, move, key, revision)
        common = {"annotated": len(state.annotations), "can_undo": state.can_undo, "can_redo": state.can_redo}
        if entry is None or solved is None:
            return {"revision": state.revision, "frame": None, "pair": None, "changed": None, **common}
        answer, frame = entry.answer, entry.answer.frame
        self._change(state, frame, solved)
        changed = event_view(str(answer.event), answer.sources, answer.targets)
        changed |= {"frame": frame, "happened": answer.happened, "act": str(entry.act)}
        outcome = self._outcome(frame, state, solved)
        return {"frame": frame, "changed": changed, "questions": self.ask(20), **common, **outcome}

    def _move(
        self, move: Callable[..., int | None], key: str, revision: int
    ) -> tuple[State, Entry | None, Solved | None]:
        done = move(key=key, revision=revision)
        state = State.of(self.store)
        if done is None:
            return state, None, None
        entry = self.store.history()[done - 1]
        frame = entry.answer.frame
        return state, entry, self.predictor.solve(frame, state.here(frame), self.solved.get(frame))

    def _outcome(self, frame: int, state: State, solved: Solved) -> Json:
        return {"revision": state.revision, "pair": self._view(frame, state, solved)}

    async def look(self, frame: int, label: int | None) -> None:
        """Keep where the person is."""
        if not 0 <= frame < self.movie.n_frames:
            raise InputError(f"frame is {frame}; the movie has frames 0 to {self.movie.n_frames - 1}")
        self.place = {"frame": frame, "label": label}
        await self._in_turn(self.store.note, PLACE, self.place)

    async def _in_turn(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Changes of the store are made one after the other, and not in the event loop: they wait for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *arguments)

    def _change(self, state: State, frame: int, solved: Solved) -> None:
        """Go on from a new state: show it, tell all pages, and let the worker learn from it."""
        self.solved[frame] = solved
        if state.revision <= self.state.revision:  # another change was quicker, or this one had come before
            return
        self.state = state
        self.tell("changed", {"revision": state.revision, "annotated": len(state.annotations), "frame": frame})
        self.order(self.lesson(frame))

    # what the worker says

    def lesson(self, frame: int | None = None) -> Learn:
        """What the worker is to learn from now."""
        place = (self.place or {}).get("frame", 0) if frame is None else frame
        coming = [question.frame for question in self._open_questions(SOON)]
        return Learn(self.number, self.state.revision, self.state.annotations, (place, *coming))

    def take_learned(self, reply: Learned) -> None:
        """New weights: from now on, pairs that are asked for are solved with them."""
        self.predictor.weights = Weights(reply.version, reply.weights)
        self.learned = reply.revision
        last = self.curve[-1] if self.curve else {"error": None, "se": None}
        self.tell("learned", {"version": reply.version, "error": last["error"], "se": last["se"]})

    def take_predicted(self, reply: Predicted) -> None:
        """New predictions, unless the person has answered something about the pair meanwhile."""
        steps = [(frame, Solved(reply.version, marks, step)) for frame, marks, step in reply.steps]
        fresh = [(frame, solved) for frame, solved in steps if solved.marks == marks_of(self.state.here(frame))]
        self.solved.update(fresh)
        if fresh:
            self.tell("predictions", {"version": reply.version, "frames": [frame for frame, _ in fresh]})

    def take_asked(self, reply: Asked) -> None:
        """New questions; all predictions were renewed before them."""
        self.questions, self.asked = reply.questions, reply.revision
        self._asked_events = EventTable.of(
            [(one.frame, one.event, one.sources, one.targets) for one in reply.questions]
        )
        parts = [solved.step.confidence for solved in self.solved.values()]
        self._ranks = np.sort(np.concatenate(parts)) if parts else np.zeros(0)
        self.tell("questions", {"revision": reply.revision, "n": len(reply.questions)})

    async def take_estimated(self, reply: Estimated) -> None:
        """A new point of the curve, in the place of an older one after as many answers."""
        point = {"answers": reply.answers, "error": reply.error, "se": reply.se}
        self.curve = sorted([p for p in self.curve if p["answers"] != reply.answers] + [point], key=_answers)
        self.tell("learned", {"version": self.predictor.weights.version, "error": reply.error, "se": reply.se})
        await self._in_turn(self.store.note, CURVE, self.curve)

    def close(self) -> None:
        """Finish what is being written, and give the store free."""
        self._writer.shutdown(wait=True)
        self.store.close()


def _answers(point: Json) -> int:
    return int(point["answers"])


def _to_nobody(*_: object) -> None:
    """As long as there is no server."""
