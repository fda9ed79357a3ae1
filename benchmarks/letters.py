"""Handwritten words (OCR letters): letter accuracy, objective, CPU seconds and memory, full and partial annotation.

    CLEW_DATA=path/to/data python benchmarks/letters.py

Training on fold 1 (704 words), testing on the nine others. Partial: a quarter of the letters is visible, by the data
set's own mask. Kernels are compiled before the clock starts. docs/benchmarks.md has the figures, and the peers'.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import clew
from clew.models import Chain

PLAIN = {"bias": False, "boundary": False, "label_scale": 1.0}
C = 0.1
"""½‖w‖² + C Σ loss is the scaling of the peers: λ = 1 / (C N) for N annotated words."""


def load(path: Path) -> tuple[list[Any], list[Any], list[Any], Any]:
    """Words, labels, labels with -1 where the letter is hidden, folds."""
    data = np.load(path, allow_pickle=False)
    pixels = np.unpackbits(data["pixels"], axis=1)
    labels = data["labels"].astype(int)
    observed = np.unpackbits(data["observed"])[: len(labels)].astype(bool)
    cuts = np.cumsum(data["lengths"].astype(int))[:-1]
    partial = np.where(observed, labels, -1)
    return np.split(pixels, cuts), np.split(labels, cuts), np.split(partial, cuts), data["folds"]


def accuracy(svm: clew.StructuredSVM, X: list[Any], Y: list[Any]) -> float:
    return float(np.mean(np.concatenate(svm.predict(X)) == np.concatenate(Y)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CLEW_DATA", ".")))
    parser.add_argument("--seeds", type=int, default=1, help="of the folds that choose λ")
    arguments = parser.parse_args()
    X, Y, partial, folds = load(arguments.data / "letters.npz")
    train, test = np.flatnonzero(folds == 1), np.flatnonzero(folds != 1)
    X_test, Y_test = [X[i] for i in test], [Y[i] for i in test]
    X_train = [X[i] for i in train]
    annotations = {"full": [Y[i] for i in train], "partial": [partial[i] for i in train]}
    console = Console(width=140)

    clew.StructuredSVM(Chain(n_states=26), lam=1.0).fit(X_train[:40], annotations["partial"][:40])  # compiles
    model = Chain(n_states=26).prepare(X_train, annotations["full"])
    task = model.task(X_train, annotations["full"])
    w = np.random.default_rng(0).normal(size=task.n_features)
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        task.argmax(w, clew.Space.ALL, 1.0)
        seconds.append(time.perf_counter() - began)
    console.print(
        f"one pass over 704 words: median {1e3 * np.median(seconds):.1f} ms, fastest {1e3 * min(seconds):.1f} ms"
    )

    columns = "annotated features λ start accuracy objective gap passes CPU_s"
    table = Table(*columns.split())

    def run(name: str, features: str, lam: float | str, start: str, seed: int = 0) -> float:
        settings = PLAIN if features == "plain" else {}
        svm = clew.StructuredSVM(Chain(n_states=26, **settings), lam=lam, start=start, random_state=seed)
        began = time.process_time()
        svm.fit(X_train, annotations[name])
        cpu = time.process_time() - began
        result = svm.result_
        scaled = result.objective / svm.lam_  # ½‖w‖² + C Σ loss with C = 1 / (λ N)
        table.add_row(
            name, features, f"{'auto: ' if lam == 'auto' else ''}{svm.lam_:.4g}", start,
            f"{accuracy(svm, X_test, Y_test):.2%}", f"{scaled:.3f}", f"{result.gap:.1g}", f"{result.passes:g}",
            f"{cpu:.1f}",
        )  # fmt: skip
        for point in svm.path_:
            held_out = f"{point.mean:.3f} ± {point.standard_error:.3f}"
            console.print(f"  {name} λ {point.lam:.4g}: wrong letters in a held-out word {held_out}")
        return float(svm.lam_)

    for name in ("full", "partial"):
        n_words = sum(bool((y >= 0).any()) for y in annotations[name])
        lam = 1.0 / (C * n_words)
        run(name, "plain", lam, "auto")
        if name == "partial":
            run(name, "plain", lam, "zero")
        for seed in range(arguments.seeds):
            lam = run(name, "default", "auto", "auto", seed)
        run(name, "default", lam, "auto")
        if name == "partial":
            run(name, "default", lam, "zero")
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main()
