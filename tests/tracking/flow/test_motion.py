"""Motion: persistence is estimated and used, and so is the previous flow."""

from dataclasses import replace

import numpy as np
import pytest

from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import Detections, DetectionTable
from clew.tracking.flow.flow import estimate_flow
from clew.tracking.flow.motion import Motion, estimate_motion
from clew.tracking.flow.registration import Links, register_frames
from clew.tracking.profile import estimate_profile

DRIFT = 0.5


def movie(persistence, scale=0.08, frames=10, side=9, seed=0, drift=lambda x: DRIFT):
    """Cells on a jittered grid that drift; the rest is an autoregressive process."""
    rng = np.random.default_rng(seed)
    grid = np.stack(
        np.meshgrid(*[np.arange(float(side))] * 2, indexing="ij"), axis=-1
    ).reshape(-1, 2)
    positions = [grid + rng.uniform(-0.25, 0.25, grid.shape)]
    own = rng.normal(scale=scale, size=grid.shape)
    for _ in range(frames - 1):
        positions.append(positions[-1] + drift(positions[-1]) + own)
        own = persistence * own + rng.normal(
            scale=scale * np.sqrt(1 - persistence**2), size=own.shape
        )
    n = len(grid)
    return DetectionTable(
        np.repeat(np.arange(frames), n),
        np.tile(np.arange(1, n + 1), frames),
        np.concatenate(positions),
    )


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9])
def test_persistence_is_estimated(persistence):
    motion = estimate_motion(movie(persistence))
    assert motion.follows_flow
    assert motion.persistence == pytest.approx(persistence, abs=0.12)


def still(x):
    """No flow."""
    return 0.0


def test_persistence_without_flow_is_used_if_it_explains_enough():
    source = movie(0.9, drift=still)
    motion = estimate_motion(source)
    assert not motion.follows_flow
    assert motion.persistence == pytest.approx(0.9, abs=0.12)
    assert (
        np.median([errors(motion, source, t, with_previous=True) for t in range(1, 9)])
        < 0.7 * motion.median_step
    )
    hardly = estimate_motion(
        movie(0.3, drift=still)
    )  # which leaves nine tenths of the squares
    assert not hardly.follows_flow
    assert hardly.persistence == 0


def test_persistence_of_two_frames_is_zero():
    for drift in (still, lambda x: DRIFT):
        motion = estimate_motion(movie(0.9, frames=2, drift=drift))
        assert motion.persistence == 0


def test_jump_of_the_stage_does_not_persist():
    source = movie(0.9, drift=still)
    before, a, b = map(source.detections, range(3))
    motion = estimate_motion(source)
    assert predict_shift(motion, a, b) is None
    assert predict_shift(motion, a, b, before) is not None
    assert (
        predict_shift(motion, a, b, replace(before, position=before.position + 3.4))
        is None
    )


def test_few_cells_persist_too():
    """With fewer cells than make a flow, their looks are not asked."""
    n = 3
    frames = 12
    way = np.array([[0.6, 0.0], [-0.6, 0.1], [0.0, 0.6]])
    places = np.array([[0.0, 0.0], [20.0, 0.0], [40.0, 0.0]])
    position = np.concatenate([places + t * way for t in range(frames)])
    source = DetectionTable(
        np.repeat(np.arange(frames), n), np.tile(np.arange(1, n + 1), frames), position
    )
    motion = estimate_motion(source)
    assert motion.persistence == pytest.approx(1.0)
    a = source.detections(5)
    b = source.detections(6)
    assert predict_shift(motion, a, b, source.detections(4)) == pytest.approx(
        way, rel=0.2
    )


def test_cells_that_all_move_alike_have_no_persistence():
    source = movie(0.0, scale=0.0)
    motion = estimate_motion(source)
    assert motion.follows_flow
    assert motion.median_step == pytest.approx(0, abs=1e-9)
    a = source.detections(1)
    b = source.detections(2)
    assert predict_shift(
        Motion(True, 0.0, 0.0), a, b, source.detections(0)
    ) == pytest.approx(DRIFT)
    assert predict_shift(motion, a, b, source.detections(0)) == pytest.approx(
        DRIFT, abs=1e-6
    )


def predict_shift(motion, source, target, before=None):
    """Displacements expected with or without the frame before."""
    previous = None if before is None else estimate_flow(before, source, motion)
    return estimate_flow(source, target, motion, previous).shift


def errors(motion, movie, t, with_previous=False):
    """How far cells are from where they are expected."""
    source = movie.detections(t)
    target = movie.detections(t + 1)
    before = movie.detections(t - 1) if with_previous else None
    shift = predict_shift(motion, source, target, before)
    return np.linalg.norm(target.position - source.position - shift, axis=1)


def test_previous_flow_predicts_persistent_cells_better():
    source = movie(0.9)
    motion = estimate_motion(source)
    without = np.median([errors(motion, source, t) for t in range(1, 9)])
    assert (
        np.median([errors(motion, source, t, with_previous=True) for t in range(1, 9)])
        < 0.7 * without
    )


def test_previous_flow_does_no_harm_without_persistence():
    source = movie(0.0)
    motion = estimate_motion(source)
    without = np.median([errors(motion, source, t) for t in range(1, 9)])
    assert (
        np.median([errors(motion, source, t, with_previous=True) for t in range(1, 9)])
        < 1.1 * without
    )


def test_previous_flow_decides_between_equal_fits():
    """A perfect grid moves by half a spacing, to either side; before, it moved less."""
    grid = np.stack(
        np.meshgrid(np.arange(-3.0, 12.0), np.arange(9.0), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    ways = [0.35, 0.6]
    positions = [grid + np.array([way, 0.0]) for way in np.cumsum([0.0, *ways])]
    inside = [
        (x[:, 0] > -0.5) & (x[:, 0] < 8.5) for x in positions
    ]  # cells enter and leave the field
    labels = [np.arange(1, len(grid) + 1)[kept] for kept in inside]
    frames = np.repeat(np.arange(3), [len(label) for label in labels])
    seen = np.concatenate([x[kept] for x, kept in zip(positions, inside, strict=True)])
    source = DetectionTable(frames, np.concatenate(labels), seen)
    before, a, b = map(source.detections, range(3))
    alone = register_frames(a, b).shift[:, 0]
    assert np.median(alone) == pytest.approx(-0.4, abs=0.05)  # the nearest there are
    found = predict_shift(Motion(True, 0.1, 0.2, 0.0), a, b, before)
    assert np.median(found[:, 0]) == pytest.approx(ways[1], abs=0.05)


def test_pairs_depend_on_the_previous_frame_if_cells_persist():
    flowing, alone = (
        FramePairBuilder(
            movie(0.3, drift=drift),
            estimate_profile(movie(0.3, drift=drift), frozenset()),
        )
        for drift in (lambda x: DRIFT, still)
    )
    assert alone.pairs_using([0, 5]) == [0, 4, 5]
    for going_on in (
        flowing,
        FramePairBuilder(
            movie(0.9, drift=still),
            estimate_profile(movie(0.9, drift=still), frozenset()),
        ),
    ):
        assert going_on.pairs_using([0, 5]) == [0, 1, 4, 5, 6]
        assert going_on.pairs_using([9]) == [8]
        whole = going_on.build(5)
        part = going_on.window(5, 6).build(5)  # reads the frame that it needs
        np.testing.assert_array_equal(part.features.toarray(), whole.features.toarray())


def test_persistent_step_discounts_outliers():
    source = movie(0.9)
    motion = Motion(True, 0.1, 0.2, 1.0)
    a = source.detections(0)
    b = source.detections(1)
    links = register_frames(a, b).links
    step = motion.predict_persistent_step(links, b)
    assert (
        np.linalg.norm(step, axis=1) <= 0.5 * 3 * motion.median_step + 1e-9
    ).all()  # the most that r / (1 + r²) comes to
    rows = np.setdiff1d(np.arange(len(b)), links.target)
    assert not step[rows].any()


def test_cells_that_stream_through_each_other_persist_without_flow():
    rng = np.random.default_rng(0)
    n = 60
    frames = 12
    start = rng.uniform(0, 12, (n, 2))
    way = np.column_stack([np.zeros(n), rng.choice([-0.4, 0.4], n)])
    places = [
        (start + t * way + rng.normal(scale=0.03, size=start.shape))
        for t in range(frames)
    ]
    source = DetectionTable(
        np.repeat(np.arange(frames), n),
        np.tile(np.arange(1, n + 1), frames),
        np.vstack(places),
    )
    motion = estimate_motion(source)
    assert not motion.follows_flow
    assert motion.persistence > 0.7


def test_swapped_cells_do_not_persist():
    """A step as long as the way to the next cell may lead from that cell."""
    position = np.array([[0.0, 0.0], [0.0, 3.0], [0.0, 40.0]])
    cells = Detections(1, np.arange(1, 4), position, {})
    step = np.array([[0.0, 3.0], [0.0, -3.0], [0.0, 3.0]])
    rows = np.arange(3)
    links = Links(rows, rows, step, np.zeros((3, 2)))
    motion = Motion(False, 3.0, 6.0, persistence=1.0)
    predicted = motion.predict_persistent_step(links, cells)
    assert not predicted[:2].any()
    assert predicted[2, 1] > 2
