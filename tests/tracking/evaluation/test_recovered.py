"""Recovered cells count for AOGM; events are compared between given cells."""

import numpy as np
import pytest

from clew.tracking.evaluation.result_events import remove_recovered
from clew.tracking.events import Event, EventTable

MOVE, APPEAR = Event.MOVE, Event.APPEAR
DISAPPEAR, GAP = Event.DISAPPEAR, Event.GAP


def make_events(rows):
    """Events from (frame, event, source, target); 0 is none."""
    frame, event, source, target = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    none = np.zeros_like(source)
    return EventTable(
        frame,
        event,
        np.column_stack([source, none]),
        np.column_stack([target, none]),
    )


def list_events(table):
    rows = zip(
        table.frame.tolist(),
        table.event.tolist(),
        table.sources[:, 0].tolist(),
        table.targets[:, 0].tolist(),
        strict=True,
    )
    return sorted(rows)


CHAIN = [(0, MOVE, 1, 2), (1, MOVE, 2, 3), (2, MOVE, 3, 4), (3, MOVE, 4, 5)]


@pytest.mark.parametrize(
    ("recovered", "expected"),
    [
        (set(), CHAIN),
        ({(2, 3)}, [CHAIN[0], (1, GAP, 2, 4), CHAIN[3]]),
        (
            {(2, 3), (3, 4)},
            [CHAIN[0], (1, DISAPPEAR, 2, 0), (3, APPEAR, 0, 5)],
        ),
        ({(2, 9)}, CHAIN),
    ],
)
def test_filled_gap_is_open_again(recovered, expected):
    events = remove_recovered(make_events(CHAIN), recovered)
    assert list_events(events) == sorted(
        (frame, int(event), source, target) for frame, event, source, target in expected
    )
