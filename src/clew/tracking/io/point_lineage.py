"""A lineage of points: tracks and the positions of their cells, without masks.

Tables of tracks and graphs of other programs become one. It also states what the
file leaves open, since annotations are rarely whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import MAX_FRAMES, MAX_NUMBER, check_frame_count
from clew.tracking.events import Labels
from clew.tracking.io.delimited import parse_integer
from clew.tracking.io.segments import label_components
from clew.tracking.lineage.tracks import NO_PARENT, Tracks, check_tracks
from clew.utils.validation import is_number


def _make_empty() -> Labels:
    """No tracks."""
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PointLineage:
    """Tracks and the positions of their cells, without masks.

    Attributes
    ----------
    tracks : Tracks
    frame, track : ndarray of shape (n,)
        Of each cell; sorted by frame, then track.
    position : ndarray of shape (n, ndim)
    n_frames : int
    source : str
        The file or folder, for messages.
    made_from : mapping or None
        Provenance from the manifest of a result of clew, whose positions are
        physical.
    label : ndarray of shape (n,) or None
        Labels of the cells in the masks of the program that wrote the file.
    continued : ndarray of int
        Tracks that are the same cell as their parent, seen again after a gap.
    unknown_begin, unknown_end : ndarray of int
        Tracks whose beginning or end the file leaves open: a parent that it lacks, or
        a merge.
    known_begin, known_end : ndarray of int
        Tracks whose beginning or end is known even if others are not: a person marked
        it, or marked a detection as no cell.
    has_parents : bool
        Whether the file can name parents; if not, divisions are unknown.
    is_complete : bool or None
        Whether the file says that it has all cells; None if it does not say.
    n_estimated : float or None
        Estimated number of cells in all frames, annotated or not.
    is_physical : bool
        Whether the file gives its positions in physical units.
    notes : tuple of str
        How the file was read, where it can be read in several ways.
    """

    tracks: Tracks
    frame: NDArray[np.int64]
    track: Labels
    position: Array
    n_frames: int
    source: str
    made_from: Mapping[str, Any] | None = None
    label: Labels | None = None
    continued: Labels = field(default_factory=_make_empty)
    unknown_begin: Labels = field(default_factory=_make_empty)
    unknown_end: Labels = field(default_factory=_make_empty)
    known_begin: Labels = field(default_factory=_make_empty)
    known_end: Labels = field(default_factory=_make_empty)
    has_parents: bool = True
    is_complete: bool | None = None
    n_estimated: float | None = None
    is_physical: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        largest = np.abs(self.position).max(axis=1, initial=0.0)
        faulty = np.flatnonzero(~(largest <= MAX_NUMBER))
        if len(faulty):
            row = faulty[0]
            raise InputError(
                f"{self.source}: track {self.track[row]} is at {self.position[row]} in "
                f"frame {self.frame[row]}; expected finite numbers up to {MAX_NUMBER:g}"
            )

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Size of a pixel of the tracked movie, if the result has it."""
        sizes = (self.made_from or {}).get("spacing")
        if not isinstance(sizes, list):
            return None
        if not all(is_number(size) and size > 0 for size in sizes):
            return None
        return tuple(float(size) for size in sizes)

    def __getitem__(self, frames: slice) -> PointLineage:
        """Consecutive frames, counted from 0; tracks are cut at both ends."""
        selected = range(self.n_frames)[frames]
        rows = (self.frame >= selected.start) & (self.frame < selected.stop)
        return replace(
            self,
            tracks=self.tracks.within(selected),
            frame=self.frame[rows] - selected.start,
            track=self.track[rows],
            position=self.position[rows],
            label=None if self.label is None else self.label[rows],
            n_frames=len(selected),
        )

    def rows(self, t: int) -> slice:
        """Rows of the cells in frame `t`."""
        return slice(*np.searchsorted(self.frame, [t, t + 1]).tolist())

    def cells(self, t: int) -> tuple[Labels, Array]:
        """Tracks in frame `t`, ascending, and their positions."""
        rows = self.rows(t)
        return self.track[rows], self.position[rows]


def drop_flat_depth(position: Array) -> Array:
    """Drop z from positions (n, ndim) if it is 0 everywhere: the movie is in 2D."""
    is_flat = position.shape[1] == 3 and not position[:, 0].any()
    return position[:, 1:] if is_flat else position


def make_lineage_of_tracks(
    frame: NDArray[np.int64],
    track: Labels,
    position: Array,
    parents: Mapping[int, int],
    source: str,
    *,
    label: Labels | None = None,
    piece: Labels | None = None,
    **facts: Any,
) -> PointLineage:
    """Make a lineage of cells with tracks; pieces of a track with gaps become tracks.

    Parameters
    ----------
    frame, track : ndarray of shape (n,)
        Tracks are positive, and once in a frame at most.
    position : ndarray of shape (n, ndim)
        A depth that is 0 everywhere is dropped.
    parents : mapping
        Parent of each track that has one. The beginning of a track whose parent is
        not among the tracks is unknown.
    source : str
    label : ndarray of shape (n,), optional
    piece : ndarray of shape (n,), optional
        Ids of the pieces of tracks with gaps; new ones by default.
    **facts
        Further attributes of `PointLineage`.

    Returns
    -------
    lineage : PointLineage
    """
    check_frame_count(frame, None)
    position = drop_flat_depth(position)
    order = np.lexsort((frame, track))
    frame = frame[order]
    track = track[order]
    position = position[order]
    is_new_track = np.diff(track, prepend=0) != 0
    first = np.flatnonzero(is_new_track | (np.diff(frame, prepend=-2) > 1))
    last = np.append(first[1:], len(frame)) - 1
    is_later_piece = ~is_new_track[first]

    name = track[first].copy()
    n_later = int(is_later_piece.sum())
    name[is_later_piece] = track.max(initial=0) + 1 + np.arange(n_later)
    if piece is not None:
        name = piece[order][first]
    # children descend from the last piece of their parent
    last_piece = dict(zip(track[first].tolist(), name.tolist(), strict=True))
    parent_track = [parents.get(old, NO_PARENT) for old in track[first].tolist()]
    known_parent = [last_piece.get(old, NO_PARENT) for old in parent_track]
    is_orphan = np.array(parent_track) != NO_PARENT
    is_orphan &= (np.array(known_parent) == NO_PARENT) & ~is_later_piece
    piece_before = np.append(NO_PARENT, name[:-1])
    parent = np.where(is_later_piece, piece_before, known_parent).astype(np.int64)
    tracks = Tracks(name, frame[first], frame[last], parent)
    if piece is not None:
        tracks = tracks[np.argsort(name)]
    check_tracks(tracks, source)
    notes = tuple(facts.pop("notes", ()))
    if is_orphan.any():
        notes += (
            f"{is_orphan.sum()} tracks name a parent that is not in the file; how they "
            "begin is unknown",
        )
    unknown_begin = np.union1d(
        facts.pop("unknown_begin", _make_empty()), name[is_orphan]
    )
    # the end of a track is the end of its last piece
    unknown_end, known_end = (
        np.array([last_piece[old] for old in facts.pop(name, ())], dtype=np.int64)
        for name in ("unknown_end", "known_end")
    )
    known_begin = np.array(facts.pop("known_begin", ()), dtype=np.int64)

    names = np.repeat(name, last - first + 1)
    by_frame = np.lexsort((names, frame))
    return PointLineage(
        tracks=tracks,
        frame=frame[by_frame],
        track=names[by_frame],
        position=position[by_frame],
        n_frames=int(frame.max(initial=-1)) + 1,
        source=source,
        label=None if label is None else label[order][by_frame],
        continued=name[is_later_piece],
        unknown_begin=unknown_begin.astype(np.int64),
        unknown_end=unknown_end,
        known_begin=known_begin,
        known_end=known_end,
        notes=notes,
        **facts,
    )


def make_lineage_of_links(
    frame: NDArray[np.int64],
    position: Array,
    links: Indices,
    source: str,
    *,
    tracklet: Labels | None = None,
    is_false: Mask | None = None,
    **facts: Any,
) -> PointLineage:
    """Make a lineage of cells and links between them.

    Parameters
    ----------
    frame : ndarray of shape (n,)
    position : ndarray of shape (n, ndim)
    links : ndarray of shape (k, 2)
        Rows of an earlier and a later cell. Two links from one cell are a division.
        Two links to one cell are a merge, which leaves the ends of the tracks open.
    source : str
    tracklet : ndarray of shape (n,), optional
        Unbranched tracks by the file. A link between two of them is a division even
        if it is the only one from its cell.
    is_false : ndarray of bool of shape (n,), optional
        Cells that were marked as none. Those with links count as cells.
    **facts
        Further attributes of `PointLineage`.

    Returns
    -------
    lineage : PointLineage
    """
    links = np.unique(np.asarray(links, dtype=np.intp).reshape(-1, 2), axis=0)
    earlier, later = links.T
    n = len(frame)
    backward = np.flatnonzero(frame[earlier] >= frame[later])
    if len(backward):
        raise InputError(
            f"{source}: a link leads from frame {frame[earlier[backward[0]]]} to frame "
            f"{frame[later[backward[0]]]}; links lead forward in time"
        )
    if len(frame) and not 0 <= frame.min() <= frame.max() < MAX_FRAMES:
        raise InputError(
            f"{source}: expected frames from 0 to {MAX_FRAMES - 1:,}, but there are "
            f"cells in frames {frame.min()} to {frame.max()}"
        )
    is_merge = np.bincount(later, minlength=n)[later] > 1
    # what else a cell does that takes part in a merge is open too
    is_merge |= np.bincount(earlier, weights=is_merge, minlength=n)[earlier] > 0
    continues = (np.bincount(earlier, minlength=n)[earlier] == 1) & ~is_merge
    if tracklet is not None:
        continues &= tracklet[earlier] == tracklet[later]
    track = 1 + label_components(n, earlier[continues], later[continues])
    branches = ~continues & ~is_merge
    false = np.zeros(n, dtype=bool) if is_false is None else is_false.copy()
    false[links] = False
    pairs = zip(
        track[later[branches]].tolist(), track[earlier[branches]].tolist(), strict=True
    )
    return make_lineage_of_tracks(
        frame,
        track,
        position,
        dict(pairs),
        source,
        unknown_begin=np.unique(track[later[is_merge]]),
        unknown_end=np.unique(track[earlier[is_merge]]),
        known_begin=track[false],
        known_end=track[false],
        **facts,
    )


def make_links(
    where: str,
    ids: NDArray[np.int64],
    frame: NDArray[np.int64],
    edges: Sequence[tuple[Any, Any]],
) -> Indices:
    """Rows of the cells that edges join, earlier ones first.

    Parameters
    ----------
    where : str
        The file, for messages.
    ids, frame : ndarray of shape (n,)
        Of all cells.
    edges : sequence of (id, id)
        Edges of cells that are not there are left out.

    Returns
    -------
    links : ndarray of shape (k, 2)
    """
    ends = [[parse_integer(end) for end in edge] for edge in edges]
    if any(end is None for edge in ends for end in edge):
        raise InputError(f"{where}: an edge lacks the number of a spot")
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, pairs, sorter=order), len(ids) - 1)
    rows = order[at]
    rows = rows[(ids[rows] == pairs).all(axis=1)]
    is_backward = frame[rows[:, 0]] > frame[rows[:, 1]]
    rows[is_backward] = rows[is_backward, ::-1]
    return np.asarray(rows, dtype=np.intp)


def count_earlier(values: Indices | Labels) -> NDArray[np.int64]:
    """(n,) number of earlier entries that are equal to each."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    count = np.empty(len(values), dtype=np.int64)
    count[order] = np.arange(len(values)) - np.searchsorted(in_order, in_order)
    return count


def measure_extent(position: Array) -> list[int]:
    """Size along z, y, x of the smallest image that holds positions (n, ndim)."""
    size = np.ones(3, dtype=np.int64)
    if len(position):
        largest = np.ceil(position.max(axis=0)).astype(np.int64)
        size[3 - position.shape[1] :] = np.maximum(largest, 0) + 1
    return size.tolist()
