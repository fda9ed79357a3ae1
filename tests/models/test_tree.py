from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InputError
from clew.learning.task import Space
from clew.models.chain import Chain
from clew.models.tree import Tree

#     2
#    / \
#   0   3      4
#   |
#   1
PARENTS = np.array([2, 0, -1, 2, -1])
FEATURES = np.array([[1.0], [2.0], [4.0], [8.0], [16.0]])
LABELS = [0, 1, 1, 0, 1]


def test_feature_blocks_are_unary_bias_transition():
    model = Tree(label_scale=1).prepare([(FEATURES, PARENTS)], [LABELS])
    unary, bias, transition = np.split(
        model.joint_features((FEATURES, PARENTS), LABELS), [2, 4]
    )
    np.testing.assert_array_equal(unary, [9, 22])
    np.testing.assert_array_equal(bias, [2, 3])
    np.testing.assert_array_equal(
        transition, [0, 1, 2, 0]
    )  # from parent 0 to child 1 once, from 1 to 0 twice


def test_a_path_is_a_chain():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)) for n in (1, 4, 9)]
    Y = [
        np.where(rng.random(len(x)) < 0.6, rng.integers(4, size=len(x)), -1) for x in X
    ]
    trees = [(x, np.arange(-1, len(x) - 1)) for x in X]
    chain, tree = (
        Chain(n_states=4, boundary=False).prepare(X, Y),
        Tree(n_states=4).prepare(trees, Y),
    )
    w = rng.normal(size=chain.n_features)
    for space in Space:
        one, other = (
            chain.task(X, Y).argmax(w, space, 1.0),
            tree.task(trees, Y).argmax(w, space, 1.0),
        )
        np.testing.assert_array_equal(one.features.toarray(), other.features.toarray())
        np.testing.assert_array_equal(one.loss, other.loss)


def test_the_deviation_is_placed_in_the_cheapest_branch():
    # every node wants its annotated label, node 3 the least
    model = Tree(n_states=2, bias=False).prepare([(FEATURES, PARENTS)], [LABELS])
    strength = (
        np.array([[3.0], [4.0], [5.0], [1.0], [2.0]])
        * np.where(np.array(LABELS) == 1, 1, -1)[:, None]
    )
    w = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    y = model.argmax((strength, PARENTS), w, LABELS, Space.INCOMPATIBLE, 0.0)
    assert y.tolist() == [0, 1, 1, 1, 1]
    y = model.argmax(
        (strength, PARENTS), w, [0, 1, 1, None, 1], Space.INCOMPATIBLE, 0.0
    )
    assert y.tolist() == [
        0,
        1,
        1,
        0,
        0,
    ]  # the other tree of the forest is the cheapest then


def test_annotated_part_counts_edges_between_determined_nodes():
    labels = [0, 1, None, 0, 1]
    model = Tree(label_scale=1, n_states=2).prepare([(FEATURES, PARENTS)], [labels])
    part = model.task([(FEATURES, PARENTS)], [labels]).annotated_part()
    features = part.argmax(np.ones(8), Space.COMPATIBLE, 0.0).features.toarray()[0]
    np.testing.assert_array_equal(features, [9, 18, 2, 2, 0, 1, 0, 0])


def test_deep_trees_need_no_recursion():
    n = 20000
    tree = (np.ones((n, 1)), np.arange(1, n + 1) % n - (np.arange(n) == n - 1))
    model = Tree(n_states=2).prepare([tree], [[0] + [None] * (n - 1)])
    assert model.predict([tree], np.array([0.0, 1.0, 0, 0, 0, 0, 0, 0]))[0].all()


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([1, 2, 0, -1, -1], "example 0: node . is its own ancestor"),
        ([-1, 1, 0, 0, 0], "example 0: node 1 is its own parent"),
        ([-1, 0, 0, 5, 0], "example 0: node 3 has parent 5"),
        ([-1, 0, -2, 0, 0], "example 0: node 2 has parent -2"),
        ([-1, 0, 0], "must be 5 integers"),
        ([-1.0, 0, 0, 0, 0], "must be 5 integers"),
    ],
)
def test_refused_parents(parents, message):
    with pytest.raises(InputError, match=message):
        Tree().prepare([(FEATURES, parents)], [LABELS])


def test_a_cycle_is_named_with_its_example():
    good, bad = (FEATURES, PARENTS), (FEATURES, np.array([-1, 2, 1, 0, 0]))
    with pytest.raises(InputError, match="example 1: node 1 is its own ancestor"):
        Tree().prepare([good, bad], [LABELS, LABELS])
    with pytest.raises(InputError, match="example 1: a tree is a pair"):
        Tree().prepare([good, FEATURES], [LABELS, LABELS])
