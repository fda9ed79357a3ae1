"""The cells of a whole movie in memory: where they are, and the little that a lineage keeps of them."""

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
from clew.tracking.solve import KEPT_COLUMNS

AXES = "zyx"
DIGITS = 2
"""Of a pixel."""


@dataclass(frozen=True)
class CellPositions:
    """The cells of a frame, where they are in pixels."""

    label: Labels
    """(n,) ascending."""
    position: NDArray[np.float64]
    """(n, ndim) (z,) y, x in pixels."""
    volume: NDArray[np.float64]
    """(n,) in physical units; 0 where it was not measured."""

    def view(self) -> list[dict[str, Any]]:
        """[{id, x, y, z?}]"""
        axes = ("id", *AXES[-self.position.shape[1] :])
        columns = [self.label.tolist(), *np.round(self.position, DIGITS).T.tolist()]
        return [dict(zip(axes, row, strict=True)) for row in zip(*columns, strict=True)]

    def looks(self, labels: Iterable[int]) -> list[str]:
        """A short name for what each cell looks like: another size or place gives another one; empty for no cell."""
        found = []
        for label in labels:
            row = int(np.searchsorted(self.label, label))
            there = row < len(self.label) and self.label[row] == label
            seen = (
                np.append(np.round(self.position[row], 3), self.volume[row])
                if there
                else None
            )
            found.append(
                ""
                if seen is None
                else hashlib.blake2b(
                    seen.astype("<f8").tobytes(), digest_size=6
                ).hexdigest()
            )
        return found

    def of_labels(self, labels: Iterable[int]) -> NDArray[np.float64]:
        """(k, ndim) positions of those of the labels that are there."""
        return self.position[np.isin(self.label, list(labels))]


class Positions:
    """A source that remembers every frame that it was asked for, in about 50 bytes a cell; for threads, too."""

    def __init__(self, source: Source, spacing: Sequence[float]) -> None:
        self.source, self.spacing = source, np.asarray(spacing, dtype=float)
        self.name, self.n_frames, self.ndim, self.has = (
            source.name,
            source.n_frames,
            source.ndim,
            source.has,
        )
        self.movie = source.movie
        self._frames: dict[int, Detections] = {}
        self._cells: dict[int, CellPositions] = {}
        self._holds: dict[int, bool] = {}

    def edited(self, source: Source, frames: Collection[int]) -> Positions:
        """The cells of a movie whose masks differ in some frames; the others are remembered."""
        other = Positions(source, self.spacing.tolist())
        other._frames = {
            t: cells for t, cells in list(self._frames.items()) if t not in frames
        }
        other._cells = {
            t: cells for t, cells in list(self._cells.items()) if t not in frames
        }
        return other

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`, with the columns that a lineage keeps."""
        if t not in self._frames:
            found = self.source.detections(t)
            kept = {
                name: found.columns[name]
                for name in KEPT_COLUMNS
                if name in found.columns
            }
            self._frames[t] = Detections(t, found.label, found.position, kept)
        return self._frames[t]

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """What the masks of frames `t` and `t + 1` share; this is not kept."""
        return self.source.overlap(t, shift)

    def looks(self, answer: Answer) -> list[str]:
        """What the cells of an answer look like now, sources first."""
        before, after = (
            self.cells(answer.frame),
            self.cells(answer.frame + answer.event.span),
        )
        return before.looks(answer.sources) + after.looks(answer.targets)

    def holds(self, entry: Entry) -> bool:
        """Whether the cells of an answer look as they did when it was given, as far as that is known."""
        if entry.revision not in self._holds:
            now = self.looks(entry.answer)
            self._holds[entry.revision] = (
                list(entry.looks) == now if entry.looks else all(now)
            )
        return self._holds[entry.revision]

    def cells(self, t: int) -> CellPositions:
        """The cells of frame `t`, in pixels."""
        if t not in self._cells:
            found = self.detections(t)
            self._cells[t] = CellPositions(
                found.label,
                found.position / self.spacing,
                np.asarray(found.columns.get("volume", np.zeros(len(found))), float),
            )
        return self._cells[t]
