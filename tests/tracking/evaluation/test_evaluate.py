"""Whole results against the truth: a lineage in memory, and folders with tables and without."""

import json

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.metrics import MatchCounts
from clew.tracking.evaluation.task_loss import NOTHING
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.io.names import MANIFEST
from clew.tracking.io.result_tables import write_events, write_track_table
from clew.tracking.movie import Movie

from ...helpers.results import write_ctc_result


def test_a_lineage(truth, movie, result):
    found = evaluate(result, truth, movie)
    # 8 and 9 merge, and 1 moves; of the second pair only the third cell is certain: three cells come of 8
    assert found.loss.annotated[list(PAIRWISE)].tolist() == [2, 0, 0, 0, 0, 1]
    assert found.loss.total == 0
    assert found.aogm.split_vertices == 1
    assert (found.aogm.missing_vertices, found.aogm.false_vertices) == (0, 0)
    assert found.scores is None
    assert found.divisions[0] == MatchCounts(0, 0, 1)
    with pytest.raises(InputError, match="pass movie="):
        evaluate(result, truth)
    with pytest.raises(InputError, match="need a result with masks"):
        evaluate(result, truth, movie, scores=True)
    first, *others = (movie.label(t) for t in range(3))
    with pytest.raises(InputError, match="frame 0: the lineage lacks label 5"):
        evaluate(
            result, truth, Movie.from_arrays([np.where(first == 8, 5, first), *others])
        )


def test_a_folder_with_its_tables_and_without(tmp_path, truth, movie, result):
    folder = tmp_path / "result"
    write_ctc_result(folder, movie, result)
    by_tracks = evaluate(folder, truth)
    # the tracks cannot tell the merge: one of the two cells is said to disappear
    assert by_tracks.loss.missed[list(PAIRWISE)].tolist() == [0, 0, 0, 0, 0, 1]
    assert by_tracks.loss.confusion[Event.MERGE][[*PAIRWISE, NOTHING]].tolist() == [
        1,
        0,
        0,
        1,
        0,
        0,
        0,
    ]
    assert "tracks" in by_tracks.events_from
    (
        folder / MANIFEST
    ).unlink()  # a folder from elsewhere, which says nothing of its files
    write_events(folder / "events.csv", result)
    write_track_table(folder / "tracks.csv", result)
    by_events = evaluate(folder, truth)
    assert by_events.events_from == "events.csv"
    assert by_events.loss.to_dict() == evaluate(result, truth, movie).loss.to_dict()
    assert by_events.aogm == by_tracks.aogm == evaluate(result, truth, movie).aogm
    told = json.loads(json.dumps(by_events.to_dict(), allow_nan=False))
    assert told["aogm"]["total"] == by_events.aogm.total
    assert dict(by_events.rows())["merge missed"] == "0 of 1"
    # tables of another result
    (folder / "tracks.csv").write_text("frame,label,track\n0,1,1\n")
    with pytest.raises(InputError, match="different results"):
        evaluate(folder, truth)
    write_track_table(folder / "tracks.csv", result)
    (folder / "events.csv").write_text("frame,event,sources,targets\n0,move,1,77\n")
    with pytest.raises(InputError, match=r"move 1 → 77 .*does not have"):
        evaluate(folder, truth)
