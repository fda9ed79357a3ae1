"""What a notebook shows: one line for each object, tables, and a figure once."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from clew import StructuredSVM, Tracker
from clew.models import Multiclass
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.movie import Movie

mpl.use("agg")


@pytest.fixture(scope="module")
def svm():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    return StructuredSVM(Multiclass(), lam=[1.0, 0.1], random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def movie():
    masks = np.zeros((4, 40, 40), dtype=np.uint16)
    for t in range(4):
        masks[t, 5:12, 5 + t : 12 + t] = 1
        masks[t, 25:32, 20 - t : 27 - t] = 2
    return Movie.from_arrays(masks)


@pytest.fixture(scope="module")
def lineage(movie):
    return Tracker.generic().track(movie)


def is_short(value):
    return len(repr(value)) < 160 and "\n" not in repr(value)


def test_results_and_paths_are_a_line_each(svm):
    assert is_short(svm.result_)
    assert "converged" in repr(svm.result_)
    assert all(is_short(point) for point in svm.path_)


def test_movies_and_lineages_are_a_line_each(movie, lineage):
    assert is_short(movie)
    assert "4 frames of 40 × 40" in repr(movie)
    assert is_short(lineage)
    assert "8 cells in 4 frames, 6 move" in repr(lineage)
    assert "<td>6</td>" in lineage._repr_html_()


def test_lineage_is_a_table_and_a_picture(lineage):
    table = lineage.to_pandas()
    assert list(table.columns[:5]) == ["frame", "label", "track", "y", "x"]
    assert len(table) == 8
    assert table.track.nunique() == 2
    assert lineage.plot().axes


def test_annotations_are_a_table():
    events = EventTable(
        np.array([0, 1]),
        np.array([Event.MOVE, Event.DIVIDE], dtype=np.int8),
        np.array([[1, 0], [2, 0]]),
        np.array([[1, 0], [3, 4]]),
    )
    annotations = Annotations(events, np.array([True, False]), np.arange(2))
    assert is_short(annotations)
    assert "1 events that happened and 1 that did not" in repr(annotations)
    table = annotations.to_pandas()
    assert table.event.tolist() == ["move", "divide"]
    assert table.target2.tolist() == [0, 4]
    assert "<table" in annotations._repr_html_()


def test_figures_are_shown_once(svm, monkeypatch):
    monkeypatch.setattr(
        plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline"
    )
    before = plt.get_fignums()
    svm.result_.plot()
    svm.plot_weights()
    assert plt.get_fignums() == before
