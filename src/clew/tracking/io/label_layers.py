"""Label images that carry the tracks' ids, as TIFF masks of the Cell Tracking Challenge and as OME-Zarr.

A part of a movie is written by whoever has it, a worker of a cluster for example: each frame is a file, or chunks, of
its own, so that nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.util import map_array

from clew.errors import InputError
from clew.parallel import Executor, Progress
from clew.tracking.blocks.parts import PartReader, TrackedMovie
from clew.tracking.events import Event, Labels
from clew.tracking.io import tiff
from clew.tracking.io.names import LABELS
from clew.tracking.io.zarr import OME_AXES
from clew.tracking.lineage.tracks import Tracks, check_frame
from clew.tracking.movie import Movie
from clew.tracking.training.calibration import Expectation, expectation

CHUNK = {2: (512, 512), 3: (64, 256, 256)}
"""The largest chunk of a Zarr layer, a few megabytes as clew reads whole frames and viewers parts of them."""


@dataclass(frozen=True)
class EventCounts:
    """What a part of a movie, or all of it, counts."""

    kinds: NDArray[np.int64]
    """(7,) events of each kind."""
    wrong: float
    """Σ 1 − p over the events, of which p is the probability that one is right; NaN where they are not known."""
    variance: float
    """Σ p (1 − p)"""
    empty: tuple[int, ...] = ()
    """Frames without a cell."""

    @classmethod
    def sum(cls, parts: Sequence[EventCounts]) -> EventCounts:
        """Of all parts."""
        kinds = np.sum([part.kinds for part in parts], axis=0)
        empty = tuple(frame for part in parts for frame in part.empty)
        return cls(
            kinds,
            sum(part.wrong for part in parts),
            sum(part.variance for part in parts),
            empty,
        )

    def expected_wrong(self) -> Expectation | None:
        """How many events are wrong; None where probabilities are not known."""
        return (
            None
            if np.isnan(self.wrong)
            else expectation(self.wrong, self.variance, int(self.kinds.sum()))
        )


@dataclass(frozen=True)
class _PartWriter:
    """Writes the label images of a part, and counts its events."""

    folder: Path
    n_frames: int
    dtype: np.dtype[Any]
    tiffs: bool
    layer: bool

    def __call__(self, item: tuple[PartReader, Movie | None, Tracks]) -> EventCounts:
        reader, movie, tracks = item
        part = reader.read()
        if movie is not None:
            for t in range(part.frames[0], part.frames[1] + 1):
                rows = slice(*np.searchsorted(part.nodes.frame, [t, t + 1]))
                self._write(
                    t,
                    relabel_frame(
                        movie,
                        t,
                        part.nodes.label[rows],
                        part.track[rows],
                        tracks,
                        self.dtype,
                    ),
                )
        kinds = np.bincount(part.events.event, minlength=len(Event))
        p = (
            np.full(len(part.events), np.nan)
            if part.probability is None
            else part.probability
        )
        empty = np.setdiff1d(
            np.arange(part.frames[0], part.frames[1] + 1), part.nodes.frame
        )
        return EventCounts(
            kinds,
            float((1 - p).sum()),
            float((p * (1 - p)).sum()),
            tuple(empty.tolist()),
        )

    def _write(self, t: int, mask: NDArray[Any]) -> None:
        if self.tiffs:
            digits = max(3, len(str(self.n_frames - 1)))
            tiff.write_frame(self.folder / f"mask{t:0{digits}}.tif", mask)
        if self.layer:
            import zarr  # it takes a second to load

            with zarr.config.set({"array.write_empty_chunks": True}):
                zarr.open_array(self.folder / LABELS, path="0", mode="r+")[t] = mask


def write_label_images(
    folder: Path,
    movie: Movie | None,
    tracked: TrackedMovie,
    executor: Executor,
    progress: Progress | None = None,
    *,
    tiffs: bool = False,
    layer: bool = False,
) -> EventCounts:
    """Masks in TIFF, a Zarr layer, or both, of all parts of a movie; and what it counts."""
    readers, tracks, n = tracked.readers(), tracked.tracks, tracked.n_frames
    if movie is not None and movie.n_frames != n:
        raise InputError(
            f"the lineage is of {n} frames, and {movie.name} has {movie.n_frames}"
        )
    pixels = movie if tiffs or layer else None
    largest = int(tracks.id.max(initial=0))
    dtype = np.dtype(np.uint16 if largest <= np.iinfo(np.uint16).max else np.uint32)
    if layer and pixels is not None:
        _make_layer(folder / LABELS, pixels, dtype)
    items: list[Any] = []
    for reader in readers:
        first, last = reader.frames
        alive = tracks[(tracks.begin <= last) & (tracks.end >= first)]
        items.append(
            (
                reader,
                None if pixels is None else pixels.window(first, min(last, n - 1)),
                alive,
            )
        )
    told = None if progress is None else lambda done, of: progress(done * n // of, n)
    return EventCounts.sum(
        list(executor.map(_PartWriter(folder, n, dtype, tiffs, layer), items, told))
    )


def relabel_frame(
    movie: Movie,
    t: int,
    label: Labels,
    track: Labels,
    tracks: Tracks,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """The label image of frame `t` with tracks instead of labels; `tracks` are those alive, to check it by."""
    mask = movie.label(t)
    found: NDArray[Any] = map_array(mask, label.astype(mask.dtype), track.astype(dtype))
    if np.any((found == 0) & (mask != 0)):
        strange = mask[(found == 0) & (mask != 0)][0]
        raise InputError(
            f"frame {t} of {movie.name} has the label {strange}, which the lineage lacks"
        )
    check_frame(tracks, t, np.flatnonzero(np.bincount(found.ravel())), "the lineage")
    return found


def _make_layer(path: Path, movie: Movie, dtype: np.dtype[Any]) -> None:
    """An OME-Zarr (0.5) of one resolution, without pixels yet."""
    axes = ["t", *OME_AXES[-movie.ndim :]]
    kinds = {"t": "time"}
    scale = {"type": "scale", "scale": [1.0, *map(float, movie.spacing)]}
    image = {
        "name": "tracks",
        "axes": [{"name": axis, "type": kinds.get(axis, "space")} for axis in axes],
        "datasets": [{"path": "0", "coordinateTransformations": [scale]}],
    }
    import zarr

    group = zarr.create_group(
        path,
        attributes={
            "ome": {"version": "0.5", "multiscales": [image], "image-label": {}}
        },
    )
    chunks = tuple(
        min(size, most)
        for size, most in zip(movie.shape, CHUNK[movie.ndim], strict=True)
    )
    group.create_array(
        "0",
        shape=(movie.n_frames, *movie.shape),
        chunks=(1, *chunks),
        dtype=dtype,
        dimension_names=axes,
        fill_value=0,
    )
