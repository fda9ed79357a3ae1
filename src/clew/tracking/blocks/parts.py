"""A tracked movie as parts that are read one after the other: what writers of results ask for, whole or in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from clew.tracking.blocks.join import Part
from clew.tracking.blocks.plan import PAIRS
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.solve import Nodes


class PartReader(Protocol):
    """A part of a tracked movie that is read where it is needed; it can be sent to another process."""

    @property
    def frames(self) -> tuple[int, int]:
        """The first and the last frame whose cells it has."""

    def read(self) -> Part:
        """The part."""


class TrackedMovie(Protocol):
    """A tracked movie in parts, in order of time; each frame's cells are in one of them, with what leads on."""

    @property
    def n_frames(self) -> int:
        """Of the movie."""

    @property
    def n_cells(self) -> int:
        """Detections of the whole movie."""

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""

    def readers(self) -> Sequence[PartReader]:
        """The parts, not read yet."""

    def lineage(self) -> Lineage:
        """All of it in memory."""


def parts_of(movie: TrackedMovie) -> Iterator[Part]:
    """The parts one after the other, one in memory at a time."""
    return (reader.read() for reader in movie.readers())


@dataclass(frozen=True, eq=False)
class _Held:
    """A part that is in memory."""

    part: Part

    @property
    def frames(self) -> tuple[int, int]:
        """Those of the part."""
        return self.part.frames

    def read(self) -> Part:
        """The part."""
        return self.part


@dataclass(frozen=True, eq=False)
class InMemory:
    """A lineage as parts of a few frames each."""

    whole: Lineage
    per_part: int = PAIRS

    @property
    def n_frames(self) -> int:
        """Of the movie."""
        return self.whole.n_frames

    @property
    def n_cells(self) -> int:
        """Detections of the whole movie."""
        return len(self.whole.frame)

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""
        return self.whole.tracks

    def readers(self) -> Sequence[PartReader]:
        """Slices of the lineage."""
        return [
            _Held(self._part(first))
            for first in range(0, max(self.n_frames, 1), self.per_part)
        ]

    def lineage(self) -> Lineage:
        """The lineage itself."""
        return self.whole

    def _part(self, first: int) -> Part:
        whole, last = self.whole, first + self.per_part
        cells = slice(*np.searchsorted(whole.frame, [first, last]))
        columns = {name: column[cells] for name, column in whole.columns.items()}
        nodes = Nodes(
            whole.frame[cells], whole.label[cells], whole.position[cells], columns
        )
        rows = np.flatnonzero(
            (whole.events.frame >= first) & (whole.events.frame < last)
        )
        rows = rows[np.argsort(whole.events.frame[rows], kind="stable")]
        probability = None if whole.probability is None else whole.probability[rows]
        frames = (first, min(last, max(self.n_frames, 1)) - 1)
        return Part(
            frames,
            nodes,
            whole.track[cells],
            whole.events[rows],
            whole.confidence[rows],
            probability,
        )


def as_parts(movie: Lineage | TrackedMovie) -> TrackedMovie:
    """A lineage in parts; what is in parts already stays as it is."""
    return InMemory(movie) if isinstance(movie, Lineage) else movie
