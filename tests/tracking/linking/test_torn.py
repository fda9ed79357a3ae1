"""Masks that are torn for one frame, in movies drawn in a table."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.events import Event, EventTable
from clew.tracking.linking.torn import torn

# frame   0      1      2      3
#             ┌── 2 ──┐
#         1 ──┤       ├── 4 ───── 5      torn in frame 1
#             └── 3 ──┘
#         6 ──┐           ┌── 9
#             ├── 8 ──────┤              two cells that touch in frame 1; they come apart in the pair after
#         7 ──┘           └── 10
TORN = [
    (0, Event.DIVIDE, [1], [2, 3]),
    (1, Event.MERGE, [2, 3], [4]),
    (2, Event.MOVE, [4], [5]),
]
TOUCHING = [
    (0, Event.MERGE, [6, 7], [8]),
    (1, Event.SPLIT, [8], [9, 10]),
    (2, Event.MOVE, [9], [11]),
    (2, Event.DIVIDE, [10], [12, 13]),
]


def found(events):
    return torn(EventTable.of(events)).tolist()


def test_one_two_one_is_torn_and_two_one_two_is_not():
    assert found([*TORN, *TOUCHING]) == [True, True, False] + [False] * 4
    assert found([]) == []


def test_it_does_not_matter_what_the_tearing_is_called():
    assert found([(0, Event.SPLIT, [1], [2, 3]), *TORN[1:]]) == found(TORN)


@given(st.permutations(range(7)))
def test_nor_in_which_order_events_are(order):
    events = EventTable.of([*TORN, *TOUCHING])
    np.testing.assert_array_equal(torn(events[np.array(order)]), torn(events)[order])


def test_parts_that_last_longer_or_merge_with_others_are_not_torn():
    longer = [TORN[0], (1, Event.MOVE, [2], [4]), (1, Event.MOVE, [3], [5]), (2, Event.MERGE, [4, 5], [6])]
    others = [TORN[0], (0, Event.MOVE, [4], [5]), (1, Event.MERGE, [2, 5], [6]), (1, Event.MOVE, [3], [7])]
    later = [TORN[0], (2, Event.MERGE, [2, 3], [4])]  # labels count in their frames alone
    assert not any(found(longer) + found(others) + found(later))


def test_where_both_are_possible_nothing_is_said():
    """Two cells that touch, are apart for one frame and touch again, and come apart at last."""
    before, after = (0, Event.MERGE, [1, 2], [3]), (3, Event.SPLIT, [6], [7, 8])
    middle = [(1, Event.SPLIT, [3], [4, 5]), (2, Event.MERGE, [4, 5], [6])]
    assert found(middle) == [True, True]
    assert found([before, *middle]) == [False, False, True]
    assert found([*middle, after]) == [True, False, False]
    assert found([before, *middle, after]) == [False] * 4
