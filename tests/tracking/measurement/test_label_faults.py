"""Labels that are no cells: wrapped numbers, a labelled background, distant blobs."""

import numpy as np
import pytest
from typer.testing import CliRunner

from clew.cli import app
from clew.errors import DataWarning
from clew.tracking.io import tiff
from clew.tracking.measurement.label_faults import find_label_faults
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie


def draw_grid(n_cells, dtype=np.uint32, pitch=6, size=4):
    """Square cells in rows of 20, numbered from 1 on."""
    labels = np.zeros((20 * pitch, 20 * pitch), dtype=np.uint32)
    for cell in range(n_cells):
        y = cell // 20 * pitch + 1
        x = cell % 20 * pitch + 1
        labels[y : y + size, x : x + size] = cell + 1
    return labels.astype(dtype)


def describe(*frames):
    """What is found in some frames."""
    return find_label_faults(Movie.from_arrays(list(frames)).labels)


@pytest.mark.parametrize(
    "labels",
    [
        draw_grid(400, np.uint16),
        draw_grid(250, np.uint8),
        np.zeros((9, 9), np.uint8),
        np.pad(draw_grid(400)[..., None].repeat(4, -1), 1).transpose(2, 0, 1),
    ],
    ids=["more than 255", "nearly 255", "empty", "3D"],
)
def test_sound_labels_give_no_message(labels):
    assert describe(labels, labels).messages == []


def test_labels_wrapped_at_8_bits_are_named_with_frames_and_remedy():
    faults = describe(draw_grid(100, np.uint8), draw_grid(400, np.uint8))
    (message,) = faults.messages
    assert "frame 1" in message
    assert "labels 1, 2, 3, 4, 5 and 139 more in frame 1" in message
    assert "wrapped at 8 bits" in message
    assert "uint16" in message
    assert faults.is_unreliable


def test_labels_clipped_at_8_bits_are_named():
    clipped = np.minimum(draw_grid(400), 255)
    assert "8 bits" in describe(clipped).messages[0]


def test_labels_wrapped_at_16_bits_are_named():
    late = np.where(draw_grid(400) > 0, draw_grid(400) + 65_300, 0)
    labels = np.concatenate([draw_grid(200), late]).astype(np.uint16)
    (message,) = describe(labels).messages
    assert "wrapped at 16 bits" in message
    assert "uint32" in message


def test_all_labels_of_8_bits_in_use_are_named():
    (message,) = describe(draw_grid(255, np.uint8)).messages
    assert "every label from 1 to 255" in message


@pytest.mark.parametrize("label", [1, 65535])
def test_labelled_background_is_named(label):
    cells = draw_grid(40, np.uint16) * 2
    labels = np.where(cells == 0, label, cells).astype(np.uint16)
    faults = describe(labels, cells)
    (message,) = faults.messages
    assert f"label {label} surrounds everything (frame 0)" in message
    assert f"labels[labels == {label}] = 0" in message
    assert faults.is_unreliable


def test_label_in_distant_places_is_named():
    labels = draw_grid(40)
    labels[labels == 40] = 1
    faults = describe(draw_grid(40), labels)
    (message,) = faults.messages
    assert "frame 1; label 1 in frame 1" in message
    assert not faults.is_unreliable


def test_speck_and_torn_mask_give_no_message():
    labels = draw_grid(40)
    labels[1, 1 + 19 * 6] = 1  # a speck of one pixel
    labels[2, 1:5] = 0  # a mask torn in two
    assert describe(labels).messages == []


def test_measuring_warns_with_the_name_of_the_movie():
    movie = Movie.from_arrays([draw_grid(400, np.uint8)] * 2, name="plate 7")
    with pytest.warns(DataWarning, match="plate 7: .* wrapped at 8 bits"):
        assert measure_movie(movie, cache=None).label_faults.is_unreliable


def test_track_prints_no_number_of_wrong_events_for_wrapped_labels(tmp_path):
    folder = tmp_path / "masks"
    folder.mkdir()
    for t in range(2):
        tiff.write_frame(folder / f"mask{t:03}.tif", draw_grid(400, np.uint8))
    result = CliRunner().invoke(
        app, ["track", "--labels", str(folder), "-o", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    assert "wrapped at 8 bits" in result.stderr
    assert "cannot be estimated" in result.stdout
    assert "events are wrong (" not in result.stdout
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "wrapped at 8 bits" in page
    assert "By the probability" not in page
