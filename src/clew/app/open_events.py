"""Questions about what a person chose to look at: the least certain open events of a kind, time, place or track.

Uncertainty sampling (Lewis & Gale 1994) on the predictions that the server has. It needs no worker, so that it also has
the first questions after the start.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from clew.annotation.cell_positions import Positions
from clew.annotation.predictions import Predictor
from clew.annotation.questions import Question
from clew.annotation.strategies.pool import is_open
from clew.app.state import State
from clew.tracking.events import Annotations, Event, EventTable

AGAIN = "you answered about this cell before its outline was changed"


@dataclass(frozen=True)
class Filter:
    """What is asked about; None for anything."""

    event: Event | None = None
    first: int | None = None
    """The first frame, and the last, from which events lead on."""
    last: int | None = None
    box: tuple[float, float, float, float] | None = None
    """left, top, right, bottom in pixels: the middle of the event's cells lies in it."""
    track: tuple[int, int] | None = None
    """A cell (frame, label) whose track is asked about."""

    def __bool__(self) -> bool:
        return self != Filter()


def least_certain(
    predictor: Predictor,
    positions: Positions,
    annotations: Annotations,
    chosen: Filter,
    n: int,
    track: Collection[tuple[int, int]] | None = None,
) -> list[Question]:
    """At most `n` open events that pass a filter, the least certain first; `track` has the cells of the one chosen."""
    first, last = (
        chosen.first or 0,
        predictor.n_pairs if chosen.last is None else chosen.last,
    )
    solved = [
        one for frame, one in sorted(predictor.solved.items()) if first <= frame <= last
    ]
    events = EventTable.join([one.events for one in solved])
    confidence = np.concatenate([np.zeros(0), *(one.confidence for one in solved)])
    possible = np.isfinite(confidence) & is_open(events, annotations)
    if chosen.event is not None:
        possible &= events.event == chosen.event
    order = np.flatnonzero(possible)
    order = order[np.argsort(confidence[order], kind="stable")]
    found: list[Question] = []
    for row in order.tolist():
        ((frame, event, sources, targets),) = events[row : row + 1]
        cells = [
            *((frame, label) for label in sources),
            *((frame + 1, label) for label in targets),
        ]
        on_track = track is None or any(cell in track for cell in cells)
        if on_track and (
            chosen.box is None
            or _inside(positions, frame, sources, targets, chosen.box)
        ):
            reason = (
                "the least certain of what you chose"
                if chosen
                else "nothing is less certain so far"
            )
            found.append(
                Question(
                    frame, event, sources, targets, -float(confidence[row]), reason
                )
            )
        if len(found) == n:
            break
    return found


def asked_again(predictor: Predictor, state: State, n: int) -> list[Question]:
    """What is predicted of cells that were answered about and changed since, the last answer first."""
    found: dict[bytes, Question] = {}
    for answer in reversed(state.outdated):
        solved = predictor.solved.get(answer.frame)
        if solved is None:
            continue
        events = solved.events
        about = np.isin(events.sources, answer.sources) | np.isin(
            events.targets, answer.targets
        )
        rows = np.flatnonzero(
            about.any(axis=1)
            & np.isfinite(solved.confidence)
            & is_open(events, state.annotations)
        )
        for row in rows.tolist():
            ((frame, event, sources, targets),) = events[row : row + 1]
            key = events.row_keys()[row].tobytes()
            found.setdefault(key, Question(frame, event, sources, targets, 0.0, AGAIN))
        if len(found) >= n:
            break
    return list(found.values())[:n]


def _inside(
    positions: Positions,
    frame: int,
    sources: tuple[int, ...],
    targets: tuple[int, ...],
    box: tuple[float, float, float, float],
) -> bool:
    """Whether the middle of some cells lies in a box."""
    before, after = (
        positions.cells(frame).of_labels(sources),
        positions.cells(frame + 1).of_labels(targets),
    )
    y, x = np.vstack([before, after]).mean(axis=0)[-2:]
    left, top, right, bottom = box
    return bool(left <= x <= right and top <= y <= bottom)
