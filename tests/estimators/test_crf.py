"""The conditional random field: its objective against the list of all outputs, and what it gives."""

from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from clew import StructuredCRF, load
from clew.datasets import LETTERS, annotate, simulate
from clew.errors import InputError, MissingCapability, NotConverged, NotConvergedWarning
from clew.learning.likelihood import _Problem, log_likelihood, maximise_likelihood
from clew.learning.task import Space, Subset, weight_examples
from clew.models import Assignment, Chain, Multiclass, Tree

from ..models.contract import chain, instance, multiclass, tree

every_model = pytest.mark.parametrize(
    "generate", [multiclass, chain, tree], ids=lambda g: g.__name__
)


def cases(generate, n=8):
    cases = (instance(generate, seed) for seed in count())
    return list(
        islice(
            (
                case
                for case in cases
                if any((li.loss > 0).any() for li in case.listings)
            ),
            n,
        )
    )


def listed(case, w, lam, share):
    """J(w) by its definition, from the list of all outputs."""
    losses = [
        logsumexp(listing.features @ w)
        - logsumexp(listing.features[listing.inside(Space.COMPATIBLE)] @ w)
        for listing in case.listings
    ]
    return 0.5 * lam * w @ w + share @ losses


@every_model
def test_the_objective_is_that_of_the_list_of_all_outputs_and_its_gradient_by_differences(
    generate,
):
    for case in cases(generate):
        n = case.task.n_examples
        problem = _Problem(case.task, 0.3)
        value, gradient = problem(case.w)
        assert value == pytest.approx(
            listed(case, case.w, 0.3, np.full(n, 1 / n)), abs=1e-10
        )
        step = 1e-5
        differences = [
            (problem(case.w + step * e)[0] - problem(case.w - step * e)[0]) / (2 * step)
            for e in np.eye(len(case.w))
        ]
        np.testing.assert_allclose(gradient, differences, atol=1e-7)


@every_model
def test_the_curvature_of_inputs_is_the_diagonal_of_the_hessian_at_zero(generate):
    step = 1e-4
    for case in cases(generate, 4):
        share = np.linspace(0.5, 1.0, case.task.n_examples)
        Y = [listing.outputs[0] for listing in case.listings]
        task = case.model.task(case.X, Y)
        curvature = task.curvature(share)
        names = case.model.blocks()[0].places.ravel()
        at = np.zeros(len(case.w))
        for place in names:
            gradients = []
            for side in (-step, step):
                at[place] = side
                gradients.append(task.log_loss(at, share)[1])
            at[place] = 0.0
            change = (gradients[1] - gradients[0])[place] / (2 * step)
            assert curvature[place] == pytest.approx(change, abs=1e-6)


@every_model
def test_weights_and_subsets(generate):
    rng = np.random.default_rng(0)
    for case in cases(generate, 4):
        n = case.task.n_examples
        weights = rng.random(n) + 0.1
        task = weight_examples(case.task, weights)
        assert _Problem(task, 0.3)(case.w)[0] == pytest.approx(
            listed(case, case.w, 0.3, weights / weights.sum())
        )
        some = np.array([2, 0])
        share = np.zeros(n)
        share[some] = weights[some] / weights[some].sum()
        assert _Problem(Subset(task, some), 0.3)(case.w)[0] == pytest.approx(
            listed(case, case.w, 0.3, share)
        )
        np.testing.assert_allclose(
            log_likelihood(Subset(task, some), case.w),
            log_likelihood(case.task, case.w)[some],
        )


@every_model
def test_the_minimum_is_certified_where_all_is_annotated(generate):
    for case in cases(generate, 4):
        Y = [listing.outputs[0] for listing in case.listings]
        task = case.model.task(case.X, Y)
        result = maximise_likelihood(task, 0.1, tol=1e-6).require()
        assert result.convex
        rng = np.random.default_rng(0)
        problem = _Problem(task, 0.1)
        finer = maximise_likelihood(task, 0.1, tol=1e-12).objective
        assert result.objective - finer + 1e-12 >= 0
        assert result.objective - finer <= result.gap + 1e-12
        for other in rng.normal(size=(20, len(case.w))):
            assert problem(result.w + 0.1 * other)[0] >= result.objective - result.gap


def test_flat_labels_are_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    Y = (X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(80, 3))).argmax(axis=1)
    crf = StructuredCRF(Multiclass(bias=False), lam=0.05, tol=1e-9).fit(X, Y)
    other = LogisticRegression(
        C=1 / (0.05 * 80), fit_intercept=False, tol=1e-8, max_iter=1000
    ).fit(X, Y)
    np.testing.assert_allclose(crf.predict_proba(X), other.predict_proba(X), atol=1e-4)
    assert crf.predict_proba(X).shape == (80, 3)
    assert (crf.predict(X) == other.predict(X)).all()
    weights = rng.integers(1, 4, size=80)
    one = StructuredCRF(Multiclass(), lam=0.05, tol=1e-9).fit(
        X, Y, sample_weight=weights
    )
    copies = np.repeat(np.arange(80), weights)
    other = StructuredCRF(Multiclass(), lam=0.05, tol=1e-9).fit(X[copies], Y[copies])
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-3)


@pytest.fixture(scope="module")
def read():
    rng = np.random.default_rng(0)
    X, words = simulate(80, rng)
    X_new, words_new = simulate(100, rng)
    Y = annotate(words, 0.4, rng)
    return X, Y, X_new, [list(word) for word in words_new]


def test_partly_read_words(read, tmp_path):
    X, Y, X_new, truth = read
    crf = StructuredCRF(Chain(classes=list(LETTERS)), random_state=0).fit(X, Y)
    assert crf.result_.converged
    assert not crf.result_.convex
    assert crf.lam_ in [lam for lam, _ in crf.path_]
    assert crf.score(X_new, truth) > 0.6
    p = np.concatenate(crf.predict_proba(X_new))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    right = np.concatenate(
        [np.asarray(y) == t for y, t in zip(crf.predict(X_new), truth, strict=True)]
    )
    assert abs(p.max(axis=1).mean() - right.mean()) < 0.12
    assert (crf.log_likelihood(X_new, truth) < 0).all()
    assert crf.log_likelihood(X_new[:1], [None]) == 0.0
    assert len(crf.margins(X_new)[0]) == len(X_new[0])
    assert len(crf.suggest(X, 5, Y)) == 5
    crf.save(tmp_path / "crf.clew")
    again = load(tmp_path / "crf.clew")
    np.testing.assert_array_equal(
        again.predict_proba(X_new)[0], crf.predict_proba(X_new)[0]
    )
    assert again.lam_ == crf.lam_
    assert str(again.result_) == str(crf.result_)


def test_a_calibration_is_used_once_it_is_there(read):
    X, Y, X_new, _ = read
    crf = StructuredCRF(Chain(classes=list(LETTERS)), lam=1.0, random_state=0).fit(X, Y)
    marginals = crf.predict_proba(X_new)[0]
    calibrated = crf.calibrate(X, Y).predict_proba(X_new)[0]
    np.testing.assert_allclose(
        calibrated, crf.calibration_.probabilities(crf.decision_function(X_new)[0])
    )
    assert not np.allclose(calibrated, marginals, atol=1e-3)
    np.testing.assert_array_equal(crf.fit(X, Y).predict_proba(X_new)[0], marginals)


def test_a_warm_start_is_quick(read):
    X, Y, *_ = read
    crf = StructuredCRF(Chain(classes=list(LETTERS)), lam=1.0).fit(X, Y)
    first = crf.result_
    heard = []
    assert (
        crf.fit(
            X, Y, warm_start=crf, callback=lambda *said: heard.append(said)
        ).result_.evaluations
        <= 2
    )
    assert crf.result_.objective <= first.objective + 1e-12
    crf.fit(X, Y, callback=lambda *said: heard.append(said))
    assert [objective for _, objective, _ in heard] == list(crf.result_.history)


def test_trees_and_candidates():
    rng = np.random.default_rng(0)
    parents = np.array([-1, 0, 0, 1, 1, 2])
    X = [(rng.normal(size=(6, 2)), parents) for _ in range(20)]
    Y = [
        [{int(v), 2} if rng.random() < 0.3 else int(v) for v in x[:, 0] > 0]
        for x, _ in X
    ]
    crf = StructuredCRF(Tree(n_states=3), lam=0.01).fit(X, Y)
    assert crf.score(X, Y) > 0.8
    assert crf.predict_proba(X)[0].shape == (6, 3)


def test_what_is_refused(read):
    X, Y, *_ = read
    with pytest.raises(MissingCapability, match="Assignment offers no marginals"):
        StructuredCRF(Assignment(), lam=1.0).fit(
            np.ones((2, 2, 2, 1)), [[0, 1], [1, 0]]
        )
    with pytest.raises(InputError, match="lam must be"):
        StructuredCRF(Chain(), lam=-1.0).fit(X, Y)
    with pytest.raises(InputError, match=r"tol is 0\.0; expected a positive number"):
        StructuredCRF(Chain(), lam=1.0, tol=0.0).fit(X, Y)
    with pytest.raises(InputError, match="the start has shape"):
        StructuredCRF(Chain(), lam=1.0).fit(X, Y, warm_start=np.zeros(3))
    with pytest.warns(NotConvergedWarning, match="L-BFGS ended after 1 iterations"):
        hasty = StructuredCRF(Chain(), lam=0.01, max_iterations=1).fit(X, Y)
    with pytest.raises(NotConverged):
        hasty.result_.require()
