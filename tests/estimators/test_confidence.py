"""Margins, calibrated probabilities and suggestions of every kind of model."""

from __future__ import annotations

import numpy as np
import pytest

from clew import StructuredPerceptron, StructuredSVM, load
from clew.datasets import LETTERS, annotate, simulate
from clew.errors import InputError, MissingCapability
from clew.estimators.calibration import Calibration, fit_calibration
from clew.estimators.data import TrainingData
from clew.estimators.model_selection import make_folds, split_annotations
from clew.learning.task import Space
from clew.models import Chain, Multiclass

from ..learning.problems import Table, table_data
from ..models.contract import MODELS

every_model = pytest.mark.parametrize(
    "generate", MODELS, ids=lambda generate: generate.__name__
)


@pytest.fixture(scope="module")
def read():
    """Words with a third of the letters annotated, new words, and what was learned."""
    rng = np.random.default_rng(0)
    X, words = simulate(90, rng)
    X_new, words_new = simulate(150, rng)
    Y = annotate(words, 0.35, rng)
    svm = StructuredSVM(Chain(classes=list(LETTERS)), lam=1.0, random_state=0).fit(X, Y)
    return svm, X, Y, X_new, [list(word) for word in words_new]


@every_model
def test_every_model_gives_margins_scores_and_probabilities(generate):
    rng = np.random.default_rng(2)
    model, X, Y = generate(rng)
    while sum(y is not None for y in Y) < len(
        Y
    ):  # the first data with something about everything
        model, X, Y = generate(rng)
    estimator = StructuredPerceptron(model, max_epochs=5, random_state=0).fit(X, Y)
    margins, scores = estimator.margins(X), estimator.decision_function(X)
    probabilities = estimator.calibrate(X, Y, folds=None).predict_proba(X)
    assert len(margins) == len(scores) == len(probabilities) == len(X)
    for margin, m, p, x, y in zip(
        margins, scores, probabilities, X, estimator.predict(X), strict=True
    ):
        m, p = np.atleast_2d(m), np.atleast_2d(p)
        chosen = estimator.model_.candidates(x, y)
        assert (np.atleast_1d(margin) >= -1e-9).all()
        assert m.shape == p.shape == chosen.shape
        np.testing.assert_allclose(m[chosen], 0.0, atol=1e-9)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert (p >= 0).all()
        assert (p[np.isneginf(m)] == 0).all()


def test_probabilities_are_calibrated_on_new_words(read):
    svm, X, Y, X_new, truth = read
    for method in ("platt", "isotonic"):
        svm.calibrate(X, Y, method=method)
        assert svm.calibration_.n_parts == sum(
            label is not None for y in Y for label in y
        )
        p = np.concatenate(svm.predict_proba(X_new))
        right = np.concatenate(
            [np.asarray(y) == t for y, t in zip(svm.predict(X_new), truth, strict=True)]
        )
        top = p.max(axis=1)
        assert abs(top.mean() - right.mean()) < 0.08
        # better than saying the same of every letter, by the Brier score
        assert np.mean((top - right) ** 2) < 0.9 * right.mean() * (1 - right.mean())
        sure = top > np.median(top)
        assert right[sure].mean() > right[~sure].mean()
        truth_state = [LETTERS.index(letter) for word in truth for letter in word]
        log_loss = -np.log(p[np.arange(len(p)), truth_state]).mean()
        assert log_loss < 0.8 * np.log(len(LETTERS))


def test_probabilities_need_calibration_and_a_new_fit_forgets_it(read):
    svm, X, Y, X_new, _ = read
    other = StructuredSVM(Chain(classes=list(LETTERS)), lam=1.0).fit(X[:30], Y[:30])
    with pytest.raises(InputError, match=r"call calibrate\(X, Y\) first"):
        other.predict_proba(X_new)
    other.calibrate(X[30:60], Y[30:60], folds=None).predict_proba(X_new[:1])
    other.fit(X[:20], Y[:20])
    with pytest.raises(InputError, match="calibrate"):
        other.predict_proba(X_new)
    with pytest.raises(InputError, match="method is 'sigmoid'; expected"):
        svm.calibrate(X, Y, method="sigmoid", folds=None)
    with pytest.raises(InputError, match="nothing is annotated"):
        svm.calibrate(X, [None] * len(X), folds=None)


def test_a_calibration_needs_something_annotated(read):
    svm, X, _ = read[:3]
    with pytest.raises(
        InputError,
        match="0 annotated parts cannot be split into 3 folds; annotate more",
    ):
        svm.calibrate(X, [None] * len(X))


def test_weights_that_are_judged_are_learned_with_the_same_weights_of_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    Y = (X[:, 0] + rng.normal(size=200) > 1.0).astype(int)
    svm = StructuredSVM(
        Multiclass(), lam=0.1, class_weight={1: 20.0}, random_state=0
    ).fit(X, Y)
    judged = svm._fit_again(X, svm.model_.encode_annotations(X, Y))
    np.testing.assert_allclose(
        judged.coef_, svm.coef_, atol=0.05 * np.abs(svm.coef_).max()
    )


def test_a_calibration_is_saved(read, tmp_path):
    svm, X, Y, X_new, _ = read
    for method in ("platt", "isotonic"):
        svm.calibrate(X, Y, method=method, folds=None).save(tmp_path / "a.clew")
        again = load(tmp_path / "a.clew")
        assert again.calibration_ == svm.calibration_
        np.testing.assert_array_equal(
            again.predict_proba(X_new[:1])[0], svm.predict_proba(X_new[:1])[0]
        )


def test_two_choices_give_platts_sigmoid():
    """Against scikit-learn's own Platt scaling, on margins with a sign."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=400) * 3
    label = rng.random(400) < 1 / (1 + np.exp(-0.7 * score))
    marginals = np.column_stack([-np.maximum(score, 0), -np.maximum(-score, 0)])
    found = fit_calibration([marginals], [np.column_stack([~label, label])])
    from sklearn.linear_model import LogisticRegression

    plain = LogisticRegression(C=1e6, fit_intercept=False).fit(score[:, None], label)
    expected = plain.predict_proba(np.linspace(-5, 5, 9)[:, None])[:, 1]
    s = np.linspace(-5, 5, 9)
    p = found.probabilities(np.column_stack([-np.maximum(s, 0), -np.maximum(-s, 0)]))[
        :, 1
    ]
    np.testing.assert_allclose(p, expected, atol=0.06)


def test_the_scale_of_scores_does_not_matter():
    rng = np.random.default_rng(1)
    marginals = -rng.exponential(size=(200, 3)) * [0, 1, 1]
    allowed = np.eye(3, dtype=bool)[np.where(rng.random(200) < 0.8, 0, 1)]
    for method in ("platt", "isotonic"):
        one = fit_calibration([marginals], [allowed], method).probabilities(marginals)
        other = fit_calibration([1e6 * marginals], [allowed], method).probabilities(
            1e6 * marginals
        )
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_without_a_mistake_probabilities_stay_below_one():
    marginals = np.column_stack([np.zeros(20), -np.linspace(0.1, 5, 20)])
    p = fit_calibration([marginals], [np.tile([True, False], (20, 1))]).probabilities(
        marginals
    )
    assert (p[:, 0] > 0.5).all()
    assert p[:, 0].mean() == pytest.approx(1 - 1 / 22, abs=0.02)  # Platt's target


def test_parts_without_an_alternative_are_certain():
    marginals = np.array([[0.0, -np.inf], [0.0, -1.0]])
    for calibration in (
        Calibration(1.0, 0.0, 5),
        Calibration(1.0, 0.0, 5, (0.0, 2.0), (0.5, 0.9)),
    ):
        p = calibration.probabilities(marginals)
        np.testing.assert_allclose(p[0], [1.0, 0.0])
        np.testing.assert_allclose(p.sum(axis=1), 1.0)


# suggestions


def test_suggestions_are_the_smallest_margins_of_what_is_not_annotated(read):
    svm, X, Y, *_ = read
    margins = svm.margins(X)
    queries = svm.suggest(X, 25, Y)
    assert len(queries) == 25
    assert all(Y[q.example][q.part] is None for q in queries)
    assert [q.margin for q in queries] == sorted(q.margin for q in queries)
    assert all(q.margin == margins[q.example][q.part] for q in queries)
    left = sorted(
        m
        for x, y in zip(margins, Y, strict=True)
        for m, label in zip(x, y, strict=True)
        if label is None
    )
    np.testing.assert_allclose([q.margin for q in queries], left[:25])
    spread = svm.suggest(X, 25, Y, per_example=1)
    assert len({q.example for q in spread}) == 25
    assert len(svm.suggest(X, 10**6)) == sum(len(x) for x in X)
    assert svm.suggest(X, 0) == []
    assert svm.suggest([], 3) == []
    with pytest.raises(InputError, match="number of parts to suggest"):
        svm.suggest(X, 1.5)


def test_suggestions_for_flat_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    Y = np.where(np.arange(40) < 20, X[:, 0] > 0, -1)
    svm = StructuredSVM(Multiclass(classes=[0, 1]), lam=0.1).fit(X, Y)
    queries = svm.suggest(X, 5, Y)
    assert all(q.example >= 20 and q.part == 0 for q in queries)
    assert svm.margins(X).shape == (40,)
    scores = svm.decision_function(X)
    assert scores.shape == (40,)
    np.testing.assert_array_equal(scores > 0, svm.predict(X) == 1)
    np.testing.assert_allclose(np.abs(scores), svm.margins(X))
    assert svm.calibrate(X, Y).predict_proba(X).shape == (40, 2)


# a model of one's own


class Subsets:
    """Y is a subset of three items; an annotation has the items that are known to be in and those known to be out."""

    n_features = 3
    loss_zero_iff_compatible = True
    ALL = tuple(
        tuple(bool(k >> i & 1) for i in range(3)) for k in range(7)
    )  # not all three at once

    def joint_features(self, x, y):
        return x * np.array(y)

    def loss(self, annotation, y):
        return float(sum(y[i] != value for i, value in annotation.items()))

    def argmax(self, x, w, annotation, space, loss_weight):
        wrong = np.array([self.loss(annotation or {}, y) for y in self.ALL])
        inside = {
            Space.ALL: wrong >= 0,
            Space.COMPATIBLE: wrong == 0,
            Space.INCOMPATIBLE: wrong > 0,
        }[space]
        scores = (
            np.array([w @ self.joint_features(x, y) for y in self.ALL])
            + loss_weight * wrong
        )
        return (
            self.ALL[np.where(inside, scores, -np.inf).argmax()]
            if inside.any()
            else None
        )

    def parts(self, x, y):
        return [{i: value} for i, value in enumerate(y)]


def test_a_model_of_ones_own_has_margins_by_forcing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    Y = [{0: x[0] > 0, 1: x[1] > 0} for x in X]
    svm = StructuredSVM(Subsets(), lam=0.1).fit(X, Y)
    for x, margins in zip(X, svm.margins(X), strict=True):
        scores = np.array([svm.coef_ @ (x * np.array(y)) for y in Subsets.ALL])
        best = Subsets.ALL[scores.argmax()]
        for i in range(3):
            others = [
                s for s, y in zip(scores, Subsets.ALL, strict=True) if y[i] != best[i]
            ]
            assert margins[i] == pytest.approx(scores.max() - max(others))
    assert len(svm.suggest(X, 4)) == 4
    assert svm.decision_function(X)[0].shape == (3, 2)
    with pytest.raises(MissingCapability, match="candidates"):
        svm.calibrate(X, Y)


def test_a_model_that_does_not_list_its_parts_says_what_is_missing():
    X, Y = table_data(np.random.default_rng(0), n=8)
    svm = StructuredSVM(Table(4, loss_zero_iff_compatible=True), lam=0.1).fit(X, Y)
    with pytest.raises(MissingCapability, match=r"parts\(x, y\)"):
        svm.margins(X)


# weights of examples


def test_a_weight_is_so_many_copies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 3))
    Y = np.where(X[:, 0] + 0.5 * rng.normal(size=24) > 0, 1, 0)
    weights = rng.integers(0, 4, size=24)
    rows = np.repeat(np.arange(24), weights)
    for make in (
        lambda: StructuredSVM(Multiclass(), lam=0.1),
        lambda: StructuredSVM(Multiclass(), lam=0.1, loss="clpl"),
    ):
        one = make().fit(X, Y, sample_weight=weights)
        other = make().fit(X[rows], Y[rows])
        assert one.result_.objective == pytest.approx(other.result_.objective, abs=2e-3)
        np.testing.assert_allclose(one.coef_, other.coef_, atol=0.1)
    assert one.score(X, Y, sample_weight=weights) == pytest.approx(
        one.score(X[rows], Y[rows])
    )


@pytest.mark.parametrize("hold_out", ["examples", "parts"])
def test_folds_have_the_weights_of_their_examples(read, hold_out):
    svm, X, Y, *_ = read
    X, Y = X[:30], svm.model_.encode_annotations(X[:30], Y[:30])
    rng = np.random.default_rng(0)
    weights = rng.random(30) + 0.5
    w = rng.normal(size=svm.coef_.shape)  # makes many mistakes
    splits = split_annotations(svm.model_, Y, 3, hold_out, np.random.default_rng(1))
    plain, heavy = (
        make_folds(
            TrainingData(svm.model_, X, Y, given),
            svm.model_.task,
            svm.model_.task,
            splits,
        )
        for given in (None, weights)
    )
    for one, other in zip(plain, heavy, strict=True):
        for task, scaled in ((one.train, other.train), (one.test, other.test)):
            loss, features = (
                task.argmax(w, Space.ALL, 1.0),
                scaled.argmax(w, Space.ALL, 1.0),
            )
            ratio = features.loss[loss.loss > 0] / loss.loss[loss.loss > 0]
            assert len(np.unique(ratio.round(9))) > 3
            np.testing.assert_allclose(
                features.values(svm.coef_, 1.0)[loss.loss > 0],
                (ratio * loss.values(svm.coef_, 1.0)[loss.loss > 0]),
            )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([1.0], r"sample_weight has shape \(1,\); expected \(6,\)"),
        ([1, 1, -1, 1, 1, 1], "sample_weight is -1.0 for example 2"),
        ([1, np.nan, 1, 1, 1, 1], "sample_weight is nan for example 1"),
        ("x", "sample_weight"),
        (np.zeros(6), "sample_weight is zero for every"),
        (np.ones((6, 1)), r"sample_weight has shape \(6, 1\)"),
    ],
)
def test_weights_that_are_none_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        StructuredSVM(Multiclass(), lam=1.0).fit(
            np.ones((6, 1)), [0, 1, 0, 1, 0, 1], sample_weight=wrong
        )


def test_weights_need_a_loss_without_a_fixed_margin():
    with pytest.raises(InputError, match="fixed margin"):
        StructuredSVM(Multiclass(), lam=1.0, loss="pair").fit(
            np.eye(2), [0, 1], sample_weight=[1, 2]
        )


def test_a_callback_hears_of_every_model_update(read):
    _, X, Y, *_ = read
    heard = []
    svm = StructuredSVM(Chain(classes=list(LETTERS)), lam=1.0).fit(
        X[:20], Y[:20], callback=heard.append
    )
    assert [record.objective for record in heard][-1] == svm.result_.history[
        -1
    ].objective
