"""Passes, bounds and seconds of Yu & Joachims' procedure, the paper's method and clew's default, side by side.

    python benchmarks/optimiser.py                 # all until they converge, about 20 minutes
    python benchmarks/optimiser.py --programs 6 --lams 1 0.01
    python benchmarks/optimiser.py --programs 6 20 60 --margin 1.05    # stops the others a bit beyond what is claimed:
                                                                    # about 12 minutes
    python benchmarks/optimiser.py --methods clew                   # clew alone

Every method gets the same 20 assignment-like programmes (400 to 5,000 variables, 40 weights), the same start (the
convex problem on the annotated parts), and must certify the same gap. One pass is one augmented inference for each
example; inferences for the reward are shown too. Kernels are compiled before the clock starts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np
from instances import annotate, assignment_programs
from rich.console import Console
from rich.table import Table

from clew import LOSSES, PRESETS, learn
from clew.errors import NotConvergedWarning
from clew.learning.initialization import Initializer
from clew.models import BinaryProgram

METHODS = ("clew", "paper", "yu-joachims")
CLAIMED = {"paper": 5, "yu-joachims": 8}
"""How many times clew's passes the others are claimed to need at the least, in the geometric mean."""


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, nargs="+", default=[20])
    parser.add_argument("--lams", type=float, nargs="+", default=[1.0, 0.01, 0.001])
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.25])
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-passes", type=float, default=4000)
    parser.add_argument(
        "--margin",
        type=float,
        help="stop the others at so many times the claimed ratio of passes",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=METHODS,
        help="clew first, which others follow",
    )
    arguments = parser.parse_args()
    console = Console(width=130)
    programs, truths = assignment_programs(1, (600, 600))
    learn(
        BinaryProgram().prepare(programs, truths).task(programs, truths),
        LOSSES["bridge"],
        1.0,
    )  # compiles
    for n_programs in arguments.programs:
        compare(n_programs, arguments, console)


def compare(n_programs: int, arguments: argparse.Namespace, console: Console) -> None:
    """All methods in all settings on so many programmes."""
    console.print(f"making {n_programs} programmes …")
    programs, truths = assignment_programs(n_programs, seed=arguments.seed)
    sizes = [len(truth) for truth in truths]
    console.print(
        f"{min(sizes)}–{max(sizes)} variables, {programs[0].features.shape[1]} weights, gap and η {arguments.tol}"
    )
    columns = "annotated λ method objective CCCP passes reward bounds seconds argmax update status"
    table = Table(*columns.split())
    others = [
        method for method in METHODS if method in arguments.methods and method != "clew"
    ]
    ratios: dict[str, dict[str, list[float]]] = {
        m: {"passes": [], "all": [], "seconds": []} for m in others
    }
    spread, stopped = [], 0
    for fraction in arguments.fractions:
        annotations = [
            annotate(p, y, fraction, seed=i)
            for i, (p, y) in enumerate(zip(programs, truths, strict=True))
        ]
        model = BinaryProgram().prepare(programs, annotations)
        for lam in arguments.lams:
            results = {}
            task = model.task(programs, annotations, n_jobs=arguments.jobs)
            annotated = Initializer(task, LOSSES["bridge"])
            start = annotated.weights_for(lam)
            console.print(
                f"{fraction:.0%} λ={lam:g} start for all, on the annotated parts: {annotated.result or 'zero'}"
            )
            for method in ["clew", *others]:
                # A fresh task for each: kept solvers of one method must not warm the next one's.
                task = model.task(programs, annotations, n_jobs=arguments.jobs)
                limit = arguments.max_passes
                if arguments.margin and method in CLAIMED:
                    limit = min(
                        limit,
                        arguments.margin * CLAIMED[method] * results["clew"][0].passes,
                    )
                algorithm = replace(
                    PRESETS[method],
                    tol=arguments.tol,
                    eta=arguments.tol,
                    max_passes=limit,
                )
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter(
                        "ignore", NotConvergedWarning
                    )  # the status column says it
                    result = learn(
                        task, LOSSES["bridge"], lam, algorithm=algorithm, start=start
                    )
                seconds = time.perf_counter() - began
                results[method] = result, seconds
                table.add_row(
                    f"{fraction:.0%}",
                    f"{lam:g}",
                    method,
                    f"{result.objective:.5f}",
                    str(result.iterations),
                    f"{result.passes:g}",
                    f"{result.reward_passes:g}",
                    str(result.bounds),
                    f"{seconds:.2f}",
                    f"{result.seconds['oracle']:.2f}",
                    f"{result.seconds['master']:.2f}",
                    result.status.value,
                )
                console.print(f"{fraction:.0%} λ={lam:g} {method}: {result}")
            table.add_section()
            objectives = [
                result.objective for result, _ in results.values() if result.converged
            ]
            spread.append(max(objectives) - min(objectives))
            stopped += sum(not result.converged for result, _ in results.values())
            ours, our_seconds = results["clew"]
            for method in others:
                theirs, seconds = results[method]
                ratios[method]["passes"].append(theirs.passes / ours.passes)
                ratios[method]["all"].append(
                    (theirs.passes + theirs.reward_passes)
                    / (ours.passes + ours.reward_passes)
                )
                ratios[method]["seconds"].append(seconds / our_seconds)
    console.print(table)
    if stopped:
        console.print(
            f"{stopped} runs were stopped before they had converged; their ratios are lower bounds"
        )
    for method in others:
        r = ratios[method]
        console.print(
            f"{n_programs} programmes, {method} / clew, geometric mean: passes {geometric_mean(r['passes']):.1f}, "
            f"passes with rewards {geometric_mean(r['all']):.1f}, seconds {geometric_mean(r['seconds']):.1f} "
            f"(smallest: {min(r['passes']):.1f}, {min(r['all']):.1f}, {min(r['seconds']):.1f})"
        )
    console.print(
        f"largest difference of converged objectives in a setting: {max(spread):.5f}; 2 ε = {2 * arguments.tol:g}"
    )


if __name__ == "__main__":
    main()
