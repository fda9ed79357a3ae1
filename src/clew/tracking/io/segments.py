"""Unbranched pieces of a lineage: tracklets of GEFF, and tracks of napari.

A track continues through merges and splits, as the Cell Tracking Challenge has it. A
segment ends there, so that two cells that merge both lead to the segment after.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clew.learning.task import Indices
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage

CONTINUING = (Event.MOVE, Event.GAP)
"""Events after which a cell is in the same segment."""


def number_segments(lineage: Lineage) -> NDArray[np.int64]:
    """Number the segments of a lineage.

    Returns
    -------
    segment : ndarray of shape (n_nodes,)
        The number of the track in its first segment, a new number in the others.
    """
    source, target, row = lineage.edges
    is_move = np.isin(lineage.events.event[row], CONTINUING)
    piece = label_components(len(lineage.frame), source[is_move], target[is_move])
    _, first = np.unique(piece, return_index=True)  # nodes are sorted by frame
    ids = lineage.track[first]
    is_later = np.ones(len(ids), dtype=bool)
    is_later[np.unique(ids, return_index=True)[1]] = False
    ids[is_later] = ids.max(initial=0) + 1 + np.arange(is_later.sum())
    return ids[piece]


def label_components(n: int, source: Indices, target: Indices) -> NDArray[np.int64]:
    """(n,) connected components of nodes, numbered from 0 by their first nodes."""
    ones = np.ones(len(source), dtype=bool)
    links = coo_array((ones, (source, target)), shape=(n, n))
    _, component = connected_components(links, directed=False)
    return np.asarray(component.astype(np.int64))


def link_segments(lineage: Lineage, segment: NDArray[np.int64]) -> dict[int, list[int]]:
    """Parents of each segment: its mother, or the two that merge into it."""
    source, target, row = lineage.edges
    is_branch = ~np.isin(lineage.events.event[row], CONTINUING)
    child = segment[target[is_branch]]
    parent = segment[source[is_branch]]
    parents: dict[int, list[int]] = {}
    for pair in np.unique(np.column_stack([child, parent]), axis=0).tolist():
        parents.setdefault(pair[0], []).append(pair[1])
    return parents
