"""How many cells a detection holds, through a movie drawn in a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.splits import (
    MERGED_BEFORE,
    NOT_MERGED_BEFORE,
    classify_splits,
    split_margin_from_rank,
)

from ...helpers.tracking import links_of

EVEN = -(MERGED_BEFORE + NOT_MERGED_BEFORE) / 2
"""A lead that is a split after a merge and a division without one."""
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
    links = links_of(
        table, np.full(len(events), 5.0), np.asarray(lead)[order], weight_norm=unit
    )
    found = classify_splits(links).others
    # moves stay; the others are found by their first target, or source, and frame
    kinds, sure = {}, np.full(len(events), 5.0)
    labels = found.table(links.label)
    rows = {
        (t, sources, targets): k for k, (t, _, sources, targets) in enumerate(labels)
    }
    for number, (t, kind, sources, targets) in zip(order.tolist(), table, strict=True):
        if kind is Event.MOVE:
            kinds[number] = kind
            continue
        row = rows[t, sources, targets]
        kinds[number], sure[number] = Event(int(found.kind[row])), found.confidence[row]
    return kinds, sure


def test_after_a_merge_it_is_a_split_and_without_one_a_division():
    lead = [np.nan] * 4 + [EVEN, EVEN]
    kinds, sure = told_apart(MERGED, lead)
    assert (kinds[4], kinds[5]) == (Event.SPLIT, Event.DIVIDE)
    assert sure[:4].tolist() == [5.0] * 4
    assert sure[4] == pytest.approx(MERGED_BEFORE + EVEN)
    assert sure[5] == pytest.approx(-NOT_MERGED_BEFORE - EVEN)


def test_large_parts_are_those_of_a_split_and_unknown_sizes_tell_nothing():
    added = split_margin_from_rank(np.array([0.0, 0.5, 1.0, np.nan]))
    assert added[0] < 0 < added[1] < added[2]
    assert added[3] == 0
    kinds, _ = told_apart(
        MERGED,
        np.array([np.nan] * 5 + [-NOT_MERGED_BEFORE])
        + split_margin_from_rank(np.ones(6)),
    )
    assert kinds[5] == Event.SPLIT
    kinds, _ = told_apart(
        MERGED,
        np.array([np.nan] * 5 + [-NOT_MERGED_BEFORE])
        + split_margin_from_rank(np.zeros(6)),
    )
    assert kinds[5] == Event.DIVIDE


def test_a_clear_lead_stays():
    kinds, _ = told_apart(MERGED, [np.nan] * 4 + [-CLEAR, CLEAR])
    assert (kinds[4], kinds[5]) == (Event.DIVIDE, Event.SPLIT)


def test_what_was_annotated_stays():
    kinds, sure = told_apart(MERGED, [np.nan] * 6)
    assert (kinds[4], kinds[5]) == (Event.DIVIDE, Event.SPLIT)
    assert (sure == 5.0).all()


def test_the_order_of_the_rows_and_the_unit_of_the_weights_do_not_matter():
    lead = np.array([np.nan] * 4 + [EVEN, EVEN])
    straight, _ = told_apart(MERGED, lead)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(MERGED))
        assert told_apart(MERGED, lead, order)[0] == straight
    assert told_apart(MERGED, 7 * lead, unit=7.0)[0] == straight


def test_what_came_out_of_a_merge_does_not_split_again():
    events = [*MERGED[:1], (1, Event.SPLIT, [3], [4, 5]), (2, Event.SPLIT, [4], [6, 7])]
    kinds, _ = told_apart(events, [np.nan, EVEN, EVEN])
    assert (kinds[1], kinds[2]) == (Event.SPLIT, Event.DIVIDE)


def test_a_movie_without_merges_and_splits_is_left_as_it_is():
    table = EventTable.of([(0, Event.DIVIDE, [1], [2, 3])])
    links = links_of(table, np.ones(1), np.array([CLEAR]))
    assert classify_splits(links) is links


def test_frames_that_are_missing_make_everything_unknown():
    events = [(0, Event.MERGE, [1, 2], [3]), (2, Event.DIVIDE, [3], [4, 5])]
    kinds, _ = told_apart(events, [np.nan, EVEN])
    assert kinds[1] is Event.DIVIDE


def colony(n_merges, n_apart):
    """Merges in the first frame, then as many cells that come apart and look like splits to the weights."""
    merges = [
        (0, Event.MERGE, [10 * k + 1, 10 * k + 2], [10 * k + 3])
        for k in range(n_merges)
    ]
    others = [
        (1, Event.SPLIT, [10**4 + 10 * k], [10**4 + 10 * k + 1, 10**4 + 10 * k + 2])
        for k in range(n_apart)
    ]
    lead = [np.nan] * n_merges + np.linspace(0.1, 0.5, n_apart).tolist()
    return merges + others, lead


def test_no_more_cells_split_than_have_merged_but_for_chance():
    """Divisions of a kind of cells that the weights do not know look like splits; cells are conserved all the same."""
    events, lead = colony(4, 100)
    kinds, sure = told_apart(events, lead)
    splits = [k for k in range(4, 104) if kinds[k] is Event.SPLIT]
    assert len(splits) <= 4 + 2 * np.sqrt(5) + 1
    assert not splits or splits == list(
        range(104 - len(splits), 104)
    )  # those that look most like it
    assert (sure >= 0).all()


@given(st.integers(0, 12), st.integers(0, 12))
def test_as_many_splits_as_merges_are_left_as_they_are(n_merges, fewer):
    events, lead = colony(n_merges, max(n_merges - fewer, 0))
    kinds, _ = told_apart(events, lead)
    assert all(kinds[k] is Event.SPLIT for k in range(n_merges, len(events)))


def test_a_torn_mask_leaves_the_number_of_cells_as_it_was():
    """One cell in two pieces in frame 1: what comes apart afterwards is a division, for nothing merged before."""
    torn = [
        (0, Event.DIVIDE, [1], [2, 3]),
        (1, Event.MERGE, [2, 3], [4]),
        (2, Event.MOVE, [4], [5]),
    ]
    later = (3, Event.SPLIT, [5], [6, 7])
    kinds, _ = told_apart([*torn, later], [-CLEAR, np.nan, np.nan, EVEN])
    assert (kinds[0], kinds[3]) == (Event.SPLIT, Event.DIVIDE)
    kinds, _ = told_apart(
        [*torn, later], [np.nan, np.nan, np.nan, EVEN]
    )  # unless a person says that it divides
    assert kinds[0] is Event.DIVIDE
    kinds, _ = told_apart(
        [*torn[1:], later], [np.nan, np.nan, EVEN]
    )  # without the tearing it is a merge as others are
    assert kinds[2] is Event.SPLIT


def test_cells_that_had_merged_before_their_mask_was_torn_still_can_split():
    events = [
        (0, Event.MERGE, [1, 2], [3]),
        (1, Event.MOVE, [3], [4]),
        (2, Event.SPLIT, [4], [5, 6]),
        (3, Event.MERGE, [5, 6], [7]),
        (4, Event.MOVE, [7], [8]),
        (5, Event.DIVIDE, [8], [9, 10]),
    ]
    kinds, _ = told_apart(events, [np.nan, np.nan, CLEAR, np.nan, np.nan, EVEN])
    assert kinds[5] is Event.SPLIT


def test_merges_of_torn_masks_allow_no_splits():
    """Ten masks are torn, and ten cells divide that look a little like splits: nothing merged that could split."""
    torn = [
        e
        for k in range(10)
        for e in (
            (0, Event.DIVIDE, [1 + k], [101 + 2 * k, 102 + 2 * k]),
            (1, Event.MERGE, [101 + 2 * k, 102 + 2 * k], [1 + k]),
        )
    ]
    divisions = [
        (1, Event.SPLIT, [201 + k], [301 + 2 * k, 302 + 2 * k]) for k in range(10)
    ]
    lead = [-CLEAR, np.nan] * 10 + [0.02 - NOT_MERGED_BEFORE] * 10
    kinds, _ = told_apart([*torn, *divisions], lead)
    assert {kinds[k] for k in range(20, 30)} == {Event.DIVIDE}
    kinds, _ = told_apart([*torn[1::2], *divisions], lead[1:20:2] + lead[20:])
    assert {kinds[k] for k in range(10, 20)} == {Event.SPLIT}
