"""Tracks for napari: `viewer.add_tracks(data, properties=properties, graph=graph)`.

Each track of the layer is an unbranched segment of the lineage, and the graph names its parents, so that divisions
and merges are both drawn. Positions are physical: show images and labels with `scale=spacing`.
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
from clew.tracking.lineage.lineage import NO_NODE, Lineage
from clew.tracking.lineage.track_faults import Faults
from clew.utils.storage import read_bytes, write_bytes

NapariTracks = tuple[Array, dict[str, NDArray[Any]], dict[int, list[int]]]
MAX_EXACT = 2**53
"""Integers beyond are not all floats."""
PROPERTIES = ("label", "track", "generation", "confidence")


def make_napari_tracks(lineage: Lineage) -> NapariTracks:
    """The data (n, 2 + ndim) of a tracks layer (track_id, t, position), its properties (n,) each, and its graph.

    The properties are label, track (as in all other formats), generation, and confidence: that of the event which led
    to the detection, where napari can colour by it, so what has no bound or no history gets the largest finite value.
    """
    segment = number_segments(lineage)
    order = np.lexsort((lineage.frame, segment))
    data = np.column_stack([segment, lineage.frame, lineage.position])[order]
    row = np.searchsorted(lineage.tracks.id, lineage.track)
    columns = (
        lineage.label,
        lineage.track,
        lineage.generations[row],
        _confidence(lineage),
    )
    properties = {
        name: column[order] for name, column in zip(PROPERTIES, columns, strict=True)
    }
    return data, properties, link_segments(lineage, segment)


def _confidence(lineage: Lineage) -> Array:
    """(n,) of the event that led to each node, finite."""
    confidence = np.full(len(lineage.frame), np.inf)
    event, side = np.nonzero(lineage.targets != NO_NODE)
    confidence[lineage.targets[event, side]] = lineage.confidence[event]
    finite = np.isfinite(confidence)
    return np.where(finite, confidence, confidence[finite].max(initial=0))


def napari_graph_path(path: str | Path) -> Path:
    """The file of the graph, beside that of the tracks."""
    return Path(path).with_suffix(".json")


def write_napari(path: str | Path, lineage: Lineage) -> None:
    """Write a table (track_id, t, z, y, x and the properties), and beside it the graph as JSON: {track: [parents]}."""
    data, properties, graph = make_napari_tracks(lineage)
    numbers = data[:, :2].astype(np.int64).T
    columns = [*numbers, *data[:, 2:].T, *properties.values()]
    write_bytes(
        napari_graph_path(path), json.dumps(graph, separators=(",", ":")).encode()
    )
    header = ["track_id", "t", *AXES[-lineage.position.shape[1] :], *properties]
    write_delimited(path, header, len(data), partial(slice_columns, columns))


def _property(table: Table, name: str, faults: Faults) -> NDArray[Any]:
    """(n,) labels and the like as integers, exactly; the confidence as a float."""
    return (
        table.parse_numbers(name, faults)
        if name == "confidence"
        else table.parse_integers(name, faults, least=0)
    )


def read_napari(path: str | Path) -> NapariTracks:
    """What `write_napari` wrote, ready for a tracks layer."""
    required = ("track_id", "t", "y", "x")
    table = read_delimited(
        path, dict.fromkeys((*required, "z", *PROPERTIES), ()), required
    )
    faults = Faults(table.where)
    names = [name for name in ("track_id", "t", *AXES) if name in table]
    data = np.column_stack([table.parse_numbers(name, faults) for name in names])
    table.add_faults(
        faults,
        np.abs(data[:, 0]) > MAX_EXACT,
        "track_id",
        f"at most {MAX_EXACT}, for napari has it as a float",
    )
    properties = {
        name: _property(table, name, faults) for name in PROPERTIES if name in table
    }
    faults.refuse()
    try:
        graph = json.loads(read_bytes(napari_graph_path(path)))
        return (
            data,
            properties,
            {
                int(child): [int(parent) for parent in parents]
                for child, parents in graph.items()
            },
        )
    except (StoreError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{napari_graph_path(path)}: is no graph of tracks, {{track: [parents]}} ({error})"
        ) from error
