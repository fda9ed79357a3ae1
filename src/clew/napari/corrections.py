"""Edits that a person made in layers, as mask edits and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from clew.annotation.annotator import Annotator
from clew.annotation.answers import Answer
from clew.annotation.cell_positions import Positions
from clew.annotation.mask_edits import Edit
from clew.annotation.mask_state import MaskState
from clew.errors import InputError
from clew.napari.layers import read_lineage_layer
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage


def list_painted(
    before: NDArray[Any], after: NDArray[Any]
) -> list[tuple[int, NDArray[np.intp]]]:
    """Return each label that received pixels of a frame, and these pixels.

    Parameters
    ----------
    before, after : ndarray
        The label image of a frame.
    """
    old = before.reshape(-1)
    new = after.reshape(-1)
    changed = np.flatnonzero(old != new)
    return [
        (label, changed[new[changed] == label])
        for label in np.unique(new[changed]).tolist()
    ]


def store_painted_frame(annotator: Annotator, frame: int, painted: NDArray[Any]) -> int:
    """Make mask edits of whatever was painted in a frame; return their number."""
    before = annotator.session.movie.label(frame)
    changes = list_painted(before, painted)
    for label, pixels in changes:

        def paint(
            masks: MaskState,
            _: list[int],
            pixels: NDArray[np.intp] = pixels,
            label: int = label,
        ) -> Edit:
            return masks.paint(frame, pixels, label)

        annotator.edit_masks(frame, paint)
    return len(changes)


def list_track_answers(
    lineage: Lineage,
    positions: Positions,
    data: ArrayLike,
    graph: Mapping[int, int | Sequence[int]],
) -> list[Answer]:
    """Return the events of an edited Tracks layer that the lineage does not have.

    Parameters
    ----------
    lineage : Lineage
        What the layer showed before.
    positions : Positions
        The cells of the movie.
    data : array-like of shape (n, 2 + ndim)
        Of the layer.
    graph : mapping
        Of the layer.

    Raises
    ------
    InputError
        If a point of the layer is no cell.
    """
    table = np.asarray(data, dtype=float)
    label = find_cells(positions, table)
    edited = read_lineage_layer(
        table, {"label": label}, graph, n_frames=lineage.n_frames
    )
    known = lineage.events.row_keys()
    is_new = ~np.isin(edited.events.row_keys(), known)
    answers = []
    for frame, event, sources, targets in edited.events[np.flatnonzero(is_new)]:
        # A layer does not say whether one cell that becomes two divides or splits.
        split = (frame, Event.SPLIT, sources, targets)
        if event is Event.DIVIDE and split in set(lineage.events):
            continue
        answers.append(Answer.of(frame, event, sources, targets))
    return answers


def find_cells(positions: Positions, table: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (n,) the labels of the cells at the points of a Tracks layer."""
    label = np.zeros(len(table), dtype=np.int64)
    for frame in np.unique(table[:, 1]).astype(int).tolist():
        rows = np.flatnonzero(table[:, 1] == frame)
        label[rows] = find_cells_at(positions, frame, table[rows, 2:])
    return label


def find_cells_at(
    positions: Positions, frame: int, points: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return (n,) the labels of the cells of a frame at points (n, ndim)."""
    label = match_cells(positions, frame, points)
    if not label.all() or len(np.unique(label)) < len(label):
        raise InputError(
            f"frame {frame} of the edited tracks has points that are no cells of the "
            "masks, or a cell twice"
        )
    return label


def match_cells(
    positions: Positions, frame: int, points: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return (n,) the labels of the nearest cells; 0 for points far from any."""
    is_frame = 0 <= frame < positions.n_frames
    cells = positions.detections(frame) if is_frame else None
    if cells is None or not len(cells):
        return np.zeros(len(points), dtype=np.int64)
    tree = KDTree(cells.position)
    distance, nearest = tree.query(points)
    gaps, _ = tree.query(cells.position, k=min(2, len(cells.position)))
    limit = np.inf if len(cells.position) < 2 else np.median(gaps[:, -1]) / 2
    return np.where(distance <= limit, cells.label[nearest], 0)
