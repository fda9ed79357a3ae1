"""Events as a table: frame, kind, labels before and after, and confidence.

``12,divide,5,17 18,3.25``: from frame 12 to 13, cell 5 divides into 17 and 18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array
from clew.tracking.events import ARITY, BY_NAME, NONE, Event, EventTable, Labels
from clew.tracking.io.delimited import (
    Aliases,
    Table,
    parse_integer,
    read_delimited,
    write_parts,
)
from clew.tracking.io.manifest import warn_if_file_changed
from clew.tracking.lineage.lineage import (
    Lineage,
    LineagePart,
    TrackedMovie,
    as_parts,
    parts_of,
)
from clew.tracking.lineage.tracks import Faults

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
    write_parts(path, header, (_make_rows(part) for part in chain([first], parts)))


def _make_rows(part: LineagePart) -> tuple[int, Callable[[slice], list[Sequence[Any]]]]:
    """Number of rows of a part, and a function that gives the columns of some."""
    figures = [part.confidence]
    if part.probability is not None:
        figures.append(part.probability.round(6))

    def make_columns(rows: slice) -> list[Sequence[Any]]:
        columns = make_event_columns(part.events[rows])
        return columns + [column[rows].tolist() for column in figures]

    return len(part.events), make_columns


def read_events(path: str | Path) -> tuple[EventTable, Array]:
    """Read a table of events.

    Returns
    -------
    events : EventTable
    confidence : ndarray of shape (n,)
        NaN if the table has none.
    """
    warn_if_file_changed(path)
    table = read_delimited(path, {**ALIASES, CONFIDENCE: ()}, COLUMNS)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    confidence = np.full(len(events), np.nan)
    if CONFIDENCE in table:
        confidence = table.parse_numbers(CONFIDENCE, faults, infinite=True)
    faults.refuse()
    return events, confidence


def make_event_columns(events: EventTable) -> list[Sequence[Any]]:
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
