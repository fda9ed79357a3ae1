"""Handwritten words (OCR letters): letter accuracy, objective, CPU seconds and memory, full and partial annotation.

    CLEW_DATA=path/to/data python benchmarks/letters.py                          # means over 10 masks and starts
    CLEW_DATA=path/to/data python benchmarks/letters.py --draws 1 --rows plain zero auto given

Training on fold 1 (704 words), testing on the nine others. Partial: a quarter of the letters is visible, in the first
draw by the data set's own mask, then by masks at random. A draw has its own mask, folds and order of the stochastic
phase. Kernels are compiled before the clock starts. docs/benchmarks.md has the figures, and the peers'.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import clew
from clew.models import Chain

PLAIN = {"bias": False, "boundary": False, "label_scale": 1.0}
C = 0.1
"""½‖w‖² + C Σ loss is the scaling of the peers: λ = 1 / (C N) for N annotated words."""
GIVEN = {"full": 0.0232, "partial": 0.032}
"""What the choice of λ took when it was first measured."""
VISIBLE = 0.25
ROWS = ("given", "auto", "plain", "zero")
"""Default features at a given λ, with λ chosen, plain features, and default features from w = 0."""


class Words(NamedTuple):
    """Fold 1 to train on, the others to test on, and which letters of fold 1 are visible in the partial setting."""

    X: list[Any]
    Y: list[Any]
    observed: list[Any]
    X_test: list[Any]
    Y_test: list[Any]

    def annotations(self, name: str, draw: int) -> list[Any]:
        """Labels, with −1 where the letter is hidden."""
        if name == "full":
            return self.Y
        rng = np.random.default_rng(draw)
        visible = (
            self.observed
            if draw == 0
            else [rng.random(len(y)) < VISIBLE for y in self.Y]
        )
        return [np.where(seen, y, -1) for seen, y in zip(visible, self.Y, strict=True)]


class Fit(NamedTuple):
    """One fit, measured."""

    lam: float
    accuracy: float
    objective: float
    gap: float
    passes: float
    cpu: float


def load(path: Path) -> Words:
    data = np.load(path, allow_pickle=False)
    pixels = np.unpackbits(data["pixels"], axis=1)
    labels = data["labels"].astype(int)
    observed = np.unpackbits(data["observed"])[: len(labels)].astype(bool)
    cuts = np.cumsum(data["lengths"].astype(int))[:-1]
    X, Y, seen = (np.split(values, cuts) for values in (pixels, labels, observed))
    train, test = np.flatnonzero(data["folds"] == 1), np.flatnonzero(data["folds"] != 1)
    return Words(
        [X[i] for i in train],
        [Y[i] for i in train],
        [seen[i] for i in train],
        [X[i] for i in test],
        [Y[i] for i in test],
    )


def measure(words: Words, name: str, row: str, draw: int) -> Fit:
    """A fit on one draw of the annotations, and what it gets right."""
    annotations = words.annotations(name, draw)
    n_words = sum(bool((y >= 0).any()) for y in annotations)
    lam = {"auto": "auto", "plain": 1.0 / (C * n_words)}.get(row, GIVEN[name])
    svm = clew.StructuredSVM(
        Chain(n_states=26, **(PLAIN if row == "plain" else {})),
        lam=lam,
        start="zero" if row == "zero" else "auto",
        algorithm=clew.Algorithm(random_state=draw),
        random_state=draw,
    )
    began = time.process_time()
    svm.fit(words.X, annotations)
    cpu = time.process_time() - began
    accuracy = float(
        np.mean(
            np.concatenate(svm.predict(words.X_test)) == np.concatenate(words.Y_test)
        )
    )
    result = svm.result_
    # ½‖w‖² + C Σ loss with C = 1 / (λ N) is J / λ
    return Fit(
        svm.lam_, accuracy, result.objective / svm.lam_, result.gap, result.passes, cpu
    )


def pass_seconds(words: Words) -> list[float]:
    """Of one pass over all words: scores, Viterbi, features."""
    task = Chain(n_states=26).prepare(words.X, words.Y).task(words.X, words.Y)
    w = np.random.default_rng(0).normal(size=task.n_features)
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        task.argmax(w, clew.Space.ALL, 1.0)
        seconds.append(time.perf_counter() - began)
    return seconds


def spread(values: Sequence[float], form: str) -> str:
    """The mean, and the standard deviation of single draws where there are several."""
    mean = format(float(np.mean(values)), form)
    return mean if len(values) == 1 else f"{mean} ± {float(np.std(values, ddof=1)):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("CLEW_DATA", "."))
    )
    parser.add_argument(
        "--draws", type=int, default=10, help="of masks, folds and orders"
    )
    parser.add_argument(
        "--annotated",
        nargs="+",
        choices=("full", "partial"),
        default=["full", "partial"],
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=["given", "auto"])
    arguments = parser.parse_args()
    words = load(arguments.data / "letters.npz")
    console = Console(width=140)
    few = words.X[:150], words.annotations("partial", 0)[:150]
    clew.StructuredSVM(Chain(n_states=26), lam=1.0).fit(*few)  # compiles
    seconds = pass_seconds(words)
    console.print(
        f"one pass over 704 words: median {1e3 * np.median(seconds):.1f} ms, fastest {1e3 * min(seconds):.1f} ms"
    )
    table = Table(
        "annotated",
        "fit",
        "λ",
        "accuracy %",
        "objective",
        "gap",
        "passes",
        "CPU s",
        "slowest",
    )
    for name in arguments.annotated:
        for row in arguments.rows:
            fits = [measure(words, name, row, draw) for draw in range(arguments.draws)]
            for draw, fit in enumerate(fits):
                console.print(f"{name} {row} draw {draw}: {fit}")
            lam, accuracy, objective, gap, passes, cpu = (
                np.array(values) for values in zip(*fits, strict=True)
            )
            table.add_row(
                name,
                row,
                spread(lam, ".4f"),
                spread(100 * accuracy, ".2f"),
                spread(objective, ".2f"),
                f"{gap.max():.1g}",
                spread(passes, ".0f"),
                spread(cpu, ".2f"),
                f"{cpu.max():.2f}",
            )
    console.print(table)
    console.print(
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB"
    )


if __name__ == "__main__":
    main()
