"""Movies in TIFF: a folder with a file for each frame, or one file with a stack of pages. Read one frame at a time."""

from __future__ import annotations

import io
import logging
import math
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tifffile
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.io.tiff_layout import Layout, parse_layout
from clew.utils.storage import write_bytes

MAX_FRAME_BYTES = 4 * 2**30
"""The largest frame that is read: a damaged header can ask for any amount of memory."""
SUFFIXES = (".tif", ".tiff")
CELLPOSE = r"(?i:.*_cp_masks\.tiff?$)"
"""Masks as Cellpose puts them beside the images that they are of."""
CELLPOSE_OTHERS = r"(?i:.*_cp_masks\.png|.*_seg\.npy)"
"""What it puts there if TIFFs are not asked for."""
OTHERS = (".png", ".jpg", ".jpeg", ".npy", ".nd2", ".czi", ".lif", ".mp4", ".avi")
"""What people have in place of TIFFs."""

logging.getLogger("tifffile").addHandler(
    logging.NullHandler()
)  # what it would complain of becomes an InputError


@dataclass(frozen=True)
class TiffFolder:
    """A file for each frame, (y, x) or (z, y, x)."""

    paths: tuple[Path, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    first: int
    """The number in the first file's name."""
    spacing: tuple[float, ...] | None
    """What the first file says of the size of a pixel, if anything."""
    channel: int | None = None
    """The one that is read, where files have several."""

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, t: int) -> NDArray[Any]:
        path = self.paths[t]
        with _opened(path, is_ome=False) as tiff:
            _check_pages(tiff, path)
            layout = parse_layout(tiff, path, self.channel, stack=False)
            whole: NDArray[Any] = (
                tiff.series[0].asarray().reshape(-1, *layout.page_shape)
            )
            return _expect(layout.frame(whole[layout.pages(0)]), self, path)


@dataclass(frozen=True)
class TiffStack:
    """All frames in one file, (t, y, x) or (t, z, y, x)."""

    path: Path
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None
    layout: Layout
    first: ClassVar[int] = 0
    _open: dict[str, Any] = field(
        default_factory=lambda: {"lock": threading.Lock()}, compare=False, repr=False
    )
    # the file stays open, for finding a page takes as many steps as there are pages before it

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        which = range(len(self))[t]
        with raise_as_input_error(self.path), self._open["lock"]:
            tiff = self._open.get("tiff")
            if tiff is None:
                tiff = self._open["tiff"] = tifffile.TiffFile(
                    self.path, _multifile=False
                )
            frame = self.layout.frame(
                _read_pages(tiff, self.layout.pages(which), self.layout.page_shape)
            )
        return _expect(frame, self, self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return TiffStack, (
            self.path,
            self.length,
            self.shape,
            self.dtype,
            self.spacing,
            self.layout,
        )


def list_tiffs(folder: Path, what: str = "") -> list[Path]:
    """The TIFFs of a folder, in no order; `what` is a regular expression that their names must begin with."""
    with raise_as_input_error(folder):
        files = [
            path
            for path in folder.iterdir()
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        ]
    return [path for path in files if re.match(what, path.name)]


def parse_frame_number(path: Path) -> int | None:
    """The last number in a file's name, if there is one."""
    digits = re.findall(r"[0-9]+", path.stem)
    return int(digits[-1]) if digits else None


def match_frame_names(folder: Path, masks: bool) -> str:
    """Which files of a folder are its masks, or its images, where Cellpose put both there; elsewhere all of them."""
    if not list_tiffs(folder, CELLPOSE):
        return ""
    return CELLPOSE if masks else f"(?!{CELLPOSE})"


def describe_unread_masks(folder: Path) -> str:
    """What to do about masks that Cellpose put beside images, if it did so in other files than TIFFs."""
    with raise_as_input_error(folder):
        found = sorted(
            path.name
            for path in folder.iterdir()
            if re.fullmatch(CELLPOSE_OTHERS, path.name)
        )
    return (
        f"the masks of Cellpose in it are no TIFFs ({found[0]}); cellpose --save_tif writes such"
        if found
        else ""
    )


def list_frames(folder: Path, what: str = "") -> tuple[tuple[Path, ...], int]:
    """The TIFFs of a folder in the order of their numbers, which must go up one by one, and the first number."""
    numbered = []
    for path in list_tiffs(folder, what):
        if (number := parse_frame_number(path)) is None:
            raise InputError(
                f"{path} has no number in its name; in a folder of frames each file is named by its number, as in "
                "t000.tif. A stack of all frames is given by its own name instead of its folder's"
            )
        numbered.append((number, path))
    if not numbered:
        raise InputError(
            f"{folder} has no frames; a movie has a TIFF for each frame, as in t000.tif, t001.tif …{_instead(folder)}"
        )
    numbered.sort()
    for (before, earlier), (number, path) in pairwise(numbered):
        if number == before:
            raise InputError(
                f"{earlier} and {path.name} have the same number; each frame has a number of its own"
            )
        if number != before + 1:
            raise InputError(
                f"{folder}: frame {before + 1} is missing, {path.name} follows on {earlier.name}; frames are numbered "
                "one by one"
            )
    return tuple(path for _, path in numbered), numbered[0][0]


def _instead(folder: Path) -> str:
    """What a folder without TIFFs has that may be meant."""
    found = {path.suffix.lower() for path in folder.iterdir()} & set(OTHERS)
    if not found:
        within = sorted(
            path.name for path in folder.iterdir() if path.is_dir() and list_tiffs(path)
        )
        return (
            f"; there are TIFFs in folders within it: {', '.join(within[:5])}"
            if within
            else ""
        )
    return f"; it has {', '.join(sorted(found))}: save TIFF or Zarr instead (Cellpose does so with --save_tif)"


def open_folder(folder: Path, what: str = "", channel: int | None = None) -> TiffFolder:
    """The frames in a folder; only headers are read, of all files, so that all are of one shape and dtype."""
    paths, first = list_frames(folder, what)
    shape, dtype, spacing = _frame_header(paths[0], channel)
    for path in paths[1:]:
        other, other_dtype, _ = _frame_header(path, channel)
        if (other, other_dtype) != (shape, dtype):
            raise InputError(
                f"{path} has shape {other} and dtype {other_dtype}, where {paths[0].name} has {shape} and {dtype}; all "
                "frames of a movie are alike"
            )
    return TiffFolder(paths, shape, dtype, first, spacing, channel)


def _frame_header(
    path: Path, channel: int | None
) -> tuple[tuple[int, ...], np.dtype[Any], tuple[float, ...] | None]:
    """Shape, dtype and spacing of a file that holds one frame."""
    with _opened(path, is_ome=False) as tiff:
        _check_directories(tiff, path)
        dtype = _header(tiff, path)
        shape = parse_layout(tiff, path, channel, stack=False).frame_shape
        return shape, dtype, _spacing(tiff, len(shape))


def open_stack(path: Path, channel: int | None = None) -> TiffStack:
    """The frames of one file: its first axis is time, whatever the file calls it."""
    with _opened(path, _multifile=False) as tiff:
        _check_directories(tiff, path)
        _check_pages(tiff, path)
        dtype = _header(tiff, path, movie=True)
        layout = parse_layout(tiff, path, channel, stack=True)
        series = tiff.series[0]
        if series.dataoffset is None and any(page is None for page in series.pages):
            raise InputError(
                f"{path} is a part of a movie in several files; expected all frames in one, or a folder"
            )
        shape = layout.frame_shape
        return TiffStack(
            path, layout.n_frames, shape, dtype, _spacing(tiff, len(shape)), layout
        )


def write_frame(path: Path, frame: NDArray[Any]) -> None:
    """One frame as a zlib-compressed TIFF, a page for each plane; written all or not at all."""
    buffer = io.BytesIO()
    tifffile.imwrite(
        buffer, frame, compression="zlib", photometric="minisblack", metadata=None
    )
    write_bytes(path, buffer.getvalue())


@contextmanager
def raise_as_input_error(path: Path) -> Iterator[None]:
    """Whatever goes wrong in reading is told with the file's name."""
    try:
        yield
    except InputError:
        raise
    except (
        PermissionError,
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
    ) as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except (
        Exception
    ) as error:  # damaged bytes make tifffile and its codecs raise nearly anything
        raise InputError(
            f"{path} cannot be read as TIFF ({type(error).__name__}: {error}); it is damaged, cut short or no TIFF"
        ) from error


@contextmanager
def _opened(path: Path, **options: Any) -> Iterator[Any]:
    with raise_as_input_error(path):
        if path.exists() and not path.is_file():  # a pipe would block
            raise InputError(
                f"{path} is {'a folder' if path.is_dir() else 'no regular file'}; expected a TIFF file"
            )
        with tifffile.TiffFile(path, **options) as tiff:
            yield tiff


def _check_directories(tiff: Any, path: Path) -> None:
    """Refuse directories that lead in a circle, each to the next: tifffile would go round for ever."""
    file, sizes, seen = tiff.filehandle, tiff.tiff, set[int]()
    offset = int(tiff.pages.first.offset)
    while 0 < offset < file.size:
        if offset in seen:
            raise InputError(
                f"{path}: its directory {len(seen) - 1} leads back to an earlier one; the file is damaged"
            )
        seen.add(offset)
        file.seek(offset)
        (n_tags,) = struct.unpack(sizes.tagnoformat, file.read(sizes.tagnosize))
        file.seek(offset + sizes.tagnosize + n_tags * sizes.tagsize)
        following = file.read(sizes.offsetsize)
        if len(following) < sizes.offsetsize:
            return  # cut short, as is told where the page is read
        (offset,) = struct.unpack(sizes.offsetformat, following)


def _header(tiff: Any, path: Path, movie: bool = False) -> np.dtype[Any]:
    """The dtype of what the file holds, after a check that it can hold it and memory can too."""
    if len(tiff.series) != 1:
        shapes = ", ".join(str(series.shape) for series in tiff.series[:4])
        raise InputError(
            f"{path} has images of different shapes or dtypes ({shapes} …); all pages of a movie are alike"
        )
    series = tiff.series[0]
    shape, dtype = tuple(int(length) for length in series.shape), series.dtype
    if dtype is None or not shape or min(shape) < 1:
        raise InputError(
            f"{path} declares an image of shape {shape} and dtype {dtype}, which is none"
        )
    if dtype.kind not in "biuf":
        raise InputError(
            f"{path} has dtype {dtype}; expected integers, or real numbers in a raw image"
        )
    size = math.prod(shape[1:] if movie and len(shape) > 2 else shape) * dtype.itemsize
    if size > MAX_FRAME_BYTES:
        raise InputError(
            f"{path} declares a frame of {size:,} bytes; clew reads frames of up to {MAX_FRAME_BYTES:,}"
        )
    needed = [
        end
        for page in (series.pages[0], series.pages[-1])
        if page is not None
        for end in [_end_of_data(page)]
    ]
    if series.dataoffset is not None:
        needed.append(series.dataoffset + math.prod(shape) * dtype.itemsize)
    if max(needed, default=0) > tiff.filehandle.size:
        raise InputError(
            f"{path} is cut short: it has {tiff.filehandle.size:,} bytes, and its header speaks of {max(needed):,}"
        )
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def _check_pages(tiff: Any, path: Path) -> None:
    """Compare every page with the first: tifffile takes them to be alike where the metadata say so."""
    first = tiff.pages[0]
    for number in range(1, len(tiff.pages)):
        page = tiff.pages.get(number, aspage=True)
        if (page.shape, page.dtype) != (first.shape, first.dtype):
            raise InputError(
                f"{path}: page {number} has shape {page.shape} and dtype {page.dtype}, where page 0 has {first.shape} "
                f"and {first.dtype}; all pages of a movie are alike"
            )
        if (end := _end_of_data(page)) > tiff.filehandle.size:
            raise InputError(
                f"{path} is cut short after {tiff.filehandle.size:,} bytes; page {number} ends at {end:,}"
            )


def _end_of_data(page: Any) -> int:
    """Where the last byte of a page's pixels is in the file."""
    return max(
        (
            offset + count
            for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)
        ),
        default=0,
    )


def _read_pages(tiff: Any, pages: Indices, shape: tuple[int, ...]) -> NDArray[Any]:
    """(k, …) some pages of a file that is open."""
    series = tiff.series[0]
    first, last = int(pages[0]), int(pages[-1])
    consecutive = last - first + 1 == len(pages)
    if series.dataoffset is None:
        key = slice(first, last + 1) if consecutive else pages.tolist()
        return np.asarray(tiff.asarray(series=0, key=key)).reshape(-1, *shape)
    # uncompressed in one piece, perhaps without a page for each frame
    count, dtype = math.prod(shape), series.dtype.newbyteorder(tiff.byteorder)
    runs = (
        [(first, len(pages))] if consecutive else [(page, 1) for page in pages.tolist()]
    )
    parts = []
    for start, length in runs:
        tiff.filehandle.seek(series.dataoffset + start * count * dtype.itemsize)
        parts.append(
            np.asarray(tiff.filehandle.read_array(dtype, length * count)).reshape(
                -1, *shape
            )
        )
    return np.concatenate(parts)


def _expect(
    frame: NDArray[Any], movie: TiffFolder | TiffStack, path: Path
) -> NDArray[Any]:
    """The frame, if the file is still what it was when the movie was opened."""
    if frame.shape != movie.shape or frame.dtype.newbyteorder("=") != movie.dtype:
        raise InputError(
            f"{path} has changed since the movie was opened: {frame.dtype} {frame.shape} now"
        )
    return frame.astype(movie.dtype, copy=False)


def _spacing(tiff: Any, ndim: int) -> tuple[float, ...] | None:
    """The physical size of a pixel along (z,) y, x from OME metadata, if all are given and positive."""
    description = tiff.pages[0].description or ""
    sizes = dict(re.findall(r'\bPhysicalSize([XYZ])="([-+.0-9eE]+)"', description))
    try:
        spacing = tuple(float(sizes[axis]) for axis in "ZYX"[-ndim:])
    except (KeyError, ValueError):
        return None
    return spacing if all(0 < size < math.inf for size in spacing) else None
