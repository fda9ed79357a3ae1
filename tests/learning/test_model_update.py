"""The model update: both solvers and both regularisers against other solvers, and its certificate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from clew.errors import InputError
from clew.learning import interior_point, model_update
from clew.learning.bounds import Bundle, dual_value, normalize_dual_weights
from clew.learning.cccp import learn
from clew.learning.losses import LOSSES
from clew.learning.model_update import (
    check_regulariser,
    lower_bound_from_duals,
    regularisation,
    solve_model_update,
)

from ..helpers.effort import examples
from .problems import as_linear, assignment_task, model_value, random_bundle

SOLVERS = ["interior-point", "ascent"]


@st.composite
def bundles(draw):
    """One group or many, few weights or many, duplicate bounds, slopes of zero, features of any scale."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    scale = draw(st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]))
    bundle = random_bundle(
        rng,
        n_groups=draw(st.sampled_from([1, 2, 15])),
        n_features=draw(st.sampled_from([1, 3, 40])),
        per_group=draw(st.integers(1, 8)),
        scale=scale,
        twice=draw(st.booleans()),
        flat=draw(st.booleans()),
    )
    v = rng.normal(size=bundle.n_features) * scale * draw(st.sampled_from([0.0, 1.0]))
    # with λN far below the slopes' squares and more active bounds than weights, ascent gives up: see the test of that
    return bundle, v, scale**2 * draw(st.sampled_from([1.0, 10.0, 1e3])), rng


@examples(80)
@given(problem=bundles())
def test_ascent_and_interior_point_find_the_same_minimum(problem):
    bundle, v, lam, rng = problem
    scale = 1 + np.abs(bundle.offsets).sum()
    scale += abs(solve_model_update(bundle.copy(), v, lam, "l2", 1.0, 1e-6).lower_bound)
    found = {
        solver: solve_model_update(
            bundle.copy(), v, lam, "l2", 1.0, 1e-6 * scale, solver
        )
        for solver in SOLVERS
    }
    for solved in found.values():
        assert (
            -1e-9 * scale <= solved.residual <= 1e-4 * scale
        )  # ascent is asked for 1e-6, and measures it roughly
        primal = model_value(bundle, v, lam, "l2", solved.w)
        assert primal - solved.lower_bound == pytest.approx(
            solved.residual, abs=1e-9 * scale
        )
        near = solved.w + rng.normal(size=(5, len(v))) * np.abs(solved.w).mean()
        for w in [*near, np.zeros(len(v))]:
            assert (
                solved.lower_bound
                <= model_value(bundle, v, lam, "l2", w) + 1e-9 * scale
            )
    one, other = found.values()
    assert one.lower_bound == pytest.approx(other.lower_bound, abs=1e-4 * scale)


@examples(15)
@given(seed=st.integers(0, 2**16), solver=st.sampled_from(SOLVERS))
def test_the_minimum_is_that_of_a_general_solver(seed, solver):
    rng = np.random.default_rng(seed)
    bundle, v = (
        random_bundle(rng, n_groups=2, n_features=3, per_group=4),
        rng.normal(size=3),
    )
    A, b, group = bundle.slopes.toarray(), bundle.offsets, bundle.group
    reference = minimize(
        lambda z: 0.4 * z[:3] @ z[:3] + v @ z[:3] + z[3:].sum(),
        np.concatenate([np.zeros(3), [10.0, 10.0]]),
        jac=lambda z: np.concatenate([0.8 * z[:3] + v, np.ones(2)]),
        constraints={"type": "ineq", "fun": lambda z: z[3:][group] - A @ z[:3] - b},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    solved = solve_model_update(bundle, v, 0.8, "l2", 1.0, 1e-9, solver)
    assert solved.lower_bound == pytest.approx(reference.fun, abs=1e-6)
    np.testing.assert_allclose(solved.w, reference.x[:3], atol=1e-3)


def l1_minimum(bundle, v, lam, radius):
    """The same linear programme by another road: |w| ≤ t instead of w = p − q."""
    d, g = bundle.n_features, bundle.n_groups
    A, slack, eye = (
        bundle.slopes.toarray(),
        np.eye(bundle.n_groups)[bundle.group],
        np.eye(bundle.n_features),
    )
    zero = np.zeros((d, g))
    rows = np.block(
        [[A, np.zeros_like(A), -slack], [eye, -eye, zero], [-eye, -eye, zero]]
    )
    right = np.concatenate([-bundle.offsets, np.zeros(2 * d)])
    cost = np.concatenate([v, np.full(d, lam), np.ones(g)])
    bounds = [(-radius, radius)] * d + [(0, None)] * d + [(None, None)] * g
    return linprog(cost, rows, right, bounds=bounds).fun


@examples(50)
@given(
    seed=st.integers(0, 2**16),
    n_groups=st.sampled_from([1, 4]),
    per_group=st.integers(1, 8),
    lam=st.sampled_from([0.01, 1.0, 30.0]),
    radius=st.sampled_from([0.5, 20.0]),
    flat=st.booleans(),
    twice=st.booleans(),
)
def test_the_l1_update_is_the_linear_programme(
    seed, n_groups, per_group, lam, radius, flat, twice
):
    rng = np.random.default_rng(seed)
    bundle, v = (
        random_bundle(rng, n_groups, per_group=per_group, flat=flat, twice=twice),
        rng.normal(size=4),
    )
    solved = solve_model_update(bundle, v, lam, "l1", radius, 1e-6)
    assert solved.lower_bound == pytest.approx(
        l1_minimum(bundle, v, lam, radius), abs=1e-6
    )
    assert solved.residual == pytest.approx(0.0, abs=1e-6)
    assert np.abs(solved.w).max() <= radius + 1e-9
    np.testing.assert_allclose(np.bincount(bundle.group, weights=bundle.alpha), 1.0)


@examples(30)
@given(problem=bundles())
def test_known_dual_weights_bound_the_model_with_another_linear_term(problem):
    bundle, v, lam, rng = problem
    before = lower_bound_from_duals(bundle, v, lam, "l2")
    solved = solve_model_update(bundle, v, lam, "l2", 1.0, 1e-6)
    scale = 1 + np.abs(bundle.offsets).sum() + abs(solved.lower_bound)
    assert before <= solved.lower_bound + 1e-6 * scale
    assert lower_bound_from_duals(bundle, v, lam, "l2") == pytest.approx(
        solved.lower_bound, abs=1e-9 * scale
    )
    moved = v + rng.normal(size=len(v)) * np.sqrt(lam)
    after = solve_model_update(bundle.copy(), moved, lam, "l2", 1.0, 1e-7 * scale)
    assert (
        lower_bound_from_duals(bundle, moved, lam, "l2")
        <= after.lower_bound + after.residual + 1e-9 * scale
    )
    assert lower_bound_from_duals(bundle, moved, lam, "l1") == -np.inf


@pytest.mark.parametrize("solver", SOLVERS)
def test_dual_weights_lie_on_the_simplices(solver):
    bundle = random_bundle(np.random.default_rng(0), n_groups=6, per_group=7)
    solve_model_update(bundle, np.zeros(4), 0.3, "l2", 1.0, 1e-8, solver)
    assert (bundle.alpha >= 0).all()
    np.testing.assert_allclose(np.bincount(bundle.group, weights=bundle.alpha), 1.0)


@pytest.mark.parametrize("regulariser", ["l2", "l1"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_singular_model_is_solved(solver, regulariser):
    # one weight matters of five, every bound is there three times, and one group has slopes of zero alone
    bundle = Bundle(5, np.arange(2))
    for shift in (0.0, 1.0, 2.0):
        slopes = np.zeros((2, 5))
        slopes[0, 0] = shift - 1
        bundle.add(
            as_linear(slopes, np.array([shift, shift]), np.zeros(5)), np.zeros(5)
        )
    solved = solve_model_update(
        bundle, np.zeros(5), 1.0, regulariser, 10.0, 1e-9, solver
    )
    assert np.isfinite(solved.w).all()
    np.testing.assert_allclose(solved.w[1:], 0.0, atol=1e-9)
    assert solved.residual == pytest.approx(0.0, abs=1e-6)
    best = min(
        model_value(bundle, np.zeros(5), 1.0, regulariser, np.array([a, 0, 0, 0, 0]))
        for a in np.linspace(-9, 9, 1801)
    )
    assert solved.lower_bound == pytest.approx(best, abs=1e-4)


def test_an_l1_model_with_one_bound_is_held_by_the_radius():
    bundle = Bundle(2, np.arange(1))
    bundle.add(
        as_linear(np.array([[3.0, 0.0]]), np.array([1.0]), np.zeros(2)), np.zeros(2)
    )
    solved = solve_model_update(bundle, np.zeros(2), 1.0, "l1", 7.0, 1e-9)
    np.testing.assert_allclose(solved.w, [-7.0, 0.0])
    assert solved.lower_bound == pytest.approx(1.0 - 7.0 * 2.0)


def test_a_group_without_dual_weights_starts_at_its_newest_bound():
    bundle = random_bundle(np.random.default_rng(0), n_groups=2, per_group=3)
    bundle.alpha[:] = np.where(bundle.group == 0, 0.2, 0.0)
    alpha = normalize_dual_weights(bundle)
    np.testing.assert_allclose(alpha[bundle.group == 0], 1 / 3)
    np.testing.assert_allclose(alpha[bundle.group == 1], [0, 0, 1])


def test_regularisers():
    w = np.array([3.0, -4.0])
    assert (regularisation(w, "l2"), regularisation(w, "l1")) == (12.5, 7.0)
    with pytest.raises(InputError, match="'l3'"):
        check_regulariser("l3")


def break_interior_point(monkeypatch, fault):
    """Let both interior points return something else than the solution."""
    solve = interior_point._Program.solve
    solve_by_clarabel = model_update._solve_by_clarabel

    def solve_wrongly(program, z, gap):
        return FAULTS[fault](*solve(program, z, gap))

    def solve_wrongly_by_clarabel(bundle, *problem):
        alpha, w = FAULTS[fault](*solve_by_clarabel(bundle, *problem))
        if not np.isfinite(w).all():
            return None
        return interior_point.project_to_simplices(alpha, bundle), w

    monkeypatch.setattr(interior_point._Program, "solve", solve_wrongly)
    monkeypatch.setattr(model_update, "_solve_by_clarabel", solve_wrongly_by_clarabel)


NOISE = np.random.default_rng(0)
FAULTS = {
    "nothing at all": lambda z, w: (np.full(len(z), np.nan), np.full(len(w), np.nan)),
    "w = 0": lambda z, w: (np.ones(len(z)), np.zeros(len(w))),
    "far off": lambda z, w: (1e8 * NOISE.random(len(z)), 1e8 * w),
    "an imprecise α": lambda z, w: (z + NOISE.random(len(z)), w),
    "an imprecise w": lambda z, w: (z, w + 1.0),
    "both imprecise": lambda z, w: (NOISE.random(len(z)), w - 3.0),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n_groups", [1, 6])
def test_where_the_interior_point_fails_the_other_solver_makes_up_for_it(
    monkeypatch, fault, n_groups
):
    rng = np.random.default_rng(1)
    bundle, v = (
        random_bundle(rng, n_groups, n_features=8, per_group=6),
        rng.normal(size=8),
    )
    right = solve_model_update(bundle.copy(), v, 0.5, "l2", 1.0, 1e-7, "interior-point")
    assert not right.fell_back
    break_interior_point(monkeypatch, fault)
    solved = solve_model_update(bundle, v, 0.5, "l2", 1.0, 1e-7, "interior-point")
    assert solved.fell_back or fault == "an imprecise w"  # Eq. 15 alone mends that
    assert solved.residual <= 1e-5
    assert solved.lower_bound == pytest.approx(right.lower_bound, abs=1e-5)
    assert model_value(bundle, v, 0.5, "l2", solved.w) == pytest.approx(
        right.lower_bound, abs=1e-5
    )


@pytest.fixture(scope="module", params=[0.1, 0.01])
def fit(request):
    """A convex task, λ, and the minimum."""
    task = assignment_task(n=12, known=1.0)
    return task, request.param, learn(task, LOSSES["bridge"], request.param).objective


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fit_with_a_solver_that_fails_certifies_the_same_minimum(
    monkeypatch, fit, fault
):
    task, lam, minimum = fit
    break_interior_point(monkeypatch, fault)
    result = learn(task, LOSSES["bridge"], lam)
    assert result.converged
    assert result.fallbacks > 0 or fault == "an imprecise w"
    assert result.objective == pytest.approx(minimum, abs=2e-3)


@examples(60)
@given(problem=bundles(), tol=st.sampled_from([1e-2, 1e-5]))
def test_clews_interior_point_reaches_the_gap_that_it_is_asked_for(problem, tol):
    bundle, v, lam, _ = problem
    tol *= max(1.0, float(np.abs(bundle.offsets).max()))
    alpha, w = interior_point.solve_interior_point(bundle, v, lam, tol)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(
        bundle.sum_by_group(np.bincount(bundle.group, weights=alpha)), 1.0
    )
    assert (
        model_value(bundle, v, lam, "l2", w) - dual_value(bundle, v, lam, alpha) <= tol
    )


def test_a_group_without_bounds_is_none_of_the_interior_points_business():
    bundle = Bundle(2, np.arange(2))
    bundle.extend(sp.csr_array(np.ones((1, 2))), np.ones(1), np.array([1]))
    assert interior_point.solve_interior_point(bundle, np.zeros(2), 1.0, 1e-3) is None


def test_bounds_that_would_fill_the_memory_if_dense_go_to_the_sparse_solver(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    bundle, v = random_bundle(rng, n_groups=4, n_features=8), rng.normal(size=8)
    dense = solve_model_update(bundle.copy(), v, 0.5, "l2", 1.0, 1e-7)
    monkeypatch.setattr(model_update, "DENSE_ENTRIES", 8)
    monkeypatch.setattr(interior_point._Program, "solve", None)  # it would fail
    sparse = solve_model_update(bundle, v, 0.5, "l2", 1.0, 1e-7)
    assert not sparse.fell_back
    assert sparse.lower_bound == pytest.approx(dense.lower_bound, abs=1e-6)


def test_where_the_ascent_gives_up_the_interior_point_is_asked():
    rng = np.random.default_rng(0)
    bundle = random_bundle(rng, n_groups=30, n_features=5, per_group=8)
    solved = solve_model_update(bundle, np.zeros(5), 1e-6, "l2", 1.0, 1e-6, "ascent")
    assert solved.residual <= 1e-4
