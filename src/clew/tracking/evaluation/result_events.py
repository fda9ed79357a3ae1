"""The events of a result as its own tables tell them, in terms of tracks; without tables, what the tracks mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.evaluation.metrics import build_track_graph
from clew.tracking.evaluation.truth import derive_track_events
from clew.tracking.events import NONE, EventTable, Labels
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.delimited import Table
from clew.tracking.io.events_csv import parse_events, read_events
from clew.tracking.io.names import EVENTS, EVENTS_PARQUET, TRACKS, TRACKS_PARQUET
from clew.tracking.io.tables import read_table
from clew.tracking.io.track_tables import PointLineage
from clew.tracking.lineage.track_faults import Faults

TABLES = ((EVENTS, TRACKS), (EVENTS_PARQUET, TRACKS_PARQUET))


def read_result_events(result: CtcLineage | PointLineage) -> tuple[EventTable, str]:
    """The events of a result in terms of its masks, and where they come from."""
    folder = Path(result.source)
    told = next(
        (pair for pair in TABLES if all((folder / name).is_file() for name in pair)),
        None,
    )
    if told is None:
        return derive_track_events(
            result.tracks, result.n_frames
        ), "the tracks, which cannot tell merges"
    of_events, of_tracks = told
    events = (
        read_events(folder / of_events)[0]
        if of_events == EVENTS
        else _read_parquet(folder / of_events)
    )
    frame, label, track = _track_table(folder / of_tracks)
    graph, order = build_track_graph(result.tracks), np.lexsort((track, frame))
    if not (
        np.array_equal(frame[order], graph.frame)
        and np.array_equal(track[order], graph.track)
    ):
        raise InputError(
            f"{folder}: {of_tracks} and the masks are of different results; track into a new folder"
        )
    stride = (
        int(
            max(
                label.max(initial=0),
                events.sources.max(initial=0),
                events.targets.max(initial=0),
            )
        )
        + 1
    )
    order = np.argsort(frame * stride + label)
    # one more than there are, for what lies beyond the last
    keys, named = (
        np.append((frame * stride + label)[order], -1),
        np.append(track[order], NONE),
    )

    def tracks_of(labels: Labels, frames: NDArray[np.int64]) -> Labels:
        wanted = frames[:, None] * stride + labels
        at = np.searchsorted(keys[:-1], wanted)
        unknown = ((keys[at] != wanted) & (labels != NONE)).any(axis=1)
        if unknown.any():
            words = events.describe(int(np.argmax(unknown)))
            raise InputError(
                f"{folder / of_events}: {words}: {of_tracks} does not have its cells"
            )
        names = np.where(labels == NONE, NONE, named[at])
        swapped = (names[:, 0] > names[:, 1]) & (names[:, 1] != NONE)
        names[swapped] = names[swapped, ::-1]
        return names

    return EventTable(
        events.frame,
        events.event,
        tracks_of(events.sources, events.frame),
        tracks_of(events.targets, events.end_frames()),
    ), of_events


def _track_table(path: Path) -> tuple[NDArray[np.int64], Labels, Labels]:
    """Frame, label and track of every detection."""
    columns = {"frame": 0, "label": 1, "track": 1}
    table = read_table(path, dict.fromkeys(columns, ()), list(columns), list)
    faults = Faults(table.where)
    frame, label, track = (
        table.parse_integers(name, faults, least) for name, least in columns.items()
    )
    faults.refuse()
    return frame, label, track


def _read_parquet(path: Path) -> EventTable:
    """The events of `events.parquet`."""
    names = ("source", "source_2", "target", "target_2")
    table = read_table(
        path,
        dict.fromkeys(("frame", "event", *names), ()),
        ["frame", "event", *names],
        list,
    )
    faults = Faults(table.where)
    sides = {
        f"{side}s": [
            " ".join(str(label) for label in pair if label is not None)
            for pair in zip(
                table.columns[side], table.columns[f"{side}_2"], strict=True
            )
        ]
        for side in ("source", "target")
    }
    known = {name: table.columns[name] for name in ("frame", "event")}
    events = parse_events(Table(table.where, table.row, known | sides), faults)
    faults.refuse()
    return events
