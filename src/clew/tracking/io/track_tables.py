"""Tables of tracks: a row for each cell of each frame.

Read are ``tracks.csv`` and ``tracks.parquet`` of clew, the table of napari with its
graph, those of other programs (see `TableForm`), and any with the columns frame,
track, y, x and perhaps parent. Such a lineage has positions where one of the Cell Tracking Challenge has
masks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import MAX_FRAMES
from clew.tracking.events import Labels
from clew.tracking.io import ctc, napari
from clew.tracking.io.delimited import (
    Aliases,
    Table,
    parse_integer,
    read_column_names,
    read_delimited,
)
from clew.tracking.io.formats import TABLES, open_lineage
from clew.tracking.io.names import RESULT, RESULT_LINEAGES, TRUTH
from clew.tracking.io.point_lineage import (
    PointLineage,
    make_lineage_of_links,
    make_lineage_of_tracks,
    make_links,
)
from clew.tracking.io.result_folder import require_intact
from clew.tracking.io.result_tables import PIECE
from clew.tracking.io.tables import (
    PARQUET,
    POSITIONS,
    parse_points,
    read_table,
    rename_axes,
)
from clew.utils.validation import Faults

MASTODON_ENDS = (
    ("link_target_ids_source_spot_id",),
    ("link_target_ids_target_spot_id",),
)
NO_PARENT_WORDS = ("", "-1", "-1.0", "none", "nan")


def is_track_table(path: Path) -> bool:
    """Whether a file is a table of tracks, and not of events."""
    suffix = path.suffix.lower()
    if suffix not in TABLES.suffixes or not path.is_file():
        return False
    if suffix in PARQUET:
        return True  # annotations are not read from Parquet
    if napari.napari_graph_path(path).is_file():
        return True
    names = set(read_column_names(path))
    has_tracks = find_form(names) is not CLEW
    has_tracks |= not names.isdisjoint({"track", *CLEW.names["track"]})
    return has_tracks and "event" not in names


def read_result(folder: Path) -> PointLineage | None:
    """Read the lineage in a folder of results; None if it has masks."""
    masks = (folder / RESULT, folder / TRUTH, folder / "TRA" / TRUTH)
    files = [folder / name for name in RESULT_LINEAGES if (folder / name).exists()]
    if not files or any(file.is_file() for file in masks):
        return None
    manifest = require_intact(folder, ctc.is_result_file)
    if not TABLES.matches(files[0]):
        lineage = open_lineage(files[0])
        return lineage if isinstance(lineage, PointLineage) else None
    lineage = read_track_table(files[0], str(folder))
    if manifest is None:
        return lineage
    return replace(lineage, made_from=manifest.made_from)


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
    form = CLEW
    if path.suffix.lower() not in PARQUET:
        header = rename_axes(read_column_names(path))
        form = find_form(header)
        if form is CLEW and CELL_PARENTS.columns <= set(header):
            form = CELL_PARENTS if _has_parents_of_cells(path) else CLEW
    kind = "node" if "node" in form.names else "track"
    table = read_table(path, form.aliases, ("frame", kind, "y", "x"), form.rename)
    faults = Faults(table.where)
    frame, position = parse_points(table, faults)
    if kind == "node":
        return _link_cells(path, form, table, frame, position, faults)
    return _join_tracks(path, source, form, table, frame, position, faults)


def _has_parents_of_cells(path: Path) -> bool:
    """Whether the cells of a track have different parents: the cells before them."""
    names = ("track_id", "parent_id")
    table = read_delimited(path, dict.fromkeys(names, ()), ())
    if len(table.columns) < len(names):
        return False
    pairs = set(zip(*(table.columns[name] for name in names), strict=True))
    return len(pairs) > len({track for track, _ in pairs})


def _join_tracks(
    path: Path,
    source: str,
    form: TableForm,
    table: Table,
    frame: NDArray[np.int64],
    position: Array,
    faults: Faults,
) -> PointLineage:
    """Make a lineage of a table in which each cell has a track."""
    piece = None
    if PIECE in table:
        piece = table.parse_integers(PIECE, faults, least=1)
    has_zero = _is_zero_a_track(table)
    least = 0 if has_zero or "parent" not in table else 1
    if form.program == "ilastik":
        least = -1
    track = table.parse_integers("track", faults, least=least)
    parent = _parse_parents(table, faults, has_zero=has_zero)
    if not len(faults):
        rows = np.flatnonzero(track >= 0)
        cells = Table(table.where, table.row[rows], {})
        _check_cells(cells, frame[rows], track[rows], parent[rows], faults)
    faults.refuse()
    if form.program == "btrack":  # a track without a parent is its own
        parent = np.where(parent == track, -1, parent)
    is_cell = track >= 0  # ilastik has objects without a track
    frame = frame[is_cell]
    shift = int(track[is_cell].min(initial=1) == 0)
    track = track[is_cell] + shift
    parents = {
        child: mother + shift
        for child, mother in zip(track.tolist(), parent[is_cell].tolist(), strict=True)
        if mother >= 0
    }
    splits = _read_track_links(path, form.splits)
    merges = _read_track_links(path, form.merges)
    notes = [] if form is CLEW else [f"read as a table of {form.program}"]
    if splits is not None:
        parents |= {child + shift: mother + shift for mother, child in splits}
        notes.append(f"{len(splits)} daughters in the table of splits beside it")
    existing = set(track.tolist())
    return make_lineage_of_tracks(
        frame,
        track,
        position[is_cell],
        parents,
        source,
        has_parents="parent" in table or splits is not None,
        unknown_begin=[child + shift for _, child in merges or ()],
        unknown_end=[
            mother + shift for mother, _ in merges or () if mother + shift in existing
        ],
        notes=notes,
        piece=None if piece is None else piece[is_cell],
    )


def _is_zero_a_track(table: Table) -> bool:
    """Whether 0 names a track; where it stands for no parent, it does not."""
    if "parent" not in table:
        return True
    words = {str(cell).lower() for cell in table.columns["parent"]}
    tracks = {parse_integer(cell) for cell in table.columns["track"]}
    return 0 in tracks and not words.isdisjoint(NO_PARENT_WORDS)


def _read_track_links(
    path: Path, words: tuple[str, ...]
) -> list[tuple[int, int]] | None:
    """Read a table of parents and children beside another; None if there is none."""
    file = find_table_beside(path, words)
    if file is None:
        return None
    if not file.read_bytes().strip():
        return []
    names = ("parent_track_id", "child_track_id")
    table = read_delimited(file, dict.fromkeys(names, ()), names)
    faults = Faults(table.where)
    columns = [table.parse_integers(name, faults, least=0) for name in names]
    faults.refuse()
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _link_cells(
    path: Path,
    form: TableForm,
    table: Table,
    frame: NDArray[np.int64],
    position: Array,
    faults: Faults,
) -> PointLineage:
    """Make a lineage of a table in which cells, and not tracks, have parents."""
    node = table.parse_integers("node", faults, least=0)
    tracklet = None
    if "track" in table:
        tracklet = table.parse_integers("track", faults, least=0)
    faults.refuse()
    if "node_parent" in table:
        words = [str(cell).lower() for cell in table.columns["node_parent"]]
        # 0 stands for no parent unless there is such a cell
        none = NO_PARENT_WORDS if 0 in node else (*NO_PARENT_WORDS, "0")
        edges = [
            (word, cell)
            for word, cell in zip(words, node.tolist(), strict=True)
            if word not in none
        ]
        origin = "parents of cells"
    else:
        file = find_table_beside(path, form.edges)
        if file is None:
            raise InputError(
                f"{path} has spots of {form.program}; expected its table of edges "
                f"beside it, {path.stem}_{form.edges[0]}{path.suffix} or "
                f"{form.edges[0]}{path.suffix}"
            )
        names = ("spot_source_id", "spot_target_id")
        aliases = dict(zip(names, MASTODON_ENDS, strict=True))
        links = read_delimited(file, aliases, names)
        pairs = zip(*(links.columns[name] for name in names), strict=True)
        # rows under the header describe the columns
        edges = [pair for pair in pairs if parse_integer(pair[0]) is not None]
        origin = f"edges from {file.name}"
    return make_lineage_of_links(
        frame,
        position,
        make_links(str(path), node, frame, edges),
        str(path),
        tracklet=tracklet,
        is_physical=form.program in ("TrackMate", "Mastodon"),
        notes=(f"read as a table of {form.program}, {origin}",),
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


def _parse_parents(table: Table, faults: Faults, *, has_zero: bool) -> Labels:
    """(n,) parent of the track of each row; -1 if it has none."""
    if "parent" not in table:
        return np.full(len(table), -1, dtype=np.int64)
    none = NO_PARENT_WORDS if has_zero else (*NO_PARENT_WORDS, "0", "0.0")
    cells = [
        -1 if str(cell).lower() in none else cell for cell in table.columns["parent"]
    ]
    column = Table(table.where, table.row, {"parent": cells})
    return column.parse_integers("parent", faults, least=-1)


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


@dataclass(frozen=True)
class TableForm:
    """How a program names the columns of its tables.

    Attributes
    ----------
    program : str
    columns : frozenset of str
        Columns by which tables of the program are recognized.
    names : mapping
        Columns of clew and those of the program.
    splits, merges, edges : tuple of str
        Words in the names of the tables beside it that link tracks or cells.
    """

    program: str
    columns: frozenset[str]
    names: Aliases
    splits: tuple[str, ...] = ()
    merges: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()

    def rename(self, header: list[str]) -> list[str]:
        """Rename axes, and columns of tracks that were there before the program ran."""
        header = rename_axes(header)
        taken = {name for name, theirs in self.names.items() if {*theirs} & {*header}}
        older = taken & {"track"} if self is not CLEW else set()
        return [f"{name}_before" if name in older else name for name in header]

    @property
    def aliases(self) -> Aliases:
        """Columns to read, with the names that are accepted."""
        return {**POSITIONS, **self.names}


CLEW = TableForm(
    "clew",
    frozenset(),
    {
        "track": ("track_id", "trackid", "particle", "tracklet_id"),
        "parent": ("parent_track", "parent_track_id", "parenttrackid", "parent_id"),
        "piece": (),
    },
)
"""Columns of clew, and of programs that have no others."""
FORMS = (
    TableForm(
        "btrack",
        frozenset({"id", "t", "parent", "root", "generation"}),
        {"track": ("id",), "parent": ()},
    ),
    TableForm(
        "ilastik",
        frozenset({"trackid", "parenttrackid", "lineageid"}),
        {
            "track": ("trackid",),
            "parent": ("parenttrackid",),
            "label": ("labelimageid",),
        },
    ),
    TableForm(
        "ultrack",
        frozenset({"track_id", "parent_track_id"}),
        {"track": ("track_id",), "parent": ("parent_track_id",)},
    ),
    TableForm(
        "TrackMate",
        frozenset({"id", "track_id", "position_x", "position_y", "frame"}),
        {"node": ("id",), "frame": ()},
        edges=("edges",),
    ),
    TableForm(
        "Mastodon",
        frozenset({"id", "spot_frame", "spot_position_x"}),
        {"node": ("id",)},
        edges=("Link", "link"),
    ),
    TableForm(
        "funtracks",
        frozenset({"id", "parent_id", "tracklet_id"}),
        {"node": ("id",), "node_parent": ("parent_id",), "track": ("tracklet_id",)},
    ),
    TableForm(
        "laptrack",
        frozenset({"track_id", "tree_id"}),
        {"track": ("track_id",)},
        splits=("split", "splits", "split_df"),
        merges=("merge", "merges", "merge_df"),
    ),
    TableForm("trackpy", frozenset({"particle"}), {"track": ("particle",)}),
)
"""More specific forms come first."""
CELL_PARENTS = TableForm(
    "funtracks",
    frozenset({"id", "parent_id"}),
    {"node": ("id",), "node_parent": ("parent_id",), "track": ("track_id",)},
)
"""Columns in which parents may be those of tracks too."""
NAPARI_FORM = TableForm("napari", frozenset({"id", "t", "y", "x"}), {"track": ("id",)})
"""Columns that tables of detections may have too, if they have others."""


def find_form(header: Collection[str]) -> TableForm:
    """Find the form of a table of tracks by its columns."""
    names = set(header)
    for form in FORMS:
        # these programs add their columns to those of any table, as of a result
        is_added = form.program in ("laptrack", "trackpy")
        if form.columns <= names and (is_added or "track" not in names):
            return form
    if "track" in names:
        return CLEW
    if CELL_PARENTS.columns <= names and "track_id" not in names:
        return CELL_PARENTS
    return NAPARI_FORM if names - {"z"} == NAPARI_FORM.columns else CLEW


def find_table_beside(path: Path, words: tuple[str, ...]) -> Path | None:
    """Find a table whose name has one of these words in place of, or after, its own."""
    stem = path.stem
    for word in words:
        names = [f"{stem}_{word}", f"{stem}-{word}", word]
        names += [stem.replace("spots", word), stem.replace("Spots", word.title())]
        names.append(stem.replace("Spot", word))
        for name in names:
            file = path.with_name(name + path.suffix)
            if file.is_file() and file != path:
                return file
    return None
