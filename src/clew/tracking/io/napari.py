"""Tracks for napari: ``viewer.add_tracks(data, properties=properties, graph=graph)``.

Each track of the layer is an unbranched segment of the lineage, and the graph names
its parents, so that napari draws divisions and merges. Positions are physical: show
images and labels with ``scale=spacing``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, StoreError
from clew.learning.task import Array
from clew.tracking.io.delimited import (
    Table,
    read_delimited,
    write_delimited,
)
from clew.tracking.io.result_tables import AXES, FALSE
from clew.tracking.io.segments import link_segments, number_segments
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.links import NO_NODE
from clew.tracking.lineage.tracks import find_false_detections
from clew.utils.storage import read_bytes, write_bytes
from clew.utils.validation import Faults

NapariTracks = tuple[Array, dict[str, NDArray[Any]], dict[int, list[int]]]
MAX_EXACT = 2**53
"""Larger integers are not all floats."""
INTEGERS = ("label", "track", "generation", FALSE, "event")
NUMBERS = ("confidence", "probability")
PROPERTIES = (*INTEGERS, *NUMBERS)
NO_EVENT = -1
"""Code of the event that led to a cell of the first frame."""
REQUIRED = ("track_id", "t", "y", "x")


def make_napari_tracks(lineage: Lineage) -> NapariTracks:
    """Make the arguments of a tracks layer.

    Returns
    -------
    data : ndarray of shape (n, 2 + ndim)
        Track id, frame and position.
    properties : dict of ndarray of shape (n,)
        label; track, as in all other formats; generation; 1 for probably false
        detections; and of the event that led
        to the detection its code (`Event`, or `NO_EVENT`), confidence, and
        probability of being right if the lineage has it. An unlimited confidence
        becomes the largest finite one, and events are numbers, so that napari can
        color by them.
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
        FALSE: find_false_detections(lineage.tracks)[track_row][order].astype(np.int64),
    }
    kind = _take_last_event(lineage, lineage.events.event, NO_EVENT)
    properties["event"] = kind[order].astype(np.int64)
    confidence = _take_last_event(lineage, lineage.confidence, np.inf)
    is_finite = np.isfinite(confidence)
    largest = confidence[is_finite].max(initial=0)
    properties["confidence"] = np.where(is_finite, confidence, largest)[order]
    if lineage.probability is not None:
        probability = _take_last_event(lineage, lineage.probability, 1.0)
        properties["probability"] = probability[order]
    return data[order], properties, link_segments(lineage, segment)


def _take_last_event(
    lineage: Lineage, values: NDArray[Any], default: float
) -> NDArray[Any]:
    """(n,) for each node the value (m,) of the event that led to it."""
    of_nodes = np.full(len(lineage.frame), default, dtype=values.dtype)
    event, side = np.nonzero(lineage.targets != NO_NODE)
    of_nodes[lineage.targets[event, side]] = values[event]
    return of_nodes


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
    write_delimited(path, header, [columns])


def _parse_property(table: Table, name: str, faults: Faults) -> NDArray[Any]:
    """(n,) integers; floats for the confidence and the probability."""
    if name in NUMBERS:
        return table.parse_numbers(name, faults)
    return table.parse_integers(name, faults, least=NO_EVENT if name == "event" else 0)


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
