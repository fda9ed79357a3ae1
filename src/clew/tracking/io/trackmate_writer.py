"""Write a lineage as a file of TrackMate (.xml): spots, and a track for each family."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from clew.tracking.io.segments import label_components
from clew.tracking.lineage.lineage import Lineage
from clew.utils.storage import write_bytes

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
    },
    "EdgeFeatures": {"SPOT_SOURCE_ID": "NONE", "SPOT_TARGET_ID": "NONE"},
    "TrackFeatures": {"TRACK_INDEX": "NONE", "TRACK_ID": "NONE"},
}
"""Features of spots, edges and tracks, and their dimensions; those without one are
integers."""
RADIUS = 1.0
"""Radius of a spot. TrackMate needs one, and points have none."""


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
