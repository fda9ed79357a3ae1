"""Pseudo-labels: what the initial weights are almost certain about counts, unless an answer contradicts it."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.annotation.learner import Learner
from clew.annotation.pseudo_labels import fill_pseudo_labels
from clew.errors import InfeasibleAnnotation
from clew.tracking.assignment.assignment import assign, make_program
from clew.tracking.events import Event
from clew.tracking.solve import solve_frame_pair


@pytest.fixture(scope="module")
def labelled(source, simulated):
    """Frame pairs with their annotations and almost certain events."""
    learner = Learner(source)
    calibration = learner.windows.calibrate()
    examples = []
    for frame in simulated.some.annotated_frames():
        pair = learner.pairs.build(frame)
        solution = solve_frame_pair(pair, learner.initial)
        is_certain = solution.probability(calibration) >= 0.99
        examples.append(
            SimpleNamespace(
                pair=pair,
                program=make_program(pair.candidates, pair.features),
                certain=solution.assignment.chosen[is_certain],
                annotated=pair.find_annotated(simulated.some.select_frame(frame)),
            )
        )
    return examples


def test_annotations_stay_and_no_pseudo_label_is_about_their_cells(labelled):
    examples = labelled
    for one in examples:
        labels = fill_pseudo_labels(one.program, one.certain, one.annotated)
        assert one.annotated.items() <= labels.items()
        cells = one.pair.candidates.detections_of()
        about = [
            cells[row][cells[row] >= 0] for row, happened in labels.items() if happened
        ]
        together = np.concatenate(about)
        assert len(together) == len(np.unique(together))
        assert set(labels) - set(one.annotated) <= set(one.certain.tolist())


def test_cells_that_lost_their_pseudo_label_and_may_not_end_find_something_else(
    labelled,
):
    """A move that crosses sure ones frees their other cells; told not to end, these need a partner that is free too."""
    checked = 0
    for one in labelled:
        table, cells = one.pair.candidates, one.pair.candidates.detections_of()
        ends = {
            int(cells[row].max()): int(row)
            for row in np.flatnonzero((cells >= 0).sum(axis=1) == 1)
        }
        for row in np.setdiff1d(np.flatnonzero(table.event == Event.MOVE), one.certain):
            crossed = [
                c for c in cells[one.certain] if np.isin(c[c >= 0], cells[row]).any()
            ]
            freed = {int(cell) for c in crossed for cell in c[c >= 0]} - set(
                cells[row].tolist()
            )
            told = {int(row): 1} | {ends[cell]: 0 for cell in freed}
            try:
                assign(table, np.zeros(len(table)), told)
            except InfeasibleAnnotation:
                continue
            assign(
                table,
                np.zeros(len(table)),
                fill_pseudo_labels(one.program, one.certain, told),
            )
            checked += bool(freed)
    assert checked > 10


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_there_is_always_an_output_that_agrees_with_what_is_told_and_the_pseudo_labels(
    labelled, data
):
    """Whatever of the best choice did happen or did not, and of the other candidates."""
    examples = labelled
    one = data.draw(st.sampled_from(examples))
    rows = data.draw(
        st.lists(st.integers(0, len(one.pair.candidates) - 1), max_size=4, unique=True)
    )
    told = {row: data.draw(st.integers(0, 1)) for row in rows}
    scores = np.zeros(len(one.pair.candidates))
    try:
        assign(one.pair.candidates, scores, told)
    except InfeasibleAnnotation:
        return  # it contradicts itself
    assign(
        one.pair.candidates,
        scores,
        fill_pseudo_labels(one.program, one.certain, told),
    )


def test_what_was_almost_certain_and_did_not_happen_leaves_its_cells_and_their_rivals_open(
    labelled,
):
    examples = labelled
    one = examples[0]
    cells = one.pair.candidates.detections_of()
    denied = next(int(row) for row in one.certain if (cells[row] >= 0).sum() > 1)
    labels = fill_pseudo_labels(one.program, one.certain, {denied: 0})
    mine = cells[denied][cells[denied] >= 0]
    rivals = np.flatnonzero(np.isin(cells, mine).any(axis=1))
    near = np.setdiff1d(cells[rivals], [-1])
    assert labels.pop(denied) == 0
    assert not np.isin(cells[list(labels)], near).any()
    far = [row for row in one.certain.tolist() if not np.isin(cells[row], near).any()]
    assert sorted(labels) == sorted(far)
