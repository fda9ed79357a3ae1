"""Marginals, log Z and its gradient, against the list of all outputs."""

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
SPACES = (Space.ALL, Space.COMPATIBLE)


@every_model
def test_log_partition_and_its_gradient_are_those_of_the_list_of_all_outputs(generate):
    rng = np.random.default_rng(0)
    for case in instances(generate, 20):
        share = rng.random(case.task.n_examples)
        for space in SPACES:
            values, gradient = case.task.log_partition(case.w, space, share)
            expected, slope = [], np.zeros_like(case.w)
            for n, listing in enumerate(case.listings):
                inside = listing.features[listing.inside(space)]
                scores = inside @ case.w
                expected.append(logsumexp(scores))
                slope += share[n] * np.exp(scores - expected[-1]) @ inside
            np.testing.assert_allclose(values, expected, atol=1e-10)
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
        for space in SPACES:
            whole, _ = case.task.log_partition(
                case.w, space, np.ones(case.task.n_examples)
            )
            values, gradient = case.task.log_partition(case.w, space, share, some)
            np.testing.assert_allclose(values, whole[some], atol=1e-12)
            every = np.zeros(case.task.n_examples)
            every[some] = share
            np.testing.assert_allclose(
                gradient, case.task.log_partition(case.w, space, every)[1], atol=1e-12
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
    for space in SPACES:
        value, gradient = task.log_partition(w, space, np.ones(1))
        best = task.argmax(w, space, 0.0).values(w, 0.0)
        assert best <= value + 1e-9 * abs(best)
        assert value <= best + 6 * np.log(3) + 1e-9 * abs(best)
        assert np.isfinite(gradient).all()
        eps = 1e-6
        direction = rng.normal(size=len(w))
        up, down = (
            task.log_partition(w + t * direction, space, np.ones(1))[0]
            for t in (eps, -eps)
        )
        if size == 1.0:
            assert gradient @ direction == pytest.approx(
                float((up - down)[0]) / (2 * eps), rel=1e-5, abs=1e-6
            )
    np.testing.assert_allclose(model.marginals([x], w)[0].sum(axis=1), 1.0)
