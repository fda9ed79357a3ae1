"""The SQLite file of a store: its tables, creating, checking and opening it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from clew._version import __version__
from clew.annotation.store.acknowledged import AcknowledgedMarker, path_beside
from clew.annotation.store.history import Entry, History, chain_digest
from clew.annotation.store.movie_identity import MovieIdentity
from clew.errors import StoreError

SCHEMA = 3
"""2: answers have authors and fingerprints of their cells, and any answer can be
undone. 3: mask edits are entries of the history. Older stores are read too."""
APPLICATION_ID = int.from_bytes(b"clew")
TABLES = (
    "CREATE TABLE history (revision INTEGER PRIMARY KEY, entry TEXT NOT NULL, "
    "digest TEXT NOT NULL)",
    "CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT NOT NULL, "
    "digest TEXT NOT NULL) WITHOUT ROWID",
    # One row: whose history it is, and where the chain of digests ends.
    "CREATE TABLE store (id TEXT NOT NULL, movie TEXT NOT NULL, "
    "revision INTEGER NOT NULL, digest TEXT NOT NULL)",
)
BUSY_SECONDS = 0.5
"""To wait for a process that only reads the file, or is about to close it."""
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
ENVIRONMENT_CODES = BUSY_CODES | {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
}
"""Of errors that say nothing about the content of the file."""
PRIVATE = 0o600
"""Mode of a new store: answers and their authors are for its owner to share. SQLite
gives its log and its journal the mode of the file that they belong to."""

Execute = Callable[[str], Iterable[tuple[Any, ...]]]
StillMatches = Callable[[Entry], bool]
"""Returns whether the cells of an answer look as they did then."""


class StoreContent:
    """Everything in a store, checked; almost any error means a changed byte."""

    def __init__(self, execute: Execute) -> None:
        schema = execute("SELECT sql FROM sqlite_master ORDER BY name")
        if tuple(sql for (sql,) in schema) != TABLES:
            raise ValueError("its tables have changed")
        ((verdict,),) = execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            raise ValueError(verdict)
        ((self.id, movie, revision, digest),) = execute("SELECT * FROM store")
        self.movie = MovieIdentity.from_json(json.loads(movie))
        self.history = History()
        self.digests = [chain_digest(self.id, movie)]
        """One for each revision from 0, the empty history."""
        self._read_history(execute)
        if (revision, digest) != (self.history.revision, self.digests[-1]):
            raise ValueError(f"revision {self.history.revision} is not the last one")
        self.settings: dict[str, str] = {}
        for name, text, digest in execute("SELECT * FROM note"):
            if digest != chain_digest(name, text):
                raise ValueError(f"the setting {name!r} has changed")
            self.settings[name] = text

    def _read_history(self, execute: Execute) -> None:
        rows = execute("SELECT * FROM history ORDER BY revision")
        for revision, line, digest in rows:
            self.digests.append(chain_digest(self.digests[-1], line))
            if revision != self.history.revision + 1 or digest != self.digests[-1]:
                raise ValueError(f"revision {revision} of the history has changed")
            self.history.append(self.history.parse(line))


def needs_creation(path: Path, marker: AcknowledgedMarker) -> bool:
    """Return whether there is no store, or one whose creation was interrupted."""
    # There is a journal only while a store is created.
    if path_beside(path, "-journal").exists():
        return True
    if path.exists() and path.stat().st_size:
        return False
    log = path_beside(path, "-wal")
    has_log = log.exists() and log.stat().st_size
    if has_log or marker.read().get("revision"):
        state = "empty" if path.exists() else "gone"
        raise StoreError(
            f"the file is {state}, but files beside it show that it had annotations; "
            f"restore it, or, to start again, delete {log.name} and {marker.path.name}"
        )
    return True


def create_store(path: Path, movie: MovieIdentity) -> None:
    """Write an empty store, in one transaction that leaves no log."""
    store_id = uuid4().hex
    described = json.dumps(movie.to_json())
    digest = chain_digest(store_id, described)
    path.touch(PRIVATE)
    with contextlib.closing(connect(path, "rw")) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_master")
        if tables.fetchone() == (0,):
            for table in TABLES:
                connection.execute(table)
            connection.execute(
                "INSERT INTO store VALUES (?, ?, 0, ?)", (store_id, described, digest)
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")


def read_store(
    path: Path,
    movie: MovieIdentity,
    marker: AcknowledgedMarker,
    still_matches: StillMatches | None,
) -> StoreContent:
    """Read and check a store without writing.

    Parameters
    ----------
    path : Path
    movie : MovieIdentity
        The movie that it must belong to.
    marker : AcknowledgedMarker
    still_matches : callable, optional
        If it is true for some answer, the masks of the movie may have changed.

    Raises
    ------
    StoreError
        If the file is damaged, newer, no store, or of another movie.
    """
    try:
        with contextlib.closing(connect(path, "ro")) as connection:
            _check_kind(connection.execute)
            content = StoreContent(connection.execute)
    except Exception as error:
        if isinstance(error, StoreError) or error_code(error) in ENVIRONMENT_CODES:
            raise
        raise StoreError(
            f"the file is damaged or not a store ({error}); it was not changed, "
            "restore it from a copy"
        ) from error
    marker.check(content.id, content.digests)
    has_known_cells = False
    if still_matches is not None:
        entries = content.history.active_entries()
        has_known_cells = not entries or any(map(still_matches, entries))
    content.movie.check_same(movie, has_known_cells)
    return content


def _check_kind(execute: Execute) -> None:
    """Raise StoreError if the file is no store, or a newer one."""
    ((application,),) = execute("PRAGMA application_id")
    ((schema,),) = execute("PRAGMA user_version")
    if application != APPLICATION_ID:
        raise StoreError("is an SQLite file, but not a store of clew's annotations")
    if schema > SCHEMA:
        raise StoreError(
            f"it has schema {schema}, but clew {__version__} reads up to {SCHEMA}; "
            "open it with a newer clew"
        )


def start_writing(connection: sqlite3.Connection, content: StoreContent) -> None:
    """Check that nothing changed since it was read, and switch to a log."""
    present = connection.execute("SELECT revision, digest FROM store").fetchone()
    connection.execute("COMMIT")
    if present != (content.history.revision, content.digests[-1]):
        raise StoreError("another process changed it at this moment; open it again")
    # An older clew may not know what is written from now on.
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StoreError(
            f"SQLite cannot keep a log on this drive (its mode is {mode}); choose a "
            "local folder"
        )


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection: read-only, or in an exclusive synchronous transaction.

    Parameters
    ----------
    path : Path
    mode : {"ro", "rw"}
    """
    statements = ["PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"]
    if mode != "ro":
        # Exclusive first: the first access decides how SQLite shares the file.
        statements = [
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA synchronous = FULL",
            "PRAGMA fullfsync = ON",
            *statements,
            "BEGIN EXCLUSIVE",
        ]
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=0,
            check_same_thread=False,
        )
        try:
            for statement in statements:
                connection.execute(statement)
            return connection
        except BaseException as error:
            connection.close()
            if error_code(error) not in BUSY_CODES or time.monotonic() > deadline:
                raise
        # Two that ask at once block each other; a random pause lets one go first.
        time.sleep(random.uniform(0.01, 0.05))


@contextlib.contextmanager
def name_file_in_errors(path: str | Path, note: str = "") -> Iterator[None]:
    """Raise errors of SQLite and of the system as StoreErrors that name the file.

    Parameters
    ----------
    path : str or Path
    note : str
        Added to the message.
    """
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except sqlite3.Error as error:
        if error_code(error) in BUSY_CODES:
            marker = AcknowledgedMarker(Path(os.path.realpath(path)))
            raise StoreError(
                f"{path}: {marker.describe_holder()} has it open; close it there first"
            ) from error
        hint = ""
        if error_code(error) in ENVIRONMENT_CODES:
            hint = "; is the drive full or read-only?"
        raise StoreError(f"{path}: cannot be used ({error}){hint}{note}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"{path}: cannot be opened ({reason}){note}") from error


def error_code(error: BaseException) -> int | None:
    """Return the primary code of an SQLite error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
