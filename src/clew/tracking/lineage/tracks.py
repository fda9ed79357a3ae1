"""The table of tracks: when each begins and ends, out of which it came, and its faults."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import pdtrc

from clew.errors import DataWarning, InputError
from clew.learning.task import Mask
from clew.tracking.events import Labels
from clew.utils.validation import MAX_FAULTS


class MissingFromMask(InputError):
    """A track is alive by its table, but not in the mask of a frame."""


NO_PARENT = 0
"""The parent of a track that came out of no other."""
MAX_CHILDREN = 2
"""Of a division as clew models it; more are rare, but real: a tripolar mitosis."""


@dataclass(frozen=True, slots=True)
class Tracks:
    """Tracks of a movie, one a row, as the Cell Tracking Challenge has them."""

    id: Labels
    """(n,) positive, each once."""
    begin: NDArray[np.int64]
    """(n,) the first frame, counted from 0."""
    end: NDArray[np.int64]
    """(n,) the last frame, inclusive."""
    parent: Labels
    """(n,) the id of the track it came out of, or `NO_PARENT`."""

    @classmethod
    def of(cls, table: ArrayLike) -> Self:
        """Tracks from rows (id, begin, end, parent)."""
        columns = np.asarray(table, dtype=np.int64).reshape(-1, 4).T
        return cls(*(np.ascontiguousarray(column) for column in columns))

    def table(self) -> NDArray[np.int64]:
        """(n, 4) rows (id, begin, end, parent)."""
        return np.column_stack([self.id, self.begin, self.end, self.parent])

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, rows: Any) -> Self:
        """Some of the tracks."""
        return type(self)(
            self.id[rows], self.begin[rows], self.end[rows], self.parent[rows]
        )

    def within(self, frames: range) -> Self:
        """What is left of the tracks in some consecutive frames, counted from 0; a parent from before is unknown."""
        alive = self[(self.end >= frames.start) & (self.begin < frames.stop)]
        begin = np.maximum(alive.begin, frames.start) - frames.start
        end = np.minimum(alive.end, frames.stop - 1) - frames.start
        return type(self)(
            alive.id,
            begin,
            end,
            np.where(np.isin(alive.parent, alive.id), alive.parent, NO_PARENT),
        )

    def parent_row(self) -> NDArray[np.intp]:
        """(n,) the row of each track's parent, -1 where it has none (or the table lacks it)."""
        order = np.argsort(self.id, kind="stable")
        if not len(order):
            return np.empty(0, dtype=np.intp)
        at = order[
            np.minimum(
                np.searchsorted(self.id, self.parent, sorter=order), len(order) - 1
            )
        ]
        return np.where(
            (self.parent != NO_PARENT) & (self.id[at] == self.parent), at, -1
        )

    def child_count(self, parent_row: NDArray[np.intp]) -> NDArray[np.intp]:
        """(n,) how many children each track has, given the rows of parents as `parent_row` returns them."""
        return np.bincount(parent_row[parent_row >= 0], minlength=len(self))

    def generations(self) -> NDArray[np.int64]:
        """(n,) how many divisions lead from each track's first ancestor to it; ids must be ascending."""
        parent = np.searchsorted(self.id, self.parent)
        orphan = self.parent == NO_PARENT
        # a single child is no daughter but the same cell, seen again after a merge
        divides = np.bincount(parent[~orphan], minlength=len(orphan)) > 1
        parent[orphan] = 0
        generations = np.zeros(len(orphan), dtype=np.int64)
        while True:  # one step for each generation
            later = np.where(orphan, 0, generations[parent] + divides[parent])
            if np.array_equal(later, generations):
                return generations
            generations = later


def check_tracks(tracks: Tracks, where: str, rows: ArrayLike | None = None) -> None:
    """Refuse a table that no lineage can have, with the row of its first fault.

    `where` names the table in messages, and `rows` (n,) says where each track stands in it (from 1 on if not given).
    """
    if not len(tracks):
        return
    row = np.arange(1, len(tracks) + 1) if rows is None else np.asarray(rows)
    id, begin, end, parent = tracks.id, tracks.begin, tracks.end, tracks.parent

    def refuse(faulty: NDArray[np.bool_], what: Any) -> None:
        if faulty.any():
            at = int(np.argmax(faulty))
            raise InputError(f"{where}, row {row[at]}: {what(at)}")

    refuse(
        id < 1,
        lambda i: (
            f"the track has the id {id[i]}; ids are positive integers, 0 is the background"
        ),
    )
    repeated = np.ones(len(id), dtype=bool)
    repeated[np.unique(id, return_index=True)[1]] = False
    refuse(
        repeated,
        lambda i: (
            f"track {id[i]} stands in row {row[np.argmax(id == id[i])]} already; an id names one track"
        ),
    )
    refuse(
        begin < 0,
        lambda i: f"track {id[i]} begins in frame {begin[i]}, before the movie's first",
    )
    refuse(
        end < begin,
        lambda i: (
            f"track {id[i]} ends in frame {end[i]}, before it begins in frame {begin[i]}"
        ),
    )
    refuse(
        parent == id,
        lambda i: (
            f"track {id[i]} is its own parent; a track without a parent has the parent 0"
        ),
    )

    of = tracks.parent_row()
    refuse(
        (parent != NO_PARENT) & (of < 0),
        lambda i: f"the parent {parent[i]} of track {id[i]} is not in the table",
    )
    refuse(
        _in_cycle(of),
        lambda i: f"track {id[i]} is its own ancestor, through its parent {parent[i]}",
    )
    refuse(
        (of >= 0) & (begin <= end[of]),
        lambda i: (
            f"track {id[i]} begins in frame {begin[i]}, but its parent {parent[i]} lasts to frame {end[of[i]]}; "
            "a child begins after its parent has ended"
        ),
    )
    _warn_of_many_children(tracks, of, where, row)


def check_frame(
    tracks: Tracks, t: int, labels: NDArray[Any], where: str = "the masks"
) -> None:
    """Refuse labels of frame t that are not exactly the tracks alive in it; a 0 among them is the background."""
    alive = tracks.id[(tracks.begin <= t) & (t <= tracks.end)]
    strange = np.setdiff1d(labels, np.append(alive, 0))
    if len(strange):
        rows = np.flatnonzero(tracks.id == strange[0])
        told = (
            f"lasts from frame {tracks.begin[rows[0]]} to {tracks.end[rows[0]]}"
            if len(rows)
            else "does not exist"
        )
        raise InputError(
            f"{where}, frame {t}: label {strange[0]} is in the mask, but by the table track {strange[0]} {told}"
        )
    lacking = np.setdiff1d(alive, labels)
    if len(lacking):
        raise MissingFromMask(
            f"{where}, frame {t}: track {lacking[0]} is alive by the table, but not in the mask"
        )


def _warn_of_many_children(
    tracks: Tracks, parent_row: NDArray[np.intp], where: str, row: NDArray[Any]
) -> None:
    """Warn of cells with more than two daughters: true lineages have them, and no event of clew's is one."""
    mothers = np.flatnonzero(tracks.child_count(parent_row) > MAX_CHILDREN)
    if not len(mothers):
        return
    told = []
    for mother in mothers[:MAX_FAULTS]:
        children = np.flatnonzero(parent_row == mother)
        rows, names = (
            ", ".join(map(str, values[children])) for values in (row, tracks.id)
        )
        told.append(
            f"track {tracks.id[mother]} has {len(children)} daughters ({names}; rows {rows})"
        )
    more = (
        f"; and {len(mothers) - MAX_FAULTS} more" if len(mothers) > MAX_FAULTS else ""
    )
    warnings.warn(
        f"{where}: {'; '.join(told)}{more}. A division is into two, so these events count as unknown in learning; "
        "evaluation takes them as they are",
        DataWarning,
        stacklevel=4,
    )


def _in_cycle(parent_row: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(n,) which tracks meet themselves among their ancestors: those that share a strong component with another."""
    n, children = len(parent_row), np.flatnonzero(parent_row >= 0)
    links = sp.csr_array(
        (np.ones(len(children)), (children, parent_row[children])), shape=(n, n)
    )
    component = connected_components(links, directed=True, connection="strong")[1]
    several: NDArray[np.bool_] = np.bincount(component, minlength=n)[component] > 1
    return several


SIGNIFICANCE = 0.01
"""Beginnings and ends of tracks would meet as often by chance with at most this
probability, if detections in no track are to count as false."""


def find_false_detections(tracks: Tracks) -> Mask:
    """Find the tracks that are one false detection each.

    These neither come from anything nor lead to anything, and are in neither the first
    nor the last frame. They count as false only if there are more than if tracks began
    and ended independently: in a movie without false detections, a cell is seldom seen
    in one frame alone.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    if not len(tracks):
        return np.zeros(0, dtype=bool)
    begins = (tracks.parent == NO_PARENT) & (tracks.begin > tracks.begin.min())
    ends = ~np.isin(tracks.id, tracks.parent) & (tracks.end < tracks.end.max())
    is_alone: Mask = begins & ends & (tracks.begin == tracks.end)
    n_cells = int((tracks.end - tracks.begin + 1).sum())
    n_others = max(n_cells - int(is_alone.sum()), 1)
    n_begins = int((begins & ~is_alone).sum())
    n_ends = int((ends & ~is_alone).sum())
    by_chance = n_cells * n_begins * n_ends / n_others**2
    n_alone = int(is_alone.sum())
    if not n_alone or pdtrc(n_alone - 1, by_chance) >= SIGNIFICANCE:
        return np.zeros(len(tracks), dtype=bool)
    return is_alone
