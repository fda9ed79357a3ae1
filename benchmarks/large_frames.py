"""One pair of frames with very many cells: as one programme, and in tiles. The same events, in how much memory?

    python benchmarks/large_frames.py [--cells 1e4 1e5] [--whole-up-to 1e5] [--dims 3] [--tile 50000] [--crowded]
                                      [--flow]

Cells lie on a jittered grid, three diameters apart or nearly touching if --crowded, which makes several times as many
candidates; they move a little, and a hundredth of them is replaced. "Whole" solves one programme, "tiles" programmes of
--tile detections with halos, whose prices prove the choice. Each runs in a process of its own. A movie's own units are
those of a frame pair of 2,000 cells, and the flow is left out unless --flow asks for it: its passes over all cells take
most of the time. Prints CPU seconds, the peak memory of the process and how much that is above a process that solved a
small pair, with the movie itself, how many detections were solved anew at seams, and whether events and confidences are
the same.
"""

from __future__ import annotations

import argparse
import hashlib
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


def movie(cells: int, dims: int, crowded: bool = False) -> DetectionTable:
    """Two frames."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(cells ** (1 / dims)))
    grid = np.stack(
        np.unravel_index(np.arange(cells), (side,) * dims), axis=1
    ) + rng.uniform(0, 0.4, (cells, dims))
    later = grid + rng.normal(0, 0.06, (cells, dims))
    replaced = rng.random(cells) < 0.01
    later[replaced] += 0.5
    position = SPACING * np.concatenate([grid, later])
    usual = np.pi / 6 * (0.8 * SPACING) ** 3 if crowded else 150.0
    volume = np.tile(usual * rng.lognormal(0, 0.2, cells), 2) * rng.lognormal(
        0, 0.05, 2 * cells
    )
    frame, label = np.repeat([0, 1], cells), np.tile(np.arange(1, cells + 1), 2)
    return DetectionTable(frame, label, position, {"volume": volume})


def run(
    mode: str, cells: int, dims: int, tile: int, flow: bool, crowded: bool
) -> dict[str, Any]:
    """Solve the pair in this process."""
    from clew.tracking.assignment import assignment
    from clew.tracking.assignment.tiles import TiledProgram
    from clew.tracking.candidates.features import feature_names
    from clew.tracking.candidates.frame_pairs import Pairs
    from clew.tracking.solve import solve_pair
    from clew.tracking.tracker import Tracker

    tracker = Tracker.generic(cache=None, n_jobs=1)
    by_name = dict(zip(tracker.feature_names_, tracker.coef_, strict=True))

    small = movie(2000, dims, crowded)
    usual = Pairs.of(small, small.has)
    w = np.array([by_name[name] for name in feature_names(small.has)])
    anew: list[int] = []
    solve_anew = TiledProgram._solved_anew

    def counted(self: TiledProgram, centre: Any, hops: int) -> Any:
        anew.append(int(self._grown(centre, hops).sum()))
        return solve_anew(self, centre, hops)

    TiledProgram._solved_anew = counted  # type: ignore[method-assign]

    def solved(source: DetectionTable) -> Any:
        if flow:
            return solve_pair(Pairs.of(source, source.has), w, 0)
        alone = replace(usual.motion, follows_flow=False)
        return solve_pair(replace(usual, source=source, motion=alone), w, 0)

    solved(small)
    assignment.LARGEST_PROGRAM = 10**12 if mode == "whole" else tile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = movie(cells, dims, crowded)
    used = time.process_time()
    found = solved(source)
    seconds = time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    order = np.argsort(found.events.keys())
    sure = np.minimum(found.confidence[order], 1e9)
    return {
        "cpu": seconds,
        "peak": 1024 * peak,
        "above": 1024 * (peak - before),
        "events": len(order),
        "anew": sum(anew),
        "digest": hashlib.sha256(found.events.keys()[order].tobytes()).hexdigest(),
        "sure": float(sure.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=float, nargs="+", default=[1e4, 1e5])
    parser.add_argument("--whole-up-to", type=float, default=1e5)
    parser.add_argument("--dims", type=int, default=3)
    parser.add_argument("--tile", type=int, default=50_000, help="detections of a tile")
    parser.add_argument(
        "--crowded", action="store_true", help="cells that nearly touch"
    )
    parser.add_argument(
        "--flow", action="store_true", help="estimate the flow of all cells too"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(
            json.dumps(
                run(
                    options.child,
                    int(options.cells[0]),
                    options.dims,
                    options.tile,
                    options.flow,
                    options.crowded,
                )
            )
        )
        return
    table = Table(title=f"a pair of frames in {options.dims}D")
    columns = (
        "cells",
        "mode",
        "CPU s",
        "ms/cell",
        "peak MiB",
        "above, kB/cell",
        "anew",
        "events",
        "same",
        "confidences",
    )
    for column in columns:
        table.add_column(column, justify="right")
    switches = [f"--{name}" for name in ("flow", "crowded") if getattr(options, name)]
    for cells in map(int, options.cells):
        modes = ["whole", "tiles"] if cells <= options.whole_up_to else ["tiles"]
        found = {}
        for mode in modes:
            command = [
                sys.executable,
                __file__,
                "--child",
                mode,
                "--cells",
                str(cells),
                "--dims",
                str(options.dims),
                "--tile",
                str(options.tile),
                *switches,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{mode} with {cells} cells failed:\n{done.stderr[-2000:]}")
            found[mode] = json.loads(done.stdout.splitlines()[-1])
        first = found[modes[0]]
        for mode, row in found.items():
            gap = abs(row["sure"] - first["sure"]) / max(first["sure"], 1e-12)
            table.add_row(
                f"{cells:,}",
                mode,
                f"{row['cpu']:.1f}",
                f"{1e3 * row['cpu'] / cells:.3f}",
                f"{row['peak'] / 2**20:.0f}",
                f"{row['above'] / cells / 1e3:.1f}",
                f"{row['anew']:,}",
                f"{row['events']:,}",
                "" if mode == modes[0] else str(row["digest"] == first["digest"]),
                "" if mode == modes[0] else f"differ by {gap:.1e}",
            )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
