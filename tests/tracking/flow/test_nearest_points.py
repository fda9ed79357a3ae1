"""Nearest points by sweep and by tree, against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.flow import nearest_points
from clew.tracking.flow.nearest_points import NearestPoints


def distances(x, y):
    return np.linalg.norm(x[:, None] - y[None], axis=2)


@pytest.mark.parametrize("few", [0, nearest_points.MAX_SWEEP_POINTS])
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    k=st.integers(1, 5),
)
def test_nearest_match_brute_force(few, seed, n, m, k):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k))
    y = rng.normal(size=(m, k))
    whole = distances(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_points, "MAX_SWEEP_POINTS", few)
        points = NearestPoints.from_points(y)
        distance, row = points.query(x)
        mutual = points.query_mutual(x)
    np.testing.assert_array_equal(row, whole.argmin(axis=1))
    np.testing.assert_allclose(distance, whole.min(axis=1))
    nearest = whole.argmin(axis=1)
    np.testing.assert_array_equal(
        mutual, np.where(whole.argmin(axis=0)[nearest] == np.arange(n), nearest, -1)
    )


def test_nearest_of_points_on_a_line_across_the_sweep():
    y = np.column_stack([np.zeros(50), np.repeat(np.arange(25.0), 2)])
    distance, row = NearestPoints.from_points(y).query(y + np.array([0.0, 0.1]))
    np.testing.assert_allclose(distance, 0.1)
    np.testing.assert_array_equal(y[row], y)
