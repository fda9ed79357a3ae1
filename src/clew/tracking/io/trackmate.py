"""Spots and tracks in a file of TrackMate (.xml), with physical positions.

Spots and tracks that the filters of TrackMate hid are left out. The file is parsed by expat,
which fetches nothing; a document type is refused, so that no entity is expanded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from clew.errors import InputError
from clew.tracking.io.delimited import Table
from clew.tracking.io.point_lineage import (
    PointLineage,
    make_lineage_of_links,
    make_links,
    measure_extent,
)
from clew.tracking.io.segments import label_components
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import find_false_detections
from clew.utils.storage import write_bytes
from clew.utils.validation import Faults, quoted

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
FALSE = "FALSE_DETECTION"
"""Feature of spots: 1 for probably false detections."""
VERSION = "7.11.1"
"""Version of TrackMate whose files have these elements."""
FEATURES = {
    "SpotFeatures": {
        "QUALITY": "QUALITY",
        "POSITION_X": "POSITION",
        "POSITION_Y": "POSITION",
        "POSITION_Z": "POSITION",
        "POSITION_T": "TIME",
        "FRAME": "NONE",
        "RADIUS": "LENGTH",
        "VISIBILITY": "NONE",
        FALSE: "NONE",
    },
    "EdgeFeatures": {"SPOT_SOURCE_ID": "NONE", "SPOT_TARGET_ID": "NONE"},
    "TrackFeatures": {"TRACK_INDEX": "NONE", "TRACK_ID": "NONE"},
}
"""Features of spots, edges and tracks, and their dimensions; those without one are
integers."""
RADIUS = 1.0
"""Radius of a spot. TrackMate needs one, and points have none."""


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


def read_trackmate(path: Path) -> PointLineage:
    """Read the visible spots and tracks of a file."""
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
    is_false = [attributes.get(FALSE) == "1" for attributes in handler.spots]
    return make_lineage_of_links(
        frame,
        np.column_stack(axes),
        links,
        str(path),
        is_false=np.array(is_false, dtype=bool),
        is_physical=True,
    )


def _parse_file(path: Path) -> _SpotHandler:
    """Parse a file."""
    parser = expat.ParserCreate()
    handler = _SpotHandler(parser, path)
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except InputError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # odd encodings too
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


def write_trackmate(path: str | Path, lineage: Lineage) -> None:
    """Write the cells and links of a lineage, with physical positions.

    Parameters
    ----------
    path : str or Path
    lineage : Lineage
    """
    root = ElementTree.Element("TrackMate", version=VERSION)
    model = ElementTree.SubElement(
        root, "Model", spatialunits="pixel", timeunits="frame"
    )
    _add_features(model)
    _add_spots(model, lineage)
    _add_tracks(model, lineage)
    _add_settings(root, lineage)
    ElementTree.indent(root)
    write_bytes(Path(path), ElementTree.tostring(root, "utf-8", xml_declaration=True))


def _add_features(model: ElementTree.Element) -> None:
    """Declare the features that the file has."""
    declared = ElementTree.SubElement(model, "FeatureDeclarations")
    for kind, features in FEATURES.items():
        group = ElementTree.SubElement(declared, kind)
        for feature, dimension in features.items():
            name = feature.replace("_", " ").capitalize()
            ElementTree.SubElement(
                group,
                "Feature",
                feature=feature,
                name=name,
                shortname=name,
                dimension=dimension,
                isint="true" if dimension == "NONE" else "false",
            )


def _add_spots(model: ElementTree.Element, lineage: Lineage) -> None:
    """Add a spot for each cell; its number is the row of the cell."""
    n = len(lineage.frame)
    spots = ElementTree.SubElement(model, "AllSpots", nspots=str(n))
    position = np.zeros((n, 3))
    position[:, 3 - lineage.position.shape[1] :] = lineage.position
    false = lineage.tracks.id[find_false_detections(lineage.tracks)]
    is_false = np.isin(lineage.track, false).astype(int)
    starts = np.searchsorted(lineage.frame, np.arange(lineage.n_frames + 1))
    for t in range(lineage.n_frames):
        frame = ElementTree.SubElement(spots, "SpotsInFrame", frame=str(t))
        for row in range(starts[t], starts[t + 1]):
            z, y, x = position[row].tolist()
            ElementTree.SubElement(
                frame,
                "Spot",
                ID=str(row),
                name=f"{lineage.label[row]}",
                QUALITY="1.0",
                POSITION_X=str(x),
                POSITION_Y=str(y),
                POSITION_Z=str(z),
                POSITION_T=f"{t}.0",
                FRAME=str(t),
                RADIUS=str(RADIUS),
                VISIBILITY="1",
                FALSE_DETECTION=str(is_false[row]),
            )


def _add_tracks(model: ElementTree.Element, lineage: Lineage) -> None:
    """Add a track for each family that has links, and make all visible."""
    source, target, _ = lineage.edges
    family = label_components(len(lineage.frame), source, target)
    order = np.argsort(family[source], kind="stable")
    tracks = ElementTree.SubElement(model, "AllTracks")
    visible = ElementTree.SubElement(model, "FilteredTracks")
    ids, starts = np.unique(family[source][order], return_index=True)
    groups = np.split(order, starts[1:]) if len(ids) else []
    for number, rows in enumerate(groups):
        track = ElementTree.SubElement(
            tracks,
            "Track",
            name=f"Track_{number}",
            TRACK_ID=str(number),
            TRACK_INDEX=str(number),
        )
        for row in rows.tolist():
            ElementTree.SubElement(
                track,
                "Edge",
                SPOT_SOURCE_ID=str(source[row]),
                SPOT_TARGET_ID=str(target[row]),
            )
        ElementTree.SubElement(visible, "TrackID", TRACK_ID=str(number))


def _add_settings(root: ElementTree.Element, lineage: Lineage) -> None:
    """Add the size of the movie, without which the file opens in no program."""
    depth, height, width = map(str, measure_extent(lineage.position))
    settings = ElementTree.SubElement(root, "Settings")
    ElementTree.SubElement(
        settings,
        "ImageData",
        filename="",
        folder="",
        width=width,
        height=height,
        nslices=depth,
        nframes=str(lineage.n_frames),
        pixelwidth="1.0",
        pixelheight="1.0",
        voxeldepth="1.0",
        timeinterval="1.0",
    )
