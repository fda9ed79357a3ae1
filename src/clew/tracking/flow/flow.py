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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections
from clew.tracking.flow.displacement_vote import MIN_CELLS, detect_jump
from clew.tracking.flow.motion import Motion
from clew.tracking.flow.nearest_points import NearestPoints
from clew.tracking.flow.registration import (
    PairwiseFlow,
    Registration,
    link_resting_cells,
    register_frames,
)


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
