"""Events and cells in Parquet, column by column: for movies that are too large for tables of text.

`events.parquet` has a row for each event, in the order of frames: frame, event, source, source_2, target, target_2
(labels; missing where there is none), confidence and probability. `tracks.parquet` has a row for each cell, as
`tracks.csv` does. Row groups end with a frame, so that they do not depend on the blocks a movie was tracked in, and are
written as they come: one is in memory at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.blocks.join import Part
from clew.tracking.blocks.parts import TrackedMovie, parts_of
from clew.tracking.events import NONE, Event
from clew.tracking.io.tracks_csv import make_cell_columns
from clew.tracking.lineage.tracks import Tracks
from clew.utils.extras import require_extra
from clew.utils.storage import atomic_write

ROWS = 2**16
"""Rows after which a row group ends with the next frame: large enough for a reader that scans, small in memory."""
Columns = dict[str, NDArray[Any]]


def write_parquet(events: Path, tracks: Path, movie: TrackedMovie) -> None:
    """Write both tables, reading each part once."""
    require_extra("parquet", f"{events.name}: writing Parquet")
    table = movie.tracks
    generation = table.generations()
    with atomic_write(events) as first, atomic_write(tracks) as second:
        writers = RowGroups(first), RowGroups(second)
        for part in parts_of(movie):
            writers[0].add(_event_columns(part))
            writers[1].add(_cells(part, table, generation))
        for writer in writers:
            writer.close()


def _event_columns(part: Part) -> Columns:
    events = part.events
    sides = {"source": events.sources, "target": events.targets}
    labels = {
        f"{side}{suffix}": labels[:, k]
        for side, labels in sides.items()
        for k, suffix in enumerate(("", "_2"))
    }
    sure = {} if part.probability is None else {"probability": part.probability}
    return {
        "frame": events.frame,
        "event": events.event,
        **labels,
        "confidence": part.confidence,
        **sure,
    }


def _cells(part: Part, tracks: Tracks, generation: NDArray[np.int64]) -> Columns:
    return make_cell_columns(
        part.nodes.frame,
        part.nodes.label,
        part.track,
        part.nodes.position,
        tracks,
        generation,
    )


class RowGroups:
    """Rows that come in parts, written in groups that end with the frame after `ROWS` of them, wherever parts end."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.waiting: list[Columns] = []
        self.writer: Any = None

    def add(self, columns: Columns) -> None:
        """More rows, in the order of frames."""
        frame = columns["frame"]
        for rows in np.split(np.arange(len(frame)), np.flatnonzero(np.diff(frame)) + 1):
            begins = (
                len(rows)
                and self._n() >= ROWS
                and self.waiting[-1]["frame"][-1] != frame[rows[0]]
            )
            if begins:
                self._write()
            # of parts without rows one is kept, for the columns of a table that has none
            if len(rows) or not self.waiting:
                self.waiting.append(
                    {name: column[rows] for name, column in columns.items()}
                )

    def close(self) -> None:
        """Write what is left."""
        if self._n() or self.writer is None:
            self._write()
        self.writer.close()

    def _n(self) -> int:
        return sum(len(part["frame"]) for part in self.waiting)

    def _write(self) -> None:
        import pyarrow
        import pyarrow.parquet

        columns = _joined(
            [part for part in self.waiting if len(part["frame"])] or self.waiting
        )
        table = pyarrow.table(
            {name: _arrow(pyarrow, name, column) for name, column in columns.items()}
        )
        self.writer = self.writer or pyarrow.parquet.ParquetWriter(
            self.file, table.schema, compression="zstd"
        )
        self.writer.write_table(table, row_group_size=max(len(table), 1))
        self.waiting = []


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _arrow(pyarrow: Any, name: str, column: NDArray[Any]) -> Any:
    """A column; labels of no cell are missing, and kinds of events are words."""
    if name == "event":
        names = pyarrow.array([str(event) for event in Event])
        return pyarrow.DictionaryArray.from_arrays(pyarrow.array(column), names)
    if name.startswith(("source", "target")):
        return pyarrow.array(column, mask=column == NONE)
    return pyarrow.array(column)
