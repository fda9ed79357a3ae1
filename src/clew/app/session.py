"""One movie on the annotation page: a session, as the page sees it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np

from clew.annotation.changes import Outcome, State
from clew.annotation.files import read_upload
from clew.annotation.initial_weights import SUFFIX, InitialWeights
from clew.annotation.mask_edits import Edit
from clew.annotation.predictions import Prediction
from clew.annotation.questions import NO_FILTER, QuestionFilter
from clew.annotation.session import MovieSession
from clew.annotation.store.history import Act, Author, Entry
from clew.app.api_models import (
    AnswerRequest,
    ChangeRequest,
    EventKindsRequest,
    MaskEditRequest,
    PositionRequest,
    QuestionQuery,
    TrackReviewRequest,
)
from clew.app.images import Pictures
from clew.app.views import Json, view_event, view_family, view_pair, view_question

MAX_QUESTIONS = 100
"""That a page may ask for at once."""
QUESTIONS_AFTER_ANSWER = 20
"""That a page receives with the reply to an answer."""


class PageSession(MovieSession):
    """One movie on the annotation page.

    The methods run in the thread of the event loop; whatever takes longer than a
    moment runs in another thread. Parameters are those of `MovieSession`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pictures = Pictures(self.movie)
        self.open_pages: Counter[str] = Counter()

    # Predictions and questions

    async def view_pair(self, frame: int) -> Json:
        """Return a frame pair with predictions of the present weights."""
        state, prediction = await self.solve_pair(frame)
        return await asyncio.to_thread(self._view_pair, state, prediction)

    def _view_pair(self, state: State, prediction: Prediction) -> Json:
        frame = prediction.frame
        view = view_pair(
            prediction,
            self.get_cells(frame),
            self.get_cells(frame + 1),
            state.annotations.select_frame(frame),
            self.typical_confidence,
        )
        return {"revision": state.revision, **view}

    async def view_questions(self, query: QuestionQuery) -> list[Json]:
        """Return the questions to ask next."""
        track = None
        if query.frame is not None and query.label is not None:
            track = await self.lineages.find_track(
                self.positions, self.state.annotations, query.frame, query.label
            )
        box = None
        if query.box is not None:
            left, top, right, bottom = query.box
            y, x = self.movie.spacing[-2:]
            box = (left * x, top * y, right * x, bottom * y)
        chosen = QuestionFilter(query.event, query.first, query.last, box, track)
        n = min(query.n, MAX_QUESTIONS)
        return await asyncio.to_thread(self._view_questions, n, query.page, chosen)

    def _view_questions(
        self, n: int, page: str, chosen: QuestionFilter = NO_FILTER
    ) -> list[Json]:
        """Return questions for a page; open pages receive different ones."""
        pages = sorted(self._other_pages(page) | {page})
        n_ranked = min(n * len(pages), MAX_QUESTIONS)
        questions = self.rank_questions(n_ranked, chosen) if n else []
        views = []
        for question in questions[pages.index(page) :: len(pages)]:
            view = view_question(
                question,
                self.get_cells(question.frame),
                self.get_cells(question.frame + 1),
                self.predictions.by_frame.get(question.frame),
            )
            views.append(view)
        return views

    async def view_family(self, frame: int, label: int) -> Json:
        """Return the tracks of a cell's family.

        While predictions are renewed, it is the family of earlier ones: building the
        lineage after every frame pair would keep the server busy.
        """
        may_be_old = self.is_learning and self.worker_status["alive"]
        lineage = await self.lineages.get(
            self.positions, self.state.annotations, may_be_old
        )
        if lineage is None:
            return {"tracks": [], "selected": None, "ready": False}
        view = await asyncio.to_thread(
            view_family, lineage, frame, label, self.typical_confidence
        )
        return {**view, "ready": True}

    # Changes

    async def answer(self, request: AnswerRequest) -> Json:
        """Store an answer; return what follows from it at once."""
        outcome = await self.make_answer(request.to_change())
        return await asyncio.to_thread(self._view_outcome, outcome, request.page)

    async def edit_masks(self, request: MaskEditRequest) -> Json:
        """Edit the masks of a frame; return what follows from it at once."""
        outcome = await self.make_edit(request.to_change())
        return await self._view_change(outcome, request.page)

    async def undo(self, request: ChangeRequest) -> Json:
        """Undo the last answer or edit of a page."""
        return await self._undo_or_redo(Act.UNDO, request)

    async def redo(self, request: ChangeRequest) -> Json:
        """Redo what a page undid last."""
        return await self._undo_or_redo(Act.REDO, request)

    async def _undo_or_redo(self, act: Act, request: ChangeRequest) -> Json:
        outcome = await self.make_undo(
            act,
            request.key,
            request.revision,
            request.author,
            self._other_pages(request.page),
        )
        if outcome.entry is not None:
            return await self._view_change(outcome, request.page)
        return {
            "revision": outcome.state.revision,
            "annotated": len(outcome.state.annotations),
            "frame": None,
            "changed": None,
            "pairs": [],
            **self.undo_state(request.page),
        }

    async def move_to(self, request: PositionRequest) -> Json:
        """Store where the person is."""
        await self.save_position(request.frame, request.label)
        return {"place": self.position}

    async def choose_events(self, request: EventKindsRequest) -> Json:
        """Choose the kinds of events that can happen."""
        return await self.switch_events(request.events)

    async def _view_change(self, outcome: Outcome, page: str) -> Json:
        view = await asyncio.to_thread(self._view_outcome, outcome, page)
        return {**self._view_masks(outcome.entry), **self.undo_state(page), **view}

    async def review_track(self, request: TrackReviewRequest) -> Json:
        """Confirm the track of a cell, or reject it from this cell on."""
        answers = await self.find_track_answers(
            request.frame, request.label, request.right
        )
        outcome = await self.make_answers(answers, request.key, request.author)
        return self._view_answers(outcome, len(answers))

    async def import_file(
        self, name: str, content: bytes, key: str, author: Author
    ) -> Json:
        """Import annotations, or start with the weights of a file."""
        if name.lower().endswith(SUFFIX):
            return await self.start_with(InitialWeights(name, content))
        answers = await asyncio.to_thread(read_upload, name, content, self.movie)
        outcome = await self.make_answers(answers, key, author)
        return self._view_answers(outcome, len(answers))

    def _view_answers(self, outcome: Outcome, n_given: int) -> Json:
        return {
            "revision": outcome.state.revision,
            "annotated": len(outcome.state.annotations),
            "new": outcome.n_new,
            "given": n_given,
        }

    def undo_state(self, page: str) -> Json:
        """Return whether a page can undo and redo."""
        others = self._other_pages(page)
        return {
            "can_undo": self.store.can(Act.UNDO, others),
            "can_redo": self.store.can(Act.REDO, others),
        }

    def _other_pages(self, page: str) -> set[str]:
        """Return the other open pages, whose answers this page cannot undo."""
        if not page:
            return set()
        return {other for other, n in self.open_pages.items() if n > 0} - {page, ""}

    def _apply(self, outcome: Outcome, page: str = "") -> None:
        """Show a new state; the pictures follow the masks."""
        super()._apply(outcome, page)
        self.pictures.movie = self.movie

    def _view_outcome(self, outcome: Outcome, page: str) -> Json:
        state = outcome.state
        return {
            "revision": state.revision,
            "annotated": len(state.annotations),
            "outdated": len(state.outdated),
            "pairs": [self._view_pair(state, one) for one in outcome.predictions],
            "questions": self._view_questions(QUESTIONS_AFTER_ANSWER, page),
        }

    def _view_masks(self, entry: Entry | None) -> Json:
        """Return what an edit, undo or redo changed."""
        masks = {"masks": dict(self.state.masks)}
        if entry is None:
            return masks
        change = entry.change
        changed: Json = {"frame": change.frame, "act": str(entry.act)}
        if isinstance(change, Edit):
            present = self.get_cells(change.frame).label
            changed["edit"] = str(change.kind)
            changed["cells"] = [
                label for label in change.touched if np.isin(label, present)
            ]
        else:
            changed |= view_event(str(change.event), change.sources, change.targets)
            changed["happened"] = change.happened
        return {**masks, "frame": change.frame, "changed": changed}
