from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Space
from clew.models.multiclass import Multiclass

X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])


def test_features_are_x_and_bias_in_the_block_of_the_class():
    model = Multiclass().prepare(X, ["a", "b", None])
    np.testing.assert_array_equal(model.joint_features(X[1], "b"), [0, 0, 0, 0, 2, 1])
    np.testing.assert_array_equal(
        Multiclass(bias=False).prepare(X, [0, 1, 1]).joint_features(X[0], 1),
        [0, 0, 1, 0],
    )


def test_domain():
    model = Multiclass(n_classes=4).prepare(X, np.array([0, 1, -1]))
    assert model.domain == {"classes_": [0, 1, 2, 3], "n_inputs_": 2}
    assert model.n_features == 12


@pytest.mark.parametrize(
    "as_input",
    [sp.csr_array, sp.csr_matrix, sp.coo_array, np.ndarray.tolist, np.float32],
)
def test_sparse_and_listed_inputs_give_the_same(as_input):
    Y = [0, {0, 1}, None]
    model = Multiclass(n_classes=3).prepare(as_input(X), Y)
    w = np.random.default_rng(0).normal(size=model.n_features)
    task, expected = model.task(as_input(X), Y), model.task(X, Y)
    assert task.keys == expected.keys
    for space in Space:
        one, other = task.argmax(w, space, 1.0), expected.argmax(w, space, 1.0)
        np.testing.assert_array_equal(one.features.toarray(), other.features.toarray())
        np.testing.assert_array_equal(one.loss, other.loss)
    assert model.predict(as_input(X), w) == model.predict(X, w)


def test_a_boolean_matrix_is_candidate_sets():
    candidates = np.array(
        [[True, False, True], [False, True, False], [True, True, True]]
    )
    sets = [{0, 2}, 1, None]
    model = Multiclass().prepare(X, candidates)
    assert model.classes_ == [0, 1, 2]
    assert model.task(X, candidates).keys == model.task(X, sets).keys
    assert [model.n_parts(row) for row in candidates] == [1, 1, 0]
    assert model.loss(candidates[0], 1) == 1
    named = Multiclass(classes=["x", "y", "z"]).prepare(X, candidates)
    assert named.loss(candidates[0], "z") == 0


def test_one_sparse_row_is_one_example():
    model = Multiclass().prepare(sp.csr_matrix(X), [0, 1, 1])
    w = np.arange(6.0)
    assert model.argmax(sp.csr_matrix(X)[1], w, 1, Space.INCOMPATIBLE, 0.0) == 0
    assert model.argmax(sp.csr_array(X)[[1]], w, None, Space.INCOMPATIBLE, 0.0) is None


def test_ties_go_to_the_first_class():
    model = Multiclass(n_classes=3).prepare(X, [2, 1, 0])
    assert model.predict(X, np.zeros(9)) == [0, 0, 0]


def test_annotated_part_counts_rows_with_one_candidate():
    model = Multiclass().prepare(X, [0, {0, 1}, None])
    part = model.task(X, [0, {0, 1}, None]).annotated_part()
    answer = part.argmax(np.ones(6), Space.ALL, 1.0)
    np.testing.assert_array_equal(
        np.abs(answer.features.toarray()).sum(axis=1) > 0, [True, False, False]
    )
    assert (
        Multiclass(n_classes=2)
        .prepare(X, [None] * 3)
        .task(X, [None] * 3)
        .annotated_part()
        is None
    )


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.array([[0.0, np.nan]]), [1], "example 0: feature 1 is nan"),
        (
            sp.csr_array([[0.0, 0.0], [np.inf, 1.0]]),
            [0, 1],
            "example 1: feature 0 is inf",
        ),
        (np.ones(3), [0, 1, 1], "must be a matrix"),
        (np.array([["a"]]), [0], "must be numbers"),
        (X, [0, 1], "3 examples"),
        (X, 5, "a sequence of as many"),
        (X[:0], [], "no examples"),
        (X, [0, 1, {}], "not {}"),
    ],
)
def test_refused_data(inputs, labels, message):
    with pytest.raises(InputError, match=message):
        Multiclass().prepare(inputs, labels)


def test_other_refusals():
    model = Multiclass(classes=[0, 1]).prepare(X, [0, 1, 1])
    with pytest.raises(InputError, match="example 2: label 7"):
        model.task(X, [0, 1, 7])
    with pytest.raises(InfeasibleAnnotation, match="example 1"):
        model.task(X, [0, set(), 1])
    with pytest.raises(
        InputError, match="X has 1 features, but Multiclass is expecting 2"
    ):
        model.predict(X[:, :1], np.zeros(6))
    with pytest.raises(InputError, match="no examples"):
        model.task(X[:0], [])
    with pytest.raises(InputError, match="call prepare"):
        Multiclass().predict(X, np.zeros(6))
