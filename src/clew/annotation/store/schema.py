"""What the tables of an annotation store hold, and the check that it is what was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

from clew._version import __version__
from clew.annotation.store.history import History, chained
from clew.annotation.store.movie_identity import MovieIdentity
from clew.errors import StoreError

SCHEMA = 3
"""2: answers have authors and the looks of their cells, and any answer can be undone, not only the last. 3: edits of
masks are entries of the history. What an older one holds is read as it is."""
APPLICATION = int.from_bytes(b"clew")
TABLES = (
    "CREATE TABLE history (revision INTEGER PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE note (name TEXT PRIMARY KEY, value TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID",
    # one row: whose history it is, and where the chain of its digests ends
    "CREATE TABLE store (id TEXT NOT NULL, movie TEXT NOT NULL, revision INTEGER NOT NULL, digest TEXT NOT NULL)",
)
Execute = Callable[[str], Iterable[tuple[Any, ...]]]


def beginning(movie: MovieIdentity) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The statements, with their values, that make an empty store."""
    yield from ((table, ()) for table in TABLES)
    name, described = uuid4().hex, json.dumps(movie.to_json())
    yield (
        "INSERT INTO store VALUES (?, ?, 0, ?)",
        (name, described, chained(name, described)),
    )
    yield f"PRAGMA application_id = {APPLICATION}", ()
    yield f"PRAGMA user_version = {SCHEMA}", ()


def check_kind(execute: Execute) -> None:
    """Refuse what is not a store, or a newer one."""
    ((application,),) = execute("PRAGMA application_id")
    ((schema,),) = execute("PRAGMA user_version")
    if application != APPLICATION:
        raise StoreError("is an SQLite file, but not a store of clew's annotations")
    if schema > SCHEMA:
        raise StoreError(
            f"it has schema {schema}, this clew {__version__} knows up to {SCHEMA}; a newer clew wrote it, so open "
            "it with a newer clew"
        )


class Content:
    """All that a store holds. Reading it raises nearly anything if a byte was changed, and only then."""

    def __init__(self, execute: Execute) -> None:
        if (
            tuple(
                sql for (sql,) in execute("SELECT sql FROM sqlite_master ORDER BY name")
            )
            != TABLES
        ):
            raise ValueError("its tables are not as they were made")
        ((verdict,),) = execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            raise ValueError(verdict)
        ((self.id, movie, revision, last),) = execute("SELECT * FROM store")
        self.movie = MovieIdentity.from_json(json.loads(movie))
        self.history = History()
        self.digests = [chained(self.id, movie)]
        """One for each revision from 0, the empty history."""
        for number, line, digest in execute("SELECT * FROM history ORDER BY revision"):
            self.digests.append(chained(self.digests[-1], line))
            if number != self.history.revision + 1 or digest != self.digests[-1]:
                raise ValueError(
                    f"revision {number} of the history is not what was written"
                )
            self.history.append(self.history.parse(line))
        if (revision, last) != (self.history.revision, self.digests[-1]):
            raise ValueError(
                f"revision {self.history.revision} of the history is not the last that was written"
            )
        self.notes: dict[str, str] = {}
        for name, text, digest in execute("SELECT * FROM note"):
            if digest != chained(name, text):
                raise ValueError(f"the note {name!r} is not what was written")
            self.notes[name] = text
