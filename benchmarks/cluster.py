"""Tracking in blocks: one process against workers, CPU against detections, memory of a worker, and workers killed.

    python benchmarks/cluster.py [--detections 1e5 1e6] [--cells 1000] [--workers 2] [--kills 0] [--folder FOLDER]

The movie is a stream: the cells of a frame are computed when they are asked for, from a few numbers, so that 10⁷
detections need no disk. Cells lie on a jittered grid, swing around their places, and are replaced after a while. For
each size it tracks with the generic weights and writes Parquet, in modes:

    plain     every frame pair in this process, joined in memory, without blocks, checkpoints or files
    blocks    blocks in this process, one thread, with checkpoints and results
    workers   the same in --workers processes of a Dask cluster

and prints seconds, CPU seconds of all processes, milliseconds a detection, peak memory of a worker and of this process,
and bytes written. The results of blocks and workers must have the same bytes. With --kills, workers are killed at
random while blocks are solved, and the result must have the same bytes again, with no finished block solved twice.
Every mode runs in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.tracking.detections import Detections, Overlap

SPACING = 20.0
MIXED = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15)


def uniform(*numbers: Any) -> Any:
    """In [0, 1), the same for the same numbers: SplitMix64 (Steele et al. 2014) of each after the other."""
    state = np.uint64(0x1234567)
    with np.errstate(over="ignore"):
        for number in numbers:
            state = state ^ np.asarray(number).astype(np.uint64)
            state = state + np.uint64(MIXED[2])
            state = (state ^ (state >> np.uint64(30))) * np.uint64(MIXED[0])
            state = (state ^ (state >> np.uint64(27))) * np.uint64(MIXED[1])
            state = state ^ (state >> np.uint64(31))
    return state.astype(np.float64) / 2**64


class Stream:
    """A movie that is computed frame by frame."""

    name, ndim, movie = "stream", 2, None
    has = frozenset({"size", "border"})

    def __init__(self, cells: int, n_frames: int) -> None:
        self.cells, self.n_frames = cells, n_frames

    def window(self, first: int, last: int) -> Stream:
        """The stream itself is small."""
        del first, last
        return self

    def content(self, t: int) -> bytes:
        """What a frame follows from."""
        return f"{self.cells} {t}".encode()

    def detections(self, t: int) -> Detections:
        """The cells of a frame."""
        slot = np.arange(self.cells)
        side = int(np.ceil(np.sqrt(self.cells)))
        life = 40 + (160 * uniform(slot, 1)).astype(int)
        number = (
            t + (life * uniform(slot, 2)).astype(int)
        ) // life  # which of the cells that live there in turns
        rng = np.stack([uniform(slot, number, k) for k in (3, 4, 5, 6, 7)], axis=1)
        place = np.stack([slot // side, slot % side], axis=1) + 0.5 * rng[:, :2]
        swing = 0.15 * np.stack(
            [np.sin(0.1 * t + 6.28 * rng[:, 2]), np.cos(0.1 * t + 6.28 * rng[:, 3])],
            axis=1,
        )
        noise = 0.02 * np.stack([uniform(slot, t, k) for k in (8, 9)], axis=1)
        position = SPACING * (place + swing + noise)
        border = np.minimum(position, SPACING * side - position).min(axis=1)
        volume = (
            80 * np.exp(0.5 * (rng[:, 4] - 0.5)) * (1 + 0.05 * uniform(slot, t, 10))
        )
        return Detections(
            t, slot + 1, position, {"volume": volume, "border_distance": border}
        )

    def overlap(self, t: int, shift: Any = None) -> Overlap:
        """There are no pixels."""
        del t, shift
        return Overlap.empty()


def peak() -> int:
    """Peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu() -> float:
    """CPU seconds of this process."""
    return time.process_time()


class Killer(threading.Thread):
    """Kills workers at random while a run is under way, and notes when each checkpoint was written."""

    def __init__(self, cluster: Any, folder: Path, kills: int, blocks: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.folder = cluster, folder / ".blocks"
        self.due = sorted(
            random.Random(0).sample(range(1, blocks), min(kills, blocks - 1))
        )
        self.killed, self.seen, self.redone, self.stop = 0, {}, 0, False
        self.gone: set[int] = set()

    def run(self) -> None:
        """Look ten times a second."""
        while not self.stop:
            self.look()
            if self.due and len(self.seen) >= self.due[0]:
                # a nanny whose worker dies while it starts gives up
                processes = [
                    nanny.process
                    for nanny in self.cluster.workers.values()
                    if nanny.process is not None
                ]
                pids = {
                    each.pid for each in processes if each.status.name == "running"
                } - self.gone
                if pids:
                    self.gone.add(pid := random.choice(sorted(pids)))
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
                    self.due.pop(0)
            time.sleep(0.1)

    def look(self) -> None:
        """Note new checkpoints, and those that were written again."""
        for path in self.folder.glob("*.clew") if self.folder.is_dir() else ():
            try:
                written = path.stat().st_mtime_ns
            except OSError:
                continue
            self.redone += self.seen.setdefault(path.name, written) != written


def run(
    mode: str, cells: int, frames: int, workers: int, kills: int, folder: Path
) -> dict[str, Any]:
    """One mode, in this process."""
    import distributed

    from clew.parallel import DaskExecutor, ThreadExecutor, start_local_cluster
    from clew.tracking.blocks import MovieProblem, StoredLineage
    from clew.tracking.candidates.features import feature_names
    from clew.tracking.io.checkpoints import Checkpoints
    from clew.tracking.io.parquet import write_parquet
    from clew.tracking.solve import build_lineage, solve_pairs
    from clew.tracking.tracker import Tracker

    tracker = Tracker.generic(
        cache=None, n_jobs=1, events="move divide appear disappear"
    )
    movie = Stream(cells, frames)
    groups = tracker.groups_for(movie)
    w = np.array(
        [
            dict(zip(tracker.feature_names_, tracker.coef_, strict=True))[n]
            for n in feature_names(groups)
        ]
    )
    Tracker.generic(cache=None, n_jobs=1).track(
        Stream(60, 3)
    )  # compile before the clock runs
    facts: dict[str, Any] = {"mode": mode, "cells": cells * frames}
    if mode == "plain":
        started, used = time.perf_counter(), cpu()
        pairs = tracker.pairs(movie, groups)
        lineage = build_lineage(
            movie, [solve_pairs(pairs, w, t) for t in range(frames - 1)]
        )
        tracks = len(lineage.tracks)
        return facts | {
            "seconds": time.perf_counter() - started,
            "cpu": cpu() - used,
            "peak": peak(),
            "own": peak(),
            "tracks": tracks,
        }
    output = folder / f"{mode}-{kills}"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    cluster = client = killer = None
    if mode == "workers":
        cluster = start_local_cluster(workers, memory=0)
        client = distributed.Client(cluster)
        list(DaskExecutor(client).map(_warm_up, list(range(4 * workers))))
    executor = ThreadExecutor(1) if client is None else DaskExecutor(client)
    started, used = (
        time.perf_counter(),
        cpu() + (sum(client.run(cpu).values()) if client else 0.0),
    )
    pairs = tracker.pairs(movie, groups, executor=executor)
    work = MovieProblem(pairs, w)
    if kills and cluster is not None:
        killer = Killer(cluster, output, kills, len(work.blocks))
        killer.start()
    tracked = StoredLineage.of(work, executor, Checkpoints.for_output(output))
    if killer is not None:
        killer.stop = True
        killer.join()
        killer.look()
        facts |= {"killed": killer.killed, "redone": killer.redone}
    kept = sum(path.stat().st_size for path in tracked.checkpoints.folder.iterdir())
    write_parquet(output / "events.parquet", output / "tracks.parquet", tracked)
    seconds, own = time.perf_counter() - started, peak()
    facts |= {
        "seconds": seconds,
        "own": own,
        "tracks": len(tracked.tracks),
        "blocks": len(tracked),
        "kept": kept,
    }
    facts["peak"] = max(client.run(peak).values()) if client else own
    # of workers that were killed nobody knows what they used
    facts["cpu"] = (
        None
        if kills
        else cpu() + (sum(client.run(cpu).values()) if client else 0.0) - used
    )
    results = [output / "events.parquet", output / "tracks.parquet"]
    facts["written"] = sum(path.stat().st_size for path in results)
    facts["digest"] = hashlib.sha256(
        b"".join(path.read_bytes() for path in results)
    ).hexdigest()[:12]
    tracked.checkpoints.delete_all()
    if client is not None:
        client.close()
        cluster.close()
    return facts


def _warm_up(_: int) -> int:
    """Import and compile on a worker before the clock runs."""
    from clew.tracking.tracker import Tracker

    return len(Tracker.generic(cache=None, n_jobs=1).track(Stream(60, 3)).frame)


def measured(
    mode: str, cells: int, frames: int, options: argparse.Namespace, kills: int = 0
) -> dict[str, Any]:
    """One mode in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--child",
        mode,
        "--cells",
        str(cells),
        "--frames",
        str(frames),
        "--workers",
        str(options.workers),
        "--kills",
        str(kills),
        "--folder",
        str(options.folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{mode} with {cells * frames} detections failed:\n{done.stderr[-3000:]}"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--detections", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--cells", type=int, default=1000, help="in a frame")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "clew-cluster"
    )
    parser.add_argument("--modes", nargs="+", default=["plain", "blocks", "workers"])
    parser.add_argument("--frames", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(
            json.dumps(
                run(
                    options.child,
                    options.cells,
                    options.frames,
                    options.workers,
                    options.kills,
                    options.folder,
                )
            )
        )
        return
    console = Console(width=130)
    rows: list[dict[str, Any]] = []
    for detections in options.detections:
        frames = round(detections / options.cells)
        here = [
            measured(mode, options.cells, frames, options) for mode in options.modes
        ]
        if options.kills:
            here.append(
                measured("workers", options.cells, frames, options, options.kills)
                | {"mode": "kills"}
            )
        rows += here
        told = [row["digest"] for row in here if "digest" in row]
        console.print(
            f"{detections:g} detections: {'the same bytes' if len(set(told)) == 1 else f'BYTES DIFFER {told}'}"
        )
        by = {row["mode"]: row for row in here}
        if {"plain", "blocks"} <= set(by):
            console.print(
                f"  CPU of blocks over plain {by['blocks']['cpu'] / by['plain']['cpu']:.3f}"
            )
        if {"blocks", "workers"} <= set(by):
            one, many = by["blocks"], by["workers"]
            console.print(
                f"  seconds of one process over {options.workers} workers {one['seconds'] / many['seconds']:.2f}"
            )
            console.print(
                f"  CPU of workers over one process {many['cpu'] / one['cpu']:.3f}"
            )
        if "kills" in by:
            console.print(
                f"  {by['kills']['killed']} workers killed, {by['kills']['redone']} finished blocks done again"
            )
    table = Table(
        title=f"{options.cells} cells a frame, {options.workers} workers, {os.cpu_count()} cores"
    )
    columns = (
        "detections",
        "mode",
        "seconds",
        "CPU s",
        "ms/detection",
        "worker MiB",
        "own MiB",
        "checkpoints MiB",
        "written MiB",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        mib = [row.get(name) for name in ("peak", "own", "kept", "written")]
        used = row["cpu"]
        table.add_row(
            f"{row['cells']:,}",
            row["mode"],
            f"{row['seconds']:.1f}",
            "" if used is None else f"{used:.1f}",
            "" if used is None else f"{1e3 * used / row['cells']:.3f}",
            *("" if size is None else f"{size / 2**20:.1f}" for size in mib),
        )
    console.print(table)
    for mode in options.modes:
        points = [
            (row["cells"], row["cpu"])
            for row in rows
            if row["mode"] == mode and row["cpu"]
        ]
        if len(points) > 1:
            (a, x), (b, y) = points[0], points[-1]
            console.print(
                f"{mode}: CPU grows with the {np.log(y / x) / np.log(b / a):.3f}th power of the detections"
            )


if __name__ == "__main__":
    main()
