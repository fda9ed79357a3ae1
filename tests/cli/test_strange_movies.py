"""Movies as people have them who know nothing of the Cell Tracking Challenge, and the mistakes that they make."""

import numpy as np
import pytest
import tifffile

from clew.tracking.movie import open_movie

from ..helpers.commands import done, refused


@pytest.fixture(scope="module")
def arrays(simulated):
    """Six frames of labels and images; tifffile takes three or four for channels."""
    movie = simulated.movie[:6]
    return np.stack([movie.label(t) for t in range(6)]), np.stack(
        [movie.image(t) for t in range(6)]
    )


def track(tmp_path, *args):
    return done(
        "track",
        *args,
        "-o",
        tmp_path / "result",
        "--no-report",
        "--no-cache",
        "-f",
        "csv",
    )


def test_masks_that_cellpose_put_beside_the_images(tmp_path, arrays):
    folder = tmp_path / "cells"
    folder.mkdir()
    for t, (label, image) in enumerate(zip(*arrays, strict=True), 1):
        tifffile.imwrite(folder / f"exp2_t{t:02d}.tif", image)
        tifffile.imwrite(folder / f"exp2_t{t:02d}_cp_masks.tif", label)
    assert "images and masks (…_cp_masks) from" in track(tmp_path, folder).stderr
    for movie in (open_movie(folder), open_movie(labels=folder, images=folder)):
        assert np.array_equal(movie.label(3), arrays[0][3])
        assert np.array_equal(movie.image(3), arrays[1][3])
    (folder / "exp2_t03_cp_masks.tif").unlink()
    assert "frame 3 is missing" in refused("track", folder, "-o", tmp_path / "other")


@pytest.mark.parametrize("name", ["t{}_cp_masks.png", "t{}_seg.npy"])
def test_masks_of_cellpose_that_are_no_tiffs_are_told_apart_from_images(
    tmp_path, arrays, name
):
    folder = tmp_path / "cells"
    folder.mkdir()
    for t, image in enumerate(arrays[1]):
        tifffile.imwrite(folder / f"t{t}.tif", image)
        (folder / name.format(t)).touch()
    words = f"the masks of Cellpose in it are not TIFFs ({name.format(0)})"
    message = refused("track", folder, "-o", tmp_path / "r")
    assert words in message
    assert "--save_tif" in message
    assert words in refused("track", "--labels", folder, "-o", tmp_path / "r")
    assert not (tmp_path / "r").exists()
    tifffile.imwrite(tmp_path / "masks.tif", arrays[0])
    track(
        tmp_path, folder, "--labels", tmp_path / "masks.tif"
    )  # the images beside them are still images


def test_labels_that_are_stored_as_floats_are_refused_with_a_way_out(tmp_path, arrays):
    tifffile.imwrite(tmp_path / "masks.tif", arrays[0].astype(np.float32))
    told = refused("track", "--labels", tmp_path / "masks.tif", "-o", tmp_path / "r")
    assert "dtype float32; expected integers" in told
    assert "can be saved again as uint16" in told


def test_an_axis_that_is_called_z_is_said_to_be_time(tmp_path, arrays):
    for axes, said in (("ZYX", True), ("TYX", False)):
        tifffile.imwrite(
            tmp_path / f"{axes}.tif",
            arrays[0].astype(np.uint16),
            imagej=True,
            metadata={"axes": axes},
        )
        told = track(tmp_path, "--labels", tmp_path / f"{axes}.tif").stderr
        assert ("(its axis Z is taken as time)" in told) == said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda masks: masks[:1], "the movie has one frame only"),
        (
            lambda masks: (masks > 0).astype(np.uint8),
            "are these foreground masks?",
        ),
        (lambda masks: 0 * masks, "no frame has a cell"),
        (
            lambda masks: masks * (np.arange(6) != 2)[:, None, None],
            "frame 2 has no cells, but frames before",
        ),
    ],
)
def test_a_movie_with_hardly_anything_in_it_is_told_of(tmp_path, arrays, change, words):
    tifffile.imwrite(tmp_path / "masks.tif", change(arrays[0]))
    told = track(tmp_path, "--labels", tmp_path / "masks.tif").stderr
    assert words in told
    tifffile.imwrite(tmp_path / "right.tif", arrays[0])
    assert (
        "clew: warning: there is"
        not in track(tmp_path, "--labels", tmp_path / "right.tif").stderr
    )


def test_a_movie_may_begin_before_its_cells_and_end_after_them(tmp_path, arrays):
    tifffile.imwrite(
        tmp_path / "masks.tif", arrays[0] * (np.arange(6) % 5 != 0)[:, None, None]
    )
    assert (
        "clew: warning: there is"
        not in track(tmp_path, "--labels", tmp_path / "masks.tif").stderr
    )


def test_raw_images_in_the_place_of_masks_are_told_of(tmp_path, arrays):
    tifffile.imwrite(tmp_path / "masks.tif", arrays[0][:, :90, :90])
    tifffile.imwrite(tmp_path / "raw.tif", arrays[1][:, :90, :90].astype(np.uint8))
    words = "look like gray values; are these raw images?"
    assert (
        words
        in track(
            tmp_path,
            "--labels",
            tmp_path / "raw.tif",
            "--images",
            tmp_path / "masks.tif",
        ).stderr
    )
    assert (
        words
        not in track(
            tmp_path,
            "--labels",
            tmp_path / "masks.tif",
            "--images",
            tmp_path / "raw.tif",
        ).stderr
    )


def test_what_is_given_in_the_wrong_place(tmp_path, arrays):
    tifffile.imwrite(tmp_path / "masks.tif", arrays[0])
    assert "give label images by --labels" in refused("track", tmp_path / "masks.tif")
    assert "A stack of all frames is given by its own name" in refused(
        "track", "--labels", tmp_path
    )
    assert "does not exist" in refused("track", tmp_path / "nothing")
    (tmp_path / "data/01").mkdir(parents=True)
    tifffile.imwrite(tmp_path / "data/01/t000.tif", arrays[1][0])
    assert "there are TIFFs in folders within it: 01" in refused(
        "track", tmp_path / "data"
    )
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/a1.png").touch()
    assert "it has .png: save TIFF or Zarr instead" in refused(
        "track", tmp_path / "pictures"
    )
    tifffile.imwrite(tmp_path / "short.tif", arrays[1][:5])
    told = refused(
        "track", "--labels", tmp_path / "masks.tif", "--images", tmp_path / "short.tif"
    )
    assert "6 label images" in told
    assert "5 raw images" in told
