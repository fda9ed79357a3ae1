import numpy as np
import pytest

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Space
from clew.models.assignment import Assignment


@pytest.fixture(name="X")
def inputs():
    return np.random.default_rng(0).normal(size=(2, 3, 4, 2))


@pytest.fixture
def model(X):
    return Assignment().prepare(X, [None, None])


@pytest.mark.parametrize(
    ("annotation", "rows"),
    [
        ([2, 2, None], (0, 1)),
        ([1, {1, 2}, 2], (0, 1, 2)),
        ([{0, 1}, {0, 1}, [0, 1]], (0, 1, 2)),
        ([0, -1, {0}], (0, 2)),
    ],
)
def test_a_conflict_names_the_rows_that_share_too_few_columns(
    X, model, annotation, rows
):
    with pytest.raises(InfeasibleAnnotation, match="example 1: rows") as caught:
        model.task(X, [None, annotation]).argmax(np.ones(2), Space.COMPATIBLE, 0.0)
    assert (caught.value.example, caught.value.parts) == (1, rows)


def test_an_empty_candidate_set_is_infeasible(X, model):
    with pytest.raises(
        InfeasibleAnnotation, match="example 1, position 2: the candidate set is empty"
    ) as caught:
        model.task(X, [None, [0, 1, set()]])
    assert caught.value.parts == (2,)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ([0, 1], "2 columns are given; expected 3"),
        ([0, 1, 4], "column 4"),
        ([0, 1, {2, 9}], "column 9"),
        ([0, 1, -2], "column -2 is not one of the 4 columns"),
        ([0, "b", 1], "column 'b'"),
        ([0, 1.5, 1], "column 1.5"),
    ],
)
def test_malformed_annotations_are_refused(X, model, annotation, message):
    with pytest.raises(InputError, match=f"example 1.*{message}"):
        model.task(X, [None, annotation])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 4)), "has shape"),
        (np.zeros((3, 2, 2)), "3 rows and 2 columns"),
        (np.zeros((3, 4, 5)), "5 features"),
        (np.full((3, 4, 2), np.inf), "inf at index"),
    ],
)
def test_malformed_inputs_are_refused(X, model, x, message):
    with pytest.raises(InputError, match=f"example 1.*{message}"):
        model.task([X[0], x], [None, None])


def test_only_rows_with_one_candidate_are_determined(X, model):
    part = model.task(X, [[2, {0, 1}, None], None]).annotated_part()
    w = np.array([1.0, -0.5])
    answer = part.argmax(w, Space.COMPATIBLE, 0.0)
    np.testing.assert_allclose(answer.features.toarray(), [X[0, 0, 2], [0, 0]])
    assert part.argmax(w, Space.ALL, 0.0).values(w, 0.0) == pytest.approx(
        [(X[0, 0] @ w).max(), 0]
    )
    assert model.task(X, [[{1, 2}, {0, 1}, None], None]).annotated_part() is None


def test_larger_assignments_in_all_spaces_agree():
    """max over Y is the larger of max over Y* and max over Y°."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3, 20, 25, 4))
    Y = [np.where(rng.random(20) < 0.4, rng.permutation(25)[:20], -1) for _ in X]
    task = Assignment().prepare(X, Y).task(X, Y)
    for w in rng.normal(size=(4, 4)):
        for weight in (-5.0, 0.0, 5.0):
            every, inside, outside = (
                task.argmax(w, space, weight).values(w, weight) for space in Space
            )
            np.testing.assert_allclose(every, np.maximum(inside, outside))
