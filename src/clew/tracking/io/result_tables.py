"""The tables of a result: detections in ``tracks.csv`` and events in ``events.csv``.

Detections have a track, a parent and a generation. Events have a frame, a kind, labels
before and after, and a confidence. ``12,divide,5,17 18,3.25``: from frame 12 to 13, cell
5 divides into 17 and 18.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.events import ARITY, BY_NAME, NONE, Event, EventTable, Labels
from clew.tracking.io.delimited import (
    CHUNK,
    Aliases,
    Column,
    Table,
    parse_integer,
    write_delimited,
)
from clew.tracking.lineage.lineage import (
    RECOVERED,
    Lineage,
    LineagePart,
    TrackedMovie,
    as_parts,
    parts_of,
)
from clew.tracking.lineage.tracks import NO_PARENT, Tracks, find_false_detections
from clew.utils.validation import Faults

AXES = ("z", "y", "x")
PIECE = "piece"
"""Column of the tracks of the Cell Tracking Challenge, which end at gaps."""
FALSE = "false"
"""Column of detections that are probably no cells."""
COLUMNS = ("frame", "event", "sources", "targets")
ALIASES: Aliases = {
    "frame": ("t", "time", "frame_id"),
    "event": ("kind", "type", "event_type"),
    "sources": ("source", "source_ids", "source_id", "from"),
    "targets": ("target", "target_ids", "target_id", "to"),
}
CONFIDENCE = "confidence"
PROBABILITY = "probability"
SEPARATORS = str.maketrans(dict.fromkeys(";+/,[]()", " "))
"""Characters that people write between several ids, or around them."""
SIDES = ("sources", "targets")
NO_CELL = ("", "-", "none", "nan")


def write_track_table(path: str | Path, lineage: Lineage | TrackedMovie) -> None:
    """Write the detections of a lineage by frame, then label.

    Positions are physical. A track without a parent has the parent 0. The generation
    counts divisions from 0. A track keeps its id over a gap; a piece does not, and has
    the id of the masks. Cells without a given mask are marked by 1 as recovered, and
    probably false detections as false.
    """
    movie = as_parts(lineage)
    tracks = movie.tracks
    generation = tracks.generations()

    parts = (list_cells(part, tracks, generation) for part in parts_of(movie))
    first = next(parts)
    rows = ([*columns.values()] for columns in chain([first], parts))
    write_delimited(path, list(first), rows)


def list_cells(
    part: LineagePart, tracks: Tracks, generation: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Columns of the detections of a part, by name.

    Parameters
    ----------
    part : LineagePart
    tracks : Tracks
        Of the whole movie.
    generation : ndarray of shape (n_tracks,)
        Generation of each of the `tracks`.

    Returns
    -------
    columns : dict of ndarray of shape (n,)
    """
    nodes = part.nodes
    row = np.searchsorted(tracks.id, part.track)
    is_false = find_false_detections(tracks)
    cell = join_gaps(tracks)
    first = np.searchsorted(tracks.id, cell[row])  # the first piece has the parent
    parent = tracks.parent
    mother = np.minimum(np.searchsorted(tracks.id, parent), len(tracks) - 1)
    axes = AXES[-nodes.position.shape[1] :]
    recovered = nodes.columns.get(RECOVERED, np.zeros(len(nodes.frame)))
    return {
        "frame": nodes.frame,
        "label": nodes.label,
        "track": cell[row],
        "parent": np.where(parent == NO_PARENT, NO_PARENT, cell[mother])[first],
        **dict(zip(axes, nodes.position.T, strict=True)),
        "generation": generation[row],
        PIECE: part.track,
        RECOVERED: recovered.astype(np.int64),
        FALSE: is_false[row].astype(np.int64),
    }


def join_gaps(tracks: Tracks) -> Labels:
    """(n,) id of the first piece of each track; pieces follow each other after gaps.

    The Cell Tracking Challenge has a new track after a gap, the only child of the one
    before.
    """
    parent = tracks.parent_row()
    is_only_child = (parent >= 0) & (tracks.child_count(parent)[parent] == 1)
    is_piece = is_only_child & (tracks.begin > tracks.end[parent] + 1)
    before = np.where(is_piece, parent, np.arange(len(tracks)))
    while not np.array_equal(before, before[before]):
        before = before[before]
    return np.asarray(tracks.id[before])


def write_events(path: str | Path, lineage: Lineage | TrackedMovie) -> None:
    """Write the events of a lineage in the order of frames.

    An unlimited confidence is ``inf``. The probability of being right has a column if
    the lineage has it.
    """
    parts = parts_of(as_parts(lineage))
    first = next(parts)
    header = [*COLUMNS, CONFIDENCE]
    if first.probability is not None:
        header.append(PROBABILITY)
    rows = (row for part in chain([first], parts) for row in _list_events(part))
    write_delimited(path, header, rows)


def _list_events(part: LineagePart) -> Iterator[list[Column]]:
    """Columns of the events of a part, some at a time, since they are objects."""
    for start in range(0, len(part.events), CHUNK):
        rows = slice(start, start + CHUNK)
        columns = [*make_event_columns(part.events[rows]), part.confidence[rows]]
        if part.probability is not None:
            columns.append(part.probability[rows].round(6))
        yield columns


def make_event_columns(events: EventTable) -> list[Column]:
    """The four columns that describe events."""
    names = [str(event) for event in Event]
    return [
        events.frame.tolist(),
        [names[event] for event in events.event.tolist()],
        _format_labels(events.sources),
        _format_labels(events.targets),
    ]


def _format_labels(labels: Labels) -> list[str]:
    """Labels (n, 2) as one cell a row."""
    return [f"{a} {b}" if b else str(a or "") for a, b in labels.tolist()]


def parse_events(table: Table, faults: Faults) -> EventTable:
    """Parse the events of a table with the four columns."""
    frame = table.parse_integers("frame", faults, least=0)
    kinds = [BY_NAME.get(str(cell).lower()) for cell in table.columns["event"]]
    is_unknown = np.array([kind is None for kind in kinds], dtype=bool)
    table.add_faults(faults, is_unknown, "event", f"one of {', '.join(BY_NAME)}")
    filled = [Event.MOVE if kind is None else kind for kind in kinds]
    event = np.array(filled, dtype=np.int8)
    sources = _parse_side(table, 0, event, is_unknown, faults)
    targets = _parse_side(table, 1, event, is_unknown, faults)
    return EventTable(frame, event, sources, targets)


def _parse_side(
    table: Table,
    side: int,
    event: NDArray[np.int8],
    is_unknown: NDArray[np.bool_],
    faults: Faults,
) -> Labels:
    """(n, 2) labels in the column of sources or targets, as many as events need."""
    name = SIDES[side]
    ids = [_parse_ids(str(cell)) for cell in table.columns[name]]
    is_faulty = np.array([labels is None for labels in ids], dtype=bool)
    expected = "positive integers, each once, separated by a space"
    table.add_faults(faults, is_faulty, name, expected)
    count = np.array([len(labels or ()) for labels in ids], dtype=np.int64)
    arity = np.array([ARITY[kind][side] for kind in Event])[event]
    wrong = np.flatnonzero((count != arity) & ~is_faulty & ~is_unknown)
    faults.add(
        table.row[wrong],
        lambda i: (
            f"{Event(event[wrong[i]])} has {arity[wrong[i]]} {name}, but the row names "
            f"{count[wrong[i]]}"
        ),
    )
    padded = [(*(labels or ()), NONE, NONE)[:2] for labels in ids]
    return np.array(padded, dtype=np.int64).reshape(-1, 2)


def _parse_ids(cell: str) -> tuple[int, ...] | None:
    """Parse the labels in a cell, ascending; None if it holds anything else."""
    if cell.lower() in NO_CELL:
        return ()
    words = [cell] if cell.isdecimal() else cell.translate(SEPARATORS).split()
    labels = [parse_integer(word) or NONE for word in words]
    is_positive = min(labels, default=1) > NONE
    is_unique = len(set(labels)) == len(labels)
    return tuple(sorted(labels)) if is_positive and is_unique else None
