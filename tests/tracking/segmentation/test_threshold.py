import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from clew.errors import InputError
from clew.tracking.frames import ArrayFrames
from clew.tracking.io import tiff
from clew.tracking.movie import open_frames, open_movie
from clew.tracking.segmentation import (
    DetectionSettings,
    detect_frame,
    fit_settings,
    write_detections,
)


def picture(
    centres, radius=8.0, light=(400,), shape=(120, 160), spacing=None, noise=4.0, seed=0
):
    """Blurred balls on a noisy ground, and their labels."""
    spacing = np.ones(len(shape)) if spacing is None else np.asarray(spacing)
    grid = (
        np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1)
        * spacing
    )
    labels, image = np.zeros(shape, np.uint16), np.full(shape, 1000.0)
    for cell, centre in enumerate(centres):
        inside = np.linalg.norm(grid - np.asarray(centre), axis=-1) <= radius
        labels[inside] = cell + 1
        image[inside] += light[cell % len(light)]
    blurred = gaussian_filter(image, 1.0 / spacing)
    return blurred + np.random.default_rng(seed).normal(0, noise, shape), labels


def agreement(found, truth):
    """(n,) for each true cell the best intersection over union with a found one."""
    best = []
    for cell in np.unique(truth[truth > 0]):
        own = truth == cell
        candidates = np.unique(found[own])
        best.append(
            max(
                [
                    (own & (found == c)).sum() / (own | (found == c)).sum()
                    for c in candidates
                    if c
                ],
                default=0,
            )
        )
    return np.array(best)


SCATTERED = [
    (20, 20),
    (25, 70),
    (30, 120),
    (60, 45),
    (65, 95),
    (95, 25),
    (100, 80),
    (90, 135),
]


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.int32])
def test_cells_are_found_bright_and_dim(dtype):
    image, truth = picture(SCATTERED, light=(40, 400, 3000))
    found = detect_frame(image.astype(dtype))
    assert found.dtype == np.int32
    assert set(np.unique(found)) == set(range(9))
    assert agreement(found, truth).min() > 0.75


def test_cells_that_touch_are_parted():
    image, truth = picture(
        [(40, 40), (40, 55), (80, 100), (80, 115), (80, 130)], radius=8
    )
    found = detect_frame(image, settings=DetectionSettings(diameter=16))
    assert found.max() == 5
    assert agreement(found, truth).min() > 0.7


def test_the_size_of_cells_is_estimated():
    for radius in (5, 8, 12):
        image, _ = picture(SCATTERED, radius=radius)
        assert fit_settings(
            ArrayFrames.from_data([image] * 3, "images")
        ).diameter == pytest.approx(2 * radius, rel=0.35)
    given = DetectionSettings(diameter=7)
    assert fit_settings(ArrayFrames.from_data([image], "images"), given) is given


def test_the_unit_and_offset_of_brightness_do_not_matter():
    image, _ = picture(SCATTERED)
    settings = DetectionSettings(diameter=16)
    found = detect_frame(image, settings=settings)
    assert found.max() == 8
    assert (detect_frame(image / 1e4 - 3, settings=settings) != found).mean() < 1e-3


@pytest.mark.parametrize("spacing", [(1, 1, 1), (2.5, 1, 1)])
def test_cells_in_three_dimensions(spacing):
    centres = [
        (14, 16, 16),
        (16, 16, 48),
        (14, 44, 24),
        (16, 44, 39),
    ]  # the last two touch
    shape = (int(30 / spacing[0]), 60, 64)
    image, truth = picture(centres, shape=shape, spacing=spacing)
    found = detect_frame(image, settings=DetectionSettings(spacing=spacing))
    assert found.max() == 4
    assert agreement(found, truth).min() > 0.6


@pytest.mark.parametrize(
    "image", [np.zeros((50, 60)), np.full((4, 50, 60), 7, np.uint8), picture([])[0]]
)
def test_nothing_is_found_in_nothing(image):
    assert detect_frame(image).max() == 0


def test_specks_are_too_small():
    image, _ = picture(SCATTERED)
    image[10:12, 45:47] += 3000
    assert detect_frame(image, settings=DetectionSettings(diameter=16)).max() == 8
    assert (
        detect_frame(
            image, settings=DetectionSettings(diameter=16, min_size=0.001)
        ).max()
        == 9
    )


def test_sensitivity_decides_on_the_dimmest():
    image, _ = picture(SCATTERED, light=(400, 12), noise=10)
    counts = [
        detect_frame(
            image, settings=DetectionSettings(diameter=16, sensitivity=s)
        ).max()
        for s in (0.1, 0.5)
    ]
    assert counts[0] == 4
    assert counts[1] >= 4


@pytest.mark.parametrize(
    "image",
    [np.zeros(5), np.zeros((2, 2, 2, 2)), np.zeros((3, 3), bool), np.zeros((0, 4))],
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(InputError, match="the image has shape"):
        detect_frame(image)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pixels_that_are_no_numbers_are_refused(value):
    image, _ = picture(SCATTERED)
    image[3, 4] = value
    with pytest.raises(InputError, match="NaN or infinite"):
        detect_frame(image)


@pytest.mark.parametrize("name", [field.name for field in fields(DetectionSettings)])
def test_settings_that_make_no_sense_are_refused(name):
    for value in [(0.0, 1.0)] if name == "spacing" else [0, -1, np.nan, np.inf]:
        with pytest.raises(InputError, match=f"{name} is"):
            DetectionSettings(**{name: value})
    with pytest.raises(InputError, match="2 dimensions needs 2"):
        detect_frame(
            picture(SCATTERED)[0], settings=DetectionSettings(spacing=(1, 1, 1))
        )


# a whole movie


@pytest.fixture
def sequence(tmp_path):
    for t in range(4):
        image, _ = picture(SCATTERED[t:], seed=t)
        (tmp_path / "01").mkdir(exist_ok=True)
        tiff.write_frame(tmp_path / f"01/t{t + 5:03}.tif", image.astype(np.uint16))
    return tmp_path / "01"


def test_detections_are_a_movie_with_the_images(sequence):
    seen = []
    folder = sequence.with_name("01_SEG")
    total = write_detections(
        open_frames(sequence),
        folder,
        n_jobs=2,
        progress=lambda *given: seen.append(given),
    )
    assert seen == [(t, 4) for t in range(1, 5)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        *(f"mask00{t}.tif" for t in range(5, 9)),
    ]
    movie = open_movie(sequence)
    assert "masks from 01_SEG" in movie.source
    counts = [int(movie.label(t).max()) for t in range(4)]
    assert counts == [8, 7, 6, 5]
    assert total.n_cells == sum(counts)
    assert total.doubts == []
    write_detections(
        open_frames(sequence), folder
    )  # again: the older masks are replaced
    np.testing.assert_array_equal(open_movie(sequence).label(2), movie.label(2))


def test_a_folder_with_other_files_is_refused(sequence):
    before = sorted(path.name for path in sequence.iterdir())
    with pytest.raises(InputError, match=r"holds t005\.tif"):
        write_detections(open_frames(sequence), sequence)
    assert sorted(path.name for path in sequence.iterdir()) == before


def test_masks_of_others_and_corrected_ones_are_not_replaced(sequence):
    folder = sequence.with_name("01_SEG")
    folder.mkdir()
    tiff.write_frame(folder / "mask005.tif", np.ones((3, 3), dtype=np.uint16))
    with pytest.raises(
        InputError,
        match=r"did not write.*would be lost: mask005\.tif has no manifest\.json",
    ):
        write_detections(open_frames(sequence), folder)
    (folder / "mask005.tif").unlink()
    write_detections(open_frames(sequence), folder)
    (folder / "mask006.tif").unlink()
    write_detections(
        open_frames(sequence), folder
    )  # nothing is lost with one that is gone
    corrected = tiff.open_folder(folder)[1].copy()
    corrected[corrected == 1] = 0
    tiff.write_frame(folder / "mask006.tif", corrected)
    with pytest.raises(
        InputError, match=r"changed since, and would be lost: .*mask006\.tif"
    ):
        write_detections(open_frames(sequence), folder)
    np.testing.assert_array_equal(tiff.open_folder(folder)[1], corrected)


def test_a_failure_writes_nothing(sequence):
    frames = open_frames(sequence)
    (sequence / "t008.tif").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"t008\.tif"):
        write_detections(
            frames, sequence.with_name("01_SEG"), DetectionSettings(diameter=16)
        )
    assert [path.name for path in sequence.parent.iterdir()] == ["01"]


@pytest.mark.skipif(
    "CLEW_DATA" not in os.environ, reason="CLEW_DATA is not set: no recorded movies"
)
@pytest.mark.parametrize("name", ["Fluo-N2DL-HeLa/01", "Fluo-N2DH-SIM+/01"])
def test_recorded_nuclei_are_found(name):
    movie = open_movie(Path(os.environ["CLEW_DATA"]) / name)
    settings = fit_settings(movie.images)
    found = np.concatenate(
        [
            agreement(detect_frame(movie.image(t), settings=settings), movie.label(t))
            for t in (0, 40)
        ]
    )
    assert (found > 0.5).mean() >= 0.9
