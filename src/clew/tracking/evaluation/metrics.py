"""Distance of a result from the truth: AOGM (Matula et al. 2015), and divisions.

Both graphs are tables of tracks: a vertex is a track in a frame, an edge leads on
within a track or from parent to child. AOGM is the cost of the operations that turn
the result into the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Indices, Mask
from clew.tracking.evaluation.matching import FrameMatch
from clew.tracking.events import NONE, Labels
from clew.tracking.lineage.tracks import Tracks

WEIGHTS = {
    "split_vertices": 5.0,
    "missing_vertices": 10.0,
    "false_vertices": 1.0,
    "false_edges": 1.0,
    "missing_edges": 1.5,
    "wrong_edges": 1.0,
}
"""Cost of each operation: NS, FN, FP, ED, EA and EC of the challenge."""


@dataclass(frozen=True, slots=True)
class Aogm:
    """Operations that turn a result into the truth.

    Attributes
    ----------
    split_vertices : int
        NS: cells that share their detection with another cell.
    missing_vertices : int
        FN: cells that no detection holds.
    false_vertices : int
        FP: detections that hold no cell.
    false_edges : int
        ED: links between detections of one cell each that the truth does not have.
    missing_edges : int
        EA: links that the result does not have.
    wrong_edges : int
        EC: links within a track on one side and from parent to child on the other.
    vertices, edges : int
        Of the truth.
    unreachable_edges : int
        Missing edges that no lineage of these detections can have, since an end is
        not detected, or shares its detection.
    """

    split_vertices: int
    missing_vertices: int
    false_vertices: int
    false_edges: int
    missing_edges: int
    wrong_edges: int
    vertices: int
    edges: int
    unreachable_edges: int = 0

    @property
    def total(self) -> float:
        """AOGM: the weighted sum."""
        return sum(
            weight * float(getattr(self, name)) for name, weight in WEIGHTS.items()
        )

    @property
    def unavoidable(self) -> float:
        """AOGM of the best lineage of these detections, with all reachable links.

        No lineage is better: vertices, and which of them hold one cell each, do not
        depend on links.
        """
        names = ("split_vertices", "missing_vertices", "false_vertices")
        vertices = sum(WEIGHTS[name] * float(getattr(self, name)) for name in names)
        return vertices + WEIGHTS["missing_edges"] * self.unreachable_edges

    @property
    def avoidable(self) -> float:
        """AOGM above `unavoidable`: the cost of errors of linking."""
        return self.total - self.unavoidable

    @property
    def score(self) -> float:
        """TRA: 1 without errors, 0 if starting from nothing would be as cheap."""
        vertices = WEIGHTS["missing_vertices"] * self.vertices
        from_nothing = vertices + WEIGHTS["missing_edges"] * self.edges
        if not from_nothing:
            return 1.0
        return 1.0 - min(self.total, from_nothing) / from_nothing


class TrackGraph(NamedTuple):
    """The graph of a table of tracks.

    Attributes
    ----------
    frame, track : ndarray of shape (n_vertices,)
        Sorted by frame, then track.
    source, target : ndarray of shape (n_edges,)
        Rows of vertices.
    to_child : ndarray of bool of shape (n_edges,)
        Whether an edge leads from parent to child.
    """

    frame: NDArray[np.int64]
    track: Labels
    source: Indices
    target: Indices
    to_child: Mask


def build_track_graph(tracks: Tracks) -> TrackGraph:
    """Build the graph of a table of tracks."""
    length = tracks.end - tracks.begin + 1
    first = np.cumsum(length) - length
    row = np.repeat(np.arange(len(tracks)), length)
    frame = np.arange(len(row)) - first[row] + tracks.begin[row]
    order = np.lexsort((tracks.id[row], frame))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    within = np.flatnonzero(row[1:] == row[:-1])
    parent = tracks.parent_row()
    child = np.flatnonzero(parent >= 0)
    last = first + length - 1
    source = np.concatenate([within, last[parent[child]]])
    target = np.concatenate([within + 1, first[child]])
    to_child = np.arange(len(source)) >= len(within)
    track = tracks.id[row]
    return TrackGraph(
        frame[order], track[order], place[source], place[target], to_child
    )


def compute_aogm(truth: Tracks, result: Tracks, frames: list[FrameMatch]) -> Aogm:
    """Compare two tables of tracks.

    Parameters
    ----------
    truth, result : Tracks
    frames : list of FrameMatch
        For each frame the tracks of the result that hold those of the truth.
    """
    true_graph = build_track_graph(truth)
    graph = build_track_graph(result)
    n_true = len(true_graph.frame)
    holder = _find_holders(graph, frames)  # in the order of the vertices of the truth
    is_held = holder >= 0
    n_held = np.bincount(holder[is_held], minlength=len(graph.frame))
    holds_one = n_held == 1
    cell = np.full(len(graph.frame), -1, dtype=np.intp)
    cell[holder[is_held]] = np.flatnonzero(is_held)

    is_counted = holds_one[graph.source] & holds_one[graph.target]
    source = cell[graph.source[is_counted]]
    target = cell[graph.target[is_counted]]
    edges = source * n_true + target
    true_edges = true_graph.source * n_true + true_graph.target
    _, true_at, at = np.intersect1d(
        true_edges, edges, assume_unique=True, return_indices=True
    )
    kind = graph.to_child[is_counted][at]
    is_reachable = is_held.copy()
    if len(holds_one):
        is_reachable &= holds_one[np.where(is_held, holder, 0)]
    both_reachable = is_reachable[true_graph.source] & is_reachable[true_graph.target]
    return Aogm(
        split_vertices=int((n_held[n_held > 1] - 1).sum()),
        missing_vertices=int((~is_held).sum()),
        false_vertices=int((n_held == 0).sum()),
        false_edges=len(edges) - len(at),
        missing_edges=len(true_edges) - len(at),
        wrong_edges=int((true_graph.to_child[true_at] != kind).sum()),
        vertices=n_true,
        edges=len(true_edges),
        unreachable_edges=int((~both_reachable).sum()),
    )


def _find_holders(graph: TrackGraph, frames: list[FrameMatch]) -> Indices:
    """(n,) vertex that holds each true cell of all frames; -1 if there is none."""
    starts = np.searchsorted(graph.frame, np.arange(len(frames) + 1))
    rows = [np.empty(0, dtype=np.intp)]
    for t, match in enumerate(frames):
        tracks = graph.track[starts[t] : starts[t + 1]]
        at = np.searchsorted(tracks, match.holder)
        rows.append(np.where(match.holder == NONE, -1, at + starts[t]))
    return np.concatenate(rows)


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """Counts of predictions that are right, false and missed."""

    right: int
    false: int
    missed: int

    def __str__(self) -> str:
        return f"{self.right:,} right, {self.false:,} false, {self.missed:,} missed"

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to predict, and nothing was predicted."""
        return not self.right + self.false + self.missed

    @property
    def precision(self) -> float:
        """Share of predictions that are right; 1 if there are none."""
        n = self.right + self.false
        return self.right / n if n else 1.0

    @property
    def recall(self) -> float:
        """Share of true ones that were predicted; 1 if there are none."""
        n = self.right + self.missed
        return self.right / n if n else 1.0

    @property
    def jaccard(self) -> float:
        """Jaccard index; 1 if `is_empty`."""
        n = self.right + self.false + self.missed
        return self.right / n if n else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 if `is_empty`."""
        n = 2 * self.right + self.false + self.missed
        return 2 * self.right / n if n else 1.0


class _Division(NamedTuple):
    """A division of a track.

    Attributes
    ----------
    mother : int
        Track.
    end : int
        Its last frame.
    daughters : list of (track, first frame)
    """

    mother: int
    end: int
    daughters: list[tuple[int, int]]


def count_divisions(
    truth: Tracks, result: Tracks, frames: list[FrameMatch], tolerance: int = 0
) -> MatchCounts:
    """Count the divisions that were found, by the rule of the challenge.

    Mothers must match in the last frame that both have, and daughters in the first
    frame that both have: the track of the result holds the true cell and no other.
    Both must have equally many daughters, and all must match.

    Parameters
    ----------
    truth, result : Tracks
    frames : list of FrameMatch
    tolerance : int
        Number of frames that a division may be early or late.
    """
    true_divisions = _list_divisions(truth)
    divisions = _list_divisions(result)
    by_end: dict[int, list[_Division]] = {}
    for division in divisions:
        by_end.setdefault(division.end, []).append(division)
    n_right = 0
    for true in true_divisions:
        ends = range(true.end - tolerance, true.end + tolerance + 1)
        candidates = [division for end in ends for division in by_end.get(end, [])]
        n_right += any(
            _is_same_division(true, division, frames, tolerance)
            for division in candidates
        )
    return MatchCounts(n_right, len(divisions) - n_right, len(true_divisions) - n_right)


def _list_divisions(tracks: Tracks) -> list[_Division]:
    """Tracks with two or more children."""
    parent = tracks.parent_row()
    children: dict[int, list[int]] = {}
    for row in np.flatnonzero(parent >= 0).tolist():
        children.setdefault(int(parent[row]), []).append(row)
    return [
        _Division(
            int(tracks.id[mother]),
            int(tracks.end[mother]),
            [(int(tracks.id[row]), int(tracks.begin[row])) for row in rows],
        )
        for mother, rows in sorted(children.items())
        if len(rows) > 1
    ]


def _is_same_division(
    true: _Division, division: _Division, frames: list[FrameMatch], tolerance: int
) -> bool:
    """Whether mothers and daughters match."""
    if len(true.daughters) != len(division.daughters):
        return False
    last = min(true.end, division.end)
    if not _is_held_alone(frames[last], true.mother, division.mother):
        return False
    return all(
        any(
            abs(begin - other) <= tolerance
            and _is_held_alone(frames[max(begin, other)], cell, track)
            for track, other in division.daughters
        )
        for cell, begin in true.daughters
    )


def _is_held_alone(match: FrameMatch, cell: int, track: int) -> bool:
    """Whether a track of the result holds a true cell of a frame and no other."""
    held = match.cell[match.holder == track]
    return len(held) == 1 and bool(held[0] == cell)
