"""The cells of a whole movie in memory: where they are, and the little that a lineage keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.detections import Detections, Overlap, Source
from clew.tracking.events import Labels
from clew.tracking.model.solve import KEPT_COLUMNS

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

    def view(self) -> list[dict[str, Any]]:
        """[{id, x, y, z?}]"""
        axes = ("id", *AXES[-self.position.shape[1] :])
        columns = [self.label.tolist(), *np.round(self.position, DIGITS).T.tolist()]
        return [dict(zip(axes, row, strict=True)) for row in zip(*columns, strict=True)]

    def of_labels(self, labels: Iterable[int]) -> NDArray[np.float64]:
        """(k, ndim) positions of those of the labels that are there."""
        return self.position[np.isin(self.label, list(labels))]


class Positions:
    """A source that remembers every frame that it was asked for, in about 50 bytes a cell; for threads, too."""

    def __init__(self, source: Source, spacing: Sequence[float]) -> None:
        self.source, self.spacing = source, np.asarray(spacing, dtype=float)
        self.name, self.n_frames, self.ndim, self.has = source.name, source.n_frames, source.ndim, source.has
        self._frames: dict[int, Detections] = {}
        self._cells: dict[int, CellPositions] = {}

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`, with the columns that a lineage keeps."""
        if t not in self._frames:
            found = self.source.detections(t)
            kept = {name: found.columns[name] for name in KEPT_COLUMNS if name in found.columns}
            self._frames[t] = Detections(t, found.label, found.position, kept)
        return self._frames[t]

    def overlap(self, t: int) -> Overlap:
        """What the masks of frames `t` and `t + 1` share; this is not kept."""
        return self.source.overlap(t)

    def cells(self, t: int) -> CellPositions:
        """The cells of frame `t`, in pixels."""
        if t not in self._cells:
            found = self.detections(t)
            self._cells[t] = CellPositions(found.label, found.position / self.spacing)
        return self._cells[t]
