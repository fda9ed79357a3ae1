"""The cells of a movie as columns of numbers, frame by frame."""

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

if TYPE_CHECKING:  # movie imports this module
    from clew.tracking.movie import Movie
    from clew.tracking.user_columns import UserColumns

Floats = NDArray[np.floating[Any]]

GROUPS = {
    "size": ("volume",),
    "border": ("border_distance",),
    "shape": ("axes", "eccentricity", "support", "border_share"),
    "direction": ("axes", "direction"),
    "intensity": ("intensity",),
    "histogram": ("deviation", "quantiles"),
}
"""Columns of each group of measurements; "overlap" is one more, about two frames."""
WIDTHS = {
    "axes": {2: 2, 3: 3},
    "direction": {2: 2, 3: 3},
    "support": {2: 16, 3: 26},
    "quantiles": {2: 12, 3: 12},
}
"""Numbers of a cell in a column, in 2D and in 3D; one if not listed."""
OVERLAP = "overlap"
MAX_FRAMES = 1_000_000
"""More frames than any movie has; a typing error must not cost time or memory."""
MAX_GAP = 10_000
"""Consecutive frames without a cell that a table may have, for the same reason."""
MAX_NUMBER = 1e12
"""Largest position or measurement; its squares and volumes are still floats."""
MIN_VALUES = {
    "volume": (np.greater, "more than 0"),
    "border_distance": (np.greater_equal, "0 or more"),
}
"""Comparisons with 0 that columns must pass."""


@dataclass(frozen=True, slots=True)
class Detections:
    """The cells of one frame, sorted by label.

    Attributes
    ----------
    frame : int
    label : ndarray of int of shape (n,)
        Ascending, positive and unique.
    position : ndarray of shape (n, ndim)
        Centroids in physical units, axes as in the array.
    columns : mapping of ndarray of shape (n,) or (n, k)
        Measurements by name, see `measure_frame`.
    """

    frame: int
    label: Labels
    position: NDArray[np.float64]
    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, labels: Labels) -> Indices:
        """Rows of labels of any shape; -1 for `NONE` and labels that do not exist."""
        if not len(self):
            return np.full(np.shape(labels), -1, dtype=np.intp)
        row = np.minimum(np.searchsorted(self.label, labels), len(self) - 1)
        return np.where(self.label[row] == labels, row, -1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs of cells of a frame and of the next whose masks share pixels.

    Attributes
    ----------
    source : ndarray of int of shape (m,)
        Rows in the frame, ascending.
    target : ndarray of int of shape (m,)
        Rows in the next frame, ascending for each source.
    volume : ndarray of shape (m,)
        Shared volume in physical units.
    """

    source: Indices
    target: Indices
    volume: NDArray[np.float64]

    @classmethod
    def empty(cls) -> Self:
        """No pairs."""
        return cls(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))


class Source(Protocol):
    """The detections of a movie."""

    @property
    def name(self) -> str:
        """Name of the movie."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""

    @property
    def ndim(self) -> int:
        """2 or 3."""

    @property
    def has(self) -> frozenset[str]:
        """Groups of measurements that exist: of `GROUPS`, and "overlap"."""

    @property
    def movie(self) -> Movie | None:
        """The measured pixels; None for a table."""

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""

    def overlap(self, t: int, shift: NDArray[np.float64] | None = None) -> Overlap:
        """Overlap of the masks of frames `t` and `t + 1`, after a shift (n, ndim)."""


@runtime_checkable
class WindowedSource(Protocol):
    """A source that can be sent to another process in parts."""

    def window(self, first: int, last: int) -> Source:
        """Frames `first` to `last` only, with their numbers."""

    def content(self, t: int) -> bytes:
        """Digest of everything known about frame `t` and its links to the next."""


def take_window(source: Source, first: int, last: int) -> Source:
    """Frames `first` to `last` of a source, or all if it cannot be divided."""
    return source.window(first, last) if isinstance(source, WindowedSource) else source


class DetectionTable:
    """Detections from a table, without pixels.

    Parameters
    ----------
    frame : array-like of int of shape (n,)
        Counted from 0.
    label : array-like of int of shape (n,)
        Positive, and unique in a frame.
    position : array-like of shape (n, 2) or (n, 3)
    columns : mapping, optional
        Any columns of `GROUPS`. Without "border_distance", the border is the box
        around all positions.
    n_frames : int, optional
        Adds empty frames at the end.
    name : str
        Name of the table.

    Attributes
    ----------
    source : str
        Where the detections come from, in words.
    spacing : tuple of float or None
        Factors of positions to physical units, if any.
    excerpt : range or None
        Frames of a longer table; None for a whole one.
    user_columns : UserColumns or None
        Other columns, and those of links.
    """

    movie: Movie | None = None
    source = "a table of detections"
    spacing: tuple[float, ...] | None = None
    user_columns: UserColumns | None = None

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
        frame = _check_integers("frame", frame)
        label = _check_integers("label", label)
        n = len(frame)
        position = _check_numbers("position", position, n)
        if position.ndim != 2 or position.shape[1] not in (2, 3):
            raise InputError(
                f"position has shape {position.shape}; expected (n, 2) or (n, 3)"
            )
        if len(label) != n:
            raise InputError(
                f"frame has {n} rows and label {len(label)}; each detection needs both"
            )
        if n and (frame.min() < 0 or label.min() <= NONE):
            raise InputError(
                "frames count from 0 and labels from 1; there are smaller ones in the "
                "table"
            )
        if n_frames is not None:
            n_frames = check_int(n_frames, "n_frames", 0)
        check_frame_count(frame, n_frames)
        measured = _check_columns(columns, n, position.shape[1])
        order = np.lexsort((label, frame))
        frame = frame[order]
        self._label = label[order]
        self._position = position[order]
        _check_duplicates(frame, self._label)
        self._columns = {key: column[order] for key, column in measured.items()}
        if "border_distance" not in self._columns:
            self._columns["border_distance"] = _measure_box_distance(self._position)
        self.name = name
        self.excerpt: range | None = None
        self.ndim = int(position.shape[1])
        self.n_frames = max(n_frames or 0, int(frame[-1]) + 1 if n else 0)
        self.has: frozenset[str] = find_groups(self._columns.keys())
        self._begin = np.searchsorted(frame, np.arange(self.n_frames + 1))
        self._frames = range(self.n_frames)

    def window(self, first: int, last: int) -> Self:
        """Frames `first` to `last` only, with their numbers."""
        begin = self._begin[first]
        end = self._begin[last + 1]
        part = copy(self)
        part._label = self._label[begin:end]
        part._position = self._position[begin:end]
        part._columns = {
            key: column[begin:end] for key, column in self._columns.items()
        }
        part._begin = np.clip(self._begin, begin, end) - begin
        part._frames = range(first, last + 1)
        return part

    def content(self, t: int) -> bytes:
        """Digest of everything known about frame `t`."""
        cells = self.detections(t)
        names = sorted(cells.columns)
        digest = hashlib.blake2b(repr(names).encode(), digest_size=20)
        columns = [cells.columns[name] for name in names]
        for column in (cells.label, cells.position, *columns):
            digest.update(repr(column.shape).encode())
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.digest()

    def __getitem__(self, frames: slice) -> Self:
        """Consecutive frames, counted from 0."""
        which = check_frame_slice(frames, self.n_frames, "frames")
        if which.step != 1:
            raise InputError(
                f"frames has step {which.step}; expected all frames between two"
            )
        begin = self._begin[which.start]
        end = self._begin[max(which.start, which.stop)]
        frame = np.repeat(np.arange(self.n_frames), np.diff(self._begin))[begin:end]
        part = type(self)(
            frame - which.start,
            self._label[begin:end],
            self._position[begin:end],
            {key: column[begin:end] for key, column in self._columns.items()},
            n_frames=len(which),
            name=self.name,
        )
        part.excerpt = which if self.excerpt is None else self.excerpt[frames]
        part.source = self.source
        part.spacing = self.spacing
        if self.user_columns is not None:
            part.user_columns = self.user_columns.select_frames(which)
        return part

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""
        t = check_frame(t, self._frames.start, self._frames.stop - 1, self.name)
        rows = slice(self._begin[t], self._begin[t + 1])
        columns = {key: column[rows] for key, column in self._columns.items()}
        return Detections(t, self._label[rows], self._position[rows], columns)

    def overlap(self, t: int, shift: NDArray[np.float64] | None = None) -> Overlap:  # noqa: ARG002
        """No overlap, since there are no pixels."""
        return Overlap.empty()


def _check_columns(
    columns: Mapping[str, Any] | None, n: int, ndim: int
) -> dict[str, NDArray[np.float64]]:
    """Check names, shapes and signs of the measurements of n cells."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InputError(
            f"columns is a {type(columns).__name__}; expected a mapping from names to "
            "columns"
        )
    known = {column for group in GROUPS.values() for column in group}
    unknown = set(columns) - known
    if unknown:
        raise InputError(
            f"unknown columns {sorted(map(str, unknown))}; tracking uses "
            f"{sorted(known)}"
        )
    checked = {}
    for name, values in columns.items():
        column = _check_numbers(name, values, n)
        width = WIDTHS.get(name, {}).get(ndim)
        expected = (n,) if width is None else (n, width)
        if column.shape != expected:
            raise InputError(f"{name} has shape {column.shape}; expected {expected}")
        if name in MIN_VALUES:
            compare, words = MIN_VALUES[name]
            is_valid = compare(column, 0)
            if not is_valid.all():
                row = int(np.argmin(is_valid))
                raise InputError(
                    f"{name} is {column[row]:g} in row {row} (counted from 0); "
                    f"expected {words}"
                )
        checked[name] = column
    return checked


def check_frame_count(frame: Labels, n_frames: int | None) -> None:
    """Refuse more frames, or a longer gap, than a movie can have.

    Each frame costs time, whether it has cells or not.
    """
    used = np.unique(frame)
    length = max(int(used[-1]) + 1 if len(used) else 0, n_frames or 0)
    if length > MAX_FRAMES:
        raise InputError(
            f"the table has {min(length, 10**18):,} frames or more; expected "
            f"{MAX_FRAMES:,} at most"
        )
    gap = np.diff(used, prepend=-1)
    if len(used) and gap.max() > MAX_GAP:
        at = int(np.argmax(gap))
        raise InputError(
            f"the table has no cell in the {int(gap[at]) - 1:,} frames before frame "
            f"{used[at]:,}; expected a gap of {MAX_GAP:,} at most, and frames that are "
            "numbered one by one from 0"
        )


def find_groups(columns: Set[str]) -> frozenset[str]:
    """Groups of measurements all of whose columns exist."""
    return frozenset(
        group for group, needed in GROUPS.items() if set(needed) <= columns
    )


def _check_integers(name: str, values: Any) -> Labels:
    """(n,) whole numbers, also from floats."""
    column = check_array(values, name)
    if column.ndim == 1 and not column.size:
        return np.zeros(0, dtype=np.int64)  # the dtype of an empty list means nothing
    is_column = column.ndim == 1 and column.dtype.kind in "iuf"
    if not is_column or not np.all(column == np.floor(column)):
        raise InputError(
            f"{name} must be one column of whole numbers; it is {column.dtype} of "
            f"shape {column.shape}"
        )
    if column.dtype.kind != "i" and column.max() >= 2.0**63:
        raise InputError(
            f"{name} has the number {column.max()}; expected less than 2**63"
        )
    return column.astype(np.int64)


def _check_numbers(name: str, values: Any, n: int) -> NDArray[np.float64]:
    """(n, …) finite numbers."""
    column = check_floats(values, name)
    if column.ndim == 0 or len(column) != n:
        raise InputError(f"{name} has shape {column.shape}; the table has {n} rows")
    table = column.reshape(n, -1) if n else np.zeros((0, 1))
    is_finite = np.isfinite(table).all(axis=1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise InputError(f"{name} is not a finite number in row {row} (counted from 0)")
    is_small = (np.abs(table) <= MAX_NUMBER).all(axis=1)
    if not is_small.all():
        row = int(np.argmin(is_small))
        raise InputError(
            f"{name} is larger than {MAX_NUMBER:g} in row {row} (counted from 0); "
            "expected a smaller unit"
        )
    return column


def _check_duplicates(frame: Labels, label: Labels) -> None:
    """Refuse a label that occurs twice in a frame; both columns are sorted."""
    is_same = (frame[1:] == frame[:-1]) & (label[1:] == label[:-1])
    if is_same.any():
        row = int(np.argmax(is_same))
        raise InputError(
            f"label {label[row]} is twice in frame {frame[row]}; labels must be unique "
            "in a frame"
        )


def _measure_box_distance(position: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) distance of each position from the box around all of them."""
    if not len(position):
        return np.zeros(0)
    low = position.min(axis=0)
    high = position.max(axis=0)
    return np.asarray(np.minimum(position - low, high - position).min(axis=1))
