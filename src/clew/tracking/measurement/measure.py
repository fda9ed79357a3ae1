"""Measure all frames of a movie, in parallel and once; measurements are cached."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from clew.errors import DataWarning, InputError, StoreError
from clew.learning.task import Array
from clew.parallel import Executor, ThreadExecutor
from clew.tracking.detections import GROUPS, OVERLAP, Detections, Overlap
from clew.tracking.frames import stamp_frame
from clew.tracking.measurement.label_faults import (
    NO_FAULTS,
    LabelFaults,
    find_label_faults,
)
from clew.tracking.measurement.regions import (
    VERSION,
    measure_frame,
    measure_overlap,
    measure_shifted_overlap,
)
from clew.tracking.measurement.store import (
    CacheLocation,
    MeasuredFrame,
    Store,
    hash_frame,
    hash_parts,
    open_store,
)
from clew.tracking.movie import Movie
from clew.utils.cache import Cache

FRAMES_PER_JOB = 8
"""Each frame of a job is read once, and one more for the overlap of the last."""
MAX_BYTES = 64 * 2**20
"""Memory for measured frames, which several steps of tracking use; the same for
overlaps after the flow."""


class MeasurementCache:
    """What was last measured or loaded of a movie; empty in another process."""

    def __init__(self) -> None:
        self.frames: Cache[MeasuredFrame] = Cache(MAX_BYTES, _count_bytes)
        self.overlaps: Cache[Overlap] = Cache(
            MAX_BYTES, lambda overlap: 3 * overlap.volume.nbytes
        )
        # two label images: several flows of a frame pair are compared
        self.labels: Cache[NDArray[Any]] = Cache(2)

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasurementCache, ()


class MeasuredMovie:
    """The detections of a movie of label images, loaded frame by frame on demand.

    Parameters
    ----------
    movie : Movie
    store : Store
    keys : list of str
        Key of each frame in the store.
    first : int
        Number of the frame of the first key.
    cache : MeasurementCache, optional
    label_faults : LabelFaults
        What is odd about the labels.
    """

    def __init__(
        self,
        movie: Movie,
        store: Store,
        keys: list[str],
        first: int = 0,
        cache: MeasurementCache | None = None,
        label_faults: LabelFaults = NO_FAULTS,
    ) -> None:
        self.movie = movie
        self.store = store
        self.keys = keys
        self.first = first
        self.label_faults = label_faults
        self.name = movie.name
        self.n_frames = movie.n_frames
        self.ndim = movie.ndim
        groups = {*GROUPS, OVERLAP}
        if movie.images is None:
            groups -= {"intensity", "histogram"}
        self.has = frozenset(groups)
        self._cache = MeasurementCache() if cache is None else cache

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasuredMovie, (self.movie, self.store, self.keys, self.first)

    def window(self, first: int, last: int) -> MeasuredMovie:
        """Frames `first` to `last` only, with their numbers."""
        keys = self.keys[first - self.first : last + 1 - self.first]
        # one frame more, to measure the overlap of the last again if its file is gone
        movie = self.movie.window(first, min(last + 1, self.n_frames - 1))
        return MeasuredMovie(movie, self.store, keys, first, self._cache)

    def content(self, t: int) -> bytes:
        """Digest of the pixels of frames `t` and `t + 1` and of the way of measuring."""
        return self.keys[t - self.first].encode()

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""
        last = self.first + len(self.keys) - 1
        if not self.first <= t <= last:
            raise InputError(
                f"{self.name} has no frame {t}; its frames are {self.first} to {last}"
            )
        return self._load_frame(t)[0]

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """Overlap of the masks of frames `t` and `t + 1`.

        Parameters
        ----------
        t : int
        shift : ndarray of shape (n, ndim), optional
            Moves each cell of frame `t` first. With a shift, label images are read
            again; without, the overlap was measured with the frame.
        """
        before = self.detections(t)
        after = self.detections(t + 1)
        if shift is None:
            source, target, volume = self._load_frame(t)[1]
            return Overlap(
                before.rows(source), after.rows(target), volume.astype(float)
            )
        key = (self.keys[t - self.first], hash_frame(shift))
        measure = partial(self._measure_shifted, before, after, shift)
        return self._cache.overlaps.get(t, measure, key)

    def _measure_shifted(
        self, before: Detections, after: Detections, shift: Array
    ) -> Overlap:
        """Measure the overlap of two label images after a shift."""
        first = self._load_labels(before.frame)
        second = self._load_labels(after.frame)
        rows, target, volume = measure_shifted_overlap(
            first, second, before.label, shift, self.movie.spacing
        )
        return Overlap(rows, after.rows(target), volume)

    def _load_labels(self, t: int) -> NDArray[Any]:
        """Label image of a frame."""
        key = self.keys[t - self.first]
        return self._cache.labels.get(t, lambda: self.movie.label(t), key)

    def _load_frame(self, t: int) -> MeasuredFrame:
        """Measurements of a frame, and its overlap with the next."""
        key = self.keys[t - self.first]
        load = partial(_load_or_measure, self.movie, self.store, key, t)
        return self._cache.frames.get(t, load, key)

    def remeasure_frames(self, movie: Movie, frames: Iterable[int]) -> MeasuredMovie:
        """The detections of a movie that differs in the label images of some frames.

        These frames are measured, and the overlaps of the frames before them.
        """
        keys = self.keys.copy()
        changed = {max(t, 0) for frame in frames for t in (frame - 1, frame)}
        for t in sorted(changed):
            chunk = (movie, range(t, t + 1))
            keys[t : t + 1] = _measure_chunk(self.store, MeasurementCache(), chunk)
        return MeasuredMovie(movie, self.store, keys)


def measure_movie(
    movie: Movie,
    *,
    cache: CacheLocation = "auto",
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> MeasuredMovie:
    """Measure the cells of every frame; see `regions.measure_frame` for the columns.

    Labels that are no cells, such as a labelled background, give a DataWarning.
    Memory grows with the size of a frame and with `n_jobs`, not with the number of
    frames.

    Parameters
    ----------
    movie : Movie
    cache : path, "auto" or None
        Folder for the measurements; "auto" for one beside the movie, if that can be
        written; None for a temporary one.
    n_jobs : int, optional
        Number of threads.
    progress : callable, optional
        Called with the number of frames done and in all.
    executor : Executor, optional
        Workers instead of threads; they must see the same folder, or measure again.
    """
    faults = find_label_faults(movie.labels)
    for message in faults.messages:
        warnings.warn(f"{movie.name}: {message}", DataWarning, stacklevel=2)
    store = open_store(cache, movie.name, movie.folder)
    stamps = [_stamp_frame(movie, t) for t in range(movie.n_frames)]
    known = store.read_index()
    keys = [known.get(stamp, "") for stamp in stamps]
    chunks = _list_chunks(movie, [t for t, key in enumerate(keys) if not key])
    done = movie.n_frames - sum(len(frames) for _, frames in chunks)
    measured = MeasurementCache()
    measure_chunk = partial(_measure_chunk, store, measured)
    found = (executor or ThreadExecutor(n_jobs)).map(measure_chunk, chunks)
    if progress is not None and done:
        progress(done, movie.n_frames)
    for (_, frames), chunk_keys in zip(chunks, found, strict=True):
        keys[frames.start : frames.stop] = chunk_keys
        done += len(frames)
        if progress is not None:
            progress(done, movie.n_frames)
    index = {stamp: key for stamp, key in zip(stamps, keys, strict=True) if stamp}
    if index != known:
        store.write_index(index)
    store.prune(keys)
    return MeasuredMovie(movie, store, keys, 0, measured, faults)


def _stamp_frame(movie: Movie, t: int) -> str:
    """Return what changes whenever the measurements of a frame do; "" if unknown."""
    frames = [(movie.labels, t)]
    if movie.images is not None:
        frames.append((movie.images, t))
    if t + 1 < movie.n_frames:
        frames.append((movie.labels, t + 1))
    stamps = [stamp_frame(*frame) for frame in frames]
    if not all(stamps):
        return ""
    settings = (VERSION, tuple(map(float, movie.spacing)), t + 1 < movie.n_frames)
    return hash_parts([repr((settings, stamps)).encode()])


def _list_chunks(movie: Movie, frames: list[int]) -> list[tuple[Movie, range]]:
    """Return runs of consecutive frames to measure, each with its part of the movie."""
    chunks: list[tuple[Movie, range]] = []
    last = movie.n_frames - 1
    start = 0
    for k, t in enumerate(frames):
        is_end = k + 1 == len(frames) or frames[k + 1] > t + 1
        if is_end or k + 1 - start == FRAMES_PER_JOB:
            window = movie.window(frames[start], min(t + 1, last))
            chunks.append((window, range(frames[start], t + 1)))
            start = k + 1
    return chunks


def _measure_chunk(
    store: Store, cache: MeasurementCache, chunk: tuple[Movie, range]
) -> list[str]:
    """Measure consecutive frames unless the store has them; return their keys."""
    movie, frames = chunk
    settings = repr((VERSION, tuple(map(float, movie.spacing)))).encode()
    labels = movie.label(frames[0])
    content = hash_frame(labels)
    keys = []
    for t in frames:
        image = movie.image(t)
        following = movie.label(t + 1) if t + 1 < movie.n_frames else None
        next_content = hash_frame(following)
        key = hash_parts([settings, content, hash_frame(image), next_content])
        frame = store.load_frame(key, t)
        if frame is None:
            overlap = measure_overlap(labels, following, movie.spacing)
            detections = measure_frame(t, labels, image, movie.spacing)
            frame = store.save_frame(key, detections, overlap)
        cache.frames.put(t, key, frame)
        keys.append(key)
        if following is not None:
            labels = following
            content = next_content
    return keys


def _count_bytes(frame: MeasuredFrame) -> int:
    """Memory of the measurements of a frame."""
    detections = frame[0]
    columns = (detections.label, detections.position, *detections.columns.values())
    return sum(column.nbytes for column in columns)


def _load_or_measure(movie: Movie, store: Store, key: str, t: int) -> MeasuredFrame:
    """Load a frame from the store; measure it again if its file is gone or damaged."""
    frame = store.load_frame(key, t)
    if frame is None:
        chunk = (movie, range(t, t + 1))
        if _measure_chunk(store, MeasurementCache(), chunk) != [key]:
            raise InputError(
                f"{movie.name}: the pixels of frame {t} changed after they were "
                "measured; measure again"
            )
        frame = store.load_frame(key, t)
    if frame is None:
        raise StoreError(
            f"{movie.name}: frame {t} was measured, but cannot be read back from "
            f"{store.folder}"
        )
    return frame
