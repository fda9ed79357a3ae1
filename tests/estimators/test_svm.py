"""StructuredSVM and StructuredPerceptron keep scikit-learn's conventions, and choose λ from what is annotated."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from clew import Algorithm, StructuredPerceptron, StructuredSVM
from clew.errors import InputError
from clew.learning.losses import LOSSES, Loss
from clew.learning.task import Space
from clew.models.assignment import Assignment
from clew.models.chain import Chain
from clew.models.multiclass import Multiclass

from ..learning.problems import Table, matchings, sequences, table_data

ESTIMATORS = [
    lambda **settings: StructuredSVM(Chain(n_states=4), **{"lam": 0.3, **settings}),
    lambda **settings: StructuredPerceptron(Chain(n_states=4), **settings),
]
both = pytest.mark.parametrize("make", ESTIMATORS, ids=["svm", "perceptron"])


def data(n=10, **settings):
    return sequences(n=n, **settings)


@both
def test_parameters_can_be_read_set_and_cloned_also_those_of_the_model(make):
    estimator = make(random_state=3)
    assert estimator.get_params()["model__n_states"] == 4
    estimator.set_params(model__n_states=5, random_state=4)
    assert estimator.model.n_states == 5
    copied = clone(estimator)
    assert copied is not estimator
    assert copied.model is not estimator.model
    assert copied.get_params()["model__n_states"] == 5
    assert repr(copied) == repr(estimator)
    with pytest.raises(ValueError, match="nonsense"):
        estimator.set_params(nonsense=1)


def test_nothing_is_checked_or_changed_before_fit():
    strange = {
        "loss": "?",
        "lam": -1,
        "regulariser": "l7",
        "algorithm": 5,
        "start": "?",
        "folds": -1,
        "hold_out": "?",
    }
    svm = StructuredSVM("no model", **strange)
    for name, value in strange.items():
        assert getattr(svm, name) is value
    assert set(vars(svm)) == set(svm.get_params(deep=False))


@both
def test_fit_returns_self_and_changes_no_parameter(make):
    X, Y, _ = data()
    estimator = make(random_state=0)
    before = {
        name: copy.copy(value)
        for name, value in estimator.get_params(deep=False).items()
    }
    model_before = vars(estimator.model).copy()
    assert estimator.fit(X, Y) is estimator
    assert vars(estimator.model) == model_before
    for name, value in estimator.get_params(deep=False).items():
        assert value is estimator.model or value == before[name]
    again = estimator.fit(X[:5], Y[:5])
    assert again is estimator
    np.testing.assert_array_equal(
        again.coef_, make(random_state=0).fit(X[:5], Y[:5]).coef_
    )


@both
def test_predictions_and_scores(make):
    X, Y, _ = data(noise=0.2, n=20)
    estimator = make(random_state=0).fit(X, Y)
    predicted = estimator.predict(X)
    assert [len(y) for y in predicted] == [len(x) for x in X]
    assert estimator.score(X, Y) > 0.9
    mistakes = sum(
        int((np.asarray(y) != p)[np.asarray(y) >= 0].sum())
        for y, p in zip(Y, predicted, strict=True)
    )
    assert estimator.score(X, Y) == pytest.approx(
        1 - mistakes / sum(int((y >= 0).sum()) for y in Y)
    )
    with pytest.raises(InputError, match="nothing is annotated"):
        estimator.score(X, [None] * len(X))
    with pytest.raises(InputError, match="same length"):
        estimator.score(X, Y[:-1])


@both
def test_an_estimator_that_was_not_fitted_says_so(make):
    with pytest.raises(NotFittedError):
        make().predict([np.zeros((2, 5))])


@both
def test_the_same_random_state_gives_the_same_weights(make):
    X, Y, _ = data()
    settings = {"lam": [3.0, 0.3]} if make is ESTIMATORS[0] else {"max_epochs": 3}
    one, same = (make(random_state=1, **settings).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    state = make(random_state=np.random.RandomState(1), **settings).fit(X, Y)
    np.testing.assert_array_equal(one.coef_, state.coef_)


@both
def test_a_pickled_estimator_predicts_the_same(make):
    X, Y, _ = data()
    estimator = make(random_state=0).fit(X, Y)
    restored = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(restored.coef_, estimator.coef_)
    for one, other in zip(restored.predict(X), estimator.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)
    if make is ESTIMATORS[0]:
        assert estimator.result_.bundle is not None
        assert restored.result_.bundle is None
        again = restored.fit(X, Y, warm_start=restored.result_).result_
        assert again.objective <= estimator.result_.objective + 2e-3


@both
def test_cross_validation_and_grid_search_take_ragged_sequences(make):
    X, Y, _ = data(n=12)
    scores = cross_val_score(make(random_state=0), X, Y, cv=3)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        make(random_state=0), {"model__bias": [True, False]}, cv=2
    ).fit(X, Y)
    assert search.best_params_["model__bias"] in (True, False)
    assert len(search.predict(X)) == 12


def test_grid_search_over_lambda():
    X, Y, _ = data(n=12, noise=0.5)
    search = GridSearchCV(
        StructuredSVM(Chain(n_states=4)),
        {"lam": [0.1, 1e6], "loss": ["bridge", "ramp"]},
        cv=2,
    )
    assert search.fit(X, Y).best_params_["lam"] == 0.1


@both
def test_examples_without_annotation_are_left_out(make):
    X, Y, _ = data()
    nothing = [np.full(len(x), -1) if n % 2 else None for n, x in enumerate(X)]
    more = make(random_state=0).fit([*X, *X], [*Y, *nothing])
    np.testing.assert_array_equal(more.coef_, make(random_state=0).fit(X, Y).coef_)
    if make is ESTIMATORS[0]:
        assert more.result_.n_examples == sum((y >= 0).any() for y in Y)


@pytest.mark.parametrize(
    "loss",
    [*LOSSES, "clpl", Loss("mine", Space.ALL, Space.COMPATIBLE, margin=0.5)],
    ids=str,
)
@pytest.mark.parametrize("regulariser", ["l2", "l1"])
def test_every_loss_fits_and_predicts(loss, regulariser):
    X, Y, _ = matchings(n=6, rows=3, known=0.8, noise=0.3)
    svm = StructuredSVM(Assignment(), loss=loss, lam=0.02, regulariser=regulariser).fit(
        X, Y
    )
    assert svm.result_.converged
    assert svm.coef_.shape == (6,)
    assert loss == "clpl" or svm.score(X, Y) > 0.8


@pytest.mark.parametrize(
    "algorithm",
    ["paper", "yu-joachims", Algorithm(groups=2)],
    ids=["paper", "yu", "own"],
)
def test_every_algorithm_finds_the_same_where_the_problem_is_convex(algorithm):
    X, _, truth = matchings(n=6, rows=3)
    ours, other = (
        StructuredSVM(Assignment(), lam=0.1, algorithm=a).fit(X, truth).result_
        for a in ("clew", algorithm)
    )
    assert ours.objective == pytest.approx(other.objective, abs=2e-3)


def test_starts():
    X, Y, _ = matchings(n=6, rows=3)
    given = np.full(6, 0.3)
    for start in ("auto", "zero", given, given.tolist(), given.astype(np.float32)):
        svm = StructuredSVM(Assignment(), lam=0.1, start=start).fit(X, Y)
        assert svm.result_.converged
        clone(svm)
    np.testing.assert_array_equal(given, 0.3)
    with pytest.raises(InputError, match="start must be"):
        StructuredSVM(Assignment(), lam=0.1, start="middle").fit(X, Y)


def test_a_warm_start_costs_almost_nothing_and_stays_as_it_was():
    X, Y, truth = matchings(n=10)
    svm = StructuredSVM(Assignment(), lam=0.05)
    first = svm.fit(X, Y).result_
    offsets, w = first.bundle.offsets.copy(), first.w.copy()
    assert svm.fit(X, Y, warm_start=first).result_.passes <= 2
    changed = [truth[0], *Y[1:]]
    warm, cold = (
        svm.fit(X, changed, warm_start=first).result_,
        svm.fit(X, changed).result_,
    )
    assert warm.converged
    assert warm.bounds < cold.bounds
    np.testing.assert_array_equal(first.bundle.offsets, offsets)
    np.testing.assert_array_equal(first.w, w)


# λ from the annotations


@pytest.mark.parametrize("hold_out", ["auto", "examples", "parts"])
@pytest.mark.parametrize("regulariser", ["l2", "l1"])
def test_auto_picks_a_point_of_the_path(hold_out, regulariser):
    X, Y, _ = data(n=6, known=0.8)
    svm = StructuredSVM(
        Chain(n_states=4), hold_out=hold_out, regulariser=regulariser, random_state=0
    ).fit(X, Y)
    lams = [point.lam for point in svm.path_]
    assert svm.lam_ in lams
    assert lams == sorted(lams, reverse=True)
    assert svm.result_.lam == svm.lam_
    assert svm.result_.converged
    lowest = min(svm.path_, key=lambda point: point.mean)
    worse = svm.path_[lams.index(svm.lam_)].losses - lowest.losses
    assert worse.mean() <= 1.5 * worse.std() / np.sqrt(len(worse)) + 1e-12
    assert all(len(point.held_out) == 3 for point in svm.path_)
    assert 1 <= len(lams) <= 8


def test_a_list_of_values_is_the_path():
    X, Y, _ = data(n=6, known=0.8)
    svm = StructuredSVM(Chain(n_states=4), lam=[0.1, 100.0, 1.0], random_state=0).fit(
        X, Y
    )
    assert [point.lam for point in svm.path_] == sorted(
        [100.0, 1.0, 0.1], reverse=True
    )[: len(svm.path_)]
    assert svm.lam_ in (0.1, 1.0, 100.0)
    assert StructuredSVM(Chain(n_states=4), lam=0.1).fit(X, Y).path_ == []


def test_auto_never_needs_more_annotation_than_a_single_example():
    X, _, truth = matchings(n=1, rows=6)
    svm = StructuredSVM(Assignment(), random_state=0).fit(X, truth)
    assert svm.lam_ > 0
    assert len(svm.path_) >= 1


@pytest.mark.parametrize(
    ("known", "hold_out", "message"),
    [(2, "auto", "2 annotated parts"), (3, "examples", "1 annot")],
)
def test_auto_with_too_little_annotation_says_what_to_do(known, hold_out, message):
    X, _, truth = matchings(n=1, rows=6)
    Y = [[*truth[0][:known], *[None] * (6 - known)]]
    with pytest.raises(InputError, match=f"{message}.*give lam a number"):
        StructuredSVM(Assignment(), hold_out=hold_out, random_state=0).fit(X, Y)


def test_auto_prefers_less_noise_fitting_to_none_at_all():
    X, Y, truth = data(n=30, noise=0.6, known=0.6)
    X_new, _, truth_new = X[20:], None, truth[20:]
    svm = StructuredSVM(Chain(n_states=4), random_state=0).fit(X[:20], Y[:20])
    worst = StructuredSVM(Chain(n_states=4), lam=1e6).fit(X[:20], Y[:20])
    assert svm.score(X_new, truth_new) > worst.score(X_new, truth_new)


@pytest.mark.parametrize(
    "lam",
    [0, -1.0, np.nan, np.inf, "best", [], [0.1, -1], [[0.1]], None, True, [np.nan]],
    ids=str,
)
def test_values_of_lambda_that_are_none_are_refused(lam):
    X, Y, _ = data(n=3)
    with pytest.raises(InputError, match="lam must be"):
        StructuredSVM(Chain(n_states=4), lam=lam).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "svm"}, "unknown loss"),
        ({"algorithm": "sgd"}, "unknown algorithm"),
        ({"regulariser": "l0"}, "regulariser"),
        ({"lam": "auto", "folds": 1}, "folds"),
        ({"lam": "auto", "hold_out": "half"}, "hold_out"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_settings_that_do_not_exist_are_refused(settings, message):
    X, Y, _ = data(n=4)
    with pytest.raises(InputError, match=message):
        StructuredSVM(Chain(n_states=4), **{"lam": 0.1, **settings}).fit(X, Y)


def test_threads_change_nothing():
    X, Y, _ = matchings(n=6)
    one, two = (
        StructuredSVM(Assignment(), lam=0.1, n_jobs=jobs).fit(X, Y)
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal([*one.predict(X)], [*two.predict(X)])


def test_verbose_tells_on_stderr_and_else_nothing_does(capfd):
    X, Y, _ = matchings(n=4)
    StructuredSVM(Assignment(), lam=0.1).fit(X, Y)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    StructuredSVM(Assignment(), lam=0.1, verbose=True).fit(X, Y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "objective" in err.splitlines()[-1]  # plain lines without a terminal


def test_a_model_of_ones_own_is_scored_by_its_task_loss():
    X, Y = table_data(np.random.default_rng(0), n=12)
    svm = StructuredSVM(Table(4, loss_zero_iff_compatible=True), lam=0.1).fit(X, Y)
    expected = -np.mean([y.loss[p] for y, p in zip(Y, svm.predict(X), strict=True)])
    assert svm.score(X, Y) == pytest.approx(expected)


def test_a_model_of_ones_own_may_leave_examples_unannotated():
    X, Y = table_data(np.random.default_rng(0), n=12)
    svm = StructuredSVM(Table(4, loss_zero_iff_compatible=True), lam=0.1).fit(X, Y)
    some = [*Y[:6], *[None] * 6]
    part = StructuredSVM(Table(4, loss_zero_iff_compatible=True), lam=0.1).fit(X, some)
    assert part.result_.n_examples == 6
    assert part.score(X, some) == pytest.approx(part.score(X[:6], Y[:6]))
    assert svm.result_.n_examples == 12
    with pytest.raises(InputError, match="nothing is annotated"):
        part.score(X, [None] * 12)


def test_flat_labels():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=40)
    X = np.eye(3)[labels] + 0.2 * rng.normal(size=(40, 3))
    Y = np.where(rng.random(40) < 0.7, labels, -1)
    svm = StructuredSVM(Multiclass(), random_state=0).fit(X, Y)
    assert np.mean(svm.predict(X) == labels) > 0.9
    assert (
        cross_val_score(
            StructuredSVM(Multiclass(n_classes=3), lam=0.1), X, Y, cv=3
        ).min()
        > 0.8
    )
