"""Tables of events and annotations: what callers may give, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.tracking.events import (
    ARITY,
    Annotations,
    Event,
    EventIndex,
    EventTable,
    check_annotations,
)

from ..helpers.effort import examples

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


LABELS = {0: [1, 2, 3, 9], 1: [1, 2, 3, 4], 2: [1, 2], 3: []}


def check(events, happened=True, row=None, n_frames=4):
    annotations = Annotations.of(EventTable.of(events), happened, row)
    return check_annotations(annotations, LABELS.__getitem__, n_frames, "some.csv")


def fault(*args, **kwargs) -> str:
    with pytest.raises(InputError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


def test_what_fits_comes_back():
    events = [
        (0, Event.MOVE, [1], [1]),
        (0, Event.DIVIDE, [2], [2, 3]),
        (1, Event.MOVE, [1], [1]),
        (0, Event.APPEAR, [], [4]),
    ]
    assert list(check(events).events) == list(EventTable.of(events))


def test_no_annotations_are_fine():
    assert len(check([])) == 0


def test_only_frames_that_are_named_are_asked_for():
    asked = []
    annotations = Annotations.of(
        EventTable.of([(5, Event.MOVE, [1], [1]), (5, Event.DISAPPEAR, [2], [])])
    )
    check_annotations(annotations, lambda t: asked.append(t) or [1, 2], 100)
    assert asked == [5, 6]


def test_a_source_that_is_not_there():
    assert fault(
        [(0, Event.MOVE, [1], [1]), (1, Event.MOVE, [9], [1])], row=[4, 7]
    ) == (
        "some.csv: row 7: move 9 → 1 from frame 1 to 2, but there is no label 9 in frame 1"
    )


def test_a_target_that_is_not_there():
    assert (
        "row 3: divide 1 → 1 + 9 from frame 0 to 1, but there is no label 9 in frame 1"
        in fault([(0, Event.DIVIDE, [1], [1, 9])], row=[3])
    )


def test_a_non_event_must_exist_too():
    assert "no label 8" in fault([(0, Event.MOVE, [8], [1])], happened=False)


def test_an_empty_frame_has_no_labels():
    assert "no label 1 in frame 3" in fault([(2, Event.MOVE, [1], [1])])


@pytest.mark.parametrize("frame", [3, 4, 10**9, -1])
def test_a_frame_beyond_the_last_pair(frame):
    message = fault([(frame, Event.MOVE, [1], [1])], row=[12])
    assert "row 12: move 1 → 1 from frame" in message
    assert "but the movie ends with frame 3" in message


def test_a_movie_of_one_frame_has_no_pairs():
    assert "but the movie has 1 frames" in fault(
        [(0, Event.MOVE, [1], [1])], n_frames=1
    )


def test_two_fates():
    assert fault(
        [(0, Event.MOVE, [1], [1]), (0, Event.DIVIDE, [1], [2, 3])], row=[3, 9]
    ) == (
        "some.csv: row 3: move 1 → 1 from frame 0 to 1 contradicts row 9, divide 1 → 2 + 3 from frame 0 to 1: "
        "label 1 of frame 0 can have one fate only"
    )


def test_two_histories():
    message = fault([(0, Event.APPEAR, [], [4]), (0, Event.MOVE, [1], [4])], row=[3, 9])
    assert (
        "appear 4 from frame 0 to 1 contradicts row 9, move 1 → 4 from frame 0 to 1"
        in message
    )
    assert "label 4 of frame 1 can have one history only" in message


def test_divide_and_split_of_the_same_cells():
    message = fault([(0, Event.DIVIDE, [1], [1, 2]), (0, Event.SPLIT, [1], [1, 2])])
    assert "divide 1 → 1 + 2" in message
    assert "split 1 → 1 + 2" in message
    assert "\n" not in message, "one pair that shares three cells is one fault"


def test_happened_and_did_not():
    assert fault(
        [(0, Event.MOVE, [1], [1]), (0, Event.MOVE, [1], [1])],
        [False, True],
        row=[3, 9],
    ) == (
        "some.csv: row 3: move 1 → 1 from frame 0 to 1 did not happen, but by row 9 happened"
    )


def test_a_duplicate_is_dropped():
    events = [
        (0, Event.MERGE, [2, 1], [1]),
        (0, Event.MOVE, [3], [3]),
        (0, Event.MERGE, [1, 2], [1]),
    ]
    assert check(events, row=[5, 6, 7]).row.tolist() == [5, 6]


def test_what_did_not_happen_contradicts_nothing_else():
    events = [
        (0, Event.MOVE, [1], [1]),
        (0, Event.MOVE, [1], [2]),
        (0, Event.DIVIDE, [1], [1, 2]),
    ]
    assert len(check(events, [True, False, False])) == 3


def test_a_label_as_source_and_as_target_are_two_cells():
    assert (
        len(
            check(
                [
                    (0, Event.MOVE, [1], [2]),
                    (1, Event.MOVE, [2], [2]),
                    (0, Event.MOVE, [2], [1]),
                ]
            )
        )
        == 3
    )


def test_several_faults_are_told_at_once():
    message = fault(
        [(0, Event.MOVE, [20 + i], [1]) for i in range(8)] + [(9, Event.MOVE, [1], [1])]
    )
    lines = message.splitlines()
    assert (
        lines[0] == "some.csv has 16 faults:"
    )  # 9 faulty rows, and 7 more histories of label 1
    assert len(lines) == 7
    assert lines[-1].strip() == "and 11 more"


small = st.integers(1, 3)
events = st.sampled_from(list(Event)).flatmap(
    lambda event: st.tuples(
        st.integers(0, 1),
        st.just(event),
        *(st.lists(small, min_size=n, max_size=n, unique=True) for n in ARITY[event]),
    )
)


@examples(300)
@given(st.lists(st.tuples(events, st.booleans()), max_size=6))
def test_contradictions_as_brute_force_finds_them(rows):
    told = [
        ((t, event, tuple(sorted(a)), tuple(sorted(b))), happened)
        for (t, event, a, b), happened in rows
    ]

    def clash(one, other):
        (first, yes), (second, also) = one, other
        if first == second:
            return yes != also
        fates = first[0] == second[0] and set(first[2]) & set(second[2])
        histories = first[0] + first[1].span == second[0] + second[1].span and set(
            first[3]
        ) & set(second[3])
        return yes and also and bool(fates or histories)

    contradiction = any(clash(one, other) for one in told for other in told)
    annotations = Annotations.of(
        EventTable.of([event for event, _ in rows]), [happened for _, happened in rows]
    )
    if contradiction:
        with pytest.raises(InputError):
            check_annotations(annotations, lambda t: [1, 2, 3], 4)
    else:
        assert len(check_annotations(annotations, lambda t: [1, 2, 3], 4)) == len(
            set(told)
        )


def calls_of_a_check(n, frames=100):
    """How many functions are called to check n moves; each frame is asked for its labels at most once."""
    frame, label = np.divmod(np.arange(n), n // frames)
    side = np.column_stack([label + 1, np.zeros(n, dtype=np.int64)])
    annotations = Annotations.of(
        EventTable(frame, np.zeros(n, dtype=np.int8), side, side)
    )
    asked, calls = [], 0

    def labels(t):
        asked.append(t)
        return np.arange(1, n // frames + 1)

    def count(*_):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        checked = check_annotations(annotations, labels, frames + 1)
    finally:
        sys.setprofile(None)
    assert len(checked) == n
    assert len(asked) == len(set(asked))
    return calls


def test_many_annotations_are_checked_at_once_and_not_one_by_one():
    assert calls_of_a_check(60_000) < 1.5 * calls_of_a_check(600)


def test_a_gap_that_leads_out_of_an_excerpt_is_left_out():
    events = EventTable.of(
        [(3, Event.GAP, [1], [2]), (4, Event.GAP, [1], [2]), (4, Event.MOVE, [3], [4])]
    )
    inside = Annotations.of(events).restrict_to(range(2, 6))
    assert [(frame, event) for frame, event, *_ in inside.events] == [
        (1, Event.GAP),
        (2, Event.MOVE),
    ]
