"""One pair of frames with very many cells: as one programme, and part by part. The same events, in less memory?

    python benchmarks/large_frames.py [--cells 1e4 1e5] [--whole-up-to 1e5] [--dims 3]

Cells lie on a jittered grid and move a little; a hundredth of them is replaced. "Whole" makes the features of all
candidates and one programme, "parts" scores some candidates at a time and solves independent components of the
candidates, 50,000 detections at a time. Each runs in a process of its own. Prints CPU seconds, peak memory above that
of a process that solved a small pair, both for each cell, and whether events and confidences are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.tracking.detections import DetectionTable

SPACING = 20.0


def movie(cells: int, dims: int) -> DetectionTable:
    """Two frames."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(cells ** (1 / dims)))
    grid = np.stack(np.unravel_index(np.arange(cells), (side,) * dims), axis=1) + rng.uniform(0, 0.4, (cells, dims))
    later = grid + rng.normal(0, 0.06, (cells, dims))
    replaced = rng.random(cells) < 0.01
    later[replaced] += 0.5
    position = SPACING * np.concatenate([grid, later])
    volume = np.tile(rng.lognormal(5, 0.2, cells), 2) * rng.lognormal(0, 0.05, 2 * cells)
    frame, label = np.repeat([0, 1], cells), np.tile(np.arange(1, cells + 1), 2)
    return DetectionTable(frame, label, position, {"volume": volume})


def run(mode: str, cells: int, dims: int) -> dict[str, Any]:
    """Solve the pair in this process."""
    from clew.tracking.model import assignment, features
    from clew.tracking.model.features import feature_names
    from clew.tracking.model.pairs import Pairs
    from clew.tracking.model.solve import solve, solve_pair
    from clew.tracking.tracker import Tracker

    tracker = Tracker.generic(cache=None, n_jobs=1)
    by_name = dict(zip(tracker.feature_names_, tracker.coef_, strict=True))

    def solved(source: DetectionTable) -> Any:
        pairs = Pairs.of(source, source.has)
        w = np.array([by_name[name] for name in feature_names(source.has)])
        if mode == "parts":
            return solve_pair(pairs, w, 0)
        return solve(pairs.pair(0), w).without_candidates()

    if mode == "whole":
        assignment.LARGEST_PROGRAM = features.CHUNK = 10**12
    solved(movie(200, dims))
    before, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = solved(movie(cells, dims))
    seconds = time.process_time() - used
    above = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    order = np.argsort(found.events.keys())
    sure = np.minimum(found.confidence[order], 1e9)
    return {
        "cpu": seconds, "above": 1024 * above, "events": len(order),
        "digest": hashlib.sha256(found.events.keys()[order].tobytes()).hexdigest(), "sure": float(sure.sum()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=float, nargs="+", default=[1e4, 1e5])
    parser.add_argument("--whole-up-to", type=float, default=1e5)
    parser.add_argument("--dims", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.child, int(options.cells[0]), options.dims)))
        return
    table = Table(title=f"a pair of frames in {options.dims}D")
    for column in ("cells", "mode", "CPU s", "ms/cell", "MiB above", "kB/cell", "events", "same events", "confidences"):
        table.add_column(column, justify="right")
    for cells in map(int, options.cells):
        modes = ["whole", "parts"] if cells <= options.whole_up_to else ["parts"]
        found = {}
        for mode in modes:
            command = [sys.executable, __file__, "--child", mode, "--cells", str(cells), "--dims", str(options.dims)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{mode} with {cells} cells failed:\n{done.stderr[-2000:]}")
            found[mode] = json.loads(done.stdout.splitlines()[-1])
        first = found[modes[0]]
        for mode, row in found.items():
            gap = abs(row["sure"] - first["sure"]) / max(first["sure"], 1e-12)
            table.add_row(
                f"{cells:,}", mode, f"{row['cpu']:.1f}", f"{1e3 * row['cpu'] / cells:.3f}",
                f"{row['above'] / 2**20:.0f}", f"{row['above'] / cells / 1e3:.1f}", f"{row['events']:,}",
                "" if mode == modes[0] else str(row["digest"] == first["digest"]),
                "" if mode == modes[0] else f"differ by {gap:.1e}",
            )  # fmt: skip
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
