"""The edits of a movie as a layer beside it: the frames with them applied, and the cells measured again.

The movie's own masks are never written to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from clew.annotation.mask_edits import Edit, apply
from clew.tracking.detections import Source
from clew.tracking.frames import FramesView
from clew.tracking.measurement.measure import MeasuredMovie
from clew.tracking.movie import Movie

Edits = tuple[Edit, ...]
"""Those that hold, in the order in which they were made."""


@dataclass(frozen=True)
class EditedFrames(FramesView):
    """Label images with edits."""

    edits: Mapping[int, Edits]
    """By frame."""

    def __getitem__(self, t: int) -> NDArray[Any]:
        return apply(self.frames[t], self.edits.get(t, ()))


def by_frame(edits: Iterable[Edit]) -> dict[int, Edits]:
    """Edits of each frame, in their order."""
    found: dict[int, Edits] = {}
    for edit in edits:
        found[edit.frame] = (*found.get(edit.frame, ()), edit)
    return found


def changed_frames(before: Edits, after: Edits) -> list[int]:
    """Frames whose masks differ between two states, ascending."""
    then, now = by_frame(before), by_frame(after)
    return sorted(t for t in then.keys() | now.keys() if then.get(t) != now.get(t))


def edited_movie(movie: Movie, edits: Edits) -> Movie:
    """A movie with edits, in place of those that it had."""
    frames = (
        movie.labels.frames if isinstance(movie.labels, EditedFrames) else movie.labels
    )
    return replace(
        movie, labels=EditedFrames(frames, by_frame(edits)) if edits else frames
    )


def edited_source(source: Source, before: Edits, after: Edits) -> Source:
    """The measured cells of a movie with other edits than before; only frames that changed are measured again.

    Cells that came as a table have no masks to edit.
    """
    frames = changed_frames(before, after)
    if not frames or not isinstance(source, MeasuredMovie):
        return source
    return source.remeasure_frames(edited_movie(source.movie, after), frames)
