"""Frames that a microscope or an export wrote twice."""

import numpy as np
import pytest

from clew.cli.movies import find_input_problem
from clew.parallel import ThreadExecutor
from clew.tracking.events import Event, EventTable
from clew.tracking.io.label_layers import write_label_images
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.parts import LineageInParts


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
