"""The simulated kinds of cells: valid truths, and each does what its kind is for."""

import json
from itertools import pairwise

import numpy as np
import pytest
from scipy import ndimage

from clew.errors import InputError
from clew.simulation.kinds import KINDS, make_scene
from clew.simulation.rods import Colony, RodSettings, _closest_points
from clew.simulation.simulate import (
    NucleiSettings,
    random_settings,
    settings_of,
    simulate,
)
from clew.simulation.tissue import Tissue, TissueSettings
from clew.tracking.lineage.tracks import check_frame, check_tracks

BODIES = sorted(set(KINDS) - {"nuclei"})
SMALL = {"frames": 8, "cells": 15}
NO_FAULTS = {
    "missed": 0.0,
    "over_segmentation": 0.0,
    "under_segmentation": 0.0,
    "outline_error": 0.0,
}


def centres(mask):
    """{label: centroid}"""
    labels = np.unique(mask[mask > 0])
    return {int(label): np.argwhere(mask == label).mean(axis=0) for label in labels}


def moves(frames):
    """(n, d) displacements of all cells that are in two consecutive frames."""
    ways = []
    for before, after in pairwise(frames):
        old, new = centres(before.truth), centres(after.truth)
        ways += [new[k] - old[k] for k in old.keys() & new.keys()]
    return np.array(ways)


@pytest.mark.parametrize(
    ("values", "tracks", "found", "pixels", "light", "centre"),
    [
        (
            {"frames": 6, "cells": 12, "seed": 3},
            10,
            8,
            3100,
            (1048.43, 203.49),
            (114.65, 60.79),
        ),
        (
            {"frames": 4, "cells": 8, "dims": 3, "seed": 1},
            8,
            8,
            12433,
            (1053.92, 179.73),
            (9.06, 39.6, 67.64),
        ),
    ],
)
def test_nuclei_are_what_they_were_before_there_were_kinds(
    values, tracks, found, pixels, light, centre
):
    simulation = simulate(NucleiSettings(**values))
    *_, last = simulation
    assert len(simulation.tracks) == tracks
    assert last.detections.max() == found
    assert np.count_nonzero(last.truth) == pytest.approx(pixels, rel=0.005)
    np.testing.assert_allclose((last.image.mean(), last.image.std()), light, rtol=0.002)
    np.testing.assert_allclose(np.argwhere(last.truth).mean(axis=0), centre, atol=0.2)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "stage",
    [{}, {"stage_jumps": 0.5, "missing_frames": 0.3, "drift": 2.0, "shake": 1.0}],
)
def test_the_truth_of_every_kind_is_valid_and_the_same_for_the_same_seed(kind, stage):
    settings = settings_of(kind, **SMALL, seed=2, **stage)
    movies = [simulate(settings), simulate(settings)]
    first, second = map(list, movies)
    tracks = movies[0].tracks
    check_tracks(tracks, "the simulation")
    for t, (frame, again) in enumerate(zip(first, second, strict=True)):
        check_frame(tracks, t, np.unique(frame.truth))
        for name in ("image", "detections", "truth"):
            np.testing.assert_array_equal(getattr(frame, name), getattr(again, name))
    mothers, children = np.unique(tracks.parent[tracks.parent > 0], return_counts=True)
    assert (children == 2).all()
    assert (tracks.end[np.isin(tracks.id, mothers)] < settings.frames - 1).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_settings_drawn_at_random_make_movies_and_differ(kind):
    rng = np.random.default_rng(0)
    drawn = [random_settings(kind, rng, frames=3, cells=10) for _ in range(6)]
    assert len({settings.radius for settings in drawn}) == len(drawn)
    assert all(settings.frames == 3 for settings in drawn)
    for settings in drawn[:3]:
        assert sum(1 for frame in simulate(settings) if frame.truth.any()) == 3
    assert random_settings(kind, 7) == random_settings(kind, 7)


@pytest.mark.parametrize("kind", BODIES)
def test_without_faults_the_detections_are_the_true_masks(kind):
    for frame in simulate(settings_of(kind, **SMALL, **NO_FAULTS)):
        np.testing.assert_array_equal(frame.detections > 0, frame.truth > 0)
        pairs = np.unique(
            np.column_stack([frame.detections.ravel(), frame.truth.ravel()]), axis=0
        )
        assert len(pairs) == len(np.unique(frame.truth)) == frame.detections.max() + 1


@pytest.mark.parametrize(
    ("fault", "sign"),
    [("missed", -1), ("over_segmentation", 1), ("under_segmentation", -1)],
)
def test_faults_happen_at_their_rate(fault, sign):
    settings = settings_of(
        "tissue",
        frames=20,
        cells=80,
        density=0.6,
        regularity=0.5,
        **(NO_FAULTS | {fault: 0.1}),
    )
    frames = list(simulate(settings))
    cells = np.array([len(np.unique(frame.truth)) - 1 for frame in frames])
    found = np.array([frame.detections.max() for frame in frames])
    rate = sign * (found - cells).sum() / cells.sum()
    # each cell touches at most a few others, so that the share of pairs bounds that of cells
    assert 0.07 < rate < 0.13 if fault != "under_segmentation" else 0.02 < rate < 0.35


def test_fused_cells_stay_so_for_some_frames():
    settings = settings_of(
        "tissue",
        frames=12,
        cells=60,
        current=0.0,
        flow=0.0,
        speed=0.3,
        density=0.6,
        regularity=0.5,
        **(NO_FAULTS | {"under_segmentation": 0.1}),
    )
    fused = []
    for frame in simulate(settings):
        pairs = np.unique(
            np.column_stack([frame.detections.ravel(), frame.truth.ravel()]), axis=0
        )
        pairs = pairs[(pairs > 0).all(axis=1)]
        fused.append(
            {
                tuple(pairs[pairs[:, 0] == k, 1])
                for k in pairs[:, 0]
                if (pairs[:, 0] == k).sum() > 1
            }
        )
    again = sum(len(a & b) for a, b in pairwise(fused))
    assert again > 0.25 * sum(map(len, fused[:-1]))


def test_a_colony_expands_and_its_rods_do_not_overlap():
    settings = RodSettings(frames=25, cells=60, jitter=0.0, shake=0.0)
    colony = Colony(settings, np.random.default_rng(0))
    spread = []
    for _ in range(settings.frames):
        colony.step()
        spread.append(colony.cells.position.std(axis=0).max())
    cells = colony.cells
    assert len(cells) > 25
    assert spread[-1] > 1.4 * spread[len(spread) // 2]
    worst = 0.0
    for i in range(len(cells)):
        for j in range(i):
            s, t = _closest_points(
                cells.position[i],
                cells.axis[i],
                cells.length[i] / 2,
                cells.position[j],
                cells.axis[j],
                cells.length[j] / 2,
            )
            apart = (
                cells.position[i]
                + s * cells.axis[i]
                - cells.position[j]
                - t * cells.axis[j]
            )
            worst = max(worst, 2 * settings.radius - np.linalg.norm(apart))
    assert worst < 0.5 * settings.radius


def test_a_colony_ends_however_fast_or_slowly_it_grows():
    slow = Colony(
        RodSettings(cells=20, frames=2, doubling=1e9), np.random.default_rng(0)
    )
    assert 20 <= len(slow.cells) < 40
    fast = Colony(
        RodSettings(cells=10, frames=500, doubling=2.0, density=0.5),
        np.random.default_rng(0),
    )
    counts = []
    for _ in range(30):
        fast.step()
        counts.append(len(fast.cells))
    assert counts[-1] < 300
    assert max(counts[-5:]) < 1.3 * min(counts[-5:]), (
        "as many are washed away as are born"
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_closest_points_of_segments_are_those_of_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.uniform(-3, 3, (2, 2))
    angle, turn = rng.uniform(0, 7), rng.choice([0.0, 1e-4, rng.uniform(0, 7)])
    u, v = (np.array([np.sin(a), np.cos(a)]) for a in (angle, angle + turn))
    half, other = rng.uniform(0, 3, 2)
    s, t = _closest_points(p, u, half, q, v, other)
    assert abs(s) <= half + 1e-12
    assert abs(t) <= other + 1e-12
    on_one = p + np.linspace(-half, half, 401)[:, None] * u
    on_other = q + np.linspace(-other, other, 401)[:, None] * v
    best = np.sqrt(((on_one[:, None] - on_other[None]) ** 2).sum(axis=2)).min()
    assert np.linalg.norm(p + s * u - q - t * v) == pytest.approx(best, abs=0.02)


def test_daughters_of_a_rod_lie_where_she_lay_along_her_axis():
    settings = RodSettings(frames=20, cells=30, shake=0.0, jitter=0.0, **NO_FAULTS)
    simulation = simulate(settings)
    frames, tracks = list(simulation), simulation.tracks
    shares = []
    for mother in np.unique(tracks.parent[tracks.parent > 0]):
        t = int(tracks.end[tracks.id == mother][0])
        inside = frames[t].truth == mother
        pair = np.isin(frames[t + 1].truth, tracks.id[tracks.parent == mother])
        if inside.sum() > settings.size / 2:
            shares.append((inside & pair).sum() / inside.sum())
    assert len(shares) > 5
    assert np.median(shares) > 0.6


def test_tissue_moves_together():
    ways = moves(
        list(
            simulate(
                TissueSettings(
                    frames=4, cells=80, flow=0.0, speed=1.0, unsteadiness=0.0
                )
            )
        )
    )
    assert np.linalg.norm(ways.mean(axis=0)) == pytest.approx(10, abs=1.5)
    assert np.median(np.linalg.norm(ways - np.median(ways, axis=0), axis=1)) < 4


def test_the_flow_of_a_tissue_is_periodic_has_its_strength_and_no_sources():
    settings = TissueSettings(cells=50, current=0.0, flow=5.0)
    tissue = Tissue(settings, np.random.default_rng(0))
    places = tissue.low + tissue.size * np.random.default_rng(1).random((4000, 2))
    flow = tissue.flow(places)
    np.testing.assert_allclose(flow, tissue.flow(places + tissue.size), atol=1e-9)
    assert np.sqrt((flow**2).sum(axis=1).mean()) == pytest.approx(5, rel=0.15)
    step = 1e-4
    divergence = sum(
        (
            tissue.flow(places + step * unit)[:, k]
            - tissue.flow(places - step * unit)[:, k]
        )
        / (2 * step)
        for k, unit in enumerate(np.eye(2))
    )
    assert np.abs(divergence).max() < 1e-5


def test_flat_cells_round_up_and_shine_before_they_divide():
    settings = settings_of(
        "flat", frames=40, cells=60, cycle=30.0, noise=0.0, rounding=1.0, **NO_FAULTS
    )
    simulation = simulate(settings)
    frames, tracks = list(simulation), simulation.tracks
    last, others = [], []
    for frame in frames:
        for label, box in enumerate(ndimage.find_objects(frame.truth), start=1):
            inside = box and all(
                side.start > 0 and side.stop < n
                for side, n in zip(box, settings.shape, strict=True)
            )
            mask = frame.truth[box] == label if inside else np.zeros(1)
            if np.count_nonzero(mask) > 20:
                values = np.linalg.eigvalsh(np.cov(np.argwhere(mask).T))
                ready = (tracks.parent == label).any() and tracks.end[
                    tracks.id == label
                ][0] == frame.index
                (last if ready else others).append(
                    (np.sqrt(values[1] / values[0]), frame.image[box][mask].mean())
                )
    (aspect, light), (usual, usual_light) = (
        np.median(last, axis=0),
        np.median(others, axis=0),
    )
    assert len(last) > 5
    assert aspect < 1.4 < usual
    assert light > 1.2 * usual_light


def test_an_embryo_divides_in_rounds_until_it_has_its_cells():
    settings = settings_of("embryo", frames=40, cells=32, cycle=12.0, asynchrony=0.3)
    simulation = simulate(settings)
    *_, last = simulation
    tracks = simulation.tracks
    births = tracks.begin[tracks.parent > 0]
    frames, counts = np.unique(births, return_counts=True)
    assert 25 <= len(np.unique(last.truth)) - 1 <= 40
    rounds = np.split(frames, np.flatnonzero(np.diff(frames) > 5) + 1)
    assert len(rounds) == 3, "rounds of divisions, with quiet between them"
    assert all(np.ptp(part) <= 4 for part in rounds)
    assert counts.sum() == len(births)


@pytest.mark.parametrize("kind", ["embryo", "flat", "tissue"])
def test_long_movies_do_not_fill_up(kind):
    settings = settings_of(kind, frames=400, cells=12, cycle=10.0)
    rngs = map(np.random.default_rng, range(3))
    scene = make_scene(settings, *rngs)
    counts = []
    for _ in range(150):
        scene.step()
        counts.append(len(scene.cells))
    assert max(counts[100:]) < 1.6 * min(counts[100:])
    pixels = scene.count_visible_pixels()
    assert 6 <= np.count_nonzero(pixels > settings.min_pixels) < 60


def test_sparse_cells_go_far_and_never_divide():
    settings = settings_of("sparse", frames=15, cells=20, resting=0.0)
    simulation = simulate(settings)
    ways = np.linalg.norm(moves(list(simulation)), axis=1)
    assert not simulation.tracks.parent.any()
    assert np.median(ways) == pytest.approx(settings.speed, rel=0.35)


def test_a_jump_of_the_stage_moves_all_cells_alike():
    settings = settings_of(
        "nuclei", frames=6, cells=20, stage_jumps=1.0, jump_size=1.5, speed=0.5
    )
    frames = list(simulate(settings))
    far = []
    for before, after in pairwise(frames):
        ways = moves([before, after])
        far.append(np.linalg.norm(np.median(ways, axis=0)))
        assert np.median(np.linalg.norm(ways - np.median(ways, axis=0), axis=1)) < 3
    assert max(far) > 1.5 * settings.radius


def test_a_missing_frame_is_time_that_passes():
    quick = moves(
        list(
            simulate(
                NucleiSettings(frames=8, cells=20, missing_frames=0.8, persistence=0.0)
            )
        )
    )
    usual = moves(list(simulate(NucleiSettings(frames=8, cells=20, persistence=0.0))))
    assert np.median(np.linalg.norm(quick, axis=1)) > 1.4 * np.median(
        np.linalg.norm(usual, axis=1)
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_settings_of_a_kind_survive_json(kind):
    settings = random_settings(kind, 3, frames=2, cells=5)
    assert settings_of(kind, **json.loads(json.dumps(settings.as_dict()))) == settings


@pytest.mark.parametrize("kind", BODIES)
def test_a_wrong_setting_of_a_kind_is_named(kind):
    for name, (_, most, *_) in KINDS[kind].settings.ranges.items():
        for bad in [float("nan"), "many", None, *([1e300] if most < np.inf else [])]:
            with pytest.raises(InputError) as raised:
                settings_of(kind, **{name: bad})
            assert str(raised.value).startswith(f"{name}: must be"), (name, bad)


def test_an_unknown_kind_is_named():
    with pytest.raises(InputError, match="expected one of nuclei, rods"):
        settings_of("beans")
