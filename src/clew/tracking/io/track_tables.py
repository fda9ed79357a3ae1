"""Tables of tracks: a row for each cell of each frame, with its track, the track's parent and where it is.

That is `tracks.csv` as clew writes it, its Parquet, napari's table with the graph beside it, and what others write with
the columns frame, track (and parent), y and x. Such a lineage has positions where one of the Challenge has masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import MAX_FRAMES, check_frame_count
from clew.tracking.events import Labels
from clew.tracking.io import ctc, napari
from clew.tracking.io.delimited import Aliases, Table, read_column_names
from clew.tracking.io.manifest import require_intact
from clew.tracking.io.names import NAPARI, RESULT, TRACKS, TRACKS_PARQUET, TRUTH
from clew.tracking.io.staging import refuse_interrupted_write
from clew.tracking.io.tables import POSITIONS, parse_positions, read_table, rename_axes
from clew.tracking.lineage.track_faults import Faults
from clew.tracking.lineage.tracks import NO_PARENT, Tracks, check_tracks
from clew.utils.validation import check_path, is_number

REQUIRED = ("frame", "track", "y", "x")
ALIASES: Aliases = {
    **POSITIONS,
    "track": ("track_id", "trackid", "particle", "tracklet_id"),
    "parent": ("parent_id", "parent_track", "parent_track_id", "parenttrackid"),
}
SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")
TABLES = (TRACKS, TRACKS_PARQUET, NAPARI)
"""Of a folder of results."""
NO_PARENTS = ("", "0", "-1", "none", "nan")
"""What people write for no parent."""


@dataclass(frozen=True, eq=False)
class PointLineage:
    """Tracks, and where each of them is in its frames; a cell has no mask."""

    tracks: Tracks
    frame: NDArray[np.int64]
    """(n,) of each cell; cells are sorted by frame, then track."""
    track: Labels
    """(n,)"""
    position: Array
    """(n, ndim)"""
    n_frames: int
    source: str
    """The file or folder, for messages."""
    made_from: Mapping[str, Any] | None = None
    """Of a result of clew's, what its manifest says; its positions are physical."""

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """The size of a pixel where it was tracked, if the result knows it."""
        given = (self.made_from or {}).get("spacing")
        if not isinstance(given, list) or not all(
            is_number(size) and size > 0 for size in given
        ):
            return None
        return tuple(float(size) for size in given)

    def __getitem__(self, frames: slice) -> PointLineage:
        """Some of the frames, one after the other, counted from 0 again; tracks end where those do."""
        which = range(self.n_frames)[frames]
        rows = (self.frame >= which.start) & (self.frame < which.stop)
        return replace(
            self,
            tracks=self.tracks.within(which),
            frame=self.frame[rows] - which.start,
            track=self.track[rows],
            position=self.position[rows],
            n_frames=len(which),
        )

    def cells(self, t: int) -> tuple[Labels, Array]:
        """The tracks in a frame, ascending, and their positions."""
        rows = slice(*np.searchsorted(self.frame, [t, t + 1]))
        return self.track[rows], self.position[rows]


def is_track_table(path: Path) -> bool:
    """Whether a table is one of tracks, and not of events."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    if path.suffix.lower() not in (".csv", ".tsv"):
        return True  # events are no annotations in Parquet
    found = set(read_column_names(path))
    return bool(found & {"track", *ALIASES["track"]}) and "event" not in found


def open_lineage(path: str | Path) -> ctc.CtcLineage | PointLineage:
    """The lineage that a path means: masks with their tracks, or a table of tracks; a folder with both means masks."""
    where = check_path(path, "the lineage")
    if where.is_file() and where.suffix.lower() in SUFFIXES:
        return read_track_table(where)
    if where.is_dir():
        refuse_interrupted_write(where)
        masks = (where / RESULT, where / TRUTH, where / "TRA" / TRUTH)
        table = next(
            (where / name for name in TABLES if (where / name).is_file()), None
        )
        if table is not None and not any(file.is_file() for file in masks):
            manifest = require_intact(where, ctc.is_result_file)
            found = read_track_table(table, str(where))
            return (
                found
                if manifest is None
                else replace(found, made_from=manifest.made_from)
            )
    return ctc.open_ctc_lineage(where)


def read_track_table(path: str | Path, source: str | None = None) -> PointLineage:
    """The lineage of a table; positions are as they stand there, and every fault is told with its row."""
    path = Path(path)
    if napari.napari_graph_path(path).is_file() and path.suffix.lower() == ".csv":
        return _of_napari(path)
    table = read_table(path, ALIASES, REQUIRED, rename_axes)
    if not len(table):
        raise InputError(
            f"{path}: there is no row under the names of the columns; each cell of each frame needs one"
        )
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    table.add_faults(faults, frame >= MAX_FRAMES, "frame", f"less than {MAX_FRAMES:,}")
    # others count tracks from 0; where parents are named, 0 is none of them
    track = table.parse_integers("track", faults, least=1 if "parent" in table else 0)
    position = parse_positions(table, faults)
    parent = _parents(table, faults)
    if not len(faults):
        _check_cells(table, frame, track, parent, faults)
    faults.refuse()
    shift = int(track.min() == 0)
    named = dict(zip((track + shift).tolist(), parent.tolist(), strict=True))
    return _lineage(frame, track + shift, position, named, source or str(path))


def _of_napari(path: Path) -> PointLineage:
    """Napari's table, in which a track ends at each branch, with the graph that lies beside it.

    A track that came out of several, a merge, has no parent: no table of tracks can say more.
    """
    data, _, graph = napari.read_napari(path)
    whole = data[:, :2] == np.floor(data[:, :2])
    if (
        not len(data)
        or not whole.all()
        or data[:, :2].min() < 0
        or data[:, 1].max() >= MAX_FRAMES
    ):
        raise InputError(
            f"{path}: expected a row for each cell, and in track_id and t whole numbers from 0 on, t less than "
            f"{MAX_FRAMES:,}"
        )
    frame, track = data[:, 1].astype(np.int64), data[:, 0].astype(np.int64)
    if len(np.unique(data[:, :2], axis=0)) < len(data):
        raise InputError(
            f"{path}: a track is twice in one frame; expected one row for each track and frame"
        )
    shift = int(track.min(initial=1) == 0)
    parents = {
        child + shift: one[0] + shift for child, one in graph.items() if len(one) == 1
    }
    return _lineage(frame, track + shift, data[:, 2:], parents, str(path))


def _lineage(
    frame: NDArray[np.int64],
    track: Labels,
    position: Array,
    parents: Mapping[int, int],
    source: str,
) -> PointLineage:
    """The lineage of checked columns; a track that is missing in some frames goes on as a child of itself."""
    check_frame_count(frame, None)
    order = np.lexsort((frame, track))
    frame, track, position = frame[order], track[order], position[order]
    new = np.diff(track, prepend=0) != 0
    first = np.flatnonzero(
        new | (np.diff(frame, prepend=-2) > 1)
    )  # of each piece without a gap
    last = np.append(first[1:], len(frame)) - 1
    again = ~new[first]
    name = track[first].copy()
    name[again] = track.max(initial=0) + 1 + np.arange(again.sum())
    # the last piece of a track is the one that its children come out of
    ending = {int(old): int(now) for old, now in zip(track[first], name, strict=True)}
    parent = [parents.get(int(old), NO_PARENT) for old in track[first]]
    parent = [ending.get(one, one) for one in parent]
    piece_before = np.append(NO_PARENT, name[:-1])
    tracks = Tracks(
        name,
        frame[first],
        frame[last],
        np.where(again, piece_before, parent).astype(np.int64),
    )
    check_tracks(tracks, source)
    track = np.repeat(name, last - first + 1)
    order = np.lexsort((track, frame))
    n_frames = int(frame.max(initial=-1)) + 1
    return PointLineage(
        tracks, frame[order], track[order], position[order], n_frames, source
    )


def _parents(table: Table, faults: Faults) -> Labels:
    """(n,) the parent of each row's track, `NO_PARENT` where there is none."""
    if "parent" not in table:
        return np.full(len(table), NO_PARENT, dtype=np.int64)
    cells: Any = [
        NO_PARENT if str(cell).lower() in NO_PARENTS else cell
        for cell in table.columns["parent"]
    ]
    return Table(table.where, table.row, {"parent": cells}).parse_integers(
        "parent", faults, least=0
    )


def _check_cells(
    table: Table,
    frame: NDArray[np.int64],
    track: Labels,
    parent: Labels,
    faults: Faults,
) -> None:
    """A track is in one place of a frame, and has one parent."""
    order = np.lexsort((table.row, frame, track))
    same = np.diff(track[order]) == 0
    a, b = _neighbours(order, same & (np.diff(frame[order]) == 0))
    faults.add(
        table.row[b],
        lambda i: (
            f"track {track[b[i]]} is in frame {frame[b[i]]} by row {table.row[a[i]]} already; a track is one cell, and "
            "ends where it divides"
        ),
    )
    c, d = _neighbours(order, same & (np.diff(parent[order]) != 0))
    faults.add(
        table.row[d],
        lambda i: (
            f"track {track[d[i]]} has the parent {parent[d[i]]}, but {parent[c[i]]} in row {table.row[c[i]]}"
        ),
    )


def _neighbours(order: Indices, which: Mask) -> tuple[Indices, Indices]:
    """The earlier and the later row of some pairs that follow each other in an order."""
    at = np.flatnonzero(which)
    return order[at], order[at + 1]
