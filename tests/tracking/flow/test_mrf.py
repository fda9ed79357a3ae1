"""TRW-S against all labelings of small graphs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from clew.tracking.flow.mrf import NeighborGraph, solve_mrf

MOST = 1.5


def energy(labels, unary, u, graph, weight):
    """By its definition."""
    total = sum(unary[i, label] for i, label in enumerate(labels))
    for i in range(len(unary)):
        for edge in range(graph.indptr[i], graph.indptr[i + 1]):
            j = graph.end[edge]
            if i < j:
                total += min(
                    MOST,
                    weight[edge]
                    * ((u[i, :, labels[i]] - u[j, :, labels[j]]) ** 2).sum(),
                )
    return total


def neighbours(x, k):
    distance, near = (
        found.reshape(len(x), -1)
        for found in cKDTree(x).query(x, k=min(2 * k + 1, len(x)))
    )
    return NeighborGraph.from_nearest(x, distance, near, k)


def tree(n, rng):
    """A random tree as `NeighborGraph`."""
    parent = [int(rng.integers(i)) for i in range(1, n)]
    pairs = sorted(
        [(i, p) for i, p in enumerate(parent, 1)]
        + [(p, i) for i, p in enumerate(parent, 1)]
    )
    start, end = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    reverse = np.array([pairs.index((j, i)) for i, j in pairs], dtype=np.intp)
    return NeighborGraph(
        np.searchsorted(start, np.arange(n + 1)),
        end.copy(),
        reverse,
        np.ones(len(pairs)),
        rng.permutation(n),
    )


def problem(graph, n, k, rng):
    unary = rng.random((n, k))
    u = rng.normal(size=(n, 2, k))
    weight = rng.random(len(graph.end))
    return unary, u, np.minimum(weight, weight[graph.reverse])


def found_and_least(graph, n, k, rng, sweeps):
    unary, u, weight = problem(graph, n, k, rng)
    found = solve_mrf(unary, u, graph, weight, MOST, sweeps)
    every = product(range(k), repeat=n)
    return energy(found, unary, u, graph, weight), min(
        energy(all_, unary, u, graph, weight) for all_ in every
    )


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))
def test_trw_s_is_exact_on_trees(seed, n, k):
    rng = np.random.default_rng(seed)
    found, least = found_and_least(tree(n, rng), n, k, rng, sweeps=n)
    assert found == pytest.approx(least, abs=1e-9)


def test_trw_s_is_close_to_the_optimum_on_cycles():
    found = []
    least = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        one = found_and_least(neighbours(rng.random((7, 2)), 2), 7, 3, rng, sweeps=4)
        found.append(one[0])
        least.append(one[1])
    assert np.mean(np.array(found) <= np.array(least) + 1e-9) > 0.7
    assert np.sum(found) < 1.05 * np.sum(least)


@given(
    st.integers(0, 10**6),
    st.integers(2, 30),
    st.integers(1, 8),
    st.sampled_from([2, 3]),
)
def test_edges_are_stored_in_both_directions(seed, n, k, ndim):
    x = np.random.default_rng(seed).random((n, ndim))
    graph = neighbours(x, k)
    start = np.repeat(np.arange(n), np.diff(graph.indptr))
    np.testing.assert_array_equal(graph.end[graph.reverse], start)
    np.testing.assert_array_equal(graph.reverse[graph.reverse], np.arange(len(start)))
    np.testing.assert_allclose(
        graph.distance, np.linalg.norm(x[start] - x[graph.end], axis=1)
    )
    joined = set(zip(start.tolist(), graph.end.tolist(), strict=True))
    apart = np.linalg.norm(x[:, None] - x[None], axis=2) + np.diag(np.full(n, np.inf))
    nearest = {
        (i, j) for i in range(n) for j in np.argsort(apart[i])[: min(k, n - 1)].tolist()
    }
    assert joined == nearest | {(j, i) for i, j in nearest}


def test_graph_of_coincident_points_has_edges():
    graph = neighbours(np.zeros((5, 2)), 3)
    assert (np.diff(graph.indptr) > 0).all()
    assert len(graph.end) == len(graph.reverse)
