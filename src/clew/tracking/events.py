"""The events that can happen to cells from one frame to the next, or over a gap; one by one and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import index
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices, Mask
from clew.utils.validation import check_floats, short_repr

Labels = NDArray[np.int64]

NONE = 0
"""The label that stands for no cell: it is the background of every label image."""


class Event(IntEnum):
    """What can happen from one frame to the next."""

    MOVE = 0
    """One cell becomes one cell."""
    DIVIDE = 1
    """A mother becomes two daughters."""
    APPEAR = 2
    """A cell comes out of nothing: over the border, or missed by the detection before."""
    DISAPPEAR = 3
    """A cell is gone: over the border, dead, or missed."""
    SPLIT = 4
    """One detection becomes two without a division: an over-segmentation, or the end of a merge."""
    MERGE = 5
    """Two detections become one: cells that touch or overlap."""
    GAP = 6
    """A cell is missing in one frame and back in the one after: gone as far as the pair's two frames tell, and seen
    over three of them not gone at all."""

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def arity(self) -> tuple[int, int]:
        """How many sources and how many targets it has."""
        return ARITY[self]

    @property
    def span(self) -> int:
        """How many frames later than its sources its targets are."""
        return 2 if self is Event.GAP else 1


BY_NAME = {str(event): event for event in Event}
"""Events by the names that files and requests have for them."""
ARITY = {
    Event.MOVE: (1, 1),
    Event.DIVIDE: (1, 2),
    Event.APPEAR: (0, 1),
    Event.DISAPPEAR: (1, 0),
    Event.SPLIT: (1, 2),
    Event.MERGE: (2, 1),
    Event.GAP: (1, 1),
}
PAIRWISE = tuple(event for event in Event if event.span == 1)
"""The six that are about two consecutive frames: what the candidates of a frame pair are of."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Events of a whole movie, in no particular order; cells are named by their labels."""

    frame: NDArray[np.int64]
    """(n,) the event leads from this frame to the next, a gap to the one after that."""
    event: NDArray[np.int8]
    """(n,) values of `Event`."""
    sources: Labels
    """(n, 2) labels in `frame`, ascending, `NONE` filled up on the right."""
    targets: Labels
    """(n, 2) labels in the frame that it leads to, likewise."""

    def __post_init__(self) -> None:
        """Refuse columns that are no arrays of as many whole numbers; `of` makes them from tuples."""
        shapes = [
            (column.shape, column.dtype.kind)
            for column in self._columns()
            if isinstance(column, np.ndarray)
        ]
        n = shapes[0][0][:1] if shapes else ()
        if [shape for shape, _ in shapes] != [n, n, (*n, 2), (*n, 2)] or any(
            kind not in "iu" for _, kind in shapes
        ):
            raise InputError(
                "an event table has integer arrays frame (n,), event (n,), sources (n, 2), targets (n, 2)"
            )

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.frame, self.event, self.sources, self.targets

    @classmethod
    def empty(cls) -> Self:
        """No events."""
        return cls.of([])

    @classmethod
    def of(
        cls, events: Sequence[tuple[int, Event, Sequence[int], Sequence[int]]]
    ) -> Self:
        """A table from tuples (frame, event, sources, targets)."""
        try:
            given: list[Any] = list(events)  # an iterator can be read once only
            frame, event = (
                np.array([row[k] for row in given], dtype=np.float64) for k in (0, 1)
            )
            sources, targets = (_padded([row[k] for row in given]) for k in (2, 3))
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            raise InputError(
                "events are tuples: (frame, event, labels of the sources, labels of the targets)"
            ) from None
        if not (
            np.isfinite(frame)
            & (frame % 1 == 0)
            & (np.abs(frame) < 2.0**62)
            & np.isin(event, list(Event))
        ).all():
            raise InputError(
                "events have frames that are whole numbers, and kinds from clew.tracking.Event"
            )
        return cls(frame.astype(np.int64), event.astype(np.int8), sources, targets)

    @classmethod
    def join(cls, tables: Sequence[Self]) -> Self:
        """Several tables as one."""
        if not tables:
            return cls.empty()
        return cls(
            *(
                np.concatenate([getattr(table, f.name) for table in tables])
                for f in fields(cls)
            )
        )

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, rows: Mask | Indices | slice) -> Self:
        """Some of the events."""
        return type(self)(
            self.frame[rows], self.event[rows], self.sources[rows], self.targets[rows]
        )

    def __iter__(self) -> Iterator[tuple[int, Event, tuple[int, ...], tuple[int, ...]]]:
        """One by one, as (frame, event, sources, targets)."""
        for frame, event, sources, targets in zip(
            self.frame.tolist(),
            self.event.tolist(),
            self.sources.tolist(),
            self.targets.tolist(),
            strict=True,
        ):
            yield (
                frame,
                Event(event),
                tuple(filter(None, sources)),
                tuple(filter(None, targets)),
            )

    def shift_frames(self, frames: int) -> Self:
        """The same events, so many frames later: by another count of frames."""
        return type(self)(self.frame + frames, self.event, self.sources, self.targets)

    def end_frames(self) -> NDArray[np.int64]:
        """(n,) the frame that each leads to, in which its targets are."""
        return np.asarray(self.frame + 1 + (self.event == Event.GAP), dtype=np.int64)

    def to_pairwise(self) -> Self:
        """As far as pairs of frames can tell: a gap as a disappearance before it and an appearance after it."""
        gaps = self[self.event == Event.GAP]
        if not len(gaps):
            return self
        none = np.full_like(gaps.sources, NONE)
        gone = type(self)(
            gaps.frame, np.full(len(gaps), Event.DISAPPEAR, np.int8), gaps.sources, none
        )
        back = type(self)(
            gaps.frame + 1,
            np.full(len(gaps), Event.APPEAR, np.int8),
            none,
            gaps.targets,
        )
        return type(self).join([self[self.event != Event.GAP], gone, back])

    def row_keys(self) -> NDArray[Any]:
        """(n,) one value for each event that is the same exactly for the same event; for `np.isin` and the like."""
        columns = np.column_stack(
            [self.frame, self.event, self.sources, self.targets]
        ).astype(np.int64)
        return (
            np.ascontiguousarray(columns)
            .view([("", np.int64)] * columns.shape[1])
            .ravel()
        )

    def describe(self, row: int) -> str:
        """One event in words: "divide 5 → 17 + 18 from frame 12 to 13"."""
        ((frame, event, sources, targets),) = self[row : row + 1]
        names = " → ".join(
            " + ".join(map(str, side)) for side in (sources, targets) if side
        )
        return f"{event} {names} from frame {frame} to {frame + event.span}"


class EventIndex:
    """Look up the event of a cell in a table.

    Each cell must be a source of one event and a target of one event at most.

    Parameters
    ----------
    events : EventTable
    """

    def __init__(self, events: EventTable) -> None:
        cells = np.hstack([events.sources, events.targets])
        row, side = np.nonzero(cells != NONE)
        is_target = side >= 2
        frame = np.where(is_target, events.end_frames()[row], events.frame[row])
        self.events = events
        self.labels = np.unique(cells[row, side])
        keys = self._make_keys(frame, is_target, cells[row, side])
        order = np.argsort(keys, kind="stable")
        self.keys = keys[order]
        self.rows = row[order]

    def _make_keys(
        self, frame: NDArray[np.int64], is_target: Mask, label: Labels
    ) -> NDArray[np.int64]:
        """(n,) one integer for each cell; ranks stand for labels, which may be huge."""
        rank = np.searchsorted(self.labels, label)
        return (2 * frame + is_target) * (len(self.labels) + 1) + rank

    def find_cell(
        self, frame: NDArray[np.int64], is_target: Mask, label: Labels
    ) -> Indices:
        """Find the events that cells are a source, or a target, of.

        Parameters
        ----------
        frame, is_target, label : ndarray of shape (n,)

        Returns
        -------
        row : ndarray of shape (n,)
            Row of each event; -1 if there is none.
        """
        if not len(self.keys):
            return np.full(len(label), -1, dtype=np.intp)
        keys = self._make_keys(frame, is_target, label)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = (self.keys[at] == keys) & np.isin(label, self.labels)
        return np.where(found, self.rows[at], -1)

    def find_by_cells(self, asked: EventTable) -> Indices:
        """(n, 4) rows of the events that the sources and targets of others take part in; −1 where there is none."""
        sides = (
            (asked.sources, asked.frame, False),
            (asked.targets, asked.end_frames(), True),
        )
        return np.column_stack(
            [
                self.find_cell(frame, np.full(len(asked), target), label)
                for cells, frame, target in sides
                for label in cells.T
            ]
        )

    def find(self, asked: EventTable) -> Indices:
        """(n,) rows of the very same events, −1 where there is none: an event's first cell leads to the only one."""
        no_source = asked.sources[:, 0] == NONE
        frame = np.where(no_source, asked.end_frames(), asked.frame)
        row = self.find_cell(
            frame,
            no_source,
            np.where(no_source, asked.targets[:, 0], asked.sources[:, 0]),
        )
        there = np.flatnonzero(row >= 0)
        at, mine = self.events[row[there]], asked[there]
        same = (at.event == mine.event) & (at.frame == mine.frame)
        same &= (at.sources == mine.sources).all(axis=1) & (
            at.targets == mine.targets
        ).all(axis=1)
        row[there[~same]] = -1
        return row


def _padded(cells: Sequence[Sequence[int]]) -> Labels:
    """(n, 2) labels, ascending, filled up with NONE."""
    table = np.full((len(cells), 2), NONE, dtype=np.int64)
    for row, labels in enumerate(cells):
        table[row, : len(labels)] = sorted(map(index, labels))
    return table


@dataclass(frozen=True, slots=True)
class Annotations:
    """Events that a person says happened, or did not."""

    events: EventTable
    happened: Mask
    """(n,)"""
    row: Indices
    """(n,) where each stands in the file it came from, for messages; 1 is the first line."""

    def __post_init__(self) -> None:
        """Refuse what does not fit the events; `of` makes all of it."""
        if not isinstance(self.events, EventTable):
            raise InputError(
                f"events is {short_repr(self.events)}; expected an EventTable, as EventTable.of makes it"
            )
        for name, column, kinds in (
            ("happened", self.happened, "b"),
            ("row", self.row, "iu"),
        ):
            fits = isinstance(column, np.ndarray) and column.shape == (
                len(self.events),
            )
            if not fits or column.dtype.kind not in kinds:
                what = "booleans" if name == "happened" else "integers"
                raise InputError(
                    f"{name} is {short_repr(column)}; expected an array of {len(self.events)} {what}"
                )

    @classmethod
    def of(cls, events: EventTable, happened: Any = True, row: Any = None) -> Self:
        """Events as annotations; all of them happened unless told otherwise."""
        if not isinstance(events, EventTable):
            raise InputError(
                f"events is {short_repr(events)}; expected an EventTable, as EventTable.of makes it"
            )
        n = len(events)
        said = check_floats(happened, "happened")
        if said.shape not in ((), (n,)) or not np.isin(said, (0, 1)).all():
            raise InputError(
                f"happened is {short_repr(happened)}; expected True or False, or one of both for each event"
            )
        rows = np.arange(1, n + 1) if row is None else check_floats(row, "row")
        if rows.shape != (n,) or not (np.abs(rows) < 2.0**62).all():
            raise InputError(
                f"row is {short_repr(row)}; expected a number for each of the {n} events"
            )
        return cls(
            events,
            np.broadcast_to(said.astype(bool), (n,)).copy(),
            rows.astype(np.intp),
        )

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, rows: Mask | Indices | slice) -> Self:
        """Some of the annotations."""
        return type(self)(self.events[rows], self.happened[rows], self.row[rows])

    def shift_frames(self, frames: int) -> Self:
        """The same annotations, so many frames later: by another count of frames."""
        return type(self)(self.events.shift_frames(frames), self.happened, self.row)

    def restrict_to(self, excerpt: range) -> Self:
        """Those between the frames of an excerpt of the movie, counted as the excerpt does."""
        inside = (self.events.frame >= excerpt.start) & (
            self.events.end_frames() < excerpt.stop
        )
        return self[inside].shift_frames(-excerpt.start)

    def to_pairwise(self) -> Self:
        """As far as pairs of frames can tell, see `EventTable.pairwise`; that there was no gap tells them nothing."""
        gap = self.events.event == Event.GAP
        if not gap.any():
            return self
        known = self[~gap | self.happened]
        events = known.events.to_pairwise()
        rest, gaps = (
            known[known.events.event != Event.GAP],
            known[known.events.event == Event.GAP],
        )
        happened = np.concatenate([rest.happened, gaps.happened, gaps.happened])
        return type(self)(
            events, happened, np.concatenate([rest.row, gaps.row, gaps.row])
        )

    def select_gaps(self) -> Self:
        """Those about gaps alone."""
        return self[self.events.event == Event.GAP]

    def annotated_frames(self) -> list[int]:
        """The frames from which on frame pairs are annotated, ascending."""
        return np.unique(self.to_pairwise().events.frame).tolist()  # type: ignore[no-any-return]

    def happened_kinds(self) -> frozenset[Event]:
        """The kinds of events that happened."""
        return frozenset(
            map(Event, np.unique(self.events.event[self.happened]).tolist())
        )

    def select_moves(self) -> EventTable:
        """The moves that happened."""
        return self.events[self.happened & (self.events.event == Event.MOVE)]

    def select_frame(self, frame: int) -> Self:
        """What they say of a frame and the next; of a gap, that a cell disappears before it and appears after it."""
        known = self.to_pairwise()
        return known[known.events.frame == frame]

    def contradicted_by(self, events: EventTable) -> Mask:
        """(n,) which are wrong where these events happened, and no others."""
        return np.asarray(
            np.isin(self.events.row_keys(), events.row_keys()) != self.happened
        )

    def content_key(self) -> bytes:
        """A value that is the same exactly for the same annotations, in whatever order."""
        keys = self.events.row_keys()
        order = np.argsort(keys, kind="stable")
        return bytes(keys[order].tobytes() + self.happened[order].tobytes())
