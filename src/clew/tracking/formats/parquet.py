"""Events and cells in Parquet, column by column: for movies that are too large for tables of text.

`events.parquet` has a row for each event, in the order of frames: frame, event, source, source_2, target, target_2
(labels; missing where there is none), confidence and probability. `tracks.parquet` has a row for each cell, as
`tracks.csv` does. Row groups end with a frame, so that they do not depend on the blocks a movie was tracked in, and are
written as they come: one is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew import extras
from clew.persist import written
from clew.tracking.blocks.join import Part
from clew.tracking.blocks.parts import TrackedMovie, parts_of
from clew.tracking.events import NONE, Event
from clew.tracking.formats.tracks_csv import cell_columns
from clew.tracking.tracks import Tracks

ROWS = 2**16
"""Rows after which a row group ends with the next frame: large enough for a reader that scans, small in memory."""
Columns = dict[str, NDArray[Any]]


def write_parquet(events: Path, tracks: Path, movie: TrackedMovie) -> None:
    """Write both tables."""
    extras.require("parquet", f"{events.name}: writing Parquet")
    _write(events, (_event_columns(part) for part in parts_of(movie)))
    table = movie.tracks
    generation = table.generations()
    _write(tracks, (_cells(part, table, generation) for part in parts_of(movie)))


def _event_columns(part: Part) -> Columns:
    events = part.events
    sides = {"source": events.sources, "target": events.targets}
    labels = {f"{side}{suffix}": labels[:, k] for side, labels in sides.items() for k, suffix in enumerate(("", "_2"))}
    sure = {} if part.probability is None else {"probability": part.probability}
    return {"frame": events.frame, "event": events.event, **labels, "confidence": part.confidence, **sure}


def _cells(part: Part, tracks: Tracks, generation: NDArray[np.int64]) -> Columns:
    return cell_columns(part.nodes.frame, part.nodes.label, part.track, part.nodes.position, tracks, generation)


def _write(path: Path, chunks: Iterable[Columns]) -> None:
    """Row groups of whole frames, of `ROWS` rows or more."""
    import pyarrow
    import pyarrow.parquet

    with written(path) as file:
        writer = None
        for columns in _row_groups(chunks):
            table = pyarrow.table({name: _arrow(pyarrow, name, column) for name, column in columns.items()})
            writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=max(len(table), 1))
        if writer is not None:
            writer.close()


def _row_groups(chunks: Iterable[Columns]) -> Iterator[Columns]:
    """The same rows, cut where a frame ends after `ROWS` of them; one without rows if there are none at all."""
    waiting: list[Columns] = []
    last: Columns | None = None
    for chunk in chunks:
        last = chunk
        frame = chunk["frame"]
        for rows in np.split(np.arange(len(frame)), np.flatnonzero(np.diff(frame)) + 1) if len(frame) else ():
            begins = bool(waiting) and waiting[-1]["frame"][-1] != frame[rows[0]]
            if begins and sum(len(part["frame"]) for part in waiting) >= ROWS:
                yield _joined(waiting)
                waiting = []
            waiting.append({name: column[rows] for name, column in chunk.items()})
    if waiting or last is not None:
        yield _joined(waiting or [last or {}])


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
