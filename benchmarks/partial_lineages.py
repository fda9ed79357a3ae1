"""Learn from some tracks of one embryo, and track another.

Prints how many events each kind of partial lineage gives, how many of them the whole
lineage contradicts, and how many events of the other embryo are missed after learning
from them. CLEW_DATA names the folder of the embryos (ascidian/Pm02, Pm03).

    python benchmarks/partial_lineages.py [--share 0.1] [--seed 0] [--tracking]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import EventTable
from clew.tracking.io.annotations import describe_kinds, open_annotations
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.tables import read_detections
from clew.tracking.tracker import Tracker


def write_rows(path: Path, lineage: PointLineage, rows: np.ndarray) -> Path:
    """Write some cells of a lineage as a table of tracks."""
    at = np.searchsorted(lineage.tracks.id, lineage.track[rows])
    columns = [
        lineage.frame[rows],
        lineage.track[rows],
        lineage.tracks.parent[at],
        *lineage.position[rows].T,
    ]
    header = "frame,track,parent,z,y,x"
    np.savetxt(
        path,
        np.column_stack(columns),
        "%d,%d,%d,%.6f,%.6f,%.6f",
        "",
        header=header,
        comments="",
    )
    return path


def draw_lineages(
    lineage: PointLineage, share: float, seed: int
) -> dict[str, np.ndarray]:
    """Draw rows of cells: some tracks, the same cut at both ends, and families."""
    rng = np.random.default_rng(seed)
    tracks = lineage.tracks
    chosen = rng.choice(tracks.id, round(share * len(tracks)), replace=False)
    is_chosen = np.isin(lineage.track, chosen)
    at = np.searchsorted(tracks.id, lineage.track)
    length = tracks.end - tracks.begin + 1
    first = tracks.begin + (rng.random(len(tracks)) * length / 2).astype(int)
    last = first + np.maximum(length // 2, 1)
    is_kept = (lineage.frame >= first[at]) & (lineage.frame <= last[at])
    root = np.arange(len(tracks))
    parent = tracks.parent_row()
    while (parent[root] >= 0).any():
        root = np.where(parent[root] >= 0, parent[root], root)
    families = rng.permutation(np.unique(root))
    in_family = np.zeros(len(lineage.frame), dtype=bool)
    for family in families:
        if in_family.mean() >= share:
            break
        in_family |= (root == family)[at]
    return {
        f"{share:.0%} of the tracks": np.flatnonzero(is_chosen),
        "the same, cut where a person stopped": np.flatnonzero(is_chosen & is_kept),
        f"{share:.0%} of whole families": np.flatnonzero(in_family),
    }


def count_false(events: EventTable, truth: set[tuple[object, ...]]) -> int:
    """Number of events that the whole lineage does not have."""
    return len(set(events) - truth)


def main() -> None:
    """Print a row for each partial lineage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tracking", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ["CLEW_DATA"]) / "ascidian"
    movie = read_detections(folder / "Pm02-points.csv")
    other = read_detections(folder / "Pm03-points.csv")
    lineage = open_lineage(folder / "Pm02-tracks.csv")
    assert isinstance(lineage, PointLineage)
    whole = open_annotations(folder / "Pm02-tracks.csv", movie).annotations
    truth = set(whole.events)
    target = open_annotations(folder / "Pm03-tracks.csv", other).annotations

    def count_missed(tracker: Tracker) -> str:
        loss = compute_task_loss(target, tracker.track(other).events)
        return f"{loss.n_errors} of {loss.n_annotations} missed"

    if options.tracking:
        print("generic weights:", count_missed(Tracker.generic()), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        drawn = draw_lineages(lineage, options.share, options.seed)
        for name, rows in drawn.items():
            path = write_rows(Path(scratch) / "some.csv", lineage, rows)
            for complete in (None, True):
                found = open_annotations(path, movie, complete=complete).annotations
                words = "as complete" if complete else "by default"
                line = f"{name}, {words}: {describe_kinds(found.events.event)}; "
                line += f"false: {count_false(found.events, truth)}"
                if options.tracking:
                    tracker = Tracker(cache=None, n_jobs=1)
                    line += f"; {count_missed(tracker.fit([movie], [found]))}"
                print(line, flush=True)


if __name__ == "__main__":
    main()
