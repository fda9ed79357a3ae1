"""Which kinds of events a movie has."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.events import Event
from clew.tracking.profiling.event_kinds import (
    GAPS,
    MASK_FAULTS,
    decide_events,
    parse_events,
)
from clew.tracking.tracker import Tracker
from clew.tracking.training.prior import generic_weights


@pytest.fixture(scope="module")
def pairs(simulated):
    source = Tracker(cache=None, n_jobs=1).measure(simulated.movie)
    return Pairs.of(source, source.has)


def weights(pairs, **biases):
    """Generic weights with some events made likelier or less likely."""
    names = feature_names(pairs.groups)
    w = generic_weights(names)
    for event, bias in biases.items():
        w[names.index(f"{event}: bias")] += bias
    return w


def test_a_movie_with_merges_has_splits_too(pairs, simulated):
    assert (simulated.known.events.event == Event.MERGE).sum() > 0
    assert decide_events(pairs, weights(pairs)).events >= MASK_FAULTS


def test_without_a_sign_of_merges_both_are_off(pairs):
    decided = decide_events(pairs, weights(pairs, merge=-50.0))
    assert not decided.events & MASK_FAULTS
    assert "split and merge off: 0 of " in str(
        decided
    ) or "split, merge and gap off: 0 of " in str(decided)


@pytest.mark.parametrize("known", [{Event.SPLIT}, {Event.MERGE}])
def test_what_was_annotated_is_on(pairs, known):
    assert (
        decide_events(pairs, weights(pairs, merge=-50.0), known).events >= MASK_FAULTS
    )


def test_without_weights_there_is_no_evidence(pairs):
    basic = ALL_EVENTS - MASK_FAULTS - GAPS
    assert decide_events(pairs, None).events == basic
    assert decide_events(pairs, None, {Event.MERGE}).events == basic | MASK_FAULTS
    assert decide_events(pairs, None, {Event.MERGE, Event.GAP}).events == ALL_EVENTS


def test_kinds_that_weights_were_learned_without_are_off(pairs, simulated):
    """Else merges, which score 0, would be everywhere that a move scores less (16 % missed on HeLa)."""
    names = feature_names(pairs.groups)
    w = np.where(
        [name.startswith(("split", "merge")) for name in names], 0.0, weights(pairs)
    )
    assert not decide_events(pairs, w).events & MASK_FAULTS
    known = simulated.known
    seen = known[~np.isin(known.events.event, [*MASK_FAULTS, *GAPS])]
    tracker = Tracker(prior=None, lam=0.1, cache=None, n_jobs=1).fit(
        simulated.movie, seen
    )
    tracked = tracker.track(simulated.movie).events
    assert not np.isin(tracked.event, list(MASK_FAULTS)).any()
    moves = known.events[known.events.event == Event.MOVE]
    assert np.isin(moves.row_keys(), tracked.row_keys()).mean() > 0.97


def test_names_of_events():
    basic = {Event.MOVE, Event.APPEAR, Event.DISAPPEAR}
    assert parse_events("auto") is None
    assert parse_events("move, divide") == basic | {Event.DIVIDE}
    assert parse_events([Event.SPLIT, "merge"]) == basic | MASK_FAULTS
    assert parse_events([]) == basic  # every detection needs some fate
    with pytest.raises(
        InputError,
        match="there is no event 'explode'; expected 'auto', or some of move, divide",
    ):
        parse_events("explode")


def test_a_tracker_keeps_to_the_kinds_that_it_is_given(simulated):
    tracker = Tracker.generic(cache=None, n_jobs=1, events="move divide")
    events = tracker.track(simulated.movie).events
    assert not np.isin(events.event, [Event.SPLIT, Event.MERGE]).any()
    assert "as asked for" in str(tracker.event_kinds_)


def test_annotated_kinds_are_possible_whatever_is_switched_off(simulated):
    merges = simulated.known[simulated.known.events.event == Event.MERGE]
    tracker = Tracker.generic(cache=None, n_jobs=1, events="move divide")
    told = tracker.track(simulated.movie, annotations=merges).events
    assert np.isin(merges.events.row_keys(), told.row_keys()).all()
