"""The dual ascent: its inner products stay right while bounds come and go, and it never leaves the simplices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import StructuredSVM
from clew.learning import dual_ascent
from clew.learning.bounds import dual_value, normalize_dual_weights
from clew.learning.dual_ascent import ascend
from clew.learning.model_update import solve_model_update
from clew.models import Chain

from ..helpers.effort import examples
from .problems import as_linear, check_products, fill, random_bundle


@examples(40)
@given(
    seed=st.integers(0, 2**16),
    steps=st.lists(
        st.sampled_from(["add", "some", "keep", "prune", "merge"]),
        min_size=1,
        max_size=8,
    ),
)
def test_inner_products_stay_right_while_bounds_come_and_go(seed, steps):
    rng = np.random.default_rng(seed)
    bundle, v = (
        random_bundle(rng, n_groups=3, n_features=5, per_group=2),
        rng.normal(size=5),
    )
    bundle.set_alpha(ascend(bundle, v, 0.5, 1e-8))
    for step in steps:
        if step == "add":
            fill(bundle, rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3)))
        elif step == "some":  # bounds for some groups only
            bundle.add(as_linear(rng.normal(size=(3, 5)), 3 * rng.normal(size=3), v), v)
        elif step == "keep":
            first = np.unique(bundle.group, return_index=True)[
                1
            ]  # no group may lose all its bounds
            bundle.keep(
                (rng.random(len(bundle)) < 0.6) | np.isin(np.arange(len(bundle)), first)
            )
        elif step == "prune":
            bundle.prune(0)
        else:
            bundle.memory = bundle.nbytes
            fill(bundle, rng.normal(size=(1, 3, 5)), rng.normal(size=(1, 3)))
            bundle.memory = 10**9
        bundle.set_alpha(ascend(bundle, v, 0.5, 1e-8))
        check_products(bundle)
        fresh = bundle.copy()
        fresh.n_multiplied = 0
        one, other = (
            solve_model_update(b, v, 0.5, "l2", 1.0, 1e-8, "ascent").lower_bound
            for b in (bundle, fresh)
        )
        assert one == pytest.approx(other, abs=1e-7)


@examples(40)
@given(
    seed=st.integers(0, 2**16),
    n_groups=st.sampled_from([1, 3, 20]),
    n_features=st.sampled_from([1, 5, 60]),
    per_group=st.integers(1, 10),
    lam=st.sampled_from([1.0, 10.0, 1e3]),
    tol=st.sampled_from([1e-2, 1e-6]),
)
def test_ascent_reaches_its_precision_on_the_simplices(
    seed, n_groups, n_features, per_group, lam, tol
):
    rng = np.random.default_rng(seed)
    bundle, v = (
        random_bundle(rng, n_groups, n_features, per_group),
        rng.normal(size=n_features),
    )
    before = dual_value(bundle, v, lam, normalize_dual_weights(bundle))
    tol *= 1 + abs(before)
    alpha = ascend(bundle, v, lam, tol)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(np.bincount(bundle.group, weights=alpha), 1.0, atol=1e-9)
    w = -(v + bundle.combine(alpha)) / lam
    primal = 0.5 * lam * w @ w + v @ w + bundle.values(w).sum()
    dual = dual_value(bundle, v, lam, alpha)
    assert dual >= before - 1e-9 * (1 + abs(before))
    assert primal - dual <= 4 * tol * (1 + 1e-6)


def test_a_step_that_empties_a_group_is_halved_in_silence():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        bundle = random_bundle(rng, n_groups=15, n_features=1, per_group=1 + seed % 8)
        alpha = ascend(bundle, np.zeros(1), 0.01, 1e-6)
        assert np.isfinite(alpha).all()


def test_where_it_cannot_reach_the_precision_its_bound_is_still_one():
    # λ far below the slopes' squares, and more active bounds than weights: the interior point is there for that
    rng = np.random.default_rng(0)
    bundle = random_bundle(rng, n_groups=30, n_features=5, per_group=8)
    rough, exact = (
        solve_model_update(bundle.copy(), np.zeros(5), 1e-4, "l2", 1.0, 1e-6, s)
        for s in ("ascent", "interior-point")
    )
    assert rough.lower_bound <= exact.lower_bound + 1e-6
    assert exact.lower_bound - rough.lower_bound <= rough.residual + 1e-6


def test_it_gives_up_early_where_no_number_of_rounds_would_do(monkeypatch):
    # one feature of 5·10⁸ beside others of about one: every round raises the dual, and none by enough
    X = [
        [[1.0, 0.0], [0.0, 1.0], [5e8, 0.2]],
        [[0.0, 1.0], [1.0, 0.3]],
        [[0.9, 0.1], [0.2, 0.8]],
        [[1.0, 1.0]],
    ]
    Y = [[0, 1, 0], [1, 0], [None, 1], [0]]
    rounds, real = [], dual_ascent._subspace_step
    monkeypatch.setattr(
        dual_ascent, "_subspace_step", lambda *args: (rounds.append(1), real(*args))[1]
    )
    svm = StructuredSVM(Chain(), lam=0.1).fit(X, Y)
    assert svm.result_.gap <= 1e-3
    assert len(rounds) < 500  # with all 300 rounds for each model update, 2,400


def test_a_warm_start_at_the_optimum_moves_nothing():
    rng = np.random.default_rng(0)
    bundle, v = (
        random_bundle(rng, n_groups=5, n_features=30, per_group=8),
        rng.normal(size=30),
    )
    alpha = ascend(bundle, v, 0.1, 1e-10)
    bundle.set_alpha(alpha)
    np.testing.assert_allclose(ascend(bundle, v, 0.1, 1e-4), alpha, atol=1e-12)


def test_the_bundle_is_not_changed_but_for_its_inner_products():
    rng = np.random.default_rng(0)
    bundle, v = random_bundle(rng), rng.normal(size=4)
    bundle.alpha[:] = 0.2
    ascend(bundle, v, 1.0, 1e-8)
    np.testing.assert_array_equal(bundle.alpha, 0.2)
