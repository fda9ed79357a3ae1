"""Passes in batches: the dual value never falls, the certificate holds, and the exact method's minimum is found."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from clew.datasets import entity_f1, hide, sentences, token_features, vectorise
from clew.learning.algorithm import Algorithm
from clew.learning.bounds import Bundle, dual_value, fits_in_memory
from clew.learning.cccp import learn
from clew.learning.frank_wolfe import DEFAULTS, FrankWolfeState, StochasticSettings
from clew.learning.losses import LOSSES, concave_part, convex_part, loss_values
from clew.learning.sparse_rows import subtract_sparse
from clew.learning.task import Subset, weight_examples
from clew.models.chain import Chain
from clew.models.tree import Tree

from ..helpers.effort import examples
from .problems import (
    GENERATORS,
    assignment_task,
    cases,
    chain_task,
    check_products,
    fully_annotated,
    minimum_over_list,
    precision,
)

HINGE, BRIDGE, PAIR = LOSSES["hinge"], LOSSES["bridge"], LOSSES["pair"]


def point_of(task, lam, groups=None, settings=DEFAULTS, online=False, loss=HINGE):
    """The dual at the reward's features, and the linear term; by batches, or one example after the other."""
    w = np.zeros(task.n_features)
    reward = concave_part(task, loss, w)
    bundle = Bundle(
        task.n_features,
        np.arange(task.n_examples) if groups is None else groups,
        None,
        reward,
        order=task.column_order,
    )
    bundle.start_at_base()
    oracle = None
    if online:
        oracle = task.online(w, loss)

    def evaluate(w, examples):
        return convex_part(task, loss, w, examples)

    return FrankWolfeState(bundle, lam, evaluate, oracle, settings), -np.asarray(
        reward.features.sum(axis=0)
    ).ravel()


def check_pass(task, point, v, lam, rng):
    """One pass: α stays on the simplices, w stays w(α), the dual value does not fall and lies under the primal."""
    bundle = point.bundle
    loss = HINGE if point.oracle is None else point.oracle.loss
    before = point.dual_value()
    point.run_pass(rng)
    value = point.dual_value()
    assert value >= before - 1e-9 * (1 + abs(before))
    assert (bundle.alpha >= 0).all()
    np.testing.assert_allclose(
        np.bincount(bundle.group, weights=bundle.alpha), 1.0, atol=1e-9
    )
    w = point.weights
    np.testing.assert_allclose(
        w,
        -(v + bundle.shared[0] + bundle.combine(bundle.alpha)) / lam,
        atol=1e-7,
    )
    assert value == pytest.approx(dual_value(bundle, v, lam, bundle.alpha), abs=1e-7)
    check_products(bundle)
    for other in (w, np.zeros_like(v), rng.normal(size=len(v))):
        primal = (
            lam / 2 * other @ other
            + convex_part(task, loss, other).values.sum()
            + v @ other
        )
        assert value <= primal + 1e-9 * (1 + abs(primal))
        highest = bundle.sum_by_group(convex_part(task, loss, other).values)[
            bundle.group
        ]
        assert (bundle.scores(other) <= highest + 1e-9 * (1 + np.abs(highest))).all()


@pytest.mark.parametrize("loss", [HINGE, PAIR], ids=["hinge", "pair"])
def test_proximal_dual_value_lies_under_the_proximal_objective(loss):
    task = chain_task(n=12)
    lam = 1e-3
    point, v = point_of(task, lam, online=True, loss=loss)
    rng = np.random.default_rng(0)
    point.set_linear_term(v)
    point.run_pass(rng)
    assert point.add_proximal_term(rng.normal(size=len(v)))
    for _ in range(20):
        point.run_pass(rng)
        moved = point.weights
        point.set_linear_term(v)
        np.testing.assert_allclose(point.weights, moved, atol=1e-9)
        center = point.bundle.restore(point.center)
        for w in (moved, center, rng.normal(size=len(v))):
            objective = lam / 2 * w @ w + v @ w
            objective += convex_part(task, loss, w).values.sum()
            proximal = objective + point.pull / 2 * np.sum((w - center) ** 2)
            assert point.dual_value() <= proximal * (1 + 1e-9)


@examples(30)
@given(
    seed=st.integers(0, 2**16),
    lam=st.sampled_from([0.1, 1.0, 10.0]),
    batches=st.sampled_from([1, 3, 100]),
    n_groups=st.sampled_from([3, 12]),
    sweeps=st.integers(0, 2),
)
def test_the_dual_value_never_falls_and_lies_under_the_primal(
    seed, lam, batches, n_groups, sweeps
):
    task = assignment_task(n=12, known=1.0, seed=seed % 7)
    options = StochasticSettings(batches=batches, period=2, sweeps=sweeps, patience=1)
    point, v = point_of(task, lam, np.arange(12) * n_groups // 12, options)
    rng = np.random.default_rng(seed)
    point.set_linear_term(v)
    for _ in range(6):
        check_pass(task, point, v, lam, rng)


MODELS = {
    "chain": (Chain, {}),
    "chain with ends": (Chain, {"boundary": True}),
    "chain without bias": (Chain, {"bias": False, "normalize": True}),
    "tree": (Tree, {}),
    "tree of small label features": (Tree, {"label_scale": 0.3}),
}


def forest_task(name, seed, known=0.6, dense=False, n=10):
    """Forests with sparse or dense inputs, some nodes of which are annotated."""
    rng = np.random.default_rng(seed)
    kind, parameters = MODELS[name]
    X, Y = [], []
    for _ in range(n):
        size = int(rng.integers(1, 6))
        rows = rng.normal(size=(size, 4)) * (
            rng.random((size, 4)) < (1.0 if dense else 0.4)
        )
        parents = np.array([int(rng.integers(-1, i)) for i in range(size)])
        X.append(rows if kind is Chain else (rows, parents))
        Y.append(
            [
                int(rng.integers(3)) if rng.random() < known else None
                for _ in range(size)
            ]
        )
    Y[0][0], Y[1][0] = 0, 1
    model = kind(n_states=3, **parameters)
    return model.prepare(X, Y).task(X, Y)


def some_weights(task, differ):
    """The task with examples of different weight, or as it is."""
    return weight_examples(
        task, np.linspace(0.2, 3.0, task.n_examples) if differ else None
    )


@examples(25)
@given(
    name=st.sampled_from(list(MODELS)),
    seed=st.integers(0, 2**16),
    lam=st.sampled_from([0.1, 1.0, 10.0]),
    which=st.sampled_from(["whole", "subset", "part"]),
    dense=st.booleans(),
    chunk=st.sampled_from([1, 40, 2**20]),
    differ=st.booleans(),
    loss=st.sampled_from([HINGE, PAIR]),
)
def test_one_example_after_the_other_keeps_the_same_laws(
    name, seed, lam, which, dense, chunk, differ, loss
):
    task = some_weights(forest_task(name, seed, dense=dense), differ)
    if which == "subset":
        task = Subset(task, np.array([7, 0, 3, 1]))
    if which == "part":
        task = task.annotated_part() or task
    rng = np.random.default_rng(seed)
    point, v = point_of(
        task,
        lam,
        settings=StochasticSettings(period=2, patience=1, chunk=chunk),
        online=True,
        loss=loss,
    )
    point.set_linear_term(v)
    for _ in range(4):
        check_pass(task, point, v, lam, rng)


@pytest.mark.parametrize("loss", [HINGE, PAIR])
@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_first_bounds_of_a_pass_are_those_of_the_argmax(name, differ, loss):
    """With a λ so large that w hardly moves, every example's new bound is what the argmax says of it at that w."""
    task, lam = some_weights(forest_task(name, 5), differ), 1e12
    point, _ = point_of(task, lam, online=True, loss=loss)
    bundle, w = point.bundle, np.random.default_rng(0).normal(size=task.n_features)
    point.set_linear_term(-lam * w - bundle.shared[0])
    point.run_pass(np.random.default_rng(0))
    linear = convex_part(task, loss, w)
    expected = subtract_sparse(linear.features, bundle.base).toarray()
    for k in range(task.n_examples, len(bundle)):  # the first ones are the bases
        g = bundle.group[k]
        np.testing.assert_allclose(
            bundle.slopes[[k]].toarray()[0], expected[g], atol=1e-9
        )
        assert bundle.offsets[k] == pytest.approx(
            linear.offsets[g] - bundle.base_offsets[g]
        )
    above = linear.values > bundle.base @ w + bundle.base_offsets + 1e-9
    assert set(bundle.group[task.n_examples :]) == set(np.flatnonzero(above))


@examples(25)
@given(
    name=st.sampled_from(list(MODELS)),
    seed=st.integers(0, 2**16),
    lam=st.sampled_from([0.1, 1.0]),
    unknown=st.booleans(),
    subset=st.booleans(),
    differ=st.booleans(),
    loss=st.sampled_from([HINGE, PAIR]),
)
def test_bounds_that_follow_another_completion_are_bounds(
    name, seed, lam, unknown, subset, differ, loss
):
    """After a look at the reward elsewhere; of bounds that came with the bundle, nobody knows the outputs."""
    task, rng = (
        some_weights(forest_task(name, seed, known=0.4), differ),
        np.random.default_rng(seed),
    )
    if subset:
        task = Subset(task, np.array([7, 0, 3, 1]))
    point, v = point_of(task, lam, online=True, loss=loss)
    point.set_linear_term(v)
    for _ in range(2):
        check_pass(task, point, v, lam, rng)
    if unknown:
        point.bundle.bounds.tags[:] = -1
    w = rng.normal(size=task.n_features)
    reward = concave_part(task, loss, w)
    point.oracle.follow(point.bundle, w)
    point.bundle.set_base(reward)
    v = -np.asarray(reward.features.sum(axis=0)).ravel()
    point.set_linear_term(v)
    for _ in range(2):
        check_pass(task, point, v, lam, rng)


def test_w_stays_where_it_was_when_bounds_follow():
    """Without transitions and ends only nodes with another completion change, and bounds take all of that over."""
    X = [np.eye(4)[[0, 1, 2]], np.eye(4)[[1, 3]]]
    Y = [[0, None, 1], [None, 1]]
    task = Chain(n_states=3, bias=False, label_scale=1e-9).prepare(X, Y).task(X, Y)
    point, v = point_of(task, 1.0, online=True)
    point.set_linear_term(v)
    for _ in range(5):
        point.run_pass(np.random.default_rng(0))
    before, w = point.weights, np.zeros(task.n_features)
    w[2 * 4 + 1] = (
        1.0  # label 2 for the nodes that are not annotated, both of which have input 1
    )
    reward = concave_part(task, HINGE, w)
    assert (abs(reward.features - point.bundle.base).max(axis=1).toarray() > 0).all()
    point.oracle.follow(point.bundle, w)
    point.bundle.set_base(reward)
    point.set_linear_term(-np.asarray(reward.features.sum(axis=0)).ravel())
    np.testing.assert_allclose(point.weights, before, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_columns_is_a_permutation(name):
    task = forest_task(name, 3)
    np.testing.assert_array_equal(
        np.sort(task.column_order), np.arange(task.n_features)
    )
    bundle = Bundle(task.n_features, np.arange(2), order=task.column_order)
    w = np.random.default_rng(0).normal(size=task.n_features)
    np.testing.assert_array_equal(bundle.restore(bundle.arrange(w)), w)
    slopes = np.random.default_rng(1).normal(size=(2, task.n_features))
    bundle.extend(sp.csr_array(slopes), np.zeros(2), np.arange(2))
    np.testing.assert_array_equal(bundle.slopes.toarray(), slopes)
    np.testing.assert_array_equal(bundle.rows.toarray(), slopes[:, task.column_order])


@pytest.mark.parametrize("online", [False, True])
def test_passes_alone_close_the_gap(online):
    task = chain_task(n=40, known=1.0)
    lam = 4.0
    point, v = point_of(task, lam, online=online)
    rng = np.random.default_rng(0)
    point.set_linear_term(v)
    for _ in range(60):
        point.run_pass(rng)
    w = point.weights
    primal = lam / 2 * w @ w + convex_part(task, HINGE, w).values.sum() + v @ w
    assert primal - point.dual_value() <= 0.02 * primal


def test_little_memory_merges_bounds_and_keeps_the_lower_bound():
    task, lam = forest_task("chain", 1, known=1.0, dense=True, n=40), 0.5
    point, v = point_of(task, lam, online=True)
    point.bundle.memory = 40_000
    point.set_linear_term(v)
    rng = np.random.default_rng(0)
    for _ in range(8):
        check_pass(task, point, v, lam, rng)
    assert point.bundle.nbytes < 40_000


@pytest.mark.parametrize("model", GENERATORS)
def test_full_annotation_gives_the_minimum_over_all_listed_outputs(model):
    for case in fully_annotated(model)[:3]:
        for lam in (0.1, 0.5):
            options = Algorithm(tol=1e-4, eta=1e-4, stochastic=True)
            result = learn(case.task, HINGE, lam, algorithm=options)
            expected = minimum_over_list(case.listings, lam, "l2")
            assert result.converged
            assert result.lower_bound <= expected + 1e-7
            assert expected - 1e-7 <= result.objective <= expected + 1e-4 + 1e-7


@pytest.mark.parametrize("loss", LOSSES)
def test_partial_annotations_are_certified_whatever_the_loss(loss):
    case = cases("chain")[0]
    task = case.model.task(case.X, case.Y)
    result = learn(
        task,
        LOSSES[loss],
        0.1,
        algorithm=Algorithm(stochastic=True),
        start=0.3 * case.w,
    )
    assert result.converged
    by_definition = (
        0.05 * result.w @ result.w + loss_values(task, LOSSES[loss], result.w).mean()
    )
    assert result.objective == pytest.approx(by_definition, abs=precision("chain"))
    rng = np.random.default_rng(0)
    for w in rng.normal(size=(4, task.n_features)):
        highest = result.bundle.sum_by_group(convex_part(task, result.loss, w).values)[
            result.bundle.group
        ]
        assert (result.bundle.scores(w) <= highest + 1e-9 * (1 + np.abs(highest))).all()


def test_the_same_seed_gives_the_same_weights():
    task = chain_task(n=30)
    one, other = (
        learn(task, BRIDGE, 0.1, algorithm=Algorithm(stochastic=True)) for _ in range(2)
    )
    np.testing.assert_array_equal(one.w, other.w)


# A small twin of benchmarks/text.py


@pytest.fixture(scope="module")
def text():
    texts, labels = sentences(400, np.random.default_rng(0))
    features = [token_features(tokens) for tokens in texts]
    X, index = vectorise(features[:300])
    X_test, _ = vectorise(features[300:], index)
    return X, labels[:300], X_test, labels[300:]


def test_text_is_certified_in_batches_and_found_by_the_exact_method_too(text):
    X, Y, X_test, Y_test = text
    model = Chain().prepare(X, Y)
    task = model.task(X, Y)
    assert task.n_features > 50_000
    options = Algorithm(tol=1e-2, eta=1e-2)
    batches = learn(task, BRIDGE, 10 / 300, algorithm=options)
    exact = learn(
        task,
        BRIDGE,
        10 / 300,
        algorithm=Algorithm(tol=1e-2, eta=1e-2, stochastic=False),
    )
    assert batches.converged
    assert batches.gap <= 1e-2
    assert batches.n_groups == 300
    assert batches.objective == pytest.approx(exact.objective, abs=2e-2)
    assert batches.bundle.nbytes < 60e6
    assert entity_f1(Y_test, model.predict(X_test, batches.w)) > 0.4


def test_a_sentence_that_counts_twice_is_one_that_is_there_twice(text):
    X, Y, _, _ = text
    X, Y = X[:150], Y[:150]
    model, options = Chain().prepare(X, Y), Algorithm(tol=1e-2, eta=1e-2)
    once = weight_examples(model.task(X, Y), np.repeat([1.0, 2.0], [100, 50]))
    twice = model.task([*X, *X[100:]], [*Y, *Y[100:]])
    assert once.is_online
    ours, theirs = (
        learn(task, BRIDGE, 10 / 200, algorithm=options) for task in (once, twice)
    )
    assert ours.converged
    assert ours.objective == pytest.approx(theirs.objective, abs=2e-2)
    assert ours.lower_bound <= theirs.objective


def test_sentences_keep_groups_of_their_own_in_a_memory_that_whole_bounds_would_not_fit(
    text,
):
    X, Y, _, _ = text
    task = Chain().prepare(X, Y).task(X, Y)
    base = concave_part(task, BRIDGE, np.zeros(task.n_features)).features
    memory = 6_000_000
    assert fits_in_memory(len(X), base, memory, online=True)
    assert not fits_in_memory(len(X), base, memory)
    result = learn(
        task, BRIDGE, 10 / 300, algorithm=Algorithm(tol=1e-2, eta=1e-2, memory=memory)
    )
    assert result.converged
    assert result.n_groups == len(X)
    assert result.bundle.nbytes <= memory


@pytest.mark.parametrize(
    ("sentences", "f1"), [(80, 0.08), pytest.param(300, 0.2, marks=pytest.mark.slow)]
)
def test_text_of_which_a_quarter_is_annotated_is_learned(text, sentences, f1):
    X, Y, X_test, Y_test = text
    X, Y = X[:sentences], Y[:sentences]
    known = hide(Y, 0.25, np.random.default_rng(1))
    kept = [
        i
        for i, labels in enumerate(known)
        if any(label is not None for label in labels)
    ]
    X, known = [X[i] for i in kept], [known[i] for i in kept]
    model = Chain().prepare(X, known)
    task = model.task(X, known)
    result = learn(
        task, BRIDGE, 10 / sentences, algorithm=Algorithm(tol=1e-2, eta=1e-2)
    )
    assert result.converged
    assert (
        entity_f1(Y_test, model.predict(X_test, result.w)) > f1
    )  # 0 for weights that know nothing
