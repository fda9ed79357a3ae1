"""Whether annotations fit a movie, and each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.learning.task import Indices
from clew.tracking.events import NONE, Annotations, EventTable, Labels
from clew.tracking.lineage.track_faults import Faults


def check_annotations(
    annotations: Annotations,
    labels_of: Callable[[int], ArrayLike],
    n_frames: int,
    where: str = "the annotations",
) -> Annotations:
    """The annotations, each once, if their cells exist and no two contradict each other; else an InputError.

    `labels_of(t)` gives the labels of a frame, and is asked for those frames only that an annotation names.
    """
    faults = Faults(where or "the annotations")
    events, row = annotations.events, annotations.row
    outside = (events.frame < 0) | (events.end_frames() > n_frames - 1)
    at = np.flatnonzero(outside)
    faults.add(row[at], lambda i: f"{events.describe(at[i])}, {_movie(n_frames)}")
    inside = annotations[~outside]
    _check_labels(inside, labels_of, faults)
    once = _once(annotations)
    _check_answers(once, faults)
    _check_fates(once[once.happened], faults)
    faults.refuse()
    return once


def _movie(n_frames: int) -> str:
    """What a movie's length allows."""
    last = n_frames - 1
    return (
        f"but the movie ends with frame {last}"
        if last > 0
        else f"but the movie has {max(n_frames, 0)} frames"
    )


def _once(annotations: Annotations) -> Annotations:
    """Without those that repeat an earlier one word for word, in the same order."""
    keys = np.column_stack([_numbers(annotations.events), annotations.happened])
    first = np.unique(keys, axis=0, return_index=True)[1]
    return annotations[np.sort(first)]


def _numbers(events: EventTable) -> NDArray[np.int64]:
    """(n, 6) events as rows of integers; the same for the same event."""
    return np.column_stack(
        [events.frame, events.event, events.sources, events.targets]
    ).astype(np.int64)


def _mentions(
    events: EventTable,
) -> tuple[Indices, NDArray[np.int64], NDArray[np.bool_], Labels]:
    """Every cell that an event names, (k,) each: the event's row, the cell's frame, if it is a target, its label."""
    cells = np.hstack([events.sources, events.targets])
    row, place = np.nonzero(cells != NONE)
    target = place >= 2
    return (
        row,
        np.where(target, events.end_frames()[row], events.frame[row]),
        target,
        cells[row, place],
    )


def _check_labels(
    annotations: Annotations, labels_of: Callable[[int], ArrayLike], faults: Faults
) -> None:
    """All cells are there in the frames where they are said to be."""
    events = annotations.events
    row, frame, _, label = _mentions(events)
    order = np.argsort(frame, kind="stable")
    frames, starts = np.unique(frame[order], return_index=True)
    there = np.zeros(len(row), dtype=bool)
    for t, group in zip(
        frames.tolist(), np.split(order, starts[1:]), strict=False
    ):  # none of none is one group
        there[group] = np.isin(label[group], np.asarray(labels_of(t)))
    at = np.flatnonzero(~there)
    faults.add(
        annotations.row[row[at]],
        lambda i: (
            f"{events.describe(row[at[i]])}, but there is no label {label[at[i]]} in frame {frame[at[i]]}"
        ),
    )


def _check_answers(once: Annotations, faults: Faults) -> None:
    """No event both happened and did not."""
    _, event, count = np.unique(
        _numbers(once.events), axis=0, return_inverse=True, return_counts=True
    )
    twice = np.flatnonzero(count[event := event.ravel()] > 1)
    # the sort is stable, so each pair stands in the order of the file
    pairs = twice[np.argsort(event[twice], kind="stable")].reshape(-1, 2)

    def tell(i: int) -> str:
        words = once.events.describe(pairs[i, 0])
        return f"{words} {_did(once, pairs[i, 0])}, but by row {once.row[pairs[i, 1]]} {_did(once, pairs[i, 1])}"

    faults.add(once.row[pairs[:, 0]], tell)


def _did(annotations: Annotations, at: int) -> str:
    return "happened" if annotations.happened[at] else "did not happen"


def _check_fates(happened: Annotations, faults: Faults) -> None:
    """No cell has two fates, nor two histories. All events here are different, so those that share a cell clash."""
    row, frame, target, label = _mentions(happened.events)
    order = np.lexsort([row, label, frame, target])
    row, cells = row[order], np.column_stack([target, frame, label])[order]
    again = np.flatnonzero((cells[1:] == cells[:-1]).all(axis=1)) + 1
    pairs, at = np.unique(
        np.column_stack([row[again - 1], row[again]]), axis=0, return_index=True
    )

    def tell(i: int) -> str:
        first, second = pairs[i]
        is_target, t, name = cells[again[at[i]]]
        return (
            f"{happened.events.describe(first)} contradicts row {happened.row[second]}, "
            f"{happened.events.describe(second)}: label {name} of frame {t} can have one "
            f"{'history' if is_target else 'fate'} only"
        )

    faults.add(happened.row[pairs[:, 0]], tell)
