"""Measuring all frames of a movie, in parallel and once: what was measured before is taken from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from clew.errors import InputError, StoreError
from clew.executors import Executor, Threads
from clew.learning.task import Array
from clew.models.fingerprint import fingerprint
from clew.tracking.detections import GROUPS, OVERLAP, Detections, Overlap
from clew.tracking.measurement.regions import (
    VERSION,
    measure_frame,
    measure_overlap,
    measure_shifted_overlap,
)
from clew.tracking.measurement.store import (
    CacheLocation,
    OverlapColumns,
    Store,
    hash_frame,
    hash_parts,
    open_store,
)
from clew.tracking.movie import Movie
from clew.utils.cache import Cache

CHUNK = 8
"""Frames that one job measures: each is read once, and one more for what the last shares with its next."""
KEPT = 64 * 2**20
"""Bytes of measured frames that stay in memory: a movie's units, kinds of events and events are found one after the
other, in the same frames. The same for what masks share after the flow."""


class MeasurementCache:
    """What was last measured or asked for of a movie, for all windows of it; another process begins with nothing."""

    def __init__(self) -> None:
        self.frames: Cache[tuple[Detections, OverlapColumns]] = Cache(
            KEPT, lambda frame: _bytes(frame[0])
        )
        self.overlaps: Cache[Overlap] = Cache(
            KEPT, lambda overlap: 3 * overlap.volume.nbytes
        )
        self.labels: Cache[NDArray[Any]] = Cache(
            1
        )  # the last label image: the next frame pair begins with it

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasurementCache, ()


class MeasuredMovie:
    """The detections of a movie of label images; frames are read back one by one as they are asked for."""

    def __init__(
        self,
        movie: Movie,
        store: Store,
        keys: list[str],
        first: int = 0,
        kept: MeasurementCache | None = None,
    ) -> None:
        self.movie, self.store, self.keys, self.first = movie, store, keys, first
        self._kept = MeasurementCache() if kept is None else kept
        self.name, self.n_frames, self.ndim = movie.name, movie.n_frames, movie.ndim
        pixels = {"intensity", "histogram"} if movie.images is None else set()
        self.has = frozenset({*GROUPS, OVERLAP} - pixels)

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasuredMovie, (self.movie, self.store, self.keys, self.first)

    def window(self, first: int, last: int) -> MeasuredMovie:
        """Frames `first` to `last` alone, under their numbers."""
        keys = self.keys[first - self.first : last + 1 - self.first]
        # what the last frame shares with its next is measured with it, should its file be gone
        movie = self.movie.window(first, min(last + 1, self.n_frames - 1))
        return MeasuredMovie(movie, self.store, keys, first, self._kept)

    def content(self, t: int) -> bytes:
        """A digest of the pixels of frame `t` and its next, and of how they were measured."""
        return self.keys[t - self.first].encode()

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""
        last = self.first + len(self.keys) - 1
        if not self.first <= t <= last:
            raise InputError(
                f"{self.name} has no frame {t}; its frames are {self.first} to {last}"
            )
        return self._frame(t)[0]

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """What the masks of frames `t` and `t + 1` share, once each cell of `t` was moved by its row of `shift`.

        Without a shift it was measured before; with one, the label images are read again.
        """
        a, b = self.detections(t), self.detections(t + 1)
        if shift is None:
            source, target, volume = self._frame(t)[1]
            return Overlap(a.rows(source), b.rows(target), volume.astype(float))
        key = self.keys[t - self.first], fingerprint(shift)
        return self._kept.overlaps.get(t, lambda: self._moved_overlap(a, b, shift), key)

    def _moved_overlap(self, a: Detections, b: Detections, shift: Array) -> Overlap:
        first, second = self._label(a.frame), self._label(b.frame)
        rows, target, volume = measure_shifted_overlap(
            first, second, a.label, shift, self.movie.spacing
        )
        return Overlap(rows, b.rows(target), volume)

    def _label(self, t: int) -> NDArray[Any]:
        """The label image of a frame."""
        return self._kept.labels.get(
            t, lambda: self.movie.label(t), self.keys[t - self.first]
        )

    def _frame(self, t: int) -> tuple[Detections, OverlapColumns]:
        """A measured frame, and what it shares with the next."""
        key = self.keys[t - self.first]
        return self._kept.frames.get(
            t, lambda: _recall(self.movie, self.store, key, t), key
        )

    def remeasure_frames(self, movie: Movie, frames: Iterable[int]) -> MeasuredMovie:
        """The detections of a movie that differs from this one in the label images of some frames.

        Only these are measured, and what the frames before them share with them; what was measured before is recalled.
        """
        keys = self.keys.copy()
        for t in sorted({max(at, 0) for frame in frames for at in (frame - 1, frame)}):
            keys[t : t + 1] = _measure_chunk(
                self.store, MeasurementCache(), (movie, range(t, t + 1))
            )
        return MeasuredMovie(movie, self.store, keys)


def measure_movie(
    movie: Movie,
    *,
    cache: CacheLocation = "auto",
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> MeasuredMovie:
    """Measure the cells of every frame; see `regions.measure_frame` for what is measured.

    `cache` is the folder for the measurements, "auto" for one next to the movie (a temporary one where that cannot
    be written to), or None for a temporary one. Frames are shared among `n_jobs` threads, or the workers of `executor`,
    which must see the same folder, or measure again; `progress` is called with the number of frames done and in all.
    Memory grows with the size of a frame and with `n_jobs`, not with the frames.
    """
    store = open_store(cache, movie.name, movie.folder)
    last = movie.n_frames - 1
    chunks = [
        (movie.window(t, min(t + CHUNK, last)), range(t, min(t + CHUNK, last + 1)))
        for t in range(0, movie.n_frames, CHUNK)
    ]
    keys: list[str] = []
    kept = MeasurementCache()
    for done in (executor or Threads(n_jobs)).map(
        partial(_measure_chunk, store, kept), chunks
    ):
        keys += done
        if progress is not None:
            progress(len(keys), movie.n_frames)
    store.prune(keys)
    return MeasuredMovie(movie, store, keys, kept=kept)


def _measure_chunk(
    store: Store, kept: MeasurementCache, chunk: tuple[Movie, range]
) -> list[str]:
    """Measure consecutive frames unless the store has them; their keys in the store."""
    movie, frames = chunk
    settings = repr((VERSION, tuple(map(float, movie.spacing)))).encode()
    labels = movie.label(frames[0])
    content = hash_frame(labels)
    keys = []
    for t in frames:
        image = movie.image(t)
        following = movie.label(t + 1) if t + 1 < movie.n_frames else None
        next_content = hash_frame(following)
        keys.append(hash_parts([settings, content, hash_frame(image), next_content]))
        frame = store.load_frame(keys[-1], t)
        if frame is None:
            shared = measure_overlap(labels, following, movie.spacing)
            frame = store.save_frame(
                keys[-1], measure_frame(t, labels, image, movie.spacing), shared
            )
        kept.frames.put(t, keys[-1], frame)
        if following is not None:
            labels, content = following, next_content
    return keys


def _bytes(cells: Detections) -> int:
    """What the measurements of a frame take."""
    return sum(
        column.nbytes
        for column in (cells.label, cells.position, *cells.columns.values())
    )


def _recall(
    movie: Movie, store: Store, key: str, t: int
) -> tuple[Detections, OverlapColumns]:
    """A measured frame from the store; measured again should its file be gone or damaged by now."""
    kept = store.load_frame(key, t)
    if kept is None:
        if _measure_chunk(store, MeasurementCache(), (movie, range(t, t + 1))) != [key]:
            raise InputError(
                f"{movie.name}: the pixels of frame {t} changed after they were measured; measure again"
            )
        kept = store.load_frame(key, t)
    if kept is None:
        raise StoreError(
            f"{movie.name}: frame {t} was measured, but cannot be read back from {store.folder}"
        )
    return kept
