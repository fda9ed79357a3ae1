"""Movies with their truth, or some frames of one, and the test task loss."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.assignment.assignment import assign
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.detections import Detections, Overlap, Source
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Annotations, EventTable
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie
from clew.tracking.profile import estimate_profile


@dataclass(frozen=True)
class FramesOf:
    """Consecutive frames of a movie, counted from 0."""

    source: Source
    begin: int
    n_frames: int

    @property
    def name(self) -> str:
        """Of the movie, with its frames."""
        return f"{self.source.name}[{self.begin}:{self.begin + self.n_frames}]"

    @property
    def ndim(self) -> int:
        """2 or 3."""
        return self.source.ndim

    @property
    def has(self) -> frozenset[str]:
        """The groups of measurements that are there."""
        return self.source.has

    @property
    def movie(self) -> Movie | None:
        """The same frames of the movie that was measured."""
        whole = self.source.movie
        return None if whole is None else whole[self.begin : self.begin + self.n_frames]

    def detections(self, t: int) -> Detections:
        """The cells of frame `t`."""
        found = self.source.detections(self.begin + t)
        return Detections(t, found.label, found.position, found.columns)

    def overlap(self, t: int, shift: Array | None = None) -> Overlap:
        """What the masks of frames `t` and `t + 1` share, after a shift."""
        return self.source.overlap(self.begin + t, shift)


@dataclass(frozen=True)
class Dataset:
    """Detections of a movie and its true events."""

    source: Source
    truth: Annotations

    @property
    def name(self) -> str:
        """Of the movie."""
        return self.source.name

    @property
    def n_pairs(self) -> int:
        """Frame pairs."""
        return self.source.n_frames - 1

    def events_at(self, frame: int) -> Annotations:
        """The true events from one frame to the next."""
        return self.truth.select_frame(frame)


def open_dataset(address: str, cache: Path | None = None, n_jobs: int = 1) -> Dataset:
    """Open a sequence folder of the Cell Tracking Challenge with its truth.

    Parameters
    ----------
    address : str
        …/01 with …/01_GT/TRA beside it, or some frames of it: …/01[0:60].
    cache : Path, optional
        Folder for measurements.
    n_jobs : int
    """
    match = re.fullmatch(r"(.*?)(?:\[(\d*):(\d*)\])?", address)
    if match is None or not match[1]:
        raise InputError(
            f"{address!r}: expected a sequence folder, or frames of one, as in "
            "data/01[0:60]"
        )
    folder = Path(match[1])
    truth_folder = folder.absolute().with_name(f"{folder.absolute().name}_GT") / "TRA"
    if not truth_folder.is_dir():
        raise InputError(
            f"{truth_folder}: there is no such folder; experiments need the true "
            f"lineage beside {folder}"
        )
    movie = open_movie(folder)
    source: Source = measure_movie(movie, cache=cache, n_jobs=n_jobs)
    # learning and the test use frame pairs
    truth = derive_annotations(open_ctc_lineage(truth_folder), movie).to_pairwise()
    if match[2] is None:
        return Dataset(source, truth)
    begin = int(match[2] or 0)
    end = min(int(match[3] or source.n_frames), source.n_frames)
    if end - begin < 2:
        raise InputError(
            f"{address!r}: at least two frames are needed; the movie has "
            f"{source.n_frames}"
        )
    inside = (truth.events.frame >= begin) & (truth.events.frame < end - 1)
    events = truth.events[inside]
    shifted = EventTable(
        events.frame - begin, events.event, events.sources, events.targets
    )
    return Dataset(FramesOf(source, begin, end - begin), Annotations.of(shifted))


class Examiner:
    """Computes the test task loss: the share of true events that weights miss."""

    def __init__(self, dataset: Dataset, groups: frozenset[str]) -> None:
        self.dataset = dataset
        self.pairs = FramePairBuilder(
            dataset.source, estimate_profile(dataset.source, groups)
        )
        self._made: dict[int, tuple[FramePair, EventTable]] = {}

    def missed(self, w: Array) -> Array:
        """Return 1 for each true event that is not predicted, else 0.

        True events need not be among the candidates.
        """
        found = np.zeros(len(self.dataset.truth), dtype=bool)
        for frame in range(self.dataset.n_pairs):
            pair, true = self._pair(frame)
            chosen = assign(pair.candidates, pair.scores(w)).chosen
            predicted = pair.candidates.table(pair.a, pair.b, chosen)
            found[self.dataset.truth.events.frame == frame] = np.isin(
                true.row_keys(), predicted.row_keys()
            )
        return 1.0 - found

    def loss(self, w: Array) -> float:
        """Return the share of true events that are missed."""
        return float(self.missed(w).mean())

    def _pair(self, frame: int) -> tuple[FramePair, EventTable]:
        if frame not in self._made:
            self._made[frame] = (
                self.pairs.build(frame),
                self.dataset.events_at(frame).events,
            )
        return self._made[frame]
