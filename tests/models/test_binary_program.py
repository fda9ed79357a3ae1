import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.initialization import Initializer
from clew.learning.losses import LOSSES
from clew.learning.task import Space
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import Program
from clew.models.linear_program import find_minimal_conflict

from ..helpers.effort import sweep


def one_of_each_pair(n=6, seed=0):
    """Variables 2i and 2i+1 exclude each other, exactly one of them is 1."""
    A = np.kron(np.eye(n // 2), np.ones((1, 2)))
    return Program(
        np.random.default_rng(seed).normal(size=(n, 3)),
        sp.csr_array(A),
        np.ones(n // 2),
        np.ones(n // 2),
    )


def changed(x, **fields):
    return Program(**{**vars(x), **fields})


@pytest.fixture
def x():
    return one_of_each_pair()


@pytest.fixture
def model(x):
    return BinaryProgram().prepare([x], [None])


def test_what_follows_from_the_annotation_is_determined(x, model):
    part = model.task([x, x], [{0: 1}, None]).annotated_part()
    w = np.array([1.0, -2.0, 0.5])
    answer = part.argmax(w, Space.COMPATIBLE, 0.0)
    # variable 1 must be 0; the other pairs are open
    np.testing.assert_allclose(answer.features.toarray(), [x.features[0], np.zeros(3)])
    best = part.argmax(w, Space.ALL, 0.0).values(w, 0.0)
    np.testing.assert_allclose(best, [max(x.features[0] @ w, x.features[1] @ w), 0])
    assert model.task([x], [None]).annotated_part() is None


def test_annotations_that_leave_one_output_are_known_to_be_convex(x, model):
    whole = {0: 1, 2: 0, 5: 1}
    for annotations, one_each in (
        ([whole, whole], True),
        ([whole, {0: 1}], False),
        ([whole, None], False),
    ):
        task = model.task([x, x], annotations)
        assert task.determined is one_each
        start = Initializer(task, LOSSES["hinge"])
        assert (start.part is None and start.contrast is None) is one_each
        assert bool(task.programs) is False  # nobody had to ask


def test_an_annotated_part_has_the_determined_variables_alone(x, model):
    whole = model.task([x, x], [{0: 1}, None])
    part = whole.annotated_part()
    assert [example.A.shape for example in part.examples] == [(1, 2), (0, 0)]
    for w in np.random.default_rng(0).normal(size=(5, 3)):
        part.argmax(w, Space.COMPATIBLE, 1.0)
        assert (0, Space.COMPATIBLE) not in part.programs  # there is nothing to decide
    assert part.argmax(w, Space.INCOMPATIBLE, 1.0).found.tolist() == [True, False]


@sweep(20, 200)
def test_open_variables_take_nothing_away_from_an_annotated_part(n):
    """Against all outputs: the part's maximum is never less than that over known variables, and often the same."""
    rng, same, parts = np.random.default_rng(1), 0, 0
    for _ in range(n):
        A = sp.csr_array(rng.choice([-1.0, 0.0, 0.0, 1.0], size=(4, 8)))
        sums = A @ rng.integers(0, 2, 8)  # so that there is an output
        x = Program(
            rng.normal(size=(8, 3)),
            A,
            sums - rng.integers(0, 2, 4),
            sums + rng.integers(0, 2, 4),
        )
        model = BinaryProgram().prepare([x], [None])
        outputs = np.array(list(model.outputs(x)))
        chosen = rng.choice(8, 3, replace=False)
        known = dict(zip(chosen.tolist(), outputs[0, chosen].tolist(), strict=True))
        task = model.task([x], [known])
        part = task.annotated_part()
        if part is None:
            continue
        determined = task.examples[0].determined >= 0
        w = rng.normal(size=3)
        scores = (outputs * determined) @ x.features @ w + [
            model.loss(known, y) for y in outputs
        ]
        found = part.argmax(w, Space.ALL, 1.0).values(w, 1.0)[0]
        assert found >= scores.max() - 1e-9
        parts, same = parts + 1, same + (found <= scores.max() + 1e-9)
        rewarded = part.argmax(w, Space.COMPATIBLE, 0.0)
        np.testing.assert_allclose(
            rewarded.features.toarray()[0],
            (outputs[0] * determined) @ x.features,
            atol=1e-12,
        )
    assert same > parts / 4 > n / 8


def test_a_conflict_names_a_minimal_set_of_variables(x, model):
    task = model.task([x, x], [None, {0: 1, 2: 0, 3: 0, 4: 1}])
    with pytest.raises(
        InfeasibleAnnotation, match=r"example 1: .*variable 2 = 0, variable 3 = 0$"
    ) as caught:
        task.argmax(np.ones(3), Space.COMPATIBLE, 0.0)
    assert (caught.value.example, caught.value.parts) == (1, (2, 3))
    assert task.argmax(np.ones(3), Space.INCOMPATIBLE, 0.0).found[
        1
    ]  # the rest of the task is usable


def test_minimal_conflict_finds_each_of_many_hidden_sets():
    for hidden in ({3}, {0, 99}, {17, 18, 60}, set(range(5))):
        assert (
            set(
                find_minimal_conflict(
                    range(100), lambda parts, hidden=hidden: not hidden <= set(parts)
                )
            )
            == hidden
        )


def test_a_programme_without_outputs_is_named(x, model):
    impossible = changed(x, lower=np.full(3, 3.0), upper=np.full(3, 4.0))
    for annotation in (None, {0: 1}):
        with pytest.raises(
            InputError, match=r"example 1: no output satisfies the rows"
        ):
            model.task([x, impossible], [None, annotation]).argmax(
                np.ones(3), Space.COMPATIBLE, 0.0
            )
    with pytest.raises(InputError, match=r"example 1"):
        model.predict([x, impossible], np.ones(3))


def test_everything_incompatible_or_nothing(x, model):
    forced = Program(np.ones((1, 3)), sp.csr_array([[1.0]]), [1.0], [1.0])
    answer = model.task([x, forced, forced], [None, {0: 1}, {0: 0}]).argmax(
        np.ones(3), Space.INCOMPATIBLE, 1.0
    )
    np.testing.assert_array_equal(answer.found, [False, False, True])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": np.zeros((5, 3))}, "features has shape"),
        ({"features": np.zeros((6, 4))}, "4 features"),
        ({"features": np.zeros(6)}, "features has shape"),
        ({"features": np.full((6, 3), np.nan)}, "nan at index"),
        (
            {"features": sp.csr_array(np.diag([0, 0, np.inf, 0, 0, 0])[:, :3])},
            "variable 2",
        ),
        ({"lower": np.ones(4)}, "lower has shape"),
        ({"upper": [1, np.nan, 1]}, "upper has NaN at row 1"),
        ({"A": sp.csr_array(np.full((3, 6), np.inf))}, "row 0 of A"),
    ],
)
def test_malformed_programmes_are_refused(x, model, fields, message):
    with pytest.raises(
        InputError, match=f"example 1: {message}|example 1: .*{message}"
    ):
        model.task([x, changed(x, **fields)], [None, None])


def test_other_inputs_are_refused(x, model):
    with pytest.raises(InputError, match="example 1 is a list"):
        model.prepare([x, [1]], [None, None])
    with pytest.raises(InputError, match="listed"):
        next(model.outputs(one_of_each_pair(30)))


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({6: 1}, "variable 6"),
        ({"0": 1}, "variable '0'"),
        ({0: 2}, "variable 0 is annotated 2"),
        ({0: -1}, "variable 0 is annotated -1"),
        ([0, 1, 2, 0, 0, 0], "variable 2 is annotated 2"),
        ([0, 1, np.nan, 0, 0, 0], "variable 2 is annotated nan"),
        ([0, 1], "shape"),
    ],
)
def test_malformed_annotations_are_refused(x, model, annotation, message):
    with pytest.raises(InputError, match=f"example 0: .*{message}"):
        model.task([x], [annotation])


def test_number_types_and_orders_give_the_same_keys_and_answers(model):
    x = changed(one_of_each_pair(), features=np.round(3 * one_of_each_pair().features))
    read_only = x.features.copy()
    read_only.setflags(write=False)
    row, column = x.A.nonzero()
    twice = sp.csr_array(
        (
            np.full(12, 0.5),
            np.tile(column, 2)[np.argsort(np.tile(row, 2), kind="stable")],
            [0, 4, 8, 12],
        )
    )
    w = np.array([0.3, -1.0, 0.7])
    expected = model.task([x], [{0: 1}])
    for features in (
        x.features.astype(np.float32),
        x.features.astype(int),
        np.asfortranarray(x.features),
        read_only,
    ):
        for A in (x.A, x.A.tocsc(), x.A.tocoo(), x.A.toarray(), twice):
            task = model.task(
                [changed(x, features=features, A=A)],
                [np.array([1, -1, -1, -1, -1, -1])],
            )
            assert task.keys == expected.keys
            for space in Space:
                one, other = task.argmax(w, space, 1.0), expected.argmax(w, space, 1.0)
                np.testing.assert_array_equal(
                    one.features.toarray(), other.features.toarray()
                )
    assert not twice.has_canonical_format  # the caller's matrix is untouched
    sparse = model.task([changed(x, features=sp.csc_array(x.features))], [{0: 1}])
    np.testing.assert_allclose(
        sparse.argmax(w, Space.ALL, 1.0).features.toarray(),
        expected.argmax(w, Space.ALL, 1.0).features.toarray(),
    )
    np.testing.assert_allclose(
        sparse.annotated_part().argmax(w, Space.ALL, 1.0).features.toarray(),
        expected.annotated_part().argmax(w, Space.ALL, 1.0).features.toarray(),
    )


def test_an_annotation_that_leaves_one_output_asks_no_solver(x, model):
    w, only = np.array([1.0, -2.0, 0.5]), np.array([1, 0, 0, 1, 1, 0])
    task = model.task([x, x], [{0: 1, 2: 0, 4: 1}, {0: 1, 2: 0}])
    answer = task.argmax(w, Space.COMPATIBLE, 0.0)
    np.testing.assert_allclose(answer.features.toarray()[0], x.features.T @ only)
    np.testing.assert_array_equal(answer.loss, 0.0)
    assert answer.values(w, 0.0)[1] == pytest.approx(
        x.features[[0, 3]].sum(axis=0) @ w + (x.features[4:] @ w).max()
    )
    assert set(task.programs) == {(1, Space.COMPATIBLE)}
    # all variables follow row by row here too, but from rows that cannot hold together
    rows = sp.csr_array(np.vstack([x.A.toarray(), np.ones((1, 6))]))
    four = changed(
        x, A=rows, lower=np.append(x.lower, 4.0), upper=np.append(x.upper, 4.0)
    )
    with pytest.raises(InputError):
        model.task([four], [{0: 1, 2: 0, 4: 1}]).argmax(w, Space.COMPATIBLE, 0.0)


def test_a_task_can_be_pickled_without_its_solvers(x, model):
    task = model.task([x], [{0: 1}])
    w = np.array([0.3, -1.0, 0.7])
    expected = task.argmax(w, Space.ALL, 1.0).features.toarray()
    other = pickle.loads(pickle.dumps(task))
    assert task.programs
    assert not other.programs
    for each in (task, other):
        np.testing.assert_array_equal(
            each.argmax(w, Space.ALL, 1.0).features.toarray(), expected
        )


def test_parameters_survive_clone_and_normalize_divides_the_loss(x):
    assert clone(BinaryProgram(normalize=False)).get_params() == {"normalize": False}
    y = [0, 1, 1, 0, 1, 0]
    assert BinaryProgram(normalize=False).loss({0: 1, 2: 1}, y) == 1.0
    assert BinaryProgram().loss({0: 1, 2: 1}, y) == 0.5
    assert BinaryProgram().loss(None, y) == 0.0
