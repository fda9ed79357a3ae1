"""Lineages and annotations in GEFF, the exchange format of tracking graphs.

Nodes are detections with the properties t (frame), z, y, x (physical position),
seg_id (label), track_id (as in all formats of clew), tracklet_id and lineage_id (as
GEFF defines them). Edges lead forward in time, over a gap by two frames, and have an
event (its number in the list of events in the metadata), a confidence, which may be
infinite, and a probability of being right. Events without an edge are properties of
nodes: appear_confidence and disappear_confidence are missing where a detection did not
appear or disappear. Detections that are no cells are marked as false.

A graph of annotations has the annotated cells only, with infinite confidences. The
metadata say that it is partial, and list the events that did not happen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import DetectionTable
from clew.tracking.events import (
    BY_NAME,
    END_OF_FALSE,
    NONE,
    Annotations,
    Event,
    EventTable,
    Labels,
)
from clew.tracking.io.result_folder import (
    finish_interrupted_write,
    refuse_interrupted_write,
    stage_files,
    warn_if_file_changed,
)
from clew.tracking.io.result_tables import AXES, FALSE
from clew.tracking.io.segments import label_components, number_segments
from clew.tracking.io.zarr import find_missing_chunk, list_arrays, read_attributes
from clew.tracking.lineage.graph import events_of_links
from clew.tracking.lineage.lineage import RECOVERED, Lineage, TrackedMovie
from clew.tracking.lineage.tracks import find_false_detections
from clew.tracking.measurement.regions import measure_frame
from clew.tracking.movie import Movie

LABEL_NAMES = ("seg_id", "label", "segmentation_id", "mask_id")
TIME_NAMES = ("t", "frame", "time")
EVENT = "event"
CONFIDENCE = "confidence"
PROBABILITY = "probability"
COMPLETE = "all_chunks_stored"
"""Metadata of clew: every chunk was stored, so a missing one was lost."""
MAX_EMPTY_BYTES = 2**30
"""Bytes of an array that may be larger in memory than its files suggest."""
MAX_RATIO = 1000
"""Highest compression of a larger array."""
NODE_CONFIDENCE = {
    Event.APPEAR: "appear_confidence",
    Event.DISAPPEAR: "disappear_confidence",
}

Properties = Mapping[str, Mapping[str, Any]]
"""Values and missing values of properties by name, as the geff library has them."""


@dataclass(frozen=True)
class GeffGraph:
    """The content of a GEFF.

    Attributes
    ----------
    n_frames : int
    frame, label : ndarray of shape (n_nodes,)
        Nodes are sorted by frame, then label.
    position : ndarray of shape (n_nodes, ndim)
    events : EventTable of length n_events
    confidence : ndarray of shape (n_events,)
        NaN where the file has none.
    denied : EventTable
        Events that did not happen, of a graph of annotations.
    """

    n_frames: int
    frame: NDArray[np.int64]
    label: Labels
    position: Array
    events: EventTable
    confidence: Array
    denied: EventTable


def is_geff(path: str | Path) -> bool:
    """Whether a folder is a GEFF; reads JSON only and never opens it as Zarr."""
    return "geff" in read_attributes(Path(path))


def is_own_geff(path: str | Path) -> bool:
    """Whether clew wrote a GEFF, so that its labels are those of the movie."""
    fields = read_attributes(Path(path)).get("geff")
    extra = fields.get("extra") if isinstance(fields, dict) else None
    return isinstance(extra, dict) and "clew" in extra


def write_geff(
    path: str | Path,
    lineage: Lineage | TrackedMovie,
    movie: Movie | DetectionTable | None = None,
    masks: str | None = None,
) -> None:
    """Write a lineage as a whole.

    Parameters
    ----------
    path : str or Path
        Folder to write. A GEFF that exists is replaced; anything else is refused.
    lineage : Lineage or TrackedMovie
    movie : Movie or DetectionTable, optional
        Adds its name and spacing to the metadata.
    masks : str, optional
        Path of label images with the ids of tracks, relative to the graph.
    """
    path = Path(path)
    folder = path.absolute().parent

    def owns(name: str) -> bool:
        return name == path.name

    finish_interrupted_write(folder, path.name, owns)
    if path.exists() and not is_geff(path):
        raise StoreError(f"{path} exists and is no GEFF; choose another name")
    whole = lineage if isinstance(lineage, Lineage) else lineage.lineage()
    with stage_files(folder, path.name, owns) as stage:
        _write_lineage(stage / path.name, whole, movie, masks)


def _write_lineage(
    path: Path,
    lineage: Lineage,
    movie: Movie | DetectionTable | None,
    masks: str | None,
) -> None:
    """Write the nodes of a lineage in their order, and its edges by frame."""
    n = len(lineage.frame)
    events = lineage.events
    source, target, row = lineage.edges
    is_false = find_false_detections(lineage.tracks)
    recovered = lineage.columns.get(RECOVERED, np.zeros(n))
    nodes = {
        "t": lineage.frame,
        **_name_axes(lineage.position),
        "seg_id": lineage.label,
        "track_id": lineage.track,
        "tracklet_id": number_segments(lineage),
        "lineage_id": label_components(n, source, target) + 1,
        RECOVERED: recovered.astype(bool),
        FALSE: is_false[np.searchsorted(lineage.tracks.id, lineage.track)],
    }
    lone = {}
    for event, cells in (
        (Event.APPEAR, lineage.targets),
        (Event.DISAPPEAR, lineage.sources),
    ):
        is_kind = events.event == event
        lone[event] = cells[is_kind, 0], lineage.confidence[is_kind]
    extra = {
        "n_frames": lineage.n_frames,
        "events": [str(event) for event in Event],
        COMPLETE: True,
    }
    if movie is not None:
        extra["movie"] = movie.name
    if movie is not None and movie.spacing is not None:
        extra["spacing"] = list(movie.spacing)
    order = np.argsort(events.frame[row], kind="stable")
    row = row[order]
    edges: dict[str, NDArray[Any]] = {
        EVENT: events.event[row],
        CONFIDENCE: lineage.confidence[row],
    }
    if lineage.probability is not None and len(row):
        edges[PROBABILITY] = lineage.probability[row]
    related = None
    if masks is not None:
        related = [
            geff_spec.RelatedObject(type="labels", path=masks, node_prop="track_id")
        ]
    ends = np.column_stack([source[order], target[order]])
    tracks = {"tracklet": "tracklet_id", "lineage": "lineage_id"}
    _write_graph(
        path,
        nodes,
        lone,
        ends,
        edges,
        extra,
        track_node_props=tracks,
        related_objects=related,
    )


def write_annotation_geff(path: Path, annotations: Annotations, movie: Movie) -> None:
    """Write annotations: what happened as a graph, what did not in its metadata.

    Parameters
    ----------
    path : Path
        Folder to write.
    annotations : Annotations
        Of this movie.
    movie : Movie
        Frames of an excerpt are written with their numbers in the whole movie.
    """
    events = annotations.events[annotations.happened]
    cells = np.hstack([events.sources, events.targets])  # (n, 4)
    ends = events.end_frames()
    frames = np.stack([events.frame, events.frame, ends, ends], axis=1)
    is_cell = cells != NONE
    pairs = np.column_stack([frames[is_cell], cells[is_cell]])
    nodes, inverse = np.unique(pairs, axis=0, return_inverse=True)
    node = np.full(cells.shape, -1)
    node[is_cell] = inverse.ravel()
    sources = node[:, :2]
    targets = node[:, 2:]
    is_link = (sources[:, :, None] >= 0) & (targets[:, None, :] >= 0)
    row, first, second = np.nonzero(is_link)
    links = np.column_stack([sources[row, first], targets[row, second]])

    is_false = np.zeros(len(nodes), dtype=bool)
    is_false[node[events.is_false].max(axis=1)] = True
    columns = {
        "t": nodes[:, 0] + movie.first,
        "seg_id": nodes[:, 1],
        **_name_axes(_locate_nodes(movie, nodes)),
        FALSE: is_false,
    }
    events = events.to_lineage_kinds()
    certain = np.array(np.inf)
    lone = {
        event: (node[events.event == event].max(axis=1), certain)
        for event in NODE_CONFIDENCE
    }
    edges = {EVENT: events.event[row], CONFIDENCE: np.full(len(row), np.inf)}
    extra = {
        "n_frames": movie.first + movie.n_frames,
        "partial": True,
        "denied": _list_denied(annotations, movie.first),
        "spacing": list(movie.spacing),
        COMPLETE: True,
    }
    _write_graph(path, columns, lone, links, edges, extra)


def _locate_nodes(movie: Movie, nodes: NDArray[np.int64]) -> Array:
    """(n, ndim) physical positions of nodes (n, 2), rows of frame and label."""
    position = np.zeros((len(nodes), movie.ndim))
    for t in np.unique(nodes[:, 0]).tolist():
        detections = measure_frame(t, movie.label(t), None, movie.spacing)
        rows = nodes[:, 0] == t
        position[rows] = detections.position[detections.rows(nodes[rows, 1])]
    return position


def _list_denied(annotations: Annotations, first: int) -> list[dict[str, Any]]:
    """Annotations of what did not happen, as JSON."""
    denied = annotations.events[~annotations.happened]
    return [
        {
            "frame": frame + first,
            "event": str(event),
            "sources": sources,
            "targets": targets,
        }
        for frame, event, sources, targets in denied
    ]


def _name_axes(position: Array) -> dict[str, Array]:
    """Columns of positions (n, ndim) by their axes."""
    return dict(zip(AXES[-position.shape[1] :], position.T, strict=True))


def _write_graph(
    path: Path,
    nodes: Mapping[str, NDArray[Any]],
    lone: Mapping[Event, tuple[Indices, Array]],
    ends: Indices,
    edges: Mapping[str, NDArray[Any]],
    extra: Mapping[str, Any],
    **metadata: Any,
) -> None:
    """Write a graph with every chunk, so that a missing chunk was lost.

    Parameters
    ----------
    path : Path
    nodes, edges : mapping of ndarray
        Columns of nodes (n,) and of edges (m,).
    lone : mapping
        Nodes of the events without an edge, and their confidence.
    ends : ndarray of shape (m, 2)
        Nodes of each edge.
    extra : mapping
        Metadata of clew.
    **metadata
        Further metadata of the geff library, which adds those of the properties.
    """
    n = len(nodes["t"])
    properties = _make_properties(nodes)
    for event, (rows, confidence) in lone.items():
        values = np.zeros(n)
        values[rows] = confidence
        missing = np.ones(n, dtype=bool)
        missing[rows] = False
        properties[NODE_CONFIDENCE[event]] = {"values": values, "missing": missing}
    axes = [geff_spec.Axis(name="t", type="time", unit="frame")]
    axes += [  # positions are physical
        geff_spec.Axis(name=axis, type="space", scale=1.0)
        for axis in AXES
        if axis in nodes
    ]
    with zarr.config.set({"array.write_empty_chunks": True}):
        geff.core_io.write_arrays(
            path,
            np.arange(n, dtype=np.uint64),
            properties,
            ends.astype(np.uint64).reshape(-1, 2),
            _make_properties(edges),
            geff.GeffMetadata(
                directed=True,
                axes=axes,
                node_props_metadata={},
                edge_props_metadata={},
                extra={"clew": dict(extra)},
                **metadata,
            ),
        )


def _make_properties(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Wrap columns without missing values for the geff library."""
    return {
        name: {"values": np.ascontiguousarray(column), "missing": None}
        for name, column in columns.items()
    }


def read_geff(path: str | Path) -> GeffGraph:
    """Read the nodes of a GEFF, and the events that its edges imply.

    Nodes need a time in frames and a label (``seg_id`` or ``label``). Two edges out
    of a node are a division unless their event is "split". In a partial graph, as
    clew writes annotations, a node without an edge neither appears nor disappears
    unless its properties say so.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    graph : GeffGraph
    """
    path = Path(path)
    return _parse_graph(str(path), load_graph(path))


def load_graph(path: Path) -> Any:
    """Load a GEFF, as the geff library has it, and refuse one that is damaged."""
    refuse_interrupted_write(path.absolute().parent, path.name)
    warn_if_file_changed(path)
    if not is_geff(path):
        raise InputError(
            f"{path} is no GEFF; expected a Zarr folder with the attribute geff"
        )
    try:
        arrays = list(list_arrays(path))
        _check_sizes(path, arrays)
        incomplete = [
            name
            for name, array, folder in arrays
            if find_missing_chunk(array, folder) is not None
        ]
        declared = geff.GeffMetadata.read(
            path
        )  # what was loaded is in graph["metadata"]
        validation = geff.validate.data.ValidationConfig(graph=True)
        graph = geff.core_io.read_to_memory(path, data_validation=validation)
    except InputError:
        raise
    except Exception as error:  # zarr and pydantic raise nearly anything
        raise InputError(
            f"{path} is damaged or no valid GEFF ({type(error).__name__}: {error})"
        ) from error
    _check_properties(path, declared.node_props_metadata, graph["node_props"])
    _check_properties(path, declared.edge_props_metadata, graph["edge_props"])
    _check_complete(path, incomplete, declared)
    return graph


def _check_sizes(path: Path, arrays: list[tuple[str, Any, Path]]) -> None:
    """Refuse arrays that would take far more memory than their files and the graph."""
    lengths = {
        name.split("/")[0]: array.shape[0] if array.ndim else 0
        for name, array, _ in arrays
        if name.endswith("/ids")
    }
    for name, array, folder in arrays:
        is_column = array.ndim == 1 and array.shape[0] == lengths.get(
            name.split("/")[0]
        )
        if array.nbytes <= MAX_EMPTY_BYTES or (is_column and not name.endswith("/ids")):
            continue
        stored = sum(file.stat().st_size for file in folder.rglob("*"))
        if array.nbytes > MAX_RATIO * stored:
            raise InputError(
                f"{path}: {name} declares {array.nbytes:,} bytes, but its files have "
                f"{stored:,}; it is damaged or made to exhaust memory"
            )


def _check_properties(path: Path, declared: Any, stored: Properties) -> None:
    """Refuse a graph that lacks properties that its metadata declare."""
    lost = sorted(set(declared or {}) - set(stored))
    if lost:
        raise InputError(
            f"{path} is damaged: the property {lost[0]} is missing; write it again"
        )


def _check_complete(path: Path, incomplete: list[str], declared: Any) -> None:
    """Refuse a graph of clew with missing chunks; warn if others lack positions.

    Zarr leaves out chunks of zeros by default, as of z in a movie without depth.
    A cell at 0 in the plane is rare, a whole chunk of them is damage. Ids, times and
    labels of zeros make no valid graph.
    """
    if not incomplete:
        return
    if (declared.extra or {}).get("clew", {}).get(COMPLETE):
        raise InputError(
            f"{path} is damaged: a chunk of {incomplete[0]} is missing; write it again"
        )
    space = [axis.name for axis in declared.axes or () if axis.type == "space"]
    lost = [name for name in space[-2:] if f"nodes/props/{name}/values" in incomplete]
    if lost:
        warnings.warn(
            f"{path}: chunks of {' and '.join(lost)} are not stored, so cells are at 0 "
            "there; if they should not be, write it again",
            DataWarning,
            stacklevel=4,
        )


def _parse_graph(where: str, graph: Any) -> GeffGraph:
    """Derive the events of a graph in memory."""
    metadata = graph["metadata"]
    nodes = graph["node_props"]
    edges = graph["edge_props"]
    axes = metadata.axes or []
    times = [axis.name for axis in axes if axis.type == "time"]
    frame = _parse_integers(
        where, nodes, [*times, *TIME_NAMES], "a time in frames", least=0
    )
    label = _parse_integers(
        where, nodes, LABEL_NAMES, "the label of each cell", least=1
    )
    order = np.lexsort((label, frame))
    frame = frame[order]
    label = label[order]
    _check_duplicates(where, frame, label)

    source, target = parse_links(graph, order, frame).T
    clew = metadata.extra.get("clew", {})
    first = int(frame[0]) if len(frame) else 0
    last = int(frame[-1]) if len(frame) else -1
    if "n_frames" in clew:
        first = 0
        last = int(clew["n_frames"]) - 1
    is_split = np.zeros(len(source), dtype=bool)
    if EVENT in edges:
        kinds = np.asarray(edges[EVENT]["values"])
        # older versions of clew wrote words
        split = Event.SPLIT if kinds.dtype.kind in "iu" else str(Event.SPLIT)
        is_split = kinds == split
    events, link, node = events_of_links(
        frame,
        label,
        source,
        target,
        split=is_split,
        frames=(first, last),
        where=where,
    )
    confidence = np.full(len(events), np.nan)
    is_stated = link >= 0
    if CONFIDENCE in edges:
        confidence[is_stated] = edges[CONFIDENCE]["values"][link[is_stated]]
    for event, name in NODE_CONFIDENCE.items():
        rows = np.flatnonzero(events.event == event)
        if name not in nodes:
            continue
        at = order[node[rows]]
        confidence[rows] = nodes[name]["values"][at]
        missing = nodes[name]["missing"]
        is_stated[rows] = True if missing is None else ~np.asarray(missing, bool)[at]
    denied = EventTable.empty()
    if clew.get("partial"):
        events = _restore_false(events, node, nodes, order)[is_stated]
        confidence = confidence[is_stated]
        denied = _parse_denied(where, clew.get("denied", []))
    return GeffGraph(
        n_frames=last + 1,
        frame=frame,
        label=label,
        position=_parse_positions(axes, nodes, order),
        events=events,
        confidence=confidence,
        denied=denied,
    )


def _restore_false(
    events: EventTable,
    node: NDArray[np.intp],
    nodes: Properties,
    order: NDArray[np.intp],
) -> EventTable:
    """Restore the events of nodes that were annotated as no cells."""
    kind = events.event.copy()
    is_false = np.append(parse_marks(nodes, order), False)[node]
    for false, event in END_OF_FALSE.items():
        kind[is_false & (kind == event)] = false
    return replace(events, event=kind)


def parse_marks(nodes: Properties, order: NDArray[np.intp]) -> Mask:
    """(n,) nodes that are marked as no cell."""
    marks = np.zeros(len(order), dtype=bool)
    if FALSE in nodes:
        values = np.asarray(nodes[FALSE]["values"])
        missing = nodes[FALSE]["missing"]
        if values.ndim == 1 and values.dtype.kind in "biu":
            marks = values[order] != 0
            marks &= True if missing is None else ~np.asarray(missing, bool)[order]
    return marks


def _parse_positions(axes: Any, nodes: Properties, order: NDArray[np.intp]) -> Array:
    """(n, ndim) positions in sorted order; (n, 0) if the graph has none."""
    names = [axis.name for axis in axes if axis.type == "space"]
    names = names or [axis for axis in AXES if axis in nodes]
    if not names:
        return np.zeros((len(order), 0))
    position = np.column_stack([nodes[name]["values"] for name in names])
    return position[order].astype(np.float64)


def parse_links(
    graph: Any, order: NDArray[np.intp], frame: NDArray[np.int64]
) -> NDArray[np.intp]:
    """(k, 2) rows of the sorted nodes at both ends of each edge.

    Edges without a direction lead forward in time.
    """
    ids = graph["node_ids"][order]
    by_id = np.argsort(ids)
    rows = by_id[np.searchsorted(ids, graph["edge_ids"], sorter=by_id)].reshape(-1, 2)
    if not graph["metadata"].directed:
        is_backward = frame[rows[:, 0]] > frame[rows[:, 1]]
        rows[is_backward] = rows[is_backward, ::-1]
    return np.asarray(rows)


def _parse_denied(where: str, entries: Any) -> EventTable:
    """Parse the events that did not happen."""
    try:
        rows = [
            (
                int(entry["frame"]),
                BY_NAME[entry["event"]],
                tuple(entry["sources"]),
                tuple(entry["targets"]),
            )
            for entry in entries
        ]
        return EventTable.of(rows)
    except (TypeError, KeyError, ValueError, InputError) as error:
        raise InputError(
            f"{where}: the denied events in its metadata cannot be read "
            f"({type(error).__name__}: {error}); each needs a frame, an event, sources "
            "and targets"
        ) from error


def _parse_integers(
    where: str, nodes: Properties, names: Iterable[str], what: str, least: int
) -> NDArray[np.int64]:
    """(n,) the first of these properties that exists, as integers."""
    name = next((name for name in names if name in nodes), None)
    if name is None:
        expected = " or ".join(dict.fromkeys(names))
        raise InputError(f"{where}: the nodes have no property {expected}, {what}")
    values = nodes[name]["values"]
    missing = nodes[name]["missing"]
    is_valid = values.ndim == 1 and values.dtype.kind in "iuf"
    if is_valid and missing is not None:
        is_valid = not missing.any()
    if is_valid:
        is_valid = np.all((values == np.floor(values)) & (values >= least))
    if not is_valid:
        raise InputError(
            f"{where}: the node property {name} must be {what}: an integer of "
            f"{least} or more at each node"
        )
    return np.asarray(values.astype(np.int64))


def _check_duplicates(where: str, frame: NDArray[np.int64], label: Labels) -> None:
    """Refuse a label that two nodes of a frame share; both columns are sorted."""
    same = np.flatnonzero((np.diff(frame) == 0) & (np.diff(label) == 0))
    if len(same):
        row = same[0]
        raise InputError(
            f"{where}: two nodes have label {label[row]} in frame {frame[row]}"
        )
