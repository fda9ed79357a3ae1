"""Columns of numbers that a user has of cells and of links, as features of events.

A detector's score, the intensity of a marker or the components of an embedding describe
cells; a network's association score describes links. They become groups of measurements,
"column score" and "link score", whose weights are learned. Their values are standardized
by the mean and deviation of the movies that were learned from, since a score means the
same in every movie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.models.examples import fingerprint
from clew.tracking.detections import (
    Detections,
    Overlap,
    Source,
    take_window,
)
from clew.tracking.events import NONE, Labels

CELL_PREFIX = "column "
LINK_PREFIX = "link "


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Numbers of cells, or of pairs of cells in consecutive frames.

    Attributes
    ----------
    frame : ndarray of int of shape (n,)
        Ascending.
    cells : ndarray of int of shape (n, 1) or (n, 2)
        The label, or those of the source in `frame` and the target in the next.
    columns : mapping of ndarray of shape (n,)
    """

    frame: Labels
    cells: Labels
    columns: Mapping[str, Array]

    @classmethod
    def of(cls, frame: Labels, cells: Labels, columns: Mapping[str, Array]) -> Self:
        """Sort the rows of a table by frame and cells."""
        order = np.lexsort((*cells.T[::-1], frame))
        ordered = {name: column[order] for name, column in columns.items()}
        return cls(frame[order], cells[order], ordered)

    def select_frames(self, frames: range) -> Self:
        """Rows of some frames, which are numbered from 0."""
        part = self._select(np.isin(self.frame, frames))
        return replace(part, frame=(part.frame - frames.start) // frames.step)

    def of_frame(self, t: int) -> Self:
        """Rows of one frame."""
        begin, end = np.searchsorted(self.frame, [t, t + 1])
        return self._select(slice(begin, end))

    def _select(self, rows: Mask | slice) -> Self:
        columns = {name: column[rows] for name, column in self.columns.items()}
        return type(self)(self.frame[rows], self.cells[rows], columns)


@dataclass(frozen=True, eq=False)
class UserColumns:
    """The columns of a movie's cells and links."""

    cells: ColumnTable | None = None
    links: ColumnTable | None = None

    def list_groups(self) -> frozenset[str]:
        """Names of the columns as groups of measurements."""
        cells = () if self.cells is None else self.cells.columns
        links = () if self.links is None else self.links.columns
        return frozenset(
            [f"{CELL_PREFIX}{name}" for name in cells]
            + [f"{LINK_PREFIX}{name}" for name in links]
        )

    def get_values(self, group: str) -> Array:
        """(n,) all values of a group."""
        table = self.cells if group.startswith(CELL_PREFIX) else self.links
        assert table is not None
        return table.columns[_strip_prefix(group)]

    def join(self, other: Self) -> Self:
        """Take what is missing from others."""
        return type(self)(self.cells or other.cells, self.links or other.links)

    def select_frames(self, frames: range) -> Self:
        """Columns of an excerpt of the movie; frames left out have no links."""
        cells = self.cells and self.cells.select_frames(frames)
        links = self.links and self.links.select_frames(frames)
        return type(self)(cells, links if frames.step == 1 else None)


NO_COLUMNS = UserColumns()


class Standard(NamedTuple):
    """Mean and deviation by which a column is standardized."""

    mean: float
    deviation: float


class Links(NamedTuple):
    """Numbers of pairs of cells of two frames; columns by group."""

    source: Indices
    target: Indices
    columns: Mapping[str, Array]


def get_user_columns(source: Source) -> UserColumns:
    """Return the columns that came with a movie or a table."""
    given = source if source.movie is None else source.movie
    return getattr(given, "user_columns", None) or NO_COLUMNS


def is_user_group(group: str) -> bool:
    """Whether a group of measurements is a column of a user."""
    return str(group).startswith((CELL_PREFIX, LINK_PREFIX))


def measure_standards(
    sources: Sequence[Source], groups: Iterable[str]
) -> dict[str, Standard]:
    """Measure the mean and deviation of the columns of some movies."""
    standards = {}
    for group in filter(is_user_group, groups):
        parts = [get_user_columns(source).get_values(group) for source in sources]
        values = np.concatenate(parts)
        deviation = float(values.std()) if len(values) else 0.0
        mean = float(values.mean()) if len(values) else 0.0
        standards[group] = Standard(mean, deviation or 1.0)
    return standards


def add_user_columns(
    source: Source, groups: Iterable[str], standards: Mapping[str, Standard]
) -> Source:
    """Return the detections with standardized columns, if groups name any."""
    wanted = {group: standards[group] for group in groups if is_user_group(group)}
    return SourceWithColumns(source, wanted) if wanted else source


@dataclass(frozen=True)
class SourceWithColumns:
    """Detections of a movie with standardized columns of a user.

    Attributes
    ----------
    source : Source
    standards : mapping of Standard by group
        The columns to add.
    user_columns : UserColumns
        Those of the source, with the frame numbers of the whole movie.
    """

    source: Source
    standards: Mapping[str, Standard]
    user_columns: UserColumns = NO_COLUMNS

    def __post_init__(self) -> None:
        if self.user_columns is NO_COLUMNS:
            columns = get_user_columns(self.source)
            object.__setattr__(self, "user_columns", columns)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def window(self, first: int, last: int) -> Self:
        """Frames `first` to `last` only, with their numbers."""
        return replace(self, source=take_window(self.source, first, last))

    def content(self, t: int) -> bytes:
        """Digest of everything known about frame `t` and its links to the next."""
        tables = (self.user_columns.cells, self.user_columns.links)
        parts = [table.of_frame(t) for table in tables if table is not None]
        arrays = [array for part in parts for array in part.columns.values()]
        cells = [part.cells for part in parts]
        own: bytes = self.source.content(t)  # type: ignore[attr-defined]
        digests = [fingerprint(array) for array in (*cells, *arrays)]
        return own + repr((digests, sorted(self.standards.items()))).encode()

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`, with the columns of cells."""
        cells = self.source.detections(t)
        table = self.user_columns.cells
        if table is None or not len(cells):
            return cells
        part = table.of_frame(t)
        label = part.cells[:, 0]
        added = {}
        for group in self.standards:
            if group.startswith(CELL_PREFIX):
                values = self._standardize(group, part.columns[_strip_prefix(group)])
                place = np.searchsorted(label, cells.label)
                is_known = np.append(label, NONE)[place] == cells.label
                # cells that were drawn later have the mean
                added[group] = np.where(is_known, np.append(values, 0.0)[place], 0.0)
        return replace(cells, columns={**cells.columns, **added})

    def overlap(self, t: int, shift: NDArray[np.float64] | None = None) -> Overlap:
        """Overlap of the masks of frames `t` and `t + 1`, after a shift (n, ndim)."""
        return self.source.overlap(t, shift)

    def find_links(self, before: Detections, after: Detections) -> Links | None:
        """Links between two frames; None if there are no columns of links."""
        groups = [group for group in self.standards if group.startswith(LINK_PREFIX)]
        if self.user_columns.links is None or not groups:
            return None
        part = self.user_columns.links.of_frame(before.frame)
        source = before.rows(part.cells[:, 0])
        target = after.rows(part.cells[:, 1])
        exists = (source >= 0) & (target >= 0)
        # masks may have been edited since
        is_wrong = not exists.all() if self.movie is None else not exists.any()
        if len(exists) and is_wrong:
            first, second = part.cells[np.argmin(exists)]
            raise InputError(
                f"the links of {self.source.name} lead from label {first} of frame "
                f"{before.frame} to label {second} of the next; not both are cells of "
                "the movie"
            )
        columns = {
            group: self._standardize(group, part.columns[_strip_prefix(group)])[exists]
            for group in groups
        }
        return Links(source[exists], target[exists], columns)

    def _standardize(self, group: str, values: Array) -> Array:
        standard = self.standards[group]
        return (values - standard.mean) / standard.deviation


def _strip_prefix(group: str) -> str:
    """Name of the column of a group."""
    return group.removeprefix(CELL_PREFIX).removeprefix(LINK_PREFIX)
