"""Detections as a table, CSV or Parquet: a cell a row, with its frame, its label and where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew import extras
from clew.errors import InputError
from clew.tracking.detections import MAX_FRAMES, DetectionTable
from clew.tracking.faults import Faults, printable
from clew.tracking.formats.delimited import Aliases, Table, as_integer, known_columns, plain_name, read_delimited

REQUIRED = ("frame", "label", "y", "x")
ALIASES: Aliases = {
    "frame": ("t", "time", "frame_id", "position_t"),
    "label": ("id", "seg_id", "label_id", "cell_id", "object_id"),
    "z": ("centroid_z", "pos_z", "position_z"),
    "y": ("centroid_y", "pos_y", "position_y"),
    "x": ("centroid_x", "pos_x", "position_x"),
    "volume": ("area", "size"),
    "intensity": ("intensity_mean", "mean_intensity"),
    "border_distance": (),
}
NUMBERED = ("centroid_0", "centroid_1", "centroid_2")
"""The axes of a position as scikit-image calls them: (z,) y and x."""
PARQUET = (".parquet", ".pq")
TRACKMATE = {"label", "id", "track_id", "frame", "position_x", "position_y", "position_z"}
"""Columns that tell a table of spots of TrackMate: its labels are words, its ids the numbers of the spots."""
DESCRIPTIONS = 3
"""Rows under the names of the columns in which TrackMate says what they mean, and in which unit they are."""


def is_table(path: str | Path) -> bool:
    """Whether the name is that of a table."""
    return Path(path).suffix.lower() in (".csv", ".tsv", ".txt", *PARQUET)


def read_detections(path: str | Path, spacing: Sequence[float] | None = None) -> DetectionTable:
    """The cells in a table with the columns frame, label, y and x, and z in 3D.

    Positions are multiplied by `spacing`, and volumes (or areas) by the volume of a pixel. The table may also have
    the columns volume (or area), intensity and border_distance (in physical units); others are not looked at. Tables
    of scikit-image (centroid-0, centroid-1 …) and TrackMate's tables of spots are read as they are.
    """
    parquet = Path(path).suffix.lower() in PARQUET
    table = _read_parquet(path) if parquet else _undescribed(read_delimited(path, ALIASES, REQUIRED, _meant))
    if not len(table):
        raise InputError(f"{path}: there is no row under the names of the columns; each cell of each frame needs one")
    axes = [axis for axis in "zyx" if axis in table]
    scale = _scale(spacing, axes)
    faults = Faults(table.where)
    frame = table.integers("frame", faults, least=0)
    label = table.integers("label", faults, least=1)
    table.blame(faults, frame >= MAX_FRAMES, "frame", f"less than {MAX_FRAMES:,}")
    position = np.column_stack([table.numbers(axis, faults) for axis in axes]) * scale
    columns = {
        name: table.numbers(name, faults) for name in ("volume", "intensity", "border_distance") if name in table
    }
    if "volume" in columns:
        table.blame(faults, columns["volume"] <= 0, "volume", "more than 0")
        columns["volume"] = columns["volume"] * scale.prod()
    if "border_distance" in columns:
        table.blame(faults, columns["border_distance"] < 0, "border_distance", "0 or more")
    if not len(faults):  # else a faulty label would seem to be a duplicate
        _check_duplicates(table, frame, label, faults)
    faults.refuse()
    return DetectionTable(frame, label, position, columns, name=printable(Path(path).stem))


def _meant(header: list[str]) -> list[str]:
    """The names of columns, with those that other programs give to a position or a label in clew's words."""
    numbered = sorted(name for name in header if name in NUMBERED)
    axes = "zyx"[-len(numbered) :] if len(numbered) > 1 else ""
    renamed: dict[str, str] = {name: axis for name, axis in zip(numbered, axes, strict=False) if axis not in header}
    if set(header) >= TRACKMATE:
        renamed["label"] = "name"
    return [renamed.get(name, name) for name in header]


def _undescribed(table: Table) -> Table:
    """Without the rows at the beginning in which TrackMate describes the columns; the first says "Frame" again."""
    frame = [str(cell) for cell in table.columns["frame"][:DESCRIPTIONS]]
    said = 0
    if frame and plain_name(frame[0]) == "frame":
        said = next((row for row, cell in enumerate(frame) if as_integer(cell) is not None), len(frame))
    return Table(table.where, table.row[said:], {name: column[said:] for name, column in table.columns.items()})


def _read_parquet(path: str | Path) -> Table:
    """A Parquet file; its rows count from 1."""
    extras.require("parquet", f"{path}: reading Parquet")
    import pyarrow.parquet

    try:
        content = pyarrow.parquet.read_table(Path(path))
        given = content.column_names  # decoded when they are asked for
    except Exception as error:  # a damaged file makes pyarrow raise nearly anything
        raise InputError(f"{path}: cannot be read as Parquet ({type(error).__name__}: {error})") from error
    names = known_columns(str(path), _meant([plain_name(name) for name in given]), ALIASES, REQUIRED)
    columns = {name: content.column(at).to_pylist() for name, at in names.items()}
    return Table(str(path), np.arange(1, content.num_rows + 1), columns)


def _scale(spacing: Sequence[float] | None, axes: Sequence[str]) -> NDArray[np.float64]:
    """(ndim,) what an index is multiplied by."""
    scale = np.ones(len(axes)) if spacing is None else np.asarray(spacing, dtype=np.float64)
    if scale.shape != (len(axes),) or not np.all(np.isfinite(scale) & (scale > 0)):
        raise InputError(f"spacing is {spacing}; it must be a positive number for each of {', '.join(axes)}")
    return scale


def _check_duplicates(table: Table, frame: NDArray[np.int64], label: NDArray[np.int64], faults: Faults) -> None:
    """A label stands for one cell of a frame."""
    order = np.lexsort((table.row, label, frame))
    again = np.flatnonzero((np.diff(frame[order]) == 0) & (np.diff(label[order]) == 0))
    earlier, later = order[again], order[again + 1]
    faults.add(
        table.row[later],
        lambda i: f"label {label[later[i]]} of frame {frame[later[i]]} stands in row {table.row[earlier[i]]} already",
    )
