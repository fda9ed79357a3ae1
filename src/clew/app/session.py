"""One movie that is being annotated: its store, the latest predictions, and the questions that wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.annotation.learner import adapted_tracker
from clew.annotation.queries import Question
from clew.annotation.store.history import Entry, StaleRevision
from clew.annotation.store.store import Store
from clew.annotation.strategies.pool import is_open
from clew.app.exports import Kind, write_answers, write_tracks
from clew.app.images import Pictures
from clew.app.messages import Asked, Estimated, Failed, Learn, Learned, Predicted, Reply
from clew.app.positions import CellPositions, Positions
from clew.app.predictor import Predictor, Weights, with_answer
from clew.app.requests import Sent
from clew.app.settings import SESSION, SessionSettings
from clew.app.views import Json, event_view, family_view, pair_view, question_view
from clew.errors import ClewError, InfeasibleAnnotation, InputError, StoreError
from clew.learning.task import Array
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage import Lineage
from clew.tracking.model.solve import SolvedPair, join_pairs
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

CURVE, PLACE = "curve", "place"
"""Notes in the store."""


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


class Session:
    """One movie. Its methods run in the event loop's thread; what takes longer than a moment runs in another."""

    def __init__(
        self, number: int, movie: Movie, source: Source, store: Store, predictor: Predictor, tracker: Tracker,
        settings: SessionSettings = SESSION,
    ) -> None:  # fmt: skip
        self.number, self.movie, self.source, self.store = number, movie, source, store
        self.predictor, self.tracker, self.settings = predictor, tracker, settings
        self.pictures, self.positions = Pictures(movie, settings.picture_bytes), Positions(source, movie.spacing)
        self.state = State.of(store)
        self.place: Json | None = store.noted(PLACE)
        self.curve: list[Json] = store.noted(CURVE, [])
        self.questions: tuple[Question, ...] = ()
        self._asked_events = EventTable.empty()
        self.asked = self.learned = self.completed = -1
        """The revisions of the worker's last questions, of its last weights, and of the last that were learned out."""
        self.publish: Callable[[str, Json], None] = _to_nobody
        self.send: Callable[[Learn], None] = _to_nobody
        self._ranks: Array = np.zeros(0)
        self._lineage: tuple[list[SolvedPair], Lineage] | None = None
        self.worker: Json = {"alive": False, "problem": ""}
        self._heard = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, f"movie-{number}")

    async def warm_up(self) -> None:
        """Solve the frame pair where the person will begin, so that Numba compiles before the first answer."""
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
            "predicted": self.predictor.counts(), "place": self.place, "worker": self.worker,
        }  # fmt: skip

    def cells(self, frame: int) -> CellPositions:
        """The cells of a frame."""
        return self.positions.cells(frame)

    async def pair(self, frame: int) -> Json:
        """A frame pair with predictions of the present weights."""
        state = self.state
        solved = await asyncio.to_thread(self.predictor.current, frame, state.annotations.at(frame))
        self.predictor.take([solved], self.state.annotations)
        return await asyncio.to_thread(self._view, state, solved)

    def _view(self, state: State, solved: SolvedPair) -> Json:
        frame = solved.frame
        cells = self.cells(frame), self.cells(frame + 1)
        view = pair_view(frame, cells, solved, state.annotations.at(frame), self._ranks)
        return {"revision": state.revision, "version": solved.version, **view}

    def ask(self, n: int) -> list[Json]:
        """The next questions."""
        found: list[Json] = []
        for question in self._open_questions(min(n, self.settings.most_questions)):
            cells = self.cells(question.frame), self.cells(question.frame + 1)
            found.append(question_view(question, cells, self.predictor.solved.get(question.frame)))
        return found

    def _open_questions(self, n: int) -> list[Question]:
        """The first questions that no answer has settled."""
        rows = np.flatnonzero(is_open(self._asked_events, self.state.annotations))[:n]
        return [self.questions[row] for row in rows.tolist()]

    async def family(self, frame: int, label: int) -> Json:
        """The tracks of a cell's family; none as long as not all of the movie is tracked."""
        if len(self.predictor.solved) < self.predictor.n_pairs:
            return {"tracks": [], "selected": None, "ready": False}
        solved = [self.predictor.solved[frame] for frame in range(self.predictor.n_pairs)]
        if self._lineage is None or self._lineage[0] != solved:
            self._lineage = solved, await asyncio.to_thread(join_pairs, self.positions, solved)
        return {**await asyncio.to_thread(family_view, self._lineage[1], frame, label), "ready": True}

    async def export(self, kind: Kind, path: Path) -> None:
        """Write a file: what was annotated so far, or after learning from all of it the weights or the tracks."""
        state = self.state
        if not kind.is_learned:
            await asyncio.to_thread(write_answers, kind, path, state.annotations, self.movie)
            return
        while len(state.annotations) and self.completed < state.revision:
            if not self.worker["alive"]:
                raise StoreError(f"the worker that learns is not there: {self.worker['problem'] or 'it starts'}")
            self._heard.clear()
            await self._heard.wait()
        await asyncio.to_thread(self._export, kind, path, state.annotations)

    def _export(self, kind: Kind, path: Path, annotations: Annotations) -> None:
        if kind is Kind.WEIGHTS:
            values = self.predictor.weights.values
            adapted_tracker(self.tracker, self.predictor.groups, values, annotations).save(path)
        else:
            lineage = join_pairs(self.positions, self.predictor.all_current(annotations))
            write_tracks(kind, path, lineage, self.movie)

    # what the person says

    async def answer(self, sent: Sent) -> Json:
        """Keep an answer; what follows from it at once."""
        state, solved = await self._in_turn(self._answer, sent)
        self._change(state, solved)
        return {"annotated": len(state.annotations), **self._outcome(state, solved)}

    def _answer(self, sent: Sent) -> tuple[State, SolvedPair]:
        """Solve the frame pair as it will be, so that an impossible answer is refused; then keep the answer."""
        answer, frame = sent.answer, sent.answer.frame
        answer.check(self.movie.n_frames, lambda t: self.cells(t).label)
        try:
            solved = self.predictor.solve(frame, with_answer(self.store.annotations().at(frame), answer))
        except InfeasibleAnnotation:
            if sent.revision != self.store.revision:
                raise StaleRevision(sent.revision, self.store.revision) from None
            raise
        self.store.answer(*answer.fact, answer.happened, key=sent.key, revision=sent.revision, replace=sent.replace)
        state = State.of(self.store)
        here = state.annotations.at(frame)
        if here.key() != solved.key:  # the answer had come before, and others since
            solved = self.predictor.solve(frame, here)
        return state, solved

    async def undo(self, key: str, revision: int) -> Json:
        """Take the last answer back."""
        return await self._move(self.store.undo, key, revision)

    async def redo(self, key: str, revision: int) -> Json:
        """Bring back what was undone last."""
        return await self._move(self.store.redo, key, revision)

    async def _move(self, move: Callable[..., int | None], key: str, revision: int) -> Json:
        state, entry, solved = await self._in_turn(self._moved, move, key, revision)
        common = {"annotated": len(state.annotations), "can_undo": state.can_undo, "can_redo": state.can_redo}
        if entry is None or solved is None:
            return {"revision": state.revision, "frame": None, "pair": None, "changed": None, **common}
        answer = entry.answer
        self._change(state, solved)
        changed = event_view(str(answer.event), answer.sources, answer.targets)
        changed |= {"frame": answer.frame, "happened": answer.happened, "act": str(entry.act)}
        return {"frame": answer.frame, "changed": changed, **common, **self._outcome(state, solved)}

    def _moved(
        self, move: Callable[..., int | None], key: str, revision: int
    ) -> tuple[State, Entry | None, SolvedPair | None]:
        done = move(key=key, revision=revision)
        state = State.of(self.store)
        if done is None:
            return state, None, None
        entry = self.store.entry(done)
        frame = entry.answer.frame
        return state, entry, self.predictor.solve(frame, state.annotations.at(frame))

    def _outcome(self, state: State, solved: SolvedPair) -> Json:
        questions = self.ask(self.settings.questions_after_answer)
        return {"revision": state.revision, "pair": self._view(state, solved), "questions": questions}

    async def look(self, frame: int, label: int | None) -> None:
        """Keep where the person is."""
        if not 0 <= frame < self.movie.n_frames:
            raise InputError(f"frame is {frame}; expected one of 0 to {self.movie.n_frames - 1}")
        self.place = {"frame": frame, "label": label}
        await self._in_turn(self.store.note, PLACE, self.place)

    async def _in_turn(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Changes of the store are made one after the other, and not in the event loop: they wait for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, call, *arguments)

    def _change(self, state: State, solved: SolvedPair) -> None:
        """Go on from a new state: show it, tell all pages, and let the worker learn from it."""
        self.predictor.solved[solved.frame] = solved
        if state.revision <= self.state.revision:  # another change was quicker, or this one had come before
            return
        self.state = state
        annotated = len(state.annotations)
        self.publish("changed", {"revision": state.revision, "annotated": annotated, "frame": solved.frame})
        self.send(self.to_learn(solved.frame))

    # what the worker says

    def to_learn(self, frame: int | None = None) -> Learn:
        """What the worker is to learn from now."""
        place = (self.place or {}).get("frame", 0) if frame is None else frame
        coming = [question.frame for question in self._open_questions(self.settings.questions_ahead)]
        return Learn(self.number, self.state.revision, self.state.annotations, (place, *coming))

    def take_life(self, alive: bool, problem: str) -> None:
        """A worker began, and is told everything; or ended, and nothing is learned until there is another."""
        self.worker = {"alive": alive, "problem": problem}
        if alive:
            self.send(self.to_learn())
        self._heard.set()

    def take(self, reply: Reply) -> None:
        """Go on from what the worker says."""
        if isinstance(reply, Learned):
            self._take_learned(reply)
        elif isinstance(reply, Predicted):
            fresh = self.predictor.take(reply.pairs, self.state.annotations)
            if fresh:  # the person has answered about the others meanwhile
                version, frames = max(one.version for one in fresh), [one.frame for one in fresh]
                self.publish("predictions", {"version": version, "frames": frames})
        elif isinstance(reply, Asked):
            self._take_asked(reply)
        elif isinstance(reply, Estimated):
            self._take_estimated(reply)
        elif isinstance(reply, Failed):
            self.asked = self.completed = max(self.asked, reply.revision)
            self.publish("problem", {"revision": reply.revision, "problem": reply.problem})
        self._heard.set()

    def _take_learned(self, reply: Learned) -> None:
        """New weights: from now on, pairs that are asked for are solved with them."""
        self.predictor.weights = Weights(reply.version, reply.weights)
        self.learned = reply.revision
        if reply.complete:
            self.completed = reply.revision
        last = self.curve[-1] if self.curve else {"error": None, "se": None}
        self.publish("learned", {"version": reply.version, "error": last["error"], "se": last["se"]})

    def _take_asked(self, reply: Asked) -> None:
        """New questions."""
        self.questions, self.asked = reply.questions, reply.revision
        self._asked_events = EventTable.of(
            [(one.frame, one.event, one.sources, one.targets) for one in reply.questions]
        )
        parts = [solved.confidence for solved in self.predictor.solved.values()]
        self._ranks = np.sort(np.concatenate(parts)) if parts else np.zeros(0)
        self.publish("questions", {"revision": reply.revision, "n": len(reply.questions)})

    def _take_estimated(self, reply: Estimated) -> None:
        """A new point of the curve, in the place of an older one after as many answers."""
        point = {"answers": reply.answers, "error": reply.error, "se": reply.se}
        others = [known for known in self.curve if known["answers"] != reply.answers]
        self.curve = sorted([*others, point], key=lambda known: int(known["answers"]))
        self.publish("learned", {"version": self.predictor.weights.version, "error": reply.error, "se": reply.se})
        self._writer.submit(self.store.note, CURVE, self.curve)

    def close(self) -> None:
        """Finish what is being written, and give the store free."""
        self._writer.shutdown(wait=True)
        self.store.close()


def _to_nobody(*_: object) -> None:
    """As long as there is no server."""
