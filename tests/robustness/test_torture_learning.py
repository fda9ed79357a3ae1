"""Bad inputs and faults of learning, line by line, in the order of the list of what each must give."""

from __future__ import annotations

import warnings
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp

from clew import StructuredPerceptron, StructuredSVM
from clew.errors import (
    ClewError,
    InexactArgmaxWarning,
    InfeasibleAnnotation,
    InputError,
    NotConverged,
    NotConvergedWarning,
)
from clew.learning import cccp
from clew.learning import dual_ascent as ascent
from clew.learning.bounds import Bundle
from clew.learning.cccp import Algorithm, learn
from clew.learning.losses import LOSSES, loss_values
from clew.learning.model_update import ModelUpdate, solve_model_update
from clew.learning.result import Status
from clew.learning.task import Space, Subset
from clew.models.assignment import Assignment
from clew.models.base import ExampleTask
from clew.models.binary_program import BinaryProgram
from clew.models.chain import Chain
from clew.models.graph import Graph
from clew.models.highs_solver import Program
from clew.models.multiclass import Multiclass
from clew.models.tree import Tree

from ..learning.problems import (
    GENERATORS,
    Counted,
    Table,
    as_linear,
    assignment_task,
    chain_task,
    fully_annotated,
    matchings,
    minimum_over_list,
    sequences,
    table_data,
)
from ..models.contract import mapped_floats

HINGE, BRIDGE = LOSSES["hinge"], LOSSES["bridge"]
REGULARISERS = pytest.mark.parametrize("regulariser", ["l2", "l1"])


def programs(n=6, size=5, seed=0):
    """Odd cycles: at most one of two neighbours."""
    rng = np.random.default_rng(seed)
    A = np.eye(size) + np.roll(np.eye(size), 1, axis=1)
    X = [
        Program(
            rng.normal((1, 0, 0), size=(size, 3)),
            sp.csr_array(A),
            np.full(size, -np.inf),
            np.ones(size),
        )
        for _ in range(n)
    ]
    return X, [{0: 1, 3: int(rng.integers(2))} for _ in range(n)]


def small_problem(name):
    """A model with a few annotated examples."""
    rng = np.random.default_rng(0)
    if name == "multiclass":
        return (
            Multiclass(n_classes=3),
            rng.normal(size=(6, 3)),
            np.array([0, 1, 2, 0, -1, 1]),
        )
    if name == "chain":
        return Chain(n_states=4), *sequences(n=5)[:2]
    if name == "tree":
        X = [(rng.normal(size=(3, 2)), np.array([-1, 0, 0])) for _ in range(4)]
        return (
            Tree(n_states=2),
            X,
            [[0, None, 1], [1, 1, None], [None, 0, 0], [1, None, None]],
        )
    if name == "graph":
        X = [
            (rng.normal(size=(3, 2)), np.array([[0, 1], [1, 2], [2, 0]]))
            for _ in range(4)
        ]
        return (
            Graph(n_states=2),
            X,
            [[0, None, 1], [1, 1, None], [None, 0, 0], [1, None, None]],
        )
    if name == "assignment":
        return Assignment(), *matchings(n=5, rows=3, known=0.7)[:2]
    return BinaryProgram(), *programs()


every_model = pytest.mark.parametrize("name", GENERATORS)


def with_first_number(x, value):
    """The input with its first feature replaced."""
    if isinstance(x, Program):
        features = np.array(x.features)
        features.flat[0] = value
        return Program(features, x.A, x.lower, x.upper)
    if isinstance(x, tuple):
        return (with_first_number(x[0], value), *x[1:])
    changed = np.array(x, dtype=float)
    changed.flat[0] = value
    return changed


# "NaN or inf feature → E."
@every_model
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("estimator", [StructuredSVM, StructuredPerceptron])
def test_nan_or_infinite_feature(name, bad, estimator):
    model, X, Y = small_problem(name)
    X = (
        with_first_number(X, bad)
        if name == "multiclass"
        else [X[0], with_first_number(X[1], bad), *X[2:]]
    )
    settings = {"lam": 0.1} if estimator is StructuredSVM else {}
    with pytest.raises(InputError, match=r"(?i)example|position|feature|finite"):
        estimator(model, **settings).fit(X, Y)
    good_model, good_X, good_Y = small_problem(name)
    fitted = estimator(good_model, **settings).fit(good_X, good_Y)
    with pytest.raises(InputError):
        fitted.predict(X)


# "No examples → E."
@every_model
@pytest.mark.parametrize("estimator", [StructuredSVM, StructuredPerceptron])
def test_no_examples(name, estimator):
    model, X, Y = small_problem(name)
    with pytest.raises(InputError, match=r"(?i)no examples|empty"):
        estimator(model).fit(X[:0], Y[:0])


def test_no_examples_in_a_task():
    with pytest.raises(InputError, match="no examples"):
        learn(Subset(assignment_task(n=2), np.array([], dtype=int)), HINGE, 0.1)


# "One example → fits."
@every_model
@REGULARISERS
def test_one_example(name, regulariser):
    model, X, Y = small_problem(name)
    if name in ("chain", "tree", "graph"):
        Y = [y for y in Y if np.any([label not in (None, -1) for label in y])]
    svm = StructuredSVM(model, lam=0.1, regulariser=regulariser).fit(X[:1], Y[:1])
    assert svm.result_.converged
    assert svm.result_.n_examples == 1
    assert len(svm.predict(X[:1])) == 1


# "Nothing annotated → E that says so."
@every_model
@pytest.mark.parametrize("estimator", [StructuredSVM, StructuredPerceptron])
def test_nothing_annotated(name, estimator):
    model, X, Y = small_problem(name)
    with pytest.raises(InputError, match="nothing is annotated"):
        estimator(model).fit(X, [None] * len(Y))


# "Everything annotated → the ordinary structural SVM."
@pytest.mark.parametrize("loss", ["hinge", "bridge"])
@pytest.mark.parametrize("model", GENERATORS)
@REGULARISERS
def test_everything_annotated(model, loss, regulariser):
    for case in fully_annotated(model, 2):
        result = learn(case.task, LOSSES[loss], 0.1, regulariser=regulariser)
        expected = minimum_over_list(case.listings, 0.1, regulariser)
        assert result.converged
        assert expected - 1e-7 <= result.objective <= expected + 1e-3 + 1e-7
        assert result.lower_bound <= expected + 1e-7


# "An annotation that no output satisfies → InfeasibleAnnotation with the parts in conflict."
@pytest.mark.parametrize("loss", [*LOSSES, "clpl"])
def test_an_annotation_that_no_assignment_satisfies(loss):
    X, _, truth = matchings(n=3, rows=3)
    Y = [truth[0], [2, 0, 2], truth[2]]
    with pytest.raises(InfeasibleAnnotation, match="example 1") as caught:
        StructuredSVM(Assignment(), loss=loss, lam=0.1).fit(X, Y)
    assert caught.value.example == 1
    if loss != "clpl":
        assert caught.value.parts == (0, 2)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_annotation_that_no_0_1_output_satisfies(loss):
    X, Y = programs()
    Y[2] = {1: 1, 2: 1, 4: 0}
    with pytest.raises(InfeasibleAnnotation, match="example 2") as caught:
        StructuredSVM(BinaryProgram(), loss=loss, lam=0.1).fit(X, Y)
    assert (caught.value.example, set(caught.value.parts)) == (2, {1, 2})


def test_an_annotation_that_no_label_satisfies():
    X, Y, _ = sequences(n=3)
    with pytest.raises(InfeasibleAnnotation) as caught:
        StructuredSVM(Chain(n_states=4), lam=0.1).fit(
            X, [Y[0], [set(), *[None] * (len(X[1]) - 1)], Y[2]]
        )
    assert (caught.value.example, caught.value.parts) == (1, (0,))


def test_an_infeasible_annotation_stops_the_perceptron_too():
    X, _, truth = matchings(n=3, rows=3)
    with pytest.raises(InfeasibleAnnotation) as caught:
        StructuredPerceptron(Assignment()).fit(X, [truth[0], [2, 0, 2], truth[2]])
    assert caught.value.parts == (0, 2)


# "Duplicate or constant features → finite w."
@REGULARISERS
@pytest.mark.parametrize("solver", ["interior-point", "ascent"])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.concatenate([x, x, x], axis=-1),
        lambda x: np.concatenate([x, np.ones_like(x)], axis=-1),
        np.ones_like,
        np.zeros_like,
    ],
    ids=["duplicate", "constant added", "all constant", "all zero"],
)
def test_duplicate_or_constant_features(change, solver, regulariser):
    options = Algorithm(solver=solver)
    for model, (X, Y, _) in [
        (Assignment(), matchings(n=5, rows=3)),
        (Chain(n_states=4), sequences(n=5)),
    ]:
        same = StructuredSVM(model, lam=0.1, regulariser=regulariser, algorithm=options)
        result = same.fit([change(x) for x in X], Y).result_
        assert result.converged
        assert np.isfinite(result.w).all()


# "Features times 1e12 → a certified gap, or NotConverged."
@REGULARISERS
@pytest.mark.parametrize("scale", [1e12, 1e-12, 1e6])
@pytest.mark.parametrize("name", ["multiclass", "chain", "assignment", "program"])
def test_features_times_a_huge_or_tiny_number(name, scale, regulariser):
    model, X, Y = small_problem(name)
    if name == "program":
        X = [Program(scale * x.features, x.A, x.lower, x.upper) for x in X]
    else:
        X = scale * X if name == "multiclass" else [scale * x for x in X]
    svm = StructuredSVM(
        model, lam=0.1, regulariser=regulariser, algorithm=Algorithm(max_passes=100)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = svm.fit(X, Y).result_
    assert np.isfinite(result.w).all()
    if result.converged:
        assert result.gap <= 1e-3
        assert result.objective - result.lower_bound <= 1e-3 + 1e-9 * abs(
            result.objective
        )
    else:
        assert any(
            issubclass(warning.category, NotConvergedWarning) for warning in caught
        )
        with pytest.raises(NotConverged):
            result.require()


def test_one_feature_of_2_to_53_among_ones_gives_up_soon(monkeypatch):
    """Where floats allow no more precision, neither the ascent nor CCCP asks for it again and again."""
    sweeps, rounds = ascent._sweep, []
    monkeypatch.setattr(
        ascent, "_sweep", lambda *given: rounds.append(1) or sweeps(*given)
    )
    X = [
        np.array(x)
        for x in (
            [[1, 0], [0, 2.0**53], [0.5, 0.2]],
            [[0, 1], [1, 0.3]],
            [[0.9, 0.1], [0.2, 0.8]],
        )
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = (
            StructuredSVM(Chain(), lam=0.1)
            .fit([*X, np.ones((1, 2))], [[0, 1, 0], [1, 0], [None, 1], [0]])
            .result_
        )
    assert np.isfinite(result.w).all()
    assert result.converged or result.status is Status.STALLED
    assert len(rounds) < 10 * ascent.DEFAULTS.rounds


@pytest.mark.parametrize(("limit", "most"), [(1e-9, 1), (None, 40)])
def test_model_updates_that_get_nowhere_end_by_the_limits(limit, most, monkeypatch):
    """They look at no data, so that the number of passes cannot end them; nor does a tolerance that nothing reaches."""
    asked = []

    def rough(bundle, *_):
        asked.append(1)
        return ModelUpdate(np.zeros(bundle.n_features), -1e9, 1e9)

    monkeypatch.setattr(cccp, "solve_model_update", rough)
    with pytest.warns(NotConvergedWarning):
        result = learn(
            chain_task(n=4),
            HINGE,
            0.1,
            algorithm=Algorithm(tol=1e-300, time_limit=limit),
        )
    assert result.status is (Status.TIME_LIMIT if limit else Status.STALLED)
    assert len(asked) <= most


# "λ ≤ 0 or NaN → E."
@pytest.mark.parametrize("lam", [0, 0.0, -1e-9, -1, np.nan, np.inf, -np.inf])
def test_lambda_that_is_not_positive(lam):
    with pytest.raises(InputError, match="λ"):
        learn(assignment_task(n=2), HINGE, lam)
    X, Y, _ = matchings(n=2)
    with pytest.raises(InputError, match="lam"):
        StructuredSVM(Assignment(), lam=lam).fit(X, Y)
    with pytest.raises(InputError, match="lam"):
        StructuredSVM(Assignment(), lam=[1.0, lam]).fit(X, Y)


# "Wrong length of w → E."
@pytest.mark.parametrize(
    "w",
    [
        np.zeros(5),
        np.zeros(7),
        np.zeros((6, 1)),
        np.zeros(0),
        np.float64(1.0),
        np.full(6, np.nan),
    ],
)
def test_wrong_length_of_w(w):
    X, Y, _ = matchings(n=3)
    with pytest.raises(InputError, match=r"6|w has"):
        learn(assignment_task(n=3), HINGE, 0.1, start=w)
    svm = StructuredSVM(Assignment(), lam=0.1, start=w)
    with pytest.raises(InputError):
        svm.fit(X, Y)
    fitted = StructuredSVM(Assignment(), lam=0.1).fit(X, Y)
    fitted.coef_ = w
    with pytest.raises(InputError, match="w has"):
        fitted.predict(X)


def test_a_warm_start_of_another_problem_is_refused():
    with pytest.raises(InputError, match="6 finite weights"):
        learn(
            assignment_task(n=2),
            HINGE,
            0.1,
            warm_start=learn(chain_task(n=2), HINGE, 0.1),
        )


# "Integer, float32, read-only, Fortran-ordered arrays → the same answer."
def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


@pytest.mark.parametrize(
    "change",
    [
        np.int64,
        np.int16,
        np.float32,
        np.asfortranarray,
        read_only,
        lambda a: np.repeat(a, 2, 0)[::2],
    ],
    ids=["int64", "int16", "float32", "Fortran", "read-only", "strided"],
)
@pytest.mark.parametrize("name", ["multiclass", "chain", "tree", "graph", "assignment"])
def test_types_and_orders_of_arrays(name, change):
    model, X, Y = small_problem(name)
    X = mapped_floats([*X] if name != "multiclass" else X, lambda a: np.round(3 * a))
    expected = StructuredSVM(model, lam=0.1).fit(X, Y)
    svm = StructuredSVM(model, lam=0.1).fit(
        mapped_floats(X, lambda a: np.asarray(change(a))), Y
    )
    np.testing.assert_array_equal(svm.coef_, expected.coef_)
    for one, other in zip(svm.predict(X), expected.predict(X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_start_of_any_type_gives_the_same_answer():
    w = np.arange(6)
    results = [
        learn(assignment_task(n=4), HINGE, 0.1, start=start).w
        for start in (
            w.astype(float),
            w,
            w.astype(np.float32),
            read_only(w.astype(float)),
            w.tolist(),
        )
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


# "Examples permuted → the same objective within ε."
@REGULARISERS
@pytest.mark.parametrize("groups", [1, 3, "auto"])
def test_permuted_examples(groups, regulariser):
    for model, (X, _, truth) in [
        (Assignment(), matchings(n=10)),
        (Chain(n_states=4), sequences(n=10)),
    ]:
        order = np.random.default_rng(1).permutation(10)
        svm = StructuredSVM(
            model, lam=0.1, regulariser=regulariser, algorithm=Algorithm(groups=groups)
        )
        one = svm.fit(X, truth).result_
        other = svm.fit([X[i] for i in order], [truth[i] for i in order]).result_
        assert one.objective == pytest.approx(other.objective, abs=1e-3)


# "Ties in the argmax → deterministic."
@every_model
def test_ties(name):
    model, X, Y = small_problem(name)
    if name == "program":
        X = [Program(np.ones_like(x.features), x.A, x.lower, x.upper) for x in X]
    else:
        X = mapped_floats([*X] if name != "multiclass" else X, np.ones_like)
    for loss in ("bridge", "ramp", "pair"):
        svms = [
            StructuredSVM(model, lam=0.1, loss=loss, random_state=0).fit(X, Y)
            for _ in range(3)
        ]
        for svm in svms[1:]:
            np.testing.assert_array_equal(svm.coef_, svms[0].coef_)
            assert svm.result_.passes == svms[0].result_.passes
            for one, other in zip(svm.predict(X), svms[0].predict(X), strict=True):
                np.testing.assert_array_equal(one, other)


# "The argmax raises in mid-fit → it propagates and the state is usable."
@pytest.mark.parametrize("at", [1, 2, 4, 7])
def test_the_argmax_raises_in_mid_fit(at):
    def fail(count):
        if count == at:
            raise ZeroDivisionError("in the argmax")

    plain = assignment_task(n=6, known=0.7)
    start = np.full(6, 0.1)
    first = learn(plain, BRIDGE, 0.1, start=start)
    offsets, alpha, w = (
        first.bundle.offsets.copy(),
        first.bundle.alpha.copy(),
        first.w.copy(),
    )
    failing = Counted(plain, fail)
    with pytest.raises(ZeroDivisionError):
        learn(failing, BRIDGE, 0.01, warm_start=first, start=start)
    np.testing.assert_array_equal(first.bundle.offsets, offsets)
    np.testing.assert_array_equal(first.bundle.alpha, alpha)
    np.testing.assert_array_equal(first.w, w)
    assert (
        learn(failing, BRIDGE, 0.1, warm_start=first).passes <= 2
    )  # the same task, whose fault is over
    untroubled = learn(plain, BRIDGE, 0.01, warm_start=first, start=start)
    np.testing.assert_array_equal(
        learn(failing, BRIDGE, 0.01, warm_start=first, start=start).w, untroubled.w
    )


# "The argmax returns a worse output than it could → the negative gap is noticed and said."
class Forgetful(Table):
    """Its first answers are right; later it only looks at every second output."""

    calls = 0

    def argmax(self, x, w, annotation, space, loss_weight):
        self.calls += 1
        y = super().argmax(x, w, annotation, space, loss_weight)
        if space is Space.ALL and self.calls > 60 and annotation is not None:
            scores = x.features @ w + loss_weight * annotation.loss
            scores[::2] = -np.inf
            return int(np.argmax(scores))
        return y


def test_an_argmax_that_returns_less_than_it_could():
    X, Y = table_data(np.random.default_rng(0), n=10, m=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        with pytest.warns(InexactArgmaxWarning, match="not exact"):
            result = learn(
                ExampleTask(Forgetful(4), X, Y),
                HINGE,
                0.01,
                algorithm=Algorithm(max_passes=60),
            )
    assert result.inexactness > 0
    assert not result.is_optimal(np.inf)
    assert np.isfinite(result.w).all()
    exact = learn(ExampleTask(Table(4), X, Y), HINGE, 0.01)
    assert exact.inexactness == 0


# "Singular master problem → solved, residuals reported."
@REGULARISERS
@pytest.mark.parametrize("solver", ["interior-point", "ascent"])
def test_a_singular_master_problem(solver, regulariser):
    rng = np.random.default_rng(0)
    bundle, low_rank = Bundle(6, np.arange(3)), rng.normal(size=(1, 6))
    for _ in range(
        8
    ):  # all slopes are multiples of one vector, and every bound is there twice
        linear = as_linear(
            rng.normal(size=(3, 1)) * low_rank, rng.normal(size=3), np.zeros(6)
        )
        bundle.add(linear, np.zeros(6))
        bundle.add(linear, np.zeros(6))
    solved = solve_model_update(
        bundle, np.zeros(6), 0.3, regulariser, 100.0, 1e-7, solver
    )
    assert np.isfinite(solved.w).all()
    assert -1e-9 <= solved.residual <= 1e-5

    X, Y, _ = matchings(n=8, rows=3)
    X = [np.repeat(x[..., :1], 6, axis=-1) for x in X]
    result = StructuredSVM(
        Assignment(),
        lam=1e-3,
        regulariser=regulariser,
        algorithm=Algorithm(solver=solver),
    )
    result = result.fit(X, Y).result_
    assert result.converged
    assert np.isfinite(result.residual)
    assert result.residual <= 1e-3


# "Iteration or time limit → NotConverged status with the best w and its gap."
@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_passes": 4}, Status.PASS_LIMIT), ({"time_limit": 1e-9}, Status.TIME_LIMIT)],
)
@REGULARISERS
def test_limits(limit, status, regulariser):
    X, _, truth = matchings(n=8)
    svm = StructuredSVM(
        Assignment(),
        lam=1e-3,
        regulariser=regulariser,
        algorithm=Algorithm(tol=1e-6, eta=1e-6, **limit),
    )
    with pytest.warns(NotConvergedWarning, match=status.value):
        result = svm.fit(X, truth).result_
    assert result.status is status
    assert not result.converged
    assert result.gap > 1e-6
    assert result.objective - result.lower_bound == pytest.approx(result.gap)
    exact = (
        StructuredSVM(Assignment(), lam=1e-3, regulariser=regulariser)
        .fit(X, truth)
        .result_
    )
    assert result.lower_bound <= exact.objective + 1e-9
    at_zero = loss_values(
        Assignment().prepare(X, truth).task(X, truth), HINGE, np.zeros(6)
    ).mean()
    assert result.objective <= at_zero + 1e-12
    with pytest.raises(NotConverged, match=status.value):
        result.require()
    svm.predict(X)


# "Ctrl-C → the best iterate is kept."
def interrupt_at(k):
    def before(count):
        if count == k:
            raise KeyboardInterrupt

    return before


@pytest.mark.parametrize("k", [2, 3, 5, 8, 12])
def test_ctrl_c_keeps_the_best_iterate(k):
    plain = assignment_task(n=8, known=1.0)
    task = Counted(plain, interrupt_at(k))
    start = np.full(6, 0.01)
    with pytest.warns(NotConvergedWarning, match="interrupted"):
        result = learn(
            task, HINGE, 1e-3, algorithm=Algorithm(tol=1e-7, eta=1e-7), start=start
        )
    assert result.status is Status.INTERRUPTED
    assert task.calls <= k + 2
    assert np.isfinite(result.w).all()
    value = 5e-4 * result.w @ result.w + loss_values(plain, HINGE, result.w).mean()
    assert result.objective == pytest.approx(value, rel=1e-9)
    assert (
        result.objective
        <= 5e-4 * start @ start + loss_values(plain, HINGE, start).mean() + 1e-12
    )
    assert learn(plain, HINGE, 1e-3, warm_start=result).converged


class Interrupted(Table):
    """Its argmax is interrupted once, at the k-th call."""

    k = calls = 0

    def argmax(self, *arguments):
        type(self).calls += 1
        if type(self).calls == type(self).k:
            raise KeyboardInterrupt
        return super().argmax(*arguments)


def test_ctrl_c_in_an_estimator_keeps_the_best_iterate():
    X, Y = table_data(np.random.default_rng(0), n=10)
    Interrupted.calls, Interrupted.k = 0, 55
    svm = StructuredSVM(
        Interrupted(4), lam=1e-4, algorithm=Algorithm(tol=1e-8, eta=1e-8), start="zero"
    )
    with (
        pytest.warns(NotConvergedWarning, match="interrupted"),
        suppress(KeyboardInterrupt),
    ):
        svm.fit(X, Y)
    assert svm.result_.status is Status.INTERRUPTED
    assert Interrupted.calls < 55 + 45
    assert len(svm.predict(X)) == 10


def test_ctrl_c_while_lambda_is_chosen_ends_the_fit():
    X, Y = table_data(np.random.default_rng(0), n=10)
    Interrupted.calls, Interrupted.k = 0, 10**9
    StructuredSVM(Interrupted(4), random_state=0).fit(X, Y)
    all_calls = Interrupted.calls
    Interrupted.calls, Interrupted.k = 0, all_calls // 4
    svm = StructuredSVM(Interrupted(4), random_state=0)
    with warnings.catch_warnings(), suppress(KeyboardInterrupt):
        warnings.simplefilter("ignore", NotConvergedWarning)
        svm.fit(
            X, Y
        )  # nothing is fitted yet: to end is right, and to keep something is too
    assert Interrupted.calls <= all_calls // 4 + 60


def test_ctrl_c_during_the_start_on_the_annotated_parts_ends_the_fit(monkeypatch):
    X, Y, _ = matchings(n=10, known=0.5)
    made = []
    task = Assignment.task

    def counted(self, X, Y, n_jobs=1):
        plain = task(self, X, Y, n_jobs)
        whole, part = Counted(plain), Counted(plain.annotated_part(), interrupt_at(4))
        whole.annotated_part = lambda: part
        made.append(whole)
        return whole

    monkeypatch.setattr(Assignment, "task", counted)
    svm = StructuredSVM(Assignment(), lam=0.01, start="auto")
    with (
        pytest.warns(NotConvergedWarning, match="interrupted"),
        suppress(KeyboardInterrupt),
    ):
        svm.fit(X, Y)
    assert made[-1].calls <= 3


# "1 thread or 2, here or on a cluster → the same w."
@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_one_thread_or_two():
    X, Y = programs(n=8)
    for loss in ("bridge", "pair"):
        one, two = (
            StructuredSVM(BinaryProgram(), lam=0.1, loss=loss, n_jobs=jobs).fit(X, Y)
            for jobs in (1, 2)
        )
        np.testing.assert_array_equal(one.coef_, two.coef_)
        np.testing.assert_array_equal([*one.predict(X)], [*two.predict(X)])


@pytest.mark.parametrize("name", ["program", "chain", "assignment"])
def test_here_or_on_a_cluster(client, name):
    model, X, Y = small_problem(name)
    # workers answer whole batches, so that only exact steps are the same on both sides
    exact = Algorithm(stochastic=False)
    here = StructuredSVM(model, lam=0.1, algorithm=exact).fit(X, Y)
    there = StructuredSVM(model, lam=0.1, algorithm=exact).fit(X, Y, client=client)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-9, atol=1e-12)
    assert there.result_.objective == pytest.approx(here.result_.objective, rel=1e-9)
    perceptrons = [
        StructuredPerceptron(model, max_epochs=3, random_state=0) for _ in range(2)
    ]
    np.testing.assert_allclose(
        perceptrons[0].fit(X, Y).coef_,
        perceptrons[1].fit(X, Y, client=client).coef_,
        atol=1e-12,
    )


def test_every_error_is_of_one_family():
    for error in (InputError, InfeasibleAnnotation, NotConverged):
        assert issubclass(error, ClewError)
