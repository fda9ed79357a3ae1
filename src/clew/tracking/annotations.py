"""Check that annotations fit a movie and each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.learning.task import Indices, Mask
from clew.tracking.events import NONE, Annotations, EventTable, Labels
from clew.tracking.lineage.tracks import Faults


def check_annotations(
    annotations: Annotations,
    labels_of: Callable[[int], ArrayLike],
    n_frames: int,
    where: str = "the annotations",
) -> Annotations:
    """Check that annotated cells exist and that no two annotations contradict.

    Raises InputError with a line for each fault.

    Parameters
    ----------
    annotations : Annotations
    labels_of : callable
        Gives the labels of a frame; called for annotated frames only.
    n_frames : int
        Length of the movie.
    where : str
        Name of the annotations in messages.

    Returns
    -------
    annotations : Annotations
        Without repetitions.
    """
    faults = Faults(where or "the annotations")
    events = annotations.events
    is_outside = (events.frame < 0) | (events.end_frames() > n_frames - 1)
    rows = np.flatnonzero(is_outside)
    length = (
        f"but the movie ends with frame {n_frames - 1}"
        if n_frames > 1
        else f"but the movie has {max(n_frames, 0)} frames"
    )
    faults.add(annotations.row[rows], lambda i: f"{events.describe(rows[i])}, {length}")
    _check_labels(annotations[~is_outside], labels_of, faults)
    unique = _drop_repeated(annotations)
    _check_answers(unique, faults)
    _check_fates(unique[unique.happened], faults)
    faults.refuse()
    return unique


def _drop_repeated(annotations: Annotations) -> Annotations:
    """Drop annotations that repeat an earlier one."""
    keys = np.column_stack([_make_rows(annotations.events), annotations.happened])
    _, first = np.unique(keys, axis=0, return_index=True)
    return annotations[np.sort(first)]


def _make_rows(events: EventTable) -> NDArray[np.int64]:
    """(n, 6) events as rows of integers."""
    columns = np.column_stack(
        [events.frame, events.event, events.sources, events.targets]
    )
    return columns.astype(np.int64)


class _Mentions(NamedTuple):
    """Cells that events name; (k,) each."""

    row: Indices
    frame: NDArray[np.int64]
    is_target: Mask
    label: Labels


def _list_mentions(events: EventTable) -> _Mentions:
    """List every cell that an event names."""
    cells = np.hstack([events.sources, events.targets])
    row, side = np.nonzero(cells != NONE)
    is_target = side >= 2
    frame = np.where(is_target, events.end_frames()[row], events.frame[row])
    return _Mentions(row, frame, is_target, cells[row, side])


def _check_labels(
    annotations: Annotations, labels_of: Callable[[int], ArrayLike], faults: Faults
) -> None:
    """Add a fault for each cell that is not in its frame."""
    events = annotations.events
    mentions = _list_mentions(events)
    exists = np.zeros(len(mentions.row), dtype=bool)
    order = np.argsort(mentions.frame, kind="stable")
    frames, starts = np.unique(mentions.frame[order], return_index=True)
    groups = np.split(order, starts[1:])  # one empty group if there are no frames
    for t, rows in zip(frames.tolist(), groups, strict=False):
        exists[rows] = np.isin(mentions.label[rows], np.asarray(labels_of(t)))
    missing = np.flatnonzero(~exists)

    def describe(i: int) -> str:
        at = missing[i]
        return (
            f"{events.describe(mentions.row[at])}, but there is no label "
            f"{mentions.label[at]} in frame {mentions.frame[at]}"
        )

    faults.add(annotations.row[mentions.row[missing]], describe)


def _check_answers(unique: Annotations, faults: Faults) -> None:
    """Add a fault for each event that happened and did not."""
    _, event, count = np.unique(
        _make_rows(unique.events), axis=0, return_inverse=True, return_counts=True
    )
    event = event.ravel()
    repeated = np.flatnonzero(count[event] > 1)
    # the sort is stable, so each pair is in the order of the file
    pairs = repeated[np.argsort(event[repeated], kind="stable")].reshape(-1, 2)
    words = {True: "happened", False: "did not happen"}

    def describe(i: int) -> str:
        first, second = pairs[i]
        return (
            f"{unique.events.describe(first)} {words[bool(unique.happened[first])]}, "
            f"but by row {unique.row[second]} {words[bool(unique.happened[second])]}"
        )

    faults.add(unique.row[pairs[:, 0]], describe)


def _check_fates(happened: Annotations, faults: Faults) -> None:
    """Add a fault for each cell with two fates or two histories.

    All events are different, so two that share a cell on one side contradict.
    """
    events = happened.events
    row, frame, is_target, label = _list_mentions(events)
    order = np.lexsort([row, label, frame, is_target])
    row = row[order]
    cells = np.column_stack([is_target, frame, label])[order]
    second = np.flatnonzero((cells[1:] == cells[:-1]).all(axis=1)) + 1
    row_pairs = np.column_stack([row[second - 1], row[second]])
    pairs, at = np.unique(row_pairs, axis=0, return_index=True)

    def describe(i: int) -> str:
        first, other = pairs[i]
        target, t, name = cells[second[at[i]]]
        return (
            f"{events.describe(first)} contradicts row {happened.row[other]}, "
            f"{events.describe(other)}: label {name} of frame {t} can have one "
            f"{'history' if target else 'fate'} only"
        )

    faults.add(happened.row[pairs[:, 0]], describe)
