"""Tables of events and annotations: what callers may give, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.events import Annotations, Event, EventIndex, EventTable

MOVES = [(0, Event.MOVE, (1,), (2,)), (1, Event.DIVIDE, (2,), (4, 3))]


@pytest.mark.parametrize(
    "made",
    [
        list,
        tuple,
        iter,
        lambda rows: (row for row in rows),
        lambda rows: EventTable.of(rows),
    ],
)
def test_events_come_in_anything_that_can_be_gone_through_once(made):
    assert list(EventTable.of(made(MOVES))) == [
        MOVES[0],
        (1, Event.DIVIDE, (2,), (3, 4)),
    ]


@pytest.mark.parametrize(
    "events",
    [
        None,
        3,
        "ab",
        [None],
        [()],
        [(0, 0, 1, 2)],
        [(0, 0, (1,))],
        [(0.5, 0, (1,), (1,))],
        [(0, 9, (1,), (1,))],
        [(np.nan, 0, (1,), (1,))],
        [(1e300, 0, (1,), (1,))],
        [("a", 0, (1,), (1,))],
        [(0, 0, (1, 2, 3), (1,))],
        [(0, 0, (1.5,), (1,))],
        [(0, 0, (2**70,), (1,))],
        [(0, 0, (None,), (1,))],
        {0: 1},
        [{}],
        [(0, 0, {1: 2}, "a")],
    ],
)
def test_what_is_no_list_of_events_is_refused(events):
    with pytest.raises(InputError, match="events"):
        EventTable.of(events)


@pytest.mark.parametrize(
    "change",
    [
        {"frame": None},
        {"frame": [0, 1]},
        {"frame": np.zeros(3, int)},
        {"event": np.zeros(2)},
        {"sources": np.zeros(2, int)},
        {"targets": np.zeros((2, 3), int)},
        {"targets": np.array([["a", "b"]] * 2)},
        {"frame": np.array(0)},
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(change):
    table = EventTable.of(MOVES)
    columns = {
        name: getattr(table, name) for name in ("frame", "event", "sources", "targets")
    }
    with pytest.raises(InputError, match="integer arrays"):
        EventTable(**{**columns, **change})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"events": MOVES}, "expected an EventTable"),
        ({"events": None}, "expected an EventTable"),
        ({"happened": None}, "happened"),
        ({"happened": [True]}, "happened"),
        ({"happened": "yes"}, "happened"),
        ({"happened": 0.5}, "happened"),
        ({"happened": [0, np.nan]}, "happened"),
        ({"row": 3}, "row"),
        ({"row": ["a", "b"]}, "row"),
        ({"row": [1, np.inf]}, "row"),
        ({"row": [1, 2, 3]}, "row"),
    ],
)
def test_annotations_that_are_none_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        Annotations.of(**{"events": EventTable.of(MOVES), **given})


def test_the_events_of_cells_are_found_by_their_frames_and_sides():
    events = EventTable.of(
        [
            (0, Event.MERGE, [1, 2], [1]),
            (1, Event.MOVE, [1], [4]),
            (1, Event.GAP, [2], [4]),
        ]
    )
    asked = EventTable.of(
        [
            (0, Event.MOVE, [2], [1]),
            (1, Event.DIVIDE, [1], [2, 4]),
            (2, Event.MOVE, [1], [4]),
        ]
    )
    found = EventIndex(events).find_by_cells(asked)
    assert found.tolist() == [[0, -1, 0, -1], [1, -1, -1, 1], [-1, -1, 2, -1]]


def test_annotations_are_contradicted_by_what_is_not_there_and_by_what_is():
    move, ends = (0, Event.MOVE, [1], [1]), (0, Event.DISAPPEAR, [2], [])
    told = Annotations.of(EventTable.of([move, ends, move]), [True, True, False])
    assert told.contradicted_by(EventTable.of([move])).tolist() == [False, True, True]
    assert told.contradicted_by(EventTable.empty()).tolist() == [True, True, False]


def test_index_tells_huge_labels_apart():
    huge = 2**63 - 1
    rows = [
        (t, Event.MOVE, [label], [label])
        for t in range(4)
        for label in (3, huge, 2**62, 2**62 + 1)
    ]
    table = EventTable.of(rows)
    index = EventIndex(table)
    assert index.find(table).tolist() == list(range(len(rows)))
    none = index.find_cell(np.zeros(1, int), np.zeros(1, bool), np.array([huge - 1]))
    assert none.tolist() == [-1]
