"""Kinds of files with a lineage, and the module that reads each.

A module is imported when a file of its kind is opened: some libraries take seconds to
load, and some are optional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.tracking.io.names import RESULT_LINEAGES
from clew.tracking.io.result_folder import refuse_interrupted_write
from clew.utils import validation as checks

if TYPE_CHECKING:
    from clew.tracking.io.ctc import CtcLineage
    from clew.tracking.io.point_lineage import PointLineage


@dataclass(frozen=True)
class LineageFormat:
    """A kind of files with a lineage.

    Attributes
    ----------
    suffixes : tuple of str
        Endings of its files and folders.
    inside : tuple of str
        Patterns of names by which a folder with any name is recognized.
    reader : str
        "module:function" below this package. The function takes a path, and returns
        None if the path is of another kind after all.
    """

    suffixes: tuple[str, ...]
    inside: tuple[str, ...]
    reader: str

    def matches(self, path: Path) -> bool:
        """Whether a path looks like this format."""
        if path.suffix.lower() in self.suffixes and (self.inside or path.is_file()):
            return path.exists()
        return any(any(path.glob(pattern)) for pattern in self.inside)

    def load_reader(self) -> Callable[[Path], Any]:
        """Import the function that reads this format."""
        module, name = self.reader.split(":")
        read: Callable[[Path], Any] = getattr(
            import_module(f"clew.tracking.io.{module}"), name
        )
        return read


TABLES = LineageFormat(
    (".csv", ".tsv", ".parquet", ".pq"), (), "track_tables:read_track_table"
)
TRACKMATE = LineageFormat((".xml",), (), "trackmate:read_trackmate")
MASTODON = LineageFormat((".mastodon",), ("model.raw",), "mastodon:read_mastodon")
HDF5 = LineageFormat((".h5", ".hdf5", ".ilp"), ("[0-9]*.h5",), "hdf5:read_hdf5")
GEFF = LineageFormat(
    (".geff", ".zarr"),
    ("zarr.json", ".zattrs", ".zgroup"),
    "geff_lineage:read_nested_geff",
)
RESULT = LineageFormat((), RESULT_LINEAGES, "track_tables:read_result")
CHALLENGE = LineageFormat((), (), "ctc:open_ctc_lineage")
FORMATS = (TABLES, TRACKMATE, MASTODON, HDF5, GEFF, RESULT)
"""In the order in which they are tried."""
FILE_SUFFIXES = (
    *TABLES.suffixes,
    *TRACKMATE.suffixes,
    *MASTODON.suffixes,
    *HDF5.suffixes,
)
"""Endings of files that have a lineage."""
POINT_SUFFIXES = (*MASTODON.suffixes, *HDF5.suffixes, ".geff")
"""Endings of lineages whose cells are read as a movie of points."""
STORE_FILES = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr store."""


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / name).exists() for name in STORE_FILES)


def is_table(path: str | Path) -> bool:
    """Whether a file name is that of a table, or of points of another program."""
    endings = (*TABLES.suffixes, *TRACKMATE.suffixes, *POINT_SUFFIXES, ".txt")
    return Path(path).suffix.lower() in endings


def open_lineage(path: str | Path) -> CtcLineage | PointLineage:
    """Open a lineage in masks, in a table of tracks, or of another program.

    Parameters
    ----------
    path : str or Path
        A table, a file of another program, a GEFF, or a folder; if a folder has both
        masks and tables, masks are used.
    """
    path = checks.check_path(path, "the lineage")
    if path.is_dir():
        refuse_interrupted_write(path)
    lineage: CtcLineage | PointLineage | None = None
    for form in FORMATS:
        if lineage is None and form.matches(path):
            lineage = form.load_reader()(path)
    if lineage is None:
        lineage = CHALLENGE.load_reader()(path)
    return lineage
