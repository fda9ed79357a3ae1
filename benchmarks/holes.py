"""Cells without a mask: how many holes of tracks are filled, and what that does to TRA.

Prints for each movie AOGM, TRA, CT and TF; the holes inside true tracks by length; how
many of their cells were filled; how many filled cells are wrong; and missed links
between the masks that were given. Real movies come from CLEW_DATA. Simulated movies
lose 5 % of their masks, at random or in runs.

    CLEW_DATA=… python benchmarks/holes.py [movie …] [--no-fill] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.simulation.kinds import settings_of
from clew.simulation.write import write_simulation
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.matching import FrameMatch, match_frames
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import CtcLineage, open_ctc_lineage
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker

REAL = {
    "hela": "Fluo-N2DL-HeLa",
    "dic": "DIC-C2DH-HeLa",
    "psc": "PhC-C2DL-PSC",
    "u373": "PhC-C2DH-U373",
    "sim+": "Fluo-N2DH-SIM+",
    "bacteria": "bacteria",
}
SIMULATED = ("nuclei", "rods", "flat", "tissue", "embryo", "sparse")
REMOVED = 0.05
"""Share of the masks that simulated movies lose."""
LONGEST_RUN = 24
"""Frames; the logarithm of the length of a run is uniform."""


def remove_masks(
    labels: NDArray[np.integer], truth: CtcLineage, in_runs: bool, seed: int
) -> NDArray[np.integer]:
    """Remove masks of single frames, or of runs of frames of one true cell."""
    rng = np.random.default_rng(seed)
    matched = [_holders(truth, labels, t) for t in range(len(labels))]
    n_masks = sum(map(len, matched))
    labels = labels.copy()
    n_removed = 0
    while n_removed < REMOVED * n_masks:
        first = int(rng.integers(1, len(labels) - 1))
        cells = list(matched[first])
        if not cells:
            continue
        cell = cells[int(rng.integers(len(cells)))]
        length = int((LONGEST_RUN + 1) ** rng.random()) if in_runs else 1
        for t in range(first, min(first + length, len(labels) - 1)):
            label = matched[t].pop(cell, None)
            if label is None:
                break
            labels[t][labels[t] == label] = 0
            n_removed += 1
    return labels


def _holders(truth: CtcLineage, labels: NDArray[np.integer], t: int) -> dict[int, int]:
    """True cells of a frame and the masks that hold only them."""
    from clew.tracking.evaluation.matching import match_frame

    match = match_frame(truth.masks[t], labels[t])
    counts = Counter(match.holder.tolist())
    pairs = zip(match.cell.tolist(), match.holder.tolist(), strict=True)
    return {cell: holder for cell, holder in pairs if holder and counts[holder] == 1}


def open_scene(name: str, folder: Path) -> tuple[Movie, CtcLineage]:
    """Open a movie and its truth; "nuclei-random", "rods-runs" and so on are simulated."""
    if name in REAL:
        sequence = Path(os.environ["CLEW_DATA"]) / REAL[name] / "01"
        return open_movie(sequence), open_ctc_lineage(sequence.parent / "01_GT" / "TRA")
    kind, _, how = name.partition("-")
    home = folder / f"{kind}-holes"
    if not (home / "01_simulation.json").exists():
        write_simulation(home, settings_of(kind, seed=7))
    movie = open_movie(home / "01")
    truth = open_ctc_lineage(home / "01_GT" / "TRA")
    labels = np.stack([movie.label(t) for t in range(movie.n_frames)])
    images = np.stack([movie.image(t) for t in range(movie.n_frames)])
    if how in ("random", "runs"):
        labels = remove_masks(labels, truth, how == "runs", seed=11)
    return Movie.from_arrays(labels, images, movie.spacing, name), truth


@dataclass(frozen=True)
class Holes:
    """Cells without a mask, and what became of them."""

    lengths: Counter[int]
    """Holes inside true tracks, by their number of frames."""
    n_cells: int
    n_filled: int
    n_recovered: int
    n_wrong: int
    n_ends: int
    """Cells without a mask before the first or after the last mask of their track."""
    n_ends_filled: int


def find_holes(before: list[FrameMatch]) -> tuple[set, set]:
    """Return (frame, cell) inside tracks and at their ends that masks do not hold."""
    held: dict[int, list[int]] = {}
    for t, match in enumerate(before):
        for cell in match.cell[match.holder != 0].tolist():
            held.setdefault(cell, []).append(t)
    inside = set()
    at_ends = set()
    for t, match in enumerate(before):
        for cell in match.cell[match.holder == 0].tolist():
            frames = held.get(cell, [])
            is_inside = bool(frames) and frames[0] < t < frames[-1]
            (inside if is_inside else at_ends).add((t, cell))
    return inside, at_ends


def count_holes(
    truth: CtcLineage, movie: Movie, filled: Movie, lineage: Lineage
) -> Holes:
    """Compare the masks that were given with those after filling."""
    before = match_frames(truth, movie)
    after = match_frames(truth, filled)
    inside, at_ends = find_holes(before)
    lengths: Counter[int] = Counter()
    for t, cell in inside:
        if (t - 1, cell) not in inside:
            stop = t
            while (stop, cell) in inside:
                stop += 1
            lengths[stop - t] += 1
    held = {
        (t, cell): holder
        for t, match in enumerate(after)
        for cell, holder in zip(match.cell.tolist(), match.holder.tolist(), strict=True)
        if holder
    }
    is_recovered = lineage.columns.get("recovered", np.zeros(len(lineage.frame))) > 0
    recovered = set(
        zip(
            lineage.frame[is_recovered].tolist(),
            lineage.label[is_recovered].tolist(),
            strict=True,
        )
    )
    filled_cells = {key for key in held if (key[0], held[key]) in recovered}
    return Holes(
        lengths,
        len(inside),
        len(inside & filled_cells),
        len(recovered),
        len(recovered) - len((inside | at_ends) & filled_cells),
        len(at_ends),
        len(at_ends & filled_cells),
    )


def measure(name: str, folder: Path, fill: bool) -> None:
    """Print the figures of a movie."""
    movie, truth = open_scene(name, folder)
    tracker = Tracker.generic(fill=fill, n_jobs=1, cache=folder / "measured")
    started = time.process_time()
    lineage = tracker.track(movie)
    seconds = time.process_time() - started
    filled = add_recovered(movie, lineage.recovered)
    scores = evaluate(lineage, truth, filled)
    holes = count_holes(truth, movie, filled, lineage)
    loss = compute_task_loss(
        derive_annotations(truth, movie), lineage.without_recovered()
    )
    wrong = holes.n_wrong / max(holes.n_recovered, 1)
    share = holes.n_filled / max(holes.n_cells, 1)
    extra = [
        f"{key} {scores.scores[key]:.4f}"
        for key in ("CT", "TF")
        if scores.scores and scores.scores.get(key) is not None
    ]
    lengths = ", ".join(f"{k}: {n}" for k, n in sorted(holes.lengths.items()))
    print(
        f"{name}: AOGM {scores.aogm.total:g} ({scores.aogm.missing_vertices} cells "
        f"missing, {scores.aogm.false_vertices} false, {scores.aogm.split_vertices} "
        f"shared, above the floor {scores.aogm.avoidable:g}), TRA "
        f"{scores.aogm.score:.4f}, {', '.join(extra)}, {seconds:.1f} CPU s\n"
        f"  holes inside tracks {{{lengths}}}, {holes.n_filled} of {holes.n_cells} cells "
        f"filled ({share:.1%}); at ends {holes.n_ends_filled} of {holes.n_ends}; "
        f"recovered {holes.n_recovered}, wrong {holes.n_wrong} ({wrong:.1%}); "
        f"missed {loss.n_errors} of {loss.n_annotations} events",
        flush=True,
    )


def main() -> None:
    """Measure the movies named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    simulated = [f"{kind}-{how}" for kind in SIMULATED for how in ("random", "runs")]
    parser.add_argument("movies", nargs="*", default=[*REAL, *simulated])
    parser.add_argument("--no-fill", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("holes"))
    options = parser.parse_args()
    for name in options.movies:
        measure(name, options.folder, not options.no_fill)


if __name__ == "__main__":
    main()
