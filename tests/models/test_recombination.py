"""Outputs put together from earlier ones: they are outputs, the best of their kind, and bounds that save passes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from clew import PRESETS, Algorithm, Space
from clew.learning.cccp import learn
from clew.learning.losses import LOSSES, penalty_part, recalled_part, simplify
from clew.learning.task import Subset
from clew.models import BinaryProgram
from clew.models import linear_program as linear_module
from clew.models.binary_program import Program
from clew.models.highs_solver import KeptProgram
from clew.models.recombination import REMEMBERED, Recombination

from ..helpers.effort import examples

BRIDGE = LOSSES["bridge"]


def random_program(rng, n=12, m=6):
    """Rows with coefficients of both signs that y = 0 satisfies; a variable in no row, and a row without any."""
    A = sp.csr_array(rng.integers(-2, 3, size=(m, n)) * (rng.random((m, n)) < 0.25))
    A = sp.csr_array(A.toarray() * (np.arange(n) > 0) * (np.arange(m) > 0)[:, None])
    return A, -rng.integers(0, 3, m).astype(float), rng.integers(0, 3, m).astype(float)


def outputs_of(A, lower, upper, rng, count):
    program = KeptProgram(A, lower, upper, np.zeros(A.shape[1]), np.ones(A.shape[1]))
    return [program.maximise(rng.normal(size=A.shape[1])) for _ in range(count)]


@examples(60)
@given(seed=st.integers(0, 2**16), count=st.integers(1, 6))
def test_what_is_put_together_is_an_output_and_no_worse_than_the_newest(seed, count):
    rng = np.random.default_rng(seed)
    A, lower, upper = random_program(rng)
    known = Recombination(A)
    for z in outputs_of(A, lower, upper, rng, count):
        known.remember(z)
    for _ in range(5):
        scores = rng.normal(size=A.shape[1])
        best = known.best(scores)
        assert best.dtype == np.int8
        assert set(np.unique(best)) <= {0, 1}
        assert (lower <= A @ best).all()
        assert (A @ best <= upper).all()
        assert scores @ best >= scores @ z - 1e-12


@examples(60)
@given(seed=st.integers(0, 2**16))
def test_of_two_outputs_every_part_is_taken_from_the_better_one(seed):
    rng = np.random.default_rng(seed)
    A, lower, upper = random_program(rng)
    other, newest = outputs_of(A, lower, upper, rng, 2)
    known = Recombination(A)
    known.remember(other)
    known.remember(newest)
    # parts by another way: variables that differ are linked where they share a row
    differing = np.flatnonzero(other != newest)
    shared = abs(A[:, differing])
    parts = (
        sp.csgraph.connected_components(shared.T @ shared, directed=False)[1]
        if len(differing)
        else np.zeros(0)
    )
    scores = rng.normal(size=A.shape[1])
    values = []
    for taken in product([False, True], repeat=len(np.unique(parts))):
        z = newest.copy()
        for part in np.flatnonzero(taken):
            z[differing[parts == part]] = other[differing[parts == part]]
        values.append(scores @ z)
    assert scores @ known.best(scores) == pytest.approx(max(values))


def test_the_newest_outputs_are_remembered_once_each():
    rng = np.random.default_rng(0)
    known = Recombination(sp.csr_array(np.ones((1, 50))))
    found = [(rng.random(50) < 0.5).astype(np.int8) for _ in range(REMEMBERED + 5)]
    for z in [*found, found[-3]]:
        known.remember(z)
    assert len(known.outputs) == REMEMBERED
    np.testing.assert_array_equal(known.outputs[:3], [found[-3], found[-1], found[-2]])


@pytest.fixture
def problem(monkeypatch):
    """A few programmes of many separate choices, fully annotated; they count as large enough."""
    monkeypatch.setattr(linear_module, "WORTH_REMEMBERING", 1)
    rng = np.random.default_rng(0)
    X, Y = [], []
    hidden = rng.normal(size=6)
    for _ in range(3):
        features = rng.normal(size=(120, 6))
        A = sp.csr_array(np.kron(np.eye(40), np.ones((1, 3))))  # one of each three
        chosen = (
            (features @ hidden + 2.0 * rng.normal(size=120))
            .reshape(40, 3)
            .argmax(axis=1)
        )
        X.append(Program(features, A, np.ones(40), np.ones(40)))
        Y.append(np.eye(3, dtype=np.int8)[chosen].ravel())
    model = BinaryProgram().prepare(X, Y)
    return lambda: model.task(X, Y)


def test_recalled_bounds_lie_under_the_loss_and_save_passes(problem):
    task, rng = problem(), np.random.default_rng(1)
    loss = simplify(BRIDGE, task)
    assert recalled_part(task, loss, np.zeros(6)) is None  # nothing was asked yet
    for _ in range(4):
        penalty_part(task, loss, rng.normal(size=6))
    for _ in range(10):
        w = rng.normal(size=6)
        recalled = recalled_part(task, loss, w)
        np.testing.assert_allclose(recalled.at(w).values, recalled.values)
        assert (recalled.values <= penalty_part(problem(), loss, w).values + 1e-9).all()
    part = recalled_part(Subset(task, np.array([2, 0])), loss, w)
    np.testing.assert_allclose(part.values, recalled_part(task, loss, w).values[[2, 0]])
    assert recalled_part(task, LOSSES["pair"], w) is None  # P may lie below R

    on, off = (
        learn(problem(), BRIDGE, 0.01, algorithm=Algorithm(recombine=which))
        for which in (True, False)
    )
    assert on.converged
    assert off.converged
    assert on.objective == pytest.approx(off.objective, abs=2e-3)
    assert on.passes < 0.7 * off.passes
    assert on.inexactness == 0.0


def test_the_presets_of_the_paper_recall_nothing():
    assert PRESETS["clew"].recombine
    assert not any(
        algorithm.recombine for name, algorithm in PRESETS.items() if name != "clew"
    )


def test_small_programmes_and_dropped_solvers_remember_nothing(problem, monkeypatch):
    task = problem()
    task.argmax(np.ones(6), Space.ALL, 1.0)
    assert task.recall(np.ones(6), 1.0).found.all()
    task.drop_solvers()
    assert not task.recall(np.ones(6), 1.0).found.any()
    monkeypatch.setattr(linear_module, "WORTH_REMEMBERING", 1000)
    small = problem()
    small.argmax(np.ones(6), Space.ALL, 1.0)
    assert not small.recall(np.ones(6), 1.0).found.any()
