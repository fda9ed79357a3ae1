import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import SolverError
from clew.models import highs_solver
from clew.models.cuts import find_half_cuts
from clew.models.highs_solver import WarmStartedProgram, propagate_bounds


def random_program(rng, n, m):
    A = rng.integers(-2, 4, size=(m, n)) * (rng.random((m, n)) < 0.6)
    middle = A @ rng.integers(2, size=n)
    lower = middle - rng.integers(0, 3, size=m)
    upper = np.where(rng.random(m) < 0.3, np.inf, middle + 1.0)
    return A.astype(float), lower, upper


def list_outputs(A, lower, upper):
    ys = np.array(list(product((0, 1), repeat=A.shape[1])))
    sums = ys @ A.T
    return ys[((sums >= lower - 1e-9) & (sums <= upper + 1e-9)).all(axis=1)]


def unbounded(A, row_lower, row_upper):
    """A program whose variables are only 0 or 1."""
    n = A.shape[1]
    return WarmStartedProgram(A, row_lower, row_upper, np.zeros(n), np.ones(n))


def odd_cycle(n):
    """At most one of two neighbors: with equal scores the LP is at ½ everywhere."""
    A = np.eye(n) + np.roll(np.eye(n), 1, axis=1)
    return unbounded(A, np.full(n, -np.inf), np.ones(n))


@pytest.mark.parametrize("max_cuts", [1000, 0])
def test_solve_finds_the_best_output(monkeypatch, max_cuts):
    monkeypatch.setattr(highs_solver, "MAX_CUTS", max_cuts)
    rng = np.random.default_rng(0)
    n_fractional = 0
    for _ in range(40):
        n = int(rng.integers(1, 9))
        A, lower, upper = random_program(rng, n, int(rng.integers(0, 5)))
        outputs = list_outputs(A, lower, upper)
        program = unbounded(sp.csr_array(A), lower, upper)
        scores = rng.normal(size=n)
        for _ in range(6):
            scores = scores + rng.normal(size=n) * 0.5
            y = program.solve(scores).y
            assert y.dtype == np.int8
            assert (outputs == y).all(axis=1).any()
            assert scores @ y == pytest.approx((outputs @ scores).max(), abs=1e-9)
        n_fractional += program.counts.fractional > 0
        assert program.counts.cuts == 0 or max_cuts
    assert n_fractional > 3


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_duals_certify_the_relaxation(scale):
    rng = np.random.default_rng(2)
    for _ in range(40):
        A, lower, upper = random_program(rng, 8, 4)
        scores = rng.normal(size=8)
        program = unbounded(scale * A, scale * lower, scale * upper)
        relaxed = program.solve_relaxed(scores)
        solution = program.solve(scores)
        if solution is None:
            continue
        duals = np.where(np.abs(solution.duals) > 1e-9 / scale, solution.duals, 0.0)
        rows = np.where(duals > 0, scale * upper, scale * lower)
        reduced = scores - scale * A.T @ solution.duals
        bound = duals @ np.where(duals == 0, 0.0, rows) + np.maximum(reduced, 0).sum()
        assert bound == pytest.approx(scores @ relaxed, abs=1e-7)  # strong duality


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_scale_of_the_scores_does_not_matter(scale):
    rng = np.random.default_rng(1)
    for n in (3, 5, 7):
        scores = 1 + 1e-4 * rng.normal(size=n)
        program = odd_cycle(n)
        y = program.solve(scale * scores).y
        outputs = list_outputs(
            program.A.toarray(), program.row_lower, program.row_upper
        )
        np.testing.assert_array_equal(y, outputs[np.argmax(outputs @ scores)])


def test_size_of_coefficients_does_not_matter():
    rng = np.random.default_rng(5)
    n = 8
    for _ in range(150):
        row = rng.normal(size=(1, n))
        least = row @ rng.integers(2, size=n) - 0.1 * rng.random(1)
        program = unbounded(1e9 * row, 1e9 * least, [np.inf])
        outputs = list_outputs(row, least, np.inf)
        for scores in rng.normal(size=(3, n)):
            best = (outputs @ scores).max()
            assert scores @ program.solve(scores).y == pytest.approx(best)


@pytest.mark.parametrize("max_cuts", [0, 1000])
def test_independent_cycles_are_solved_together(monkeypatch, max_cuts):
    monkeypatch.setattr(highs_solver, "MAX_CUTS", max_cuts)
    rng = np.random.default_rng(2)
    n_cycles = 12
    A = np.kron(np.eye(n_cycles), np.eye(5) + np.roll(np.eye(5), 1, axis=1))
    program = unbounded(A, np.full(60, -np.inf), np.ones(60))
    for _ in range(5):
        scores = 1 + 0.2 * rng.random(60)
        y = program.solve(scores).y
        best = 0.0
        for s in scores.reshape(n_cycles, 5):  # two that are no neighbors
            best += max(s[i] + s[(i + 2) % 5] for i in range(5))
        assert scores @ y == pytest.approx(best)
    assert (program.counts.mips == 0) == (max_cuts > 0)


def test_integer_program_widens_its_reach_until_it_is_exact(monkeypatch):
    monkeypatch.setattr(highs_solver, "MAX_CUTS", 0)
    monkeypatch.setattr(highs_solver, "INITIAL_REACH", 1e-9)
    rng = np.random.default_rng(7)
    n_mips = 0
    for _ in range(60):
        A, lower, upper = random_program(rng, 8, 4)
        program = unbounded(A, lower, upper)
        outputs = list_outputs(A, lower, upper)
        scores = rng.normal(size=8)
        best = (outputs @ scores).max()
        assert scores @ program.solve(scores).y == pytest.approx(best)
        n_mips = max(n_mips, program.counts.mips)
    assert n_mips > 1


def test_integer_answers_are_kept_while_the_bounds_stay(monkeypatch):
    monkeypatch.setattr(highs_solver, "MAX_CUTS", 0)
    monkeypatch.setattr(highs_solver, "MAX_ANSWERS", 3)
    program = odd_cycle(5)
    questions = 1 + 0.1 * np.random.default_rng(8).random((4, 5))
    first = program.solve(questions[0]).y
    for scores in questions[1:3]:
        program.solve(scores)
    n_mips = program.counts.mips
    assert np.array_equal(program.solve(questions[0]).y, first)
    assert program.counts.mips == n_mips
    program.solve(questions[3])  # the oldest answer, to questions[1], makes room
    n_mips = program.counts.mips
    program.solve(questions[0])
    assert program.counts.mips == n_mips
    program.solve(questions[1])
    assert program.counts.mips > n_mips
    program.set_bounds(np.zeros(5), 1.0 - first)  # none of the variables it chose
    assert not (program.solve(questions[0]).y & first).any()


def test_second_question_takes_fewer_iterations():
    rng = np.random.default_rng(3)
    n = 40  # an assignment: the LP is integral
    A = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    program = unbounded(A, np.ones(2 * n), np.ones(2 * n))
    scores = rng.normal(size=n * n)
    program.solve(scores)
    n_first = program.counts.simplex_iterations
    program.solve(scores + 1e-3 * rng.normal(size=n * n))
    assert program.counts.simplex_iterations - n_first < n_first / 2
    assert (program.counts.lps, program.counts.mips) == (2, 0)


def test_infeasible_programs_give_none():
    ones = np.ones((1, 2))
    assert unbounded(ones, [3.0], [4.0]).solve([1.0, 1.0]) is None
    odd = unbounded(2 * ones, [1.0], [1.0])  # the LP is feasible, no integers are
    assert odd.solve([1.0, 0.5]) is None
    n_lps = odd.counts.lps
    assert odd.solve([0.5, 1.0]) is None
    assert odd.counts.lps == n_lps  # infeasible for all scores


def test_new_bounds_make_an_infeasible_program_feasible():
    program = WarmStartedProgram(np.ones((1, 3)), [2.0], [2.0], np.zeros(3), [1, 0, 0])
    assert program.solve(np.ones(3)) is None
    program.set_bounds(np.zeros(3), [1, 0, 1])
    np.testing.assert_array_equal(program.solve(np.ones(3)).y, [1, 0, 1])


def test_programs_without_rows_or_variables():
    free = unbounded(np.zeros((0, 3)), [], [])
    np.testing.assert_array_equal(free.solve([1.0, -1.0, 2.0]).y, [1, 0, 1])
    empty = np.zeros((1, 0))
    assert unbounded(empty, [0.0], [1.0]).solve([]).y.shape == (0,)
    assert unbounded(empty, [1.0], [1.0]).solve([]) is None
    assert unbounded(empty, [1.0], [1.0]).solve_relaxed([]) is None


def test_pickled_program_leaves_its_solver_behind():
    program = odd_cycle(5)
    scores = np.array([1.0, 1.1, 1.2, 1.3, 1.45])
    expected = program.solve(scores).y
    other = pickle.loads(pickle.dumps(program))
    assert other._highs is None
    np.testing.assert_array_equal(other.solve(scores).y, expected)


def test_same_questions_get_the_same_answers():
    rng = np.random.default_rng(4)
    questions = [np.ones(7), rng.normal(size=7), np.ones(7), np.zeros(7)]
    first = odd_cycle(7)
    second = odd_cycle(7)
    for scores in questions:
        np.testing.assert_array_equal(first.solve(scores).y, second.solve(scores).y)


def test_failure_names_the_status_of_the_solver(monkeypatch):
    monkeypatch.setitem(highs_solver.OPTIONS, "simplex_iteration_limit", 0)
    monkeypatch.setitem(highs_solver.OPTIONS, "presolve", "off")
    with pytest.raises(SolverError, match=r"[Ii]teration limit"):
        unbounded(np.ones((1, 3)), [2.0], [2.0]).solve([1.0, 2.0, 3.0])
    monkeypatch.setitem(highs_solver.OPTIONS, "no such option", 1)
    with pytest.raises(SolverError, match="no such option"):
        odd_cycle(3).solve(np.ones(3))


def test_propagation_fixes_only_what_all_outputs_agree_on():
    rng = np.random.default_rng(5)
    n_fixed = 0
    for _ in range(60):
        A, row_lower, row_upper = random_program(rng, 6, 3)
        lower = np.zeros(6)
        upper = np.ones(6)
        lower[0] = upper[0] = rng.integers(2)
        outputs = list_outputs(A, row_lower, row_upper)
        outputs = outputs[outputs[:, 0] == lower[0]]
        lower, upper, is_consistent = propagate_bounds(
            sp.csr_array(A), row_lower, row_upper, lower, upper
        )
        assert is_consistent or not len(outputs)
        if len(outputs):
            assert (outputs[:, lower == 1] == 1).all()
            assert (outputs[:, upper == 0] == 0).all()
            n_fixed += (lower == upper).sum() > 1
    assert n_fixed > 5


def test_cuts_hold_for_all_outputs_and_not_for_the_fractional_answer():
    rng = np.random.default_rng(6)
    n_cuts = 0
    for _ in range(300):
        A, lower, upper = random_program(rng, 7, 4)
        A[rng.random(A.shape) < 0.2] *= 0.5  # rows that are not whole are not used
        program = unbounded(A, lower, upper)
        y = program.solve_relaxed(rng.normal(size=7))
        if y is None or not (is_fractional := y != np.rint(y)).any():
            continue
        cuts, sides = find_half_cuts(
            program.A, program.row_lower, program.row_upper, y, is_fractional
        )
        outputs = list_outputs(A, lower, upper)
        assert (cuts @ outputs.T <= sides[:, None] + 1e-9).all()
        np.testing.assert_allclose(cuts @ y, sides + 0.5)
        n_cuts += len(sides)
    assert n_cuts > 20
