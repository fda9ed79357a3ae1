"""The events of a movie's detections that a true lineage determines.

Detections of two frames that hold the same cells (see `matching`), or a mother and
her daughters, belong to one group. Each group is one event, or none where the truth
leaves open which:

- one and one: a move, also if the detection holds several cells in both frames
- one that holds a mother, and two that hold a daughter each: a division
- one that holds two cells, and two that hold one each: a split or a merge
- one alone: it appears or disappears as far as detections go, even if the truth has
  the cell in the other frame; but not if a detection touches the cell there without
  holding it
- anything else, a mother with only one detected daughter, and more than two
  daughters: left open

A detection that holds nothing is in no group. If a detection disappears and another
appears two frames later, and both hold the same cell and no other, it is a gap. The
truth may have the cell in the frame between, where no detection touches it, or a gap
as well: a track whose only child begins two frames after its end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Indices, Mask
from clew.parallel import Progress
from clew.tracking.evaluation.matching import (
    FrameMatch,
    LabelSource,
    match_frames,
)
from clew.tracking.events import (
    NONE,
    Annotations,
    Event,
    EventIndex,
    EventTable,
    Labels,
)
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.segments import label_components
from clew.tracking.lineage.tracks import MAX_CHILDREN, NO_PARENT, Tracks

OPEN = -1
"""Stands for a group whose event the truth leaves open."""


def derive_annotations(
    truth: CtcLineage, movie: LabelSource, progress: Progress | None = None
) -> Annotations:
    """All events of a movie that a true lineage determines, matched by masks.

    Parameters
    ----------
    truth : CtcLineage
    movie : LabelSource
    progress : callable, optional
        Called with the number of frames done and in all.

    Returns
    -------
    annotations : Annotations
        No two of them contradict each other.
    """
    matched = match_frames(truth, movie, progress)
    return Annotations.of(derive_events(truth.tracks, matched))


def derive_known_events(
    lineage: CtcLineage | PointLineage,
    matched: list[FrameMatch],
    *,
    is_complete: bool,
) -> EventTable:
    """The events that a lineage determines, which may have some of the cells only.

    Where it is not complete, beginnings and ends of tracks are unknown unless they
    are marked: a person may have started and stopped there. A mother with one daughter
    is unknown as well, since the other daughter may not be in the file, and so is a
    frame that a track skips, since the cell may have a detection there.

    Parameters
    ----------
    lineage : CtcLineage or PointLineage
    matched : list of FrameMatch
        For each frame.
    is_complete : bool
        Whether the lineage has all cells.

    Returns
    -------
    events : EventTable
    """
    tracks = lineage.tracks if is_complete else _drop_lone_children(lineage)
    events = derive_events(tracks, matched)
    is_end = np.isin(events.event, (Event.APPEAR, Event.DISAPPEAR))
    is_known = np.full(len(events), is_complete) | ~is_end
    if not is_complete:
        is_known &= ~_find_skipped(lineage, events, matched)
    if not isinstance(lineage, PointLineage):
        return events[is_known]
    begins = lineage.unknown_begin if is_complete else lineage.known_begin
    ends = lineage.unknown_end if is_complete else lineage.known_end
    # a cell that was marked to come from nothing and to lead to nothing is none
    marked = np.zeros(0) if is_complete else np.intersect1d(begins, ends)
    kind = events.event.copy()
    index = EventIndex(events)
    for ids, is_begin in ((begins, True), (ends, False)):
        tracks = lineage.tracks[np.isin(lineage.tracks.id, ids)]
        frame = tracks.begin if is_begin else tracks.end
        label = [
            _find_holder(matched[t], track)
            for t, track in zip(frame.tolist(), tracks.id.tolist(), strict=True)
        ]
        row = index.find_cell(
            frame, np.full(len(frame), is_begin), np.array(label, dtype=np.int64)
        )
        is_known[row[row >= 0]] = not is_complete
        is_false = (row >= 0) & tracks.is_lone() & np.isin(tracks.id, marked)
        kind[row[is_false]] = Event.FALSE_BEGIN if is_begin else Event.FALSE_END
    return replace(events, event=kind)[is_known]


def _find_skipped(
    lineage: CtcLineage | PointLineage, events: EventTable, matched: list[FrameMatch]
) -> Mask:
    """(n,) gaps in whose middle frame the lineage has no cell."""
    is_skipped = np.zeros(len(events), dtype=bool)
    tracks = lineage.tracks
    for row in np.flatnonzero(events.event == Event.GAP).tolist():
        t = int(events.frame[row])
        before = matched[t]
        cells = before.cell[before.holder == events.sources[row, 0]]
        later = tracks.id[np.isin(tracks.parent, cells)]
        names = np.concatenate([cells, later])
        is_skipped[row] = not np.isin(names, matched[t + 1].cell).any()
    return is_skipped


def _find_holder(match: FrameMatch, track: int) -> int:
    """The detection that holds a track, or `NONE`."""
    return int(match.holder[match.cell == track].max(initial=NONE))


def _drop_lone_children(lineage: CtcLineage | PointLineage) -> Tracks:
    """The tracks, without parents that have one child which is another cell."""
    tracks = lineage.tracks
    parent = tracks.parent_row()
    is_lone = (parent >= 0) & (tracks.child_count(parent)[parent] == 1)
    if isinstance(lineage, PointLineage):
        is_lone &= ~np.isin(tracks.id, lineage.continued)
    else:
        # by the Cell Tracking Challenge, a child after a gap is the same cell
        is_lone &= tracks.begin == tracks.end[parent] + 1
    return replace(tracks, parent=np.where(is_lone, NO_PARENT, tracks.parent))


def count_open_tracks(
    lineage: CtcLineage | PointLineage, n_frames: int, *, is_complete: bool
) -> int:
    """Number of tracks of which a beginning or an end is unknown.

    In a lineage that is not complete, a cell without links is a cell, and no track.
    """
    if is_complete:
        if not isinstance(lineage, PointLineage):
            return 0
        return len(np.union1d(lineage.unknown_begin, lineage.unknown_end))
    tracks = _drop_lone_children(lineage)
    is_ended = ~np.isin(tracks.id, tracks.parent) & (tracks.end < n_frames - 1)
    is_begun = (tracks.parent == NO_PARENT) & (tracks.begin > 0)
    if isinstance(lineage, PointLineage):
        is_ended &= ~np.isin(tracks.id, lineage.known_end)
        is_begun &= ~np.isin(tracks.id, lineage.known_begin)
    is_linked = (tracks.end > tracks.begin) | (tracks.parent != NO_PARENT)
    is_linked |= np.isin(tracks.id, tracks.parent)
    return int((is_linked & (is_ended | is_begun)).sum())


def derive_track_events(tracks: Tracks, n_frames: int) -> EventTable:
    """The events of a table of tracks whose detections carry the ids of tracks."""
    frames = []
    for t in range(n_frames):
        is_alive = (tracks.begin <= t) & (t <= tracks.end)
        ids = np.sort(tracks.id[is_alive])
        frames.append(FrameMatch(ids, ids, np.ones(len(ids), dtype=bool)))
    return derive_events(tracks, frames)


def derive_events(tracks: Tracks, frames: list[FrameMatch]) -> EventTable:
    """The events that matched frames determine.

    Parameters
    ----------
    tracks : Tracks
        The true lineage.
    frames : list of FrameMatch
        For each frame.
    """
    tracks = tracks[np.argsort(tracks.id)]
    parent = tracks.parent_row()
    tables = []
    for t, (before, after) in enumerate(pairwise(frames)):
        links = _link_cells(tracks, parent, t, before, after)
        tables.append(_derive_pair(t, links, before, after))
    return _insert_gaps(EventTable.join(tables), tracks, frames)


def _insert_gaps(
    events: EventTable, tracks: Tracks, frames: list[FrameMatch]
) -> EventTable:
    """Replace a disappearance and an appearance of the same cell by a gap."""
    index = EventIndex(events)
    parent = tracks.parent_row()
    # the only child of a track that ended two frames before is the same cell
    is_only_child = (parent >= 0) & (tracks.child_count(parent)[parent] == 1)
    is_continued = is_only_child & (tracks.begin == tracks.end[parent] + 2)
    tables = [events[:0]]
    for t in range(len(frames) - 2):
        cells, labels = _select_single(frames[t + 2])
        earlier_cells, earlier_labels = _select_single(frames[t])
        row = np.searchsorted(tracks.id, cells)
        starts_here = is_continued[row] & (tracks.begin[row] == t + 2)
        same_track = np.where(tracks.begin[row] <= t, cells, NONE)
        name = np.where(starts_here, tracks.parent[row], same_track)
        at, is_present = _find_sorted(earlier_cells, name)
        sources = np.zeros((int(is_present.sum()), 2), dtype=np.int64)
        targets = np.zeros_like(sources)
        sources[:, 0] = earlier_labels[at[is_present]]
        targets[:, 0] = labels[is_present]
        gaps = EventTable(
            np.full(len(sources), t, dtype=np.int64),
            np.full(len(sources), Event.GAP, dtype=np.int8),
            sources,
            targets,
        )
        ends = index.find(gaps.to_pairwise()).reshape(2, -1)
        tables.append(gaps[np.flatnonzero((ends >= 0).all(axis=0))])
    gaps = EventTable.join(tables)
    if not len(gaps):
        return events
    is_kept = np.ones(len(events), dtype=bool)
    is_kept[index.find(gaps.to_pairwise())] = False
    return EventTable.join([events[is_kept], gaps])


def _find_sorted(values: Labels, wanted: Labels) -> tuple[Indices, Mask]:
    """Where each wanted value stands in sorted values, and whether it does."""
    if not len(values):
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return at, values[at] == wanted


def _select_single(match: FrameMatch) -> tuple[Labels, Labels]:
    """Cells that are alone in their detection, ascending, and these detections."""
    if not len(match.holder):
        return match.cell, match.holder
    _, row, count = np.unique(match.holder, return_inverse=True, return_counts=True)
    is_alone = (count[row] == 1) & (match.holder != NONE)
    return match.cell[is_alone], match.holder[is_alone]


class _CellLinks(NamedTuple):
    """FramePairBuilder of a true cell and what it became in the next frame.

    Attributes
    ----------
    before, after : ndarray of shape (m,)
        Rows of the two frames.
    is_daughter : ndarray of bool of shape (m,)
        Whether the later cell has a sibling.
    is_crowded : ndarray of bool of shape (m,)
        Whether it has two or more, which is no event of clew.
    """

    before: Indices
    after: Indices
    is_daughter: Mask
    is_crowded: Mask


def _link_cells(
    tracks: Tracks, parent_row: Indices, t: int, before: FrameMatch, after: FrameMatch
) -> _CellLinks:
    """Link true cells of frames t and t + 1; tracks are sorted by id."""
    row = np.searchsorted(tracks.id, after.cell)
    parent = parent_row[row]
    is_new = tracks.begin[row] > t
    follows_parent = is_new & (parent >= 0) & (tracks.end[parent] == t)
    parent_id = np.where(follows_parent, tracks.parent[row], NONE)
    ancestor = np.where(is_new, parent_id, after.cell)
    at, is_present = _find_sorted(before.cell, ancestor)
    linked = np.flatnonzero(is_present)
    n_children = tracks.child_count(parent_row)[parent[linked]]
    n_siblings = np.where(is_new[linked], n_children, 0)
    return _CellLinks(at[linked], linked, n_siblings > 1, n_siblings > MAX_CHILDREN)


def _derive_pair(
    t: int, links: _CellLinks, before: FrameMatch, after: FrameMatch
) -> EventTable:
    """The events from one frame to the next."""
    earlier, holder_before = _list_holders(before)
    later, holder_after = _list_holders(after)
    source = holder_before[links.before]
    target = holder_after[links.after]
    is_held = (source >= 0) & (target >= 0)

    n = len(earlier) + len(later)
    ends = (source[is_held], target[is_held] + len(earlier))
    group = label_components(n, *ends)
    n_groups = int(group.max(initial=-1)) + 1
    group_before = group[: len(earlier)]
    group_after = group[len(earlier) :]

    def count_by_group(groups: NDArray[np.int64], holders: Indices) -> Indices:
        return np.bincount(groups[holders[holders >= 0]], minlength=n_groups)

    n_sources = np.bincount(group_before, minlength=n_groups)
    n_targets = np.bincount(group_after, minlength=n_groups)
    n_cells_before = count_by_group(group_before, holder_before)
    n_cells_after = count_by_group(group_after, holder_after)
    n_daughters = count_by_group(group_after, target[is_held & links.is_daughter])

    is_open = np.zeros(n_groups, dtype=bool)
    touched_after = (source >= 0) & (target < 0) & after.touched[links.after]
    touched_before = (target >= 0) & (source < 0) & before.touched[links.before]
    is_open[group_before[source[touched_after]]] = True
    is_open[group_after[target[touched_before]]] = True
    mothers = links.before[is_held & links.is_daughter]
    n_seen_daughters = np.bincount(mothers, minlength=len(before.cell))
    is_open[group_before[holder_before[n_seen_daughters == 1]]] = True
    is_open[group_before[source[is_held & links.is_crowded]]] = True

    one_to_one = (n_sources == 1) & (n_targets == 1)
    one_to_two = (n_sources == 1) & (n_targets == 2)
    two_to_one = (n_sources == 2) & (n_targets == 1)
    has_two_cells = (n_cells_before == 2) & (n_cells_after == 2) & (n_daughters == 0)
    is_division = one_to_two & (n_cells_before == 1) & (n_cells_after == 2)
    event = np.select(
        [
            is_open,
            one_to_one,
            is_division,
            (n_sources == 0) & (n_targets == 1),
            (n_sources == 1) & (n_targets == 0),
            one_to_two & has_two_cells,
            two_to_one & has_two_cells,
        ],
        [
            OPEN,
            Event.MOVE,
            Event.DIVIDE,
            Event.APPEAR,
            Event.DISAPPEAR,
            Event.SPLIT,
            Event.MERGE,
        ],
        default=OPEN,
    )
    known = np.flatnonzero(event != OPEN)
    return EventTable(
        np.full(len(known), t, dtype=np.int64),
        event[known].astype(np.int8),
        _list_by_group(group_before, earlier, n_groups)[known],
        _list_by_group(group_after, later, n_groups)[known],
    )


def _list_holders(match: FrameMatch) -> tuple[Labels, Indices]:
    """Detections that hold any cell, and for each cell the row of its holder or -1."""
    labels, row = np.unique(match.holder, return_inverse=True)
    n_none = int(len(labels) > 0 and labels[0] == NONE)
    return labels[n_none:], np.where(match.holder == NONE, -1, row - n_none)


def _list_by_group(group: NDArray[np.int64], labels: Labels, n_groups: int) -> Labels:
    """(n_groups, 2) first two labels of each group, ascending, padded with `NONE`."""
    order = np.argsort(group, kind="stable")
    grouped = group[order]
    place = np.arange(len(grouped)) - np.searchsorted(grouped, grouped)
    is_first = place < 2
    table = np.full((n_groups, 2), NONE, dtype=np.int64)
    table[grouped[is_first], place[is_first]] = labels[order[is_first]]
    return table
