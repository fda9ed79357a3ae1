"""motile's `fit_weights` and clew's StructuredSVM on the same candidate graphs: seconds and held-out error.

    python benchmarks/learning.py                            # the settings of docs/benchmarks-tracking.md
    python benchmarks/learning.py --pairs 5 --cells 20 --draws 1 --regularisers 1

Both learn weights of the same joint features from the same annotated events. motile's `fit_weights` knows the truth
of nodes and edges only: all other variables (divisions, appearances, disappearances) count as absent in the truth, and
so do edges that nobody annotated; only its Hamming loss leaves them out. So it is also fitted with edge features alone.

clew chooses λ by itself, on the annotations. motile has no such choice: of several fits the one with the least error
on the held-out pairs is shown, which favours it; the same is done for clew for comparison. Seconds are of CPU time, in
one thread.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from pairs import EVENTS, Pair, make_pairs, motile_graph, motile_solver
from rich.console import Console
from rich.table import Table

from clew import StructuredSVM
from clew.models import BinaryProgram
from clew.models.highs_solver import WarmStartedProgram
from clew.tracking.events import Event


def annotate(pair: Pair, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """(n,) 1 for a part of what happened, of each event alike; −1 for unknown."""
    annotation = np.full(len(pair.truth), -1, dtype=np.int8)
    for event in EVENTS:
        happened = np.flatnonzero((pair.candidates.event == event) & (pair.truth == 1))
        count = int(
            np.floor(fraction * len(happened) + rng.random())
        )  # so that rare events keep their share
        annotation[rng.choice(happened, min(count, len(happened)), replace=False)] = 1
    return annotation


def fit_clew(
    pairs: Sequence[Pair], annotations: Sequence[np.ndarray], lam: float | str
) -> tuple[np.ndarray, str]:
    """The weights, and in words what was done."""
    svm = StructuredSVM(BinaryProgram(), lam=lam, n_jobs=1, random_state=0)
    svm.fit([pair.program for pair in pairs], annotations)
    return svm.coef_, f"λ = {svm.lam_:.3g}"


def fit_motile(
    pairs: Sequence[Pair],
    annotations: Sequence[np.ndarray],
    events: Sequence[Event],
    regulariser: float,
    stop: Any,
) -> tuple[np.ndarray, str]:
    """The weights with clew's sign, and in words what was done.

    Marked 1 are all nodes and the edges of annotated events; 0 all other edges of the cells in these events, which
    cannot have happened beside them; what is left is not marked, which means unlabeled to motile.
    """
    graph = motile_graph(pairs)
    for node in graph.nodes.values():
        node["truth"] = 1
    for p, (pair, annotation) in enumerate(zip(pairs, annotations, strict=True)):
        yes, c = pair.edges(annotation), pair.candidates
        known = np.flatnonzero(annotation == 1)
        sources, targets = (
            set(c.sources[known].ravel().tolist()),
            set(c.targets[known].ravel().tolist()),
        )
        for ((q, _, s), (_, _, t)), edge in graph.edges.items():
            if q == p and (s in sources or t in targets):
                edge["truth"] = int((s, t) in yes)
    solver = motile_solver(graph, pairs, events)
    words = f"{'all' if len(events) > 1 else 'edge'} features, {regulariser:g}"
    w = np.zeros(pairs[0].features.shape[1])
    with silence():  # structsvm lets SCIP print its log
        try:
            solver.fit_weights("truth", regularizer_weight=regulariser, **stop)
        except Exception as error:  # SCIP raises no other
            return w, f"{words}: {error}"
    learned = np.concatenate(
        [np.arange(w.size)[pairs[0].blocks[event]] for event in events]
    )
    w[learned] = -solver.weights.to_ndarray()
    return w, words


class Run(NamedTuple):
    """A fit, measured; the best is the least."""

    missed: float
    edges: float
    seconds: float
    words: str

    def __str__(self) -> str:
        return f"{self.words}: {self.seconds:.2f} s, missed {self.missed:.4f}, edge error {self.edges:.4f}"


@contextmanager
def silence() -> Iterator[None]:
    """Nothing that a library prints past Python reaches the terminal."""
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for place, original in enumerate(kept, start=1):
            os.dup2(original, place)
            os.close(original)
        os.close(nowhere)


def held_out(pairs: Sequence[Pair], w: np.ndarray) -> tuple[float, float]:
    """The fraction of events that the best outputs under w miss; missed and extra edges over true edges."""
    missed = events = wrong = edges = 0
    for pair in pairs:
        x, n = pair.program, len(pair.truth)
        program = WarmStartedProgram(x.A, x.lower, x.upper, np.zeros(n), np.ones(n))
        y = program.solve(pair.features @ w).y
        missed, events = (
            missed + int(((pair.truth == 1) & (y == 0)).sum()),
            events + int(pair.truth.sum()),
        )
        true = pair.edges(pair.truth)
        wrong, edges = wrong + len(true ^ pair.edges(y)), edges + len(true)
    return missed / events, wrong / edges


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument(
        "--draws", type=int, default=2, help="of movies and annotations"
    )
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.25])
    parser.add_argument(
        "--lams",
        type=float,
        nargs="+",
        default=[1.0, 0.1, 0.01],
        help="of clew, besides its own choice",
    )
    parser.add_argument(
        "--regularisers", type=float, nargs="+", default=[10.0, 100.0], help="of motile"
    )
    parser.add_argument(
        "--eps",
        type=float,
        default=1e-2,
        help="motile's gap; it never reaches its own default of 1e-6",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=100,
        help="motile's limit; its own default is 1000",
    )
    arguments = parser.parse_args()
    stop = {"eps": arguments.eps, "max_iterations": arguments.iterations}
    console = Console(width=130)
    table = Table(
        "annotated", "draw", "method", "setting", "CPU s", "events missed", "edge error"
    )
    ratios: dict[float, list[list[float]]] = {
        fraction: [] for fraction in arguments.fractions
    }
    for fraction, draw in product(arguments.fractions, range(arguments.draws)):
        train, test = (
            make_pairs(arguments.pairs, arguments.cells, seed)
            for seed in (draw, 1000 + draw)
        )
        rng = np.random.default_rng(draw)
        annotations = [annotate(pair, fraction, rng) for pair in train]
        settings = product(((Event.MOVE,), EVENTS), arguments.regularisers, [stop])
        plan = {
            "clew": [(fit_clew, "auto")],
            "clew, best of": [(fit_clew, lam) for lam in arguments.lams],
            "motile, best of": [(fit_motile, *setting) for setting in settings],
        }
        runs: dict[str, list[Run]] = {name: [] for name in plan}
        for name, fits in plan.items():
            for fit, *setting in fits:
                start = process_time()
                w, words = fit(train, annotations, *setting)
                seconds = process_time() - start
                runs[name].append(Run(*held_out(test, w), seconds, words))
                console.print(
                    f"{fraction:.0%} draw {draw} {name.split(',')[0]}: {runs[name][-1]}"
                )
            best = min(runs[name])
            table.add_row(
                f"{fraction:.0%}",
                str(draw),
                f"{name} {len(fits)}" if len(fits) > 1 else name,
                best.words,
                f"{best.seconds:.2f}",
                f"{best.missed:.4f}",
                f"{best.edges:.4f}",
            )
        auto, ours, theirs = (min(found) for found in runs.values())
        tuning = sum(run.seconds for run in runs["motile, best of"])
        ratios[fraction].append(
            [
                *(
                    theirs.seconds / ours.seconds,
                    theirs.seconds / auto.seconds,
                    tuning / auto.seconds,
                ),
                *(
                    theirs.missed / max(auto.missed, 1e-4),
                    theirs.edges / max(auto.edges, 1e-4),
                ),
            ]
        )
    console.print(table)
    for fraction, found in ratios.items():
        fit, auto, tuning, missed, edges = np.exp(np.mean(np.log(found), axis=0))
        console.print(
            f"{fraction:.0%}, motile / clew: seconds {fit:.0f} (one fit each), {auto:.0f} (one fit, clew choosing λ), "
            f"{tuning:.0f} (all fits, clew choosing λ); events missed {missed:.1f}, edge error {edges:.1f}"
        )


if __name__ == "__main__":
    main()
