"""All that changes a movie's store: answers, edits of masks, undo and redo, each with what follows from it at once.

These calls wait for the disk and for solvers; a session makes them one after the other in a thread of their own. What
is impossible is refused before anything is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clew.annotation.answers import Answer
from clew.annotation.edited_movie import changed_frames
from clew.annotation.frame_pair_cache import KeptPairs
from clew.annotation.mask_edits import Edit
from clew.annotation.predictions import Predictor, pairwise, with_answer
from clew.annotation.store.history import Act, Author, Entry, StaleRevision
from clew.annotation.store.store import Store
from clew.app.api_models import AskedEdit, Sent
from clew.app.masks import Masks
from clew.app.progress import check_of
from clew.app.state import State
from clew.errors import InfeasibleAnnotation, InputError
from clew.tracking.solve import SolvedPair


@dataclass(frozen=True)
class Outcome:
    """What holds after a change."""

    state: State
    solved: tuple[SolvedPair, ...] = ()
    """The frame pairs that the change is about, solved anew."""
    entry: Entry | None = None
    """Of the history; None if there was nothing to change."""
    new: int = 0
    """How many answers of several were new."""


class Changes:
    """A movie's store, masks and predictions, and the ways to change them."""

    def __init__(self, store: Store, masks: Masks, predictor: Predictor) -> None:
        self.store, self.masks, self.predictor = store, masks, predictor

    def state(self) -> State:
        """What holds now."""
        return State.of(self.store, self.masks.positions)

    def answer(self, sent: Sent) -> Outcome:
        """Solve the frame pair as it will be, so that an impossible answer is refused; then keep the answer."""
        answer, positions = sent.answer, self.masks.positions
        answer.check(self.masks.movie.n_frames, lambda t: positions.cells(t).label)
        check = check_of(
            dict(self.predictor.solved), answer, sent.asked, self.predictor.margin_scale
        )
        try:
            held = self.state()
            solved = self._solved_with(held, [answer])
        except InfeasibleAnnotation:
            if sent.revision != self.store.revision:
                raise StaleRevision(sent.revision, self.store.revision) from None
            raise
        # what was said about cells that look otherwise now, nobody is asked about
        replace = sent.replace or set(self.store.contradicting(answer)) <= set(
            held.outdated
        )
        self.store.answer(
            *answer.fact,
            answer.happened,
            key=sent.key,
            revision=sent.revision,
            replace=replace,
            author=sent.author,
            looks=positions.looks(answer),
            check=check,
        )
        state = self.state()
        return Outcome(state, self._agreeing(state, solved))

    def answer_many(
        self, answers: Sequence[Answer], key: str, author: Author
    ) -> Outcome:
        """Keep several answers at once, each as far as it can be so with the others."""
        positions = self.masks.positions
        solved = self._solved_with(self.state(), answers)
        new = self.store.answer_many(
            [(one, positions.looks(one)) for one in answers], key=key, author=author
        )
        state = self.state()
        return Outcome(state, self._agreeing(state, solved), new=new)

    def _solved_with(self, held: State, answers: Sequence[Answer]) -> list[SolvedPair]:
        """The frame pairs that answers are about, as they will be; refuses what leaves no assignment."""
        parts = [part for answer in answers for part in pairwise(answer)]
        solved = []
        for frame in sorted({part.frame for part in parts}):
            here = held.annotations.select_frame(frame)
            for part in parts:
                if (
                    part.frame == frame and part.event.span == 1
                ):  # that there was no gap tells a frame pair nothing
                    here = with_answer(here, part)
            solved.append(self.predictor.solve(frame, here))
        return solved

    def _agreeing(
        self, state: State, solved: Sequence[SolvedPair]
    ) -> tuple[SolvedPair, ...]:
        """Frame pairs as the annotations have them now: some answers may have come before, or been left out."""
        here = [state.annotations.select_frame(one.frame) for one in solved]
        return tuple(
            one
            if one.key == now.content_key()
            else self.predictor.solve(one.frame, now)
            for one, now in zip(solved, here, strict=True)
        )

    def edit(self, asked: AskedEdit) -> Outcome:
        """Edit the masks of a frame: what changed is measured, made and solved anew, and then the edit is kept."""
        done: list[tuple[Masks, KeptPairs, list[SolvedPair]]] = []

        def make() -> Edit:
            seen = self.store.mask_revisions().get(asked.frame, 0)
            if asked.masks != seen:
                raise InputError(
                    f"the masks of frame {asked.frame} were changed meanwhile; look at them again"
                )
            edit = self.masks.make(asked, self.store.labels_used(asked.frame))
            done.append(
                self._with_masks(self.masks.with_edits((*self.masks.edits, edit)))
            )
            return edit

        revision = self.store.edit(
            make, key=asked.key, revision=asked.revision, author=asked.author
        )
        for masks, kept, solved in done:
            self._use(masks, kept, solved)
        solved = done[0][2] if done else []
        return Outcome(self.state(), tuple(solved), self.store.entry(revision))

    def move(
        self, act: Act, key: str, revision: int, author: Author, others: Collection[str]
    ) -> Outcome:
        """Take the last answer or edit of a page back, or bring it back."""
        step, before = (
            self.store.undo if act is Act.UNDO else self.store.redo,
            self.store.revision,
        )
        done = step(key=key, revision=revision, author=author, others=others)
        if done is None:
            return Outcome(self.state())
        entry = self.store.entry(done)
        if isinstance(entry.change, Edit):
            masks, kept, solved = self._with_masks(
                self.masks.with_edits(self.store.edits())
            )
            self._use(masks, kept, solved)
            return Outcome(self.state(), tuple(solved), entry)
        state = self.state()
        answers = [
            one.answer for one in self.store.history()[min(before, done - 1) : done]
        ]  # several if given at once
        frames = sorted({part.frame for answer in answers for part in pairwise(answer)})
        return Outcome(
            state,
            tuple(
                self.predictor.solve(t, state.annotations.select_frame(t))
                for t in frames
            ),
            entry,
        )

    def _with_masks(self, masks: Masks) -> tuple[Masks, KeptPairs, list[SolvedPair]]:
        """What follows from other masks: the frame pairs that they touch, made and solved anew."""
        frames = changed_frames(self.masks.edits, masks.edits)
        pairs = self.predictor.kept.pairs.touched(frames)
        kept = self.predictor.edited(masks.positions.source, pairs)
        annotations = State.of(self.store, masks.positions).annotations
        return (
            masks,
            kept,
            [
                self.predictor.solve(frame, annotations.select_frame(frame), kept)
                for frame in pairs
            ],
        )

    def _use(self, masks: Masks, kept: KeptPairs, solved: Sequence[SolvedPair]) -> None:
        """Go on with other masks."""
        self.masks = masks
        self.predictor.use_pairs(kept, [one.frame for one in solved])
