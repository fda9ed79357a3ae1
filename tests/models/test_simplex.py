import numpy as np
import pytest
import scipy.sparse as sp

from clew.models import highs_solver as highs
from clew.models import simplex
from clew.models.highs_solver import KeptProgram
from clew.models.simplex import Basis


def random_lp(rng, whole):
    """A feasible programme with open and equal row bounds, and some variables that are fixed."""
    m, n = int(rng.integers(1, 15)), int(rng.integers(1, 25))
    A = (
        rng.integers(-2, 4, size=(m, n))
        * (rng.random((m, n)) < 0.4)
        * (1.0 if whole else rng.normal(size=(m, n)))
    )
    y = rng.integers(2, size=n).astype(float)
    below, above = (
        np.where(rng.random(m) < 0.3, np.inf, rng.integers(0, 2, size=m))
        for _ in range(2)
    )
    fixed = rng.random(n) < 0.1
    A[0, 0] = 1.0
    return (
        sp.csr_array(A),
        A @ y - below,
        A @ y + above,
        np.where(fixed, y, 0.0),
        np.where(fixed, y, 1.0),
    )


def by_highs(program, scores):
    """A programme that HiGHS has answered once, and the basis of that."""
    kept = KeptProgram(*program)
    y = kept._by_highs(scores)
    return kept, Basis(*program, kept._highs.getBasicVariables()[1], y)


@pytest.mark.parametrize("whole", [True, False])
def test_answers_and_prices_are_optimal(whole):
    rng = np.random.default_rng(0)
    for _ in range(60):
        program = A, row_lower, row_upper, lower, upper = random_lp(rng, whole)
        kept, basis = by_highs(program, rng.normal(size=A.shape[1]))
        for scores in [
            *rng.integers(-1, 2, size=(4, A.shape[1])),
            *rng.uniform(-1, 1, size=(4, A.shape[1])),
        ]:
            y = basis.maximise(scores)
            sums = A @ y
            assert ((y >= lower - 1e-9) & (y <= upper + 1e-9)).all()
            assert ((sums >= row_lower - 1e-9) & (sums <= row_upper + 1e-9)).all()
            assert scores @ y == pytest.approx(
                scores @ kept._by_highs(scores), abs=1e-8
            )
            gain = scores - A.T @ basis.prices
            worth = sum(
                np.where(
                    of > 0,
                    of * np.where(of > 0, above, 0),
                    of * np.where(of < 0, below, 0),
                ).sum()
                for of, below, above in (
                    (
                        np.where(np.abs(basis.prices) > 1e-12, basis.prices, 0.0),
                        row_lower,
                        row_upper,
                    ),
                    (gain, lower, upper),
                )
            )
            assert worth == pytest.approx(scores @ y, abs=1e-8)  # strong duality


def test_the_size_of_a_rows_coefficients_does_not_matter():
    """What a row's sum is worth for each 1 of it falls as its coefficients grow."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        program = A, row_lower, row_upper, lower, upper = random_lp(rng, whole=True)
        kept, basis = by_highs(program, rng.normal(size=A.shape[1]))
        size = 2.0 ** rng.integers(0, 30, size=A.shape[0])
        rows = sp.csr_array(A * size[:, None]), row_lower * size, row_upper * size
        basic, y = (
            kept._highs.getBasicVariables()[1],
            np.array(kept._highs.getSolution().col_value),
        )
        large = Basis(*rows, lower, upper, basic, y)
        for scores in rng.uniform(-1, 1, size=(4, A.shape[1])):
            y, expected = large.maximise(scores), basis.maximise(scores)
            assert scores @ y == pytest.approx(scores @ expected, abs=1e-9)
            np.testing.assert_allclose(large.prices * size, basis.prices, atol=1e-8)


def test_a_budget_may_be_counted_in_any_unit():
    rng = np.random.default_rng(5)
    n = 12
    for _ in range(40):
        costs = rng.integers(1, 10, size=(1, n))
        large, small = (
            KeptProgram(
                unit * costs,
                [-np.inf],
                [unit * (costs.sum() // 2)],
                np.zeros(n),
                np.ones(n),
            )
            for unit in (1.0, 1e8)
        )
        for scores in rng.normal(size=(4, n)):
            assert scores @ small.maximise(scores) == pytest.approx(
                scores @ large.maximise(scores)
            )


def test_a_degenerate_programme_is_solved_by_either_rule(monkeypatch):
    """An assignment: every pivot but a few changes no value."""
    rng = np.random.default_rng(1)
    n = 12
    A = sp.csr_array(
        np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    )
    program = A, np.ones(2 * n), np.ones(2 * n), np.zeros(n * n), np.ones(n * n)
    for bland in (False, True):
        if bland:
            monkeypatch.setattr(
                simplex, "_maximise", simplex._maximise.py_func
            )  # so that it sees what follows
            monkeypatch.setattr(simplex, "DEGENERATE", -1)
            monkeypatch.setattr(simplex, "PIVOTS_PER_ROW", 100)
        scores = rng.random(n * n)
        kept, basis = by_highs(program, scores)
        for _ in range(5):
            scores = np.clip(scores + 0.1 * rng.normal(size=n * n), -1, 1)
            assert scores @ basis.maximise(scores) == pytest.approx(
                scores @ kept._by_highs(scores), abs=1e-9
            )


def test_a_spoilt_inverse_is_noticed_and_highs_answers():
    rng = np.random.default_rng(2)
    n = 8
    A = sp.csr_array(
        np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    )
    program = A, np.ones(2 * n), np.ones(2 * n), np.zeros(n * n), np.ones(n * n)
    kept, fresh = KeptProgram(*program), KeptProgram(*program)
    scores = rng.random(n * n)
    for _ in range(3):
        kept.maximise(scores + 0.01 * rng.random(n * n))
    assert kept._basis is not None
    kept._basis.inverse *= 1 + 1e-3 * rng.random(kept._basis.inverse.shape)
    spoilt = kept._basis
    np.testing.assert_array_equal(kept.maximise(scores), fresh.maximise(scores))
    assert not spoilt.usable
    assert kept._basis is None
    assert spoilt.maximise(scores) is None


def test_what_cannot_be_a_basis_is_not_used():
    A = sp.csr_array(np.array([[1.0, 1.0], [2.0, 2.0]]))
    twice = Basis(
        A,
        np.zeros(2),
        np.full(2, 3.0),
        np.zeros(2),
        np.ones(2),
        np.array([0, 1]),
        np.zeros(2),
    )
    assert twice.maximise(np.ones(2)) is None
    free = Basis(
        A,
        np.full(2, -np.inf),
        np.full(2, np.inf),
        np.zeros(2),
        np.ones(2),
        np.array([0, -1]),
        np.zeros(2),
    )
    assert free.maximise(np.ones(2)) is None


def test_many_rows_and_empty_ones_are_left_to_highs(monkeypatch):
    rows = np.zeros((2, 3))
    tiny = rows + 1e-10  # HiGHS takes it for zero
    for A, most in ((rows, 200), (tiny, 200), (rows + 1, 1)):
        monkeypatch.setattr(highs, "MOST_ROWS", most)
        kept = KeptProgram(A, [0.0, 0.0], [2.0, 2.0], np.zeros(3), np.ones(3))
        for scores in ([1.0, 2.0, 3.0], [1.0, -2.0, 3.0], [-1.0, 2.0, 3.0]):
            assert kept.maximise(scores) is not None
        assert kept._basis is None


def test_after_a_question_of_many_pivots_highs_answers(monkeypatch):
    """Where costs are others altogether each time, HiGHS is several times as fast."""
    rng = np.random.default_rng(0)
    A = sp.random_array(
        (40, 120),
        density=0.1,
        rng=rng,
        data_sampler=lambda size: np.ones(size),
        format="csr",
    )
    kept = KeptProgram(
        A, np.full(40, -np.inf), np.full(40, 2.0), np.zeros(120), np.ones(120)
    )
    asked, by_highs = [], kept._by_highs
    monkeypatch.setattr(
        kept, "_by_highs", lambda costs: asked.append(1) or by_highs(costs)
    )
    kept.maximise_relaxed(np.full(120, -1.0))
    many = 0
    for scores in rng.normal(size=(20, 120)):
        before, kept_basis = len(asked), kept._basis
        many += bool(far := kept_basis is not None and kept_basis.pivots > 40)
        kept.maximise_relaxed(scores)
        assert len(asked) > before or not far
    assert many


def test_prices_are_optimal_with_compiled_code_and_without(monkeypatch):
    rng = np.random.default_rng(3)
    A = np.tile(np.eye(5), 2)
    program = A, np.ones(5), np.ones(5), np.zeros(10), np.ones(10)
    questions = rng.normal(size=(3, 10))
    kept = KeptProgram(*program)
    answers = [kept.maximise_with_prices(scores) for scores in questions]
    assert kept._basis is not None
    monkeypatch.setattr(highs, "MOST_ROWS", 0)
    kept = KeptProgram(*program)
    for scores, (y, prices) in zip(questions, answers, strict=True):
        other, others = kept.maximise_with_prices(scores)
        np.testing.assert_array_equal(y, other)
        gains, other_gains = scores - A.T @ prices, scores - A.T @ others
        assert ((gains <= 1e-9) | (y == 1)).all()
        assert ((other_gains <= 1e-9) | (y == 1)).all()
