"""Opening the SQLite file of a store: begun whole, checked before it is written to, errors with the file's name."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from clew.annotation.store.acknowledged import Beacon, beside
from clew.annotation.store.history import Entry
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.schema import SCHEMA, Content, beginning, check_kind
from clew.errors import StoreError

Holds = Callable[[Entry], bool]
PATIENCE = 0.5
"""Seconds to wait for a process that only looks at the file, or is about to close it."""
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
CIRCUMSTANCES = BUSY | {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
}
"""Codes of errors that say nothing about what the file holds."""


def is_unwritten(path: Path, beacon: Beacon) -> bool:
    """If a store is to be begun: there is none, or one that its maker did not live to finish."""
    if beside(path, "-journal").exists():  # written only while a store is begun
        return True
    if path.exists() and path.stat().st_size:
        return False
    log = beside(path, "-wal")
    if (log.exists() and log.stat().st_size) or beacon.read().get("revision"):
        raise StoreError(
            f"the file is {'empty' if path.exists() else 'gone'}, but what lies beside it tells that it had "
            f"annotations; restore it, or, to begin anew, delete {log.name} and {beacon.path.name}"
        )
    return True


def begin(path: Path, movie: MovieIdentity) -> None:
    """Write an empty store, in one transaction of the kind that leaves no log beside the file."""
    with contextlib.closing(connect(path, "rwc")) as connection:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement, values in beginning(movie):
                connection.execute(statement, values)
        connection.execute("COMMIT")


def read_checked(
    path: Path, movie: MovieIdentity, beacon: Beacon, holds: Holds | None
) -> Content:
    """What the file holds, if it is a whole store of this movie; nothing is written."""
    try:
        with contextlib.closing(connect(path, "ro")) as connection:
            check_kind(connection.execute)
            content = Content(connection.execute)
    except Exception as error:
        if isinstance(error, StoreError) or code(error) in CIRCUMSTANCES:
            raise
        words = f"the file is damaged or not a store ({error}); it was left as it is, restore it from a copy"
        raise StoreError(words) from error
    beacon.require(content)
    known = content.history.holding()
    content.movie.require(
        movie, holds is not None and (not known or any(map(holds, known)))
    )
    return content


def prepare(connection: sqlite3.Connection, content: Content) -> None:
    """See that all is as it was checked, and let SQLite write a log."""
    present = connection.execute("SELECT revision, digest FROM store").fetchone()
    connection.execute("COMMIT")
    if present != (content.history.revision, content.digests[-1]):
        raise StoreError("another process changed it at this moment; open it again")
    connection.execute(
        f"PRAGMA user_version = {SCHEMA}"
    )  # what is written from now on, an older clew may not know
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StoreError(
            f"SQLite cannot keep a log on this drive (its mode is {mode}); choose a local folder"
        )


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that cannot write, or one in a transaction, which keeps the lock and waits for the disk."""
    statements = ["PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"]
    if mode != "ro":
        # exclusive first of all, for the first look into the file decides how SQLite shares it
        settings = [
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA synchronous = FULL",
            "PRAGMA fullfsync = ON",
        ]
        statements = [*settings, *statements, "BEGIN EXCLUSIVE"]
    deadline = time.monotonic() + PATIENCE
    while True:
        address = f"{path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=0, check_same_thread=False
        )
        try:
            for statement in statements:
                connection.execute(statement)
            return connection
        except BaseException as error:
            connection.close()
            if code(error) not in BUSY or time.monotonic() > deadline:
                raise
        # two that ask at once stand in each other's way: both step back, and one comes back earlier
        time.sleep(random.uniform(0.01, 0.05))


@contextlib.contextmanager
def reported(path: str | Path, comfort: str = "") -> Iterator[None]:
    """SQLite's and the system's errors as StoreErrors that name the file."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except sqlite3.Error as error:
        if code(error) in BUSY:
            holder = Beacon(Path(os.path.realpath(path))).holder()
            raise StoreError(
                f"{path}: {holder} has it open; one at a time may, so close it there first"
            ) from error
        hint = (
            "; is the drive full or read-only?" if code(error) in CIRCUMSTANCES else ""
        )
        raise StoreError(f"{path}: cannot be used ({error}){hint}{comfort}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"{path}: cannot be opened ({reason}){comfort}") from error


def code(error: BaseException) -> int | None:
    """The primary code of an error of SQLite's."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
