from __future__ import annotations

import json

import numpy as np
import pytest

from clew.errors import InfeasibleAnnotation, InputError
from clew.models.labels import LabelSpace

nan = float("nan")


@pytest.mark.parametrize(
    ("annotations", "arguments", "classes"),
    [
        ([[2, 0], [1]], {}, [0, 1, 2]),
        ([np.array([5, -1, 3]), None], {}, [3, 5]),
        ([np.array([5, 3], dtype=np.uint8), ["b", None]], {}, [3, 5, "b"]),
        ([np.array(["b", "a"])], {}, ["a", "b"]),
        (["cab"], {}, ["a", "b", "c"]),
        ([np.array([1.0, nan, 0.0, -1.0])], {}, [0, 1]),
        ([[0.5, nan, 2]], {}, [0.5, 2]),
        ([[None, {3, 1}, [2], (4,), np.array([0])]], {}, [0, 1, 2, 3, 4]),
        ([np.array([True, False])], {}, [False, True]),
        ([np.array([1, 0])], {"n_states": 4}, [0, 1, 2, 3]),
        ([None, [-1, nan]], {"n_states": 2}, [0, 1]),
        ([["b", "a"]], {"n_states": 3}, ["a", "b"]),
        ([[1, 2]], {"n_states": 2}, [1, 2]),
        ([[1, -1, 2]], {}, [1, 2]),
        ([[1, -1]], {"n_states": 2}, [0, 1]),
        ([[1, -1]], {"classes": [-1, 1]}, [-1, 1]),
        ([None], {"classes": np.array(["z", "a"])}, ["z", "a"]),
        ([None], {"classes": {2, 1}}, [1, 2]),
        ([np.eye(3, dtype=bool)], {}, [0, 1, 2]),
        ([[np.array([True, False]), 1]], {}, [0, 1]),
    ],
)
def test_classes(annotations, arguments, classes):
    space = LabelSpace.of(annotations, **arguments)
    assert list(space.classes) == classes
    assert [type(label) for label in space.classes] == [
        type(label) for label in classes
    ]
    assert json.loads(json.dumps(space.classes)) == classes


@pytest.mark.parametrize(
    ("annotations", "arguments", "message"),
    [
        ([None, [None, nan, -1], np.array([-1, -1])], {}, "nothing is annotated"),
        ([np.array([1, -1]), [1]], {}, r"classes=\[-1, 1\]"),
        ([np.array([1.0, -1.0])], {}, r"classes=\[-1, 1\]"),
        ([["a", "b", "c"]], {"n_states": 2}, "3 labels are annotated"),
        ([[1, 2, 3]], {"n_states": 2}, "3 labels are annotated"),
        ([[1]], {"n_states": 0}, "at least 1"),
        ([[1]], {"n_states": 1.5}, "whole number"),
        ([[1]], {"classes": []}, "at least one"),
        ([[1]], {"classes": [1, 1]}, "different"),
        ([[1]], {"classes": [1, None]}, "must be a string"),
        ([[1]], {"classes": {1, None}}, "must be a string"),
        ([[1]], {"classes": {1, (2, 3)}}, "must be a string"),
        ([[1]], {"classes": [1, nan]}, "must be a string"),
        ([[1]], {"classes": [1, 2], "n_states": 3}, "give one of both"),
        ([[b"bytes"]], {}, "must be a string"),
        ([[1], 7], {}, "example 1: a sequence"),
        ([{1, 2}], {}, "example 0: a sequence"),
        ([np.eye(3, dtype=bool)], {"n_states": 4}, "3 columns for 4"),
        ([np.eye(3, dtype=bool), np.eye(2, dtype=bool)], {}, "different lengths"),
        ([np.eye(3, dtype=bool), ["a"]], {}, "should be 3 states"),
    ],
)
def test_refused_classes(annotations, arguments, message):
    with pytest.raises(InputError, match=message):
        LabelSpace.of(annotations, **arguments)


def rows(*states):
    return [[s in allowed for s in range(3)] for allowed in states]


@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        ((0, 1, 2), np.array([2, -1, 0]), rows({2}, {0, 1, 2}, {0})),
        ((0, 1, 2), np.array([2, -1, 0], dtype=np.int8), rows({2}, {0, 1, 2}, {0})),
        ((0, 1, 2), np.array([2.0, nan]), rows({2}, {0, 1, 2})),
        (
            (0, 1, 2),
            [None, {0, 2}, frozenset([1]), [1, 2], (0,), np.array([0, 1])],
            rows({0, 1, 2}, {0, 2}, {1}, {1, 2}, {0}, {0, 1}),
        ),
        (
            (0, 1, 2),
            [np.int64(1), np.float64(nan), np.array([False, True, True])],
            rows({1}, {0, 1, 2}, {1, 2}),
        ),
        ((0, 1, 2), np.array([[True, False, True]]), rows({0, 2})),
        ((-1, 0, 1), np.array([-1, 1]), rows({0}, {2})),
        ((-1, 0, 1), [-1, None, {-1, 1}], rows({0}, {0, 1, 2}, {0, 2})),
        (("a", "b", "c"), np.array(["c", "a"]), rows({2}, {0})),
        (
            ("a", "b", "c"),
            ["c", None, -1, np.str_("b")],
            rows({2}, {0, 1, 2}, {0, 1, 2}, {1}),
        ),
        (("a", "b", "c"), "ba", rows({1}, {0})),
        (("a", "b", "c"), np.array(["c", None], dtype=object), rows({2}, {0, 1, 2})),
    ],
)
def test_allowed(classes, labels, expected):
    space = LabelSpace(classes)
    np.testing.assert_array_equal(space.allowed(labels, len(labels)), expected)


@pytest.mark.parametrize("unknown", [None, nan, -1, np.float32(nan), np.int64(-1)])
def test_a_whole_example_can_be_unknown(unknown):
    assert LabelSpace(("a", "b")).allowed(unknown, 3).all()
    assert LabelSpace.of([unknown, ["a"]]).classes == ("a",)


def place(k):
    return 4, k


@pytest.mark.parametrize("labels", [[1, 0, 9], np.array([1, 0, 9]), [None, 1, {0, 9}]])
def test_a_label_that_is_no_class_is_named_with_its_place(labels):
    with pytest.raises(InputError, match=r"example 4, position 2: label 9"):
        LabelSpace((0, 1)).allowed(labels, 3, place)


@pytest.mark.parametrize("empty", [set(), [], np.array([]), np.array([False, False])])
def test_an_empty_candidate_set_is_infeasible(empty):
    with pytest.raises(InfeasibleAnnotation, match="example 4, position 1") as caught:
        LabelSpace((0, 1)).allowed([0, empty], 2, place)
    assert (caught.value.example, caught.value.parts) == (4, (1,))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 1], "3 labels are given; expected 2"),
        ([0, {1, None}], "unknown marker"),
        ([0, [1, -1]], "unknown marker"),
        ([0, {"a": 1}], "position 1"),
        ([0, np.array([True])], "1 candidate marks for 2"),
        ({0, 1}, "a sequence"),
        (5, "a sequence"),
    ],
)
def test_refused_annotations(labels, message):
    with pytest.raises(InputError, match=message):
        LabelSpace((0, 1)).allowed(labels, 2, place)


@pytest.mark.parametrize(
    "classes", [(3, 5, 9), ("a", "bb", "c"), (0.5, 1, 2), ("x", 3, 2.5), (False, True)]
)
def test_decode_inverts_encode(classes):
    space = LabelSpace(classes)
    states = np.array([1, 0, len(classes) - 1, 1])
    labels = space.decode(states)
    assert labels.tolist() == [classes[s] for s in states]
    np.testing.assert_array_equal(space.encode(labels), states)
    with pytest.raises(InputError, match="position 1"):
        space.encode([classes[0], None])
