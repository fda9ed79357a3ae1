"""Calls of the API for fuzz.py: the arguments of each are a JSON document, which mutators change and which is kept.

What JSON cannot say stands in a mapping with the key "@": arrays, sparse matrices, sets, iterators. A mapping that
makes no sense after a mutation is still an argument, as it is.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import clew
from clew.models import (
    Assignment,
    BinaryProgram,
    Chain,
    Graph,
    Multiclass,
    Program,
    Tree,
)
from clew.tracking import Annotations, DetectionTable, EventTable, Movie, evaluate
from clew.tracking.graph import GraphTracker, make_candidate_graph
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.tracker import Tracker

Json = Any
WORK = {
    "max_passes": 60,
    "max_epochs": 20,
    "patience": 20,
    "max_iterations": 50,
    "starts": 3,
    "time_limit": 2,
}
"""How much work is asked for is the caller's business: these numbers are cut, so that hangs are clew's alone."""
FILE = "call.api"


# values that JSON does not have


def _array(content: Json) -> Any:
    return np.asarray(content["of"], dtype=content.get("dtype"))


MAKERS: Mapping[str, Callable[[Json], Any]] = {
    "array": _array,
    "read-only": lambda content: np.broadcast_to(
        _array(content), np.shape(content["of"])
    ),
    "objects": lambda content: np.array([*content["of"], None], dtype=object)[:-1],
    "sparse": lambda content: sp.csr_matrix(np.asarray(content["of"], dtype=float)),
    "coo": lambda content: sp.coo_array(np.asarray(content["of"], dtype=float)),
    "set": lambda content: set(content["of"]),
    "tuple": lambda content: tuple(content["of"]),
    "iterator": lambda content: iter(content["of"]),
    "mapping": lambda content: dict(content["of"]),
    "scalar": lambda content: np.dtype(content["dtype"]).type(content["of"]),
    "number": lambda content: float(content["of"]),
    "complex": lambda content: complex(content["of"]),
    "bytes": lambda content: str(content["of"]).encode(),
    "object": lambda _: object(),
    "class": lambda _: np.ndarray,
    "program": lambda content: Program(**content["of"]),
    "algorithm": lambda content: clew.Algorithm(
        **_known(clew.Algorithm, content["of"])
    ),
}


def decode(content: Json) -> Any:
    """The value that a piece of JSON stands for."""
    if isinstance(content, list):
        return [decode(item) for item in content]
    if not isinstance(content, dict):
        return content
    whole = {key: decode(value) for key, value in content.items()}
    maker = MAKERS.get(whole["@"]) if isinstance(whole.get("@"), str) else None
    if maker is None:
        return whole
    try:
        return maker(whole)
    except clew.ClewError:
        raise
    except Exception:  # this mutation made no value of that kind
        return whole


# the calls


def _known(call: Callable[..., Any], given: Any) -> dict[str, Any]:
    """The keywords that a call has; how much work they ask for is bounded."""
    names = inspect.signature(call).parameters
    if not isinstance(given, dict):
        return {}
    return {
        name: _bounded(name, value) for name, value in given.items() if name in names
    }


def _bounded(name: str, value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(value, WORK[name]) if name in WORK and number else value


def learner(estimator: Any, model: Any) -> Callable[[dict[str, Any]], object]:
    """Fit an estimator, and ask it for everything that it can say."""

    def call(given: dict[str, Any]) -> None:
        made = estimator(
            model(**_known(model, given.get("model"))),
            **_known(estimator, given.get("parameters")),
        )
        X, Y, new = given.get("X"), given.get("Y"), given.get("new")
        made.fit(X, Y, **_known(made.fit, given.get("fit")))
        made.predict(new)
        made.score(new, given.get("truth"))
        made.margins(new)
        made.decision_function(new)
        made.suggest(
            new,
            given.get("n"),
            given.get("truth"),
            per_example=given.get("per_example"),
        )
        if isinstance(getattr(made, "lam", None), float) and hasattr(
            made, "partial_fit"
        ):
            made.partial_fit(new, given.get("truth"), given.get("classes"))

    return call


def calibrated(given: dict[str, Any]) -> None:
    """Probabilities."""
    svm = clew.StructuredSVM(Chain(), lam=0.1).fit(*CHAINS)
    svm.calibrate(
        given.get("X"), given.get("Y"), **_known(svm.calibrate, given.get("calibrate"))
    )
    svm.predict_proba(given.get("new"))


def online(given: dict[str, Any]) -> None:
    """Batches."""
    svm = clew.StructuredSVM(
        Chain(), **{"lam": 0.1, **_known(clew.StructuredSVM, given.get("parameters"))}
    )
    for X, Y in (("X", "Y"), ("new", "truth")):
        svm.partial_fit(
            given.get(X),
            given.get(Y),
            given.get("classes"),
            sample_weight=given.get("sample_weight"),
        )


def tracking(truth: Path) -> Callable[[dict[str, Any]], object]:
    """Learn, track and evaluate with arrays."""

    def call(given: dict[str, Any]) -> None:
        movie = Movie.from_arrays(
            given.get("masks"), given.get("images"), given.get("spacing")
        )
        annotations = Annotations.of(
            EventTable.of(given.get("events")), given.get("happened")
        )
        tracker = Tracker(
            **{"cache": None, "lam": 1.0, **_known(Tracker, given.get("parameters"))}
        )
        lineage = tracker.fit(movie, annotations).track(movie, annotations=annotations)
        evaluate(lineage, open_ctc_lineage(truth), movie)

    return call


def generic(given: dict[str, Any]) -> None:
    """Track without annotations."""
    parameters = {"cache": None, **_known(Tracker, given.get("parameters"))}
    movie = Movie.from_arrays(
        given.get("masks"), given.get("images"), given.get("spacing")
    )
    Tracker.generic(**parameters).track(movie).to_networkx()


def table(given: dict[str, Any]) -> None:
    """Detections without pixels."""
    detections = DetectionTable(
        given.get("frame"),
        given.get("label"),
        given.get("position"),
        given.get("columns"),
        n_frames=given.get("n_frames"),
    )
    lineage = Tracker.generic(cache=None).track(detections)
    _ = lineage.tracks


def candidate_graph(given: dict[str, Any]) -> None:
    """Learn the costs of a candidate graph, and solve it."""
    graph = make_candidate_graph(
        given.get("nodes"),
        given.get("edges"),
        **_known(make_candidate_graph, given.get("columns")),
    )
    tracker = GraphTracker(**_known(GraphTracker, given.get("parameters")))
    tracker.fit(graph).suggest(graph, given.get("n"))
    tracker.solve(graph).to_networkx()


def evaluation(given: dict[str, Any]) -> None:
    """Evaluate what may be no result."""
    evaluate(
        given.get("result"),
        given.get("truth"),
        given.get("movie"),
        scores=given.get("scores"),
    )


# sound arguments

ROWS = [
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.2]],
    [[0.0, 1.0], [1.0, 0.3]],
    [[0.9, 0.1], [0.2, 0.8]],
    [[1.0, 1.0]],
]
LABELS = [[0, 1, 0], [1, 0], [None, 1], [0]]
CHAINS = ([np.array(x) for x in ROWS], LABELS)


def sound(masks: Json, events: Json, truth: Path) -> dict[str, dict[str, Json]]:
    """Arguments for each call that are right."""
    trees = [[x, [-1, *range(len(x) - 1)]] for x in ROWS]
    graphs = [[x, [[k, k + 1] for k in range(len(x) - 1)]] for x in ROWS]
    program = {
        "features": [[1.0, 0.0], [0.0, 1.0]],
        "A": [[1.0, 1.0]],
        "lower": [1],
        "upper": [1],
    }
    programs = [
        {"@": "program", "of": {**program, "features": [[1.0, k], [k / 2, 1.0]]}}
        for k in range(3)
    ]
    common = {
        "model": {},
        "parameters": {"lam": 0.1},
        "fit": {},
        "n": 2,
        "per_example": None,
        "classes": None,
    }
    kinds: dict[str, tuple[Json, Json, Json]] = {
        "Chain": (
            ROWS,
            LABELS,
            {"n_states": None, "bias": True, "normalize": False, "label_scale": "auto"},
        ),
        "Tree": (trees, LABELS, {"n_states": 2}),
        "Graph": (graphs, LABELS, {"classes": [0, 1], "symmetric": False}),
        "Multiclass": ([x[0] for x in ROWS], [0, 1, [0, 1], 0], {"bias": True}),
        "Assignment": (
            [[[[1.0], [0.2]], [[0.1], [0.9]]]] * 3,
            [[0, 1], [None, 1], [1, 0]],
            {"normalize": True},
        ),
        "BinaryProgram": (
            programs,
            [[1, 0], {"@": "mapping", "of": [[0, 1]]}, [0, -1]],
            {"normalize": True},
        ),
    }
    every = {"sample_weight": [1.0] * 4}
    calls: dict[str, dict[str, Json]] = {}
    for name, (X, Y, parameters) in kinds.items():
        calls[f"svm {name}"] = {
            **common,
            "model": parameters,
            "X": X,
            "Y": Y,
            "new": X,
            "truth": Y,
            "parameters": {
                "lam": 0.1,
                "loss": "bridge",
                "C": None,
                "class_weight": None,
                "regulariser": "l2",
                "algorithm": "clew",
                "start": "auto",
                "folds": 3,
                "hold_out": "auto",
                "n_jobs": 1,
                "random_state": 0,
            },
        }
        calls[f"perceptron {name}"] = {
            **common,
            "X": X,
            "Y": Y,
            "new": X,
            "truth": Y,
            "parameters": {
                "averaged": True,
                "max_epochs": 5,
                "patience": 2,
                "n_jobs": None,
                "random_state": 0,
            },
        }
    for name in ("Chain", "Tree", "Multiclass"):
        X, Y, _ = kinds[name]
        calls[f"crf {name}"] = {
            **common,
            "X": X,
            "Y": Y,
            "new": X,
            "truth": Y,
            "fit": every,
            "parameters": {
                "lam": 0.1,
                "tol": 1e-2,
                "max_iterations": 20,
                "folds": 2,
                "random_state": 0,
            },
        }
    batch = {"X": ROWS, "Y": LABELS, "new": ROWS, "truth": LABELS}
    calls["auto"] = {
        **common,
        **batch,
        "parameters": {"lam": [1.0, 0.1], "folds": 2, "random_state": 0},
        "fit": every,
    }
    calls["algorithm"] = {
        **common,
        **batch,
        "parameters": {
            "lam": 0.1,
            "algorithm": {
                "@": "algorithm",
                "of": {
                    "groups": "auto",
                    "recycle": True,
                    "epsilon": 1.0,
                    "rho": 0.5,
                    "tol": 1e-3,
                    "eta": 1e-3,
                    "starts": 1,
                    "max_passes": 50,
                    "time_limit": None,
                    "memory": 2**20,
                    "patience": 10,
                    "solver": "auto",
                    "random_state": 0,
                },
            },
        },
    }
    calls["calibrate"] = {**batch, "calibrate": {"method": "platt", "folds": 2}}
    calls["online"] = {
        **batch,
        "classes": None,
        "sample_weight": [1.0] * 4,
        "parameters": {"lam": 0.1},
    }
    pixels = {
        "masks": {"@": "array", "of": masks, "dtype": "uint16"},
        "images": None,
        "spacing": [1.0, 1.0],
    }
    settings = {
        "neighbours": 4,
        "reach": None,
        "events": "auto",
        "n_jobs": 1,
        "random_state": 0,
    }
    calls["tracker"] = {
        **pixels,
        "events": events,
        "happened": True,
        "parameters": {**settings, "lam": 1.0},
    }
    calls["generic"] = {**pixels, "parameters": settings}
    calls["table"] = {
        "frame": [0, 0, 1, 1],
        "label": [1, 2, 1, 2],
        "position": [[1, 1], [9, 9], [2, 1], [9, 8]],
        "columns": {"volume": [9, 9, 9, 9]},
        "n_frames": 2,
    }
    calls["graph"] = {
        "nodes": {"id": [0, 1, 2, 3, 4, 5], "t": [0, 0, 1, 1, 2, 2], "area": [5] * 6},
        "edges": {
            "source": [0, 0, 1, 2, 2, 3],
            "target": [2, 3, 3, 4, 5, 5],
            "iou": [0.9, 0.1, 0.8, 0.7, 0.2, 0.9],
            "right": [1, 0, 1, 1, -1, None],
        },
        "columns": {"annotation": "right", "edge_attributes": ["iou"], "time": "t"},
        "parameters": {"divisions": True, "lam": 0.1, "n_jobs": 1, "random_state": 0},
        "n": 2,
    }
    calls["evaluate"] = {
        "result": str(truth),
        "truth": str(truth),
        "movie": None,
        "scores": False,
    }
    return calls


def api_calls(
    folder: Path, masks: Json, events: Json, truth: Path
) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Every call with the folder that holds sound arguments for it."""
    models = {
        model.__name__: model
        for model in (Chain, Tree, Graph, Multiclass, Assignment, BinaryProgram)
    }
    learners = {
        "svm": clew.StructuredSVM,
        "perceptron": clew.StructuredPerceptron,
        "crf": clew.StructuredCRF,
    }
    calls: dict[str, Callable[[dict[str, Any]], object]] = {
        "auto": learner(clew.StructuredSVM, Chain),
        "algorithm": learner(clew.StructuredSVM, Chain),
        "calibrate": calibrated,
        "online": online,
        "tracker": tracking(truth),
        "generic": generic,
        "table": table,
        "graph": candidate_graph,
        "evaluate": evaluation,
    }
    readers: dict[str, tuple[Path, Callable[[Path], object]]] = {}
    for name, arguments in sound(masks, events, truth).items():
        if name not in calls:
            kind, model = name.split()
            calls[name] = learner(learners[kind], models[model])
        place = folder / f"api {name}"
        place.mkdir(parents=True)
        (place / FILE).write_text(json.dumps(arguments))
        readers[f"api {name}"] = place, _reader(calls[name])
    return readers


def _reader(call: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        document = (
            json.loads((folder / FILE).read_text()) if (folder / FILE).exists() else {}
        )
        return call({name: decode(value) for name, value in document.items()})

    return read
