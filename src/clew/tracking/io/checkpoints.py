"""Solved blocks of a running command, so that an interrupted run can continue.

Blocks are in a hidden folder beside the output, named by a digest of everything they
depend on: other weights, pixels or settings never read a stale one. A damaged file
fails its checksum and is solved again. Several processes may write at once. When the
result is complete, the folder is removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from clew.errors import StoreError
from clew.utils import storage

FOLDER = ".blocks"
KIND = "block"
SUFFIX = ".clew"


@dataclass(frozen=True)
class Checkpoints:
    """A folder of blocks; it is made when the first is saved."""

    folder: Path

    @classmethod
    def for_output(cls, output: Path) -> Checkpoints:
        """Checkpoints of a run that writes into a folder."""
        return cls(output.absolute() / FOLDER)

    def save_block(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save a block as a whole."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.folder} cannot be made ({error.strerror}); expected a folder "
                "that can be written"
            ) from error
        storage.write_document(self._get_path(key), KIND, {"key": key}, arrays)

    def load_block(self, key: str) -> Mapping[str, NDArray[Any]] | None:
        """Load a block; None if there is none, or if it is damaged."""
        try:
            document = storage.read_document(self._get_path(key), KIND)
        except StoreError:
            return None
        return document.arrays if document.meta.get("key") == key else None

    def __len__(self) -> int:
        return len(list(self.folder.glob(f"*{SUFFIX}"))) if self.folder.is_dir() else 0

    def delete_all(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _get_path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"
