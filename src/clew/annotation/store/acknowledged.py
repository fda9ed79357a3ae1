"""A small file beside an open store that tells of damage which SQLite cannot see.

A flipped byte in the log of a killed process, or a log that went missing, look to SQLite like changes that were never
finished: it goes on from the state before, and answers that were acknowledged are gone without a word
(tests/annotation/store/test_store_damage.py fails without this file for both).
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from clew.annotation.store.history import chained
from clew.annotation.store.schema import Content
from clew.errors import StoreError


class Beacon:
    """A small file beside an open store: who has it open, and the last revision that was acknowledged.

    SQLite takes a damaged end of its log for one that was never finished, and goes on from the state before; this file
    tells that there was more. It is written after each commit and never synced, so that it is at most behind.
    """

    SIZE = 300

    def __init__(self, store: Path) -> None:
        self.path = beside(store, ".lock")
        self._id = ""
        self._file: Any = None

    def read(self) -> dict[str, Any]:
        """What it shows; nothing if it is not there or unreadable, for the store itself is what counts."""
        try:
            with self.path.open("rb") as file:
                text, _, check = file.read(self.SIZE).decode().strip().rpartition(" ")
            return dict(json.loads(text)) if check == chained("", text) else {}
        except (OSError, ValueError):
            return {}

    def hold(self, content: Content) -> None:
        """Show from now on that this process has the store; it must have the store's lock."""
        self._id = content.id
        self.path.touch()
        self._file = self.path.open("r+b", buffering=0)
        self.show(content.history.revision, content.digests[-1])

    def show(self, revision: int, digest: str) -> None:
        """Show the last revision. If that cannot be written, the beacon stays behind, which does no harm."""
        text = json.dumps(
            {
                "pid": os.getpid(),
                "store": self._id,
                "revision": revision,
                "digest": digest,
            }
        )
        with contextlib.suppress(OSError):
            self._file.seek(0)
            self._file.write(
                f"{text} {chained('', text)}".ljust(self.SIZE - 1).encode() + b"\n"
            )

    def release(self, *, remove: bool) -> None:
        """Show no longer; what it shows is of no more use once all is in the store's own file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(OSError):
                if remove:
                    self.path.unlink(missing_ok=True)

    def holder(self) -> str:
        """Who has the store open, in words."""
        pid = self.read().get("pid")
        if pid == os.getpid():
            return "this process already"
        return "another process" if pid is None else f"process {pid}"

    def require(self, content: Content) -> None:
        """Raise a StoreError if the store lacks revisions that were acknowledged."""
        seen = self.read()
        if seen.get("store") != content.id:  # of a store that was here before
            return
        there = (
            content.digests[seen["revision"]]
            if seen["revision"] < len(content.digests)
            else None
        )
        if there != seen["digest"]:
            raise StoreError(
                f"the file is damaged, or an older copy: it ends with revision {content.history.revision}, but "
                f"revision {seen['revision']} was written to it. Restore it with all files beside it; or, to go on "
                f"without what is missing, delete {self.path.name}"
            )


def beside(path: Path, suffix: str) -> Path:
    """A file that belongs to a store."""
    return path.with_name(path.name + suffix)
