"""Do the rows that cut fractional answers off (models/cuts.py) earn their place? The same questions with and without.

    python benchmarks/cuts.py [--seeds 3]

A learner asks the same programme again and again, with other costs. A cut holds for all costs, so that it is paid for
once; without cuts, each fractional answer takes an integer programme. CPU time in one thread; both ways take turns on
the same costs, and must find the same values. Kinds: frame pairs of dividing cells, labels on grids, and stable sets on
odd cycles with chords.
"""

from __future__ import annotations

import argparse
from time import process_time
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from pairs import make_pairs
from rich.console import Console
from rich.table import Table

from clew.learning.task import Space
from clew.models import Graph
from clew.models import highs_solver as highs
from clew.models.highs_solver import WarmStartedProgram

QUESTIONS = 25


def walk(start: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Costs that change as a learner's do: ever smaller steps."""
    costs = [start]
    for k in range(QUESTIONS - 1):
        costs.append(
            costs[-1] + rng.normal(size=start.shape) * np.abs(start).mean() / (1 + k)
        )
    return costs


def pairs(
    rng: np.random.Generator, seed: int
) -> list[tuple[WarmStartedProgram, list[np.ndarray]]]:
    made = []
    for pair in make_pairs(3, 80, seed):
        x = pair.program
        n, w = x.A.shape[1], rng.normal(size=x.features.shape[1])
        program = WarmStartedProgram(x.A, x.lower, x.upper, np.zeros(n), np.ones(n))
        made.append((program, [np.asarray(x.features @ v) for v in walk(w, rng)]))
    return made


def grids(
    rng: np.random.Generator, size: int = 7, n_states: int = 3
) -> list[tuple[WarmStartedProgram, list[np.ndarray]]]:
    nodes = np.arange(size * size).reshape(size, size)
    edges = np.vstack(
        [
            np.c_[nodes[:, :-1].ravel(), nodes[:, 1:].ravel()],
            np.c_[nodes[:-1].ravel(), nodes[1:].ravel()],
        ]
    )
    made = []
    for _ in range(3):
        x = rng.normal(size=(size * size, 4)), edges
        model = Graph(n_states=n_states).prepare(
            [x], [np.arange(size * size) % n_states]
        )
        example = model.encode(x, None)
        scores = [
            example.scores(v, 0.0) for v in walk(rng.normal(size=model.n_features), rng)
        ]
        made.append((example.make_program(Space.ALL), scores))
    return made


def stable_sets(
    rng: np.random.Generator, n: int = 41
) -> list[tuple[WarmStartedProgram, list[np.ndarray]]]:
    made = []
    for _ in range(3):
        chords = rng.integers(n, size=(n, 2))
        ends = np.vstack(
            [
                np.c_[np.arange(n), (np.arange(n) + 1) % n],
                chords[chords[:, 0] != chords[:, 1]],
            ]
        )
        rows = np.repeat(np.arange(len(ends)), 2)
        A = sp.csr_array(
            (np.ones(2 * len(ends)), (rows, ends.ravel())), shape=(len(ends), n)
        )
        program = WarmStartedProgram(
            A, np.full(len(ends), -np.inf), np.ones(len(ends)), np.zeros(n), np.ones(n)
        )
        made.append((program, walk(rng.random(n) + 0.5, rng)))
    return made


def ask(
    program: WarmStartedProgram, costs: list[np.ndarray], most_cuts: int
) -> tuple[float, list[float], WarmStartedProgram]:
    """CPU seconds, the values found, and the programme with its counts."""
    fresh = WarmStartedProgram(
        program.A, program.row_lower, program.row_upper, program.lower, program.upper
    )
    with patch.object(highs, "MAX_CUTS", most_cuts):
        began = process_time()
        answers = [fresh.solve(c).y for c in costs]
        return (
            process_time() - began,
            [float(c @ y) for c, y in zip(costs, answers, strict=True)],
            fresh,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    table = Table(
        "kind",
        "fractional",
        "integer programmes",
        "with cuts",
        "cuts",
        "CPU without / with",
        "by seed",
    )
    for name in ("pairs", "grids", "stable sets"):
        ratios, fractional, without_mips, with_mips, cuts = [], 0, 0, 0, 0
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            made = (
                pairs(rng, seed)
                if name == "pairs"
                else grids(rng)
                if name == "grids"
                else stable_sets(rng)
            )
            seconds = np.zeros(2)
            for program, costs in made:
                none, values, plain = ask(program, costs, 0)
                some, others, cut = ask(program, costs, 1000)
                np.testing.assert_allclose(values, others, rtol=1e-6, atol=1e-6)
                seconds += none, some
                fractional += plain.counts.fractional
                without_mips, with_mips, cuts = (
                    without_mips + plain.counts.mips,
                    with_mips + cut.counts.mips,
                    cuts + cut.counts.cuts,
                )
            ratios.append(seconds[0] / seconds[1])
        mean = float(np.exp(np.mean(np.log(ratios))))
        table.add_row(
            name,
            str(fractional),
            str(without_mips),
            str(with_mips),
            str(cuts),
            f"{mean:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
