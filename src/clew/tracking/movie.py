"""Movies: label images, raw images if there are any, and the size of a pixel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, MissingMasks
from clew.tracking.detections import MAX_FRAMES
from clew.tracking.frames import ArrayFrames, Excerpt, Frames, take_window
from clew.tracking.io import tiff
from clew.tracking.io.formats import HDF5, is_table, is_zarr
from clew.tracking.io.result_folder import (
    refuse_interrupted_write,
    warn_if_folder_changed,
)
from clew.utils.validation import (
    check_bool,
    check_floats,
    check_frame,
    check_frame_slice,
    check_int,
    check_path,
    printable,
    short_repr,
)

if TYPE_CHECKING:
    from clew.tracking.user_columns import UserColumns

MASKS = ("{}_ST/SEG", "{}_SEG", "{}_RES", "{}_GT/SEG", "{}_GT/TRA")
"""Folders of masks beside a sequence of the Cell Tracking Challenge, best first;
clew writes `{}_SEG`."""
FRAMES_ATTRIBUTES = ("shape", "dtype", "spacing", "first", "__len__", "__getitem__")


@dataclass(frozen=True)
class Movie:
    """A segmented movie; frames are read on demand and never kept in memory.

    Attributes
    ----------
    name : str
    labels : Frames of integers
        0 is background, every other value a cell of that frame.
    images : Frames or None
        Raw intensities of the same shape.
    spacing : tuple of float
        Size of a pixel along (z,) y, x.
    source : str
        Which files were chosen, in words.
    folder : Path or None
        Folder that holds the movie.
    excerpt : range or None
        Frames of a longer movie, by which files of annotations count; None for a
        whole one.
    user_columns : UserColumns or None
        Numbers of cells and links that came with the movie.
    """

    name: str
    labels: Frames
    images: Frames | None
    spacing: tuple[float, ...]
    source: str = ""
    folder: Path | None = None
    excerpt: range | None = None
    user_columns: UserColumns | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if not 1 <= len(self.labels) <= MAX_FRAMES:
            raise InputError(
                f"{self.name} has {len(self.labels):,} frames; expected 1 to "
                f"{MAX_FRAMES:,}"
            )
        if self.labels.dtype.kind not in "iu":
            raise InputError(
                f"the labels of {self.name} have dtype {self.labels.dtype}; expected "
                "integers, a number for each cell and 0 for the background; floats "
                "that are whole numbers can be saved again as uint16 or uint32"
            )
        if self.ndim not in (2, 3):
            raise InputError(
                f"the frames of {self.name} have the shape {self.shape}; expected "
                "(y, x) or (z, y, x)"
            )
        if self.images is not None:
            size = (len(self.images), self.images.shape)
            if size != (self.n_frames, self.shape):
                raise InputError(
                    f"{self.name} has {self.n_frames} label images of shape "
                    f"{self.shape}, but {len(self.images)} raw images of shape "
                    f"{self.images.shape}; both must agree"
                )
        is_positive = all(0 < size < math.inf for size in self.spacing)
        if len(self.spacing) != self.ndim or not is_positive:
            axes = ", ".join("zyx"[-self.ndim :])
            raise InputError(
                f"spacing is {self.spacing}; expected {self.ndim} positive numbers, "
                f"for {axes}"
            )

    def _check_types(self) -> None:
        """Refuse anything but frames; `from_arrays` takes arrays and lists."""
        for name, frames in (("labels", self.labels), ("images", self.images)):
            if frames is None and name == "images":
                continue
            if not all(hasattr(frames, attribute) for attribute in FRAMES_ATTRIBUTES):
                raise InputError(
                    f"{name} is {short_repr(frames)}; expected frames, as "
                    "Movie.from_arrays makes them"
                )
        if not isinstance(self.name, str) or not isinstance(self.excerpt, range | None):
            raise InputError(
                "a movie has a name, and as its excerpt a range of frames or None"
            )
        spacing = check_floats(self.spacing, "spacing").ravel().tolist()
        object.__setattr__(self, "spacing", tuple(spacing))

    @classmethod
    def from_arrays(
        cls,
        labels: Any,
        images: Any = None,
        spacing: Sequence[float] | None = None,
        name: str = "array",
    ) -> Self:
        """Make a movie of arrays (t, …), lists of images, or Zarr arrays.

        Parameters
        ----------
        labels : array-like of int of shape (t, y, x) or (t, z, y, x)
        images : array-like of the same shape, optional
        spacing : sequence of float, optional
            Size of a pixel along (z,) y, x; 1 by default.
        name : str
        """
        masks = ArrayFrames.from_data(labels, "labels")
        raw = None if images is None else ArrayFrames.from_data(images, "images")
        size: Any = (1.0,) * len(masks.shape) if spacing is None else spacing
        return cls(name, masks, raw, size, "arrays in memory")

    def __repr__(self) -> str:
        size = " × ".join(map(str, self.shape))
        images = "with" if self.images is not None else "without"
        return f"<Movie {self.name}: {self.n_frames} frames of {size}, {images} images>"

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame, (z,) y, x."""
        return self.labels.shape

    @property
    def ndim(self) -> int:
        """Dimensions of space, 2 or 3."""
        return len(self.shape)

    @property
    def first(self) -> int:
        """Number of the first frame in the whole movie."""
        return 0 if self.excerpt is None else self.excerpt.start

    def window(self, first: int, last: int) -> Movie:
        """Frames `first` to `last` only, with their numbers, to send elsewhere."""
        labels = take_window(self.labels, first, last)
        images = self.images
        if images is not None:
            images = take_window(images, first, last)
        return replace(self, labels=labels, images=images)

    def label(self, t: int) -> NDArray[Any]:
        """Label image of frame `t`."""
        frame = self.labels[check_frame(t, 0, self.n_frames - 1, self.name)]
        if frame.dtype.kind == "i" and frame.min(initial=0) < 0:
            raise InputError(
                f"frame {t} of {self.name} has the label {frame.min()}; labels must "
                "not be negative"
            )
        # the largest integer is left for labels of new cells
        is_wide = frame.dtype.itemsize == 8
        if is_wide and frame.max(initial=0) >= np.iinfo(np.int64).max:
            raise InputError(
                f"frame {t} of {self.name} has the label {frame.max()}; labels must be "
                "less than 2**63 - 1"
            )
        if frame.dtype == np.uint64:
            # NumPy computes with uint64 and other integers in floats
            return frame.astype(np.int64)
        return frame

    def image(self, t: int) -> NDArray[Any] | None:
        """Raw image of frame `t`, if there is one."""
        if self.images is None:
            return None
        return self.images[check_frame(t, 0, self.n_frames - 1, self.name)]

    def __len__(self) -> int:
        return self.n_frames

    def __getitem__(self, frames: slice) -> Movie:
        """Some of the frames, counted from 0."""
        which = check_frame_slice(frames, self.n_frames, "frames")
        images = None if self.images is None else Excerpt(self.images, which)
        excerpt = which if self.excerpt is None else self.excerpt[frames]
        labels = Excerpt(self.labels, which)
        columns = self.user_columns
        if columns is not None:
            columns = columns.select_frames(which)
        return replace(
            self, labels=labels, images=images, excerpt=excerpt, user_columns=columns
        )


def open_frames(
    path: str | Path,
    *,
    channel: int | None = None,
    sparse: bool = False,
    masks: bool = False,
) -> Frames:
    """Open a folder of TIFFs, a TIFF stack, a Zarr array or an OME-Zarr group.

    Parameters
    ----------
    path : str or Path
    channel : int, optional
        Channel to read, from 0, if there are several.
    sparse : bool
        Whether empty chunks of a Zarr array were left out.
    masks : bool
        Whether to read the masks of a folder in which Cellpose wrote masks beside
        images.
    """
    path = check_path(path, "path")
    if channel is not None:
        channel = check_int(channel, "channel", 0)
    check_bool(sparse, "sparse")
    if not path.exists():
        raise InputError(
            f"{path} does not exist; expected a folder of TIFFs, a TIFF stack or a "
            "Zarr array"
        )
    if path.is_dir():
        warn_if_folder_changed(path)
        if is_zarr(path):
            from clew.tracking.io.zarr import open_zarr

            return open_zarr(path, channel, sparse=sparse)
        pattern = tiff.match_frame_names(path, masks)
        if masks and not pattern:
            unread = tiff.describe_unread_masks(path)
            if unread:
                raise InputError(f"{path} has no label images to read: {unread}")
        return tiff.open_folder(path, pattern, channel)
    if path.suffix.lower() in HDF5.suffixes:
        from clew.tracking.io.hdf5_frames import open_hdf5_frames

        return open_hdf5_frames(path, channel)
    if is_table(path):
        raise InputError(
            f"{path} is a table; expected images. A table of detections is given in "
            "place of a movie"
        )
    if path.suffix.lower() not in tiff.SUFFIXES:
        raise InputError(
            f"{path} is of an unknown kind; expected a folder of TIFFs, a .tif stack or "
            "a Zarr array"
        )
    return tiff.open_stack(path, channel)


def open_movie(
    path: str | Path | None = None,
    *,
    labels: str | Path | None = None,
    images: str | Path | None = None,
    spacing: Sequence[float] | None = None,
    channel: int | None = None,
    sparse: bool = False,
) -> Movie:
    """Open a movie from disk; its frames are counted from 0.

    Parameters
    ----------
    path : str or Path, optional
        Folder of images of the Cell Tracking Challenge, such as …/01. Its masks are
        searched beside it, in the order of `MASKS`; folders that lack a frame are
        skipped.
    labels : str or Path, optional
        Label images, in place of the masks beside `path`.
    images : str or Path, optional
        Raw images to `labels`, if `path` is not given.
    spacing : sequence of float, optional
        Size of a pixel along (z,) y, x; by default from OME metadata, else 1.
    channel : int, optional
        Channel of the raw images, if there are several.
    sparse : bool
        Whether empty chunks of Zarr arrays were left out.
    """
    path = None if path is None else check_path(path, "path")
    labels = None if labels is None else check_path(labels, "labels")
    images = None if images is None else check_path(images, "images")
    if channel is not None:
        channel = check_int(channel, "channel", 0)
    if path is not None and images is not None:
        raise InputError(
            "images is for a movie that is opened by its labels; a sequence folder has "
            "its images in it"
        )
    raw: Frames | None
    if labels is not None:
        folder = (labels if path is None else path).absolute()
        masks = open_frames(labels, sparse=sparse, masks=True)
        source = f"labels from {labels}{_describe_time_axis(masks)}, no images"
        raw = None
        image_path = images if path is None else path
        if image_path is not None:
            raw = open_frames(image_path, channel=channel, sparse=sparse)
            source = source.removesuffix("no images")
            source += f"images from {image_path}{_describe_time_axis(raw)}"
    elif path is not None:
        folder = path.absolute()
        raw, masks, source = _open_sequence(folder, channel)
    else:
        raise InputError(
            "a movie is opened by the path of a sequence folder, by labels (and "
            "images), or by both"
        )
    name = folder.stem if path is None else f"{folder.parent.name}-{folder.name}"
    size: Any = spacing
    if size is None and raw is not None:
        size = raw.spacing
    if size is None:
        size = masks.spacing or (1.0,) * len(masks.shape)
    return Movie(printable(name), masks, raw, size, printable(source), folder.parent)


def _describe_time_axis(frames: Frames) -> str:
    """Note that an axis of depth is taken as time."""
    if not isinstance(frames, tiff.TiffStack) or frames.layout.time is None:
        return ""
    is_depth = frames.layout.axes[frames.layout.time] == "Z"
    return " (its axis Z is taken as time)" if is_depth else ""


def _open_sequence(folder: Path, channel: int | None) -> tuple[Frames, Frames, str]:
    """Open the images and masks of a sequence; also describe the choice."""
    refuse_interrupted_write(folder.parent)
    names = [pattern.format(folder.name) for pattern in MASKS]
    candidates = [folder.parent / name for name in names]
    _check_sequence_folder(folder, candidates, ", ".join(names))
    pattern = tiff.match_frame_names(folder, masks=False)
    images = tiff.open_folder(folder, pattern, channel)
    mask_pattern = tiff.match_frame_names(folder, masks=True)
    if mask_pattern:
        masks = tiff.open_folder(folder, mask_pattern)
        return images, masks, f"images and masks (…_cp_masks) from {folder}"
    skipped: list[str] = []
    for mask_folder in candidates:
        if not mask_folder.is_dir():
            continue
        refuse_interrupted_write(mask_folder)
        name = mask_folder.relative_to(folder.parent)
        reason = _find_missing_frames(mask_folder, images)
        if reason is not None:
            skipped.append(f"{name} skipped: {reason}")
            continue
        warn_if_folder_changed(mask_folder)
        note = f" ({'; '.join(skipped)})" if skipped else ""
        source = f"images from {folder}, masks from {name}{note}"
        return images, tiff.open_folder(mask_folder), source
    unread = tiff.describe_unread_masks(folder)
    if unread:
        skipped.append(unread)
    reasons = f": {'; '.join(skipped)}" if skipped else ""
    # masks that cannot be read are not to be replaced by others
    error = InputError if skipped else MissingMasks
    raise error(
        f"no masks beside {folder}{reasons}; expected one of {', '.join(names)}. If the "
        "files in it are masks themselves, give the folder as labels; if there are "
        "none, find cells first: clew detect"
    )


def _check_sequence_folder(folder: Path, masks: list[Path], names: str) -> None:
    """Refuse anything but a folder of images; `names` are those of `masks`."""
    if folder.is_file():
        raise InputError(
            f"{folder} is a file, not a sequence folder; give label images by --labels, "
            "and the raw images to them by --images (labels=… and images=… in Python)"
        )
    if not folder.is_dir():
        existing = [mask for mask in masks if mask.is_dir()]
        hint = f"; {existing[0]} exists: give it as labels" if existing else ""
        raise InputError(
            f"{folder} does not exist; a sequence folder has the images t000.tif, "
            f"t001.tif … in it, and beside it masks in one of {names}{hint}"
        )
    if is_zarr(folder):
        raise InputError(
            f"{folder} is a Zarr store, not a sequence folder; give it as labels (or as "
            "images)"
        )


def _find_missing_frames(folder: Path, images: tiff.TiffFolder) -> str | None:
    """Why a folder of masks does not have all frames; None if it has."""
    numbers = {tiff.parse_frame_number(path) for path in tiff.list_tiffs(folder)}
    if not numbers:
        return "it has no frames"
    missing = set(range(images.first, images.first + len(images))) - numbers
    if not missing:
        return None
    first = f"{min(missing)}{' …' if len(missing) > 1 else ''}"
    return f"it lacks {len(missing)} of {len(images)} frames ({first})"
