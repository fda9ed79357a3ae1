"""Assign track ids through merges, splits and gaps.

A merged detection continues the track that fits it better; the other cell waits. When
the detection splits, the cells within are matched to its parts by volume, by intensity,
and by the side on which each went in. The cell that continued keeps its track; another
starts a new track whose parent is its ended one. If more than two cells are within, the
best-fitting pair continues and the rest waits in the larger part. Cells that wait in a
detection that divides or disappears are not seen again.

A cell that is back after a gap starts a new track too, whose parent is its ended one: a
track of the Cell Tracking Challenge is in every frame from its first to its last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.lineage.links import is_one_of
from clew.tracking.lineage.tracks import Tracks

Integers = NDArray[np.signedinteger[Any]]
MATCHED_COLUMNS = ("volume", "intensity")
"""Measurements that are compared, as logarithms, where there are any."""


def assign_track_ids(
    frame: Integers,
    position: NDArray[np.floating[Any]],
    columns: Mapping[str, NDArray[Any]],
    head: Integers,
    event_frame: Integers,
    kind: NDArray[np.int8],
    sources: Integers,
    targets: Integers,
) -> tuple[NDArray[np.int32], Tracks]:
    """Assign a track to each detection.

    Parameters
    ----------
    frame : ndarray of shape (n,)
        Of each node; nodes are in order of time.
    position : ndarray of shape (n, ndim)
    columns : mapping of str to ndarray of shape (n,)
        Measurements; those of `MATCHED_COLUMNS` are used.
    head : ndarray of shape (n,)
        First node of the run of moves that each node is part of.
    event_frame, kind : ndarray of shape (m,)
        Of the events; moves may be left out.
    sources, targets : ndarray of shape (m, 2)
        Nodes of the events, −1 for none.

    Returns
    -------
    track : ndarray of shape (n,)
        Counted from 1, in the order of their first nodes.
    tracks : Tracks
    """
    rows = np.flatnonzero(is_one_of(kind, (Event.MERGE, Event.SPLIT)))
    rows = rows[np.argsort(event_frame[rows], kind="stable")]
    matcher = _IdentityMatcher(position, columns, head)
    for row in rows.tolist():
        before = sources[row].tolist()
        after = targets[row].tolist()
        if kind[row] == Event.MERGE:
            matcher.merge((before[0], before[1]), after[0])
        else:
            matcher.split(before[0], (after[0], after[1]))

    first = head
    if matcher.continued:
        # In order of time, so that one look-up finds the first run of a track.
        for later, earlier in sorted(matcher.continued.items()):
            matcher.continued[later] = matcher.continued.get(earlier, earlier)
        first_of = np.arange(len(head), dtype=head.dtype)
        first_of[list(matcher.continued)] = list(matcher.continued.values())
        first = first_of[head]
    is_first = first == np.arange(len(first), dtype=first.dtype)
    track = np.cumsum(is_first, dtype=np.int32)[first]

    n_tracks = int(is_first.sum())
    parent = np.zeros(n_tracks, dtype=np.int64)
    divides = kind == Event.DIVIDE
    for side in range(2):
        parent[track[targets[divides, side]] - 1] = track[sources[divides, 0]]
    gaps = kind == Event.GAP
    parent[track[targets[gaps, 0]] - 1] = track[sources[gaps, 0]]
    for node, ended in matcher.regained:
        parent[track[node] - 1] = track[ended]
    end = np.zeros(n_tracks, dtype=np.int64)
    end[track - 1] = frame  # the last assignment stays
    begin = frame[is_first].astype(np.int64)
    ids = np.arange(1, n_tracks + 1, dtype=np.int64)
    return track, Tracks(ids, begin, end, parent)


@dataclass(frozen=True, slots=True)
class _Identity:
    """A cell as it was when it was last alone."""

    node: int
    """Its last node alone."""
    track_node: int
    """A node of its last track."""
    side: Array
    """(ndim,) unit vector from the merged detection to it."""


class _IdentityMatcher:
    """Matches cells to detections as merges and splits are visited in order of time."""

    def __init__(
        self,
        position: NDArray[np.floating[Any]],
        columns: Mapping[str, NDArray[Any]],
        head: Integers,
    ) -> None:
        self.position = position
        self.measured = [columns[name] for name in MATCHED_COLUMNS if name in columns]
        self.volume = columns.get("volume")
        self.head = head
        self.within: dict[int, list[_Identity]] = {}
        """Cells within a run of moves, by its first node; the continuing cell first."""
        self.continued: dict[int, int] = {}
        """First node of a run to the first node of the run that it continues."""
        self.regained: list[tuple[int, int]] = []
        """First node of a new track, and a node of the ended track of the same cell."""

    def merge(self, sources: tuple[int, int], target: int) -> None:
        """Continue the source that fits better in the target; the other waits."""
        costs = self._costs(sources, target)
        carrier, other = sources if costs[0] <= costs[1] else sources[::-1]
        self._continue(carrier, target)
        self.within[target] = [
            *self._cells_in(carrier, target),
            *self._cells_in(other, target),
        ]

    def split(self, source: int, targets: tuple[int, int]) -> None:
        """Match the cells within to the targets."""
        carrier, *waiting = self._cells_in(source, targets[0])
        if not waiting:
            costs = self._costs(targets, source)
            self._continue(source, targets[0] if costs[0] <= costs[1] else targets[1])
            return
        side = {target: self._side(target, source) for target in targets}

        def cost(cell: _Identity, target: int) -> float:
            angle = (1.0 - float(cell.side @ side[target])) / 2
            return self._difference(cell.node, target) + angle

        matches = [
            (cost(carrier, target) + cost(cell, other), target, other, cell)
            for target, other in (targets, targets[::-1])
            for cell in waiting
        ]
        _, target, other, regained = min(matches, key=lambda match: match[0])
        self._continue(source, target)
        self.regained.append((other, regained.track_node))
        rest = [cell for cell in waiting if cell is not regained]
        if not rest:
            return
        if self.volume is None or self.volume[target] >= self.volume[other]:
            self.within[target] = [carrier, *rest]
        else:
            self.within[other] = [replace(regained, track_node=other), *rest]

    def _cells_in(self, node: int, other: int) -> list[_Identity]:
        """Cells in the run that ends with a node; a cell alone is on its own side."""
        cells = self.within.get(int(self.head[node]))
        return cells or [_Identity(node, node, self._side(node, other))]

    def _continue(self, node: int, target: int) -> None:
        """Let the target continue the run that ends with a node."""
        self.continued[target] = int(self.head[node])

    def _costs(self, nodes: tuple[int, int], other: int) -> list[float]:
        """How badly two nodes fit another: difference, and share of the distances."""
        offset = np.asarray(self.position[list(nodes)], dtype=float)
        offset = offset - self.position[other]
        distance = np.linalg.norm(offset, axis=1)
        total = float(distance.sum()) or 1.0
        return [
            self._difference(node, other) + float(far) / total
            for node, far in zip(nodes, distance, strict=True)
        ]

    def _difference(self, a: int, b: int) -> float:
        """Σ |log ratio| of the measurements of two nodes; only positive ones count."""
        pairs = [(float(column[a]), float(column[b])) for column in self.measured]
        return sum(
            abs(float(np.log(x / y)))
            for x, y in pairs
            if 0 < x < np.inf and 0 < y < np.inf
        )

    def _side(self, node: int, other: int) -> Array:
        """Unit vector from another node to a node; zero where they coincide."""
        offset = np.asarray(self.position[node], dtype=float) - self.position[other]
        length = float(np.linalg.norm(offset))
        return np.asarray(offset / length if length else offset)
