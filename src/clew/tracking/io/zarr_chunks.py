"""Which chunks of a Zarr array are stored. One that is not reads as zeros, whether it was left out or got lost."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.errors import InputError

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Files of a store that hold no pixels."""


def find_missing_chunk(array: Any, folder: Path) -> tuple[int, ...] | None:
    """The first chunk, by its place in the grid, that is not stored; looks at no more of the grid than is stored."""
    stored = {path.relative_to(folder).as_posix() for path in _files(folder)}
    lengths = array.shards or array.chunks
    if min(lengths, default=1) < 1:
        raise InputError(
            f"{folder}: its metadata declare chunks of shape {tuple(lengths)}; expected at least 1 each"
        )
    grid = [
        -(-size // length) for size, length in zip(array.shape, lengths, strict=True)
    ]
    for number in range(math.prod(grid)):
        place = _place(number, grid)
        if array.metadata.encode_chunk_key(place) not in stored:
            return place
    return None


def _place(number: int, grid: list[int]) -> tuple[int, ...]:
    """Where a number stands in a grid; in Python's integers, for a damaged shape may be of any size."""
    place = []
    for length in reversed(grid):
        number, at = divmod(number, length)
        place.append(at)
    return tuple(reversed(place))


def list_arrays(path: Path) -> Iterator[tuple[str, Any, Path]]:
    """All arrays of a group, with their names and folders."""
    import zarr  # it takes a second to load

    group = zarr.open_group(path, mode="r")
    for folder, _, files in os.walk(path):
        name = Path(folder).relative_to(path).as_posix()
        if name != "." and ({".zarray", "zarr.json"} & set(files)):
            node = group.get(name)
            if isinstance(node, zarr.Array):
                yield name, node, Path(folder)


def _files(folder: Path) -> Iterator[Path]:
    """All files of chunks; anything else among them, a pipe for example, is refused."""
    for where, _, names in os.walk(folder, onerror=_refuse):
        for name in names:
            path = Path(where) / name
            if name in METADATA:
                continue
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(
                    f"{path} is no regular file; expected a chunk of a Zarr array"
                )
            yield path


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read ({error.strerror})") from error
