"""Frames: images of one shape, from files or arrays, that are read on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.utils.validation import check_array


class Frames(Protocol):
    """Images of one shape and dtype that are read on demand."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a frame."""

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Size of a pixel along (z,) y, x, if the files have it."""

    @property
    def first(self) -> int:
        """Number in the name of the first file; 0 if frames have no names."""

    def __len__(self) -> int: ...

    def __getitem__(self, t: int, /) -> NDArray[Any]: ...


@runtime_checkable
class StampedFrames(Protocol):
    """Frames that tell, without being read, whether they changed."""

    def stamp(self, t: int, /) -> str:
        """Return what changes whenever a frame does; "" if it changed just now."""


def stamp_frame(frames: Frames, t: int) -> str:
    """Return the stamp of a frame; "" if there is none, so that it must be read."""
    if isinstance(frames, Excerpt):
        return stamp_frame(frames.frames, frames.which[t])
    return frames.stamp(t) if isinstance(frames, StampedFrames) else ""


@dataclass(frozen=True)
class ArrayFrames:
    """Frames in an array (t, …), a list of images, or a Zarr or Dask array."""

    data: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None = None
    first: int = 0

    @classmethod
    def from_data(cls, data: Any, name: str) -> Self:
        """Check that all frames have one shape and dtype.

        Parameters
        ----------
        data : array-like of shape (t, …)
        name : str
            Name of the argument, for messages.
        """
        if not _is_sequence(data):
            raise InputError(
                f"{name} is a {type(data).__name__}; expected an array (t, …) or a "
                "list of images"
            )
        if not len(data):
            raise InputError(f"{name} has no frames; a movie has at least one")
        if hasattr(data, "shape") and hasattr(data, "dtype"):
            return cls(data, tuple(data.shape[1:]), np.dtype(data.dtype))
        frames = (check_array(frame, f"a frame of {name}") for frame in data)
        kinds = [(frame.shape, frame.dtype) for frame in frames]
        for t, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise InputError(
                    f"frame {t} of {name} has shape and dtype {kind}, expected "
                    f"{kinds[0]} as of frame 0"
                )
        return cls(data, *kinds[0])

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, t: int) -> NDArray[Any]:
        return np.asarray(self.data[range(len(self))[t]])


def _is_sequence(data: Any) -> bool:
    """Whether data can be indexed by frame."""
    if isinstance(data, str | bytes | dict | type) or sp.issparse(data):
        return False
    if getattr(data, "ndim", 1) == 0:
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


@dataclass(frozen=True)
class FramesView:
    """Base of frames that are made from others."""

    frames: Frames

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame."""
        return self.frames.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a frame."""
        return self.frames.dtype

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Size of a pixel, if the files have it."""
        return self.frames.spacing

    @property
    def first(self) -> int:
        """Number in the name of the first file."""
        return self.frames.first

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class Excerpt(FramesView):
    """Some frames of a movie, counted from 0."""

    which: range

    @property
    def first(self) -> int:
        """Number in the name of the first file."""
        return self.frames.first + self.which.start

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, t: int) -> NDArray[Any]:
        return self.frames[self.which[t]]


@dataclass(frozen=True)
class FrameWindow(FramesView):
    """Consecutive frames that keep their numbers; `length` is that of the movie."""

    begin: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        if not self.begin <= t < self.begin + len(self.frames):
            raise IndexError(f"frame {t} is not in this window")
        return self.frames[t - self.begin]


class Patch(NamedTuple):
    """The mask of a cell, in a box of a frame."""

    label: int
    corner: tuple[int, ...]
    """First pixel of the box."""
    mask: NDArray[np.bool_]

    @property
    def box(self) -> tuple[slice, ...]:
        """Where the mask is in the frame."""
        return tuple(map(slice, self.corner, np.add(self.corner, self.mask.shape)))

    def paint(self, frame: NDArray[Any]) -> None:
        """Write the label into a frame."""
        frame[self.box][self.mask] = self.label

    def claim(self, free: NDArray[np.bool_]) -> None:
        """Take its pixels from those that are free."""
        free[self.box] &= ~self.mask


@dataclass(frozen=True)
class PaintedFrames(FramesView):
    """Label images with some more cells."""

    patches: Mapping[int, Sequence[Patch]]
    """By frame."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a frame, which holds the labels of all cells."""
        labels = [patch.label for cells in self.patches.values() for patch in cells]
        needed = np.min_scalar_type(max(labels, default=0))
        return np.promote_types(self.frames.dtype, needed)

    def __getitem__(self, t: int) -> NDArray[Any]:
        frame = self.frames[t].astype(self.dtype)
        for patch in self.patches.get(range(len(self))[t], ()):
            patch.paint(frame)
        return frame


def select_frames(frames: Frames, which: range, name: str) -> Excerpt:
    """Select frames that must all exist; `name` is for messages."""
    if not len(which) or which.stop > len(frames):
        raise InputError(
            f"{name} has the frames 0 to {len(frames) - 1}; there are no frames "
            f"{which.start} to {which.stop - 1}"
        )
    return Excerpt(frames, which)


def take_window(frames: Frames, first: int, last: int) -> Frames:
    """Drop all but frames `first` to `last` from memory, to send them elsewhere.

    Frames that are read from files are returned unchanged.
    """
    if isinstance(frames, PaintedFrames):
        patches = {
            t: cells for t, cells in frames.patches.items() if first <= t <= last
        }
        return PaintedFrames(take_window(frames.frames, first, last), patches)
    if not isinstance(frames, ArrayFrames):
        return frames
    if not isinstance(frames.data, np.ndarray | list | tuple):
        return frames
    part = replace(frames, data=frames.data[first : last + 1])
    return FrameWindow(part, first, len(frames))


def choose_channel(
    path: Path, n: int, channel: int | None, axes: str, hint: str = ""
) -> int:
    """Check the channel of a file to read.

    Parameters
    ----------
    path : Path
    n : int
        Number of channels.
    channel : int or None
        None if the user did not name one, which is right if there is only one.
    axes, hint : str
        Axes of the file, and what else may be wrong, for messages.
    """
    if channel is None and n > 1:
        raise InputError(
            f"{path} has the axes {axes} and {n} channels; expected one channel. "
            f"Choose one of raw images by --channel N, 0 to {n - 1} (channel=N in "
            f"Python); label images have one only{hint}"
        )
    if channel is not None and not 0 <= channel < n:
        there_is = "one channel" if n == 1 else f"the channels 0 to {n - 1}"
        raise InputError(f"{path} has {there_is}; there is no channel {channel}")
    return channel or 0
