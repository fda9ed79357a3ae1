"""Downloads: the weights, the annotations, and the tracks in every format."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import InputError
from clew.tracking.detections import Source
from clew.tracking.events import Annotations
from clew.tracking.formats.annotation_csv import write_annotations
from clew.tracking.formats.results import write_results
from clew.tracking.movie import Movie

if TYPE_CHECKING:
    from clew.annotation.learner import Learner


class Kind(StrEnum):
    """What can be taken home."""

    WEIGHTS = "weights"
    ANNOTATIONS_CSV = "annotations.csv"
    ANNOTATIONS_GEFF = "annotations.geff"
    CTC = "ctc"
    GEFF = "geff"
    CSV = "csv"
    NAPARI = "napari"

    @property
    def is_learned(self) -> bool:
        """Whether it is the worker's to write: it follows from what was learned."""
        return self not in (Kind.ANNOTATIONS_CSV, Kind.ANNOTATIONS_GEFF)


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


def write_export(kind: str, path: str | Path, learner: Learner, source: Source) -> None:
    """Write the weights or a zip of the tracks."""
    if Kind(kind) is Kind.WEIGHTS:
        learner.as_tracker().save(path)
        return
    movie = getattr(source, "movie", None)
    if not isinstance(movie, Movie):
        raise InputError(f"{source.name} has no label images, which tracks are written with")
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        write_results(Path(folder) / "tracks", learner.lineage(), movie, [kind])
        zip_folder(Path(folder) / "tracks", path)


def write_marks(kind: Kind, path: str | Path, annotations: Annotations, movie: Movie) -> None:
    """Write the annotations themselves."""
    if kind is Kind.ANNOTATIONS_CSV:
        write_annotations(path, annotations)
        return
    from clew.tracking.formats.annotation_geff import write_annotation_geff  # zarr takes a second to import

    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        write_annotation_geff(Path(folder) / "marks" / str(kind), annotations, movie)
        zip_folder(Path(folder) / "marks", path)


def zip_folder(folder: Path, path: str | Path) -> None:
    """All files of a folder in a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                file = Path(root) / name
                archive.write(file, file.relative_to(folder).as_posix())
