"""Flows to be compared by the score of the events that they lead to.

The registration links each cell to the nearest one after the flow. The events of a
lineage are better links: a mother goes to the middle of her daughters, and no cell is
taken twice. Flow and events are estimated in turns, as by expectation-maximization.
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Mask
from clew.tracking.detections import Detections
from clew.tracking.flow.displacement_vote import MIN_CELLS
from clew.tracking.flow.registration import Registration, is_significantly_positive

AFFINE_PASSES = 10
"""Reweighted least squares converge within a few passes."""
RIDGE = 1e-6
"""Relative to the variance of the positions."""


def propose_flows(
    source: Detections, target: Detections, displacement: Array, shift: Array
) -> list[Array]:
    """Propose flows between two frames, given the displacements of linked cells.

    One follows the cells around each cell, by kriging. One is an affine map for all
    cells: a colony that grows moves apart like this. One is an affine map that needs
    no links, since most are wrong after long steps.

    Parameters
    ----------
    source, target : Detections
        The first and the second frame.
    displacement : ndarray of shape (n, ndim)
        Of each cell by its event; NaN for cells without.
    shift : ndarray of shape (n, ndim)
        The flow so far.

    Returns
    -------
    list of ndarray of shape (n, ndim)
        Empty if there are too few cells or links.
    """
    position = source.position
    is_linked = np.isfinite(displacement[:, 0])
    least = max(MIN_CELLS, 2 * (position.shape[1] + 1))
    if min(np.count_nonzero(is_linked), len(target)) < least:
        return []
    end = position + np.where(is_linked[:, None], displacement, shift)
    partner = np.where(is_linked, np.arange(len(position)), -1)
    kriged = Registration.from_positions(position, end).smooth_flow(shift, partner)
    affine = fit_affine_flow(position, displacement, is_linked)
    return [kriged, affine, match_moments(source, target)]


def match_moments(source: Detections, target: Detections) -> Array:
    """Map the mean and the covariance of all positions to those of the next frame.

    Cells count by their volume, which divisions hardly change. Of all affine maps that
    do so, this is the one that moves least, if the positions are normal.

    Returns
    -------
    ndarray of shape (n, ndim)
        The displacement of every cell of the first frame by this map.
    """
    (mean, root), (next_mean, next_root) = map(_measure_moments, (source, target))
    # optimal transport between normal distributions (Olkin & Pukelsheim 1982)
    inverse = np.linalg.inv(root)
    matrix = inverse @ _take_root(root @ next_root @ next_root @ root) @ inverse
    centered = source.position - mean
    return np.asarray(centered @ matrix + next_mean - source.position)


def _measure_moments(cells: Detections) -> tuple[Array, Array]:
    """Mean, and root of the covariance, of the positions."""
    position = cells.position
    weight = cells.columns.get("volume", np.ones(len(cells)))
    mean = np.average(position, axis=0, weights=weight)
    covariance = np.cov(position.T, aweights=weight)
    ndim = position.shape[1]
    ridge = RIDGE * np.trace(covariance) / ndim + np.finfo(float).tiny
    return mean, _take_root(covariance + ridge * np.eye(ndim))


def _take_root(matrix: Array) -> Array:
    """The symmetric root of a positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


def fit_affine_flow(position: Array, displacement: Array, is_linked: Mask) -> Array:
    """Fit an affine map to the displacements of linked cells, outliers aside.

    Errors count by the Cauchy likelihood, whose scale is their median (iteratively
    reweighted least squares, Holland & Welsch 1977).

    Returns
    -------
    ndarray of shape (n, ndim)
        The displacement of every cell by this map.
    """
    centered = position - position.mean(axis=0)
    columns = np.column_stack([np.ones(len(position)), centered])
    # cells on a line determine no map across it: a little ridge does
    ridge = np.diag(
        [0.0, *(np.full(position.shape[1], RIDGE * centered.var() + 1e-12))]
    )
    x = columns[is_linked]
    y = displacement[is_linked]
    weight = np.ones(len(x))
    for _ in range(AFFINE_PASSES):
        weighted = x.T * weight
        coefficients = np.linalg.solve(weighted @ x + len(x) * ridge, weighted @ y)
        error = np.linalg.norm(y - x @ coefficients, axis=1)
        scale = np.median(error)
        if scale == 0:
            break
        weight = 1 / (1 + (error / scale) ** 2)
    return np.asarray(columns @ coefficients)


def predicts_better(displacement: Array, other: Array, shift: Array) -> bool:
    """Whether another flow predicts the linked cells better (paired t-test).

    A kriged flow predicts each cell by those around it, without the cell itself.

    Parameters
    ----------
    displacement : ndarray of shape (n, ndim)
        NaN for cells without a link.
    other, shift : ndarray of shape (n, ndim)
    """
    is_linked = np.isfinite(displacement[:, 0])
    linked = displacement[is_linked]
    gain = np.linalg.norm(linked - shift[is_linked], axis=1)
    gain = gain - np.linalg.norm(linked - other[is_linked], axis=1)
    return is_significantly_positive(gain)
