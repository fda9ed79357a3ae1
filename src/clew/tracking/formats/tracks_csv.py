"""Tracks as a table: one row for each detection, with its track, the track's parent and its generation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from clew.tracking.formats.delimited import array_columns, write_delimited
from clew.tracking.lineage import Lineage

AXES = ("z", "y", "x")


def write_track_table(path: str | Path, lineage: Lineage) -> None:
    """Write the detections of a lineage in the order of frames, then labels; positions are physical.

    A track without a parent has the parent 0; the generation counts divisions from 0.
    """
    row = np.searchsorted(lineage.tracks.id, lineage.track)
    ndim = lineage.position.shape[1]
    columns = {
        "frame": lineage.frame,
        "label": lineage.label,
        "track": lineage.track,
        "parent": lineage.tracks.parent[row],
        **dict(zip(AXES[-ndim:], lineage.position.T, strict=True)),
        "generation": lineage.generations[row],
    }
    write_delimited(path, list(columns), len(row), partial(array_columns, columns.values()))
