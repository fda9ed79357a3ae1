"""Measurements on disk, one file a frame, named by a digest of what was measured.

A changed pixel, spacing or way of measuring gives another name, so nothing stale is
read; a damaged file fails its checksum and is measured again. A cell takes about 230
bytes with an image in 2D and 290 in 3D. An index says which files of a movie were
measured, so that those that did not change need not be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clew.errors import CacheWarning, StoreError
from clew.tracking.detections import Detections
from clew.tracking.events import Labels
from clew.utils import storage
from clew.utils import validation as checks

FOLDER = ".clew"
KIND = "measurements"
SUFFIX = ".clew"
INDEX = "frames.json"
KEY = re.compile("[0-9a-f]{40}")
"""Names of entries; the folder may be the user's, and hold weights too."""
COLUMN = "column."
"""Prefix of the names of columns in a file."""
MAX_UNUSED_BYTES = 2**30
"""Size of unused entries from which on the oldest are removed."""

OverlapColumns = tuple[Labels, Labels, NDArray[np.floating[Any]]]
"""(m,) each: labels of a frame and of the next whose masks share pixels, and the
shared volume."""
MeasuredFrame = tuple[Detections, OverlapColumns]
CacheLocation = Path | str | Literal["auto"] | None


class Store:
    """A folder of measured frames, which several processes may use at once.

    If the folder can no longer be written, frames stay in memory, with a warning.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsaved: dict[str, MeasuredFrame] = {}

    def save_frame(
        self, key: str, detections: Detections, overlap: OverlapColumns
    ) -> MeasuredFrame:
        """Save a frame; returned in single precision, as `load_frame` will."""
        columns = {
            name: column.astype(np.float32)
            for name, column in detections.columns.items()
        }
        detections = replace(detections, columns=columns)
        source, target, volume = overlap
        overlap = (source, target, volume.astype(np.float32))
        arrays: dict[str, NDArray[Any]] = {
            f"{COLUMN}{name}": column for name, column in columns.items()
        }
        arrays |= {"label": detections.label, "position": detections.position}
        arrays |= {"source": source, "target": target, "shared": overlap[2]}
        try:
            path = self._get_path(key)
            storage.write_document(path, KIND, {"key": key}, arrays, durable=False)
        except StoreError as error:
            if not self._unsaved:
                warnings.warn(
                    f"measurements cannot be saved: {error}; they stay in memory for "
                    "this run. Make room there, or use no folder: --no-cache "
                    "(cache=None in Python)",
                    CacheWarning,
                    stacklevel=2,
                )
            self._unsaved[key] = (detections, overlap)
        return detections, overlap

    def load_frame(self, key: str, frame: int) -> MeasuredFrame | None:
        """Load a frame; None if there is none, or if it is damaged."""
        if key in self._unsaved:
            detections, overlap = self._unsaved[key]
            return replace(detections, frame=frame), overlap
        try:
            document = storage.read_document(self._get_path(key), KIND)
            arrays = document.arrays
            if document.meta["key"] != key:
                return None
            columns = {
                name.removeprefix(COLUMN): array
                for name, array in arrays.items()
                if name.startswith(COLUMN)
            }
            detections = Detections(frame, arrays["label"], arrays["position"], columns)
            return detections, (arrays["source"], arrays["target"], arrays["shared"])
        except (StoreError, KeyError):
            return None

    def read_index(self) -> dict[str, str]:
        """Return the keys of saved frames, by stamp of the files they came from."""
        try:
            content = json.loads((self.folder / INDEX).read_bytes())
            known = {str(stamp): str(key) for stamp, key in content.items()}
        except (OSError, ValueError, AttributeError):
            return {}
        saved = {path.stem for path in self.folder.glob(f"*{SUFFIX}")}
        return {stamp: key for stamp, key in known.items() if key in saved}

    def write_index(self, index: Mapping[str, str]) -> None:
        """Save what `read_index` returns; it saves time alone, so errors are ignored."""
        content = json.dumps(index).encode()
        with contextlib.suppress(StoreError, OSError):
            storage.write_bytes(self.folder / INDEX, content, durable=False)

    def prune(self, used: Collection[str], limit: int = MAX_UNUSED_BYTES) -> None:
        """Remove the oldest unused entries beyond a size in bytes."""
        used = set(used)
        size = 0
        with contextlib.suppress(OSError):  # another process may remove the same
            unused = [
                (path.stat(), path)
                for path in self.folder.glob(f"*{SUFFIX}")
                if KEY.fullmatch(path.stem) and path.stem not in used
            ]
            for status, path in sorted(unused, key=lambda entry: -entry[0].st_mtime):
                size += status.st_size
                if size > limit:
                    path.unlink(missing_ok=True)

    def _get_path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


def open_store(location: CacheLocation, name: str, beside: Path | None) -> Store:
    """Open the store of a movie.

    Parameters
    ----------
    location : path, "auto" or None
        A folder; "auto" for one in `beside`, if that can be written; None for a
        temporary one, which is removed with the store.
    name : str
        Name of the movie.
    beside : Path or None
        Folder of the movie.
    """
    is_auto = isinstance(location, str) and location == "auto"
    if location is not None and not is_auto:
        folder = checks.check_path(location, "cache")
        reason = _try_writing(folder)
        if reason:
            raise StoreError(
                f"{folder}: measurements cannot be saved there ({reason}); choose "
                "another folder, or None"
            )
        return Store(folder)
    if location is not None and beside is not None:
        digest = hash_parts([name.encode("utf-8", "surrogateescape")])
        folder = beside / FOLDER / digest[:16]
        reason = _try_writing(folder)
        if reason is None:
            return Store(folder)
        warnings.warn(
            f"{folder}: measurements cannot be saved beside the movie ({reason}), so "
            "each run measures again; use --no-cache (cache=None in Python) if this "
            "is intended",
            CacheWarning,
            stacklevel=3,
        )
    store = Store(Path(tempfile.mkdtemp(prefix="clew-")))
    weakref.finalize(store, shutil.rmtree, store.folder, ignore_errors=True)
    return store


def hash_frame(pixels: NDArray[Any] | None) -> bytes:
    """Digest of the content, shape and dtype of an array."""
    if pixels is None:
        return b""
    header = f"{pixels.dtype.str}{pixels.shape}".encode()
    digest = hashlib.blake2b(header, digest_size=20)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def hash_parts(parts: Iterable[bytes]) -> str:
    """Digest of several parts in order."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _try_writing(folder: Path) -> str | None:
    """Why a folder cannot be written; None if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
