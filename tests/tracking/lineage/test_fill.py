"""Recovered cells: a mask in each frame of a gap, beside those that were given."""

import csv

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from skimage.feature import match_template

from clew.tracking.events import Event
from clew.tracking.io.results import write_results
from clew.tracking.lineage.fill import (
    Template,
    add_recovered,
    correlate_windows,
    cut_templates,
    find_place,
    place_mask,
)
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

RADIUS = 4
MISSING = {(3, 7), (5, 13), (6, 13), (7, 13)}


def draw(missing=MISSING, frames=12, side=5, step=1, images=True, offset=0):
    """Discs on a grid that move to the right, some without a mask."""
    shape = (20 * side, 20 * side + frames * step)
    labels = np.zeros((frames, *shape), np.uint8)
    pictures = np.random.default_rng(1).normal(100, 2, labels.shape)
    y, x = np.indices(shape)
    for t in range(frames):
        for k in range(side * side):
            row, column = 10 + 20 * (k // side), 10 + 20 * (k % side) + step * t
            inside = (y - row) ** 2 + (x - column) ** 2 <= RADIUS**2
            pictures[t][inside] += 20 + 3 * k
            if (t, k + 1) not in missing:
                labels[t][inside] = k + 1
    return Movie.from_arrays(labels, pictures + offset if images else None)


def track(movie, **parameters):
    return Tracker.generic(n_jobs=1, cache=None, **parameters).track(movie)


@pytest.mark.parametrize("images", [True, False])
def test_masks_are_recovered_where_the_cells_are(images):
    movie = draw(images=images)
    lineage = track(movie)
    whole = draw(set())
    filled = add_recovered(movie, lineage.recovered)
    assert len(lineage.recovered) == len(MISSING)
    for t in range(movie.n_frames):
        given = movie.label(t) > 0
        assert (filled.label(t)[given] == movie.label(t)[given]).all()
        overlap = (filled.label(t) > 0) & (whole.label(t) > 0)
        assert overlap.sum() > 0.95 * (whole.label(t) > 0).sum()
    assert len(lineage.tracks) == 25
    assert not np.isin(lineage.events.event, [Event.GAP, Event.APPEAR]).any()


def test_place_does_not_depend_on_the_level_of_the_image():
    found = []
    for offset in (0, 1e5):
        movie = draw(set(), frames=2, side=2, offset=offset)
        (template,) = cut_templates(movie.label(0), movie.image(0), np.array([1]))
        near = template.center + np.array([0, 2])
        place, correlation = find_place([(template, 1.0)], near, movie.image(1))
        assert np.abs(place - template.center - np.array([0, 1])).max() < 1e-6
        found.append(correlation)
    assert found[1] == pytest.approx(found[0], abs=0.02)


@pytest.mark.parametrize("shape", [(9, 7), (4, 5, 6)])
def test_correlation_is_that_of_scikit_image(shape):
    rng = np.random.default_rng(0)
    image = rng.normal(1e4, 3, np.multiply(shape, 2))
    image[tuple(map(slice, shape))] = 1e4
    look = image[tuple(slice(n // 2, n + n // 2) for n in shape)]
    expected = np.nan_to_num(match_template(image - 1e4, look - 1e4))
    found = correlate_windows(image, look)
    assert np.abs(found - expected).max() < 1e-9
    assert not correlate_windows(image, np.ones(shape)).any()


def test_looks_of_large_cells_are_averaged_in_blocks():
    rng = np.random.default_rng(0)
    picture = gaussian_filter(rng.normal(size=(300, 300)), 4)
    labels = np.zeros((2, 300, 300), np.uint8)
    labels[0, 30:170, 30:150] = 1
    images = np.stack([picture, np.roll(picture, (16, 8), (0, 1))])
    movie = Movie.from_arrays(labels, images)
    (template,) = cut_templates(movie.label(0), movie.image(0), np.array([1]))
    place, correlation = find_place([(template, 1.0)], template.center, movie.image(1))
    assert np.abs(place - template.center - np.array([16, 8])).max() < 1
    assert correlation > 0.9


def test_mask_stays_on_free_pixels():
    mask = np.ones((4, 6), dtype=bool)
    corner = np.array([0, 0])
    template = Template(np.array([1.5, 2.5]), corner, mask, corner, None, 0.0, 0.0)
    free = np.ones((20, 20), dtype=bool)
    free[:, 12:] = False
    whole = place_mask(template, np.array([9.5, 8.5]), free)
    assert (whole.corner, whole.mask.sum()) == ((8, 6), 24)
    part = place_mask(template, np.array([9.5, 10.5]), free)
    assert (part.corner, part.mask.sum()) == ((8, 8), 16)
    assert place_mask(template, np.array([9.5, 12.5]), free) is None
    assert place_mask(template, np.array([-9.5, 2.5]), free) is None


def test_results_mark_recovered_cells(tmp_path):
    movie = draw()
    lineage = track(movie)
    write_results(tmp_path / "filled", lineage, movie, ["ctc", "csv"])
    with (tmp_path / "filled" / "tracks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    marked = [row for row in rows if row["recovered"] == "1"]
    assert sorted(int(row["frame"]) for row in marked) == [3, 5, 6, 7]
    write_results(tmp_path / "given", track(movie, fill=False), movie, ["ctc", "csv"])
    with (tmp_path / "given" / "tracks.csv").open(newline="") as file:
        assert {row["recovered"] for row in csv.DictReader(file)} == {"0"}


def test_labels_beyond_the_dtype_are_widened():
    movie = draw()
    labels = movie.labels.data.copy()
    labels[labels == 25] = 255
    crowded = Movie.from_arrays(labels, movie.images.data)
    lineage = track(crowded)
    filled = add_recovered(crowded, lineage.recovered)
    assert filled.labels.dtype == np.uint16
    assert filled.label(3).max() == 256
