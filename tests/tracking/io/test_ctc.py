import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from clew.errors import ClewError, DataWarning, InputError, StoreError
from clew.tracking.events import Event, EventTable
from clew.tracking.io import ctc, tiff
from clew.tracking.io.annotations import open_annotations
from clew.tracking.io.ctc import (
    check_result_folder,
    open_ctc_lineage,
    read_tracks,
    split_at_gaps,
    write_tracks,
)
from clew.tracking.io.names import RESULT
from clew.tracking.lineage.lineage import LineageInParts
from clew.tracking.lineage.tracks import Tracks, check_frame
from clew.tracking.movie import Movie

from ...helpers.results import check_ctc_lineage, write_ctc_result

TABLE = [
    [4, 0, 1, 0],
    [7, 2, 4, 4],
    [2, 2, 3, 4],
    [9, 1, 4, 0],
]  # 4 divides into 7 and 2; 9 comes in frame 1


def masks_of(table=TABLE, shape=(8, 30), n_frames=5):
    """Masks with a block for each track, wherever it is alive."""
    masks = np.zeros((n_frames, *shape), np.uint32)
    for place, (track, begin, end, _) in enumerate(table):
        masks[begin : end + 1, ..., 1:5, 1 + 6 * place : 5 + 6 * place] = track
    return masks


def write_truth(folder, table=TABLE, masks=None, first=0, name="man_track"):
    folder.mkdir(parents=True, exist_ok=True)
    for t, mask in enumerate(masks_of(table) if masks is None else masks):
        tiff.write_frame(folder / f"{name}{t + first:03}.tif", mask)
    rows = [
        [track, begin + first, end + first, parent]
        for track, begin, end, parent in table
    ]
    (folder / f"{name.replace('mask', 'res_track')}.txt").write_text(
        "".join(f"{' '.join(map(str, row))}\n" for row in rows)
    )
    return folder


class StandIn(SimpleNamespace):
    """What writers of masks ask of a lineage: cells and tracks, but no events."""

    events, confidence, probability, columns = EventTable.empty(), np.zeros(0), None, {}
    recovered = None

    @property
    def position(self):
        return np.zeros((len(self.frame), 2))

    @property
    def n_cells(self):
        return len(self.frame)

    def readers(self):
        return LineageInParts(self).readers()


def lineage_of(table=TABLE, shift=10, n_frames=5):
    """A movie whose labels change from frame to frame, and a stand-in for its lineage."""
    masks = masks_of(table).astype(np.int64)
    labels = np.where(
        masks > 0, (masks * 3 + shift * np.arange(n_frames)[:, None, None]) % 101 + 1, 0
    )
    nodes = sorted(
        (t, int(labels[t][masks[t] == track][0]), track)
        for track, begin, end, _ in table
        for t in range(begin, end + 1)
    )
    frame, label, track = np.array(nodes, dtype=np.int64).reshape(-1, 3).T
    lineage = StandIn(
        n_frames=n_frames,
        frame=frame,
        label=label,
        track=track,
        tracks=Tracks.of(table),
    )
    return Movie.from_arrays(labels), lineage


# the table


def test_a_table_written_is_the_table_read(tmp_path):
    write_tracks(tmp_path / "res_track.txt", Tracks.of(TABLE))
    assert (tmp_path / "res_track.txt").read_text().splitlines()[1] == "7 2 4 4"
    assert read_tracks(tmp_path / "res_track.txt").table().tolist() == TABLE
    assert read_tracks(tmp_path).table().tolist() == TABLE


def test_an_empty_table(tmp_path):
    write_tracks(tmp_path / "res_track.txt", Tracks.of([]))
    assert len(read_tracks(tmp_path)) == 0


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff4 0 1 0\r\n7 2 4 4\r\n",
        "4\t0\t1\t0\n\n7  2 4 4",
        " 4 0 1 0 \n7 2 4 4\n\n",
    ],
)
def test_bom_tabs_blanks_and_line_ends_do_not_matter(tmp_path, text):
    (tmp_path / "man_track.txt").write_bytes(text.encode())
    assert read_tracks(tmp_path).table().tolist() == TABLE[:2]


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (2, "7 2 4", "3 columns"),
        (2, "7 2 4 4 1", "5 columns"),
        (4, "9 1 4.0 0", "'4.0' is not an integer"),
        (4, "9 1 four 0", "'four' is not an integer"),
        (4, "9 1 99999999999999999999 0", "is not an integer"),
        (4, "9 1 ٤ 0", "is not an integer"),
        (4, "7 1 4 0", "track 7 stands in row 3 already"),
        (4, "-1 1 4 0", "the track has the id -1"),
        (4, "9 1 4 3", "the parent 3 of track 9 is not in the table"),
        (4, "9 1 4 9", "track 9 is its own parent"),
        (1, "4 0 1 7", "track 4 is its own ancestor"),
        (3, "2 1 3 4", "track 2 begins in frame 1, but its parent 4 lasts to frame 1"),
        (4, "9 4 1 0", "track 9 ends in frame 1, before it begins in frame 4"),
    ],
)
def test_a_fault_in_the_table_is_told_with_its_row(tmp_path, row, text, message):
    lines = [" ".join(map(str, track)) for track in TABLE]
    lines[row - 1] = text
    (tmp_path / "man_track.txt").write_text(
        "\n".join(["", *lines])
    )  # an empty line counts
    with pytest.raises(
        InputError, match=rf"man_track\.txt, row {row + 1}: .*{re.escape(message)}"
    ):
        read_tracks(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "man_track.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"man_track\.txt cannot be read"):
        read_tracks(tmp_path)


def test_no_broken_table_is_written(tmp_path):
    with pytest.raises(InputError, match="row 1: track 3 is its own parent"):
        write_tracks(tmp_path / "res_track.txt", Tracks.of([[3, 0, 0, 3]]))
    assert not list(tmp_path.iterdir())


# table and masks


@pytest.mark.parametrize("name", ["man_track", "mask"])
def test_truth_and_result_are_opened(tmp_path, name):
    folder = write_truth(tmp_path / "01_GT/TRA", name=name)
    (folder / "other5.tif").write_bytes(b"not a mask")
    lineage = open_ctc_lineage(folder)
    assert lineage.tracks.table().tolist() == TABLE
    np.testing.assert_array_equal(lineage.masks[3], masks_of()[3])
    check_ctc_lineage(lineage)


def test_the_truth_of_a_sequence_is_found(tmp_path):
    write_truth(tmp_path / "01_GT/TRA")
    assert len(open_ctc_lineage(tmp_path / "01_GT").tracks) == 4


def test_frames_count_from_the_first_mask(tmp_path):
    lineage = open_ctc_lineage(write_truth(tmp_path / "TRA", first=23))
    assert lineage.tracks.table().tolist() == TABLE
    check_ctc_lineage(lineage)


def test_a_folder_without_tracks_is_refused(tmp_path):
    with pytest.raises(
        InputError,
        match=r"has no tracks; expected .*man_track\.txt, .*res_track\.txt",
    ):
        open_ctc_lineage(tmp_path)
    write_truth(tmp_path, name="mask")
    (tmp_path / "res_track.txt").unlink()
    with pytest.raises(InputError, match="was a run interrupted"):
        open_ctc_lineage(tmp_path)


def test_tracks_end_with_the_movie(tmp_path):
    folder = write_truth(tmp_path / "TRA")
    (folder / "man_track004.tif").unlink()
    with pytest.raises(
        InputError,
        match=r"track 7 lasts to frame 4, but the last mask is man_track003\.tif",
    ):
        open_ctc_lineage(folder)


def test_masks_are_of_integers(tmp_path):
    folder = write_truth(tmp_path / "TRA", masks=masks_of().astype(np.float32))
    with pytest.raises(InputError, match=r"man_track000\.tif has dtype float32"):
        open_ctc_lineage(folder)


@pytest.mark.parametrize("frame", [2, 4])
@pytest.mark.parametrize(
    ("label", "message"),
    [(3, "track 3 does not exist"), (4, "track 4 lasts from frame 0 to 1")],
)
def test_a_label_that_the_table_lacks_is_told_in_the_last_frame_too(
    tmp_path, frame, label, message
):
    masks = masks_of()
    masks[frame, 7, 7] = label
    lineage = open_ctc_lineage(write_truth(tmp_path / "TRA", masks=masks))
    with pytest.raises(
        InputError,
        match=f"TRA, frame {frame}: label {label} is in the mask, but by the table {message}",
    ):
        check_ctc_lineage(lineage)


def test_a_track_that_the_masks_lack_is_told(tmp_path):
    masks = masks_of()
    masks[3][masks[3] == 9] = 0
    lineage = open_ctc_lineage(write_truth(tmp_path / "TRA", masks=masks))
    with pytest.raises(
        InputError, match="frame 3: track 9 is alive by the table, but not in the mask"
    ):
        check_ctc_lineage(lineage)


def test_gap_in_the_masks_of_a_truth_is_a_gap(tmp_path):
    whole = masks_of()
    movie = Movie.from_arrays(np.stack(whole), name="m")
    masks = masks_of()
    masks[3][masks[3] == 9] = 0
    folder = write_truth(tmp_path / "TRA", masks=masks)
    with pytest.warns(DataWarning, match="1 cells of tracks are not in the masks"):
        found = open_annotations(folder, movie)
    events = set(found.annotations.events)
    assert (2, Event.GAP, (9,), (9,)) in events
    with pytest.warns(DataWarning, match="taken as gaps"):
        split = split_at_gaps(open_ctc_lineage(folder))
    check_ctc_lineage(split)
    assert len(split.tracks) == len(TABLE) + 1


def test_track_0_is_left_out(tmp_path):
    folder = write_truth(tmp_path / "TRA", masks=masks_of())
    table = folder / "man_track.txt"
    text = table.read_text()
    table.write_text(f"0 0 4 0\n{text}")
    with pytest.warns(DataWarning, match="0 is the background"):
        tracks = read_tracks(folder)
    table.write_text(text)
    np.testing.assert_array_equal(tracks.table(), read_tracks(folder).table())


def test_labels_of_one_frame():
    check_frame(Tracks.of(TABLE), 1, np.array([9, 4]))
    check_frame(Tracks.of(TABLE), 1, np.array([0, 4, 9], np.uint8))
    check_frame(Tracks.of([]), 0, np.array([0]))


# a result


def validity(folder):
    """By the challenge's own rules."""
    validate = pytest.importorskip(
        "ctc_metrics.scripts.validate", reason="py-ctcmetrics is not installed"
    )
    return validate.validate_sequence(str(folder), threads=1)["Valid"]


def test_a_result_carries_the_tracks_and_is_valid(tmp_path):
    movie, lineage = lineage_of()
    seen = []
    write_ctc_result(
        tmp_path / "new/result", movie, lineage, lambda *given: seen.append(given)
    )
    folder = tmp_path / "new/result"
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        *(f"mask00{t}.tif" for t in range(5)),
        "res_track.txt",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["result"]
    assert seen[-1] == (5, 5)
    result = open_ctc_lineage(folder)
    check_ctc_lineage(result)
    assert result.masks.dtype == np.uint16
    assert result.tracks.table().tolist() == TABLE
    for t in range(5):
        np.testing.assert_array_equal(result.masks[t], masks_of()[t])
    assert validity(folder) == 1


def test_the_validator_can_say_no(tmp_path):
    folder = write_truth(tmp_path / "RES", masks=masks_of(TABLE[:3]), name="mask")
    with pytest.warns(UserWarning, match="Label 9 in res_track but not in mask"):
        assert validity(folder) == 0


def test_a_result_in_three_dimensions(tmp_path):
    movie, lineage = lineage_of()
    deep = Movie.from_arrays(
        np.repeat(np.stack([movie.label(t) for t in range(5)])[:, None], 3, axis=1)
    )
    write_ctc_result(tmp_path / "result", deep, lineage, n_jobs=2)
    assert open_ctc_lineage(tmp_path / "result").masks.shape == (3, 8, 30)
    check_ctc_lineage(open_ctc_lineage(tmp_path / "result"))
    assert validity(tmp_path / "result") == 1


@pytest.mark.linux
def test_each_mask_waits_for_the_disk_once(tmp_path, monkeypatch):
    fsync = os.fsync
    synced = []

    def record(number):
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    monkeypatch.setattr(os, "fsync", record)
    movie, lineage = lineage_of()
    write_ctc_result(tmp_path / "result", movie, lineage)
    masks = [name for name in synced if name.endswith(".tif")]
    assert sorted(masks) == [f"mask{t:03d}.tif" for t in range(5)]


def test_many_tracks_need_wider_pixels(tmp_path):
    table = [[65_536, 0, 4, 0]]
    movie, lineage = lineage_of(table)
    write_ctc_result(tmp_path / "result", movie, lineage)
    result = open_ctc_lineage(tmp_path / "result")
    assert result.masks.dtype == np.uint32
    assert set(np.unique(result.masks[2])) == {0, 65_536}


def test_names_have_digits_enough(tmp_path):
    n = 1001
    movie = Movie.from_arrays(np.ones((n, 2, 2), np.uint8))
    ones = np.ones(n, np.int64)
    lineage = StandIn(
        n_frames=n,
        frame=np.arange(n),
        label=ones,
        track=ones,
        tracks=Tracks.of([[1, 0, n - 1, 0]]),
    )
    write_ctc_result(tmp_path / "result", movie, lineage, n_jobs=2)
    assert (tmp_path / "result/mask1000.tif").exists()
    assert (tmp_path / "result/mask0000.tif").exists()
    assert len(open_ctc_lineage(tmp_path / "result").masks) == n


def test_frames_without_cells(tmp_path):
    movie, lineage = lineage_of([[1, 1, 2, 0]])
    write_ctc_result(tmp_path / "result", movie, lineage)
    check_ctc_lineage(open_ctc_lineage(tmp_path / "result"))
    nothing, of_nothing = lineage_of([])
    write_ctc_result(tmp_path / "result", nothing, of_nothing)
    check_ctc_lineage(open_ctc_lineage(tmp_path / "result"))
    assert len(read_tracks(tmp_path / "result")) == 0


def test_an_older_result_is_replaced_with_all_its_formats(tmp_path):
    movie, lineage = lineage_of()
    folder = tmp_path / "result"
    write_ctc_result(folder, movie, lineage)
    before = sorted(path.name for path in folder.iterdir())
    (folder / "mask0099.tif").write_bytes(b"of a longer movie")
    (folder / "tracks.csv").write_text("of another run")
    (folder / "lineage.geff").mkdir()
    (folder / "lineage.geff/zarr.json").write_text("of another run")
    write_ctc_result(folder, movie, lineage, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == before
    check_ctc_lineage(open_ctc_lineage(folder))


def test_a_folder_with_other_files_is_refused_untouched(tmp_path):
    movie, lineage = lineage_of()
    (tmp_path / "thesis.docx").write_text("three years")
    with pytest.raises(InputError, match=r"holds thesis\.docx"):
        write_ctc_result(tmp_path, movie, lineage)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.docx"]
    with pytest.raises(InputError, match="is a file"):
        write_ctc_result(tmp_path / "thesis.docx", movie, lineage)


@pytest.mark.parametrize(
    "fault", ["unknown label", "absent cell", "frames", "disk full", "moved"]
)
def test_a_failure_leaves_the_older_result(tmp_path, monkeypatch, fault):
    movie, lineage = lineage_of()
    folder = tmp_path / "result"
    write_ctc_result(folder, movie, lineage)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    changed, message = (
        StandIn(**vars(lineage)),
        {
            "unknown label": "which the lineage lacks",
            "absent cell": "not in the mask",
            "frames": "is of 4 frames",
            "disk full": "No space",
            "moved": "cannot be written",
        }[fault],
    )
    if fault == "unknown label":
        keep = np.arange(len(lineage.frame)) != len(lineage.frame) - 1
        changed.frame, changed.label, changed.track = (
            lineage.frame[keep],
            lineage.label[keep],
            lineage.track[keep],
        )
    elif fault == "absent cell":
        changed.tracks = Tracks.of([*TABLE, [12, 3, 4, 0]])
    elif fault == "frames":
        changed.n_frames = 4
    elif fault == "disk full":

        def full(path, frame):
            raise StoreError(f"{path}: No space left on device")

        monkeypatch.setattr(tiff, "write_frame", full)
    else:

        def gone(path, tracks):
            raise OSError("the folder is gone")

        monkeypatch.setattr(ctc, "write_tracks", gone)
    with pytest.raises(ClewError, match=message):
        write_ctc_result(folder, movie, changed)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_result_that_was_changed_by_hand_is_not_replaced(tmp_path):
    movie, lineage = lineage_of()
    folder = tmp_path / "result"
    write_ctc_result(folder, movie, lineage)
    write_ctc_result(folder, movie, lineage)  # as clew wrote it
    (folder / RESULT).write_text("corrected")
    with pytest.raises(InputError, match=r"res_track\.txt has .*--overwrite"):
        write_ctc_result(folder, movie, lineage)
    assert (folder / RESULT).read_text() == "corrected"
    write_ctc_result(folder, movie, lineage, overwrite=True)
    check_ctc_lineage(open_ctc_lineage(folder))


def test_interrupted_move_is_refused_by_readers_and_finished_by_writers(
    tmp_path, monkeypatch
):
    movie, lineage = lineage_of()
    folder = tmp_path / "result"
    write_ctc_result(folder, *lineage_of(TABLE[:2]))
    original = Path.replace

    def dies(self, target):
        if Path(target) == folder / "mask003.tif":
            raise KeyboardInterrupt
        return original(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        write_ctc_result(folder, movie, lineage)
    monkeypatch.undo()
    assert [path for path in folder.iterdir() if path.suffix == ".ready"]
    with pytest.raises(StoreError, match="was interrupted"):
        open_ctc_lineage(folder)
    check_result_folder(folder)
    found = open_ctc_lineage(folder)
    check_ctc_lineage(found)
    assert found.tracks.table().tolist() == TABLE
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(
    "CLEW_DATA" not in os.environ, reason="CLEW_DATA is not set: no recorded movies"
)
def test_a_recorded_truth():
    truth = open_ctc_lineage(Path(os.environ["CLEW_DATA"]) / "Fluo-N2DL-HeLa/01_GT")
    assert (
        np.bincount(
            np.unique(truth.tracks.parent[truth.tracks.parent > 0], return_counts=True)[
                1
            ]
        )[2]
        == 94
    )
    check_ctc_lineage(truth)
