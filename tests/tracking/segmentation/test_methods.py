"""Segmentation by networks and by functions of the user.

The networks are stood in for by modules with their interface: Cellpose 4
(`CellposeModel.eval`), StarDist 0.9 (`StarDist2D.from_pretrained`, `predict_instances`)
and InstanSeg 0.1 (`InstanSeg.eval_small_image`). None of them is run here.
"""

import sys
from types import ModuleType

import numpy as np
import pytest

from clew.errors import InputError, MissingExtra
from clew.tracking.io import tiff
from clew.tracking.movie import open_frames, open_movie
from clew.tracking.segmentation import (
    DetectionSettings,
    load_method,
    write_detections,
)

from ...helpers.commands import done, refused

IMAGE = np.arange(12.0).reshape(3, 4)
SETTINGS = DetectionSettings(diameter=9.0, spacing=(2.0, 0.5, 0.5))


def label_bright(image):
    """Label pixels above the mean."""
    return (image > image.mean()).astype(np.int64)


@pytest.fixture
def install(monkeypatch):
    """Install modules for one test: `install("a.b", name=value)`."""

    def install_module(name, **content):
        module = ModuleType(name)
        for key, value in content.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)
        package, _, child = name.rpartition(".")
        if package:
            parent = sys.modules.get(package) or install_module(package)
            monkeypatch.setattr(parent, child, module, raising=False)
        return module

    return install_module


@pytest.fixture
def calls(install):
    """Install all three networks; a list of what they were called with."""
    seen = []

    class CellposeModel:
        def __init__(self, **options):
            seen.append(("cellpose", options))

        def eval(self, image, **options):
            seen.append(("eval", options))
            return label_bright(image), None, None

    class StarDist2D:
        def __init__(self, config, **options):
            seen.append(("stardist", config, options))

        @classmethod
        def from_pretrained(cls, name):
            seen.append(("from_pretrained", name))
            return cls(None) if name != "unknown" else None

        def predict_instances(self, image):
            return label_bright(image), {}

    class InstanSeg:
        def __init__(self, name, verbosity):
            seen.append(("instanseg", name, verbosity))

        def eval_small_image(self, image, pixel_size):
            seen.append(("pixel size", pixel_size))
            nuclei = np.zeros_like(image)
            return np.stack([nuclei, label_bright(image)])[None].astype("f4"), None

    install("cellpose.core", use_gpu=lambda: True)
    install("cellpose.models", CellposeModel=CellposeModel)
    install("stardist.models", StarDist2D=StarDist2D, StarDist3D=StarDist2D)
    install("csbdeep.utils", normalize=lambda image, low, high: image / image.max())
    install("instanseg", InstanSeg=InstanSeg)
    return seen


def test_cellpose_gets_diameter_gpu_and_weights(calls):
    method = load_method("cellpose", SETTINGS, 2, weights="mine")
    np.testing.assert_array_equal(method.segment(IMAGE), label_bright(IMAGE))
    assert calls[0] == ("cellpose", {"gpu": True, "pretrained_model": "mine"})
    assert calls[1] == ("eval", {"diameter": 9.0})
    assert "cellpose" in method.name
    assert "mine" in method.name


def test_cellpose_gets_anisotropy_in_3d(calls):
    load_method("cellpose", SETTINGS, 3).segment(np.stack([IMAGE, IMAGE]))
    assert calls[0] == ("cellpose", {"gpu": True})
    assert calls[1][1]["anisotropy"] == 4.0
    assert calls[1][1]["do_3D"]


def test_stardist_takes_names_and_folders(calls, tmp_path):
    method = load_method("stardist", SETTINGS, 2)
    np.testing.assert_array_equal(method.segment(IMAGE), label_bright(IMAGE))
    assert calls[0] == ("from_pretrained", "2D_versatile_fluo")
    (tmp_path / "mine").mkdir()
    load_method("stardist", SETTINGS, 3, weights=str(tmp_path / "mine"))
    assert calls[-1] == ("stardist", None, {"name": "mine", "basedir": str(tmp_path)})
    with pytest.raises(InputError, match="knows no model of the name 'unknown'"):
        load_method("stardist", SETTINGS, 2, weights="unknown")


def test_instanseg_takes_cells_and_the_pixel_size(calls):
    method = load_method("instanseg", SETTINGS, 2)
    labels = method.segment(IMAGE)
    assert labels.dtype.kind == "i"
    np.testing.assert_array_equal(labels, label_bright(IMAGE))
    assert calls[-1] == ("pixel size", 0.5)
    with pytest.raises(InputError, match="Use cellpose or stardist"):
        load_method("instanseg", SETTINGS, 3)


def test_weights_that_cannot_be_downloaded_are_said(install):
    def fail(**_):
        raise OSError("no route to host\nmore lines")

    install("cellpose.core", use_gpu=lambda: False)
    install("cellpose.models", CellposeModel=fail)
    with pytest.raises(InputError, match=r"its default weights \(no route to host\)"):
        load_method("cellpose", SETTINGS, 2)


@pytest.mark.parametrize("name", ["cellpose", "stardist", "instanseg"])
def test_network_that_is_not_installed_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=f"pip install {name}"):
        load_method(name, SETTINGS, 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("watershed", "expected one of threshold, cellpose, stardist, instanseg"),
        ("nowhere_at_all:f", "'nowhere_at_all' cannot be imported"),
        ("numpy:nothing", "numpy has no function 'nothing'"),
        ("numpy:pi", "numpy has no function 'pi'"),
    ],
)
def test_unknown_method_is_refused(name, words):
    with pytest.raises(InputError, match=words):
        load_method(name, SETTINGS, 2)


def test_weights_without_a_network_are_refused():
    with pytest.raises(InputError, match="threshold has none"):
        load_method("threshold", SETTINGS, 2, weights="x")


# a whole movie


@pytest.fixture
def sequence(tmp_path):
    """Three frames with two bright squares."""
    folder = tmp_path / "01"
    folder.mkdir()
    for t in range(3):
        image = np.full((32, 40), 100, np.uint16)
        image[5:12, 5 + t : 12 + t] = 900
        image[20:27, 20:27] = 900
        tiff.write_frame(folder / f"t{t:03}.tif", image)
    return folder


def test_interrupted_segmentation_continues(sequence, install):
    seen = []

    def label_twice(image):
        seen.append(image)
        if len(seen) == 3:
            raise KeyboardInterrupt
        labels = np.zeros(image.shape, np.uint8)
        labels[5:12, 5:12] = 1
        labels[20:27, 20:27] = 2
        return labels

    install("own_network", label=label_twice)
    folder = sequence.with_name("01_SEG")
    frames = open_frames(sequence)
    with pytest.raises(KeyboardInterrupt):
        write_detections(frames, folder, method="own_network:label")
    assert [path.name for path in folder.iterdir()] == [".blocks"]
    result = write_detections(frames, folder, method="own_network:label")
    assert len(seen) == 4
    assert (result.n_cells, result.n_frames) == (6, 3)
    assert result.method == "own_network:label"
    assert open_movie(sequence).label(1).max() == 2
    assert not (folder / ".blocks").exists()


@pytest.mark.parametrize(
    "wrong", [np.zeros((3, 3), int), np.zeros((32, 40)), np.full((32, 40), -1)]
)
def test_function_that_makes_no_labels_is_refused(sequence, install, wrong):
    install("own_network", label=lambda _: wrong)
    folder = sequence.with_name("01_SEG")
    with pytest.raises(InputError, match="expected labels from 0"):
        write_detections(open_frames(sequence), folder, method="own_network:label")
    assert not folder.exists()


def test_command_runs_a_function_and_doubts_its_result(sequence, install):
    install("own_network", label=lambda image: np.zeros(image.shape, int))
    result = done("detect", sequence, "--method", "own_network:label")
    assert "Found 0 cells in 3 frames" in result.stdout
    assert "hardly anything was found" in result.stderr
    assert "other --weights" in result.stderr
    message = refused("detect", sequence, "--method", "own_network:nothing")
    assert "has no function 'nothing'" in message


def test_track_detects_cells_where_there_are_no_masks(sequence, tmp_path):
    result = done("track", sequence, "-o", tmp_path / "result", "--no-report")
    assert "has no masks; detecting" in result.stderr
    assert "Found 6 cells in 3 frames" in result.stderr
    assert sequence.with_name("01_SEG").is_dir()
    again = done("track", sequence, "-o", tmp_path / "result", "--no-report")
    assert "detecting" not in again.stderr


def test_masks_that_lack_a_frame_are_not_replaced(sequence, tmp_path):
    folder = sequence.with_name("01_SEG")
    folder.mkdir()
    tiff.write_frame(folder / "mask000.tif", np.ones((32, 40), np.uint16))
    message = refused("track", sequence, "-o", tmp_path / "result")
    assert "it lacks 2 of 3 frames" in message


def test_missing_masks_name_the_command(sequence):
    with pytest.raises(InputError, match="clew detect"):
        open_movie(sequence)
