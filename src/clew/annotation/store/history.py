"""All answers and mask edits of a movie, in order, and what of them holds now.

Undo and redo are entries too: nothing is ever removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np

from clew.annotation.answers import Answer, Cell, Fact
from clew.annotation.error_estimate import Check
from clew.annotation.mask_edits import Edit
from clew.errors import InputError, StoreError
from clew.tracking.events import Annotations, Event, EventTable


class StaleRevision(StoreError):
    """A change was requested for a state that is no longer the present one."""

    def __init__(self, requested: int, present: int) -> None:
        super().__init__(
            f"this was requested at revision {requested}, but the annotations are at "
            f"revision {present} now: look at what changed, then answer again"
        )
        self.requested = requested
        self.present = present


class Contradiction(InputError):
    """An answer contradicts entries that hold; it may replace them."""

    def __init__(self, answer: Answer, existing: list[Entry]) -> None:
        others = " and ".join(
            f"revision {entry.revision}, {entry.answer}" for entry in existing
        )
        super().__init__(f"{answer} contradicts {others}; undo that, or replace it")
        self.answer = answer
        self.existing = existing


class Act(StrEnum):
    """What an entry of the history does."""

    ANSWER = "answer"
    EDIT = "edit"
    UNDO = "undo"
    REDO = "redo"


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a change."""

    name: str = ""
    """Of a person."""
    page: str = ""
    """Of a browser tab: undo in one does not undo answers of another open one."""


ANONYMOUS = Author()


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted change."""

    revision: int
    """From 1; the revision of the store after it."""
    act: Act
    change: Answer | Edit
    """The answer or edit; for undo and redo, the one that they are about."""
    of: int
    """The revision of that answer or edit."""
    key: str | None
    """Chosen by the client, so that a request that is repeated counts once."""
    time: datetime
    replaced: tuple[int, ...] = ()
    """Revisions of the answers that it corrects; undo restores them."""
    author: Author = ANONYMOUS
    looks: tuple[str, ...] = ()
    """Fingerprints of the cells of an answer, sources first: an answer is about
    cells, not about their labels."""
    check: Check | None = None
    """What an answer says about the prediction in question."""
    batch: int = 0
    """The first revision of answers that were given at once; 0 for a single one."""

    @property
    def answer(self) -> Answer:
        """The answer; raises TypeError for an edit."""
        if not isinstance(self.change, Answer):
            raise TypeError(f"revision {self.revision} is a mask edit: {self.change}")
        return self.change

    def to_line(self) -> str:
        """Return canonical JSON without the revision; `History.parse` reads it."""
        content: dict[str, Any] = {
            "act": self.act,
            "key": self.key,
            "time": self.time.isoformat(),
        }
        if self.act is Act.EDIT and isinstance(self.change, Edit):
            content["edit"] = self.change.to_json()
        elif self.act is Act.ANSWER:
            frame, event, sources, targets = self.answer.fact
            content["frame"] = frame
            content["event"] = str(event)
            content["sources"] = sources
            content["targets"] = targets
            content["happened"] = self.answer.happened
            content["replaced"] = self.replaced
        else:
            content["of"] = self.of
        if self.batch:
            content["batch"] = self.batch
        if self.check is not None:
            check = self.check
            content["check"] = [check.expected, check.wrong, str(check.event)]
        if self.author.name:
            content["name"] = self.author.name
        if self.author.page:
            content["page"] = self.author.page
        if self.looks:
            content["looks"] = self.looks
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


class History:
    """Entries in order, with an index of what holds after the last one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_key: dict[str, Entry] = {}
        self.mask_revisions: dict[int, int] = {}
        """By frame: the last revision that changed its masks."""
        self._answers: dict[int, Entry] = {}
        self._edits: dict[int, Entry] = {}
        self._by_fact: dict[Fact, Entry] = {}
        self._by_cell: dict[Cell, Entry] = {}
        self._done: list[Entry] = []
        self._undone: list[Entry] = []

    @property
    def revision(self) -> int:
        """The number of entries."""
        return len(self.entries)

    def __len__(self) -> int:
        """Return the number of answers that hold."""
        return len(self._answers)

    def active_entries(self) -> list[Entry]:
        """Return the answers that hold, in order."""
        return [self._answers[revision] for revision in sorted(self._answers)]

    def annotations(self) -> Annotations:
        """Return what holds, in order; `row` is the revision of the answer."""
        entries = self.active_entries()
        return Annotations.of(
            EventTable.of([entry.answer.fact for entry in entries]),
            [entry.answer.happened for entry in entries],
            np.array([entry.revision for entry in entries], int),
        )

    def edits(self) -> tuple[Edit, ...]:
        """Return the mask edits that hold, in order."""
        changes = (self._edits[revision].change for revision in sorted(self._edits))
        return tuple(change for change in changes if isinstance(change, Edit))

    def used_labels(self, frame: int) -> list[int]:
        """Return the labels that edits of a frame ever gave, undone ones included."""
        changes = (entry.change for entry in self.entries if entry.act is Act.EDIT)
        return [
            change.label
            for change in changes
            if isinstance(change, Edit) and change.frame == frame
        ]

    def find_same(self, answer: Answer) -> Entry | None:
        """Return the entry that holds and says the same."""
        entry = self._by_fact.get(answer.fact)
        if entry is None or entry.answer != answer:
            return None
        return entry

    def find_contradicting(self, answer: Answer) -> list[Entry]:
        """Return the entries that cannot hold beside an answer.

        A cell has one fate and one history.
        """
        candidates = [self._by_fact.get(answer.fact)]
        if answer.happened:
            candidates += [self._by_cell.get(cell) for cell in answer.cells()]
        clashes = {
            entry.revision: entry
            for entry in candidates
            if entry is not None and entry.answer != answer
        }
        return [clashes[revision] for revision in sorted(clashes)]

    def find_next(self, act: Act, other_pages: Collection[str] = ()) -> Entry | None:
        """Return the entry to undo or redo next, except those of other pages."""
        is_undo = act is Act.UNDO
        for entry in reversed(self._done if is_undo else self._undone):
            is_possible = self._holds(entry) if is_undo else self._can_return(entry)
            if is_possible and entry.author.page not in other_pages:
                return entry
        return None

    def _holds(self, entry: Entry) -> bool:
        return entry.revision in self._answers or entry.revision in self._edits

    def batch_of(self, entry: Entry, act: Act) -> list[Entry]:
        """Return an entry and those given at once with it, in the order of undo."""
        if not entry.batch:
            return [entry]
        if act is Act.UNDO:
            entries = [one for one in self._done if one.revision in self._answers]
        else:
            entries = [one for one in self._undone if self._can_return(one)]
        return [one for one in reversed(entries) if one.batch == entry.batch]

    def _can_return(self, entry: Entry) -> bool:
        """Return whether no later answer contradicts an entry."""
        if isinstance(entry.change, Edit):
            return True
        clashes = self.find_contradicting(entry.answer)
        return all(other.revision in entry.replaced for other in clashes)

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        if entry.revision != self.revision + 1:
            raise ValueError(
                f"entry {entry.revision} cannot follow entry {self.revision}"
            )
        self.entries.append(entry)
        if entry.key is not None:
            self.by_key[entry.key] = entry
        subject = self.entries[entry.of - 1]
        if entry.act is Act.UNDO:
            self._done.remove(subject)
            self._undone.append(subject)
            self._deactivate([subject.revision], entry.revision)
            for revision in subject.replaced:
                earlier = self.entries[revision - 1]
                if not self.find_contradicting(earlier.answer):
                    self._activate(earlier, entry.revision)
            return
        if entry.act is Act.REDO:
            self._undone.remove(subject)
        else:
            page = entry.author.page
            self._undone = [
                other for other in self._undone if page and other.author.page != page
            ]
        self._done.append(subject)
        self._deactivate(subject.replaced, entry.revision)
        self._activate(subject, entry.revision)

    def parse(self, line: str) -> Entry:
        """Return the next entry from a line of `Entry.to_line`."""
        content = json.loads(line)
        act = Act(content["act"])
        revision = self.revision + 1
        common = {
            "revision": revision,
            "act": act,
            "key": content["key"],
            "time": datetime.fromisoformat(content["time"]),
            "author": Author(content.get("name", ""), content.get("page", "")),
        }
        if act is Act.EDIT:
            edit = Edit.from_json(content["edit"])
            return Entry(change=edit, of=revision, **common)
        if act is Act.ANSWER:
            answer = Answer.of(
                content["frame"],
                Event[content["event"].upper()],
                content["sources"],
                content["targets"],
                content["happened"],
            )
            return Entry(
                change=answer,
                of=revision,
                replaced=tuple(content["replaced"]),
                looks=tuple(content.get("looks", ())),
                check=_parse_check(content.get("check", [])),
                batch=int(content.get("batch", 0)),
                **common,
            )
        for subject in self._done if act is Act.UNDO else self._undone:
            if subject.revision == content["of"]:
                return Entry(change=subject.change, of=subject.revision, **common)
        raise ValueError(f"entry {revision} cannot {act} revision {content['of']}")

    def _deactivate(self, revisions: Iterable[int], now: int) -> None:
        """Let answers or edits no longer hold, from revision `now` on."""
        for revision in revisions:
            edit = self._edits.pop(revision, None)
            if edit is not None:
                self.mask_revisions[edit.change.frame] = now
            entry = self._answers.pop(revision, None)
            if entry is None:  # an edit, or undone in another tab meanwhile
                continue
            del self._by_fact[entry.answer.fact]
            if entry.answer.happened:
                for cell in entry.answer.cells():
                    del self._by_cell[cell]

    def _activate(self, entry: Entry, now: int) -> None:
        """Let an edit, or an answer without contradictions, hold from `now` on."""
        if isinstance(entry.change, Edit):
            self._edits[entry.revision] = entry
            self.mask_revisions[entry.change.frame] = now
            return
        self._answers[entry.revision] = entry
        self._by_fact[entry.answer.fact] = entry
        if entry.answer.happened:
            self._by_cell |= dict.fromkeys(entry.answer.cells(), entry)


def chain_digest(digest: str, line: str) -> str:
    """Return the digest of a history that continues with a line.

    It vouches for all earlier lines too.
    """
    return hashlib.sha256(f"{digest}\n{line}".encode()).hexdigest()


def _parse_check(content: list[Any]) -> Check | None:
    """Return a check; None for an old one without the kind of event."""
    if len(content) < 3:
        return None
    expected, wrong, event = content
    return Check(float(expected), int(wrong), Event[event.upper()])
