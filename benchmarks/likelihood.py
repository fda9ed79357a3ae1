"""The bridge loss against the marginal likelihood of a conditional random field, on the same models and annotations.

    CLEW_DATA=path/to/data python benchmarks/likelihood.py [--seeds 5]

Words are simulated (clew.datasets); letters are handwriting (OCR letters, training on fold 1, testing on words of the
nine others, if CLEW_DATA has them). λ of both is chosen on held-out annotations. Printed are means ± standard
deviations over draws of what is annotated: letters read right, minus the mean log-probability of a true letter, the
calibration error (mean of |accuracy − confidence| over ten bins of equal size; the SVM's after `calibrate`), and CPU
seconds of `fit`.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from letters import load
from rich.console import Console
from rich.table import Table

from clew import StructuredCRF, StructuredSVM
from clew.datasets import LETTERS, annotate, simulate
from clew.errors import NotConvergedWarning
from clew.models import Chain


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    bins = np.array_split(np.argsort(confidence), 10)
    return float(np.mean([abs(right[b].mean() - confidence[b].mean()) for b in bins]))


def measure(
    estimator: Any, X: list[Any], Y: list[Any], X_new: list[Any], truth: list[Any]
) -> list[float]:
    began = time.process_time()
    estimator.fit(X, Y)
    seconds = time.process_time() - began
    if isinstance(estimator, StructuredSVM):
        estimator.calibrate(X, Y)
    classes = {label: s for s, label in enumerate(estimator.model_.classes_)}
    state = np.array([classes[label] for y in truth for label in y])
    right = np.concatenate(estimator.predict(X_new)) == np.concatenate(
        [np.asarray(y) for y in truth]
    )
    p = np.concatenate(estimator.predict_proba(X_new))
    predicted = np.array(
        [classes[label] for y in estimator.predict(X_new) for label in y]
    )
    confidence = p[np.arange(len(p)), predicted]
    log_loss = -np.log(np.maximum(p[np.arange(len(p)), state], 1e-12)).mean()
    return [
        100 * right.mean(),
        log_loss,
        100 * calibration_error(confidence, right),
        seconds,
    ]


def words(seed: int, known: float) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X, train = simulate(200, rng)
    X_new, test = simulate(300, rng)
    return (
        Chain(classes=list(LETTERS)),
        X,
        annotate(train, known, rng),
        X_new,
        [list(word) for word in test],
    )


def handwriting(path: Path, seed: int, known: float) -> tuple[Any, ...]:
    data = load(path)
    rng = np.random.default_rng(seed)
    masked = [np.where(rng.random(len(y)) < known, y, -1) for y in data.Y]
    return (
        Chain(n_states=26),
        data.X,
        masked,
        data.X_test[:1500],
        data.Y_test[:1500],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("CLEW_DATA", "."))
    )
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NotConvergedWarning)
    sets = {"words": words}
    if (arguments.data / "letters.npz").exists():
        sets["letters"] = lambda seed, known: handwriting(
            arguments.data / "letters.npz", seed, known
        )
    table = Table(
        "data", "annotated", "method", "right %", "log loss", "calibration %", "CPU s"
    )
    for name, make in sets.items():
        for known in (1.0, 0.25, 0.1):
            for method in (StructuredSVM, StructuredCRF):
                rows = []
                for seed in range(
                    arguments.seeds if known < 1 or name == "words" else 1
                ):
                    model, *data = make(seed, known)
                    rows.append(measure(method(model, random_state=seed), *data))
                means, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
                cells = [
                    f"{m:.3g} ± {s:.2g}" for m, s in zip(means, spread, strict=True)
                ]
                table.add_row(name, f"{known:.0%}", method.__name__, *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
