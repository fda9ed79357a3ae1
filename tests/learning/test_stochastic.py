"""Passes in batches: the dual value never falls, the certificate holds, and the exact method's minimum is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.datasets import entity_f1, hide, sentences, token_features, vectorise
from clew.learning.algorithm import Algorithm
from clew.learning.bounds import Bundle, dual_value
from clew.learning.cccp import learn
from clew.learning.losses import LOSSES, loss_values, penalty_part, reward_part
from clew.learning.stochastic import DualPoint, StochasticSettings, stochastic_pass
from clew.models.chain import Chain

from .problems import GENERATORS, assignment_task, cases, chain_task, fully_annotated, minimum_over_list, precision

HINGE, BRIDGE = LOSSES["hinge"], LOSSES["bridge"]


def point_of(task, lam, groups=None):
    """The dual at the reward's features, with the first bounds of w = 0, and the linear term."""
    w = np.zeros(task.n_features)
    reward = reward_part(task, HINGE, w)
    bundle = Bundle(task.n_features, np.arange(task.n_examples) if groups is None else groups, None, reward)
    bundle.start_at_base()
    bundle.add(penalty_part(task, HINGE, w), w)
    return DualPoint(bundle, lam), -np.asarray(reward.features.sum(axis=0)).ravel()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**16),
    lam=st.sampled_from([0.1, 1.0, 10.0]),
    batches=st.sampled_from([1, 3, 100]),
    n_groups=st.sampled_from([3, 12]),
    sweeps=st.integers(0, 2),
)
def test_the_dual_value_never_falls_and_lies_under_the_primal(seed, lam, batches, n_groups, sweeps):
    task = assignment_task(n=12, known=1.0, seed=seed % 7)
    point, v = point_of(task, lam, np.arange(12) * n_groups // 12)
    bundle, rng = point.bundle, np.random.default_rng(seed)
    options = StochasticSettings(batches=batches, period=2, sweeps=sweeps)
    last = -np.inf
    for _ in range(6):
        point.aim(v)
        before = dual_value(bundle, v, lam, bundle.alpha)
        stochastic_pass(point, lambda w, examples: penalty_part(task, HINGE, w, examples), rng, options)
        value = dual_value(bundle, v, lam, bundle.alpha)
        assert value >= before - 1e-9 * (1 + abs(before))
        assert value >= last - 1e-9 * (1 + abs(value))
        last = value
        assert (bundle.alpha >= 0).all()
        np.testing.assert_allclose(np.bincount(bundle.group, weights=bundle.alpha), 1.0, atol=1e-9)
        np.testing.assert_allclose(
            point.w, -(v + bundle.shared[0] + bundle.slopes.combined(bundle.alpha)) / lam, atol=1e-7
        )
        for w in (point.w, np.zeros_like(v), rng.normal(size=len(v))):
            primal = lam / 2 * w @ w + penalty_part(task, HINGE, w).values.sum() + v @ w
            assert value <= primal + 1e-9 * (1 + abs(primal))


def test_passes_alone_close_the_gap():
    task = chain_task(n=40, known=1.0)
    lam = 4.0
    point, v = point_of(task, lam)
    rng = np.random.default_rng(0)
    for _ in range(60):
        point.aim(v)
        stochastic_pass(point, lambda w, examples: penalty_part(task, HINGE, w, examples), rng)
    primal = lam / 2 * point.w @ point.w + penalty_part(task, HINGE, point.w).values.sum() + v @ point.w
    assert primal - dual_value(point.bundle, v, lam, point.bundle.alpha) <= 0.02 * primal


@pytest.mark.parametrize("model", GENERATORS)
def test_full_annotation_gives_the_minimum_over_all_listed_outputs(model):
    for case in fully_annotated(model)[:3]:
        for lam in (0.1, 0.5):
            options = Algorithm(tol=1e-4, eta=1e-4, stochastic=True)
            result = learn(case.task, HINGE, lam, algorithm=options)
            expected = minimum_over_list(case.listings, lam, "l2")
            assert result.converged
            assert result.lower_bound <= expected + 1e-7
            assert expected - 1e-7 <= result.objective <= expected + 1e-4 + 1e-7


@pytest.mark.parametrize("loss", LOSSES)
def test_partial_annotations_are_certified_whatever_the_loss(loss):
    case = cases("chain")[0]
    task = case.model.task(case.X, case.Y)
    result = learn(task, LOSSES[loss], 0.1, algorithm=Algorithm(stochastic=True), start=0.3 * case.w)
    assert result.converged
    by_definition = 0.05 * result.w @ result.w + loss_values(task, LOSSES[loss], result.w).mean()
    assert result.objective == pytest.approx(by_definition, abs=precision("chain"))
    rng = np.random.default_rng(0)
    for w in rng.normal(size=(4, task.n_features)):
        highest = result.bundle.sum_by_group(penalty_part(task, result.loss, w).values)[result.bundle.group]
        assert (result.bundle.scores(w) <= highest + 1e-9 * (1 + np.abs(highest))).all()


def test_the_same_seed_gives_the_same_weights():
    task = chain_task(n=30)
    one, other = (learn(task, BRIDGE, 0.1, algorithm=Algorithm(stochastic=True)) for _ in range(2))
    np.testing.assert_array_equal(one.w, other.w)


# A small twin of benchmarks/text.py


@pytest.fixture(scope="module")
def text():
    texts, labels = sentences(400, np.random.default_rng(0))
    features = [token_features(tokens) for tokens in texts]
    X, index = vectorise(features[:300])
    X_test, _ = vectorise(features[300:], index)
    return X, labels[:300], X_test, labels[300:]


def test_text_is_certified_in_batches_and_found_by_the_exact_method_too(text):
    X, Y, X_test, Y_test = text
    model = Chain().prepare(X, Y)
    task = model.task(X, Y)
    assert task.n_features > 50_000
    options = Algorithm(tol=1e-2, eta=1e-2)
    batches = learn(task, BRIDGE, 10 / 300, algorithm=options)
    exact = learn(task, BRIDGE, 10 / 300, algorithm=Algorithm(tol=1e-2, eta=1e-2, stochastic=False))
    assert batches.converged
    assert batches.gap <= 1e-2
    assert batches.n_groups == 300
    assert batches.objective == pytest.approx(exact.objective, abs=2e-2)
    assert batches.bundle.nbytes < 60e6
    assert entity_f1(Y_test, model.predict(X_test, batches.w)) > 0.4


@pytest.mark.parametrize(("sentences", "f1"), [(80, 0.08), pytest.param(300, 0.2, marks=pytest.mark.slow)])
def test_text_of_which_a_quarter_is_annotated_is_learned(text, sentences, f1):
    X, Y, X_test, Y_test = text
    X, Y = X[:sentences], Y[:sentences]
    known = hide(Y, 0.25, np.random.default_rng(1))
    kept = [i for i, labels in enumerate(known) if any(label is not None for label in labels)]
    X, known = [X[i] for i in kept], [known[i] for i in kept]
    model = Chain().prepare(X, known)
    task = model.task(X, known)
    result = learn(task, BRIDGE, 10 / sentences, algorithm=Algorithm(tol=1e-2, eta=1e-2))
    assert result.converged
    assert entity_f1(Y_test, model.predict(X_test, result.w)) > f1  # 0 for weights that know nothing
