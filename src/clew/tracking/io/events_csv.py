"""Events as a table: one a row, with its frame, its kind, the labels before and after, and how sure it is.

`12,divide,5,17 18,3.25`: from frame 12 to 13, cell 5 becomes 17 and 18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array
from clew.tracking.blocks.join import Part
from clew.tracking.blocks.parts import TrackedMovie, as_parts, parts_of
from clew.tracking.events import ARITY, BY_NAME, NONE, Event, EventTable, Labels
from clew.tracking.io.delimited import (
    Aliases,
    Table,
    parse_integer,
    read_delimited,
    write_parts,
)
from clew.tracking.io.manifest import warn_if_file_changed
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.track_faults import Faults

COLUMNS = ("frame", "event", "sources", "targets")
ALIASES: Aliases = {
    "frame": ("t", "time", "frame_id"),
    "event": ("kind", "type", "event_type"),
    "sources": ("source", "source_ids", "source_id", "from"),
    "targets": ("target", "target_ids", "target_id", "to"),
}
CONFIDENCE, PROBABILITY = "confidence", "probability"
SEPARATORS = str.maketrans(dict.fromkeys(";+/,[]()", " "))
"""Whatever people put between several ids, or around them."""
SIDES = ("sources", "targets")
NO_CELL = ("", "-", "none", "nan")


def write_events(path: str | Path, lineage: Lineage | TrackedMovie) -> None:
    """Write what happened in a lineage, in the order of frames; a confidence without bound is `inf`.

    The probability of being right has a column of its own where the lineage has it.
    """
    parts = parts_of(as_parts(lineage))
    first = next(parts)
    known = first.probability is not None
    header = [*COLUMNS, CONFIDENCE, *([PROBABILITY] if known else [])]
    write_parts(path, header, (_rows(part) for part in chain([first], parts)))


def _rows(part: Part) -> tuple[int, Callable[[slice], list[Sequence[Any]]]]:
    """The rows of a part of a movie."""
    sure = [
        part.confidence,
        *([] if part.probability is None else [part.probability.round(6)]),
    ]
    return len(part.events), lambda rows: [
        *make_event_columns(part.events[rows]),
        *(column[rows].tolist() for column in sure),
    ]


def read_events(path: str | Path) -> tuple[EventTable, Array]:
    """The events of a table and their confidence (n,), NaN where the table has none."""
    warn_if_file_changed(path)
    table = read_delimited(path, {**ALIASES, CONFIDENCE: ()}, COLUMNS)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    known = CONFIDENCE in table
    confidence = (
        table.parse_numbers(CONFIDENCE, faults, infinite=True)
        if known
        else np.full(len(events), np.nan)
    )
    faults.refuse()
    return events, confidence


def make_event_columns(events: EventTable) -> list[Sequence[Any]]:
    """The four columns that describe events."""
    names = [str(event) for event in Event]
    return [
        events.frame.tolist(),
        [names[event] for event in events.event.tolist()],
        _joined(events.sources),
        _joined(events.targets),
    ]


def _joined(labels: Labels) -> list[str]:
    """Labels of each row as one cell."""
    return [f"{a} {b}" if b else str(a) if a else "" for a, b in labels.tolist()]


def parse_events(table: Table, faults: Faults) -> EventTable:
    """The events of a table with the four columns."""
    frame = table.parse_integers("frame", faults, least=0)
    kinds = [BY_NAME.get(str(cell).lower()) for cell in table.columns["event"]]
    unknown = np.array([kind is None for kind in kinds], dtype=bool)
    table.add_faults(faults, unknown, "event", f"one of {', '.join(BY_NAME)}")
    event = np.array(
        [Event.MOVE if kind is None else kind for kind in kinds], dtype=np.int8
    )
    sources, targets = (
        _parse_side(table, side, event, unknown, faults) for side in SIDES
    )
    return EventTable(frame, event, sources, targets)


def _parse_side(
    table: Table,
    side: str,
    event: NDArray[np.int8],
    unknown: NDArray[np.bool_],
    faults: Faults,
) -> Labels:
    """(n, 2) the labels in a column of ids, as many as the events need."""
    ids = [_parse_ids(str(cell)) for cell in table.columns[side]]
    bad = np.array([labels is None for labels in ids], dtype=bool)
    table.add_faults(
        faults, bad, side, "positive integers, each once, separated by a space"
    )
    count = np.array([len(labels or ()) for labels in ids], dtype=np.int64)
    due = np.array([ARITY[kind][SIDES.index(side)] for kind in Event])[event]
    wrong = np.flatnonzero((count != due) & ~bad & ~unknown)
    faults.add(
        table.row[wrong],
        lambda i: (
            f"{Event(event[wrong[i]])} has {due[wrong[i]]} {side}, but the row names {count[wrong[i]]}"
        ),
    )
    return np.array(
        [((labels or ()) + (NONE, NONE))[:2] for labels in ids], dtype=np.int64
    ).reshape(-1, 2)


def _parse_ids(cell: str) -> tuple[int, ...] | None:
    """The labels in a cell, ascending, or None where it holds anything else."""
    if cell.lower() in NO_CELL:
        return ()
    words = [cell] if cell.isdecimal() else cell.translate(SEPARATORS).split()
    labels = [parse_integer(word) or NONE for word in words]
    return (
        tuple(sorted(labels))
        if min(labels, default=1) > NONE and len(set(labels)) == len(labels)
        else None
    )
