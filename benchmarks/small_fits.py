"""CPU of fits on few examples to a gap of 10⁻², beside ten epochs of the perceptron.

    python benchmarks/small_fits.py                                   # all, about an hour
    python benchmarks/small_fits.py --models chain --sizes 30 --losses bridge pair

Model × loss × number of examples × λ, half of the parts annotated, with the default
number of threads. Kernels are compiled before the clock starts. A ratio above 10 and a
fit that did not converge are marked.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from clew import LOSSES, Algorithm, StructuredPerceptron, StructuredSVM
from clew.errors import NotConvergedWarning
from clew.models import Assignment, Chain, Graph, Multiclass, Tree

KNOWN = 0.5
"""The share of the parts that is annotated."""
N_STATES = 6
N_INPUTS = 20
GAP = 1e-2
LAMS = (1.0, 0.1, 0.01, 0.001)
SIZES = (30, 100, 300)
LIMIT = 10.0
"""The largest ratio of CPU to that of the perceptron."""
WARM_UP = 12
"""Examples of the fits that compile the kernels."""

Data = tuple[Any, list[Any], list[Any]]


def make_labelings(rng: np.random.Generator, n: int) -> tuple[list[Any], list[Any]]:
    """Noisy features (T, F) of labels of a Markov chain, and the labels, half of them hidden."""
    means = rng.normal(size=(N_STATES, N_INPUTS))
    follow = rng.dirichlet(np.full(N_STATES, 0.4), size=N_STATES)
    X = []
    Y = []
    for length in rng.integers(4, 10, size=n):
        states = [int(rng.integers(N_STATES))]
        while len(states) < length:
            states.append(int(rng.choice(N_STATES, p=follow[states[-1]])))
        X.append(means[states] + 2.0 * rng.normal(size=(length, N_INPUTS)))
        Y.append(np.where(rng.random(length) < KNOWN, states, -1))
    return X, Y


def make_chains(rng: np.random.Generator, n: int) -> Data:
    """Sequences."""
    X, Y = make_labelings(rng, n)
    return Chain(n_states=N_STATES), X, Y


def make_trees(rng: np.random.Generator, n: int) -> Data:
    """Random trees."""
    X, Y = make_labelings(rng, n)
    parents = [
        np.array([-1, *(int(rng.integers(k)) for k in range(1, len(x)))]) for x in X
    ]
    return Tree(n_states=N_STATES), list(zip(X, parents, strict=True)), Y


def make_graphs(rng: np.random.Generator, n: int) -> Data:
    """Cycles."""
    X, Y = make_labelings(rng, n)
    inputs = []
    for x in X:
        nodes = np.arange(len(x))
        edges = np.column_stack([nodes, np.roll(nodes, -1)])
        inputs.append((x, edges))
    return Graph(n_states=N_STATES), inputs, Y


def make_rows(rng: np.random.Generator, n: int) -> Data:
    """Rows with candidate sets of two classes, or one."""
    means = rng.normal(size=(N_STATES, N_INPUTS))
    truth = rng.integers(N_STATES, size=n)
    X = means[truth] + 2.0 * rng.normal(size=(n, N_INPUTS))
    other = rng.integers(N_STATES, size=n)
    known = rng.random(n) < KNOWN
    Y = [
        {int(y)} if certain else {int(y), int(o)}
        for y, o, certain in zip(truth, other, known, strict=True)
    ]
    return Multiclass(classes=list(range(N_STATES))), X, Y


def make_assignments(rng: np.random.Generator, n: int) -> Data:
    """Five rows, six columns."""
    direction = rng.normal(size=N_INPUTS) / np.sqrt(N_INPUTS)
    X = []
    Y = []
    for _ in range(n):
        y = rng.permutation(6)[:5]
        x = rng.normal(size=(5, 6, N_INPUTS))
        x[np.arange(5), y] += 2.0 * direction
        X.append(x)
        Y.append(np.where(rng.random(5) < KNOWN, y, -1))
    return Assignment(), X, Y


MAKERS: dict[str, Callable[[np.random.Generator, int], Data]] = {
    "multiclass": make_rows,
    "chain": make_chains,
    "tree": make_trees,
    "assignment": make_assignments,
    "graph": make_graphs,
}


def measure_cpu(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, user and system, and what it returned."""
    before = time.process_time()
    value = run()
    return time.process_time() - before, value


def print_row(cells: list[str]) -> None:
    """Print a row of the table at once, since the next one may take minutes."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MAKERS), choices=MAKERS)
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--lams", nargs="+", type=float, default=list(LAMS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    print("CPU, × perceptron; in brackets passes over the data")
    header = ["model", "examples", "perceptron s", "loss"]
    header += [f"λ = {lam:g}" for lam in arguments.lams]
    print_row(header)
    print_row(["---"] * len(header))
    worst = 0.0
    unconverged = 0
    warnings.simplefilter("ignore", NotConvergedWarning)
    algorithm = Algorithm(tol=GAP, eta=GAP)
    for name in arguments.models:
        for n in arguments.sizes:
            model, X, Y = MAKERS[name](np.random.default_rng(arguments.seed), n)

            def fit_perceptron(count: int | None = None) -> Any:
                learner = StructuredPerceptron(model, max_epochs=10, patience=10)
                return learner.fit(X[:count], Y[:count])

            def fit(loss: str, lam: float, count: int | None = None) -> Any:
                svm = StructuredSVM(model, loss=loss, lam=lam, algorithm=algorithm)
                return svm.fit(X[:count], Y[:count])

            fit_perceptron(WARM_UP)
            epochs, _ = measure_cpu(fit_perceptron)
            for loss in arguments.losses:
                fit(loss, 1.0, WARM_UP)
                cells = []
                for lam in arguments.lams:
                    seconds, svm = measure_cpu(lambda: fit(loss, lam))
                    ratio = seconds / epochs
                    worst = max(worst, ratio)
                    unconverged += not svm.result_.converged
                    mark = "" if svm.result_.converged else " not converged"
                    mark += " !" if ratio > LIMIT else ""
                    cells.append(f"{ratio:.1f} ({svm.result_.passes:.0f}){mark}")
                print_row([name, str(n), f"{epochs:.3f}", loss, *cells])
    print(f"worst ratio {worst:.1f}; {unconverged} fits did not converge")


if __name__ == "__main__":
    main()
