"""Which movie annotations belong to: enough of its content to notice another one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from clew.errors import StoreError
from clew.tracking.detections import Source
from clew.tracking.measurement.store import hash_frame, hash_parts
from clew.tracking.movie import Movie

LOOKED_AT = 8
"""Frames whose content is looked at, spread from the first to the last."""


@dataclass(frozen=True, slots=True)
class MovieIdentity:
    """A movie as annotations see it: they name frames and labels, so the masks make it and the raw images do not."""

    name: str
    """For people: a movie that was renamed or moved is still the same."""
    n_frames: int
    ndim: int
    shape: tuple[int, ...]
    """Of one frame, (z,) y, x; empty for detections that came as a table."""
    fingerprint: str
    """A digest of the labels in a few frames, whatever integers they are stored as."""

    @classmethod
    def of(cls, movie: Movie | Source) -> Self:
        """The identity of a movie, before or after it was measured; reads a few of its frames."""
        whole = movie if isinstance(movie, Movie) else movie.movie or movie
        shape = tuple(map(int, whole.shape)) if isinstance(whole, Movie) else ()
        frames = np.unique(
            np.linspace(0, whole.n_frames - 1, LOOKED_AT).round().astype(int)
        ).tolist()
        content = hash_parts(_frame_content(whole, t) for t in frames)
        return cls(whole.name, whole.n_frames, whole.ndim, shape, content)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """What `to_json` gave."""
        return cls(**{**content, "shape": tuple(content["shape"])})

    def to_json(self) -> dict[str, Any]:
        """Plain content, for a file."""
        return asdict(self) | {"shape": list(self.shape)}

    def require(self, other: MovieIdentity, cells_known: bool = False) -> None:
        """Raise a StoreError that names the difference, unless the other is the same movie.

        Masks may have been changed since, if some of the annotated cells are still known.
        """
        if self.n_frames != other.n_frames:
            difference = (
                f"that has {self.n_frames} frames, this one has {other.n_frames}"
            )
        elif (self.ndim, self.shape) != (other.ndim, other.shape):
            difference = (
                f"its frames are {self._size()}, those of this one {other._size()}"
            )
        elif self.fingerprint != other.fingerprint and not cells_known:
            difference = "the sizes are the same, but other cells are in its masks"
        else:
            return
        raise StoreError(
            f"the annotations in it belong to another movie, {self.name}, not to {other.name}: {difference}; open that "
            "movie, or choose another file for this one"
        )

    def _size(self) -> str:
        return (
            " × ".join(map(str, self.shape))
            if self.shape
            else f"a table of detections in {self.ndim}D"
        )


def _frame_content(movie: Movie | Source, t: int) -> bytes:
    """A digest of one frame: of its mask, or of the labels and positions in a table."""
    if not isinstance(movie, Movie):
        cells = movie.detections(t)
        return hash_frame(cells.label.astype("<i8")) + hash_frame(
            cells.position.astype("<f4")
        )
    mask = movie.label(t)
    return hash_frame(
        mask.astype("<u4" if mask.max(initial=0) < 2**32 else "<u8")
    )  # the same in any storage
