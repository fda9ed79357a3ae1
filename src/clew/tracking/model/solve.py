"""All frame pairs of a movie, one after the other in several threads, joined to a lineage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from clew.tracking.model.assignment import Assignment, assign
from clew.tracking.model.pairs import FramePair, Pairs

KEPT_COLUMNS = ("volume", "intensity")
"""What a lineage keeps of each detection, to match identities by."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happened in one frame pair, and how sure that is."""

    events: EventTable
    confidence: Array
    n_candidates: int


def solve(
    pair: FramePair, w: Array, here: Annotations | None = None, before: Step | None = None
) -> tuple[Assignment, Step]:
    """The best events of a frame pair among those that agree with the annotations of it, which are its candidates.

    Confidences take longer than the solution. For those in a hurry, events that were in the step `before` keep theirs.
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
    return answer, Step(events, confidence, len(pair.candidates))


def _recalled(events: EventTable, before: Step | None) -> Array:
    """(n,) the confidences that events had before, NaN for those that are new."""
    confidence = np.full(len(events), np.nan)
    if before is not None:
        _, now, then = np.intersect1d(events.keys(), before.events.keys(), return_indices=True)
        confidence[now] = before.confidence[then]
    confidence[np.isinf(confidence)] = np.nan  # what was certain because of an answer may be so no longer
    return confidence


def solve_pair(pairs: Pairs, w: Array, frame: int, annotations: Annotations | None = None) -> Step:
    """The best events from one frame to the next, among those that agree with the annotations."""
    here = None if annotations is None else annotations[annotations.events.frame == frame]
    return solve(pairs.pair(frame, None if here is None else here.events), w, here)[1]


def track_pairs(
    pairs: Pairs, w: Array, annotations: Annotations | None = None, n_jobs: int | None = None, verbose: bool = False
) -> Lineage:
    """The lineage of a whole movie."""
    n = pairs.source.n_frames
    steps: list[Step] = []
    with ProgressBar(f"tracking {pairs.source.name}", verbose, "frame pairs") as progress:
        for step in _in_order(pairs, w, annotations, resolve_jobs(n_jobs)):
            steps.append(step)
            progress(len(steps), n - 1)
    return join_steps(pairs.source, steps)


def join_steps(source: Source, steps: Sequence[Step]) -> Lineage:
    """What happened in each frame pair of a movie, as a lineage."""
    frame, label, position, columns = _nodes(source)
    confidence = np.concatenate([step.confidence for step in steps]) if steps else np.zeros(0)
    events = EventTable.join([step.events for step in steps])
    return Lineage(source.n_frames, frame, label, position, events, confidence, columns)


def _in_order(pairs: Pairs, w: Array, annotations: Annotations | None, jobs: int) -> Iterator[Step]:
    """One step after the other, worked out in several threads: solvers and array operations run without the GIL."""
    frames = range(pairs.source.n_frames - 1)
    if jobs == 1:
        return (solve_pair(pairs, w, frame, annotations) for frame in frames)
    work = (delayed(solve_pair)(pairs, w, frame, annotations) for frame in frames)
    found: Iterator[Step] = Parallel(jobs, require="sharedmem", return_as="generator", pre_dispatch="2*n_jobs")(work)
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
