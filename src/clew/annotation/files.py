"""Downloads and uploads: tracks, annotations, masks and weights."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath

from clew.annotation.answers import Answer
from clew.annotation.tracks import list_answers
from clew.errors import InputError
from clew.tracking.events import Annotations, check_annotations
from clew.tracking.io.annotations import read_annotations, write_annotations
from clew.tracking.io.results import write_results
from clew.tracking.io.tiff import write_frame
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie

MAX_UNPACKED = 2**30
"""Bytes in an uploaded zip: one of a few kilobytes can claim any size."""


class ExportKind(StrEnum):
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
        """Whether it depends on the weights."""
        return self not in (
            ExportKind.ANNOTATIONS_CSV,
            ExportKind.ANNOTATIONS_GEFF,
            ExportKind.MASKS,
        )


@dataclass(frozen=True)
class FileName:
    """The name and the media type of a download."""

    name: str
    media_type: str

    @classmethod
    def of(cls, kind: ExportKind, movie: str) -> FileName:
        """Return a name in plain ASCII, for a movie of any name."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", movie).strip("._")[:80] or "movie"
        if kind is ExportKind.WEIGHTS:
            return cls(f"{stem}.weights.clew", "application/octet-stream")
        if kind is ExportKind.ANNOTATIONS_CSV:
            return cls(f"{stem}.{kind}", "text/csv; charset=utf-8")
        return cls(f"{stem}.{kind}.zip", "application/zip")


def export_tracks(
    kind: ExportKind, path: str | Path, lineage: Lineage, movie: Movie
) -> None:
    """Write a zip of the tracks."""
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        write_results(Path(folder) / "tracks", lineage, movie, [str(kind)])
        zip_folder(Path(folder) / "tracks", path)


def export_masks(path: str | Path, movie: Movie) -> None:
    """Write a zip of the edited masks: mask000.tif, mask001.tif …"""
    first = movie.labels.first
    n_digits = max(3, len(str(first + movie.n_frames - 1)))
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        for t in range(movie.n_frames):
            name = f"mask{t + first:0{n_digits}}.tif"
            write_frame(Path(folder) / name, movie.label(t))
        zip_folder(Path(folder), path)


def export_annotations(
    kind: ExportKind, path: str | Path, annotations: Annotations, movie: Movie
) -> None:
    """Write the annotations; frames have the numbers of the whole movie."""
    if kind is ExportKind.ANNOTATIONS_CSV:
        write_annotations(path, annotations.shift_frames(movie.first))
        return
    # Imported here, since zarr takes a second to import.
    from clew.tracking.io.geff import write_annotation_geff

    with tempfile.TemporaryDirectory(prefix="clew-") as name:
        folder = Path(name) / "annotations"
        write_annotation_geff(folder / str(kind), annotations, movie)
        zip_folder(folder, path)


def zip_folder(folder: Path, path: str | Path) -> None:
    """Write all files of a folder into a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                file = Path(root) / name
                archive.write(file, file.relative_to(folder).as_posix())


def read_upload(name: str, content: bytes, movie: Movie) -> list[Answer]:
    """Return the annotations in an uploaded file, checked against the movie.

    Parameters
    ----------
    name : str
        Of the file; its suffix says what it is.
    content : bytes
        A table, or a zip of a GEFF or of a lineage in the format of the Cell Tracking
        Challenge.
    movie : Movie
    """
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        path = Path(folder) / f"upload{PurePath(name).suffix.lower()}"
        path.write_bytes(content)
        if zipfile.is_zipfile(path):
            path = _unpack(path)
        annotations = read_annotations(path, movie)
        frames = {t + step for t in annotations.annotated_frames() for step in (0, 1)}
        labels = {t: movie.label(t) for t in frames if t < movie.n_frames}
        checked = check_annotations(
            annotations, lambda t: labels[t], movie.n_frames, name
        )
    return list_answers(checked)


def _unpack(path: Path) -> Path:
    """Unpack a zip; return its folder, or the one folder in it."""
    folder = path.with_suffix("")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_UNPACKED:
                raise InputError(
                    f"the zip holds {size >> 20} MB; expected annotations of at most "
                    f"{MAX_UNPACKED >> 20} MB"
                )
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, RuntimeError) as error:
        raise InputError(f"the zip cannot be read ({error})") from error
    visible = [
        entry for entry in folder.iterdir() if not entry.name.startswith((".", "__"))
    ]
    if len(visible) == 1 and visible[0].is_dir():
        return visible[0]
    return folder
