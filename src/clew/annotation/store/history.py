"""All that was ever answered about a movie or mended in its masks, and what of it holds now.

Undoing is an entry, too: nothing leaves.
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
    """A change was asked for in view of a state that is no longer the present one."""

    def __init__(self, given: int, present: int) -> None:
        super().__init__(
            f"this was asked for at revision {given}, but the annotations are at revision {present} by now: look at "
            "what changed, then answer again"
        )
        self.given, self.present = given, present


class Contradiction(InputError):
    """An answer contradicts annotations that hold; `existing` are their entries. It may replace them if told to."""

    def __init__(self, answer: Answer, existing: list[Entry]) -> None:
        others = " and ".join(
            f"revision {entry.revision}, {entry.answer}" for entry in existing
        )
        super().__init__(f"{answer} contradicts {others}; undo that, or replace it")
        self.answer, self.existing = answer, existing


class Act(StrEnum):
    """What an entry of the history does."""

    ANSWER = "answer"
    EDIT = "edit"
    UNDO = "undo"
    REDO = "redo"


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a change, as far as a page tells."""

    name: str = ""
    """A person."""
    page: str = ""
    """A tab of a browser: undo in one does not take back what was answered in another that is still open."""


NOBODY = Author()


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted change."""

    revision: int
    """Its number, from 1; the annotations' revision after it."""
    act: Act
    change: Answer | Edit
    """What was answered or edited, or the answer or edit that was undone or redone."""
    of: int
    """The revision of that: its own, if it is no undoing or redoing."""
    key: str | None
    """The asker's own name for the change, so that asking twice does it once."""
    time: datetime
    replaced: tuple[int, ...] = ()
    """Revisions of the answers that it corrects; undoing brings them back."""
    author: Author = NOBODY
    looks: tuple[str, ...] = ()
    """What the cells of an answer looked like, sources first: an answer is about cells and not about their numbers."""
    check: Check | None = None
    """What an answer says of the predictions before it, if they are known."""
    batch: int = 0
    """The first revision of those that were answered at once, and are undone at once; 0 for one alone."""

    @property
    def answer(self) -> Answer:
        """The answer; to be asked for only if it is about one."""
        if not isinstance(self.change, Answer):
            raise TypeError(
                f"revision {self.revision} is about an edit of masks: {self.change}"
            )
        return self.change

    def to_line(self) -> str:
        """Canonical JSON, all but the revision; see `History.parse`."""
        content: dict[str, Any] = {
            "act": self.act,
            "key": self.key,
            "time": self.time.isoformat(),
        }
        if self.act is Act.EDIT and isinstance(self.change, Edit):
            content |= {"edit": self.change.to_json()}
        elif self.act is Act.ANSWER:
            frame, event, sources, targets = self.answer.fact
            content |= {
                "frame": frame,
                "event": str(event),
                "sources": sources,
                "targets": targets,
            }
            content |= {"happened": self.answer.happened, "replaced": self.replaced}
        else:
            content["of"] = self.of
        if self.batch:
            content["batch"] = self.batch
        if self.check is not None:
            content["check"] = [
                self.check.expected,
                self.check.wrong,
                str(self.check.event),
            ]
        told = {"name": self.author.name, "page": self.author.page, "looks": self.looks}
        content |= {name: value for name, value in told.items() if value}
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


class History:
    """Entries in their order, with an index of what holds after the last; every question takes constant time."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_key: dict[str, Entry] = {}
        self._valid: dict[int, Entry] = {}
        self._facts: dict[Fact, Entry] = {}
        self._cells: dict[Cell, Entry] = {}
        self._edits: dict[int, Entry] = {}
        self.mask_revisions: dict[int, int] = {}
        """The last revision that changed the masks of a frame, for frames in which there was one."""
        self._done: list[Entry] = []
        self._undone: list[Entry] = []

    @property
    def revision(self) -> int:
        """The number of changes so far."""
        return len(self.entries)

    def __len__(self) -> int:
        """How many annotations hold."""
        return len(self._valid)

    def holding(self) -> list[Entry]:
        """The answers that hold now, in the order of answering."""
        return [self._valid[revision] for revision in sorted(self._valid)]

    def annotations(self) -> Annotations:
        """What holds now, in the order of answering; `row` is the answer's revision."""
        valid = self.holding()
        events = EventTable.of([entry.answer.fact for entry in valid])
        return Annotations.of(
            events,
            [e.answer.happened for e in valid],
            np.array([e.revision for e in valid], int),
        )

    def edits(self) -> tuple[Edit, ...]:
        """The edits of masks that hold now, in their order."""
        held = (self._edits[revision].change for revision in sorted(self._edits))
        return tuple(change for change in held if isinstance(change, Edit))

    def labels_used(self, frame: int) -> list[int]:
        """Labels that any edit of a frame ever gave, undone or not: none of them is given to another cell."""
        every = (entry.change for entry in self.entries if entry.act is Act.EDIT)
        return [
            change.label
            for change in every
            if isinstance(change, Edit) and change.frame == frame
        ]

    def same(self, answer: Answer) -> Entry | None:
        """The entry that says so already."""
        entry = self._facts.get(answer.fact)
        return entry if entry is not None and entry.answer == answer else None

    def contradicting(self, answer: Answer) -> list[Entry]:
        """The entries that hold now and cannot hold beside this answer: a cell has one fate and one history."""
        found = [self._facts.get(answer.fact)]
        if answer.happened:
            found += [self._cells.get(cell) for cell in answer.cells()]
        clashes = {
            entry.revision: entry
            for entry in found
            if entry is not None and entry.answer != answer
        }
        return [clashes[revision] for revision in sorted(clashes)]

    def to_undo(self, others: Collection[str] = ()) -> Entry | None:
        """What undoing takes back next: the last that holds and was not done in one of the `others`."""
        mine = (
            entry for entry in reversed(self._done) if entry.author.page not in others
        )
        return next(
            (
                entry
                for entry in mine
                if entry.revision in self._valid or entry.revision in self._edits
            ),
            None,
        )

    def to_redo(self, others: Collection[str] = ()) -> Entry | None:
        """The answer that redoing brings back next; answering anew leaves what was undone in the history only."""
        mine = (
            entry for entry in reversed(self._undone) if entry.author.page not in others
        )
        return next((entry for entry in mine if self._can_return(entry)), None)

    def together(self, entry: Entry, act: Act) -> list[Entry]:
        """An entry and what was answered at once with it, in the order in which that is undone or redone."""
        if not entry.batch:
            return [entry]
        mine = [
            other
            for other in (self._done if act is Act.UNDO else self._undone)
            if other.batch == entry.batch
        ]
        possible = [
            one
            for one in mine
            if (
                one.revision in self._valid
                if act is Act.UNDO
                else self._can_return(one)
            )
        ]
        return possible[::-1]

    def _can_return(self, entry: Entry) -> bool:
        """Whether nothing that was answered since contradicts an answer."""
        if isinstance(entry.change, Edit):
            return True
        return all(
            other.revision in entry.replaced
            for other in self.contradicting(entry.answer)
        )

    def append(self, entry: Entry) -> None:
        """Take the next entry in."""
        if entry.revision != self.revision + 1:
            raise ValueError(
                f"entry {entry.revision} cannot follow entry {self.revision}"
            )
        self.entries.append(entry)
        if entry.key is not None:
            self.by_key[entry.key] = entry
        answer = self.entries[entry.of - 1]
        if entry.act is Act.UNDO:
            self._done.remove(answer)
            self._undone.append(answer)
            self._drop([answer.revision], entry.revision)
            earlier = [self.entries[revision - 1] for revision in answer.replaced]
            self._hold(
                [other for other in earlier if not self.contradicting(other.answer)],
                entry.revision,
            )
            return
        if entry.act is Act.REDO:
            self._undone.remove(answer)
        else:
            page = entry.author.page
            self._undone = [
                other for other in self._undone if page and other.author.page != page
            ]
        self._done.append(answer)
        self._drop(answer.replaced, entry.revision)
        self._hold([answer], entry.revision)

    def parse(self, line: str) -> Entry:
        """The next entry, from what `Entry.to_line` gave."""
        content = json.loads(line)
        act, revision = Act(content["act"]), self.revision + 1
        key, time = content["key"], datetime.fromisoformat(content["time"])
        author = Author(content.get("name", ""), content.get("page", ""))
        if act is Act.EDIT:
            return Entry(
                revision,
                act,
                Edit.from_json(content["edit"]),
                revision,
                key,
                time,
                author=author,
            )
        if act is Act.ANSWER:
            event = Event[content["event"].upper()]
            answer = Answer.of(
                content["frame"],
                event,
                content["sources"],
                content["targets"],
                content["happened"],
            )
            replaced, looks = (
                tuple(content["replaced"]),
                tuple(content.get("looks", ())),
            )
            check = _check(content.get("check", []))
            batch = int(content.get("batch", 0))
            return Entry(
                revision,
                act,
                answer,
                revision,
                key,
                time,
                replaced,
                author,
                looks,
                check,
                batch,
            )
        among = self._done if act is Act.UNDO else self._undone
        earlier = next(
            (entry for entry in among if entry.revision == content["of"]), None
        )
        if earlier is None:
            raise ValueError(
                f"entry {revision} is to {act} revision {content['of']}, which cannot be"
            )
        return Entry(
            revision, act, earlier.change, earlier.revision, key, time, author=author
        )

    def _drop(self, revisions: Iterable[int], now: int) -> None:
        """Let some answers or edits no longer hold, by the entry `now`."""
        for revision in revisions:
            if (edit := self._edits.pop(revision, None)) is not None:
                self.mask_revisions[edit.change.frame] = now
            entry = self._valid.pop(revision, None)
            if entry is None:  # an edit, or taken back in another tab meanwhile
                continue
            del self._facts[entry.answer.fact]
            if entry.answer.happened:
                for cell in entry.answer.cells():
                    del self._cells[cell]

    def _hold(self, entries: Iterable[Entry], now: int) -> None:
        """Let some answers hold that nothing contradicts, or some edits, by the entry `now`."""
        for entry in entries:
            if isinstance(entry.change, Edit):
                self._edits[entry.revision] = entry
                self.mask_revisions[entry.change.frame] = now
                continue
            self._valid[entry.revision] = self._facts[entry.answer.fact] = entry
            if entry.answer.happened:
                self._cells |= dict.fromkeys(entry.answer.cells(), entry)


def chained(digest: str, line: str) -> str:
    """The digest of a history that goes on with this line: it vouches for all lines before, too."""
    return hashlib.sha256(f"{digest}\n{line}".encode()).hexdigest()


def _check(content: list[Any]) -> Check | None:
    """What an answer said of a prediction; None if it is not known of which kind that was."""
    if len(content) < 3:
        return None
    return Check(float(content[0]), int(content[1]), Event[content[2].upper()])
