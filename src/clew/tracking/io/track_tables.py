"""Tables of tracks: a row for each cell of each frame.

Read are ``tracks.csv`` and ``tracks.parquet`` of clew, the table of napari with its
graph, and tables of other programs with the columns frame, track, y, x and perhaps
parent. Such a lineage has positions where one of the Cell Tracking Challenge has
masks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices, Mask
from clew.tracking.detections import MAX_FRAMES
from clew.tracking.events import Labels
from clew.tracking.io import ctc, napari
from clew.tracking.io.delimited import Aliases, Table, read_column_names
from clew.tracking.io.manifest import require_intact
from clew.tracking.io.names import NAPARI, RESULT, TRACKS, TRACKS_PARQUET, TRUTH
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_tracks
from clew.tracking.io.staging import refuse_interrupted_write
from clew.tracking.io.tables import POSITIONS, parse_positions, read_table, rename_axes
from clew.tracking.io.zarr import is_zarr
from clew.tracking.lineage.track_faults import Faults
from clew.tracking.lineage.tracks import NO_PARENT
from clew.utils import validation as checks

REQUIRED = ("frame", "track", "y", "x")
ALIASES: Aliases = {
    **POSITIONS,
    "track": ("track_id", "trackid", "particle", "tracklet_id"),
    "parent": ("parent_id", "parent_track", "parent_track_id", "parenttrackid"),
}
SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")
ZARR_SUFFIXES = (".geff", ".zarr")
RESULT_TABLES = (TRACKS, TRACKS_PARQUET, NAPARI)
NO_PARENT_WORDS = ("", "0", "-1", "none", "nan")


def is_track_table(path: Path) -> bool:
    """Whether a file is a table of tracks, and not of events."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or not path.is_file():
        return False
    if suffix not in (".csv", ".tsv"):
        return True  # annotations are not read from Parquet
    if napari.napari_graph_path(path).is_file():
        return True
    names = set(read_column_names(path))
    return not names.isdisjoint({"track", *ALIASES["track"]}) and "event" not in names


def open_lineage(path: str | Path) -> ctc.CtcLineage | PointLineage:
    """Open a lineage in masks or in a table of tracks.

    Parameters
    ----------
    path : str or Path
        A table, or a folder; if a folder has both, masks are used.
    """
    path = checks.check_path(path, "the lineage")
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return read_track_table(path)
    if path.is_dir():
        refuse_interrupted_write(path)
        if is_zarr(path) or path.suffix.lower() in ZARR_SUFFIXES:
            # geff and zarr take seconds to load
            from clew.tracking.io.geff_lineage import find_geff, read_geff_lineage

            graph = find_geff(path)
            if graph is not None:
                return read_geff_lineage(graph)
        masks = (path / RESULT, path / TRUTH, path / "TRA" / TRUTH)
        tables = [path / name for name in RESULT_TABLES if (path / name).is_file()]
        if tables and not any(file.is_file() for file in masks):
            manifest = require_intact(path, ctc.is_result_file)
            lineage = read_track_table(tables[0], str(path))
            if manifest is not None:
                lineage = replace(lineage, made_from=manifest.made_from)
            return lineage
    return ctc.open_ctc_lineage(path)


def read_track_table(path: str | Path, source: str | None = None) -> PointLineage:
    """Read a table of tracks.

    Parameters
    ----------
    path : str or Path
    source : str, optional
        Name of the lineage in messages; the path by default.

    Returns
    -------
    lineage : PointLineage
        With the positions of the table. Tracks that count from 0 are
        numbered from 1. A track with a gap becomes several, parent and child.
    """
    path = Path(path)
    source = source or str(path)
    if path.suffix.lower() == ".csv" and napari.napari_graph_path(path).is_file():
        return _read_napari_table(path)
    table = read_table(path, ALIASES, REQUIRED, rename_axes)
    if not len(table):
        raise InputError(f"{path} has no rows; expected one for each cell and frame")
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    table.add_faults(faults, frame >= MAX_FRAMES, "frame", f"less than {MAX_FRAMES:,}")
    # where parents are named, 0 means none, so no track can have it
    track = table.parse_integers("track", faults, least=1 if "parent" in table else 0)
    position = parse_positions(table, faults)
    parent = _parse_parents(table, faults)
    if not len(faults):
        _check_cells(table, frame, track, parent, faults)
    faults.refuse()
    if track.min() == 0:
        track = track + 1
    parents = dict(zip(track.tolist(), parent.tolist(), strict=True))
    return make_lineage_of_tracks(
        frame, track, position, parents, source, has_parents="parent" in table
    )


def _read_napari_table(path: Path) -> PointLineage:
    """Read a table of napari, in which tracks end at each branch, and its graph.

    A track that merges several others gets no parent.
    """
    data, _, graph = napari.read_napari(path)
    ids_and_frames = data[:, :2]
    is_valid = (
        len(data) > 0
        and np.all(ids_and_frames == np.floor(ids_and_frames))
        and ids_and_frames.min() >= 0
        and data[:, 1].max() < MAX_FRAMES
    )
    if not is_valid:
        raise InputError(
            f"{path}: expected a row for each cell, and in track_id and t whole "
            f"numbers from 0 on, t less than {MAX_FRAMES:,}"
        )
    if len(np.unique(ids_and_frames, axis=0)) < len(data):
        raise InputError(
            f"{path}: a track is twice in one frame; expected one row for each track "
            "and frame"
        )
    track, frame = ids_and_frames.astype(np.int64).T
    shift = int(track.min() == 0)
    merged = [child + shift for child, sources in graph.items() if len(sources) > 1]
    parents = {
        child + shift: sources[0] + shift
        for child, sources in graph.items()
        if len(sources) == 1
    }
    return make_lineage_of_tracks(
        frame, track + shift, data[:, 2:], parents, str(path), unknown_begin=merged
    )


def _parse_parents(table: Table, faults: Faults) -> Labels:
    """(n,) parent of the track of each row; `NO_PARENT` if it has none."""
    if "parent" not in table:
        return np.full(len(table), NO_PARENT, dtype=np.int64)
    cells = [
        NO_PARENT if str(cell).lower() in NO_PARENT_WORDS else cell
        for cell in table.columns["parent"]
    ]
    column = Table(table.where, table.row, {"parent": cells})
    return column.parse_integers("parent", faults, least=0)


def _check_cells(
    table: Table,
    frame: NDArray[np.int64],
    track: Labels,
    parent: Labels,
    faults: Faults,
) -> None:
    """Add faults for tracks with two cells in a frame, or with two parents."""
    order = np.lexsort((table.row, frame, track))
    is_same_track = np.diff(track[order]) == 0
    is_same_frame = np.diff(frame[order]) == 0
    first, second = _select_pairs(order, is_same_track & is_same_frame)
    faults.add(
        table.row[second],
        lambda i: (
            f"track {track[second[i]]} is in frame {frame[second[i]]} by row "
            f"{table.row[first[i]]} already; a track is one cell, and ends where it "
            "divides"
        ),
    )
    is_other_parent = np.diff(parent[order]) != 0
    before, after = _select_pairs(order, is_same_track & is_other_parent)
    faults.add(
        table.row[after],
        lambda i: (
            f"track {track[after[i]]} has the parent {parent[after[i]]}, but "
            f"{parent[before[i]]} in row {table.row[before[i]]}"
        ),
    )


def _select_pairs(order: Indices, is_pair: Mask) -> tuple[Indices, Indices]:
    """First and second row of consecutive pairs in an order."""
    at = np.flatnonzero(is_pair)
    return order[at], order[at + 1]
