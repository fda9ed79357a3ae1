"""From events to tracks: who goes on as whom where cells merge, split, or are missing for a frame.

A merged detection carries one track on, the one that fits it better; the identities within wait. When it splits, the
identities are matched to what comes out, each as it was when it last stood alone: by volume, by intensity, and by the
side on which it went in. The one that had carried on keeps its track; another goes on as a new track whose parent is
its ended one, with a gap between them that the format of the Cell Tracking Challenge allows. Where more than two are
within, the pair that fits best goes on, and the others wait in the larger part. What divides or disappears while
others wait in it takes them along: they are not seen again.

A cell that is back after a gap goes on as a new track too, whose parent is its ended one: a track of the Challenge is
in every frame from its first to its last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.lineage.tracks import Tracks

Nodes = NDArray[np.signedinteger[Any]]
MATCHED_BY = ("volume", "intensity")
"""The measurements that are compared, as logarithms, where a lineage has them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A cell as it was when it last stood alone."""

    node: int
    """Its last node alone."""
    in_track: int
    """A node of the track that it has had last."""
    side: Array
    """(ndim,) the direction from the merged detection to it, of length one."""


def resolve(
    frame: NDArray[np.int64],
    position: Array,
    columns: Mapping[str, NDArray[Any]],
    event_frame: NDArray[np.int64],
    event: NDArray[np.int8],
    sources: Nodes,
    targets: Nodes,
) -> tuple[NDArray[np.int64], Tracks]:
    """The track of each node (n,), and the table of tracks."""
    n = len(frame)
    head = runs(n, event, sources, targets)
    rows = np.flatnonzero((event == Event.MERGE) | (event == Event.SPLIT))
    rows = rows[np.argsort(event_frame[rows], kind="stable")]
    matching = _Matching(position, columns, head)
    for kind, before, after in zip(
        event[rows], sources[rows].tolist(), targets[rows].tolist(), strict=True
    ):
        if kind == Event.MERGE:
            matching.merge((before[0], before[1]), after[0])
        else:
            matching.split(before[0], (after[0], after[1]))
    # a run that carries another on has its first node; followed in order of time, so one look-up is enough
    for later, earlier in sorted(matching.carried_on.items()):
        matching.carried_on[later] = matching.carried_on.get(earlier, earlier)
    first = _replaced(head, matching.carried_on)
    heads, begins, track = np.unique(first, return_index=True, return_inverse=True)
    parent = np.zeros(len(heads), dtype=np.int64)
    divides = event == Event.DIVIDE
    # a daughter begins a track, for nothing else leads to it
    for side in range(2):
        parent[track[targets[divides, side]]] = track[sources[divides, 0]] + 1
    gaps = event == Event.GAP
    parent[track[targets[gaps, 0]]] = track[sources[gaps, 0]] + 1
    for node, ended in matching.regained:
        parent[track[node]] = track[ended] + 1
    ends = np.zeros(len(heads), dtype=np.int64)
    ends[track] = np.arange(
        n
    )  # the last assignment stays, and nodes are in order of time
    track = track.astype(np.int64) + 1
    return track, Tracks(
        np.arange(1, len(heads) + 1, dtype=np.int64), frame[begins], frame[ends], parent
    )


def runs(
    n: int, event: NDArray[np.int8], sources: Nodes, targets: Nodes
) -> NDArray[np.int64]:
    """(n,) for each node, the first node of the run of moves that it is part of."""
    moves = event == Event.MOVE
    before, after = sources[moves, 0], targets[moves, 0]
    links = coo_array(
        (np.ones(len(before), dtype=np.int8), (before, after)), shape=(n, n)
    )
    count, run = connected_components(links, directed=False)
    head = np.full(count, n, dtype=np.int64)
    head[run[::-1]] = np.arange(
        n - 1, -1, -1
    )  # written backwards, the first node of a run stays
    return np.asarray(head[run], dtype=np.int64)


def _replaced(
    values: NDArray[np.int64], changes: Mapping[int, int]
) -> NDArray[np.int64]:
    """(n,) the values (each an index into themselves), some of them changed."""
    if not changes:
        return values
    table = np.arange(len(values))
    table[list(changes)] = list(changes.values())
    return table[values]


class _Matching:
    """Who waits in which run of moves, as merges and splits are met in order of time."""

    def __init__(
        self,
        position: Array,
        columns: Mapping[str, NDArray[Any]],
        head: NDArray[np.int64],
    ) -> None:
        self.position = position
        self.measured = [
            np.asarray(columns[name]) for name in MATCHED_BY if name in columns
        ]
        self.volume = columns.get("volume")
        self.head = head
        self.within: dict[int, list[Identity]] = {}
        """By the first node of a run: who is within, the one that carries on first."""
        self.carried_on: dict[int, int] = {}
        """First node of a run → first node of the run that it carries on."""
        self.regained: list[tuple[int, int]] = []
        """(first node of a new track, a node of the ended track that it goes on from)."""

    def merge(self, sources: tuple[int, int], target: int) -> None:
        """The source that fits better goes on in the target, the other waits."""
        costs = [
            self._difference(source, target) + share
            for source, share in self._distances(sources, target)
        ]
        carrier, other = sources if costs[0] <= costs[1] else sources[::-1]
        self._carry_on(carrier, target)
        self.within[target] = [
            *self._those_in(carrier, target),
            *self._those_in(other, target),
        ]

    def split(self, source: int, targets: tuple[int, int]) -> None:
        """Those within are matched to the targets; where nobody waits, the target that fits better goes on."""
        carrier, *waiting = self._those_in(source, targets[0])
        if not waiting:
            costs = [
                self._difference(source, target) + share
                for target, share in self._distances(targets, source)
            ]
            self._carry_on(source, targets[0] if costs[0] <= costs[1] else targets[1])
            return
        side = {target: self._side(target, source) for target in targets}
        cost = {
            (who.node, to): self._cost(who, to, side[to])
            for who in (carrier, *waiting)
            for to in targets
        }
        ways = [
            (here, there, who)
            for here, there in (targets, targets[::-1])
            for who in waiting
        ]
        here, there, back = min(
            ways, key=lambda way: cost[carrier.node, way[0]] + cost[way[2].node, way[1]]
        )
        self._carry_on(source, here)
        self.regained.append((there, back.in_track))
        rest = [who for who in waiting if who is not back]
        if rest:
            stay = (
                here
                if self.volume is None or self.volume[here] >= self.volume[there]
                else there
            )
            self.within[stay] = [
                carrier if stay == here else replace(back, in_track=there),
                *rest,
            ]

    def _those_in(self, node: int, other: int) -> list[Identity]:
        """Who is in the run that ends with a node; a cell alone is itself, on its side of another node."""
        return self.within.get(int(self.head[node])) or [
            Identity(node, node, self._side(node, other))
        ]

    def _carry_on(self, node: int, target: int) -> None:
        self.carried_on[target] = int(self.head[node])

    def _cost(self, who: Identity, target: int, side: Array) -> float:
        """How badly a target fits an identity; the side counts from 0 (same) to 1 (opposite)."""
        return self._difference(who.node, target) + (1.0 - float(who.side @ side)) / 2

    def _difference(self, a: int, b: int) -> float:
        """Σ |log ratio| of what was measured of two nodes; what is not positive says nothing."""
        pairs = [(float(column[a]), float(column[b])) for column in self.measured]
        return sum(
            abs(float(np.log(x / y)))
            for x, y in pairs
            if 0 < x < np.inf and 0 < y < np.inf
        )

    def _distances(self, nodes: tuple[int, int], other: int) -> list[tuple[int, float]]:
        """Two nodes with their shares of the sum of their distances from another."""
        distance = np.linalg.norm(
            self.position[list(nodes)] - self.position[other], axis=1
        )
        total = float(distance.sum()) or 1.0
        return [
            (node, float(far) / total)
            for node, far in zip(nodes, distance, strict=True)
        ]

    def _side(self, node: int, other: int) -> Array:
        """The direction in which a node lies from another; zero where they are at one place."""
        offset = self.position[node] - self.position[other]
        length = float(np.linalg.norm(offset))
        return np.asarray(offset / length if length else offset, dtype=np.float64)
