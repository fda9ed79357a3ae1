"""Detections as a table, CSV or Parquet: a cell a row, with its frame, its label and where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.detections import MAX_FRAMES, DetectionTable
from clew.tracking.io.delimited import (
    Aliases,
    Table,
    as_integer,
    locate_columns,
    normalize_name,
    read_delimited,
)
from clew.tracking.io.trackmate import read_spots
from clew.tracking.lineage.track_faults import Faults, printable
from clew.utils.extras import require_extra

REQUIRED = ("frame", "y", "x")
SPOT = "spot"
"""A column of labels that count from 0."""
UNLABELLED = "a table of detections without labels (those of each frame are numbered from 1 in the order of rows)"
POSITIONS: Aliases = {
    "frame": ("t", "time", "frame_id", "position_t"),
    "z": ("centroid_z", "pos_z", "position_z"),
    "y": ("centroid_y", "pos_y", "position_y"),
    "x": ("centroid_x", "pos_x", "position_x"),
}
ALIASES: Aliases = {
    **POSITIONS,
    "label": ("id", "seg_id", "label_id", "cell_id", "object_id"),
    "volume": ("area", "size"),
    "intensity": ("intensity_mean", "mean_intensity"),
    "border_distance": (),
    SPOT: (),
}
NUMBERED = ("centroid_0", "centroid_1", "centroid_2")
"""The axes of a position as scikit-image calls them: (z,) y and x."""
NAPARI = ("axis_0", "axis_1", "axis_2", "axis_3")
"""The axes of a layer of points as napari saves them: t, (z,) y and x."""
PARQUET = (".parquet", ".pq")
XML = ".xml"
TRACKMATE = {
    "label",
    "id",
    "track_id",
    "frame",
    "position_x",
    "position_y",
    "position_z",
}
"""Columns that tell a table of spots of TrackMate: its labels are words, its ids the numbers of the spots."""
DESCRIPTIONS = 3
"""Rows under the names of the columns in which TrackMate says what they mean, and in which unit they are."""


def is_table(path: str | Path) -> bool:
    """Whether the name is that of a table."""
    return Path(path).suffix.lower() in (".csv", ".tsv", ".txt", XML, *PARQUET)


def read_detections(
    path: str | Path, spacing: Sequence[float] | None = None
) -> DetectionTable:
    """The cells in a table with the columns frame, label, y and x, and z in 3D.

    Without a column label, the cells of each frame are numbered from 1 in the order of their rows. Positions are
    multiplied by `spacing`, and volumes (or areas) by the volume of a pixel. The table may also have the columns volume
    (or area), intensity and border_distance (in physical units); others are not looked at. Tables of scikit-image
    (centroid-0, centroid-1 …), napari's points and TrackMate's tables of spots are read as they are, and so are the
    spots in a file of TrackMate (.xml).
    """
    is_xml = Path(path).suffix.lower() == XML
    table = (
        read_spots(Path(path))
        if is_xml
        else read_table(path, ALIASES, REQUIRED, _meant)
    )
    if not len(table):
        raise InputError(
            f"{path}: there is no row under the names of the columns; each cell of each frame needs one"
        )
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    table.add_faults(faults, frame >= MAX_FRAMES, "frame", f"less than {MAX_FRAMES:,}")
    position = parse_positions(table, faults)
    scale = check_spacing(spacing, position.shape[1])
    label = _labels(table, frame, faults)
    columns = {
        name: table.parse_numbers(name, faults)
        for name in ("volume", "intensity", "border_distance")
        if name in table
    }
    if "volume" in columns:
        table.add_faults(faults, columns["volume"] <= 0, "volume", "more than 0")
        columns["volume"] = columns["volume"] * scale.prod()
    if "border_distance" in columns:
        table.add_faults(
            faults, columns["border_distance"] < 0, "border_distance", "0 or more"
        )
    if not len(faults):  # else a faulty label would seem to be a duplicate
        _check_duplicates(table, frame, label, faults)
    faults.refuse()
    found = DetectionTable(
        frame, label, position * scale, columns, name=printable(Path(path).stem)
    )
    found.spacing = None if spacing is None else tuple(scale.tolist())
    if not {"label", SPOT} & set(table.columns):
        found.source = UNLABELLED
    return found


def parse_positions(table: Table, faults: Faults) -> NDArray[np.float64]:
    """(n, 2 or 3) the positions in a table; a z that is 0 everywhere, as TrackMate has it in 2D, is none."""
    axes = [table.parse_numbers(axis, faults) for axis in "zyx" if axis in table]
    flat = len(axes) == 3 and not axes[0].any()
    return np.column_stack(axes[flat:])


def _labels(
    table: Table, frame: NDArray[np.int64], faults: Faults
) -> NDArray[np.int64]:
    """(n,) labels as they are given, or by the order of rows in each frame."""
    if SPOT in table:  # TrackMate counts spots from 0, which is the background here
        spot = table.parse_integers(SPOT, faults, least=0)
        return np.where(spot == 0, spot.max(initial=0) + 1, spot)
    if "label" in table:
        return table.parse_integers("label", faults, least=1)
    order = np.argsort(frame, kind="stable")
    place = np.empty_like(frame)
    place[order] = np.arange(len(frame)) - np.searchsorted(frame[order], frame[order])
    return place + 1


def rename_axes(header: list[str]) -> list[str]:
    """The names of columns, with those that scikit-image and napari give to a position in clew's words."""
    renamed: dict[str, str] = {}
    for numbered, axes in (
        (NUMBERED, ("z", "y", "x")),
        (NAPARI, ("frame", "z", "y", "x")),
    ):
        found = [name for name in numbered if name in header]
        least = len(numbered) - 1  # z may be missing
        if len(found) < least:
            continue
        meant = (
            axes
            if len(found) == len(numbered)
            else [axis for axis in axes if axis != "z"]
        )
        renamed |= {
            name: axis
            for name, axis in zip(found, meant, strict=True)
            if axis not in header
        }
    return [renamed.get(name, name) for name in header]


def _meant(header: list[str]) -> list[str]:
    """The same, with the spots of TrackMate, whose labels are words and whose ids begin with 0."""
    spots = {"label": "name", "id": SPOT} if set(header) >= TRACKMATE else {}
    return [spots.get(name, name) for name in rename_axes(header)]


def read_table(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    meant: Callable[[list[str]], list[str]],
) -> Table:
    """The columns of a table, CSV or Parquet; see `read_delimited`."""
    if Path(path).suffix.lower() in PARQUET:
        return _read_parquet(path, aliases, required, meant)
    return _undescribed(read_delimited(path, aliases, required, meant))


def _undescribed(table: Table) -> Table:
    """Without the rows at the beginning in which TrackMate describes the columns; the first says "Frame" again."""
    frame = [str(cell) for cell in table.columns["frame"][:DESCRIPTIONS]]
    said = 0
    if frame and normalize_name(frame[0]) == "frame":
        said = next(
            (row for row, cell in enumerate(frame) if as_integer(cell) is not None),
            len(frame),
        )
    return Table(
        table.where,
        table.row[said:],
        {name: column[said:] for name, column in table.columns.items()},
    )


def _read_parquet(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    meant: Callable[[list[str]], list[str]],
) -> Table:
    """A Parquet file; its rows count from 1."""
    require_extra("parquet", f"{path}: reading Parquet")
    import pyarrow.parquet

    try:
        content = pyarrow.parquet.read_table(Path(path))
        given = content.column_names  # decoded when they are asked for
    except Exception as error:  # a damaged file makes pyarrow raise nearly anything
        raise InputError(
            f"{path}: cannot be read as Parquet ({type(error).__name__}: {error})"
        ) from error
    names = locate_columns(
        str(path), meant([normalize_name(name) for name in given]), aliases, required
    )
    columns = {name: content.column(at).to_pylist() for name, at in names.items()}
    return Table(str(path), np.arange(1, content.num_rows + 1), columns)


def check_spacing(spacing: Sequence[float] | None, ndim: int) -> NDArray[np.float64]:
    """(ndim,) what an index is multiplied by."""
    axes = "zyx"[-ndim:]
    scale = np.ones(ndim) if spacing is None else np.asarray(spacing, dtype=np.float64)
    if scale.shape != (ndim,) or not np.all(np.isfinite(scale) & (scale > 0)):
        raise InputError(
            f"spacing is {spacing}; it must be a positive number for each of {', '.join(axes)}"
        )
    return scale


def _check_duplicates(
    table: Table, frame: NDArray[np.int64], label: NDArray[np.int64], faults: Faults
) -> None:
    """A label stands for one cell of a frame."""
    order = np.lexsort((table.row, label, frame))
    again = np.flatnonzero((np.diff(frame[order]) == 0) & (np.diff(label[order]) == 0))
    earlier, later = order[again], order[again + 1]
    faults.add(
        table.row[later],
        lambda i: (
            f"label {label[later[i]]} of frame {frame[later[i]]} stands in row {table.row[earlier[i]]} already"
        ),
    )
