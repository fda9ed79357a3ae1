"""Annotations as a table: events as in events.csv, and whether each happened.

`12,divide,5,17 18,yes`: from frame 12 to 13, cell 5 became 17 and 18. Without the last column all of them happened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clew.tracking.events import Annotations
from clew.tracking.io.delimited import Aliases, read_delimited, write_delimited
from clew.tracking.io.events_csv import (
    ALIASES,
    COLUMNS,
    make_event_columns,
    parse_events,
)
from clew.tracking.lineage.track_faults import Faults

HAPPENED = "happened"
ALL_ALIASES: Aliases = {**ALIASES, HAPPENED: ("did_happen",)}
ANSWERS = {
    "yes": True,
    "true": True,
    "1": True,
    "y": True,
    "no": False,
    "false": False,
    "0": False,
    "n": False,
}


def write_annotations(path: str | Path, annotations: Annotations) -> None:
    """Write annotations in their own order."""
    events, happened = annotations.events, np.where(annotations.happened, "yes", "no")
    write_delimited(
        path,
        [*COLUMNS, HAPPENED],
        len(events),
        lambda rows: [*make_event_columns(events[rows]), happened[rows].tolist()],
    )


def read_annotation_table(path: str | Path) -> Annotations:
    """The annotations of a table; each knows its line in the file."""
    table = read_delimited(path, ALL_ALIASES, COLUMNS)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    answers = [
        ANSWERS.get(str(cell).lower() or "yes")
        for cell in table.columns.get(HAPPENED, ["yes"] * len(table))
    ]
    if HAPPENED in table:
        table.add_faults(
            faults, [answer is None for answer in answers], HAPPENED, "yes or no"
        )
    faults.refuse()
    return Annotations.of(events, np.array(answers, dtype=bool), table.row)
