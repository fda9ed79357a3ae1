"""A session for programs without an event loop: napari, notebooks and scripts.

`Annotator` runs a session in a thread. Its methods wait for the result; a program that
must not wait calls them in another thread.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from clew.annotation.answers import Answer, Fact
from clew.annotation.changes import AnswerChange, MaskChange, Outcome
from clew.annotation.files import ExportKind
from clew.annotation.mask_edits import Edit
from clew.annotation.mask_state import MaskState
from clew.annotation.questions import NO_FILTER, Question, QuestionFilter
from clew.annotation.session import MovieSession
from clew.annotation.store.history import Act, Author
from clew.annotation.worker import LearningWorker
from clew.errors import InputError
from clew.parallel import Progress
from clew.tracking.detections import Source
from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

T = TypeVar("T")
Listener = Callable[[str, dict[str, Any]], None]
"""Called with the kind of news, see `LearningLoop`, or "changed" and "worker"."""
MakeWorker = Callable[[Sequence[Source], Callable[[bool, str], None]], Any]


@dataclass(frozen=True)
class AskedQuestion:
    """A question, and the masks that it was asked about."""

    question: Question
    masks: tuple[int, int]
    """The revisions of the masks of both frames."""

    @property
    def answer(self) -> Answer:
        """That the event in question happened."""
        return Answer.of(*self.question.fact)

    def __str__(self) -> str:
        """Return words: "divide 5 → 17 + 18 from frame 12 to 13"."""
        return EventTable.of([self.question.fact]).describe(0)


class Annotator:
    """A movie that a person annotates.

    Parameters
    ----------
    session : MovieSession
        With number 0; it is closed with the annotator.
    listener : callable
        Called in another thread with the kind of news, and details.
    author : Author
    make_worker : callable
        Makes the `LearningWorker`.
    """

    def __init__(
        self,
        session: MovieSession,
        listener: Listener = lambda *_: None,
        author: Author = Author("", "annotator"),  # noqa: B008, it is frozen
        make_worker: MakeWorker = LearningWorker,
    ) -> None:
        self.session = session
        self.author = author
        self.skipped: set[Fact] = set()
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="clew-session", daemon=True
        )
        self._thread.start()
        self._worker = make_worker([session.unedited_source], self._on_worker_status)
        self._run(self._start())

    @classmethod
    def open(
        cls,
        movie: Movie,
        store: Path,
        tracker: Tracker | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Self:
        """Measure a movie, and open it with its stored answers.

        Parameters
        ----------
        movie : Movie
        store : Path
            Where answers are stored.
        tracker : Tracker, optional
            Has the initial weights; generic ones by default.
        progress : callable, optional
            Called with the number of frames measured and in all.
        **options
            Arguments of `Annotator`.
        """
        source = measure_movie(movie, n_jobs=-1, progress=progress)
        session = MovieSession.open(0, movie, source, store, tracker)
        return cls(session, **options)

    async def _start(self) -> None:
        self.session.publish = self._listener
        learning = self.session.start_learning(self._worker)
        self._task = asyncio.create_task(learning.run())

    def _on_worker_status(self, is_alive: bool, problem: str) -> None:
        self.session.on_worker_status(is_alive, problem)
        self._listener("worker", {"alive": is_alive, "problem": problem})

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the thread of the session, and wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # Questions and answers

    def list_questions(
        self, n: int = 1, chosen: QuestionFilter = NO_FILTER
    ) -> list[AskedQuestion]:
        """Return the next questions, the best one first.

        There may be none while the first predictions are computed.
        """
        session = self.session
        masks = session.state.masks
        n_ranked = n + len(self.skipped)
        ranked = self._run(asyncio.to_thread(session.rank_questions, n_ranked, chosen))
        open_ = [one for one in ranked if one.fact not in self.skipped]
        return [
            AskedQuestion(one, (masks.get(one.frame, 0), masks.get(one.frame + 1, 0)))
            for one in open_[:n]
        ]

    def confirm(self, asked: AskedQuestion) -> Outcome:
        """Store that the event in question happened."""
        return self.say(asked.answer, asked)

    def deny(self, asked: AskedQuestion) -> Outcome:
        """Store that the event in question did not happen."""
        return self.say(replace(asked.answer, happened=False), asked)

    def skip(self, asked: AskedQuestion) -> None:
        """Do not ask this question again until `skipped` is cleared."""
        self.skipped.add(asked.question.fact)

    def say(
        self,
        answer: Answer,
        asked: AskedQuestion | None = None,
        replace: bool = False,
        author: Author | None = None,
    ) -> Outcome:
        """Store an answer.

        Parameters
        ----------
        answer : Answer
        asked : AskedQuestion, optional
            The question that it answers; None if the person chose the event.
        replace : bool
            Whether the answer replaces those that it contradicts.
        author : Author, optional
            If not that of the annotator.
        """
        change = AnswerChange(
            answer,
            secrets.token_hex(8),
            self.session.state.revision,
            author or self.author,
            None if asked is None else asked.answer,
            None if asked is None else asked.masks,
            replace,
        )
        return self._run(self.session.make_answer(change))

    def edit_masks(
        self, frame: int, make_edit: Callable[[MaskState, list[int]], Edit]
    ) -> Outcome:
        """Edit the masks of a frame; see `MaskChange`."""
        state = self.session.state
        change = MaskChange(
            frame,
            make_edit,
            secrets.token_hex(8),
            state.revision,
            state.masks.get(frame, 0),
            self.author,
        )
        return self._run(self.session.make_edit(change))

    def undo(self, author: Author | None = None) -> Outcome:
        """Undo the last answer or edit, or the last one of an author."""
        return self._undo_or_redo(Act.UNDO, author)

    def redo(self, author: Author | None = None) -> Outcome:
        """Redo what was undone last, or what an author undid last."""
        return self._undo_or_redo(Act.REDO, author)

    def _undo_or_redo(self, act: Act, author: Author | None) -> Outcome:
        key = secrets.token_hex(8)
        revision = self.session.state.revision
        authors = [entry.author for entry in self.session.store.history()]
        others = (
            set() if author is None else {one.page for one in authors} - {author.page}
        )
        change = self.session.make_undo(act, key, revision, self.author, others)
        return self._run(change)

    # Results

    @property
    def n_answers(self) -> int:
        """The number of answers that hold."""
        return len(self.session.state.annotations)

    @property
    def is_tracked(self) -> bool:
        """Whether every frame pair has a prediction."""
        return self.session.predictions.is_complete

    def estimate_errors(self) -> dict[str, Any] | None:
        """Return about how many events are wrong; see `Progress.estimate_errors`."""
        return self.session.progress.estimate_errors()

    def build_lineage(self) -> Lineage:
        """Return the lineage of the present predictions."""
        session = self.session
        lineage = self._run(
            session.lineages.get(session.positions, session.state.annotations)
        )
        if lineage is None:
            raise InputError("the movie is not tracked to its end yet; try again later")
        return lineage

    def export(self, kind: ExportKind, path: Path) -> bool:
        """Write a file; return whether it follows from all answers."""
        return bool(self._run(self.session.export(kind, path))["learned"])

    def close(self) -> None:
        """End learning, and close the store."""
        self._run(self._stop())
        self._worker.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.session.close()

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def name_event(n_sources: int, n_targets: int) -> Event | None:
    """Return the event from so many cells to so many; None if there is none.

    One cell that becomes two divides.
    """
    arities = {event.arity: event for event in reversed(Event) if event.span == 1}
    return arities.get((n_sources, n_targets))
