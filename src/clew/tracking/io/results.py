"""Write a lineage into a folder of results, in several formats."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.parallel import Executor, Progress, ThreadExecutor
from clew.tracking.detections import DetectionTable
from clew.tracking.io import ctc
from clew.tracking.io.label_layers import EventCounts, write_label_images
from clew.tracking.io.names import (
    BESIDE_MASKS,
    EVENTS,
    EVENTS_PARQUET,
    FILES,
    FORMATS,
    GEFF,
    LABELS,
    MANIFEST,
    MASTODON,
    NAPARI,
    RESULT,
    SUBMISSION,
    TRACK,
    TRACKMATE,
    TRACKS,
    TRACKS_PARQUET,
)
from clew.tracking.io.result_folder import write_atomically
from clew.tracking.io.result_tables import write_events, write_track_table
from clew.tracking.lineage.lineage import Lineage, TrackedMovie, as_parts, parts_of
from clew.tracking.movie import Movie
from clew.utils.extras import require_extra
from clew.utils.storage import write_bytes

PIXEL_FORMATS = ("ctc", "zarr")
"""Formats of label images."""


def default_formats(movie: Movie | DetectionTable) -> list[str]:
    """Formats that are written by default."""
    return ["csv"] if isinstance(movie, DetectionTable) else ["ctc", "csv"]


def check_formats(
    names: Sequence[str], movie: Movie | DetectionTable | None = None
) -> list[str]:
    """Check names of formats.

    Parameters
    ----------
    names : sequence of str
    movie : Movie or DetectionTable, optional
        Formats of label images need a movie.

    Returns
    -------
    formats : list of str
        In lower case, each once.
    """
    cleaned = [name.strip().lower() for name in names]
    formats = list(dict.fromkeys(name for name in cleaned if name))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InputError(
            f"unknown format {', '.join(unknown) or 'none'}; give any of "
            f"{', '.join(FORMATS)}"
        )
    pixels = [name for name in formats if name in PIXEL_FORMATS]
    if pixels and isinstance(movie, DetectionTable):
        others = ", ".join(name for name in FORMATS if name not in PIXEL_FORMATS)
        raise InputError(
            f"the format {pixels[0]} needs label images; a table of detections can be "
            f"written as {others}"
        )
    if "parquet" in formats:
        require_extra("parquet", "the format parquet")
    return formats


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
    """Write a lineage into a folder; an older result is replaced as a whole.

    A movie in parts is written part by part in the formats ctc, csv, parquet and zarr;
    the others need the whole of it in memory.

    Parameters
    ----------
    folder : Path
    lineage : Lineage or TrackedMovie
    movie : Movie or DetectionTable
        What was tracked.
    formats : sequence of str
        See `check_formats`.
    progress : callable, optional
        Called with the number of frames done and in all.
    n_jobs : int, optional
        Number of threads.
    pages : mapping, optional
        More files by name, the report for example.
    made_from : mapping, optional
        More provenance for the manifest.
    executor : Executor, optional
        Workers that write label images instead of threads; they must see the folder.
    overwrite : bool
        Whether a result may be replaced that was changed by hand.

    Returns
    -------
    names : list of str
        What was written.
    """
    names, _ = write_and_count(
        folder,
        lineage,
        movie,
        formats,
        executor or ThreadExecutor(n_jobs),
        progress,
        pages,
        made_from,
        overwrite=overwrite,
    )
    return names


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
    """As `write_results`; also count the events, since all parts are read anyway."""
    tracked = as_parts(lineage)
    ctc.check_result_folder(folder, overwrite=overwrite)
    pages = pages or {}
    unknown = [name for name in pages if not ctc.is_result_file(name)]
    if unknown:
        raise InputError(
            f"{unknown[0]} is no file of a result; expected any of "
            f"{', '.join(BESIDE_MASKS)}"
        )
    provenance = _describe_origin(tracked, movie) | dict(made_from or {})
    with write_atomically(folder, TRACK, ctc.is_result_file, provenance) as stage:
        names, counts = _write_formats(
            stage, tracked, movie, formats, executor, progress
        )
        for name, content in pages.items():
            write_bytes(stage / name, content)
            names.append(name)
    return [*names, MANIFEST], counts


def _write_formats(
    folder: Path,
    tracked: TrackedMovie,
    movie: Movie | DetectionTable,
    formats: Sequence[str],
    executor: Executor,
    progress: Progress | None,
) -> tuple[list[str], EventCounts]:
    """Write all formats into an empty folder."""
    label_movie = movie if isinstance(movie, Movie) else None
    counts = write_label_images(
        folder,
        label_movie,
        tracked,
        executor,
        progress,
        tiffs="ctc" in formats,
        layer="zarr" in formats,
    )
    if "ctc" in formats:
        ctc.write_tracks(folder / RESULT, tracked.tracks)
    if "csv" in formats:
        write_events(folder / EVENTS, tracked)
        write_track_table(folder / TRACKS, tracked)
    # modules of other formats are imported where they are needed: some load slowly
    if "geff" in formats:
        from clew.tracking.io.geff import write_geff

        masks = f"../{LABELS}" if "zarr" in formats else None
        write_geff(folder / GEFF, tracked, movie, masks)
    if "mastodon" in formats:
        from clew.tracking.io.mastodon import write_mastodon

        write_mastodon(folder / MASTODON, _restore_units(tracked, movie))
    if "napari" in formats:
        from clew.tracking.io.napari import write_napari

        write_napari(folder / NAPARI, tracked.lineage())
    if "parquet" in formats:
        from clew.tracking.io.parquet import write_parquet

        write_parquet(folder / EVENTS_PARQUET, folder / TRACKS_PARQUET, tracked)
    if "submission" in formats:
        from clew.tracking.io.submission import write_submission

        write_submission(
            folder / SUBMISSION, tracked.lineage(), movie.name, movie.spacing
        )
    if "trackmate" in formats:
        from clew.tracking.io.trackmate import write_trackmate

        write_trackmate(folder / TRACKMATE, _restore_units(tracked, movie))
    names = [name for form in FILES if form in formats for name in FILES[form]]
    return names, counts


def _restore_units(tracked: TrackedMovie, movie: Movie | DetectionTable) -> Lineage:
    """The lineage, with positions as in the table that was tracked.

    The program that wrote the table has images in its units. Positions in label images
    stay physical.
    """
    lineage = tracked.lineage()
    if not isinstance(movie, DetectionTable) or movie.spacing is None:
        return lineage
    return replace(lineage, position=lineage.position / np.array(movie.spacing))


def _describe_origin(
    tracked: TrackedMovie, movie: Movie | DetectionTable
) -> dict[str, Any]:
    """Provenance, with a digest of the frames, labels and positions of all cells."""
    digests = [hashlib.sha256() for _ in range(3)]
    for part in parts_of(tracked):
        nodes = part.nodes
        position = nodes.position.astype(np.float32)
        columns: tuple[NDArray[Any], ...] = (nodes.frame, nodes.label, position)
        for digest, column in zip(digests, columns, strict=True):
            little_endian = column.dtype.newbyteorder("<")
            digest.update(np.ascontiguousarray(column).astype(little_endian).tobytes())
    cells = hashlib.sha256(b"".join(digest.digest() for digest in digests))
    return {
        "movie": movie.name,
        "source": movie.source,
        "frames": tracked.n_frames,
        "spacing": movie.spacing,
        "cells": tracked.n_cells,
        "cells_sha256": cells.hexdigest(),
    }
