"""Multiclass with ambiguous labels (candidate sets): CLPL (Eq. 2), the bridge loss, the partial CRF, and the perceptron.

    CLEW_DATA=path/to/data python benchmarks/ambiguous.py                # ten folds, seed 0
    CLEW_DATA=path/to/data python benchmarks/ambiguous.py --splits file  # those of the files
    CLEW_DATA=path/to/data python benchmarks/ambiguous.py --methods bridge --lam 0.1

On lost, MSRCv2 and birdac, with ten seeded folds or the five splits that come with them. Features are standardised on the training
rows; λ is chosen on held-out candidate sets (a prediction counts as right if it is a candidate), never on true labels.
Accuracy is that of the true class on the test rows.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.io import loadmat

import clew
from clew.models import Multiclass

METHODS = ("bridge", "crf", "clpl", "perceptron")
SETTINGS: dict[str, dict[str, Any]] = {
    "clpl": {
        "algorithm": clew.Algorithm(tol=0.02, eta=0.02),
        "lam": [0.1, 0.03, 0.01, 0.003, 0.001],
    },
    "bridge": {},
    "crf": {},
    "perceptron": {},
}
"""CLPL at w = 0 is 1 + the number of wrong classes, about 15 to 25, where the bridge loss is 1. Below λ = 0.001 a fit
of CLPL takes minutes."""


def rows(indices: Any, n: int) -> list[Any]:
    """The row numbers of each split, from 0, whether it is given as numbers from 1 or as a mask."""
    table = np.asarray(indices)
    if table.dtype == object:
        return [np.ravel(part).astype(int) - 1 for part in np.ravel(table)]
    if n in table.shape and set(np.unique(table)) <= {0, 1}:
        return [
            np.flatnonzero(mask) for mask in (table if table.shape[1] == n else table.T)
        ]
    return [
        part.astype(int) - 1
        for part in (table if table.shape[0] < table.shape[1] else table.T)
    ]


def seeded_folds(n: int, n_folds: int = 10) -> list[tuple[Any, Any]]:
    """Rows to train and to test on."""
    fold_of = np.random.default_rng(0).permutation(n) % n_folds
    return [
        (np.flatnonzero(fold_of != k), np.flatnonzero(fold_of == k))
        for k in range(n_folds)
    ]


def make_estimator(method: str, lam: float | None) -> Any:
    settings = dict(SETTINGS[method])
    if lam is not None and method != "perceptron":
        settings["lam"] = lam
    if method == "perceptron":
        return clew.StructuredPerceptron(Multiclass(), random_state=0)
    if method == "crf":
        return clew.StructuredCRF(Multiclass(), random_state=0, **settings)
    return clew.StructuredSVM(Multiclass(), loss=method, random_state=0, **settings)


def dense(matrix: Any) -> Any:
    return np.asarray(matrix.todense() if sp.issparse(matrix) else matrix)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("CLEW_DATA", "."))
    )
    parser.add_argument("--sets", nargs="+", default=["lost", "MSRCv2", "birdac"])
    parser.add_argument("--splits", choices=("ten", "file"), default="ten")
    parser.add_argument("--lam", type=float, help="in place of the automatic choice")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    arguments = parser.parse_args()
    console = Console(width=120)
    table = Table(
        "data",
        "examples",
        "classes",
        "candidates",
        "method",
        "accuracy",
        "± std",
        "λ",
        "CPU s a fit",
    )
    for name in arguments.sets:
        data = loadmat(arguments.data / "partial_labels" / f"{name}.mat")
        features, candidates, truth = (
            dense(data[key]) for key in ("features", "p_labels", "logitlabels")
        )
        n = len(features)
        candidates, truth = (
            candidates.reshape(n, -1).astype(bool),
            truth.reshape(n, -1).argmax(axis=1),
        )
        splits = seeded_folds(n)
        if arguments.splits == "file":
            splits = list(zip(rows(data["tr"], n), rows(data["te"], n), strict=True))
        for method in arguments.methods:
            accuracies, lams, seconds = [], [], []
            for train, test in track(
                splits, f"{name} {method}", console=console, transient=True
            ):
                mean, deviation = (
                    features[train].mean(axis=0),
                    features[train].std(axis=0),
                )
                X = (features - mean) / np.where(deviation > 0, deviation, 1.0)
                estimator = make_estimator(method, arguments.lam)
                began = time.process_time()
                estimator.fit(X[train], candidates[train])
                seconds.append(time.process_time() - began)
                accuracies.append(
                    np.mean(np.array(estimator.predict(X[test])) == truth[test])
                )
                lams.append(getattr(estimator, "lam_", np.nan))
            table.add_row(
                name,
                str(n),
                str(candidates.shape[1]),
                f"{candidates.sum(axis=1).mean():.2f}",
                method,
                f"{np.mean(accuracies):.1%}",
                f"{np.std(accuracies):.1%}",
                f"{np.median(lams):.3g}",
                f"{np.median(seconds):.1f}",
            )
            console.print(f"{name} {method}: {np.mean(accuracies):.3f}")
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
