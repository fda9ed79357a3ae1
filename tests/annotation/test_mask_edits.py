"""Edits of label images: what they change, what they leave, and what is kept of them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clew.annotation.edited_movie import (
    edit_movie,
    edit_source,
    find_changed_frames,
)
from clew.annotation.mask_edits import (
    Edit,
    EditKind,
    apply_edits,
    find_free_label,
)
from clew.annotation.mask_tools import (
    MaskFrame,
    add_outline,
    cut_cell,
    delete_cell,
    grow_cell,
    merge_cells,
)
from clew.errors import InputError
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie

from ..helpers.effort import examples

IMAGES = arrays(
    np.uint16,
    st.tuples(st.integers(2, 12), st.integers(2, 12)),
    elements=st.integers(0, 4),
)


def changed(before, after):
    """The labels of pixels that differ, before and after."""
    where = before != after
    return set(before[where].tolist()) | set(after[where].tolist())


@st.composite
def edits(draw):
    """A label image and an edit that can be made of it."""
    labels = draw(IMAGES)
    cells = np.unique(labels[labels > 0]).tolist()
    kind = draw(st.sampled_from(EditKind))
    point = st.tuples(st.floats(-2, 14), st.floats(-2, 14))
    try:
        if kind is EditKind.MERGE:
            return labels, merge_cells(
                MaskFrame(0, labels), draw(st.permutations(cells))[:2]
            )
        if kind is EditKind.DELETE:
            return labels, delete_cell(
                MaskFrame(0, labels), [draw(st.sampled_from(cells or [1]))]
            )
        drawn = draw(st.lists(point, min_size=1, max_size=5))
        if kind is EditKind.CUT:
            return labels, cut_cell(MaskFrame(0, labels), drawn)
        return labels, add_outline(MaskFrame(0, labels), drawn)
    except InputError:  # there is nothing to be edited so
        return labels, None


@given(edits())
@examples(150)
def test_cells_that_are_not_touched_keep_their_pixels_and_undoing_restores_the_bits(
    case,
):
    labels, edit = case
    if edit is None:
        return
    before = labels.copy()
    after = apply_edits(labels, [edit])
    assert np.array_equal(labels, before)  # the masks themselves are never written to
    assert apply_edits(labels, []) is labels
    assert changed(labels, after) <= {0, *edit.touched}
    assert changed(labels, after)  # an edit that does nothing is none
    restored = after.copy()
    restored.reshape(-1)[edit.indices()] = labels.reshape(-1)[edit.indices()]
    assert restored.tobytes() == before.tobytes()
    cells, others = set(np.unique(labels)) - {0}, set(np.unique(after)) - {0}
    gained = {
        EditKind.MERGE: -1,
        EditKind.DELETE: -1,
        EditKind.CUT: 1,
        EditKind.ADD: 1,
    }[edit.kind]
    assert len(others) == len(cells) + gained
    assert Edit.from_json(json.loads(json.dumps(edit.to_json()))) == edit


@given(st.sets(st.integers(0, 500)))
def test_any_pixels_are_kept_as_they_are(pixels):
    at = np.array(sorted(pixels), dtype=np.intp)
    edit = Edit.of(3, EditKind.ADD, np.zeros(501, np.int32), at, 7)
    assert edit.indices().tolist() == at.tolist()
    assert edit.touched == (7,)


@pytest.mark.parametrize("pixels", ["%%", "QUJD", ""])
def test_pixels_that_are_none_are_refused(pixels):
    content = {
        "frame": 0,
        "kind": "cut",
        "label": 1,
        "touched": [1],
        "pixels": pixels,
        "base": "",
    }
    with pytest.raises(ValueError, match="cannot be read"):
        Edit.from_json(content)


def test_an_edit_of_a_larger_image_is_refused():
    edit = Edit.of(0, EditKind.ADD, np.zeros(100, np.int32), np.array([99]), 7)
    with pytest.raises(InputError, match="outside an image"):
        apply_edits(np.zeros((3, 3), np.int32), [edit])


def test_labels_are_new_even_if_edits_were_undone():
    labels = np.array([[1, 0, 5]], np.uint8)
    assert find_free_label(labels) == 6
    assert find_free_label(labels, [6, 9]) == 10
    assert find_free_label(np.array([[255, 1]], np.uint8)) == 2
    with pytest.raises(InputError, match="all labels up to 255"):
        find_free_label(np.arange(256, dtype=np.uint8)[None])


def disc(shape, middle, radius):
    away = sum(
        (axis - at) ** 2
        for axis, at in zip(
            np.ogrid[tuple(slice(n) for n in shape)], middle, strict=True
        )
    )
    return away <= radius**2


def test_a_stroke_cuts_where_it_was_drawn():
    labels = np.where(disc((40, 60), (20, 30), 12), 7, 0).astype(np.uint16)
    labels[0:3, 0:3] = 2
    after = apply_edits(labels, [cut_cell(MaskFrame(0, labels), [(34, 2), (34, 38)])])
    assert set(np.unique(after)) == {0, 2, 7, 8}
    assert (np.argwhere(after == 8)[:, 1] > 33).all()  # the smaller part is the new one
    assert (np.argwhere(after == 7)[:, 1] < 36).all()
    short = apply_edits(
        labels, [cut_cell(MaskFrame(0, labels), [(34, 14), (34, 26)])]
    )  # it goes straight on to both sides
    assert np.array_equal(short, after)


def test_a_stroke_cuts_the_cell_that_most_of_it_lies_in():
    labels = np.zeros((20, 40), np.int32)
    labels[5:15, 2:10], labels[5:15, 12:38] = 3, 4
    after = apply_edits(labels, [cut_cell(MaskFrame(0, labels), [(8, 10), (39, 10)])])
    assert np.array_equal(after == 3, labels == 3)
    assert (after[5:15, 12:38] > 3).all()
    assert set(np.unique(after[5:15, 12:38])) == {4, 5}


def test_strokes_that_cut_nothing_are_refused():
    labels = np.zeros((20, 20), np.int32)
    labels[5:9, 5:9] = 1
    with pytest.raises(InputError, match="no cell under the stroke"):
        cut_cell(MaskFrame(2, labels), [(15, 15), (18, 18)])
    with pytest.raises(InputError, match="does not cut cell 1 of frame 2"):
        cut_cell(MaskFrame(2, labels), [(6, 6)])
    with pytest.raises(InputError, match="two different ones"):
        merge_cells(MaskFrame(0, labels), [1, 1])
    with pytest.raises(InputError, match="no cell 4 in frame 0"):
        merge_cells(MaskFrame(0, labels), [1, 4])
    with pytest.raises(InputError, match="no cell 4"):
        delete_cell(MaskFrame(0, labels), [4])
    with pytest.raises(InputError, match="contains no pixel"):
        add_outline(MaskFrame(0, labels), [(1, 1), (2, 2)])
    with pytest.raises(InputError, match="other cells fill"):
        add_outline(MaskFrame(0, labels), [(5.2, 5.2), (7.8, 5.2), (7.8, 7.8)])


def test_in_depth_a_cut_goes_through_all_slices_and_an_outline_is_inflated():
    labels = np.where(disc((20, 40, 40), (10, 20, 20), 9), 1, 0).astype(np.int32)
    for z in (None, 4):
        after = apply_edits(
            labels, [cut_cell(MaskFrame(0, labels, z=z), [(20, 0), (20, 39)])]
        )
        parts = [np.argwhere(after == label)[:, 2] for label in (1, 2)]
        assert min(map(len, parts)) > 0.4 * (labels > 0).sum()
        assert parts[0].max() <= parts[1].min() or parts[1].max() <= parts[0].min()
    angle = np.linspace(0, 2 * np.pi, 60)
    circle = np.column_stack([20 + 8 * np.cos(angle), 20 + 8 * np.sin(angle)]).tolist()
    empty = np.zeros_like(labels)
    body = apply_edits(
        empty, [add_outline(MaskFrame(0, empty, spacing=(2.0, 1.0, 1.0), z=10), circle)]
    )
    ball = disc(
        (20, 40, 40), (10, 19.5, 19.5), 8
    )  # flatter in slices of twice the thickness
    depth = np.flatnonzero((body > 0).any(axis=(1, 2)))
    assert depth.tolist() == list(
        range(7, 14)
    )  # the inner radius, three slices of two pixels, to both sides
    assert ((body[10] > 0) == ball[10]).mean() > 0.99
    bright = np.zeros((20, 40, 40))
    bright[3, 15:25, 15:25] = 1.0
    found = apply_edits(
        empty, [add_outline(MaskFrame(0, empty, bright, (2.0, 1.0, 1.0)), circle)]
    )
    depth = np.flatnonzero((found > 0).any(axis=(1, 2)))
    assert depth.tolist() == list(
        range(7)
    )  # in a projection: around where it is brightest


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_region_grows_to_the_edge_of_a_cell(ndim, sign):
    shape = (16, 60, 60)[-ndim:]
    middle, spacing = (8, 30, 28)[-ndim:], (1.0, 1.0, 1.0)[-ndim:]
    true = disc(shape, middle, 6)
    image = np.random.default_rng(0).normal(100, 3, shape) + sign * 40 * true
    labels = np.zeros(shape, np.uint16)
    labels[..., 50:] = 9
    at, z = (29.5, 28.5), None if ndim == 2 else 7
    after = apply_edits(
        labels, [grow_cell(MaskFrame(0, labels, image, spacing, 12.0, z), at)]
    )
    found = after == 10
    assert (found & true).sum() / (found | true).sum() > 0.85
    assert np.array_equal(after == 9, labels == 9)
    with pytest.raises(InputError, match="there is cell 9 already"):
        grow_cell(MaskFrame(0, labels, image, spacing, 12.0, z), (55, 20))
    with pytest.raises(InputError, match="not in the picture"):
        grow_cell(MaskFrame(0, labels, image, spacing, 12.0, z), (-1, 20))
    with pytest.raises(InputError, match="nothing grew"):
        grow_cell(MaskFrame(0, labels, np.ones(shape), spacing, 12.0, z), at)
    with pytest.raises(InputError, match="no raw images"):
        grow_cell(MaskFrame(0, labels, None, spacing, 12.0, z), at)


@pytest.fixture
def textured():
    """Labels and an image of cells that differ from the ground by their texture."""
    rng = np.random.default_rng(0)
    labels = np.zeros((120, 120), np.uint16)
    for number, at in enumerate(
        [(30, 30), (30, 60), (30, 90), (60, 30), (60, 90), (90, 60)]
    ):
        labels[disc(labels.shape, at, 11)] = number + 1
    image = rng.normal(100, 3, labels.shape)
    is_cell = (labels > 0) | disc(labels.shape, (60, 60), 11)
    image[is_cell] = rng.normal(100, 60, int(is_cell.sum()))
    return labels, image


def test_region_has_the_size_of_cells_whose_brightness_says_nothing(textured):
    labels, image = textured
    edit = grow_cell(MaskFrame(0, labels, image, diameter=22.0), (60.5, 60.5))
    found = apply_edits(labels, [edit]) == 7
    true = disc(labels.shape, (60, 60), 11)
    assert (found & true).sum() / (found | true).sum() > 0.9


def test_outline_is_asked_for_where_the_cells_nearby_would_not_grow(textured):
    labels, image = textured
    stripes = np.where(np.indices(labels.shape)[0] % 8 < 2, labels, 0)
    with pytest.raises(InputError, match="draw an outline"):
        grow_cell(MaskFrame(0, stripes, image, diameter=22.0), (60.5, 60.5))


def test_an_edited_movie_is_measured_as_if_it_had_been_so_from_the_start(
    simulated, tmp_path
):
    movie: Movie = simulated.movie
    source = measure_movie(movie, cache=tmp_path / "cache", n_jobs=1)
    cells = source.detections(5).label.tolist()
    first = delete_cell(MaskFrame(5, movie.label(5)), [cells[3]])
    second = merge_cells(MaskFrame(5, apply_edits(movie.label(5), [first])), cells[:2])
    other = delete_cell(MaskFrame(0, movie.label(0)), [1])
    edits = (first, other, second)
    assert find_changed_frames((), edits) == [0, 5]
    assert find_changed_frames(edits, (first, second)) == [0]
    again = edit_source(source, (), edits)
    scratch = measure_movie(
        edit_movie(movie, edits), cache=tmp_path / "other", n_jobs=1
    )
    assert again.keys == scratch.keys
    for t in range(movie.n_frames):
        one, two = again.detections(t), scratch.detections(t)
        assert one.label.tolist() == two.label.tolist()
        assert all(
            np.array_equal(one.columns[name], two.columns[name]) for name in one.columns
        )
    for t in range(movie.n_frames - 1):
        assert np.array_equal(again.overlap(t).volume, scratch.overlap(t).volume)
    back = edit_source(again, edits, ())
    assert back.keys == source.keys
    assert edit_movie(again.movie, ()).labels is movie.labels
