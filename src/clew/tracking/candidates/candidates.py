"""Candidate events between two frames, annotated ones included."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import Detections, Overlap
from clew.tracking.events import (
    CANDIDATE_KINDS,
    LINEAGE_KINDS,
    NONE,
    Event,
    EventTable,
)
from clew.tracking.flow.motion import Motion
from clew.tracking.scales import Scales
from clew.tracking.user_columns import Links
from clew.utils.validation import check_int, check_positive

NEIGHBOURS = 4
"""Cells of the other frame that each cell is compared with."""
MAX_NEIGHBOURS = 64
"""The number of candidates grows with the square."""
FAR_STEPS = 3.0
"""The reach is at least this multiple of how far nearly all cells move."""
FAR_DIAMETERS = 2.0
"""The reach is at least so many diameters of a cell: daughters part quickly."""
ALL_EVENTS = frozenset(LINEAGE_KINDS)

Columns = tuple[Indices, ...]
"""(n,) each: rows of the sources, then of the targets, as many as the event has."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Events that may happen between two frames, each once.

    They are sorted by event, then sources, then targets.
    """

    event: NDArray[np.int8]
    """(n,) values of `Event`, ascending."""
    sources: Indices
    """(n, 2) rows in the first frame, ascending, padded with −1 on the right."""
    targets: Indices
    """(n, 2) rows in the second frame, likewise."""
    n_sources: int
    n_targets: int

    @classmethod
    def from_columns(
        cls, columns: dict[Event, Columns], n_sources: int, n_targets: int
    ) -> Self:
        """Sort the events of each kind and remove duplicates.

        Parameters
        ----------
        columns : dict of Event to tuple of ndarray
            Rows of the sources, then of the targets, as many as the event has. Two
            cells of one side may be in any order.
        n_sources, n_targets : int
            Cells of the first and of the second frame.

        Returns
        -------
        Candidates
        """
        events = [np.zeros(0, np.int8)]
        sources = [np.zeros((0, 2), np.intp)]
        targets = [np.zeros((0, 2), np.intp)]
        for event in Event:
            shape = _key_shape(event, n_sources, n_targets)
            if event not in columns or not all(shape):
                continue
            keys = np.unique(_make_keys(event, columns[event], shape))
            cells = np.unravel_index(keys, shape)
            events.append(np.full(len(keys), event, dtype=np.int8))
            sources.append(_pad_columns(cells[: event.arity[0]], len(keys)))
            targets.append(_pad_columns(cells[event.arity[0] :], len(keys)))
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
        """Select some of them."""
        return replace(
            self,
            event=self.event[rows],
            sources=self.sources[rows],
            targets=self.targets[rows],
        )

    @property
    def n_detections(self) -> int:
        """Detections of both frames."""
        return self.n_sources + self.n_targets

    def detections_of(self, rows: Any = slice(None)) -> Indices:
        """Return the detections of some candidates.

        Returns
        -------
        ndarray of shape (n, 4)
            Two sources and two targets, as rows of the first frame followed by the
            second; −1 where there are fewer.
        """
        targets = self.targets[rows]
        targets = np.where(targets >= 0, targets + self.n_sources, -1)
        return np.column_stack([self.sources[rows], targets]).astype(np.intp)

    def of_event(self, event: Event) -> slice:
        """Return the rows of the candidates of one event."""
        return slice(*np.searchsorted(self.event, [event, event + 1]).tolist())

    def table(
        self, source: Detections, target: Detections, rows: Any = slice(None)
    ) -> EventTable:
        """Return candidates by the labels of their cells.

        Parameters
        ----------
        source, target : Detections
            The two frames.
        rows : index, optional
            Of the candidates; all by default.

        Returns
        -------
        EventTable
        """
        sources = self.sources[rows]
        targets = self.targets[rows]
        frame = np.full(len(sources), source.frame, dtype=np.int64)
        return EventTable(
            frame,
            self.event[rows],
            np.append(source.label, NONE)[sources],
            np.append(target.label, NONE)[targets],
        )

    def find(
        self, events: EventTable, source: Detections, target: Detections
    ) -> Indices:
        """Find events among the candidates.

        Parameters
        ----------
        events : EventTable
            n events that begin in the first frame.
        source, target : Detections
            The two frames.

        Returns
        -------
        ndarray of shape (n,)
            Rows of the candidates; −1 for events that are not among them.
        """
        sources = source.rows(events.sources)
        targets = target.rows(events.targets)
        found = np.full(len(events), -1, dtype=np.intp)
        for event in Event:
            block = self.of_event(event)
            rows = _find_complete(events, sources, targets, event)
            if block.start == block.stop or not len(rows):
                continue
            shape = _key_shape(event, self.n_sources, self.n_targets)
            columns = _split_columns(event, self.sources[block], self.targets[block])
            known = _make_keys(event, columns, shape)
            columns = _split_columns(event, sources[rows], targets[rows])
            keys = _make_keys(event, columns, shape)
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            found[rows] = np.where(known[place] == keys, block.start + place, -1)
        return found


def find_candidates(
    source: Detections,
    target: Detections,
    *,
    reach: float,
    neighbours: int = NEIGHBOURS,
    overlap: Overlap | None = None,
    links: Links | None = None,
    events: Collection[Event] = ALL_EVENTS,
    extra: EventTable | None = None,
) -> Candidates:
    """Find the events that may happen between two consecutive frames.

    A move leads to a neighbor, seen from either end. A division or split takes two
    neighbors of its source, a merge two of its target. Every cell may appear and
    disappear.

    With k neighbors and n cells in each frame there are at most
    n (2k + 3 k(k − 1)/2 + 2) candidates, 28 a cell for k = 4, at 33 bytes each: 46 MB
    for 50,000 cells, and three times that while they are made.

    Parameters
    ----------
    source, target : Detections
        The two frames, the first moved by the flow.
    reach : float
        Largest distance between neighbors.
    neighbours : int
        A cell's neighbors are so many nearest cells of the other frame, and as many
        whose masks share most with its own: long cells reach their daughters past what
        lies beside them.
    overlap : Overlap, optional
        Of the masks.
    links : Links, optional
        Pairs of cells that the user lists; the nearest are neighbors too.
    events : collection of Event, optional
        Kinds of events that can happen.
    extra : EventTable, optional
        Those that begin in the first frame are always among the candidates.

    Returns
    -------
    Candidates
    """
    neighbours = check_int(neighbours, "neighbours", 1, MAX_NEIGHBOURS)
    check_positive(reach, "reach")
    shared = Overlap.empty() if overlap is None else overlap
    forward = _merge_neighbors(
        _find_nearest(source.position, target.position, neighbours, reach),
        _find_most_shared(
            shared.source, shared.target, shared.volume, len(source), neighbours
        ),
    )
    backward = _merge_neighbors(
        _find_nearest(target.position, source.position, neighbours, reach),
        _find_most_shared(
            shared.target, shared.source, shared.volume, len(target), neighbours
        ),
    )
    if links is not None:
        steps = source.position[links.source] - target.position[links.target]
        nearness = -np.linalg.norm(steps, axis=1)
        forward = _merge_neighbors(
            forward,
            _find_most_shared(
                links.source, links.target, nearness, len(source), neighbours
            ),
        )
        backward = _merge_neighbors(
            backward,
            _find_most_shared(
                links.target, links.source, nearness, len(target), neighbours
            ),
        )
    from_source, to_target = _list_links(forward)
    from_target, to_source = _list_links(backward)
    families = _list_pairs(forward)
    merged, first, second = _list_pairs(backward)
    columns: dict[Event, Columns] = {
        Event.MOVE: (
            np.concatenate([from_source, to_source]),
            np.concatenate([to_target, from_target]),
        ),
        Event.DIVIDE: families,
        Event.APPEAR: (np.arange(len(target)),),
        Event.DISAPPEAR: (np.arange(len(source)),),
        Event.FALSE_END: (np.arange(len(source)),),
        Event.FALSE_BEGIN: (np.arange(len(target)),),
        Event.SPLIT: families,
        Event.MERGE: (first, second, merged),
    }
    for event in set(CANDIDATE_KINDS).difference(events):
        columns[event] = tuple(column[:0] for column in columns[event])
    if extra is not None:
        for event, more in _columns_of_events(extra, source, target).items():
            pairs = zip(columns[event], more, strict=True)
            columns[event] = tuple(np.concatenate(pair) for pair in pairs)
    return Candidates.from_columns(columns, len(source), len(target))


def estimate_reach(motion: Motion, scales: Scales) -> float:
    """Estimate how far a cell may get from one frame to the next.

    Parameters
    ----------
    motion : Motion
    scales : Scales
        Of the movie.

    Returns
    -------
    float
        In physical units.
    """
    return float(max(FAR_STEPS * motion.far_step, FAR_DIAMETERS * scales.diameter))


def _find_nearest(x: Array, others: Array, k: int, reach: float) -> Indices:
    """Return (n, k) the nearest points, nearest first; −1 if fewer are within reach."""
    if not len(x) or not len(others):
        return np.full((len(x), k), -1, dtype=np.intp)
    limit = np.nextafter(reach, np.inf)
    _, rows = cKDTree(others).query(
        x, k=np.arange(1, k + 1), distance_upper_bound=limit
    )
    return np.where(rows == len(others), -1, rows).astype(np.intp)


def _find_most_shared(
    rows: Indices, partners: Indices, volume: Array, n: int, k: int
) -> Indices:
    """Return (n, k) the partners that share most, most first; −1 if there are fewer."""
    order = np.lexsort((-volume, rows))
    row = rows[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    table = np.full((n, k), -1, dtype=np.intp)
    is_among_first = place < k
    table[row[is_among_first], place[is_among_first]] = partners[order[is_among_first]]
    return table


def _merge_neighbors(nearest: Indices, shared: Indices) -> Indices:
    """Merge two tables of neighbors, each once, the first table's first; −1 pads."""
    is_duplicate = (shared[:, :, None] == nearest[:, None, :]).any(axis=2)
    both = np.concatenate([nearest, np.where(is_duplicate, -1, shared)], axis=1)
    order = np.argsort(both < 0, axis=1, kind="stable")
    width = int((both >= 0).sum(axis=1).max(initial=0))
    return np.take_along_axis(both, order, axis=1)[:, : max(width, 1)]


def _list_links(neighbors: Indices) -> tuple[Indices, Indices]:
    """Return (m,) each: every row with each of its neighbors."""
    row, place = np.nonzero(neighbors >= 0)
    return row, neighbors[row, place]


def _list_pairs(neighbors: Indices) -> tuple[Indices, Indices, Indices]:
    """Return (m,) each: every row with every two of its neighbors."""
    pairs = list(combinations(range(neighbors.shape[1]), 2))
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    # rows are padded on the right: where there is a second, there is a first
    row, pair = np.nonzero(neighbors[:, second] >= 0)
    return row, neighbors[row, first[pair]], neighbors[row, second[pair]]


def _columns_of_events(
    events: EventTable, source: Detections, target: Detections
) -> dict[Event, Columns]:
    """Return the events that begin in the first frame by the rows of their cells."""
    events = events[events.frame == source.frame]
    sources = source.rows(events.sources)
    targets = target.rows(events.targets)
    columns = {}
    for event in CANDIDATE_KINDS:
        rows = _find_complete(events, sources, targets, event)
        if len(rows) < (events.event == event).sum():
            missing = np.setdiff1d(np.flatnonzero(events.event == event), rows)[0]
            raise InputError(
                f"{events.describe(missing)}: not all of these cells are in frames "
                f"{source.frame} and {target.frame} of the movie"
            )
        columns[event] = _split_columns(event, sources[rows], targets[rows])
    return columns


def _find_complete(
    events: EventTable, sources: Indices, targets: Indices, event: Event
) -> Indices:
    """Return the rows of `events` of one kind whose cells all exist."""
    n_sources, n_targets = event.arity
    has_sources = (sources[:, :n_sources] >= 0).all(axis=1)
    has_targets = (targets[:, :n_targets] >= 0).all(axis=1)
    return np.flatnonzero((events.event == event) & has_sources & has_targets)


def _split_columns(event: Event, sources: Indices, targets: Indices) -> Columns:
    """Return the columns that an event of this kind has."""
    return (*sources[:, : event.arity[0]].T, *targets[:, : event.arity[1]].T)


def _key_shape(event: Event, n_sources: int, n_targets: int) -> tuple[int, ...]:
    """Return how many cells each column of the event chooses from."""
    return (n_sources,) * event.arity[0] + (n_targets,) * event.arity[1]


def _make_keys(event: Event, columns: Columns, shape: tuple[int, ...]) -> Indices:
    """Return (n,) one number for each event; 63 bits suffice for two million cells."""
    cells = list(columns)
    if 2 in event.arity:
        k = 0 if event.arity[0] == 2 else 1
        low = np.minimum(cells[k], cells[k + 1])
        cells[k + 1] = np.maximum(cells[k], cells[k + 1])
        cells[k] = low
    return np.ravel_multi_index(tuple(cells), shape)


def _pad_columns(cells: Columns, n: int) -> Indices:
    """Return (n, 2) up to two columns, padded with −1."""
    padding = [np.full(n, -1, dtype=np.intp)] * (2 - len(cells))
    return np.column_stack([*cells, *padding])
