"""Spots in a file of TrackMate (.xml), with physical positions.

Spots that the filters of TrackMate hid are left out. The file is parsed by expat,
which fetches nothing; a document type is refused, so that no entity is expanded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from clew.errors import InputError
from clew.tracking.io.delimited import Table
from clew.tracking.lineage.track_faults import quoted

ROOT = "TrackMate"
SPOT = "Spot"
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
    """Collect the visible spots of a file while it is parsed."""

    def __init__(self, parser: Any, path: Path) -> None:
        self.parser = parser
        self.path = path
        self.depth = 0
        self.rows: list[int] = []
        self.spots: list[dict[str, str]] = []
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

    def end_element(self, _: str) -> None:
        self.depth -= 1

    def refuse_doctype(self, *_: Any) -> None:
        raise InputError(
            f"{self.path} has a document type, which files of TrackMate do not have; "
            f"{EXPECTED}"
        )


def read_spots(path: Path) -> Table:
    """Read the visible spots as a table, with the line of each in the file."""
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
