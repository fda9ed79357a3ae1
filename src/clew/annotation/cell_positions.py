"""The cells of a whole movie in memory: their places, and what a lineage needs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.annotation.answers import Answer
from clew.annotation.store.history import Entry
from clew.learning.task import Array
from clew.tracking.detections import Detections, Overlap, Source
from clew.tracking.events import Labels
from clew.tracking.lineage.lineage import KEPT_COLUMNS

AXES = "zyx"
DIGITS = 2
"""Of positions in pixels."""


@dataclass(frozen=True)
class CellPositions:
    """The cells of one frame."""

    label: Labels
    """(n,) ascending."""
    position: NDArray[np.float64]
    """(n, ndim) (z,) y, x in pixels."""
    volume: NDArray[np.float64]
    """(n,) in physical units; 0 if it was not measured."""

    def to_json(self) -> list[dict[str, Any]]:
        """Return the cells as [{id, x, y, z?}]."""
        axes = AXES[-self.position.shape[1] :]
        columns = np.round(self.position, DIGITS).T.tolist()
        return [
            {"id": label, **dict(zip(axes, position, strict=True))}
            for label, *position in zip(self.label.tolist(), *columns, strict=True)
        ]

    def fingerprints(self, labels: Iterable[int]) -> list[str]:
        """Return a digest of place and size of each cell; empty for no cell."""
        return [self._fingerprint(label) for label in labels]

    def _fingerprint(self, label: int) -> str:
        row = int(np.searchsorted(self.label, label))
        if row >= len(self.label) or self.label[row] != label:
            return ""
        appearance = np.append(np.round(self.position[row], 3), self.volume[row])
        content = appearance.astype("<f8").tobytes()
        return hashlib.blake2b(content, digest_size=6).hexdigest()

    def of_labels(self, labels: Iterable[int]) -> NDArray[np.float64]:
        """Return (k, ndim) the positions of those labels that exist."""
        return self.position[np.isin(self.label, list(labels))]


class Positions:
    """A source that keeps every frame in memory, in about 50 bytes a cell.

    Several threads may use it at once.

    Parameters
    ----------
    source : Source
    spacing : sequence of float
        Of the pixels, (z,) y, x.
    """

    def __init__(self, source: Source, spacing: Sequence[float]) -> None:
        self.source = source
        self.spacing = np.asarray(spacing, dtype=float)
        self.name = source.name
        self.n_frames = source.n_frames
        self.ndim = source.ndim
        self.has = source.has
        self.movie = source.movie
        self._frames: dict[int, Detections] = {}
        self._cells: dict[int, CellPositions] = {}
        self._matches: dict[int, bool] = {}

    def with_source(self, source: Source, frames: Collection[int]) -> Positions:
        """Return the cells of a movie whose masks differ in some frames."""
        other = Positions(source, self.spacing.tolist())
        other._frames = {
            t: cells for t, cells in list(self._frames.items()) if t not in frames
        }
        other._cells = {
            t: cells for t, cells in list(self._cells.items()) if t not in frames
        }
        return other

    def detections(self, t: int) -> Detections:
        """Return the cells of a frame, with the columns that a lineage keeps."""
        if t not in self._frames:
            measured = self.source.detections(t)
            columns = {
                name: measured.columns[name]
                for name in KEPT_COLUMNS
                if name in measured.columns
            }
            self._frames[t] = Detections(t, measured.label, measured.position, columns)
        return self._frames[t]

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """Return the overlap of the masks of frames t and t + 1; it is not kept."""
        return self.source.overlap(t, shift)

    def cell_fingerprints(self, answer: Answer) -> list[str]:
        """Return the fingerprints of the cells of an answer, sources first."""
        before = self.cells(answer.frame)
        after = self.cells(answer.frame + answer.event.span)
        targets = after.fingerprints(answer.targets)
        return before.fingerprints(answer.sources) + targets

    def still_matches(self, entry: Entry) -> bool:
        """Return whether the cells of a stored answer look as they did then."""
        if entry.revision not in self._matches:
            now = self.cell_fingerprints(entry.answer)
            then = list(entry.looks)
            self._matches[entry.revision] = then == now if then else all(now)
        return self._matches[entry.revision]

    def cells(self, t: int) -> CellPositions:
        """Return the cells of a frame, in pixels."""
        if t not in self._cells:
            detections = self.detections(t)
            volume = detections.columns.get("volume", np.zeros(len(detections)))
            self._cells[t] = CellPositions(
                detections.label,
                detections.position / self.spacing,
                np.asarray(volume, float),
            )
        return self._cells[t]
