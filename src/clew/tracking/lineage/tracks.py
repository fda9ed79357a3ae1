"""Tracks: when each begins and ends, its parent, and the faults of a table of tracks.

Track ids are assigned through merges, splits and gaps. A merged detection continues the
track that fits it better; the other cell waits. When the detection splits, the cells
within are matched to its parts by volume, by intensity, and by the side on which each
went in. The cell that continued keeps its track; another starts a new track whose
parent is its ended one. If more than two cells are within, the best-fitting pair
continues and the rest waits in the larger part. Cells that wait in a detection that
divides or disappears are not seen again.

A cell that is back after a gap starts a new track too, whose parent is its ended one: a
track of the Cell Tracking Challenge is in every frame from its first to its last.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import pdtrc

from clew.errors import DataWarning, InputError
from clew.learning.task import Array, Mask
from clew.tracking.events import Event, Labels
from clew.tracking.lineage.links import is_one_of
from clew.utils.validation import MAX_FAULTS

NO_PARENT = 0
"""The parent of a track without one."""
MAX_CHILDREN = 2
"""Daughters of a division; more are rare, as of a tripolar mitosis."""
SIGNIFICANCE = 0.01
"""Beginnings and ends of tracks would meet as often by chance with at most this
probability, if detections in no track are to count as false."""
Integers = NDArray[np.signedinteger[Any]]
MATCHED_COLUMNS = ("volume", "intensity")
"""Measurements that are compared, as logarithms, where there are any."""


class MissingFromMask(InputError):
    """A track is alive by its table, but not in the mask of a frame."""


@dataclass(frozen=True, slots=True)
class Tracks:
    """A table of tracks, as the Cell Tracking Challenge has it.

    Attributes
    ----------
    id : ndarray of shape (n,)
        Positive, each once.
    begin, end : ndarray of shape (n,)
        First and last frame, counted from 0, both included.
    parent : ndarray of shape (n,)
        Id of the track that it came from, or `NO_PARENT`.
    is_false : ndarray of shape (n,), optional
        Which of them learned weights take for false detections; None if unknown.
    """

    id: Labels
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    parent: Labels
    is_false: Mask | None = None

    @classmethod
    def of(cls, table: ArrayLike) -> Self:
        """Make tracks of rows (id, begin, end, parent)."""
        columns = np.asarray(table, dtype=np.int64).reshape(-1, 4).T
        ids, begin, end, parent = map(np.ascontiguousarray, columns)
        return cls(ids, begin, end, parent)

    def table(self) -> NDArray[np.int64]:
        """(n, 4) rows (id, begin, end, parent)."""
        return np.column_stack([self.id, self.begin, self.end, self.parent])

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, rows: Any) -> Self:
        """Some of the tracks."""
        is_false = None if self.is_false is None else self.is_false[rows]
        return type(self)(
            self.id[rows],
            self.begin[rows],
            self.end[rows],
            self.parent[rows],
            is_false,
        )

    def is_lone(self) -> Mask:
        """(n,) tracks of one cell that comes from nothing and leads to nothing."""
        is_short: Mask = (self.begin == self.end) & (self.parent == NO_PARENT)
        return is_short & ~np.isin(self.id, self.parent)

    def within(self, frames: range) -> Self:
        """Cut the tracks to consecutive frames, which are counted from 0 again.

        Parents that ended before are unknown.
        """
        alive = self[(self.end >= frames.start) & (self.begin < frames.stop)]
        begin = np.maximum(alive.begin, frames.start) - frames.start
        end = np.minimum(alive.end, frames.stop - 1) - frames.start
        has_parent = np.isin(alive.parent, alive.id)
        parent = np.where(has_parent, alive.parent, NO_PARENT)
        return type(self)(alive.id, begin, end, parent, alive.is_false)

    def parent_row(self) -> NDArray[np.intp]:
        """(n,) row of the parent of each track; -1 if it has none in the table."""
        order = np.argsort(self.id, kind="stable")
        if not len(order):
            return np.empty(0, dtype=np.intp)
        place = np.searchsorted(self.id, self.parent, sorter=order)
        row = order[np.minimum(place, len(order) - 1)]
        exists = (self.parent != NO_PARENT) & (self.id[row] == self.parent)
        return np.where(exists, row, -1)

    def child_count(self, parent_row: NDArray[np.intp]) -> NDArray[np.intp]:
        """(n,) number of children of each track, from the result of `parent_row`."""
        return np.bincount(parent_row[parent_row >= 0], minlength=len(self))

    def generations(self) -> NDArray[np.int64]:
        """(n,) number of divisions before each track; ids must be ascending."""
        parent = np.searchsorted(self.id, self.parent)
        is_orphan = self.parent == NO_PARENT
        # an only child is no daughter but the same cell, seen again after a merge
        divides = np.bincount(parent[~is_orphan], minlength=len(self)) > 1
        parent[is_orphan] = 0
        generations = np.zeros(len(self), dtype=np.int64)
        while True:  # one step for each generation
            later = np.where(is_orphan, 0, generations[parent] + divides[parent])
            if np.array_equal(later, generations):
                return generations
            generations = later


def check_tracks(tracks: Tracks, where: str, rows: ArrayLike | None = None) -> None:
    """Refuse a table that no lineage can have; name the row of its first fault.

    Parameters
    ----------
    tracks : Tracks
    where : str
        Name of the table in messages.
    rows : array-like of int of shape (n,), optional
        Row of each track in the table; counted from 1 by default.
    """
    if not len(tracks):
        return
    row = np.arange(1, len(tracks) + 1) if rows is None else np.asarray(rows)
    id = tracks.id
    begin = tracks.begin
    end = tracks.end
    parent = tracks.parent
    parent_row = tracks.parent_row()
    is_repeated = np.ones(len(id), dtype=bool)
    is_repeated[np.unique(id, return_index=True)[1]] = False

    def refuse(is_faulty: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
        if is_faulty.any():
            i = int(np.argmax(is_faulty))
            raise InputError(f"{where}, row {row[i]}: {describe(i)}")

    refuse(
        id < 1,
        lambda i: (
            f"the track has the id {id[i]}; ids are positive integers, 0 is the "
            "background"
        ),
    )
    refuse(
        is_repeated,
        lambda i: (
            f"track {id[i]} stands in row {row[np.argmax(id == id[i])]} already; an id "
            "names one track"
        ),
    )
    refuse(
        begin < 0,
        lambda i: f"track {id[i]} begins in frame {begin[i]}, before the movie's first",
    )
    refuse(
        end < begin,
        lambda i: (
            f"track {id[i]} ends in frame {end[i]}, before it begins in frame "
            f"{begin[i]}"
        ),
    )
    refuse(
        parent == id,
        lambda i: (
            f"track {id[i]} is its own parent; a track without a parent has the parent "
            "0"
        ),
    )
    refuse(
        (parent != NO_PARENT) & (parent_row < 0),
        lambda i: f"the parent {parent[i]} of track {id[i]} is not in the table",
    )
    refuse(
        _in_cycle(parent_row),
        lambda i: f"track {id[i]} is its own ancestor, through its parent {parent[i]}",
    )
    refuse(
        (parent_row >= 0) & (begin <= end[parent_row]),
        lambda i: (
            f"track {id[i]} begins in frame {begin[i]}, but its parent {parent[i]} "
            f"lasts to frame {end[parent_row[i]]}; a child begins after its parent has "
            "ended"
        ),
    )
    _warn_of_many_children(tracks, parent_row, where, row)


def check_frame(
    tracks: Tracks, t: int, labels: NDArray[Any], where: str = "the masks"
) -> None:
    """Refuse labels of frame `t` other than those of the tracks that are alive in it.

    0 is the background.
    """
    alive = tracks.id[(tracks.begin <= t) & (t <= tracks.end)]
    unknown = np.setdiff1d(labels, np.append(alive, 0))
    if len(unknown):
        rows = np.flatnonzero(tracks.id == unknown[0])
        state = "does not exist"
        if len(rows):
            first = tracks.begin[rows[0]]
            state = f"lasts from frame {first} to {tracks.end[rows[0]]}"
        raise InputError(
            f"{where}, frame {t}: label {unknown[0]} is in the mask, but by the table "
            f"track {unknown[0]} {state}"
        )
    missing = np.setdiff1d(alive, labels)
    if len(missing):
        raise MissingFromMask(
            f"{where}, frame {t}: track {missing[0]} is alive by the table, but not in "
            "the mask"
        )


def _warn_of_many_children(
    tracks: Tracks, parent_row: NDArray[np.intp], where: str, row: NDArray[Any]
) -> None:
    """Warn of cells with more than two daughters, which no event of clew has."""
    mothers = np.flatnonzero(tracks.child_count(parent_row) > MAX_CHILDREN)
    if not len(mothers):
        return
    parts = []
    for mother in mothers[:MAX_FAULTS]:
        children = np.flatnonzero(parent_row == mother)
        ids = ", ".join(map(str, tracks.id[children]))
        rows = ", ".join(map(str, row[children]))
        parts.append(
            f"track {tracks.id[mother]} has {len(children)} daughters ({ids}; rows "
            f"{rows})"
        )
    if len(mothers) > MAX_FAULTS:
        parts.append(f"and {len(mothers) - MAX_FAULTS} more")
    warnings.warn(
        f"{where}: {'; '.join(parts)}. A division has two daughters, so these events "
        "count as unknown in learning; evaluation takes them as they are",
        DataWarning,
        stacklevel=4,
    )


def _in_cycle(parent_row: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(n,) which tracks are among their own ancestors."""
    n = len(parent_row)
    children = np.flatnonzero(parent_row >= 0)
    ones = np.ones(len(children))
    links = sp.csr_array((ones, (children, parent_row[children])), shape=(n, n))
    component = connected_components(links, directed=True, connection="strong")[1]
    size = np.bincount(component, minlength=n)
    return np.asarray(size[component] > 1)


def find_false_detections(tracks: Tracks) -> Mask:
    """Find the tracks that are one false detection each.

    Weights that were learned from annotated false detections tell which. Otherwise,
    these neither come from anything nor lead to anything, and are in neither the first
    nor the last frame. They count as false only if there are more than if tracks began
    and ended independently: in a movie without false detections, a cell is seldom seen
    in one frame alone.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    if tracks.is_false is not None:
        return tracks.is_false
    if not len(tracks):
        return np.zeros(0, dtype=bool)
    begins = (tracks.parent == NO_PARENT) & (tracks.begin > tracks.begin.min())
    ends = ~np.isin(tracks.id, tracks.parent) & (tracks.end < tracks.end.max())
    is_alone: Mask = begins & ends & tracks.is_lone()
    n_cells = int((tracks.end - tracks.begin + 1).sum())
    n_others = max(n_cells - int(is_alone.sum()), 1)
    n_begins = int((begins & ~is_alone).sum())
    n_ends = int((ends & ~is_alone).sum())
    by_chance = n_cells * n_begins * n_ends / n_others**2
    n_alone = int(is_alone.sum())
    if not n_alone or pdtrc(n_alone - 1, by_chance) >= SIGNIFICANCE:
        return np.zeros(len(tracks), dtype=bool)
    return is_alone


def assign_track_ids(
    frame: Integers,
    position: NDArray[np.floating[Any]],
    columns: Mapping[str, NDArray[Any]],
    head: Integers,
    event_frame: Integers,
    kind: NDArray[np.int8],
    sources: Integers,
    targets: Integers,
) -> tuple[NDArray[np.int32], Tracks]:
    """Assign a track to each detection.

    Parameters
    ----------
    frame : ndarray of shape (n,)
        Of each node; nodes are in order of time.
    position : ndarray of shape (n, ndim)
    columns : mapping of str to ndarray of shape (n,)
        Measurements; those of `MATCHED_COLUMNS` are used.
    head : ndarray of shape (n,)
        First node of the run of moves that each node is part of.
    event_frame, kind : ndarray of shape (m,)
        Of the events; moves may be left out.
    sources, targets : ndarray of shape (m, 2)
        Nodes of the events, −1 for none.

    Returns
    -------
    track : ndarray of shape (n,)
        Counted from 1, in the order of their first nodes.
    tracks : Tracks
    """
    rows = np.flatnonzero(is_one_of(kind, (Event.MERGE, Event.SPLIT)))
    rows = rows[np.argsort(event_frame[rows], kind="stable")]
    matcher = _IdentityMatcher(position, columns, head)
    for row in rows.tolist():
        before = sources[row].tolist()
        after = targets[row].tolist()
        if kind[row] == Event.MERGE:
            matcher.merge((before[0], before[1]), after[0])
        else:
            matcher.split(before[0], (after[0], after[1]))

    first = head
    if matcher.continued:
        # In order of time, so that one look-up finds the first run of a track.
        for later, earlier in sorted(matcher.continued.items()):
            matcher.continued[later] = matcher.continued.get(earlier, earlier)
        first_of = np.arange(len(head), dtype=head.dtype)
        first_of[list(matcher.continued)] = list(matcher.continued.values())
        first = first_of[head]
    is_first = first == np.arange(len(first), dtype=first.dtype)
    track = np.cumsum(is_first, dtype=np.int32)[first]

    n_tracks = int(is_first.sum())
    parent = np.zeros(n_tracks, dtype=np.int64)
    divides = kind == Event.DIVIDE
    for side in range(2):
        parent[track[targets[divides, side]] - 1] = track[sources[divides, 0]]
    gaps = kind == Event.GAP
    parent[track[targets[gaps, 0]] - 1] = track[sources[gaps, 0]]
    for node, ended in matcher.regained:
        parent[track[node] - 1] = track[ended]
    end = np.zeros(n_tracks, dtype=np.int64)
    end[track - 1] = frame  # the last assignment stays
    begin = frame[is_first].astype(np.int64)
    ids = np.arange(1, n_tracks + 1, dtype=np.int64)
    return track, Tracks(ids, begin, end, parent)


@dataclass(frozen=True, slots=True)
class _Identity:
    """A cell as it was when it was last alone."""

    node: int
    """Its last node alone."""
    track_node: int
    """A node of its last track."""
    side: Array
    """(ndim,) unit vector from the merged detection to it."""


class _IdentityMatcher:
    """Matches cells to detections as merges and splits are visited in order of time."""

    def __init__(
        self,
        position: NDArray[np.floating[Any]],
        columns: Mapping[str, NDArray[Any]],
        head: Integers,
    ) -> None:
        self.position = position
        self.measured = [columns[name] for name in MATCHED_COLUMNS if name in columns]
        self.volume = columns.get("volume")
        self.head = head
        self.within: dict[int, list[_Identity]] = {}
        """Cells within a run of moves, by its first node; the continuing cell first."""
        self.continued: dict[int, int] = {}
        """First node of a run to the first node of the run that it continues."""
        self.regained: list[tuple[int, int]] = []
        """First node of a new track, and a node of the ended track of the same cell."""

    def merge(self, sources: tuple[int, int], target: int) -> None:
        """Continue the source that fits better in the target; the other waits."""
        costs = self._costs(sources, target)
        carrier, other = sources if costs[0] <= costs[1] else sources[::-1]
        self._continue(carrier, target)
        self.within[target] = [
            *self._cells_in(carrier, target),
            *self._cells_in(other, target),
        ]

    def split(self, source: int, targets: tuple[int, int]) -> None:
        """Match the cells within to the targets."""
        carrier, *waiting = self._cells_in(source, targets[0])
        if not waiting:
            costs = self._costs(targets, source)
            self._continue(source, targets[0] if costs[0] <= costs[1] else targets[1])
            return
        side = {target: self._side(target, source) for target in targets}

        def cost(cell: _Identity, target: int) -> float:
            angle = (1.0 - float(cell.side @ side[target])) / 2
            return self._difference(cell.node, target) + angle

        matches = [
            (cost(carrier, target) + cost(cell, other), target, other, cell)
            for target, other in (targets, targets[::-1])
            for cell in waiting
        ]
        _, target, other, regained = min(matches, key=lambda match: match[0])
        self._continue(source, target)
        self.regained.append((other, regained.track_node))
        rest = [cell for cell in waiting if cell is not regained]
        if not rest:
            return
        if self.volume is None or self.volume[target] >= self.volume[other]:
            self.within[target] = [carrier, *rest]
        else:
            self.within[other] = [replace(regained, track_node=other), *rest]

    def _cells_in(self, node: int, other: int) -> list[_Identity]:
        """Cells in the run that ends with a node; a cell alone is on its own side."""
        cells = self.within.get(int(self.head[node]))
        return cells or [_Identity(node, node, self._side(node, other))]

    def _continue(self, node: int, target: int) -> None:
        """Let the target continue the run that ends with a node."""
        self.continued[target] = int(self.head[node])

    def _costs(self, nodes: tuple[int, int], other: int) -> list[float]:
        """How badly two nodes fit another: difference, and share of the distances."""
        offset = np.asarray(self.position[list(nodes)], dtype=float)
        offset = offset - self.position[other]
        distance = np.linalg.norm(offset, axis=1)
        total = float(distance.sum()) or 1.0
        return [
            self._difference(node, other) + float(far) / total
            for node, far in zip(nodes, distance, strict=True)
        ]

    def _difference(self, a: int, b: int) -> float:
        """Σ |log ratio| of the measurements of two nodes; only positive ones count."""
        pairs = [(float(column[a]), float(column[b])) for column in self.measured]
        return sum(
            abs(float(np.log(x / y)))
            for x, y in pairs
            if 0 < x < np.inf and 0 < y < np.inf
        )

    def _side(self, node: int, other: int) -> Array:
        """Unit vector from another node to a node; zero where they coincide."""
        offset = np.asarray(self.position[node], dtype=float) - self.position[other]
        length = float(np.linalg.norm(offset))
        return np.asarray(offset / length if length else offset)
