"""The spots in a file of TrackMate (.xml).

Spots that TrackMate's filters hid are left out. Its positions are physical. The file is read by expat, which fetches
nothing, and a document type is refused, so that no entity is ever expanded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from clew.errors import InputError
from clew.tracking.io.delimited import Table
from clew.tracking.lineage.track_faults import quoted

ROOT, SPOT = "TrackMate", "Spot"
COLUMNS = {
    "spot": "ID",
    "frame": "FRAME",
    "x": "POSITION_X",
    "y": "POSITION_Y",
    "z": "POSITION_Z",
}
"""What each spot has, by our name for it."""
MEASURED = {
    "volume": ("VOLUME", "AREA"),
    "intensity": ("MEAN_INTENSITY_CH1", "MEAN_INTENSITY"),
}
"""What all spots may have; the first that is there is taken."""
INSTEAD = "expected the file that TrackMate saves (Save in its window), or its table of spots exported to CSV"


class _Spots:
    """Takes a file's elements as they come."""

    def __init__(self, parser: Any, path: Path) -> None:
        self.parser, self.path = parser, path
        self.depth = 0
        self.rows: list[int] = []
        self.spots: list[dict[str, str]] = []
        parser.StartElementHandler, parser.EndElementHandler = self.start, self.end
        parser.StartDoctypeDeclHandler = self.refuse

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self.depth == 0 and name != ROOT:
            raise InputError(
                f"{self.path}: is XML of another kind, <{quoted(name)[1:-1]}>; {INSTEAD}"
            )
        self.depth += 1
        if name == SPOT and attributes.get("VISIBILITY", "1") != "0":
            self.rows.append(self.parser.CurrentLineNumber)
            self.spots.append(attributes)

    def end(self, _: str) -> None:
        self.depth -= 1

    def refuse(self, *_: Any) -> None:
        raise InputError(
            f"{self.path}: has a document type, as no file of TrackMate has; {INSTEAD}"
        )


def read_spots(path: Path) -> Table:
    """The spots as the table that they are, with the line of each in the file."""
    parser = expat.ParserCreate()
    found = _Spots(parser, path)
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except expat.ExpatError as error:
        raise InputError(
            f"{path}: cannot be read as XML ({error}); it is damaged or cut short"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not found.spots:
        raise InputError(
            f"{path}: has no spots that are visible in TrackMate; detect some, and save the file again"
        )
    columns = {
        ours: [spot.get(theirs, "") for spot in found.spots]
        for ours, theirs in COLUMNS.items()
    }
    for ours, names in MEASURED.items():
        theirs = next(
            (name for name in names if all(name in spot for spot in found.spots)), None
        )
        if theirs is not None:
            columns[ours] = [spot[theirs] for spot in found.spots]
    return Table(str(path), np.array(found.rows, dtype=np.intp), columns)
