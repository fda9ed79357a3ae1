"""Measuring a label image, against scikit-image's regionprops and by brute force."""

import numpy as np
import pytest
from skimage.measure import label as components
from skimage.measure import regionprops

from clew.errors import InputError
from clew.tracking.measurement.regions import (
    N_QUANTILES,
    is_raw_image,
    measure_frame,
    measure_overlap,
    measure_shifted_overlap,
    support_directions,
)

CASES = [((60, 70), (1.0, 1.0)), ((60, 70), (0.5, 2.0)), ((9, 30, 40), (3.0, 1.0, 0.7))]


def blobs(shape, seed=0, share=0.25):
    """A label image of ragged cells, some on the border, some of one pixel, labels with holes between them."""
    rng = np.random.default_rng(seed)
    noise = rng.random(shape)
    for axis in range(len(shape)):
        noise = sum(np.roll(noise, shift, axis) for shift in (-1, 0, 1))
    labels = components(noise > np.quantile(noise, 1 - share), connectivity=1).astype(
        np.uint16
    )
    labels[labels > 0] = labels[labels > 0] * 3 + 4
    return labels, rng.integers(50, 4000, shape, dtype=np.uint16)


@pytest.mark.parametrize("shape", [(60, 70), (9, 30, 40), (1300, 1100)])
def test_raw_images_are_told_from_label_images(shape):
    labels, _ = blobs(shape)
    noise = np.random.default_rng(0).normal(100, 5, shape)
    assert is_raw_image((noise + 50 * (labels > 0)).astype(np.uint16))
    assert not is_raw_image(labels)
    assert not is_raw_image(np.where(labels, labels, 1))  # the background as a label
    assert not is_raw_image(labels > 0)
    assert not is_raw_image(np.zeros(shape, dtype=np.uint16))


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_agrees_with_regionprops(shape, spacing):
    labels, image = blobs(shape)
    cells = measure_frame(7, labels, image, spacing)
    oracle = regionprops(labels, image, spacing=spacing)
    assert cells.frame == 7
    assert len(oracle) > 10
    np.testing.assert_array_equal(cells.label, [cell.label for cell in oracle])
    np.testing.assert_allclose(
        cells.columns["volume"], [cell.area for cell in oracle], rtol=1e-9
    )
    np.testing.assert_allclose(
        cells.position, [cell.centroid for cell in oracle], rtol=1e-6
    )
    background = np.median(image[labels == 0])
    means = np.array([cell.intensity_mean for cell in oracle])
    np.testing.assert_allclose(
        cells.columns["intensity"], means - background, rtol=1e-6
    )
    np.testing.assert_allclose(
        cells.columns["deviation"],
        [cell.image_intensity[cell.image].std() for cell in oracle],
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_axes_are_those_of_regionprops_with_pixels_as_boxes(shape, spacing):
    labels, _ = blobs(shape)
    cells = measure_frame(0, labels, None, spacing)
    for row, cell in enumerate(regionprops(labels, spacing=spacing)):
        axes = np.eye(len(shape), dtype=int)
        moments = [[cell.moments_central[tuple(i + j)] for j in axes] for i in axes]
        covariance = (
            np.array(moments) / cell.moments_central[(0,) * len(shape)]
            + np.diag(np.square(spacing)) / 12
        )
        eigenvalues = np.linalg.eigvalsh(covariance)[::-1]
        np.testing.assert_allclose(
            cells.columns["axes"][row] ** 2, eigenvalues, rtol=1e-6
        )
        np.testing.assert_allclose(
            cells.columns["eccentricity"][row],
            np.sqrt(1 - eigenvalues[-1] / eigenvalues[0]),
            atol=1e-6,
        )


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_support_and_border_by_brute_force(shape, spacing):
    labels, _ = blobs(shape)
    cells = measure_frame(0, labels, None, spacing)
    toward = support_directions(len(shape))
    size = np.array(spacing)
    for row, label in enumerate(cells.label):
        pixels = np.argwhere(labels == label)
        corners = (
            np.concatenate(
                [
                    pixels + np.array(shift) - 0.5
                    for shift in np.ndindex(*(2,) * len(shape))
                ]
            )
            * size
            - cells.position[row]
        )
        np.testing.assert_allclose(
            cells.columns["support"][row], (corners @ toward.T).max(axis=0), atol=1e-9
        )
        faces = [
            ((pixels[:, axis] == 0).sum() + (pixels[:, axis] == length - 1).sum())
            * size.prod()
            / size[axis]
            for axis, length in enumerate(shape)
        ]
        share = sum(faces) / cells.columns["volume"][row] ** (1 - 1 / len(shape))
        np.testing.assert_allclose(cells.columns["border_share"][row], share)
        centre, outer = cells.position[row] + size / 2, np.array(shape) * size
        np.testing.assert_allclose(
            cells.columns["border_distance"][row], min(*centre, *(outer - centre))
        )


def test_directions_are_unit_vectors_with_their_opposites():
    for ndim, count in ((2, 16), (3, 26)):
        toward = support_directions(ndim)
        assert toward.shape == (count, ndim)
        np.testing.assert_allclose(np.linalg.norm(toward, axis=1), 1)
        np.testing.assert_array_equal(toward[: count // 2], -toward[count // 2 :])
        assert len(np.unique(toward.round(9), axis=0)) == count


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64]
)
def test_quantiles_are_those_of_sorted_pixels(dtype):
    labels, image = blobs((60, 70), share=0.5)
    image = (
        (image / 16).astype(dtype)
        if dtype == np.uint8
        else (image * dtype(1.37)).astype(dtype)
    )
    cells = measure_frame(0, labels, image, (1.0, 1.0))
    background = np.median(image[labels == 0])
    precision = (
        np.ptp(image[labels > 0].astype(float)) / 65535
        if np.dtype(dtype).kind == "f"
        else 1e-9
    )
    for row, label in enumerate(cells.label):
        values = np.sort(image[labels == label].astype(float)) - background
        expected = values[
            (len(values) * (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES).astype(int)
        ]
        np.testing.assert_allclose(
            cells.columns["quantiles"][row], expected, atol=precision
        )


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_shared_volume_by_brute_force(shape, spacing):
    first, second = blobs(shape, 0, 0.5)[0], blobs(shape, 1, 0.5)[0]
    pairs = [
        (a, b) for a, b in zip(first.ravel(), second.ravel(), strict=True) if a and b
    ]
    expected = {pair: pairs.count(pair) * np.prod(spacing) for pair in set(pairs)}
    source, target, volume = measure_overlap(first, second, spacing)
    assert list(zip(source, target, strict=True)) == sorted(expected)
    np.testing.assert_allclose(volume, [expected[pair] for pair in sorted(expected)])


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_moved_volume_by_brute_force(shape, spacing):
    first, second = blobs(shape, 0, 0.5)[0], blobs(shape, 1, 0.5)[0]
    labels = np.unique(first[first > 0])
    rng = np.random.default_rng(3)
    shift = rng.normal(scale=3, size=(len(labels), len(shape))) * spacing
    expected = {}
    for row, label in enumerate(labels):
        places = np.argwhere(first == label) + np.rint(
            shift[row] / np.array(spacing)
        ).astype(int)
        inside = ((places >= 0) & (places < shape)).all(axis=1)
        for other in second[tuple(places[inside].T)]:
            if other:
                expected[row, other] = expected.get((row, other), 0) + np.prod(spacing)
    source, target, volume = measure_shifted_overlap(
        first, second, labels, shift, spacing
    )
    assert list(zip(source, target, strict=True)) == sorted(expected)
    np.testing.assert_allclose(volume, [expected[pair] for pair in sorted(expected)])


@pytest.mark.parametrize(("shape", "spacing"), CASES)
def test_cells_that_stay_share_what_was_measured(shape, spacing):
    first, second = blobs(shape, 0, 0.5)[0], blobs(shape, 1, 0.5)[0]
    labels = np.unique(first[first > 0])
    source, target, volume = measure_shifted_overlap(
        first, second, labels, np.zeros((len(labels), len(shape))), spacing
    )
    before = measure_overlap(first, second, spacing)
    for now, then in zip((labels[source], target, volume), before, strict=True):
        np.testing.assert_allclose(now, then)


def test_the_direction_is_that_of_a_rod():
    labels = np.zeros((40, 40), int)
    for k in range(20):
        labels[10 + k, 5 + k : 9 + k] = 1
    direction = measure_frame(0, labels, None, (1.0, 1.0)).columns["direction"][0]
    assert abs(direction @ np.array([1, 1]) / np.sqrt(2)) > 0.99


def test_no_cells_and_nothing_but_a_cell():
    empty, full = np.zeros((5, 6), np.uint8), np.ones((5, 6), np.uint8)
    image = np.arange(30.0).reshape(5, 6) + 5
    assert len(measure_frame(0, empty, image, (1.0, 1.0))) == 0
    assert [len(part) for part in measure_overlap(empty, full, (1.0, 1.0))] == [0, 0, 0]
    assert [len(part) for part in measure_overlap(full, None, (1.0, 1.0))] == [0, 0, 0]
    cell = measure_frame(0, full, image, (1.0, 1.0))
    assert cell.columns["volume"] == [30]
    assert cell.columns["intensity"] == [
        14.5
    ]  # no background: the least value stands for it
    names = measure_frame(0, empty, image, (1.0, 1.0)).columns.keys()
    assert (
        names
        == cell.columns.keys()
        > measure_frame(0, full, None, (1.0, 1.0)).columns.keys()
    )


def test_many_cells():
    """More than 16 bits can number, each of one pixel, brighter one after the other."""
    labels = np.arange(1, 300 * 300 + 1, dtype=np.int32).reshape(300, 300)
    cells = measure_frame(0, labels, labels, (1.0, 1.0))
    assert len(cells) == 90_000
    np.testing.assert_allclose(
        cells.columns["quantiles"][:, 5], np.arange(90_000), atol=0.7
    )


@pytest.mark.parametrize(
    ("labels", "image", "said"),
    [
        (np.zeros((4, 4)), None, "integers"),
        (np.zeros(4, int), None, "shape"),
        (np.full((4, 4), -1), None, "label -1"),
        (np.ones((4, 4), int), np.zeros((4, 5)), r"\(4, 5\)"),
        (np.ones((4, 4), int), np.full((4, 4), np.nan), "NaN"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_frame(labels, image, said):
    with pytest.raises(InputError, match=said) as caught:
        measure_frame(12, labels, image, (1.0, 1.0))
    assert "12" in str(caught.value)


def test_frames_of_two_shapes_are_refused():
    with pytest.raises(InputError, match="shapes"):
        measure_overlap(np.ones((4, 4), int), np.ones((4, 5), int), (1.0, 1.0))
