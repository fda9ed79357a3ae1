"""Lineages in a project of Mastodon (.mastodon).

A project is a zip (or a folder) with the spots and links in ``model.raw``: blocks of
bytes as Java streams them. First the number of spots, then for each its position,
frame and ellipsoid; then the number of links, and for each the rows of its spots.
Names of spots follow. Without its images, a project names a size in their place.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clew.errors import ClewError, InputError
from clew.tracking.io.point_lineage import (
    PointLineage,
    count_earlier,
    make_lineage_of_links,
    measure_extent,
)
from clew.tracking.lineage.lineage import Lineage
from clew.utils.storage import read_bytes, write_bytes

MODEL = "model.raw"
HEADER = b"\xac\xed\x00\x05"
"""First bytes of a stream of Java."""
SHORT_BLOCK = 0x77
LONG_BLOCK = 0x7A
BLOCK = 1024
"""Bytes of a block as Java writes it."""
STRINGS = b"ur\x00\x13[Ljava.lang.String;\xad\xd2V\xe7\xe9\x1d{G\x02\x00\x00xp"
INTEGERS = b"ur\x00\x02[IM\xba`&v\xea\xb2\xa5\x02\x00\x00xp"
BYTES = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp"
"""What stands before the length of an array in a stream of Java."""
VERSION = "0.3"
PROJECT = """<?xml version="1.0" encoding="UTF-8"?>
<MamutProject version="{version}">
  <SpimDataFile type="relative">{image}</SpimDataFile>
  <SpaceUnits>pixel</SpaceUnits>
  <TimeUnits>frame</TimeUnits>
</MamutProject>
"""
RADIUS = 1.0
"""Radius of a spot. Mastodon needs one, and points have none."""
MAX_BYTES = 2**28
"""Bytes that a small file may unpack to."""
MAX_RATIO = 50
"""Highest compression of a larger model; that of positions is 3 at most."""
SPOT = np.dtype(
    [
        ("position", "<f8", 3),
        ("frame", "<i4"),
        ("covariance", "<f8", 6),
        ("squared_radius", "<f8"),
    ]
)
Records = np.ndarray[tuple[int], np.dtype[np.void]]
LINK = np.dtype([("spots", ">i4", 2), ("order", ">i4", 2)])


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
    spots, links = read_model(path)
    rows = links["spots"].astype(np.intp).reshape(-1, 2)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(spots):
        raise InputError(f"{path} is damaged: a link leads to a spot that is not there")
    position = spots["position"][:, ::-1].astype(np.float64)
    if not len(spots) or not np.isfinite(position).all():
        raise InputError(f"{path} has no spots with a position")
    frame = spots["frame"].astype(np.int64)
    is_backward = frame[rows[:, 0]] > frame[rows[:, 1]]
    rows[is_backward] = rows[is_backward, ::-1]
    return make_lineage_of_links(frame, position, rows, str(path), is_physical=True)


def read_model(path: Path) -> tuple[Records, Records]:
    """Read the spots (n,) and links (m,) of a project."""
    data = _join_blocks(path, _read_bytes(path))
    spots, rest = _take_records(path, data, SPOT)
    links, _ = _take_records(path, rest, LINK)
    return spots, links


def _read_bytes(path: Path) -> bytes:
    """Read the file of spots and links."""
    try:
        if path.is_dir():
            return read_bytes(path / MODEL)
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(MODEL)
            if info.file_size > max(MAX_BYTES, MAX_RATIO * info.compress_size):
                raise InputError(
                    f"{path}: {MODEL} unpacks from {info.compress_size:,} to "
                    f"{info.file_size:,} bytes; it is made to exhaust memory"
                )
            return archive.read(info)
    except ClewError:
        raise
    except Exception as error:  # zipfile and its codecs raise nearly anything
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
) -> tuple[Records, bytes]:
    """Take a number and as many records; also return the bytes after them."""
    try:
        (n,) = struct.unpack(">I", data[:4])
        records = np.frombuffer(data, kind, n, offset=4)
    except (struct.error, ValueError) as error:
        raise InputError(
            f"{path} is damaged: {MODEL} ends too early ({error})"
        ) from error
    return records, data[4 + n * kind.itemsize :]


def write_mastodon(path: str | Path, lineage: Lineage) -> None:
    """Write the cells and links of a lineage as a project without images.

    Parameters
    ----------
    path : str or Path
    lineage : Lineage
    """
    n = len(lineage.frame)
    spots = np.zeros(n, SPOT)
    ndim = lineage.position.shape[1]
    spots["position"][:, :ndim] = lineage.position[:, ::-1]
    spots["frame"] = lineage.frame
    spots["covariance"] = np.array([1, 0, 0, 1, 0, 1]) * RADIUS**2
    spots["squared_radius"] = RADIUS**2
    source, target, _ = lineage.edges
    links = np.zeros(len(source), LINK)
    links["spots"] = np.column_stack([source, target])
    links["order"] = np.column_stack([count_earlier(source), count_earlier(target)])
    names = [str(label) for label in lineage.label.tolist()]
    project = PROJECT.format(image=_describe_image(lineage), version=VERSION)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        # without the time of writing, so that the same lineage has the same bytes
        for name, data in (
            ("project.xml", project.encode()),
            (MODEL, encode_model(spots, links, names)),
        ):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    write_bytes(Path(path), content.getvalue())


def encode_model(spots: Records, links: Records, names: Sequence[str]) -> bytes:
    """Encode spots (n,), links (m,) and a name for each spot as Mastodon does."""
    count = struct.Struct(">i")
    records = count.pack(len(spots)) + spots.tobytes()
    records += count.pack(len(links)) + links.tobytes()
    texts = [name.encode() for name in names]
    text = b"".join(struct.pack(">H", len(name)) + name for name in texts)
    ids = np.arange(len(texts), dtype=">i4")
    parts = [HEADER]
    for start in range(0, len(records), BLOCK):
        block = records[start : start + BLOCK]
        is_short = len(block) < 256
        parts.append(bytes([SHORT_BLOCK if is_short else LONG_BLOCK]))
        parts.append(len(block).to_bytes(1 if is_short else 4, "big") + block)
    parts += [STRINGS, count.pack(1), b"t", struct.pack(">H", 5), b"label"]
    parts += [INTEGERS, count.pack(len(ids)), ids.tobytes()]
    parts += [BYTES, count.pack(len(text)), text]
    return b"".join(parts)


def _describe_image(lineage: Lineage) -> str:
    """Name of an image that is not there, by which Mastodon knows the size of space."""
    z, y, x = measure_extent(lineage.position)
    return f"x={x} y={y} z={z} sx=1.0 sy=1.0 sz=1.0 t={lineage.n_frames}.dummy"
