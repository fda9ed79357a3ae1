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
from clew.tracking.lineage.fill import RECOVERED
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.parts import LineagePart, TrackedMovie, as_parts, parts_of
from clew.tracking.lineage.tracks import Tracks

AXES = ("z", "y", "x")


def write_track_table(path: str | Path, lineage: Lineage | TrackedMovie) -> None:
    """Write the detections of a lineage by frame, then label.

    Positions are physical. A track without a parent has the parent 0. The generation
    counts divisions from 0. Cells without a given mask are marked by 1 as recovered.
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
    axes = AXES[-position.shape[1] :]
    if recovered is None:
        recovered = np.zeros(len(frame))
    return {
        "frame": frame,
        "label": label,
        "track": track,
        "parent": tracks.parent[row],
        **dict(zip(axes, position.T, strict=True)),
        "generation": generation[row],
        RECOVERED: recovered.astype(np.int64),
    }
