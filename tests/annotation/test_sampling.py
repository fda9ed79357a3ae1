"""Stratified draws of annotations."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.annotation.sampling import sample
from clew.errors import InputError
from clew.tracking.events import Annotations, Event, EventTable


def annotations(counts, n_frames=10, happened=True):
    """So many events of each kind, one after the other over the frames."""
    kinds = [kind for kind, n in counts.items() for _ in range(n)]
    frames = [i % n_frames for n in counts.values() for i in range(n)]
    rows = []
    for i, (frame, kind) in enumerate(zip(frames, kinds, strict=True)):
        sources, targets = kind.arity
        rows.append(
            (
                frame,
                kind,
                [2 * i + 1, 2 * i + 2][:sources],
                [2 * i + 1, 2 * i + 2][:targets],
            )
        )
    return Annotations.of(EventTable.of(rows), happened)


MANY = annotations(
    {Event.MOVE: 800, Event.DIVIDE: 40, Event.APPEAR: 3, Event.DISAPPEAR: 8}
)


def kinds(some):
    return {
        Event(event): int(n) for event, n in Counter(some.events.event.tolist()).items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_each_kind_by_its_fraction(seed):
    some = sample(MANY, 0.25, seed)
    assert kinds(some) == {
        Event.MOVE: 200,
        Event.DIVIDE: 10,
        Event.APPEAR: 1,
        Event.DISAPPEAR: 2,
    }
    # spread over the frames: 80 moves lead on from each
    assert set(
        np.bincount(some.events.frame[some.events.event == Event.MOVE], minlength=10)
    ) <= {19, 20, 21}
    assert (
        np.bincount(
            some.events.frame[some.events.event == Event.DIVIDE], minlength=10
        ).tolist()
        == [1] * 10
    )


def test_rare_events_are_there():
    assert kinds(sample(MANY, 0.01, 0)) == {
        Event.MOVE: 6,
        Event.DIVIDE: 1,
        Event.APPEAR: 1,
        Event.DISAPPEAR: 1,
    }
    assert set(kinds(sample(MANY, number=1, rng=0)).values()) == {1}


def test_by_number():
    assert len(sample(MANY, number=100, rng=0)) == 100
    assert len(sample(MANY, number=len(MANY), rng=0)) == len(MANY)


def test_within_frames():
    some = sample(MANY, 0.5, 0, frames=[2, 3])
    assert set(some.events.frame.tolist()) == {2, 3}
    assert kinds(some)[Event.MOVE] == 80
    assert len(sample(MANY, 0.5, 0, frames=[])) == 0


def test_what_did_not_happen_is_a_kind_of_its_own():
    mixed = annotations({Event.MOVE: 100}, happened=np.arange(100) % 10 > 0)
    some = sample(mixed, 0.2, 0)
    assert (int(some.happened.sum()), int((~some.happened).sum())) == (18, 2)


def test_seeds():
    again = [sample(MANY, 0.1, seed).row.tolist() for seed in (0, 0, 1)]
    assert again[0] == again[1] != again[2]
    assert sample(MANY, 0.1, np.random.default_rng(0)).row.tolist() == again[0]


def test_every_event_has_the_same_chance():
    few = annotations({Event.MOVE: 10}, n_frames=2)
    rng = np.random.default_rng(0)
    drawn = np.bincount(
        np.concatenate([sample(few, 0.3, rng).row for _ in range(2000)]), minlength=11
    )[1:]
    # 600 each, with a deviation of about 20
    assert abs(drawn - 600).max() < 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either a fraction or a number"),
        ({"fraction": 0.5, "number": 3}, "either a fraction or a number"),
        ({"fraction": 0.0}, "over 0 and at most 1"),
        ({"fraction": 1.5}, "over 0 and at most 1"),
        ({"fraction": float("nan")}, "over 0 and at most 1"),
        ({"number": 0}, "number is 0; expected 1"),
        ({"number": 10**6}, "851"),
        ({"number": 1, "frames": []}, "expected 1 to 0"),
    ],
)
def test_what_cannot_be_drawn(arguments, message):
    with pytest.raises(InputError, match=message):
        sample(MANY, **arguments)


@given(
    st.lists(st.integers(0, 30), min_size=len(Event), max_size=len(Event)),
    st.floats(0.001, 1),
    st.integers(0, 99),
)
def test_laws(counts, fraction, seed):
    whole = annotations(dict(zip(Event, counts, strict=True)))
    some = sample(whole, fraction, seed)
    assert len(set(some.row.tolist())) == len(some)
    assert (np.diff(some.row) > 0).all()
    assert (some.events.row_keys() == whole.events.row_keys()[some.row - 1]).all()
    drawn = kinds(some)
    assert set(drawn) == {kind for kind, n in zip(Event, counts, strict=True) if n}
    assert len(some) == max(round(fraction * len(whole)), len(drawn))
    if fraction == 1:
        assert len(some) == len(whole)
