"""What a true lineage says about a movie's own detections.

Truth and detections may have different masks. By the rule of the Cell Tracking Challenge a detection holds a true cell
if it covers over half of it, so that a cell is held by one detection at most, but a detection may hold several cells.
Detections of two frames that hold the same cells, or a mother and her daughters, belong together; each such group is
one event, or none where the truth leaves open which:

- one and one: a move, also where a detection holds several cells in both frames
- one that holds a mother, and two that hold a daughter each: a division
- one that holds two cells, and two that hold one each: a split or a merge
- one alone: it appears or disappears as far as detections go, even if the truth has the cell in the other frame; but
  not if some detection touches the cell there without holding it
- anything else, a mother of whom one daughter only is seen, and one of more than two daughters: left open

A detection that holds nothing is in no group. Where a detection disappears and another appears two frames later, and
both hold the same cell and no other, it is a gap. The truth may have the cell in the frame between them, where no
detection touches it, or a gap of its own: a track whose only child begins two frames after its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clew.errors import InputError
from clew.executors import Executor, Threads
from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import (
    NONE,
    Annotations,
    Event,
    EventIndex,
    EventTable,
    Labels,
)
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.lineage.tracks import MAX_CHILDREN, Tracks, check_frame
from clew.tracking.measurement.regions import Runs, measure_overlap

Progress = Callable[[int, int], None]
"""Told (frames done, frames in all)."""


class LabelSource(Protocol):
    """Whatever has label images: a Movie, or the masks of a result."""

    @property
    def n_frames(self) -> int:
        """How many frames."""
        ...

    def label(self, t: int) -> NDArray[Any]:
        """The label image of a frame."""
        ...


@dataclass(frozen=True, slots=True)
class ResultMasks:
    """The masks of a lineage, as something with detections; each is checked against the tracks as it is read."""

    lineage: CtcLineage

    @property
    def n_frames(self) -> int:
        """How many frames."""
        return len(self.lineage.masks)

    def label(self, t: int) -> NDArray[Any]:
        """The label image of a frame."""
        mask = self.lineage.masks[t]
        check_frame(self.lineage.tracks, t, np.unique(mask), self.lineage.source)
        return mask


class FrameMatch(NamedTuple):
    """The true cells of one frame, (k,) each."""

    cell: Labels
    """Their labels in the truth, ascending."""
    holder: Labels
    """The label of the detection that holds each, or `NONE`."""
    touched: Mask
    """Whether any detection covers a part of it."""


def match_frame(truth: NDArray[Any], detections: NDArray[Any]) -> FrameMatch:
    """Which detection of a label image holds which true cell of another: the one that covers over half of it."""
    shared = _overlap(truth, detections)
    holder = np.full(len(shared.cell), NONE, dtype=np.int64)
    holder[shared.row[shared.holds]] = shared.label[shared.holds]
    touched = np.zeros(len(shared.cell), dtype=bool)
    touched[shared.row] = True
    return FrameMatch(shared.cell, holder, touched)


def compute_jaccard(truth: NDArray[Any], detections: NDArray[Any]) -> Array:
    """(k,) the Jaccard index of each true cell, ascending, with the detection that holds it; 0 where none does."""
    shared = _overlap(truth, detections)
    labels, sizes = np.unique(detections, return_counts=True)
    row, pixels = shared.row[shared.holds], shared.pixels[shared.holds]
    union = (
        shared.size[row]
        + sizes[np.searchsorted(labels, shared.label[shared.holds])]
        - pixels
    )
    index = np.zeros(len(shared.cell))
    index[row] = pixels / union
    return index


class _Shared(NamedTuple):
    """What true cells and detections have in common."""

    cell: Labels
    """(k,) ascending."""
    size: Array
    """(k,) pixels of each cell."""
    row: Indices
    """(m,) of the cell, for each pair of cell and detection that overlap."""
    label: Labels
    """(m,) of the detection."""
    pixels: Array
    """(m,) that they share."""
    holds: Mask
    """(m,) whether the detection covers over half of the cell."""


def _overlap(truth: NDArray[Any], detections: NDArray[Any]) -> _Shared:
    for mask in (truth, detections):
        if mask.dtype.kind not in "iu":
            raise InputError(
                f"a mask has dtype {mask.dtype}; expected integers, a number for each cell"
            )
    if truth.shape != detections.shape:
        raise InputError(
            f"the truth's mask has shape {truth.shape}, the detections' mask {detections.shape}"
        )
    runs = Runs.from_labels(truth)
    cell, of_run = np.unique(runs.label, return_inverse=True)
    size = np.bincount(of_run, weights=runs.length, minlength=len(cell)).astype(
        np.float64
    )
    shared, label, pixels = measure_overlap(truth, detections, (1.0,) * truth.ndim)
    row = np.searchsorted(cell, shared)
    return _Shared(cell, size, row, label, pixels, 2 * pixels > size[row])


BLOCK = 8
"""Frames that one job matches."""


def match_frames(
    truth: CtcLineage,
    movie: LabelSource,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> list[FrameMatch]:
    """The true cells of every frame with the detections that hold them; one frame a worker is in memory at a time."""
    n = len(truth.masks)
    if n != movie.n_frames:
        raise InputError(
            f"the truth has {n} frames, the movie {movie.n_frames}; it must be the truth of this movie, or with "
            "--frames of the part that was tracked"
        )
    matched: list[FrameMatch] = []
    blocks = [range(t, min(t + BLOCK, n)) for t in range(0, n, BLOCK)]
    for found in (executor or Threads()).map(
        partial(_match_block, truth, movie), blocks
    ):
        matched += found
        if progress is not None:
            progress(len(matched), n)
    return matched


def _match_block(
    truth: CtcLineage, movie: LabelSource, frames: range
) -> list[FrameMatch]:
    """The same for some frames."""
    matched = []
    for t in frames:
        mask = truth.masks[t]
        try:
            held = match_frame(mask, movie.label(t))
        except InputError as error:
            raise InputError(f"frame {t}: {error}") from error
        check_frame(truth.tracks, t, held.cell, truth.source)
        matched.append(held)
    return matched


def derive_annotations(
    truth: CtcLineage, movie: LabelSource, progress: Progress | None = None
) -> Annotations:
    """All events of a movie's detections that a true lineage determines; no two of them contradict each other."""
    return Annotations.of(
        derive_events(truth.tracks, match_frames(truth, movie, progress))
    )


def derive_events(tracks: Tracks, frames: list[FrameMatch]) -> EventTable:
    """The events that matched frames determine."""
    tracks = tracks[np.argsort(tracks.id)]
    parent = tracks.parent_row()
    pairs = [
        _pair(t, _links(tracks, parent, t, *pair), *pair)
        for t, pair in enumerate(pairwise(frames))
    ]
    return _with_gaps(EventTable.join(pairs), tracks, frames)


def _with_gaps(
    events: EventTable, tracks: Tracks, frames: list[FrameMatch]
) -> EventTable:
    """The events with gaps in place of a disappearance and an appearance that are about the same cell."""
    index, parent = EventIndex(events), tracks.parent_row()
    # with whom each track is the same cell after a gap of one frame
    only = (
        (parent >= 0)
        & (tracks.child_count(parent)[parent] == 1)
        & (tracks.begin == tracks.end[parent] + 2)
    )
    found = [events[:0]]
    for t, (before, after) in enumerate(zip(frames, frames[2:], strict=False)):
        cells, labels = _held_alone(after)
        earlier, earlier_labels = _held_alone(before)
        row = np.searchsorted(tracks.id, cells)
        again = only[row] & (tracks.begin[row] == t + 2)
        name = np.where(
            again, tracks.parent[row], np.where(tracks.begin[row] <= t, cells, NONE)
        )
        at = np.minimum(np.searchsorted(earlier, name), max(len(earlier) - 1, 0))
        same = (
            np.flatnonzero(earlier[at] == name)
            if len(earlier)
            else np.zeros(0, dtype=np.intp)
        )
        cells_before, cells_after = np.zeros((2, len(same), 2), dtype=np.int64)
        cells_before[:, 0], cells_after[:, 0] = earlier_labels[at[same]], labels[same]
        time, kind = (
            np.full(len(same), t, dtype=np.int64),
            np.full(len(same), Event.GAP, dtype=np.int8),
        )
        gaps = EventTable(time, kind, cells_before, cells_after)
        ends = index.find(gaps.to_pairwise()).reshape(2, -1)
        found.append(gaps[np.flatnonzero((ends >= 0).all(axis=0))])
    gaps = EventTable.join(found)
    kept = np.ones(len(events), dtype=bool)
    kept[index.find(gaps.to_pairwise())] = False
    return EventTable.join([events[kept], gaps]) if len(gaps) else events


def _held_alone(held: FrameMatch) -> tuple[Labels, Labels]:
    """The cells that are alone in their detections, ascending, and these detections' labels."""
    labels, row, count = np.unique(held.holder, return_inverse=True, return_counts=True)
    alone = (
        (count[row] == 1) & (held.holder != NONE)
        if len(labels)
        else np.zeros(0, dtype=bool)
    )
    return held.cell[alone], held.holder[alone]


def derive_track_events(tracks: Tracks, n_frames: int) -> EventTable:
    """The events that a table of tracks means, where every detection is labelled with its track."""
    alive = [
        np.sort(tracks.id[(tracks.begin <= t) & (t <= tracks.end)])
        for t in range(n_frames)
    ]
    return derive_events(
        tracks, [FrameMatch(ids, ids, np.ones(len(ids), dtype=bool)) for ids in alive]
    )


class _Links(NamedTuple):
    """Pairs of a true cell and what it became in the next frame, as rows of the two frames."""

    before: Indices
    after: Indices
    daughter: Mask
    """Whether it is one of several daughters."""
    crowded: Mask
    """Whether it is one of more than two, which is no event of clew's."""


def _links(
    tracks: Tracks, parent_row: Indices, t: int, before: FrameMatch, after: FrameMatch
) -> _Links:
    """Which cell of the later frame comes from which of the earlier one; tracks are sorted by id."""
    row = np.searchsorted(tracks.id, after.cell)
    parent = parent_row[row]
    new = tracks.begin[row] > t
    direct = new & (parent >= 0) & (tracks.end[parent] == t)
    ancestor = np.where(new, np.where(direct, tracks.parent[row], NONE), after.cell)
    at = np.minimum(
        np.searchsorted(before.cell, ancestor), max(len(before.cell) - 1, 0)
    )
    linked = (
        np.flatnonzero(before.cell[at] == ancestor)
        if len(before.cell)
        else np.empty(0, dtype=np.intp)
    )
    siblings = np.where(new[linked], tracks.child_count(parent_row)[parent[linked]], 0)
    return _Links(at[linked], linked, siblings > 1, siblings > MAX_CHILDREN)


def _pair(t: int, links: _Links, before: FrameMatch, after: FrameMatch) -> EventTable:
    """The events from one frame to the next."""
    earlier, cell_of_earlier = _detections(before)
    later, cell_of_later = _detections(after)
    source, target = cell_of_earlier[links.before], cell_of_later[links.after]
    seen = (source >= 0) & (target >= 0)

    # groups of detections that belong together
    n = len(earlier) + len(later)
    ends = (source[seen], target[seen] + len(earlier))
    count, group = connected_components(
        coo_array((np.ones(seen.sum()), ends), shape=(n, n)), directed=False
    )
    group_before, group_after = group[: len(earlier)], group[len(earlier) :]

    def number(groups: NDArray[Any], cells: Indices) -> NDArray[np.intp]:
        return np.bincount(groups[cells[cells >= 0]], minlength=count)

    sources, targets = (
        np.bincount(group_before, minlength=count),
        np.bincount(group_after, minlength=count),
    )
    cells_before, cells_after = (
        number(group_before, cell_of_earlier),
        number(group_after, cell_of_later),
    )
    daughters = number(group_after, target[seen & links.daughter])

    # what the truth leaves open
    open_ = np.zeros(count, dtype=bool)
    open_[
        group_before[source[(source >= 0) & (target < 0) & after.touched[links.after]]]
    ] = True
    open_[
        group_after[target[(target >= 0) & (source < 0) & before.touched[links.before]]]
    ] = True
    born = np.bincount(links.before[seen & links.daughter], minlength=len(before.cell))
    open_[group_before[cell_of_earlier[born == 1]]] = True
    open_[group_before[source[seen & links.crowded]]] = True

    two_cells = (cells_before == 2) & (cells_after == 2) & (daughters == 0)
    event = np.select(
        [
            open_,
            (sources == 1) & (targets == 1),
            (sources == 1) & (targets == 2) & (cells_before == 1) & (cells_after == 2),
            (sources == 0) & (targets == 1),
            (sources == 1) & (targets == 0),
            (sources == 1) & (targets == 2) & two_cells,
            (sources == 2) & (targets == 1) & two_cells,
        ],
        [
            -1,
            Event.MOVE,
            Event.DIVIDE,
            Event.APPEAR,
            Event.DISAPPEAR,
            Event.SPLIT,
            Event.MERGE,
        ],
        default=-1,
    )
    known = np.flatnonzero(event >= 0)
    return EventTable(
        np.full(len(known), t, dtype=np.int64),
        event[known].astype(np.int8),
        _by_group(group_before, earlier, count)[known],
        _by_group(group_after, later, count)[known],
    )


def _detections(held: FrameMatch) -> tuple[Labels, Indices]:
    """The detections that hold any cell, and for each cell the row of its holder among them, −1 where it has none."""
    labels, row = np.unique(held.holder, return_inverse=True)
    free = int(len(labels) > 0 and labels[0] == NONE)
    return labels[free:], np.where(held.holder == NONE, -1, row - free)


def _by_group(group: NDArray[Any], labels: Labels, count: int) -> Labels:
    """(count, 2) the first two labels of each group, ascending, `NONE` filled up."""
    order = np.argsort(group, kind="stable")
    grouped = group[order]
    place = np.arange(len(grouped)) - np.searchsorted(grouped, grouped)
    table = np.full((count, 2), NONE, dtype=np.int64)
    first = place < 2
    table[grouped[first], place[first]] = labels[order[first]]
    return table
