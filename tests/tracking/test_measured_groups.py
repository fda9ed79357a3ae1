"""Which measurements of a movie mean something, and the weights learned for them."""

import numpy as np
import pytest

from clew.tracking.candidates.features import feature_names
from clew.tracking.detections import GROUPS, OVERLAP
from clew.tracking.measured_groups import (
    GENERIC_SETS,
    POINTS_3D,
    TILED_MASKS,
    VARIANTS,
    are_markers,
    find_generic_set,
    find_informative_groups,
)
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import GENERIC


def discs(radii, n_frames=3):
    """A movie of one disc for each radius, which drift by a pixel a frame."""
    y, x = np.mgrid[:60, : 40 * len(radii)]
    labels = np.zeros((n_frames, *y.shape), np.int32)
    for t in range(n_frames):
        for k, (height, width) in enumerate(radii):
            inside = ((y - 30) / height) ** 2 + ((x - 40 * k - 18 - t) / width) ** 2
            labels[t][inside <= 1] = k + 1
    return measure_movie(Movie.from_arrays(labels), cache=None, n_jobs=1)


def test_markers_are_discs_of_one_size():
    markers = discs([(6, 6)] * 5)
    assert are_markers(markers)
    assert find_informative_groups(markers) == {"border"}


@pytest.mark.parametrize(
    "radii",
    [
        [(6, 6), (9, 9), (7, 7), (12, 12), (10, 10)],
        [(14, 4)] * 5,
    ],
    ids=["cells of several sizes", "rods"],
)
def test_cells_are_no_markers(radii):
    cells = discs(radii)
    assert not are_markers(cells)
    assert find_informative_groups(cells) == cells.has


def test_markers_are_tracked_as_points_and_it_is_noted():
    tracker = Tracker.generic(n_jobs=1)
    lineage = tracker.track(discs([(6, 6)] * 5))
    assert len(lineage.events) == 10
    assert tracker.measurements_.startswith("measurements: points (the masks are mark")


def test_weights_are_taken_from_the_largest_set_that_a_movie_has():
    everything = frozenset({*GROUPS, OVERLAP})
    assert find_generic_set(everything) == "masks with intensities"
    assert find_generic_set(everything - {"intensity"}) == "masks"
    assert find_generic_set({"border", "size"}) == "points"
    assert (
        find_generic_set({"border", "size", "intensity"}) == "points with intensities"
    )


def test_masks_that_tile_have_their_own_weights():
    row, column = np.indices((60, 60)) // np.array([10, 6])[:, None, None]
    tissue = (10 * row + column + 1).astype(np.uint16)
    apart = np.where((row + column) % 2 == 0, tissue, 0)
    tracker = Tracker.generic(n_jobs=1)
    for labels, name in ((tissue, TILED_MASKS), (apart, "masks")):
        source = measure_movie(
            Movie.from_arrays(np.stack([labels] * 3)), cache=None, n_jobs=1
        )
        profile = tracker.pairs(source, tracker.groups_for(source)).profile
        assert tracker.weights_for(profile).tolist() == [*GENERIC[name].values()]
        tracker.track(source)
        assert tracker.measurements_ == f"measurements: {name}"


def test_points_in_3d_have_their_own_weights():
    groups = frozenset({"border"})
    for n_axes, name in ((2, "points"), (3, POINTS_3D)):
        assert find_generic_set(groups, n_axes) == name


def test_each_set_has_a_weight_for_each_of_its_features():
    assert GENERIC.keys() == GENERIC_SETS.keys() | VARIANTS.keys()
    variants = {name: GENERIC_SETS[base] for name, base in VARIANTS.items()}
    for name, groups in (GENERIC_SETS | variants).items():
        assert list(GENERIC[name]) == feature_names(groups)
