"""A lineage from the tables of a result: its cells, and its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clew.tracking.io.delimited import read_delimited
from clew.tracking.io.events_csv import (
    ALIASES,
    COLUMNS,
    CONFIDENCE,
    PROBABILITY,
    parse_events,
)
from clew.tracking.io.tracks_csv import AXES
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.track_faults import Faults
from clew.tracking.lineage.tracks import Tracks

LEAST = {"frame": 0, "label": 1, "track": 1, "parent": 0}
"""Columns of integers in a table of cells, and their smallest values."""


def read_lineage_tables(tracks_path: Path, events_path: Path) -> Lineage:
    """Read ``tracks.csv`` and ``events.csv`` of one result.

    Returns
    -------
    lineage : Lineage
        With the track ids of the table.
    """
    table = read_delimited(
        tracks_path, dict.fromkeys((*LEAST, *AXES), ()), (*LEAST, "y", "x")
    )
    faults = Faults(table.where)
    frame, label, track, parent = (
        table.parse_integers(name, faults, least) for name, least in LEAST.items()
    )
    axes = [name for name in AXES if name in table]
    position = np.column_stack([table.parse_numbers(name, faults) for name in axes])
    faults.refuse()

    names = {**ALIASES, CONFIDENCE: (), PROBABILITY: ()}
    table = read_delimited(events_path, names, (*COLUMNS, CONFIDENCE))
    faults = Faults(table.where)
    events = parse_events(table, faults)
    confidence = table.parse_numbers(CONFIDENCE, faults, infinite=True)
    probability = None
    if PROBABILITY in table:
        probability = table.parse_numbers(PROBABILITY, faults)
    faults.refuse()

    order = np.lexsort((label, frame))
    last = max(frame.max(initial=0), events.end_frames().max(initial=0))
    lineage = Lineage(
        int(last) + 1,
        frame[order],
        label[order],
        position[order],
        events,
        confidence,
        probability=probability,
    )
    ids, first = np.unique(track[order], return_index=True)
    begin = frame[order][first]
    end = np.zeros(len(ids), dtype=np.int64)
    np.maximum.at(end, np.searchsorted(ids, track), frame)
    tracks = Tracks(ids, begin, end, parent[order][first])
    return lineage.with_tracks(track[order], tracks)
