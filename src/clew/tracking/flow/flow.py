"""The flow: how far each cell is expected to move from one frame to the next.

Neighbors move together in tissue and colonies, and all cells do when the stage drifts
or jumps. What distinguishes a cell is its motion relative to its surroundings. Hence
positions, masks and reach are taken relative to the flow, which is estimated without
any truth:

- from two frames by registration (`registration.py`);
- with the flow of the previous frame pair, if there is one: flows change little, and
  the motion of cells relative to the flow persists (`motion.py`);
- in movies without flow, only jumps of the whole frame are followed; between them,
  cells may persist.

A flow can be refined by the events that it leads to. The registration links each cell to
the nearest one after the flow. The events of a lineage are better links: a mother goes
to the middle of her daughters, and no cell is taken twice. Flow and events are
estimated in turns, as by expectation-maximization.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import Detections
from clew.tracking.flow.displacement_vote import MIN_CELLS, detect_jump
from clew.tracking.flow.motion import Motion
from clew.tracking.flow.nearest_points import NearestPoints
from clew.tracking.flow.registration import (
    PairwiseFlow,
    Registration,
    is_significantly_positive,
    link_resting_cells,
    register_frames,
)

AFFINE_PASSES = 10
"""Reweighted least squares converge within a few passes."""
RIDGE = 1e-6
"""Relative to the variance of the positions."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Expected displacements from one frame to the next."""

    shift: Array | None
    """(n, ndim) for each cell of the first frame, in physical units; None where cells
    are expected to stay."""
    pairwise: PairwiseFlow | None
    """What the next frame pair is predicted from; None if it does not depend on it."""


def estimate_flow(
    source: Detections,
    target: Detections,
    motion: Motion,
    previous: Flow | None = None,
    known: Indices | None = None,
) -> Flow:
    """Estimate the flow between two consecutive frames.

    Parameters
    ----------
    source, target : Detections
        The first and the second frame.
    motion : Motion
        How the cells of the movie move.
    previous : Flow, optional
        From the frame before to `source`, if there is one. It may have been estimated
        without a previous one itself.
    known : ndarray of shape (n,), optional
        Annotated rows in the second frame, -1 for cells without. They correct the flow
        around these cells if the movie has a flow.

    Returns
    -------
    Flow
    """
    before = None if previous is None else previous.pairwise
    shift: Array | None = None
    if motion.follows_flow:
        pairwise = register_frames(source, target, known)
        shift = pairwise.shift
        if before is not None:
            shift = estimate_flow_with_previous(
                source, target, motion, before, pairwise, known
            )
        return Flow(shift, pairwise)
    if detect_jump(source, target).any():
        return Flow(register_frames(source, target).shift, None)
    if before is not None:
        shift = motion.predict_persistent_step(before.links, source)
    if motion.persistence == 0:
        return Flow(shift, None)
    at_rest = np.zeros_like(source.position)
    links = link_resting_cells(source, target)
    return Flow(shift, PairwiseFlow(source.position, at_rest, links))


def estimate_flow_with_previous(
    source: Detections,
    target: Detections,
    motion: Motion,
    previous: PairwiseFlow,
    pairwise: PairwiseFlow,
    known: Indices | None = None,
) -> Array:
    """Estimate the displacement of each cell with the flow of the previous frame pair.

    Each cell repeats a share of its last step relative to the flow; the flow is what
    cells have in common beyond that. It is expected to resemble the previous flow:
    where two flows fit two frames equally well, the previous frame often decides.

    Parameters
    ----------
    source, target : Detections
    motion : Motion
    previous, pairwise : PairwiseFlow
        From the frame before to `source`, and from `source` to `target`.
    known : ndarray of shape (n,), optional
        As in `estimate_flow`.

    Returns
    -------
    ndarray of shape (n, ndim)
    """
    if min(len(previous.position), len(source), len(target)) < MIN_CELLS:
        return pairwise.shift
    step = motion.predict_persistent_step(previous.links, source)
    registration = Registration.from_positions(
        source.position + step, target.position, known
    ).with_appearance(source, target, pairwise.shift)
    moved = NearestPoints.from_points(previous.position + previous.shift)
    _, nearest = moved.query(source.position)
    shift = registration.initialize_flow(
        pairwise.shift,
        expected=previous.shift[nearest],
        typical=registration.settings.typical_change,
    )
    return step + registration.smooth_flow(registration.run_icp(shift))


def shift_detections(cells: Detections, shift: Array | None) -> Detections:
    """Move cells by their expected displacements.

    Parameters
    ----------
    cells : Detections
        n cells.
    shift : ndarray of shape (n, ndim) or None
        None leaves them where they are.

    Returns
    -------
    Detections
    """
    if shift is None:
        return cells
    return replace(cells, position=cells.position + shift)


def propose_flows(position: Array, displacement: Array, shift: Array) -> list[Array]:
    """Propose flows between two frames, given the displacements of linked cells.

    One follows the cells around each cell, by kriging. One is an affine map for all
    cells: a colony that grows moves apart like this.

    Parameters
    ----------
    position : ndarray of shape (n, ndim)
        Of the cells of the first frame.
    displacement : ndarray of shape (n, ndim)
        Of each cell by its event; NaN for cells without.
    shift : ndarray of shape (n, ndim)
        The flow so far.

    Returns
    -------
    list of ndarray of shape (n, ndim)
        Empty if there are too few links.
    """
    is_linked = np.isfinite(displacement[:, 0])
    if np.count_nonzero(is_linked) < max(MIN_CELLS, 2 * (position.shape[1] + 1)):
        return []
    end = position + np.where(is_linked[:, None], displacement, shift)
    partner = np.where(is_linked, np.arange(len(position)), -1)
    kriged = Registration.from_positions(position, end).smooth_flow(shift, partner)
    return [kriged, fit_affine_flow(position, displacement, is_linked)]


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
