"""The events of a result in terms of its tracks.

They are read from its tables of events and cells; without these, the tracks imply
them, except for merges.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.evaluation.metrics import build_track_graph
from clew.tracking.evaluation.truth import derive_track_events
from clew.tracking.events import NONE, Event, EventTable, Labels
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.lineage_tables import read_cells, read_events
from clew.tracking.io.names import EVENTS, EVENTS_PARQUET, TRACKS, TRACKS_PARQUET
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.lineage.lineage import RECOVERED
from clew.utils.validation import Faults

TABLES = ((EVENTS, TRACKS), (EVENTS_PARQUET, TRACKS_PARQUET))


Cell = tuple[int, int]
"""Frame and label."""


class ResultEvents(NamedTuple):
    """The events of a result, with tracks in place of labels."""

    events: EventTable
    origin: str
    """Where they come from, in words."""
    recovered: frozenset[Cell]
    """Cells without a given mask, as (frame, track)."""


def read_result_events(result: CtcLineage | PointLineage) -> ResultEvents:
    """Read the events of a result, and which of its cells were recovered."""
    folder = Path(result.source)
    for events_name, tracks_name in TABLES:
        if (folder / events_name).is_file() and (folder / tracks_name).is_file():
            break
    else:
        events = derive_track_events(result.tracks, result.n_frames)
        words = "the tracks, which do not show merges"
        return ResultEvents(events, words, frozenset())
    events = read_events(folder / events_name).events
    frame, label, track, table = read_cells(folder / tracks_name)
    is_recovered = np.zeros(len(frame), dtype=bool)
    if RECOVERED in table:
        faults = Faults(table.where)
        is_recovered = table.parse_integers(RECOVERED, faults, 0) > 0
        faults.refuse()
    graph = build_track_graph(result.tracks)
    order = np.lexsort((track, frame))
    same_frames = np.array_equal(frame[order], graph.frame)
    if not same_frames or not np.array_equal(track[order], graph.track):
        raise InputError(
            f"{folder}: {tracks_name} and the masks are of different results; track "
            "into a new folder"
        )
    order = np.lexsort((label, frame))
    cells = _CellTable(frame[order], label[order], track[order])
    sources, source_exists = cells.find_tracks(events.frame, events.sources)
    targets, target_exists = cells.find_tracks(events.end_frames(), events.targets)
    is_unknown = ~(source_exists & target_exists)
    if is_unknown.any():
        words = events.describe(int(np.argmax(is_unknown)))
        raise InputError(
            f"{folder / events_name}: {words}: {tracks_name} does not have its cells"
        )
    recovered = zip(
        frame[is_recovered].tolist(), track[is_recovered].tolist(), strict=True
    )
    events = EventTable(events.frame, events.event, sources, targets)
    return ResultEvents(events, events_name, frozenset(recovered))


def remove_recovered(events: EventTable, recovered: Set[Cell]) -> EventTable:
    """Return the events between given cells: filled gaps are open again.

    A recovered cell moves, or is the first or last of its track. A gap of one frame is
    a gap again; before a longer one a cell disappears, and one appears after it.

    Parameters
    ----------
    events : EventTable
    recovered : set of (frame, label)
    """
    if not recovered:
        return events
    in_frames = np.isin(events.frame, [frame for frame, _ in recovered])
    ends_there = np.isin(events.frame + 1, [frame for frame, _ in recovered])
    kind = events.event.copy()
    sources = events.sources.copy()
    targets = events.targets.copy()
    kept = np.ones(len(events), dtype=bool)
    entered: dict[Cell, int] = {}
    left: dict[Cell, int] = {}
    for row in np.flatnonzero(in_frames | ends_there).tolist():
        frame = int(events.frame[row])
        before = (frame, int(sources[row, 0]))
        after = (frame + 1, int(targets[row, 0]))
        is_end = NONE in (before[1], after[1])
        n_recovered = (before in recovered) + (after in recovered)
        if n_recovered == 2 or (is_end and n_recovered):
            kept[row] = False
        elif after in recovered:
            entered[after] = row
            kind[row] = Event.DISAPPEAR
            targets[row] = NONE
        elif before in recovered:
            left[before] = row
            kind[row] = Event.APPEAR
            sources[row] = NONE
    for cell in entered.keys() & left.keys():
        kind[entered[cell]] = Event.GAP
        targets[entered[cell]] = events.targets[left[cell]]
        kept[left[cell]] = False
    return EventTable(events.frame, kind, sources, targets)[kept]


class _CellTable:
    """Tracks of cells, sorted by frame and label; (n,) each."""

    def __init__(self, frame: NDArray[np.int64], label: Labels, track: Labels) -> None:
        self.labels = np.unique(label)
        self.keys = self._make_keys(frame, label)
        self.track = track

    def _make_keys(self, frame: NDArray[np.int64], label: Labels) -> NDArray[np.int64]:
        """One integer for each cell; ranks stand for labels, which may be huge."""
        return frame * (len(self.labels) + 1) + np.searchsorted(self.labels, label)

    def find_tracks(
        self, frame: NDArray[np.int64], labels: Labels
    ) -> tuple[Labels, NDArray[np.bool_]]:
        """Tracks (n, 2) of labels (n, 2), ascending, and whether all exist (n,)."""
        is_cell = labels != NONE
        if not len(self.keys):
            return np.full_like(labels, NONE), ~is_cell.any(axis=1)
        keys = self._make_keys(frame[:, None], labels)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        exists = (self.keys[at] == keys) & np.isin(labels, self.labels)
        tracks = np.where(is_cell, self.track[at], NONE)
        is_swapped = (tracks[:, 0] > tracks[:, 1]) & (tracks[:, 1] != NONE)
        tracks[is_swapped] = tracks[is_swapped, ::-1]
        return tracks, (exists | ~is_cell).all(axis=1)
