"""Bad movies, lineages and annotations: each gives one line that names file, row or argument, and nothing is written.

One test for each line of the list of bad inputs, at the level of the command or of Python's API.
"""

import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tifffile

import clew
from clew.errors import DataWarning, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.metrics import MatchCounts
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Event
from clew.tracking.io import tiff
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.tables import read_detections
from clew.tracking.movie import Movie, open_movie

from ..helpers.commands import invoke, refused

TABLE = [
    [1, 0, 1, 0],
    [2, 2, 3, 1],
    [3, 2, 3, 1],
    [4, 0, 3, 0],
]  # 1 divides into 2 and 3; 4 stays
HEADER = "frame,event,sources,targets,happened\n"
LIBRARIES = 2**29
"""Bytes that the interpreter and its libraries may take of the next."""
BOUND = 3 * 2**29
"""Bytes that a pair of frames with 50,000 detections each may take, the interpreter and its libraries included."""


def masks_of(table, n_frames=4):
    masks = np.zeros((n_frames, 12, 32), np.uint16)
    for place, (track, begin, end, _) in enumerate(table):
        masks[
            max(begin, 0) : max(end, begin) + 1, 3:8, 2 + 7 * place : 7 + 7 * place
        ] = track
    return masks


@pytest.fixture
def folder(tmp_path):
    """A sound movie of four frames: images in 01, detections in 01_SEG, the truth in 01_GT/TRA."""
    masks = masks_of(TABLE)
    for name in ("01", "01_SEG", "01_GT/TRA"):
        (tmp_path / name).mkdir(parents=True)
    for t, mask in enumerate(masks):
        tiff.write_frame(
            tmp_path / f"01/t{t:03}.tif", (mask > 0).astype(np.uint16) * 900 + 100
        )
        tiff.write_frame(tmp_path / f"01_SEG/mask{t:03}.tif", mask)
        tiff.write_frame(tmp_path / f"01_GT/TRA/man_track{t:03}.tif", mask)
    write_table(tmp_path, TABLE)
    return tmp_path


def write_table(folder, table):
    text = "".join(f"{' '.join(map(str, row))}\n" for row in table)
    (folder / "01_GT/TRA/man_track.txt").write_text(text)


def track_refused(folder, *words):
    """Tracking says these words, and writes nothing."""
    told = refused("track", folder / "01", "-o", folder / "result", "--no-cache")
    assert all(word in told for word in words), told
    assert not (folder / "result").exists()


def truth_refused(folder, *words):
    """Every command that reads a lineage says these words, and writes nothing."""
    for told in (
        refused("sample", folder / "01_GT/TRA", "-o", folder / "some.csv"),
        refused(
            "train",
            folder / "01",
            "-a",
            folder / "01_GT/TRA",
            "-o",
            folder / "w.clew",
            "--no-cache",
        ),
    ):
        assert all(word in told for word in words), told
    assert not list(folder.glob("*.c*"))  # neither some.csv nor w.clew


def annotations_refused(folder, text, *words):
    (folder / "some.txt").write_text(HEADER + textwrap.dedent(text))
    told = refused(
        "train",
        folder / "01",
        "-a",
        folder / "some.txt",
        "-o",
        folder / "w.clew",
        "--no-cache",
    )
    assert all(word in told for word in words), told
    assert not (folder / "w.clew").exists()


def test_the_folder_is_sound(folder):
    assert (
        invoke(
            "track", folder / "01", "-o", folder / "result", "--no-cache", "--no-report"
        ).exit_code
        == 0
    )
    assert (
        invoke(
            "sample", folder / "01_GT/TRA", "-o", folder / "some.csv", "--fraction", 1
        ).exit_code
        == 0
    )


# movies


def test_an_empty_frame_is_accepted(folder):
    tiff.write_frame(folder / "01_SEG/mask002.tif", np.zeros((12, 32), np.uint16))
    result = invoke("track", folder / "01", "-o", folder / "result", "--no-cache")
    assert result.exit_code == 0, result.stderr
    assert (folder / "result/mask002.tif").is_file()
    movie = Movie.from_arrays(np.zeros((3, 8, 8), int))  # and all of them
    assert len(clew.Tracker.generic(cache=None).track(movie).frame) == 0


def test_an_empty_movie(folder):
    for path in (folder / "01").iterdir():
        path.unlink()
    track_refused(folder, "01 has no frames")
    with pytest.raises(InputError, match="no frames"):
        Movie.from_arrays(np.zeros((0, 8, 8), int))
    (folder / "cells.csv").write_text("frame,label,y,x\n")
    assert "no row" in refused(
        "track", folder / "cells.csv", "-f", "csv", "-o", folder / "result"
    )


def test_frames_missing(folder):
    (folder / "01/t002.tif").unlink()
    track_refused(folder, "frame 2 is missing", "t003.tif follows on t001.tif")


def test_a_mask_missing(folder):
    (folder / "01_SEG/mask002.tif").unlink()
    (folder / "01_GT/TRA/man_track001.tif").unlink()
    track_refused(folder, "01_SEG skipped: it lacks 1 of 4 frames", "01_GT/TRA skipped")


def test_frames_out_of_order(folder):
    (folder / "01/t002.tif").rename(folder / "01/t2.tif")
    (folder / "01/t003.tif").rename(folder / "01/t02.tif")
    track_refused(folder, "t02.tif and t2.tif have the same number")


@pytest.mark.parametrize("kind", ["01", "01_SEG"])
@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_shape_or_dtype_changes(folder, kind, change):
    path = sorted((folder / kind).iterdir())[-1]
    frame = tifffile.imread(path)
    tiff.write_frame(path, frame[:-1] if change == "shape" else frame.astype(np.uint32))
    track_refused(folder, path.name, "has shape", "expected (", " as in ")


def test_a_truncated_tiff(folder):
    path = folder / "01_SEG/mask003.tif"
    path.write_bytes(path.read_bytes()[:-20])
    track_refused(folder, "mask003.tif")


@pytest.mark.posix
def test_a_tiff_that_claims_a_million_million_pixels(folder):
    side = 10**6
    entries = [
        (256, 4, 1, side),
        (257, 4, 1, side),
        (258, 3, 1, 16),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
        (273, 4, 1, 8),
    ]
    entries += [(277, 3, 1, 1), (278, 4, 1, side), (279, 4, 1, 8)]
    data = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + b"".join(
        struct.pack("<HHII", *e) for e in entries
    )
    for path in (folder / "01").iterdir():
        path.write_bytes(data + bytes(64))
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    track_refused(folder, "t000.tif", "2,000,000,000,000 bytes")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.posix
@pytest.mark.parametrize("side", [50, pytest.param(224, marks=pytest.mark.slow)])
def test_50000_detections_in_a_frame(side):
    """In a process of its own, of which the memory is measured; fewer may take as much less of the bound."""
    n = min(side**2, 50_000)
    code = """
        import resource
        from pathlib import Path
        import numpy as np
        from clew.tracking.movie import Movie
        from clew.tracking.tracker import Tracker

        n, side = SIZES
        rng = np.random.default_rng(0)
        labels = np.zeros((2, side * 8 + 4, side * 8 + 4), np.int32)
        for frame in labels:  # squares on a grid that move by a pixel
            y, x = np.arange(n) // side * 8 + rng.integers(0, 2, n), np.arange(n) % side * 8 + rng.integers(0, 2, n)
            for down in range(4):
                for right in range(4):
                    frame[y + down, x + right] = np.arange(1, n + 1)
        events = Tracker.generic(cache=None, n_jobs=1).track(Movie.from_arrays(labels)).events
        moved = (events.sources[:, 0] == events.targets[:, 0]).sum()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux, that of the parent at the least
        if Path("/proc/self/status").exists():
            peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
        print(moved, int(peak) * 1024)
    """
    code = textwrap.dedent(code)
    # kernels are compiled once, which takes memory of its own: some cells first, here
    exec(code.replace("SIZES", "400, 20"), {})
    code = code.replace("SIZES", f"{n}, {side}")
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    moved, peak = map(int, run.stdout.split())
    assert moved == n
    assert peak < LIBRARIES + (BOUND - LIBRARIES) * n / 50_000


# lineages


def test_a_duplicate_track_id(folder):
    write_table(folder, [*TABLE, [4, 0, 3, 0]])
    truth_refused(folder, "row 5", "track 4")


@pytest.mark.parametrize(("parent", "words"), [(9, "9"), (2, "its own parent")])
def test_a_parent_that_is_missing_or_itself(folder, parent, words):
    write_table(folder, [TABLE[0], [2, 2, 3, parent], *TABLE[2:]])
    truth_refused(folder, "row 2", words)


def test_parents_in_a_cycle(folder):
    write_table(folder, [[1, 0, 1, 3], *TABLE[1:]])
    truth_refused(folder, "row 1")


def test_a_child_that_begins_before_its_parent_ends(folder):
    write_table(folder, [[1, 0, 2, 0], *TABLE[1:]])
    truth_refused(folder, "row 2", "its parent 1 lasts to frame 2")


def test_an_end_before_its_begin(folder):
    write_table(folder, [*TABLE[:3], [4, 3, 0, 0]])
    truth_refused(folder, "row 4")


@pytest.mark.parametrize("frame", [0, 3])
def test_a_label_in_a_mask_that_the_table_lacks_in_the_last_frame_too(folder, frame):
    mask = masks_of(TABLE)[frame]
    mask[0, 0] = 77
    tiff.write_frame(folder / f"01_GT/TRA/man_track{frame:03}.tif", mask)
    truth_refused(folder, f"frame {frame}", "label 77")


def test_three_daughters(folder):
    table = [TABLE[0], [2, 2, 3, 1], [3, 2, 3, 1], [4, 2, 3, 1]]
    for t, mask in enumerate(masks_of(table)):
        tiff.write_frame(folder / f"01_GT/TRA/man_track{t:03}.tif", mask)
    write_table(folder, table)
    with pytest.warns(
        DataWarning, match=r"track 1 has 3 daughters \(2, 3, 4; rows 2, 3, 4\)"
    ):
        truth = open_ctc_lineage(folder / "01_GT")
    said = derive_annotations(truth, open_movie(folder / "01")).events
    assert not any(
        1 in sources for frame, _, sources, _ in said if frame == 1
    )  # unknown
    sure = evaluate(folder / "01_GT/TRA", truth, scores=False)
    assert sure.divisions[0] == MatchCounts(1, 0, 0)  # the Challenge's rules
    assert sure.aogm.total == 0


# tables


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace("\n", ",,a remark\n").replace(
            "x,,a remark", "x,who,remark", 1
        ),
    ],
    ids=["bom", "crlf", "tabs", "extra columns"],
)
def test_csv_with_bom_crlf_tabs_or_extra_columns_is_the_same_table(tmp_path, change):
    text = "frame,label,y,x\n0,1,2.5,3\n0,2,9,9\n1,1,2.6,3.5\n1,4,9,10\n"
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "other.csv").write_bytes(change(text).encode())
    plain, other = (
        read_detections(tmp_path / name) for name in ("plain.csv", "other.csv")
    )
    for t in range(2):
        assert np.array_equal(plain.detections(t).label, other.detections(t).label)
        assert np.array_equal(
            plain.detections(t).position, other.detections(t).position
        )
    for name in ("plain", "other"):
        args = (
            "track",
            tmp_path / f"{name}.csv",
            "-o",
            tmp_path / name,
            "-f",
            "csv",
            "--no-report",
        )
        assert invoke(*args).exit_code == 0
    assert (tmp_path / "plain/events.csv").read_bytes() == (
        tmp_path / "other/events.csv"
    ).read_bytes()


def test_annotations_are_the_same_with_bom_crlf_tabs_and_extra_columns(folder):
    plain = HEADER + "0,move,4,4,yes\n1,divide,1,2 3,yes\n"
    odd = "\ufeff" + plain.replace(",yes", ",yes,me").replace(
        "happened", "happened,who"
    ).replace(",", "\t")
    (folder / "plain.csv").write_text(plain)
    (folder / "odd.csv").write_bytes(odd.replace("\n", "\r\n").encode())
    for name in ("plain", "odd"):
        args = (
            "train",
            folder / "01",
            "-a",
            folder / f"{name}.csv",
            "-o",
            folder / f"{name}.clew",
            "--lam",
            1,
        )
        result = invoke(*args, "--no-cache")
        assert result.exit_code == 0, result.stderr
    assert np.array_equal(
        clew.load(folder / "plain.clew").coef_, clew.load(folder / "odd.clew").coef_
    )


# annotations


def test_annotations_whose_ids_do_not_exist(folder):
    annotations_refused(
        folder, "0,move,4,4,yes\n0,move,1,99,yes\n", "row 3", "no label 99 in frame 1"
    )
    annotations_refused(
        folder, "7,move,4,4,yes\n", "row 2", "the movie ends with frame 3"
    )


def test_annotations_that_contradict_each_other(folder):
    annotations_refused(
        folder,
        "0,move,4,4,yes\n0,disappear,4,,yes\n",
        "row 2",
        "contradicts row 3",
        "one fate",
    )
    annotations_refused(
        folder, "0,move,4,4,yes\n0,move,4,4,no\n", "row 2", "by row 3 did not happen"
    )


def test_annotations_that_tracking_cannot_keep_to(folder):
    denied = "0,move,4,4,no\n0,disappear,4,,no\n0,divide,4,1 4,no\n0,split,4,1 4,no\n0,move,4,1,no\n0,merge,1 4,4,no\n"
    (folder / "some.csv").write_text(HEADER + denied + "0,merge,1 4,1,no\n")
    told = refused(
        "track",
        folder / "01",
        "-a",
        folder / "some.csv",
        "-o",
        folder / "result",
        "--no-cache",
    )
    assert "from frame 0 to 1" in told
    assert not (folder / "result").exists()


def test_annotations_of_no_event(folder):
    annotations_refused(folder, "", "nothing is annotated")
    annotations_refused(folder, "0,vanish,4,,yes\n0,move,4,,yes\n", "row 2", "row 3")


def test_a_lineage_of_positions_has_one_fate_each():
    """The last resort: whatever the weights say, a lineage is consistent."""
    rng = np.random.default_rng(0)
    table = DetectionTable(
        np.repeat(range(4), 30), np.tile(np.arange(1, 31), 4), rng.random((120, 2)) * 20
    )
    tracker = clew.Tracker.generic(n_jobs=1)
    tracker.coef_ = rng.normal(size=tracker.coef_.shape)
    lineage = tracker.track(table)  # a Lineage refuses to be made otherwise
    assert set(lineage.events.event.tolist()) <= set(Event)
