"""How the pages of a TIFF make up frames: which axis is time, depth or channel, by what the file says of itself.

Nothing is guessed: where a file has several channels, which one is meant must be said.
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
    """The axes of a file, those over its pages first, and what is taken of them."""

    axes: str
    shape: tuple[int, ...]
    page_ndim: int
    """How many of the axes lie within a page."""
    time: int | None
    """The axis of time, if the file has one."""
    channel: int | None
    """The channel that is taken, if the file has several."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Of one frame, one channel of it: (y, x) or (z, y, x)."""
        return tuple(
            n
            for at, n in enumerate(self.shape)
            if at != self.time and at != self.channel_axis
        )

    @property
    def n_frames(self) -> int:
        """How many frames the file has."""
        return 1 if self.time is None else self.shape[self.time]

    @property
    def channel_axis(self) -> int | None:
        """Where several channels lie, if there are any."""
        return next((at for at, axis in enumerate(self.axes) if axis in CHANNELS), None)

    @property
    def page_shape(self) -> tuple[int, ...]:
        """Of one page."""
        return self.shape[len(self.shape) - self.page_ndim :]

    def pages(self, t: int) -> Indices:
        """The pages of a frame, in order."""
        lead = len(self.shape) - self.page_ndim
        chosen: list[int | slice] = [slice(None)] * lead
        for at, index in ((self.time, t), (self.channel_axis, self.channel)):
            if at is not None and at < lead and index is not None:
                chosen[at] = index
        whole = np.arange(math.prod(self.shape[:lead])).reshape(self.shape[:lead])
        return np.atleast_1d(whole[tuple(chosen)]).ravel()

    def frame(self, pages: NDArray[Any]) -> NDArray[Any]:
        """A frame from its pages, (number of pages, …)."""
        at = self.channel_axis
        lead = len(self.shape) - self.page_ndim
        if at is not None and at >= lead:  # the channel lies within each page
            pages = np.take(pages, self.channel or 0, axis=at - lead + 1)
        return pages.reshape(self.frame_shape)


def parse_layout(tiff: Any, path: Path, channel: int | None, *, stack: bool) -> Layout:
    """The layout of an open file: of a whole movie (`stack`), or of one of many frames."""
    series = tiff.series[0]
    shape, axes = tuple(int(length) for length in series.shape), str(series.axes)
    page_ndim = len(series.keyframe.shape)
    if not stack:
        axes, shape = _with_ome_channels(tiff, path, axes, shape)
    # what has one channel has none
    for at in [
        at for at, axis in enumerate(axes) if axis in CHANNELS and shape[at] == 1
    ][::-1]:
        page_ndim -= at >= len(axes) - page_ndim
        axes, shape = axes[:at] + axes[at + 1 :], shape[:at] + shape[at + 1 :]
    if axes.replace("S", "")[-2:] != "YX" or sum(axis in CHANNELS for axis in axes) > 1:
        _refuse(
            path, axes, shape, "expected (y, x) last, and one axis of channels at most"
        )
    channel = _check_channel(path, axes, shape, channel, stack)
    others = [at for at, axis in enumerate(axes) if axis not in "YXCS"]
    time = None
    if (
        stack and others
    ):  # the first axis is time, whatever the file calls it, unless it names another so
        time = next((at for at in others if axes[at] == "T"), others[0])
    depth = [at for at in others if at != time]
    if len(depth) > 1 or any(axes[at] == "T" for at in depth):
        _refuse(
            path,
            axes,
            shape,
            f"expected {'(t, y, x) or (t, z, y, x)' if stack else '(y, x) or (z, y, x) a file'}",
        )
    return Layout(axes, shape, page_ndim, time, channel)


def _check_channel(
    path: Path, axes: str, shape: tuple[int, ...], channel: int | None, stack: bool
) -> int | None:
    """The channel that is meant; None where there is only one."""
    count = next(
        (n for axis, n in zip(axes, shape, strict=True) if axis in CHANNELS), 1
    )
    if count == 1:
        if channel not in (None, 0):
            raise InputError(
                f"{path} has one channel; expected channel 0 or none, not {channel}"
            )
        return None
    if channel is None:
        other = "time" if stack else "depth"
        _refuse(
            path,
            axes,
            shape,
            f"expected one channel. Choose one of raw images by --channel N, 0 to {count - 1} (channel=N in Python); "
            f"label images have one only, and if the axis is {other}, save the file with axes that say so",
        )
    if not 0 <= channel < count:
        raise InputError(
            f"{path} has {count} channels; expected one of 0 to {count - 1}, not {channel}"
        )
    return channel


def _with_ome_channels(
    tiff: Any, path: Path, axes: str, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Axes of one file of many, with the channels that its OME metadata name; these may be about all files at once."""
    description = tiff.pages[0].description or ""
    order = OME_ORDER.search(description)
    if order is None or len(axes) != 3 or axes[0] not in "IQ":
        return axes, shape
    tag = description[order.start() : description.find(">", order.start())]
    sizes = {
        axis: int(size)
        for axis, size in re.findall(r'\bSize([CZT])="([0-9]{1,9})"', tag)
    }
    if sizes.get("C", 1) == 1 or sizes["C"] == int(tiff.pages[0].samplesperpixel):
        return axes, shape
    for within in ("CZT", "CZ", "C", "Z"):
        named = [
            axis for axis in order[1][::-1] if axis in within and sizes.get(axis, 1) > 1
        ]
        lengths = tuple(sizes[axis] for axis in named)
        if math.prod(lengths) == shape[0]:
            if within == "Z" and sizes["C"] == sizes["Z"]:
                break
            return "".join(named) + axes[1:], lengths + shape[1:]
    return _refuse(
        path,
        axes,
        shape,
        f"its OME metadata name {sizes['C']} channels, but not which pages are whose",
    )


def _refuse(path: Path, axes: str, shape: tuple[int, ...], expected: str) -> NoReturn:
    raise InputError(f"{path} has the axes {axes} with the shape {shape}; {expected}")
