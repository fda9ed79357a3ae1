"""Registration follows collective motion, jumps, growth and rotation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.simulation.simulate import settings_of, simulate
from clew.tracking.detections import Detections, DetectionTable
from clew.tracking.flow.displacement_vote import (
    VoteSettings,
    crop_around_middle,
    detect_jump,
)
from clew.tracking.flow.flow import (
    estimate_flow,
    fit_affine_flow,
    match_moments,
    predicts_better,
    propose_flows,
    shift_detections,
)
from clew.tracking.flow.motion import estimate_motion
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.flow.registration import (
    MAX_STRAIN,
    Registration,
    RegistrationSettings,
    measure_strain,
    register_frames,
)
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie

NOISE = 0.1
"""Of each cell's own movement, in units of the grid on which the cells sit."""


ONE_PASS = RegistrationSettings(max_icp_passes=1)


def detections(positions):
    return Detections(0, np.arange(1, len(positions) + 1), positions, {})


def jittered_grid(ndim, rng, side):
    """Cells one apart, roughly."""
    grid = np.stack(
        np.meshgrid(*[np.arange(side)] * ndim, indexing="ij"), axis=-1
    ).reshape(-1, ndim)
    return grid + rng.uniform(-0.25, 0.25, grid.shape)


def share_right(x, y, keep, shift):
    """Share of the kept cells that are linked to themselves after a shift."""
    source, target = find_mutual_nearest(x + shift, y)
    return (keep[target] == source).sum() / len(keep)


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
def test_flow_finds_cells_again(name):
    ndim, flow = FLOWS[name]
    rng = np.random.default_rng(5)
    x = jittered_grid(ndim, rng, 11 if ndim == 2 else 5)
    keep = np.flatnonzero(rng.random(len(x)) > 0.05)  # one in twenty is missed
    y = (x + flow(x) + rng.normal(scale=NOISE, size=x.shape))[keep]
    shift = register_frames(detections(x), detections(y)).shift
    assert share_right(x, y, keep, shift) > 0.97
    assert np.median(np.linalg.norm(shift - flow(x), axis=1)) < 1.5 * NOISE


@pytest.mark.parametrize(
    "name", ["drift of half a spacing", "stage jump", "shear", "growth", "rotation"]
)
def test_cells_without_flow_are_not_found_again(name):
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
    frame = np.repeat(np.arange(frames), len(x))
    label = np.tile(np.arange(1, len(x) + 1), frames)
    return DetectionTable(frame, label, np.concatenate(positions))


def test_motion_of_independent_cells_has_no_flow():
    source = movie(lambda x, rng: rng.normal(scale=0.1, size=x.shape))
    motion = estimate_motion(source)
    assert not motion.follows_flow
    assert (
        estimate_flow(source.detections(0), source.detections(1), motion).shift is None
    )
    assert motion.median_step == pytest.approx(
        0.1 * 1.18, rel=0.15
    )  # the median of a Rayleigh distribution


def test_motion_of_flowing_cells_is_relative_to_the_flow():
    source = movie(lambda x, rng: 0.5 + rng.normal(scale=0.05, size=x.shape))
    motion = estimate_motion(source)
    assert motion.follows_flow
    assert motion.median_step < 0.1  # not 0.7
    shift = estimate_flow(source.detections(0), source.detections(1), motion).shift
    assert np.median(np.abs(shift - 0.5)) < 0.05


def test_jump_of_flowing_tissue_is_followed():
    """The vote alone is not significant: steps differ by a third of the spacing."""
    labels = np.stack(
        [
            frame.truth
            for frame in simulate(settings_of("tissue", seed=5, frames=2, drift=30.0))
        ]
    )
    source = measure_movie(Movie.from_arrays(labels), cache=None, n_jobs=1)
    a = source.detections(0)
    b = source.detections(1)
    assert not detect_jump(a, b).any()
    # labels of the truth are tracks
    _, keep, after = np.intersect1d(a.label, b.label, return_indices=True)
    shift = register_frames(a, b).shift
    assert share_right(a.position, b.position[after], keep, shift) > 0.8


def test_jump_in_a_movie_without_flow_is_followed():
    jumps = iter([0, 0, 0, 3.3, 0, 0, 0])
    source = movie(lambda x, rng: next(jumps) + rng.normal(scale=0.05, size=x.shape))
    motion = estimate_motion(source)
    assert not motion.follows_flow
    at = [
        estimate_flow(source.detections(t), source.detections(t + 1), motion).shift
        for t in range(7)
    ]
    assert [shift is not None for shift in at] == [False] * 3 + [True] + [False] * 3
    assert np.median(np.abs(at[3] - 3.3)) < 0.1


@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(0, 6))
def test_flow_of_few_cells_is_finite(seed, n, m):
    rng = np.random.default_rng(seed)
    a = detections(rng.random((n, 2)))
    b = detections(rng.random((m, 2)))
    shift = register_frames(a, b).shift
    assert shift.shape == (n, 2)
    assert np.isfinite(shift).all()


def test_flow_of_coincident_cells_is_finite():
    a = detections(np.zeros((6, 2)))
    assert np.isfinite(register_frames(a, a).shift).all()
    assert not detect_jump(a, a).any()


def test_shift_changes_only_positions():
    a = detections(np.arange(6.0).reshape(3, 2))
    assert shift_detections(a, None) is a
    there = shift_detections(a, np.ones((3, 2)))
    assert (there.position == a.position + 1).all()
    assert (there.label == a.label).all()


TURNS = {
    "upside down": np.diag([-1.0, 1.0]),
    "mirrored": np.diag([1.0, -1.0]),
    "transposed": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "turned": np.array([[0.6, -0.8], [0.8, 0.6]]),
}


@pytest.mark.parametrize("name", TURNS)
def test_flow_turns_with_the_frame(name):
    """In whatever order the cells are numbered."""
    turn = TURNS[name]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 10, (60, 2))
        waves = np.column_stack([np.sin(x[:, 1] / 1.5), np.cos(x[:, 0] / 1.5)])
        y = (x + waves + rng.normal(scale=0.3, size=x.shape))[rng.permutation(60)]
        order = rng.permutation(60)
        found = register_frames(detections(x), detections(y)).shift
        turned = register_frames(
            detections((x @ turn)[order]), detections(y @ turn)
        ).shift
        np.testing.assert_allclose(turned, (found @ turn)[order], atol=1e-6)


def test_flow_scales_with_the_unit():
    """Lengths ten times as large give a flow ten times as large."""
    rng = np.random.default_rng(1)
    x = jittered_grid(2, rng, 9)
    y = x + 0.4 + rng.normal(scale=NOISE, size=x.shape)
    small, large = (
        register_frames(detections(unit * x), detections(unit * y)).shift
        for unit in (1, 10)
    )
    np.testing.assert_allclose(large, 10 * small, rtol=1e-6, atol=1e-6)


def test_appearance_helps_where_cells_move_far():
    rng = np.random.default_rng(3)
    x = jittered_grid(2, rng, 12)
    y = x + rng.normal(scale=0.45, size=x.shape)
    tone = np.exp(0.5 * rng.standard_normal(len(x)))
    a, b = (
        Detections(t, np.arange(1, len(p) + 1), p, {"intensity": tone})
        for t, p in enumerate((x, y))
    )
    by_place = Registration.from_positions(x, y)
    by_looks = by_place.with_appearance(a, b, np.zeros_like(x))
    right = [
        np.equal(*points.matcher.find_links(np.zeros_like(x))).sum() / len(x)
        for points in (by_place, by_looks)
    ]
    assert right[1] > right[0] + 0.1


def test_appearance_that_changes_at_random_does_no_harm():
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
    assert share_right(x, y, np.arange(len(x)), register_frames(*frames).shift) > 0.97


def test_mrf_separates_halves_that_move_in_opposite_directions():
    """By nearly half a spacing each: from rest, many cells are nearer to another."""
    rng = np.random.default_rng(5)
    x = jittered_grid(2, rng, 10)
    left = x[:, 0] < x[:, 0].mean()
    true = np.where(left[:, None], [0.0, 0.45], [0.0, -0.45])
    y = x + true + rng.normal(scale=NOISE / 2, size=x.shape)
    found = Registration.from_positions(x, y).initialize_flow(np.zeros_like(x))
    # at the border between the halves either may fit
    inside = np.abs(x[:, 0] - x[:, 0].mean()) > 2
    nearest = np.linalg.norm(x[:, None] - y[None], axis=2).argmin(axis=1)
    assert (nearest == np.arange(len(x)))[inside].mean() < 0.9
    assert np.abs(found - true)[inside].max() < 0.2


def test_expected_flow_decides_between_equal_fits():
    """A perfect lattice that moved by half a spacing: it may have gone either way."""
    x = np.stack(
        np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    right, left = (np.tile([0.0, way], (len(x), 1)) for way in (0.5, -0.5))
    points = Registration.from_positions(
        x, np.concatenate([x + right, x[::9] + left[::9]])
    )
    for way in (right, left):
        np.testing.assert_allclose(
            points.initialize_flow(np.zeros_like(x), way, 0.5), way, atol=0.05
        )
    beyond = points.initialize_flow(
        np.zeros_like(x), right + 20.0, 0.5
    )  # a jump was expected, and is nowhere to be seen
    assert (np.linalg.norm(beyond, axis=1) < 2).all()


def test_known_links_correct_the_flow_around_them():
    """Both sides are equally near, and more cells lie on the wrong one."""
    x = np.stack(
        np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    right, left = (np.tile([0.0, way], (len(x), 1)) for way in (0.5, -0.5))
    y = np.concatenate([x + right, x[::9] + left[::9]])
    a = detections(x)
    b = detections(y)
    free = register_frames(a, b).shift
    other = left if np.median(free[:, 1]) > 0 else right
    cells = np.flatnonzero((x % 3 == 1).all(axis=1))  # nine of them
    known = np.full(len(x), -1)
    known[cells] = [
        np.linalg.norm(y - place, axis=1).argmin() for place in (x + other)[cells]
    ]
    told = register_frames(a, b, known=known).shift
    around = np.linalg.norm(x[:, None] - x[cells], axis=2).min(axis=1) <= 1
    assert (np.sign(told[around, 1]) == np.sign(other[0, 1])).mean() > 0.9
    assert (np.sign(free[around, 1]) == np.sign(other[0, 1])).mean() < 0.1


def test_known_targets_are_linked_once():
    rng = np.random.default_rng(2)
    x = jittered_grid(2, rng, 6)
    known = np.full(len(x), -1)
    known[[3, 20]] = 20, 3
    points = Registration.from_positions(x, x, known)
    source, target = points.matcher.find_links(np.zeros_like(x))
    partner = dict(zip(source.tolist(), target.tolist(), strict=True))
    assert (partner[3], partner[20]) == (20, 3)
    assert len(set(target.tolist())) == len(target)


def test_vote_of_cells_around_the_middle_suffices():
    rng = np.random.default_rng(7)
    x = jittered_grid(2, rng, 24)
    y = x + 3.3 + rng.normal(scale=NOISE, size=x.shape)
    some, others = crop_around_middle(x, y, 300)
    assert len(some) == 300
    assert 0 < len(others) < len(y)
    few = VoteSettings(max_voters=300)
    np.testing.assert_allclose(
        detect_jump(detections(x), detections(y), few), 3.3, atol=0.3
    )
    shift = register_frames(detections(x), detections(y), vote_settings=few).shift
    assert share_right(x, y, np.arange(len(x)), shift) > 0.97


@pytest.mark.parametrize(("ndim", "side", "way"), [(2, 15, 3.3), (3, 7, 1.6)])
def test_vote_of_distant_clumps_is_bounded_in_memory(ndim, side, way):
    """Bins over all that lies between the clumps would be 10¹⁸ and more."""
    rng = np.random.default_rng(3)
    clump = jittered_grid(ndim, rng, side)
    for away in (1e5, 1e9):
        x = np.concatenate([clump, clump[:10] + away])
        y = x + way + rng.normal(scale=NOISE, size=x.shape)
        np.testing.assert_allclose(
            detect_jump(detections(x), detections(y)), way, atol=0.3
        )
        assert (
            share_right(
                x,
                y,
                np.arange(len(x)),
                register_frames(detections(x), detections(y)).shift,
            )
            > 0.9
        )


def test_vote_is_skipped_if_cells_are_too_far_apart():
    """A box around the middle one holds all of them or a few, never about half."""
    edge = np.array(
        [[1e9, 1e9 * k / 8 + near] for k in range(-7, 8) for near in (0.0, 0.3)]
    )
    x = np.concatenate([edge, -edge, 0.3 * np.eye(2), np.zeros((4, 2))])
    assert not detect_jump(detections(x), detections(x + 1e8)).any()


def matern(first, second, length):
    r = np.sqrt(5) * np.linalg.norm(first[:, None] - second[None], axis=2) / length
    return (1 + r + r**2 / 3) * np.exp(-r)


def kriged_value(points, shift, i, source, target):
    """Flow at cell i by definition: the mean of a Gaussian process given its neighbors."""
    settings = points.settings
    x = points.matcher.x
    step = dict(zip(source.tolist(), points.matcher.y[target] - x[source], strict=True))
    used = [j for j in points.around[i].tolist() if j != i and j in step][
        : settings.n_neighbors
    ]
    d = np.array([step[j] for j in used])
    error = ((d - shift[used]) ** 2).sum(axis=1)
    doubt = error / (settings.link_error * points.spacing) ** 2
    noise = settings.nuggets[0] * (1 + doubt)
    length = settings.length * points.spacing
    ones = np.ones((len(used), 1))
    among = matern(x[used], x[used], length) + np.diag(noise)
    onto = matern(x[used], x[[i]], length)
    # weights of least variance that sum to 1, by a Lagrange multiplier
    system = np.block([[among, ones], [ones.T, np.zeros((1, 1))]])
    return np.linalg.solve(system, np.append(onto, 1.0))[:-1] @ d


@pytest.mark.parametrize("ndim", [2, 3])
def test_icp_pass_is_kriging(ndim):
    rng = np.random.default_rng(7)
    x = jittered_grid(ndim, rng, 9 if ndim == 2 else 5)
    y = x + 0.3 + rng.normal(scale=NOISE, size=x.shape)
    points = Registration.from_positions(x, y, settings=ONE_PASS)
    shift = np.full_like(x, 0.2)
    expected = [
        kriged_value(points, shift, i, *points.matcher.find_links(shift))
        for i in range(len(x))
    ]
    np.testing.assert_allclose(points.run_icp(shift), expected, rtol=1e-9)


def wave(x, length):
    return 0.5 * np.sin(2 * np.pi * x[:, ::-1] / length)


def test_flow_follows_short_waves():
    """Neighbors part by half a spacing; a local affine map would be off by a quarter."""
    rng = np.random.default_rng(3)
    x = jittered_grid(2, rng, 12)
    flow = wave(x, 6.0)
    shift = register_frames(
        detections(x), detections(x + flow + rng.normal(scale=NOISE / 2, size=x.shape))
    ).shift
    inside = (np.abs(x - x.mean(axis=0)) < 4.5).all(axis=1)
    assert np.median(np.linalg.norm(shift - flow, axis=1)[inside]) < 0.12


def test_smoothing_averages_noise_and_keeps_waves():
    rng = np.random.default_rng(4)
    x = jittered_grid(2, rng, 12)
    noise = 2 * NOISE * rng.normal(size=x.shape)
    for y, true in ((x + noise, np.zeros_like(x)), (x + wave(x, 6.0), wave(x, 6.0))):
        points = Registration.from_positions(x, y, settings=ONE_PASS)
        bent = points.run_icp(true)
        smooth_error = np.linalg.norm(points.smooth_flow(bent) - true, axis=1).mean()
        bent_error = np.linalg.norm(bent - true, axis=1).mean()
        assert smooth_error < (1.1 if true.any() else 0.9) * bent_error


def test_better_fit_must_be_significant():
    rng = np.random.default_rng(0)
    x = jittered_grid(2, rng, 8)
    rest = np.zeros_like(x)
    jumped = np.full_like(x, 3.3)
    points = Registration.from_positions(
        x, x + jumped + rng.normal(scale=NOISE, size=x.shape)
    )
    assert points.fits_better(jumped, rest)
    assert not points.fits_better(rest, jumped)
    assert not points.fits_better(rest, rest)
    y = (x + rng.normal(scale=0.5, size=x.shape))[:4]
    strict = RegistrationSettings(level=1e-4)
    few = Registration.from_positions(x[:4], y, settings=strict)
    assert not few.fits_better(few.initialize_flow(rest[:4]), rest[:4])


def test_flow_of_rods_that_divide_at_once_stays_small(clew_data):
    """Where 42 rods become 61, another flow brought them nearer to others by chance."""
    source = measure_movie(open_movie(clew_data / "bacteria/01"), cache=None, n_jobs=1)
    for frame in range(26, source.n_frames - 2, 2):
        a = source.detections(frame)
        b = source.detections(frame + 2)
        # these masks are tracked
        _, before, after = np.intersect1d(a.label, b.label, return_indices=True)
        step = b.position[after] - a.position[before]
        error = step - register_frames(a, b).shift[before]
        typical_step = np.median(np.linalg.norm(step, axis=1))
        assert np.median(np.linalg.norm(error, axis=1)) < 1.5 * typical_step


def detect(*frames) -> list[Detections]:
    """Detections at the positions of each frame."""
    frame = np.repeat(np.arange(len(frames)), list(map(len, frames)))
    label = np.concatenate([1 + np.arange(len(one)) for one in frames])
    table = DetectionTable(frame, label, np.concatenate(frames))
    return [table.detections(t) for t in range(len(frames))]


def growing_colony(n=60, ndim=2, seed=0):
    """Positions, and displacements by an affine map."""
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 100, (n, ndim))
    spread = 0.2 * np.eye(ndim) + rng.normal(scale=0.05, size=(ndim, ndim))
    return position, (position - 50) @ spread + rng.normal(size=ndim)


@pytest.mark.parametrize("ndim", [2, 3])
def test_affine_flow_is_found_though_a_third_of_the_links_is_wrong(ndim):
    position, displacement = growing_colony(ndim=ndim)
    rng = np.random.default_rng(1)
    links = displacement + rng.normal(scale=0.01, size=displacement.shape)
    links[:20] += rng.normal(scale=10, size=(20, ndim))
    links[20:25] = np.nan
    found = fit_affine_flow(position, links, np.isfinite(links[:, 0]))
    np.testing.assert_allclose(found, displacement, atol=0.05)


def test_affine_flow_of_cells_on_a_line_or_in_one_place_is_finite():
    line = np.column_stack([np.arange(20.0), np.zeros(20)])
    displacement = 0.1 * line + [0, 1]
    is_linked = np.ones(20, dtype=bool)
    found = fit_affine_flow(line, displacement, is_linked)
    np.testing.assert_allclose(found, displacement, atol=1e-3)
    found = fit_affine_flow(np.zeros((20, 2)), displacement, is_linked)
    assert np.isfinite(found).all()


def test_all_flows_predict_a_colony():
    position, displacement = growing_colony()
    kriged, affine = propose_flows(position, displacement, np.zeros_like(position))
    moments = match_moments(*detect(position, position + displacement))
    size = np.median(np.linalg.norm(displacement, axis=1))
    assert np.median(np.linalg.norm(kriged - displacement, axis=1)) < 0.15 * size
    np.testing.assert_allclose(affine, displacement, atol=1e-3)
    assert np.median(np.linalg.norm(moments - displacement, axis=1)) < 0.3 * size


@pytest.mark.parametrize("ndim", [2, 3])
def test_strain_of_a_growing_colony_is_its_growth(ndim):
    rng = np.random.default_rng(3)
    position = rng.uniform(0, 100, (60, ndim))
    assert measure_strain(position, np.full_like(position, 7.0)) == 0
    growth = measure_strain(position, 0.2 * position)
    # cells nearer than half the median spacing count as that far apart
    assert 0.9 * 0.2**2 < growth <= 0.2**2 + 1e-12
    assert measure_strain(1e-3 * position, 2e-4 * position) == pytest.approx(growth)


def test_strain_of_independent_cells_is_bounded():
    rng = np.random.default_rng(3)
    position = rng.uniform(0, 1, (60, 2))
    strain = measure_strain(position, 1e6 * rng.normal(size=(60, 2)))
    assert strain == pytest.approx(MAX_STRAIN**2)
    assert measure_strain(np.zeros((20, 2)), rng.normal(size=(20, 2))) == 0
    assert measure_strain(position[:1], position[:1]) == 0


@pytest.mark.parametrize("ndim", [2, 3])
def test_matched_moments_are_those_of_the_next_frame(ndim):
    position, displacement = growing_colony(ndim=ndim)
    after = np.delete(position + displacement, [3, 7, 20], axis=0)
    shift = match_moments(*detect(position, after))
    moved = position + shift
    np.testing.assert_allclose(moved.mean(axis=0), after.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(np.cov(moved.T), np.cov(after.T), rtol=1e-3, atol=1e-3)


def test_growth_is_found_without_links():
    position, _ = growing_colony()
    center = position.mean(axis=0)
    after = center + 1.5 * (position - center) + [3, -1]
    shift = match_moments(*detect(position, after[::-1]))
    np.testing.assert_allclose(position + shift, after, atol=1e-3)


@pytest.mark.parametrize("scale", [[1, 0], [0, 0]])
def test_moments_of_cells_on_a_line_or_in_one_place_are_finite(scale):
    position, displacement = growing_colony()
    flat = position * scale
    assert np.isfinite(match_moments(*detect(flat, position + displacement))).all()
    assert np.isfinite(match_moments(*detect(position, flat))).all()


def test_few_links_propose_nothing():
    position, displacement = growing_colony()
    displacement[5:] = np.nan
    assert propose_flows(position, displacement, np.zeros_like(position)) == []


def test_a_flow_is_better_if_it_predicts_the_links_and_not_by_chance():
    position, displacement = growing_colony()
    at_rest = np.zeros_like(position)
    assert predicts_better(displacement, displacement, at_rest)
    assert not predicts_better(displacement, at_rest, displacement)
    assert not predicts_better(displacement, at_rest, at_rest)
    noise = np.random.default_rng(2).normal(size=position.shape)
    assert not predicts_better(noise, -0.1 * noise, at_rest)
