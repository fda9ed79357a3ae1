"""A small file beside an open store that detects damage which SQLite cannot see.

If a byte flips in the log of a killed process, or the log is lost, SQLite takes it for
a change that was never finished: it continues from the state before, and acknowledged
answers are gone without a word (tests/annotation/store/test_store_damage.py fails
without this file in both cases).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.annotation.store.history import chain_digest
from clew.errors import StoreError

FILE_SIZE = 300


class AcknowledgedMarker:
    """Says which process has a store open, and the last acknowledged revision.

    It is written after each commit and never synced, so that it is at most behind.

    Parameters
    ----------
    store : Path
        Of the store; the marker is beside it.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self.path = path_beside(store, ".lock")
        self._store_id = ""
        self._file: Any = None

    def read(self) -> dict[str, Any]:
        """Return its content; empty if it is missing or unreadable."""
        try:
            with self.path.open("rb") as file:
                content = file.read(FILE_SIZE).decode().strip()
            text, _, digest = content.rpartition(" ")
            return dict(json.loads(text)) if digest == chain_digest("", text) else {}
        except (OSError, ValueError):
            return {}

    def acquire(self, store_id: str, revision: int, digest: str) -> None:
        """Write from now on; this process must have the lock of the store."""
        self._store_id = store_id
        self.path.touch(stat.S_IMODE(self._store.stat().st_mode))
        self._file = self.path.open("r+b", buffering=0)
        self.write(revision, digest)

    def write(self, revision: int, digest: str) -> None:
        """Write the last revision; if that fails, the marker stays behind."""
        content = {
            "pid": os.getpid(),
            "store": self._store_id,
            "revision": revision,
            "digest": digest,
        }
        text = json.dumps(content)
        line = f"{text} {chain_digest('', text)}".ljust(FILE_SIZE - 1)
        with contextlib.suppress(OSError):
            self._file.seek(0)
            self._file.write(line.encode() + b"\n")

    def release(self, *, remove: bool) -> None:
        """Stop writing; `remove` the file if the store itself has everything."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def describe_holder(self) -> str:
        """Return in words which process has the store open."""
        pid = self.read().get("pid")
        if pid == os.getpid():
            return "this process already"
        return "another process" if pid is None else f"process {pid}"

    def check(self, store_id: str, digests: Sequence[str]) -> None:
        """Raise StoreError if the store lacks acknowledged revisions.

        Parameters
        ----------
        store_id : str
        digests : sequence of str
            Of the store, one for each revision from 0.
        """
        marker = self.read()
        if marker.get("store") != store_id:  # of a store that was here before
            return
        revision = marker["revision"]
        last = len(digests) - 1
        if revision <= last and digests[revision] == marker["digest"]:
            return
        raise StoreError(
            f"the file is damaged, or an older copy: it ends with revision {last}, but "
            f"revision {revision} was written to it. Restore it with all files beside "
            f"it; or, to continue without what is missing, delete {self.path.name}"
        )


def path_beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to a store."""
    return path.with_name(path.name + suffix)
