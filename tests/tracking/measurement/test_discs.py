"""Discs around points, in place of masks."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.frames import ArrayFrames
from clew.tracking.measurement.discs import make_disc_movie


def points(*cells, n_frames=None):
    """A table of rows (frame, label, position …)."""
    frame, label, *place = zip(*cells, strict=True)
    return DetectionTable(
        frame, label, np.column_stack(place), n_frames=n_frames, name="points"
    )


def images(*shape):
    return ArrayFrames.from_data(np.zeros(shape), "images")


def test_a_pixel_belongs_to_the_nearest_point():
    movie = make_disc_movie(
        points((0, 3, 4, 4), (0, 8, 4.4, 9), (1, 5, 0, 0)), 3.0, images(3, 10, 12)
    )
    found = movie.label(0)
    y, x = np.indices((10, 12))
    apart = np.stack([np.hypot(y - 4, x - 4), np.hypot(y - 4.4, x - 9)])
    expected = np.where(
        apart.min(axis=0) <= 3, np.array([3, 8])[apart.argmin(axis=0)], 0
    )
    assert np.array_equal(found, expected)
    assert (movie.label(1) == 5).sum() == 11  # a quarter of a disc
    assert not movie.label(2).any()
    assert "discs of radius 3 around a table of detections" in movie.source


def test_points_next_to_each_other_all_keep_a_pixel():
    near = [
        (0, k + 1, 5 + 0.6 * (k // 3), 5 + 1.02 * (k % 3)) for k in (0, 1, 2, 3, 4, 5)
    ]
    movie = make_disc_movie(points(*near), 4.0)
    assert np.unique(movie.label(0)).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_ball_is_round_in_physical_units():
    movie = make_disc_movie(
        points((0, 1, 5, 10, 10)), 4.0, images(1, 11, 21, 21), spacing=(2, 1, 1)
    )
    z, y, x = np.nonzero(movie.label(0))
    assert [np.ptp(axis) + 1 for axis in (z, y, x)] == [5, 9, 9]
    assert movie.spacing == (2, 1, 1)


def test_frames_hold_all_discs_where_there_are_no_images():
    movie = make_disc_movie(points((0, 1, 5, 7), (1, 1, 20, 3)), 2.0)
    assert movie.shape == (23, 10)
    assert (movie.label(1) == 1).sum() == 13


@pytest.mark.parametrize(
    ("table", "radius", "raw", "words"),
    [
        (points((0, 1, 5, 5)), 0, None, "radius is 0; expected a positive number"),
        (
            points((0, 1, 5, 5), (0, 2, 5.2, 4.9)),
            3,
            None,
            "labels 1 and 2 of frame 0 are at the same pixel",
        ),
        (
            points((0, 1, 5, 5), (1, 7, 5, 30)),
            3,
            images(2, 9, 9),
            r"label 7 of frame 1 is at \(5, 30\), outside of frames",
        ),
        (points((0, 1, -5, 5)), 3, None, "counted from 0"),
        (
            points((3, 1, 5, 5)),
            3,
            images(2, 9, 9),
            "points in frame 3, but there are images of frames 0 to 1",
        ),
        (
            points((0, 1, 5, 5)),
            3,
            images(2, 4, 9, 9),
            "positions in 2D, but the images are of shape",
        ),
        (points((0, 1, 1e6, 1e6)), 3, None, "expected positions in pixels"),
    ],
)
def test_what_is_refused(table, radius, raw, words):
    with pytest.raises(InputError, match=words):
        make_disc_movie(table, radius, raw)


def test_a_spacing_of_another_length():
    with pytest.raises(InputError, match="has positions along y, x"):
        make_disc_movie(points((0, 1, 5, 5)), 3, spacing=(1, 1, 1))
