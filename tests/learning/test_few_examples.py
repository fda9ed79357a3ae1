"""Fits on few examples converge in a bounded number of passes, with and without the stochastic phase."""

import numpy as np
import pytest

from clew.datasets import annotate, simulate
from clew.estimators.svm import StructuredSVM
from clew.learning.algorithm import Algorithm
from clew.models.assignment import Assignment
from clew.models.chain import Chain

from .problems import matchings, sequences

MAX_PASSES = 200
"""Twice what the slowest of these fits takes; bounds that are pruned and found again take thousands."""


def words(n, fraction):
    rng = np.random.default_rng(0)
    images, truth = simulate(n, rng)
    return Chain(), images, annotate(truth, fraction, rng)


def wide_matchings():
    X, Y, _ = matchings(n=30, width=800)
    return Assignment(), X, Y


def short_sequences():
    X, Y, _ = sequences(n=40, n_states=8, width=10)
    return Chain(), X, Y


CASES = {
    "30 words, half of the letters": (lambda: words(30, 0.5), {"C": 1.0}),
    "60 words, weak regularization": (lambda: words(60, 0.5), {"C": 10.0}),
    "5 words": (lambda: words(5, 1.0), {"lam": 0.2}),
    "30 assignments, 800 weights": (wide_matchings, {"lam": 0.01}),
    "40 sequences": (short_sequences, {"lam": 0.01}),
}


@pytest.mark.parametrize("stochastic", ["auto", False])
@pytest.mark.parametrize("case", CASES)
def test_small_fit_converges_in_few_passes(case, stochastic):
    make, regularization = CASES[case]
    model, X, Y = make()
    algorithm = Algorithm(stochastic=stochastic, max_passes=MAX_PASSES)
    svm = StructuredSVM(model, algorithm=algorithm, **regularization).fit(X, Y)
    assert svm.result_.converged
    assert svm.result_.gap <= algorithm.tol
