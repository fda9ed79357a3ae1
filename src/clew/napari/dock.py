"""The annotation dock: track the masks of a viewer, and answer questions about them.

The learner, the store and the ranking are those of the annotation page. Whatever takes
longer than a moment runs in a thread; its result comes back by a queue that a timer
reads, so that layers and widgets are touched in the thread of Qt only.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clew.annotation.annotator import Annotator, AskedQuestion, name_event
from clew.annotation.answers import Answer
from clew.annotation.changes import Outcome
from clew.annotation.files import ExportKind, FileName
from clew.annotation.mask_edits import Edit
from clew.annotation.store.history import Author
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.worker import LearningWorker
from clew.errors import ClewError
from clew.napari.corrections import list_track_answers, store_painted_frame
from clew.napari.layers import EVENT_NAMES
from clew.napari.overlay import CELLS, LINKS, QuestionOverlay
from clew.napari.panel import NO_IMAGE, Panel
from clew.napari.track_edit import AUTHOR, TracksLink, find_edited_tracks
from clew.tracking.events import Event
from clew.tracking.io.napari import NapariTracks, make_napari_tracks
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.utils.storage import user_folder

TRACKS = "clew: tracks"
POLL_MILLISECONDS = 10
SETTLE_MILLISECONDS = 200
"""After the last change of a Tracks layer, whose data and graph are set one by one."""
KEYS = {
    "y": "yes",
    "n": "no",
    "j": "say",
    "c": "false",
    "k": "skip",
    "h": "blink",
    "u": "undo",
}
QUESTIONS = {
    "move": "Does cell {0} move to {1}?",
    "divide": "Does cell {0} divide into {1}?",
    "appear": "Does cell {1} appear?",
    "disappear": "Does cell {0} disappear?",
    "split": "Is cell {0} cut into {1}, without a division?",
    "merge": "Do cells {0} merge into {1}?",
    "false_end": "Is outline {0} not a cell?",
    "false_begin": "Is outline {1} not a cell?",
}


class AnnotationDock:
    """A panel beside a viewer, and the movie that is annotated with it.

    Parameters
    ----------
    viewer : napari.Viewer
    store_folder : Path, optional
        Where answers are stored; by default in the user's folder of clew.
    make_worker : callable
        Makes the `LearningWorker`.

    Attributes
    ----------
    annotator : Annotator or None
        None until a movie is open.
    asked : AskedQuestion or None
        The question that is shown.
    draft : tuple of two lists
        Cells that were clicked in the first and in the second frame.
    link : TracksLink or None
        To the tracks that napari-track-edit shows, if it does.
    held : list of float
        CPU seconds for which each call held the thread of Qt.
    """

    def __init__(
        self,
        viewer: Any,
        store_folder: Path | None = None,
        make_worker: Any = LearningWorker,
    ) -> None:
        from qtpy.QtCore import QTimer

        self.viewer = viewer
        self.store_folder = store_folder or user_folder("state") / "napari"
        self.make_worker = make_worker
        self.annotator: Annotator | None = None
        self.overlay: QuestionOverlay | None = None
        self.labels: Any = None
        self.asked: AskedQuestion | None = None
        self.draft: tuple[list[int], list[int]] = ([], [])
        self.lineage: Lineage | None = None
        self.link: TracksLink | None = None
        self.held: list[float] = []
        self._has_news = False
        self._is_ours = False
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(1, "clew-dock")
        self.panel = Panel(self.act, self.export)
        self.widget = self.panel.widget
        self.widget.destroyed.connect(lambda *_: self.close())
        self._timer = QTimer(self.widget)
        self._timer.timeout.connect(self._poll)
        self._timer.start(POLL_MILLISECONDS)
        self._settle = QTimer(self.widget)
        self._settle.setSingleShot(True)
        self._settle.timeout.connect(self._read_tracks)
        for event in (viewer.layers.events.inserted, viewer.layers.events.removed):
            event.connect(self._list_layers)
        viewer.mouse_drag_callbacks.append(self._on_mouse)
        self._list_layers()

    def _bind_keys(self, layer: Any) -> None:
        """Answer by keys while a layer is active.

        Keys of the viewer would collide with those of other plugins, and layers of
        napari-track-edit have their own.
        """
        if not type(layer).__module__.startswith("napari_track_edit"):
            for key, name in KEYS.items():
                layer.bind_key(key, self._make_key_handler(name), overwrite=True)

    def _make_key_handler(self, name: str) -> Callable[[Any], None]:
        def on_key(_: Any) -> None:
            self.act(name)

        return on_key

    # Threads

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """Measure for how long the thread of Qt is held."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.held.append(time.thread_time() - begin)

    def _do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Work in a thread, then continue in the thread of Qt."""

        def finish(future: Future[Any]) -> None:
            if not future.cancelled():
                self._calls.put(lambda: self._finish(future, then))

        self._pool.submit(work).add_done_callback(finish)

    def _finish(self, future: Future[Any], then: Callable[[Any], None]) -> None:
        error = future.exception()
        if isinstance(error, ClewError):
            self.panel.status.setText(str(error))
            self._ask()
        elif error is not None:
            self.panel.status.setText(f"unexpected {type(error).__name__}: {error}")
        else:
            then(future.result())

    def _poll(self) -> None:
        """Continue with what a thread has finished: one call, then Qt has its turn."""
        with contextlib.suppress(queue.Empty):
            call = self._calls.get_nowait()
            with self._hold():
                call()
            return
        self._follow_track_edit()
        if self._has_news:
            self._has_news = False
            with self._hold():
                self._on_news()

    def _on_listener(self, event: str, data: dict[str, Any]) -> None:
        """Take note of news; this runs in the thread of the session."""
        if event in ("problem", "worker") and data.get("problem"):
            problem = str(data["problem"])
            self._calls.put(lambda: self.panel.status.setText(problem))
        self._has_news = True

    def _on_news(self) -> None:
        annotator = self.annotator
        if annotator is None:
            return
        if self.asked is None:
            self._ask()
        if annotator.is_tracked:
            self._do(annotator.estimate_errors, self._show_errors)
            if self.lineage is None:
                self.act("tracks")

    # Opening

    def _list_layers(self, _: Any = None) -> None:
        """Offer the layers of the viewer; those of the dock are no choice."""
        with self._hold():
            for layer in self.viewer.layers:
                self._bind_keys(layer)
            kinds = [(layer.name, type(layer).__name__) for layer in self.viewer.layers]
            labels = [name for name, kind in kinds if kind == "Labels"]
            images = [name for name, kind in kinds if kind == "Image"]
            self.panel.list_layers(labels, images)

    def act(self, name: str) -> None:
        """Do what a button or key says, see `Panel`."""
        actions: dict[str, Callable[[], None]] = {
            "start": self.start,
            "yes": self.confirm,
            "no": self.deny,
            "say": self.say_draft,
            "false": self.say_false,
            "skip": self.skip,
            "blink": self.blink,
            "undo": self.undo,
            "tracks": self.show_tracks,
        }
        with self._hold():
            actions[name]()

    def start(self) -> None:
        """Track the chosen layers, and ask."""
        name = self.panel.labels.currentText()
        if name not in self.viewer.layers:
            self.panel.status.setText("There is no Labels layer: open masks first.")
            return
        image_name = self.panel.image.currentText()
        image = None
        if image_name != NO_IMAGE and image_name in self.viewer.layers:
            image = self.viewer.layers[image_name]
        self._close_movie()
        self.labels = self.viewer.layers[name]
        self.panel.set_open(False)
        self.panel.buttons["start"].setEnabled(False)
        self.panel.question.setText("Measuring the cells …")
        self._do(lambda: self._open(self.labels, image), self._on_open)

    def _open(self, labels: Any, image: Any) -> Annotator:
        """Open the session of two layers; this runs in a thread."""
        # Painting changes the data of the layer, so the session has a copy.
        masks = np.array(labels.data)
        movie = Movie.from_arrays(
            masks,
            None if image is None else image.data,
            spacing=tuple(labels.scale[1:]),
            name=labels.name,
        )
        fingerprint = MovieIdentity.of(movie).fingerprint[:16]
        self.store_folder.mkdir(parents=True, exist_ok=True)

        def report(done: int, total: int) -> None:
            text = f"Measuring the cells: frame {done} of {total}"
            self._calls.put(lambda: self.panel.question.setText(text))

        return Annotator.open(
            movie,
            self.store_folder / f"{fingerprint}.annotations.clewdb",
            progress=report,
            listener=self._on_listener,
            author=Author("", "napari"),
            make_worker=self.make_worker,
        )

    def _on_open(self, annotator: Annotator) -> None:
        self.annotator = annotator
        masks = annotator.session.changes.masks
        diameter = masks.diameter / masks.movie.spacing[-1]
        self.overlay = QuestionOverlay(self.viewer, self.labels, diameter)
        self.labels.events.paint.connect(self._on_paint)
        self.panel.set_open(True)
        self.panel.set_asking(False)
        self.panel.buttons["start"].setEnabled(True)
        self.panel.question.setText("Tracking …")
        self.panel.status.setText(
            f"Answers: {annotator.n_answers}, stored in {annotator.session.store.path}"
        )
        # Each of these takes a while in napari, so that Qt has its turn between them.
        overlay = self.overlay
        for name in (CELLS, LINKS):
            self._calls.put(partial(overlay.get_layer, name))
        frames = sorted({edit.frame for edit in masks.edits})
        self._calls.put(lambda: self._show_masks(frames))
        self._calls.put(self._ask)

    # Questions

    def _ask(self) -> None:
        """Rank the questions, and show the best one."""
        annotator = self.annotator
        if annotator is not None:
            self._do(annotator.list_questions, self._show_question)

    def _show_question(self, questions: list[AskedQuestion]) -> None:
        annotator = self.annotator
        if annotator is None or self.overlay is None:
            return
        self.draft = ([], [])
        if not questions:
            self.asked = None
            self.panel.set_asking(False)
            is_done = annotator.is_tracked
            text = "Nothing left to ask." if is_done else "Tracking …"
            self.panel.question.setText(text)
            return
        self.asked = questions[0]
        question = self.asked.question
        cells = {question.frame: question.sources, question.frame + 1: question.targets}
        words = QUESTIONS[str(question.event)].format(
            " and ".join(map(str, question.sources)),
            " and ".join(map(str, question.targets)),
        )
        self.panel.question.setText(
            f"Frame {question.frame} to {question.frame + 1}: {words}"
        )
        self.panel.set_asking(True)
        if self.viewer.layers.selection.active is None:
            self.viewer.layers.selection.active = self.labels
        positions = annotator.session.positions
        shown = question.frame if question.sources else question.frame + 1
        self.overlay.show(positions, question.frame, question.sources, question.targets)
        self.overlay.go_to(positions, shown, cells)

    def _answer(self, answer: Answer | None, is_correction: bool = False) -> None:
        """Store an answer to the question that is shown, or skip it; ask the next."""
        annotator = self.annotator
        asked = self.asked
        if annotator is None or asked is None:
            return
        self.asked = None  # a second key press must not answer a question not yet seen
        self.panel.set_asking(False)
        self._follow_track_edit()
        link = self.link
        changes = (
            ([], []) if link is None or answer is None else link.list_changes(answer)
        )
        author = AUTHOR if any(changes) else None

        def work() -> list[AskedQuestion]:
            if answer is None:
                annotator.skip(asked)
            else:
                annotator.say(answer, asked, is_correction, author)
            return annotator.list_questions()

        def finish(questions: list[AskedQuestion]) -> None:
            if link is not None and any(changes):
                link.apply(changes)
            self.panel.status.setText(f"Answers: {annotator.n_answers}")
            self._show_question(questions)

        self._do(work, finish)

    def confirm(self) -> None:
        """Answer that the event in question happened."""
        if self.asked is not None:
            self._answer(self.asked.answer)

    def deny(self) -> None:
        """Answer that the event in question did not happen."""
        if self.asked is not None:
            self._answer(replace(self.asked.answer, happened=False))

    def skip(self) -> None:
        """Ask another question."""
        self._answer(None)

    def say_draft(self) -> None:
        """Answer by the cells that were clicked."""
        asked = self.asked
        if asked is None:
            return
        sources, targets = self.draft
        event = name_event(len(sources), len(targets))
        if event is None:
            self.panel.status.setText(
                "Click the cells in both frames: 1 and 1 for a move, 1 and 2 for a "
                "division, 1 alone if it appears or disappears."
            )
            return
        answer = Answer.of(asked.question.frame, event, sources, targets)
        self._answer(answer, is_correction=True)

    def say_false(self) -> None:
        """Answer that an outline is no cell: the one clicked, or the only one asked about."""
        asked = self.asked
        if asked is None:
            return
        question = asked.question
        chosen = self.draft if any(self.draft) else (question.sources, question.targets)
        sources, targets = chosen
        if len(sources) + len(targets) != 1:
            self.panel.status.setText(
                "Click the outline that is no cell, then press C."
            )
            return
        event = Event.FALSE_END if sources else Event.FALSE_BEGIN
        answer = Answer.of(question.frame, event, sources, targets)
        self._answer(answer, is_correction=True)

    def blink(self) -> None:
        """Show the other frame of the question."""
        if self.asked is None or self.overlay is None:
            return
        frame = self.asked.question.frame
        is_first = self.overlay.shown_frame() == frame
        self.overlay.show_frame(frame + 1 if is_first else frame)

    def undo(self) -> None:
        """Undo the last answer or mask edit."""
        annotator = self.annotator
        if annotator is None:
            return
        self.asked = None
        self.panel.set_asking(False)
        last = annotator.session.store.last_entry()
        if self.link is not None and last is not None and last.author == AUTHOR:
            self.link.undo()
        else:
            self._do(annotator.undo, self._after_undo)

    def _after_undo(self, outcome: Outcome) -> None:
        text = "There is nothing to undo."
        if outcome.entry is not None:
            text = f"Undone: {outcome.entry.change}"
            if isinstance(outcome.entry.change, Edit):
                self._show_masks([outcome.entry.change.frame])
        self.panel.status.setText(text)
        self._ask()

    def _on_mouse(self, _: Any, event: Any) -> Iterator[None]:
        """Collect the cells that are clicked; a drag moves the view."""
        yield
        is_drag = False
        while event.type == "mouse_move":
            is_drag = True
            yield
        active = self.viewer.layers.selection.active
        is_tool = str(getattr(active, "mode", "pan_zoom")) != "pan_zoom"
        if not is_drag and not is_tool:
            with self._hold():
                self.click(event.position)

    def click(self, position: Any) -> None:
        """Add the cell at a place in the world to the draft, or remove it."""
        asked = self.asked
        if asked is None or self.overlay is None or self.annotator is None:
            return
        label = self.labels.get_value(position, world=True)
        frame = self.overlay.shown_frame()
        side = frame - asked.question.frame
        if not label or side not in (0, 1):
            return
        cells = self.draft[side]
        if int(label) in cells:
            cells.remove(int(label))
        else:
            cells.append(int(label))
        sources, targets = self.draft
        self.overlay.show(
            self.annotator.session.positions, asked.question.frame, sources, targets
        )
        event = name_event(len(sources), len(targets))
        words = " and ".join(map(str, sources)) or "nothing"
        words += " → " + (" and ".join(map(str, targets)) or "nothing")
        meaning = "" if event is None else f": {event}"
        self.panel.status.setText(f"Clicked {words}{meaning}; J answers so.")

    # Corrections in layers

    def _on_paint(self, event: Any) -> None:
        """Store what was painted; napari names the pixels, then changes them."""
        if self.annotator is None or self._is_ours:
            return
        with self._hold():
            numbers = np.arange(len(self.labels.data))
            changed = [np.ravel(numbers[pixels[0]]) for pixels, *_ in event.value]
            for frame in np.unique(np.concatenate(changed)).tolist():
                self._calls.put(partial(self._store_painted, frame))

    def _store_painted(self, frame: int) -> None:
        annotator = self.annotator
        if annotator is None:
            return
        painted = np.array(self.labels.data[frame])
        work = partial(store_painted_frame, annotator, frame, painted)
        self._do(work, self._after_paint)

    def _after_paint(self, n_edits: int) -> None:
        if n_edits:
            self.panel.status.setText("The painted masks are stored.")
            self.asked = None
            self._ask()

    def _show_masks(self, frames: Sequence[int]) -> None:
        """Show the masks of the session in the Labels layer."""
        if self.annotator is None:
            return
        movie = self.annotator.session.movie
        for frame in frames:
            self.labels.data[frame] = movie.label(frame)
        if len(frames):
            self.labels.refresh()

    def show_tracks(self) -> None:
        """Add or renew the Tracks layer."""
        annotator = self.annotator
        if annotator is None:
            return

        def work() -> tuple[Lineage, NapariTracks]:
            lineage = annotator.build_lineage()
            return lineage, make_napari_tracks(lineage)

        self._do(work, self._show_tracks)

    def _show_tracks(self, built: tuple[Lineage, NapariTracks]) -> None:
        lineage, (data, properties, graph) = built
        self.lineage = lineage
        self._is_ours = True
        try:
            if TRACKS in self.viewer.layers:
                layer = self.viewer.layers[TRACKS]
                layer.graph = {}
                layer.data = data
                layer.features = properties
                layer.graph = graph
                return
            selected = set(self.viewer.layers.selection)
            layer = self.viewer.add_tracks(
                data,
                features=properties,
                graph=graph,
                name=TRACKS,
                metadata={"events": EVENT_NAMES},
                tail_length=4,
                translate=self.labels.translate,
            )
            self.viewer.layers.selection = selected
            if CELLS in self.viewer.layers:  # the question stays on top
                index = self.viewer.layers.index(CELLS)
                self.viewer.layers.move(len(self.viewer.layers) - 1, index)
            layer.events.rebuild_tracks.connect(self._on_tracks)
            layer.events.rebuild_graph.connect(self._on_tracks)
        finally:
            self._is_ours = False

    def _on_tracks(self, _: Any = None) -> None:
        if not self._is_ours:
            self._settle.start(SETTLE_MILLISECONDS)

    def _read_tracks(self) -> None:
        """Store the links that were changed in the Tracks layer."""
        annotator = self.annotator
        lineage = self.lineage
        if annotator is None or lineage is None or TRACKS not in self.viewer.layers:
            return
        layer = self.viewer.layers[TRACKS]
        data = np.array(layer.data)
        graph = dict(layer.graph)

        def work() -> int:
            positions = annotator.session.positions
            answers = list_track_answers(lineage, positions, data, graph)
            for answer in answers:
                annotator.say(answer, None, True)
            return len(answers)

        def finish(n_answers: int) -> None:
            self.panel.status.setText(f"{n_answers} changed links are stored.")
            self.asked = None
            self._ask()
            self.show_tracks()

        with self._hold():
            self._do(work, finish)

    # Other programs

    def _follow_track_edit(self) -> None:
        """Listen to the tracks that napari-track-edit shows now, if it does."""
        tracks = find_edited_tracks(self.viewer)
        if self.link is not None and (
            tracks is not self.link.tracks or self.annotator is not self.link.annotator
        ):
            self.link.close()
            self.link = None
        if self.link is None and tracks is not None and self.annotator is not None:
            self.link = TracksLink(tracks, self.annotator, self._store_action)

    def _store_action(self, work: Callable[[], Any]) -> None:
        """Store what an action of another program says."""

        def finish(_: Any) -> None:
            self.panel.status.setText("The edit of the tracks is stored.")
            self.asked = None
            self._ask()

        self._do(work, finish)

    # Results

    def _show_errors(self, estimate: dict[str, Any] | None) -> None:
        text = ""
        if estimate is not None:
            text = (
                f"About {estimate['number']:.0f} of {estimate['events']} events are "
                f"wrong ({estimate['low']} to {estimate['high']})."
            )
            if not estimate["checked"]:
                text += " This is a guess until about 25 questions are answered."
        self.panel.errors.setText(text)

    def export(self, kind: ExportKind, path: str = "") -> None:
        """Write a file, by default where the person wants it."""
        annotator = self.annotator
        if annotator is None:
            return
        name = FileName.of(kind, annotator.session.movie.name).name
        path = path or self.panel.ask_path(kind, name)
        if not path:
            return

        def finish(is_learned: bool) -> None:
            note = "" if is_learned else " (learning is not finished)"
            self.panel.status.setText(f"Written: {path}{note}")

        self._do(lambda: annotator.export(kind, Path(path)), finish)

    def _close_movie(self) -> None:
        annotator = self.annotator
        self.annotator = None
        self.asked = None
        self.lineage = None
        if self.link is not None:
            self.link.close()
            self.link = None
        if annotator is not None:
            self.labels.events.paint.disconnect(self._on_paint)
            self._pool.submit(annotator.close)

    def close(self) -> None:
        """End learning, and leave the keys and the mouse of the viewer alone."""
        self._close_movie()
        self._pool.shutdown(wait=True)
        for event in (
            self.viewer.layers.events.inserted,
            self.viewer.layers.events.removed,
        ):
            event.disconnect(self._list_layers)
        for layer in self.viewer.layers:
            for key in KEYS:
                with contextlib.suppress(KeyError, ValueError):
                    layer.bind_key(key, None)
        with contextlib.suppress(ValueError):
            self.viewer.mouse_drag_callbacks.remove(self._on_mouse)


def make_dock() -> Any:
    """Return the widget of a new dock, as napari asks its plugins."""
    import napari

    dock = AnnotationDock(napari.current_viewer())
    dock.widget.dock = dock  # alive as long as its widget
    return dock.widget
