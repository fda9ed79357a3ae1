"""Everything that changes a movie's store: answers, mask edits, undo and redo.

These calls wait for the disk and for solvers; a session makes them one after the
other in a thread. Whatever is impossible is rejected before anything is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.cell_positions import Positions
from clew.annotation.edited_movie import find_changed_frames
from clew.annotation.frame_pair_cache import FramePairCache
from clew.annotation.mask_edits import Edit
from clew.annotation.mask_state import MaskState
from clew.annotation.predictions import (
    Prediction,
    Predictions,
    add_answer,
    split_into_pairs,
)
from clew.annotation.progress import check_prediction
from clew.annotation.store.history import ANONYMOUS, Act, Author, Entry, StaleRevision
from clew.annotation.store.store import Store
from clew.errors import InfeasibleAnnotation, InputError, StoreError
from clew.tracking.events import Annotations


class StaleMasks(StoreError):
    """An answer is about masks that were changed after the page showed them."""


@dataclass(frozen=True)
class State:
    """What the store holds at a moment."""

    revision: int
    annotations: Annotations
    """Those whose cells still look as they did when they were annotated."""
    outdated: tuple[Answer, ...]
    """The other ones; they stay in the history, and are asked again."""
    masks: Mapping[int, int]
    """By frame: the last revision that changed its masks."""

    @classmethod
    def read(cls, store: Store, positions: Positions) -> State:
        """Return the present state."""
        annotations = store.annotations()
        entries = store.active_entries()
        holds = np.array(
            [positions.still_matches(entry) for entry in entries], dtype=bool
        )
        outdated = tuple(
            entry.answer
            for entry, still_holds in zip(entries, holds, strict=True)
            if not still_holds
        )
        held = annotations[holds] if outdated else annotations
        return cls(store.revision, held, outdated, store.mask_revisions())


@dataclass(frozen=True)
class Outcome:
    """What holds after a change."""

    state: State
    predictions: tuple[Prediction, ...] = ()
    """Of the frame pairs that changed."""
    entry: Entry | None = None
    """Of the history; None if there was nothing to change."""
    n_new: int = 0
    """How many of several answers were new."""


@dataclass(frozen=True)
class AnswerChange:
    """An answer, and what the person saw when it was given."""

    answer: Answer
    key: str
    """Makes it count once, however often it is sent."""
    revision: int
    """Of the state that was shown."""
    author: Author = ANONYMOUS
    question: Answer | None = None
    """The event in question; None if the person chose what to annotate."""
    masks: tuple[int, int] | None = None
    """The revisions of the masks that were shown, of both frames."""
    replace: bool = False
    """Whether it corrects what it contradicts."""


@dataclass(frozen=True)
class MaskChange:
    """An edit of the masks of a frame."""

    frame: int
    make_edit: Callable[[MaskState, list[int]], Edit]
    """Called with the present masks, and the labels that edits ever gave to cells."""
    key: str
    revision: int
    masks: int
    """The revision of the frame's masks that was shown."""
    author: Author = ANONYMOUS


class Changes:
    """A movie's store, masks and predictions, and the ways to change them."""

    def __init__(
        self, store: Store, masks: MaskState, predictions: Predictions
    ) -> None:
        self.store = store
        self.masks = masks
        self.predictions = predictions

    def read_state(self) -> State:
        """Return what holds now."""
        return State.read(self.store, self.masks.positions)

    def answer(self, change: AnswerChange) -> Outcome:
        """Store an answer, after a solved frame pair showed that it is possible."""
        answer = change.answer
        positions = self.masks.positions
        answer.check(self.masks.movie.n_frames, lambda t: positions.cells(t).label)
        self._check_masks(change)
        answers = [answer, *answer.other_ends(self.masks.movie.n_frames)]
        check = check_prediction(
            dict(self.predictions.by_frame),
            answer,
            change.question,
            self.predictions.margin_scale,
        )
        state = self.read_state()
        try:
            predictions = self._solve_with(state, answers)
        except InfeasibleAnnotation:
            if change.revision != self.store.revision:
                raise StaleRevision(change.revision, self.store.revision) from None
            raise
        # Answers about cells that changed since are replaced without asking.
        contradicted = {
            earlier for one in answers for earlier in self.store.find_contradicting(one)
        }
        self.store.answer(
            *answer.fact,
            answer.happened,
            key=change.key,
            revision=change.revision,
            replace=change.replace or contradicted <= set(state.outdated),
            author=change.author,
            looks=positions.cell_fingerprints(answer),
            check=check,
            others=[(one, positions.cell_fingerprints(one)) for one in answers[1:]],
        )
        state = self.read_state()
        return Outcome(state, self._solve_again(state, predictions))

    def _check_masks(self, change: AnswerChange) -> None:
        """Reject an answer to masks that have changed since the page showed them."""
        if change.masks is None or self.store.has_key(change.key):
            return
        revisions = self.store.mask_revisions()
        frame = change.answer.frame
        shown = (frame, frame + 1)
        if change.masks != tuple(revisions.get(t, 0) for t in shown):
            raise StaleMasks(
                f"the masks of frame {frame} or {frame + 1} changed after this "
                "question was shown; look at it again"
            )

    def answer_many(
        self, answers: Sequence[Answer], key: str, author: Author
    ) -> Outcome:
        """Store several answers at once, except those that contradict others."""
        positions = self.masks.positions
        predictions = self._solve_with(self.read_state(), answers)
        n_new = self.store.answer_many(
            [(answer, positions.cell_fingerprints(answer)) for answer in answers],
            key=key,
            author=author,
        )
        state = self.read_state()
        return Outcome(state, self._solve_again(state, predictions), n_new=n_new)

    def _solve_with(self, state: State, answers: Sequence[Answer]) -> list[Prediction]:
        """Solve the frame pairs of new answers; raise if they are impossible."""
        parts = [part for answer in answers for part in split_into_pairs(answer)]
        predictions = []
        for frame in sorted({part.frame for part in parts}):
            annotations = state.annotations.select_frame(frame)
            for part in parts:
                # A denied gap says nothing about single frame pairs.
                if part.frame == frame and part.event.span == 1:
                    annotations = add_answer(annotations, part)
            predictions.append(self.predictions.solve(frame, annotations))
        return predictions

    def _solve_again(
        self, state: State, predictions: Sequence[Prediction]
    ) -> tuple[Prediction, ...]:
        """Solve those pairs again whose stored annotations differ from the expected."""
        agreeing = []
        for prediction in predictions:
            annotations = state.annotations.select_frame(prediction.frame)
            if prediction.key != annotations.content_key():
                prediction = self.predictions.solve(prediction.frame, annotations)
            agreeing.append(prediction)
        return tuple(agreeing)

    def edit_masks(self, change: MaskChange) -> Outcome:
        """Edit the masks of a frame; measure and solve what changed, then store it."""
        solved: list[_ChangedMasks] = []

        def make_edit() -> Edit:
            frame = change.frame
            if change.masks != self.store.mask_revisions().get(frame, 0):
                raise InputError(
                    f"the masks of frame {frame} changed meanwhile; look at them again"
                )
            edit = change.make_edit(self.masks, self.store.used_labels(frame))
            masks = self.masks.with_edits((*self.masks.edits, edit))
            solved.append(self._solve_changed(masks))
            return edit

        revision = self.store.edit(
            make_edit,
            key=change.key,
            revision=change.revision,
            author=change.author,
        )
        for solution in solved:
            self._use_masks(solution)
        predictions = solved[0].predictions if solved else ()
        return Outcome(self.read_state(), predictions, self.store.entry(revision))

    def undo_or_redo(
        self,
        act: Act,
        key: str,
        revision: int,
        author: Author,
        other_pages: Collection[str],
    ) -> Outcome:
        """Undo the last answer or edit of a page, or redo it."""
        before = self.store.revision
        done = self.store.undo_or_redo(
            act, key=key, revision=revision, author=author, other_pages=other_pages
        )
        if done is None:
            return Outcome(self.read_state())
        entry = self.store.entry(done)
        if isinstance(entry.change, Edit):
            change = self._solve_changed(self.masks.with_edits(self.store.edits()))
            self._use_masks(change)
            return Outcome(self.read_state(), change.predictions, entry)
        state = self.read_state()
        # Several entries if several answers were given at once.
        entries = self.store.history()[min(before, done - 1) : done]
        parts = [part for one in entries for part in split_into_pairs(one.answer)]
        predictions = tuple(
            self.predictions.solve(frame, state.annotations.select_frame(frame))
            for frame in sorted({part.frame for part in parts})
        )
        return Outcome(state, predictions, entry)

    def _solve_changed(self, masks: MaskState) -> _ChangedMasks:
        """Solve the frame pairs that follow from changed masks."""
        edited = find_changed_frames(self.masks.edits, masks.edits)
        frames = self.predictions.cache.pairs.pairs_using(edited)
        cache = self.predictions.cache.with_source(masks.positions.source, frames)
        annotations = State.read(self.store, masks.positions).annotations
        predictions = tuple(
            self.predictions.solve(frame, annotations.select_frame(frame), cache)
            for frame in frames
        )
        return _ChangedMasks(masks, cache, predictions)

    def _use_masks(self, change: _ChangedMasks) -> None:
        """Continue with changed masks."""
        self.masks = change.masks
        frames = [prediction.frame for prediction in change.predictions]
        self.predictions.use_cache(change.cache, frames)


@dataclass(frozen=True, eq=False)
class _ChangedMasks:
    """Other masks, and what follows from them."""

    masks: MaskState
    cache: FramePairCache
    predictions: tuple[Prediction, ...]
