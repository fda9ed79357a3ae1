"""All frame pairs of a movie, one after the other in several threads, joined to a lineage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array
from clew.parallel import resolve_jobs
from clew.progress import ProgressBar
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, EventTable
from clew.tracking.lineage import Lineage
from clew.tracking.linking.counts import by_counts
from clew.tracking.model.assignment import Assignment, assign, split_lead
from clew.tracking.model.pairs import FramePair, Pairs
from clew.tracking.model.probability import Calibration

KEPT_COLUMNS = ("volume", "intensity")
"""What a lineage keeps of each detection, to match identities by."""


@dataclass(frozen=True, eq=False)
class SolvedPair:
    """What happened from one frame to the next, how sure that is, and what it follows from."""

    frame: int
    events: EventTable
    confidence: Array
    """(n,) the score that is lost when an event is forbidden; inf where nothing else is possible."""
    version: int = 0
    """Of the weights, as their owner counts them."""
    key: bytes = b""
    """Of the annotations that it agrees with, see `Annotations.key`."""
    lead: Array | None = None
    """(n,) by how much an event scores more as a split than as a division; NaN for other kinds, and if annotated."""
    unit: float = 1.0
    """The norm of the weights, in which scores of several movies and weights can be compared."""
    assignment: Assignment | None = None
    """The choice among the pair's candidates, for questions about alternatives; None where it was dropped."""

    def without_candidates(self) -> Self:
        """The events alone, to be kept for a whole movie or sent to another process."""
        return replace(self, assignment=None)


def solve(
    pair: FramePair, w: Array, here: Annotations | None = None, before: SolvedPair | None = None, version: int = 0
) -> SolvedPair:
    """The best events of a frame pair among those that agree with the annotations of it, which are its candidates.

    Confidences take longer than the solution. For those in a hurry, events that were there `before` keep theirs.
    """
    frame = pair.a.frame
    pinned = {} if here is None else pair.annotated(here)
    try:
        answer = assign(pair.candidates, pair.scores(w), pinned)
    except InfeasibleAnnotation as error:
        raise InfeasibleAnnotation(f"from frame {frame} to {frame + 1}: {error}", frame) from error
    events = pair.candidates.table(pair.a, pair.b, answer.chosen)
    confidence = _recalled(events, before)
    new = np.isnan(confidence) | np.isin(answer.chosen, list(pinned))
    confidence[new] = answer.confidence(answer.chosen[new])
    lead = split_lead(answer)
    lead[np.isin(answer.chosen, list(pinned))] = np.nan
    key = b"" if here is None else here.key()
    return SolvedPair(frame, events, confidence, version, key, lead, float(np.linalg.norm(w)), answer)


def _recalled(events: EventTable, before: SolvedPair | None) -> Array:
    """(n,) the confidences that events had before, NaN for those that are new."""
    confidence = np.full(len(events), np.nan)
    if before is not None:
        _, now, then = np.intersect1d(events.keys(), before.events.keys(), return_indices=True)
        confidence[now] = before.confidence[then]
    confidence[np.isinf(confidence)] = np.nan  # what was certain because of an answer may be so no longer
    return confidence


def solve_pair(pairs: Pairs, w: Array, frame: int, annotations: Annotations | None = None) -> SolvedPair:
    """The best events from one frame to the next, among those that agree with the annotations."""
    here = None if annotations is None else annotations.at(frame)
    return solve(pairs.pair(frame, None if here is None else here.events), w, here).without_candidates()


def track_pairs(
    pairs: Pairs, w: Array, annotations: Annotations | None = None, n_jobs: int | None = None, verbose: bool = False
) -> Lineage:
    """The lineage of a whole movie."""
    n = pairs.source.n_frames
    solved: list[SolvedPair] = []
    with ProgressBar(f"tracking {pairs.source.name}", verbose, "frame pairs") as progress:
        for one in _in_order(pairs, w, annotations, resolve_jobs(n_jobs)):
            solved.append(one)
            progress(len(solved), n - 1)
    return join_pairs(pairs.source, solved)


def join_pairs(source: Source, solved: Sequence[SolvedPair]) -> Lineage:
    """What happened in each frame pair of a movie, as a lineage."""
    frame, label, position, columns = _nodes(source)
    confidence = np.concatenate([one.confidence for one in solved]) if solved else np.zeros(0)
    events = EventTable.join([one.events for one in solved])
    unit = max((one.unit for one in solved), default=1.0)
    if solved and all(one.lead is not None for one in solved):
        lead = np.concatenate([one.lead for one in solved if one.lead is not None])
        events, confidence = by_counts(events, confidence, lead, unit)
    probability = Calibration.generic().probability(events.event, confidence, unit)
    return Lineage(source.n_frames, frame, label, position, events, confidence, columns, probability)


def _in_order(pairs: Pairs, w: Array, annotations: Annotations | None, jobs: int) -> Iterator[SolvedPair]:
    """One frame pair after the other, solved in several threads: solvers and array operations run without the GIL."""
    frames = range(pairs.source.n_frames - 1)
    if jobs == 1:
        return (solve_pair(pairs, w, frame, annotations) for frame in frames)
    work = (delayed(solve_pair)(pairs, w, frame, annotations) for frame in frames)
    threads = Parallel(jobs, require="sharedmem", return_as="generator", pre_dispatch="2*n_jobs")
    found: Iterator[SolvedPair] = threads(work)
    return found


def _nodes(source: Source) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, dict[str, Array]]:
    """The table of all detections: frame, label, position, and the columns that a lineage keeps."""
    frames, labels, positions = [], [], []
    columns: dict[str, list[Array]] = {}
    for t in range(source.n_frames):
        found = source.detections(t)
        frames.append(np.full(len(found), t, dtype=np.int64))
        labels.append(found.label)
        positions.append(found.position)
        for name in KEPT_COLUMNS:
            if name in found.columns:
                columns.setdefault(name, []).append(np.asarray(found.columns[name], dtype=float))
    kept = {name: np.concatenate(parts) for name, parts in columns.items()}
    return np.concatenate(frames), np.concatenate(labels), np.concatenate(positions), kept
