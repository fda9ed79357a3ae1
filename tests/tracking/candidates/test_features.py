"""Features: invariances, and known values of small scenes."""

import numpy as np
import pytest
from skimage.measure import label as components

from clew.tracking.candidates.candidates import estimate_reach, find_candidates
from clew.tracking.candidates.features import (
    MAX_VALUE,
    assemble_matrix,
    compute_feature_blocks,
    feature_names,
    features_of,
)
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import (
    GROUPS,
    OVERLAP,
    Detections,
    DetectionTable,
    Overlap,
)
from clew.tracking.events import PAIRWISE, Event, EventTable
from clew.tracking.flow.motion import estimate_motion
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.profile import estimate_profile
from clew.tracking.scales import Scales, estimate_scales

ALL = frozenset({*GROUPS, OVERLAP})


def blobs(shape, seed):
    """A label image of ragged cells and an image of noise."""
    rng = np.random.default_rng(seed)
    noise = rng.random(shape)
    for axis in range(len(shape)):
        noise = sum(np.roll(noise, shift, axis) for shift in (-1, 0, 1))
    return components(noise > np.quantile(noise, 0.7), connectivity=1), rng.integers(
        50, 4000, shape, dtype=np.uint16
    )


def two_frames(ndim=2):
    """Labels and images of two frames in which everything happens."""
    shape = (60, 70) if ndim == 2 else (10, 30, 40)
    frames = [blobs(shape, seed) for seed in (0, 1)]
    labels, images = (np.stack(part) for part in zip(*frames, strict=True))
    labels[1, ..., : shape[-1] // 2] = labels[
        0, ..., : shape[-1] // 2
    ]  # some stay where they are
    stay = np.bincount(labels[0, ..., : shape[-1] // 2].ravel())[1:]
    for frame, cell in zip(
        (1, 0), np.argsort(stay)[::-1] + 1, strict=False
    ):  # the largest splits, the next merges
        x = np.nonzero(labels[frame] == cell)[-1]
        labels[frame][
            (labels[frame] == cell) & (np.arange(shape[-1]) > np.median(x))
        ] = labels.max() + 1
    return labels, images


def features(labels, images=None, spacing=None, extra=None, scales=None, neighbours=4):
    source = measure_movie(Movie.from_arrays(labels, images, spacing), cache=None)
    a = source.detections(0)
    b = source.detections(1)
    motion = estimate_motion(source)
    scales = estimate_scales(source, motion.median_step) if scales is None else scales
    reach = estimate_reach(motion, scales)
    found = find_candidates(a, b, reach=reach, neighbours=neighbours, extra=extra)
    return (
        assemble_matrix(
            compute_feature_blocks(found, a, b, source.overlap(0), scales, source.has)
        ),
        found,
        a,
        b,
    )


@pytest.mark.parametrize("ndim", [2, 3])
def test_features_have_names_and_are_of_order_one(ndim):
    matrix, found, *_ = features(*two_frames(ndim))
    names = feature_names(ALL)
    assert matrix.shape == (len(found), len(names))
    assert len(set(names)) == len(names)
    assert 50 <= len(names) <= 100
    assert "divide: angle of the daughters" in names
    dense = matrix.toarray()
    assert np.isfinite(dense).all()
    assert np.abs(dense).max() <= MAX_VALUE
    for place, name in enumerate(names):
        event = Event[name.split(":")[0].upper()]
        if event is Event.GAP:  # no event of one frame pair
            continue
        assert not dense[found.event != event, place].any(), (
            f"{name} is not zero for other events"
        )
        values = dense[found.event == event, place]
        assert 0.02 < np.abs(values).mean() < 4, f"{name} is not of order 1"
        assert (values == 1).all() if "bias" in name else np.ptp(values) > 0, (
            f"{name} tells nothing"
        )


def test_matrix_scores_like_the_blocks():
    labels, images = two_frames()
    source = measure_movie(Movie.from_arrays(labels, images), cache=None)
    a = source.detections(0)
    b = source.detections(1)
    scales = estimate_scales(source)
    found = find_candidates(a, b, reach=10)
    blocks = compute_feature_blocks(found, a, b, source.overlap(0), scales, source.has)
    w = np.random.default_rng(0).normal(size=len(feature_names(source.has)))
    begin = 0
    scores = []
    for event in Event:
        width = blocks[event].shape[1]
        scores.append(blocks[event] @ w[begin : begin + width])
        begin += width
    np.testing.assert_allclose(assemble_matrix(blocks) @ w, np.concatenate(scores))


@pytest.mark.parametrize("ndim", [2, 3])
def test_features_are_independent_of_units(ndim):
    labels, images = two_frames(ndim)
    spacing = np.linspace(1, 2, ndim)
    plain, *_ = features(labels, images, spacing)
    scaled, *_ = features(labels, images.astype(float) * 3 + 200, 7 * spacing)
    np.testing.assert_allclose(scaled.toarray(), plain.toarray(), atol=2e-3)


def test_features_are_independent_of_position():
    """Only distances to the border may change."""
    labels, images = two_frames()
    wide = [np.pad(part, [(0, 0), (100, 100), (100, 100)]) for part in (labels, images)]
    wider = [np.pad(part, [(0, 0), (130, 70), (80, 120)]) for part in (labels, images)]
    np.testing.assert_allclose(
        features(*wide)[0].toarray(), features(*wider)[0].toarray(), atol=1e-5
    )


def test_features_are_independent_of_labels():
    labels, images = two_frames()
    # all within reach: of two at the same distance, the lower label counts as nearer
    every = 64
    plain, found, a, b = features(labels, images, neighbours=every)
    mapping = np.random.default_rng(0).permutation(labels.max()) + 1
    mapping = np.append(0, mapping)
    other, found_other, a_other, b_other = features(
        mapping[labels], images, neighbours=every
    )
    table = found.table(a, b)
    renamed = EventTable(
        table.frame,
        table.event,
        *(np.sort(mapping[side])[:, ::-1] for side in (table.sources, table.targets)),
    )
    theirs = found_other.table(a_other, b_other)
    theirs = EventTable(
        theirs.frame,
        theirs.event,
        *(np.sort(side)[:, ::-1] for side in (theirs.sources, theirs.targets)),
    )
    at = np.argsort(renamed.row_keys())
    at_other = np.argsort(theirs.row_keys())
    np.testing.assert_array_equal(renamed.row_keys()[at], theirs.row_keys()[at_other])
    np.testing.assert_allclose(
        plain.toarray()[at], other.toarray()[at_other], rtol=1e-6, atol=1e-6
    )


def test_merge_backward_in_time_is_a_split():
    labels, images = two_frames()
    scales = Scales(
        diameter=6, displacement=3, volume=30, intensity=1000
    )  # of one direction and the other
    there, back = (
        features(labels[::way], images[::way], scales=scales) for way in (1, -1)
    )
    names = feature_names(ALL)
    split, merge = (
        [name.startswith(event) for name in names] for event in ("split", "merge")
    )
    first = there[0].toarray()[there[1].event == Event.SPLIT][:, split]
    second = back[0].toarray()[back[1].event == Event.MERGE][:, merge]
    merges = back[1].of_event(Event.MERGE)
    order = np.lexsort((*back[1].sources[merges].T[::-1], back[1].targets[merges, 0]))
    np.testing.assert_allclose(second[order], first, atol=1e-9)


def test_features_without_measurements_are_left_out():
    labels, images = two_frames()
    scales = Scales(
        diameter=6, displacement=3, volume=30, intensity=1000
    )  # brightness helps to estimate them, too
    without, found, *_ = features(labels, scales=scales)
    names = feature_names(ALL - {"intensity", "histogram"})
    assert without.shape == (len(found), len(names))
    assert not [
        name
        for name in names
        if any(word in name for word in ("bright", "mass", "histogram", "texture"))
    ]
    full = features(labels, images, scales=scales)[0].toarray()
    kept = [name in names for name in feature_names(ALL)]
    np.testing.assert_allclose(without.toarray(), full[:, kept], atol=1e-6)


def test_features_of_positions_alone():
    rng = np.random.default_rng(0)
    source = DetectionTable(
        np.repeat([0, 1], 20), np.tile(np.arange(1, 21), 2), rng.random((40, 3))
    )
    pair = FramePairBuilder(source, estimate_profile(source, source.has)).build(0)
    found, matrix = pair.candidates, pair.features
    assert matrix.shape == (len(found), len(feature_names({"border"})))
    for event in PAIRWISE:
        assert any(name.startswith(f"{event}: bias") for name in feature_names(()))


@pytest.mark.parametrize("empty", [(0,), (1,), (0, 1)])
def test_features_of_empty_frames_are_finite(empty):
    labels, images = two_frames()
    labels[list(empty)] = 0
    matrix, _, a, b = features(labels, images)
    assert matrix.shape == (len(a) + len(b), len(feature_names(ALL)))
    assert np.isfinite(matrix.toarray()).all()


def feature_value(name, scene, overlap=None):
    """A feature of the first candidate of its event.

    The scene is two lists of (y, x, volume); the overlap lists sources, targets and
    shared volumes.
    """
    source, target = (
        Detections(
            frame,
            np.arange(1, len(cells) + 1),
            np.array([cell[:2] for cell in cells], dtype=float),
            {
                "volume": np.array([cell[2] for cell in cells], dtype=float),
                "border_distance": np.array([cell[0] for cell in cells], dtype=float),
            },
        )
        for frame, cells in enumerate(scene)
    )
    event_name, feature_name = name.split(": ")
    event = Event[event_name.upper()]
    found = find_candidates(source, target, reach=1000)
    groups = {"size", "border", OVERLAP}
    shared = Overlap.empty() if overlap is None else Overlap(*map(np.array, overlap))
    scales = Scales(diameter=10, displacement=5, volume=np.pi * 25)
    blocks = compute_feature_blocks(found, source, target, shared, scales, groups)
    names = [feature.name for feature in features_of(event, groups)]
    return blocks[event][0, names.index(feature_name)]


STEP = ([(0, 0, 100)], [(3, 4, 50)])
"""A cell moves by 5, half a diameter, and halves its volume."""
DIVISION = ([(20, 20, 100)], [(20, 12, 50), (20, 26, 50)])
"""The daughters lie opposite each other, 8 and 6 from the mother."""
MERGE = DIVISION[::-1]
ONE_SIDED = ([(20, 20, 100)], [(25, 20, 9), (40, 20, 9)])
STEP_OVERLAP = ([0], [0], [30.0])
PARTS_OVERLAP = ([0, 0], [0, 1], [40.0, 10.0])
MERGE_OVERLAP = ([0, 1], [0, 0], [40.0, 10.0])


@pytest.mark.parametrize(
    ("name", "scene", "overlap", "expected"),
    [
        ("move: distance", STEP, None, 0.5 / 1.1),
        ("move: distance in usual steps", STEP, None, np.log(2)),
        ("move: squared distance in usual steps", STEP, None, np.log(1.25)),
        ("move: change of volume", STEP, None, 0.5),
        ("move: overlap missing", STEP, None, 1),
        ("move: overlap missing", STEP, STEP_OVERLAP, 1 - 30 / 120),
        ("move: smaller mask uncovered", STEP, STEP_OVERLAP, 1 - 30 / 50),
        ("divide: angle of the daughters", DIVISION, None, 0),
        ("divide: angle of the daughters", ONE_SIDED, None, 2),
        ("divide: distance of the nearer daughter", DIVISION, None, 0.6 / 1.12),
        ("divide: distance of the farther daughter", DIVISION, None, 0.8 / 1.16),
        ("divide: distance of the daughters' middle", DIVISION, None, 0.1 / 1.02),
        ("divide: change of volume", DIVISION, None, 0),
        ("split: part uncovered", DIVISION, PARTS_OVERLAP, 0.8),
        (
            "merge: change of volume",
            ([(0, 0, 60), (0, 9, 60)], [(0, 4, 90)]),
            None,
            0.25,
        ),
        ("merge: part uncovered", MERGE, MERGE_OVERLAP, 0.8),
        ("merge: overlap missing", MERGE, MERGE_OVERLAP, 1 - 50 / 150),
        ("appear: distance to the nearest cell", STEP, None, np.log(2)),
        ("disappear: mask uncovered", STEP, STEP_OVERLAP, 0.7),
    ],
)
def test_feature_values_of_small_scenes(name, scene, overlap, expected):
    assert feature_value(name, scene, overlap) == pytest.approx(expected)


def test_compactness_is_relative_to_the_convex_hull():
    """Two halves of a disc fill it; the same halves far apart do not."""
    y, x = np.mgrid[:80, :160]
    disc = (y - 40) ** 2 + (x - 40) ** 2 < 30**2
    together = np.where(disc, 1 + (x > 40), 0)
    far = np.where(disc & (x <= 40), 1, 0) + np.roll(
        np.where(disc & (x > 40), 2, 0), 60, 1
    )
    column = feature_names(ALL - {"intensity", "histogram"}).index(
        "split: compactness of the parts"
    )
    found = []
    for parts in (together, far):
        extra = EventTable.of([(0, Event.SPLIT, [1], [1, 2])])
        matrix, among, *_ = features(np.stack([disc.astype(int), parts]), extra=extra)
        found.append(matrix.toarray()[among.event == Event.SPLIT, column].item())
    assert found[0] == pytest.approx(1, abs=0.06)
    assert found[1] < 0.5
