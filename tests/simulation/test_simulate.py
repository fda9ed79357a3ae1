"""The simulator: the same seed gives the same movie, its truth is valid, and everything that can happen does."""

import itertools
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError, StoreError
from clew.simulation import write as simulated
from clew.simulation.cells import make_daughters, make_newcomers
from clew.simulation.nuclei import World
from clew.simulation.render import Camera
from clew.simulation.simulate import NucleiSettings, settings_of, simulate
from clew.simulation.write import write_simulation
from clew.tracking.io import ctc
from clew.tracking.lineage.tracks import check_frame, check_tracks
from clew.tracking.movie import open_movie

from ..helpers.results import check_ctc_lineage

SMALL = {"frames": 12, "cells": 12, "cycle": 20.0}


def held_by(frame):
    """{track: the detection that covers over half of it}"""
    truth, found = (
        frame.truth.ravel().astype(np.int64),
        frame.detections.ravel().astype(np.int64),
    )
    table = np.zeros((truth.max() + 1, found.max() + 1), np.int64)
    np.add.at(table, (truth, found), 1)
    best = table.argmax(axis=1)
    tracks = [
        k
        for k in range(1, len(table))
        if 2 * table[k, best[k]] > table[k].sum() > 0 and best[k]
    ]
    return {k: int(best[k]) for k in tracks}


@pytest.fixture(scope="module")
def movie():
    """A default movie, whole: what tests look at from many sides."""
    simulation = simulate(NucleiSettings(frames=60, cells=40, seed=0))
    return list(simulation), simulation.tracks


@pytest.mark.parametrize("dims", [2, 3])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(dims):
    def content(seed):
        return [
            array.tobytes()
            for frame in simulate(
                NucleiSettings(frames=4, cells=8, dims=dims, seed=seed)
            )
            for array in (frame.image, frame.detections, frame.truth)
        ]

    assert content(3) == content(3)
    assert content(3) != content(4)


def test_each_iteration_begins_anew():
    simulation = simulate(NucleiSettings(**SMALL))
    first = [frame.truth for frame in simulation]
    tracks = simulation.tracks
    again = [frame.truth for frame in simulation]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(tracks.table(), simulation.tracks.table())


def test_noise_does_not_change_the_cells():
    one, other = (
        list(simulate(NucleiSettings(**SMALL, noise=noise))) for noise in (0.0, 2.0)
    )
    np.testing.assert_array_equal([f.truth for f in one], [f.truth for f in other])
    assert any((f.image != g.image).any() for f, g in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        NucleiSettings(),
        NucleiSettings(**SMALL, dims=3),
        NucleiSettings(**SMALL, density=0.5, softness=1),
    ],
)
def test_the_table_and_the_masks_agree_in_every_frame(settings):
    simulation = simulate(settings)
    present = [np.unique(frame.truth) for frame in simulation]
    tracks = simulation.tracks
    check_tracks(tracks, "the simulation")
    for t, labels in enumerate(present):
        check_frame(tracks, t, labels)
    assert tracks.end.max() == settings.frames - 1


def test_a_division_is_two_tracks_that_begin_when_the_mother_ended(movie):
    _, tracks = movie
    mothers, children = np.unique(tracks.parent[tracks.parent > 0], return_counts=True)
    assert (children == 2).all()
    for mother in mothers:
        assert (
            tracks.begin[tracks.parent == mother] == tracks.end[tracks.id == mother] + 1
        ).all()


def test_every_event_happens(movie):
    frames, tracks = movie
    last = frames[-1].index
    assert 8 <= len(np.unique(tracks.parent[tracks.parent > 0])) <= 35
    assert np.count_nonzero((tracks.begin > 0) & (tracks.parent == 0)) >= 5
    assert (
        np.count_nonzero((tracks.end < last) & ~np.isin(tracks.id, tracks.parent)) >= 5
    )
    merges = splits = missed = torn = 0
    for before, after in itertools.pairwise(frames):
        old, new = held_by(before), held_by(after)
        both = sorted(old.keys() & new.keys())
        for one, other in itertools.combinations(both, 2):
            merges += old[one] != old[other] and new[one] == new[other]
            splits += old[one] == old[other] and new[one] != new[other]
        missed += (
            len(np.setdiff1d(after.truth, after.truth[after.detections > 0])) - 1
        )  # the background is one
        torn += int(after.detections.max()) > len(set(new.values()))
    assert 5 <= merges <= 60
    assert 5 <= splits <= 60
    assert missed
    assert torn


def test_without_errors_the_detections_are_the_cells_one_to_one():
    settings = NucleiSettings(**SMALL, merging=0.0, over_segmentation=0.0, missed=0.0)
    for frame in simulate(settings):
        held = held_by(frame)
        assert sorted(held) == sorted(set(np.unique(frame.truth)) - {0})
        assert sorted(held.values()) == list(range(1, int(frame.detections.max()) + 1))


def test_labels_of_detections_follow_the_raster_and_tell_no_identity(movie):
    for frame in movie[0][:10]:
        labels, first = np.unique(frame.detections, return_index=True)
        assert labels.tolist() == list(range(len(labels)))
        assert (np.diff(first[1:]) > 0).all()


@pytest.mark.parametrize("dims", [2, 3])
def test_mass_is_shared_by_the_daughters_and_the_next_generation_is_as_large(dims):
    settings, rng = NucleiSettings(dims=dims), np.random.default_rng(0)
    mothers = make_newcomers(settings, rng, rng.uniform(0, 100, (200, dims)))
    mothers.age = mothers.cycle.copy()
    pairs = make_daughters(settings, rng, mothers)
    np.testing.assert_allclose(pairs.mass.reshape(2, -1).sum(axis=0), mothers.mass)
    np.testing.assert_allclose(
        pairs.mass.reshape(2, -1) / mothers.mass, 0.5, atol=0.061
    )
    pairs.age = pairs.cycle.copy()
    assert np.median(pairs.size) == pytest.approx(np.median(mothers.size), rel=0.05)


@pytest.mark.parametrize("dims", [2, 3])
def test_the_image_carries_the_mass_through_condensation_and_division(dims):
    settings = NucleiSettings(
        dims=dims, shape=(140, 140) if dims == 2 else (50, 140, 140), noise=0, blur=0.8
    )
    rng = np.random.default_rng(1)
    camera = Camera(settings, rng)
    mother = make_newcomers(settings, rng, np.array(settings.extent)[None] / 2)
    mother.wave[:, :, :3] = mother.wave[:, :, 3:] = (
        0  # a smooth outline, so that its size is the formula's
    )
    light = []
    for left in (10, 2, 1):
        mother.mitosis[:], mother.age = 2, mother.cycle - left
        light.append(camera.take_view(mother).light.sum() / mother.mass[0])
    pair = make_daughters(settings, rng, mother)
    pair.wave[:, :, :3] = pair.wave[:, :, 3:] = 0
    light.append(camera.take_view(pair).light.sum() / mother.mass[0])
    np.testing.assert_allclose(light, light[0], rtol=0.2)
    assert camera.take_view(mother).light.max() > 1.8 * mother.brightness[0], (
        "the plate before the division is bright"
    )


@pytest.mark.parametrize(("density", "dims"), [(0.1, 2), (0.3, 2), (0.2, 3)])
def test_every_cell_keeps_over_half_of_its_mask(density, dims):
    settings = NucleiSettings(
        cells=60 if dims == 2 else 10,
        dims=dims,
        density=density,
        softness=1.0,
        cycle=30.0,
    )
    world, camera = (
        World(settings, np.random.default_rng(0)),
        Camera(settings, np.random.default_rng(1)),
    )
    buried = seen = 0
    for _ in range(8):
        world.step()
        view = camera.take_view(world.cells)
        inside = view.whole >= settings.min_pixels
        assert (
            2 * view.kept[inside & (view.kept > 0)]
            > view.whole[inside & (view.kept > 0)]
        ).all()
        buried, seen = (
            buried + np.count_nonzero(view.kept[inside] == 0),
            seen + np.count_nonzero(inside),
        )
    assert seen > 30
    assert buried == 0


@pytest.mark.parametrize(("cells", "cycle"), [(40, 90.0), (80, 40.0)])
def test_the_number_of_cells_stays_about_what_was_asked_for(cells, cycle):
    settings = NucleiSettings(cells=cells, cycle=cycle, seed=1)
    world = World(settings, np.random.default_rng(1))
    counts = []
    for _ in range(300):
        world.step()
        position = world.cells.position
        counts.append(
            np.count_nonzero(
                ((position > 0) & (position < settings.extent)).all(axis=1)
            )
        )
    assert min(counts) > 0.65 * cells
    assert max(counts) < 1.35 * cells


def test_cells_cross_the_border_both_ways_without_falling_from_the_sky():
    settings = NucleiSettings(frames=40, cells=30, death=0.0, missed=0.0)
    simulation = simulate(settings)
    frames = list(simulation)
    tracks = simulation.tracks
    new = (tracks.begin > 0) & (tracks.parent == 0)
    assert new.any()
    for track, begin in zip(tracks.id[new], tracks.begin[new], strict=True):
        where = np.argwhere(frames[begin].truth == track)
        to_border = np.minimum(where, np.array(settings.shape) - 1 - where).min()
        assert to_border <= settings.radius, "newcomers come in over the border"


def test_frames_are_made_one_at_a_time():
    def peak(frames):
        tracemalloc.start()
        for frame in simulate(NucleiSettings(frames=frames, cells=8)):
            assert frame.image.any()
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2)  # what is loaded once
    assert peak(40) < 1.3 * peak(4)


def test_tracks_grow_with_the_frames():
    simulation = simulate(NucleiSettings(**SMALL))
    assert len(simulation.tracks) == 0
    frames = iter(simulation)
    next(frames)
    assert simulation.tracks.end.max() == 0
    next(frames)
    assert simulation.tracks.end.max() == 1


@given(
    st.integers(1, 300),
    st.sampled_from([2, 3]),
    st.floats(0.8, 3.0),
    st.floats(0.05, 0.5),
)
def test_settings_survive_json_and_give_the_cells_room(cells, dims, step, density):
    settings = NucleiSettings(
        cells=cells, dims=dims, spacing=(step,) * dims, density=density
    )
    assert NucleiSettings(**json.loads(json.dumps(settings.as_dict()))) == settings
    assert np.prod(settings.extent) * density >= 0.99 * cells * settings.size


def test_a_wrong_setting_is_named():
    for name in NucleiSettings.ranges:
        for bad in [-1, float("nan"), "many", None, True, float("inf")]:
            with pytest.raises(InputError) as raised:
                NucleiSettings(**{name: bad})
            assert str(raised.value).startswith(f"{name}: must be"), (name, bad)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frames": 0}, "frames"),
        ({"frames": 2.5}, "whole number"),
        ({"dims": 4}, "dims"),
        ({"spacing": (1.0, 1.0, 1.0)}, "spacing: must be 2"),
        ({"spacing": 1.0}, "spacing: must be 2"),
        ({"spacing": (0.0, 1.0)}, "positive"),
        ({"shape": (10.5, 20)}, "shape"),
        ({"shape": (0, 20)}, "shape"),
        ({"shape": (5, 500)}, "no room"),
        ({"shape": (60, 60), "cells": 40}, "no room"),
        ({"shape": (10**6, 10**6)}, "more than"),
        ({"spacing": (10.0, 10.0)}, "radius"),
        ({"density": 0.9}, "density"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        NucleiSettings(**wrong)


@pytest.mark.parametrize("dims", [2, 3])
def test_a_written_movie_is_a_movie_with_truth(tmp_path, dims):
    settings = NucleiSettings(
        frames=4,
        cells=8,
        dims=dims,
        seed=2,
        spacing=(2.0, 0.5, 0.5)[-dims:],
        radius=5.0,
    )
    calls = []
    write_simulation(
        tmp_path / "sim", settings, progress=lambda done, of: calls.append((done, of))
    )
    movie, truth = (
        open_movie(tmp_path / "sim/01"),
        ctc.open_ctc_lineage(tmp_path / "sim/01_GT/TRA"),
    )
    assert calls == [(t, 4) for t in range(1, 5)]
    assert (movie.n_frames, movie.shape, movie.spacing) == (
        4,
        settings.shape,
        settings.spacing,
    )
    assert "01_SEG" in movie.source
    check_ctc_lineage(truth)
    simulation = simulate(settings)
    for frame in simulation:
        np.testing.assert_array_equal(movie.label(frame.index), frame.detections)
        np.testing.assert_array_equal(movie.image(frame.index), frame.image)
        np.testing.assert_array_equal(truth.masks[frame.index], frame.truth)
    np.testing.assert_array_equal(truth.tracks.table(), simulation.tracks.table())
    content = json.loads((tmp_path / "sim/01_simulation.json").read_bytes())
    assert settings_of(content["cells"], **content["settings"]) == settings


TINY = NucleiSettings(frames=2, cells=4)


def names(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_same_settings_give_the_same_files(tmp_path):
    for name in "ab":
        write_simulation(tmp_path / name, TINY)
    assert names(tmp_path / "a") == names(tmp_path / "b")


def test_an_earlier_simulation_is_replaced_and_its_neighbour_stays(tmp_path):
    write_simulation(tmp_path, NucleiSettings(frames=3, cells=4))
    write_simulation(tmp_path, TINY, sequence="02")
    (tmp_path / "result").mkdir()
    before = names(tmp_path)
    write_simulation(tmp_path, NucleiSettings(frames=2, cells=4, seed=9))
    after = names(tmp_path)
    assert {k: v for k, v in before.items() if k.startswith("02")} == {
        k: v for k, v in after.items() if k.startswith("02")
    }
    assert "01/t002.tif" in before
    assert "01/t002.tif" not in after
    assert json.loads(after["01_simulation.json"])["settings"]["seed"] == 9
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "file", ["notes.txt", "01/t000.tif", "01_GT/TRA/man_track.txt"]
)
def test_a_folder_with_something_else_is_left_alone(tmp_path, file):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"dear")
    with pytest.raises(InputError, match="no simulation"):
        write_simulation(tmp_path, TINY)
    assert names(tmp_path) == {file: b"dear"}


def test_what_is_not_ours_in_a_simulation_is_not_lost(tmp_path):
    write_simulation(tmp_path, TINY)
    (tmp_path / "01_GT/notes.txt").write_text("dear")
    before = names(tmp_path)
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_simulation(tmp_path, TINY)
    (tmp_path / "02").mkdir()
    with pytest.raises(InputError, match="02 is not a simulation"):
        write_simulation(tmp_path, TINY, sequence="02")
    assert names(tmp_path) == before


@pytest.mark.parametrize("sequence", ["", "../01", "01/02", ".01"])
def test_a_sequence_is_a_plain_name(tmp_path, sequence):
    with pytest.raises(InputError, match="sequence"):
        write_simulation(tmp_path / "sim", TINY, sequence=sequence)
    assert not (tmp_path / "sim").exists()


def test_a_movie_cannot_replace_a_file(tmp_path):
    (tmp_path / "sim").write_bytes(b"dear")
    with pytest.raises(InputError, match="is a file"):
        write_simulation(tmp_path / "sim", TINY)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_crash_leaves_what_was_there(tmp_path, monkeypatch, earlier):
    folder = tmp_path / "sim"
    if earlier:
        write_simulation(folder, TINY)
    before = names(tmp_path)

    def full(path, frame):
        raise StoreError("the disk is full")

    monkeypatch.setattr(simulated.tiff, "write_frame", full)
    with pytest.raises(StoreError, match="full"):
        write_simulation(folder, NucleiSettings(frames=3, cells=4, seed=1))
    assert names(tmp_path) == before
    assert folder.exists() == earlier
