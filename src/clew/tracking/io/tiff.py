"""Movies in TIFF: a folder with a file for each frame, or one file with all frames.

Frames are read one at a time. `Layout` says which pages of a file make up a frame.
Nothing is guessed: of a file with several channels, one must be chosen.
"""

from __future__ import annotations

import io
import logging
import math
import re
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import tifffile
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.frames import choose_channel
from clew.utils.storage import write_bytes

CHANNELS = "CS"
"""Axes of channels: over pages, and of samples within a pixel."""
OME_ORDER = re.compile(r'<(?:\w+:)?Pixels\b[^>]*\bDimensionOrder="XY([CZT]{3})"')


MAX_FRAME_BYTES = 4 * 2**30
"""Largest frame that is read; a damaged header can ask for any amount of memory."""
SETTLED_SECONDS = 10.0
"""After which a change of a file shows in its times, on any file system."""
SUFFIXES = (".tif", ".tiff")
CELLPOSE = r"(?i:.*_cp_masks\.tiff?$)"
"""Masks that Cellpose writes beside the images."""
CELLPOSE_OTHERS = r"(?i:.*_cp_masks\.png|.*_seg\.npy)"
"""Masks that Cellpose writes by default."""
OTHER_FORMATS = (
    ".png",
    ".jpg",
    ".jpeg",
    ".npy",
    ".nd2",
    ".czi",
    ".lif",
    ".mp4",
    ".avi",
)
"""Formats that people have in place of TIFF."""

# what tifffile would log becomes an InputError
logging.getLogger("tifffile").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class TiffFolder:
    """A file for each frame, (y, x) or (z, y, x).

    Attributes
    ----------
    paths : tuple of Path
    shape : tuple of int
        Shape of a frame.
    dtype : dtype
    first : int
        Number in the name of the first file.
    spacing : tuple of float or None
        Size of a pixel, if the first file has it.
    channel : int or None
        Channel that is read, if files have several.
    """

    paths: tuple[Path, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    first: int
    spacing: tuple[float, ...] | None
    channel: int | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, t: int) -> NDArray[Any]:
        path = self.paths[t]
        with _open_tiff(path, is_ome=False) as tiff:
            _check_pages(tiff, path)
            layout = parse_layout(tiff, path, self.channel, stack=False)
            pages = tiff.series[0].asarray().reshape(-1, *layout.page_shape)
            frame = layout.assemble_frame(pages[layout.list_pages(0)])
            return _check_unchanged(frame, self, path)

    def stamp(self, t: int) -> str:
        """Return what changes whenever the file of a frame does.

        Times of files are coarse: a file that changed a moment ago has no stamp, since
        it may change once more at the same time.
        """
        try:
            status = self.paths[t].stat()
        except OSError:
            return ""  # reading it raises an error that says so
        changed = max(status.st_mtime, status.st_ctime)
        if not changed < time.time() - SETTLED_SECONDS:
            return ""
        times = status.st_mtime_ns, status.st_ctime_ns
        return repr((status.st_dev, status.st_ino, status.st_size, times, self.channel))


class _SharedFile:
    """A TIFF that stays open, since finding a page takes time that grows with it.

    Threads take turns; another process opens the file again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.tiff: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _SharedFile, (self.path,)

    @contextmanager
    def open_exclusively(self) -> Iterator[Any]:
        """Hold the open file."""
        with self.lock:
            if self.tiff is None:
                self.tiff = tifffile.TiffFile(self.path, _multifile=False)
            yield self.tiff


@dataclass(frozen=True)
class TiffStack:
    """All frames in one file, (t, y, x) or (t, z, y, x).

    Attributes
    ----------
    path : Path
    length : int
        Number of frames.
    shape : tuple of int
        Shape of a frame.
    dtype : dtype
    spacing : tuple of float or None
        Size of a pixel, if the file has it.
    layout : Layout
    file : _SharedFile
    """

    path: Path
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None
    layout: Layout
    file: _SharedFile = field(compare=False, repr=False)
    first: ClassVar[int] = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, t: int) -> NDArray[Any]:
        numbers = self.layout.list_pages(range(len(self))[t])
        with raise_as_input_error(self.path), self.file.open_exclusively() as tiff:
            pages = _read_pages(tiff, numbers, self.layout.page_shape)
            frame = self.layout.assemble_frame(pages)
        return _check_unchanged(frame, self, self.path)


def list_tiffs(folder: Path, pattern: str = "") -> list[Path]:
    """List the TIFFs of a folder, in no order.

    Parameters
    ----------
    folder : Path
    pattern : str
        Regular expression for the beginning of the names.
    """
    with raise_as_input_error(folder):
        files = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    visible = [path for path in files if not path.name.startswith(".")]
    return [path for path in visible if re.match(pattern, path.name)]


def parse_frame_number(path: Path) -> int | None:
    """The last number in the name of a file, if there is one."""
    digits = re.findall(r"[0-9]+", path.stem)
    return int(digits[-1]) if digits else None


def match_frame_names(folder: Path, masks: bool) -> str:
    """Regular expression for the masks, or images, of a folder in which Cellpose
    wrote masks beside images; elsewhere it matches all files.
    """
    if not list_tiffs(folder, CELLPOSE):
        return ""
    return CELLPOSE if masks else f"(?!{CELLPOSE})"


def describe_unread_masks(folder: Path) -> str:
    """What to do about masks of Cellpose in other formats; empty if there are none."""
    with raise_as_input_error(folder):
        names = sorted(path.name for path in folder.iterdir())
    masks = [name for name in names if re.fullmatch(CELLPOSE_OTHERS, name)]
    if not masks:
        return ""
    return (
        f"the masks of Cellpose in it are not TIFFs ({masks[0]}); run cellpose with "
        "--save_tif"
    )


def list_frames(folder: Path, pattern: str = "") -> tuple[tuple[Path, ...], int]:
    """List the frames in a folder, whose numbers must be consecutive.

    Returns
    -------
    paths : tuple of Path
        In the order of their numbers.
    first : int
        The first number.
    """
    numbered = []
    for path in list_tiffs(folder, pattern):
        number = parse_frame_number(path)
        if number is None:
            raise InputError(
                f"{path} has no number in its name; in a folder of frames each file is "
                "named by its number, as in t000.tif. A stack of all frames is given "
                "by its own name instead of the name of its folder"
            )
        numbered.append((number, path))
    if not numbered:
        raise InputError(
            f"{folder} has no frames; a movie has a TIFF for each frame, as in "
            f"t000.tif, t001.tif …{_suggest_files(folder)}"
        )
    numbered.sort()
    for (before, earlier), (number, path) in pairwise(numbered):
        if number == before:
            raise InputError(
                f"{earlier} and {path.name} have the same number; each frame needs its "
                "own"
            )
        if number != before + 1:
            raise InputError(
                f"{folder}: frame {before + 1} is missing, {path.name} follows on "
                f"{earlier.name}; frames are numbered one by one"
            )
    return tuple(path for _, path in numbered), numbered[0][0]


def _suggest_files(folder: Path) -> str:
    """Name what a folder without TIFFs has that may be meant."""
    entries = sorted(folder.iterdir())
    formats = {path.suffix.lower() for path in entries} & set(OTHER_FORMATS)
    if formats:
        return (
            f"; it has {', '.join(sorted(formats))}: save TIFF or Zarr instead "
            "(Cellpose does so with --save_tif)"
        )
    folders = [path.name for path in entries if path.is_dir() and list_tiffs(path)]
    if folders:
        return f"; there are TIFFs in folders within it: {', '.join(folders[:5])}"
    return ""


def open_folder(
    folder: Path, pattern: str = "", channel: int | None = None
) -> TiffFolder:
    """Open the frames in a folder.

    The headers of all files are read, to check that all have one shape and dtype.

    Parameters
    ----------
    folder : Path
    pattern : str
        Regular expression for the beginning of the names.
    channel : int, optional
        Channel to read, if files have several.
    """
    paths, first = list_frames(folder, pattern)
    shape, dtype, spacing = _read_frame_header(paths[0], channel)
    for path in paths[1:]:
        other_shape, other_dtype, _ = _read_frame_header(path, channel)
        if (other_shape, other_dtype) != (shape, dtype):
            raise InputError(
                f"{path} has shape {other_shape} and dtype {other_dtype}, expected "
                f"{shape} and {dtype} as in {paths[0].name}"
            )
    return TiffFolder(paths, shape, dtype, first, spacing, channel)


def _read_frame_header(
    path: Path, channel: int | None
) -> tuple[tuple[int, ...], np.dtype[Any], tuple[float, ...] | None]:
    """Shape, dtype and spacing of a file with one frame."""
    with _open_tiff(path, is_ome=False) as tiff:
        _check_directories(tiff, path)
        dtype = _check_header(tiff, path)
        shape = parse_layout(tiff, path, channel, stack=False).frame_shape
        return shape, dtype, _parse_spacing(tiff, len(shape))


def open_stack(path: Path, channel: int | None = None) -> TiffStack:
    """Open the frames of one file; its first axis is time, whatever its name.

    Parameters
    ----------
    path : Path
    channel : int, optional
        Channel to read, if the file has several.
    """
    with _open_tiff(path, _multifile=False) as tiff:
        _check_directories(tiff, path)
        _check_pages(tiff, path)
        dtype = _check_header(tiff, path, is_movie=True)
        layout = parse_layout(tiff, path, channel, stack=True)
        series = tiff.series[0]
        if series.dataoffset is None and any(page is None for page in series.pages):
            raise InputError(
                f"{path} is a part of a movie in several files; expected all frames "
                "in one, or a folder"
            )
        shape = layout.frame_shape
        return TiffStack(
            path=path,
            length=layout.n_frames,
            shape=shape,
            dtype=dtype,
            spacing=_parse_spacing(tiff, len(shape)),
            layout=layout,
            file=_SharedFile(path),
        )


def write_frame(path: Path, frame: NDArray[Any]) -> None:
    """Write a frame as a compressed TIFF, a page for each plane, as a whole.

    It need not be on the disk yet: all files of a result are, before it counts.
    """
    buffer = io.BytesIO()
    tifffile.imwrite(
        buffer, frame, compression="zlib", photometric="minisblack", metadata=None
    )
    write_bytes(path, buffer.getvalue(), durable=False)


@contextmanager
def raise_as_input_error(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong in reading a file into an InputError that names it."""
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
    except Exception as error:  # tifffile and its codecs raise nearly anything
        raise InputError(
            f"{path} cannot be read as TIFF ({type(error).__name__}: {error}); it is "
            "damaged, cut short or no TIFF"
        ) from error


@contextmanager
def _open_tiff(path: Path, **options: Any) -> Iterator[Any]:
    """Open a regular file."""
    with raise_as_input_error(path):
        if path.exists() and not path.is_file():  # a pipe would block
            kind = "a folder" if path.is_dir() else "no regular file"
            raise InputError(f"{path} is {kind}; expected a TIFF file")
        with tifffile.TiffFile(path, **options) as tiff:
            yield tiff


def _check_directories(tiff: Any, path: Path) -> None:
    """Refuse directories that lead in a circle, which tifffile would follow forever."""
    file = tiff.filehandle
    sizes = tiff.tiff
    offset = int(tiff.pages.first.offset)
    visited: set[int] = set()
    while 0 < offset < file.size:
        if offset in visited:
            raise InputError(
                f"{path}: its directory {len(visited) - 1} leads back to an earlier "
                "one; the file is damaged"
            )
        visited.add(offset)
        file.seek(offset)
        (n_tags,) = struct.unpack(sizes.tagnoformat, file.read(sizes.tagnosize))
        file.seek(offset + sizes.tagnosize + n_tags * sizes.tagsize)
        following = file.read(sizes.offsetsize)
        if len(following) < sizes.offsetsize:
            return  # cut short, which is noticed where the page is read
        (offset,) = struct.unpack(sizes.offsetformat, following)


def _check_header(tiff: Any, path: Path, is_movie: bool = False) -> np.dtype[Any]:
    """Return the dtype of a file whose header fits its size and the memory."""
    if len(tiff.series) != 1:
        shapes = ", ".join(str(series.shape) for series in tiff.series[:4])
        raise InputError(
            f"{path} has images of different shapes or dtypes ({shapes} …); expected "
            "equal pages"
        )
    series = tiff.series[0]
    shape = tuple(int(length) for length in series.shape)
    dtype = series.dtype
    if dtype is None or not shape or min(shape) < 1:
        raise InputError(f"{path} has no image: shape {shape} and dtype {dtype}")
    if dtype.kind not in "biuf":
        raise InputError(
            f"{path} has dtype {dtype}; expected integers, or real numbers in a raw "
            "image"
        )
    frame_shape = shape[1:] if is_movie and len(shape) > 2 else shape
    size = math.prod(frame_shape) * dtype.itemsize
    if size > MAX_FRAME_BYTES:
        raise InputError(
            f"{path} declares a frame of {size:,} bytes; clew reads up to "
            f"{MAX_FRAME_BYTES:,}"
        )
    ends = [0]
    for page in (series.pages[0], series.pages[-1]):
        if page is not None:
            ends.append(_find_data_end(page))
    if series.dataoffset is not None:
        ends.append(series.dataoffset + math.prod(shape) * dtype.itemsize)
    if max(ends) > tiff.filehandle.size:
        raise InputError(
            f"{path} is cut short: it has {tiff.filehandle.size:,} bytes, but its "
            f"header declares {max(ends):,}"
        )
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def _check_pages(tiff: Any, path: Path) -> None:
    """Compare every page with the first; tifffile trusts metadata instead."""
    first = tiff.pages[0]
    for number in range(1, len(tiff.pages)):
        page = tiff.pages.get(number, aspage=True)
        if (page.shape, page.dtype) != (first.shape, first.dtype):
            raise InputError(
                f"{path}: page {number} has shape {page.shape} and dtype {page.dtype}, "
                f"expected {first.shape} and {first.dtype} as of page 0"
            )
        end = _find_data_end(page)
        if end > tiff.filehandle.size:
            raise InputError(
                f"{path} is cut short after {tiff.filehandle.size:,} bytes; page "
                f"{number} ends at {end:,}"
            )


def _find_data_end(page: Any) -> int:
    """Position after the last byte of the pixels of a page."""
    parts = zip(page.dataoffsets, page.databytecounts, strict=True)
    return max((offset + count for offset, count in parts), default=0)


def _read_pages(tiff: Any, pages: Indices, shape: tuple[int, ...]) -> NDArray[Any]:
    """(k, …) pages of an open file."""
    series = tiff.series[0]
    first = int(pages[0])
    last = int(pages[-1])
    is_consecutive = last - first + 1 == len(pages)
    if series.dataoffset is None:
        key = slice(first, last + 1) if is_consecutive else pages.tolist()
        return np.asarray(tiff.asarray(series=0, key=key)).reshape(-1, *shape)
    # uncompressed in one piece, perhaps without a directory for each page
    size = math.prod(shape)
    dtype = series.dtype.newbyteorder(tiff.byteorder)
    runs = [(page, 1) for page in pages.tolist()]
    if is_consecutive:
        runs = [(first, len(pages))]
    parts = []
    for start, length in runs:
        tiff.filehandle.seek(series.dataoffset + start * size * dtype.itemsize)
        values = np.asarray(tiff.filehandle.read_array(dtype, length * size))
        parts.append(values.reshape(-1, *shape))
    return np.concatenate(parts)


def _check_unchanged(
    frame: NDArray[Any], movie: TiffFolder | TiffStack, path: Path
) -> NDArray[Any]:
    """Refuse a frame of a file that changed since the movie was opened."""
    if frame.shape != movie.shape or frame.dtype.newbyteorder("=") != movie.dtype:
        raise InputError(
            f"{path} has changed since the movie was opened: {frame.dtype} "
            f"{frame.shape} now"
        )
    return frame.astype(movie.dtype, copy=False)


def _parse_spacing(tiff: Any, ndim: int) -> tuple[float, ...] | None:
    """Size of a pixel along (z,) y, x from OME metadata, if all are positive."""
    description = tiff.pages[0].description or ""
    sizes = dict(re.findall(r'\bPhysicalSize([XYZ])="([-+.0-9eE]+)"', description))
    try:
        spacing = tuple(float(sizes[axis]) for axis in "ZYX"[-ndim:])
    except (KeyError, ValueError):
        return None
    return spacing if all(0 < size < math.inf for size in spacing) else None


@dataclass(frozen=True)
class Layout:
    """Axes of a file, those over its pages first, and what is read of them.

    Attributes
    ----------
    axes : str
        A letter for each axis.
    shape : tuple of int
    page_ndim : int
        Number of axes within a page.
    time : int or None
        The axis of time, if there is one.
    channel : int
        The channel that is read.
    """

    axes: str
    shape: tuple[int, ...]
    page_ndim: int
    time: int | None
    channel: int

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a frame, (y, x) or (z, y, x)."""
        dropped = (self.time, self.channel_axis)
        return tuple(n for axis, n in enumerate(self.shape) if axis not in dropped)

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return 1 if self.time is None else self.shape[self.time]

    @property
    def channel_axis(self) -> int | None:
        """The axis of channels, if there is one."""
        axes = [at for at, axis in enumerate(self.axes) if axis in CHANNELS]
        return axes[0] if axes else None

    @property
    def n_page_axes(self) -> int:
        """Number of axes over pages."""
        return len(self.shape) - self.page_ndim

    @property
    def page_shape(self) -> tuple[int, ...]:
        """Shape of a page."""
        return self.shape[self.n_page_axes :]

    def list_pages(self, t: int) -> Indices:
        """Numbers of the pages of frame `t`, in order."""
        index: list[int | slice] = [slice(None)] * self.n_page_axes
        if self.time is not None and self.time < self.n_page_axes:
            index[self.time] = t
        channel_axis = self.channel_axis
        if channel_axis is not None and channel_axis < self.n_page_axes:
            index[channel_axis] = self.channel
        shape = self.shape[: self.n_page_axes]
        numbers = np.arange(math.prod(shape)).reshape(shape)
        return np.atleast_1d(numbers[tuple(index)]).ravel()

    def assemble_frame(self, pages: NDArray[Any]) -> NDArray[Any]:
        """Make a frame of its pages, (number of pages, …)."""
        axis = self.channel_axis
        if axis is not None and axis >= self.n_page_axes:  # within each page
            axis_of_pages = axis - self.n_page_axes + 1
            pages = np.take(pages, self.channel, axis=axis_of_pages)
        return pages.reshape(self.frame_shape)


def parse_layout(tiff: Any, path: Path, channel: int | None, *, stack: bool) -> Layout:
    """Parse the axes of an open file.

    Parameters
    ----------
    tiff : tifffile.TiffFile
    path : Path
        For messages.
    channel : int or None
        Channel to read.
    stack : bool
        Whether the file holds a whole movie, or one frame of many.
    """
    series = tiff.series[0]
    shape = tuple(int(length) for length in series.shape)
    axes = str(series.axes)
    page_ndim = len(series.keyframe.shape)
    if not stack:
        axes, shape = _insert_ome_channels(tiff, path, axes, shape)
    for at in reversed(range(len(axes))):
        if axes[at] in CHANNELS and shape[at] == 1:
            page_ndim -= at >= len(axes) - page_ndim
            axes = axes[:at] + axes[at + 1 :]
            shape = shape[:at] + shape[at + 1 :]
    n_channel_axes = sum(axis in CHANNELS for axis in axes)
    if axes.replace("S", "")[-2:] != "YX" or n_channel_axes > 1:
        expected = "expected (y, x) last, and one axis of channels at most"
        _raise_axes(path, axes, shape, expected)
    n_channels = math.prod(
        n for axis, n in zip(axes, shape, strict=True) if axis in CHANNELS
    )
    channel = choose_channel(
        path,
        n_channels,
        channel,
        f"{axes} with the shape {shape}",
        f", and if the axis is {'time' if stack else 'depth'}, save the file with axes "
        "that say so",
    )
    others = [at for at, axis in enumerate(axes) if axis not in "YXCS"]
    time = None
    if stack and others:  # the first axis is time unless another is named so
        named = [at for at in others if axes[at] == "T"]
        time = named[0] if named else others[0]
    depth = [at for at in others if at != time]
    if len(depth) > 1 or any(axes[at] == "T" for at in depth):
        expected = (
            "(t, y, x) or (t, z, y, x)" if stack else "(y, x) or (z, y, x) a file"
        )
        _raise_axes(path, axes, shape, f"expected {expected}")
    return Layout(axes, shape, page_ndim, time, channel)


def _insert_ome_channels(
    tiff: Any, path: Path, axes: str, shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Add the channels that the OME metadata of one file of many declare.

    The metadata may describe all files at once.
    """
    page = tiff.pages[0]
    description = page.description or ""
    order = OME_ORDER.search(description)
    if order is None or len(axes) != 3 or axes[0] not in "IQ":
        return axes, shape
    tag = description[order.start() : description.find(">", order.start())]
    pairs = re.findall(r'\bSize([CZT])="([0-9]{1,9})"', tag)
    sizes = {axis: int(size) for axis, size in pairs}
    n_channels = sizes.get("C", 1)
    if n_channels in (1, int(page.samplesperpixel)):
        return axes, shape
    page_order = order[1][::-1]
    for subset in ("CZT", "CZ", "C", "Z"):
        names = [axis for axis in page_order if axis in subset]
        names = [axis for axis in names if sizes.get(axis, 1) > 1]
        lengths = tuple(sizes[axis] for axis in names)
        if math.prod(lengths) != shape[0]:
            continue
        if subset == "Z" and n_channels == sizes["Z"]:
            break  # the pages could be channels as well
        return "".join(names) + axes[1:], lengths + shape[1:]
    expected = (
        f"its OME metadata name {n_channels} channels, but not which pages are whose"
    )
    return _raise_axes(path, axes, shape, expected)


def _raise_axes(
    path: Path, axes: str, shape: tuple[int, ...], expected: str
) -> NoReturn:
    raise InputError(f"{path} has the axes {axes} with the shape {shape}; {expected}")
