"""The table of nodes and edges that the Biohub cell tracking competition asks for.

All rows have the same columns; those that do not apply are -1. Positions are whole
pixels. Links over gaps are left out, since the competition does not know them, and so are
detections that are probably false, since it judges the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.tracking.io.delimited import write_delimited
from clew.tracking.io.tables import check_spacing
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import find_false_detections

HEADER = (
    "id",
    "dataset",
    "row_type",
    "node_id",
    "t",
    "z",
    "y",
    "x",
    "source_id",
    "target_id",
)


def write_submission(
    path: str | Path,
    lineage: Lineage,
    dataset: str,
    spacing: Sequence[float] | None = None,
) -> None:
    """Write a lineage as a table of nodes, then edges.

    Parameters
    ----------
    path : str or Path
    lineage : Lineage
    dataset : str
        Name of the movie.
    spacing : sequence of float, optional
        Size of a pixel, by which positions are divided.
    """
    ndim = lineage.position.shape[1]
    pixel = np.rint(lineage.position / check_spacing(spacing, ndim)).astype(np.int64)
    track = np.searchsorted(lineage.tracks.id, lineage.track)
    is_cell = ~find_false_detections(lineage.tracks)[track]
    node = np.cumsum(is_cell)
    pixel = pixel[is_cell]
    n = len(pixel)
    source, target, _ = lineage.edges
    is_step = lineage.frame[target] == lineage.frame[source] + 1
    ends = node[np.column_stack([source, target])[is_step]]
    n_rows = n + len(ends)

    def fill(values: NDArray[np.int64], first: int = 0) -> NDArray[np.int64]:
        column = np.full(n_rows, -1, dtype=np.int64)
        column[first : first + len(values)] = values
        return column

    axes = np.zeros((3, n), dtype=np.int64)
    axes[3 - ndim :] = np.maximum(pixel, 0).T
    columns = [
        np.arange(n_rows),
        np.full(n_rows, dataset),
        np.repeat(["node", "edge"], [n, len(ends)]),
        fill(np.arange(1, n + 1)),
        fill(lineage.frame[is_cell]),
        *(fill(axis) for axis in axes),
        *(fill(end, n) for end in ends.T),
    ]
    write_delimited(path, HEADER, [columns])
