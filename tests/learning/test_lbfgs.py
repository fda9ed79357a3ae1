"""L-BFGS: minima of functions whose minimum is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from clew.learning.lbfgs import Point, minimize_smooth


def minimize(function, gradient, start, tol=1e-8, limit=500):
    def evaluate(w):
        return float(function(w)), np.asarray(gradient(w))

    def is_flat(point):
        return np.linalg.norm(point.gradient) <= tol

    return minimize_smooth(evaluate, Point(start, *evaluate(start)), is_flat, limit)


def test_minimum_of_the_rosenbrock_function_is_found():
    point = minimize(rosen, rosen_der, np.array([-1.2, 1.0]))
    np.testing.assert_allclose(point.w, 1.0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_units_of_the_objective_do_not_matter(scale):
    """Single precision would overflow or underflow without normalized corrections."""
    curvature = np.geomspace(1.0, 1e3, 40) * scale
    point = minimize(
        lambda w: 0.5 * curvature @ (w - 1.0) ** 2,
        lambda w: curvature * (w - 1.0),
        np.zeros(40),
        tol=1e-6 * scale,
    )
    np.testing.assert_allclose(point.w, 1.0, atol=1e-5)


def test_flat_start_is_returned():
    point = minimize(rosen, rosen_der, np.ones(3))
    np.testing.assert_array_equal(point.w, 1.0)
