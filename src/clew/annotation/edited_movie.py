"""A movie with mask edits: its frames with the edits, and its cells measured again.

The masks of the movie itself are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from clew.annotation.mask_edits import Edit, apply_edits
from clew.tracking.detections import Source
from clew.tracking.frames import FramesView
from clew.tracking.measurement.measure import MeasuredMovie
from clew.tracking.movie import Movie

Edits = tuple[Edit, ...]
"""In the order in which they were made."""


@dataclass(frozen=True)
class EditedFrames(FramesView):
    """Label images with edits."""

    edits: Mapping[int, Edits]
    """By frame."""

    def __getitem__(self, t: int) -> NDArray[Any]:
        return apply_edits(self.frames[t], self.edits.get(t, ()))


def group_by_frame(edits: Iterable[Edit]) -> dict[int, Edits]:
    """Return the edits of each frame, in their order."""
    by_frame: dict[int, Edits] = {}
    for edit in edits:
        by_frame[edit.frame] = (*by_frame.get(edit.frame, ()), edit)
    return by_frame


def find_changed_frames(before: Edits, after: Edits) -> list[int]:
    """Return the frames whose masks differ between two states, ascending."""
    old = group_by_frame(before)
    new = group_by_frame(after)
    return sorted(t for t in old.keys() | new.keys() if old.get(t) != new.get(t))


def edit_movie(movie: Movie, edits: Edits) -> Movie:
    """Return a movie with edits, which replace those that it had."""
    frames = movie.labels
    if isinstance(frames, EditedFrames):
        frames = frames.frames
    if edits:
        frames = EditedFrames(frames, group_by_frame(edits))
    return replace(movie, labels=frames)


def edit_source(source: Source, before: Edits, after: Edits) -> Source:
    """Return the cells of a movie with other edits.

    Parameters
    ----------
    source : Source
        The cells with the edits `before`; cells of a table have no masks to edit.
    before, after : tuple of Edit
        Only frames in which these differ are measured again.
    """
    frames = find_changed_frames(before, after)
    if not frames or not isinstance(source, MeasuredMovie):
        return source
    return source.remeasure_frames(edit_movie(source.movie, after), frames)
