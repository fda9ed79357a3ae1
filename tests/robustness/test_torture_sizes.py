"""Sizes, readers and commands that a slip or an enemy can make: each one line, at once, and exit code 2.

One test for each line of the list of bad inputs that is about sizes, odd files and exit codes.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

from clew.cli import app
from clew.cli.options import _describe_error
from clew.errors import DataWarning, InputError
from clew.tracking.candidates.candidates import find_candidates
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.challenge import _compute_overlaps
from clew.tracking.evaluation.matching import match_frame
from clew.tracking.io import tiff
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.napari import read_napari
from clew.tracking.io.tables import read_detections
from clew.tracking.movie import open_movie
from clew.tracking.persistence import load_tracker
from clew.tracking.segmentation import DetectionSettings, detect_frame
from clew.tracking.tracker import Tracker
from clew.utils import storage

HEADER = "frame,label,y,x\n"


def refused(*args):
    """The one line of a command that ends with exit code 2."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 2, result.output
    assert "unexpected" not in result.stderr
    return result.stderr


def write_truth(folder, n_frames=2, shape=(6, 9)):
    """One cell that stays, as a lineage of the Challenge."""
    folder.mkdir(parents=True)
    for t in range(n_frames):
        mask = np.zeros(shape, np.uint16)
        mask[..., 1:4, 1:4] = 1
        tiff.write_frame(folder / f"man_track{t:03}.tif", mask)
    (folder / "man_track.txt").write_text(f"1 0 {n_frames - 1} 0\n")
    return open_ctc_lineage(folder)


# sizes


def test_more_neighbours_than_can_matter(tmp_path):
    assert "64" in refused("train", tmp_path, "-a", "a.csv", "--neighbours", 10**9)
    cells = DetectionTable([0, 1], [1, 1], [[0, 0], [0, 1]])
    with pytest.raises(
        InputError,
        match="neighbours is 1000000000; expected a whole number from 1 to 64",
    ):
        find_candidates(
            cells.detections(0), cells.detections(1), reach=1.0, neighbours=10**9
        )


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((0, 9_999_999), "less than 1,000,000"),
        ((0, 999_999), "no cell in the 999,998 frames before frame 999,999"),
    ],
)
def test_a_table_with_frames_far_apart(tmp_path, frames, words):
    (tmp_path / "a.csv").write_text(HEADER + "".join(f"{t},1,5,5\n" for t in frames))
    with pytest.raises(InputError, match=words):
        read_detections(tmp_path / "a.csv")
    with pytest.raises(InputError, match="1,000,001 frames"):
        DetectionTable([0], [1], [[0, 0]], n_frames=1_000_001)


@pytest.mark.parametrize("value", ["1e300", "-1e300", "1e13"])
def test_a_position_out_of_this_world(tmp_path, value):
    (tmp_path / "a.csv").write_text(HEADER + f"0,1,{value},5\n1,1,5,5\n")
    assert "larger than 1e+12" in refused(
        "track", tmp_path / "a.csv", "-f", "csv", "-o", tmp_path / "r"
    )
    assert not (tmp_path / "r").exists()


def test_cells_larger_than_the_image():
    image = np.random.default_rng(0).normal(size=(40, 50))
    with pytest.raises(
        InputError, match=r"diameter is 1e.09; expected no more than 50 pixels"
    ):
        detect_frame(image, settings=DetectionSettings(diameter=1e9))


# odd files


def test_a_name_that_is_not_unicode(tmp_path):
    if sys.platform in ("win32", "darwin"):
        pytest.skip("names are Unicode on this system")
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    for name in ("01", "01_SEG"):
        (folder / name).mkdir(parents=True)
        for t in range(2):
            mask = np.zeros((20, 20), np.uint16)
            mask[2:6, 2:6], mask[10:14, 10 + t : 14 + t] = 1, 2
            tiff.write_frame(folder / name / f"t{t:03}.tif", mask)
    args = [
        "track",
        os.fsencode(folder / "01"),
        "-o",
        os.fsencode(folder / "r"),
        "-f",
        "ctc,csv,geff,napari",
    ]
    result = CliRunner().invoke(app, [os.fsdecode(arg) for arg in args])
    assert result.exit_code == 0, result.output
    assert len(open_ctc_lineage(folder / "r").tracks) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("man_seg099.tif", "of frame 099, but the masks are 0 to 1"),
        ("man_seg_000_300.tif", "is of plane 300, but the masks"),
    ],
)
def test_segmentations_of_frames_that_are_not(tmp_path, name, words):
    truth = write_truth(tmp_path / "01_GT/TRA")
    (tmp_path / "01_GT/SEG").mkdir()
    tiff.write_frame(tmp_path / "01_GT/SEG" / name, truth.masks[0])
    with pytest.raises(InputError, match=words):
        _compute_overlaps(truth, truth)


def test_a_segmentation_with_an_odd_name_is_passed_over_with_a_warning(tmp_path):
    truth = write_truth(tmp_path / "01_GT/TRA")
    (tmp_path / "01_GT/SEG").mkdir()
    for name in ("man_seg_x.tif", "man_seg001.tif"):
        tiff.write_frame(tmp_path / "01_GT/SEG" / name, truth.masks[0])
    with pytest.warns(DataWarning, match=r"man_seg_x\.tif is ignored"):
        assert [index.tolist() for index in _compute_overlaps(truth, truth)] == [[1.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_labels_that_are_no_integers(tmp_path, dtype):
    (tmp_path / "a").mkdir()
    tifffile.imwrite(tmp_path / "a/t0.tif", np.ones((6, 9), dtype))
    with pytest.raises(InputError, match="dtype"):
        open_movie(labels=tmp_path / "a")
    masks = np.ones((6, 9), np.uint8)
    with pytest.raises(InputError, match="expected integers"):
        match_frame(masks, masks.astype(dtype))
    with pytest.raises(InputError, match="expected integers"):
        match_frame(masks.astype(dtype), masks)


def test_labels_that_no_float_can_hold(tmp_path):
    label = 2**53 + 1
    (tmp_path / "napari.csv").write_text(
        f"track_id,t,y,x,label,confidence\n1,0,5.5,5,{label},0.5\n"
    )
    (tmp_path / "napari.json").write_text("{}")
    data, properties, _ = read_napari(tmp_path / "napari.csv")
    assert properties["label"].tolist() == [label]
    assert properties["confidence"].tolist() == [0.5]
    assert data.tolist() == [[1, 0, 5.5, 5]]
    (tmp_path / "napari.csv").write_text(f"track_id,t,y,x\n{2**53 + 2},0,5.5,5\n")
    with pytest.raises(
        InputError, match=r"track_id is .*it must be at most 9007199254740992"
    ):
        read_napari(tmp_path / "napari.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_where_a_file_belongs(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    assert "no such file" in refused(
        "track", tmp_path / "a.csv", "-f", "csv", "-o", tmp_path / "r"
    )
    (tmp_path / "a.zarr").mkdir()
    os.mkfifo(tmp_path / "a.zarr/zarr.json")
    assert "no regular file" in refused(
        "track", "--labels", tmp_path / "a.zarr", "-o", tmp_path / "r"
    )
    os.mkfifo(tmp_path / "w.clew")
    assert "is not a file" in refused("explain", tmp_path / "w.clew")


def test_annotations_of_brackets_alone(tmp_path):
    (tmp_path / "a.geff").mkdir()
    (tmp_path / "a.geff/zarr.json").write_text("[" * 300_000)
    (tmp_path / "t.csv").write_text(HEADER + "0,1,5,5\n1,1,5,5\n")
    assert "a.geff" in refused(
        "train",
        tmp_path / "t.csv",
        "-a",
        tmp_path / "a.geff",
        "-o",
        tmp_path / "w.clew",
    )


# the file of a tracker: a checksum says nothing about sense


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"neighbours": "x"}, "neighbours 'x'; expected a whole number"),
        ({"neighbours": 10**9}, "neighbours 1000000000; expected"),
        ({"reach": -1}, "reach -1; expected a positive length"),
        ({"weights": np.nan}, "finite ones"),
    ],
)
def test_a_forged_but_signed_tracker(tmp_path, change, words):
    Tracker.generic().save(tmp_path / "a.clew")
    document = storage.read_document(tmp_path / "a.clew")
    meta, arrays = document.meta, dict(document.arrays)
    weights = change.pop("weights", None)
    if weights is not None:
        name = next(name for name in arrays if name.endswith("weights"))
        arrays[name] = np.full_like(arrays[name], weights)
    meta["tracker"].update(change)
    storage.write_document(tmp_path / "b.clew", document.kind, meta, arrays)
    with pytest.raises(InputError, match=words):
        load_tracker(tmp_path / "b.clew")


# commands


@pytest.mark.parametrize("command", ["sample", "simulate", "demo"])
def test_a_seed_that_is_none(command, tmp_path):
    where = {
        "sample": [tmp_path, "-o", "a.csv"],
        "simulate": [tmp_path / "s"],
        "demo": ["-o", tmp_path / "d"],
    }[command]
    assert "--seed" in refused(command, *where, "--seed", -1)


def test_frames_without_end(tmp_path):
    write_truth(tmp_path / "01_GT/TRA")
    words = refused(
        "sample",
        tmp_path / "01_GT/TRA",
        "-o",
        tmp_path / "a.csv",
        "--frames",
        f"0:{'9' * 400}",
    )
    assert "expected two numbers" in words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("7 TiB"), "not enough memory (7 TiB)"),
        (ImportError("libx.so: failed to map segment"), "cannot load a library"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "cannot print (No space left on device)",
        ),
    ],
)
def test_error_that_a_user_can_fix_is_described(error, words):
    assert words in _describe_error(error)
    assert _describe_error(ValueError("a fault of clew's")) == ""


@pytest.mark.skipif(
    not Path("/dev/full").exists(),
    reason="this system has no device that is always full",
)
def test_stdout_on_a_full_device(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "clew.cli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("clew: cannot print")
