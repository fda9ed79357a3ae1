"""Probabilities of learned weights: the odds follow what held-out annotations show, as far as they can tell."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from clew import load
from clew.tracking.events import Event
from clew.tracking.persistence import _unpack_calibration
from clew.tracking.solve import solve_frame_pair
from clew.tracking.tracker import Tracker
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    MovieMargins,
    expected_wrong,
)
from clew.tracking.training.examples import TrainingExample
from clew.tracking.training.prior import make_basis, scale_prior
from clew.tracking.training.recalibration import (
    EVENTS_PER_MISTAKE,
    LEARNED,
    HeldOutEvents,
    compare_with_annotations,
    posterior_mode,
    recalibrate,
)
from clew.tracking.training.weights import held_out_folds


def odds_of_being_wrong(calibration, margin=0.1):
    p = calibration.probability(
        np.array([Event.MOVE], dtype=np.int8), np.array([margin]), 1.0
    )[0]
    return (1 - p) / p


def found_events(rng, n, level=0.0, gain=0.0):
    """Events whose log-odds of being right are off by a level and a gain."""
    margin = rng.exponential(0.3, n)
    log_odds = rng.normal(0, 1, n) + 3 * margin
    right = rng.random(n) < expit(log_odds + level + gain * margin)
    return HeldOutEvents(log_odds, margin, right, np.ones(n))


def test_nothing_held_out_leaves_what_is_known_of_learned_weights():
    mode, covariance = posterior_mode(HeldOutEvents.join([]), 0.28)
    assert mode == (0.0, LEARNED[0])
    np.testing.assert_allclose(covariance, np.diag([0.28**2, LEARNED[1] ** 2]))


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 200),
    level=st.floats(-3, 3),
    gain=st.floats(-3, 3),
)
def test_the_mode_is_the_best(seed, n, level, gain):
    found = found_events(np.random.default_rng(seed), n, level, gain)
    mode, covariance = posterior_mode(found, 0.28)

    def loss(b):
        odds = found.log_odds + b[0] + b[1] * found.margin
        fit = (
            np.logaddexp(0, np.where(found.is_right, -odds, odds)).sum()
            / EVENTS_PER_MISTAKE
        )
        return (
            fit + (b[0] / 0.28) ** 2 / 2 + ((b[1] - LEARNED[0]) / LEARNED[1]) ** 2 / 2
        )

    for step in np.linalg.cholesky(covariance).T:
        assert loss(mode) <= min(loss(mode + 0.1 * step), loss(mode - 0.1 * step))
    assert covariance[0, 0] <= 0.28**2 + 1e-12
    assert covariance[1, 1] <= LEARNED[1] ** 2 + 1e-12


@pytest.mark.parametrize(("level", "gain"), [(0.8, 0.0), (-0.5, 4.0), (0.0, -2.0)])
def test_many_annotations_decide(level, gain):
    found = found_events(np.random.default_rng(0), 40_000, level, gain)
    assert posterior_mode(found, 0.28)[0] == pytest.approx((level, gain), abs=0.25)


def test_steps_that_are_too_long_are_halved():
    certain = HeldOutEvents(
        np.full(5000, 20.0),
        np.full(5000, 2.0),
        np.zeros(5000, dtype=bool),
        np.ones(5000),
    )
    (level, gain), _ = posterior_mode(certain, 0.28)
    assert -20 < level < 0
    assert -20 < gain < 0


@pytest.fixture(scope="module")
def examples(simulated, learned):
    pairs = learned.pairs(learned.measure(simulated.movie), learned.groups_)
    return [
        TrainingExample.of(
            pairs.build(t, simulated.known.select_frame(t).events),
            simulated.known.select_frame(t),
        )
        for t in simulated.known.annotated_frames()
    ]


def test_all_annotations_together_find_every_event_once(examples, learned):
    """However they are shared out; so a part of them finds as large a part of the wrong events, in the mean."""
    rng = np.random.default_rng(0)
    for one in examples[:6]:
        solved = solve_frame_pair(one.pair, learned.coef_)
        cells = one.pair.candidates.detections_of()
        told = np.unique(cells[list(one.annotated)])  # nearly all
        chosen = cells[solved.assignment.chosen]
        known = (np.isin(chosen, told) & (chosen >= 0)).sum(axis=1) / (chosen >= 0).sum(
            axis=1
        )
        known *= np.isfinite(solved.confidence)
        assert known.mean() > 0.8
        true = {tuple(cells[row]) for row in one.annotated}
        wrong = np.array([tuple(each) not in true for each in chosen])
        fold = rng.integers(3, size=len(one.annotated))
        parts = [
            {
                r: v
                for (r, v), k in zip(one.annotated.items(), fold, strict=True)
                if k == n
            }
            for n in range(3)
        ]
        found = HeldOutEvents.join(
            compare_with_annotations(one.pair, part, learned.coef_, GENERIC_CALIBRATION)
            for part in parts
        )
        assert found.weight.sum() == pytest.approx(known.sum())
        assert found.weight[~found.is_right].sum() == pytest.approx(known[wrong].sum())
        doubt = 1 - solved.probability(GENERIC_CALIBRATION)
        assert found.weight @ expit(-found.log_odds) == pytest.approx(
            known @ doubt, abs=1e-6
        )


def test_what_did_not_happen_tells_nothing(examples, learned):
    denied = dict.fromkeys(examples[0].annotated, 0)
    assert not len(
        compare_with_annotations(
            examples[0].pair, denied, learned.coef_, GENERIC_CALIBRATION
        ).is_right
    )


def test_more_mistakes_mean_more_wrong_events(simulated, learned, examples):
    pairs, true = [one.pair for one in examples], [one.annotated for one in examples]
    nothing = [{} for _ in pairs]
    others = [
        dict.fromkeys(range(len(pair.candidates) - 40, len(pair.candidates)), 1)
        for pair in pairs
    ]
    numbers, spreads = [], []
    for annotated in (true, nothing, others):
        found = recalibrate(
            pairs, learned.coef_, [(learned.coef_, annotated)], GENERIC_CALIBRATION
        )
        tracker = Tracker(cache=None, n_jobs=1)
        vars(tracker).update(vars(learned) | {"calibration_": found})
        numbers.append(
            expected_wrong(tracker.track(simulated.movie).probability).number
        )
        spreads.append(found.spread)
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1]
    assert max(spreads) == spreads[1]


def test_each_annotation_is_held_out_once_by_weights_that_did_not_see_it(simulated):
    tracker = Tracker(cache=None, n_jobs=1, lam=[10.0, 1.0]).fit(
        simulated.movie, simulated.some
    )
    prior = scale_prior("generic", tracker.feature_names_)
    basis = make_basis(prior, tracker.feature_names_)
    folds = held_out_folds(tracker.svm_, basis)
    assert len(folds) == tracker.svm_.folds
    assert all(len(w) == len(tracker.coef_) for w, _ in folds)
    held_out = Counter(
        (n, row) for _, parts in folds for n, part in enumerate(parts) for row in part
    )
    assert set(held_out.values()) == {1}
    assert (
        len(simulated.some) <= len(held_out) < 1.1 * len(simulated.some)
    )  # a gap has two ends


def test_weights_that_did_not_improve_are_the_priors_and_so_is_their_calibration(
    simulated, monkeypatch
):
    monkeypatch.setattr("clew.tracking.training.weights.beats_prior", lambda *_: False)
    few = simulated.some[np.arange(len(simulated.some)) < 9]
    found = (
        Tracker(cache=None, n_jobs=1, lam=1.0).fit(simulated.movie, few).calibration_
    )
    assert found.slope == pytest.approx(GENERIC_CALIBRATION.slope, abs=0.5)
    assert found.spread > 0


def test_held_out_annotations_calibrate_and_the_file_keeps_it(simulated, tmp_path):
    tracker = Tracker(cache=None, n_jobs=1, lam=[10.0, 1.0]).fit(
        simulated.movie, simulated.some
    )
    assert tracker.calibration_ is not GENERIC_CALIBRATION
    tracker.save(tmp_path / "w.clew")
    again = load(tmp_path / "w.clew")
    assert again.calibration_.slope == pytest.approx(tracker.calibration_.slope)
    np.testing.assert_allclose(
        again.calibration_.intercept, tracker.calibration_.intercept
    )
    assert again.calibration_.spread == pytest.approx(tracker.calibration_.spread)
    for name in ("growth", "share", "border", "torn"):
        assert getattr(again.calibration_, name) == getattr(GENERIC_CALIBRATION, name)
    one, other = (each.track(simulated.movie).probability for each in (tracker, again))
    np.testing.assert_allclose(one, other)


def test_a_calibration_of_an_older_file_looks_at_margins_and_kinds_alone():
    found = _unpack_calibration([10.9, -0.5, 0.9, -1.9, -2.2, 1.6, 0.6, 1.7, 0.41])
    assert (found.slope, found.spread) == (10.9, 0.41)
    seen = MovieMargins.of(np.zeros(9, dtype=np.int8), np.full(9, 0.01), 1.0)
    assert odds_of_being_wrong(found.of_movie(seen), 0.3) == pytest.approx(
        np.exp(0.5 - 10.9 * 0.3)
    )
    appears = found.probability(
        np.array([Event.APPEAR], dtype=np.int8), np.array([0.3]), 1.0, np.ones(1)
    )[0]
    assert appears == pytest.approx(1 / (1 + np.exp(1.9 - 10.9 * 0.3)))
    newer = _unpack_calibration(
        [10.9, -0.5, 0.9, -1.9, -2.2, 1.6, 0.6, 1.7, 0.41, 0.3, 1.0, 2.5]
    )  # before torn masks
    assert (newer.border, newer.torn) == (2.5, 0.0)
    assert _unpack_calibration([1.0, 2.0]) is GENERIC_CALIBRATION
