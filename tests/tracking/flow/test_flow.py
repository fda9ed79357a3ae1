"""The flow: collective motion, jumps, growth and rotation are followed; cells on their own are left as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.simulation.simulate import settings_of, simulate
from clew.tracking.detections import Detections, DetectionTable
from clew.tracking.flow.flow import estimate_flow, jump, moved
from clew.tracking.flow.motion import estimate_motion
from clew.tracking.flow.registration import (
    Registration,
    RegistrationSettings,
    mutual_nearest,
)
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie

NOISE = 0.1
"""Of each cell's own movement, in units of the grid on which the cells sit."""


def detections(positions):
    return Detections(0, np.arange(1, len(positions) + 1), positions, {})


def jittered_grid(ndim, rng, side):
    """Cells one apart, roughly."""
    grid = np.stack(
        np.meshgrid(*[np.arange(side)] * ndim, indexing="ij"), axis=-1
    ).reshape(-1, ndim)
    return grid + rng.uniform(-0.25, 0.25, grid.shape)


def share_right(x, y, keep, shift):
    """The share of the cells that are still there whose nearest in the next frame is themselves."""
    ahead, behind = mutual_nearest(x + shift, y)
    return (keep[behind] == ahead).sum() / len(keep)


def about_the_middle(matrix):
    return lambda x: (x - x.mean(axis=0)) @ (matrix - np.eye(len(matrix)))


TURN = np.array([[np.cos(0.08), -np.sin(0.08)], [np.sin(0.08), np.cos(0.08)]])
FLOWS = {
    "drift of half a spacing": (2, lambda x: np.full_like(x, 0.4)),
    "drift in 3D": (3, lambda x: np.full_like(x, 0.35)),
    "stage jump": (2, lambda x: np.full_like(x, 4.3)),
    "stage jump in 3D": (3, lambda x: np.full_like(x, 2.4)),
    "shear": (
        2,
        lambda x: np.column_stack([0.6 * np.sin(x[:, 1] / 4), np.zeros(len(x))]),
    ),
    "growth": (2, about_the_middle(1.12 * np.eye(2))),
    "rotation": (2, about_the_middle(TURN)),
}


@pytest.mark.parametrize("name", FLOWS)
def test_cells_are_found_again(name):
    ndim, flow = FLOWS[name]
    rng = np.random.default_rng(5)
    x = jittered_grid(ndim, rng, 11 if ndim == 2 else 5)
    keep = np.flatnonzero(rng.random(len(x)) > 0.05)  # one in twenty is missed
    y = (x + flow(x) + rng.normal(scale=NOISE, size=x.shape))[keep]
    shift = estimate_flow(detections(x), detections(y)).shift
    assert share_right(x, y, keep, shift) > 0.97
    assert np.median(np.linalg.norm(shift - flow(x), axis=1)) < 1.5 * NOISE


@pytest.mark.parametrize(
    "name", ["drift of half a spacing", "stage jump", "shear", "growth", "rotation"]
)
def test_without_the_flow_they_are_not(name):
    """So that the test above shows something."""
    _, flow = FLOWS[name]
    rng = np.random.default_rng(5)
    x = jittered_grid(2, rng, 11)
    y = x + flow(x) + rng.normal(scale=NOISE, size=x.shape)
    assert share_right(x, y, np.arange(len(x)), 0 * x) < 0.9


def movie(step, frames=8, side=8, seed=0):
    """A table of cells that all take `step(x, rng)` from frame to frame."""
    rng = np.random.default_rng(seed)
    x = jittered_grid(2, rng, side)
    positions = [x]
    for _ in range(frames - 1):
        positions.append(positions[-1] + step(positions[-1], rng))
    frame, label = (
        np.repeat(np.arange(frames), len(x)),
        np.tile(np.arange(1, len(x) + 1), frames),
    )
    return DetectionTable(frame, label, np.concatenate(positions))


def test_a_movie_whose_cells_move_on_their_own_is_left_as_it_is():
    source = movie(lambda x, rng: rng.normal(scale=0.1, size=x.shape))
    motion = estimate_motion(source)
    assert not motion.follows_flow
    assert motion.shift(source.detections(0), source.detections(1)) is None
    assert motion.usual == pytest.approx(
        0.1 * 1.18, rel=0.15
    )  # the median of a Rayleigh distribution


def test_a_movie_that_flows_is_followed_and_measured_relative_to_the_flow():
    source = movie(lambda x, rng: 0.5 + rng.normal(scale=0.05, size=x.shape))
    motion = estimate_motion(source)
    assert motion.follows_flow
    assert motion.usual < 0.1  # not 0.7
    shift = motion.shift(source.detections(0), source.detections(1))
    assert np.median(np.abs(shift - 0.5)) < 0.05


def test_a_jump_of_tissue_that_flows_besides_is_followed():
    """Its vote is no clearer than chance, for cells differ in their ways by a third of the spacing."""
    labels = np.stack(
        [
            frame.truth
            for frame in simulate(settings_of("tissue", seed=5, frames=2, drift=30.0))
        ]
    )
    source = measure_movie(Movie.from_arrays(labels), cache=None, n_jobs=1)
    a, b = source.detections(0), source.detections(1)
    assert not jump(a, b).any()
    _, keep, behind = np.intersect1d(
        a.label, b.label, return_indices=True
    )  # the truth's labels are tracks
    assert (
        share_right(a.position, b.position[behind], keep, estimate_flow(a, b).shift)
        > 0.8
    )


def test_one_jump_in_a_movie_without_flow_is_followed():
    jumps = iter([0, 0, 0, 3.3, 0, 0, 0])
    source = movie(lambda x, rng: next(jumps) + rng.normal(scale=0.05, size=x.shape))
    motion = estimate_motion(source)
    assert not motion.follows_flow
    at = [
        motion.shift(source.detections(t), source.detections(t + 1)) for t in range(7)
    ]
    assert [shift is not None for shift in at] == [False] * 3 + [True] + [False] * 3
    assert np.median(np.abs(at[3] - 3.3)) < 0.1


@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(0, 6))
def test_few_cells_and_empty_frames_have_a_flow_of_their_own_shape(seed, n, m):
    rng = np.random.default_rng(seed)
    a, b = detections(rng.random((n, 2))), detections(rng.random((m, 2)))
    shift = estimate_flow(a, b).shift
    assert shift.shape == (n, 2)
    assert np.isfinite(shift).all()


def test_cells_in_one_place_are_no_trouble():
    a = detections(np.zeros((6, 2)))
    assert np.isfinite(estimate_flow(a, a).shift).all()
    assert not jump(a, a).any()


def test_moved_cells_keep_all_but_their_place():
    a = detections(np.arange(6.0).reshape(3, 2))
    assert moved(a, None) is a
    there = moved(a, np.ones((3, 2)))
    assert (there.position == a.position + 1).all()
    assert (there.label == a.label).all()


TURNS = {
    "upside down": np.diag([-1.0, 1.0]),
    "mirrored": np.diag([1.0, -1.0]),
    "transposed": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "turned": np.array([[0.6, -0.8], [0.8, 0.6]]),
}


@pytest.mark.parametrize("name", TURNS)
def test_the_flow_turns_with_the_frame(name):
    """In whatever order the cells are numbered."""
    turn = TURNS[name]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 10, (60, 2))
        waves = np.column_stack([np.sin(x[:, 1] / 1.5), np.cos(x[:, 0] / 1.5)])
        y = (x + waves + rng.normal(scale=0.3, size=x.shape))[rng.permutation(60)]
        order = rng.permutation(60)
        found = estimate_flow(detections(x), detections(y)).shift
        turned = estimate_flow(
            detections((x @ turn)[order]), detections(y @ turn)
        ).shift
        np.testing.assert_allclose(turned, (found @ turn)[order], atol=1e-6)


def test_the_flow_follows_the_unit():
    """Lengths ten times as large give a flow ten times as large."""
    rng = np.random.default_rng(1)
    x = jittered_grid(2, rng, 9)
    y = x + 0.4 + rng.normal(scale=NOISE, size=x.shape)
    small, large = (
        estimate_flow(detections(unit * x), detections(unit * y)).shift
        for unit in (1, 10)
    )
    np.testing.assert_allclose(large, 10 * small, rtol=1e-6, atol=1e-6)


def test_cells_are_known_again_by_their_looks_where_places_tell_too_little():
    rng = np.random.default_rng(3)
    x = jittered_grid(2, rng, 12)
    y = x + rng.normal(scale=0.45, size=x.shape)
    tone = np.exp(0.5 * rng.standard_normal(len(x)))
    a, b = (
        Detections(t, np.arange(1, len(p) + 1), p, {"intensity": tone})
        for t, p in enumerate((x, y))
    )
    by_place = Registration.of(x, y, RegistrationSettings())
    by_looks = by_place.by_looks_too(a, b, np.zeros_like(x))
    right = [
        np.equal(*points.links(np.zeros_like(x))).sum() / len(x)
        for points in (by_place, by_looks)
    ]
    assert right[1] > right[0] + 0.1


def test_looks_that_change_at_random_do_no_harm():
    rng = np.random.default_rng(4)
    x = jittered_grid(2, rng, 10)
    y = x + 0.4 + rng.normal(scale=NOISE, size=x.shape)
    frames = [
        Detections(
            t,
            np.arange(1, len(p) + 1),
            p,
            {"intensity": rng.random(len(x)), "volume": np.ones(len(x))},
        )
        for t, p in enumerate((x, y))
    ]
    assert share_right(x, y, np.arange(len(x)), estimate_flow(*frames).shift) > 0.97


def test_two_halves_that_move_against_each_other_are_told_apart():
    """By nearly half a spacing each, so that from rest many cells are nearer to another."""
    rng = np.random.default_rng(5)
    x = jittered_grid(2, rng, 10)
    left = x[:, 0] < x[:, 0].mean()
    true = np.where(left[:, None], [0.0, 0.45], [0.0, -0.45])
    y = x + true + rng.normal(scale=NOISE / 2, size=x.shape)
    found = Registration.of(x, y, RegistrationSettings()).labelled(np.zeros_like(x))
    inside = (
        np.abs(x[:, 0] - x[:, 0].mean()) > 2
    )  # at the border between them either may fit
    nearest = np.linalg.norm(x[:, None] - y[None], axis=2).argmin(axis=1)
    assert (nearest == np.arange(len(x)))[inside].mean() < 0.9
    assert np.abs(found - true)[inside].max() < 0.2


def test_what_is_expected_decides_where_two_flows_fit_equally_well():
    """A perfect lattice that moved by half a spacing: it may have gone either way."""
    x = np.stack(
        np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    right, left = (np.tile([0.0, way], (len(x), 1)) for way in (0.5, -0.5))
    points = Registration.of(
        x, np.concatenate([x + right, x[::9] + left[::9]]), RegistrationSettings()
    )
    for way in (right, left):
        np.testing.assert_allclose(
            points.labelled(np.zeros_like(x), way, 0.5), way, atol=0.05
        )
    beyond = points.labelled(
        np.zeros_like(x), right + 20.0, 0.5
    )  # a jump was expected, and is nowhere to be seen
    assert (np.linalg.norm(beyond, axis=1) < 2).all()


def test_a_cell_of_which_it_is_known_where_it_went_tells_of_those_around_it():
    """Half a spacing to either side is as near, and more cells are seen on the wrong one."""
    x = np.stack(
        np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    right, left = (np.tile([0.0, way], (len(x), 1)) for way in (0.5, -0.5))
    y = np.concatenate([x + right, x[::9] + left[::9]])
    a, b = detections(x), detections(y)
    free = estimate_flow(a, b).shift
    other = left if np.median(free[:, 1]) > 0 else right
    cells = np.flatnonzero((x % 3 == 1).all(axis=1))  # nine of them
    known = np.full(len(x), -1)
    known[cells] = [
        np.linalg.norm(y - place, axis=1).argmin() for place in (x + other)[cells]
    ]
    told = estimate_flow(a, b, known=known).shift
    around = np.linalg.norm(x[:, None] - x[cells], axis=2).min(axis=1) <= 1
    assert (np.sign(told[around, 1]) == np.sign(other[0, 1])).mean() > 0.9
    assert (np.sign(free[around, 1]) == np.sign(other[0, 1])).mean() < 0.1


def test_what_is_known_of_a_cell_no_other_cell_takes():
    rng = np.random.default_rng(2)
    x = jittered_grid(2, rng, 6)
    known = np.full(len(x), -1)
    known[[3, 20]] = 20, 3
    points = Registration.of(x, x, RegistrationSettings(), known)
    ahead, behind = points.links(np.zeros_like(x))
    partner = dict(zip(ahead.tolist(), behind.tolist(), strict=True))
    assert (partner[3], partner[20]) == (20, 3)
    assert len(set(behind.tolist())) == len(behind)


def test_some_cells_vote_for_all():
    from clew.tracking.flow.displacement_vote import around_middle
    from clew.tracking.flow.flow import FlowSettings

    rng = np.random.default_rng(7)
    x = jittered_grid(2, rng, 24)
    y = x + 3.3 + rng.normal(scale=NOISE, size=x.shape)
    some, others = around_middle(x, y, 300)
    assert len(some) == 300
    assert 0 < len(others) < len(y)
    few = FlowSettings(voters=300)
    np.testing.assert_allclose(jump(detections(x), detections(y), few), 3.3, atol=0.3)
    shift = estimate_flow(detections(x), detections(y), few).shift
    assert share_right(x, y, np.arange(len(x)), shift) > 0.97


@pytest.mark.parametrize(("ndim", "side", "way"), [(2, 15, 3.3), (3, 7, 1.6)])
def test_clumps_far_apart_ask_for_no_more_memory_than_others(ndim, side, way):
    """Bins as wide as cells are near, over all that lies between the clumps, would have been 10¹⁸ and more."""
    rng = np.random.default_rng(3)
    clump = jittered_grid(ndim, rng, side)
    for away in (1e5, 1e9):
        x = np.concatenate([clump, clump[:10] + away])
        y = x + way + rng.normal(scale=NOISE, size=x.shape)
        np.testing.assert_allclose(jump(detections(x), detections(y)), way, atol=0.3)
        assert (
            share_right(
                x,
                y,
                np.arange(len(x)),
                estimate_flow(detections(x), detections(y)).shift,
            )
            > 0.9
        )


def test_cells_that_are_all_as_far_from_the_middle_one_can_be_too_far_apart_to_vote():
    """A box around the middle one holds all of them or a few, never about half."""
    edge = np.array(
        [[1e9, 1e9 * k / 8 + near] for k in range(-7, 8) for near in (0.0, 0.3)]
    )
    x = np.concatenate([edge, -edge, 0.3 * np.eye(2), np.zeros((4, 2))])
    assert not jump(detections(x), detections(x + 1e8)).any()


def matern(first, second, length):
    r = np.sqrt(5) * np.linalg.norm(first[:, None] - second[None], axis=2) / length
    return (1 + r + r**2 / 3) * np.exp(-r)


def kriged_value(points, shift, i, ahead, behind):
    """The flow at cell i as its definition says: the mean of a Gaussian process, given the displacements around it."""
    settings, x = points.settings, points.x
    step = dict(zip(ahead.tolist(), points.y[behind] - x[ahead], strict=True))
    used = [j for j in points.around[i].tolist() if j != i and j in step][
        : settings.neighbours
    ]
    d = np.array([step[j] for j in used])
    noise = settings.nuggets[0] * (
        1 + ((d - shift[used]) ** 2).sum(axis=1) / (settings.near * points.spacing) ** 2
    )
    length, ones = settings.length * points.spacing, np.ones((len(used), 1))
    among, onto = (
        matern(x[used], x[used], length) + np.diag(noise),
        matern(x[used], x[[i]], length),
    )
    # weights with the least variance that sum to 1, by Lagrange's multiplier
    system = np.block([[among, ones], [ones.T, np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(onto, 1.0))[:-1] @ d


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_pass_foretells_each_cell_from_those_around_it(ndim):
    rng = np.random.default_rng(7)
    x = jittered_grid(ndim, rng, 9 if ndim == 2 else 5)
    points = Registration.of(
        x, x + 0.3 + rng.normal(scale=NOISE, size=x.shape), RegistrationSettings()
    )
    shift = np.full_like(x, 0.2)
    expected = [
        kriged_value(points, shift, i, *points.links(shift)) for i in range(len(x))
    ]
    np.testing.assert_allclose(points.refined(shift, 1), expected, rtol=1e-9)


def wave(x, length):
    return 0.5 * np.sin(2 * np.pi * x[:, ::-1] / length)


def test_waves_a_few_cells_long_are_followed():
    """Neighbours part by half a spacing there, and a local affine map would be off by a quarter of it."""
    rng = np.random.default_rng(3)
    x = jittered_grid(2, rng, 12)
    flow = wave(x, 6.0)
    shift = estimate_flow(
        detections(x), detections(x + flow + rng.normal(scale=NOISE / 2, size=x.shape))
    ).shift
    inside = (np.abs(x - x.mean(axis=0)) < 4.5).all(axis=1)
    assert np.median(np.linalg.norm(shift - flow, axis=1)[inside]) < 0.12


def test_a_flow_is_as_smooth_as_its_links_say():
    rng = np.random.default_rng(4)
    x = jittered_grid(2, rng, 12)
    noise = 2 * NOISE * rng.normal(size=x.shape)
    for y, true in ((x + noise, np.zeros_like(x)), (x + wave(x, 6.0), wave(x, 6.0))):
        points = Registration.of(x, y, RegistrationSettings())
        bent = points.refined(true, 1)
        off, bent_off = (
            np.linalg.norm(flow - true, axis=1).mean()
            for flow in (points.smoothed(bent), bent)
        )
        assert (
            off < (1.1 if true.any() else 0.9) * bent_off
        )  # noise is averaged out, and waves are left


def test_a_flow_must_bring_cells_significantly_nearer_to_others():
    rng = np.random.default_rng(0)
    x = jittered_grid(2, rng, 8)
    rest, jumped = np.zeros_like(x), np.full_like(x, 3.3)
    points = Registration.of(
        x, x + jumped + rng.normal(scale=NOISE, size=x.shape), RegistrationSettings()
    )
    assert points.fits_better(jumped, rest, 0.05)
    assert not points.fits_better(rest, jumped, 0.05)
    assert not points.fits_better(rest, rest, 0.05)
    few = Registration.of(
        x[:4], (x + rng.normal(scale=0.5, size=x.shape))[:4], RegistrationSettings()
    )
    elsewhere = few.labelled(rest[:4])
    assert not few.fits_better(elsewhere, rest[:4], 1e-4)  # four cells tell little


def test_rods_that_divide_at_once_are_not_carried_away(clew_data):
    """Every second frame of a colony: where 42 rods become 61, another flow brought them nearer to others by chance."""
    source = measure_movie(open_movie(clew_data / "bacteria/01"), cache=None, n_jobs=1)
    for frame in range(26, source.n_frames - 2, 2):
        a, b = source.detections(frame), source.detections(frame + 2)
        _, before, after = np.intersect1d(
            a.label, b.label, return_indices=True
        )  # these masks are tracked
        way = b.position[after] - a.position[before]
        off = way - estimate_flow(a, b).shift[before]
        assert np.median(np.linalg.norm(off, axis=1)) < 1.5 * np.median(
            np.linalg.norm(way, axis=1)
        )
