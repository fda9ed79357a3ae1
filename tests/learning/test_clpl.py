"""Formulation I: Eqs. 2 and 3 by their formulas, and by an ordinary linear SVM on the stacked problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.svm import LinearSVC

from clew.errors import InfeasibleAnnotation, MissingCapability
from clew.estimators.svm import StructuredSVM
from clew.learning.cccp import Algorithm, learn
from clew.learning.losses import convex_part, loss_values
from clew.learning.task import Space, Subset
from clew.models.base import CLPL, list_outputs
from clew.models.chain import Chain
from clew.models.multiclass import Multiclass

from .problems import GENERATORS, cases

PRECISE = Algorithm(tol=1e-5, eta=1e-5)


def by_formula(case, w):
    """Eq. 3 (and Eq. 2, where the outputs are the classes), from the list of all outputs."""
    values = []
    for listing in case.listings:
        score, right = listing.features @ w, listing.loss == 0
        values.append(
            max(0, 1 - score[right].mean()) + np.maximum(0, 1 + score[~right]).sum()
        )
    return np.array(values)


@pytest.mark.parametrize("model", GENERATORS)
def test_values_and_bounds_are_those_of_the_formula(model):
    rng = np.random.default_rng(0)
    for case in cases(model)[:5]:
        task = list_outputs(case.model, case.X, case.Y)
        assert task.n_examples == len(case.listings)
        for w in 0.5 * rng.normal(size=(4, task.n_features)):
            np.testing.assert_allclose(
                loss_values(task, CLPL, w), by_formula(case, w), rtol=1e-9, atol=1e-9
            )
            linear, other = (
                convex_part(task, CLPL, w),
                rng.normal(size=task.n_features),
            )
            np.testing.assert_allclose(
                linear.features @ w + linear.offsets, linear.values, atol=1e-9
            )
            assert (
                linear.features @ other + linear.offsets
                <= by_formula(case, other) + 1e-9
            ).all()
        some = np.array([2, 0])
        np.testing.assert_allclose(
            loss_values(task, CLPL, w, some), by_formula(case, w)[some]
        )


def stacked(n=30, n_classes=4, width=3, seed=0):
    """Flat data with candidate sets, and Eq. 2 as a binary problem: a row for each mean of Y* and each label of Y°."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n_classes, width))[truth] + rng.normal(size=(n, width))
    candidates = rng.random((n, n_classes)) < 0.3
    candidates[np.arange(n), truth] = True
    rows, signs = [], []
    for x, mask in zip(X, candidates, strict=True):
        phi = np.kron(np.eye(n_classes), x)
        rows += [phi[mask].mean(axis=0), *phi[~mask]]
        signs += [1, *[-1] * int((~mask).sum())]
    return X, candidates, np.array(rows), np.array(signs)


def test_flat_outputs_equal_a_linear_svm_on_the_stacked_problem():
    X, candidates, rows, signs = stacked()
    lam = 0.1
    svm = StructuredSVM(
        Multiclass(bias=False), loss="clpl", lam=lam, algorithm=PRECISE
    ).fit(X, candidates)
    # LinearSVC: ½‖w‖² + C Σ hinge, so C = 1/(λN)
    other = LinearSVC(
        loss="hinge",
        fit_intercept=False,
        C=1 / (lam * len(X)),
        tol=1e-8,
        max_iter=10**6,
    )
    w = other.fit(rows, signs).coef_[0]
    expected = lam * w @ w / 2 + np.maximum(0, 1 - signs * (rows @ w)).sum() / len(X)
    assert svm.result_.converged
    assert svm.result_.objective == pytest.approx(expected, abs=2e-5)
    np.testing.assert_allclose(svm.coef_, w, atol=0.02)


def test_flat_outputs_with_l1_equal_a_linear_programme():
    X, candidates, rows, signs = stacked()
    lam, (m, d) = 0.05, rows.shape
    A = signs[:, None] * rows
    cost = np.concatenate([np.full(2 * d, lam), np.full(m, 1 / len(X))])
    expected = linprog(cost, np.hstack([-A, A, -np.eye(m)]), -np.ones(m)).fun
    model = Multiclass(bias=False)
    svm = StructuredSVM(
        model, loss="clpl", lam=lam, regulariser="l1", algorithm=PRECISE
    ).fit(X, candidates)
    assert expected - 1e-7 <= svm.result_.objective <= expected + 1e-5 + 1e-7


def test_a_small_chain_is_certified_against_a_linear_svm_over_all_its_outputs():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(length, 2)) for length in (2, 3, 3)]
    Y = [[0, None], [1, 0, None], [None, {0, 1}, 1]]
    model = Chain(n_states=2).prepare(X, Y)
    rows, signs, lam = [], [], 0.2
    for x, y in zip(X, Y, strict=True):
        outputs = list(model.outputs(x))
        phi = np.array([model.joint_features(x, output) for output in outputs])
        right = np.array([model.loss(y, output) == 0 for output in outputs])
        rows += [phi[right].mean(axis=0), *phi[~right]]
        signs += [1, *[-1] * int((~right).sum())]
    rows, signs = np.array(rows), np.array(signs)
    w = (
        LinearSVC(
            loss="hinge", fit_intercept=False, C=1 / (lam * 3), tol=1e-9, max_iter=10**6
        )
        .fit(rows, signs)
        .coef_[0]
    )
    expected = lam * w @ w / 2 + np.maximum(0, 1 - signs * (rows @ w)).sum() / 3
    result = learn(list_outputs(model, X, Y), CLPL, lam, algorithm=PRECISE)
    assert result.converged
    assert result.objective == pytest.approx(expected, abs=2e-5)
    assert result.lower_bound <= expected + 1e-7


def test_the_loss_is_convex():
    case = cases("chain")[0]
    task, rng = list_outputs(case.model, case.X, case.Y), np.random.default_rng(0)
    for a, b in rng.normal(size=(10, 2, task.n_features)):
        ends = loss_values(task, CLPL, a) + loss_values(task, CLPL, b)
        assert (2 * loss_values(task, CLPL, (a + b) / 2) <= ends + 1e-9).all()
    assert task.annotated_part() is None
    assert task.spaces == {Space.ALL}
    assert learn(task, CLPL, 0.1).iterations <= 12


def test_the_hinges_one_by_one_have_the_same_mean_loss():
    X, candidates, _, _ = stacked()
    task, rng = (
        list_outputs(Multiclass(bias=False).prepare(X, candidates), X, candidates),
        np.random.default_rng(0),
    )
    for whole in (task, Subset(task, np.array([7, 2, 11]))):
        hinges = whole.separated()
        assert hinges.n_examples > whole.n_examples
        assert len(set(hinges.keys)) == hinges.n_examples
        for w in rng.normal(size=(5, task.n_features)):
            mean = loss_values(whole, CLPL, w).mean()
            assert loss_values(hinges, CLPL, w).mean() == pytest.approx(mean, rel=1e-12)


def test_bounds_of_hinges_are_taken_over_only_at_the_same_scale():
    X, candidates, _, _ = stacked()
    model = Multiclass(bias=False).prepare(X, candidates)
    first = learn(list_outputs(model, X, candidates), CLPL, 0.1, algorithm=PRECISE)
    again = learn(
        list_outputs(model, X, candidates),
        CLPL,
        0.1,
        algorithm=PRECISE,
        warm_start=first,
    )
    assert again.passes < first.passes
    changed = candidates.copy()
    changed[0] = True  # fewer hinges: another scale
    task = list_outputs(model, X, changed)
    warm, cold = (
        learn(task, CLPL, 0.1, algorithm=PRECISE, warm_start=start)
        for start in (first, None)
    )
    assert warm.objective == pytest.approx(cold.objective, abs=2e-5)
    assert first.n_examples == len(X)


def test_lambda_is_chosen_for_it_too():
    X, candidates, _, _ = stacked(n=40)
    svm = StructuredSVM(Multiclass(), loss="clpl", random_state=0).fit(X, candidates)
    assert svm.lam_ in [point.lam for point in svm.path_]
    assert svm.score(X, candidates) > 0.6


def test_an_annotation_that_no_output_satisfies_is_named():
    from .problems import Choice, Known, Table

    x = Choice(np.eye(2))
    none = Known(np.array([True, False]), np.array([1.0, 1.0]))
    with pytest.raises(InfeasibleAnnotation, match="example 1") as caught:
        list_outputs(
            Table(2),
            [x, x],
            [Known(np.array([True, False]), np.array([0.0, 1.0])), none],
        )
    assert caught.value.example == 1


def test_a_model_that_cannot_list_its_outputs_is_told_so():
    class Unlisted:
        n_features = 2

    with pytest.raises(MissingCapability, match="outputs"):
        list_outputs(Unlisted(), [0], [0])
