"""The training recipe: which λ are tried, and the prior where learning does not improve on it."""

from types import SimpleNamespace

import numpy as np
import pytest

from clew.annotation.sampling import sample
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker
from clew.tracking.training.examples import build_examples
from clew.tracking.training.weights import LAMBDA_GRID, beats_prior, choose_lambdas


@pytest.fixture(scope="module")
def examples(simulated, training_pairs):
    pairs, prior = training_pairs
    return build_examples(pairs, simulated.some), prior


def judged(lam, *losses):
    """A learner that was judged by held-out annotations at two λ."""
    points = [
        SimpleNamespace(lam=value, losses=np.array(mistakes))
        for value, mistakes in losses
    ]
    return SimpleNamespace(path_=points, lam_=lam)


def test_the_prior_is_kept_unless_learning_makes_fewer_mistakes_on_what_was_held_out(
    examples,
):
    given, prior = examples
    mistakes = sum(one.count_mistakes(prior) for one in given)
    points = (2.0, [mistakes, -1.0]), (1.0, [mistakes, 0.0])
    assert beats_prior(judged(2.0, *points), given, prior)
    assert not beats_prior(judged(1.0, *points), given, prior)
    assert beats_prior(
        judged(1.0), given, prior
    )  # with a λ that was given, nothing was held out


def test_mistakes_are_counted_as_the_task_loss_counts_them(examples):
    given, prior = examples
    for sign in (1.0, -1.0):  # the second gets nearly everything wrong
        for one in given[:4]:
            events = one.pair.candidates.table(
                one.pair.a, one.pair.b, list(one.annotated)
            )
            assert len(events) == len(one.annotated)
            assert 0 <= one.count_mistakes(sign * prior) <= len(one.annotated)
    assert sum(one.count_mistakes(-prior) for one in given) > sum(
        one.count_mistakes(prior) for one in given
    )


def test_a_tracker_that_learned_nothing_better_has_the_weights_of_its_prior(
    simulated, monkeypatch
):
    monkeypatch.setattr("clew.tracking.training.weights.beats_prior", lambda *_: False)
    tracker = Tracker(lam=10.0, cache=None, n_jobs=1).fit(
        simulated.movie, simulated.some
    )
    generic = Tracker.generic(cache=None, n_jobs=1)
    assert not tracker.improved_
    both = tracker.track(simulated.movie), generic.track(simulated.movie)
    assert np.array_equal(
        np.sort(both[0].events.row_keys()), np.sort(both[1].events.row_keys())
    )


def test_few_annotations_with_odd_ones_among_them_do_no_harm(clew_data):
    """Of HeLa, drawn by kinds of events."""
    movie = open_movie(clew_data / "Fluo-N2DL-HeLa/01")
    source = measure_movie(movie, cache=None, n_jobs=1)
    truth = open_ctc_lineage(clew_data / "Fluo-N2DL-HeLa/01_GT/TRA")
    known = derive_annotations(truth, movie)
    few = sample(known, rng=np.random.default_rng([4, 5]), number=25)

    def count_missed(tracker):
        events = tracker.track(source).events
        return (~np.isin(known.events.row_keys(), events.row_keys())).sum()

    learned = Tracker(n_jobs=1, random_state=4).fit(source, few)
    assert count_missed(learned) <= count_missed(Tracker.generic(n_jobs=1)) + 10


def test_lambdas_are_in_units_of_one_missed_event():
    prior = np.ones(3)
    assert choose_lambdas("auto", 20, prior) == [
        stiffness / 20 for stiffness in LAMBDA_GRID
    ]
    assert choose_lambdas("auto", 20, None) == "auto"
    assert choose_lambdas(2.0, 20, prior) == 2.0
    assert choose_lambdas([1.0, 2.0], 20, prior) == [1.0, 2.0]
