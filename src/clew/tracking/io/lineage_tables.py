"""The tables of a result, CSV or Parquet: its cells, its events, and both as a lineage."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array
from clew.tracking.events import EventTable, Labels
from clew.tracking.io.delimited import Table
from clew.tracking.io.result_folder import warn_if_file_changed
from clew.tracking.io.result_tables import (
    ALIASES,
    AXES,
    COLUMNS,
    CONFIDENCE,
    PIECE,
    PROBABILITY,
    SIDES,
    parse_events,
)
from clew.tracking.io.tables import PARQUET, read_table
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.lineage.lineage import RECOVERED, Lineage
from clew.utils.validation import Faults

LEAST = {"frame": 0, "label": 1, PIECE: 1}
"""Columns of integers in a table of cells, and their smallest values."""


class ReadEvents(NamedTuple):
    """The events of a table.

    Attributes
    ----------
    events : EventTable
    confidence : ndarray of shape (n,)
        NaN if the table has none.
    probability : ndarray of shape (n,) or None
        Of being right.
    """

    events: EventTable
    confidence: Array
    probability: Array | None


class ReadCells(NamedTuple):
    """The cells of a table.

    Attributes
    ----------
    frame, label : ndarray of shape (n,)
    track : ndarray of shape (n,)
        Ids of pieces, which are those of masks.
    table : Table
        With the columns of positions and of recovered cells, not parsed yet.
    """

    frame: NDArray[np.int64]
    label: Labels
    track: Labels
    table: Table


def read_events(path: str | Path) -> ReadEvents:
    """Read ``events.csv`` or ``events.parquet``."""
    warn_if_file_changed(path)
    names = (CONFIDENCE, PROBABILITY)
    if Path(path).suffix in PARQUET:
        required = ["frame", "event"]
        required += [f"{side[:-1]}{end}" for side in SIDES for end in ("", "_2")]
        table = read_table(path, dict.fromkeys((*required, *names), ()), required)
        columns = dict(table.columns)
        for side in SIDES:
            first = columns.pop(side[:-1])
            second = columns.pop(f"{side[:-1]}_2")
            columns[side] = [
                " ".join(str(label) for label in pair if label is not None)
                for pair in zip(first, second, strict=True)
            ]
        table = Table(table.where, table.row, columns)
    else:
        table = read_table(path, {**ALIASES, **dict.fromkeys(names, ())}, COLUMNS)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    confidence = np.full(len(events), np.nan)
    if CONFIDENCE in table:
        confidence = table.parse_numbers(CONFIDENCE, faults, infinite=True)
    probability = None
    if PROBABILITY in table:
        probability = table.parse_numbers(PROBABILITY, faults)
    faults.refuse()
    return ReadEvents(events, confidence, probability)


def read_cells(path: str | Path) -> ReadCells:
    """Read ``tracks.csv`` or ``tracks.parquet``."""
    # older tables have no pieces: their tracks end at gaps
    aliases = {**dict.fromkeys((*LEAST, *AXES, RECOVERED), ()), PIECE: ("track",)}
    table = read_table(path, aliases, list(LEAST))
    faults = Faults(table.where)
    frame, label, track = (
        table.parse_integers(name, faults, least) for name, least in LEAST.items()
    )
    faults.refuse()
    return ReadCells(frame, label, track, table)


def read_lineage_tables(tracks_path: Path, events_path: Path) -> Lineage:
    """Read the tables of cells and events of one result.

    Returns
    -------
    lineage : Lineage
        With the ids of the pieces in the table, which are those of masks.
    """
    frame, label, track, table = read_cells(tracks_path)
    faults = Faults(table.where)
    axes = [name for name in AXES if name in table]
    position = np.column_stack([table.parse_numbers(name, faults) for name in axes])
    faults.refuse()
    events, confidence, probability = read_events(events_path)
    order = np.lexsort((label, frame))
    last = max(frame.max(initial=0), events.end_frames().max(initial=0))
    lineage = Lineage(
        int(last) + 1,
        frame[order],
        label[order],
        position[order],
        events,
        np.where(np.isnan(confidence), np.inf, confidence),
        probability=probability,
    )
    tracks = read_track_table(tracks_path).tracks
    return lineage.with_tracks(track[order], tracks[np.argsort(tracks.id)])
