"""One movie that is being annotated: its store, predictions, questions and learning.

No web server is needed: the annotation page and the napari dock use the same session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from clew.annotation.answers import Answer
from clew.annotation.cell_positions import CellPositions, Positions
from clew.annotation.changes import (
    AnswerChange,
    Changes,
    MaskChange,
    Outcome,
    State,
)
from clew.annotation.files import (
    ExportKind,
    export_annotations,
    export_masks,
    export_tracks,
)
from clew.annotation.initial_weights import (
    INITIAL_WEIGHTS,
    InitialWeights,
    build_pairs,
)
from clew.annotation.learner import Learner, make_adapted_tracker
from clew.annotation.learning_loop import LearningLoop
from clew.annotation.mask_state import MaskState
from clew.annotation.predictions import Prediction, Predictions
from clew.annotation.progress import CURVE, Progress
from clew.annotation.questions import (
    NO_FILTER,
    Question,
    QuestionFilter,
    next_questions,
    questions_about_changed_cells,
    typical_confidence,
)
from clew.annotation.store.history import Act, Author
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.annotation.stored_profile import read_profile, store_profile
from clew.annotation.tracks import LineageCache, confirm_track, reject_track_from
from clew.annotation.worker import LearningTask, LearningWorker
from clew.errors import ClewError, InputError
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event
from clew.tracking.lineage.build import build_lineage
from clew.tracking.movie import Movie
from clew.tracking.profile import add_annotated_kinds, parse_events
from clew.tracking.tracker import Tracker

Json = dict[str, Any]
POSITION = "place"
EVENTS = "events"
"""Settings in the store: where the person was, and which kinds of events can happen."""
QUESTIONS_AHEAD = 3
"""Whose frame pairs are predicted before others."""
EXPORT_WAIT = 1.0
"""Seconds that an export waits for weights which follow from the last answers."""


class MovieSession:
    """One movie.

    The methods run in the thread of the event loop; whatever takes longer than a
    moment runs in another thread.

    Parameters
    ----------
    number : int
        Of the movie.
    masks : MaskState
    store : Store
    predictions : Predictions
    tracker : Tracker
        Has the initial weights.
    initial_weights : InitialWeights, optional
        The file that these come from, if a person chose it on the page.
    """

    def __init__(
        self,
        number: int,
        masks: MaskState,
        store: Store,
        predictions: Predictions,
        tracker: Tracker,
        initial_weights: InitialWeights | None = None,
    ) -> None:
        self.number = number
        self.store = store
        self.predictions = predictions
        self.changes = Changes(store, masks, predictions)
        self.progress = Progress(store, predictions)
        self.lineages = LineageCache(predictions)
        self.state = self.changes.read_state()
        self.position: Json | None = store.get_setting(POSITION)
        self.tracker = tracker
        self._n_starts = 0
        events = store.get_setting(EVENTS)
        if events is not None:
            self._use_events(parse_events(events) or ALL_EVENTS)
        self._enable_annotated_kinds()
        self.initial_weights = initial_weights
        self.errors_before: Json | None = None
        """The estimate of wrong events before other initial weights were chosen."""
        self.publish: Callable[[str, Json], None] = lambda *_: None
        self.typical_confidence = 1.0
        self.worker_status: Json = {"alive": False, "problem": ""}
        self.loop: LearningLoop | None = None
        self._next_frames: list[int] = []
        self._writer = ThreadPoolExecutor(1, f"movie-{number}")

    @classmethod
    def open(
        cls,
        number: int,
        movie: Movie,
        source: Source,
        path: Path,
        tracker: Tracker | None = None,
        use_stored_weights: bool = True,
    ) -> Self:
        """Open a movie and its store for annotation.

        Parameters
        ----------
        number : int
            Of the movie in the worker.
        movie : Movie
        source : Source
            Its detections.
        path : Path
            Of the store.
        tracker : Tracker, optional
            Has the initial weights; generic ones by default.
        use_stored_weights : bool
            Whether initial weights that a person chose before come first.
        """
        identity = MovieIdentity.of(movie)
        positions = Positions(source, movie.spacing)
        store = Store.open(path, movie=identity, still_matches=positions.still_matches)
        try:
            masks = MaskState.of(movie, source, store.edits())
            stored = InitialWeights.read(store) if use_stored_weights else None
            if stored is not None:
                tracker = stored.load()
            elif tracker is None:
                tracker = Tracker.generic()
            learner = Learner(
                masks.positions.source,
                tracker=tracker,
                profile=read_profile(store, source, tracker),
            )
            store_profile(store, source, tracker, learner.pairs.profile)
            predictions = Predictions(learner.pairs, learner.w)
            return cls(number, masks, store, predictions, tracker, stored)
        except BaseException:
            store.close()
            raise

    @property
    def movie(self) -> Movie:
        """The movie with its mask edits."""
        return self.changes.masks.movie

    @property
    def positions(self) -> Positions:
        """The cells of the movie."""
        return self.changes.masks.positions

    def get_cells(self, frame: int) -> CellPositions:
        """Return the cells of a frame."""
        return self.positions.cells(frame)

    # Learning

    @property
    def unedited_source(self) -> Source:
        """The cells of the movie without mask edits, as the worker needs them."""
        return self.changes.masks.source

    def start_learning(self, worker: LearningWorker) -> LearningLoop:
        """Return the loop that learns from the answers; the caller runs it."""
        self.loop = LearningLoop(
            self.number,
            worker,
            self.predictions,
            self._make_task(),
            self._on_learning,
        )
        self._update_learning()
        return self.loop

    def _make_task(self) -> LearningTask:
        return LearningTask(
            self.state.revision,
            self.state.annotations,
            self.predictions.cache.pairs.profile,
            self.changes.masks.edits,
            self.tracker,
            self._n_starts,
        )

    def _update_learning(self, frame: int | None = None) -> None:
        """Learn from the present state; predict the frames that are seen next first."""
        if self.loop is None:
            return
        if frame is None:
            frame = (self.position or {}).get("frame", 0)
        self.loop.update(self._make_task(), (frame, *self._next_frames))

    def _on_learning(self, event: str, data: Json) -> None:
        """Pass news about learning on to the pages."""
        n_answers = len(self.state.annotations)
        if event == "questions":
            self.typical_confidence = typical_confidence(self._list_predictions())
        if event == "questions" or (
            event == "predictions" and self.progress.needs_point(n_answers)
        ):
            curve = self.progress.add_point(n_answers)
            self._writer.submit(self.store.set_setting, CURVE, curve)
        self.publish(event, data)

    def on_worker_status(self, is_alive: bool, problem: str) -> None:
        """Take note of the start or end of the learning process."""
        self.worker_status = {"alive": is_alive, "problem": problem}

    @property
    def is_learning(self) -> bool:
        """Whether predictions that follow from the last answer are still to come."""
        return self.loop is None or self.loop.is_busy

    @property
    def learned_revision(self) -> int:
        """The revision that the present weights follow from; −1 before the first."""
        return -1 if self.loop is None else self.loop.fit_revision

    # Predictions and questions

    async def warm_up(self) -> None:
        """Solve the pair that is shown first, so that Numba compiles before it."""
        if self.movie.n_frames > 1:
            frame = (self.position or {}).get("frame", 0)
            with contextlib.suppress(ClewError):
                await self.solve_pair(min(frame, self.movie.n_frames - 2))

    async def solve_pair(self, frame: int) -> tuple[State, Prediction]:
        """Return the present state, and a frame pair by the present weights."""
        while True:
            state = self.state
            cache = self.predictions.cache
            prediction = await asyncio.to_thread(
                self.predictions.get_current,
                frame,
                state.annotations.select_frame(frame),
            )
            # Solve again if masks, kinds of events or initial weights changed meanwhile.
            if cache is self.predictions.cache:
                self.predictions.update([prediction], self.state.annotations)
                return state, prediction

    def rank_questions(self, n: int, chosen: QuestionFilter) -> list[Question]:
        """Return questions from the present predictions, so that none is stale."""
        state = self.state
        predictions = self._list_predictions()
        self.typical_confidence = typical_confidence(predictions)
        questions = next_questions(
            predictions,
            state.annotations,
            self.positions,
            n,
            diameter=self.predictions.cache.pairs.profile.scales.diameter,
            chosen=chosen,
            seed=state.revision,
        )
        if chosen == NO_FILTER:
            changed = questions_about_changed_cells(
                self.predictions.by_frame, state.annotations, state.outdated, n
            )
            facts = {question.fact for question in changed}
            others = [one for one in questions if one.fact not in facts]
            questions = [*changed, *others][:n]
            ahead = questions[:QUESTIONS_AHEAD]
            self._next_frames = [question.frame for question in ahead]
        return questions

    def _list_predictions(self) -> list[Prediction]:
        """Return the predictions in the order of the movie."""
        by_frame = dict(self.predictions.by_frame)
        return [by_frame[frame] for frame in sorted(by_frame)]

    # Changes

    async def make_answer(self, change: AnswerChange) -> Outcome:
        """Store an answer, and learn from it."""
        outcome: Outcome = await self._run_in_writer(self.changes.answer, change)
        self._apply(outcome, change.author.page)
        return outcome

    async def make_answers(
        self, answers: list[Answer], key: str, author: Author
    ) -> Outcome:
        """Store several answers at once, and learn from them."""
        outcome: Outcome = await self._run_in_writer(
            self.changes.answer_many, answers, key, author
        )
        self._apply(outcome)
        return outcome

    async def make_edit(self, change: MaskChange) -> Outcome:
        """Edit the masks of a frame."""
        outcome: Outcome = await self._run_in_writer(self.changes.edit_masks, change)
        self._apply(outcome, change.author.page)
        return outcome

    async def make_undo(
        self,
        act: Act,
        key: str,
        revision: int,
        author: Author,
        other_pages: Collection[str] = (),
    ) -> Outcome:
        """Undo the last answer or edit, except those of other pages, or redo it."""
        outcome: Outcome = await self._run_in_writer(
            self.changes.undo_or_redo, act, key, revision, author, other_pages
        )
        if outcome.entry is not None:
            self._apply(outcome, author.page)
        return outcome

    async def find_track_answers(
        self, frame: int, label: int, is_right: bool
    ) -> list[Answer]:
        """Return answers that confirm a cell's track, or reject it from there on."""
        track = await self.lineages.find_track(
            self.positions, self.state.annotations, frame, label
        )
        predictions = self.predictions.by_frame
        if is_right:
            return confirm_track(track, predictions)
        return reject_track_from(track, predictions, frame, label)

    async def switch_events(self, names: list[str]) -> Json:
        """Allow these kinds of events, besides moving, appearing and disappearing."""
        events = parse_events(names) or ALL_EVENTS
        if events != self.predictions.events:
            sorted_names = sorted(str(event) for event in events)
            await self._run_in_writer(self.store.set_setting, EVENTS, sorted_names)
            self._use_events(events)
            self.publish("events", {"events": self.event_names()})
            self._update_learning()
        return {"events": self.event_names()}

    def _enable_annotated_kinds(self) -> None:
        kinds = self.state.annotations.happened_kinds()
        if not kinds <= self.predictions.events:
            self._use_events(add_annotated_kinds(self.predictions.events, kinds))

    def _use_events(self, events: frozenset[Event]) -> None:
        """Allow these kinds of events; learning starts again if they have features."""
        pairs = self.predictions.cache.pairs
        profile = pairs.profile.with_events(events)
        if profile.groups == pairs.profile.groups:
            self.predictions.use_profile(profile)
            return
        weights = self.tracker.weights_for(profile)
        pairs = replace(pairs, profile=profile, weights=weights)
        self.predictions.restart(pairs, weights)
        self._n_starts += 1

    def event_names(self) -> list[str]:
        """Return the kinds of events that can happen."""
        return sorted(str(event) for event in self.predictions.events)

    async def start_with(self, initial_weights: InitialWeights) -> Json:
        """Start with weights of another movie, and learn the answers again."""
        errors_before = self.progress.estimate_errors()
        tracker = await asyncio.to_thread(initial_weights.load)
        pairs, weights = await asyncio.to_thread(
            build_pairs, self.changes.masks.source, tracker, self.predictions.events
        )
        await self._run_in_writer(
            self.store.set_setting, INITIAL_WEIGHTS, initial_weights.to_json()
        )
        edited = replace(pairs, source=self.positions.source)
        await self._run_in_writer(self.predictions.restart, edited, weights)
        self.tracker = tracker
        self._n_starts += 1
        self.initial_weights = initial_weights
        self.errors_before = errors_before
        self.publish("began", {"weights": initial_weights.name})
        self._update_learning()
        return {"weights": initial_weights.name}

    async def save_position(self, frame: int, label: int | None) -> None:
        """Store where the person is."""
        last = self.movie.n_frames - 1
        if not 0 <= frame <= last:
            raise InputError(f"frame is {frame}; expected 0 to {last}")
        self.position = {"frame": frame, "label": label}
        await self._run_in_writer(self.store.set_setting, POSITION, self.position)

    async def _run_in_writer(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make changes one after the other, in a thread: they wait for the disk."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, call, *arguments)

    def _apply(self, outcome: Outcome, page: str = "") -> None:
        """Show a new state, tell all pages, and learn from it.

        `page` is the one that receives the outcome with the reply.
        """
        state = outcome.state
        by_frame = {one.frame: one for one in outcome.predictions}
        self.predictions.by_frame |= by_frame
        if state.revision <= self.state.revision:
            return  # the same request again, or another change was faster
        self.state = state
        self._enable_annotated_kinds()
        frame = max(by_frame, default=None)
        news = {
            "revision": state.revision,
            "annotated": len(state.annotations),
            "frame": frame,
            "page": page,
        }
        self.publish("changed", news)
        self._update_learning(frame)

    # Exports

    async def export(self, kind: ExportKind, path: Path) -> Json:
        """Write a file for download; return how complete the learning behind it is."""
        annotations = self.state.annotations
        if kind is ExportKind.MASKS:
            await asyncio.to_thread(export_masks, path, self.movie)
        elif not kind.is_learned:
            await asyncio.to_thread(
                export_annotations, kind, path, annotations, self.movie
            )
        else:
            await self._wait_for_learning(kind)
            await asyncio.to_thread(self._export_learned, kind, path, annotations)
        return {"learned": self._is_learned(kind)}

    def _is_learned(self, kind: ExportKind) -> bool:
        """Return whether a file would follow from all answers."""
        if not kind.is_learned or not len(self.state.annotations):
            return True
        if self.loop is None:
            return False
        if kind is ExportKind.WEIGHTS:
            return self.loop.is_learned
        return not self.loop.is_busy

    async def _wait_for_learning(self, kind: ExportKind) -> None:
        """Wait a moment for the last answers; then export what there is."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + EXPORT_WAIT
        while self.worker_status["alive"] and clock() < deadline:
            if self._is_learned(kind):
                return
            await asyncio.sleep(0.02)

    def _export_learned(
        self, kind: ExportKind, path: Path, annotations: Annotations
    ) -> None:
        if kind is ExportKind.WEIGHTS:
            tracker = make_adapted_tracker(
                self.tracker,
                self.predictions.cache.pairs.profile.groups,
                self.predictions.weights.values,
                annotations,
            )
            tracker.save(path)
            return
        while True:
            masks = self.changes.masks
            predictions = self.predictions.solve_missing(annotations)
            # Solve again if masks were edited meanwhile.
            if masks is self.changes.masks:
                lineage = build_lineage(masks.positions, predictions, annotations)
                export_tracks(kind, path, lineage, masks.movie)
                return

    def close(self) -> None:
        """Finish writing, and close the store."""
        self._writer.shutdown(wait=True)
        self.store.close()
