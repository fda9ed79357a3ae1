"""The training recipe: which λ are tried, several starts, and the prior where learning does not improve on it."""

from types import SimpleNamespace

import numpy as np
import pytest

from clew.learning.algorithm import Algorithm
from clew.tracking.candidates.features import feature_names
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.tracker import Tracker
from clew.tracking.training.examples import (
    STARTS,
    STIFFNESS,
    improves,
    lambdas,
    training_examples,
    with_starts,
)
from clew.tracking.training.prior import prior_direction


@pytest.fixture(scope="module")
def examples(simulated, training_pairs):
    pairs, prior = training_pairs
    return training_examples(pairs, simulated.some, prior), prior


def judged(lam, *losses):
    """A learner that was judged by held-out annotations at two λ."""
    points = [
        SimpleNamespace(lam=value, losses=np.array(mistakes))
        for value, mistakes in losses
    ]
    return SimpleNamespace(path_=points, lam_=lam)


def test_the_prior_is_kept_where_learning_makes_more_mistakes_on_what_was_held_out(
    examples,
):
    given, prior = examples
    mistakes = sum(one.mistakes(prior) for one in given)
    better, worse = [mistakes, 0.0], [mistakes, 1.0]
    assert improves(judged(2.0, (2.0, better), (1.0, worse)), given, prior)
    assert not improves(judged(1.0, (2.0, better), (1.0, worse)), given, prior)
    assert improves(
        judged(1.0), given, prior
    )  # with a λ that was given, nothing was held out


def test_the_prior_is_kept_where_learning_loses_what_it_explains_by_more_than_a_frame_pair(
    torn_pairs,
):
    prior = prior_direction("generic", feature_names(torn_pairs.groups))
    told = EventTable.of([(1, Event.MOVE, [1], [1]), (1, Event.MOVE, [2], [2])])
    given = training_examples(torn_pairs, Annotations.of(told), prior)
    for sign, kept in ((1.0, True), (-1.0, False)):
        learner = judged(1.0, (1.0, [0.0]))
        learner.coef_ = np.append(
            np.zeros(len(prior)), sign
        )  # the last is the weight of the prior's score
        assert improves(learner, given, prior) == kept


def test_mistakes_are_counted_as_the_task_loss_counts_them(examples):
    given, prior = examples
    for sign in (1.0, -1.0):  # the second gets nearly everything wrong
        for one in given[:4]:
            events = one.pair.candidates.table(
                one.pair.a, one.pair.b, list(one.annotated)
            )
            assert len(events) == len(one.annotated)
            assert 0 <= one.mistakes(sign * prior) <= len(one.annotated)
    assert sum(one.mistakes(-prior) for one in given) > sum(
        one.mistakes(prior) for one in given
    )


def test_a_tracker_that_learned_nothing_better_has_the_weights_of_its_prior(
    simulated, monkeypatch
):
    monkeypatch.setattr("clew.tracking.tracker.improves", lambda *_: False)
    tracker = Tracker(lam=10.0, cache=None, n_jobs=1).fit(
        simulated.movie, simulated.some
    )
    generic = Tracker.generic(cache=None, n_jobs=1)
    assert not tracker.improved_
    both = tracker.track(simulated.movie), generic.track(simulated.movie)
    assert np.array_equal(
        np.sort(both[0].events.row_keys()), np.sort(both[1].events.row_keys())
    )


def test_the_default_has_several_starts_and_others_have_what_they_ask_for():
    assert with_starts("clew").starts == STARTS > 1
    assert with_starts("paper").starts == 1
    assert with_starts(Algorithm()).starts == 1


def test_several_starts_are_tried_where_annotations_are_partial(simulated):
    tracker = Tracker(lam=1.0, cache=None, n_jobs=1).fit(
        simulated.movie, simulated.some
    )
    assert len(tracker.result_.objectives) == STARTS + 1
    assert tracker.result_.objective <= min(tracker.result_.objectives) + 1e-9
    assert tracker.result_.converged


def test_lambdas_are_in_units_of_one_missed_event():
    prior = np.ones(3)
    assert lambdas("auto", 20, prior) == [stiffness / 20 for stiffness in STIFFNESS]
    assert lambdas("auto", 20, None) == "auto"
    assert lambdas(2.0, 20, prior) == 2.0
    assert lambdas([1.0, 2.0], 20, prior) == [1.0, 2.0]
