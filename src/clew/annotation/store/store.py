"""The annotations of one movie in one SQLite file; nothing is ever removed from it.

Each change is a row of the history, committed and synced before it is acknowledged.
The digest of each row covers all earlier rows, and a separate row has the last digest,
so that a changed byte is detected on opening. Opening checks the file through a
read-only connection: a store that is damaged, newer or of another movie is not changed
by a single byte.
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

from clew.annotation.answers import Answer
from clew.annotation.error_estimate import Check
from clew.annotation.mask_edits import Edit
from clew.annotation.store.acknowledged import AcknowledgedMarker, path_beside
from clew.annotation.store.history import (
    ANONYMOUS,
    Act,
    Author,
    Contradiction,
    Entry,
    StaleRevision,
    chain_digest,
)
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.sqlite import (
    StillMatches,
    StoreContent,
    connect,
    create_store,
    name_file_in_errors,
    needs_creation,
    read_store,
    start_writing,
)
from clew.errors import InputError, StoreError
from clew.tracking.events import Annotations, Event

MAX_KEY = 200


class Store:
    """The annotations of a movie with their history.

    One process at a time may have it open. Every change is on disk when its call
    returns. Several threads may use it. See `Store.open`.
    """

    def __init__(
        self,
        path: Path,
        movie: MovieIdentity,
        content: StoreContent,
        connection: sqlite3.Connection,
        marker: AcknowledgedMarker,
    ) -> None:
        self.path = path
        self.movie = movie
        self.id = content.id
        """Unique; made when the store was created."""
        self._connection = connection
        self._marker = marker
        self._history = content.history
        self._digests = content.digests
        self._settings = content.settings
        self._annotations: tuple[int, Annotations] | None = None
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        movie: MovieIdentity,
        still_matches: StillMatches | None = None,
    ) -> Self:
        """Open the store of a movie for writing; create it if there is none.

        Parameters
        ----------
        path : str or Path
        movie : MovieIdentity
        still_matches : callable, optional
            Returns whether the cells of an answer look as they did then. If they do
            for some answer, the masks of the movie may have changed.

        Raises
        ------
        StoreError
            If the file is damaged, in use, newer, or of another movie.
        """
        with name_file_in_errors(path):
            # SQLite follows links: the files beside the store are at the real path.
            real_path = Path(os.path.realpath(path))
            if real_path.exists() and not real_path.is_file():
                raise StoreError("is not a file")
            marker = AcknowledgedMarker(real_path)
            real_path.parent.mkdir(parents=True, exist_ok=True)
            if needs_creation(real_path, marker):
                create_store(real_path, movie)
            content = read_store(real_path, movie, marker, still_matches)
            connection = connect(real_path, "rw")
            try:
                start_writing(connection, content)
                revision = content.history.revision
                marker.acquire(content.id, revision, content.digests[-1])
            except BaseException:
                connection.close()
                raise
            return cls(real_path, movie, content, connection, marker)

    def close(self) -> None:
        """Release the file; it then has everything, and no files are left beside it."""
        with self._lock:
            is_complete = False
            # If the disk is full, the log stays; it is as good.
            with contextlib.suppress(sqlite3.Error):
                checkpoint = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                is_complete = checkpoint.fetchone()[0] == 0
            # While the lock is held, so that the marker is of no other process.
            self._marker.release(remove=is_complete)
            if is_complete:
                with contextlib.suppress(OSError):
                    path_beside(self.path, "-shm").unlink(missing_ok=True)
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def __len__(self) -> int:
        """Return the number of answers that hold."""
        return len(self._history)

    @property
    def revision(self) -> int:
        """The number of changes: answers, edits, undo and redo."""
        return self._history.revision

    def can(self, act: Act, other_pages: Collection[str] = ()) -> bool:
        """Return whether there is a change to undo or redo, except of other pages."""
        return self._history.find_next(act, other_pages) is not None

    def last_entry(self) -> Entry | None:
        """Return the last answer or edit that holds."""
        return self._history.find_next(Act.UNDO)

    def has_key(self, key: str) -> bool:
        """Return whether a change with this key is stored."""
        return key in self._history.by_key

    def find_contradicting(self, answer: Answer) -> list[Answer]:
        """Return the answers that hold and cannot hold beside this one."""
        with self._lock:
            entries = self._history.find_contradicting(answer)
            return [entry.answer for entry in entries]

    def active_entries(self) -> list[Entry]:
        """Return the answers that hold, in order."""
        with self._lock:
            return self._history.active_entries()

    def annotations(self) -> Annotations:
        """Return the annotations that hold; `row` is the revision of the answer."""
        with self._lock:
            if self._annotations is None or self._annotations[0] != self.revision:
                self._annotations = self.revision, self._history.annotations()
            return self._annotations[1]

    def history(self) -> list[Entry]:
        """Return all entries; entry i has revision i + 1."""
        return self._history.entries.copy()

    def entry(self, revision: int) -> Entry:
        """Return the entry that led to a revision."""
        return self._history.entries[range(1, self.revision + 1).index(revision)]

    def edits(self) -> tuple[Edit, ...]:
        """Return the mask edits that hold, in order."""
        with self._lock:
            return self._history.edits()

    def mask_revisions(self) -> dict[int, int]:
        """Return by frame the last revision that changed its masks."""
        with self._lock:
            return dict(self._history.mask_revisions)

    def used_labels(self, frame: int) -> list[int]:
        """Return the labels that edits of a frame ever gave to cells."""
        with self._lock:
            return self._history.used_labels(frame)

    # Changing

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
        author: Author = ANONYMOUS,
        looks: Sequence[str] = (),
        check: Check | None = None,
        others: Sequence[tuple[Answer, Sequence[str]]] = (),
    ) -> int:
        """Store that an event happened or did not; return the revision.

        Parameters
        ----------
        frame, event, sources, targets, happened
            See `Answer.of`.
        key : str
            Chosen by the client; the same key again is the same answer.
        revision : int, optional
            The present revision as the client knows it.
        replace : bool
            Whether the answer replaces those that it contradicts.
        author : Author
        looks : sequence of str
            Fingerprints of the cells. An answer that holds is stored again only if
            these changed.
        check : Check, optional
            What the answer says about the prediction in question.
        others : sequence of (Answer, fingerprints)
            What the answer says of other frame pairs; undo takes it back at once.

        Raises
        ------
        StaleRevision
            If `revision` is not the present one.
        Contradiction
            If the answer contradicts others and may not replace them.
        """
        answer = Answer.of(frame, event, sources, targets, happened)
        answer.check(self.movie.n_frames)
        with self._lock:
            earlier = self._find_earlier(key, Act.ANSWER, revision)
            if earlier is not None:
                if earlier.change != answer:
                    raise InputError(
                        f"the key {key!r} was given to {earlier.change}, it cannot be "
                        f"that of {answer}"
                    )
                return earlier.revision
            same = self._history.find_same(answer)
            if same is not None and same.looks in (tuple(looks), ()):
                return self.revision
            parts = [(answer, looks)]
            parts += [
                (other, fingerprints)
                for other, fingerprints in others
                if self._history.find_same(other) is None
            ]
            clashes = [self._history.find_contradicting(part) for part, _ in parts]
            if any(clashes) and not replace:
                raise Contradiction(answer, [one for part in clashes for one in part])
            if same is not None:
                clashes[0] = [*clashes[0], same]
            first = self.revision + 1
            now = datetime.now(UTC)
            entries = [
                Entry(
                    first + n,
                    Act.ANSWER,
                    part,
                    first + n,
                    f"{key}.{n}" if n else key,
                    now,
                    replaced=tuple(entry.revision for entry in clashes[n]),
                    author=author,
                    looks=tuple(fingerprints),
                    check=None if n else check,
                    batch=first if len(parts) > 1 else 0,
                )
                for n, (part, fingerprints) in enumerate(parts)
            ]
            return self._append_entries(*entries)

    def answer_many(
        self,
        answers: Sequence[tuple[Answer, Sequence[str]]],
        *,
        key: str,
        author: Author = ANONYMOUS,
    ) -> int:
        """Store several answers in one commit; undo takes them back at once.

        Parameters
        ----------
        answers : sequence of (Answer, fingerprints)
            Those that hold already, or contradict what holds or an earlier one of the
            list, are left out.
        key : str
            The same key again stores nothing.
        author : Author

        Returns
        -------
        n_new : int
            The number of answers that were stored.
        """
        with self._lock:
            if self.has_key(f"{key}.0"):
                return 0
            now = datetime.now(UTC)
            batch = self.revision + 1
            entries: list[Entry] = []
            taken = set[object]()
            for answer, looks in answers:
                answer.check(self.movie.n_frames)
                about = {answer.fact, *(answer.cells() if answer.happened else ())}
                is_known = self._history.find_same(answer) is not None
                if is_known or self._history.find_contradicting(answer):
                    continue
                if taken & about:
                    continue
                taken |= about
                revision = batch + len(entries)
                entry = Entry(
                    revision,
                    Act.ANSWER,
                    answer,
                    revision,
                    f"{key}.{len(entries)}",
                    now,
                    author=author,
                    looks=tuple(looks),
                    batch=batch,
                )
                entries.append(entry)
            if entries:
                self._append_entries(*entries)
            return len(entries)

    def edit(
        self,
        make_edit: Callable[[], Edit],
        *,
        key: str | None = None,
        revision: int | None = None,
        author: Author = ANONYMOUS,
    ) -> int:
        """Store a mask edit; return its revision.

        Parameters
        ----------
        make_edit : callable
            Makes the edit of the present masks; not called for a known key.
        key, revision, author
            See `answer`.
        """
        with self._lock:
            earlier = self._find_earlier(key, Act.EDIT, revision)
            if earlier is not None:
                return earlier.revision
            edit = make_edit()
            n_frames = self.movie.n_frames
            if not 0 <= edit.frame < n_frames:
                raise InputError(
                    f"{edit}, but the movie has {n_frames} frames, which count from 0"
                )
            new = self.revision + 1
            now = datetime.now(UTC)
            return self._append_entries(
                Entry(new, Act.EDIT, edit, new, key, now, author=author)
            )

    def undo_or_redo(
        self,
        act: Act,
        *,
        key: str | None = None,
        revision: int | None = None,
        author: Author = ANONYMOUS,
        other_pages: Collection[str] = (),
    ) -> int | None:
        """Undo the last answer or edit, and restore what it replaced; or redo it.

        Answers that were given at once are undone at once.

        Parameters
        ----------
        act : Act
            UNDO or REDO.
        key, revision, author
            See `answer`.
        other_pages : collection of str
            Open pages, whose answers are theirs to undo.

        Returns
        -------
        revision : int or None
            None if there is nothing to undo or redo.
        """
        with self._lock:
            earlier = self._find_earlier(key, act, revision)
            if earlier is not None:
                return earlier.revision
            subject = self._history.find_next(act, other_pages)
            if subject is None:
                return None
            now = datetime.now(UTC)
            first = self.revision + 1
            batch = self._history.batch_of(subject, act)
            keys = [*[None] * (len(batch) - 1), key]  # the caller learns of the last
            entries = [
                Entry(first + n, act, one.change, one.of, name, now, author=author)
                for n, (one, name) in enumerate(zip(batch, keys, strict=True))
            ]
            return self._append_entries(*entries)

    def set_setting(self, name: str, value: Any) -> None:
        """Store a setting, anything that JSON can hold."""
        try:
            text = json.dumps(value, allow_nan=False)
            f"{name}{text}".encode()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the setting {name!r} cannot be stored: {error}"
            ) from error
        with self._lock:
            with self._transaction() as execute:
                execute(
                    "INSERT OR REPLACE INTO note VALUES (?, ?, ?)",
                    (name, text, chain_digest(name, text)),
                )
            self._settings[name] = text

    def get_setting(self, name: str, default: Any = None) -> Any:
        """Return a copy of a setting."""
        text = self._settings.get(name)
        return default if text is None else json.loads(text)

    def _find_earlier(
        self, key: str | None, act: Act, revision: int | None
    ) -> Entry | None:
        """Return the change with a key; a new one must name the present revision."""
        earlier = None
        if key is not None:
            is_valid = isinstance(key, str) and 0 < len(key) <= MAX_KEY
            if not is_valid or not key.isprintable():
                raise InputError(
                    f"the key of a change is {key!r}; expected 1 to {MAX_KEY} "
                    "printable characters"
                )
            earlier = self._history.by_key.get(key)
        if earlier is not None and earlier.act is not act:
            raise InputError(
                f"the key {key!r} was that of {earlier.act} before, it cannot be that "
                f"of {act}"
            )
        if earlier is None and revision is not None and revision != self.revision:
            raise StaleRevision(revision, self.revision)
        return earlier

    def _append_entries(self, *entries: Entry) -> int:
        """Commit entries, and only then let them hold; return the last revision."""
        lines = [entry.to_line() for entry in entries]
        digests = list(accumulate(lines, chain_digest, initial=self._digests[-1]))[1:]
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
        self._marker.write(last, digests[-1])
        return last

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., object]]:
        """Commit all statements or none; they are on disk at the end."""
        with name_file_in_errors(self.path, "; earlier answers are untouched"):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
