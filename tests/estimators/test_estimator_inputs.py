"""What the estimators take: labels of any type, other random states, odd sizes; and what they refuse, by its name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict

from clew import StructuredCRF, StructuredPerceptron, StructuredSVM
from clew.errors import InputError
from clew.learning.task import Space
from clew.models import Assignment, Chain, Graph, Multiclass, Tree
from clew.models.labels import LabelSpace

from ..learning.problems import matchings, sequences

rng = np.random.default_rng(0)
PAIRS = rng.normal(size=(2, 2, 2, 3))
FLAT = rng.normal(size=(6, 2))


def chains(n=6):
    X, Y, _ = sequences(n=n)
    return X, Y


# parts of an assignment


def test_candidates_that_are_all_columns_say_nothing():
    said, unsaid = [{0, 1}, 0], [None, 0]
    model = Assignment().prepare(PAIRS, [said, None])
    assert model.n_parts(said) == model.n_parts(unsaid) == 1
    assert model.loss(said, [0, 1]) == model.loss(unsaid, [0, 1]) == 1.0
    one, other = (
        model.task(PAIRS[:1], [y]).argmax(np.ones(3), Space.INCOMPATIBLE, 1.0)
        for y in (said, unsaid)
    )
    assert one.loss == other.loss == 1.0
    assert model.task(PAIRS[:1], [said]).keys == model.task(PAIRS[:1], [unsaid]).keys
    assert model.n_parts(model.hide(said, np.array([True]))) == 0


def test_candidates_that_are_all_columns_of_one_example_are_some_of_another():
    X = [rng.normal(size=(2, 2, 3)), rng.normal(size=(2, 3, 3))]
    Y = [[{0, 1}, 0], [{0, 1}, 0]]
    svm = StructuredSVM(Assignment(), lam=0.1).fit(X, Y)
    parsed = svm.model_.encode_annotations(X, Y)
    assert [svm.model_.n_parts(y) for y in parsed] == [1, 2]
    for y, masks, x in zip(Y, parsed, X, strict=True):
        for output in svm.model_.outputs(x):
            assert svm.model_.mistakes(y, output) == svm.model_.mistakes(masks, output)
    right = 3 - sum(
        svm.model_.mistakes(y, p) for y, p in zip(Y, svm.predict(X), strict=True)
    )
    assert svm.score(X, Y) == pytest.approx(right / 3)


# labels


def test_one_class_is_said_to_be_one():
    with pytest.raises(InputError, match="one class only, 'a'"):
        StructuredSVM(Chain(), lam=1.0).fit([np.ones((2, 1))], [["a", "a"]])
    with pytest.raises(InputError, match="one class only, 3"):
        StructuredPerceptron(Multiclass()).fit(FLAT, np.full(6, 3))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0]), float),
        ([1.0, None, 2.0, 2.0, 1.0, 1.0], float),
        (
            np.array([1.0, np.nan, 2.0, 2.0, 1.0, 1.0]),
            int,
        ),  # floats only because NaN is one
        (np.array([1, 2, 1, 2, 1, 2], dtype=np.uint8), int),
        (np.array([0.5, 2.0, 0.5, 2.0, 2.0, 2.0]), float),
        (np.array([True, False, True, False, True, True]), bool),
        (["b", "a", None, "a", "a", "b"], str),
    ],
)
def test_labels_come_back_in_the_type_in_which_they_were_given(labels, kind):
    svm = StructuredSVM(Multiclass(), lam=0.1).fit(FLAT, labels)
    assert {type(label) for label in svm.predict(FLAT).tolist()} == {kind}
    svm = StructuredSVM(Chain(), lam=0.1).fit([FLAT], [labels])
    assert {type(label) for label in svm.predict([FLAT])[0].tolist()} == {kind}


def test_labels_are_parsed_once_in_a_fit(monkeypatch):
    X, Y = chains()
    Y = [[None if label < 0 else str(label) for label in y] for y in Y]
    parse, parsed = LabelSpace._allowed_states, []
    monkeypatch.setattr(
        LabelSpace, "_allowed_states", lambda *a: parsed.append(a[1]) or parse(*a)
    )
    StructuredSVM(Chain(), lam=0.3).fit(X, Y)
    assert (
        0 < len(parsed) <= sum(len(set(y)) for y in Y)
    )  # each different label of an example once


# settings


@pytest.mark.parametrize(
    "make",
    [
        lambda **s: StructuredSVM(Chain(), lam=[1.0, 0.1], **s),
        lambda **s: StructuredPerceptron(Chain(), max_epochs=3, **s),
    ],
)
def test_a_generator_is_a_random_state(make):
    X, Y = chains()
    one, same = (
        make(random_state=np.random.default_rng(1)).fit(X, Y).coef_ for _ in range(2)
    )
    np.testing.assert_array_equal(one, same)
    with pytest.raises(InputError, match="random_state is 'x'; expected"):
        make(random_state="x").fit(X, Y)


def test_a_fitted_estimator_is_a_warm_start():
    X, Y, _ = matchings(n=6)
    first = StructuredSVM(Assignment(), lam=0.1).fit(X, Y)
    again = StructuredSVM(Assignment(), lam=0.1).fit(X, Y, warm_start=first)
    assert again.result_.objective <= first.result_.objective + 1e-9
    assert again.result_.bounds < first.result_.bounds
    for wrong in (
        StructuredPerceptron(Assignment()).fit(X, Y),
        StructuredSVM(Assignment()),
        first.coef_,
        "x",
    ):
        with pytest.raises(
            InputError, match=r"warm_start is a .*; expected a fitted StructuredSVM"
        ):
            first.fit(X, Y, warm_start=wrong)


def test_predictions_of_any_length_are_one_array():
    X, Y = chains(9)
    svm = StructuredSVM(Chain(n_states=4), lam=0.3)
    predicted = cross_val_predict(svm, X, Y, cv=3)
    assert predicted.shape == (9,)
    assert [len(y) for y in predicted] == [len(x) for x in X]
    assert svm.fit(X, Y).predict(X[:2]).dtype == object
    assert svm.predict(X[:0]).shape == (0,)


class Reader(Sequence):
    """Examples that are read from somewhere when they are asked for, by a Python integer and nothing else."""

    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        assert type(index) is int
        return self.examples[index]


@pytest.mark.parametrize(
    "learner", [StructuredSVM, StructuredCRF, StructuredPerceptron]
)
def test_examples_may_be_read_when_they_are_asked_for(learner):
    X, Y = chains(9)
    Y = [None if n == 4 else y for n, y in enumerate(Y)]
    read, plain = (
        learner(Chain(n_states=4), random_state=0).fit(wrap(X), wrap(Y))
        for wrap in (Reader, list)
    )
    np.testing.assert_array_equal(read.coef_, plain.coef_)
    assert read.score(Reader(X), Reader(Y)) == plain.score(X, Y)
    assert read.suggest(Reader(X), 3, Reader(Y)) == plain.suggest(X, 3, Y)
    read.calibrate(Reader(X), Reader(Y)).predict_proba(Reader(X))
    online = StructuredSVM(Chain(n_states=4), lam=0.1, random_state=0)
    assert (
        len(
            online.partial_fit(Reader(X), Reader(Y))
            .partial_fit(Reader(X), Reader(Y))
            .predict(Reader(X))
        )
        == 9
    )


# what is refused, before memory is asked for


@pytest.mark.parametrize(
    "model",
    [
        Graph(n_states=10**6),
        Chain(n_states=10**7),
        Tree(n_states=10**9),
        Chain(n_states=10**30),
    ],
    ids=lambda model: type(model).__name__,
)
def test_more_states_than_fit_are_refused(model):
    x = {Graph: (FLAT, [[0, 1]]), Tree: (FLAT, [-1, 0, 0, 0, 0, 0])}.get(
        type(model), FLAT
    )
    with pytest.raises(
        InputError, match=r"states: its weights would take .* numbers; expected at most"
    ):
        StructuredSVM(model, lam=1.0).fit([x], [[0, 1, None, None, None, None]])


def test_more_classes_and_variables_than_fit_are_refused():
    with pytest.raises(InputError, match="its weights would take"):
        StructuredSVM(Multiclass(n_classes=10**9), lam=1.0).fit(
            FLAT, [0, 1, 0, 1, 0, 1]
        )
    with pytest.raises(InputError, match="its scores would take"):
        StructuredSVM(Multiclass(n_classes=10**7), lam=1.0).fit(
            np.ones((1000, 1)), np.arange(1000) % 2
        )
    edges = [(i, j) for i in range(6) for j in range(i)]
    with pytest.raises(InputError, match="example 0: its programme would take"):
        StructuredSVM(Graph(n_states=3000), lam=1.0).fit(
            [(FLAT, edges)], [[0, 1, 2, 3, 4, 5]]
        )


@pytest.mark.parametrize(
    "scale", [1e300, 1e-300, 0, -1, np.nan, np.inf, "large", None, True, [1.0]]
)
def test_a_label_scale_that_is_none_is_refused(scale):
    with pytest.raises(
        InputError, match=r"label_scale is .*; expected a positive number from"
    ):
        StructuredSVM(Chain(label_scale=scale), lam=1.0).fit(
            [FLAT], [[0, 1, 0, 1, None, None]]
        )


@pytest.mark.parametrize(
    "wrong",
    [None, 5, iter([[0]]), {0: 1}, {1, 2}, "abc", np.array(3.0)],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: StructuredSVM(Chain(), lam=1.0),
        lambda: StructuredPerceptron(Multiclass()),
    ],
)
def test_what_is_no_sequence_is_refused_by_its_name(make, wrong):
    X, Y = (
        ([FLAT], [[0, 1, 0, 1, 0, 1]])
        if isinstance(make().model, Chain)
        else (FLAT, [0, 1, 0, 1, 0, 1])
    )
    fitted = make().fit(X, Y)
    with pytest.raises(InputError, match=r"X is .*; expected a sequence"):
        make().fit(wrong, Y)
    with pytest.raises(InputError, match=r"Y is .*; expected a sequence"):
        make().fit(X, wrong)
    with pytest.raises(InputError, match=r"X is .*; expected a sequence"):
        fitted.predict(wrong)
    with pytest.raises(InputError, match=r"Y is .*; expected a sequence"):
        fitted.score(X, wrong)


@pytest.mark.parametrize("value", [1e101, -1e300, np.inf, np.nan])
def test_features_that_overflow_are_refused(value):
    for model, x, y in [
        (Chain(), [[1.0], [value]], [0, 1]),
        (Assignment(), [[[1.0], [value]]], [0]),
    ]:
        with pytest.raises(InputError, match="features must be finite, at most"):
            StructuredSVM(model, lam=1.0).fit([np.array(x)], [y])
