"""Downloads: the weights, the annotations, and the tracks in every format."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clew.tracking.events import Annotations
from clew.tracking.io.annotations import write_annotations
from clew.tracking.io.results import write_results
from clew.tracking.io.tiff import write_frame
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie


class Kind(StrEnum):
    """What can be downloaded."""

    WEIGHTS = "weights"
    ANNOTATIONS_CSV = "annotations.csv"
    ANNOTATIONS_GEFF = "annotations.geff"
    CTC = "ctc"
    GEFF = "geff"
    CSV = "csv"
    NAPARI = "napari"
    MASKS = "masks"

    @property
    def is_learned(self) -> bool:
        """Whether it follows from what was learned, and not from the annotations alone."""
        return self not in (Kind.ANNOTATIONS_CSV, Kind.ANNOTATIONS_GEFF, Kind.MASKS)


@dataclass(frozen=True)
class FileName:
    """What a download is called and what it is."""

    name: str
    media_type: str

    @classmethod
    def of(cls, kind: Kind, movie: str) -> FileName:
        """A name of plain letters, whatever the movie is called."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", movie).strip("._")[:80] or "movie"
        if kind is Kind.WEIGHTS:
            return cls(f"{stem}.weights.clew", "application/octet-stream")
        if kind is Kind.ANNOTATIONS_CSV:
            return cls(f"{stem}.{kind}", "text/csv; charset=utf-8")
        return cls(f"{stem}.{kind}.zip", "application/zip")


def write_tracks(kind: Kind, path: str | Path, lineage: Lineage, movie: Movie) -> None:
    """Write a zip of the tracks."""
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        write_results(Path(folder) / "tracks", lineage, movie, [str(kind)])
        zip_folder(Path(folder) / "tracks", path)


def write_masks(path: str | Path, movie: Movie) -> None:
    """Write a zip of the label images, mended as they are: `mask000.tif`, `mask001.tif` …"""
    first = movie.labels.first
    digits = max(3, len(str(first + movie.n_frames - 1)))
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        for t in range(movie.n_frames):
            write_frame(Path(folder) / f"mask{t + first:0{digits}}.tif", movie.label(t))
        zip_folder(Path(folder), path)


def write_answers(
    kind: Kind, path: str | Path, annotations: Annotations, movie: Movie
) -> None:
    """Write the annotations themselves; those of an excerpt by the numbers that frames have in the whole movie."""
    if kind is Kind.ANNOTATIONS_CSV:
        write_annotations(path, annotations.shift_frames(movie.first))
        return
    from clew.tracking.io.geff import (
        write_annotation_geff,
    )  # zarr takes a second to import

    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        write_annotation_geff(
            Path(folder) / "annotations" / str(kind), annotations, movie
        )
        zip_folder(Path(folder) / "annotations", path)


def zip_folder(folder: Path, path: str | Path) -> None:
    """All files of a folder in a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                file = Path(root) / name
                archive.write(file, file.relative_to(folder).as_posix())
