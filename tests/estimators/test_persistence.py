"""Estimators in files: what is loaded is what was saved, and a model that does not fit is refused."""

from collections import deque
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from clew.errors import InputError, NotConvergedWarning, StoreError
from clew.estimators import persistence
from clew.estimators.perceptron import StructuredPerceptron
from clew.estimators.svm import StructuredSVM
from clew.learning.cccp import Algorithm
from clew.learning.losses import Loss
from clew.learning.task import Space
from clew.models.chain import Chain
from clew.models.multiclass import Multiclass
from clew.utils import storage

mpl.use("Agg")


def words(n=12, labels="abc", seed=0):
    rng = np.random.default_rng(seed)
    Y = [rng.integers(len(labels), size=rng.integers(2, 6)) for _ in range(n)]
    X = [np.eye(len(labels), 4)[y] + 0.3 * rng.normal(size=(len(y), 4)) for y in Y]
    return X, [[labels[s] if rng.random() < 0.7 else None for s in y] for y in Y]


class Threshold:
    """A model of a user's own: the sign of a number."""

    def __init__(self, n_features=2):
        self.n_features = n_features

    def joint_features(self, x, y):
        return np.resize([x * y, y], self.n_features)

    def loss(self, annotation, y):
        return float(annotation not in (None, y))

    def argmax(self, x, w, annotation, space, loss_weight):
        allowed = [
            y
            for y in (-1, 1)
            if space is Space.ALL
            or (annotation in (None, y)) == (space is Space.COMPATIBLE)
        ]
        value = {
            y: w @ self.joint_features(x, y) + loss_weight * self.loss(annotation, y)
            for y in allowed
        }
        return max(value, key=value.get, default=None)


def same_params(one, other):
    one, other = (estimator.get_params(deep=True) for estimator in (one, other))
    assert list(one) == list(other)
    for name in set(one) - {"model"}:
        assert type(one[name]) is type(other[name])
        np.testing.assert_array_equal(one[name], other[name])


def without_weights(result):
    """Return the result without its array, which cannot be compared by ==."""
    return replace(result, w=None)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss": "ramp", "lam": [0.1, 0.01], "random_state": 3},
        {
            "loss": Loss("mine", Space.INCOMPATIBLE, Space.COMPATIBLE, margin=0.5),
            "regulariser": "l1",
        },
        {
            "loss": Loss("convex hinge", Space.ALL, Space.COMPATIBLE),
            "lam": 1,
            "start": "zero",
        },
        {
            "algorithm": "paper",
            "lam": np.array([0.1, 0.05]),
            "folds": 2,
            "hold_out": "parts",
        },
        {
            "algorithm": Algorithm(tol=0.01, max_passes=np.inf, groups=2),
            "start": np.full(12 + 3 + 9 + 6, 0.1),
        },
    ],
)
def test_svm_round_trip(tmp_path, changes):
    X, Y = words()
    svm = StructuredSVM(Chain(), **({"lam": 0.05} | changes)).fit(X, Y)
    svm.save(tmp_path / "svm.clew")
    back = persistence.load(tmp_path / "svm.clew")
    same_params(svm, back)
    assert without_weights(back.result_) == without_weights(svm.result_)
    np.testing.assert_array_equal(back.coef_, svm.coef_)
    np.testing.assert_array_equal(back.result_.w, svm.result_.w)
    assert str(back.result_) == str(svm.result_)
    assert all(map(np.array_equal, back.predict(X), svm.predict(X)))
    assert back.score(X, Y) == svm.score(X, Y)
    assert back.lam_ == svm.lam_
    figure = back.result_.plot()
    assert len(figure.axes) == 3
    mpl.pyplot.close(figure)


def test_a_loaded_estimator_can_be_fitted_again(tmp_path):
    X, Y = words()
    svm = StructuredSVM(Chain(), lam=0.05).fit(X, Y)
    svm.save(tmp_path / "a")
    back = persistence.load(tmp_path / "a")
    again = back.fit(X, Y, warm_start=back.result_)
    assert again.result_.objective == pytest.approx(svm.result_.objective, abs=2e-3)


@pytest.mark.parametrize(
    "classes",
    [["a", "b", "c"], ("a", "b", "c"), {"a", "b", "c"}, np.array(["a", "b", "c"])],
)
def test_classes_of_any_shape(tmp_path, classes):
    X, Y = words()
    svm = StructuredSVM(Chain(classes=classes, boundary=False), lam=0.1).fit(X, Y)
    svm.save(tmp_path / "a")
    back = persistence.load(tmp_path / "a")
    assert type(back.model.classes) is type(classes)
    assert sorted(back.model.classes) == sorted(classes)
    assert back.model_.domain == svm.model_.domain
    assert all(map(np.array_equal, back.predict(X), svm.predict(X)))


@pytest.mark.parametrize("classes", [range(3), range(2, -1, -1)])
def test_number_labels(tmp_path, classes):
    X, Y = words(labels=[0, 1, 2])
    svm = StructuredSVM(Chain(classes=classes), lam=0.1).fit(X, Y)
    svm.save(tmp_path / "a")
    back = persistence.load(tmp_path / "a")
    assert back.model.classes == classes
    assert [list(y) for y in back.predict(X)] == [list(y) for y in svm.predict(X)]


def test_perceptron_round_trip(tmp_path):
    X, Y = words()
    fitted = StructuredPerceptron(Chain(), max_epochs=5, random_state=0).fit(X, Y)
    fitted.save(tmp_path / "a")
    back = persistence.load(tmp_path / "a")
    assert type(back) is StructuredPerceptron
    same_params(fitted, back)
    assert without_weights(back.result_) == without_weights(fitted.result_)
    np.testing.assert_array_equal(back.coef_, fitted.coef_)
    assert back.score(X, Y) == fitted.score(X, Y)


def test_multiclass_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.integers(3, size=30)
    svm = StructuredSVM(Multiclass(n_classes=3), lam=0.1).fit(X, y)
    svm.save(tmp_path / "a")
    assert persistence.load(tmp_path / "a").score(X, y) == svm.score(X, y)


def test_a_fit_that_was_cut_short_is_saved_as_it_is(tmp_path):
    X, Y = words()
    with pytest.warns(NotConvergedWarning):
        svm = StructuredSVM(
            Chain(), lam=1e-3, start="zero", algorithm=Algorithm(max_passes=1)
        ).fit(X, Y)
    svm.result_ = replace(svm.result_, lower_bound=-np.inf, gap=np.inf, history=())
    svm.save(tmp_path / "a")
    back = persistence.load(tmp_path / "a")
    assert back.result_.lower_bound == -np.inf
    assert not back.result_.converged
    assert back.result_.history == ()


def fit_own(tmp_path):
    x = np.linspace(-1, 1, 12)
    svm = StructuredSVM(Threshold(), loss="hinge", lam=0.1).fit(
        x, np.where(x > 0.2, 1, -1)
    )
    svm.save(tmp_path / "own.clew")
    return x, svm


def test_a_model_of_ones_own(tmp_path):
    x, svm = fit_own(tmp_path)
    back = persistence.load(tmp_path / "own.clew", model=Threshold())
    assert list(back.predict(x)) == list(svm.predict(x))
    with pytest.raises(
        InputError, match=r"Threshold; give it, as in load\(path, model=Threshold"
    ):
        persistence.load(tmp_path / "own.clew")


def test_the_wrong_model_is_refused(tmp_path):
    fit_own(tmp_path)
    with pytest.raises(
        InputError, match="weights for 2 features, and the Threshold has 5"
    ):
        persistence.load(tmp_path / "own.clew", model=Threshold(5))
    with pytest.raises(
        InputError, match="Threshold, the one that was given is a Chain"
    ):
        persistence.load(tmp_path / "own.clew", model=Chain())


def test_a_model_for_other_features_is_refused(tmp_path):
    X, Y = words()
    svm = StructuredSVM(Chain(), lam=0.1).fit(X, Y)
    svm.save(tmp_path / "a")
    assert persistence.load(tmp_path / "a", model=Chain()).score(X, Y) == svm.score(
        X, Y
    )
    with pytest.raises(
        InputError, match="weights for 30 features, and the Chain has 24"
    ):
        persistence.load(tmp_path / "a", model=Chain(boundary=False))
    other = Chain().prepare([x[:, :2] for x in X], Y)
    with pytest.raises(
        InputError, match="weights for 30 features, and the Chain has 24"
    ):
        persistence.load(tmp_path / "a", model=other)
    with pytest.raises(InputError, match="2 features, where 4 are expected"):
        persistence.load(tmp_path / "a").predict([x[:, :2] for x in X])


def test_what_json_cannot_hold_is_named(tmp_path):
    X, Y = words()
    svm = StructuredSVM(Chain(), lam=0.1, random_state=np.random.RandomState(0)).fit(
        X, Y
    )
    with pytest.raises(InputError, match="parameter 'random_state' is a RandomState"):
        svm.save(tmp_path / "a")
    svm = StructuredSVM(Chain(classes=deque("abc")), lam=0.1).fit(X, Y)
    with pytest.raises(InputError, match="parameter of the model 'classes' is a deque"):
        svm.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_only_clews_own_estimators_are_saved(tmp_path):
    class Mine(StructuredSVM):
        pass

    X, Y = words()
    with pytest.raises(InputError, match="a Mine cannot be saved"):
        Mine(Chain(), lam=0.1).fit(X, Y).save(tmp_path / "a")


def test_foreign_content_is_refused(tmp_path):
    path = tmp_path / "a"
    X, Y = words()
    StructuredSVM(Chain(), lam=0.1).fit(X, Y).save(path)
    good = storage.read_document(path)
    bad = [
        {"estimator": "os.system"},
        {"params": {"loss": {"exec": "1"}}},
        {"params": {"loss": {"Loss": {"name": "x"}}}},
        {"params": {"algorithm": {"Algorithm": {"tol": -1}}}},
        {"params": {"a": 1}},
        {"model": good.meta["model"] | {"class": {"a": 1}}},
        {
            "model": {
                key: value
                for key, value in good.meta["model"].items()
                if key != "class"
            }
        },
        {
            "model": {
                key: value
                for key, value in good.meta["model"].items()
                if key != "domain"
            }
        },
        {"result": None},
        {"feature_names": ["a", 1]},
        {"feature_names": "a"},
        {"model": good.meta["model"] | {"class": "Popen"}},
        {"model": good.meta["model"] | {"params": {"shell": True}}},
        {
            "model": good.meta["model"]
            | {"domain": good.meta["model"]["domain"] | {"n_inputs_": [2]}}
        },
    ]
    for change in bad:
        storage.write_document(path, persistence.KIND, good.meta | change, good.arrays)
        with pytest.raises(StoreError, match=str(path)):
            persistence.load(path)
    storage.write_document(path, persistence.KIND, {}, {})
    with pytest.raises(StoreError, match="not that of a clew estimator"):
        persistence.describe_file(path)
    storage.write_document(path, "project", good.meta, good.arrays)
    with pytest.raises(StoreError, match="holds a clew project"):
        persistence.load(path)


def test_describe(tmp_path):
    X, Y = words()
    svm = StructuredSVM(Chain(boundary=False), lam=0.1, loss="ramp").fit(X, Y)
    svm.save(tmp_path / "a")
    about = persistence.describe_file(tmp_path / "a")
    assert (about["estimator"], about["loss"], about["λ"]) == (
        "StructuredSVM",
        "ramp",
        "0.1",
    )
    assert about["model"] == "Chain(boundary=False)"
    assert about["certificate"] == str(svm.result_)
    fit_own(tmp_path)
    assert "Threshold" in persistence.describe_file(tmp_path / "own.clew")["model"]


def test_saving_needs_a_fit(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        StructuredSVM(Chain()).save(tmp_path / "a")
