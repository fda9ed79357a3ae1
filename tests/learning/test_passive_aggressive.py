"""Batches that are seen once: the steps, the state, and how near they come to the certified minimum."""

from __future__ import annotations

import numpy as np
import pytest

from clew import StructuredSVM, load
from clew.datasets import entity_f1, sentences, token_features, vectorise
from clew.datasets.entities import LABELS
from clew.errors import InputError
from clew.learning.losses import LOSSES
from clew.learning.passive_aggressive import OnlineResult, learn_batch
from clew.models import Chain, Multiclass

from .problems import sequences


def flat(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("lam", [1e-3, 0.02, 0.5, 10.0])
def test_steps_raise_the_dual_value_and_stay_feasible(lam):
    """Against a list of all β, one example at a time."""
    X, Y = flat(40)
    model = Multiclass().prepare(X, Y)
    zero = np.zeros(model.n_features)
    state, slopes, beta = OnlineResult(zero, zero, lam), [], np.zeros(0)
    for t, (x, y) in enumerate(zip(X, Y, strict=True), start=1):
        slopes.append(
            model.joint_features(x, 1 - y) - model.joint_features(x, y)
        )  # Δ = 1 for the other class
        beta *= min(1.0, 1 / (lam * t) / max(beta, default=1.0)) if beta.any() else 1.0
        scaled = -beta @ np.array(slopes[:-1]) if t > 1 else zero
        value = scaled @ slopes[-1] + 1.0
        task = model.task(x[None], y[None])
        state = learn_batch(task, LOSSES["hinge"], state, np.random.default_rng(0))
        beta = np.append(
            beta, min(max(0.0, value / (slopes[-1] @ slopes[-1])), 1 / (lam * t))
        )
        np.testing.assert_allclose(state.last, -beta @ np.array(slopes), atol=1e-12)
        assert beta.max() <= 1 / (lam * t) + 1e-12
        assert state.largest == pytest.approx(beta.max())
        dual = lam * beta.sum() - lam / 2 * state.last @ state.last
        assert dual >= lam * beta[:-1].sum() - lam / 2 * scaled @ scaled - 1e-12
    assert state.n_examples == state.steps == 40
    np.testing.assert_array_equal(zero, 0.0)


def test_one_pass_over_text_learns_it():
    """Subgradient steps as long as 1/(λt) found no name at all after one pass, and no more after five."""
    texts, truth = sentences(500, np.random.default_rng(0))
    X, _ = vectorise([token_features(tokens) for tokens in texts])
    online = StructuredSVM(Chain(classes=LABELS), lam=1 / (0.05 * 400), random_state=0)
    for first in range(0, 400, 100):
        online.partial_fit(X[first : first + 100], truth[first : first + 100])
    assert entity_f1(truth[400:], online.predict(X[400:])) > 0.25


def test_batches_come_near_the_certified_minimum():
    X, Y = flat()
    exact = StructuredSVM(Multiclass(), lam=0.1).fit(X, Y)
    online = StructuredSVM(Multiclass(), lam=0.1, random_state=0)
    for _ in range(5):
        for first in range(0, 400, 80):
            online.partial_fit(X[first : first + 80], Y[first : first + 80])
    task = exact.model_.task(X, Y)
    from clew.learning.losses import loss_values

    objective = (
        0.05 * online.coef_ @ online.coef_
        + loss_values(task, LOSSES["hinge"], online.coef_).mean()
    )
    assert exact.result_.lower_bound <= objective <= exact.result_.objective + 0.02
    assert online.score(X, Y) > 0.8


def test_words_in_batches(tmp_path):
    X, Y, truth = sequences(n=40, noise=0.3)
    online = StructuredSVM(Chain(n_states=4, label_scale=1.0), lam=0.1, random_state=0)
    for first in range(0, 40, 10):
        online.partial_fit(X[first : first + 10], Y[first : first + 10])
    assert online.score(X, truth) > 0.8
    assert online.result_.steps >= 4
    online.save(tmp_path / "online.clew")
    again = load(tmp_path / "online.clew")
    np.testing.assert_array_equal(again.coef_, online.coef_)
    one = again.partial_fit(X[:10], Y[:10]).coef_
    np.testing.assert_array_equal(one, online.partial_fit(X[:10], Y[:10]).coef_)


def test_classes_of_later_batches_are_declared_in_the_first():
    X, Y = flat(60)
    zeros = np.flatnonzero(Y == 0)
    with pytest.raises(InputError, match="one class only"):
        StructuredSVM(Multiclass(), lam=0.1).partial_fit(X[zeros], Y[zeros])
    online = StructuredSVM(Multiclass(), lam=0.1).partial_fit(
        X[zeros], Y[zeros], classes=[0, 1]
    )
    online.partial_fit(X, Y)
    assert online.classes_.tolist() == [0, 1]
    assert online.model.classes is None


def test_a_batch_goes_on_from_a_fit():
    X, Y = flat(200)
    svm = StructuredSVM(Multiclass(), lam=0.1).fit(X, Y)
    before = svm.coef_
    svm.partial_fit(X[:16], Y[:16])
    assert np.linalg.norm(svm.coef_ - before) < 0.5 * np.linalg.norm(before)


def test_a_fit_goes_on_from_batches():
    X, Y, _ = sequences(n=40, noise=0.3)
    online = StructuredSVM(Chain(n_states=4), lam=0.1, random_state=0)
    for _ in range(5):
        online.partial_fit(X, Y)
    for warm in (online, online.result_):
        svm = StructuredSVM(Chain(n_states=4), lam=0.1).fit(X, Y, warm_start=warm)
        same = StructuredSVM(Chain(n_states=4), lam=0.1, start=online.coef_).fit(X, Y)
        assert svm.result_.converged
        np.testing.assert_array_equal(svm.coef_, same.coef_)


def test_a_batch_without_annotations_changes_nothing():
    X, Y, _ = sequences(n=10, noise=0.3)
    online = StructuredSVM(Chain(n_states=4), lam=0.1, random_state=0).partial_fit(X, Y)
    before = online.result_
    assert online.partial_fit(X[:3], [None, [-1] * len(X[1]), None]).result_ is before
    with pytest.raises(InputError, match="features"):
        online.partial_fit([x[:, :1] for x in X[:2]], [None, None])
    with pytest.raises(InputError, match="there are no examples"):
        online.partial_fit([], [])


def test_classes_weigh_as_much_in_later_batches():
    X, Y = flat(200)
    by_class = StructuredSVM(
        Multiclass(), lam=0.1, class_weight={1: 5.0}, random_state=0
    )
    by_example = StructuredSVM(Multiclass(), lam=0.1, random_state=0)
    for first in range(0, 200, 50):
        x, y = X[first : first + 50], Y[first : first + 50]
        by_class.partial_fit(x, y, classes=[0, 1])
        by_example.partial_fit(
            x, y, classes=[0, 1], sample_weight=np.where(y == 1, 5.0, 1.0)
        )
    np.testing.assert_array_equal(by_class.coef_, by_example.coef_)
    with pytest.raises(
        InputError, match=r"classes is .*; expected those of the first batch"
    ):
        by_class.partial_fit(X, Y, classes=[0, 1, 2])


def test_probabilities_after_batches_need_held_out_data():
    X, Y, _ = sequences(n=60, noise=0.3)
    online = StructuredSVM(Chain(n_states=4), lam=0.1, random_state=0).partial_fit(
        X[:30], Y[:30]
    )
    with pytest.raises(InputError, match="expected folds=None"):
        online.calibrate(X[:30], Y[:30])
    assert online.calibrate(X[30:], Y[30:], folds=None).predict_proba(X)[0].shape == (
        len(X[0]),
        4,
    )


@pytest.mark.parametrize("wrong", [{"lam": "auto"}, {"lam": [1.0, 0.1]}, {"C": 1.0}, {"lam": 1.0, "loss": "clpl"},
                                   {"lam": 1.0, "regulariser": "l1"},
                                   {"lam": 1.0, "class_weight": "balanced"}])  # fmt: skip
def test_settings_that_need_all_data_are_refused(wrong):
    X, Y = flat(20)
    with pytest.raises(InputError, match="one batch at a time"):
        StructuredSVM(Multiclass(), **wrong).partial_fit(X, Y)


def test_batches_of_another_width_are_refused():
    X, Y = flat(20)
    online = StructuredSVM(Multiclass(), lam=0.1).partial_fit(X, Y)
    with pytest.raises(InputError, match="features"):
        online.partial_fit(X[:, :2], Y)
