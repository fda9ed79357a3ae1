"""How many cells a detection holds, through a movie drawn in a table."""

import numpy as np
import pytest

from clew.tracking.events import Event, EventTable
from clew.tracking.linking.counts import MERGED_BEFORE, NOT_MERGED_BEFORE, by_counts

CLOSE = (MERGED_BEFORE - NOT_MERGED_BEFORE) / 10
"""A lead that what happened before outweighs."""
CLEAR = 10 * MERGED_BEFORE

# frame   0      1      2      3
#         1 ──┐
#             3 ───── 4 ──┬── 5
#         2 ──┘           └── 6
#         7 ───── 8 ───── 9 ──┬── 10
#                             └── 11
MERGED = [
    (0, Event.MERGE, [1, 2], [3]),
    (0, Event.MOVE, [7], [8]),
    (1, Event.MOVE, [3], [4]),
    (1, Event.MOVE, [8], [9]),
    (2, Event.DIVIDE, [4], [5, 6]),
    (2, Event.SPLIT, [9], [10, 11]),
]


def told_apart(events, lead, order=None, unit=1.0):
    order = np.arange(len(events)) if order is None else order
    table = EventTable.of(events)[order]
    found, sure = by_counts(table, np.full(len(events), 5.0), np.asarray(lead)[order], unit)
    return dict(zip(order.tolist(), (Event(kind) for kind in found.event), strict=True)), sure[np.argsort(order)]


def test_after_a_merge_it_is_a_split_and_without_one_a_division():
    lead = [np.nan] * 4 + [-CLOSE, CLOSE]
    kinds, sure = told_apart(MERGED, lead)
    assert (kinds[4], kinds[5]) == (Event.SPLIT, Event.DIVIDE)
    assert sure[:4].tolist() == [5.0] * 4
    assert sure[4] == pytest.approx(MERGED_BEFORE - CLOSE)
    assert sure[5] == pytest.approx(-NOT_MERGED_BEFORE - CLOSE)


def test_a_clear_lead_stays():
    kinds, _ = told_apart(MERGED, [np.nan] * 4 + [-CLEAR, CLEAR])
    assert (kinds[4], kinds[5]) == (Event.DIVIDE, Event.SPLIT)


def test_what_was_annotated_stays():
    kinds, sure = told_apart(MERGED, [np.nan] * 6)
    assert (kinds[4], kinds[5]) == (Event.DIVIDE, Event.SPLIT)
    assert (sure == 5.0).all()


def test_the_order_of_the_rows_and_the_unit_of_the_weights_do_not_matter():
    lead = np.array([np.nan] * 4 + [-CLOSE, CLOSE])
    straight, _ = told_apart(MERGED, lead)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(MERGED))
        assert told_apart(MERGED, lead, order)[0] == straight
    assert told_apart(MERGED, 7 * lead, unit=7.0)[0] == straight


def test_what_came_out_of_a_merge_does_not_split_again():
    events = [*MERGED[:1], (1, Event.SPLIT, [3], [4, 5]), (2, Event.SPLIT, [4], [6, 7])]
    kinds, _ = told_apart(events, [np.nan, CLOSE, CLOSE])
    assert (kinds[1], kinds[2]) == (Event.SPLIT, Event.DIVIDE)


def test_a_movie_without_merges_and_splits_is_left_as_it_is():
    table = EventTable.of([(0, Event.DIVIDE, [1], [2, 3])])
    sure = np.ones(1)
    assert by_counts(table, sure, np.array([CLEAR]), 1.0) == (table, sure)


def test_frames_that_are_missing_make_everything_unknown():
    events = [(0, Event.MERGE, [1, 2], [3]), (2, Event.DIVIDE, [3], [4, 5])]
    kinds, _ = told_apart(events, [np.nan, -CLOSE])
    assert kinds[1] is Event.DIVIDE
