import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import SolverError
from clew.models import highs_model
from clew.models import highs_solver as highs
from clew.models.cuts import half_cuts
from clew.models.highs_solver import KeptProgram, propagate


def random_program(rng, n, m):
    A = rng.integers(-2, 4, size=(m, n)) * (rng.random((m, n)) < 0.6)
    middle = A @ rng.integers(2, size=n)
    return (
        A.astype(float),
        middle - rng.integers(0, 3, size=m),
        np.where(rng.random(m) < 0.3, np.inf, middle + 1.0),
    )


def listed(A, lower, upper):
    ys = np.array(list(product((0, 1), repeat=A.shape[1])))
    return ys[((ys @ A.T >= lower - 1e-9) & (ys @ A.T <= upper + 1e-9)).all(axis=1)]


def odd_cycle(n):
    """At most one of two neighbours: with equal scores the LP's optimum is one half everywhere."""
    return KeptProgram(
        np.eye(n) + np.roll(np.eye(n), 1, axis=1),
        np.full(n, -np.inf),
        np.ones(n),
        np.zeros(n),
        np.ones(n),
    )


@pytest.mark.parametrize("cuts", [1000, 0])
def test_every_answer_of_a_kept_model_is_the_best_of_all_outputs(monkeypatch, cuts):
    monkeypatch.setattr(highs, "MOST_CUTS", cuts)
    rng = np.random.default_rng(0)
    fractional = 0
    for _ in range(40):
        n = int(rng.integers(1, 9))
        A, lower, upper = random_program(rng, n, int(rng.integers(0, 5)))
        outputs = listed(A, lower, upper)
        kept = KeptProgram(sp.csr_array(A), lower, upper, np.zeros(n), np.ones(n))
        scores = rng.normal(size=n)
        for _ in range(6):
            scores = scores + rng.normal(size=n) * 0.5
            y = kept.maximise(scores)
            assert y.dtype == np.int8
            assert (outputs == y).all(axis=1).any()
            assert scores @ y == pytest.approx((outputs @ scores).max(), abs=1e-9)
        fractional += kept.fractional_lps > 0
        assert kept.cuts == 0 or cuts
    assert fractional > 3


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_scale_of_the_scores_does_not_matter(scale):
    rng = np.random.default_rng(1)
    for n in (3, 5, 7):
        scores = 1 + 1e-4 * rng.normal(size=n)
        kept = odd_cycle(n)
        y = kept.maximise(scale * scores)
        outputs = listed(kept.A.toarray(), kept.row_lower, kept.row_upper)
        np.testing.assert_array_equal(y, outputs[np.argmax(outputs @ scores)])


def test_the_size_of_a_rows_coefficients_does_not_matter():
    rng = np.random.default_rng(5)
    n = 8
    for _ in range(150):
        row = rng.normal(size=(1, n))
        least = row @ rng.integers(2, size=n) - 0.1 * rng.random(1)
        kept = KeptProgram(1e9 * row, 1e9 * least, [np.inf], np.zeros(n), np.ones(n))
        outputs = listed(row, least, np.inf)
        for scores in rng.normal(size=(3, n)):
            assert scores @ kept.maximise(scores) == pytest.approx(
                (outputs @ scores).max()
            )


@pytest.mark.parametrize("cuts", [0, 1000])
def test_fractional_answers_far_apart_are_solved_together(monkeypatch, cuts):
    """Many odd cycles that share nothing."""
    monkeypatch.setattr(highs, "MOST_CUTS", cuts)
    rng = np.random.default_rng(2)
    cycles = 12
    A = np.kron(np.eye(cycles), np.eye(5) + np.roll(np.eye(5), 1, axis=1))
    kept = KeptProgram(A, np.full(60, -np.inf), np.ones(60), np.zeros(60), np.ones(60))
    for _ in range(5):
        scores = 1 + 0.2 * rng.random(60)
        y = kept.maximise(scores)
        best = sum(
            max(s[i] + s[(i + 2) % 5] for i in range(5))
            for s in scores.reshape(cycles, 5)
        )  # two that are no neighbours, the most that fit
        assert scores @ y == pytest.approx(best)
    assert (kept.mip_solves == 0) == (cuts > 0)


def test_a_second_question_takes_fewer_iterations_than_the_first():
    rng = np.random.default_rng(3)
    n = 40  # an assignment: the LP is integral
    A = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    kept = KeptProgram(
        A, np.ones(2 * n), np.ones(2 * n), np.zeros(n * n), np.ones(n * n)
    )
    scores = rng.normal(size=n * n)
    kept.maximise(scores)
    first = kept.simplex_iterations
    kept.maximise(scores + 1e-3 * rng.normal(size=n * n))
    assert kept.simplex_iterations - first < first / 2
    assert (kept.lp_solves, kept.mip_solves) == (2, 0)


def test_infeasible_programmes_give_none_with_the_lp_and_without():
    one = np.ones((1, 2))
    assert (
        KeptProgram(one, [3.0], [4.0], np.zeros(2), np.ones(2)).maximise([1.0, 1.0])
        is None
    )
    odd = KeptProgram(
        2 * one, [1.0], [1.0], np.zeros(2), np.ones(2)
    )  # the LP is feasible, no integers are
    assert odd.maximise([1.0, 0.5]) is None
    solves = odd.lp_solves
    assert odd.maximise([0.5, 1.0]) is None
    assert odd.lp_solves == solves  # remembered


def test_other_bounds_make_an_infeasible_programme_feasible_again():
    kept = KeptProgram(np.ones((1, 3)), [2.0], [2.0], np.zeros(3), [1, 0, 0])
    assert kept.maximise(np.ones(3)) is None
    kept.rebound(np.zeros(3), [1, 0, 1])
    np.testing.assert_array_equal(kept.maximise(np.ones(3)), [1, 0, 1])


def test_programmes_without_rows_or_variables():
    free = KeptProgram(np.zeros((0, 3)), [], [], np.zeros(3), np.ones(3))
    np.testing.assert_array_equal(free.maximise([1.0, -1.0, 2.0]), [1, 0, 1])
    assert KeptProgram(np.zeros((1, 0)), [0.0], [1.0], [], []).maximise([]).shape == (
        0,
    )
    assert KeptProgram(np.zeros((1, 0)), [1.0], [1.0], [], []).maximise([]) is None


def test_a_pickled_programme_leaves_its_solver_behind():
    kept = odd_cycle(5)
    scores = np.array([1.0, 1.1, 1.2, 1.3, 1.45])
    expected = kept.maximise(scores)
    other = pickle.loads(pickle.dumps(kept))
    assert other._highs is None
    np.testing.assert_array_equal(other.maximise(scores), expected)


def test_the_same_questions_get_the_same_answers():
    rng = np.random.default_rng(4)
    questions = [np.ones(7), rng.normal(size=7), np.ones(7), np.zeros(7)]
    one, other = odd_cycle(7), odd_cycle(7)
    for scores in questions:
        np.testing.assert_array_equal(one.maximise(scores), other.maximise(scores))


def test_a_failure_carries_the_solvers_status(monkeypatch):
    monkeypatch.setitem(highs_model.OPTIONS, "simplex_iteration_limit", 0)
    monkeypatch.setitem(highs_model.OPTIONS, "presolve", "off")
    with pytest.raises(SolverError, match=r"[Ii]teration limit"):
        KeptProgram(np.ones((1, 3)), [2.0], [2.0], np.zeros(3), np.ones(3)).maximise(
            [1.0, 2.0, 3.0]
        )
    monkeypatch.setitem(highs_model.OPTIONS, "no such option", 1)
    with pytest.raises(SolverError, match="no such option"):
        odd_cycle(3).maximise(np.ones(3))


def test_propagation_fixes_only_what_all_outputs_agree_on():
    rng = np.random.default_rng(5)
    fixed = 0
    for _ in range(60):
        A, lower, upper = random_program(rng, 6, 3)
        low, up = np.zeros(6), np.ones(6)
        low[0] = up[0] = rng.integers(2)
        outputs = listed(A, lower, upper)
        outputs = outputs[outputs[:, 0] == low[0]]
        possible = propagate(sp.csr_array(A), lower, upper, low, up)
        assert possible or not len(outputs)
        if len(outputs):
            assert (outputs[:, low == 1] == 1).all()
            assert (outputs[:, up == 0] == 0).all()
            fixed += (low == up).sum() > 1
    assert fixed > 5


def test_cuts_hold_for_all_outputs_and_not_for_the_fractional_answer():
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(300):
        A, lower, upper = random_program(rng, 7, 4)
        A[rng.random(A.shape) < 0.2] *= 0.5  # rows that are not whole take no part
        kept = KeptProgram(A, lower, upper, np.zeros(7), np.ones(7))
        y = kept._relaxed(rng.normal(size=7))
        if y is None or not (fractional := highs._fractional(y)).any():
            continue
        cuts, sides = half_cuts(kept.A, kept.row_lower, kept.row_upper, y, fractional)
        outputs = listed(A, lower, upper)
        assert (cuts @ outputs.T <= sides[:, None] + 1e-9).all()
        np.testing.assert_allclose(cuts @ y, sides + 0.5)
        found += len(sides)
    assert found > 20


def test_the_first_question_is_not_answered_twice():
    rng = np.random.default_rng(0)
    A = np.tile(np.eye(5), 2)
    kept = KeptProgram(A, np.ones(5), np.ones(5), np.zeros(10), np.ones(10))
    first, second = rng.normal(size=(2, 10))
    answer = kept.maximise(first)
    other, solved = kept.maximise(second), kept.lp_solves
    again = kept.maximise(first)
    np.testing.assert_array_equal(again, answer)
    assert kept.lp_solves == solved
    again[:] = 0  # whoever has the answer may change it
    np.testing.assert_array_equal(kept.maximise(first), answer)
    kept.rebound(np.zeros(10), 1.0 - other)
    np.testing.assert_array_equal(kept.maximise(first), 1 - other)
