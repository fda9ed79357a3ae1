"""What may have happened between two frames: the candidate events, among them all that were annotated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.errors import InputError
from clew.learning.task import Indices, Mask
from clew.tracking.detections import Detections, Overlap
from clew.tracking.events import NONE, PAIRWISE, Event, EventTable
from clew.tracking.flow.motion import Motion
from clew.tracking.profiling.scales import Scales
from clew.utils.validation import check_int, check_positive

NEIGHBOURS = 4
"""How many cells of the other frame each cell is compared with, as in the paper's predecessor."""
MAX_NEIGHBOURS = 64
"""More can be told apart by nobody, and the candidates grow with the square."""
FAR_WAYS, FAR_DIAMETERS = 3.0, 2.0
"""The reach: a multiple of how far nearly all cells move, and a multiple of a cell's diameter."""
ALL_EVENTS = frozenset(Event)

Columns = tuple[Indices, ...]
"""(n,) each: the sources' rows, then the targets', as many as the event has."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Events that may happen between two frames, each once; sorted by event, then sources, then targets."""

    event: NDArray[np.int8]
    """(n,) values of `Event`, ascending."""
    sources: Indices
    """(n, 2) rows in the first frame, ascending, −1 filled up on the right."""
    targets: Indices
    """(n, 2) rows in the second, likewise."""
    n_sources: int
    n_targets: int

    @classmethod
    def of(cls, columns: dict[Event, Columns], n_sources: int, n_targets: int) -> Self:
        """From the columns of each event, in any order and with duplicates; two cells of one side in any order."""
        events, sources, targets = (
            [np.zeros(0, np.int8)],
            [np.zeros((0, 2), np.intp)],
            [np.zeros((0, 2), np.intp)],
        )
        for event in Event:
            shape = _shape(event, n_sources, n_targets)
            if event not in columns or not all(shape):
                continue
            keys = np.unique(_keys(event, columns[event], shape))
            cells = np.unravel_index(keys, shape)
            events.append(np.full(len(keys), event, dtype=np.int8))
            sources.append(_two(cells[: event.arity[0]], len(keys)))
            targets.append(_two(cells[event.arity[0] :], len(keys)))
        return cls(
            np.concatenate(events),
            np.concatenate(sources),
            np.concatenate(targets),
            int(n_sources),
            int(n_targets),
        )

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, rows: Mask) -> Self:
        """Some of them."""
        return replace(
            self,
            event=self.event[rows],
            sources=self.sources[rows],
            targets=self.targets[rows],
        )

    def of_event(self, event: Event) -> slice:
        """Where the candidates of one event stand."""
        return slice(*np.searchsorted(self.event, [event, event + 1]).tolist())

    def table(
        self, a: Detections, b: Detections, rows: Any = slice(None)
    ) -> EventTable:
        """These candidates by the labels of their cells."""
        sources, targets = self.sources[rows], self.targets[rows]
        frame = np.full(len(sources), a.frame, dtype=np.int64)
        return EventTable(
            frame, self.event[rows], _labels(a, sources), _labels(b, targets)
        )


def candidates(
    a: Detections,
    b: Detections,
    *,
    reach: float,
    neighbours: int = NEIGHBOURS,
    overlap: Overlap | None = None,
    events: Collection[Event] = ALL_EVENTS,
    extra: EventTable | None = None,
) -> Candidates:
    """What may happen from frame `a` to `b`, two consecutive ones; positions are relative to the flow between them.

    A cell's neighbours in the other frame are the `neighbours` nearest centroids within `reach`, and as many of those
    whose masks it shares most with, so that long cells reach their daughters past what lies beside them. A move leads
    to a neighbour, seen from either end. A division or split takes two neighbours of its source, a merge two of its
    target. Every cell may appear and disappear. Kinds that are not in `events` are left out. Events of `extra` that
    begin in frame `a` are always among the candidates.

    With k neighbours and n cells on each side there are at most n (2k + 3 k(k − 1)/2 + 2) candidates, 28 a cell for
    k = 4, at 33 bytes each: 46 MB for 50,000 cells in a frame, and three times that while they are made. Round cells
    share pixels with few but their nearest; long ones may have up to 2k neighbours.
    """
    neighbours = check_int(neighbours, "neighbours", 1, MAX_NEIGHBOURS)
    check_positive(reach, "reach")
    shared = Overlap.empty() if overlap is None else overlap
    forward = _joined(
        _nearest(a.position, b.position, neighbours, reach),
        _most_shared(shared.source, shared.target, shared.volume, len(a), neighbours),
    )
    backward = _joined(
        _nearest(b.position, a.position, neighbours, reach),
        _most_shared(shared.target, shared.source, shared.volume, len(b), neighbours),
    )
    ahead, back = _links(forward), _links(backward)[::-1]
    daughters, merging = _pairs(forward), _pairs(backward)
    columns: dict[Event, Columns] = {
        Event.MOVE: tuple(
            np.concatenate(ends) for ends in zip(ahead, back, strict=True)
        ),
        Event.DIVIDE: daughters,
        Event.APPEAR: (np.arange(len(b)),),
        Event.DISAPPEAR: (np.arange(len(a)),),
        Event.SPLIT: daughters,
        Event.MERGE: (*merging[1:], merging[0]),
    }
    for event in set(PAIRWISE).difference(events):
        columns[event] = tuple(column[:0] for column in columns[event])
    for event, given in ({} if extra is None else _columns(extra, a, b)).items():
        columns[event] = tuple(
            np.concatenate(both) for both in zip(columns[event], given, strict=True)
        )
    return Candidates.of(columns, len(a), len(b))


def estimate_reach(motion: Motion, scales: Scales) -> float:
    """How far a cell may get from one frame to the next: three times what nearly all cells do, and two diameters.

    Cells that are each other's nearest tell of movement; daughters, which part quickly, get about two diameters.
    """
    return float(max(FAR_WAYS * motion.far_step, FAR_DIAMETERS * scales.diameter))


def find(
    among: Candidates, events: EventTable, a: Detections, b: Detections
) -> Indices:
    """(n,) where each of these events, which must begin in frame `a`, stands among the candidates; −1 if nowhere."""
    sources, targets = a.rows(events.sources), b.rows(events.targets)
    found = np.full(len(events), -1, dtype=np.intp)
    for event in Event:
        shape, block = (
            _shape(event, among.n_sources, among.n_targets),
            among.of_event(event),
        )
        known = _complete(events, sources, targets, event)
        if block.start == block.stop or not len(known):
            continue
        there = _keys(
            event, _used(event, among.sources[block], among.targets[block]), shape
        )
        asked = _keys(event, _used(event, sources[known], targets[known]), shape)
        at = np.minimum(np.searchsorted(there, asked), len(there) - 1)
        found[known] = np.where(there[at] == asked, block.start + at, -1)
    return found


def _nearest(
    of: NDArray[np.float64], among: NDArray[np.float64], k: int, reach: float
) -> Indices:
    """(n, k) the rows nearest to each, nearest first; −1 where there are fewer within reach."""
    if not len(of) or not len(among):
        return np.full((len(of), k), -1, dtype=np.intp)
    _, found = cKDTree(among).query(
        of, k=np.arange(1, k + 1), distance_upper_bound=np.nextafter(reach, np.inf)
    )
    return np.where(found == len(among), -1, found).astype(np.intp)


def _most_shared(
    of: Indices, among: Indices, volume: NDArray[np.float64], n: int, k: int
) -> Indices:
    """(n, k) the rows that each shares most with, most first; −1 where there are fewer."""
    order = np.lexsort((-volume, of))
    row = of[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    table = np.full((n, k), -1, dtype=np.intp)
    first = place < k
    table[row[first], place[first]] = among[order[first]]
    return table


def _joined(nearest: Indices, shared: Indices) -> Indices:
    """(n, m) the neighbours of two tables, each once, those of the first table first; −1 fills up on the right."""
    known = (shared[:, :, None] == nearest[:, None, :]).any(axis=2)
    both = np.concatenate([nearest, np.where(known, -1, shared)], axis=1)
    order = np.argsort(both < 0, axis=1, kind="stable")
    width = int((both >= 0).sum(axis=1).max(initial=0))
    return np.take_along_axis(both, order, axis=1)[:, : max(width, 1)]


def _links(nearest: Indices) -> tuple[Indices, Indices]:
    """(m,) each: every row with every neighbour of its own."""
    row, place = np.nonzero(nearest >= 0)
    return row, nearest[row, place]


def _pairs(nearest: Indices) -> tuple[Indices, Indices, Indices]:
    """(m,) each: every row with every two neighbours of its own."""
    first, second = (
        np.array([*combinations(range(nearest.shape[1]), 2)], dtype=np.intp)
        .reshape(-1, 2)
        .T
    )
    row, pair = np.nonzero(
        nearest[:, second] >= 0
    )  # nearest first: where there is a second, there is a first
    return row, nearest[row, first[pair]], nearest[row, second[pair]]


def _columns(events: EventTable, a: Detections, b: Detections) -> dict[Event, Columns]:
    """The events that begin in frame `a`, by the rows of their cells."""
    events = events[events.frame == a.frame]
    sources, targets = a.rows(events.sources), b.rows(events.targets)
    columns = {}
    for event in PAIRWISE:
        rows = _complete(events, sources, targets, event)
        if len(rows) < (events.event == event).sum():
            missing = np.setdiff1d(np.flatnonzero(events.event == event), rows)[0]
            raise InputError(
                f"{events.describe(missing)}: not all of these cells are in frames {a.frame} and {b.frame} of the movie"
            )
        columns[event] = _used(event, sources[rows], targets[rows])
    return columns


def _complete(
    events: EventTable, sources: Indices, targets: Indices, event: Event
) -> Indices:
    """The rows of `events` that are of this kind and whose cells are all there."""
    there = [
        (cells[:, :n] >= 0).all(axis=1)
        for cells, n in zip((sources, targets), event.arity, strict=True)
    ]
    return np.flatnonzero((events.event == event) & there[0] & there[1])


def _used(event: Event, sources: Indices, targets: Indices) -> Columns:
    """The columns that this kind of event has."""
    return (*sources[:, : event.arity[0]].T, *targets[:, : event.arity[1]].T)


def _shape(event: Event, n_sources: int, n_targets: int) -> tuple[int, ...]:
    """How many cells each column of the event chooses from."""
    return (n_sources,) * event.arity[0] + (n_targets,) * event.arity[1]


def _keys(event: Event, columns: Columns, shape: tuple[int, ...]) -> Indices:
    """(n,) one number for each event, in the order of their columns; 63 bits are enough for two million cells."""
    cells = [*columns]
    if 2 in event.arity:
        pair = slice(0, 2) if event.arity[0] == 2 else slice(1, 3)
        cells[pair] = np.minimum(*cells[pair]), np.maximum(*cells[pair])
    return np.ravel_multi_index(tuple(cells), shape)


def _two(cells: Columns, n: int) -> Indices:
    """(n, 2) one or two or no columns, filled up with −1."""
    return np.column_stack(
        [*cells, *[np.full(n, -1, dtype=np.intp)] * (2 - len(cells))]
    )


def _labels(frame: Detections, rows: Indices) -> NDArray[np.int64]:
    """The labels of rows of any shape, `NONE` for −1."""
    return np.append(frame.label, NONE)[rows]
