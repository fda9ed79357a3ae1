"""Events that can happen to cells from one frame to the next, or over a gap.

Annotations are events that a person knows to have happened, or not to have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from html import escape
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.learning.task import Indices, Mask
from clew.utils.validation import Faults, check_floats, short_repr

if TYPE_CHECKING:
    import pandas as pd

Labels = NDArray[np.int64]

NONE = 0
"""Label that stands for no cell; the background of every label image."""
MAX_NUMBER = 2.0**62
"""Bound of frames and rows."""


class Event(IntEnum):
    """What can happen to cells."""

    MOVE = 0
    """One cell becomes one cell."""
    DIVIDE = 1
    """A mother becomes two daughters."""
    APPEAR = 2
    """A cell comes over the border, or was missed by the detection before."""
    DISAPPEAR = 3
    """A cell leaves over the border, dies, or is missed."""
    SPLIT = 4
    """One detection becomes two without a division: over-segmentation, or the end of
    a merge."""
    MERGE = 5
    """Two detections become one: cells that touch or overlap."""
    GAP = 6
    """A cell is missing in one frame and back in the next: in pairs of frames, a
    disappearance and an appearance."""
    FALSE_END = 7
    """A detection that is no cell leads to nothing."""
    FALSE_BEGIN = 8
    """A detection that is no cell comes from nothing."""

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def arity(self) -> tuple[int, int]:
        """Number of sources and targets."""
        return ARITY[self]

    @property
    def span(self) -> int:
        """Number of frames from the sources to the targets."""
        return 2 if self is Event.GAP else 1


BY_NAME = {str(event): event for event in Event}
"""Events by their names in files and requests."""
ARITY = {
    Event.MOVE: (1, 1),
    Event.DIVIDE: (1, 2),
    Event.APPEAR: (0, 1),
    Event.DISAPPEAR: (1, 0),
    Event.SPLIT: (1, 2),
    Event.MERGE: (2, 1),
    Event.GAP: (1, 1),
    Event.FALSE_END: (1, 0),
    Event.FALSE_BEGIN: (0, 1),
}
END_OF_FALSE = {
    Event.FALSE_END: Event.DISAPPEAR,
    Event.FALSE_BEGIN: Event.APPEAR,
}
"""What the two events of a false detection are in a lineage."""
LINEAGE_KINDS = tuple(event for event in Event if event not in END_OF_FALSE)
"""Kinds of events in a lineage; there, false detections appear and disappear."""
PAIRWISE = tuple(event for event in LINEAGE_KINDS if event.span == 1)
"""Those between consecutive frames."""
CANDIDATE_KINDS = (*PAIRWISE, *END_OF_FALSE)
"""Kinds of events that are candidates of a frame pair."""
FALSE_DETECTIONS = "false detections"
"""Group of measurements with which false detections have features of their own."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Events of a movie, in no particular order; cells are named by their labels.

    Attributes
    ----------
    frame : ndarray of int of shape (n,)
        The event leads from this frame to the next, a gap to the one after that.
    event : ndarray of int8 of shape (n,)
        Values of `Event`.
    sources : ndarray of int of shape (n, 2)
        Labels in `frame`, ascending, padded with `NONE`.
    targets : ndarray of int of shape (n, 2)
        Labels in the frame that the event leads to, likewise.
    """

    frame: NDArray[np.int64]
    event: NDArray[np.int8]
    sources: Labels
    targets: Labels

    def __post_init__(self) -> None:
        columns = (self.frame, self.event, self.sources, self.targets)
        is_valid = all(
            isinstance(column, np.ndarray) and column.dtype.kind in "iu"
            for column in columns
        )
        if is_valid:
            n = self.frame.shape[:1]
            shapes = [column.shape for column in columns]
            is_valid = shapes == [n, n, (*n, 2), (*n, 2)]
        if not is_valid:
            raise InputError(
                "an event table has integer arrays frame (n,), event (n,), sources "
                "(n, 2), targets (n, 2)"
            )

    @classmethod
    def empty(cls) -> Self:
        """A table without events."""
        return cls.of([])

    @classmethod
    def of(
        cls, events: Sequence[tuple[int, Event, Sequence[int], Sequence[int]]]
    ) -> Self:
        """Make a table of tuples (frame, event, sources, targets)."""
        try:
            rows: list[Any] = list(events)  # may be an iterator
            frame = np.array([row[0] for row in rows], dtype=np.float64)
            event = np.array([row[1] for row in rows], dtype=np.float64)
            sources = _pad_labels([row[2] for row in rows])
            targets = _pad_labels([row[3] for row in rows])
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            raise InputError(
                "events are tuples: (frame, event, labels of the sources, labels of "
                "the targets)"
            ) from None
        is_integer = np.isfinite(frame) & (frame % 1 == 0)
        is_valid = is_integer & (np.abs(frame) < MAX_NUMBER)
        if not (is_valid & np.isin(event, list(Event))).all():
            raise InputError(
                "events have frames that are whole numbers, and kinds from "
                "clew.tracking.Event"
            )
        return cls(frame.astype(np.int64), event.astype(np.int8), sources, targets)

    @classmethod
    def join(cls, tables: Sequence[Self]) -> Self:
        """Concatenate tables."""
        if not tables:
            return cls.empty()
        names = [field.name for field in fields(cls)]
        columns = [[getattr(table, name) for table in tables] for name in names]
        return cls(*map(np.concatenate, columns))

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, rows: Mask | Indices | slice) -> Self:
        return type(self)(
            self.frame[rows], self.event[rows], self.sources[rows], self.targets[rows]
        )

    def __iter__(self) -> Iterator[tuple[int, Event, tuple[int, ...], tuple[int, ...]]]:
        """Yield (frame, event, sources, targets)."""
        for frame, event, sources, targets in zip(
            self.frame.tolist(),
            self.event.tolist(),
            self.sources.tolist(),
            self.targets.tolist(),
            strict=True,
        ):
            source_labels = tuple(filter(None, sources))
            yield frame, Event(event), source_labels, tuple(filter(None, targets))

    @classmethod
    def of_false(cls, frame: ArrayLike, label: ArrayLike, n_frames: int) -> Self:
        """Return the events of detections that are no cells.

        Parameters
        ----------
        frame, label : array-like of shape (n,)
        n_frames : int
            Length of the movie, in whose first frame nothing begins, and in whose last
            one nothing ends.
        """
        frames = np.asarray(frame, dtype=np.int64)
        labels = np.zeros((len(frames), 2), dtype=np.int64)
        labels[:, 0] = label
        ends = frames < n_frames - 1
        begins = frames > 0
        kind = np.repeat(
            np.array([Event.FALSE_END, Event.FALSE_BEGIN], dtype=np.int8),
            [ends.sum(), begins.sum()],
        )
        none = np.zeros_like(labels)
        return cls(
            np.append(frames[ends], frames[begins] - 1),
            kind,
            np.concatenate([labels[ends], none[begins]]),
            np.concatenate([none[ends], labels[begins]]),
        )

    @property
    def is_false(self) -> Mask:
        """(n,) whether the cell of an event is a false detection."""
        return np.isin(self.event, list(END_OF_FALSE))

    def to_lineage_kinds(self) -> Self:
        """Replace the events of false detections by those of cells."""
        kind = self.event.copy()
        for false, event in END_OF_FALSE.items():
            kind[self.event == false] = event
        return type(self)(self.frame, kind, self.sources, self.targets)

    def shift_frames(self, n: int) -> Self:
        """The same events, `n` frames later."""
        return type(self)(self.frame + n, self.event, self.sources, self.targets)

    def end_frames(self) -> NDArray[np.int64]:
        """(n,) frames of the targets."""
        return np.asarray(self.frame + 1 + (self.event == Event.GAP), dtype=np.int64)

    def to_pairwise(self) -> Self:
        """Replace each gap by a disappearance before it and an appearance after it."""
        gaps = self[self.event == Event.GAP]
        if not len(gaps):
            return self
        none = np.full_like(gaps.sources, NONE)
        disappear = np.full(len(gaps), Event.DISAPPEAR, np.int8)
        appear = np.full(len(gaps), Event.APPEAR, np.int8)
        lost = type(self)(gaps.frame, disappear, gaps.sources, none)
        found = type(self)(gaps.frame + 1, appear, none, gaps.targets)
        return type(self).join([self[self.event != Event.GAP], lost, found])

    def row_keys(self) -> NDArray[Any]:
        """(n,) values that are equal exactly for equal events, as for `np.isin`."""
        columns = np.column_stack([self.frame, self.event, self.sources, self.targets])
        table = np.ascontiguousarray(columns.astype(np.int64))
        return table.view([("", np.int64)] * table.shape[1]).ravel()

    def describe(self, row: int) -> str:
        """Describe an event: "divide 5 → 17 + 18 from frame 12 to 13"."""
        ((frame, event, sources, targets),) = self[row : row + 1]
        sides = [" + ".join(map(str, side)) for side in (sources, targets) if side]
        end = frame + event.span
        return f"{event} {' → '.join(sides)} from frame {frame} to {end}"


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

    def find_by_cells(self, events: EventTable) -> Indices:
        """Find the events that the cells of other events take part in.

        Returns
        -------
        rows : ndarray of shape (n, 4)
            For both sources and both targets; -1 if there is none.
        """
        is_source = np.zeros(len(events), dtype=bool)
        columns = [
            self.find_cell(events.frame, is_source, label) for label in events.sources.T
        ]
        ends = events.end_frames()
        columns += [
            self.find_cell(ends, ~is_source, label) for label in events.targets.T
        ]
        return np.column_stack(columns)

    def find(self, events: EventTable) -> Indices:
        """Find equal events.

        Returns
        -------
        row : ndarray of shape (n,)
            -1 if there is none.
        """
        # the first cell of an event leads to the only candidate
        has_no_source = events.sources[:, 0] == NONE
        frame = np.where(has_no_source, events.end_frames(), events.frame)
        label = np.where(has_no_source, events.targets[:, 0], events.sources[:, 0])
        row = self.find_cell(frame, has_no_source, label)
        candidate = np.flatnonzero(row >= 0)
        found = self.events[row[candidate]]
        wanted = events[candidate]
        is_equal = (found.event == wanted.event) & (found.frame == wanted.frame)
        is_equal &= (found.sources == wanted.sources).all(axis=1)
        is_equal &= (found.targets == wanted.targets).all(axis=1)
        row[candidate[~is_equal]] = -1
        return row


def _pad_labels(cells: Sequence[Sequence[int]]) -> Labels:
    """(n, 2) labels, ascending, padded with NONE."""
    table = np.full((len(cells), 2), NONE, dtype=np.int64)
    for row, labels in enumerate(cells):
        table[row, : len(labels)] = sorted(map(index, labels))
    return table


@dataclass(frozen=True, slots=True)
class Annotations:
    """Events that happened, or did not, according to a person.

    Attributes
    ----------
    events : EventTable of length n
    happened : ndarray of bool of shape (n,)
    row : ndarray of int of shape (n,)
        Line of each in its file, from 1, for messages.
    """

    events: EventTable
    happened: Mask
    row: Indices

    def __repr__(self) -> str:
        n_happened = int(self.happened.sum())
        n_frames = len(np.unique(self.events.frame))
        return (
            f"<Annotations: {n_happened} events that happened and "
            f"{len(self.happened) - n_happened} that did not, in {n_frames} frames>"
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each annotation; a label of 0 is none."""
        import pandas as pd

        events = self.events
        names = [event.name.lower() for event in Event]
        return pd.DataFrame(
            {
                "frame": events.frame,
                "event": [names[event] for event in events.event],
                "source1": events.sources[:, 0],
                "source2": events.sources[:, 1],
                "target1": events.targets[:, 0],
                "target2": events.targets[:, 1],
                "happened": self.happened,
            }
        )

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        table: str = self.to_pandas().head(10).to_html(index=False)
        return f"<p>{escape(repr(self))}</p>{table}"

    def __post_init__(self) -> None:
        _check_table(self.events)
        shape = (len(self.events),)
        for name, column, kinds, what in (
            ("happened", self.happened, "b", "booleans"),
            ("row", self.row, "iu", "integers"),
        ):
            is_array = isinstance(column, np.ndarray) and column.shape == shape
            if not is_array or column.dtype.kind not in kinds:
                raise InputError(
                    f"{name} is {short_repr(column)}; expected an array of "
                    f"{len(self.events)} {what}"
                )

    @classmethod
    def of(cls, events: EventTable, happened: Any = True, row: Any = None) -> Self:
        """Make annotations of events.

        Parameters
        ----------
        events : EventTable
        happened : bool or array-like of shape (n,)
        row : array-like of shape (n,), optional
            Lines in a file; 1 to n by default.
        """
        _check_table(events)
        n = len(events)
        answers = check_floats(happened, "happened")
        if answers.shape not in ((), (n,)) or not np.isin(answers, (0, 1)).all():
            raise InputError(
                f"happened is {short_repr(happened)}; expected True or False, or one "
                "for each event"
            )
        rows = np.arange(1, n + 1) if row is None else check_floats(row, "row")
        if rows.shape != (n,) or not (np.abs(rows) < MAX_NUMBER).all():
            raise InputError(
                f"row is {short_repr(row)}; expected a number for each of the {n} events"
            )
        flags = np.broadcast_to(answers.astype(bool), (n,)).copy()
        return cls(events, flags, rows.astype(np.intp))

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, rows: Mask | Indices | slice) -> Self:
        return type(self)(self.events[rows], self.happened[rows], self.row[rows])

    def shift_frames(self, n: int) -> Self:
        """The same annotations, `n` frames later."""
        return type(self)(self.events.shift_frames(n), self.happened, self.row)

    def restrict_to(self, excerpt: range) -> Self:
        """Annotations within an excerpt of the movie, with frames counted from it."""
        begins_inside = self.events.frame >= excerpt.start
        is_inside = begins_inside & (self.events.end_frames() < excerpt.stop)
        return self[is_inside].shift_frames(-excerpt.start)

    def to_pairwise(self) -> Self:
        """Replace gaps as `EventTable.to_pairwise`; drop gaps that did not happen."""
        is_gap = self.events.event == Event.GAP
        if not is_gap.any():
            return self
        others = self[~is_gap]
        gaps = self[is_gap & self.happened]
        events = EventTable.join([others.events, gaps.events]).to_pairwise()
        happened = np.concatenate([others.happened, gaps.happened, gaps.happened])
        row = np.concatenate([others.row, gaps.row, gaps.row])
        return type(self)(events, happened, row)

    def select_gaps(self) -> Self:
        """Annotations of gaps."""
        return self[self.events.event == Event.GAP]

    def annotated_frames(self) -> list[int]:
        """First frames of the frame pairs with annotations, ascending."""
        frames: list[int] = np.unique(self.to_pairwise().events.frame).tolist()
        return frames

    def happened_kinds(self) -> frozenset[Event]:
        """Kinds of events that happened."""
        kinds = np.unique(self.events.event[self.happened]).tolist()
        return frozenset(map(Event, kinds))

    def select_moves(self) -> EventTable:
        """Moves that happened."""
        return self.events[self.happened & (self.events.event == Event.MOVE)]

    def select_frame(self, frame: int) -> Self:
        """Annotations of a frame pair, see `to_pairwise`."""
        pairwise = self.to_pairwise()
        return pairwise[pairwise.events.frame == frame]

    def content_key(self) -> bytes:
        """A value that is equal exactly for equal annotations in any order."""
        keys = self.events.row_keys()
        order = np.argsort(keys, kind="stable")
        return bytes(keys[order].tobytes() + self.happened[order].tobytes())


def _check_table(events: object) -> None:
    """Refuse anything but an EventTable."""
    if not isinstance(events, EventTable):
        raise InputError(
            f"events is {short_repr(events)}; expected an EventTable, as EventTable.of "
            "makes it"
        )


def check_annotations(
    annotations: Annotations,
    labels_of: Callable[[int], ArrayLike],
    n_frames: int,
    where: str = "the annotations",
) -> Annotations:
    """Check that annotated cells exist and that no two annotations contradict.

    Raises InputError with a line for each fault.

    Parameters
    ----------
    annotations : Annotations
    labels_of : callable
        Gives the labels of a frame; called for annotated frames only.
    n_frames : int
        Length of the movie.
    where : str
        Name of the annotations in messages.

    Returns
    -------
    annotations : Annotations
        Without repetitions.
    """
    faults = Faults(where or "the annotations")
    events = annotations.events
    is_outside = (events.frame < 0) | (events.end_frames() > n_frames - 1)
    rows = np.flatnonzero(is_outside)
    length = (
        f"but the movie ends with frame {n_frames - 1}"
        if n_frames > 1
        else f"but the movie has {max(n_frames, 0)} frames"
    )
    faults.add(annotations.row[rows], lambda i: f"{events.describe(rows[i])}, {length}")
    _check_labels(annotations[~is_outside], labels_of, faults)
    unique = _drop_repeated(annotations)
    _check_answers(unique, faults)
    _check_fates(unique[unique.happened], faults)
    faults.refuse()
    return unique


def _drop_repeated(annotations: Annotations) -> Annotations:
    """Drop annotations that repeat an earlier one."""
    keys = np.column_stack([_make_rows(annotations.events), annotations.happened])
    _, first = np.unique(keys, axis=0, return_index=True)
    return annotations[np.sort(first)]


def _make_rows(events: EventTable) -> NDArray[np.int64]:
    """(n, 6) events as rows of integers."""
    columns = np.column_stack(
        [events.frame, events.event, events.sources, events.targets]
    )
    return columns.astype(np.int64)


class _Mentions(NamedTuple):
    """Cells that events name; (k,) each."""

    row: Indices
    frame: NDArray[np.int64]
    is_target: Mask
    label: Labels


def _list_mentions(events: EventTable) -> _Mentions:
    """List every cell that an event names."""
    cells = np.hstack([events.sources, events.targets])
    row, side = np.nonzero(cells != NONE)
    is_target = side >= 2
    frame = np.where(is_target, events.end_frames()[row], events.frame[row])
    return _Mentions(row, frame, is_target, cells[row, side])


def _check_labels(
    annotations: Annotations, labels_of: Callable[[int], ArrayLike], faults: Faults
) -> None:
    """Add a fault for each cell that is not in its frame."""
    events = annotations.events
    mentions = _list_mentions(events)
    exists = np.zeros(len(mentions.row), dtype=bool)
    order = np.argsort(mentions.frame, kind="stable")
    frames, starts = np.unique(mentions.frame[order], return_index=True)
    groups = np.split(order, starts[1:])  # one empty group if there are no frames
    for t, rows in zip(frames.tolist(), groups, strict=False):
        exists[rows] = np.isin(mentions.label[rows], np.asarray(labels_of(t)))
    missing = np.flatnonzero(~exists)

    def describe(i: int) -> str:
        at = missing[i]
        return (
            f"{events.describe(mentions.row[at])}, but there is no label "
            f"{mentions.label[at]} in frame {mentions.frame[at]}"
        )

    faults.add(annotations.row[mentions.row[missing]], describe)


def _check_answers(unique: Annotations, faults: Faults) -> None:
    """Add a fault for each event that happened and did not."""
    _, event, count = np.unique(
        _make_rows(unique.events), axis=0, return_inverse=True, return_counts=True
    )
    event = event.ravel()
    repeated = np.flatnonzero(count[event] > 1)
    # the sort is stable, so each pair is in the order of the file
    pairs = repeated[np.argsort(event[repeated], kind="stable")].reshape(-1, 2)
    words = {True: "happened", False: "did not happen"}

    def describe(i: int) -> str:
        first, second = pairs[i]
        return (
            f"{unique.events.describe(first)} {words[bool(unique.happened[first])]}, "
            f"but by row {unique.row[second]} {words[bool(unique.happened[second])]}"
        )

    faults.add(unique.row[pairs[:, 0]], describe)


def _check_fates(happened: Annotations, faults: Faults) -> None:
    """Add a fault for each cell with two fates or two histories.

    All events are different, so two that share a cell on one side contradict.
    """
    events = happened.events
    row, frame, is_target, label = _list_mentions(events)
    order = np.lexsort([row, label, frame, is_target])
    row = row[order]
    cells = np.column_stack([is_target, frame, label])[order]
    second = np.flatnonzero((cells[1:] == cells[:-1]).all(axis=1)) + 1
    row_pairs = np.column_stack([row[second - 1], row[second]])
    pairs, at = np.unique(row_pairs, axis=0, return_index=True)

    def describe(i: int) -> str:
        first, other = pairs[i]
        target, t, name = cells[second[at[i]]]
        return (
            f"{events.describe(first)} contradicts row {happened.row[other]}, "
            f"{events.describe(other)}: label {name} of frame {t} can have one "
            f"{'history' if target else 'fate'} only"
        )

    faults.add(happened.row[pairs[:, 0]], describe)
