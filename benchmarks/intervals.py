"""How errors grow with the imaging interval: every k-th frame of real movies, tracked with generic weights.

    CLEW_DATA=… python benchmarks/intervals.py [--every 1 2 4] [--folder F]

A movie of which frames are left out is another movie of the same cells: they move farther, and more of them divide in a
frame pair. Nothing was learned from these movies, at any interval. Folders of the thinned movies are kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import tifffile
from rich.console import Console
from rich.table import Table

from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.events import PAIRWISE
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker

MOVIES = {
    "Fluo-N2DL-HeLa": "01_ST/SEG",
    "Fluo-N2DH-SIM+": None,
    "PhC-C2DL-PSC": "01_ST/SEG",
    "bacteria": None,
}
"""Folders of CLEW_DATA, with that of the masks where these are not those of the truth."""


def thinned(name: str, every: int, folder: Path) -> Path:
    """Every so many frames of a sequence with its masks and truth, in the layout of the Cell Tracking Challenge."""
    source, target = Path(os.environ["CLEW_DATA"]) / name, folder / f"{name}-{every}"
    if target.exists():
        return target / "01"
    kept = sorted((source / "01").glob("t*.tif"))[::every]
    digits = len(kept[0].stem) - 1
    seen: dict[int, list[int]] = {}
    for new, image in enumerate(kept):
        old = image.stem[1:]
        copies = {
            "01/t": image,
            "01_GT/TRA/man_track": source / f"01_GT/TRA/man_track{old}.tif",
        }
        if MOVIES[name]:
            copies[f"{MOVIES[name]}/man_seg"] = (
                source / f"{MOVIES[name]}/man_seg{old}.tif"
            )
        for place, file in copies.items():
            copy = target / f"{place}{new:0{digits}}.tif"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
        for label in np.unique(tifffile.imread(copies["01_GT/TRA/man_track"]))[
            1:
        ].tolist():
            seen.setdefault(label, []).append(new)
    table = np.loadtxt(source / "01_GT/TRA/man_track.txt", dtype=int)
    parents = dict(zip(table[:, 0].tolist(), table[:, 3].tolist(), strict=True))
    rows = []
    for label, frames in sorted(seen.items()):
        parent = parents[label]
        while (
            parent and parent not in seen
        ):  # it lived between two frames that were kept
            parent = parents[parent]
        rows.append(f"{label} {frames[0]} {frames[-1]} {parent}\n")
    (target / "01_GT/TRA/man_track.txt").write_text("".join(rows))
    return target / "01"


def row(name: str, every: int, folder: Path) -> list[str]:
    """One movie at one interval."""
    path = thinned(name, every, folder)
    movie, truth = open_movie(path), open_ctc_lineage(path.with_name("01_GT") / "TRA")
    tracker = Tracker.generic(n_jobs=1)
    source = tracker.measure(movie)
    began = time.process_time()
    found = evaluate(tracker.track(source), truth, movie)
    seconds = time.process_time() - began
    missed = (
        f"{found.loss.missed[event]} of {found.loss.annotated[event]}"
        for event in PAIRWISE[:4]
    )
    return [name, str(every), f"{found.loss.total:.2%}", *missed, f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument(
        "--folder",
        type=Path,
        help="where thinned movies are kept; by default they are removed",
    )
    options = parser.parse_args()
    table = Table(
        "movie",
        "every",
        "missed",
        *map(str, PAIRWISE[:4]),
        "CPU s",
        title="Generic weights",
    )
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # three daughters, and cells that weights do not know
        for name in MOVIES:
            for every in options.every:
                table.add_row(*row(name, every, options.folder or Path(scratch)))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
