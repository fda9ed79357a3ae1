"""HDF5 of btrack and ilastik: what the small files of other programs do not have."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from clew.errors import ClewError, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event, EventTable
from clew.tracking.io.annotations import open_annotations
from clew.tracking.io.formats import open_lineage
from clew.tracking.movie import open_frames, open_movie

h5py = pytest.importorskip("h5py")

FOLDER = Path(__file__).parent / "foreign"
BTRACK = FOLDER / "btrack-0.7.0.h5"
PROJECT = FOLDER / "ilastik-1.4-from-specification.ilp"


@pytest.fixture
def edit(tmp_path):
    """Function that gives the path of a copy of a file, and the copy opened."""

    def copy(path):
        target = tmp_path / path.name
        shutil.copy(path, target)
        return target, h5py.File(target, "r+")

    return copy


def test_object_that_btrack_missed_is_a_gap(edit):
    path, file = edit(BTRACK)
    with file:
        group = file["tracks/obj_type_1"]
        group["tracks"][3 + 2] = -1  # of track 2, in frame 2
        group["dummies"] = np.array([[2.0, 22, 10.6, 0, 1]], np.float32)
    lineage = open_lineage(path)
    assert len(lineage.frame) == 35
    assert len(lineage.continued) == 1
    kinds = open_annotations(path, points_of(lineage)).annotations.events.event
    assert (kinds == Event.GAP).sum() == 1


def points_of(lineage):
    """The cells of a lineage as a movie, with labels of their own."""
    return DetectionTable(
        lineage.frame, 100 + np.arange(len(lineage.frame)), lineage.position
    )


def test_tracks_of_kept_objects_of_btrack(edit):
    path, file = edit(BTRACK)
    whole = open_lineage(path)
    with file:
        coords = file["objects/obj_type_1/coords"][()]
        del file["objects/obj_type_1/coords"]
        file["objects/obj_type_1/coords"] = np.concatenate([coords[:1] + 5, coords])
        area = np.array([10.0, *[200.0] * len(coords)])
        file["objects/obj_type_1/properties/area"] = area
        file["tracks/obj_type_1"].attrs["f_expr"] = "area>100"
    kept = open_lineage(path)
    np.testing.assert_array_equal(kept.position, whole.position)
    np.testing.assert_array_equal(kept.track, whole.track)
    with h5py.File(path, "r+") as file:
        file["tracks/obj_type_1"].attrs["f_expr"] = "__import__('os')"
    with pytest.raises(InputError, match="expected a property, a comparison"):
        open_lineage(path)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("tracks/obj_type_1/tracks", np.full(36, 99), "objects that are not in"),
        ("tracks/obj_type_1/map", np.zeros((2, 2), int), "map does not fit LBEPR"),
        ("tracks/obj_type_1/map", np.full((8, 2), 99), "rows that tracks lacks"),
        ("objects/obj_type_1/coords", np.zeros(3), "expected numbers in rows and 4"),
        ("tracks/obj_type_1/LBEPR", None, "LBEPR is missing"),
    ],
)
def test_damaged_tracks_of_btrack_are_refused(edit, name, values, words):
    path, file = edit(BTRACK)
    with file:
        del file[name]
        if values is not None:
            file[name] = values
    with pytest.raises(InputError, match=words):
        open_lineage(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    with pytest.raises(InputError, match="damaged or no HDF5"):
        open_lineage(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["exported_data"] = np.zeros((2, 4, 4))
    with pytest.raises(InputError, match="has exported_data; expected the groups"):
        open_lineage(tmp_path / "b.h5")


def test_misdetection_of_ilastik_takes_part_in_nothing(edit):
    path, file = edit(PROJECT)
    with file:
        # object 20 of frame 2, which is in the first block
        block = file["ObjectExtraction/LabelImage_v2/labelimage000/block0000"]
        block[2, 5, 40, 0, 0] = 20
        file["Annotations/Labels/0/2/20"] = [-1]
    lineage = open_lineage(path)
    assert len(lineage.frame) == 37
    found = open_annotations(path, points_of(lineage))
    row = np.flatnonzero((lineage.frame == 2) & (lineage.position[:, 1] == 5))
    false = 100 + int(row[0])
    events = set(found.annotations.events)
    assert set(EventTable.of_false([2], [false], 9)) < events
    # nothing else is known to begin; one track was marked to disappear
    kinds = found.annotations.events.event
    assert (kinds == Event.APPEAR).sum() == 0
    assert (kinds == Event.DISAPPEAR).sum() == 1


def test_centers_that_ilastik_measured_stand_in_for_pixels(edit):
    path, file = edit(PROJECT)
    with file:
        del file["ObjectExtraction/LabelImage_v2"]
    with pytest.raises(InputError, match="neither its pixels nor its center"):
        open_lineage(path)
    with h5py.File(path, "r+") as file:
        for t in range(6):
            name = f"[[{t}, 0, 0, 0, 0], [{t + 1}, 32, 56, 1, 1]]"
            centers = np.arange(27.0).reshape(9, 3) * [1, 10, 0]
            features = file.create_group(f"ObjectExtraction/RegionFeatures/0000/{name}")
            features["Default features/RegionCenter"] = centers
    lineage = open_lineage(path)
    assert lineage.position.shape == (36, 2)
    assert lineage.position[0].tolist() == [40, 3]  # object 1: y, x


def test_event_sequence_without_a_frame_is_refused(tmp_path):
    archive = FOLDER / "ilastik-1.4-from-specification-events.zip"
    shutil.unpack_archive(archive, tmp_path)
    (tmp_path / "00002.h5").unlink()
    with pytest.raises(InputError, match="links to frame 2, which"):
        open_lineage(tmp_path)
    with h5py.File(tmp_path / "00001.h5", "r+") as file:
        file["tracking/Moves"][0, 0] = 77
    with pytest.raises(InputError, match="names object 77, which frame 0 lacks"):
        open_lineage(tmp_path)


@pytest.mark.parametrize("form", ["link", "soft link to it", "virtual", "external"])
def test_data_in_other_files_are_refused(edit, tmp_path, form):
    path, file = edit(BTRACK)
    name = "objects/obj_type_1/coords"
    other = tmp_path / "other.h5"
    with file, h5py.File(other, "w") as there:
        coords = file[name][()]
        del file[name]
        there["coords"] = coords
        if form == "virtual":
            layout = h5py.VirtualLayout(coords.shape, coords.dtype)
            layout[:] = h5py.VirtualSource(there["coords"])
            file.create_virtual_dataset(name, layout)
        elif form == "external":
            (tmp_path / "raw").write_bytes(coords.tobytes())
            raw = [(str(tmp_path / "raw"), 0, coords.nbytes)]
            file.create_dataset(name, coords.shape, coords.dtype, external=raw)
        else:
            place = name if form == "link" else "elsewhere"
            file[place] = h5py.ExternalLink(str(other), "coords")
        if form == "soft link to it":
            file[name] = h5py.SoftLink("/elsewhere")
    with h5py.File(path) as file:  # HDF5 itself reads it
        np.testing.assert_array_equal(file[name][()], coords)
    for read in (open_lineage, open_frames):
        with pytest.raises(InputError, match="expected all in one file"):
            read(path)


def test_flipped_byte_is_no_error_but_clews(tmp_path):
    """h5py raises SystemError where a link is damaged."""
    data = bytearray(BTRACK.read_bytes())
    path = tmp_path / "a.h5"
    refused = []
    for at in range(0, len(data), 29):
        data[at] ^= 0xFF
        path.write_bytes(data)
        try:
            open_lineage(path)
        except ClewError as error:
            refused.append(str(error))
        data[at] ^= 0xFF
    assert len(refused) > 20
    assert all("a.h5" in words for words in refused)


IMAGE = "ObjectExtraction/LabelImage_v2/labelimage000/block0000"


@pytest.mark.parametrize(
    ("path", "name", "axis", "length", "chunk"),
    [
        (BTRACK, "objects/obj_type_1/coords", 0, 10**8, 100),
        (PROJECT, IMAGE, 1, 10**8, 100),  # of an image, one frame is read at once
        (PROJECT, IMAGE, 0, 2 * 10**5, 2 * 10**5),  # but a chunk has many
    ],
)
def test_numbers_that_fill_the_memory_are_refused(
    edit, path, name, axis, length, chunk
):
    """Zeros take no room in a file."""
    path, file = edit(path)
    with file:
        small = file[name]
        shape = list(small.shape)
        shape[axis] = length
        chunks = tuple(min(n, chunk) for n in shape)
        attributes = dict(small.attrs)
        del file[name]
        large = file.create_dataset(name, shape, np.uint32, chunks=chunks)
        large.attrs.update(attributes)
    with pytest.raises(InputError, match="bytes to be read at once"):
        open_lineage(path)


def test_objects_of_a_project_are_label_images():
    frames = open_frames(PROJECT, masks=True)
    assert (len(frames), frames.shape) == (6, (56, 32))
    assert np.unique(frames[0]).tolist() == [0, 1, 2, 3, 4, 5, 6]
    # the first cell has divided, and its daughters come last
    assert np.argwhere(frames[4] == 2).tolist() == [[21, 24]]
    movie = open_movie(labels=PROJECT)
    found = open_annotations(PROJECT, movie)
    assert "attached to detections by label" in found.summary
    assert len(found.annotations) == 30


@pytest.mark.parametrize("axes", ["tyx", "tzyx", "txyzc", "ctyx"])
def test_exported_image_has_its_axes(tmp_path, axes):
    size = {"t": 3, "z": 2, "y": 5, "x": 4, "c": 1}
    image = np.arange(3 * 2 * 5 * 4).reshape(3, 2, 5, 4, 1)
    drop = tuple(k for k, axis in enumerate("tzyxc") if axis not in axes)
    for k in reversed(drop):
        image = image.take(0, axis=k)
    kept = [axis for axis in "tzyxc" if axis in axes]
    stored = image.transpose([kept.index(axis) for axis in axes])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["exported_data"] = stored
        if "c" in axes:
            tags = {"axes": [{"key": axis} for axis in axes]}
            file["exported_data"].attrs["axistags"] = json.dumps(tags)
    frames = open_frames(tmp_path / "a.h5")
    shape = tuple(size[axis] for axis in "zyx" if axis in axes)
    assert (len(frames), frames.shape) == (3, shape)
    np.testing.assert_array_equal(frames[1], image[1].reshape(shape))


def test_image_that_is_not_clear_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.zeros((2, 3, 4, 5, 2))
    with pytest.raises(InputError, match=r"5 axes \(not named\)"):
        open_frames(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        tags = {"axes": [{"key": axis} for axis in "tzyxc"]}
        file["a"].attrs["axistags"] = json.dumps(tags)
    with pytest.raises(InputError, match="2 channels; expected one"):
        open_frames(tmp_path / "a.h5")
    assert open_frames(tmp_path / "a.h5", channel=1).shape == (3, 4, 5)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["b"] = np.zeros((2, 3, 4))
    with pytest.raises(InputError, match="has the images /a, /b; expected one"):
        open_frames(tmp_path / "a.h5")
