"""A movie: label images, perhaps the raw images they came from, and the size of a pixel. Frames are read lazily."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.detections import MAX_FRAMES
from clew.tracking.frames import ArrayFrames, Excerpt, Frames, take_window
from clew.tracking.io import tiff, zarr
from clew.tracking.io.manifest import warn_if_folder_changed
from clew.tracking.io.staging import refuse_interrupted_write
from clew.tracking.io.tables import is_table
from clew.tracking.lineage.track_faults import printable
from clew.utils.validation import (
    check_bool,
    check_floats,
    check_frame,
    check_frame_slice,
    check_int,
    check_path,
    short_repr,
)

MASKS = ("{}_ST/SEG", "{}_SEG", "{}_RES", "{}_GT/SEG", "{}_GT/TRA")
"""Where masks lie beside the images of a Cell Tracking Challenge sequence, best first; `{}_SEG` is clew's own."""


@dataclass(frozen=True)
class Movie:
    """A segmented movie. It keeps no frame in memory, and only paths when it is pickled."""

    name: str
    labels: Frames
    """Integers: 0 is background, every other value a cell of that frame."""
    images: Frames | None
    """Raw intensities of the same shape, if there are any."""
    spacing: tuple[float, ...]
    """The size of a pixel along (z,) y, x."""
    source: str = ""
    """In words, which files were chosen."""
    folder: Path | None = None
    """The folder that holds the movie."""
    excerpt: range | None = None
    """Which frames of a longer movie these are; None for a whole one. Files of annotations have the longer one's."""

    def __post_init__(self) -> None:
        self._check_types()
        if not 1 <= len(self.labels) <= MAX_FRAMES:
            raise InputError(
                f"{self.name} has {len(self.labels):,} frames; expected 1 to {MAX_FRAMES:,}"
            )
        if self.labels.dtype.kind not in "iu":
            raise InputError(
                f"the labels of {self.name} have dtype {self.labels.dtype}; expected integers, a number for each cell "
                "and 0 for the background; floats that are whole numbers can be saved again as uint16 or uint32"
            )
        if self.ndim not in (2, 3):
            raise InputError(
                f"the frames of {self.name} have the shape {self.shape}; expected (y, x) or (z, y, x)"
            )
        if self.images is not None and (len(self.images), self.images.shape) != (
            self.n_frames,
            self.shape,
        ):
            raise InputError(
                f"{self.name} has {self.n_frames} label images of shape {self.shape}, but {len(self.images)} raw "
                f"images of shape {self.images.shape}; there is one for each, of the same shape"
            )
        if len(self.spacing) != self.ndim or not all(
            0 < size < math.inf for size in self.spacing
        ):
            raise InputError(
                f"spacing is {self.spacing}; a movie in {self.ndim} dimensions has {self.ndim} positive numbers, for "
                f"{', '.join('zyx'[-self.ndim :])}"
            )

    def _check_types(self) -> None:
        """Refuse what are no frames and no sizes; `from_arrays` takes arrays and lists of any kind."""
        for what, given in (("labels", self.labels), ("images", self.images)):
            alike = all(
                hasattr(given, name)
                for name in (
                    "shape",
                    "dtype",
                    "spacing",
                    "first",
                    "__len__",
                    "__getitem__",
                )
            )
            if not alike and not (given is None and what == "images"):
                raise InputError(
                    f"{what} is {short_repr(given)}; expected frames, as Movie.from_arrays makes them"
                )
        if not isinstance(self.name, str) or not isinstance(self.excerpt, range | None):
            raise InputError(
                "a movie has a name, and as its excerpt a range of frames or None"
            )
        object.__setattr__(
            self,
            "spacing",
            tuple(check_floats(self.spacing, "spacing").ravel().tolist()),
        )

    @classmethod
    def from_arrays(
        cls,
        labels: Any,
        images: Any = None,
        spacing: Sequence[float] | None = None,
        name: str = "array",
    ) -> Self:
        """A movie of anything that is indexed by frame: arrays (t, …), lists of images, Zarr arrays."""
        masks = ArrayFrames.from_data(labels, "labels")
        raw = None if images is None else ArrayFrames.from_data(images, "images")
        size: Any = (1.0,) * len(masks.shape) if spacing is None else spacing
        return cls(name, masks, raw, size, "arrays in memory")

    @property
    def n_frames(self) -> int:
        """How many frames there are."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame, (z,) y, x."""
        return self.labels.shape

    @property
    def ndim(self) -> int:
        """2 or 3: time does not count."""
        return len(self.shape)

    @property
    def first(self) -> int:
        """The number of its first frame in the whole movie."""
        return 0 if self.excerpt is None else self.excerpt.start

    def window(self, first: int, last: int) -> Movie:
        """The same movie with frames `first` to `last` alone, under their numbers: small to send to another process."""
        images = None if self.images is None else take_window(self.images, first, last)
        return replace(
            self, labels=take_window(self.labels, first, last), images=images
        )

    def label(self, t: int) -> NDArray[Any]:
        """The label image of frame t."""
        frame = self.labels[check_frame(t, 0, self.n_frames - 1, self.name)]
        if frame.dtype.kind == "i" and frame.min(initial=0) < 0:
            raise InputError(
                f"frame {t} of {self.name} has the label {frame.min()}; labels are not negative"
            )
        if (
            frame.dtype == np.uint64
        ):  # NumPy computes with it and other integers in floats
            if frame.max(initial=0) > np.iinfo(np.int64).max:
                raise InputError(
                    f"frame {t} of {self.name} has the label {frame.max()}; labels are less than 2**63"
                )
            return frame.astype(np.int64)
        return frame

    def image(self, t: int) -> NDArray[Any] | None:
        """The raw image of frame t, if there are any."""
        return (
            None
            if self.images is None
            else self.images[check_frame(t, 0, self.n_frames - 1, self.name)]
        )

    def __len__(self) -> int:
        return self.n_frames

    def __getitem__(self, frames: slice) -> Movie:
        """Some of the frames, counted from 0 again."""
        which = check_frame_slice(frames, self.n_frames, "frames")
        images = None if self.images is None else Excerpt(self.images, which)
        of_whole = which if self.excerpt is None else self.excerpt[frames]
        return replace(
            self, labels=Excerpt(self.labels, which), images=images, excerpt=of_whole
        )


def open_frames(
    path: str | Path,
    *,
    channel: int | None = None,
    sparse: bool = False,
    masks: bool = False,
) -> Frames:
    """Images from a path: a folder of TIFFs, a TIFF stack, a Zarr array or OME-Zarr group.

    Where there are several channels, `channel` is the one to take, from 0 on. `sparse` says that a Zarr array lacks the
    chunks in which nothing is, and `masks` that these are meant in a folder in which Cellpose put them beside images.
    """
    where = check_path(path, "path")
    channel = None if channel is None else check_int(channel, "channel", 0)
    check_bool(sparse, "sparse")
    if not where.exists():
        raise InputError(
            f"{where} does not exist; a folder of TIFFs, a TIFF stack or a Zarr array is looked for"
        )
    if where.is_dir():
        warn_if_folder_changed(where)
        if zarr.is_zarr(where):
            return zarr.open_zarr(where, channel, sparse=sparse)
        which = tiff.match_frame_names(where, masks)
        if masks and not which and (instead := tiff.describe_unread_masks(where)):
            raise InputError(f"{where} has no label images that can be read: {instead}")
        return tiff.open_folder(where, which, channel)
    if is_table(where):
        raise InputError(
            f"{where} is a table; images are looked for here, and a table of detections is opened as such"
        )
    if where.suffix.lower() not in tiff.SUFFIXES:
        raise InputError(
            f"{where} is of an unknown kind; expected a folder of TIFFs, a .tif stack or a Zarr array"
        )
    return tiff.open_stack(where, channel)


def open_movie(
    path: str | Path | None = None,
    *,
    labels: str | Path | None = None,
    images: str | Path | None = None,
    spacing: Sequence[float] | None = None,
    channel: int | None = None,
    sparse: bool = False,
) -> Movie:
    """A movie from disk: the folder of a Cell Tracking Challenge sequence, or `labels` (and `images`) from anywhere.

    For a sequence …/01 of images, the masks are looked for beside it, in the order of `MASKS`; a folder that lacks a
    frame is passed over. With `labels` as well, those are its masks. Frames count from 0, whatever number the first
    file has. Without `spacing`, a pixel is as large as OME metadata say, or 1. `channel` is the one of the raw images
    to use where they have several, and `sparse` says that Zarr arrays lack the chunks in which nothing is.
    """
    raw: Frames | None
    path, labels, images = (
        None if given is None else check_path(given, name)
        for name, given in (("path", path), ("labels", labels), ("images", images))
    )
    channel = None if channel is None else check_int(channel, "channel", 0)
    if path is not None and images is not None:
        raise InputError(
            "images is for a movie that is opened by its labels; a sequence folder has its images in it"
        )
    if labels is not None:
        folder = Path(labels if path is None else path).absolute()
        masks = open_frames(labels, sparse=sparse, masks=True)
        seen = images if path is None else path
        raw = (
            None if seen is None else open_frames(seen, channel=channel, sparse=sparse)
        )
        source = f"labels from {labels}{_time_of(masks)}" + (
            ", no images" if raw is None else f", images from {seen}{_time_of(raw)}"
        )
    elif path is not None:
        folder = Path(path).absolute()
        raw, masks, source = _sequence(folder, channel)
    else:
        raise InputError(
            "a movie is opened by the path of a sequence folder, by labels (and images), or by both"
        )
    name = folder.stem if path is None else f"{folder.parent.name}-{folder.name}"
    if spacing is not None:
        size: Any = spacing
    else:
        of_images = None if raw is None else raw.spacing
        size = of_images or masks.spacing or (1.0,) * len(masks.shape)
    return Movie(printable(name), masks, raw, size, printable(source), folder.parent)


def _time_of(frames: Frames) -> str:
    """What is taken as time where a file calls it depth."""
    layout = frames.layout if isinstance(frames, tiff.TiffStack) else None
    is_depth = (
        layout is not None
        and layout.time is not None
        and layout.axes[layout.time] == "Z"
    )
    return " (its axis Z is taken as time)" if is_depth else ""


def _sequence(folder: Path, channel: int | None) -> tuple[Frames, Frames, str]:
    """Images, masks and the choice of masks in words."""
    refuse_interrupted_write(folder.parent)
    candidates = [folder.parent / pattern.format(folder.name) for pattern in MASKS]
    looked_for = ", ".join(pattern.format(folder.name) for pattern in MASKS)
    if folder.is_file():
        raise InputError(
            f"{folder} is a file, not a sequence folder; give label images by --labels, and the raw images to them by "
            "--images (labels=… and images=… in Python)"
        )
    if not folder.is_dir():
        hint = next(
            (
                f"; {mask} exists: give it as labels"
                for mask in candidates
                if mask.is_dir()
            ),
            "",
        )
        raise InputError(
            f"{folder} does not exist; a sequence folder has the images t000.tif, t001.tif … in it, and beside it "
            f"masks in one of {looked_for}{hint}"
        )
    if zarr.is_zarr(folder):
        raise InputError(
            f"{folder} is a Zarr store, not a sequence folder; give it as labels (or as images)"
        )
    images = tiff.open_folder(
        folder, tiff.match_frame_names(folder, masks=False), channel
    )
    if beside := tiff.match_frame_names(folder, masks=True):
        return (
            images,
            tiff.open_folder(folder, beside),
            f"images and masks (…_cp_masks) from {folder}",
        )
    passed_over: list[str] = []
    for mask in candidates:
        if not mask.is_dir():
            continue
        refuse_interrupted_write(mask)
        if (reason := _incomplete(mask, images)) is None:
            warn_if_folder_changed(mask)
            masks = tiff.open_folder(mask)
            note = f" ({'; '.join(passed_over)})" if passed_over else ""
            return (
                images,
                masks,
                f"images from {folder}, masks from {mask.relative_to(folder.parent)}{note}",
            )
        passed_over.append(f"{mask.relative_to(folder.parent)} passed over: {reason}")
    if instead := tiff.describe_unread_masks(folder):
        passed_over.append(instead)
    told = f": {'; '.join(passed_over)}" if passed_over else ""
    raise InputError(
        f"no masks beside {folder}{told}; looked for {looked_for}. If the files in it are masks themselves, give the "
        "folder as labels; if there are none, detect cells first"
    )


def _incomplete(folder: Path, images: tiff.TiffFolder) -> str | None:
    """Why a folder of masks has not one frame for each image, or None if it has."""
    numbers = {tiff.parse_frame_number(path) for path in tiff.list_tiffs(folder)}
    lacking = set(range(images.first, images.first + len(images))) - numbers
    if not lacking:
        return None
    which = f"{min(lacking)}{' …' if len(lacking) > 1 else ''}"
    return (
        f"it lacks {len(lacking)} of {len(images)} frames ({which})"
        if numbers
        else "it has no frames"
    )
