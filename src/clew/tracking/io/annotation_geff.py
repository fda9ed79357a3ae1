"""Annotations as a GEFF: a graph of the annotated cells alone.

Nodes and edges are as in `tracking/io/geff.py`: edges carry the event, appear_confidence and disappear_confidence
mark nodes that are annotated to appear or disappear; all confidences are infinite, for a person said so. What was
denied is no part of the graph, and stands in the metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import geff
import geff_spec  # type: ignore[import-untyped]
import numpy as np

from clew.tracking.events import NONE, Annotations, Event
from clew.tracking.io.geff import (
    COMPLETE,
    CONFIDENCE,
    EVENT,
    NODE_CONFIDENCE,
    make_property,
    write_arrays,
)
from clew.tracking.io.tracks_csv import AXES
from clew.tracking.measurement.regions import measure_frame
from clew.tracking.movie import Movie


def write_annotation_geff(path: Path, annotations: Annotations, movie: Movie) -> None:
    """Write what happened as a graph of cells, and what did not as a list beside it.

    The annotations of an excerpt have the numbers of the whole movie in the file.
    """
    events = annotations.events[annotations.happened]
    cells = np.hstack([events.sources, events.targets])  # (n, 4)
    frames = np.stack(
        [events.frame, events.frame, events.end_frames(), events.end_frames()], axis=1
    )
    there = cells != NONE
    nodes, at = np.unique(
        np.column_stack([frames[there], cells[there]]), axis=0, return_inverse=True
    )
    node = np.full(cells.shape, -1)
    node[there] = at.ravel()
    row, side, other = np.nonzero((node[:, :2, None] >= 0) & (node[:, None, 2:] >= 0))
    links = np.column_stack([node[row, side], node[row, 2 + other]]).astype(np.uint64)
    axes = AXES[-movie.ndim :]
    position = _positions(movie, nodes)
    properties = {
        "t": make_property(nodes[:, 0] + movie.first),
        "seg_id": make_property(nodes[:, 1]),
    }
    properties |= {
        axis: make_property(column)
        for axis, column in zip(axes, position.T, strict=True)
    }
    for event, name in NODE_CONFIDENCE.items():
        missing = np.ones(len(nodes), dtype=bool)
        of = events.event == event
        missing[node[of].max(axis=1)] = False  # the only cell that it has
        properties[name] = make_property(np.full(len(nodes), np.inf), missing)
    names = np.array([str(event) for event in Event])
    write_arrays(
        path,
        np.arange(len(nodes), dtype=np.uint64),
        properties,
        links.reshape(-1, 2),
        {
            EVENT: make_property(names[events.event[row]]),
            CONFIDENCE: make_property(np.full(len(row), np.inf)),
        },
        _metadata(annotations, movie, axes),
    )


def _positions(movie: Movie, nodes: Any) -> Any:
    """(n, ndim) physical positions of nodes, (n, 2) rows (frame, label)."""
    position = np.zeros((len(nodes), movie.ndim))
    for t in np.unique(nodes[:, 0]).tolist():
        found = measure_frame(t, movie.label(t), None, movie.spacing)
        mine = nodes[:, 0] == t
        position[mine] = found.position[found.rows(nodes[mine, 1])]
    return position


def _metadata(
    annotations: Annotations, movie: Movie, axes: tuple[str, ...]
) -> geff.GeffMetadata:
    denied = [
        {
            "frame": frame + movie.first,
            "event": str(event),
            "sources": sources,
            "targets": targets,
        }
        for frame, event, sources, targets in annotations.events[~annotations.happened]
    ]
    extra = {
        "n_frames": movie.first + movie.n_frames,
        "partial": True,
        "denied": denied,
        "spacing": list(movie.spacing),
        COMPLETE: True,
    }
    space = [geff_spec.Axis(name=axis, type="space") for axis in axes]
    return geff.GeffMetadata(
        directed=True,
        axes=[geff_spec.Axis(name="t", type="time", unit="frame"), *space],
        node_props_metadata={},
        edge_props_metadata={},
        extra={"clew": extra},
    )
