"""Lineages and frames as layers of napari, and back; napari is not imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.frames import Frames
from clew.tracking.io.napari import NapariTracks, make_napari_tracks
from clew.tracking.lineage.graph import events_of_links
from clew.tracking.lineage.lineage import Lineage

LayerData = tuple[Any, dict[str, Any], str]
"""Data, arguments and kind of a layer, as plugins of napari pass them."""
MAX_BYTES = 2**30
"""Frames beyond are read when they are shown; such masks cannot be painted."""
EVENT_NAMES = {int(event): str(event) for event in Event}


def make_tracks_layer(tracks: NapariTracks, name: str) -> LayerData:
    """Return a Tracks layer; its metadata have the names of the event codes."""
    data, properties, graph = tracks
    arguments = {
        "name": name,
        "properties": properties,
        "graph": graph,
        "metadata": {"events": EVENT_NAMES},
    }
    return data, arguments, "tracks"


def make_lineage_layer(lineage: Lineage, name: str) -> LayerData:
    """Return a lineage as a Tracks layer."""
    return make_tracks_layer(make_napari_tracks(lineage), name)


def make_labels_layer(
    frames: Frames, spacing: Sequence[float] | None, name: str
) -> LayerData:
    """Return label images as a Labels layer.

    Parameters
    ----------
    frames : Frames
    spacing : sequence of float or None
        Size of a pixel along (z,) y, x; that of the frames if None, else 1.
    name : str
    """
    sizes = spacing or frames.spacing or (1.0,) * len(frames.shape)
    return stack_frames(frames), {"name": name, "scale": (1.0, *sizes)}, "labels"


def stack_frames(frames: Frames) -> Any:
    """Return all frames as one array; a Dask array if they are large."""
    size = len(frames) * int(np.prod(frames.shape)) * frames.dtype.itemsize
    if size <= MAX_BYTES:
        return np.stack([frames[t] for t in range(len(frames))])
    import dask
    import dask.array

    read = dask.delayed(frames.__getitem__)
    parts = [
        dask.array.from_delayed(read(t), frames.shape, frames.dtype)
        for t in range(len(frames))
    ]
    return dask.array.stack(parts)


def read_lineage_layer(
    data: ArrayLike,
    properties: Mapping[str, ArrayLike],
    graph: Mapping[int, int | Sequence[int]],
    labels: NDArray[Any] | None = None,
    n_frames: int | None = None,
) -> Lineage:
    """Return the lineage of a Tracks layer.

    Parameters
    ----------
    data : array-like of shape (n, 2 + ndim)
        Track id, frame and position of each cell.
    properties : mapping
        "label" has the labels of the cells; without it they are numbered.
        "confidence" and "event" are used if present.
    graph : mapping
        Parents of track ids.
    labels : ndarray of shape (t, …), optional
        Label images; "label" or else "track" must name their cells.
    n_frames : int, optional
        Of the movie; by default those of the label images, or up to the last cell.
    """
    table = np.asarray(data, dtype=float)
    if table.ndim != 2 or table.shape[1] not in (4, 5):
        raise InputError(
            f"the tracks have shape {table.shape}; expected rows of a track id, a "
            "frame and a position"
        )
    segment, frame = table[:, :2].astype(np.int64).T
    label = _find_labels(frame, properties, labels)
    order = np.lexsort((label, frame))
    segment = segment[order]
    frame = frame[order]
    label = label[order]
    source, target = _link_cells(segment, frame, graph)

    code = np.asarray(properties.get("event", np.full(len(table), Event.MOVE)))[order]
    if n_frames is None:
        last = int(frame.max(initial=-1))
        n_frames = last + 1 if labels is None else len(labels)
    events, _, _ = events_of_links(
        frame,
        label,
        source,
        target,
        split=code[target] == Event.SPLIT,
        frames=(0, n_frames - 1),
        where="the Tracks layer",
    )
    position: Array = table[order, 2:]
    confidence = np.full(len(events), np.inf)
    lineage = Lineage(n_frames, frame, label, position, events, confidence)
    if "confidence" in properties:
        of_cells = np.asarray(properties["confidence"], dtype=float)[order]
        rows = np.flatnonzero(lineage.targets[:, 0] >= 0)
        confidence[rows] = of_cells[lineage.targets[rows, 0]]
    return lineage


def _find_labels(
    frame: NDArray[np.int64],
    properties: Mapping[str, ArrayLike],
    labels: NDArray[Any] | None,
) -> NDArray[np.int64]:
    """Return (n,) the labels of cells; those of the label images if there are any."""
    columns = {
        name: np.asarray(properties[name], dtype=np.int64)
        for name in ("label", "track")
        if name in properties
    }
    if labels is None:
        if "label" in columns:
            return columns["label"]
        return _number_cells(frame)
    present = [np.setdiff1d(np.unique(image), [0]) for image in labels]
    for column in columns.values():
        cells = [np.sort(column[frame == t]) for t in range(len(present))]
        pairs = zip(cells, present, strict=True)
        if frame.max(initial=0) < len(present) and all(
            np.array_equal(mine, theirs) for mine, theirs in pairs
        ):
            return column
    raise InputError(
        "the cells of the Tracks layer are not those of the Labels layer; expected the "
        'property "label" or "track" to have the labels of each frame'
    )


def _number_cells(frame: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n,) numbers from 1 within each frame."""
    order = np.argsort(frame, kind="stable")
    ordered = frame[order]
    first = np.searchsorted(ordered, ordered)
    number = np.empty(len(frame), dtype=np.int64)
    number[order] = np.arange(len(frame)) - first + 1
    return number


def _link_cells(
    segment: NDArray[np.int64],
    frame: NDArray[np.int64],
    graph: Mapping[int, int | Sequence[int]],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the links within tracks, and from parents to children."""
    order = np.lexsort((frame, segment))
    same = segment[order][1:] == segment[order][:-1]
    sources = [order[:-1][same]]
    targets = [order[1:][same]]
    ids, first = np.unique(segment[order], return_index=True)
    last = np.append(first[1:], len(order)) - 1
    row = {track: number for number, track in enumerate(ids.tolist())}
    for child, parents in graph.items():
        for parent in np.atleast_1d(np.asarray(parents, dtype=np.int64)).tolist():
            if child not in row or parent not in row:
                raise InputError(
                    f"the graph of the tracks leads from {parent} to {child}; there "
                    "are no such tracks"
                )
            sources.append(order[[last[row[parent]]]])
            targets.append(order[[first[row[child]]]])
    return np.concatenate(sources), np.concatenate(targets)
