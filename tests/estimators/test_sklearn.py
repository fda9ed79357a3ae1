"""What users of scikit-learn look for: its estimator checks, classes, names, weights of classes, pipelines, C."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.feature_extraction import DictVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from clew import StructuredCRF, StructuredPerceptron, StructuredSVM, load
from clew.errors import InputError, MissingCapability
from clew.models import Assignment, Chain, Graph, Multiclass, Tree
from clew.preprocessing import NodeTransformer

from ..learning.problems import sequences
from ..models.contract import MODELS, instance, instances

mpl.use("agg")

WEIGHTS = "it compares to 1e-7; a fit ends at its tolerance, a perceptron's steps have an order"
FAIL = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
    "check_classifiers_classes": "it has the labels -1 and 1; -1 marks the unknown",
    "check_classifiers_regression_target": "numbers may be labels, in Chain as well",
}


@parametrize_with_checks(
    [
        StructuredSVM(Multiclass(), lam=0.1),
        StructuredCRF(Multiclass(), lam=0.1),
        StructuredPerceptron(Multiclass(), max_epochs=5),
    ],
    expected_failed_checks=lambda e: {
        name: reason
        for name, reason in FAIL.items()
        if reason != WEIGHTS or not isinstance(e, StructuredCRF)
    },
)
def test_estimator_checks(estimator, check):
    check(estimator)


# names and blocks


@pytest.mark.parametrize("generate", MODELS, ids=lambda generate: generate.__name__)
def test_blocks_hold_every_weight_and_names_are_different(generate):
    for case in instances(generate, 10):
        blocks = case.model.blocks()
        places = np.concatenate([block.places.ravel() for block in blocks])
        assert set(places.tolist()) == set(range(case.model.n_features))
        svm = StructuredPerceptron(case.model)
        svm.model_, svm.coef_ = case.model, case.w
        names = svm.get_feature_names()
        assert len(set(names)) == len(names) == case.model.n_features
        assert {block.name for block in blocks} == set(svm.weights_)


def test_weights_of_a_chain_are_what_they_add_to_the_score():
    X, Y, _ = sequences(n=8)
    svm = StructuredSVM(Chain(n_states=4), lam=0.3).fit(X, Y)
    w, x, y = svm.weights_, X[0], svm.predict(X[:1])[0]
    score = sum(w["input"][s] @ x[t] + w["bias"][s] for t, s in enumerate(y))
    score += (
        sum(w["transition"][a, b] for a, b in pairwise(y))
        + w["begin"][y[0]]
        + w["end"][y[-1]]
    )
    assert score == pytest.approx(svm.coef_ @ svm.model_.joint_features(x, y))
    names = svm.get_feature_names([f"n{i}" for i in range(X[0].shape[1])])
    assert names[0] == "input[0, n0]"
    assert "transition[1, 3]" in names
    with pytest.raises(InputError, match="input names are given; expected"):
        svm.get_feature_names(["a"])


def test_classes_and_numbers_of_features():
    X, Y, _ = sequences(n=4)
    svm = StructuredSVM(Chain(classes=["b", "a", "c", "d"]), lam=0.3)
    for name in ("classes_", "n_features_in_", "weights_", "predict_proba"):
        assert not hasattr(svm, name)
    svm.fit(X, [["bacd"[label] if label >= 0 else None for label in y] for y in Y])
    assert svm.classes_.tolist() == ["b", "a", "c", "d"]
    assert svm.n_features_in_ == X[0].shape[1]
    match = StructuredSVM(Assignment(), lam=1.0).fit(
        np.random.default_rng(0).normal(size=(3, 2, 2, 5)), [[0, 1]] * 3
    )
    assert match.n_features_in_ == 5
    assert not hasattr(match, "classes_")


def test_names_of_a_table():
    class Table:
        columns = ("height", "width")

        def to_numpy(self):
            return np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.1, 1.0]])

    svm = StructuredSVM(Multiclass(), lam=0.1).fit(Table(), [0, 1, 0, 1])
    assert svm.feature_names_in_.tolist() == ["height", "width"]
    assert svm.get_feature_names()[0] == "input[0, height]"
    assert svm.score(Table(), [0, 1, 0, 1]) == 1.0
    assert not hasattr(svm.fit(np.eye(2), [0, 1]), "feature_names_in_")


@pytest.mark.parametrize(
    "learner", [StructuredSVM, StructuredCRF, StructuredPerceptron]
)
def test_a_table_has_the_columns_of_the_fit(learner, tmp_path):
    class Table:
        def __init__(self, *columns):
            self.columns = columns

        def to_numpy(self):
            return np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [0.1, 1.0]])

    Y, given, swapped = [0, 1, 0, 1], Table("height", "width"), Table("width", "height")
    fitted = learner(Multiclass()).fit(given, Y)
    fitted.save(tmp_path / "a.clew")
    fitted = load(tmp_path / "a.clew")
    assert fitted.feature_names_in_.tolist() == ["height", "width"]
    for ask in ("predict", "margins", "decision_function"):
        assert (
            len(getattr(fitted, ask)(given))
            == len(getattr(fitted, ask)(given.to_numpy()))
            == 4
        )
        with pytest.raises(
            InputError,
            match=r"X has the columns .*; expected .*height.*, in this order",
        ):
            getattr(fitted, ask)(swapped)
    for ask in (fitted.score, fitted.calibrate, lambda X, Y: fitted.suggest(X, 1, Y)):
        with pytest.raises(InputError, match="X has the columns"):
            ask(swapped, Y)
    online = StructuredSVM(Multiclass(), lam=0.1).partial_fit(given, Y, classes=[0, 1])
    with pytest.raises(InputError, match="X has the columns"):
        online.partial_fit(swapped, Y)


@pytest.mark.parametrize("generate", MODELS, ids=lambda generate: generate.__name__)
def test_weights_have_a_picture(generate):
    case = instance(generate, 1)
    svm = StructuredPerceptron(case.model)
    svm.model_, svm.coef_ = case.model, case.w
    figure = svm.plot_weights(top=2)
    assert len(figure.axes) >= 2  # a panel and the scale
    mpl.pyplot.close(figure)


# C and weights of classes


def test_c_is_another_name_of_lambda():
    X, Y, _ = sequences(n=8)
    n = sum((y >= 0).any() for y in Y)
    for make in (StructuredSVM, StructuredCRF):
        one, other = (
            make(Chain(n_states=4), C=0.5).fit(X, Y),
            make(Chain(n_states=4), lam=1 / (0.5 * n)).fit(X, Y),
        )
        assert one.lam_ == other.lam_
        np.testing.assert_array_equal(one.coef_, other.coef_)
        for wrong in (
            {"C": -1.0},
            {"C": True},
            {"C": "x"},
            {"C": np.inf},
            {"C": 1.0, "lam": 1.0},
        ):
            with pytest.raises(InputError, match="C is"):
                make(Chain(n_states=4), **wrong).fit(X, Y)


def test_weights_of_classes_count_in_the_task_loss():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 2)) for _ in range(6)]
    Y = [[0, 1, None, {1, 2}, 2]] * 6
    for normalize in (False, True):
        plain = Chain(n_states=3, normalize=normalize).prepare(X, Y)
        parsed = plain.encode_annotations(X, Y)
        model, none = plain.with_class_weight({1: 3.0, 2: 0.5}, parsed)
        assert none is None
        costs = [1.0, 3.0, None, 1.75, 0.5]
        total = sum(c for c in costs if c) if normalize else 1.0
        for y in ([0, 1, 0, 1, 2], [1, 1, 0, 0, 0], [2, 0, 0, 0, 1]):
            wrong = sum(
                c
                for c, a, s in zip(costs, Y[0], y, strict=True)
                if a is not None and (s not in a if isinstance(a, set) else s != a)
            )
            assert model.loss(Y[0], y) == pytest.approx(wrong / total)
        # the task agrees: the best of f + Δ by listing
        w = rng.normal(size=model.n_features)
        found = model.task(X, parsed).argmax(w, model_space(), 1.0)
        for n, x in enumerate(X):
            best = max(
                w @ model.joint_features(x, y) + model.loss(Y[0], y)
                for y in model.outputs(x)
            )
            assert found.values(w, 1.0)[n] == pytest.approx(best)


def model_space():
    from clew.learning.task import Space

    return Space.ALL


def test_a_heavier_class_is_predicted_more_often():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    Y = (X[:, 0] + 0.6 * rng.normal(size=200) > 1.0).astype(int)
    chains, labels = np.split(X, 40), np.split(Y, 40)
    trees = [(chain, [-1, 0, 1, 2, 3]) for chain in chains]
    for model, x, y in (
        (Multiclass(), X, Y),
        (Chain(), chains, labels),
        (Tree(), trees, labels),
    ):
        share = []
        for weight in (None, "balanced", {1: 20.0}):
            predicted = (
                StructuredSVM(model, lam=0.1, class_weight=weight).fit(x, y).predict(x)
            )
            share.append(np.concatenate([np.atleast_1d(p) for p in predicted]).mean())
        assert share[0] < share[1]
        assert share[0] < share[2]


@pytest.mark.parametrize("wrong", ["even", {5: 1.0}, {0: -1.0}, {0: "x"}, 3])
def test_weights_of_classes_that_are_none(wrong):
    with pytest.raises(InputError, match="class_weight"):
        StructuredSVM(Multiclass(), lam=1.0, class_weight=wrong).fit(np.eye(2), [0, 1])


def test_weights_of_classes_need_classes():
    with pytest.raises(MissingCapability, match="class_weight expects"):
        StructuredSVM(Assignment(), lam=1.0, class_weight="balanced").fit(
            np.ones((1, 2, 2, 1)), [[0, 1]]
        )
    with pytest.raises(MissingCapability, match="class_weight expects"):
        StructuredSVM(Graph(), lam=1.0, class_weight="balanced").fit(
            [(np.eye(2), [[0, 1]])], [[0, 1]]
        )


# pipelines


SENTENCES = ["the cat sat", "a dog ran off", "the dog sat", "a cat ran"]
TAGS = [["D", "N", "V"], ["D", "N", None, "P"], ["D", None, "V"], [None, "N", "V"]]


def tokens(sentence):
    words = sentence.split()
    return [
        {"word": word, "last": word[-1], "before": words[t - 1] if t else "<s>"}
        for t, word in enumerate(words)
    ]


def test_dicts_of_features_in_a_pipeline():
    X = [tokens(sentence) for sentence in SENTENCES]
    svm = StructuredSVM(Chain(classes=["D", "N", "P", "V"]), lam=0.01)
    pipe = Pipeline([("features", NodeTransformer(DictVectorizer())), ("svm", svm)])
    pipe.fit(X, TAGS)
    assert pipe.score(X, TAGS) == 1.0
    assert pipe.predict([tokens("the dog ran")])[0].tolist() == ["D", "N", "V"]
    names = pipe["features"].get_feature_names_out()
    assert "input[N, word=dog]" in pipe["svm"].get_feature_names(names)
    search = GridSearchCV(pipe, {"svm__lam": [0.01, 10.0]}, cv=2).fit(X, TAGS)
    assert search.best_params_["svm__lam"] in (0.01, 10.0)


def test_nodes_of_any_kind_are_transformed():
    rng = np.random.default_rng(0)
    X = [rng.normal(3, 2, size=(t, 2)) for t in (3, 5)]
    for make in (
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: (x, [-1] * len(x)),
        sp.csr_array,
    ):
        transformer = NodeTransformer(StandardScaler(with_mean=False))
        found = transformer.fit_transform([make(x) for x in X])
        rows = [x[0] if isinstance(x, tuple) else x for x in found]
        assert [x.shape for x in rows] == [(3, 2), (5, 2)]
        together = np.vstack([x.toarray() if sp.issparse(x) else x for x in rows])
        np.testing.assert_allclose(together.std(axis=0), 1.0)
    assert transformer.transform([]) == []
    for wrong in ([], None, [3]):
        with pytest.raises(InputError):
            NodeTransformer(StandardScaler()).fit(wrong)
    scaled = make_pipeline(
        NodeTransformer(StandardScaler()), StructuredCRF(Tree(n_states=2), lam=0.1)
    )
    trees = [(x, [-1] + [0] * (len(x) - 1)) for x in X]
    assert len(scaled.fit(trees, [[0, 1, 1], [1, 0, None, 1, 0]]).predict(trees)) == 2


def test_two_classes_have_scores_that_roc_auc_takes():
    X, y = make_classification(80, random_state=0)
    svm = StructuredSVM(Multiclass(), lam=0.1)
    assert (cross_val_score(svm, X, y, scoring="roc_auc", cv=3) > 0.7).all()


@pytest.mark.parametrize("form", ["lil", "dok", "coo", "csc"])
def test_sparse_inputs_of_any_format_are_taken(form):
    X, y = make_classification(60, random_state=0)
    expected = StructuredSVM(Multiclass(), lam=0.1).fit(sp.csr_array(X), y)
    svm = StructuredSVM(Multiclass(), lam=0.1)
    if form in ("lil", "dok"):
        svm.fit(sp.csr_array(X).asformat(form), y)
        np.testing.assert_array_equal(svm.coef_, expected.coef_)
        np.testing.assert_array_equal(
            svm.predict(sp.csr_array(X).asformat(form)), expected.predict(X)
        )
    chains = [X[i : i + 5] for i in range(0, 60, 5)]
    labels = [y[i : i + 5] for i in range(0, 60, 5)]
    chain = StructuredSVM(Chain(), lam=0.1)
    chain.fit([sp.csr_array(x).asformat(form) for x in chains], labels)
    assert chain.score(chains, labels) > 0.6


def test_missing_labels_of_pandas_are_unknown():
    pd = pytest.importorskip("pandas")
    X, y = make_classification(60, random_state=0)
    words = np.where(y, "yes", "no").astype(object)
    words[::3] = None
    series = pd.Series(words, dtype="string")
    assert series.isna().sum() == 20
    svm = StructuredSVM(Multiclass(), lam=0.1)
    weights = svm.fit(X, series).coef_
    np.testing.assert_array_equal(weights, svm.fit(X, words).coef_)
    chains = [X[i : i + 5] for i in range(0, 60, 5)]
    chain = StructuredSVM(Chain(), lam=0.1)
    weights = chain.fit(chains, [series[i : i + 5] for i in range(0, 60, 5)]).coef_
    expected = chain.fit(chains, [words[i : i + 5] for i in range(0, 60, 5)]).coef_
    np.testing.assert_array_equal(weights, expected)


def test_tables_in_a_list_have_the_columns_of_the_fit():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(0)
    X = [pd.DataFrame(rng.normal(size=(3, 2)), columns=["u", "v"]) for _ in range(4)]
    svm = StructuredSVM(Chain(), lam=0.1).fit(X, [["a", "b", None]] * 4)
    assert svm.feature_names_in_.tolist() == ["u", "v"]
    assert "input[a, u]" in svm.get_feature_names()
    assert len(svm.predict(X)) == 4
    with pytest.raises(InputError, match="X has the columns"):
        svm.predict([*X, X[0][["v", "u"]]])
    with pytest.raises(InputError, match="X has the columns"):
        svm.fit([*X, X[0][["v", "u"]]], [["a", "b", None]] * 5)


@pytest.mark.parametrize(
    "learner", [StructuredSVM, StructuredCRF, StructuredPerceptron]
)
def test_annotations_may_be_called_y(learner):
    X, y = make_classification(40, random_state=0)
    fitted = learner(Multiclass()).fit(X, y=y)
    assert fitted.score(X, y=y) == fitted.score(X, y) > 0.5
    with pytest.raises(InputError, match="expected one of both"):
        fitted.fit(X, y, y=y)


def test_features_that_are_no_numbers_or_missing_are_refused():
    with pytest.raises(TypeError, match="features must be numbers"):
        StructuredSVM(Multiclass()).fit(np.array([[{}], [{}]], dtype=object), [0, 1])
    with pytest.raises(InputError, match=r"0 feature\(s\)"):
        StructuredSVM(Multiclass()).fit(np.zeros((2, 0)), [0, 1])


@pytest.mark.parametrize(
    "learner", [StructuredSVM, StructuredCRF, StructuredPerceptron]
)
def test_skops_restores_what_it_dumped(learner):
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    X, Y, _ = sequences(n=6)
    fitted = learner(Chain(n_states=4)).fit(X, Y)
    data = skops.dumps(fitted)
    loaded = skops.loads(data, trusted=skops.get_untrusted_types(data=data))
    assert type(loaded.result_) is type(fitted.result_)
    for one, other in zip(loaded.predict(X), fitted.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_repr_of_every_result_is_one_short_line():
    X, Y, _ = sequences(n=6)
    svm = StructuredSVM(Chain(n_states=4), lam=0.1)
    fitted = [
        svm.fit(X, Y),
        StructuredCRF(Chain(n_states=4), lam=0.1).fit(X, Y),
        StructuredPerceptron(Chain(n_states=4), max_epochs=2).fit(X, Y),
        StructuredSVM(Chain(n_states=4), lam=0.1).partial_fit(X, Y),
    ]
    for estimator in fitted:
        text = repr(estimator.result_)
        assert text.startswith(f"<{type(estimator.result_).__name__}: ")
        assert len(text) < 200
        assert "\n" not in text
