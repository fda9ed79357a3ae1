"""Events and cells in Parquet, for movies that are too large for text.

``events.parquet`` has a row for each event in the order of frames: frame, event,
source, source_2, target, target_2 (labels, missing if there is none), confidence and
probability. ``tracks.parquet`` has a row for each cell, as ``tracks.csv``. Row groups
end with a frame, so that they do not depend on the blocks in which a movie was
tracked; one is in memory at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.events import NONE, Event
from clew.tracking.io.result_tables import list_cells
from clew.tracking.lineage.lineage import LineagePart, TrackedMovie, parts_of
from clew.utils.extras import require_extra
from clew.utils.storage import atomic_write

ROWS = 2**16
"""Rows after which a row group ends with the next frame."""

Columns = dict[str, NDArray[Any]]


def write_parquet(events: Path, tracks: Path, movie: TrackedMovie) -> None:
    """Write both tables; each part of the movie is read once.

    Parameters
    ----------
    events, tracks : Path
        Files to write.
    movie : TrackedMovie
    """
    require_extra("parquet", f"{events.name}: writing Parquet")
    generation = movie.tracks.generations()
    with atomic_write(events) as events_file, atomic_write(tracks) as tracks_file:
        event_groups = RowGroups(events_file)
        track_groups = RowGroups(tracks_file)
        for part in parts_of(movie):
            event_groups.add(_make_event_columns(part))
            cells = list_cells(part, movie.tracks, generation)
            track_groups.add(cells)
        event_groups.close()
        track_groups.close()


def _make_event_columns(part: LineagePart) -> Columns:
    """Columns of the events of a part."""
    events = part.events
    columns: Columns = {"frame": events.frame, "event": events.event}
    for side, labels in (("source", events.sources), ("target", events.targets)):
        columns[side] = labels[:, 0]
        columns[f"{side}_2"] = labels[:, 1]
    columns["confidence"] = part.confidence
    if part.probability is not None:
        columns["probability"] = part.probability
    return columns


class RowGroups:
    """Write rows in groups that end with the frame after `ROWS` of them.

    Parameters
    ----------
    file : binary file
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.pending: list[Columns] = []
        self.writer: Any = None

    def add(self, columns: Columns) -> None:
        """Add rows, in the order of frames."""
        frame = columns["frame"]
        ends = np.flatnonzero(np.diff(frame)) + 1
        for rows in np.split(np.arange(len(frame)), ends):
            if len(rows) and self._is_full(int(frame[rows[0]])):
                self._write_group()
            # a part without rows is kept for the columns of an empty table
            if len(rows) or not self.pending:
                selected = {name: column[rows] for name, column in columns.items()}
                self.pending.append(selected)

    def close(self) -> None:
        """Write what is left."""
        if self._count_rows() or self.writer is None:
            self._write_group()
        self.writer.close()

    def _count_rows(self) -> int:
        return sum(len(part["frame"]) for part in self.pending)

    def _is_full(self, frame: int) -> bool:
        """Whether the group ends before a frame."""
        if self._count_rows() < ROWS:
            return False
        return bool(self.pending[-1]["frame"][-1] != frame)

    def _write_group(self) -> None:
        """Write the pending rows."""
        import pyarrow
        import pyarrow.parquet

        parts = [part for part in self.pending if len(part["frame"])] or self.pending
        columns = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        table = pyarrow.table(
            {name: _to_arrow(pyarrow, name, column) for name, column in columns.items()}
        )
        if self.writer is None:
            self.writer = pyarrow.parquet.ParquetWriter(
                self.file, table.schema, compression="zstd"
            )
        self.writer.write_table(table, row_group_size=max(len(table), 1))
        self.pending = []


def _to_arrow(pyarrow: Any, name: str, column: NDArray[Any]) -> Any:
    """Convert a column; labels of no cell become missing, kinds of events words."""
    if name == "event":
        names = pyarrow.array([str(event) for event in Event])
        return pyarrow.DictionaryArray.from_arrays(pyarrow.array(column), names)
    if name.startswith(("source", "target")):
        return pyarrow.array(column, mask=column == NONE)
    return pyarrow.array(column)
