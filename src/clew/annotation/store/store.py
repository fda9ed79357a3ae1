"""One movie's annotations in one SQLite file, which nothing that was answered ever leaves.

Each change is a row of the history, committed and synced before it is acknowledged. Each row's digest vouches for all
rows before it, and a separate row for the last, so that a changed byte is noticed on opening. Opening checks through a
connection that cannot write: a store that is damaged, newer or another movie's stays as it is, to the byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from clew.annotation.answers import Answer, LabelsOf
from clew.annotation.error_estimate import Check
from clew.annotation.mask_edits import Edit
from clew.annotation.store.acknowledged import Beacon, beside
from clew.annotation.store.history import (
    NOBODY,
    Act,
    Author,
    Contradiction,
    Entry,
    StaleRevision,
    chained,
)
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.schema import Content
from clew.annotation.store.sqlite import (
    Holds,
    begin,
    connect,
    is_unwritten,
    prepare,
    read_checked,
    reported,
)
from clew.errors import InputError, StoreError
from clew.tracking.events import Annotations, Event

MAX_KEY = 200


def noted_in(path: str | Path, name: str) -> Any:
    """What a store that is not open has noted under a name; None if there is none, or it cannot be read."""
    with contextlib.suppress(sqlite3.Error, OSError, StoreError, ValueError):
        where = Path(os.path.realpath(path))
        if where.is_file() and where.stat().st_size:
            with contextlib.closing(connect(where, "ro")) as connection:
                found = connection.execute(
                    "SELECT value FROM note WHERE name = ?", (name,)
                ).fetchone()
            return None if found is None else json.loads(found[0])
    return None


class Store:
    """The annotations of a movie, with all of their history; one process at a time may have it open.

    Every change is on disk when its call returns. It may be used from several threads.
    """

    def __init__(
        self,
        path: Path,
        movie: MovieIdentity,
        labels_of: LabelsOf | None,
        content: Content,
        connection: sqlite3.Connection,
        beacon: Beacon,
    ) -> None:
        self.path, self.movie = path, movie
        self._labels_of, self._connection, self._beacon = labels_of, connection, beacon
        self.id = content.id
        """Of this store, made when it was begun: the same for no other one."""
        self._history, self._digests, self._notes = (
            content.history,
            content.digests,
            content.notes,
        )
        self._annotations: tuple[int, Annotations] | None = None
        self._turn = threading.RLock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        movie: MovieIdentity,
        labels_of: LabelsOf | None = None,
        holds: Holds | None = None,
    ) -> Self:
        """Open the store of a movie for writing, or begin one; refused with a StoreError if anything is wrong with it.

        Where `labels_of(t)` gives the labels of a frame, answers about other cells are refused. `holds` tells whether
        the cells of an answer still look as they did: a movie whose masks were changed is still the same if they do
        for some answer.
        """
        with reported(path):
            where = Path(
                os.path.realpath(path)
            )  # SQLite follows links, so the files beside it are there
            if where.exists() and not where.is_file():
                raise StoreError("is not a file")
            beacon = Beacon(where)
            where.parent.mkdir(parents=True, exist_ok=True)
            if is_unwritten(where, beacon):
                begin(where, movie)
            content = read_checked(where, movie, beacon, holds)
            connection = connect(where, "rw")
            try:
                prepare(connection, content)
                beacon.hold(content)
            except BaseException:
                connection.close()
                raise
            return cls(where, movie, labels_of, content, connection, beacon)

    def close(self) -> None:
        """Give the file free for others; it then holds everything, and nothing is left beside it."""
        with self._turn:
            complete = False
            with contextlib.suppress(
                sqlite3.Error
            ):  # a full disk; the log stays, and is as good
                complete = (
                    self._connection.execute(
                        "PRAGMA wal_checkpoint(TRUNCATE)"
                    ).fetchone()[0]
                    == 0
                )
            self._beacon.release(
                remove=complete
            )  # as long as the lock is held, so that it is nobody else's
            with contextlib.suppress(OSError):
                if complete:
                    beside(self.path, "-shm").unlink(missing_ok=True)
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many annotations hold."""
        return len(self._history)

    @property
    def revision(self) -> int:
        """How many changes were accepted: answers, and undoing and redoing them."""
        return self._history.revision

    @property
    def can_undo(self) -> bool:
        """If there is an answer to take back."""
        return self._history.to_undo() is not None

    @property
    def can_redo(self) -> bool:
        """If there is an answer to bring back."""
        return self._history.to_redo() is not None

    def can(self, act: Act, others: Collection[str] = ()) -> bool:
        """If there is an answer to undo or redo, other than those that were given in `others`."""
        which = self._history.to_undo if act is Act.UNDO else self._history.to_redo
        return which(others) is not None

    def has_key(self, key: str) -> bool:
        """Return whether a change with this key is stored."""
        return key in self._history.by_key

    def contradicting(self, answer: Answer) -> list[Answer]:
        """The answers that hold now and cannot hold beside this one."""
        with self._turn:
            return [entry.answer for entry in self._history.contradicting(answer)]

    def holding(self) -> list[Entry]:
        """The answers that hold, in the order of answering."""
        with self._turn:
            return self._history.holding()

    def annotations(self) -> Annotations:
        """The annotations that hold, in the order of answering; `row` is the revision of the answer."""
        with self._turn:
            if self._annotations is None or self._annotations[0] != self.revision:
                self._annotations = self.revision, self._history.annotations()
            return self._annotations[1]

    def history(self) -> list[Entry]:
        """Everything that was ever answered, undone and redone; entry i has revision i + 1."""
        return self._history.entries.copy()

    def entry(self, revision: int) -> Entry:
        """The change that led to this revision."""
        return self._history.entries[range(1, self.revision + 1).index(revision)]

    def answer(
        self,
        frame: int,
        event: Event,
        sources: Sequence[int],
        targets: Sequence[int],
        happened: bool = True,
        *,
        key: str,
        revision: int | None = None,
        replace: bool = False,
        author: Author = NOBODY,
        looks: Sequence[str] = (),
        check: Check | None = None,
    ) -> int:
        """Keep that an event happened or did not; the revision that this gives.

        A `key` that was given before makes this the same answer, which is kept once. With `revision`, the answer is
        refused with StaleRevision if that is not the present one. A Contradiction to what holds is refused unless
        told to `replace` it. What holds already is not kept again, unless its cells look otherwise now. `looks` are
        those of the cells, `check` is what the answer says of the predictions before it.
        """
        answer = Answer.of(frame, event, sources, targets, happened)
        answer.check(self.movie.n_frames, self._labels_of)
        with self._turn:
            if (earlier := self._earlier(key, Act.ANSWER, revision)) is not None:
                if earlier.change != answer:
                    raise InputError(
                        f"the key {key!r} was given to {earlier.change}, it cannot be that of {answer}"
                    )
                return earlier.revision
            known = self._history.same(answer)
            if known is not None and known.looks in (tuple(looks), ()):
                return self.revision
            clashes = self._history.contradicting(answer)
            if clashes and not replace:
                raise Contradiction(answer, clashes)
            new = self.revision + 1
            replaced = tuple(
                entry.revision
                for entry in ([*clashes, known] if known is not None else clashes)
            )
            now = datetime.now(UTC)
            return self._accept(
                Entry(
                    new,
                    Act.ANSWER,
                    answer,
                    new,
                    key,
                    now,
                    replaced,
                    author,
                    tuple(looks),
                    check,
                )
            )

    def answer_many(
        self,
        answers: Sequence[tuple[Answer, Sequence[str]]],
        *,
        key: str,
        author: Author = NOBODY,
    ) -> int:
        """Keep answers, each with the looks of its cells, that neither hold already nor contradict what does.

        All of them or none, in one commit, undone as one; the number of those that were new. The same key again keeps
        nothing. Of answers that contradict each other, the first counts.
        """
        with self._turn:
            now, new, taken = datetime.now(UTC), list[Entry](), set[object]()
            batch = self.revision + 1
            for answer, looks in (
                answers if f"{key}.0" not in self._history.by_key else ()
            ):
                answer.check(self.movie.n_frames, self._labels_of)
                about = {answer.fact, *(answer.cells() if answer.happened else ())}
                if (
                    self._history.same(answer)
                    or self._history.contradicting(answer)
                    or taken & about
                ):
                    continue
                taken |= about
                at = self.revision + len(new) + 1
                name = f"{key}.{len(new)}"
                new.append(
                    Entry(
                        at,
                        Act.ANSWER,
                        answer,
                        at,
                        name,
                        now,
                        (),
                        author,
                        tuple(looks),
                        batch=batch,
                    )
                )
            if new:
                self._accept(*new)
            return len(new)

    def edit(
        self,
        make: Callable[[], Edit],
        *,
        key: str | None = None,
        revision: int | None = None,
        author: Author = NOBODY,
    ) -> int:
        """Keep an edit of masks; returns its revision. The same key again does nothing, and makes no edit.

        `make` makes it from the masks as they are: nothing else changes them meanwhile.
        """
        with self._turn:
            if (earlier := self._earlier(key, Act.EDIT, revision)) is not None:
                return earlier.revision
            edit, new = make(), self.revision + 1
            if not 0 <= edit.frame < self.movie.n_frames:
                raise InputError(
                    f"{edit}, but the movie has {self.movie.n_frames} frames, which count from 0"
                )
            return self._accept(
                Entry(new, Act.EDIT, edit, new, key, datetime.now(UTC), author=author)
            )

    def edits(self) -> tuple[Edit, ...]:
        """The edits of masks that hold, in their order."""
        with self._turn:
            return self._history.edits()

    def mask_revisions(self) -> dict[int, int]:
        """The last revision that changed the masks of a frame, for each frame in which there was one."""
        with self._turn:
            return dict(self._history.mask_revisions)

    def labels_used(self, frame: int) -> list[int]:
        """Labels that edits of a frame ever gave to cells."""
        with self._turn:
            return self._history.labels_used(frame)

    def undo(
        self,
        *,
        key: str | None = None,
        revision: int | None = None,
        author: Author = NOBODY,
        others: Collection[str] = (),
    ) -> int | None:
        """Take the last answer back, and bring back what it replaced; None if there is nothing to take back.

        Answers that were given at once are taken back at once. Those that were given in one of the `others`, pages that
        are open, are theirs to take back.
        """
        return self._step(
            Act.UNDO, lambda: self._history.to_undo(others), key, revision, author
        )

    def redo(
        self,
        *,
        key: str | None = None,
        revision: int | None = None,
        author: Author = NOBODY,
        others: Collection[str] = (),
    ) -> int | None:
        """Bring back the answer that was undone last; None if there is none, or another was given since."""
        return self._step(
            Act.REDO, lambda: self._history.to_redo(others), key, revision, author
        )

    def set_setting(self, name: str, value: Any) -> None:
        """Keep a small setting, anything that JSON can hold; it replaces an earlier one of this name."""
        try:
            text = json.dumps(value, allow_nan=False)
            f"{name}{text}".encode()
        except (TypeError, ValueError) as error:
            raise InputError(f"the note {name!r} cannot be kept: {error}") from error
        with self._turn:
            with self._transaction() as execute:
                execute(
                    "INSERT OR REPLACE INTO note VALUES (?, ?, ?)",
                    (name, text, chained(name, text)),
                )
            self._notes[name] = text

    def get_setting(self, name: str, default: Any = None) -> Any:
        """What was noted under this name."""
        text = self._notes.get(name)
        return default if text is None else json.loads(text)

    def _step(
        self,
        act: Act,
        which: Callable[[], Entry | None],
        key: str | None,
        revision: int | None,
        author: Author,
    ) -> int | None:
        with self._turn:
            if (earlier := self._earlier(key, act, revision)) is not None:
                return earlier.revision
            if (last := which()) is None:
                return None
            now, those, first = (
                datetime.now(UTC),
                self._history.together(last, act),
                self.revision + 1,
            )
            names = [
                *[None] * (len(those) - 1),
                key,
            ]  # the last is what the caller is told
            return self._accept(
                *(
                    Entry(first + n, act, one.change, one.of, name, now, author=author)
                    for n, (one, name) in enumerate(zip(those, names, strict=True))
                )
            )

    def _earlier(self, key: str | None, act: Act, revision: int | None) -> Entry | None:
        """The change that has this key; if there is none, a new one must be asked for at the present revision."""
        earlier = None
        if key is not None:
            if (
                not isinstance(key, str)
                or not 0 < len(key) <= MAX_KEY
                or not key.isprintable()
            ):
                raise InputError(
                    f"the key of a change is {key!r}; expected 1 to {MAX_KEY} printable characters"
                )
            earlier = self._history.by_key.get(key)
        if earlier is not None and earlier.act is not act:
            raise InputError(
                f"the key {key!r} was that of {earlier.act} before, it cannot be that of {act}"
            )
        if earlier is None and revision is not None and revision != self.revision:
            raise StaleRevision(revision, self.revision)
        return earlier

    def _accept(self, *entries: Entry) -> int:
        """Commit entries, and only then let them hold."""
        lines = [entry.to_line() for entry in entries]
        digests = list(accumulate(lines, chained, initial=self._digests[-1]))[1:]
        last = entries[-1].revision
        with self._transaction() as execute:
            for entry, line, digest in zip(entries, lines, digests, strict=True):
                execute(
                    "INSERT INTO history VALUES (?, ?, ?)",
                    (entry.revision, line, digest),
                )
            execute("UPDATE store SET revision = ?, digest = ?", (last, digests[-1]))
        for entry in entries:
            self._history.append(entry)
        self._digests += digests
        self._beacon.show(last, digests[-1])
        return last

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., object]]:
        """All or nothing; on disk at its end."""
        with reported(self.path, "; what was there before is untouched"):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
