"""The same frame pairs solved by clew (one kept model), by HiGHS afresh each time, and by motile with SCIP.

    python benchmarks/inference.py                       # the sizes of docs/benchmarks-tracking.md, about 3 minutes
    python benchmarks/inference.py --cells 40 --questions 5

Every size is asked for the best assignment under the weights that a fit visited one after the other at its end: by the
paper's method, in small steps; or by clew's own (--fit clew), which takes few and large ones. Milliseconds are of CPU
time in one thread; the methods take turns. motile's Solver is built once, which is timed apart.
"""

from __future__ import annotations

import argparse
from time import process_time
from typing import Any

import highspy
import numpy as np
from pairs import Pair, make_pairs, motile_graph, motile_outputs, motile_solver
from rich.console import Console
from rich.table import Table

from clew import LOSSES, PRESETS, learn
from clew.models import BinaryProgram
from clew.models.binary_program import Program
from clew.models.highs_solver import WarmStartedProgram

METHODS = ("kept", "anew", "HiGHS", "motile")


def weights_of_a_fit(method: str, n_weights: int, seed: int) -> np.ndarray:
    """(n, d) the last weights at which a fit on ten pairs of 40 cells asked for outputs."""
    pairs = make_pairs(10, 40, seed)
    programs, truths = (
        [pair.program for pair in pairs],
        [np.where(pair.truth == 1, 1, -1) for pair in pairs],
    )
    task = BinaryProgram().prepare(programs, truths).task(programs, truths)
    visited: list[np.ndarray] = []
    ask = task.argmax

    def listen(w: np.ndarray, *arguments: Any) -> Any:
        if w.any() and not (visited and np.array_equal(w, visited[-1])):
            visited.append(w.copy())
        return ask(w, *arguments)

    task.argmax = listen
    learn(task, LOSSES["bridge"], 0.1, algorithm=PRESETS[method])
    return np.array(visited[-n_weights:])


def kept_program(x: Program) -> WarmStartedProgram:
    n = x.A.shape[1]
    return WarmStartedProgram(x.A, x.lower, x.upper, np.zeros(n), np.ones(n))


def fresh_highs(x: Program, scores: np.ndarray) -> np.ndarray:
    """The integer programme as it is, in one thread and to the optimum, else with HiGHS' own options."""
    highs = highspy.Highs()
    for name, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
        highs.setOptionValue(name, value)
    m, n = x.A.shape
    highs.passModel(
        *(
            n,
            m,
            x.A.nnz,
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMaximize),
            0.0,
        ),
        *(
            scores,
            np.zeros(n),
            np.ones(n),
            x.lower,
            x.upper,
            x.A.indptr.astype(np.int32),
        ),
        *(
            x.A.indices.astype(np.int32),
            x.A.data,
            np.full(n, int(highspy.HighsVarType.kInteger), dtype=np.int32),
        ),
    )
    highs.run()
    return np.rint(highs.getSolution().col_value)


def timed(function: Any, *arguments: Any) -> tuple[Any, float]:
    """The answer, and milliseconds of CPU time."""
    start = process_time()
    answer = function(*arguments)
    return answer, (process_time() - start) * 1e3


def measure(pair: Pair, visited: np.ndarray, motile_questions: int) -> dict[str, Any]:
    """Milliseconds of each method for each question, and how far apart the optima are."""
    x = pair.program
    kept = kept_program(x)
    _, first = timed(kept.solve, pair.features @ visited[0])
    solver, building = timed(motile_solver, motile_graph([pair]), [pair])
    ms: dict[str, list[float]] = {method: [] for method in METHODS}
    difference = 0.0
    for question, w in enumerate(visited[1:]):
        scores = pair.features @ w
        asked = {
            "kept": (kept.solve, scores),
            "anew": (lambda scores: kept_program(x).solve(scores), scores),
            "HiGHS": (fresh_highs, x, scores),
        }
        if question < motile_questions:
            solver.weights.from_ndarray(-w)
            asked["motile"] = (solver.solve,)
        values = []
        for method, call in asked.items():
            answer, taken = timed(*call)
            ms[method].append(taken)
            if method == "motile":
                y = motile_outputs(solver, answer, [pair])[0]
            else:
                y = answer if method == "HiGHS" else answer.y
            assert (x.A @ y == 1).all(), f"{method} broke conservation"
            values.append(float(scores @ y))
        difference = max(difference, np.ptp(values) / abs(values[0]))
    return {
        "ms": ms,
        "first": first,
        "building": building,
        "difference": difference,
        "variables": len(pair.candidates),
        "in motile": solver.num_variables,
        "fractional": kept.counts.fractional,
        "integer": kept.counts.mips,
    }


def ratios(theirs: list[float], ours: list[float]) -> str:
    """Of medians and of means, over the questions that both were asked."""
    ours = ours[: len(theirs)]
    return f"{np.median(theirs) / np.median(ours):.1f} ({np.mean(theirs) / np.mean(ours):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cells",
        type=int,
        nargs="+",
        default=[38, 195, 455],
        help="a frame pair for each",
    )
    parser.add_argument(
        "--questions", type=int, default=20, help="weights that each is solved for"
    )
    parser.add_argument(
        "--motile-questions",
        type=int,
        default=20,
        help="of them, how many motile is asked",
    )
    parser.add_argument(
        "--fit",
        choices=("paper", "clew"),
        default="paper",
        help="the method that made the weights",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console = Console(width=130)
    visited = weights_of_a_fit(arguments.fit, arguments.questions + 1, arguments.seed)
    steps = np.linalg.norm(np.diff(visited, axis=0), axis=1) / np.linalg.norm(
        visited[1:], axis=1
    )
    console.print(
        f"{len(visited)} weights of a fit; from one to the next they change by {np.median(steps):.1%} (median)"
    )
    table = Table("variables", "in motile", "optima differ by")
    for head in (
        "clew, kept",
        "clew, first",
        "clew, anew",
        "HiGHS, fresh",
        "motile",
        "its building",
    ):
        table.add_column(f"{head}\nms", justify="right")
    for head in ("motile / clew", "HiGHS / clew"):
        table.add_column(f"{head}\nmedian (mean)", justify="right")
    for cells in arguments.cells:
        (pair,) = make_pairs(1, cells, arguments.seed + 1)
        found = measure(pair, visited, arguments.motile_questions)
        median = {method: np.median(ms) for method, ms in found["ms"].items()}
        table.add_row(
            f"{found['variables']:,}",
            f"{found['in motile']:,}",
            f"{found['difference']:.0e}",
            f"{median['kept']:.2f}",
            f"{found['first']:.1f}",
            f"{median['anew']:.1f}",
            f"{median['HiGHS']:.1f}",
            f"{median['motile']:.0f}",
            f"{found['building']:.0f}",
            *(
                ratios(found["ms"][method], found["ms"]["kept"])
                for method in ("motile", "HiGHS")
            ),
        )
        console.print(
            f"{found['variables']:,} variables: {found['fractional']} of {len(visited)} questions had a fractional LP, "
            f"{found['integer']} took an integer programme"
        )
    console.print(table)


if __name__ == "__main__":
    main()
