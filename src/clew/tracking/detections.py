"""The cells of a movie as rows of numbers, frame by frame: all that tracking knows of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.events import NONE, Labels
from clew.utils.validation import (
    check_array,
    check_floats,
    check_frame,
    check_frame_slice,
    check_int,
)

if TYPE_CHECKING:  # a movie knows of detections' limits
    from clew.tracking.movie import Movie

Floats = NDArray[np.floating[Any]]

GROUPS = {
    "size": ("volume",),
    "border": ("border_distance",),
    "shape": ("axes", "eccentricity", "support", "border_share"),
    "direction": ("axes", "direction"),
    "intensity": ("intensity",),
    "histogram": ("deviation", "quantiles"),
}
"""Which columns make up which group of measurements; a further group, "overlap", is about two frames."""
WIDTHS = {
    "axes": {2: 2, 3: 3},
    "direction": {2: 2, 3: 3},
    "support": {2: 16, 3: 26},
    "quantiles": {2: 12, 3: 12},
}
"""How many numbers a cell has in a column, in 2D and in 3D; one where it is not here (see `measurement.regions`)."""
OVERLAP = "overlap"
MAX_FRAMES = 1_000_000
"""More frames than any movie has: beyond is a slip, and must not cost time or memory."""
MAX_GAP = 10_000
"""Frames in a row without a cell that a table may have, for the same reason."""
MAX_NUMBER = 1e12
"""The largest position or measurement, in any unit: squares and volumes of it are still floats."""


@dataclass(frozen=True, slots=True)
class Detections:
    """The cells of one frame, sorted by label."""

    frame: int
    label: Labels
    """(n,) ascending, positive, each once."""
    position: NDArray[np.float64]
    """(n, ndim) centroids in physical units, axes as in the array."""
    columns: Mapping[str, Floats]
    """(n,) or (n, k) each: what was measured, by name; see `measure` for what they mean."""

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, labels: Labels) -> Indices:
        """Where these labels stand, of any shape; −1 for `NONE` and for labels that are not in the frame."""
        if not len(self):
            return np.full(np.shape(labels), -1, dtype=np.intp)
        found = np.minimum(np.searchsorted(self.label, labels), len(self) - 1)
        return np.where(self.label[found] == labels, found, -1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The pairs of cells of a frame and of the next whose masks share pixels."""

    source: Indices
    """(m,) rows in the frame, ascending."""
    target: Indices
    """(m,) rows in the next frame, ascending for each source."""
    volume: NDArray[np.float64]
    """(m,) what they share, in physical units."""

    @classmethod
    def empty(cls) -> Self:
        """No masks, or no pixels in common."""
        return cls(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))


class Source(Protocol):
    """Where the detections of a movie come from."""

    @property
    def name(self) -> str:
        """Of the movie."""

    @property
    def n_frames(self) -> int:
        """How many frames there are."""

    @property
    def ndim(self) -> int:
        """2 or 3."""

    @property
    def has(self) -> frozenset[str]:
        """The groups of measurements that are there: of `GROUPS`, and "overlap"."""

    @property
    def movie(self) -> Movie | None:
        """The pixels that were measured; None for a table."""

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""

    def overlap(self, t: int, shift: NDArray[np.float64] | None = None) -> Overlap:
        """What the masks of frames `t` and `t + 1` share, once each cell of `t` was moved by its row of `shift`."""


@runtime_checkable
class WindowedSource(Protocol):
    """A source of which a part can be sent to another process, and that can tell what it holds."""

    def window(self, first: int, last: int) -> Source:
        """The same with frames `first` to `last` alone, under their numbers."""

    def content(self, t: int) -> bytes:
        """A digest of all that is known of frame `t` and leads on from it."""


def take_window(source: Source, first: int, last: int) -> Source:
    """The same detections with frames `first` to `last` alone, under their numbers: what one block of frames needs.

    A source that cannot be divided is given as a whole.
    """
    return source.window(first, last) if isinstance(source, WindowedSource) else source


class DetectionTable:
    """Detections that come as a table, without pixels: only what it has columns for can be used."""

    movie: Movie | None = None
    source = "a table of detections"
    """In words, as a movie says it."""
    spacing: tuple[float, ...] | None = None
    """What positions were multiplied by to be physical, if anything."""

    def __init__(
        self,
        frame: Any,
        label: Any,
        position: Any,
        columns: Mapping[str, Any] | None = None,
        *,
        n_frames: int | None = None,
        name: str = "table",
    ) -> None:
        """Take arrays: frame (n,) from 0, label (n,) positive and unique in its frame, position (n, 2 or 3).

        `columns` may hold any of the columns in `GROUPS`, (n,) or (n, k) each. Where "border_distance" is not among
        them, the border is the box around all positions of the table. `n_frames` is for empty frames at the end.
        """
        frame, label = _integers("frame", frame), _integers("label", label)
        self._position = _numbers("position", position, len(frame))
        if self._position.ndim != 2 or self._position.shape[1] not in (2, 3):
            raise InputError(
                f"position has shape {self._position.shape}; expected (n, 2) or (n, 3)"
            )
        if len(label) != len(frame):
            raise InputError(
                f"frame has {len(frame)} rows and label {len(label)}; each detection needs both"
            )
        if len(frame) and (frame.min() < 0 or label.min() <= NONE):
            raise InputError(
                "frames count from 0 and labels from 1; there are smaller ones in the table"
            )
        n_frames = None if n_frames is None else check_int(n_frames, "n_frames", 0)
        check_frame_count(frame, n_frames)
        if columns is not None and not isinstance(columns, Mapping):
            raise InputError(
                f"columns is a {type(columns).__name__}; expected a mapping from names to columns"
            )
        known = {column for group in GROUPS.values() for column in group}
        if unknown := set(columns or {}) - known:
            raise InputError(
                f"unknown columns {sorted(map(str, unknown))}; tracking uses {sorted(known)}"
            )
        measured = {
            key: _numbers(key, column, len(frame))
            for key, column in (columns or {}).items()
        }
        _check_columns(measured, len(frame), self._position.shape[1])
        order = np.lexsort((label, frame))
        frame, self._label, self._position = (
            frame[order],
            label[order],
            self._position[order],
        )
        _refuse_duplicates(frame, self._label)
        self._columns = {key: column[order] for key, column in measured.items()}
        if "border_distance" not in self._columns:
            self._columns["border_distance"] = _distance_to_box(self._position)
        self.name = name
        self.excerpt: range | None = None
        """Which frames of a longer table these are; None for a whole one."""
        self.ndim = int(self._position.shape[1])
        self.n_frames = max(n_frames or 0, int(frame[-1]) + 1 if len(frame) else 0)
        self.has: frozenset[str] = find_groups(self._columns.keys())
        self._begin = np.searchsorted(frame, np.arange(self.n_frames + 1))
        self._frames = range(self.n_frames)

    def window(self, first: int, last: int) -> Self:
        """Frames `first` to `last` alone, under their numbers."""
        part = copy(self)
        begin, end = self._begin[first], self._begin[last + 1]
        part._label, part._position = self._label[begin:end], self._position[begin:end]
        part._columns = {
            key: column[begin:end] for key, column in self._columns.items()
        }
        part._begin, part._frames = (
            np.clip(self._begin, begin, end) - begin,
            range(first, last + 1),
        )
        return part

    def content(self, t: int) -> bytes:
        """A digest of all that is known of frame `t`."""
        cells = self.detections(t)
        whole = hashlib.blake2b(repr(sorted(cells.columns)).encode(), digest_size=20)
        for part in (
            cells.label,
            cells.position,
            *(cells.columns[name] for name in sorted(cells.columns)),
        ):
            whole.update(
                repr(part.shape).encode() + np.ascontiguousarray(part).tobytes()
            )
        return whole.digest()

    def __getitem__(self, frames: slice) -> Self:
        """Some of the frames, one after the other, counted from 0 again."""
        which = check_frame_slice(frames, self.n_frames, "frames")
        if which.step != 1:
            raise InputError(
                f"every {which.step}th frame of a table is asked for; expected all between two frames"
            )
        rows = slice(
            self._begin[which.start], self._begin[max(which.start, which.stop)]
        )
        frame = (
            np.repeat(np.arange(self.n_frames), np.diff(self._begin))[rows]
            - which.start
        )
        columns = {key: column[rows] for key, column in self._columns.items()}
        place = self._position[rows]
        part = type(self)(
            frame,
            self._label[rows],
            place,
            columns,
            n_frames=len(which),
            name=self.name,
        )
        part.excerpt = which if self.excerpt is None else self.excerpt[frames]
        part.source, part.spacing = self.source, self.spacing
        return part

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""
        t = check_frame(t, self._frames.start, self._frames.stop - 1, self.name)
        rows = slice(self._begin[t], self._begin[t + 1])
        columns = {key: column[rows] for key, column in self._columns.items()}
        return Detections(t, self._label[rows], self._position[rows], columns)

    def overlap(self, t: int, shift: NDArray[np.float64] | None = None) -> Overlap:  # noqa: ARG002
        """A table knows of no pixels."""
        return Overlap.empty()


def _check_columns(
    columns: Mapping[str, NDArray[np.float64]], n: int, ndim: int
) -> None:
    """Refuse columns of another width than those that are measured, sizes that are not positive, negative distances."""
    for name, column in columns.items():
        width = WIDTHS.get(name, {}).get(ndim)
        expected = (n,) if width is None else (n, width)
        if column.shape != expected:
            raise InputError(f"{name} has shape {column.shape}; expected {expected}")
        least = {
            "volume": (column > 0, "more than 0"),
            "border_distance": (column >= 0, "0 or more"),
        }.get(name)
        if least is not None and not least[0].all():
            row = int(np.argmin(least[0]))
            raise InputError(
                f"{name} is {column[row]:g} in row {row} (counted from 0); expected {least[1]}"
            )


def check_frame_count(frame: Labels, n_frames: int | None) -> None:
    """Refuse frames that a slip must have made: each costs time, whether it has cells or not."""
    used = np.unique(frame)
    longest = max(int(used[-1]) + 1 if len(used) else 0, n_frames or 0)
    if longest > MAX_FRAMES:
        raise InputError(
            f"the table has {min(longest, 10**18):,} frames or more; expected {MAX_FRAMES:,} at most"
        )
    gap = np.diff(used, prepend=-1)
    if len(used) and gap.max() > MAX_GAP:
        at = int(np.argmax(gap))
        raise InputError(
            f"the table has no cell in the {int(gap[at]) - 1:,} frames before frame {used[at]:,}; expected a gap of "
            f"{MAX_GAP:,} at most, and frames that are numbered one by one from 0"
        )


def find_groups(columns: Set[str]) -> frozenset[str]:
    """The groups all of whose columns are there."""
    return frozenset(
        group for group, needed in GROUPS.items() if set(needed) <= columns
    )


def _integers(name: str, values: Any) -> Labels:
    """(n,) whole numbers, also if they came as floats."""
    given = check_array(values, name)
    if given.ndim == 1 and not given.size:
        return np.zeros(
            0, dtype=np.int64
        )  # an empty list has a dtype that says nothing
    if (
        given.ndim != 1
        or given.dtype.kind not in "iuf"
        or not np.all(given == np.floor(given))
    ):
        raise InputError(
            f"{name} must be one column of whole numbers; it is {given.dtype} of shape {given.shape}"
        )
    if given.dtype.kind != "i" and given.max() >= 2.0**63:
        raise InputError(
            f"{name} has the number {given.max()}; expected less than 2**63"
        )
    return given.astype(np.int64)


def _numbers(name: str, values: Any, n: int) -> NDArray[np.float64]:
    """(n, …) finite numbers."""
    given = check_floats(values, name)
    if given.ndim == 0 or len(given) != n:
        raise InputError(f"{name} has shape {given.shape}; the table has {n} rows")
    if not np.isfinite(given).all():
        bad = np.flatnonzero(~np.isfinite(given.reshape(n, -1)).all(axis=1))[0]
        raise InputError(f"{name} is not a finite number in row {bad} (counted from 0)")
    if np.abs(given).max(initial=0) > MAX_NUMBER:
        far = np.flatnonzero((np.abs(given.reshape(n, -1)) > MAX_NUMBER).any(axis=1))[0]
        raise InputError(
            f"{name} is larger than {MAX_NUMBER:g} in row {far} (counted from 0); expected a smaller unit"
        )
    return given


def _refuse_duplicates(frame: Labels, label: Labels) -> None:
    """A label stands for one cell of a frame; both columns are sorted."""
    same = np.flatnonzero((frame[1:] == frame[:-1]) & (label[1:] == label[:-1]))
    if len(same):
        raise InputError(
            f"label {label[same[0]]} is twice in frame {frame[same[0]]}; each cell needs a label of its own"
        )


def _distance_to_box(position: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) how far each position is from the box around all of them."""
    if not len(position):
        return np.zeros(0)
    inside = np.minimum(
        position - position.min(axis=0), position.max(axis=0) - position
    )
    return np.asarray(inside.min(axis=1))
