"""How far a result's graph is from the true one: AOGM (Matula et al. 2015), and the divisions that were found.

Both graphs are tables of tracks: a vertex is a track in a frame, an edge leads on within a track or from parent to
child. AOGM is the cost of the operations that turn the result into the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Indices, Mask
from clew.tracking.evaluation.truth import FrameMatch
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
"""What each operation costs; the challenge's NS, FN, FP, ED, EA, EC."""


@dataclass(frozen=True, slots=True)
class Aogm:
    """Operations that turn a result into the truth."""

    split_vertices: int
    """NS: cells that share their detection with another cell."""
    missing_vertices: int
    """FN: cells that no detection holds."""
    false_vertices: int
    """FP: detections that hold no cell."""
    false_edges: int
    """ED: links between detections of a cell each, that the truth does not have."""
    missing_edges: int
    """EA: links that the result does not have."""
    wrong_edges: int
    """EC: links that go on within a track here, and from parent to child there."""
    vertices: int
    """Of the truth."""
    edges: int
    """Of the truth."""
    unreachable_edges: int = 0
    """Those of `missing_edges` that no lineage of these detections can have: an end is held by none, or with others."""

    @property
    def unavoidable(self) -> float:
        """AOGM of the best possible lineage of these detections: vertices are as they are, all other links are right.

        No lineage is better, for vertices and which of them hold one cell each do not depend on links.
        """
        edges = WEIGHTS["missing_edges"] * self.unreachable_edges
        names = ("split_vertices", "missing_vertices", "false_vertices")
        return edges + sum(WEIGHTS[name] * float(getattr(self, name)) for name in names)

    @property
    def avoidable(self) -> float:
        """AOGM above what the detections allow: the cost of wrong, missing and false links between cells held alone."""
        return self.total - self.unavoidable

    @property
    def total(self) -> float:
        """AOGM: the weighted sum."""
        return sum(
            weight * float(getattr(self, name)) for name, weight in WEIGHTS.items()
        )

    @property
    def score(self) -> float:
        """TRA: 1 where nothing is to be done, 0 where it would be as cheap to begin from nothing."""
        scratch = (
            WEIGHTS["missing_vertices"] * self.vertices
            + WEIGHTS["missing_edges"] * self.edges
        )
        return 1.0 - min(self.total, scratch) / scratch if scratch else 1.0


class TrackGraph(NamedTuple):
    """Vertices (n,) sorted by frame, then track; edges (m,) between rows of them."""

    frame: NDArray[np.int64]
    track: Labels
    source: Indices
    target: Indices
    to_child: Mask
    """Whether an edge leads from parent to child."""


def build_track_graph(tracks: Tracks) -> TrackGraph:
    """The graph of a table of tracks."""
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
    source = np.concatenate([within, (first + length - 1)[parent[child]]])
    target = np.concatenate([within + 1, first[child]])
    to_child = np.arange(len(source)) >= len(within)
    return TrackGraph(
        frame[order], tracks.id[row][order], place[source], place[target], to_child
    )


def compute_aogm(truth: Tracks, result: Tracks, frames: list[FrameMatch]) -> Aogm:
    """Compare two tables of tracks, given for each frame which track of the result holds which of the truth."""
    true, found = build_track_graph(truth), build_track_graph(result)
    holder = _holders(
        found, frames
    )  # truth vertices and matched cells are in the same order
    held = holder >= 0
    holds = np.bincount(holder[held], minlength=len(found.frame))
    # links count between detections that hold one cell each
    alone = holds == 1
    cell = np.full(len(found.frame), -1, dtype=np.intp)
    cell[holder[held]] = np.flatnonzero(held)
    kept = alone[found.source] & alone[found.target]
    links = cell[found.source[kept]] * len(true.frame) + cell[found.target[kept]]
    wanted = true.source * len(true.frame) + true.target
    reachable = held & alone[np.where(held, holder, 0)] if len(alone) else held
    _, here, there = np.intersect1d(
        wanted, links, assume_unique=True, return_indices=True
    )
    return Aogm(
        split_vertices=int((holds[holds > 1] - 1).sum()),
        missing_vertices=int((~held).sum()),
        false_vertices=int((holds == 0).sum()),
        false_edges=len(links) - len(here),
        missing_edges=len(wanted) - len(here),
        wrong_edges=int((true.to_child[here] != found.to_child[kept][there]).sum()),
        vertices=len(true.frame),
        edges=len(wanted),
        unreachable_edges=int(
            (~(reachable[true.source] & reachable[true.target])).sum()
        ),
    )


def _holders(found: TrackGraph, frames: list[FrameMatch]) -> Indices:
    """(n,) for each true cell of all frames the vertex that holds it, −1 where there is none."""
    starts = np.searchsorted(found.frame, np.arange(len(frames) + 1))
    rows = []
    for t, held in enumerate(frames):
        present = found.track[starts[t] : starts[t + 1]]
        at = np.searchsorted(present, held.holder)
        rows.append(np.where(held.holder == NONE, -1, at + starts[t]))
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """How many of the things looked for were found."""

    right: int
    false: int
    missed: int

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to be found, and nothing was."""
        return not self.right + self.false + self.missed

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return (
            self.right / (self.right + self.false) if self.right + self.false else 1.0
        )

    @property
    def recall(self) -> float:
        """The share of what there is that was found."""
        return (
            self.right / (self.right + self.missed) if self.right + self.missed else 1.0
        )

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 1 where there is nothing and nothing was found."""
        all_ = 2 * self.right + self.false + self.missed
        return 2 * self.right / all_ if all_ else 1.0


def count_divisions(
    truth: Tracks, result: Tracks, frames: list[FrameMatch], tolerance: int = 0
) -> MatchCounts:
    """Divisions that were found, at most `tolerance` frames too early or too late.

    Mothers must match in the last frame that both have, and daughters in the first frame that both have: the result's
    track holds the true cell, and no other. By the Challenge's rule both have equally many daughters, and all match.
    """

    def same(cell: int, track: int, t: int) -> bool:
        held = frames[t]
        at = int(np.searchsorted(held.cell, cell))
        here = (
            at < len(held.cell) and held.cell[at] == cell and held.holder[at] == track
        )
        return bool(here) and int((held.holder == track).sum()) == 1

    def fits(true: _Division, found: _Division) -> bool:
        if len(true.daughters) != len(found.daughters):
            return False
        if not same(true.mother, found.mother, min(true.end, found.end)):
            return False
        return all(
            any(
                abs(begin - other) <= tolerance and same(cell, track, max(begin, other))
                for track, other in found.daughters
            )
            for cell, begin in true.daughters
        )

    by_end: dict[int, list[_Division]] = {}
    predicted = _divisions(result)
    for division in predicted:
        by_end.setdefault(division.end, []).append(division)
    true = _divisions(truth)
    right = sum(
        any(
            fits(division, found)
            for t in range(division.end - tolerance, division.end + tolerance + 1)
            for found in by_end.get(t, [])
        )
        for division in true
    )
    return MatchCounts(right, len(predicted) - right, len(true) - right)


class _Division(NamedTuple):
    mother: int
    end: int
    daughters: list[tuple[int, int]]
    """(track, first frame) of each."""


def _divisions(tracks: Tracks) -> list[_Division]:
    """Tracks with two or more children."""
    parent = tracks.parent_row()
    children = np.flatnonzero(parent >= 0)
    children = children[np.argsort(parent[children], kind="stable")]
    mothers, first, count = np.unique(
        parent[children], return_index=True, return_counts=True
    )
    return [
        _Division(
            int(tracks.id[mother]),
            int(tracks.end[mother]),
            [
                (int(tracks.id[row]), int(tracks.begin[row]))
                for row in children[at : at + n]
            ],
        )
        for mother, at, n in zip(mothers, first, count, strict=True)
        if n > 1
    ]
