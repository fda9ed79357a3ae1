"""Chunks that unpack to more than they declare are refused before they are unpacked."""

import json

import numcodecs
import numpy as np
import pytest
import zarr

from clew.errors import InputError
from clew.tracking.io.geff import read_geff
from clew.tracking.io.zarr import open_zarr
from clew.tracking.io.zarr_chunks import _measure_zstd

COMPRESSIONS = ["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"]
BOMB = np.zeros(20_000_000, np.uint8)
PIXELS = np.random.default_rng(0).integers(0, 9, (2, 16, 16)).astype(np.uint16)


def write_array(path, name, **options):
    """A small movie with a compression; the file of its first chunk."""
    codec = numcodecs.get_codec({"id": name})
    array = zarr.create_array(
        path,
        shape=PIXELS.shape,
        chunks=(1, 16, 16),
        dtype="u2",
        zarr_format=2,
        compressors=codec,
        **options,
    )
    array[:] = PIXELS
    return path / "0.0.0"


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_chunk_that_unpacks_to_too_much_is_refused(tmp_path, name):
    chunk = write_array(tmp_path / "movie.zarr", name)
    frames = open_zarr(tmp_path / "movie.zarr")
    np.testing.assert_array_equal(frames[0], PIXELS[0])
    chunk.write_bytes(bytes(numcodecs.get_codec({"id": name}).encode(BOMB)))
    with pytest.raises(InputError, match=r"0\.0\.0 unpacks to .* bytes or more"):
        frames[0]
    np.testing.assert_array_equal(frames[1], PIXELS[1])


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("gzip", zarr.codecs.GzipCodec()),
        ("zstd", zarr.codecs.ZstdCodec()),
        ("blosc", zarr.codecs.BloscCodec()),
    ],
)
def test_chunk_in_a_shard_that_unpacks_to_too_much_is_refused(tmp_path, name, codec):
    path = tmp_path / "movie.zarr"
    array = zarr.create_array(
        path,
        shape=PIXELS.shape,
        chunks=(1, 8, 8),
        shards=(1, 16, 16),
        dtype="u2",
        compressors=codec,
    )
    array[:] = PIXELS
    np.testing.assert_array_equal(open_zarr(path)[0], PIXELS[0])
    shard = bytes(numcodecs.get_codec({"id": name}).encode(BOMB))
    index = np.array([[0, len(shard)]] * 4, "<u8").tobytes()
    (path / "c/0/0/0").write_bytes(shard + index + bytes(4))
    with pytest.raises(InputError, match=r"unpacks to .* bytes or more"):
        open_zarr(path)[0]


def test_two_compressions_are_refused(tmp_path):
    path = tmp_path / "movie.zarr"
    write_array(path, "gzip", filters=[numcodecs.Zlib()])
    with pytest.raises(InputError, match=r"codecs zlib, gzip; clew decodes one"):
        open_zarr(path)[0]


def test_chunk_far_larger_than_a_frame_is_refused(tmp_path):
    path = tmp_path / "movie.zarr"
    write_array(path, "zstd")
    metadata = json.loads((path / ".zarray").read_bytes())
    metadata["chunks"] = [1, 40_000, 40_000]
    (path / ".zarray").write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="a chunk of 3,200,000,000 bytes"):
        open_zarr(path)


def test_size_of_zstd_without_size_in_its_header_is_bounded():
    magic = b"\x28\xb5\x2f\xfd"
    header = magic + b"\x00\x58"  # a window, no size
    repeated = (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (5 << 3 | 1).to_bytes(3, "little") + b"abcde"
    assert _measure_zstd(header + 300 * repeated + last) == 300 * 2**17 + 5


def test_geff_with_a_chunk_that_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "a.geff"
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.attrs["geff"] = {}
    group.create_array(
        "nodes/ids", shape=(3,), chunks=(3,), dtype="u8", compressors=numcodecs.GZip()
    )[:] = np.arange(3)
    (path / "nodes/ids/0").write_bytes(bytes(numcodecs.GZip().encode(BOMB)))
    with pytest.raises(InputError, match="unpacks to"):
        read_geff(path)
