"""Lineages in GEFF, the exchange format of tracking graphs, by the `geff` library.

Nodes are detections: t (frame), z, y, x (physical), seg_id (the label), track_id (as in all of clew's formats),
tracklet_id and lineage_id (as GEFF defines them). Edges lead forward in time, over a gap by two frames, and carry event
("move", "divide", "split", "merge", "gap") and confidence, which can be infinite. What has no edge is told by nodes:
appear_confidence and disappear_confidence are missing where a detection did not appear or disappear.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geff
import geff.core_io
import geff.validate.data
import geff_spec  # type: ignore[import-untyped]
import numpy as np
import zarr
from numpy.typing import NDArray

from clew.errors import DataWarning, InputError, StoreError
from clew.learning.task import Array, Mask
from clew.tracking.blocks.parts import TrackedMovie, as_parts
from clew.tracking.events import BY_NAME, Event, EventTable, Labels
from clew.tracking.io.graph_columns import EdgeColumns, NodeColumns, graph_columns
from clew.tracking.io.manifest import warn_if_file_changed
from clew.tracking.io.staging import finish_interrupted_write, stage_files
from clew.tracking.io.tracks_csv import AXES
from clew.tracking.io.zarr_chunks import find_missing_chunk, list_arrays
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.links import events_of_links
from clew.tracking.lineage.track_faults import SHOWN
from clew.tracking.movie import Movie
from clew.utils.storage import read_bytes

LABEL_NAMES = ("seg_id", "label", "segmentation_id", "mask_id")
TIME_NAMES = ("t", "frame", "time")
EVENT, CONFIDENCE = "event", "confidence"
COMPLETE = "all_chunks_stored"
"""In clew's own part of the metadata: a chunk that is not there got lost."""
NODE_CONFIDENCE = {
    Event.APPEAR: "appear_confidence",
    Event.DISAPPEAR: "disappear_confidence",
}


@dataclass(frozen=True)
class GeffGraph:
    """What a GEFF says of a movie."""

    n_frames: int
    frame: NDArray[np.int64]
    """(n,) of each node; nodes are sorted by frame, then label."""
    label: Labels
    """(n,)"""
    position: Array
    """(n, ndim) as in the file."""
    events: EventTable
    """(m,)"""
    confidence: Array
    """(m,) NaN where the file has none."""
    denied: EventTable
    """(k,) what a partial graph, of annotations, says did not happen."""


def is_geff(path: str | Path) -> bool:
    """Whether a folder is a GEFF. Reads JSON alone: to open a folder as Zarr may write into it."""
    for name, within in ((".zattrs", ()), ("zarr.json", ("attributes",))):
        try:
            content = json.loads(read_bytes(Path(path) / name))
            for key in within:
                content = content[key]
            if "geff" in content:
                return True
        except (StoreError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return False


def write_geff(
    path: str | Path, lineage: Lineage | TrackedMovie, movie: Movie | None = None
) -> None:
    """Write a lineage, all or nothing; a GEFF that is there already is replaced, nothing else is.

    A movie in parts is written without having the whole of it in memory.
    """
    path = Path(path)
    finish_interrupted_write(path.absolute().parent, path.name)
    if path.exists() and not is_geff(path):
        raise StoreError(
            f"{path}: is there already and is no GEFF; choose another name or take it away"
        )
    tracked = as_parts(lineage)
    with (
        stage_files(
            path.absolute().parent, path.name, lambda name: name == path.name
        ) as stage,
        graph_columns(stage, tracked) as (nodes, edges),
    ):
        _write(stage / path.name, nodes, edges, tracked.n_frames, movie)


def _write(
    path: Path,
    nodes: NodeColumns,
    edges: EdgeColumns,
    n_frames: int,
    movie: Movie | None,
) -> None:
    axes = AXES[-nodes.position.shape[1] :]
    write_arrays(
        path,
        nodes.id,
        {
            "t": make_property(nodes.frame),
            **{
                axis: make_property(column)
                for axis, column in zip(axes, nodes.position.T, strict=True)
            },
            "seg_id": make_property(nodes.label),
            "track_id": make_property(nodes.track),
            "tracklet_id": make_property(nodes.segment),
            "lineage_id": make_property(nodes.family),
            **{
                name: make_property(nodes.alone[event], nodes.accompanied[event])
                for event, name in NODE_CONFIDENCE.items()
            },
        },
        edges.ends,
        {
            EVENT: make_property(edges.event),
            CONFIDENCE: make_property(edges.confidence),
        },
        _metadata(n_frames, axes, movie),
    )


def write_arrays(path: Path, *arrays: Any) -> None:
    """As the library writes them, but with every chunk, so that one that is missing later was lost."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        geff.core_io.write_arrays(path, *arrays)


def make_property(values: NDArray[Any], missing: Mask | None = None) -> dict[str, Any]:
    """A column as the library takes it; `missing` marks where there is no value."""
    return {"values": np.ascontiguousarray(values), "missing": missing}


def _metadata(
    n_frames: int, axes: Iterable[str], movie: Movie | None
) -> geff.GeffMetadata:
    """What is to be known of the graph as a whole; the library adds the properties."""
    space = [geff_spec.Axis(name=axis, type="space") for axis in axes]
    events = [str(event) for event in Event]
    extra: dict[str, Any] = {"n_frames": n_frames, "events": events, COMPLETE: True}
    if movie is not None:
        extra |= {"movie": movie.name, "spacing": list(movie.spacing)}
    return geff.GeffMetadata(
        directed=True,
        axes=[geff_spec.Axis(name="t", type="time", unit="frame"), *space],
        node_props_metadata={},
        edge_props_metadata={},
        track_node_props={"tracklet": "tracklet_id", "lineage": "lineage_id"},
        extra={"clew": extra},
    )


def read_geff(path: str | Path) -> GeffGraph:
    """The nodes of a GEFF and the events that follow from its edges; see `events_of_links`.

    Nodes need a time in frames and a property label or seg_id; without further words, the graph is the lineage of
    its first to its last frame, and two edges out of a node are a division. A graph that says it is partial, as clew's
    exports of annotations do, leaves open what happens where a node has no edge, unless the node itself tells.
    """
    finish_interrupted_write(Path(path).absolute().parent, Path(path).name)
    warn_if_file_changed(path)
    if not is_geff(path):
        raise InputError(
            f"{path}: is no GEFF: a folder whose Zarr attributes have the key geff"
        )
    try:
        lacking = [
            name
            for name, array, folder in list_arrays(Path(path))
            if find_missing_chunk(array, folder) is not None
        ]
        graph = geff.core_io.read_to_memory(
            Path(path), data_validation=geff.validate.data.ValidationConfig(graph=True)
        )
    except Exception as error:  # damaged chunks and metadata make zarr and pydantic raise nearly anything
        raise InputError(
            f"{path}: is damaged or no valid GEFF ({type(error).__name__}: {error})"
        ) from error
    _judge_missing(str(path), lacking, graph["metadata"].extra)
    return _parse(str(path), graph)


def _judge_missing(where: str, lacking: list[str], extra: Any) -> None:
    """Chunks that are not stored read as zeros. Clew stores all of them; others may leave out those of zeros alone."""
    if not lacking:
        return
    if (extra or {}).get("clew", {}).get(COMPLETE):
        raise InputError(
            f"{where}: is damaged: a chunk of {lacking[0]} is missing; write it again"
        )
    warnings.warn(
        f"{where}: chunks of {', '.join(lacking[:SHOWN])} are not stored, and are read as zeros",
        DataWarning,
        stacklevel=3,
    )


def _parse(where: str, graph: Any) -> GeffGraph:
    meta, nodes, edges = graph["metadata"], graph["node_props"], graph["edge_props"]
    axes = meta.axes or []
    times = [axis.name for axis in axes if axis.type == "time"]
    frame = _integers(where, nodes, [*times, *TIME_NAMES], "a time in frames", least=0)
    label = _integers(where, nodes, LABEL_NAMES, "the label of each cell", least=1)
    space = [axis.name for axis in axes if axis.type == "space"] or [
        axis for axis in AXES if axis in nodes
    ]
    position = np.column_stack(
        [nodes[axis]["values"] for axis in space] or [np.zeros((len(frame), 0))]
    )
    order = np.lexsort((label, frame))
    frame, label, position = (
        frame[order],
        label[order],
        position[order].astype(np.float64),
    )
    _refuse_duplicates(where, frame, label)

    ids = graph["node_ids"][order]
    by_id = np.argsort(ids)
    source, target = (
        by_id[np.searchsorted(ids, graph["edge_ids"], sorter=by_id)].reshape(-1, 2).T
    )
    if not meta.directed:
        backward = frame[source] > frame[target]
        source, target = (
            np.where(backward, target, source),
            np.where(backward, source, target),
        )
    clew = meta.extra.get("clew", {})
    ends = (int(frame[0]), int(frame[-1])) if len(frame) else (0, -1)
    first, last = (0, int(clew["n_frames"]) - 1) if "n_frames" in clew else ends
    names = (
        np.asarray(edges[EVENT]["values"]).astype(str)
        if EVENT in edges
        else np.full(len(source), "")
    )
    events, link, node = events_of_links(
        frame,
        label,
        source,
        target,
        split=names == str(Event.SPLIT),
        frames=(first, last),
        where=where,
    )
    confidence = np.full(len(events), np.nan)
    if CONFIDENCE in edges:
        confidence[link >= 0] = edges[CONFIDENCE]["values"][link[link >= 0]]
    for event, name in NODE_CONFIDENCE.items():
        if name in nodes:
            mine = events.event == event
            confidence[mine] = nodes[name]["values"][order][node[mine]]
    if not clew.get("partial"):
        return GeffGraph(
            last + 1, frame, label, position, events, confidence, EventTable.empty()
        )
    told = link >= 0
    for event, name in NODE_CONFIDENCE.items():
        mine = np.flatnonzero(events.event == event)
        missing = (
            nodes[name]["missing"] if name in nodes else np.ones(len(order), dtype=bool)
        )
        told[mine] = (
            missing is None or ~np.asarray(missing, dtype=bool)[order][node[mine]]
        )
    denied = _denied(where, clew.get("denied", []))
    return GeffGraph(
        last + 1, frame, label, position, events[told], confidence[told], denied
    )


def _denied(where: str, entries: Any) -> EventTable:
    """The events that a partial graph's metadata lists as denied."""
    try:
        return EventTable.of(
            [
                (
                    int(one["frame"]),
                    BY_NAME[one["event"]],
                    tuple(one["sources"]),
                    tuple(one["targets"]),
                )
                for one in entries
            ]
        )
    except (TypeError, KeyError, ValueError, InputError) as error:
        raise InputError(
            f"{where}: the denied events in its metadata cannot be read ({type(error).__name__}: {error}); each has a "
            "frame, an event, sources and targets"
        ) from error


def _integers(
    where: str, nodes: Any, names: Iterable[str], what: str, least: int
) -> NDArray[np.int64]:
    """(n,) the first of some node properties that is there, as integers."""
    name = next((name for name in names if name in nodes), None)
    if name is None:
        raise InputError(
            f"{where}: the nodes have no property {' or '.join(dict.fromkeys(names))}, {what}"
        )
    values, missing = nodes[name]["values"], nodes[name]["missing"]
    numeric = values.ndim == 1 and values.dtype.kind in "iuf"
    if (
        not numeric
        or (missing is not None and missing.any())
        or np.any((values != np.floor(values)) | (values < least))
    ):
        raise InputError(
            f"{where}: the node property {name} must be {what}: an integer from {least} on at each node"
        )
    return np.asarray(values.astype(np.int64))


def _refuse_duplicates(where: str, frame: NDArray[np.int64], label: Labels) -> None:
    """A label stands for one node of a frame; both columns are sorted."""
    same = np.flatnonzero((np.diff(frame) == 0) & (np.diff(label) == 0))
    if len(same):
        raise InputError(
            f"{where}: two nodes have label {label[same[0]]} in frame {frame[same[0]]}"
        )
