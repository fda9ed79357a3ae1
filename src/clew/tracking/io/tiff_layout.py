"""Which pages of a TIFF make up a frame: its axes of time, depth and channels.

Nothing is guessed: of a file with several channels, one must be chosen.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices

CHANNELS = "CS"
"""Axes of channels: over pages, and of samples within a pixel."""
OME_ORDER = re.compile(r'<(?:\w+:)?Pixels\b[^>]*\bDimensionOrder="XY([CZT]{3})"')


@dataclass(frozen=True)
class Layout:
    """Axes of a file, those over its pages first, and what is read of them.

    Attributes
    ----------
    axes : str
        A letter for each axis.
    shape : tuple of int
    page_ndim : int
        Number of axes within a page.
    time : int or None
        The axis of time, if there is one.
    channel : int or None
        The channel that is read, if there are several.
    """

    axes: str
    shape: tuple[int, ...]
    page_ndim: int
    time: int | None
    channel: int | None

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a frame, (y, x) or (z, y, x)."""
        dropped = (self.time, self.channel_axis)
        return tuple(n for axis, n in enumerate(self.shape) if axis not in dropped)

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return 1 if self.time is None else self.shape[self.time]

    @property
    def channel_axis(self) -> int | None:
        """The axis of channels, if there is one."""
        axes = [at for at, axis in enumerate(self.axes) if axis in CHANNELS]
        return axes[0] if axes else None

    @property
    def n_page_axes(self) -> int:
        """Number of axes over pages."""
        return len(self.shape) - self.page_ndim

    @property
    def page_shape(self) -> tuple[int, ...]:
        """Shape of a page."""
        return self.shape[self.n_page_axes :]

    def list_pages(self, t: int) -> Indices:
        """Numbers of the pages of frame `t`, in order."""
        index: list[int | slice] = [slice(None)] * self.n_page_axes
        if self.time is not None and self.time < self.n_page_axes:
            index[self.time] = t
        channel_axis = self.channel_axis
        if channel_axis is not None and channel_axis < self.n_page_axes:
            index[channel_axis] = self.channel or 0
        shape = self.shape[: self.n_page_axes]
        numbers = np.arange(math.prod(shape)).reshape(shape)
        return np.atleast_1d(numbers[tuple(index)]).ravel()

    def assemble_frame(self, pages: NDArray[Any]) -> NDArray[Any]:
        """Make a frame of its pages, (number of pages, …)."""
        axis = self.channel_axis
        if axis is not None and axis >= self.n_page_axes:  # within each page
            axis_of_pages = axis - self.n_page_axes + 1
            pages = np.take(pages, self.channel or 0, axis=axis_of_pages)
        return pages.reshape(self.frame_shape)


def parse_layout(tiff: Any, path: Path, channel: int | None, *, stack: bool) -> Layout:
    """Parse the axes of an open file.

    Parameters
    ----------
    tiff : tifffile.TiffFile
    path : Path
        For messages.
    channel : int or None
        Channel to read.
    stack : bool
        Whether the file holds a whole movie, or one frame of many.
    """
    series = tiff.series[0]
    shape = tuple(int(length) for length in series.shape)
    axes = str(series.axes)
    page_ndim = len(series.keyframe.shape)
    if not stack:
        axes, shape = _insert_ome_channels(tiff, path, axes, shape)
    for at in reversed(range(len(axes))):
        if axes[at] in CHANNELS and shape[at] == 1:
            page_ndim -= at >= len(axes) - page_ndim
            axes = axes[:at] + axes[at + 1 :]
            shape = shape[:at] + shape[at + 1 :]
    n_channel_axes = sum(axis in CHANNELS for axis in axes)
    if axes.replace("S", "")[-2:] != "YX" or n_channel_axes > 1:
        expected = "expected (y, x) last, and one axis of channels at most"
        _raise_axes(path, axes, shape, expected)
    channel = _check_channel(path, axes, shape, channel, stack)
    others = [at for at, axis in enumerate(axes) if axis not in "YXCS"]
    time = None
    if stack and others:  # the first axis is time unless another is named so
        named = [at for at in others if axes[at] == "T"]
        time = named[0] if named else others[0]
    depth = [at for at in others if at != time]
    if len(depth) > 1 or any(axes[at] == "T" for at in depth):
        expected = (
            "(t, y, x) or (t, z, y, x)" if stack else "(y, x) or (z, y, x) a file"
        )
        _raise_axes(path, axes, shape, f"expected {expected}")
    return Layout(axes, shape, page_ndim, time, channel)


def _check_channel(
    path: Path, axes: str, shape: tuple[int, ...], channel: int | None, stack: bool
) -> int | None:
    """Check the channel to read; None if there is only one."""
    counts = [n for axis, n in zip(axes, shape, strict=True) if axis in CHANNELS]
    count = counts[0] if counts else 1
    if count == 1:
        if channel not in (None, 0):
            raise InputError(f"{path} has one channel; there is no channel {channel}")
        return None
    if channel is None:
        other = "time" if stack else "depth"
        _raise_axes(
            path,
            axes,
            shape,
            "expected one channel. Choose one of raw images by --channel N, 0 to "
            f"{count - 1} (channel=N in Python); label images have one only, and if "
            f"the axis is {other}, save the file with axes that say so",
        )
    if not 0 <= channel < count:
        raise InputError(
            f"{path} has the channels 0 to {count - 1}; there is no channel {channel}"
        )
    return channel


def _insert_ome_channels(
    tiff: Any, path: Path, axes: str, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Add the channels that the OME metadata of one file of many declare.

    The metadata may describe all files at once.
    """
    page = tiff.pages[0]
    description = page.description or ""
    order = OME_ORDER.search(description)
    if order is None or len(axes) != 3 or axes[0] not in "IQ":
        return axes, shape
    tag = description[order.start() : description.find(">", order.start())]
    pairs = re.findall(r'\bSize([CZT])="([0-9]{1,9})"', tag)
    sizes = {axis: int(size) for axis, size in pairs}
    n_channels = sizes.get("C", 1)
    if n_channels in (1, int(page.samplesperpixel)):
        return axes, shape
    page_order = order[1][::-1]
    for subset in ("CZT", "CZ", "C", "Z"):
        names = [axis for axis in page_order if axis in subset]
        names = [axis for axis in names if sizes.get(axis, 1) > 1]
        lengths = tuple(sizes[axis] for axis in names)
        if math.prod(lengths) != shape[0]:
            continue
        if subset == "Z" and n_channels == sizes["Z"]:
            break  # the pages could be channels as well
        return "".join(names) + axes[1:], lengths + shape[1:]
    expected = (
        f"its OME metadata name {n_channels} channels, but not which pages are whose"
    )
    return _raise_axes(path, axes, shape, expected)


def _raise_axes(
    path: Path, axes: str, shape: tuple[int, ...], expected: str
) -> NoReturn:
    raise InputError(f"{path} has the axes {axes} with the shape {shape}; {expected}")
