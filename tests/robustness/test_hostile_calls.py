"""Every argument of cheap public calls, one at a time, as each of many wrong things: an answer or a ClewError.

benchmarks/fuzz_api.py does the same at random, deeper, and with fits and tracking.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import clew
from clew import datasets
from clew.errors import ClewError, InputError
from clew.models import Chain
from clew.tracking import (
    Annotations,
    DetectionTable,
    EventTable,
    Lineage,
    Movie,
    Tracker,
    read_annotations,
)
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.segmentation import DetectionSettings


def wrong() -> list[Any]:
    """Things of every kind; made anew each time, for iterators are used up."""
    return [
        None,
        True,
        -1,
        0,
        1,
        0.5,
        2**31,
        2**63,
        10**400,
        -(10**400),
        1e300,
        5e-324,
        float("nan"),
        float("inf"),
        1j,
        "",
        "x",
        "a\0b",
        "é" * 300,
        "\udcff",
        b"a",
        bytearray(b"ab"),
        [],
        [[]],
        [None],
        [[1, 2], [3]],
        ["a", 1, None],
        {},
        {"a": 1},
        {0: 1},
        (),
        {1, 2},
        {None, 1, "a"},
        iter([1, 2]),
        (k for k in range(2)),
        range(3),
        object(),
        list,
        len,
        slice(None),
        ...,
        [[[[[1]]]]],
        memoryview(b"abc"),
        Path("/nowhere"),
        decimal.Decimal("1.5"),
        fractions.Fraction(1, 3),
        datetime.datetime(2020, 1, 1),
        np.array(3),
        np.array([]),
        np.array([1, 2]),
        np.array([[1.0, 2.0]]),
        np.zeros((2, 2, 2)),
        np.array([None, 1], object),
        np.array(["a"]),
        np.array([1j]),
        np.array([1, 2], "M8[s]"),
        np.zeros(2, [("a", int)]),
        np.array([True, False]),
        np.datetime64("NaT"),
        np.timedelta64(1),
        np.float16(1),
        np.uint64(2**64 - 1),
        np.longdouble("1e400"),
        sp.csr_matrix(np.eye(2)),
        sp.coo_array(np.eye(2)),
        np.ma.masked_array([1, 2], [True, False]),
        pd.DataFrame({"a": [1]}),
        pd.Series([1]),
        pd.NA,
    ]


X = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.3]])]
Y = [[0, 1], [1, 0]]
MASKS = np.zeros((3, 8, 8), np.uint16)
MASKS[:, 2:5, 2:5] = 1
MOVES = [(0, 0, [1], [1]), (1, 0, [1], [1])]
TABLE = {
    "frame": [0, 1],
    "label": [1, 1],
    "position": [[1, 1], [2, 1]],
    "columns": {"volume": [9, 9]},
    "n_frames": 2,
}
RNG = np.random.default_rng(0)


def fitted() -> clew.StructuredSVM:
    return clew.StructuredSVM(Chain(), lam=1.0, random_state=0).fit(X, Y)


def lineage() -> Lineage:
    return Tracker.generic(cache=None, n_jobs=1).track(Movie.from_arrays(MASKS))


def fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def one_event(frame: Any, event: Any, sources: Any, targets: Any) -> EventTable:
    return EventTable.of([(frame, event, sources, targets)])


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Calls with arguments that are right."""
    folder, svm, movie, found = (
        tmp_path_factory.mktemp("calls"),
        fitted(),
        Movie.from_arrays(MASKS),
        lineage(),
    )
    svm.save(folder / "a.clew")
    (folder / "a.csv").write_text(
        "frame,event,sources,targets,happened\n0,move,1,1,yes\n"
    )
    settings = {"neighbours": 4, "reach": None, "events": "auto"}
    generic = Tracker.generic(cache=None, n_jobs=1)
    task = Chain(n_states=2).prepare(X, Y).task(X, Y)
    quick = {
        "task": task,
        "loss": clew.LOSSES["hinge"],
        "lam": 1.0,
        "regulariser": "l2",
        "start": None,
    }
    quick |= {"algorithm": clew.Algorithm(max_passes=3), "warm_start": None}
    events, table = EventTable.of(MOVES), DetectionTable(**TABLE)
    return {
        "EventTable": (EventTable, fields(events)),
        "EventTable.of": (
            one_event,
            {"frame": 0, "event": 0, "sources": [1], "targets": [1]},
        ),
        "Annotations": (Annotations, fields(Annotations.of(events))),
        "Annotations.of": (
            Annotations.of,
            {"events": events, "happened": True, "row": None},
        ),
        "DetectionTable": (DetectionTable, TABLE),
        "DetectionTable[]": (
            lambda t, which: (table.detections(t), table[which]),
            {"t": 0, "which": slice(0, 1)},
        ),
        "Movie()": (Movie, fields(movie)),
        "Movie": (
            Movie.from_arrays,
            {"labels": MASKS, "images": MASKS, "spacing": [1.0, 1.0]},
        ),
        "Movie[]": (
            lambda t, which: (movie.label(t), movie.image(t), movie[which]),
            {"t": 0, "which": slice(0, 1)},
        ),
        "Lineage": (lambda **given: Lineage(**given).to_networkx(), fields(found)),
        "Lineage.": (
            lambda n, track: (found.least_certain(n), found.descendants(track)),
            {"n": 1, "track": 1},
        ),
        "load": (clew.load, {"path": folder / "a.clew"}),
        "save": (svm.save, {"path": folder / "b.clew"}),
        "track": (generic.track, {"movie": movie, "annotations": None, "client": None}),
        "settings": (
            lambda **given: Tracker.generic(cache=None, n_jobs=1, **given).track(movie),
            settings,
        ),
        "track_blocks": (
            generic.track_blocks,
            {"movie": movie, "output": folder / "r", "memory": None},
        ),
        "read_annotations": (
            read_annotations,
            {"path": folder / "a.csv", "movie": movie},
        ),
        "predict": (
            lambda X: (svm.predict(X), svm.margins(X), svm.decision_function(X)),
            {"X": X},
        ),
        "score": (svm.score, {"X": X, "Y": Y, "sample_weight": None}),
        "suggest": (svm.suggest, {"X": X, "n": 1, "Y": Y, "per_example": 1}),
        "get_feature_names": (svm.get_feature_names, {"input_names": ["a", "b"]}),
        "prepare": (Chain(n_states=2).prepare, {"X": X, "Y": Y}),
        "Algorithm": (clew.Algorithm, fields(clew.Algorithm())),
        "Loss": (clew.Loss, fields(clew.LOSSES["bridge"])),
        "DetectionSettings": (DetectionSettings, fields(DetectionSettings())),
        "learn": (lambda **given: clew.learn(**given), quick),
        "simulate": (datasets.simulate, {"n_words": 1, "rng": RNG}),
        "sentences": (datasets.sentences, {"n": 1, "rng": RNG}),
        "hide": (datasets.hide, {"labels": [["O"]], "fraction": 0.5, "rng": RNG}),
        "vectorise": (datasets.vectorise, {"features": [[["a"]]], "index": {"a": 0}}),
        "token_features": (datasets.token_features, {"tokens": ["a"]}),
        "entity_f1": (datasets.entity_f1, {"truth": [["O"]], "predicted": [["B-PER"]]}),
        "glyph": (datasets.glyph, {"letter": "A"}),
    }


NAMES = [
    "EventTable",
    "EventTable.of",
    "Annotations",
    "Annotations.of",
    "DetectionTable",
    "DetectionTable[]",
    "track",
    "track_blocks",
    "settings",
    "Movie()",
    "Movie",
    "Movie[]",
    "Lineage",
    "Lineage.",
    "load",
    "save",
    "read_annotations",
    "predict",
    "score",
    "suggest",
    "get_feature_names",
    "prepare",
    "Algorithm",
    "Loss",
    "DetectionSettings",
    "learn",
    "simulate",
    "sentences",
    "hide",
    "vectorise",
    "token_features",
    "entity_f1",
    "glyph",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_or_a_clew_error(name, calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a file of an odd name may be saved
    call, sound = calls[name]
    call(**sound)
    refused, told = 0, []
    for argument in sound:
        for number, value in enumerate(wrong()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    call(**{**sound, argument: value})
                except ClewError as error:
                    refused += 1
                    told.append(str(error))
                except Exception as error:
                    pytest.fail(
                        f"{argument} as wrong()[{number}], {value!r:.60}: {type(error).__name__}: {error}"
                    )
    assert refused > 10 * len(sound)
    assert [words for words in told if "\n" in words or len(words) > 500] == []


def test_every_call_is_tried(calls):
    assert sorted(NAMES) == sorted(calls)


def test_truth_that_is_no_lineage_is_refused(tmp_path):
    with pytest.raises(InputError, match="the lineage is inf"):
        evaluate(tmp_path, float("inf"))
