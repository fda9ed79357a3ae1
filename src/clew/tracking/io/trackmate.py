"""Spots and tracks in a file of TrackMate (.xml), with physical positions.

Spots and tracks that the filters of TrackMate hid are left out. The file is parsed by expat,
which fetches nothing; a document type is refused, so that no entity is expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.io.delimited import Table, parse_integer
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_links
from clew.tracking.lineage.track_faults import Faults, quoted

ROOT = "TrackMate"
SPOT = "Spot"
TRACK = "Track"
EDGE = "Edge"
FILTERED_TRACKS = "FilteredTracks"
FILTERED_TRACK = "TrackID"
COLUMNS = {
    "spot": "ID",
    "frame": "FRAME",
    "x": "POSITION_X",
    "y": "POSITION_Y",
    "z": "POSITION_Z",
}
"""Attributes that each spot has, by the names of clew."""
MEASURED = {
    "volume": ("VOLUME", "AREA"),
    "intensity": ("MEAN_INTENSITY_CH1", "MEAN_INTENSITY"),
}
"""Attributes that spots may have; the first that all have is used."""
EXPECTED = (
    "expected the file that TrackMate saves (Save in its window), or its table of "
    "spots exported to CSV"
)


class _SpotHandler:
    """Collect the visible spots, and the edges of tracks, while a file is parsed."""

    def __init__(self, parser: Any, path: Path) -> None:
        self.parser = parser
        self.path = path
        self.depth = 0
        self.rows: list[int] = []
        self.spots: list[dict[str, str]] = []
        self.edges: list[tuple[str, dict[str, str]]] = []
        self.track = ""
        self.visible: set[str] | None = None
        parser.StartElementHandler = self.start_element
        parser.EndElementHandler = self.end_element
        parser.StartDoctypeDeclHandler = self.refuse_doctype

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        if self.depth == 0 and name != ROOT:
            raise InputError(
                f"{self.path} is XML of another kind, <{quoted(name)[1:-1]}>; "
                f"{EXPECTED}"
            )
        self.depth += 1
        if name == SPOT and attributes.get("VISIBILITY", "1") != "0":
            self.rows.append(self.parser.CurrentLineNumber)
            self.spots.append(attributes)
        elif name == TRACK:
            self.track = attributes.get("TRACK_ID", "")
        elif name == EDGE:
            self.edges.append((self.track, attributes))
        elif name == FILTERED_TRACKS:
            self.visible = set()
        elif name == FILTERED_TRACK and self.visible is not None:
            self.visible.add(attributes.get("TRACK_ID", ""))

    def end_element(self, _: str) -> None:
        self.depth -= 1

    def refuse_doctype(self, *_: Any) -> None:
        raise InputError(
            f"{self.path} has a document type, which files of TrackMate do not have; "
            f"{EXPECTED}"
        )


def read_spots(path: Path) -> Table:
    """Read the visible spots as a table, with the line of each in the file."""
    return _make_table(path, _parse_file(path))


def read_trackmate(path: str | Path) -> PointLineage:
    """Read the visible spots and tracks of a file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    lineage : PointLineage
    """
    path = Path(path)
    handler = _parse_file(path)
    table = _make_table(path, handler)
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    spot = table.parse_integers("spot", faults, least=0)
    axes = [table.parse_numbers(axis, faults) for axis in "zyx"]
    faults.refuse()
    edges = [
        (attributes.get("SPOT_SOURCE_ID"), attributes.get("SPOT_TARGET_ID"))
        for track, attributes in handler.edges
        if handler.visible is None or track in handler.visible
    ]
    if not edges:
        raise InputError(
            f"{path} has spots, but no tracks; link them in TrackMate, and save again"
        )
    links = make_links(str(path), spot, frame, edges)
    position = np.column_stack(axes if axes[0].any() else axes[1:])
    return make_lineage_of_links(frame, position, links, str(path), is_physical=True)


def make_links(
    where: str,
    ids: NDArray[np.int64],
    frame: NDArray[np.int64],
    edges: Sequence[tuple[Any, Any]],
) -> Indices:
    """Rows of the cells that edges join, earlier ones first.

    Parameters
    ----------
    where : str
        The file, for messages.
    ids, frame : ndarray of shape (n,)
        Of all cells.
    edges : sequence of (id, id)
        Edges of cells that are not there are left out.

    Returns
    -------
    links : ndarray of shape (k, 2)
    """
    ends = [[parse_integer(end) for end in edge] for edge in edges]
    if any(end is None for edge in ends for end in edge):
        raise InputError(f"{where}: an edge lacks the number of a spot")
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, pairs, sorter=order), len(ids) - 1)
    rows = order[at]
    rows = rows[(ids[rows] == pairs).all(axis=1)]
    is_backward = frame[rows[:, 0]] > frame[rows[:, 1]]
    rows[is_backward] = rows[is_backward, ::-1]
    return np.asarray(rows, dtype=np.intp)


def _parse_file(path: Path) -> _SpotHandler:
    """Parse a file."""
    parser = expat.ParserCreate()
    handler = _SpotHandler(parser, path)
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except expat.ExpatError as error:
        raise InputError(
            f"{path} cannot be read as XML ({error}); it is damaged or cut short"
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    return handler


def _make_table(path: Path, handler: _SpotHandler) -> Table:
    """Make a table of the visible spots."""
    spots = handler.spots
    if not spots:
        raise InputError(
            f"{path} has no spots that are visible in TrackMate; detect some, and "
            "save the file again"
        )
    attributes = dict(COLUMNS)
    for name, candidates in MEASURED.items():
        for attribute in candidates:
            if all(attribute in spot for spot in spots):
                attributes[name] = attribute
                break
    columns = {
        name: [spot.get(attribute, "") for spot in spots]
        for name, attribute in attributes.items()
    }
    return Table(str(path), np.array(handler.rows, dtype=np.intp), columns)
