"""Lineages in a project of Mastodon (.mastodon).

A project is a zip (or a folder) with the spots and links in ``model.raw``: blocks of
bytes as Java streams them. First the number of spots, then for each its position,
frame and ellipsoid; then the number of links, and for each the rows of its spots.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np

from clew.errors import InputError
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_links

SUFFIX = ".mastodon"
MODEL = "model.raw"
HEADER = b"\xac\xed\x00\x05"
"""First bytes of a stream of Java."""
SHORT_BLOCK = 0x77
LONG_BLOCK = 0x7A
MAX_BYTES = 2**32
SPOT = np.dtype(
    [
        ("position", "<f8", 3),
        ("frame", "<i4"),
        ("covariance", "<f8", 6),
        ("radius", "<f8"),
    ]
)
LINK = np.dtype([("spots", ">i4", 2), ("order", ">i4", 2)])


def is_mastodon(path: Path) -> bool:
    """Whether a path is a project of Mastodon."""
    return path.suffix.lower() == SUFFIX or (path / MODEL).is_file()


def read_mastodon(path: str | Path) -> PointLineage:
    """Read the spots and links of a project.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    lineage : PointLineage
        With physical positions.
    """
    path = Path(path)
    data = _join_blocks(path, _read_model(path))
    spots, rest = _take_records(path, data, SPOT)
    links, _ = _take_records(path, rest, LINK)
    rows = links["spots"].astype(np.intp).reshape(-1, 2)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(spots):
        raise InputError(f"{path} is damaged: a link leads to a spot that is not there")
    position = spots["position"][:, ::-1].astype(np.float64)
    if not position[:, 0].any():
        position = position[:, 1:]
    if not len(spots) or not np.isfinite(position).all():
        raise InputError(f"{path} has no spots with a position")
    frame = spots["frame"].astype(np.int64)
    is_backward = frame[rows[:, 0]] > frame[rows[:, 1]]
    rows[is_backward] = rows[is_backward, ::-1]
    return make_lineage_of_links(frame, position, rows, str(path), is_physical=True)


def _read_model(path: Path) -> bytes:
    """Read the file of spots and links."""
    try:
        if path.is_dir():
            return (path / MODEL).read_bytes()
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(MODEL).file_size > MAX_BYTES:
                raise InputError(f"{path}: {MODEL} is larger than 4 GB")
            return archive.read(MODEL)
    except (OSError, KeyError, zipfile.BadZipFile, RuntimeError) as error:
        raise InputError(
            f"{path} cannot be read as a project of Mastodon ({error}); expected a zip "
            f"with {MODEL}"
        ) from error


def _join_blocks(path: Path, data: bytes) -> bytes:
    """Join the first blocks of bytes in a stream of Java."""
    if data[: len(HEADER)] != HEADER:
        raise InputError(f"{path}: {MODEL} is no stream of Java; is it damaged?")
    blocks = []
    at = len(HEADER)
    while at + 2 <= len(data) and data[at] in (SHORT_BLOCK, LONG_BLOCK):
        if data[at] == SHORT_BLOCK:
            size = data[at + 1]
            at += 2
        else:
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            at += 5
        blocks.append(data[at : at + size])
        at += size
    return b"".join(blocks)


def _take_records(
    path: Path, data: bytes, kind: np.dtype[np.void]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], bytes]:
    """Take a number and as many records; also return the bytes after them."""
    try:
        (n,) = struct.unpack(">i", data[:4])
        records = np.frombuffer(data, kind, n, offset=4)
    except (struct.error, ValueError) as error:
        raise InputError(
            f"{path} is damaged: {MODEL} ends too early ({error})"
        ) from error
    return records, data[4 + n * kind.itemsize :]
