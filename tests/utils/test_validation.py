"""Arguments of calls that fuzzing found to end in a TypeError or ValueError of NumPy's: each is refused by its name."""

import numpy as np
import pytest
import scipy.sparse as sp

import clew
from clew.errors import InputError
from clew.models import (
    Assignment,
    BinaryProgram,
    Chain,
    Graph,
    Multiclass,
    Program,
    Tree,
)
from clew.tracking import (
    Annotations,
    DetectionTable,
    Event,
    EventTable,
    Movie,
    Tracker,
    evaluate,
)
from clew.utils.validation import (
    check_bool,
    check_floats,
    check_int,
    check_path,
    check_positive,
    is_number,
)

X, Y = [np.eye(2), np.ones((1, 2))], [[0, 1], [0]]
ROWS, LABELS = np.eye(4), [0, 1, 0, 1]
MASKS = np.zeros((3, 8, 8), np.uint16)
MASKS[:, 2:5, 2:5] = 1
PROGRAM = Program([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [1], [1])
MANY, RAGGED, ITERATOR = np.array([1, 2]), [[1, 2], [3]], iter([1])


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (3, False),
        (3.0, False),
        (np.int8(3), False),
        (True, True),
        (0, True),
        (3.5, True),
        (np.nan, True),
        (np.inf, True),
        ("3", True),
        (None, True),
        (MANY, True),
        (3j, True),
        (10**400, False),
    ],
)
def test_whole_numbers(value, refused):
    if refused:
        with pytest.raises(
            InputError, match=r"n is .*; expected a whole number of at least 1"
        ):
            check_int(value, "n", 1)
    else:
        assert check_int(value, "n", 1) == value


@pytest.mark.parametrize(
    "value",
    ["x" * 10_000, list(range(10_000)), np.zeros((50, 50)), {"a": "b" * 500}, object()],
)
def test_a_message_is_short_and_one_line(value):
    with pytest.raises(InputError) as raised:
        check_positive(value, "tol")
    assert len(str(raised.value)) < 200
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        "abc",
        [["a"]],
        RAGGED,
        [1j],
        np.array([1], "M8[s]"),
        ITERATOR,
        {"a": 1},
        sp.eye(2),
    ],
)
def test_arrays_of_numbers(values):
    with pytest.raises(InputError, match=r"w is .*; expected an array of numbers"):
        check_floats(values, "w")


@pytest.mark.parametrize(
    ("value", "words"),
    [(3, "expected a path"), ("a\0b", "a path"), ("é" * 300, "too long")],
)
def test_paths(value, words):
    with pytest.raises(InputError, match=words):
        check_path(value, "result")


SETTINGS = [
    ("lam", MANY.astype("M8[s]")),
    ("lam", "x"),
    ("lam", []),
    ("lam", [[1.0]]),
    ("start", ITERATOR),
    ("start", RAGGED),
    ("regulariser", MANY),
    ("regulariser", "l3"),
    ("loss", np.array(["a", "b"])),
    ("loss", sp.eye(2)),
    ("n_jobs", [1]),
    ("n_jobs", "2"),
    ("n_jobs", 0),
    ("algorithm", []),
    ("algorithm", {}),
    ("folds", {}),
    ("folds", MANY),
    ("hold_out", MANY),
    ("random_state", "x"),
    ("class_weight", MANY),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_settings_of_an_estimator(name, value):
    lam = (
        {"lam": [1.0, 0.1]}
        if name in ("folds", "hold_out", "random_state")
        else {"lam": 0.1}
    )
    with pytest.raises(InputError):
        clew.StructuredSVM(Chain(), **{**lam, name: value}).fit(X, Y)


@pytest.mark.parametrize("C", [0, -1, "x", MANY, np.inf])
def test_c(C):
    with pytest.raises(InputError, match="C is"):
        clew.StructuredSVM(Chain(), C=C).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tol", MANY),
        ("tol", "x"),
        ("memory", None),
        ("starts", 1.5),
        ("patience", "x"),
        ("rho", MANY),
        ("rho", 1),
        ("time_limit", []),
        ("groups", "x"),
        ("groups", 0),
        ("stochastic", MANY),
        ("solver", MANY),
        ("recycle", "x"),
        ("random_state", -1),
    ],
)
def test_settings_of_the_algorithm(name, value):
    with pytest.raises(InputError, match=name):
        clew.Algorithm(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_epochs", "x"),
        ("max_epochs", np.zeros(0)),
        ("patience", None),
        ("averaged", MANY),
    ],
)
def test_settings_of_the_perceptron(name, value):
    with pytest.raises(InputError, match=name):
        clew.StructuredPerceptron(Chain(), **{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value"), [("tol", MANY), ("max_iterations", "x"), ("max_iterations", 0)]
)
def test_settings_of_the_crf(name, value):
    with pytest.raises(InputError, match=name):
        clew.StructuredCRF(Chain(), lam=0.1, **{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("model", "X", "Y"),
    [
        (Multiclass(bias=[]), ROWS, LABELS),
        (Multiclass(bias=MANY), ROWS, LABELS),
        (Multiclass(), ROWS, [0, 1, np.array(ITERATOR), 1]),
        (Chain(n_states=ITERATOR), X, Y),
        (Chain(n_states="x"), X, Y),
        (Chain(n_states=MANY), X, Y),
        (
            Tree(classes=(label for label in "ab")),
            [(np.eye(2), [-1, 0])] * 2,
            Y[:1] * 2,
        ),
        (Chain(classes=int), X, Y),
        (Chain(classes=7), X, Y),
        (Chain(label_scale=MANY.astype("M8[s]")), X, Y),
        (Chain(normalize="yes"), X, Y),
        (Chain(boundary=None), X, Y),
        (Chain(), [RAGGED, np.eye(2)], Y),
        (Chain(), sp.eye(2, format="csr"), Y),
        (Chain(), X, [np.array(None), [0]]),
        (Chain(), X, [np.ndarray, [0]]),
        (Chain(), X, [sp.eye(2), [0]]),
        (Chain(), [[[10**400]], [[1]]], Y),
        (Tree(), [(np.eye(2), RAGGED), (np.ones((1, 2)), [-1])], Y),
        (Graph(), [(np.eye(2), RAGGED), (np.ones((1, 2)), [])], Y),
        (Assignment(), [[[[1.0], [2.0]]], [[[1.0], [2.0, 3.0]]]], [[0], [0]]),
        (Assignment(), ["x"], [[0]]),
        (Assignment(), [np.ones((1, 2, 1))], [sp.eye(2)]),
        (Assignment(), [np.ones((1, 2, 1))], [np.array(0)]),
        (BinaryProgram(), [PROGRAM], [RAGGED]),
        (BinaryProgram(), [PROGRAM], [["a", "b"]]),
        (BinaryProgram(), [PROGRAM], [[{}, 1]]),
        (BinaryProgram(), [PROGRAM], [{0: [1]}]),
        (BinaryProgram(), [Program("x", [[1.0]], [1], [1])], [[1]]),
        (BinaryProgram(), [Program([[1.0]], RAGGED, [1], [1])], [[1]]),
        (BinaryProgram(), [Program([[1.0]], [[[1.0]]], [1], [1])], [[1]]),
        (BinaryProgram(normalize=MANY), [PROGRAM], [[1, 0]]),
    ],
)
def test_data_and_models(model, X, Y):
    with pytest.raises(InputError):
        clew.StructuredSVM(model, lam=0.1).fit(X, Y)


def test_a_programme_of_lists_is_a_programme():
    svm = clew.StructuredSVM(BinaryProgram(), lam=0.1).fit([PROGRAM], [[1, 0]])
    assert len(svm.margins([PROGRAM])[0]) == 2
    assert len(svm.suggest([PROGRAM], 1, [[-1, -1]])) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1.5),
        ("n", MANY),
        ("n", -1),
        ("per_example", "x"),
        ("per_example", MANY),
        ("per_example", np.zeros(0)),
    ],
)
def test_suggestions(name, value):
    svm = clew.StructuredSVM(Chain(), lam=0.1).fit(X, Y)
    with pytest.raises(InputError, match=name):
        svm.suggest(X, **{"n": 1, name: value})


def test_calls_of_a_fitted_estimator():
    svm = clew.StructuredSVM(Chain(), lam=0.1).fit(X, Y)
    for call in (svm.predict, svm.margins, svm.decision_function):
        with pytest.raises(InputError, match="one sparse matrix"):
            call(sp.eye(2, format="csr"))
    with pytest.raises(InputError, match="method is"):
        svm.calibrate(X, Y, method=MANY, folds=None)
    with pytest.raises(InputError, match="folds is"):
        svm.calibrate(X, Y, folds={})
    with pytest.raises(InputError, match="callback is 5"):
        svm.fit(X, Y, callback=5)
    with pytest.raises(InputError, match="sample_weight"):
        svm.fit(X, Y, sample_weight=["a", "b"])
    with pytest.raises(InputError, match="classes is 5"):
        clew.StructuredSVM(Chain(), lam=0.1).partial_fit(X, Y, 5)
    with pytest.raises(InputError, match="the start"):
        clew.StructuredCRF(Chain(), lam=0.1).fit(X, Y, warm_start=RAGGED)


@pytest.mark.parametrize(
    ("labels", "spacing"),
    [
        (ITERATOR, None),
        (sp.eye(2), None),
        (np.ndarray, None),
        ("x", None),
        (np.array(1), None),
        ([RAGGED], None),
        (MASKS, "x"),
        (MASKS, 1.0),
        (MASKS, [1, {2}]),
        (MASKS, [[1, 1], [1, 1]]),
        (MASKS, [None, 1]),
        (MASKS, "\0"),
    ],
)
def test_movies(labels, spacing):
    with pytest.raises(InputError):
        Movie.from_arrays(labels, None, spacing)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("neighbours", MANY),
        ("neighbours", "x"),
        ("neighbours", 1.5),
        ("reach", MANY.astype("M8[s]")),
        ("reach", "x"),
        ("reach", np.nan),
        ("events", 5),
        ("events", [[1]]),
        ("n_jobs", "x"),
    ],
)
def test_settings_of_a_tracker(name, value):
    with pytest.raises(InputError):
        Tracker.generic(cache=None, **{name: value}).track(Movie.from_arrays(MASKS))


@pytest.mark.parametrize(
    "events",
    [
        5,
        [1],
        [(0, Event.MOVE)],
        [("x", Event.MOVE, [1], [1])],
        [(0, 77, [1], [1])],
        [(0.5, 0, [1], [1])],
        [(0, 0, [1, 2, 3], [1])],
        [(0, 0, ["a"], [1])],
        [(0, 0, [0.5], [1])],
        [(10**30, 0, [1], [1])],
        [(0, 0, 1, 1)],
    ],
)
def test_events(events):
    with pytest.raises(InputError, match="events"):
        EventTable.of(events)


@pytest.mark.parametrize("happened", ["x", 2, RAGGED, [True, False], None])
def test_whether_events_happened(happened):
    with pytest.raises(InputError, match="happened"):
        Annotations.of(EventTable.of([(0, Event.MOVE, [1], [1])]), happened)


@pytest.mark.parametrize(
    "changed",
    [
        {"frame": RAGGED},
        {"label": ["a", "b"]},
        {"position": [["a", "b"]] * 2},
        {"columns": 5},
        {"n_frames": (1,)},
        {"n_frames": "x"},
        {"columns": {"volume": RAGGED}},
    ],
)
def test_tables_of_detections(changed):
    given = {
        "frame": [0, 1],
        "label": [1, 1],
        "position": [[1, 2], [3, 4]],
        "columns": None,
        **changed,
    }
    with pytest.raises(InputError):
        DetectionTable(
            given.pop("frame"),
            given.pop("label"),
            given.pop("position"),
            given.pop("columns"),
            **given,
        )


@pytest.mark.parametrize("result", [None, 5, [], b"a", np.zeros(2), "é" * 300, "\0"])
def test_evaluation_of_what_is_no_result(result):
    with pytest.raises(InputError):
        evaluate(result, "nowhere")
    with pytest.raises(InputError):
        evaluate("nowhere", result)


SPAN = np.timedelta64(1)  # an integer by its class, and no number


@pytest.mark.parametrize("value", [SPAN, 10**400, -(10**400), np.timedelta64("NaT")])
def test_spans_of_time_and_what_no_float_can_hold(value):
    for check in (check_positive, check_bool):
        with pytest.raises(InputError, match="x is"):
            check(value, "x")
    assert is_number(value) is isinstance(value, int)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lam": 5e-324}, "lam must be"),
        ({"lam": 1e200}, "lam must be"),
        ({"lam": "auto", "C": 1e-320}, "λ is inf"),
        ({"n_jobs": SPAN}, "n_jobs"),
        ({"lam": "auto", "folds": SPAN}, "folds"),
        ({"lam": "auto", "random_state": SPAN}, "random_state"),
        ({"class_weight": {0: 10**400}}, "class_weight"),
        ({"class_weight": {0: SPAN}}, "class_weight"),
        ({"class_weight": {0: 1e200}}, "class_weight"),
    ],
)
def test_settings_beyond_what_can_be_computed_with(settings, words):
    with pytest.raises(InputError, match=words):
        clew.StructuredSVM(Chain(), **{"lam": 1.0, **settings}).fit(X, Y)


@pytest.mark.parametrize("label", [10**400, 2**63, -(2**63) - 1, 1e400, b"a", 1j])
def test_labels_that_are_none(label):
    with pytest.raises(InputError):
        clew.StructuredSVM(Multiclass(), lam=1.0).fit(ROWS, [0, 1, 0, label])


@pytest.mark.parametrize("number", [SPAN, 10**400], ids=["a span", "huge"])
def test_numbers_of_states_that_are_none(number):
    with pytest.raises(InputError):
        clew.StructuredSVM(Multiclass(n_classes=number), lam=1.0).fit(ROWS, LABELS)
    with pytest.raises(InputError):
        clew.StructuredSVM(Chain(n_states=number), lam=1.0).fit(X, Y)


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": None},
        {"task": 3},
        {"loss": "hinge"},
        {"loss": None},
        {"lam": "x"},
        {"lam": None},
        {"lam": np.inf},
        {"algorithm": "clew"},
        {"algorithm": {}},
        {"start": "zero"},
        {"start": [[1.0]]},
        {"start": 1j},
    ],
)
def test_learn(wrong):
    task = Chain().prepare(X, Y).task(X, Y)
    with pytest.raises(InputError):
        clew.learn(**{"task": task, "loss": clew.LOSSES["hinge"], "lam": 1.0, **wrong})


TABLE = {"frame": [0, 1], "label": [1, 1], "position": [[1, 1], [2, 1]]}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"volume": [[1, 1], [1, 1]]}, r"volume has shape \(2, 2\); expected \(2,\)"),
        ({"volume": [1, 0]}, "row 1"),
        ({"border_distance": [-1, 0]}, "row 0"),
        ({"axes": [1, 1]}, r"expected \(2, 2\)"),
        ({"quantiles": [[1] * 11] * 2}, r"expected \(2, 12\)"),
        ({"support": [[1] * 26] * 2}, r"expected \(2, 16\)"),
        ({1: [1, 1], "a": [1, 1]}, "unknown columns"),
        ({None: [1, 1]}, "unknown columns"),
    ],
)
def test_columns_of_a_table_that_nobody_measures(columns, words):
    with pytest.raises(InputError, match=words):
        DetectionTable(**TABLE, columns=columns)


@pytest.mark.parametrize(
    "label", [[1, 1e300], [1, np.inf], [1, 2**64 - 1], ["1", "2"], [None, 1], [1, 0.5]]
)
def test_labels_of_a_table_that_are_none(label):
    with pytest.raises(InputError, match="label"):
        DetectionTable(**{**TABLE, "label": label})


def test_a_table_of_nothing_is_empty():
    assert DetectionTable(np.array([], "U1"), [], np.zeros((0, 2))).n_frames == 0


def test_whole_floats_count_as_integers_do():
    settings = {
        "starts": 2.0,
        "patience": np.float32(3),
        "groups": 2.0,
        "random_state": np.float64(1),
    }
    algorithm = clew.Algorithm(**settings, max_passes=5)
    assert all(type(getattr(algorithm, name)) is int for name in settings)
    clew.StructuredSVM(
        Multiclass(), lam=[1.0, 0.1], folds=2.0, algorithm=algorithm, random_state=0
    ).fit(ROWS, LABELS)
    clew.StructuredPerceptron(Chain(), max_epochs=3.0, patience=np.float16(2)).fit(X, Y)
    clew.StructuredCRF(Chain(), lam=1.0, max_iterations=5.0).fit(X, Y)
    movie = Movie.from_arrays(MASKS)
    assert (
        len(Tracker.generic(cache=None, n_jobs=1.0, neighbours=4.0).track(movie).events)
        == 2
    )
