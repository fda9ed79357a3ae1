"""Whole tracks: the family of a cell, and answers about a track at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from clew.annotation.answers import Answer, Fact
from clew.annotation.cell_positions import Positions
from clew.annotation.predictions import Prediction, Predictions
from clew.errors import InputError
from clew.tracking.events import Annotations
from clew.tracking.lineage.build import build_lineage
from clew.tracking.lineage.lineage import Lineage

TrackCells = frozenset[tuple[int, int]]
"""(frame, label) of each cell of a track."""


class LineageCache:
    """The lineage of the present predictions, built when it is needed."""

    def __init__(self, predictions: Predictions) -> None:
        self.predictions = predictions
        self._built: tuple[list[Prediction], Lineage] | None = None
        # Building takes a second for a long movie: later requests wait for the first.
        self._lock = asyncio.Lock()

    async def get(
        self, positions: Positions, annotations: Annotations, may_be_old: bool = False
    ) -> Lineage | None:
        """Return the lineage; None until the whole movie is predicted.

        Parameters
        ----------
        positions : Positions
        annotations : Annotations
        may_be_old : bool
            Whether the lineage of earlier predictions will do, if there is one.
        """
        async with self._lock:
            by_frame = self.predictions.by_frame
            if not self.predictions.is_complete:
                return None
            predictions = [by_frame[frame] for frame in sorted(by_frame)]
            is_old = self._built is None or self._built[0] != predictions
            if self._built is None or (is_old and not may_be_old):
                lineage = await asyncio.to_thread(
                    build_lineage, positions, predictions, annotations
                )
                self._built = predictions, lineage
            return self._built[1]

    async def find_track(
        self, positions: Positions, annotations: Annotations, frame: int, label: int
    ) -> TrackCells:
        """Return the cells of the track that a cell is on."""
        lineage = await self.get(positions, annotations)
        if lineage is None:
            raise InputError("the movie is not tracked to its end yet; try again later")
        is_cell = (lineage.frame == frame) & (lineage.label == label)
        rows = np.flatnonzero(is_cell)
        if not len(rows):
            raise InputError(f"there is no cell {label} in frame {frame}")
        on_track = np.flatnonzero(lineage.track == lineage.track[rows[0]])
        frames = lineage.frame[on_track].tolist()
        labels = lineage.label[on_track].tolist()
        return frozenset(zip(frames, labels, strict=True))


def confirm_track(
    track: TrackCells,
    predictions: Mapping[int, Prediction],
    until: int | None = None,
) -> list[Answer]:
    """Return answers that confirm the predicted events of a track.

    Parameters
    ----------
    track : frozenset of (frame, label)
    predictions : mapping of int to Prediction
        By first frame.
    until : int, optional
        Only events that lead to this frame or an earlier one.
    """
    answers: dict[Fact, Answer] = {}
    for frame, label in sorted(track):
        for first_frame, side in ((frame, "sources"), (frame - 1, "targets")):
            if first_frame not in predictions:
                continue
            if until is not None and first_frame >= until:
                continue
            events = predictions[first_frame].events
            is_about_cell = (getattr(events, side) == label).any(axis=1)
            annotated = Annotations.of(events[np.flatnonzero(is_about_cell)])
            for answer in list_answers(annotated):
                answers[answer.fact] = answer
    return list(answers.values())


def reject_track_from(
    track: TrackCells,
    predictions: Mapping[int, Prediction],
    frame: int,
    label: int,
) -> list[Answer]:
    """Return answers that confirm a track up to a cell, and deny its next event."""
    if frame not in predictions:
        raise InputError(f"frame {frame} is the last one; expected an earlier cell")
    events = predictions[frame].events
    rows = np.flatnonzero((events.sources == label).any(axis=1))
    denied = list_answers(Annotations.of(events[rows], False))
    return [*denied, *confirm_track(track, predictions, frame)]


def list_answers(annotations: Annotations) -> list[Answer]:
    """Return annotations as single answers."""
    return [
        Answer.of(frame, event, sources, targets, bool(happened))
        for (frame, event, sources, targets), happened in zip(
            annotations.events, annotations.happened, strict=True
        )
    ]
