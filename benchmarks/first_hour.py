"""What a newcomer runs in the first hour: imports, first and second fits, beside others.

    pip install -e . python-crfsuite
    python benchmarks/first_hour.py                       # 30, 300 and 3,000 examples
    python benchmarks/first_hour.py --sizes 30 --cold     # and with kernels to compile

Threads are those of the machine: nothing is set. Each line is a process of its own, with
CPU seconds (user and system, of all threads) of the import, of the first fit and of the
second one in the same process, and the share of test labels that are right. `--cold`
gives each process an empty cache of compiled kernels. Where a package of the others is
not installed, its line says so; PyStruct's last release does not build with Python 3.11.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

Fit = Callable[[Any, Any], Any]
TIMEOUT = 600
N_TEST = 100


def draw_rows(n: int) -> tuple[Any, Any]:
    """Rows of six classes in twenty features."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 20))
    labels = rng.integers(6, size=n)
    return centers[labels] + rng.normal(size=(n, 20)), labels


def draw_chains(n: int) -> tuple[list[Any], list[Any]]:
    """Chains of eight nodes with five features and four states."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 5))
    labels = [np.cumsum(rng.integers(2, size=8)) % 4 for _ in range(n)]
    return [centers[y] + rng.normal(size=(8, 5)) for y in labels], labels


def draw_trees(n: int) -> tuple[list[Any], list[Any]]:
    """The same nodes, each with an earlier one as its parent."""
    X, Y = draw_chains(n)
    parents = np.array([-1, 0, 0, 1, 1, 2, 2, 3])
    return [(x, parents) for x in X], Y


def draw_graphs(n: int) -> tuple[list[Any], list[Any]]:
    """The same nodes on a cycle."""
    X, Y = draw_chains(n)
    edges = np.array([(i, (i + 1) % 8) for i in range(8)])
    return [(x, edges) for x in X], Y


def draw_matchings(n: int) -> tuple[list[Any], list[Any]]:
    """Matchings of four rows with five columns."""
    rng = np.random.default_rng(0)
    labels = [rng.permutation(5)[:4] for _ in range(n)]
    X = []
    for y in labels:
        x = rng.normal(size=(4, 5, 6))
        x[np.arange(4), y, 0] += 2
        X.append(x)
    return X, labels


def make_fit(name: str) -> tuple[Callable[[int], tuple[Any, Any]], Fit]:
    """Return the data and the fit of one line; packages are imported here."""
    if name.startswith("sklearn"):
        from sklearn.linear_model import LogisticRegression

        return draw_rows, lambda X, Y: LogisticRegression(max_iter=500).fit(X, Y)
    if name.startswith("crfsuite"):
        return draw_chains, fit_crfsuite
    import clew
    from clew import models

    if name == "clew CRF chain":
        return draw_chains, clew.StructuredCRF(models.Chain(), lam=0.01).fit
    kind = name.removeprefix("clew ")
    draws = {
        "Multiclass": draw_rows,
        "Chain": draw_chains,
        "Tree": draw_trees,
        "Graph": draw_graphs,
        "Assignment": draw_matchings,
    }
    model = getattr(models, kind)()
    return draws[kind], clew.StructuredSVM(model, lam=0.01).fit


class CrfsuiteTagger:
    """python-crfsuite with real-valued features."""

    def __init__(self, path: str) -> None:
        import pycrfsuite

        self.tagger = pycrfsuite.Tagger()
        self.tagger.open(path)

    def score(self, X: Any, Y: Any) -> float:
        """Return the share of nodes that are right."""
        pairs = [
            (label, str(state))
            for x, y in zip(X, Y, strict=True)
            for label, state in zip(self.tagger.tag(name_features(x)), y, strict=True)
        ]
        return float(np.mean([one == other for one, other in pairs]))


def name_features(x: Any) -> list[dict[str, float]]:
    """Return a dict of features for each node."""
    return [{f"x{k}": float(v) for k, v in enumerate(row)} for row in x]


def fit_crfsuite(X: Any, Y: Any) -> CrfsuiteTagger:
    """Learn with CRFsuite's l-bfgs."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(name_features(x), [str(state) for state in y])
    handle, path = tempfile.mkstemp()
    os.close(handle)
    trainer.train(path)
    return CrfsuiteTagger(path)


NAMES = (
    "clew Multiclass",
    "sklearn LogisticRegression",
    "clew Chain",
    "clew CRF chain",
    "crfsuite chain",
    "clew Tree",
    "clew Graph",
    "clew Assignment",
)


def measure(name: str, n: int) -> None:
    """Print the CPU seconds of one line, and its score."""
    began = time.process_time()
    draw, fit = make_fit(name)
    imported = time.process_time()
    X, Y = draw(n + N_TEST)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        fitted = fit(X[:n], Y[:n])
        seconds.append(time.process_time() - start)
    score = fitted.score(X[n:], Y[n:])
    print(imported - began, *seconds, score)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 300, 3000])
    parser.add_argument("--names", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    table = Table(
        "examples", "what", "import s", "first fit s", "second fit s", "right"
    )
    for n in arguments.sizes:
        for name in arguments.names:
            table.add_row(str(n), name, *run_process(name, n, arguments.cold))
        table.add_section()
    Console(width=100).print(table)


def run_process(name: str, n: int, is_cold: bool) -> list[str]:
    """Return the figures of one line, from a new process with default threads."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if "NUM_THREADS" not in k}
        if is_cold:
            environment["NUMBA_CACHE_DIR"] = folder
        command = [sys.executable, __file__, "--measure", name, str(n)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ["", f"> {TIMEOUT}", "", ""]
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed"]
        return [lines[-1][:40], "", "", ""]
    figures = done.stdout.split()
    *seconds, score = (float(figure) for figure in figures)
    return [*(f"{second:.2f}" for second in seconds), f"{score:.3f}"]


if __name__ == "__main__":
    main()
