"""The task loss, by hand and by brute force."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.evaluation.task_loss import NOTHING, compute_task_loss
from clew.tracking.events import LINEAGE_KINDS, PAIRWISE, Annotations, Event, EventTable

MOVE, DIVIDE, APPEAR, DISAPPEAR, SPLIT, MERGE, GAP = LINEAGE_KINDS


def test_task_loss_by_hand():
    truth = Annotations.of(
        EventTable.of(
            [
                (0, MOVE, [1], [1]),
                (0, MOVE, [2], [2]),
                (0, DIVIDE, [3], [3, 4]),
                (0, APPEAR, [], [9]),
                (1, MERGE, [5, 6], [7]),
                (0, MOVE, [8], [8]),
                (1, MOVE, [1], [2]),
                (1, APPEAR, [], [3]),
            ]
        ),
        [True, True, True, True, True, True, False, False],
    )
    predicted = EventTable.of(
        [
            (0, MOVE, [1], [1]),
            (0, MOVE, [2], [9]),
            (0, MOVE, [3], [3]),
            (0, APPEAR, [], [4]),
            (1, MOVE, [1], [2]),
            (1, MOVE, [5], [7]),
            (1, DISAPPEAR, [6], []),
        ]
    )
    loss = compute_task_loss(truth, predicted)
    assert loss.annotated[list(PAIRWISE)].tolist() == [3, 1, 1, 0, 0, 1]
    assert loss.missed[list(PAIRWISE)].tolist() == [2, 1, 1, 0, 0, 1]
    assert loss.denied[list(PAIRWISE)].tolist() == [1, 0, 1, 0, 0, 0]
    assert loss.invented[list(PAIRWISE)].tolist() == [1, 0, 0, 0, 0, 0]
    assert loss.total == 6 / 8
    expected = np.zeros((len(Event), NOTHING + 1), dtype=int)
    expected[MOVE, MOVE] = 1  # 2 went elsewhere
    expected[MOVE, NOTHING] = 1  # nobody said a word of 8
    expected[DIVIDE, MOVE] = 1
    expected[APPEAR, MOVE] = 1  # 9 did not appear, it was 2
    expected[MERGE, MOVE] = expected[MERGE, DISAPPEAR] = 1
    assert loss.confusion.tolist() == expected.tolist()
    assert json.loads(json.dumps(loss.to_dict()))["events"]["merge"]["instead"] == {
        "move": 1,
        "disappear": 1,
    }


def test_nothing_annotated_nothing_lost():
    assert (
        compute_task_loss(Annotations.of(EventTable.empty()), EventTable.empty()).total
        == 0.0
    )
    one = Annotations.of(EventTable.of([(0, MOVE, [10**12], [1])]))
    assert compute_task_loss(one, EventTable.empty()).total == 1.0
    assert compute_task_loss(one, one.events).total == 0.0


cells = st.integers(1, 3)
events = st.one_of(
    st.tuples(st.integers(0, 1), st.just(MOVE), st.tuples(cells), st.tuples(cells)),
    st.tuples(st.integers(0, 1), st.just(APPEAR), st.just(()), st.tuples(cells)),
    st.tuples(st.integers(0, 1), st.just(DISAPPEAR), st.tuples(cells), st.just(())),
    *(
        st.tuples(
            st.integers(0, 1),
            st.just(kind),
            st.tuples(cells),
            st.sampled_from([(1, 2), (1, 3), (2, 3)]),
        )
        for kind in (DIVIDE, SPLIT)
    ),
    st.tuples(
        st.integers(0, 1),
        st.just(MERGE),
        st.sampled_from([(1, 2), (1, 3), (2, 3)]),
        st.tuples(cells),
    ),
)


@given(
    st.lists(events, max_size=6, unique=True),
    st.lists(events, max_size=12, unique=True),
    st.data(),
)
def test_task_loss_by_brute_force(said, candidates, data):
    predicted, taken = [], set()
    for frame, kind, sources, targets in candidates:  # one fate and one history each
        ends = {(frame, 0, c) for c in sources} | {(frame, 1, c) for c in targets}
        if not ends & taken:
            predicted.append((frame, kind, sources, targets))
            taken |= ends
    happened = data.draw(
        st.lists(st.booleans(), min_size=len(said), max_size=len(said))
    )
    loss = compute_task_loss(
        Annotations.of(EventTable.of(said), happened), EventTable.of(predicted)
    )
    wrong = sum(
        (event in predicted) != did for event, did in zip(said, happened, strict=True)
    )
    assert loss.total == pytest.approx(wrong / len(said) if said else 0)
    for kind in PAIRWISE:
        missed = [
            e
            for e, did in zip(said, happened, strict=True)
            if did and e[1] == kind and e not in predicted
        ]
        assert loss.missed[kind] == len(missed)
        for instead in PAIRWISE:
            times = sum(
                p[0] == e[0]
                and p[1] == instead
                and (cell in p[3] if kind == APPEAR else cell in p[2])
                for e in missed
                for cell in (e[3] if kind == APPEAR else e[2])
                for p in predicted
            )
            assert loss.confusion[kind, instead] == times
