from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from clew import StructuredSVM
from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.losses import LOSSES
from clew.learning.result import Status
from clew.learning.task import Space
from clew.models.chain import Chain

X = [np.array([[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]), np.array([[5.0, 6.0]])]
Y = [np.array([0, -1, 1]), None]


def test_feature_blocks_are_unary_bias_transition_begin_end():
    model = Chain(label_scale=1).prepare(X, Y)
    unary, bias, transition, begin, end = np.split(
        model.joint_features(X[0], [0, 1, 1]), [4, 6, 10, 12]
    )
    np.testing.assert_array_equal(unary, [1, 2, 4, 3])
    np.testing.assert_array_equal(bias, [1, 2])
    np.testing.assert_array_equal(transition, [0, 1, 0, 1])
    np.testing.assert_array_equal(begin, [1, 0])
    np.testing.assert_array_equal(end, [0, 1])
    assert (
        Chain(label_scale=1, bias=False, boundary=False).prepare(X, Y).n_features == 8
    )


def test_loss_counts_annotated_positions():
    labels = [0, {0, 1}, {1, 2}, None]
    count, share = (
        Chain(n_states=3, normalize=flag).prepare([np.ones((4, 1))], [labels])
        for flag in (False, True)
    )
    assert count.loss(labels, [1, 2, 0, 0]) == 3
    assert share.loss(labels, [1, 0, 1, 0]) == pytest.approx(1 / 3)
    assert share.loss(None, [1, 0, 1, 0]) == 0


def test_labels_of_any_kind_come_back():
    model = Chain().prepare(X, [["no", None, "yes"], None])
    w = np.zeros(model.n_features)
    w[2:4] = [1.0, -1.0]  # "yes" where the first feature is the larger
    assert [y.tolist() for y in model.predict(X, w)] == [["no", "no", "yes"], ["no"]]
    assert model.predict([], w) == []


@pytest.mark.parametrize("density", [0.3, 0.7])
def test_sparse_dense_and_mixed_inputs_give_the_same(density):
    rng = np.random.default_rng(0)
    dense = [
        rng.normal(size=(n, 6)) * (rng.random((n, 6)) < density) for n in (3, 7, 1, 5)
    ]
    labels = [rng.integers(-1, 3, size=len(x)) for x in dense]
    model = Chain(n_states=3).prepare(dense, labels)
    w = rng.normal(size=model.n_features)
    expected = model.task(dense, labels)
    others = [[sp.csr_array(x) for x in dense], [sp.coo_matrix(dense[0]), *dense[1:]]]
    for other in [dense, *others]:
        task = model.task(other, labels)
        assert task.keys == expected.keys
        for space in Space:
            one, two = task.argmax(w, space, 1.0), expected.argmax(w, space, 1.0)
            np.testing.assert_array_equal(
                one.features.toarray(), two.features.toarray()
            )


def test_ties_go_to_the_lowest_state():
    model = Chain(n_states=3).prepare(X, Y)
    w = np.zeros(model.n_features)
    assert [y.tolist() for y in model.predict(X, w)] == [[0, 0, 0], [0]]
    assert model.argmax(X[0], w, [0, 1, None], Space.INCOMPATIBLE, 0.0).tolist() == [
        0,
        0,
        0,
    ]
    assert model.argmax(X[0], w, [0, None, None], Space.INCOMPATIBLE, 0.0).tolist() == [
        1,
        0,
        0,
    ]


def test_annotated_part_counts_determined_positions_and_edges_between_them():
    labels = [0, 0, {0, 1}, 1]
    x = np.array([[1.0], [10.0], [100.0], [1000.0]])
    model = Chain(label_scale=1, n_states=3).prepare([x], [labels])
    part = model.task([x], [labels]).annotated_part()
    features = part.argmax(
        np.zeros(model.n_features), Space.COMPATIBLE, 0.0
    ).features.toarray()[0]
    expected = np.zeros(model.n_features)
    expected[[0, 1, 3, 4, 6, 15, 19]] = [11, 1000, 2, 1, 1, 1, 1]
    np.testing.assert_array_equal(features, expected)
    assert model.task([x], [[None, {0, 1}, None, {1, 2}]]).annotated_part() is None


def test_long_chains_stay_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    labels = rng.integers(4, size=3000)
    model = Chain(label_scale=1, n_states=4).prepare([x], [labels])
    w = rng.normal(size=model.n_features)
    w[:8] *= 20
    free = model.task([x], [labels]).argmax(w, Space.ALL, 0.0)
    compatible = model.argmax(x, w, model.predict([x], w)[0], Space.INCOMPATIBLE, 0.0)
    # the second best labeling: one that deviates from the best, at the least cost
    assert (compatible != model.predict([x], w)[0]).any()
    assert model.joint_features(x, compatible) @ w <= free.values(w, 0.0)[0]
    assert free.features.sum() == pytest.approx(x.sum() + 3000 + 2999 + 2)


def test_candidate_matrices_are_annotations_and_what_is_hidden_is_one():
    model = Chain(n_states=2).prepare(X, Y)
    matrix = np.array([[True, False], [True, True], [False, True]])
    assert model.task([X[0]], [matrix]).keys == model.task([X[0]], [Y[0]]).keys
    hidden = model.hide(
        np.array([0, 1, 1], dtype=np.uint8), np.array([True, False, True])
    )
    assert hidden.tolist() == [[True, True], [False, True], [True, True]]
    hidden = model.hide([0, {1}, None], np.array([False, True]))
    assert hidden.tolist() == [[True, False], [True, True], [True, True]]
    assert model.hide(Y[0], np.zeros(2, dtype=bool)) is Y[0]


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ([X[0], np.zeros((0, 2))], Y, "example 1 is empty"),
        ([X[0], np.zeros((1, 3))], Y, "example 1 has 3 features, where 2"),
        (
            [X[0], np.array([[1.0, np.nan]])],
            Y,
            "example 1, position 0: feature 1 is nan",
        ),
        (
            [np.vstack([X[0][:2], [np.inf, 0.0]]), X[1]],
            Y,
            "example 0, position 2: feature 0 is inf",
        ),
        ([X[0], np.ones(2)], Y, "example 1: features must be a matrix"),
        ([X[0], np.array([["a", "b"]])], Y, "example 1: features must be numbers"),
        (X, [Y[0], [0, 1]], "example 1: 2 labels are given; expected 1"),
        (
            X,
            [np.array([0, 1]), np.array([1])],
            "example 0: 2 labels are given; expected 3",
        ),
        (X, [Y[0]], "X has 2 examples and Y has 1"),
        ([], [], "no examples"),
        (X, [None, None], "nothing is annotated"),
    ],
)
def test_refused_data(data, labels, message):
    with pytest.raises(InputError, match=message):
        Chain().prepare(data, labels)


def test_labels_outside_the_classes_are_named():
    for labels in ([Y[0], np.array([9])], [None, [9]]):
        with pytest.raises(InputError, match="example 1, position 0: label 9"):
            Chain(classes=[0, 1]).prepare(X, labels)
    model = Chain(classes=[0, 1]).prepare(X, Y)
    with pytest.raises(InputError, match="position 1 has none"):
        model.joint_features(X[0], [0, None, 1])
    with pytest.raises(InputError, match="2 labels are given; expected 3"):
        model.joint_features(X[0], [0, 1])


@pytest.mark.parametrize(
    "sentence", [["the", "dog"], [{"word": "the"}, {"word": "dog"}]]
)
def test_words_and_dicts_are_led_to_the_transformer(sentence):
    with pytest.raises(
        InputError, match=r"example 0: .*clew\.preprocessing\.NodeTransformer"
    ):
        StructuredSVM(Chain(), lam=1.0).fit([sentence], [["A", "B"]])


def draw_entities(rng, n, known):
    """Chains of O, B and I without an I that begins or follows O; some labels known."""
    X = []
    Y = []
    for _ in range(n):
        labels = []
        for _ in range(rng.integers(2, 7)):
            last = labels[-1] if labels else "O"
            labels.append(rng.choice(["O", "B"] if last == "O" else ["O", "B", "I"]))
        states = ["BIO".index(label) for label in labels]
        X.append(np.eye(3)[states] + rng.normal(size=(len(labels), 3)))
        Y.append([str(y) if rng.random() < known else None for y in labels])
    return X, Y


BIO = [("O", "I"), (None, "I")]


@pytest.mark.parametrize("loss", ["bridge", "hinge", "pair"])
def test_forbidden_pairs_hold_in_learning_and_prediction(loss):
    X, Y = draw_entities(np.random.default_rng(1), 60, 0.5)
    svm = StructuredSVM(Chain(forbidden=BIO), loss=loss, lam=0.01).fit(X, Y)
    result = svm.result_
    assert result.status is Status.CONVERGED
    # the certificate is of the problem over legal labelings alone, here listed
    values = []
    for x, annotation in zip(X, Y, strict=True):
        if not svm.model_.n_parts(annotation):
            continue
        outputs = list(svm.model_.outputs(x))
        scores = [svm.model_.joint_features(x, y) @ svm.coef_ for y in outputs]
        losses = np.array([svm.model_.loss(annotation, y) for y in outputs])
        values.append(list_loss(LOSSES[loss], np.array(scores), losses))
    listed_objective = 0.005 * svm.coef_ @ svm.coef_ + np.mean(values)
    assert listed_objective == pytest.approx(result.objective, rel=1e-6)
    for y in svm.predict(X):
        pairs = list(zip([None, *y], [*y, None], strict=True))
        assert not set(BIO) & set(pairs)


def list_loss(loss, scores, deltas):
    """The loss of one example from the scores and Δ of all its outputs."""
    inside = {
        Space.ALL: deltas >= 0,
        Space.COMPATIBLE: deltas == 0,
        Space.INCOMPATIBLE: deltas > 0,
    }
    penalty = scores + loss.penalty_weight * deltas
    reward = scores + loss.reward_weight * deltas
    margin = penalty[inside[loss.penalty]].max(initial=-np.inf) + loss.margin
    return max(margin - reward[inside[loss.reward]].max(), 0.0)


def test_annotation_of_forbidden_pairs_is_refused():
    X = [np.zeros((2, 1)), np.zeros((3, 1))]
    Y = [["O", "B"], ["B", None, "I"]]
    model = Chain(forbidden=[*BIO, ("B", "B"), ("B", "I")])
    with pytest.raises(InfeasibleAnnotation, match="example 1, position 2"):
        model.prepare(X, Y)
    with pytest.raises(InputError, match="pairs of labels"):
        Chain(forbidden=["OI"]).prepare(X, Y)
