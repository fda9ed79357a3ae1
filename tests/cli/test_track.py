"""The commands of tracking: the whole way in 2D and 3D, what they print, and what they refuse in one line."""

import csv
import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from clew.tracking.io import names
from clew.tracking.io.annotations import read_annotation_table, write_annotations
from clew.tracking.io.geff import write_geff
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.movie import open_frames

from ..helpers.commands import done, refused


@pytest.fixture(scope="module")
def weights(learned, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.clew"
    learned.save(path)
    return path


@pytest.fixture(scope="module")
def tracked(simulated, weights, tmp_path_factory):
    """What these weights make of the movie. It is shared, so that nobody may write to it."""
    folder = tmp_path_factory.mktemp("tracked") / "r"
    done("track", simulated.path, "-w", weights, "-o", folder, "--no-report")
    return folder


@pytest.fixture
def some(simulated, tmp_path):
    write_annotations(tmp_path / "some.csv", simulated.some)
    return tmp_path / "some.csv"


@pytest.mark.parametrize("dims", [2, 3])
def test_the_whole_way(tmp_path, dims):
    sim, some, weights, result = (
        tmp_path / name for name in ("sim", "some.csv", "weights.clew", "result")
    )
    size = (
        ["--frames", 8, "--cells", 16] if dims == 2 else ["--frames", 5, "--cells", 8]
    )
    assert "Simulated" in done("simulate", sim, *size, "--dims", dims).stdout

    drawn = done(
        "sample", sim / "01_GT/TRA", "--fraction", 0.5, "--seed", 0, "-o", some
    ).stdout
    assert f"Drew {len(read_annotation_table(some))} of" in drawn

    trained = done(
        "train", sim / "01", "--annotations", some, "-o", weights, "--lam", 10
    )
    assert "masks from 01_SEG" in trained.stderr
    assert "Learned" in trained.stdout

    formats = ",".join(names.FORMATS)
    tracked = done(
        "track", sim / "01", "--weights", weights, "-o", result, "--format", formats
    ).stdout
    assert {path.name for path in result.iterdir() if "mask" not in path.name} == set(
        names.BESIDE_MASKS
    )
    assert all(name in tracked for name in names.BESIDE_MASKS)
    assert open_frames(result)[0].ndim == dims
    assert "<html" in (result / names.REPORT).read_text()

    table = done("evaluate", result, "--truth", sim / "01_GT/TRA").stdout
    assert all(
        words in table
        for words in ("task loss", "AOGM", "division F1, ± 0", "division F1, ± 1")
    )
    figures = json.loads(
        done("evaluate", result, "--truth", sim / "01_GT/TRA", "--json").stdout
    )
    assert figures["task_loss"]["total"] < 0.2
    assert figures["events_from"] == names.EVENTS

    explained = done("explain", weights, "-o", tmp_path / "weights.png").stdout
    assert "distance" in explained
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert "annotated events in" in done("info", weights).stdout

    found = done("detect", sim / "01", "-o", tmp_path / "found").stdout
    masks = open_frames(tmp_path / "found")
    assert (len(masks), masks.shape) == (size[1], open_frames(sim / "01").shape)
    assert sum(len(np.unique(masks[t])) - 1 for t in range(len(masks))) > 4 * size[1]
    assert "a frame" in found
    bare = done(
        "track",
        "--labels",
        tmp_path / "found",
        "--images",
        sim / "01",
        "-o",
        tmp_path / "again",
        "--no-report",
    )
    assert "generic" in bare.stderr


def test_a_spacing_in_three_dimensions_comes_with_the_images(simulated_3d, tmp_path):
    done("track", simulated_3d.path, "-o", tmp_path / "a", "-f", "csv", "--no-report")
    done(
        "track",
        simulated_3d.path,
        "-o",
        tmp_path / "b",
        "-f",
        "csv",
        "--no-report",
        "--spacing",
        "6,1,1",
    )
    heights = []
    for name in "ab":
        with (tmp_path / name / names.TRACKS).open() as file:
            heights.append(max(float(row["z"]) for row in csv.DictReader(file)))
    assert heights[1] == pytest.approx(2 * heights[0])


def test_the_demo(tmp_path):
    result = done(
        "demo", "-o", tmp_path / "demo", "--frames", 6, "--cells", 12, "--fraction", 0.5
    )
    assert "Task loss on the" in result.stdout
    there = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"sim", "some.csv", "weights.clew", "result", names.REPORT} <= there
    again = done(
        "demo", "-o", tmp_path / "demo", "--frames", 6, "--cells", 12, "--fraction", 0.5
    )  # over itself

    def figures(text):
        return [line for line in text.splitlines() if "second" not in line]

    assert figures(again.stdout) == figures(result.stdout)


def test_tracking_twice_into_the_same_folder(simulated, weights, tmp_path):
    args = (
        "track",
        simulated.path,
        "-w",
        weights,
        "-o",
        tmp_path / "r",
        "-f",
        "ctc,csv",
    )
    args = (*args, "--no-report")  # with a report, the demo is made over itself
    done(*args)
    first = (tmp_path / "r" / names.EVENTS).read_bytes()
    done(*args)
    assert (tmp_path / "r" / names.EVENTS).read_bytes() == first


def test_generic_weights_are_said_to_be_used(simulated, tmp_path):
    result = done(
        "track", simulated.path, "-o", tmp_path / "r", "--no-cache", "-f", "csv"
    )
    assert "no --weights: using generic weights" in result.stderr
    assert "generic ones" not in result.stdout
    assert (
        "simulated movies (the generic weights that come with clew)"
        in (tmp_path / "r" / names.REPORT).read_text()
    )


def test_annotations_are_kept_to(simulated, weights, tmp_path):
    ends = "frame,event,sources,targets,happened\n"
    label = int(np.unique(simulated.movie.label(0))[1])
    (tmp_path / "a.csv").write_text(f"{ends}0,disappear,{label},,yes\n")
    done(
        "track",
        simulated.path,
        "-w",
        weights,
        "-a",
        tmp_path / "a.csv",
        "-o",
        tmp_path / "r",
        "--no-report",
    )
    events, *_ = read_events(tmp_path / "r" / names.EVENTS)
    gone = read_annotation_table(tmp_path / "a.csv").events.row_keys()
    assert np.isin(gone, events.row_keys()).all()


def test_a_table_of_detections(lineage, tmp_path):
    write_track_table(tmp_path / "cells.csv", lineage)
    result = done(
        "track",
        tmp_path / "cells.csv",
        "-o",
        tmp_path / "r",
        "-f",
        "csv,geff,napari",
        "--no-report",
    )
    assert "a table of detections in 14 frames" in result.stderr
    assert (tmp_path / "r" / names.GEFF).is_dir()
    told = refused("track", tmp_path / "cells.csv", "-o", tmp_path / "s", "-f", "ctc")
    assert "the format ctc needs label images" in told
    assert not (tmp_path / "s").exists()


def test_points_without_labels_are_tracked_and_evaluated(simulated, lineage, tmp_path):
    """The way of someone who has t, y, x alone: results are compared with a truth in masks, and in a table."""
    points = np.column_stack([lineage.frame, lineage.position])
    np.savetxt(
        tmp_path / "points.csv", points, delimiter=",", header="t,y,x", comments=""
    )
    told = done(
        "track", tmp_path / "points.csv", "-o", tmp_path / "r", "--no-report"
    ).stderr
    assert (
        "without labels (those of each frame are numbered from 1 in the order of rows) in 14 frames"
        in told
    )
    against_masks = done("evaluate", tmp_path / "r", "--truth", simulated.truth)
    assert "cells are matched by positions, at most" in against_masks.stderr
    assert "not computed: they need masks" in against_masks.stdout
    figures = json.loads(
        done("evaluate", tmp_path / "r", "-t", simulated.truth, "--json").stdout
    )
    assert figures["task_loss"]["total"] < 0.1
    assert figures["scores_note"] == "not computed: they need masks"
    write_track_table(tmp_path / "truth.csv", lineage)
    figures = json.loads(
        done("evaluate", tmp_path / "r", "-t", tmp_path / "truth.csv", "--json").stdout
    )
    assert figures["task_loss"]["total"] < 0.1
    told = refused(
        "evaluate", tmp_path / "r", "-t", tmp_path / "truth.csv", "--distance", "-1"
    )
    assert "distance is -1" in told


def test_points_with_a_radius_have_masks(simulated, lineage, tmp_path):
    """With discs, results are label images too, and the report has pictures; evaluation goes by positions."""
    points = np.column_stack([lineage.frame, lineage.position])
    np.savetxt(
        tmp_path / "points.csv", points, delimiter=",", header="t,y,x", comments=""
    )
    told = done(
        "track",
        tmp_path / "points.csv",
        "--radius",
        5,
        "--images",
        simulated.path,
        "-o",
        tmp_path / "r",
    ).stderr
    assert "discs of radius 5 around a table of detections without labels" in told
    assert (tmp_path / "r" / names.RESULT).is_file()
    assert "<image" in (tmp_path / "r" / names.REPORT).read_text()
    by_masks = done("evaluate", tmp_path / "r", "--truth", simulated.truth)
    assert (
        "true cells are covered by more than half by a mask of the result"
        in by_masks.stderr
    )
    by_places = done(
        "evaluate",
        tmp_path / "r",
        "--truth",
        simulated.truth,
        "--distance",
        8,
        "--json",
    )
    assert "warning" not in by_places.stderr
    figures = json.loads(by_places.stdout)
    assert (figures["matched_by"], figures["scores"]) == (
        "positions, at most 8 apart",
        None,
    )
    assert figures["task_loss"]["annotated"] > 200
    assert "needs --radius" in refused(
        "track", tmp_path / "points.csv", "--images", simulated.path
    )
    assert "--radius applies to tables" in refused(
        "track", simulated.path, "--radius", 5
    )
    assert "--radius draws discs" in refused("annotate", tmp_path / "points.csv")


def test_several_faults_are_told_apart(simulated, tmp_path):
    (tmp_path / "bad.csv").write_text(
        "frame,event,sources,targets\n0,moved,1,1\n0,divide,1,2\n"
    )
    told = refused("train", simulated.path, "-a", tmp_path / "bad.csv")
    assert "bad.csv has 2 faults: row 2: event is 'moved'; it must be" in told
    assert "; row 3: divide has 2 targets" in told


def test_frames_that_count_from_1_are_said(tmp_path):
    (tmp_path / "points.csv").write_text(
        "t,y,x\n" + "".join(f"{t},{9 * k},{t}\n" for t in (1, 2, 3) for k in range(4))
    )
    assert (
        "the first cell is in frame 1; frames count from 0"
        in done(
            "track", tmp_path / "points.csv", "-o", tmp_path / "r", "--no-report"
        ).stderr
    )


def test_a_table_of_detections_is_written_as_tables_where_no_format_is_asked_for(
    lineage, tmp_path
):
    write_track_table(tmp_path / "cells.csv", lineage)
    done("track", tmp_path / "cells.csv", "-o", tmp_path / "r", "--no-report")
    assert {names.EVENTS, names.TRACKS} <= {
        path.name for path in (tmp_path / "r").iterdir()
    }
    assert not (tmp_path / "r" / names.RESULT).exists()


def test_a_table_of_detections_learns_from_a_geff(lineage, tmp_path):
    write_track_table(tmp_path / "cells.csv", lineage)
    write_geff(tmp_path / "a.geff", lineage)
    result = done(
        "train",
        tmp_path / "cells.csv",
        "-a",
        tmp_path / "a.geff",
        "-o",
        tmp_path / "w.clew",
        "--lam",
        "1",
    )
    assert f"from {len(lineage.events)} events" in result.stdout


def test_weights_for_intensities_need_images(simulated, weights, tmp_path):
    told = refused(
        "track",
        "--labels",
        simulated.folder / "01_SEG",
        "-w",
        weights,
        "-o",
        tmp_path / "r",
        "--no-cache",
    )
    assert "no measurements of histogram, intensity" in told
    assert not (tmp_path / "r").exists()


def test_a_result_folder_with_other_things_is_refused_at_once(simulated, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds notes.txt" in refused("track", simulated.path, "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_scores_that_cannot_be_computed_are_said_to_be_missing(
    simulated, tracked, monkeypatch
):
    from clew.utils import extras

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    args = ("evaluate", tracked, "-t", simulated.truth)
    assert "install the extra evaluate" in done(*args).stdout
    figures = json.loads(done(*args, "--json").stdout)
    assert figures["scores"] is None
    assert "the extra evaluate" in figures["scores_note"]


@pytest.mark.skipif(
    importlib.util.find_spec("ctc_metrics") is None,
    reason="py-ctcmetrics is not installed",
)
def test_scores_of_the_challenge(simulated, tracked):
    figures = json.loads(
        done("evaluate", tracked, "-t", simulated.truth, "--json").stdout
    )
    assert figures["scores"]["TRA"] > 0.95
    assert "scores_note" not in figures


def test_a_truth_without_its_movie(simulated, tmp_path):
    alone = tmp_path / "lineage"
    alone.mkdir()
    for path in simulated.truth.iterdir():
        (alone / path.name).write_bytes(path.read_bytes())
    result = done("sample", alone, "--number", 30, "-o", tmp_path / "some.csv")
    assert "using its own masks" in result.stderr
    done(
        "train",
        "--labels",
        alone,
        "-a",
        tmp_path / "some.csv",
        "-o",
        tmp_path / "w.clew",
        "--lam",
        100,
    )


def test_only_some_frames_are_drawn_from(simulated, tmp_path):
    done(
        "sample",
        simulated.truth,
        "--frames",
        "3:5",
        "--fraction",
        1,
        "-o",
        tmp_path / "some.csv",
    )
    assert set(read_annotation_table(tmp_path / "some.csv").events.frame.tolist()) == {
        3,
        4,
        5,
    }


def test_a_lineage_as_annotations(simulated, tmp_path):
    done(
        "train",
        simulated.path,
        "-a",
        simulated.truth,
        "-o",
        tmp_path / "w.clew",
        "--lam",
        100,
    )
    assert (
        f"{len(simulated.known)} annotated events"
        in done("info", tmp_path / "w.clew").stdout
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("train", "{movie}", "-a", "{some}", "--lam", "much"), "--lam is 'much'"),
        (("train", "{movie}", "-a", "{some}", "--loss", "none"), "unknown loss"),
        (("train", "{movie}", "-a", "{some}", "--reach", "-3"), "reach is -3"),
        (("train", "{movie}", "-a", "no.csv"), "no.csv does not exist"),
        (("train", "-a", "{some}"), "a movie is opened by the path"),
        (("track", "{movie}", "-w", "{some}"), "some.csv"),
        (
            ("track", "{movie}", "-f", "xml"),
            "unknown format xml; give any of ctc, csv, geff, mastodon",
        ),
        (("track", "{movie}", "--spacing", "1,a"), "--spacing is '1,a'"),
        (("track", "{movie}", "--spacing", "1"), "spacing is (1.0,)"),
        (("track", "nowhere"), "nowhere does not exist"),
        (
            ("track", "{movie}", "--frames", "5:2"),
            "--frames is '5:2'; expected the first frame before the last",
        ),
        (
            ("train", "{movie}", "-a", "{some}", "-o", "{movie}"),
            "is a folder; expected a file name for the weights",
        ),
        (
            ("evaluate", "nowhere", "-t", "{truth}"),
            "nowhere does not exist; a lineage is a folder with man_track.txt",
        ),
        (("sample", "{truth}", "-o", "a.csv", "--frames", "3"), "--frames is '3'"),
        (
            ("sample", "{truth}", "-o", "a.csv", "--fraction", "2"),
            "fraction is 2",
        ),
        (("sample", "{truth}", "-o", "a.csv", "--number", "0"), "number is 0"),
        (("simulate", "sim", "--frames", "0"), "frames"),
        (("simulate", "sim", "--dims", "4"), "dims"),
        (("detect", "nowhere"), "nowhere does not exist"),
        (("detect", "{movie}", "-o", "d", "--sensitivity", "2"), "sensitivity"),
        (("evaluate", "{movie}", "-t", "{truth}"), "has no tracks"),
        (("explain", "{weights}", "-o", "a.txt"), "a picture ends in .png"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_one_line_says_what_would_be_right(
    simulated, weights, some, tmp_path, monkeypatch, args, words
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = {
        "movie": simulated.path,
        "truth": simulated.truth,
        "some": some,
        "weights": weights,
    }
    assert words in refused(*(arg.format(**paths) for arg in args))
    assert list((tmp_path / "here").iterdir()) == []


def test_the_result_of_another_tracker_is_not_replaced(
    simulated, weights, tracked, tmp_path
):
    shutil.copytree(tracked, tmp_path / "01_RES")
    done(
        "track", simulated.path, "-w", weights, "-o", tmp_path / "01_RES", "--no-report"
    )
    (tmp_path / "01_RES" / names.MANIFEST).unlink()  # as everyone else writes it
    before = (tmp_path / "01_RES" / names.RESULT).stat().st_mtime_ns
    told = refused("track", simulated.path, "-w", weights, "-o", tmp_path / "01_RES")
    assert "holds files that clew track did not write" in told
    assert (tmp_path / "01_RES" / names.RESULT).stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["notes.txt", "some.csv"])
def test_a_demo_replaces_nothing_but_a_demo(tmp_path, name):
    (tmp_path / name).write_text("mine")
    assert f"contains {name}, which is not from a demo" in refused(
        "demo", "-o", tmp_path, "--frames", 6, "--cells", 12
    )
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_weights_do_not_replace_what_is_no_weights(simulated, weights, some, tmp_path):
    before = some.read_bytes()
    assert "some.csv: exists and does not contain weights" in refused(
        "train", simulated.path, "-a", some, "-o", some
    )
    assert some.read_bytes() == before
    for name, content in (
        ("weights", weights.read_bytes()),
        ("damaged.clew", b"?"),
        ("empty", b""),
    ):
        (tmp_path / name).write_bytes(content)
        done("train", simulated.path, "-a", some, "-o", tmp_path / name, "--lam", 10)
        done("info", tmp_path / name)


def test_annotations_do_not_replace_what_is_none(simulated, weights, tmp_path):
    shutil.copy(weights, tmp_path / "w.clew")
    assert "w.clew: exists and does not contain annotations" in refused(
        "sample", simulated.truth, "-o", tmp_path / "w.clew"
    )
    assert (tmp_path / "w.clew").read_bytes() == weights.read_bytes()
    assert "is a folder; expected a file" in refused(
        "sample", simulated.truth, "-o", tmp_path
    )
    for _ in range(2):
        done("sample", simulated.truth, "-o", tmp_path / "some.csv")


def test_a_part_of_a_movie_is_told_in_its_report(simulated, weights, tmp_path):
    for frames, told in ((["--frames", "1:3"], True), ([], False)):
        done("track", simulated.path, "-w", weights, "-o", tmp_path / "r", *frames)
        page = (tmp_path / "r/report.html").read_text(encoding="utf-8")
        assert ("frames 1 to 3 of the movie, counted from 0 here" in page) == told


def test_the_help_of_track_names_every_format():
    from clew.tracking.io.names import FORMATS

    # a long list is broken into lines
    assert ",".join(FORMATS) in "".join(done("track", "--help").stdout.split())


def test_a_command_starts_without_what_it_does_not_need():
    code = "import sys, clew, clew.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "typer" in loaded
    heavy = {
        "sklearn",
        "pyarrow",
        "numba",
        "skimage",
        "zarr",
        "geff",
        "networkx",
        "matplotlib",
        "scipy.stats",
        "highspy",
    }
    assert not heavy & set(loaded)
