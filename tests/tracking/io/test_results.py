"""A folder of results: every format, again and again, and nothing of anyone else's is lost."""

import json
from importlib import import_module

import numpy as np
import pytest

from clew.errors import ClewError, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.io import names
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.geff import read_geff
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.napari import read_napari
from clew.tracking.io.results import check_formats, write_results
from clew.tracking.tracker import Tracker

from ...helpers.results import check_ctc_lineage


@pytest.fixture
def written(tmp_path, simulated, lineage):
    write_results(tmp_path / "result", lineage, simulated.movie, list(names.FORMATS))
    return tmp_path / "result"


def test_all_formats_tell_the_same(written, lineage):
    truth = open_ctc_lineage(written)
    check_ctc_lineage(truth)
    assert np.array_equal(truth.tracks.table(), lineage.tracks.table())
    events, confidence, _ = read_events(written / names.EVENTS)
    assert np.array_equal(
        np.sort(events.row_keys()), np.sort(lineage.events.row_keys())
    )
    graph = read_geff(written / names.GEFF)
    assert np.array_equal(
        np.sort(graph.events.row_keys()), np.sort(lineage.events.row_keys())
    )
    assert np.allclose(np.sort(graph.confidence), np.sort(confidence))
    data, properties, _ = read_napari(written / names.NAPARI)
    assert len(data) == len(lineage.frame)
    assert set(properties["track"].astype(int)) == set(lineage.tracks.id)


def test_the_validator_of_the_challenge_agrees(written):
    validate = pytest.importorskip("ctc_metrics.scripts.validate").validate_sequence
    assert validate(str(written))["Valid"] == 1


def test_what_is_written_is_named_and_known(written):
    there = {
        path.name for path in written.iterdir() if not path.name.startswith("mask")
    }
    assert there == set(names.BESIDE_MASKS) - {names.REPORT}


def test_tracking_twice_into_the_same_folder(written, simulated, lineage):
    before = {path.name for path in written.iterdir()}
    (written / names.REPORT).write_text("an older report")
    formats = list(names.FORMATS)
    with pytest.raises(InputError, match="overwrite"):
        write_results(written, lineage, simulated.movie, formats)
    told = write_results(written, lineage, simulated.movie, formats, overwrite=True)
    assert {path.name for path in written.iterdir()} == before
    assert set(told) == {*names.BESIDE_MASKS, "mask*.tif"} - {names.REPORT}


@pytest.mark.parametrize("name", list(names.FORMATS))
def test_one_format_alone(tmp_path, simulated, lineage, name):
    told = write_results(tmp_path / "a/b", lineage, simulated.movie, [name])
    assert {
        path.name for path in (tmp_path / "a/b").iterdir() if "mask" not in path.name
    } == set(told) - {"mask*.tif"}
    assert all(
        file in names.FORMATS[name]
        for file in told
        if "*" not in file and file != names.MANIFEST
    )


def test_a_folder_of_something_else_is_not_touched(tmp_path, simulated, lineage):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds thesis\.tex"):
        write_results(tmp_path, lineage, simulated.movie, ["csv"])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_table_of_detections_has_no_masks():
    table = DetectionTable([0], [1], [[0, 0]])
    with pytest.raises(InputError, match="needs label images"):
        check_formats(["csv", "ctc"], table)
    assert check_formats(["csv", "geff"], table) == ["csv", "geff"]


def test_formats_go_by_name():
    assert check_formats([" CTC", "csv", "ctc", ""]) == ["ctc", "csv"]
    for unknown in (["xml"], [], [" "]):
        with pytest.raises(InputError, match="give any of ctc, csv, geff, mastodon"):
            check_formats(unknown)


def test_a_disk_that_fills_up_leaves_the_older_result(
    written, simulated, lineage, monkeypatch
):
    before = {
        path.name: path.read_bytes() for path in written.iterdir() if path.is_file()
    }
    tiff = import_module("clew.tracking.io.tiff")

    def full(path, frame):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiff, "write_frame", full)
    with pytest.raises(ClewError, match="No space left"):
        write_results(written, lineage, simulated.movie, ["ctc"])
    assert {
        path.name: path.read_bytes() for path in written.iterdir() if path.is_file()
    } == before


def test_napari_graph_is_beside_its_table(written):
    assert isinstance(json.loads((written / names.NAPARI_GRAPH).read_text()), dict)


@pytest.mark.parametrize("name", ["geff", "mastodon", "trackmate"])
def test_folder_with_one_format_is_a_lineage(tmp_path, name):
    place = np.array([[z, y, 10.0 * y] for y in range(5) for z in (0.0, 3.0)] * 3)
    frame = np.repeat([0, 1, 2], 10)
    table = DetectionTable(frame, np.tile(np.arange(1, 11), 3), place * [4.0, 1, 1])
    table.spacing = (4.0, 1.0, 1.0)
    lineage = Tracker.generic(n_jobs=1, cache=None).track(table)
    write_results(tmp_path / "r", lineage, table, [name])
    found = open_lineage(tmp_path / "r")
    assert len(found.frame) == 30
    # files for programs with images have the units of the table
    expected = 12.0 if name == "geff" else 3.0
    assert found.position[:, 0].max() == expected
    assert found.spacing == ((4.0, 1.0, 1.0) if name == "geff" else None)
