"""Annotations of an excerpt: the same events from any file, by the numbers of the whole movie."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.events import check_annotations
from clew.tracking.io.annotations import read_annotations, write_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.geff import write_annotation_geff
from clew.tracking.lineage.tracks import check_tracks

FIRST, END = 4, 9


@pytest.fixture(scope="module")
def part(simulated):
    return simulated.movie[FIRST:END]


@pytest.fixture(scope="module")
def expected(simulated):
    """The true events between the excerpt's frames, in its own numbers."""
    events = simulated.known.events
    return events[(events.frame >= FIRST) & (events.frame < END - 1)].shift_frames(
        -FIRST
    )


def same(one, other):
    return np.array_equal(np.sort(one.row_keys()), np.sort(other.row_keys()))


def test_a_table_a_graph_and_a_truth_say_the_same(simulated, part, expected, tmp_path):
    write_annotations(tmp_path / "a.csv", simulated.known)
    write_annotation_geff(tmp_path / "a.geff", simulated.known, simulated.movie)
    for path in (tmp_path / "a.csv", tmp_path / "a.geff", simulated.truth):
        assert same(read_annotations(path, part).events, expected), path


def test_what_an_excerpt_writes_the_whole_movie_reads(simulated, part, tmp_path):
    own = read_annotations(simulated.truth, part)
    own.happened[::3] = False
    write_annotation_geff(tmp_path / "part.geff", own, part)
    again = read_annotations(tmp_path / "part.geff", simulated.movie)
    check_annotations(
        again, lambda t: np.unique(simulated.movie.label(t)), simulated.movie.n_frames
    )
    assert same(again.events, own.shift_frames(FIRST).events)
    assert same(read_annotations(tmp_path / "part.geff", part).events, own.events)


def test_a_truth_that_is_too_short_is_refused(simulated):
    long = simulated.movie[2:]
    object.__setattr__(long, "excerpt", range(10, 10 + long.n_frames))
    with pytest.raises(InputError, match="expected the lineage of the whole movie"):
        read_annotations(simulated.truth, long)


def test_a_cut_lineage_is_a_lineage(simulated):
    truth = open_ctc_lineage(simulated.truth)
    cut = truth[FIRST:END]
    check_tracks(cut.tracks, "cut")
    for t in range(END - FIRST):
        alive = cut.tracks.id[(cut.tracks.begin <= t) & (t <= cut.tracks.end)]
        assert np.array_equal(np.sort(alive), np.setdiff1d(truth.masks[FIRST + t], [0]))


def test_a_part_of_a_truth_is_evaluated(simulated, learned, part, lineage):
    whole = evaluate(lineage, simulated.truth, simulated.movie)
    some = evaluate(
        learned.track(part), simulated.truth, part, frames=range(FIRST, END)
    )
    assert 0 < some.loss.annotated.sum() < whole.loss.annotated.sum()
    assert some.loss.total < 0.1
    with pytest.raises(InputError, match="it has 0 to 13"):
        evaluate(learned.track(part), simulated.truth, part, frames=range(10, 15))


def test_a_part_of_a_table(lineage):
    table = DetectionTable(
        lineage.frame,
        lineage.label,
        lineage.position,
        {name: lineage.columns[name] for name in ("volume", "intensity")},
    )
    part = table[FIRST:END][1:]
    assert (part.n_frames, part.excerpt) == (END - FIRST - 1, range(FIRST + 1, END))
    for t in range(part.n_frames):
        one, whole = part.detections(t), table.detections(FIRST + 1 + t)
        assert (one.frame, whole.frame) == (t, FIRST + 1 + t)
        np.testing.assert_array_equal(one.label, whole.label)
        for (
            name,
            column,
        ) in whole.columns.items():  # the border is that of the whole table
            np.testing.assert_array_equal(one.columns[name], column)
