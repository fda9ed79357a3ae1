"""Files of other programs, as movies of points, annotations and truths."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.events import Event
from clew.tracking.io.annotations import open_annotations
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.mastodon import read_mastodon
from clew.tracking.io.tables import read_detections

FOLDER = Path(__file__).parent / "foreign"
WITH_PARENTS = (
    "btrack-0.7.0.csv",
    "btrack-0.7.0.h5",
    "funtracks-2.2.0.csv",
    "funtracks-2.2.0.geff.zip",
    "ilastik-1.4-from-specification.csv",
    "laptrack-0.17.1.csv",
    "mastodon-1-from-specification.mastodon",
    "mastodon-1-from-specification-Spot.csv",
    "trackmate-7-from-specification.xml",
    "trackmate-7-from-specification-spots.csv",
    "tracksdata-0.1.0rc12.geff.zip",
    "ultrack-0.8.0.csv",
)
FROM_PIXELS = (
    "ilastik-1.4-from-specification.ilp",
    "ilastik-1.4-from-specification-events.zip",
)
"""Files that have objects in place of points."""
WITHOUT_PARENTS = ("trackpy-0.7.csv", "napari-plain.csv")
N_CELLS = 36


def make_movie():
    """The cells that all files have; labels are other than theirs."""
    rows = []
    for t in range(6):
        for k in range(6):
            y = 10.0 * k + 0.3 * t
            x = 20.0 + t
            if k == 0 and t > 2:
                rows += [(t, 50, y - 2, x), (t, 51, y + 2, x)]
            elif k < 5 or t < 3:
                rows.append((t, 50 + 2 * k, y, x))
    table = np.array(rows)
    numbers = table[:, :2].astype(int)
    return DetectionTable(numbers[:, 0], numbers[:, 1], table[:, 2:])


MOVIE = make_movie()


@pytest.fixture(scope="module")
def unpack(tmp_path_factory):
    """Function that gives the path of a file, unpacked."""

    def get_path(name):
        if not name.endswith(".zip"):
            return FOLDER / name
        folder = tmp_path_factory.mktemp("geff") / name.removesuffix(".zip")
        with zipfile.ZipFile(FOLDER / name) as archive:
            archive.extractall(folder)
        return folder

    return get_path


@pytest.mark.parametrize("name", [*WITH_PARENTS, *FROM_PIXELS])
def test_file_gives_the_same_annotations(unpack, name):
    found = open_annotations(unpack(name), MOVIE)
    events = set(found.annotations.events)
    assert (2, Event.DIVIDE, (50,), (50, 51)) in events
    assert (2, Event.DISAPPEAR, (60,), ()) in events
    kinds = [event for _, event, _, _ in events]
    assert len(events) == 30
    assert kinds.count(Event.MOVE) == 28
    assert "36 of 36 cells attached" in found.summary


@pytest.mark.parametrize("name", WITHOUT_PARENTS)
def test_file_without_parents_gives_moves(unpack, name):
    found = open_annotations(unpack(name), MOVIE)
    assert set(found.annotations.events.event) == {Event.MOVE}
    assert "it has no parents" in found.summary


@pytest.mark.parametrize("name", [*WITH_PARENTS, *FROM_PIXELS])
def test_file_is_a_truth(unpack, name):
    truth = FOLDER / "btrack-0.7.0.csv"
    found = evaluate(truth, unpack(name))
    assert (found.loss.n_errors, found.loss.n_annotations) == (0, 30)
    if not name.endswith(".ilp"):  # annotations of some cells
        assert found.aogm.total == 0
        assert found.divisions[0].right == 1


@pytest.mark.parametrize("name", [*WITH_PARENTS, *WITHOUT_PARENTS])
def test_file_is_a_movie_of_points(unpack, name):
    movie = read_detections(unpack(name))
    assert movie.n_frames == 6
    expected = N_CELLS + name.startswith("ilastik")  # one object has no track
    assert sum(len(movie.detections(t)) for t in range(6)) == expected
    places = {tuple(place) for place in movie.detections(4).position.round(4).tolist()}
    wanted = MOVIE.detections(4).position.round(4).tolist()
    assert places == {tuple(place) for place in wanted}


def test_program_is_named(unpack):
    assert "read as a table of btrack" in open_lineage(unpack("btrack-0.7.0.csv")).notes


@pytest.mark.parametrize(
    ("program", "columns"), [("trackpy", "particle"), ("laptrack", "track_id,tree_id")]
)
def test_tracks_that_were_added_to_a_table_of_clew_are_read(tmp_path, program, columns):
    rows = [f"frame,track,parent,y,x,{columns}"]
    # clew joins the cell in frame 0 to another one than the program does
    for t, track, y in ((0, 1, 0), (0, 2, 9), (1, 1, 9), (1, 2, 0)):
        theirs = 4 + (y == 0)
        rows.append(f"{t},{track},0,{y},0,{theirs}" + ",0" * columns.count(","))
    (tmp_path / "t.csv").write_text("\n".join(rows))
    lineage = open_lineage(tmp_path / "t.csv")
    assert f"read as a table of {program}" in lineage.notes
    lengths = [np.ptp(lineage.position[lineage.track == k, 0]) for k in (4, 5)]
    assert lengths == [0, 0]


def test_spots_without_edges_are_refused(tmp_path):
    name = "trackmate-7-from-specification-spots.csv"
    (tmp_path / "spots.csv").write_text((FOLDER / name).read_text())
    with pytest.raises(InputError, match="its table of edges beside it"):
        open_lineage(tmp_path / "spots.csv")


def test_hidden_tracks_of_trackmate_are_left_out(tmp_path):
    text = (FOLDER / "trackmate-7-from-specification.xml").read_text()
    (tmp_path / "a.xml").write_text(text.replace('<TrackID TRACK_ID="1"/>', ""))
    assert len(open_lineage(tmp_path / "a.xml").tracks) == 8 + 5


def test_spots_without_tracks_do_not_make_a_lineage_complete(tmp_path):
    text = (FOLDER / "trackmate-7-from-specification.xml").read_text()
    for track in (1, 2, 3, 4):
        text = text.replace(f'<TrackID TRACK_ID="{track}"/>', "")
    (tmp_path / "a.xml").write_text(text)
    found = open_annotations(tmp_path / "a.xml", MOVIE)
    assert set(found.annotations.events.event) == {Event.MOVE, Event.DIVIDE}
    assert "ends of 1 tracks are unknown" in found.summary  # of the one left


def test_merges_of_laptrack_leave_ends_open(tmp_path):
    rows = ["frame,track_id,tree_id,y,x"]
    rows += [f"{t},{k},0,{10 * k},{t}" for t in (0, 1) for k in (0, 1)]
    rows += [f"{t},2,0,5,{t}" for t in (2, 3)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (tmp_path / "t_split.csv").write_text("\n")
    (tmp_path / "t_merge.csv").write_text("parent_track_id,child_track_id\n0,2\n1,2\n")
    lineage = open_lineage(tmp_path / "t.csv")
    assert lineage.unknown_begin.tolist() == [3]
    assert lineage.unknown_end.tolist() == [1, 2]
    table = read_detections(tmp_path / "t.csv")
    kinds = open_annotations(tmp_path / "t.csv", table).annotations.events.event
    assert set(kinds) == {Event.MOVE}


def test_table_of_mastodon_without_units_loses_no_cell(tmp_path):
    text = (FOLDER / "mastodon-1-from-specification-Spot.csv").read_text()
    lines = text.splitlines(keepends=True)
    lines[2] = '"","","","","","","",""\n'
    (tmp_path / "Spot.csv").write_text("".join(lines))
    movie = read_detections(tmp_path / "Spot.csv")
    assert sum(len(movie.detections(t)) for t in range(6)) == N_CELLS
    # the number of links would tell of the truth
    assert movie.user_columns is None


@pytest.mark.skipif("CLEW_DATA" not in os.environ, reason="needs CLEW_DATA")
def test_project_of_mastodon_is_that_of_its_table():
    folder = Path(os.environ["CLEW_DATA"]) / "ascidian"
    project = read_mastodon(folder / "Pm03.mastodon")
    movie = read_detections(folder / "Pm03-points.csv")
    from_project = open_annotations(folder / "Pm03.mastodon", movie)
    from_table = open_annotations(folder / "Pm03-tracks.csv", movie)
    events = set(from_table.annotations.events)
    assert set(from_project.annotations.events) == events
    assert len(project.frame) == 13_484
    assert read_detections(folder / "Pm03.mastodon").n_frames == movie.n_frames


def test_damaged_project_of_mastodon_is_refused(tmp_path):
    path = tmp_path / "a.mastodon"
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match="cannot be read as a project of Mastodon"):
        open_lineage(path)
    for model, words in (
        (b"nothing", "no stream of Java"),
        (b"\xac\xed\x00\x05\x77\x04\x00\x00\x00\x05", "ends too early"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model.raw", model)
        with pytest.raises(InputError, match=words):
            open_lineage(path)
