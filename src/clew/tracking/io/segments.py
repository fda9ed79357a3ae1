"""The unbranched pieces of a lineage: what GEFF calls tracklets, and what napari draws as tracks.

A track goes on through merges and splits, as the Cell Tracking Challenge wants it; a segment ends there, so that two
cells that merge can both lead to the segment that follows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clew.learning.task import Indices
from clew.tracking.events import Event, Labels
from clew.tracking.lineage.lineage import Lineage


def number_segments(lineage: Lineage) -> NDArray[np.int64]:
    """(n,) the segment of each node: its track's number in the first piece of a track, a new one in the others."""
    source, target, row = lineage.edges
    moves = lineage.events.event[row] == Event.MOVE
    piece = label_components(len(lineage.frame), source[moves], target[moves])
    first = np.unique(piece, return_index=True)[1]  # nodes are sorted by frame
    return number_pieces(lineage.track[first])[piece]


def number_pieces(track: Labels) -> NDArray[np.int64]:
    """(p,) the numbers of pieces, in the order of their first nodes, from the tracks (p,) that they are of."""
    later = np.ones(len(track), dtype=bool)
    later[np.unique(track, return_index=True)[1]] = False
    ids = track.copy()
    ids[later] = track.max(initial=0) + 1 + np.arange(later.sum())
    return ids


def label_components(n: int, source: Indices, target: Indices) -> NDArray[np.int64]:
    """(n,) which nodes hang together through links (k,), numbered from 0 in the order of their first nodes."""
    links = coo_array(
        (np.ones(len(source), dtype=bool), (source, target)), shape=(n, n)
    )
    found: NDArray[np.int64] = connected_components(links, directed=False)[1].astype(
        np.int64
    )
    return found


def link_segments(lineage: Lineage, segment: NDArray[np.int64]) -> dict[int, list[int]]:
    """The segments that lead to each segment: its mother, or the two that merge into it."""
    source, target, row = lineage.edges
    branching = lineage.events.event[row] != Event.MOVE
    parents: dict[int, list[int]] = {}
    pairs = np.unique(
        np.column_stack([segment[target[branching]], segment[source[branching]]]),
        axis=0,
    )
    for child, parent in pairs.tolist():
        parents.setdefault(child, []).append(parent)
    return parents
