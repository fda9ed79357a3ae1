"""Painted masks and changed tracks as edits and answers; these tests need no napari."""

import numpy as np
import pytest

from clew.annotation.mask_edits import EditKind
from clew.errors import InputError
from clew.napari.corrections import (
    list_painted,
    list_track_answers,
    store_painted_frame,
)
from clew.tracking.events import Event
from clew.tracking.io.napari import make_napari_tracks
from tests.annotation.test_annotator import annotator  # noqa: F401


def test_painted_labels_are_listed_with_their_pixels():
    before = np.array([[0, 1, 1], [2, 2, 0]])
    after = np.array([[0, 1, 0], [1, 3, 0]])
    painted = {label: pixels.tolist() for label, pixels in list_painted(before, after)}
    assert painted == {0: [2], 1: [3], 3: [4]}


def test_painted_frame_is_stored(annotator):  # noqa: F811
    before = annotator.session.movie.label(2)
    first, second, third = np.setdiff1d(before, [0])[:3].tolist()
    new = int(before.max()) + 1
    painted = before.copy()
    painted[before == first] = 0
    rows, columns = np.nonzero(before == second)
    painted[rows[:5], columns[:5]] = new
    rows, columns = np.nonzero(before == third)
    painted[rows[:5], columns[:5]] = second
    assert store_painted_frame(annotator, 2, painted) == 3
    session = annotator.session
    np.testing.assert_array_equal(session.movie.label(2), painted)
    kinds = [edit.kind for edit in session.changes.masks.edits]
    assert sorted(kinds) == [EditKind.CUT, EditKind.DELETE, EditKind.MERGE]
    assert store_painted_frame(annotator, 2, painted) == 0


def test_unchanged_tracks_are_no_answers(annotator):  # noqa: F811
    lineage = annotator.build_lineage()
    data, _, graph = make_napari_tracks(lineage)
    positions = annotator.session.positions
    assert list_track_answers(lineage, positions, data, graph) == []


def test_daughter_that_is_cut_off_is_an_answer(annotator):  # noqa: F811
    lineage = annotator.build_lineage()
    data, _, graph = make_napari_tracks(lineage)
    children = {}
    for child, parents in graph.items():
        children.setdefault(parents[0], []).append(child)
    mother, daughters = next(item for item in children.items() if len(item[1]) == 2)
    del graph[daughters[0]]
    positions = annotator.session.positions
    answers = list_track_answers(lineage, positions, data, graph)
    assert sorted(answer.event for answer in answers) == [Event.MOVE, Event.APPEAR]
    assert {answer.frame for answer in answers} == {
        int(data[data[:, 0] == mother, 1].max())
    }


def test_point_that_is_no_cell_is_rejected(annotator):  # noqa: F811
    lineage = annotator.build_lineage()
    data, _, graph = make_napari_tracks(lineage)
    data[0, 2:] += 30
    with pytest.raises(InputError, match="no cells of the masks"):
        list_track_answers(lineage, annotator.session.positions, data, graph)
