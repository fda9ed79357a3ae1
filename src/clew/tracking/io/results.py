"""A folder of results: a lineage in every format that was asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.parallel import Executor, Progress, ThreadExecutor
from clew.tracking.blocks.parts import TrackedMovie, as_parts, parts_of
from clew.tracking.detections import DetectionTable
from clew.tracking.io import ctc
from clew.tracking.io.events_csv import write_events
from clew.tracking.io.label_layers import EventCounts, write_label_images
from clew.tracking.io.manifest import write_atomically
from clew.tracking.io.names import (
    BESIDE_MASKS,
    EVENTS,
    EVENTS_PARQUET,
    FORMATS,
    GEFF,
    LABELS,
    MANIFEST,
    NAPARI,
    NAPARI_GRAPH,
    RESULT,
    TRACK,
    TRACKS,
    TRACKS_PARQUET,
)
from clew.tracking.io.napari import write_napari
from clew.tracking.io.parquet import write_parquet
from clew.tracking.io.tracks_csv import write_track_table
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.utils.extras import require_extra
from clew.utils.storage import write_bytes

PIXELS = ("ctc", "zarr")
"""Formats that are label images."""


def default_formats(movie: Movie | DetectionTable) -> list[str]:
    """What is written where nobody asked for formats: what the movie allows of ctc and csv."""
    return [
        name
        for name in ("ctc", "csv")
        if name not in PIXELS or not isinstance(movie, DetectionTable)
    ]


def check_formats(
    names: Sequence[str], movie: Movie | DetectionTable | None = None
) -> list[str]:
    """Formats by name, each once; masks need a movie of label images."""
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in FORMATS]
    if unknown or not wanted:
        raise InputError(
            f"unknown format {', '.join(unknown) or 'none'}; give any of {', '.join(FORMATS)}"
        )
    pixels = [name for name in wanted if name in PIXELS]
    if pixels and isinstance(movie, DetectionTable):
        others = ", ".join(name for name in FORMATS if name not in PIXELS)
        raise InputError(
            f"the format {pixels[0]} needs label images; a table of detections can be written as {others}"
        )
    if "parquet" in wanted:
        require_extra("parquet", "the format parquet")
    return wanted


def write_results(
    folder: Path,
    lineage: Lineage | TrackedMovie,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    progress: Progress | None = None,
    n_jobs: int | None = None,
    *,
    pages: Mapping[str, bytes] | None = None,
    made_from: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Write a lineage into a folder, in place of an older result as a whole; what was written, by name.

    A movie in parts is written part by part, label images by the workers of `executor` (they must see the folder), all
    but napari without having the whole of it in memory. `pages` are further files by name, the report for
    example; `made_from` says more of what the result comes from.
    """
    return write_and_count(
        folder,
        lineage,
        movie,
        formats,
        executor or ThreadExecutor(n_jobs),
        progress,
        pages,
        made_from,
        overwrite=overwrite,
    )[0]


def write_and_count(
    folder: Path,
    lineage: Lineage | TrackedMovie,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    executor: Executor,
    progress: Progress | None = None,
    pages: Mapping[str, bytes] | None = None,
    made_from: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[list[str], EventCounts]:
    """As `write_results`, and what the movie counts, which comes with reading its parts."""
    tracked = as_parts(lineage)
    ctc.check_result_folder(folder, overwrite=overwrite)
    strange = [name for name in pages or {} if not ctc.is_result_file(name)]
    if strange:
        raise InputError(
            f"{strange[0]} is no file of a result; expected any of {', '.join(BESIDE_MASKS)}"
        )
    provenance = _provenance(tracked, movie) | dict(made_from or {})
    with write_atomically(folder, TRACK, ctc.is_result_file, provenance) as stage:
        written, tally = _write_formats(
            stage, tracked, movie, formats, executor, progress
        )
        for name, content in (pages or {}).items():
            write_bytes(stage / name, content)
            written.append(name)
    return [*written, MANIFEST], tally


def _write_formats(
    folder: Path,
    tracked: TrackedMovie,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    executor: Executor,
    progress: Progress | None,
) -> tuple[list[str], EventCounts]:
    """Every format into an empty folder."""
    pixels = movie if isinstance(movie, Movie) else None
    written = []
    tally = write_label_images(
        folder,
        pixels,
        tracked,
        executor,
        progress,
        tiffs="ctc" in formats,
        layer="zarr" in formats,
    )
    if "ctc" in formats:
        ctc.write_tracks(folder / RESULT, tracked.tracks)
        written += [RESULT, "mask*.tif"]
    if "csv" in formats:
        write_events(folder / EVENTS, tracked)
        write_track_table(folder / TRACKS, tracked)
        written += [EVENTS, TRACKS]
    if "geff" in formats:
        from clew.tracking.io.geff import (
            write_geff,
        )  # geff and zarr take seconds to load

        write_geff(folder / GEFF, tracked, pixels)
        written.append(GEFF)
    if "napari" in formats:
        write_napari(folder / NAPARI, tracked.lineage())
        written += [NAPARI, NAPARI_GRAPH]
    if "parquet" in formats:
        write_parquet(folder / EVENTS_PARQUET, folder / TRACKS_PARQUET, tracked)
        written += [EVENTS_PARQUET, TRACKS_PARQUET]
    if "zarr" in formats:
        written.append(LABELS)
    return written, tally


def _provenance(tracked: TrackedMovie, movie: Movie | DetectionTable) -> dict[str, Any]:
    """What a lineage was made from: the cells as they were found, by a digest of their frames, labels and places."""
    columns = [hashlib.sha256() for _ in range(3)]
    for part in parts_of(tracked):
        nodes = part.nodes
        values: tuple[NDArray[Any], ...] = (
            nodes.frame,
            nodes.label,
            nodes.position.astype(np.float32),
        )
        for digest, column in zip(columns, values, strict=True):
            digest.update(
                np.ascontiguousarray(column)
                .astype(column.dtype.newbyteorder("<"))
                .tobytes()
            )
    cells = hashlib.sha256(b"".join(digest.digest() for digest in columns))
    return {
        "movie": movie.name,
        "source": movie.source,
        "frames": tracked.n_frames,
        "spacing": movie.spacing,
        "cells": tracked.n_cells,
        "cells_sha256": cells.hexdigest(),
    }
