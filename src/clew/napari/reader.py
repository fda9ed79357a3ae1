"""Reads results into layers of napari: GEFF, tables, and folders with masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from clew.errors import ClewError, InputError
from clew.napari.layers import (
    LayerData,
    make_labels_layer,
    make_lineage_layer,
    make_tracks_layer,
)
from clew.tracking.evaluation.truth import derive_track_events
from clew.tracking.io.ctc import CtcLineage, open_ctc_lineage
from clew.tracking.io.formats import MASTODON, TRACKMATE, is_zarr, open_lineage
from clew.tracking.io.lineage_tables import read_lineage_tables
from clew.tracking.io.names import (
    EVENTS,
    GEFF,
    LABELS,
    NAPARI,
    RESULT,
    TRACKS,
    TRUTH,
)
from clew.tracking.io.napari import (
    NO_EVENT,
    NapariTracks,
    napari_graph_path,
    read_napari,
)
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.result_folder import read_manifest
from clew.tracking.io.track_tables import is_track_table, read_track_table
from clew.tracking.io.zarr import open_zarr, read_attributes
from clew.tracking.measurement.regions import measure_frame

PROJECTS = (*MASTODON.suffixes, *TRACKMATE.suffixes, ".ilp")
"""Endings of files that have a lineage of points."""

Reader = Callable[[str | Sequence[str]], list[LayerData]]


def get_reader(path: str | Sequence[str]) -> Reader | None:
    """Return a reader if clew can read a path, as napari asks its plugins."""
    first = Path(path if isinstance(path, str) else path[0])
    return read_layers if can_read(first) else None


def can_read(path: Path) -> bool:
    """Return whether a path has tracks or label images that clew can read."""
    if path.is_file():
        if path.suffix.lower() in PROJECTS:
            return True
        try:
            return is_track_table(path)
        except ClewError:
            return False
    if is_zarr(path):
        attributes = read_attributes(path)
        return "geff" in attributes or "image-label" in attributes
    names = (RESULT, TRUTH, f"TRA/{TRUTH}", TRACKS, GEFF, NAPARI, LABELS)
    return any((path / name).exists() for name in names)


def read_layers(path: str | Sequence[str]) -> list[LayerData]:
    """Return the layers of one or several paths."""
    paths = [path] if isinstance(path, str) else path
    return [layer for each in paths for layer in _read_path(Path(each))]


def _read_path(path: Path) -> list[LayerData]:
    if path.is_file():
        is_project = path.suffix.lower() in PROJECTS
        return [_read_lineage(path) if is_project else _read_table(path)]
    if is_zarr(path):
        if "geff" in read_attributes(path):
            return [_read_geff(path)]
        return [make_labels_layer(open_zarr(path), None, path.stem)]
    return _read_folder(path)


def _read_table(path: Path) -> LayerData:
    """Return a table of tracks as a layer; with events, if these are beside it."""
    if napari_graph_path(path).is_file():
        return make_tracks_layer(read_napari(path), path.stem)
    events = path.with_name(EVENTS)
    if path.name == TRACKS and events.is_file():
        return make_lineage_layer(read_lineage_tables(path, events), path.stem)
    return make_tracks_layer(_list_points(read_track_table(path)), path.stem)


def _read_lineage(path: Path) -> LayerData:
    """Return the lineage of another program as a layer."""
    lineage = open_lineage(path)
    if not isinstance(lineage, PointLineage):
        raise InputError(f"{path} has no points; expected a lineage of points")
    return make_tracks_layer(_list_points(lineage), path.stem)


def _read_geff(path: Path) -> LayerData:
    """Return a GEFF as a layer; one of clew has events, too."""
    # takes seconds to load
    from clew.tracking.io.geff import is_own_geff, read_geff
    from clew.tracking.lineage.lineage import Lineage

    if not is_own_geff(path):
        return _read_lineage(path)
    graph = read_geff(path)
    lineage = Lineage(
        graph.n_frames,
        graph.frame,
        graph.label,
        graph.position,
        graph.events,
        np.where(np.isnan(graph.confidence), np.inf, graph.confidence),
    )
    return make_lineage_layer(lineage, path.stem)


def _read_folder(folder: Path) -> list[LayerData]:
    """Return masks and tracks of a result or a truth."""
    name = folder.name
    layers = []
    masks: CtcLineage | None = None
    spacing = _read_spacing(folder)
    if any((folder / file).is_file() for file in (RESULT, TRUTH, f"TRA/{TRUTH}")):
        masks = open_ctc_lineage(folder)
        layers.append(make_labels_layer(masks.masks, spacing, f"{name} masks"))
    elif (folder / LABELS).is_dir():
        frames = open_zarr(folder / LABELS)
        layers.append(make_labels_layer(frames, spacing, f"{name} masks"))
    for file, read in (
        (TRACKS, _read_table),
        (GEFF, _read_geff),
        (NAPARI, _read_table),
    ):
        if (folder / file).exists():
            data, arguments, kind = read(folder / file)
            layers.append((data, {**arguments, "name": f"{name} tracks"}, kind))
            return layers
    if masks is not None:
        points = _measure_points(masks, spacing)
        layers.append(make_tracks_layer(_list_points(points), f"{name} tracks"))
    return layers


def _read_spacing(folder: Path) -> tuple[float, ...] | None:
    """Return the size of a pixel from the manifest of a result."""
    manifest = read_manifest(folder)
    if manifest is None or "spacing" not in manifest.made_from:
        return None
    return tuple(float(size) for size in manifest.made_from["spacing"])


def _measure_points(
    lineage: CtcLineage, spacing: tuple[float, ...] | None
) -> PointLineage:
    """Return the centers of masks that carry track ids."""
    sizes = spacing or lineage.masks.spacing or (1.0,) * len(lineage.masks.shape)
    frames = [
        measure_frame(t, lineage.masks[t], None, sizes) for t in range(lineage.n_frames)
    ]
    counts = [len(cells) for cells in frames]
    return PointLineage(
        lineage.tracks,
        np.repeat(np.arange(lineage.n_frames), counts),
        np.concatenate([cells.label for cells in frames]).astype(np.int64),
        np.concatenate([cells.position for cells in frames]),
        lineage.n_frames,
        lineage.source,
    )


def _list_points(lineage: PointLineage) -> NapariTracks:
    """Return tracks without masks as napari has them; their parents are the graph."""
    order = np.lexsort((lineage.frame, lineage.track))
    frame = lineage.frame[order]
    track = lineage.track[order]
    tracks = lineage.tracks
    graph = {
        int(child): [int(parent)]
        for child, parent in zip(tracks.id, tracks.parent, strict=True)
        if parent
    }
    events = derive_track_events(tracks, lineage.n_frames)
    kind_of: dict[tuple[int, int], int] = {}
    for end, kind, targets in zip(
        events.end_frames().tolist(),
        events.event.tolist(),
        events.targets.tolist(),
        strict=True,
    ):
        kind_of |= {(end, label): kind for label in targets if label}
    cells = zip(frame.tolist(), track.tolist(), strict=True)
    by_id = np.argsort(tracks.id)
    row = by_id[np.searchsorted(tracks.id, track, sorter=by_id)]
    properties = {
        "label": track,
        "track": track,
        "generation": tracks.generations()[row],
        "event": np.array([kind_of.get(cell, NO_EVENT) for cell in cells], int),
    }
    data = np.column_stack([track, frame, lineage.position[order]])
    return data, properties, graph
