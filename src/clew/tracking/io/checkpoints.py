"""Solved blocks of a run that is under way, in a hidden folder beside its output, named by what they follow from.

A run that was killed goes on by the same command: what is there is not solved again. Content names them, so that other
weights, pixels or settings never meet a stale one; a damaged file is noticed by its checksum and solved anew. Several
processes may write at once. When the result is whole, the folder goes.
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
    """A folder of blocks. It is made when the first is kept."""

    folder: Path

    @classmethod
    def for_output(cls, output: Path) -> Checkpoints:
        """Those of a run that writes into a folder."""
        return cls(output.absolute() / FOLDER)

    def save_block(self, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep a block, whole or not at all."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: cannot be made ({error.strerror}); expected a folder for blocks"
            ) from error
        storage.write_document(self._path(key), KIND, {"key": key}, arrays)

    def load_block(self, key: str) -> Mapping[str, NDArray[Any]] | None:
        """A block that was kept; None if there is none, or if it is damaged."""
        try:
            document = storage.read_document(self._path(key), KIND)
        except StoreError:
            return None
        return document.arrays if document.meta.get("key") == key else None

    def __len__(self) -> int:
        return len(list(self.folder.glob(f"*{SUFFIX}"))) if self.folder.is_dir() else 0

    def delete_all(self) -> None:
        """Remove the folder, and the one above it if nothing else was ever written there."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"
