"""Which movie annotations belong to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from clew.errors import StoreError
from clew.tracking.detections import Source
from clew.tracking.measurement.store import hash_frame, hash_parts
from clew.tracking.movie import Movie

N_HASHED_FRAMES = 8
"""Frames whose labels are hashed, from the first to the last."""


@dataclass(frozen=True, slots=True)
class MovieIdentity:
    """What annotations need to recognize a movie.

    They name frames and labels, so masks count and raw images do not.
    """

    name: str
    """For people only: a movie that was renamed is still the same."""
    n_frames: int
    ndim: int
    shape: tuple[int, ...]
    """Of one frame, (z,) y, x; empty for a table of detections."""
    fingerprint: str
    """A digest of the labels in a few frames, for any integer type."""

    @classmethod
    def of(cls, movie: Movie | Source) -> Self:
        """Return the identity of a movie; this reads a few of its frames."""
        whole = movie if isinstance(movie, Movie) else movie.movie or movie
        shape: tuple[int, ...] = ()
        if isinstance(whole, Movie):
            shape = tuple(map(int, whole.shape))
        places = np.linspace(0, whole.n_frames - 1, N_HASHED_FRAMES).round()
        frames = np.unique(places.astype(int)).tolist()
        fingerprint = hash_parts(_hash_frame_content(whole, t) for t in frames)
        return cls(whole.name, whole.n_frames, whole.ndim, shape, fingerprint)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Return the identity of `to_json`."""
        return cls(**{**content, "shape": tuple(content["shape"])})

    def to_json(self) -> dict[str, Any]:
        """Return the content of a file."""
        return asdict(self) | {"shape": list(self.shape)}

    def check_same(self, other: MovieIdentity, has_known_cells: bool = False) -> None:
        """Raise StoreError that names the difference, unless it is the same movie.

        Parameters
        ----------
        other : MovieIdentity
            Of the movie that is open.
        has_known_cells : bool
            Whether some annotated cells look as before; then masks may differ.
        """
        if self.n_frames != other.n_frames:
            difference = f"it has {self.n_frames} frames, this one {other.n_frames}"
        elif (self.ndim, self.shape) != (other.ndim, other.shape):
            difference = (
                f"its frames are {self._describe_size()}, those of this one "
                f"{other._describe_size()}"
            )
        elif self.fingerprint != other.fingerprint and not has_known_cells:
            difference = "the sizes are the same, but other cells are in its masks"
        else:
            return
        raise StoreError(
            f"its annotations belong to another movie, {self.name}, not to "
            f"{other.name}: {difference}; open that movie, or choose another file for "
            "this one"
        )

    def _describe_size(self) -> str:
        if not self.shape:
            return f"a table of detections in {self.ndim}D"
        return " × ".join(map(str, self.shape))


def _hash_frame_content(movie: Movie | Source, t: int) -> bytes:
    """Return a digest of a mask, or of the labels and positions in a table."""
    if not isinstance(movie, Movie):
        cells = movie.detections(t)
        labels = hash_frame(cells.label.astype("<i8"))
        return labels + hash_frame(cells.position.astype("<f4"))
    mask = movie.label(t)
    # The same digest for any integer type.
    is_small = mask.max(initial=0) < 2**32
    return hash_frame(mask.astype("<u4" if is_small else "<u8"))
