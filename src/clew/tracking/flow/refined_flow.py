"""Flows that the predicted events of a frame pair suggest.

The registration links each cell to the nearest one after the flow. The events of a
lineage are better links: a mother goes to the middle of her daughters, and no cell is
taken twice. Flow and events are estimated in turns, as by expectation-maximization.
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Mask
from clew.tracking.flow.displacement_vote import MIN_CELLS
from clew.tracking.flow.registration import Registration, is_significantly_positive

AFFINE_PASSES = 10
"""Reweighted least squares converge within a few passes."""
RIDGE = 1e-6
"""Relative to the variance of the positions."""


def propose_flows(position: Array, displacement: Array, shift: Array) -> list[Array]:
    """Propose flows for the displacements of linked cells.

    One follows the cells around each cell, by kriging. The other is one affine map for
    all cells: a colony that grows moves apart like this, and so does a field whose
    focus or magnification drifts. It is right, too, where half of the links are wrong.

    Parameters
    ----------
    position : ndarray of shape (n, ndim)
        Cells of the first frame.
    displacement : ndarray of shape (n, ndim)
        Of each cell by its event; NaN for cells without.
    shift : ndarray of shape (n, ndim)
        The flow so far.

    Returns
    -------
    list of ndarray of shape (n, ndim)
        Empty if too few cells are linked.
    """
    is_linked = np.isfinite(displacement[:, 0])
    n_coefficients = position.shape[1] + 1
    if is_linked.sum() < max(MIN_CELLS, 2 * n_coefficients):
        return []
    end = position + np.where(is_linked[:, None], displacement, shift)
    partner = np.where(is_linked, np.arange(len(position)), -1)
    kriged = Registration.from_positions(position, end).smooth_flow(shift, partner)
    return [kriged, fit_affine_flow(position, displacement, is_linked)]


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
