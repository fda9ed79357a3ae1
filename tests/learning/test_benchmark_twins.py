"""Small twins of the benchmarks in docs/benchmarks.md: a stall or a lost certificate there would show here.

Others of benchmarks/text.py are in test_frank_wolfe.py. Seconds and ratios are for benchmarks alone.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from clew import PRESETS, Algorithm, StructuredCRF, StructuredPerceptron, StructuredSVM
from clew.datasets import (
    LETTERS,
    annotate,
    entity_f1,
    hide,
    sentences,
    simulate,
    token_features,
    vectorise,
)
from clew.datasets.entities import LABELS
from clew.learning.cccp import learn
from clew.learning.initialization import Initializer
from clew.learning.losses import LOSSES
from clew.models import BinaryProgram, Chain, Multiclass

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
INSTANCES = runpy.run_path(str(BENCHMARKS / "instances.py"))


@pytest.fixture(scope="module")
def programs():
    return INSTANCES["assignment_programs"](6, (60, 200), seed=0)


@pytest.mark.parametrize("fraction", [1.0, 0.25])
@pytest.mark.parametrize("lam", [1.0, 0.01, 0.001])
def test_optimiser_every_setting_is_certified(programs, fraction, lam):
    """λ = 0.001 with full annotation once stalled at w = 0 (benchmarks/optimiser.py)."""
    inputs, truths = programs
    known = [
        INSTANCES["annotate"](program, y, fraction, seed=i)
        for i, (program, y) in enumerate(zip(inputs, truths, strict=True))
    ]
    task = BinaryProgram().prepare(inputs, known).task(inputs, known)
    start = Initializer(task, LOSSES["bridge"]).weights_for(lam)
    result = learn(task, LOSSES["bridge"], lam, start=start)
    assert result.converged
    assert result.gap <= 1e-3
    assert result.objective < 0.9 * sum((y == 1).sum() for y in known) / len(
        known
    )  # the loss at w = 0, about
    if (
        fraction == 1.0 and lam == 1.0
    ):  # convex: the paper's method ends at the same minimum, after more passes
        paper = learn(
            task, LOSSES["bridge"], lam, algorithm=PRESETS["paper"], start=start
        )
        assert paper.objective == pytest.approx(result.objective, abs=2e-3)
        assert paper.passes > 2 * result.passes


@pytest.mark.parametrize("preset", ["paper", "yu-joachims"])
def test_optimiser_the_other_methods_arrive_too(preset):
    """Few and small, for they take hundreds of passes (benchmarks/optimiser.py)."""
    inputs, truths = INSTANCES["assignment_programs"](3, (40, 80), seed=0)
    known = [
        INSTANCES["annotate"](program, y, 0.25)
        for program, y in zip(inputs, truths, strict=True)
    ]
    task = BinaryProgram().prepare(inputs, known).task(inputs, known)
    start = Initializer(task, LOSSES["bridge"]).weights_for(1.0)
    ours, theirs = (
        learn(task, LOSSES["bridge"], 1.0, algorithm=PRESETS[name], start=start)
        for name in ("clew", preset)
    )
    assert ours.converged
    assert theirs.converged
    assert theirs.passes > ours.passes


@pytest.mark.parametrize("fraction", [1.0, 0.25])
def test_events_are_learned_at_a_given_lambda_and_at_a_chosen_one(fraction):
    """The estimator, on programmes of frame pairs."""
    inputs, truths = INSTANCES["assignment_programs"](
        6, (40, 80), n_features=16, seed=0
    )
    known = [
        INSTANCES["annotate"](p, y, fraction, seed=i)
        for i, (p, y) in enumerate(zip(inputs, truths, strict=True))
    ]
    for lam in (0.1, [1.0, 0.1]):
        svm = StructuredSVM(BinaryProgram(), lam=lam, random_state=0).fit(inputs, known)
        assert svm.result_.converged
        assert svm.result_.gap <= 1e-3
        found = zip(svm.predict(inputs), truths, strict=True)
        assert np.mean(np.concatenate([y[truth == 1] for y, truth in found])) > 0.6


@pytest.mark.parametrize("n_weights", [12, 200])
@pytest.mark.parametrize("n_groups", [1, 10])
def test_model_updates_of_random_bundles_are_precise(n_groups, n_weights):
    """Every column of benchmarks/master.py that clew uses."""
    master = runpy.run_path(str(BENCHMARKS / "master.py"))
    problem = master["make_problem"](50, n_groups, n_weights, seed=0)
    for solver in (
        "own_interior_point",
        "clarabel_dual",
        "ascent_cold",
        "ascent_warm",
    ):
        assert (
            -1e-9 <= master["relative_gap"](problem, *master[solver](problem)) <= 1e-5
        )


@pytest.mark.parametrize("method", ["clpl", "bridge", "perceptron"])
def test_ambiguous_labels_are_learned_with_a_chosen_lambda(method):
    """Candidate sets of a class and some others (benchmarks/ambiguous.py)."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 80)
    X = 3 * np.eye(5)[truth] + rng.normal(size=(80, 5))
    candidates = (rng.random((80, 5)) < 0.3) | np.eye(5, dtype=bool)[truth]
    settings = (
        {"algorithm": Algorithm(tol=0.02, eta=0.02), "lam": [0.1, 0.01]}
        if method == "clpl"
        else {}
    )
    if method == "perceptron":
        learner = StructuredPerceptron(Multiclass(), random_state=0).fit(X, candidates)
    else:
        learner = StructuredSVM(
            Multiclass(), loss=method, random_state=0, **settings
        ).fit(X, candidates)
        assert learner.result_.converged
        assert learner.result_.gap <= (0.02 if method == "clpl" else 1e-3)
    assert np.mean(np.array(learner.predict(X)) == truth) > 0.7


@pytest.mark.parametrize("start", ["auto", "zero"])
def test_letters_with_plain_features_are_certified_from_both_starts(start):
    """The rows "plain" and "zero" of benchmarks/letters.py."""
    rng = np.random.default_rng(0)
    X, words = simulate(120, rng)
    known = annotate(words, 0.25, rng)
    model = Chain(classes=list(LETTERS), bias=False, boundary=False, label_scale=1.0)
    svm = StructuredSVM(model, lam=0.3, start=start, random_state=0).fit(X, known)
    assert svm.result_.converged
    assert svm.result_.gap <= 1e-3


@pytest.mark.parametrize("fraction", [1.0, 0.25])
def test_letters_are_certified_at_a_given_lambda_and_at_a_chosen_one(fraction):
    """Dense features, one example after the other (benchmarks/letters.py)."""
    rng = np.random.default_rng(0)
    X, words = simulate(160, rng)
    known = annotate(words, fraction, rng)
    assert (
        sum(any(label is not None for label in labels) for labels in known) >= 100
    )  # so that there is such a phase
    for lam in (0.3, [3.0, 0.3]):
        svm = StructuredSVM(Chain(classes=list(LETTERS)), lam=lam, random_state=0).fit(
            X, known
        )
        assert svm.result_.converged
        assert svm.result_.gap <= 1e-3
        assert svm.result_.n_groups == svm.result_.n_examples
        assert svm.score(X, [list(word) for word in words]) > 0.8
        assert len(svm.path_) == (0 if lam == 0.3 else 2)


@pytest.fixture(scope="module")
def text():
    texts, truth = sentences(400, np.random.default_rng(0))
    features = [token_features(tokens) for tokens in texts]
    X, index = vectorise(features[:300])
    return X, truth[:300], vectorise(features[300:], index)[0], truth[300:]


@pytest.mark.parametrize(("fraction", "f1"), [(1.0, 0.4), (0.25, 0.15), (0.1, 0.05)])
def test_text_is_certified_at_every_share_of_annotations(text, fraction, f1):
    """The C and `tol` of benchmarks/text.py; more than 10⁵ weights."""
    X, truth, X_test, test = text
    known = truth if fraction == 1 else hide(truth, fraction, np.random.default_rng(1))
    svm = StructuredSVM(Chain(), C=0.05, algorithm=Algorithm(tol=1e-2, eta=1e-2)).fit(
        X, known
    )
    assert len(svm.coef_) > 1e5
    assert svm.result_.converged
    assert svm.result_.gap <= 1e-2
    assert svm.result_.n_groups == svm.result_.n_examples
    assert entity_f1(test, svm.predict(X_test)) > f1


def test_text_by_the_perceptron_and_in_batches(text):
    """The last lines of "Text" in docs/benchmarks.md."""
    X, truth, X_test, test = text
    averaged = StructuredPerceptron(Chain(), random_state=0).fit(X, truth)
    assert entity_f1(test, averaged.predict(X_test)) > 0.4
    online = StructuredSVM(Chain(classes=LABELS), lam=1 / (0.05 * 300), random_state=0)
    for first in range(0, 300, 100):
        online.partial_fit(X[first : first + 100], truth[first : first + 100])
    assert online.result_.n_examples == 300
    assert entity_f1(test, online.predict(X_test)) > 0.2


@pytest.mark.parametrize("fraction", [1.0, 0.25, 0.1])
def test_margin_and_likelihood_give_probabilities_at_every_share(fraction):
    """λ of both is chosen, and both are asked how sure they are (benchmarks/likelihood.py)."""
    rng = np.random.default_rng(0)
    X, words = simulate(100, rng)
    X_test, test = simulate(60, rng)
    states = [LETTERS.index(letter) for word in test for letter in word]
    known = annotate(words, fraction, rng)
    model = Chain(classes=list(LETTERS))
    for learner in (
        StructuredSVM(model, random_state=0),
        StructuredCRF(model, random_state=0),
    ):
        learner.fit(X, known)
        assert learner.result_.converged
        assert learner.result_.gap <= 1e-3
        if isinstance(learner, StructuredSVM):
            learner.calibrate(X, known)
        p = np.concatenate(learner.predict_proba(X_test))
        assert -np.log(p[np.arange(len(p)), states]).mean() < 0.9 * np.log(len(LETTERS))


def test_suggested_tokens_are_those_that_are_not_known_and_teach_more():
    """A round of benchmarks/suggest.py."""
    texts, truth = sentences(150, np.random.default_rng(0))
    X, _ = vectorise([token_features(tokens) for tokens in texts])
    known = hide(truth, 0.1, np.random.default_rng(1))
    options = Algorithm(tol=1e-2, eta=1e-2)
    svm = StructuredSVM(Chain(), lam=0.1, algorithm=options).fit(X, known)
    asked = svm.suggest(X, 100, known)
    assert len({(query.example, query.part) for query in asked}) == 100
    assert all(known[query.example][query.part] is None for query in asked)
    for query in asked:
        known[query.example][query.part] = str(truth[query.example][query.part])
    names = np.mean([truth[query.example][query.part] != "O" for query in asked])
    assert names > 1.5 * np.mean(
        np.concatenate(truth) != "O"
    )  # the least certain tokens are names, and beside them
    assert (
        StructuredSVM(Chain(), lam=0.1, algorithm=options)
        .fit(X, known)
        .result_.converged
    )
