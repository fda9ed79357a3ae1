"""Masks that are torn for one frame, in movies drawn in a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.splits import (
    find_torn_events,
    number_detections,
    repair_torn_masks,
)

from ...helpers.tracking import events_of_links, links_of

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


def torn(events):
    return find_torn_events(events.event, *number_detections(events)).is_torn


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
    longer = [
        TORN[0],
        (1, Event.MOVE, [2], [4]),
        (1, Event.MOVE, [3], [5]),
        (2, Event.MERGE, [4, 5], [6]),
    ]
    others = [
        TORN[0],
        (0, Event.MOVE, [4], [5]),
        (1, Event.MERGE, [2, 5], [6]),
        (1, Event.MOVE, [3], [7]),
    ]
    later = [
        TORN[0],
        (2, Event.MERGE, [2, 3], [4]),
    ]  # labels count in their frames alone
    assert not any(found(longer) + found(others) + found(later))


def test_where_both_are_possible_nothing_is_said():
    """Two cells that touch, are apart for one frame and touch again, and come apart at last."""
    before, after = (0, Event.MERGE, [1, 2], [3]), (3, Event.SPLIT, [6], [7, 8])
    middle = [(1, Event.SPLIT, [3], [4, 5]), (2, Event.MERGE, [4, 5], [6])]
    assert found(middle) == [True, True]
    assert found([before, *middle]) == [False, False, True]
    assert found([*middle, after]) == [True, False, False]
    assert found([before, *middle, after]) == [False] * 4


GONE = [
    (0, Event.DIVIDE, [1], [2, 3]),
    (1, Event.MOVE, [2], [4]),
    (1, Event.DISAPPEAR, [3], []),
    (2, Event.MOVE, [4], [5]),
]
"""The same, but what is left of one piece was taken for the end of a cell."""
MOVED = [
    (0, Event.APPEAR, [], [3]),
    (0, Event.MOVE, [1], [2]),
    (1, Event.DISAPPEAR, [3], []),
    (1, Event.MOVE, [2], [4]),
    (2, Event.MOVE, [4], [5]),
]
WHOLE = {1: 1.0, 2: 0.6, 3: 0.4, 4: 1.1, 5: 1.0}


def mend(events, size, fixed=()):
    """The repaired links, and their events, sorted."""
    table = EventTable.of(events)
    n = len(table)
    links = links_of(
        table, np.arange(1.0, n + 1), np.zeros(n), np.full(n, 0.5), size, 2.0
    )
    sources, targets = links.event_nodes(table[np.isin(np.arange(n), fixed)])
    nodes = np.arange(len(links))
    repaired = repair_torn_masks(
        links, np.isin(nodes, sources), np.isin(nodes, targets)
    )
    assert (np.diff(repaired.others.frame) >= 0).all()
    return repaired, events_of_links(repaired)


@pytest.mark.parametrize("apart", [Event.DIVIDE, Event.SPLIT])
@pytest.mark.parametrize("then", [TORN, GONE])
def test_a_cell_whose_mask_is_torn_moves_on_by_its_larger_piece(then, apart):
    links, events = mend([(0, apart, [1], [2, 3]), *then[1:]], WHOLE)
    assert events == sorted(MOVED)
    new = links.others.kind == Event.APPEAR
    assert links.others.context[new] == 0
    # nothing there can be a split any more
    assert np.isnan(links.others.split_margin[links.others.frame == 0]).all()
    moves = np.flatnonzero(links.successor >= 0)
    assert links.move_context[moves].tolist() == [0, 0, 0.5]


def test_it_is_as_sure_as_the_sizes_are_clear():
    def sure(events, **size):
        links, _ = mend(
            events, WHOLE | {int(label[1:]): value for label, value in size.items()}
        )
        return links.others.confidence[links.others.kind == Event.APPEAR]

    assert sure(TORN, _1=1.3, _4=1.4) == pytest.approx(
        2 * np.log(2 / 1.3 / 1.4), rel=1e-5
    )  # nearly two cells
    assert sure(GONE, _4=0.8) == pytest.approx(
        2 * np.log(0.8**2 / 0.6), rel=1e-5
    )  # still a part


def test_also_where_the_smaller_piece_was_followed():
    _, events = mend(GONE, WHOLE | {2: 0.4, 3: 0.6})
    swapped = {2: 3, 3: 2}
    assert events == sorted(
        (t, e, [swapped.get(i, i) for i in a], [swapped.get(i, i) for i in b])
        for t, e, a, b in MOVED
    )


@pytest.mark.parametrize(
    ("events", "size"),
    [
        (
            GONE,
            WHOLE | {4: 0.6},
        ),  # a daughter that stays as small as she was, and another that is lost
        (
            TORN,
            {label: 2 * size for label, size in WHOLE.items()},
        ),  # as large as two cells
        (TORN, {}),  # nothing is known
        (TOUCHING, dict.fromkeys(range(6, 14), 1.0)),
        (
            [TORN[0], (1, Event.DISAPPEAR, [2], []), (1, Event.DISAPPEAR, [3], [])],
            WHOLE,
        ),
        ([TORN[0], (1, Event.MOVE, [2], [4]), (1, Event.MOVE, [3], [5])], WHOLE),
        (TORN[:1], WHOLE),
        ([], WHOLE),
    ],
)
def test_divisions_and_cells_that_touch_stay_what_they_are(events, size):
    links, found = mend(events, size)
    assert found == sorted(events)
    assert (links.move_context[links.successor >= 0] == 0.5).all()
    moves = links.move_confidence[links.successor >= 0]
    confidence = np.concatenate([links.others.confidence, moves])
    assert sorted(confidence.tolist()) == list(range(1, len(events) + 1))


@pytest.mark.parametrize("events", [TORN, GONE])
def test_what_is_fixed_is_not_mended(events):
    for row in range(len(events) - 1):
        assert mend(events, WHOLE, [row])[1] == sorted(events)


def test_tears_one_after_the_other_are_all_mended():
    again = [
        (t + 2, event, [i + 3 for i in a], [i + 3 for i in b])
        for t, event, a, b in TORN
    ]
    _, events = mend(
        [*GONE[:3], *again], WHOLE | {4: 1.0, 5: 0.7, 6: 0.3, 7: 1.0, 8: 1.0}
    )
    assert [event for _, event, _, _ in events].count(Event.MOVE) == 5
    assert not {Event.DIVIDE, Event.MERGE} & {event for _, event, _, _ in events}
