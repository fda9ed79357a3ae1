"""Detections that take part in nothing."""

import csv

import geff.core_io
import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.geff import write_geff
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.io.submission import write_submission
from clew.tracking.io.tables import read_detections
from clew.tracking.lineage.tracks import Tracks, find_false_detections
from clew.tracking.tracker import Tracker


def make_tracks(*rows):
    """Tracks of rows (id, begin, end, parent)."""
    return Tracks(*np.array(rows).T)


def test_detections_in_no_track_are_false():
    whole = [(k, 0, 9, 0) for k in range(101, 201)]
    tracks = make_tracks(
        (7, 3, 3, 0), (8, 0, 0, 0), (9, 9, 9, 0), (10, 4, 5, 0), *whole
    )
    assert tracks.id[find_false_detections(tracks)].tolist() == [7]


def test_daughters_and_mothers_are_no_false_detections():
    family = [(1, 0, 4, 0), (2, 5, 5, 1), (3, 5, 9, 1), (4, 3, 3, 0), (5, 4, 9, 4)]
    assert not find_false_detections(make_tracks(*family)).any()
    assert not len(find_false_detections(make_tracks(*family)[:0]))


def test_tracks_that_begin_and_end_everywhere_leave_single_cells_by_chance():
    short = [(k, b, b + 1, 0) for k, b in enumerate(np.tile(np.arange(1, 8), 20), 1)]
    edges = [(900, 0, 9, 0)]
    single = [(1000, 3, 3, 0)]
    assert not find_false_detections(make_tracks(*short, *edges, *single)).any()


def write(path, *rows):
    path.write_text("\n".join(["frame,event,sources,targets,happened", *rows]))
    return path


def test_a_false_detection_comes_from_nothing_and_leads_to_nothing(tmp_path):
    table = DetectionTable([0, 1, 2], [4, 5, 6], np.zeros((3, 2)))
    path = write(tmp_path / "a.csv", "0,false,4,,yes", "1,false,5,,", "2,False,,6,yes")
    found = read_annotations(path, table)
    assert set(found.events) == {
        (0, Event.DISAPPEAR, (4,), ()),
        (0, Event.APPEAR, (), (5,)),
        (1, Event.DISAPPEAR, (5,), ()),
        (1, Event.APPEAR, (), (6,)),
    }
    assert found.happened.all()
    assert found.row.tolist() == [2, 3, 3, 4]
    path = write(tmp_path / "b.csv", "1,false,5,,no")
    with pytest.raises(InputError, match="happened is 'no'; it must be yes if false"):
        read_annotations(path, table)


def test_false_detections_are_marked_and_left_out_of_submissions(tmp_path):
    grid = np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(-1, 2) * 30.0
    place = [np.vstack([grid, [[45.0, 45.0]]]) if t == 2 else grid for t in range(6)]
    counts = [len(cells) for cells in place]
    table = DetectionTable(
        np.repeat(np.arange(6), counts),
        np.concatenate([np.arange(1, n + 1) for n in counts]),
        np.concatenate(place),
    )
    lineage = Tracker.generic(n_jobs=1, cache=None).track(table)
    write_track_table(tmp_path / "tracks.csv", lineage)
    with (tmp_path / "tracks.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["false"] == "1"]
    assert [(row["frame"], row["label"]) for row in rows] == [("2", "17")]
    assert read_detections(tmp_path / "tracks.csv").user_columns is None
    write_geff(tmp_path / "a.geff", lineage)
    nodes = geff.core_io.read_to_memory(tmp_path / "a.geff")["node_props"]
    is_false = nodes["false"]["values"]
    assert nodes["t"]["values"][is_false].tolist() == [2]
    assert nodes["seg_id"]["values"][is_false].tolist() == [17]
    write_submission(tmp_path / "s.csv", lineage, "movie")
    with (tmp_path / "s.csv").open() as file:
        kinds = list(csv.DictReader(file))
    assert sum(row["row_type"] == "node" for row in kinds) == 16 * 6
    edges = {(int(row["source_id"]), int(row["target_id"])) for row in kinds}
    assert {(k, k + 16) for k in range(1, 81)} == edges - {(-1, -1)}
