"""How commands are told of movies: several at once, some of their frames, other masks."""

import json

import numpy as np
import pytest

import clew
from clew.tracking.io import names
from clew.tracking.io.annotations import read_annotation_table, write_annotations
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.movie import open_frames
from clew.tracking.tracker import Tracker

from ..helpers.commands import done, refused


@pytest.fixture
def some(simulated, tmp_path):
    write_annotations(tmp_path / "some.csv", simulated.some)
    return tmp_path / "some.csv"


def test_several_movies_are_learned_from_together(simulated, lineage, some, tmp_path):
    write_track_table(tmp_path / "cells.csv", lineage)
    told = done(
        "train",
        simulated.path,
        tmp_path / "cells.csv",
        "-a",
        some,
        "-a",
        some,
        "-o",
        tmp_path / "w.clew",
        "--lam",
        10,
    )
    assert f"from {2 * len(simulated.some)} events" in told.stdout
    assert (
        f"{simulated.movie.name}: events: " in told.stderr
    )  # which it has may differ from movie to movie
    assert "cells: events: " in told.stderr
    found = clew.load(tmp_path / "w.clew")
    assert found.n_annotated_ == 2 * len(simulated.some)
    assert "intensity" not in found.groups_  # the table has none


def test_several_label_images_in_space(simulated_3d, tmp_path):
    write_annotations(tmp_path / "a.csv", simulated_3d.some)
    labels, images = simulated_3d.folder / "01_SEG", simulated_3d.path
    args = [("--labels", labels, "--images", images, "-a", tmp_path / "a.csv")] * 2
    done(
        "train",
        *args[0],
        *args[1],
        "-o",
        tmp_path / "w.clew",
        "--lam",
        10,
        "--frames",
        "0:4",
    )
    inside = simulated_3d.some.restrict_to(range(5))
    assert clew.load(tmp_path / "w.clew").n_annotated_ == 2 * len(inside)


def test_each_movie_has_its_annotations(simulated, some, tmp_path):
    args = ("train", simulated.path, simulated.path, "-o", tmp_path / "w.clew")
    assert "2 movies and 1 × --annotations" in refused(*args, "-a", some)
    assert "2 movies and 1 × --labels" in refused(
        *args, "-a", some, "-a", some, "--labels", simulated.path
    )
    assert "2 movies and 1 × --images" in refused(
        "train",
        "--labels",
        simulated.path,
        "--labels",
        simulated.path,
        "--images",
        simulated.path,
        "-a",
        some,
    )
    assert not (tmp_path / "w.clew").exists()


@pytest.mark.parametrize("movie", ["simulated", "simulated_3d"])
def test_some_frames(movie, request, tmp_path):
    sim = request.getfixturevalue(movie)
    write_annotations(tmp_path / "a.csv", sim.some)
    done(
        "train",
        sim.path,
        "-a",
        tmp_path / "a.csv",
        "--frames",
        "1:4",
        "-o",
        tmp_path / "w.clew",
        "--lam",
        10,
    )
    expected = sim.some.restrict_to(range(1, 5))
    assert clew.load(tmp_path / "w.clew").n_annotated_ == len(expected)
    told = done(
        "track",
        sim.path,
        "-w",
        tmp_path / "w.clew",
        "--frames",
        "1:4",
        "-a",
        tmp_path / "a.csv",
        "--no-report",
        "--no-fill",  # annotated gaps are events then
        "-o",
        tmp_path / "r",
    )
    assert f"4 of {sim.movie.n_frames} frames, 1 to 4" in told.stderr
    masks = open_frames(tmp_path / "r")
    assert len(masks) == 4
    np.testing.assert_array_equal(masks[0] > 0, sim.movie.label(1) > 0)
    events, *_ = read_events(tmp_path / "r" / names.EVENTS)
    assert np.isin(
        expected.events[expected.happened].row_keys(), events.row_keys()
    ).all()
    assert f"the truth has {sim.movie.n_frames} frames, the movie 4" in refused(
        "evaluate", tmp_path / "r", "-t", sim.truth
    )
    figures = json.loads(
        done(
            "evaluate", tmp_path / "r", "-t", sim.truth, "--frames", "1:4", "--json"
        ).stdout
    )
    assert figures["task_loss"]["annotated"] == len(
        sim.known.restrict_to(range(1, 5)).to_pairwise()
    )


def test_frames_that_are_not_there_are_refused(simulated, some, tmp_path):
    last = simulated.movie.n_frames
    for command in (
        ("track", simulated.path),
        ("train", simulated.path, "-a", some),
        ("annotate", simulated.path),
    ):
        assert "has the frames 0 to 13" in refused(
            *command, "--frames", f"3:{last}", *_to(command, tmp_path)
        )
        assert "the first frame before the last" in refused(
            *command, "--frames", "5:3", *_to(command, tmp_path)
        )
    assert "has the frames 0 to 13" in refused(
        "detect", simulated.path, "--frames", "0:99", "-o", tmp_path / "d"
    )


def _to(command, folder):
    return (
        ("--store", folder / "s.clewdb")
        if command[0] == "annotate"
        else ("-o", folder / "none")
    )


def test_cells_are_detected_in_some_frames(simulated, tmp_path):
    done("detect", simulated.path, "--frames", "3:4", "-o", tmp_path / "d")
    assert sorted(path.name for path in (tmp_path / "d").glob("*.tif")) == [
        "mask003.tif",
        "mask004.tif",
    ]


def test_other_masks_for_a_sequence_folder(simulated, tmp_path):
    args = ("track", simulated.path, "--no-report", "--no-cache", "-f", "ctc")
    told = done(*args, "--labels", simulated.truth, "-o", tmp_path / "r")
    assert f"labels from {simulated.truth}, images from {simulated.path}" in told.stderr
    np.testing.assert_array_equal(
        open_frames(tmp_path / "r")[5] > 0, open_frames(simulated.truth)[5] > 0
    )
    assert "images is for" in refused(
        *args, "--images", simulated.path, "-o", tmp_path / "s"
    )


def test_candidates_and_events_are_chosen_when_tracking(
    simulated, tmp_path, monkeypatch
):
    asked = {}

    def track(self, *_, **__):
        asked.update(self.get_params())
        raise clew.errors.InputError("far enough")

    monkeypatch.setattr(Tracker, "track_blocks", track)
    refused(
        "track",
        simulated.path,
        "-o",
        tmp_path / "r",
        "--neighbours",
        7,
        "--reach",
        30,
        "--events",
        "move,divide",
    )
    assert (asked["neighbours"], asked["reach"], asked["events"]) == (
        7,
        30.0,
        "move,divide",
    )


def test_a_sample_is_of_whole_numbers(simulated, tmp_path):
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
    drawn = read_annotation_table(tmp_path / "some.csv")
    assert set(drawn.annotated_frames()) == {3, 4, 5}
