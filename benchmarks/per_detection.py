"""CPU of tracking, per detection and by steps: this clew, and another one beside it.

    python benchmarks/per_detection.py MOVIE … [--against SRC] [--frames 0:30] [--repeats 3] [--measured]

A movie is a folder as `clew track` takes it. Each version tracks it with its generic weights in a process of its own,
on one thread, `--repeats` times in turns; the least CPU seconds count, for other work on the machine only adds to them.
Code is compiled and movies are read once before the clock runs. Cells are measured anew each time, unless `--measured`
leaves measuring out. `--against` is the folder `src` of another checkout, of version 0.1 for instance, and the ratio is
to that.

Steps are told by the functions in which the time is spent; a function that another step calls counts there as well. The
confidences' share is told for both versions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = {
    "measuring": [("clew.tracking.tracker", "measure_movie")],
    "motion": [("clew.tracking.profile", "estimate_motion")],
    "scales": [("clew.tracking.profile", "estimate_scales")],
    "profile": [
        ("clew.tracking.tracker", "estimate_profile"),
        ("clew.tracking.tracker", "decide_events"),
    ],
    "flow": [("clew.tracking.flow.flow", "register_frames")],
    "confidences": [("clew.tracking.assignment.assignment", "compute_margins")],
}
"""Functions by the modules that call them; those that a version lacks take no time."""


def timed(
    seconds: dict[str, float], step: str, function: Callable[..., Any]
) -> Callable[..., Any]:
    """The function, whose CPU seconds are added to those of a step; calls within it count once."""
    depth = [0]

    def run(*arguments: Any, **named: Any) -> Any:
        began, depth[0] = time.process_time(), depth[0] + 1
        try:
            return function(*arguments, **named)
        finally:
            depth[0] -= 1
            if not depth[0]:
                seconds[step] = seconds.get(step, 0.0) + time.process_time() - began

    return run


def child(movie: Path, frames: slice, measured: bool) -> dict[str, Any]:
    """Track a movie in this process."""
    import warnings

    from clew.tracking.movie import open_movie
    from clew.tracking.tracker import Tracker

    warnings.simplefilter("ignore")
    whole = open_movie(movie)[frames]
    tracker = Tracker.generic(cache=None, n_jobs=1)
    # compile before the clock runs, with pixels of another size, so that nothing found then is remembered
    tracker.track(open_movie(movie, spacing=[2.0] * whole.ndim)[:4])
    for t in range(whole.n_frames):
        whole.label(t), whole.image(t)
    source: Any = tracker.measure(whole) if measured else whole
    seconds: dict[str, float] = {}
    for step, places in STEPS.items():
        for module_name, name in places:
            try:
                module = importlib.import_module(module_name)
                setattr(module, name, timed(seconds, step, getattr(module, name)))
            except (ImportError, AttributeError):
                continue
    began = time.process_time()
    lineage = tracker.track(source)
    return {
        "cpu": time.process_time() - began,
        "cells": len(lineage.frame),
        "steps": seconds,
    }


def measure(movie: Path, source: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, with the clew in a folder `src`."""
    command = [
        sys.executable,
        __file__,
        str(movie),
        "--child",
        "--frames",
        options.frames,
    ]
    command += ["--measured"] if options.measured else []
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )
    where = os.environ | threads | {"PYTHONPATH": str(source)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=where
    )
    if done.returncode:
        sys.exit(f"{movie} with {source} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("movies", nargs="+", type=Path)
    parser.add_argument(
        "--against", type=Path, help="the folder src of another checkout"
    )
    parser.add_argument("--frames", default=":", help="first:last, as in Python")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measured", action="store_true", help="without measuring")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        first, last = (int(end) if end else None for end in options.frames.split(":"))
        print(
            json.dumps(child(options.movies[0], slice(first, last), options.measured))
        )
        return
    sources = {"here": Path(__file__).resolve().parents[1] / "src"}
    if options.against is not None:
        sources["there"] = options.against.resolve()
    for movie in options.movies:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
        for _ in range(options.repeats):
            for name, source in sources.items():
                runs[name].append(measure(movie, source, options))
        least = {
            name: min(found, key=lambda run: run["cpu"]) for name, found in runs.items()
        }
        for name, run in least.items():
            cells = run["cells"]
            steps = ", ".join(
                f"{step} {1e3 * used / cells:.3f}"
                for step, used in run["steps"].items()
            )
            all_runs = " ".join(
                f"{1e3 * other['cpu'] / cells:.3f}" for other in runs[name]
            )
            print(
                f"{movie} {name}: {cells:,} cells, {1e3 * run['cpu'] / cells:.3f} ms each ({all_runs}); {steps}"
            )
        if "there" in least:
            print(f"  ratio {least['here']['cpu'] / least['there']['cpu']:.2f}")


if __name__ == "__main__":
    main()
