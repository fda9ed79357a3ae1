"""Frames: images of one shape, from files or arrays, read when they are asked for; and views of some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.utils.validation import check_array


class Frames(Protocol):
    """Images of one shape and dtype that are read when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of one frame."""

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """The size of a pixel along (z,) y, x as the files have it; None where they do not say."""

    @property
    def first(self) -> int:
        """The number that the first frame has in its file's name; 0 where frames have no names."""

    def __len__(self) -> int: ...

    def __getitem__(self, t: int, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class ArrayFrames:
    """Frames that someone else holds: an array (t, …), a list of images, a Zarr or Dask array."""

    data: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None = None
    first: int = 0

    @classmethod
    def from_data(cls, data: Any, what: str) -> Self:
        """Check that the frames are alike; `what` names them in messages."""
        indexed = (
            hasattr(data, "__getitem__")
            and hasattr(data, "__len__")
            and not isinstance(data, str | bytes | dict)
        )
        if (
            not indexed
            or isinstance(data, type)
            or sp.issparse(data)
            or getattr(data, "ndim", 1) == 0
        ):
            raise InputError(
                f"{what} is a {type(data).__name__}; expected an array (t, …) or a list of images"
            )
        if not len(data):
            raise InputError(f"{what} has no frames; a movie has at least one")
        if hasattr(data, "shape") and hasattr(data, "dtype"):
            return cls(data, tuple(data.shape[1:]), np.dtype(data.dtype))
        kinds = [
            (frame.shape, frame.dtype)
            for frame in (check_array(one, f"a frame of {what}") for one in data)
        ]
        for t, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise InputError(
                    f"frame {t} of {what} has shape and dtype {kind}, frame 0 has {kinds[0]}; all are alike"
                )
        return cls(data, *kinds[0])

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, t: int) -> NDArray[Any]:
        return np.asarray(self.data[range(len(self))[t]])


@dataclass(frozen=True)
class FramesView:
    """Base of frames that are made from others and are like them."""

    frames: Frames

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame."""
        return self.frames.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of one frame."""
        return self.frames.dtype

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """The size of a pixel, if the files say it."""
        return self.frames.spacing

    @property
    def first(self) -> int:
        """The number of the first frame, in the names of files."""
        return self.frames.first

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class Excerpt(FramesView):
    """Some of the frames of a movie."""

    which: range

    @property
    def first(self) -> int:
        """The number of the first of them."""
        return self.frames.first + self.which.start

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, t: int) -> NDArray[Any]:
        return self.frames[self.which[t]]


@dataclass(frozen=True)
class FrameWindow(FramesView):
    """Some consecutive frames that keep their numbers in the movie; the others are not there."""

    begin: int
    length: int
    """Frames of the whole movie."""

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        if not self.begin <= t < self.begin + len(self.frames):
            raise IndexError(f"frame {t} is not in this window")
        return self.frames[t - self.begin]


def select_frames(frames: Frames, which: range, what: str) -> Excerpt:
    """Some of the frames, if all of them are there; `what` names them in messages."""
    if not len(which) or which.stop > len(frames):
        last = len(frames) - 1
        raise InputError(
            f"{what} has the frames 0 to {last}; {which.start} to {which.stop - 1} were asked for"
        )
    return Excerpt(frames, which)


def take_window(frames: Frames, first: int, last: int) -> Frames:
    """Frames `first` to `last` of those that are in memory; what is read from files is small as it is."""
    if not isinstance(frames, ArrayFrames) or not isinstance(
        frames.data, np.ndarray | list | tuple
    ):
        return frames
    part = replace(frames, data=frames.data[first : last + 1])
    return FrameWindow(part, first, len(frames))
