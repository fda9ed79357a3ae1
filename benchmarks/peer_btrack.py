"""btrack 0.6.5 (Ulicna et al. 2021): a Kalman filter, then hypotheses of divisions and ends by an integer programme.

Its dependencies contradict clew's (pydantic below 2), so that it runs in an environment of its own, named by
BTRACK_PYTHON: `python -m venv DIR && DIR/bin/pip install btrack==0.6.5`. Run as a script by that Python, this file
reads positions and writes links.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

UNIT = 20.0
"""Positions are scaled so that cells are so far apart: the authors' settings for cells are in pixels."""


def links(points: Any) -> tuple[np.ndarray, float]:
    """(k, 2) rows that are linked, and the CPU seconds of the other process."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "points.npz", Path(folder) / "links.npz"
        np.savez(
            given,
            frame=points.frame,
            position=points.position * (UNIT / points.spacing),
        )
        subprocess.run(
            [os.environ["BTRACK_PYTHON"], __file__, str(given), str(found)],
            check=True,
            capture_output=True,
        )
        with np.load(found) as content:
            return content["links"], float(content["seconds"])


def configuration(extent: list[tuple[float, float]]) -> dict[str, Any]:
    """The settings that btrack's authors give for cells (models/cell_config.json)."""
    eye = np.eye(6)
    eye[:3, 3:] = np.eye(3)
    return {
        "motion_model": {
            "name": "cell_motion",
            "dt": 1.0,
            "measurements": 3,
            "states": 6,
            "accuracy": 7.5,
            "prob_not_assign": 0.001,
            "max_lost": 5,
            "A": eye.tolist(),
            "H": np.eye(3, 6).tolist(),
            "P": (150.0 * np.diag([0.1, 0.1, 0.1, 1, 1, 1])).tolist(),
            "G": (15.0 * np.array([[0.5, 0.5, 0.5, 1, 1, 1]])).tolist(),
            "R": (5.0 * np.eye(3)).tolist(),
        },
        "hypothesis_model": {
            "name": "cell_hypothesis",
            "hypotheses": ["P_FP", "P_init", "P_term", "P_link", "P_branch", "P_dead"],
            "lambda_time": 5.0,
            "lambda_dist": 3.0,
            "lambda_link": 10.0,
            "lambda_branch": 50.0,
            "eta": 1e-10,
            "theta_dist": 20.0,
            "theta_time": 5.0,
            "dist_thresh": 40,
            "time_thresh": 2,
            "apop_thresh": 5,
            "segmentation_miss_rate": 0.1,
            "apoptosis_rate": 0.001,
            "relax": True,
        },
        "volume": extent,
    }


def cpu_seconds() -> float:
    """Of this process, all threads."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def main(given: str, found: str) -> None:
    """Track in this process, by btrack's own Python."""
    import btrack
    from btrack.config import TrackerConfig

    began = cpu_seconds()
    with np.load(given) as content:
        frame, position = content["frame"], content["position"]
    xyz = np.zeros((len(frame), 3))
    xyz[:, : position.shape[1]] = position[:, ::-1]
    table = np.column_stack([frame, xyz])
    objects = [
        btrack.btypes.PyTrackObject.from_dict(
            {"ID": row, "t": int(t), "x": x, "y": y, "z": z}
        )
        for row, (t, x, y, z) in enumerate(table)
    ]
    extent = [
        (float(low) - 1, float(high) + 1)
        for low, high in zip(xyz.min(axis=0), xyz.max(axis=0), strict=True)
    ]
    tracked: dict[int, list[tuple[int, int]]] = {}
    parents: dict[int, int] = {}
    with btrack.BayesianTracker(verbose=False) as tracker:
        tracker.configure(TrackerConfig(**configuration(extent)))
        tracker.append(objects)
        tracker.track(step_size=100)
        tracker.optimise()
        for track in tracker.tracks:
            # rows of objects that were put in to fill gaps are negative
            tracked[track.ID] = [
                (int(t), int(row))
                for t, row in zip(track.t, track.refs, strict=True)
                if row >= 0
            ]
            parents[track.ID] = track.parent
    pairs = [(a, b) for rows in tracked.values() for (_, a), (_, b) in pairwise(rows)]
    for child, parent in parents.items():
        if parent != child and parent in tracked and tracked[parent] and tracked[child]:
            pairs.append((tracked[parent][-1][1], tracked[child][0][1]))
    seconds = cpu_seconds() - began
    np.savez(
        found,
        links=np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2),
        seconds=seconds,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
