"""How time and memory grow with the length of a movie: 1,000 cells in 100 to 1,000 frames.

    python benchmarks/scaling.py [--folder FOLDER] [--frames 100 316 1000] [--cells 1000]

Simulates the longest movie once (into FOLDER, if it is not there), then measures and tracks its beginnings with the
generic weights, each in a process of its own so that peak memory is its own, from label images and raw images to a
lineage, nothing cached. Prints seconds, peak memory and the exponent of time against frames.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table


def track_beginning(sequence: Path, frames: int, jobs: int) -> None:
    """In a process of its own: measure and track, and print what it took as JSON."""
    from clew.tracking.blocks import track_pairs
    from clew.tracking.evaluation.task_loss import compute_task_loss
    from clew.tracking.evaluation.truth import derive_annotations
    from clew.tracking.io.ctc import open_ctc_lineage
    from clew.tracking.movie import open_movie
    from clew.tracking.tracker import Tracker

    movie = open_movie(sequence)[:frames]
    tracker = Tracker.generic(cache=None, n_jobs=jobs)
    started = time.perf_counter()
    source = tracker.measure(movie)
    measured = time.perf_counter()
    groups = tracker.groups_for(source)
    lineage = track_pairs(tracker.pairs(source, groups), tracker.coef_, None, jobs)
    tracked = time.perf_counter()
    n_tracks = len(lineage.tracks)
    joined = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu = time.process_time()
    loss = None
    truth = sequence.parent / f"{sequence.name}_GT/TRA"
    if frames == open_movie(sequence).n_frames and truth.is_dir():
        loss = compute_task_loss(
            derive_annotations(open_ctc_lineage(truth), movie), lineage
        ).total
    print(
        json.dumps(
            {
                "frames": frames,
                "cells": len(lineage.frame),
                "tracks": n_tracks,
                "measure": measured - started,
                "track": tracked - measured,
                "join": joined - tracked,
                "cpu": cpu,
                "peak": peak,
                "loss": loss,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "clew-scaling"
    )
    parser.add_argument("--frames", type=int, nargs="+", default=[100, 316, 1000])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sequence = options.folder / "01"
    if options.child:
        track_beginning(sequence, options.child, options.jobs)
        return
    console = Console(width=120)
    if not sequence.is_dir():
        from clew.simulation.simulate import NucleiSettings
        from clew.simulation.write import write_simulation
        from clew.utils.progress import ProgressBar

        started = time.perf_counter()
        with ProgressBar("simulating") as progress:
            write_simulation(
                options.folder,
                NucleiSettings(frames=max(options.frames), cells=options.cells),
                progress=progress,
            )
        console.print(
            f"simulated {max(options.frames)} frames in {time.perf_counter() - started:.0f} s"
        )
    rows = []
    for frames in options.frames:
        command = [
            sys.executable,
            __file__,
            "--folder",
            options.folder,
            "--child",
            frames,
            "--jobs",
            options.jobs,
        ]
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=True
        )
        rows.append(json.loads(done.stdout))
        console.print(rows[-1])
    table = Table(
        "frames",
        "detections",
        "tracks",
        "measure s",
        "track s",
        "tracks s",
        "CPU s",
        "peak GB",
        "task loss",
    )
    for row in rows:
        loss = "" if row["loss"] is None else f"{row['loss']:.2%}"
        times = [f"{row[name]:.1f}" for name in ("measure", "track", "join", "cpu")]
        table.add_row(
            *map(str, (row["frames"], row["cells"], row["tracks"])),
            *times,
            f"{row['peak'] / 2**30:.2f}",
            loss,
        )
    console.print(table)
    if len(rows) > 1:
        wall = [row["measure"] + row["track"] + row["join"] for row in rows]
        cpu = [row["cpu"] for row in rows]
        n = np.log([row["frames"] for row in rows])
        for name, seconds in (("wall", wall), ("CPU", cpu)):
            console.print(
                f"{name} time grows with frames to the power {np.polyfit(n, np.log(seconds), 1)[0]:.2f}"
            )


if __name__ == "__main__":
    main()
