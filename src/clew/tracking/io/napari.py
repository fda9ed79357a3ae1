"""Tracks for napari: ``viewer.add_tracks(data, properties=properties, graph=graph)``.

Each track of the layer is an unbranched segment of the lineage, and the graph names
its parents, so that napari draws divisions and merges. Positions are physical: show
images and labels with ``scale=spacing``.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, StoreError
from clew.learning.task import Array
from clew.tracking.io.delimited import (
    Table,
    read_delimited,
    slice_columns,
    write_delimited,
)
from clew.tracking.io.segments import link_segments, number_segments
from clew.tracking.io.tracks_csv import AXES
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.links import NO_NODE
from clew.tracking.lineage.track_faults import Faults
from clew.utils.storage import read_bytes, write_bytes

NapariTracks = tuple[Array, dict[str, NDArray[Any]], dict[int, list[int]]]
MAX_EXACT = 2**53
"""Larger integers are not all floats."""
PROPERTIES = ("label", "track", "generation", "confidence")
REQUIRED = ("track_id", "t", "y", "x")


def make_napari_tracks(lineage: Lineage) -> NapariTracks:
    """Make the arguments of a tracks layer.

    Returns
    -------
    data : ndarray of shape (n, 2 + ndim)
        Track id, frame and position.
    properties : dict of ndarray of shape (n,)
        label; track, as in all other formats; generation; confidence of the event
        that led to the detection. An unlimited confidence becomes the largest finite
        one, so that napari can color by it.
    graph : dict
        Parents of each track id.
    """
    segment = number_segments(lineage)
    order = np.lexsort((lineage.frame, segment))
    data = np.column_stack([segment, lineage.frame, lineage.position])
    track_row = np.searchsorted(lineage.tracks.id, lineage.track)
    properties = {
        "label": lineage.label[order],
        "track": lineage.track[order],
        "generation": lineage.generations[track_row][order],
        "confidence": _find_confidence(lineage)[order],
    }
    return data[order], properties, link_segments(lineage, segment)


def _find_confidence(lineage: Lineage) -> Array:
    """(n,) finite confidence of the event that led to each node."""
    confidence = np.full(len(lineage.frame), np.inf)
    event, side = np.nonzero(lineage.targets != NO_NODE)
    confidence[lineage.targets[event, side]] = lineage.confidence[event]
    is_finite = np.isfinite(confidence)
    return np.where(is_finite, confidence, confidence[is_finite].max(initial=0))


def napari_graph_path(path: str | Path) -> Path:
    """File of the graph beside that of the tracks."""
    return Path(path).with_suffix(".json")


def write_napari(path: str | Path, lineage: Lineage) -> None:
    """Write a table of tracks, and beside it the graph as JSON: {track: [parents]}."""
    data, properties, graph = make_napari_tracks(lineage)
    numbers = data[:, :2].astype(np.int64).T
    columns = [*numbers, *data[:, 2:].T, *properties.values()]
    text = json.dumps(graph, separators=(",", ":"))
    write_bytes(napari_graph_path(path), text.encode())
    header = ["track_id", "t", *AXES[-lineage.position.shape[1] :], *properties]
    write_delimited(path, header, len(data), partial(slice_columns, columns))


def _parse_property(table: Table, name: str, faults: Faults) -> NDArray[Any]:
    """(n,) integers; floats for the confidence."""
    if name == "confidence":
        return table.parse_numbers(name, faults)
    return table.parse_integers(name, faults, least=0)


def read_napari(path: str | Path) -> NapariTracks:
    """Read what `write_napari` wrote; see `make_napari_tracks`."""
    aliases = dict.fromkeys((*REQUIRED, "z", *PROPERTIES), ())
    table = read_delimited(path, aliases, REQUIRED)
    faults = Faults(table.where)
    names = [name for name in ("track_id", "t", *AXES) if name in table]
    data = np.column_stack([table.parse_numbers(name, faults) for name in names])
    is_inexact = np.abs(data[:, 0]) > MAX_EXACT
    expected = f"at most {MAX_EXACT}, since napari stores it as a float"
    table.add_faults(faults, is_inexact, "track_id", expected)
    properties = {
        name: _parse_property(table, name, faults)
        for name in PROPERTIES
        if name in table
    }
    faults.refuse()
    return data, properties, _read_graph(napari_graph_path(path))


def _read_graph(path: Path) -> dict[int, list[int]]:
    """Read the parents of each track."""
    try:
        content = json.loads(read_bytes(path))
        return {
            int(child): [int(parent) for parent in parents]
            for child, parents in content.items()
        }
    except (StoreError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is no graph of tracks, {{track: [parents]}} ({error})"
        ) from error
