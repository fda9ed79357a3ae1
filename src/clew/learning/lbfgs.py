"""L-BFGS with short corrections in single precision, for millions of weights.

SciPy's implementation has bounds on the variables and double precision; with a hundred
thousand weights it spends more time on its corrections than on the objective.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, dot

N_CORRECTIONS = 14
MAX_HALVINGS = 40
SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
MIN_COSINE = 1e-6
"""Smallest cosine of a step and its change of the gradient, for single precision."""

Single = NDArray[np.float32]
Objective = Callable[[Array], tuple[float, Array]]
"""Returns the value and the gradient."""


class Point(NamedTuple):
    """Weights with the objective and its gradient there."""

    w: Array
    value: float
    gradient: Array


class Correction(NamedTuple):
    """A step and the change of the gradient along it, both of length 1."""

    step: Single
    change: Single
    product: float
    """Their inner product."""
    ratio: float
    """Length of the step over that of the change."""


def minimize_smooth(
    objective: Objective,
    start: Point,
    is_done: Callable[[Point], bool],
    max_iterations: int,
) -> Point:
    """Minimize a smooth function (Liu & Nocedal 1989).

    Parameters
    ----------
    objective : callable
    start : Point
    is_done : callable
        Called after each iteration; True ends the search.
    max_iterations : int

    Returns
    -------
    point : Point
        The last one: at the limit, or where rounding prevents any descent, `is_done` may
        be false.
    """
    corrections: deque[Correction] = deque(maxlen=N_CORRECTIONS)
    point = start
    for _ in range(max_iterations):
        direction = _find_direction(point.gradient, corrections)
        slope = float(dot(point.gradient, direction))
        if corrections and not slope < 0:
            corrections.clear()
            direction = _find_direction(point.gradient, corrections)
            slope = float(dot(point.gradient, direction))
        reached = _search_line(objective, point, direction, slope)
        if reached is None:
            if not corrections:
                break
            corrections.clear()
            continue
        _add_correction(corrections, point, reached)
        point = reached
        if is_done(point):
            break
    return point


def _find_direction(gradient: Array, corrections: deque[Correction]) -> Array:
    """Return minus the inverse Hessian's estimate times the gradient."""
    length = float(np.sqrt(dot(gradient, gradient)))
    if length == 0:
        return np.zeros_like(gradient)
    if not corrections:
        return -gradient / length
    q = (gradient / length).astype(np.float32)
    factors = []
    for correction in reversed(corrections):
        factor = np.float32(np.dot(correction.step, q) / correction.product)
        q -= factor * correction.change
        factors.append(factor)
    newest = corrections[-1]
    q *= np.float32(newest.product)
    for correction, factor in zip(corrections, reversed(factors), strict=True):
        back = np.dot(correction.change, q) / correction.product
        ahead = factor * correction.ratio / newest.ratio
        q += np.float32(ahead - back) * correction.step
    return -length * newest.ratio * q.astype(np.float64)


def _search_line(
    objective: Objective, point: Point, direction: Array, slope: float
) -> Point | None:
    """Bisect to a step with the weak Wolfe conditions; None if no step descends."""
    rounding = 1e-14 * (1.0 + abs(point.value))
    shortest = 0.0
    longest = np.inf
    step = 1.0
    best = None
    for _ in range(MAX_HALVINGS):
        w = point.w + step * direction
        if best is None and np.array_equal(w, point.w):
            return None
        value, gradient = objective(w)
        if not value <= point.value + SUFFICIENT_DECREASE * step * slope + rounding:
            longest = step
        else:
            best = Point(w, value, gradient)
            if not float(dot(gradient, direction)) < CURVATURE * slope:
                return best
            shortest = step
        step = 2 * step if longest == np.inf else (shortest + longest) / 2
    return best


def _add_correction(
    corrections: deque[Correction], point: Point, reached: Point
) -> None:
    """Store the newest step where the function is convex along it."""
    step = reached.w - point.w
    change = reached.gradient - point.gradient
    step_length = float(np.sqrt(dot(step, step)))
    change_length = float(np.sqrt(dot(change, change)))
    if step_length == 0 or change_length == 0:
        return
    product = float(dot(step, change)) / (step_length * change_length)
    if product > MIN_COSINE:
        corrections.append(
            Correction(
                (step / step_length).astype(np.float32),
                (change / change_length).astype(np.float32),
                product,
                step_length / change_length,
            )
        )
