"""From margins to probabilities, and how many events are expected to be wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.evaluation.evaluate import task_loss
from clew.tracking.events import Event
from clew.tracking.model.probability import Calibration, expected_wrong
from clew.tracking.tracker import Tracker

KINDS = np.array([int(event) for event in Event], dtype=np.int8)


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0.1, 100))
def test_a_larger_margin_is_no_less_likely_right_whatever_the_unit(first, second, unit):
    calibration = Calibration.generic()
    low, high = sorted([first, second])
    less, more = (calibration.probability(KINDS, np.full(len(Event), unit * margin), unit) for margin in (low, high))
    assert ((less >= 0) & (less <= more) & (more <= 1)).all()
    np.testing.assert_allclose(less, calibration.probability(KINDS, np.full(len(Event), low), 1.0), rtol=1e-9)


def test_what_cannot_be_otherwise_is_certain():
    assert (Calibration.generic().probability(KINDS, np.full(len(Event), np.inf), 1.0) == 1).all()


def test_the_expected_number_is_the_sum_of_the_doubts():
    found = expected_wrong(np.array([0.5, 0.9, 1.0]), spread=0.0)
    assert found.number == pytest.approx(0.6)
    assert found.n_events == 3
    sd = np.sqrt(0.25 + 0.09)
    assert found.low == 0.0
    assert found.high == pytest.approx(0.6 + 1.645 * sd)
    wider = expected_wrong(np.full(100, 0.9), spread=0.5)
    narrow = expected_wrong(np.full(100, 0.9), spread=0.0)
    assert wider.low < narrow.low < 10 < narrow.high < wider.high
    assert str(narrow).startswith("about 10 of 100 events are wrong (90 % interval ")


def test_without_events_nothing_is_wrong():
    assert expected_wrong(np.zeros(0)).number == 0.0


def test_generic_tracking_of_a_movie_that_nobody_learned_from(simulated):
    lineage = Tracker.generic(cache=None, n_jobs=1).track(simulated.movie)
    assert lineage.probability.shape == lineage.confidence.shape
    loss = task_loss(simulated.known, lineage)
    told = expected_wrong(lineage.probability)
    assert told.low <= loss.missed.sum() <= told.high
