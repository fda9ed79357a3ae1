"""What a kept HiGHS model saves over a fresh one, on assignment programmes whose costs change as in learning.

python benchmarks/kept_program.py [n_programs] [questions]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
from instances import annotate, assignment_programs

from clew.learning.task import Space
from clew.models.binary_program import BinaryProgram, Program
from clew.models.highs_solver import Solution, WarmStartedProgram, make_model, run_model


def weights_of_a_fit(programs, truths, steps):
    """(steps, d) the weights that subgradient descent on the hinge loss visits."""
    model = BinaryProgram().prepare(programs, truths)
    task = model.task(programs, truths)
    truth = np.array(
        [model.joint_features(x, y) for x, y in zip(programs, truths, strict=True)]
    )
    w, visited = np.zeros(model.n_features), []
    for step in range(steps + 5):
        answer = task.argmax(w, Space.ALL, 1.0)
        w = w + 0.1 / np.sqrt(1 + step) * (
            (truth - answer.features) / [[len(y)] for y in truths]
        ).sum(axis=0)
        visited.append(w)
    return np.array(visited[5:])


def fresh_model(x: Program) -> WarmStartedProgram:
    return WarmStartedProgram(
        x.A, x.lower, x.upper, np.zeros(x.A.shape[1]), np.ones(x.A.shape[1])
    )


def plain_integer(x: Program, scores):
    """The integer programme, handed to HiGHS as it is."""
    n = x.A.shape[1]
    highs = make_model(
        x.A, x.lower, x.upper, np.zeros(n), np.ones(n), scores, is_integer=True
    )
    return run_model(highs)


def timed(function, *arguments):
    start = perf_counter()
    answer = function(*arguments)
    return answer, (perf_counter() - start) * 1e3


def main(n_programs: int = 6, questions: int = 20) -> None:
    programs, truths = assignment_programs(n_programs, (400, 5000), 40, seed=0)
    visited = weights_of_a_fit(programs, truths, questions)
    print(
        "           ms a question: kept,           iterations a    share of questions       rows"
    )
    print(
        "variables  fresh, plain integer           LP: kept fresh   fractional  integer    added"
    )
    for x, y in zip(programs, truths, strict=True):
        shift = (1.0 - 2.0 * y) / len(y)
        kept, fresh_iterations, fresh_lps, ms = fresh_model(x), 0, 0, np.zeros(3)
        kept.solve(x.features @ visited[0] + shift)
        warm_iterations, warm_lps, warm_fractional, warm_mips = counts(kept)
        for w in visited:
            scores = x.features @ w + shift
            fresh = fresh_model(x)
            questions = (
                (kept.solve, scores),
                (fresh.solve, scores),
                (plain_integer, x, scores),
            )
            answers, times = zip(
                *(timed(*question) for question in questions), strict=True
            )
            ms += times
            ys = [a.y if isinstance(a, Solution) else np.rint(a) for a in answers]
            values = [scores @ y for y in ys]
            assert np.ptp(values) < 1e-6, f"kept, fresh and plain disagree: {values}"
            fresh_iterations, fresh_lps = (
                fresh_iterations + fresh.counts.simplex_iterations,
                fresh_lps + fresh.counts.lps,
            )
        n, (iterations, lps, fractional, mips) = len(visited), counts(kept)
        print(
            f"{len(y):9d} {ms[0] / n:7.2f} {ms[1] / n:7.2f} ({ms[1] / ms[0]:4.1f}×)"
            f" {ms[2] / n:7.2f} ({ms[2] / ms[0]:5.1f}×)"
            f" {(iterations - warm_iterations) / (lps - warm_lps):7.1f} {fresh_iterations / fresh_lps:6.1f}"
            f" {(fractional - warm_fractional) / n:12.0%} {(mips - warm_mips) / n:8.0%} {kept.counts.cuts:8d}"
        )
    threads(programs, truths, visited)


def counts(kept: WarmStartedProgram) -> tuple[int, int, int, int]:
    return (
        kept.counts.simplex_iterations,
        kept.counts.lps,
        kept.counts.fractional,
        kept.counts.mips,
    )


def threads(programs, truths, visited) -> None:
    """The whole task with one thread and with two, and HiGHS alone on two models."""
    partial = [
        annotate(x, y, 0.25, seed=n)
        for n, (x, y) in enumerate(zip(programs, truths, strict=True))
    ]
    seconds = {}
    for n_jobs in (1, 2):
        task = (
            BinaryProgram().prepare(programs, partial).task(programs, partial, n_jobs)
        )
        task.argmax(visited[0], Space.ALL, 1.0)
        start = perf_counter()
        for w in visited:
            task.argmax(w, Space.ALL, 1.0)
        seconds[n_jobs] = (perf_counter() - start) / len(visited)
    ms = {n_jobs: f"{1e3 * seconds[n_jobs]:.1f} ms" for n_jobs in seconds}
    print(
        f"a pass over {len(programs)} programmes, 25 % annotated: {ms[1]} with 1 thread, {ms[2]} with 2"
    )

    def solve(highs) -> None:
        highs.run()

    x = programs[-1]
    n = x.A.shape[1]

    def models(count: int) -> list:
        arrays = x.A, x.lower, x.upper, np.zeros(n), np.ones(n), x.features @ visited[0]
        return [make_model(*arrays, is_integer=True) for _ in range(count)]

    _, one = timed(lambda: [solve(highs) for highs in models(4)])
    with ThreadPoolExecutor(2) as pool:
        _, two = timed(lambda: list(pool.map(solve, models(4))))
    print(f"Highs.run() on 4 models: {one:.0f} ms in one thread, {two:.0f} ms in two")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
