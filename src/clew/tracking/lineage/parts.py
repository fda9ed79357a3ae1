"""A lineage in parts of consecutive frames, as writers of results read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clew.learning.task import Array
from clew.tracking.events import EventTable, Labels
from clew.tracking.lineage.fill import RecoveredCells
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.solve import Nodes

FRAMES_PER_PART = 16


@dataclass(frozen=True, eq=False)
class LineagePart:
    """Consecutive frames of a lineage: cells, tracks, and the events from them on."""

    frames: tuple[int, int]
    """The first and the last frame."""
    nodes: Nodes
    track: Labels
    """(n,)"""
    events: EventTable
    """(m,) sorted by frame, kind, sources and targets."""
    confidence: Array
    probability: Array | None
    """(m,) that an event is right; None where confidences are not calibrated."""


class PartReader(Protocol):
    """Reads a part where it is needed; it can be sent to another process."""

    @property
    def frames(self) -> tuple[int, int]:
        """The first and the last frame of the part."""

    def read(self) -> LineagePart:
        """Read the part."""


class TrackedMovie(Protocol):
    """A lineage in parts, in order of time."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""

    @property
    def n_cells(self) -> int:
        """Number of detections."""

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""

    @property
    def recovered(self) -> RecoveredCells | None:
        """Cells without a given mask; None where they were not searched."""

    def readers(self) -> Sequence[PartReader]:
        """Return the parts, not read yet."""

    def lineage(self) -> Lineage:
        """Return the lineage in memory."""


def parts_of(movie: TrackedMovie) -> Iterator[LineagePart]:
    """Read the parts one after the other."""
    return (reader.read() for reader in movie.readers())


def as_parts(movie: Lineage | TrackedMovie) -> TrackedMovie:
    """Return a lineage in parts; one that is in parts is returned as it is."""
    return LineageInParts(movie) if isinstance(movie, Lineage) else movie


@dataclass(frozen=True, eq=False)
class LineageInParts:
    """A lineage in memory as parts of a few frames each."""

    whole: Lineage
    frames_per_part: int = FRAMES_PER_PART

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.whole.n_frames

    @property
    def n_cells(self) -> int:
        """Number of detections."""
        return len(self.whole.frame)

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""
        return self.whole.tracks

    @property
    def recovered(self) -> RecoveredCells | None:
        """Cells without a given mask."""
        return self.whole.recovered

    def readers(self) -> Sequence[PartReader]:
        """Return slices of the lineage."""
        starts = range(0, max(self.n_frames, 1), self.frames_per_part)
        return [_PartInMemory(self._part(first)) for first in starts]

    def lineage(self) -> Lineage:
        """Return the lineage itself."""
        return self.whole

    def _part(self, first: int) -> LineagePart:
        """The part that begins with a frame."""
        whole = self.whole
        stop = first + self.frames_per_part
        cells = slice(*np.searchsorted(whole.frame, [first, stop]).tolist())
        columns = {name: column[cells] for name, column in whole.columns.items()}
        nodes = Nodes(
            whole.frame[cells], whole.label[cells], whole.position[cells], columns
        )
        inside = (whole.events.frame >= first) & (whole.events.frame < stop)
        rows = np.flatnonzero(inside)
        rows = rows[np.argsort(whole.events.frame[rows], kind="stable")]
        return LineagePart(
            (first, min(stop, max(self.n_frames, 1)) - 1),
            nodes,
            whole.track[cells],
            whole.events[rows],
            whole.confidence[rows],
            None if whole.probability is None else whole.probability[rows],
        )


@dataclass(frozen=True, eq=False)
class _PartInMemory:
    """A part that is in memory."""

    part: LineagePart

    @property
    def frames(self) -> tuple[int, int]:
        """The first and the last frame of the part."""
        return self.part.frames

    def read(self) -> LineagePart:
        """Return the part."""
        return self.part


def join_parts(
    parts: Sequence[LineagePart],
    n_frames: int,
    recovered: RecoveredCells | None = None,
) -> Lineage:
    """Join the parts of a whole movie to a lineage in memory."""
    names = set.intersection(*(set(part.nodes.columns) for part in parts))
    columns = {
        name: np.concatenate([part.nodes.columns[name] for part in parts])
        for name in sorted(names)
    }
    probabilities = [part.probability for part in parts if part.probability is not None]
    return Lineage(
        n_frames,
        np.concatenate([part.nodes.frame for part in parts]),
        np.concatenate([part.nodes.label for part in parts]),
        np.concatenate([part.nodes.position for part in parts]),
        EventTable.join([part.events for part in parts]),
        np.concatenate([part.confidence for part in parts]),
        columns,
        np.concatenate(probabilities) if len(probabilities) == len(parts) else None,
        recovered,
    )
