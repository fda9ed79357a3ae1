"""Tables of tracks of other programs, recognized by the names of their columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from clew.tracking.io.delimited import Aliases
from clew.tracking.io.tables import POSITIONS


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
NAPARI = TableForm("napari", frozenset({"id", "t", "y", "x"}), {"track": ("id",)})
"""Columns that tables of detections may have too, if they have others."""


def find_form(header: Collection[str]) -> TableForm:
    """Find the form of a table of tracks by its columns."""
    names = set(header)
    if "track" in names:
        return CLEW
    for form in FORMS:
        if form.columns <= names:
            return form
    if CELL_PARENTS.columns <= names and "track_id" not in names:
        return CELL_PARENTS
    return NAPARI if names - {"z"} == NAPARI.columns else CLEW


def find_table_beside(path: Path, words: tuple[str, ...]) -> Path | None:
    """Find a table whose name has one of these words in place of, or after, its own."""
    stem = path.stem
    for word in words:
        names = [f"{stem}_{word}", f"{stem}-{word}", word]
        names += [stem.replace("spots", word), stem.replace("Spots", word.title())]
        for name in names:
            file = path.with_name(name + path.suffix)
            if file.is_file() and file != path:
                return file
    return None
