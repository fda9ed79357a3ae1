"""Losses: their definition from the list of all outputs, the identities between them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError, MissingCapability
from clew.learning.losses import (
    LOSSES,
    Loss,
    concave_part,
    convex_part,
    get_loss,
    loss_values,
    require_spaces,
    simplify,
)
from clew.learning.task import Argmax, Space
from clew.models.base import ExampleTask

from ..helpers.effort import examples
from .problems import (
    GENERATORS,
    Dense,
    Table,
    cases,
    listed_losses,
    precision,
    table_data,
)

IDENTITIES = [("bridge", "hinge"), ("max", "ramp"), ("max-delta", "ramp-delta")]

every_model = pytest.mark.parametrize("model", GENERATORS)
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def some_weights(case, seed=0, n=4):
    rng = np.random.default_rng(seed)
    yield np.zeros(case.task.n_features)
    for scale in (0.1, 1.0, 30.0)[:n]:
        yield scale * rng.normal(size=case.task.n_features)


@every_model
@every_loss
def test_values_are_those_of_the_definition_over_all_outputs(model, loss):
    for case in cases(model)[:4]:
        for w in some_weights(case):
            expected = listed_losses(case.listings, loss, w)
            np.testing.assert_allclose(
                loss_values(case.task, loss, w), expected, rtol=1e-9, atol=1e-9
            )


@every_model
@pytest.mark.parametrize(("searched", "spared"), IDENTITIES)
def test_identities_hold_with_incompatible_outputs_really_searched(
    model, searched, spared
):
    differs = False
    for case in cases(model)[:4]:
        for w in some_weights(case, seed=1):
            one, other = (
                loss_values(case.task, LOSSES[name], w) for name in (searched, spared)
            )
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
            differs |= bool((one > 0).any())
        assert simplify(LOSSES[searched], case.task).penalty is Space.ALL
    assert differs


@pytest.mark.parametrize(("searched", "spared"), IDENTITIES)
def test_a_task_loss_that_is_not_zero_on_compatible_outputs_makes_them_differ(
    searched, spared
):
    rng = np.random.default_rng(0)
    X, Y = table_data(rng, zero_on_compatible=False)
    task = ExampleTask(Table(4), X, Y)
    assert simplify(LOSSES[searched], task) == LOSSES[searched]
    apart = [
        np.abs(
            loss_values(task, LOSSES[searched], w)
            - loss_values(task, LOSSES[spared], w)
        ).max()
        for w in rng.normal(size=(10, 4))
    ]
    assert max(apart) > 0.1


def test_the_identities_are_used_only_where_they_are_proved():
    rng = np.random.default_rng(0)
    X, Y = table_data(rng)
    exact, unknown = (
        ExampleTask(Table(4, loss_zero_iff_compatible=True), X, Y),
        ExampleTask(Table(4), X, Y),
    )
    for name, loss in LOSSES.items():
        assert simplify(loss, unknown) == loss
        assert (simplify(loss, exact) == loss) == (
            name not in ("bridge", "max", "max-delta")
        )
    without_delta = Loss(
        "mine", Space.INCOMPATIBLE, Space.COMPATIBLE, penalty_weight=0.0
    )
    with_margin = Loss("mine", Space.INCOMPATIBLE, Space.COMPATIBLE, margin=0.5)
    inward = Loss("mine", Space.INCOMPATIBLE, Space.INCOMPATIBLE)
    for loss in (without_delta, with_margin, inward):
        assert simplify(loss, exact) == loss


@pytest.mark.parametrize("loss", ["bridge", "max", "max-delta", "pair"])
def test_a_model_without_a_search_in_incompatible_outputs_is_told_so(loss):
    X, Y = table_data(np.random.default_rng(0))
    spaces = frozenset({Space.ALL, Space.COMPATIBLE})
    with pytest.raises(MissingCapability, match="Y°") as caught:
        require_spaces(LOSSES[loss], ExampleTask(Table(4, spaces), X, Y))
    assert loss in str(caught.value)
    assert "hinge" in str(caught.value)
    exact = ExampleTask(Table(4, spaces, loss_zero_iff_compatible=True), X, Y)
    if loss == "pair":
        with pytest.raises(MissingCapability):
            require_spaces(simplify(LOSSES[loss], exact), exact)
    else:
        require_spaces(simplify(LOSSES[loss], exact), exact)


@examples(60)
@given(
    model=st.sampled_from(list(GENERATORS)),
    loss=st.sampled_from(list(LOSSES.values())),
    number=st.integers(0, 11),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
)
def test_both_parts_are_linear_bounds_that_are_tight_where_they_were_computed(
    model, loss, number, seed, scale
):
    case = cases(model)[number]
    rng = np.random.default_rng(seed)
    w, others = (
        scale * rng.normal(size=case.task.n_features),
        rng.normal(size=(5, case.task.n_features)),
    )
    for part in (convex_part, concave_part):
        linear = part(case.task, loss, w)
        np.testing.assert_allclose(
            linear.features @ w + linear.offsets, linear.values, atol=1e-9 * (1 + scale)
        )
        for other in others:
            there = part(case.task, loss, other).values
            assert (
                linear.features @ other + linear.offsets
                <= there + precision(model) * (1 + np.abs(there))
            ).all()
    assert (loss_values(case.task, loss, w) >= -precision(model) * (1 + scale)).all()


@every_loss
def test_dense_features_give_what_sparse_ones_give(loss):
    for case in cases("assignment")[:4]:
        for w in some_weights(case):
            sparse, dense = (
                convex_part(case.task, loss, w),
                convex_part(Dense(case.task), loss, w),
            )
            np.testing.assert_array_equal(sparse.features.toarray(), dense.features)
            np.testing.assert_array_equal(sparse.offsets, dense.offsets)
            np.testing.assert_allclose(
                sparse.values, dense.values, rtol=1e-14, atol=1e-14
            )


def test_some_examples_are_asked_about_alone():
    case = cases("chain")[0]
    some = np.array([2, 0])
    for loss in LOSSES.values():
        whole = loss_values(case.task, loss, case.w)
        np.testing.assert_allclose(
            loss_values(case.task, loss, case.w, some), whole[some]
        )


def test_only_a_reward_outside_the_penalty_needs_clipping():
    assert {name for name, loss in LOSSES.items() if loss.needs_clipping} == {
        "max",
        "bridge",
        "max-delta",
        "pair",
    }
    assert not Loss("convex", Space.ALL, None).needs_clipping


def test_losses_by_name():
    mine = Loss("mine", Space.ALL, Space.COMPATIBLE, margin=2.0)
    assert get_loss(mine) is mine
    assert get_loss("ramp") is LOSSES["ramp"]
    with pytest.raises(InputError, match=r"'svm'.*hinge"):
        get_loss("svm")


@pytest.mark.parametrize(
    "weights",
    [
        {"penalty_weight": -1.0},
        {"margin": -0.5},
        {"penalty_weight": 0.5, "reward_weight": 0.6},
        {"margin": np.nan},
    ],
)
def test_a_loss_that_would_not_be_one_is_refused(weights):
    with pytest.raises(InputError, match=r"penalty_weight|margin is nan"):
        Loss("mine", Space.ALL, Space.COMPATIBLE, **weights)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_name_the_example(bad):
    class Broken(Dense):
        def argmax(self, w, space, loss_weight, examples=None):
            found = self.task.argmax(w, space, loss_weight, examples)
            loss = found.loss.copy()
            loss[2] = bad
            return Argmax(sp.csr_array(found.features), loss, found.found)

    task = Broken(cases("assignment")[0].task)
    with pytest.raises(InputError, match="example 2"):
        convex_part(task, LOSSES["hinge"], np.zeros(task.n_features))
