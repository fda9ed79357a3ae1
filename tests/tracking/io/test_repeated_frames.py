"""Frames that a microscope or an export wrote twice, or not at all."""

import numpy as np
import pytest

from clew.cli.movies import find_input_problem
from clew.parallel import ThreadExecutor
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event, EventTable
from clew.tracking.io.label_layers import write_label_images
from clew.tracking.lineage.lineage import Lineage, LineageInParts
from clew.tracking.tracker import Tracker


def make_lineage(n_cells, repeated):
    """Cells that move by a pixel a frame, but not to the repeated frames."""
    steps = np.cumsum([t not in repeated for t in range(6)])
    frame = np.repeat(np.arange(6), n_cells)
    label = np.tile(np.arange(1, n_cells + 1), 6)
    position = np.column_stack([10.0 * label, steps[frame]])
    events = EventTable.of(
        [(t, Event.MOVE, [k], [k]) for t in range(5) for k in range(1, n_cells + 1)]
    )
    return Lineage(6, frame, label, position, events, np.ones(len(events)))


@pytest.mark.parametrize("frames_per_part", [1, 4, 10])
def test_repeated_frames_are_found_in_all_parts(tmp_path, frames_per_part):
    tracked = LineageInParts(make_lineage(4, {2, 4}), frames_per_part)
    counts = write_label_images(tmp_path, None, tracked, ThreadExecutor(1))
    assert counts.find_repeated_frames() == [2, 4]
    words = find_input_problem(6, 24, (), counts.find_repeated_frames())
    assert words.startswith("all cells of frame 2, 4 are where they were")


def test_few_cells_may_stay(tmp_path):
    tracked = LineageInParts(make_lineage(2, {2}), 4)
    counts = write_label_images(tmp_path, None, tracked, ThreadExecutor(1))
    assert counts.find_repeated_frames() == []


@pytest.mark.parametrize(
    ("times", "empty"),
    [
        ([0, 1, 2, 3, 3, 5, 6, 7, 7, 7, 10, 11, 12, 13], ()),
        ([0, 1, 2, 3, 5, 6, 7, 10, 11, 12, 13], ()),
        (list(range(14)), (5, 6)),
        (list(range(14)), (3, 8, 9)),
    ],
    ids=["repeated", "left out", "two empty", "empty twice"],
)
def test_tracks_continue_over_faulty_frames(times, empty):
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2)
    steps = rng.normal(0, 1.5, (36, 2)) + rng.normal(0, 0.5, (14, 36, 2))
    place = 30.0 * grid + rng.normal(0, 2, (36, 2)) + steps.cumsum(axis=0)
    shown = [t for t in range(len(times)) if t not in empty]
    table = DetectionTable(
        np.repeat(shown, 36),
        np.tile(np.arange(1, 37), len(shown)),
        np.concatenate([place[times[t]] for t in shown]),
    )
    lineage = Tracker.generic(n_jobs=1, cache=None).track(table)
    # Cells that moved oddly over empty frames may stay apart, as may one of 36 that
    # takes three steps at once after a frame was repeated: the cost of a move is convex.
    n_apart = len(lineage.tracks) - 36
    assert n_apart <= (4 if empty else len(times) - len(set(times)))
    assert len(lineage.frame) >= 36 * len(times) - 2 * n_apart


def test_all_faulty_frames_are_listed():
    words = find_input_problem(20, 400, (3, 4, 19), [7, 9])
    assert words.startswith("frame 3, 4 has no cells")
    assert "frame 7, 9 are where they were" in words
