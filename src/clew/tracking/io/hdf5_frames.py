"""Images in HDF5: label images and raw images of ilastik, and segmentations of btrack.

ilastik names the axes of an exported image in its attribute ``axistags``; without it,
they are t, (z,) y, x. The images of objects in a project (.ilp) are in blocks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.detections import MAX_FRAMES
from clew.tracking.frames import choose_channel
from clew.tracking.io.hdf5 import check_size, open_hdf5
from clew.tracking.io.ilastik import find_blocks, parse_block_start
from clew.tracking.io.tiff import MAX_FRAME_BYTES

AXES_BY_NUMBER = {3: "tyx", 4: "tzyx"}
"""Axes of an image that does not name them."""
AXES = "tzyxc"


@dataclass(frozen=True)
class Hdf5Frames:
    """Frames of an image in an HDF5 file.

    Attributes
    ----------
    path : Path
    blocks : tuple of (str, tuple of int)
        Names of the arrays that have the image, and where each begins in it.
    axes : str
        Axes of the arrays, of t, z, y, x and c.
    size : tuple of int
        Size along t, z, y, x.
    dtype : dtype
    channel : int
    """

    path: Path
    blocks: tuple[tuple[str, tuple[int, ...]], ...]
    axes: str
    size: tuple[int, ...]
    dtype: np.dtype[Any]
    channel: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame; without z if it has one slice."""
        return self.size[1:] if self.size[1] > 1 else self.size[2:]

    @property
    def spacing(self) -> None:
        """Size of a pixel, which the files do not have."""
        return

    @property
    def first(self) -> int:
        """Number of the first frame."""
        return 0

    def __len__(self) -> int:
        return self.size[0]

    def __getitem__(self, t: int) -> NDArray[Any]:
        frame = np.zeros(self.size[1:], self.dtype)
        with open_hdf5(self.path, is_checked=True) as file:
            for name, start in self.blocks:
                begin = dict(zip(self.axes, start, strict=True))
                pixels = self._read_block(file[name], t - begin["t"])
                corner = [begin.get(axis, 0) for axis in "zyx"]
                ends = np.add(corner, pixels.shape)
                frame[tuple(map(slice, corner, ends))] = pixels
        return frame.reshape(self.shape)

    def _read_block(self, block: Any, t: int) -> NDArray[Any]:
        """Pixels (z, y, x) of a frame of a block; no slices if it has no such frame."""
        length = block.shape[self.axes.index("t")]
        rows = slice(t, t + 1) if 0 <= t < length else slice(0, 0)
        index = {"t": rows, "c": slice(self.channel, self.channel + 1)}
        where = f"{self.path}: {block.name}"
        check_size(where, block, block.size // max(length, 1))
        pixels = np.asarray(
            block[tuple(index.get(axis, slice(None)) for axis in self.axes)]
        )
        # t, z, y, x and c, of which those that are not there have length 1
        present = [axis for axis in AXES if axis in self.axes]
        pixels = pixels.transpose([self.axes.index(axis) for axis in present])
        missing = [k for k, axis in enumerate(AXES) if axis not in self.axes]
        pixels = np.expand_dims(pixels, missing)
        return pixels[0, ..., 0] if len(pixels) else np.zeros((0, 0, 0), self.dtype)


def open_hdf5_frames(path: Path, channel: int | None = None) -> Hdf5Frames:
    """Open the image in an HDF5 file.

    Parameters
    ----------
    path : Path
        With one image, or a project of ilastik.
    channel : int, optional
        Required if there are several.
    """
    with open_hdf5(path) as file:
        blocks = find_blocks(file)
        if blocks is not None:
            stored = [blocks[name] for name in blocks]
            starts = [parse_block_start(path, block) for block in stored]
            axes = "txyzc"
        else:
            stored = [_find_image(path, file)]
            axes = _read_axes(path, stored[0])
            starts = [(0,) * len(axes)]
        ends = [np.add(a, b.shape) for a, b in zip(starts, stored, strict=True)]
        length = dict(zip(axes, np.max(ends, axis=0).tolist(), strict=True))
        frames = Hdf5Frames(
            path,
            tuple(
                (block.name, start) for block, start in zip(stored, starts, strict=True)
            ),
            axes,
            tuple(length.get(axis, 1) for axis in "tzyx"),
            stored[0].dtype,
            choose_channel(path, length.get("c", 1), channel, axes),
        )
    n_bytes = int(np.prod(frames.shape)) * frames.dtype.itemsize
    if n_bytes > MAX_FRAME_BYTES or len(frames) > MAX_FRAMES or not n_bytes:
        raise InputError(
            f"{path} has {len(frames):,} frames of {frames.shape}; expected at most "
            f"{MAX_FRAMES:,} frames of {MAX_FRAME_BYTES:,} bytes"
        )
    return frames


def _find_image(path: Path, file: Any) -> Any:
    """Find the only image of numbers in a file."""
    images: list[Any] = []

    def collect(_: str, entry: Any) -> None:
        if getattr(entry, "ndim", 0) >= 3 and entry.dtype.kind in "biuf":
            images.append(entry)

    file.visititems(collect)
    if len(images) != 1:
        names = ", ".join(image.name for image in images) or "none"
        raise InputError(
            f"{path} has the images {names}; expected one, as ilastik exports it"
        )
    return images[0]


def _read_axes(path: Path, image: Any) -> str:
    """Axes of an image, as its tags or its number of axes say."""
    tags = image.attrs.get("axistags")
    axes = AXES_BY_NUMBER.get(image.ndim, "")
    if tags is not None:
        text = tags.decode() if isinstance(tags, bytes) else str(tags)
        axes = "".join(str(axis["key"]) for axis in json.loads(text)["axes"])
    is_known = len(axes) == image.ndim == len({*axes}) and {*axes} <= {*AXES}
    if not is_known or not {*"tyx"} <= {*axes}:
        raise InputError(
            f"{path}: {image.name} has {image.ndim} axes ({axes or 'not named'}); "
            "expected t, (z,) y, x, or the attribute axistags of ilastik with these "
            "and c"
        )
    return axes
