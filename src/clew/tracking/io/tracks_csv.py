"""Detections as a table, with track, parent and generation."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array
from clew.tracking.events import Labels
from clew.tracking.io.delimited import slice_columns, write_parts
from clew.tracking.lineage.lineage import (
    RECOVERED,
    Lineage,
    LineagePart,
    TrackedMovie,
    as_parts,
    parts_of,
)
from clew.tracking.lineage.tracks import NO_PARENT, Tracks, find_false_detections

AXES = ("z", "y", "x")
PIECE = "piece"
"""Column of the tracks of the Cell Tracking Challenge, which end at gaps."""

FALSE = "false"
"""Column of detections that are probably no cells."""


def write_track_table(path: str | Path, lineage: Lineage | TrackedMovie) -> None:
    """Write the detections of a lineage by frame, then label.

    Positions are physical. A track without a parent has the parent 0. The generation
    counts divisions from 0. A track keeps its id over a gap; a piece does not, and has
    the id of the masks. Cells without a given mask are marked by 1 as recovered, and
    probably false detections as false.
    """
    movie = as_parts(lineage)
    tracks = movie.tracks
    generation = tracks.generations()

    def make_columns(part: LineagePart) -> dict[str, NDArray[Any]]:
        nodes = part.nodes
        return make_cell_columns(
            nodes.frame,
            nodes.label,
            part.track,
            nodes.position,
            tracks,
            generation,
            nodes.columns.get(RECOVERED),
        )

    parts = map(make_columns, parts_of(movie))
    first = next(parts)
    rows = (
        (len(columns["frame"]), partial(slice_columns, columns.values()))
        for columns in chain([first], parts)
    )
    write_parts(path, list(first), rows)


def join_gaps(tracks: Tracks) -> Labels:
    """(n,) id of the first piece of each track; pieces follow each other after gaps.

    The Cell Tracking Challenge has a new track after a gap, the only child of the one
    before.
    """
    parent = tracks.parent_row()
    is_only_child = (parent >= 0) & (tracks.child_count(parent)[parent] == 1)
    is_piece = is_only_child & (tracks.begin > tracks.end[parent] + 1)
    before = np.where(is_piece, parent, np.arange(len(tracks)))
    while not np.array_equal(before, before[before]):
        before = before[before]
    return np.asarray(tracks.id[before])


def make_cell_columns(
    frame: NDArray[np.int64],
    label: Labels,
    track: Labels,
    position: Array,
    tracks: Tracks,
    generation: NDArray[np.int64],
    recovered: Array | None = None,
) -> dict[str, NDArray[Any]]:
    """Columns of detections by name.

    Parameters
    ----------
    frame, label, track : ndarray of shape (n,)
    position : ndarray of shape (n, ndim)
    tracks : Tracks
    generation : ndarray of shape (n_tracks,)
        Generation of each of the `tracks`.
    recovered : ndarray of shape (n,), optional
        1 for cells without a given mask; all others have 0.

    Returns
    -------
    columns : dict of ndarray of shape (n,)
    """
    row = np.searchsorted(tracks.id, track)
    is_false = find_false_detections(tracks)
    cell = join_gaps(tracks)
    first = np.searchsorted(tracks.id, cell[row])  # the first piece has the parent
    parent = tracks.parent
    mother = np.minimum(np.searchsorted(tracks.id, parent), len(tracks) - 1)
    axes = AXES[-position.shape[1] :]
    if recovered is None:
        recovered = np.zeros(len(frame))
    return {
        "frame": frame,
        "label": label,
        "track": cell[row],
        "parent": np.where(parent == NO_PARENT, NO_PARENT, cell[mother])[first],
        **dict(zip(axes, position.T, strict=True)),
        "generation": generation[row],
        PIECE: track,
        RECOVERED: recovered.astype(np.int64),
        FALSE: is_false[row].astype(np.int64),
    }
