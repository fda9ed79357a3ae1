"""The fits of golden.py: each runs in a process of its own and prints its figures.

    CLEW_DATA=… python benchmarks/golden_fits.py letters_full

Only public names of clew are used, so that the same file measures other versions.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clew import Algorithm, StructuredCRF, StructuredSVM
from clew.datasets import (
    annotate,
    entity_f1,
    hide,
    sentences,
    simulate,
    token_features,
    vectorise,
)
from clew.models import Assignment, Chain, Graph, Multiclass, Tree

Figures = dict[str, Any]

LETTERS_LAM = {"full": 0.0232, "partial": 0.032}
"""Fixed λ of the letters, as in letters.py."""
TEXT_C = 0.05
"""λ = 1 / (C N) of the sentences, as in text.py."""
TEXT_TOL = 1e-2
N_TEST_SENTENCES = 2000
TIME_LIMIT = 60.0
"""Seconds on the clock after which a small fit is stopped."""


def fit_and_measure(estimator: Any, X: Any, Y: Any) -> Figures:
    """Fit an estimator; return CPU seconds, objective, gap and convergence."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, Y)
    seconds = time.process_time() - start
    result = estimator.result_
    figures = {
        "fit_cpu": seconds,
        "lam": float(result.lam),
        "objective": float(result.objective),
        "gap": float(result.gap),
        "converged": bool(result.converged),
    }
    if hasattr(result, "passes"):
        figures["passes"] = float(result.passes)
    return figures


def measure_accuracy(predicted: Any, truth: Any) -> Figures:
    """Percentage of equal labels in two lists of sequences, with its standard error."""
    predicted_labels = np.concatenate([np.asarray(labels) for labels in predicted])
    true_labels = np.concatenate([np.asarray(labels) for labels in truth])
    is_equal = predicted_labels == true_labels
    return {
        "accuracy": 100 * float(is_equal.mean()),
        "accuracy_noise": 100 * float(is_equal.std() / np.sqrt(len(is_equal))),
    }


def compile_kernels(X: Any, Y: Any) -> None:
    """Fit a chain to a part of the data, so that kernels are compiled or loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        StructuredSVM(Chain(), lam=1.0).fit(X, Y)


def fit_letters(setting: str, lam: float | str) -> Figures:
    """Fit fold 1 of the letters, test on the other folds; see letters.py."""
    data = np.load(Path(os.environ["CLEW_DATA"]) / "letters.npz", allow_pickle=False)
    labels = data["labels"].astype(int)
    is_visible = np.unpackbits(data["observed"])[: len(labels)].astype(bool)
    annotations = labels
    if setting == "partial":
        annotations = np.where(is_visible, labels, -1)
    cuts = np.cumsum(data["lengths"].astype(int))[:-1]
    X = np.split(np.unpackbits(data["pixels"], axis=1), cuts)
    truth = np.split(labels, cuts)
    Y = np.split(annotations, cuts)
    train = np.flatnonzero(data["folds"] == 1)
    test = np.flatnonzero(data["folds"] != 1)

    X_train = [X[n] for n in train]
    Y_train = [Y[n] for n in train]
    compile_kernels(X_train[:150], Y_train[:150])
    svm = StructuredSVM(
        Chain(n_states=26),
        lam=lam,
        algorithm=Algorithm(random_state=0),
        random_state=0,
    )
    figures = fit_and_measure(svm, X_train, Y_train)
    predicted = svm.predict([X[n] for n in test])
    figures |= measure_accuracy(predicted, [truth[n] for n in test])
    return figures


def fit_text(n_sentences: int, fraction: float) -> Figures:
    """Fit entities in simulated sentences; see text.py."""
    rng = np.random.default_rng(0)
    truth: Any
    texts, truth = sentences(n_sentences + N_TEST_SENTENCES, rng)
    features = [token_features(tokens) for tokens in texts]
    labels: Any = truth[:n_sentences]
    if fraction < 1:
        labels = hide(labels, fraction, rng)
    X, index = vectorise(features[:n_sentences])
    X_test, _ = vectorise(features[n_sentences:], index)

    algorithm = Algorithm(tol=TEXT_TOL, eta=TEXT_TOL)
    compile_kernels(X[:150], labels[:150])
    svm = StructuredSVM(Chain(), C=TEXT_C, algorithm=algorithm)
    figures = fit_and_measure(svm, X, labels)
    predicted: Any = svm.predict(X_test)
    figures["f1"] = 100 * entity_f1(truth[n_sentences:], predicted)
    return figures


def fit_words(n_words: int, **options: Any) -> Figures:
    """Fit simulated words with half of the letters annotated."""
    rng = np.random.default_rng(0)
    X, words = simulate(n_words + 300, rng)
    Y = annotate(words[:n_words], 0.5, rng)
    compile_kernels(X[300:], annotate(words[300:], 0.5, rng))
    svm = StructuredSVM(Chain(), algorithm=Algorithm(time_limit=TIME_LIMIT), **options)
    figures = fit_and_measure(svm, X[:n_words], Y)
    truth = [list(word) for word in words[n_words:]]
    figures |= measure_accuracy(svm.predict(X[n_words:]), truth)
    return figures


def make_sequences(n: int, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Make sequences of 5 to 8 nodes with 8 features and one of 8 noisy labels."""
    weights = rng.normal(size=(8, 8))
    lengths = rng.integers(5, 9, size=n)
    X = [rng.normal(size=(length, 8)) for length in lengths]
    Y = []
    for x in X:
        noise = rng.normal(size=(len(x), 8))
        Y.append(np.argmax(x @ weights + 2 * noise, axis=1))
    return X, Y


def hide_labels(Y: list[Any], rng: np.random.Generator) -> list[Any]:
    """Replace half of the labels by -1."""
    return [np.where(rng.random(len(y)) < 0.5, y, -1) for y in Y]


def fit_sequences() -> Figures:
    """Fit 40 short sequences with 152 weights."""
    rng = np.random.default_rng(0)
    X, Y = make_sequences(340, rng)
    compile_kernels(X[40:], hide_labels(Y[40:], rng))
    algorithm = Algorithm(time_limit=TIME_LIMIT)
    svm = StructuredSVM(Chain(n_states=8), lam=0.01, algorithm=algorithm)
    figures = fit_and_measure(svm, X[:40], hide_labels(Y[:40], rng))
    figures |= measure_accuracy(svm.predict(X[40:]), Y[40:])
    return figures


def fit_assignments() -> Figures:
    """Fit 30 assignments of 8 rows to 8 columns with 200 weights."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=200)
    X = [rng.normal(size=(8, 8, 200)) for _ in range(130)]
    Y = []
    for x in X:
        scores = x @ weights + 5 * rng.normal(size=(8, 8))
        Y.append(assign_greedily(scores))
    algorithm = Algorithm(time_limit=TIME_LIMIT)
    svm = StructuredSVM(Assignment(), lam=0.01, algorithm=algorithm)
    figures = fit_and_measure(svm, X[:30], hide_labels(Y[:30], rng))
    figures |= measure_accuracy(svm.predict(X[30:]), Y[30:])
    return figures


def assign_greedily(scores: Any) -> Any:
    """Give each row the best column that is still free."""
    columns = np.full(len(scores), -1)
    for row in range(len(scores)):
        order = np.argsort(-scores[row])
        is_free = ~np.isin(order, columns[:row])
        columns[row] = order[is_free][0]
    return columns


def fit_multiclass() -> Figures:
    """Fit 300 examples of 10 classes, each with three candidates."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(20, 10))
    X = rng.normal(size=(1300, 20))
    truth = np.argmax(X @ weights + rng.normal(size=(1300, 10)), axis=1)
    Y = [{int(label), *rng.integers(10, size=2).tolist()} for label in truth]
    algorithm = Algorithm(time_limit=TIME_LIMIT)
    svm = StructuredSVM(Multiclass(n_classes=10), lam=0.01, algorithm=algorithm)
    figures = fit_and_measure(svm, X[:300], Y[:300])
    figures |= measure_accuracy([svm.predict(X[300:])], [truth[300:]])
    return figures


def fit_crf() -> Figures:
    """Fit a partial CRF to 200 simulated words."""
    rng = np.random.default_rng(0)
    X, words = simulate(500, rng)
    Y = annotate(words[:200], 0.5, rng)
    crf = StructuredCRF(Chain(), lam=0.01)
    figures = fit_and_measure(crf, X[:200], Y)
    truth = [list(word) for word in words[200:]]
    figures |= measure_accuracy(crf.predict(X[200:]), truth)
    return figures


def compile_model(name: str) -> Figures:
    """Fit and predict twice; the difference in CPU seconds is compilation."""
    rng = np.random.default_rng(0)
    X, Y = make_sequences(20, rng)
    Y = hide_labels(Y, rng)
    estimator: Any
    if name == "multiclass":
        X = list(np.concatenate(X))
        Y = list(np.concatenate(Y))
        estimator = StructuredSVM(Multiclass(n_classes=8), lam=0.1)
    elif name == "tree":
        X = [(x, np.arange(len(x)) - 1) for x in X]
        estimator = StructuredSVM(Tree(n_states=8), lam=0.1)
    elif name == "graph":
        X = [(x, make_path(len(x))) for x in X]
        estimator = StructuredSVM(Graph(n_states=8), lam=0.1)
    elif name == "crf":
        estimator = StructuredCRF(Chain(n_states=8), lam=0.1)
    else:
        estimator = StructuredSVM(Chain(n_states=8), lam=0.1)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        fit_and_measure(estimator, X, Y)
        estimator.predict(X)
        seconds.append(time.process_time() - start)
    return {"compile_cpu": seconds[0] - seconds[1], "second_cpu": seconds[1]}


def make_path(n: int) -> Any:
    """Edges (n - 1, 2) of a path."""
    nodes = np.arange(n)
    return np.stack([nodes[:-1], nodes[1:]], axis=1)


FITS: dict[str, Callable[[], Figures]] = {
    "letters_full": lambda: fit_letters("full", LETTERS_LAM["full"]),
    "letters_partial": lambda: fit_letters("partial", LETTERS_LAM["partial"]),
    "letters_partial_auto": lambda: fit_letters("partial", "auto"),
    "text_1000_full": lambda: fit_text(1000, 1.0),
    "text_1000_quarter": lambda: fit_text(1000, 0.25),
    "text_4000_full": lambda: fit_text(4000, 1.0),
    "text_4000_quarter": lambda: fit_text(4000, 0.25),
    "words_30": lambda: fit_words(30, C=1.0),
    "words_5": lambda: fit_words(5, lam=0.2),
    "sequences_40": fit_sequences,
    "assignment_200": fit_assignments,
    "multiclass_300": fit_multiclass,
    "crf_200": fit_crf,
}
MODELS = ("chain", "tree", "graph", "multiclass", "crf")


def main() -> None:
    """Run the fit with the given name, or compile the given model."""
    name = sys.argv[1]
    if name.startswith("compile_"):
        figures = compile_model(name.removeprefix("compile_"))
    else:
        figures = FITS[name]()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
