"""Flows that events suggest: affine maps, kriging, and the test between two flows."""

import numpy as np
import pytest

from clew.tracking.detections import Detections, DetectionTable
from clew.tracking.flow.refined_flow import (
    fit_affine_flow,
    match_moments,
    predicts_better,
    propose_flows,
)


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
    cells = detect(position, position + displacement)
    at_rest = np.zeros_like(position)
    kriged, affine, moments = propose_flows(*cells, displacement, at_rest)
    size = np.median(np.linalg.norm(displacement, axis=1))
    assert np.median(np.linalg.norm(kriged - displacement, axis=1)) < 0.15 * size
    np.testing.assert_allclose(affine, displacement, atol=1e-3)
    assert np.median(np.linalg.norm(moments - displacement, axis=1)) < 0.3 * size


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
    cells = detect(position, position + displacement)
    displacement[5:] = np.nan
    assert propose_flows(*cells, displacement, np.zeros_like(position)) == []


def test_a_flow_is_better_if_it_predicts_the_links_and_not_by_chance():
    position, displacement = growing_colony()
    at_rest = np.zeros_like(position)
    assert predicts_better(displacement, displacement, at_rest)
    assert not predicts_better(displacement, at_rest, displacement)
    assert not predicts_better(displacement, at_rest, at_rest)
    noise = np.random.default_rng(2).normal(size=position.shape)
    assert not predicts_better(noise, -0.1 * noise, at_rest)
