"""Earlier annotations, as a person uploads them: a table, or a zip of a GEFF or of a lineage in CTC's format."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path, PurePath

from clew.annotation.answers import Answer
from clew.errors import InputError
from clew.tracking.annotations import check_annotations
from clew.tracking.events import Annotations
from clew.tracking.io.annotations import read_annotations
from clew.tracking.movie import Movie

MOST_UNPACKED = 2**30
"""Bytes that a zip may hold: one of some kilobytes can claim any size."""


def read_upload(name: str, content: bytes, movie: Movie) -> list[Answer]:
    """The annotations in an uploaded file, checked against the movie."""
    with tempfile.TemporaryDirectory(prefix="clew-") as folder:
        path = Path(folder) / f"upload{PurePath(name).suffix.lower()}"
        path.write_bytes(content)
        found = read_annotations(
            _unpacked(path) if zipfile.is_zipfile(path) else path, movie
        )
        labels = {
            t: movie.label(t)
            for t in {
                *found.annotated_frames(),
                *(t + 1 for t in found.annotated_frames()),
            }
            if t < movie.n_frames
        }
        checked = check_annotations(found, lambda t: labels[t], movie.n_frames, name)
    return answers_of(checked)


def answers_of(annotations: Annotations) -> list[Answer]:
    """Annotations one by one."""
    return [
        Answer.of(frame, event, sources, targets, bool(happened))
        for (frame, event, sources, targets), happened in zip(
            annotations.events, annotations.happened, strict=True
        )
    ]


def _unpacked(path: Path) -> Path:
    """The folder in a zip: the whole, or the one that is all of it."""
    folder = path.with_suffix("")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MOST_UNPACKED:
                raise InputError(
                    f"the zip holds more than {MOST_UNPACKED >> 20} MB; expected annotations"
                )
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, RuntimeError) as error:
        raise InputError(f"the zip cannot be read ({error})") from error
    inside = [one for one in folder.iterdir() if not one.name.startswith((".", "__"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
