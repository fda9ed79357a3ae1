"""Models of one's own: the example in the documentation, and what a model can get wrong."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

import clew
from clew import StructuredSVM
from clew.errors import InfeasibleAnnotation, InputError, MissingCapability
from clew.learning.cccp import Algorithm, learn
from clew.learning.losses import LOSSES
from clew.learning.task import Space
from clew.models import check_model
from clew.models.base import ExampleTask, StructuredModel

from ..learning.problems import Choice, Known, Table, table_data

PAGE = Path(__file__).parents[2] / "docs" / "own-model.md"


def test_the_example_of_the_documentation_is_short_and_runs():
    if not PAGE.exists():
        pytest.skip("docs/own-model.md is not written yet")
    blocks = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert blocks, "docs/own-model.md has no python block"
    assert len(blocks[0].splitlines()) < 60  # of 88 columns
    exec(compile(blocks[0], str(PAGE), "exec"), {"__name__": "example"})


def fit(model, X, Y, **settings):
    return StructuredSVM(model, **{"lam": 0.1, "loss": "hinge", **settings}).fit(X, Y)


@pytest.fixture
def data():
    return table_data(np.random.default_rng(0))


def test_three_methods_and_a_number_are_enough(data):
    assert isinstance(Table(4), StructuredModel)
    for loss in LOSSES:
        svm = fit(Table(4), *data, loss=loss)
        assert svm.result_.converged
        assert len(svm.predict(data[0])) == len(data[0])


def test_features_of_the_wrong_length_are_refused(data):
    with pytest.raises(
        InputError, match=r"example 0: joint_features gave shape \(4,\).*\(5,\)"
    ):
        fit(type("Longer", (Table,), {"argmax": lambda self, x, w, *rest: 0})(5), *data)


@pytest.mark.parametrize("bad", [None, 0, 2.5, "many"])
def test_a_number_of_features_that_is_none_is_refused(data, bad):
    with pytest.raises(
        InputError,
        match=r"the model's n_features is .*; expected a whole number of at least 1",
    ):
        fit(
            type("Odd", (Table,), {"n_features": bad, "__init__": lambda self: None})(),
            *data,
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(data, bad):
    X, Y = data
    X[3].features[:] = bad
    model = type(
        "First",
        (Table,),
        {"argmax": lambda self, x, w, a, space, weight: int(np.argmax(a.compatible))},
    )(4)
    with pytest.raises(
        InputError, match="example 3: joint_features gave NaN or infinity"
    ):
        fit(model, X, Y)


@pytest.mark.parametrize("bad", [-0.5, np.nan, None, "one", [1.0, 2.0]])
def test_a_task_loss_that_is_negative_or_no_number_is_refused(data, bad):
    X, Y = data
    model = type("Negative", (Table,), {"loss": lambda self, annotation, y: bad})(4)
    with pytest.raises(InputError, match="example 0: the task loss must be ≥ 0"):
        fit(model, X, Y)


def test_a_false_promise_about_compatible_outputs_is_noticed():
    X, Y = table_data(np.random.default_rng(0), zero_on_compatible=False)
    with pytest.raises(InputError, match=r"example 0: .*loss_zero_iff_compatible.*Y\*"):
        fit(Table(4, loss_zero_iff_compatible=True), X, Y, loss="bridge")
    assert fit(Table(4), X, Y, loss="bridge").result_.converged


def test_a_false_promise_about_incompatible_outputs_is_noticed_where_they_are_searched(
    data,
):
    X, Y = data
    Y = [Known(y.compatible, np.zeros_like(y.loss)) for y in Y]
    with pytest.raises(InputError, match=r"loss_zero_iff_compatible.*Y°"):
        fit(
            Table(4, loss_zero_iff_compatible=True),
            X,
            Y,
            loss="bridge",
            algorithm=Algorithm(identities=False),
        )


def test_an_annotation_without_any_output_names_the_example(data):
    X, Y = data
    Y[5] = Known(np.zeros(6, dtype=bool), np.ones(6))
    with pytest.raises(
        InfeasibleAnnotation, match=r"example 5: no output in Y\*"
    ) as caught:
        fit(Table(4), X, Y)
    assert caught.value.example == 5


def test_no_output_at_all_names_the_example():
    model = type("Nothing", (Table,), {"argmax": lambda *_: None})(4)
    with pytest.raises(InfeasibleAnnotation, match="example 0: no output in Y"):
        fit(model, *table_data(np.random.default_rng(0)), loss="ramp")


def test_a_search_that_is_not_offered_is_named(data):
    model = Table(4, frozenset({Space.ALL, Space.COMPATIBLE}))
    with pytest.raises(MissingCapability, match=r"bridge.*Y°"):
        fit(model, *data, loss="bridge")
    assert fit(model, *data).result_.converged


class Failing(Table):
    """Raises at its k-th argmax."""

    def __init__(self, n_features, at=10**9):
        super().__init__(n_features)
        self.at = at

    def argmax(self, x, w, annotation, space, loss_weight):
        type(self).calls += 1
        if type(self).calls == self.at:
            raise OSError("the solver's licence ran out")
        return super().argmax(x, w, annotation, space, loss_weight)


@pytest.mark.parametrize("at", [1, 30, 100])
def test_an_argmax_that_raises_in_mid_fit_leaves_estimator_and_warm_start_usable(
    data, at
):
    X, Y = data
    Failing.calls = 0
    good = fit(Table(4), X, Y)
    warm, w = good.result_, good.coef_.copy()
    offsets = warm.bundle.offsets.copy()
    svm = StructuredSVM(Failing(4), lam=0.01, loss="hinge")
    svm.fit(X, Y)
    coef = svm.coef_.copy()
    Failing.calls = 0
    svm.model.at = at
    with pytest.raises(OSError, match="licence"):
        svm.set_params(lam=0.02).fit(X, Y)
    np.testing.assert_array_equal(svm.coef_, coef)
    svm.predict(X)
    Failing.calls = 0
    with pytest.raises(OSError, match="licence"):
        learn(
            ExampleTask(Failing(4, at), X, Y),
            LOSSES["hinge"],
            0.01,
            warm_start=warm,
            start=np.zeros(4),
        )
    np.testing.assert_array_equal(warm.bundle.offsets, offsets)
    np.testing.assert_array_equal(warm.w, w)
    assert fit(Table(4), X, Y).fit(X, Y, warm_start=warm).result_.passes <= 2
    svm.model.at = 10**9
    assert svm.fit(X, Y).result_.converged


class Scaled:
    """A model whose features depend on an attribute that is no parameter in scikit-learn's sense."""

    n_features = 4

    def __init__(self, scale):
        self.scale = scale

    def joint_features(self, x, y):
        return self.scale * x.features[y]

    def loss(self, annotation, y):
        return annotation.loss[y]

    def argmax(self, x, w, annotation, space, loss_weight):
        return Table(4).argmax(
            Choice(self.scale * x.features), w, annotation, space, loss_weight
        )


def test_bounds_of_a_model_with_other_attributes_are_not_reused(data):
    X, Y = data
    large = fit(Scaled(10.0), X, Y).result_
    cold = fit(Scaled(0.1), X, Y).result_
    warm = (
        StructuredSVM(Scaled(0.1), lam=0.1, loss="hinge", start=np.zeros(4))
        .fit(X, Y, warm_start=large)
        .result_
    )
    assert warm.inexactness == 0
    assert warm.objective == pytest.approx(cold.objective, abs=2e-3)


class Opaque:
    """An input that prints like every other one."""

    def __init__(self, features):
        self.features = features

    def __repr__(self):
        return "Opaque(…)"


def test_inputs_of_any_class_are_recognised_by_their_content(data):
    X, Y = data
    first = fit(Table(4), [Opaque(x.features) for x in X], Y).result_
    again = StructuredSVM(Table(4), lam=0.1, loss="hinge").fit(
        [Opaque(x.features.copy()) for x in X], Y, warm_start=first
    )
    assert again.result_.passes <= 2


def test_inputs_that_cannot_be_compared_are_like_no_other(data):
    X, Y = data
    circular = [Opaque(x.features) for x in X]
    for x in circular:
        x.itself = x
    locked = [Opaque(x.features) for x in X]
    for x in locked:
        x.lock = Lock()
    for inputs in (circular, locked):
        assert len(set(ExampleTask(Table(4), inputs * 2, Y * 2).keys)) == 2 * len(X)
        assert fit(Table(4), inputs, Y).result_.converged


def test_arrays_are_recognised_by_their_values():
    x = np.array([[-1.0, 0.0], [2.0, 3.0]])
    same = [x.astype(np.int16), x.astype(np.float32), x.T.copy().T]
    same.append(np.where(x == 0, -0.0, x))
    keys = ExampleTask(Table(4), [x, *same, x + 1], [0] * 6).keys
    assert len(set(keys[:-1])) == 1
    assert keys[-1] != keys[0]


def test_inputs_that_print_alike_are_not_taken_for_the_same(data):
    X, Y = data
    one = [Opaque(10 * x.features) for x in X]
    other = [Opaque(0.1 * x.features) for x in X]
    first = fit(Table(4), one, Y).result_
    cold = fit(Table(4), other, Y).result_
    warm = (
        StructuredSVM(Table(4), lam=0.1, loss="hinge", start=np.zeros(4))
        .fit(other, Y, warm_start=first)
        .result_
    )
    assert warm.inexactness == 0
    assert warm.objective == pytest.approx(cold.objective, abs=2e-3)


def test_loss_that_a_model_cannot_search_is_refused_before_it_is_asked():
    class Sign:
        """Two outputs, without a search in Y°."""

        n_features = 1
        spaces = frozenset({Space.ALL, Space.COMPATIBLE})
        loss_zero_iff_compatible = True

        def joint_features(self, x, y):
            return np.array([x * y])

        def loss(self, annotation, y):
            return float(annotation != y)

        def argmax(self, x, w, annotation, space, loss_weight):
            raise AssertionError("asked before the refusal")

    for lam in (1.0, "auto"):
        with pytest.raises(MissingCapability, match="'pair' searches Y°"):
            StructuredSVM(Sign(), loss="pair", lam=lam).fit([1.0, -1.0], [1, -1])


class Ordinal:
    """Labels 0 < … < 3 along a chain, each annotated by an interval (lowest, highest)."""

    n_features = 6
    loss_zero_iff_compatible = True

    def joint_features(self, x, y):
        steps = np.bincount(np.abs(np.diff(y)), minlength=4)
        return np.concatenate([y @ x, steps]).astype(float)

    def loss(self, annotation, y):
        low, high = np.transpose(annotation)
        return float((np.maximum(low - y, 0) + np.maximum(y - high, 0)).sum())

    def outputs(self, x):
        return (np.array(y) for y in product(range(4), repeat=len(x)))

    def argmax(self, x, w, annotation, space, loss_weight):
        best = None
        for y in self.outputs(x):
            loss = 0.0 if annotation is None else self.loss(annotation, y)
            if not (space is Space.ALL or (loss > 0) == (space is Space.INCOMPATIBLE)):
                continue
            value = w @ self.joint_features(x, y) + loss_weight * loss
            if best is None or value > best[0]:
                best = value, y
        return None if best is None else best[1]

    def n_parts(self, annotation):
        return int((np.ptp(annotation, axis=1) < 3).sum())

    def mistakes(self, annotation, y):
        return int((self.candidates(None, annotation)[np.arange(len(y)), y] == 0).sum())

    def hide(self, annotation, parts):
        hidden = np.array(annotation)
        hidden[np.flatnonzero(np.ptp(hidden, axis=1) < 3)[parts]] = 0, 3
        return hidden

    def candidates(self, x, annotation):
        low, high = np.transpose(annotation)[:, :, None]
        return (np.arange(4) >= low) & (np.arange(4) <= high)

    def max_marginals(self, X, w, n_jobs=1):
        tables = []
        for x in X:
            table = np.full((len(x), 4), -np.inf)
            for y in self.outputs(x):
                cells = np.arange(len(x)), y
                table[cells] = np.maximum(table[cells], w @ self.joint_features(x, y))
            tables.append(table - table.max())
        return tables


def test_an_ordinal_chain_learns_from_intervals_and_has_every_optional_method(tmp_path):
    rng = np.random.default_rng(3)
    X = []
    Y = []
    for _ in range(16):
        latent = np.cumsum(rng.normal(size=2))
        X.append(latent[:, None] * [1.0, -0.5] + 0.3 * rng.normal(size=(2, 2)))
        y = np.clip(np.round(latent + 1.5), 0, 3).astype(int)
        width = rng.integers(0, 3, size=(2, 2))
        Y.append(np.clip([y - width[0], y + width[1]], 0, 3).T)
    Y[5] = None  # no method may be asked about it
    model = Ordinal()
    assert check_model(model, X[:3], Y[:3]) == []
    svm = fit(model, X, Y, loss="bridge", random_state=0)

    total = 0.0
    annotated = [(x, a) for x, a in zip(X, Y, strict=True) if a is not None]
    for x, a in annotated:
        outputs = list(model.outputs(x))
        scores = np.array([svm.coef_ @ model.joint_features(x, y) for y in outputs])
        losses = np.array([model.loss(a, y) for y in outputs])
        total += (scores + losses).max() - scores[losses == 0].max()
    objective = 0.05 * svm.coef_ @ svm.coef_ + total / len(annotated)
    assert svm.result_.objective == pytest.approx(objective)
    assert svm.score(X, Y) > 0.7
    (probabilities,) = svm.calibrate(X, Y, folds=2).predict_proba(X[:1])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    svm.save(tmp_path / "ordinal.clew")
    again = clew.load(tmp_path / "ordinal.clew", model=Ordinal())
    for y, same in zip(svm.predict(X), again.predict(X), strict=True):
        np.testing.assert_array_equal(y, same)
    warm = StructuredSVM(model, lam=0.1).fit(X, Y, warm_start=svm)
    assert warm.result_.passes < svm.result_.passes
