"""About how many events are wrong, and how many answers it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from clew.annotation.error_estimate import (
    COVARIANCE,
    MEAN,
    PIVOT,
    Check,
    Correction,
    estimate_answers_needed,
    estimate_wrong_events,
    log_odds,
)
from clew.tracking.events import Event
from clew.tracking.training.calibration import INTERVAL

from ..helpers.effort import examples

NOBODY = Correction.of([])


def moves(probability):
    """The kinds of so many moves."""
    return np.full(len(probability), Event.MOVE, dtype=np.int8)


def checks(doubt, wrong, n, event=Event.MOVE):
    """That of `n` moves in doubt so many were wrong."""
    return [Check(doubt, int(k < wrong), event) for k in range(n)]


def test_before_the_first_answer_the_number_is_that_of_an_average_movie():
    probability = np.repeat([0.99, 0.7], [2000, 30])
    found = estimate_wrong_events(moves(probability), probability, NOBODY)
    level, slope = (
        np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, 20_000).T
    )
    chance = expit(
        level[:, None] + slope[:, None] * (log_odds(np.array([0.01, 0.3])) - PIVOT)
    )
    drawn = chance @ np.array([2000, 30])
    assert found.number == pytest.approx(drawn.mean(), rel=0.05)
    assert found.low < np.quantile(drawn, 0.2)
    assert found.high > np.quantile(drawn, 0.9)


def test_answers_that_find_more_wrong_than_expected_raise_the_number():
    probability = np.full(1000, 0.98)
    before, worse, better = (
        estimate_wrong_events(moves(probability), probability, Correction.of(given))
        for given in ([], checks(0.2, 25, 50), checks(0.2, 0, 50))
    )
    assert better.number < before.number < worse.number
    assert worse.high - worse.low < before.high - before.low + worse.number


def test_where_only_great_doubts_were_right_small_ones_count_for_less():
    """One factor for all doubts took what was found among the greatest for the rest as well."""
    given = Correction.of([*checks(0.4, 8, 16), *checks(0.03, 0, 80)])
    doubt = np.array([0.4, 0.01])
    before, after = (one.chance_wrong(moves(doubt), doubt) for one in (NOBODY, given))
    assert after[0] > 0.8 * before[0]
    assert after[-1] < 0.5 * before[-1]


def test_wrong_divisions_say_nothing_of_moves():
    """What is asked about is mostly of rare kinds: their mistakes were taken for those of thousands of moves."""
    given = Correction.of(checks(0.1, 10, 12, Event.DIVIDE))
    probability = np.full(3000, 0.999)
    assert estimate_wrong_events(
        moves(probability), probability, given
    ).number == pytest.approx(
        estimate_wrong_events(moves(probability), probability, NOBODY).number
    )
    assert given.chance_wrong(np.array([Event.DIVIDE]), np.array([0.1]))[0] > 0.5


def test_the_interval_holds_the_number_as_often_as_it_says():
    """Movies with a level and a slope of their own, whose mistakes come in twos."""
    rng, inside = np.random.default_rng(0), 0
    for level, slope in rng.multivariate_normal(MEAN, COVARIANCE, 300):
        doubt = rng.beta(0.3, 12, size=400)
        wrong = rng.random(400) < expit(level + slope * (log_odds(doubt) - PIVOT))
        order = np.argsort(-doubt)
        asked, left = order[:60], order[60:]
        given = Correction.of(
            [Check(float(doubt[i]), 2 * int(wrong[i]), Event.MOVE) for i in asked]
        )
        probability = 1 - np.repeat(
            doubt[left], 2
        )  # the other one of two has the same doubt
        found = estimate_wrong_events(moves(probability), probability, given)
        inside += found.low <= 2 * wrong[left].sum() <= found.high
    assert INTERVAL - 0.06 <= inside / 300 <= INTERVAL + 0.09


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.1, 10))
@examples(60)
def test_so_many_answers_do_and_fewer_do_not(chances, target):
    probability = np.array(chances)
    n = estimate_answers_needed(moves(probability), probability, NOBODY, target)
    chance = np.sort(NOBODY.chance_wrong(moves(probability), 1 - probability))[::-1]
    assert chance[n:].sum() < target + 1e-9
    if n:
        assert chance[n - 1 :].sum() >= target - 1e-6


def test_the_chances_of_many_events_are_those_of_a_few():
    rng = np.random.default_rng(3)
    doubt = 10.0 ** rng.uniform(-8, -0.01, 3000)
    given = Correction.of([*checks(0.4, 8, 16), *checks(0.03, 0, 80)])
    many, few = (
        given.chance_wrong(moves(doubt), doubt),
        [given.chance_wrong(moves(part), part) for part in np.split(doubt, 30)],
    )
    np.testing.assert_allclose(many, np.concatenate(few), rtol=1e-3)


def test_nothing_in_doubt_is_nothing_wrong():
    found = estimate_wrong_events(moves(np.ones(40)), np.ones(40), NOBODY)
    assert (found.number, found.low, found.high, found.n_events) == (0, 0, 0, 40)
    assert estimate_answers_needed(moves(np.ones(40)), np.ones(40), NOBODY, 1) == 0
    assert estimate_answers_needed(moves([]), np.zeros(0), NOBODY, 1) == 0
