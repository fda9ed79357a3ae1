"""Measurements kept on disk next to the movie, one file a frame, named by the content that they were measured from.

A changed pixel, spacing or way of measuring gives another name, so that nothing stale is ever read; a damaged file is
noticed by its checksum and measured again. A cell takes about 230 bytes with an image in 2D and 290 in 3D.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clew.errors import CacheWarning, StoreError
from clew.tracking.detections import Detections
from clew.tracking.events import Labels
from clew.utils import storage
from clew.utils.validation import check_path

FOLDER = ".clew"
KIND = "measurements"
SUFFIX = ".clew"
MAX_IDLE = 2**30
"""Bytes that entries which the movie, as it now is, has no use for may take; the oldest are removed first."""

OverlapColumns = tuple[Labels, Labels, NDArray[np.floating[Any]]]
"""(m,) each: labels of a frame and of the next whose masks share pixels, and the shared volume."""
CacheLocation = Path | str | Literal["auto"] | None


class Store:
    """A folder of measured frames. Several processes may use it at once: entries are written whole, and all alike.

    A folder that can no longer be written to is no obstacle: what it does not take stays in memory, with a warning.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spare: dict[str, tuple[Detections, OverlapColumns]] = {}

    def save_frame(
        self, key: str, cells: Detections, shared: OverlapColumns
    ) -> tuple[Detections, OverlapColumns]:
        """Keep a frame; it is given back as `recall` will."""
        cells = replace(
            cells,
            columns={name: _single(column) for name, column in cells.columns.items()},
        )
        shared = shared[0], shared[1], _single(shared[2])
        arrays: dict[str, NDArray[Any]] = {
            f"column.{name}": column for name, column in cells.columns.items()
        }
        arrays |= {"label": cells.label, "position": cells.position}
        arrays |= {"source": shared[0], "target": shared[1], "shared": shared[2]}
        try:
            storage.write_document(self._path(key), KIND, {"key": key}, arrays)
        except StoreError as error:
            if not self._spare:
                warnings.warn(
                    f"measurements cannot be kept: {error}; they stay in memory for this run. Make room there, or do "
                    "without the folder: --no-cache, or cache=None",
                    CacheWarning,
                    stacklevel=2,
                )
            self._spare[key] = cells, shared
        return cells, shared

    def load_frame(self, key: str, frame: int) -> tuple[Detections, OverlapColumns] | None:
        """A frame that was kept; None if there is none, or if it is damaged."""
        if key in self._spare:
            cells, shared = self._spare[key]
            return replace(cells, frame=frame), shared
        try:
            document = storage.read_document(self._path(key), KIND)
            arrays = document.arrays
            if document.meta["key"] != key:
                return None
            columns = {
                name.removeprefix("column."): a
                for name, a in arrays.items()
                if name.startswith("column.")
            }
            cells = Detections(frame, arrays["label"], arrays["position"], columns)
            return cells, (arrays["source"], arrays["target"], arrays["shared"])
        except (StoreError, KeyError):
            return None

    def prune(self, used: Collection[str], limit: int = MAX_IDLE) -> None:
        """Remove the oldest of the entries that are not used until those left are within the limit."""
        kept = 0
        with contextlib.suppress(OSError):  # another process may remove the same
            idle = [
                (path.stat(), path)
                for path in self.folder.glob(f"*{SUFFIX}")
                if path.stem not in set(used)
            ]
            for status, path in sorted(idle, key=lambda entry: -entry[0].st_mtime):
                kept += status.st_size
                if kept > limit:
                    path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


def open_store(where: CacheLocation, name: str, beside: Path | None) -> Store:
    """The store of a movie: in a given folder, with "auto" `beside` the movie if that can be written to, or temporary.

    A temporary one is removed with the last reference to the store, at the latest when Python ends.
    """
    given = where is not None and not (isinstance(where, str) and where == "auto")
    if given:
        folder = check_path(where, "cache")
        if reason := _unwritable(folder):
            raise StoreError(
                f"{folder}: measurements cannot be kept there ({reason}); choose another folder, or None"
            )
        return Store(folder)
    if where is not None and beside is not None:
        folder = (
            beside / FOLDER / hash_parts([name.encode("utf-8", "surrogateescape")])[:16]
        )
        reason = _unwritable(folder)
        if reason is None:
            return Store(folder)
        warnings.warn(
            f"{folder}: measurements cannot be kept beside the movie ({reason}), so that they are made anew each time; "
            "--no-cache, or cache=None, says that this is meant",
            CacheWarning,
            stacklevel=3,
        )
    store = Store(Path(tempfile.mkdtemp(prefix="clew-")))
    weakref.finalize(store, shutil.rmtree, store.folder, ignore_errors=True)
    return store


def hash_frame(pixels: NDArray[Any] | None) -> bytes:
    """A digest of an array's content, shape and type."""
    if pixels is None:
        return b""
    whole = hashlib.blake2b(
        f"{pixels.dtype.str}{pixels.shape}".encode(), digest_size=20
    )
    whole.update(np.ascontiguousarray(pixels).data)
    return whole.digest()


def hash_parts(parts: Iterable[bytes]) -> str:
    """One name for several parts, in this order."""
    whole = hashlib.blake2b(digest_size=20)
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()


def _unwritable(folder: Path) -> str | None:
    """Why nothing can be written there; None if it can. Only a try tells: a drive may be read-only or full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _single(values: NDArray[Any]) -> NDArray[np.float32]:
    """Seven digits are more than any measurement has, and half the space."""
    return values.astype(np.float32)
