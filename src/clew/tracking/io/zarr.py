"""Movies in Zarr: a plain array, or the first resolution of an OME-Zarr group.

Frames are read one at a time. Codecs are checked against an allow-list before
anything is decoded, since some codecs of numcodecs run code (pickle). A chunk that
is not stored reads as zeros, whether it was left out on purpose or lost; see
`find_missing_chunk`.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, StoreError
from clew.tracking.frames import choose_channel
from clew.tracking.io.formats import STORE_FILES
from clew.tracking.io.tiff import MAX_FRAME_BYTES
from clew.tracking.io.zarr_chunks import check_chunk_sizes
from clew.utils.storage import read_bytes

METADATA_FILES = (*STORE_FILES, ".zattrs", ".zmetadata")
"""Files of a store that hold no pixels."""
OME_AXES = ("t", "c", "z", "y", "x")
"""Axes of an OME-Zarr before 0.3, which did not name them."""
MAX_EXTRA_BYTES = 2**29
"""Bytes of a chunk beyond those of a frame; it takes twice as much when it is read."""
FIRST = "-"
"""Stands for an axis of length one that is left out."""
SAFE_CODECS = frozenset(
    [
        "adler32",
        "astype",
        "bitround",
        "blosc",
        "bytes",
        "bz2",
        "crc32",
        "crc32c",
        "delta",
        "fixedscaleoffset",
        "fletcher32",
        "gzip",
        "jenkins_lookup3",
        "lz4",
        "lzma",
        "packbits",
        "quantize",
        "sharding_indexed",
        "shuffle",
        "transpose",
        "vlen-bytes",
        "vlen-utf8",
        "zlib",
        "zstd",
    ]
)
"""Codecs that decode data and do nothing else."""


@dataclass(frozen=True)
class ZarrFrames:
    """An array whose first axis is time; it is opened anew for each frame.

    Attributes
    ----------
    path : Path
        The store.
    component : str
        Path of the array within the store.
    axes : tuple of str
        Names of the axes; a number selects a channel, `FIRST` an axis of length one.
    length : int
        Number of frames.
    shape : tuple of int
        Shape of a frame.
    dtype : dtype
    spacing : tuple of float or None
        Size of a pixel, if the metadata have it.
    """

    path: Path
    component: str
    axes: tuple[str, ...]
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None
    first: ClassVar[int] = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        t = range(len(self))[t]
        index = tuple(_index_axis(axis, t) for axis in self.axes)
        try:
            array = _open_array(self.path, self.component)
            check_chunk_sizes(array, self.path / self.component, index)
            frame = np.asarray(array[index])
        except InputError:
            raise
        except PermissionError as error:
            raise InputError(
                f"{error.filename or self.path} cannot be read ({error.strerror})"
            ) from error
        except Exception as error:  # codecs raise nearly anything
            raise InputError(
                f"{self.path}: frame {t} cannot be read "
                f"({type(error).__name__}: {error})"
            ) from error
        if frame.shape != self.shape:
            raise InputError(
                f"{self.path} has changed since the movie was opened: frames have "
                f"shape {frame.shape} now, expected {self.shape}"
            )
        return frame


def _index_axis(axis: str, t: int) -> int | slice:
    """Select along one axis of `ZarrFrames.axes`."""
    if axis == "t":
        return t
    if axis == FIRST:
        return 0
    return int(axis) if axis.isdecimal() else slice(None)


def read_attributes(path: Path) -> dict[str, Any]:
    """Read the attributes of a Zarr store, those of OME among them; JSON only."""
    for name in ("zarr.json", ".zattrs"):
        try:
            content = json.loads(read_bytes(path / name))
            attributes = content["attributes"] if name == "zarr.json" else content
            return {**attributes, **attributes.get("ome", {})}
        except (
            StoreError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):  # JSON of another structure
            continue
    return {}


def open_zarr(
    path: Path, channel: int | None = None, *, sparse: bool = False
) -> ZarrFrames:
    """Open an array (t, y, x) or (t, z, y, x), or an OME-Zarr group.

    Parameters
    ----------
    path : Path
        The store.
    channel : int, optional
        Channel to read, if there are several.
    sparse : bool
        Whether empty chunks were left out when the array was written. If False, a
        missing chunk is an error.
    """
    check_codecs(path)
    import zarr  # takes a second to load

    try:
        node = zarr.open(path, mode="r")
    except PermissionError as error:
        raise InputError(
            f"{error.filename or path} cannot be read ({error.strerror})"
        ) from error
    except Exception as error:  # metadata of all kinds make it raise nearly anything
        raise InputError(
            f"{path} cannot be opened as Zarr ({type(error).__name__}: {error})"
        ) from error
    if isinstance(node, zarr.Array):
        names = ("t", "z", "y", "x") if node.ndim == 4 else ("t", "y", "x")
        return _make_frames(path, "", node, names, None, channel, sparse)
    component, axes, scale = _find_first_resolution(path, node)
    for folder in _list_components(path, component):
        check_codecs(folder)
    array = node.get(component)
    if not isinstance(array, zarr.Array):
        raise InputError(
            f"{path}: its metadata name the array {component!r}, which does not exist"
        )
    return _make_frames(path, component, array, axes, scale, channel, sparse)


def _open_array(path: Path, component: str) -> Any:
    """Open an array whose codecs are safe."""
    import zarr

    for folder in _list_components(path, component):
        check_codecs(folder)
    return zarr.open_array(path, path=component or None, mode="r")


def _list_components(path: Path, component: str) -> list[Path]:
    """List a store's folder and those that lead to an array within it."""
    folders = [path]
    for name in component.split("/"):
        if name:
            folders.append(folders[-1] / name)
    return folders


def check_codecs(folder: Path) -> None:
    """Refuse a Zarr group or array whose metadata name a codec that is not safe.

    Parameters
    ----------
    folder : Path
        Folder of the group or array; its own metadata files are read, those below
        are not.
    """
    for name in METADATA_FILES:
        path = folder / name
        if not path.exists():
            continue
        if not path.is_file():
            raise InputError(
                f"{path} is no regular file; expected the metadata of a Zarr store"
            )
        try:
            metadata = json.loads(path.read_bytes())
            names = list(_list_codecs(metadata))
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path} is damaged ({type(error).__name__}: {error})"
            ) from error
        for codec in names:
            if codec.removeprefix("numcodecs.") not in SAFE_CODECS:
                raise InputError(
                    f"{path} names the codec {codec[:40]!r}, which clew does not "
                    "decode; save the array with zstd, blosc or gzip"
                )


def _list_codecs(metadata: Any) -> Iterator[str]:
    """Find the names of all codecs in Zarr metadata of version 2 or 3."""
    if isinstance(metadata, list):
        for entry in metadata:
            yield from _list_codecs(entry)
    if not isinstance(metadata, dict):
        return
    for key, value in metadata.items():
        if key in ("compressor", "filters", "codecs", "index_codecs"):
            codecs = value if isinstance(value, list) else [value]
            for codec in codecs:
                if isinstance(codec, dict):
                    yield str(codec.get("id", codec.get("name")))
                elif codec is not None:
                    yield str(codec)
        if key != "attributes" and not key.endswith(".zattrs"):
            yield from _list_codecs(value)


def _find_first_resolution(
    path: Path, group: Any
) -> tuple[str, tuple[str, ...], list[float] | None]:
    """Path, axes and scale of the largest image of an OME-Zarr."""
    attributes = dict(group.attrs)
    try:
        image = attributes.get("ome", attributes)["multiscales"][0]
        dataset = image["datasets"][0]
        axes = tuple(
            axis if isinstance(axis, str) else axis["name"]
            for axis in image.get("axes", OME_AXES)
        )
        transforms = [
            *dataset.get("coordinateTransformations", ()),
            *image.get("coordinateTransformations", ()),
        ]
        scales = [
            entry["scale"] for entry in transforms if entry.get("type") == "scale"
        ]
        scale = [math.prod(map(float, sizes)) for sizes in zip(*scales, strict=True)]
        component = str(dataset["path"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        content = ", ".join(sorted(group.keys())) or "nothing"
        raise InputError(
            f"{path} is a Zarr group without readable OME-Zarr metadata "
            f"(multiscales); it holds {content}: give the path of an array or of an "
            "OME-Zarr image"
        ) from error
    parts = PureWindowsPath(component)  # takes both slashes, and knows drives
    if not component or parts.anchor or ".." in parts.parts:
        raise InputError(
            f"{path}: its metadata name the array {component!r}, which is not in it"
        )
    return component, axes, scale or None


def _make_frames(
    path: Path,
    component: str,
    array: Any,
    axes: tuple[str, ...],
    scale: list[float] | None,
    channel: int | None,
    sparse: bool,
) -> ZarrFrames:
    """Check axes and sizes; leave out the channel, and a depth of one."""
    lengths = ", ".join(f"{name}: {n}" for name, n in zip(axes, array.shape))  # noqa: B905
    is_known = set(axes) <= set(OME_AXES) and len(set(axes)) == len(axes)
    is_ordered = axes[0] == "t" and axes[-2:] == ("y", "x")
    if len(axes) != array.ndim or not is_known or not is_ordered:
        raise InputError(
            f"{path} has the axes {lengths} in {array.ndim} dimensions; expected "
            "(t, y, x) or (t, z, y, x), each once"
        )
    if min(array.shape) < 1:
        raise InputError(f"{path} has no frames: its shape is {array.shape}")
    sizes = dict(zip(axes, array.shape, strict=True))
    channel = choose_channel(path, sizes.get("c", 1), channel, lengths)
    # a plain array keeps a depth of one, as its axes have no names
    has_flat_depth = sizes.get("z") == 1 and component != ""
    kept = [axis for axis in axes if axis in "zyx"]
    if has_flat_depth:
        kept.remove("z")
    shape = tuple(sizes[axis] for axis in kept)
    frame_bytes = math.prod(shape) * array.dtype.itemsize
    _check_size(path, "a frame", shape, array.dtype, MAX_FRAME_BYTES)
    limit = frame_bytes + MAX_EXTRA_BYTES
    _check_size(path, "a chunk", array.chunks, array.dtype, limit)
    if not sparse:
        _check_chunks(path, component, array, axes.index("t"))
    spacing = None
    if scale is not None and len(scale) == len(axes):
        spacing = tuple(scale[axes.index(axis)] for axis in kept)
    selected = {axis: axis for axis in axes}
    if "c" in sizes:
        selected["c"] = str(channel)
    if has_flat_depth:
        selected["z"] = FIRST
    return ZarrFrames(
        path=path,
        component=component,
        axes=tuple(selected[axis] for axis in axes),
        length=sizes["t"],
        shape=shape,
        dtype=np.dtype(array.dtype),
        spacing=spacing,
    )


def _check_size(
    path: Path, what: str, shape: tuple[int, ...], dtype: np.dtype[Any], limit: int
) -> None:
    """Refuse what would not fit into memory."""
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise InputError(
            f"{path} declares {what} of {size:,} bytes; clew reads up to {limit:,}"
        )


def _check_chunks(path: Path, component: str, array: Any, time_axis: int) -> None:
    """Refuse an array with a missing chunk."""
    position = find_missing_chunk(array, path / component)
    if position is None:
        return
    frame = position[time_axis] * (array.shards or array.chunks)[time_axis]
    raise InputError(
        f"{path}: the chunk {array.metadata.encode_chunk_key(position)}, of frame "
        f"{frame}, is missing. If empty chunks were left out when it was written, as "
        "Zarr 3 does, use --sparse (sparse=True in Python)"
    )


def find_missing_chunk(array: Any, folder: Path) -> tuple[int, ...] | None:
    """Find the first chunk that is not stored.

    Parameters
    ----------
    array : zarr.Array
    folder : Path
        Folder of the array.

    Returns
    -------
    position : tuple of int or None
        Position in the grid of chunks; None if all are stored.
    """
    stored = {path.relative_to(folder).as_posix() for path in _list_chunks(folder)}
    chunks = array.shards or array.chunks
    if min(chunks, default=1) < 1:
        raise InputError(
            f"{folder}: its metadata declare chunks of shape {tuple(chunks)}; expected "
            "at least 1 each"
        )
    grid = [-(-size // chunk) for size, chunk in zip(array.shape, chunks, strict=True)]
    # stops after as many steps as chunks are stored, however large the grid
    for number in range(math.prod(grid)):
        position = _unravel(number, grid)
        if array.metadata.encode_chunk_key(position) not in stored:
            return position
    return None


def _unravel(number: int, grid: list[int]) -> tuple[int, ...]:
    """Like np.unravel_index, for grids of any size."""
    position = []
    for length in reversed(grid):
        number, place = divmod(number, length)
        position.append(place)
    return tuple(reversed(position))


def list_arrays(path: Path) -> Iterator[tuple[str, Any, Path]]:
    """Find all arrays of a group whose codecs are safe, with names and folders."""
    import zarr

    folders = [Path(folder) for folder, _, _ in os.walk(path)]
    for folder in folders:
        check_codecs(folder)
    group = zarr.open_group(path, mode="r")
    for folder in folders:
        name = folder.relative_to(path).as_posix()
        is_node = (folder / ".zarray").exists() or (folder / "zarr.json").exists()
        if name != "." and is_node:
            node = group.get(name)
            if isinstance(node, zarr.Array):
                check_chunk_sizes(node, folder)
                yield name, node, folder


def _list_chunks(folder: Path) -> Iterator[Path]:
    """List the files of chunks; refuse pipes and other special files."""
    for parent, _, names in os.walk(folder, onerror=_raise_unreadable):
        for name in names:
            path = Path(parent) / name
            if name in METADATA_FILES:
                continue
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(
                    f"{path} is no regular file; expected a chunk of a Zarr array"
                )
            yield path


def _raise_unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read ({error.strerror})") from error
