"""The training recipe: which λ are tried, and the prior where learning does not improve on it."""

from types import SimpleNamespace

import numpy as np
import pytest

from clew.annotation.sampling import sample
from clew.tracking.candidates.features import feature_names
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker
from clew.tracking.training.examples import (
    LAMBDA_GRID,
    beats_prior,
    build_examples,
    choose_lambdas,
    predict_in_context,
)
from clew.tracking.training.prior import make_basis, scale_prior


@pytest.fixture(scope="module")
def examples(simulated, training_pairs):
    pairs, prior = training_pairs
    return build_examples(pairs, simulated.some, prior), prior


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
    basis = make_basis(prior, [""] * len(prior))
    mistakes = sum(one.count_mistakes(prior) for one in given)
    points = (2.0, [mistakes, -1.0]), (1.0, [mistakes, 0.0])
    assert beats_prior(judged(2.0, *points), given, prior, basis)
    assert not beats_prior(judged(1.0, *points), given, prior, basis)
    assert beats_prior(
        judged(1.0), given, prior, basis
    )  # with a λ that was given, nothing was held out


def test_the_prior_is_kept_where_learning_loses_what_it_explains_by_more_than_a_frame_pair(
    torn_pairs,
):
    names = feature_names(torn_pairs.profile.groups)
    prior = scale_prior("generic", names)
    basis = make_basis(prior, names)
    told = EventTable.of([(1, Event.MOVE, [1], [1]), (1, Event.MOVE, [2], [2])])
    given = build_examples(torn_pairs, Annotations.of(told), prior)
    for sign, kept in ((1.0, True), (-1.0, False)):
        learner = judged(1.0, (1.0, [-0.5]))
        learner.coef_ = np.append(
            np.zeros(len(prior)), sign
        )  # the last is the weight of the prior's score
        assert beats_prior(learner, given, prior, basis) == kept


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
    monkeypatch.setattr("clew.tracking.tracker.beats_prior", lambda *_: False)
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


# ---- annotations that the frames around explain

TORN = [(1, Event.MOVE, [1], [1]), (4, Event.MOVE, [4], [4])]
"""What two cells do whose masks come apart; between two frames they divide."""
OTHERS = [
    (1, Event.MOVE, [2], [2]),
    (2, Event.MOVE, [1], [1]),
    (4, Event.MOVE, [2], [2]),
]


@pytest.fixture(scope="module")
def prior(torn_pairs):
    return scale_prior("generic", feature_names(torn_pairs.profile.groups))


def annotations(*events):
    return Annotations.of(EventTable.of(events))


def test_the_frames_around_explain_what_happens_to_a_torn_mask(torn_pairs, prior):
    told = annotations(*TORN, *OTHERS)
    for frame in (1, 4):
        here = told.select_frame(frame)
        found = predict_in_context(torn_pairs, prior, frame)
        assert here.contradicted_by(found.alone).tolist() == [True, False]
        assert not here.contradicted_by(found.in_context).any()
    found = predict_in_context(torn_pairs, prior, 2)
    assert not told.select_frame(2).contradicted_by(found.alone).any()


def test_what_is_said_not_to_have_happened_is_explained_likewise(torn_pairs, prior):
    found = predict_in_context(torn_pairs, prior, 1)
    (torn,) = np.flatnonzero(found.alone.targets[:, 1])
    denied = Annotations.of(found.alone[[torn]], False)
    assert denied.contradicted_by(found.alone).all()
    assert not denied.contradicted_by(found.in_context).any()


def test_it_is_not_learned_from_and_weights_that_lose_it_are_found_out(
    torn_pairs, prior
):
    first, whole, second = build_examples(
        torn_pairs, annotations(*TORN, *OTHERS), prior
    )
    assert [len(one.annotated) for one in (first, whole, second)] == [1, 1, 1]
    assert whole.explained is None
    for one, cell in ((first, 1), (second, 4)):
        assert one.explained.annotations.events.sources[:, 0].tolist() == [cell]
        assert one.explained.count_mistakes(prior) == 0
        assert one.explained.count_mistakes(-prior) == 1


def test_all_is_learned_from_where_there_is_no_prior_or_nothing_else(torn_pairs, prior):
    for told, w in ((annotations(*TORN), prior), (annotations(*TORN, *OTHERS), None)):
        examples = build_examples(torn_pairs, told, w)
        assert sum(len(one.annotated) for one in examples) == len(told)
        assert all(one.explained is None for one in examples)
