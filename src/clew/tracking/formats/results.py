"""A folder of results: a lineage in every format that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.formats import ctc
from clew.tracking.formats.events_csv import write_events
from clew.tracking.formats.geff import write_geff
from clew.tracking.formats.names import EVENTS, FORMATS, GEFF, NAPARI, NAPARI_GRAPH, RESULT, TRACKS
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
) -> list[str]:
    """Write a lineage into a folder; what was written, by name."""
    ctc.check_result_folder(folder)
    pixels = movie if isinstance(movie, Movie) else None
    written = []
    if "ctc" in formats and pixels is not None:
        ctc.write_result(folder, pixels, lineage, progress, n_jobs)
        written += [RESULT, "mask*.tif"]
    folder.mkdir(parents=True, exist_ok=True)
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
