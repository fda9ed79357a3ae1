"""Margins and alternatives, against solving the whole assignment again."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from clew.models.highs_solver import WarmStartedProgram
from clew.tracking.assignment.margins import compute_margins, find_alternatives

from ...helpers.effort import examples


def random_columns(rng, n_sources, n_targets, n_extra):
    """(n, 4) columns: each detection alone, and random moves, divisions and merges."""
    columns = [(s, -1, -1, -1) for s in range(n_sources)] + [
        (-1, -1, n_sources + t, -1) for t in range(n_targets)
    ]
    moves = list(
        itertools.product(range(n_sources), range(n_sources, n_sources + n_targets))
    )
    columns += [(s, -1, t, -1) for s, t in moves if rng.random() < 0.7]
    for _ in range(n_extra):
        if rng.random() < 0.5 and n_targets > 1:
            a, b = sorted(rng.choice(n_targets, 2, replace=False) + n_sources)
            columns.append((int(rng.integers(n_sources)), -1, a, b))
        elif n_sources > 1:
            a, b = sorted(rng.choice(n_sources, 2, replace=False))
            columns.append((a, b, n_sources + int(rng.integers(n_targets)), -1))
    return np.array(columns, dtype=np.intp)


def solve(rows, n_detections, scores, lower, upper):
    column, place = np.nonzero(rows >= 0)
    A = sp.csr_array(
        (np.ones(len(column)), (rows[column, place], column)),
        shape=(n_detections, len(rows)),
    )
    one = np.ones(n_detections)
    solution = WarmStartedProgram(A, one, one, lower, upper).solve(scores)
    return A, None if solution is None else (solution.y, solution.duals)


@examples(60)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 5),
    m=st.integers(1, 5),
    integral=st.booleans(),
)
def test_margins_match_solving_again(seed, n, m, integral):
    rng = np.random.default_rng(seed)
    rows = random_columns(rng, n, m, 8)
    scores = (
        rng.integers(-3, 4, len(rows)).astype(float)
        if integral
        else rng.normal(size=len(rows))
    )
    free = np.zeros(len(rows)), np.ones(len(rows))
    A, (y, prices) = solve(rows, n + m, scores, *free)
    found = compute_margins(
        rows, n + m, np.flatnonzero(y), scores - A.T @ prices, np.arange(len(rows))
    )
    for column in range(len(rows)):
        lower = free[0].copy()
        upper = free[1].copy()
        lower[column] = upper[column] = 1 - y[column]
        _, other = solve(rows, n + m, scores, lower, upper)
        expected = np.inf if other is None else scores @ y - scores @ other[0]
        assert found[column] == pytest.approx(expected, abs=1e-7)


@examples(40)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 5), m=st.integers(1, 5))
def test_alternatives_are_consistent_and_cost_the_margin(seed, n, m):
    rng = np.random.default_rng(seed)
    rows = random_columns(rng, n, m, 8)
    scores = rng.normal(size=len(rows))
    A, (y, prices) = solve(rows, n + m, scores, np.zeros(len(rows)), np.ones(len(rows)))
    queries = np.arange(len(rows))
    reduced = scores - A.T @ prices
    margins, added, removed = find_alternatives(
        rows, n + m, np.flatnonzero(y), reduced, queries
    )
    for query in queries[np.isfinite(margins) & (added >= 0).any(axis=1)]:
        other = y.astype(int)
        np.add.at(other, added[query][added[query] >= 0], 1)
        np.add.at(other, removed[query][removed[query] >= 0], -1)
        assert other[query] != y[query]
        assert (A @ other == 1).all()
        assert scores @ y - scores @ other == pytest.approx(margins[query], abs=1e-7)


def test_ruled_out_columns_are_no_alternatives():
    rows = np.array(
        [[0, -1, -1, -1], [-1, -1, 1, -1], [0, -1, 1, -1]], dtype=np.intp
    )  # vanish, emerge, move
    chosen = np.array([2])
    assert compute_margins(
        rows, 2, chosen, np.array([-1.0, -2.0, 0.0]), chosen
    ) == pytest.approx([3.0])
    assert (
        compute_margins(rows, 2, chosen, np.array([-np.inf, -2.0, 0.0]), chosen)
        == np.inf
    )
    assert (
        compute_margins(rows, 2, chosen, np.array([-np.inf, -2.0, 0.0]), np.array([0]))
        == np.inf
    )
