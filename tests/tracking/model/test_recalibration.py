"""Probabilities of learned weights: the odds follow what held-out annotations show, as far as they can tell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import load
from clew.tracking.archive import _calibration
from clew.tracking.events import Event
from clew.tracking.model.probability import GENERIC_CALIBRATION, MovieMargins, expected_wrong
from clew.tracking.model.recalibration import expected_mistakes, recalibrate
from clew.tracking.model.training import TrainingExample
from clew.tracking.tracker import Tracker


def odds_of_being_wrong(calibration, margin=0.1):
    p = calibration.probability(np.array([Event.MOVE], dtype=np.int8), np.array([margin]), 1.0)[0]
    return (1 - p) / p


@given(expected=st.floats(0, 500), counted=st.integers(0, 500))
def test_the_odds_go_from_generic_to_counted(expected, counted):
    found = GENERIC_CALIBRATION.recalibrated(expected, counted)
    shape = GENERIC_CALIBRATION.spread**-2
    factor = (shape + counted) / (shape + expected)
    assert odds_of_being_wrong(found) == pytest.approx(factor * odds_of_being_wrong(GENERIC_CALIBRATION))
    assert found.spread <= GENERIC_CALIBRATION.spread + 1e-12


def test_many_annotations_decide_and_none_change_nothing():
    same = GENERIC_CALIBRATION.recalibrated(0.0, 0)
    assert odds_of_being_wrong(same) == pytest.approx(odds_of_being_wrong(GENERIC_CALIBRATION))
    twice = GENERIC_CALIBRATION.recalibrated(1000.0, 2000)
    assert odds_of_being_wrong(twice) / odds_of_being_wrong(GENERIC_CALIBRATION) == pytest.approx(2, rel=0.01)


@pytest.fixture(scope="module")
def examples(simulated, learned):
    pairs = learned.pairs(learned.measure(simulated.movie), learned.groups_)
    return [
        TrainingExample.of(pairs.pair(t, simulated.known.at(t).events), simulated.known.at(t))
        for t in simulated.known.frames()
    ]


def test_expected_mistakes_are_those_of_the_predicted_events(examples, learned):
    """Where everything is annotated, as many mistakes are expected as the events' probabilities say, or a few more."""
    for one in examples[:4]:
        few = expected_mistakes([one], learned.coef_)
        assert 0 <= few <= len(one.annotated)
        denied = TrainingExample(one.pair, one.program, {row: 1 - value for row, value in one.annotated.items()})
        right = len(one.annotated) - one.mistakes(learned.coef_)
        assert expected_mistakes([denied], learned.coef_) <= right


def test_more_mistakes_mean_more_wrong_events(simulated, learned, examples):
    several = [recalibrate(examples, learned.coef_, mistakes) for mistakes in (0.0, 5.0, 50.0)]
    numbers = []
    for calibration in several:
        tracker = Tracker(cache=None, n_jobs=1)
        vars(tracker).update(vars(learned) | {"calibration_": calibration})
        numbers.append(expected_wrong(tracker.track(simulated.movie).probability).number)
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1]
    assert recalibrate(examples, learned.coef_, None) is GENERIC_CALIBRATION


def test_held_out_annotations_calibrate_and_the_file_keeps_it(simulated, tmp_path):
    tracker = Tracker(cache=None, n_jobs=1, lam=[10.0, 1.0]).fit(simulated.movie, simulated.some)
    assert tracker.calibration_ is not GENERIC_CALIBRATION
    tracker.save(tmp_path / "w.clew")
    again = load(tmp_path / "w.clew")
    np.testing.assert_allclose(again.calibration_.intercept, tracker.calibration_.intercept)
    assert again.calibration_.spread == pytest.approx(tracker.calibration_.spread)
    for name in ("growth", "share", "border", "torn"):
        assert getattr(again.calibration_, name) == getattr(GENERIC_CALIBRATION, name)
    one, other = (each.track(simulated.movie).probability for each in (tracker, again))
    np.testing.assert_allclose(one, other)


def test_a_calibration_of_an_older_file_looks_at_margins_and_kinds_alone():
    found = _calibration([10.9, -0.5, 0.9, -1.9, -2.2, 1.6, 0.6, 1.7, 0.41])
    assert (found.slope, found.spread) == (10.9, 0.41)
    seen = MovieMargins.of(np.zeros(9, dtype=np.int8), np.full(9, 0.01), 1.0)
    assert odds_of_being_wrong(found.of_movie(seen), 0.3) == pytest.approx(np.exp(0.5 - 10.9 * 0.3))
    appears = found.probability(np.array([Event.APPEAR], dtype=np.int8), np.array([0.3]), 1.0, np.ones(1))[0]
    assert appears == pytest.approx(1 / (1 + np.exp(1.9 - 10.9 * 0.3)))
    newer = _calibration([10.9, -0.5, 0.9, -1.9, -2.2, 1.6, 0.6, 1.7, 0.41, 0.3, 1.0, 2.5])  # before torn masks
    assert (newer.border, newer.torn) == (2.5, 0.0)
    assert _calibration([1.0, 2.0]) is GENERIC_CALIBRATION
