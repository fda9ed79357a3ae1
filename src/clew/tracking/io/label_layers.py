"""Label images that carry track ids, as TIFF masks of the challenge or as OME-Zarr.

Each part of a movie is written by the worker that has it: a frame is one file,
or several chunks, so that no worker waits for another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.util import map_array

from clew.errors import InputError
from clew.learning.task import Array
from clew.parallel import Executor, Progress
from clew.tracking.events import LINEAGE_KINDS, Labels
from clew.tracking.io import tiff
from clew.tracking.io.names import LABELS
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.lineage import (
    RECOVERED,
    LineagePart,
    PartReader,
    TrackedMovie,
)
from clew.tracking.lineage.tracks import Tracks, check_frame
from clew.tracking.movie import Movie
from clew.tracking.training.calibration import Expectation, expectation

MIN_CELLS = 3
"""Cells of a frame that would not all stay exactly where they are by chance."""
MAX_CHUNK = {2: (512, 512), 3: (64, 256, 256)}
"""Largest chunk in Zarr: a few megabytes, since viewers read parts of frames."""


@dataclass(frozen=True)
class EventCounts:
    """Counts over a movie or a part of it.

    Attributes
    ----------
    kinds : ndarray of shape (7,)
        Events of each kind.
    wrong : float
        Σ 1 − p over the events, with the probability p that each is right; NaN if
        it is not known.
    variance : float
        Σ p (1 − p).
    empty : tuple of int
        Frames without a cell.
    digests : tuple of bytes
        Digest of the positions in each frame; empty for few cells, which may stay
        where they are.
    """

    kinds: NDArray[np.int64]
    wrong: float
    variance: float
    empty: tuple[int, ...] = ()
    digests: tuple[bytes, ...] = ()

    @classmethod
    def sum(cls, parts: Sequence[EventCounts]) -> EventCounts:
        """Counts over all parts."""
        return cls(
            kinds=np.sum([part.kinds for part in parts], axis=0),
            wrong=sum(part.wrong for part in parts),
            variance=sum(part.variance for part in parts),
            empty=tuple(frame for part in parts for frame in part.empty),
            digests=tuple(digest for part in parts for digest in part.digests),
        )

    def find_repeated_frames(self) -> list[int]:
        """Frames whose cells are exactly where those of the frame before are."""
        pairs = enumerate(pairwise(self.digests), start=1)
        return [t for t, (before, own) in pairs if own and own == before]

    def expected_wrong(self) -> Expectation | None:
        """Expected number of wrong events; None if probabilities are not known."""
        if np.isnan(self.wrong):
            return None
        return expectation(self.wrong, self.variance, int(self.kinds.sum()))


def _count_events(part: LineagePart) -> EventCounts:
    """Count the events and the empty frames of a part."""
    right = part.probability
    if right is None:
        right = np.full(len(part.events), np.nan)
    first, last = part.frames
    nodes = part.nodes
    is_given = nodes.columns.get(RECOVERED, np.zeros(len(nodes.frame))) == 0
    empty = np.setdiff1d(np.arange(first, last + 1), nodes.frame[is_given])
    starts = np.searchsorted(part.nodes.frame, np.arange(first, last + 2))
    digests = [
        _digest_positions(part.nodes.position[begin:end])
        for begin, end in pairwise(starts.tolist())
    ]
    return EventCounts(
        kinds=np.bincount(part.events.event, minlength=len(LINEAGE_KINDS)),
        wrong=float((1 - right).sum()),
        variance=float((right * (1 - right)).sum()),
        empty=tuple(empty.tolist()),
        digests=tuple(digests),
    )


def _digest_positions(position: Array) -> bytes:
    """Digest of positions in any order; empty if there are few."""
    if len(position) < MIN_CELLS:
        return b""
    ordered = position[np.lexsort(position.T)]
    return hashlib.blake2b(ordered.tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class _PartWriter:
    """Write the label images of a part, and count its events."""

    folder: Path
    n_frames: int
    dtype: np.dtype[Any]
    tiffs: bool
    layer: bool

    def __call__(self, item: tuple[PartReader, Movie | None, Tracks]) -> EventCounts:
        reader, movie, tracks = item
        part = reader.read()
        if movie is not None:
            first, last = part.frames
            for t in range(first, last + 1):
                rows = slice(*np.searchsorted(part.nodes.frame, [t, t + 1]))
                label = part.nodes.label[rows]
                mask = relabel_frame(
                    movie, t, label, part.track[rows], tracks, self.dtype
                )
                self._write_mask(t, mask)
        return _count_events(part)

    def _write_mask(self, t: int, mask: NDArray[Any]) -> None:
        if self.tiffs:
            n_digits = max(3, len(str(self.n_frames - 1)))
            tiff.write_frame(self.folder / f"mask{t:0{n_digits}}.tif", mask)
        if self.layer:
            import zarr  # takes a second to load

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
    """Write masks in TIFF, a layer in Zarr, or both, and count events.

    Parameters
    ----------
    folder : Path
        Empty folder to write into.
    movie : Movie or None
        Its label images; None writes none.
    tracked : TrackedMovie
    executor : Executor
    progress : callable, optional
        Called with the number of frames done and in all.
    tiffs, layer : bool
        What to write.
    """
    tracks = tracked.tracks
    n_frames = tracked.n_frames
    if movie is not None and movie.n_frames != n_frames:
        raise InputError(
            f"the lineage is of {n_frames} frames, and {movie.name} has "
            f"{movie.n_frames}"
        )
    movie = add_recovered(movie, tracked.recovered) if tiffs or layer else None
    largest = int(tracks.id.max(initial=0))
    dtype = np.dtype(np.uint16 if largest <= np.iinfo(np.uint16).max else np.uint32)
    if layer and movie is not None:
        _create_layer(folder / LABELS, movie, dtype)
    items: list[Any] = []
    for reader in tracked.readers():
        first, last = reader.frames
        alive = tracks[(tracks.begin <= last) & (tracks.end >= first)]
        part_movie = movie
        if movie is not None:
            part_movie = movie.window(first, min(last, n_frames - 1))
        items.append((reader, part_movie, alive))

    def report_frames(done: int, n_parts: int) -> None:
        if progress is not None:
            progress(done * n_frames // n_parts, n_frames)

    writer = _PartWriter(folder, n_frames, dtype, tiffs, layer)
    return EventCounts.sum(list(executor.map(writer, items, report_frames)))


def relabel_frame(
    movie: Movie,
    t: int,
    label: Labels,
    track: Labels,
    tracks: Tracks,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Replace the labels of a frame by track ids.

    Parameters
    ----------
    movie : Movie
    t : int
    label, track : ndarray of shape (n,)
        Labels of the frame, and their tracks.
    tracks : Tracks
        Tracks that are alive, to check the frame by.
    dtype : dtype
        Of the result.
    """
    mask = movie.label(t)
    relabelled: NDArray[Any] = map_array(
        mask, label.astype(mask.dtype), track.astype(dtype)
    )
    is_unknown = (relabelled == 0) & (mask != 0)
    if is_unknown.any():
        raise InputError(
            f"frame {t} of {movie.name} has the label {mask[is_unknown][0]}, which the "
            "lineage lacks"
        )
    present = np.flatnonzero(np.bincount(relabelled.ravel()))
    check_frame(tracks, t, present, "the lineage")
    return relabelled


def _create_layer(path: Path, movie: Movie, dtype: np.dtype[Any]) -> None:
    """Create an OME-Zarr (0.5) of one resolution, without pixels."""
    import zarr

    axes = ["t", *"zyx"[-movie.ndim :]]
    scale = {"type": "scale", "scale": [1.0, *map(float, movie.spacing)]}
    image = {
        "name": "tracks",
        "axes": [
            {"name": axis, "type": "time" if axis == "t" else "space"} for axis in axes
        ],
        "datasets": [{"path": "0", "coordinateTransformations": [scale]}],
    }
    ome = {"version": "0.5", "multiscales": [image], "image-label": {}}
    group = zarr.create_group(path, attributes={"ome": ome})
    chunks = map(min, movie.shape, MAX_CHUNK[movie.ndim])
    group.create_array(
        "0",
        shape=(movie.n_frames, *movie.shape),
        chunks=(1, *chunks),
        dtype=dtype,
        dimension_names=axes,
        fill_value=0,
    )
