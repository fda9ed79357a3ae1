"""Refuse chunks of a Zarr array that unpack to more bytes than the array declares.

Codecs allocate whatever a chunk unpacks to: 4 MB of gzip can take 4 GB. Sizes are read
from the header of a chunk where its format has one (blosc, lz4, zstd); streams (gzip,
zlib, bz2, lzma) are unpacked piece by piece and dropped, unless they are too short to
exceed the limit.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import IO, Any

import numpy as np

from clew.errors import InputError

SLACK = 2**24
"""Bytes that a chunk may unpack to beyond its declared size: blocks of zstd, filters."""
MAX_TEXT = 2**30
"""Bytes of a chunk of texts, whose size is not declared."""
PIECE = 2**20
"""Bytes of a stream that are unpacked at a time."""
DEFLATE_RATIO = 1032
"""Highest compression of gzip and zlib."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK = 2**17
"""Most bytes of a compressed block of zstd."""
COMPRESSIONS = frozenset(["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"])
OPENERS: dict[str, Callable[..., Any]] = {
    "gzip": gzip.open,
    "bz2": bz2.open,
    "lzma": lzma.open,
}
CHUNK_KEY = re.compile(r"c|(c[/.])?\d+([/.]\d+)*")
HEADER_BYTES = 32
"""Bytes that the header of blosc, lz4 or zstd takes at most."""
EMPTY = 2**64 - 1
"""Offset of a chunk that is not in a shard."""
INDEX_CODECS = ["bytes", "crc32c"]
"""Codecs of the index of a shard; nobody writes others."""


@dataclass(frozen=True)
class _Packing:
    """How the chunks of an array are packed.

    Attributes
    ----------
    compression : str
        One of `COMPRESSIONS`; empty if there is none.
    limit : int
        Most bytes that a chunk may unpack to.
    shard : mapping or None
        Configuration of the shards that hold the chunks, if any.
    n_chunks : int
        Number of chunks in a shard.
    """

    compression: str
    limit: int
    shard: dict[str, Any] | None = None
    n_chunks: int = 1

    @classmethod
    def of(cls, array: Any, path: Path) -> _Packing:
        """Read the metadata of an array."""
        metadata = array.metadata.to_dict()
        if metadata["zarr_format"] == 2:
            codecs = [*(metadata["filters"] or ()), metadata["compressor"]]
        else:
            codecs = list(metadata["codecs"])
        limit = MAX_TEXT
        n_values = math.prod(array.chunks)
        if array.dtype.kind in "biufc":
            limit = n_values * max(array.dtype.itemsize, 8) + SLACK
        names = [_name_codec(codec) for codec in codecs if codec]
        if "sharding_indexed" not in names:
            return cls(_find_compression(names, path), limit)
        shard = codecs[0]["configuration"]
        inner = [_name_codec(codec) for codec in shard["codecs"]]
        index = [_name_codec(codec) for codec in shard["index_codecs"]]
        if len(codecs) > 1 or "sharding_indexed" in inner or index != INDEX_CODECS:
            raise InputError(
                f"{path} has shards that are packed in an unusual way, which clew does "
                "not decode; save the array without shards"
            )
        n_chunks = math.prod(array.shards) // n_values
        return cls(_find_compression(inner, path), limit, shard, n_chunks)

    def list_packed(self, file: Path) -> Iterator[tuple[int, int]]:
        """Offset and size of each chunk in a file."""
        size = file.stat().st_size
        if self.shard is None:
            yield 0, size
            return
        n_bytes = 16 * self.n_chunks
        is_first = self.shard.get("index_location", "end") == "start"
        with file.open("rb") as stream:
            stream.seek(0 if is_first else max(size - n_bytes - 4, 0))
            index = stream.read(n_bytes)
        if len(index) < n_bytes:
            raise InputError(f"{file} is damaged: it is too short for its index")
        for offset, length in np.frombuffer(index, "<u8").reshape(-1, 2).tolist():
            if offset != EMPTY:
                yield offset, length


def check_chunk_sizes(
    array: Any, folder: Path, index: Sequence[int | slice] | None = None
) -> None:
    """Refuse an array with a chunk that would unpack to more than it declares.

    Parameters
    ----------
    array : zarr.Array
    folder : Path
        Folder of the array.
    index : sequence of int or slice(None), optional
        What will be read of it; everything by default.
    """
    packing = _Packing.of(array, folder)
    if not packing.compression:
        return
    if index is None:
        # not the keys, for a damaged shape has any number of them
        files = [
            path
            for path in folder.rglob("*")
            if CHUNK_KEY.fullmatch(path.relative_to(folder).as_posix())
        ]
    else:
        files = [folder / key for key in _list_keys(array, index)]
    for file in files:
        if not file.is_file():  # an empty chunk, which is not stored
            continue
        for offset, size in packing.list_packed(file):
            unpacked = _measure_unpacked(file, offset, size, packing)
            if unpacked > packing.limit:
                raise InputError(
                    f"{file} unpacks to {unpacked:,} bytes or more; its metadata allow "
                    f"{packing.limit:,}, so it is damaged or made to exhaust memory"
                )


def _name_codec(codec: Any) -> str:
    """Name of a codec in metadata of version 2 or 3."""
    if isinstance(codec, dict):
        name = codec.get("id", codec.get("name"))
    else:  # older versions of zarr have an object of numcodecs
        name = codec.codec_id
    return str(name).removeprefix("numcodecs.")


def _find_compression(names: list[str], path: Path) -> str:
    """Return the only compression among codecs, given in the order of packing."""
    outermost = [name for name in names if name != "crc32c"][-1:]
    compressions = [name for name in names if name in COMPRESSIONS]
    if compressions and compressions != outermost:
        raise InputError(
            f"{path} has the codecs {', '.join(names)}; clew decodes one compression, "
            "which must be the last codec"
        )
    return compressions[0] if compressions else ""


def _list_keys(array: Any, index: Iterable[int | slice]) -> Iterator[str]:
    """Keys of the files that hold a part of an array."""
    chunks = array.shards or array.chunks
    ranges = []
    for place, size, chunk in zip(index, array.shape, chunks, strict=True):
        first = 0 if isinstance(place, slice) else place // chunk
        last = -(-size // chunk) if isinstance(place, slice) else first + 1
        ranges.append(range(first, last))
    for position in product(*ranges):
        yield array.metadata.encode_chunk_key(position)


def _measure_unpacked(file: Path, offset: int, size: int, packing: _Packing) -> int:
    """Return how many bytes a chunk unpacks to; streams stop beyond the limit."""
    name = packing.compression
    if name in ("gzip", "zlib") and size * DEFLATE_RATIO <= packing.limit:
        return 0
    with file.open("rb") as stream:
        stream.seek(offset)
        if name == "blosc":
            return int.from_bytes(stream.read(HEADER_BYTES)[4:8], "little")
        if name == "lz4":
            return int.from_bytes(stream.read(4), "little")
        if name == "zstd":
            return _measure_zstd(stream.read(size))
        packed = stream.read(size)
    if name == "zlib":
        return _count_zlib(packed, packing.limit)
    with OPENERS[name](BytesIO(packed)) as unpacked:
        return _count_bytes(unpacked, packing.limit)


def _count_bytes(stream: IO[bytes], limit: int) -> int:
    """Count the bytes of a stream up to a limit."""
    total = 0
    while total <= limit and (piece := stream.read(PIECE)):
        total += len(piece)
    return total


def _count_zlib(packed: bytes, limit: int) -> int:
    """Count the bytes of zlib data up to a limit."""
    stream = zlib.decompressobj()
    total = 0
    while total <= limit and packed and not stream.eof:
        total += len(stream.decompress(packed, PIECE))
        packed = stream.unconsumed_tail
    return total


def _measure_zstd(packed: bytes) -> int:
    """Return the size in the header of zstd data, or a bound from its blocks.

    The format is that of RFC 8878, section 3.1.1.
    """
    if packed[:4] != ZSTD_MAGIC:
        return 0  # zstd refuses it
    descriptor = packed[4]
    is_single = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    begin = 5 + (1 - is_single) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = (is_single, 2, 4, 8)[size_flag]
    size = int.from_bytes(packed[begin : begin + size_bytes], "little")
    if size_bytes:
        return size + 256 if size_bytes == 2 else size
    return _bound_zstd_blocks(packed, begin)


def _bound_zstd_blocks(packed: bytes, place: int) -> int:
    """Bound what the blocks of zstd data from a place on unpack to."""
    total = 0
    while place + 3 <= len(packed):
        header = int.from_bytes(packed[place : place + 3], "little")
        kind = header >> 1 & 3
        size = header >> 3
        is_compressed = kind == 2
        is_repeated = kind == 1
        total += ZSTD_BLOCK if is_compressed else size
        place += 3 + (1 if is_repeated else size)
        if header & 1:
            break
    return total
