"""A folder of results: a lineage in every format that was asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.persist import write_bytes
from clew.tracking.detections import DetectionTable
from clew.tracking.formats import ctc
from clew.tracking.formats.events_csv import write_events
from clew.tracking.formats.geff import write_geff
from clew.tracking.formats.manifest import written_whole
from clew.tracking.formats.names import (
    BESIDE_MASKS,
    EVENTS,
    FORMATS,
    GEFF,
    MANIFEST,
    NAPARI,
    NAPARI_GRAPH,
    RESULT,
    TRACK,
    TRACKS,
)
from clew.tracking.formats.napari import write_napari
from clew.tracking.formats.tracks_csv import write_track_table
from clew.tracking.lineage import Lineage
from clew.tracking.movie import Movie


def check_formats(names: Sequence[str], movie: Movie | DetectionTable | None = None) -> list[str]:
    """Formats by name, each once; masks need a movie of label images."""
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in FORMATS]
    if unknown or not wanted:
        raise InputError(f"unknown format {', '.join(unknown) or 'none'}; give any of {', '.join(FORMATS)}")
    if "ctc" in wanted and isinstance(movie, DetectionTable):
        raise InputError("the format ctc needs label images; a table of detections can be written as csv, geff, napari")
    return wanted


def write_results(
    folder: Path,
    lineage: Lineage,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    n_jobs: int | None = None,
    *,
    pages: Mapping[str, bytes] | None = None,
    made_from: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write a lineage into a folder, in place of an older result as a whole; what was written, by name.

    `pages` are further files by name, the report for example; `made_from` says more of what the result comes from.
    """
    ctc.check_result_folder(folder)
    strange = [name for name in pages or {} if not ctc.is_of_result(name)]
    if strange:
        raise InputError(f"{strange[0]} is no file of a result; expected any of {', '.join(BESIDE_MASKS)}")
    with written_whole(folder, TRACK, ctc.is_of_result, _provenance(lineage, movie) | dict(made_from or {})) as stage:
        written = _write_formats(stage, lineage, movie, formats, progress, n_jobs)
        for name, content in (pages or {}).items():
            write_bytes(stage / name, content)
            written.append(name)
    return [*written, MANIFEST]


def _write_formats(
    folder: Path,
    lineage: Lineage,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    progress: Callable[[int, int], None] | None,
    n_jobs: int | None,
) -> list[str]:
    """Every format into an empty folder."""
    pixels = movie if isinstance(movie, Movie) else None
    written = []
    if "ctc" in formats and pixels is not None:
        ctc.write_masks(folder, pixels, lineage, progress, n_jobs)
        written += [RESULT, "mask*.tif"]
    if "csv" in formats:
        write_events(folder / EVENTS, lineage)
        write_track_table(folder / TRACKS, lineage)
        written += [EVENTS, TRACKS]
    if "geff" in formats:
        write_geff(folder / GEFF, lineage, pixels)
        written.append(GEFF)
    if "napari" in formats:
        write_napari(folder / NAPARI, lineage)
        written += [NAPARI, NAPARI_GRAPH]
    return written


def _provenance(lineage: Lineage, movie: Movie | DetectionTable) -> dict[str, Any]:
    """What a lineage was made from: the cells as they were found, by a digest of their frames, labels and places."""
    cells = hashlib.sha256()
    for column in (lineage.frame, lineage.label, lineage.position.astype(np.float32)):
        cells.update(np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<")).tobytes())
    return {
        "movie": movie.name, "source": movie.source, "frames": lineage.n_frames,
        "cells": len(lineage.frame), "cells_sha256": cells.hexdigest(),
    }  # fmt: skip
