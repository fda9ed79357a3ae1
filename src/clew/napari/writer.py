"""Writes Tracks layers, and Labels layers with them, in the formats of clew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.napari.layers import LayerData, read_lineage_layer
from clew.tracking.io.napari import napari_graph_path, write_napari
from clew.tracking.io.results import write_results
from clew.tracking.movie import Movie

FORMATS = ("ctc", "csv", "geff", "napari")
"""Of a result folder."""


def write_tracks_layer(path: str, data: Any, meta: Mapping[str, Any]) -> list[str]:
    """Write a Tracks layer as GEFF, or as a table with its graph beside it.

    Parameters
    ----------
    path : str
        Ends in .geff or .csv.
    data : ndarray of shape (n, 2 + ndim)
    meta : mapping
        Arguments of the layer, as napari passes them.

    Returns
    -------
    paths : list of str
        What was written.
    """
    physical = _scale_positions(data, meta)
    lineage = read_lineage_layer(physical, _read_features(meta), meta.get("graph", {}))
    file = Path(path)
    if file.suffix.lower() == ".geff":
        from clew.tracking.io.geff import write_geff  # takes seconds to load

        write_geff(file, lineage)
        return [path]
    write_napari(file, lineage)
    return [path, str(napari_graph_path(file))]


def write_result_folder(path: str, layers: Sequence[LayerData]) -> list[str]:
    """Write a Labels and a Tracks layer as a result folder."""
    by_kind = {kind: (data, meta) for data, meta, kind in layers}
    if set(by_kind) != {"labels", "tracks"}:
        raise InputError("expected one Labels layer and one Tracks layer to save")
    masks, masks_meta = by_kind["labels"]
    data, meta = by_kind["tracks"]
    labels = np.asarray(masks)
    lineage = read_lineage_layer(
        _scale_positions(data, meta),
        _read_features(meta),
        meta.get("graph", {}),
        labels,
    )
    spacing = list(masks_meta.get("scale", (1.0,) * labels.ndim))[1:]
    name = str(masks_meta.get("name", "labels"))
    movie = Movie.from_arrays(labels, spacing=spacing, name=name)
    write_results(Path(path), lineage, movie, FORMATS)
    return [path]


def _read_features(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a layer; newer versions of napari name them features."""
    features = meta.get("features")
    if features is None:
        features = meta.get("properties") or {}
    return {name: np.asarray(features[name]) for name in features}


def _scale_positions(data: Any, meta: Mapping[str, Any]) -> Any:
    """Return tracks with positions in the world of the viewer."""
    table = np.array(data, dtype=float)
    scale = meta.get("scale")
    if scale is not None:
        table[:, 2:] *= np.asarray(scale, dtype=float)[-table[:, 2:].shape[1] :]
    return table
