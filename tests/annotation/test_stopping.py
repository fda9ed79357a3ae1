"""About how many events are wrong, and how many answers it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.annotation.stopping import Check, Correction, answers_until, wrong_events
from clew.tracking.model.probability import expected_wrong

from ..effort import examples


def test_without_answers_it_is_the_calibration_that_comes_with_clew():
    probability = np.repeat([0.99, 0.7], [2000, 30])
    mine, usual = wrong_events(probability, Correction.of([])), expected_wrong(probability)
    assert mine.number == pytest.approx(usual.number)
    assert mine.low == pytest.approx(usual.low, abs=0.35 * usual.number)
    assert mine.high == pytest.approx(usual.high, rel=0.35)


def test_answers_that_find_more_wrong_than_expected_raise_the_number():
    probability = np.full(1000, 0.98)
    before = wrong_events(probability, Correction.of([]))
    worse = wrong_events(probability, Correction.of([Check(0.2, 1)] * 50))
    better = wrong_events(probability, Correction.of([Check(0.2, 0)] * 50))
    assert better.high < before.number < worse.low
    assert worse.high - worse.low < 3 * (before.high - before.low)


def test_the_interval_holds_the_number_as_often_as_it_says():
    """Movies whose predictions are wrong more or less often than expected, by a factor of their own."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        factor = rng.lognormal(-0.1, 0.4477)
        doubt = rng.beta(0.3, 12, size=600)
        wrong = rng.random(600) < np.minimum(factor * doubt, 1)
        order = np.argsort(-doubt)
        asked, left = order[:60], order[60:]
        checks = [Check(float(doubt[i]), int(wrong[i])) for i in asked]
        found = wrong_events(np.concatenate([np.ones(60), 1 - doubt[left]]), Correction.of(checks))
        inside += found.low <= wrong[left].sum() <= found.high
    assert 0.85 <= inside / 400 <= 0.99


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.1, 10))
@examples(60)
def test_so_many_answers_do_and_fewer_do_not(chances, target):
    probability, correction = np.array(chances), Correction.of([])
    n = answers_until(probability, correction, target)
    left = np.sort(1 - probability)[::-1][n:].sum() * correction.factor
    assert left < target or n == len(probability)
    if n:
        assert np.sort(1 - probability)[::-1][n - 1 :].sum() * correction.factor >= target - 1e-6


def test_nothing_in_doubt_is_nothing_wrong():
    found = wrong_events(np.ones(40), Correction.of([]))
    assert (found.number, found.low, found.high, found.n_events) == (0, 0, 0, 40)
    assert answers_until(np.ones(40), Correction.of([]), 1) == 0
    assert answers_until(np.zeros(0), Correction.of([]), 1) == 0
