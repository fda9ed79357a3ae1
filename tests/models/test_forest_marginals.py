"""Marginals, −log P(Y* | x) and its gradient, against the list of all outputs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from clew.learning.task import Space
from clew.models.chain import Chain
from clew.models.tree import Tree

from .contract import chain, constrained_chain, instances, multiclass, tree

every_model = pytest.mark.parametrize(
    "generate", [multiclass, chain, constrained_chain, tree], ids=lambda g: g.__name__
)


@every_model
def test_log_loss_and_its_gradient_are_those_of_the_list_of_all_outputs(generate):
    rng = np.random.default_rng(0)
    for case in instances(generate, 20):
        share = rng.random(case.task.n_examples)
        losses, gradient = case.task.log_loss(case.w, share)
        expected = np.zeros(case.task.n_examples)
        slope = np.zeros_like(case.w)
        for n, listing in enumerate(case.listings):
            for space, sign in ((Space.ALL, 1.0), (Space.COMPATIBLE, -1.0)):
                inside = listing.features[listing.inside(space)]
                scores = inside @ case.w
                log_sum = logsumexp(scores)
                expected[n] += sign * log_sum
                slope += sign * share[n] * np.exp(scores - log_sum) @ inside
        np.testing.assert_allclose(losses, expected, atol=1e-10)
        np.testing.assert_allclose(gradient, slope, atol=1e-10)


@every_model
def test_marginals_are_those_of_the_list_of_all_outputs(generate):
    for case in instances(generate, 20):
        for found, x, listing in zip(
            case.model.marginals(case.X, case.w), case.X, case.listings, strict=True
        ):
            scores = listing.features @ case.w
            probability = np.exp(scores - logsumexp(scores))
            choices = np.array(
                [case.model.candidates(x, output) for output in listing.outputs]
            )
            expected = np.tensordot(probability, choices, 1)
            np.testing.assert_allclose(np.atleast_2d(found), expected, atol=1e-10)


@every_model
def test_some_examples_are_those_of_all(generate):
    for case in instances(generate, 5):
        some = np.array([case.task.n_examples - 1, 0])
        share = np.array([0.3, 2.0])
        whole, _ = case.task.log_loss(case.w, np.ones(case.task.n_examples))
        losses, gradient = case.task.log_loss(case.w, share, some)
        np.testing.assert_allclose(losses, whole[some], atol=1e-12)
        every = np.zeros(case.task.n_examples)
        every[some] = share
        np.testing.assert_allclose(
            gradient, case.task.log_loss(case.w, every)[1], atol=1e-12
        )


@pytest.mark.parametrize("size", [1.0, 800.0, 1e6])
@pytest.mark.parametrize("make", [Chain, Tree])
def test_nothing_overflows_or_underflows(make, size):
    """Transitions that forbid what the nodes prefer: the sums that spare exponentials would underflow."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 3))
    x = features if make is Chain else (features, np.array([-1, 0, 0, 1, 1, 2]))
    model = make(n_states=3, label_scale=1.0).prepare(
        [x], [[0, 1, None, {1, 2}, None, 2]]
    )
    task = model.task([x], [[0, 1, None, {1, 2}, None, 2]])
    w = size * rng.normal(size=model.n_features)
    value, gradient = task.log_loss(w, np.ones(1))
    best, compatible = (
        task.argmax(w, space, 0.0).values(w, 0.0)
        for space in (Space.ALL, Space.COMPATIBLE)
    )
    excess = best - compatible
    assert abs(value - excess) <= 6 * np.log(3) + 1e-9 * abs(best)
    assert np.isfinite(gradient).all()
    if size == 1.0:
        eps = 1e-6
        direction = rng.normal(size=len(w))
        up, down = (
            task.log_loss(w + t * direction, np.ones(1))[0] for t in (eps, -eps)
        )
        assert gradient @ direction == pytest.approx(
            float((up - down)[0]) / (2 * eps), rel=1e-5, abs=1e-6
        )
    np.testing.assert_allclose(model.marginals([x], w)[0].sum(axis=1), 1.0)


@pytest.mark.parametrize("generate", [chain, constrained_chain, tree])
def test_stochastic_steps_reach_the_minimum(generate):
    rng = np.random.default_rng(0)
    lam = 0.1
    for case in instances(generate, 4):
        share = rng.random(case.task.n_examples) + 0.2
        share /= share.sum()
        some = np.arange(case.task.n_examples)
        ascent = case.task.ascent(lam, share, some)
        for _ in range(300):
            _, gap, _ = ascent.run(rng.permutation(some))
        _, gradient = case.task.log_loss(ascent.w, share)
        np.testing.assert_allclose(gradient + lam * ascent.w, 0.0, atol=1e-4)
        assert gap < 1e-4


def test_stochastic_steps_pass_over_examples_whose_sums_underflow():
    x = np.array([[1e4], [-1e4], [1e4]])
    model = Chain(n_states=2).prepare([x], [[0, 1, 0]])
    task = model.task([x, np.zeros((2, 1))], [[0, 1, 0], [1, None]])
    ascent = task.ascent(1e-3, np.array([0.5, 0.5]))
    for _ in range(20):
        loss, _, _ = ascent.run(np.arange(2))
    assert np.isfinite(ascent.w).all()
    assert np.isfinite(loss)
