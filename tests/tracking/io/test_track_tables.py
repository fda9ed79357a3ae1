"""Lineages in tables of tracks: however they are written, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from clew.errors import InputError
from clew.tracking.events import Event, EventTable
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.napari import write_napari
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.lineage.lineage import Lineage

from ...helpers.results import write_ctc_result

PLAIN = """frame,label,track,parent,y,x
0,4,1,0,10,20
1,7,2,1,11,21
1,8,3,1,13,19
2,1,2,1,12,22
"""


def written(folder, text, name="tracks.csv"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("frame,label,track,parent", "T;ID;track_id;parent id").replace(
            ",", ";"
        ),
        PLAIN.replace(",0,10", ",,10"),
        PLAIN.replace(",0,10", ",-1,10"),
        "".join(PLAIN.splitlines(keepends=True)[i] for i in (0, 4, 2, 1, 3)),
    ],
)
def test_the_same_lineage_however_it_is_written(tmp_path, text):
    found = read_track_table(written(tmp_path, text))
    assert found.tracks.table().tolist() == [[1, 0, 0, 0], [2, 1, 2, 1], [3, 1, 1, 1]]
    assert found.n_frames == 3
    ids, position = found.cells(1)
    assert ids.tolist() == [2, 3]
    assert position.tolist() == [[11, 21], [13, 19]]


def test_parquet(tmp_path):
    pa.parquet.write_table(
        pa.csv.read_csv(written(tmp_path, PLAIN)), tmp_path / "t.parquet"
    )
    assert read_track_table(tmp_path / "t.parquet").tracks.table().tolist()[2] == [
        3,
        1,
        1,
        1,
    ]


def test_tracks_without_parents_may_count_from_0(tmp_path):
    found = read_track_table(
        written(tmp_path, "frame,particle,y,x\n0,0,1,1\n1,0,1,1\n1,1,5,5\n")
    )
    assert found.tracks.table().tolist() == [[1, 0, 1, 0], [2, 1, 1, 0]]


def test_a_track_with_a_hole_goes_on_as_its_own_child(tmp_path):
    text = "frame,track,parent,y,x\n0,5,0,1,1\n2,5,0,1,1\n3,6,5,1,0\n3,7,5,1,2\n"
    found = read_track_table(written(tmp_path, text))
    assert found.tracks.table().tolist() == [
        [5, 0, 0, 0],
        [8, 2, 2, 5],
        [6, 3, 3, 8],
        [7, 3, 3, 8],
    ]
    assert [found.cells(t)[0].tolist() for t in range(4)] == [[5], [], [8], [6, 7]]


def test_some_frames(tmp_path):
    part = read_track_table(written(tmp_path, PLAIN))[1:3]
    assert part.tracks.table().tolist() == [[2, 0, 1, 0], [3, 0, 0, 0]]
    assert part.cells(1)[1].tolist() == [[12, 22]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "1,9,2,1,5,5",
            "row 6: track 2 is in frame 1 by row 3 already; a track is one cell",
        ),
        ("3,9,2,3,5,5", "row 6: track 2 has the parent 3, but 1 in row 5"),
        ("3,9,0,0,5,5", "row 6: track is '0'; it must be 1 or more"),
        ("3,9,9,0,,5", "row 6: y is ''; it must be a number"),
        ("0,9,9,1,5,5", "a child begins after its parent has ended"),
    ],
)
def test_a_fault_is_named(tmp_path, line, words):
    with pytest.raises(InputError) as caught:
        read_track_table(written(tmp_path, f"{PLAIN}{line}\n"))
    assert words in str(caught.value)
    assert "tracks.csv" in str(caught.value)


@pytest.mark.parametrize("place", ["1e300", "-2e12"])
def test_position_out_of_this_world_is_refused(tmp_path, place):
    path = tmp_path / "a.csv"
    path.write_text(f"frame,track,y,x\n0,1,5,5\n1,1,{place},5\n")
    with pytest.raises(InputError, match=r"a\.csv: track 1 is at .* in frame 1"):
        open_lineage(path)


def test_parent_outside_of_the_table_leaves_the_beginning_open(tmp_path):
    found = read_track_table(written(tmp_path, f"{PLAIN}3,9,9,8,5,5\n"))
    assert found.tracks.parent.tolist() == [0, 1, 1, 0]
    assert found.unknown_begin.tolist() == [9]
    assert "1 tracks name a parent" in found.notes[0]


def test_a_table_of_detections_is_none(tmp_path):
    with pytest.raises(InputError, match="there is no column track or track_id"):
        read_track_table(written(tmp_path, "frame,y,x\n0,1,1\n"))
    with pytest.raises(InputError, match="has no rows"):
        read_track_table(written(tmp_path, "frame,track,y,x\n"))


def test_what_clew_writes_of_a_lineage(tmp_path, simulated, lineage):
    """Tables and masks say the same of the same movie; napari's tracks end at each branch."""
    write_ctc_result(tmp_path / "masks", simulated.movie, lineage)
    masks = open_lineage(tmp_path / "masks")
    assert isinstance(masks, CtcLineage)
    write_track_table(tmp_path / "tracks.csv", lineage)
    table = read_track_table(tmp_path / "tracks.csv")
    order = np.argsort(masks.tracks.id)
    assert table.tracks.table().tolist() == masks.tracks.table()[order].tolist()
    write_napari(tmp_path / "n.csv", lineage)
    graph = json.loads((tmp_path / "n.json").read_text())
    napari = read_track_table(tmp_path / "n.csv")
    assert (napari.tracks.parent > 0).sum() == sum(
        len(parents) == 1 for parents in graph.values()
    )
    assert len(napari.frame) == len(table.frame)


def test_a_folder_with_tables_alone(tmp_path):
    written(tmp_path, PLAIN)
    assert len(open_lineage(tmp_path).tracks) == 3
    (tmp_path / "tracks.csv").unlink()
    with pytest.raises(
        InputError, match=r"has no tracks; expected .*res_track.txt.*tracks\.csv"
    ):
        open_lineage(tmp_path)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "expected a row for each cell"),
        ("1.5,0,1,1\n", "whole numbers from 0 on"),
        ("1,-1,1,1\n", "whole numbers from 0 on"),
        ("1,0,1,1\n1,0,2,2\n", "a track is twice in one frame"),
        ("1,0,1,1\n1,20000,1,1\n", "expected a gap of 10,000 at most"),
    ],
)
def test_what_is_no_table_of_napari(tmp_path, rows, words):
    written(tmp_path, "{}", "n.json")
    with pytest.raises(InputError, match=words):
        read_track_table(written(tmp_path, f"track_id,t,y,x\n{rows}", "n.csv"))


def test_track_keeps_its_id_over_a_gap(tmp_path):
    events = EventTable.of(
        [
            (0, Event.MOVE, [1], [1]),
            (1, Event.GAP, [1], [1]),
            (3, Event.DIVIDE, [1], [2, 3]),
        ]
    )
    frame = np.array([0, 1, 3, 4, 4])
    label = np.array([1, 1, 1, 2, 3])
    position = np.array([[0.0, 0], [0, 1], [0, 2], [5, 2], [9, 2]])
    lineage = Lineage(5, frame, label, position, events, np.ones(3))
    write_track_table(tmp_path / "tracks.csv", lineage)
    rows = [
        line.split(",") for line in (tmp_path / "tracks.csv").read_text().splitlines()
    ]
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    assert columns["track"][:3] == ("1", "1", "1")
    assert columns["parent"] == ("0", "0", "0", "1", "1")
    assert columns["piece"][2] != "1"
    table = read_track_table(tmp_path / "tracks.csv")
    assert sorted(table.tracks.table().tolist()) == sorted(
        lineage.tracks.table().tolist()
    )
