"""Movies in Zarr: a plain array, or the first resolution of an OME-Zarr group. Read one frame at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.io.tiff import MAX_FRAME_BYTES
from clew.tracking.io.zarr_chunks import find_missing_chunk

MARKS = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr store."""
OLD_AXES = ("t", "c", "z", "y", "x")
"""Of OME-Zarr before 0.3, which did not name them."""


@dataclass(frozen=True)
class ZarrFrames:
    """An array whose first axis is time, opened anew for each frame."""

    path: Path
    component: str
    """Of the array within the store."""
    axes: tuple[str, ...]
    """Those that are left out are "-", for the first along them, or a number."""
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None
    first: ClassVar[int] = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        which = range(len(self))[t]
        index = tuple(
            which
            if axis == "t"
            else 0
            if axis == "-"
            else int(axis)
            if axis.isdecimal()
            else slice(None)
            for axis in self.axes
        )
        try:
            frame = np.asarray(_array(self.path, self.component)[index])
        except PermissionError as error:
            raise InputError(
                f"{error.filename or self.path} cannot be read ({error.strerror})"
            ) from error
        except Exception as error:  # a damaged chunk makes codecs raise nearly anything
            raise InputError(
                f"{self.path}: frame {t} cannot be read ({type(error).__name__}: {error})"
            ) from error
        if frame.shape != self.shape:
            raise InputError(
                f"{self.path} has changed since the movie was opened: frames of {frame.shape} now"
            )
        return frame


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / mark).exists() for mark in MARKS)


def open_zarr(
    path: Path, channel: int | None = None, *, sparse: bool = False
) -> ZarrFrames:
    """The frames of an array (t, y, x) or (t, z, y, x), or of an OME-Zarr group, of which one channel is taken.

    A chunk that is not stored would read as zeros, so that it is refused unless `sparse` says that empty ones were left
    out when the array was written.
    """
    for mark in MARKS:
        if (path / mark).exists() and not (path / mark).is_file():
            raise InputError(
                f"{path / mark} is no regular file; expected the metadata of a Zarr store"
            )
    import zarr  # only where there is one: it takes a second to load

    try:
        node = zarr.open(path, mode="r")
    except PermissionError as error:
        raise InputError(
            f"{error.filename or path} cannot be read ({error.strerror})"
        ) from error
    except Exception as error:
        raise InputError(
            f"{path} cannot be opened as Zarr ({type(error).__name__}: {error})"
        ) from error
    if isinstance(node, zarr.Array):
        names = ("t", "z", "y", "x") if node.ndim == 4 else ("t", "y", "x")
        return _frames(path, "", node, names, None, channel, sparse)
    component, axes, scale = _first_resolution(path, node)
    array = node.get(component)
    if not isinstance(array, zarr.Array):
        raise InputError(
            f"{path}: its metadata names the array {component!r}, which it does not have"
        )
    return _frames(path, component, array, axes, scale, channel, sparse)


def _array(path: Path, component: str) -> Any:
    import zarr

    return zarr.open_array(path, path=component or None, mode="r")


def _first_resolution(
    path: Path, group: Any
) -> tuple[str, tuple[str, ...], list[float] | None]:
    """Name, axes and scale of an OME-Zarr's largest image."""
    attributes = dict(group.attrs)
    try:
        image = attributes.get("ome", attributes)["multiscales"][0]
        dataset = image["datasets"][0]
        axes = tuple(
            axis if isinstance(axis, str) else axis["name"]
            for axis in image.get("axes", OLD_AXES)
        )
        transforms = [
            *dataset.get("coordinateTransformations", ()),
            *image.get("coordinateTransformations", ()),
        ]
        scales = [
            transform["scale"]
            for transform in transforms
            if transform.get("type") == "scale"
        ]
        scale = [
            math.prod(float(factor) for factor in factors)
            for factors in zip(*scales, strict=True)
        ]
        component = str(dataset["path"])
        if (
            not component
            or component.startswith(("/", "\\"))
            or ".." in component.replace("\\", "/").split("/")
        ):
            raise InputError(
                f"{path}: its metadata name the array {component!r}, which is not within it"
            )
        return component, axes, scale or None
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        inside = ", ".join(sorted(group.keys())) or "nothing"
        raise InputError(
            f"{path} is a Zarr group without legible OME-Zarr metadata (multiscales); it holds {inside}: give the path "
            "of an array or of an OME-Zarr image"
        ) from error


def _frames(
    path: Path,
    component: str,
    array: Any,
    axes: tuple[str, ...],
    scale: list[float] | None,
    channel: int | None,
    sparse: bool,
) -> ZarrFrames:
    """Check the axes and sizes, and leave out channel and depth where they are of length one."""
    given = ", ".join(
        f"{name}: {n}" for name, n in zip(axes, array.shape, strict=False)
    )
    known = set(axes) <= set(OLD_AXES) and len(set(axes)) == len(axes)
    if (
        len(axes) != array.ndim
        or not known
        or axes[0] != "t"
        or axes[-2:] != ("y", "x")
    ):
        raise InputError(
            f"{path} has the axes {given} in {array.ndim} dimensions; expected (t, y, x) or (t, z, y, x), each once"
        )
    sizes = dict(zip(axes, array.shape, strict=True))
    if min(array.shape) < 1:
        raise InputError(f"{path} has no frames: its shape is {array.shape}")
    chosen = _channel(path, given, sizes.get("c", 1), channel)
    dropped = {
        axis
        for axis in ("c", "z")
        if axis in sizes and sizes[axis] == 1 and (axis == "c" or component)
    }
    kept = [axis for axis in axes if axis not in dropped and axis not in "tc"]
    for what, shape in (
        ("a frame", [sizes[axis] for axis in kept]),
        ("a chunk", array.chunks),
    ):
        if (size := math.prod(shape) * array.dtype.itemsize) > MAX_FRAME_BYTES:
            raise InputError(
                f"{path} declares {what} of {size:,} bytes; clew reads up to {MAX_FRAME_BYTES:,}"
            )
    if (
        not sparse
        and (place := find_missing_chunk(array, path / component)) is not None
    ):
        frame = place[axes.index("t")] * (array.shards or array.chunks)[axes.index("t")]
        raise InputError(
            f"{path}: the chunk {array.metadata.encode_chunk_key(place)}, of frame {frame}, is missing. If empty "
            "chunks were left out when it was written, as Zarr 3 does, say so by --sparse (sparse=True in Python)"
        )
    spacing = None
    if scale is not None and len(scale) == len(axes):
        spacing = tuple(scale[axes.index(axis)] for axis in kept)
    marked = tuple(
        str(chosen) if axis == "c" else "-" if axis in dropped else axis
        for axis in axes
    )
    shape = tuple(sizes[axis] for axis in kept)
    return ZarrFrames(
        path, component, marked, sizes["t"], shape, np.dtype(array.dtype), spacing
    )


def _channel(path: Path, given: str, count: int, channel: int | None) -> int:
    """The channel that is meant."""
    if channel is None and count > 1:
        raise InputError(
            f"{path} has {count} channels (axes {given}); choose one of raw images by --channel N, 0 to {count - 1} "
            "(channel=N in Python); label images have one only"
        )
    if channel is not None and not 0 <= channel < count:
        raise InputError(
            f"{path} has the channels 0 to {count - 1}; expected one of these, not {channel}"
        )
    return channel or 0
