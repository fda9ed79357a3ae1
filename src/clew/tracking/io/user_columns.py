"""Columns of numbers in tables of detections, and tables of links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.io.delimited import Aliases, Table
from clew.tracking.user_columns import ColumnTable
from clew.utils.validation import Faults

LINK_COLUMNS: Aliases = {
    "frame": ("t", "source_frame", "frame_source", "source_t"),
    "source": ("source_label", "source_id", "label_source", "from"),
    "target": ("target_label", "target_id", "label_target", "to"),
    "target_frame": ("frame_target", "target_t"),
}
IDENTIFIERS = frozenset(
    [
        "id",
        "index",
        "label",
        "seg_id",
        "label_id",
        "cell_id",
        "object_id",
        "labelimageid",
        "spot",
        "spot_id",
        "spot_n_links",
        "spot_track_id",
        "track_n_spots",
        "node_id",
        "track",
        "track_id",
        "trackid",
        "tracklet",
        "tracklet_id",
        "tree_id",
        "lineage",
        "lineage_id",
        "lineageid",
        "parent",
        "parent_id",
        "parent_track",
        "parent_track_id",
        "parenttrackid",
        "root",
        "root_id",
        "mother",
        "mother_id",
        "generation",
        "particle",
        "piece",
        "frame",
        "t",
        "time",
        "timestep",
        "frame_id",
        "position_t",
        "z",
        "y",
        "x",
        "visibility",
        "manual_spot_color",
        "recovered",
        "false",
    ]
)
"""Columns that say which cell it is, and when and where: no measurements of cells."""


def read_number_columns(table: Table, frame: NDArray[np.int64]) -> dict[str, Array]:
    """Read the columns of a table of detections that can be features.

    A column is one if all of its cells are numbers, which differ within some frame. Those
    that identify cells or tracks are left out: known names, and whole numbers each of
    which stands in one row.

    Parameters
    ----------
    table : Table
        With all columns.
    frame : ndarray of shape (n,)

    Returns
    -------
    columns : dict of ndarray of shape (n,)
    """
    columns = {}
    for name in table.columns:
        if name in IDENTIFIERS or name in ("volume", "intensity", "border_distance"):
            continue
        values = _parse_or_none(table, name)
        if values is None or not _varies_within(values, frame):
            continue
        is_whole = bool((values == np.floor(values)).all())
        if is_whole and len(np.unique(values)) == len(values):
            continue
        columns[name] = values
    return columns


def select_columns(columns: ColumnTable, names: Sequence[str]) -> ColumnTable | None:
    """Select columns by name; None for no names."""
    missing = [name for name in names if name not in columns.columns]
    if missing:
        raise InputError(
            f"there is no column of numbers {missing[0]!r}; there are "
            f"{', '.join(columns.columns) or 'none'}"
        )
    if not names:
        return None
    chosen = {name: columns.columns[name] for name in names}
    return ColumnTable(columns.frame, columns.cells, chosen)


def read_links(path: str | Path) -> ColumnTable:
    """Read a table of links with numbers, such as a network's association scores.

    Parameters
    ----------
    path : str or Path
        CSV or Parquet with the columns frame, source and target: the labels of a cell
        in this frame and one in the next. Each other column has a number in each row.

    Returns
    -------
    links : ColumnTable
    """
    # it imports this module
    from clew.tracking.io.tables import read_table

    required = ("frame", "source", "target")
    table = read_table(path, LINK_COLUMNS, required, others=True)
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    names = ("source", "target")
    cells = [table.parse_integers(name, faults, least=1) for name in names]
    if "target_frame" in table:
        after = table.parse_integers("target_frame", faults, least=0)
        table.add_faults(faults, after != frame + 1, "target_frame", "frame + 1")
    columns = {
        name: table.parse_numbers(name, faults)
        for name in table.columns
        if name not in LINK_COLUMNS and not name.startswith("unnamed")
    }
    faults.refuse()
    if not columns:
        raise InputError(
            f"{path} has no column of numbers besides frame, source and target; expected "
            "one at least, such as a score"
        )
    links = ColumnTable.of(frame, np.column_stack(cells), columns)
    keys = np.column_stack([links.frame, links.cells])
    is_same = (keys[1:] == keys[:-1]).all(axis=1)
    if is_same.any():
        t, source, target = keys[np.argmax(is_same)]
        raise InputError(
            f"{path} has the link from label {source} of frame {t} to label {target} "
            "twice; expected each once"
        )
    return links


def _parse_or_none(table: Table, name: str) -> Array | None:
    """(n,) the numbers of a column; None unless all cells are finite numbers."""
    faults = Faults(table.where)
    values = table.parse_numbers(name, faults)
    return None if len(faults) else values


def _varies_within(values: Array, frame: NDArray[np.int64]) -> bool:
    """Whether the values of a frame differ, in any frame."""
    order = np.lexsort((values, frame))
    is_same_frame = np.diff(frame[order]) == 0
    return bool((np.diff(values[order])[is_same_frame] > 0).any())
