"""The annotation dock in a real viewer, with real key presses and mouse clicks."""

import numpy as np
import pytest

from clew.annotation.files import ExportKind
from clew.napari.overlay import CELLS, LINKS
from clew.tracking.events import Event, EventTable

TRACKS = "clew: tracks"


def canvas_of(viewer):
    return viewer.window._qt_viewer.canvas.native


def camera_of(viewer):
    return getattr(viewer, "scene", viewer).camera


def press(viewer, key):
    from qtpy.QtTest import QTest

    canvas = canvas_of(viewer)
    canvas.setFocus()
    QTest.keyClick(canvas, key)


def click_cell(dock, frame, label):
    """Click on a cell of a frame, as a person does."""
    from qtpy.QtCore import QPoint, Qt
    from qtpy.QtTest import QTest
    from qtpy.QtWidgets import QApplication

    viewer = dock.viewer
    dock.overlay.show_frame(frame)
    masks = dock.labels.data[frame]
    rows, columns = np.nonzero(masks == label)
    middle = len(rows) // 2
    place = np.array([rows[middle], columns[middle]])
    camera_of(viewer).center = place
    QApplication.processEvents()
    canvas = canvas_of(viewer)
    at = QPoint(canvas.width() // 2, canvas.height() // 2)
    QTest.mouseMove(canvas, at)
    QTest.mouseClick(
        canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at
    )
    QApplication.processEvents()


def wait_for_next(dock, wait_until, n_answers):
    wait_until(
        lambda: dock.asked is not None and dock.annotator.n_answers == n_answers,
        lambda: f"{dock.asked}: {dock.panel.status.text()}",
    )


def test_viewer_shows_the_question(dock, viewer):
    question = dock.asked.question
    frames = {question.frame, question.frame + 1}
    assert viewer.dims.current_step[0] in frames
    rings = viewer.layers[CELLS].data
    n_cells = len(question.sources) + len(question.targets)
    assert len(rings) == 2 * n_cells
    assert set(rings[:, 0]) == frames
    n_links = 2 * len(question.sources) * len(question.targets)
    assert len(viewer.layers[LINKS].data) == n_links
    np.testing.assert_allclose(
        camera_of(viewer).center[-2:], rings[:, 1:].mean(axis=0), atol=1e-6
    )
    assert "?" in dock.panel.question.text()
    assert viewer.layers.selection.active is not None


def test_name_that_looks_like_html_is_text(dock):
    from qtpy.QtCore import Qt

    panel = dock.panel
    for label in (panel.question, panel.status, panel.errors):
        assert label.textFormat() == Qt.TextFormat.PlainText


def test_keys_answer_and_undo(dock, viewer, wait_until):
    first = dock.asked.question.fact
    press(viewer, "Y")
    wait_for_next(dock, wait_until, 1)
    assert dock.asked.question.fact != first
    # Not every event can be denied: a cell may have no other fate.
    while dock.asked.question.event is not Event.DIVIDE:
        skipped = dock.asked
        press(viewer, "K")
        wait_until(lambda: dock.asked not in (None, skipped))  # noqa: B023
    second = dock.asked.question.fact
    press(viewer, "N")
    wait_for_next(dock, wait_until, 2)
    happened = dock.annotator.session.state.annotations.happened
    assert happened.tolist() == [True, False]
    press(viewer, "U")
    wait_for_next(dock, wait_until, 1)
    assert dock.panel.status.text().startswith("Undone: divide")
    assert second in set(dock.annotator.build_lineage().events)


def test_key_pressed_twice_answers_once(dock, viewer, wait_until):
    press(viewer, "Y")
    press(viewer, "Y")
    wait_for_next(dock, wait_until, 1)


def test_h_goes_to_the_other_frame(dock, viewer):
    before = viewer.dims.current_step[0]
    press(viewer, "H")
    assert abs(viewer.dims.current_step[0] - before) == 1
    press(viewer, "H")
    assert viewer.dims.current_step[0] == before


def test_clicked_cells_are_the_answer(dock, viewer, wait_until):
    lineage = dock.lineage
    is_move = lineage.events.event == Event.MOVE
    frame = dock.asked.question.frame
    rows = np.flatnonzero(is_move & (lineage.events.frame == frame))
    _, _, sources, targets = next(iter(lineage.events[rows[:1]]))
    click_cell(dock, frame, sources[0])
    click_cell(dock, frame + 1, targets[0])
    assert dock.draft == ([sources[0]], [targets[0]])
    press(viewer, "J")
    wait_for_next(dock, wait_until, 1)
    (fact,) = dock.annotator.session.state.annotations.events
    assert fact == (frame, Event.MOVE, sources, targets)


def test_outline_that_is_no_cell_is_an_answer(dock, viewer, wait_until):
    frame = dock.asked.question.frame
    label = int(dock.labels.data[frame].max())
    click_cell(dock, frame, label)
    press(viewer, "C")
    session = dock.annotator.session
    expected = EventTable.of_false([frame], [label], session.movie.n_frames)
    wait_for_next(dock, wait_until, len(expected))
    assert set(session.state.annotations.events) == set(expected)
    assert label in dock.labels.data[frame]
    press(viewer, "U")
    wait_until(lambda: not dock.annotator.n_answers)


def test_painted_masks_are_edits(dock, viewer, wait_until):
    frame = 2
    before = dock.labels.data[frame].copy()
    label = int(before.max())
    rows, columns = np.nonzero(before == label)
    dock.labels.selected_label = 0
    dock.labels.brush_size = 60
    viewer.dims.set_point(0, frame)
    dock.labels.paint((frame, rows[0], columns[0]), 0)
    session = dock.annotator.session
    wait_until(lambda: len(session.changes.masks.edits) > 0)
    painted = dock.labels.data[frame]
    np.testing.assert_array_equal(session.movie.label(frame), painted)
    assert label not in painted
    press(viewer, "U")
    wait_until(lambda: np.array_equal(dock.labels.data[frame], before))


def test_link_changed_in_tracks_is_an_answer(dock, viewer, wait_until):
    layer = viewer.layers[TRACKS]
    data = layer.data.copy()
    ids, counts = np.unique(data[:, 0], return_counts=True)
    parents = {parent for parents in layer.graph.values() for parent in parents}
    plain = [
        track
        for track, n in zip(ids.tolist(), counts.tolist(), strict=True)
        if n > 3 and track not in parents and track not in layer.graph
    ]
    assert plain, "the movie needs a track without divisions"
    track = plain[0]
    rows = np.flatnonzero(data[:, 0] == track)
    cut = rows[len(rows) // 2]
    data[rows[rows >= cut], 0] = ids.max() + 1
    layer.data = data
    wait_until(lambda: dock.annotator.n_answers == 2)
    kinds = dock.annotator.session.state.annotations.events.event.tolist()
    assert sorted(kinds) == [Event.APPEAR, Event.DISAPPEAR]


def test_estimate_and_export(dock, wait_until, tmp_path):
    wait_until(lambda: dock.panel.errors.text() != "")
    assert "events are wrong" in dock.panel.errors.text()
    path = tmp_path / "tracks.zip"
    dock.export(ExportKind.GEFF, str(path))
    wait_until(path.exists)


def test_answers_are_there_when_the_movie_is_opened_again(dock, viewer, wait_until):
    press(viewer, "Y")
    wait_for_next(dock, wait_until, 1)
    former = dock.annotator
    dock.panel.buttons["start"].click()
    wait_until(lambda: dock.annotator is not None and dock.asked is not None)
    assert dock.annotator is not former
    assert dock.annotator.n_answers == 1


def test_qt_is_never_held_long(dock, viewer, wait_until):
    """CPU seconds of the dock's calls: other programs on the machine do not count."""
    dock.held.clear()
    for n_answers in range(1, 6):
        press(viewer, "Y")
        wait_for_next(dock, wait_until, n_answers)
    dock.act("tracks")
    dock.act("undo")
    wait_for_next(dock, wait_until, 4)
    assert len(dock.held) > 10
    assert max(dock.held) < 0.1


def test_plugin_is_found_by_napari(viewer):
    viewer.open_sample("clew-learn", "simulated")
    assert [type(layer).__name__ for layer in viewer.layers] == ["Image", "Labels"]
    _, widget = viewer.window.add_plugin_dock_widget("clew-learn", "Track and annotate")
    assert widget.dock.panel.labels.currentText() == "nuclei masks"
    assert widget.dock.panel.image.currentText() == "nuclei"
    widget.dock.close()


@pytest.mark.parametrize("name", ["lineage.geff", "tracks.csv", ""])
def test_result_is_dropped_into_a_viewer(viewer, simulated, tmp_path, name):
    from clew.tracking.io.results import write_results
    from clew.tracking.tracker import Tracker

    lineage = Tracker.generic().set_params(cache=None, n_jobs=1).track(simulated.movie)
    folder = tmp_path / "result"
    write_results(folder, lineage, simulated.movie, ["ctc", "csv", "geff"])
    layers = viewer.open(str(folder / name), plugin="clew-learn")
    tracks = layers[-1]
    tracks.color_by = "event"
    assert len(tracks.data) == len(lineage.frame)
    assert len(tracks.graph) > 0
