"""A lineage from the tables of a result: its cells, and its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clew.tracking.io.delimited import read_delimited
from clew.tracking.io.result_tables import (
    ALIASES,
    AXES,
    COLUMNS,
    CONFIDENCE,
    PIECE,
    PROBABILITY,
    parse_events,
)
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.lineage.lineage import Lineage
from clew.utils.validation import Faults

LEAST = {"frame": 0, "label": 1, PIECE: 1}
"""Columns of integers in a table of cells, and their smallest values."""


def read_lineage_tables(tracks_path: Path, events_path: Path) -> Lineage:
    """Read ``tracks.csv`` and ``events.csv`` of one result.

    Returns
    -------
    lineage : Lineage
        With the ids of the pieces in the table, which are those of masks.
    """
    names = dict.fromkeys((*LEAST, *AXES), ())
    # older tables have no pieces: their tracks end at gaps
    aliases = {**names, PIECE: ("track",)}
    table = read_delimited(tracks_path, aliases, (*LEAST, "y", "x"))
    faults = Faults(table.where)
    frame, label, track = (
        table.parse_integers(name, faults, least) for name, least in LEAST.items()
    )
    axes = [name for name in AXES if name in table]
    position = np.column_stack([table.parse_numbers(name, faults) for name in axes])
    faults.refuse()

    columns = {**ALIASES, CONFIDENCE: (), PROBABILITY: ()}
    table = read_delimited(events_path, columns, (*COLUMNS, CONFIDENCE))
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
    tracks = read_track_table(tracks_path).tracks
    return lineage.with_tracks(track[order], tracks[np.argsort(tracks.id)])
