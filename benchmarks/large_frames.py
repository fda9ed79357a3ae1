"""Time and memory of one pair of frames with very many cells.

    python benchmarks/large_frames.py [--cells 1e4 1e5] [--dims 3] [--crowded] [--flow]

Cells lie on a jittered grid, three diameters apart, or nearly touching with --crowded,
which makes several times as many candidates. They move a little, and a hundredth of
them is replaced. Scales and motion are those of a frame pair of 2,000 cells; the flow is
left out unless --flow is given, since it takes most of the time. Prints CPU seconds, the
peak memory of the process, and how much that is above a process that solved a small
pair, with the movie itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.tracking.detections import DetectionTable

SPACING = 20.0


def make_movie(cells: int, dims: int, crowded: bool = False) -> DetectionTable:
    """Two frames."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(cells ** (1 / dims)))
    grid = np.stack(np.unravel_index(np.arange(cells), (side,) * dims), axis=1)
    first = grid + rng.uniform(0, 0.4, (cells, dims))
    second = first + rng.normal(0, 0.06, (cells, dims))
    second[rng.random(cells) < 0.01] += 0.5
    position = SPACING * np.concatenate([first, second])
    typical = np.pi / 6 * (0.8 * SPACING) ** 3 if crowded else 150.0
    volume = np.tile(typical * rng.lognormal(0, 0.2, cells), 2)
    volume *= rng.lognormal(0, 0.05, 2 * cells)
    frame = np.repeat([0, 1], cells)
    label = np.tile(np.arange(1, cells + 1), 2)
    return DetectionTable(frame, label, position, {"volume": volume})


def solve_frames(cells: int, dims: int, flow: bool, crowded: bool) -> dict[str, Any]:
    """Solve the pair in this process, after a small one."""
    from clew.tracking.candidates.features import feature_names
    from clew.tracking.candidates.frame_pairs import FramePairBuilder
    from clew.tracking.profile import estimate_profile
    from clew.tracking.solve import solve_pairs
    from clew.tracking.tracker import Tracker

    tracker = Tracker.generic(cache=None, n_jobs=1)
    by_name = dict(zip(tracker.feature_names_, tracker.coef_, strict=True))
    small = make_movie(2000, dims, crowded)
    pairs = FramePairBuilder(small, estimate_profile(small, small.has))
    w = np.array([by_name[name] for name in feature_names(small.has)])

    def solve(source: DetectionTable) -> Any:
        if flow:
            profile = estimate_profile(source, source.has)
            return solve_pairs(FramePairBuilder(source, profile, w), w, [0])[0]
        alone = replace(pairs.profile.motion, follows_flow=False)
        profile = replace(pairs.profile, motion=alone)
        return solve_pairs(FramePairBuilder(source, profile, w), w, [0])[0]

    solve(small)
    peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = make_movie(cells, dims, crowded)
    start = time.process_time()
    solution = solve(source)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cpu": seconds,
        "peak": 1024 * peak,
        "above": 1024 * (peak - peak_before),
        "events": len(solution.events),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=float, nargs="+", default=[1e4, 1e5])
    parser.add_argument("--dims", type=int, default=3)
    parser.add_argument("--crowded", action="store_true", help="nearly touching cells")
    parser.add_argument("--flow", action="store_true", help="estimate the flow too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        cells = int(options.cells[0])
        result = solve_frames(cells, options.dims, options.flow, options.crowded)
        print(json.dumps(result))
        return
    table = Table(title=f"a pair of frames in {options.dims}D")
    for column in (
        "cells",
        "CPU s",
        "ms/cell",
        "peak MiB",
        "above, kB/cell",
        "events",
    ):
        table.add_column(column, justify="right")
    switches = [f"--{name}" for name in ("flow", "crowded") if getattr(options, name)]
    for cells in map(int, options.cells):
        command = [sys.executable, __file__, "--child", *switches]
        command += ["--cells", str(cells), "--dims", str(options.dims)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{cells} cells failed:\n{done.stderr[-2000:]}")
        row = json.loads(done.stdout.splitlines()[-1])
        table.add_row(
            f"{cells:,}",
            f"{row['cpu']:.1f}",
            f"{1e3 * row['cpu'] / cells:.3f}",
            f"{row['peak'] / 2**20:.0f}",
            f"{row['above'] / cells / 1e3:.1f}",
            f"{row['events']:,}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
