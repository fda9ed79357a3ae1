"""Real movies whose cells are carried along: by a turning stage, or by a smooth field that is another in each frame.

    CLEW_DATA=… python benchmarks/warped.py [--movies hela psc …] [--turns 3 10] [--warps 0.5 1]

Only centroids are taken, without sizes and images, so that the flow has places alone to go by; generic weights. Turns
are in degrees a frame around the middle of the field. A warp moves each cell from frame to frame by a Gaussian random
field with a length of a quarter of the field, so many spacings between cells in its root mean square. True events stay
what they were. Nothing in clew was chosen by these movies.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from kinds_movies import REAL, Points, open_kind
from numpy.typing import NDArray

from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import Event
from clew.tracking.tracker import Tracker

LENGTH = 0.25
"""Of the warps, as a share of the field."""
WAVES = 200
"""Cosines that a random field is the sum of (Rahimi & Recht 2007)."""


def turned(points: Points, degrees: float) -> NDArray[np.float64]:
    """(n, 2) places on a stage that turns."""
    angle = np.deg2rad(degrees) * points.frame
    middle = points.position.mean(axis=0)
    y, x = (points.position - middle).T
    return (
        np.column_stack(
            [
                y * np.cos(angle) - x * np.sin(angle),
                y * np.sin(angle) + x * np.cos(angle),
            ]
        )
        + middle
    )


def warped(points: Points, spacings: float, seed: int) -> NDArray[np.float64]:
    """(n, 2) places in a tissue of which each frame is another warp of the field: ways add two of them up."""
    rng = np.random.default_rng(seed)
    moved = points.position.copy()
    length = LENGTH * np.ptp(points.position, axis=0).max()
    for rows in points.frames:
        wave, phase = (
            rng.normal(size=(2, WAVES, 2)) / length,
            rng.uniform(0, 2 * np.pi, (2, WAVES)),
        )
        field = [
            np.sqrt(2 / WAVES)
            * np.cos(points.position[rows] @ wave[k].T + phase[k]).sum(axis=1)
            for k in (0, 1)
        ]
        # half of the variance for each of two frames, and for each of two axes
        moved[rows] += spacings * points.spacing / 2 * np.column_stack(field)
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--movies", nargs="+", default=list(REAL), choices=list(REAL))
    parser.add_argument("--turns", nargs="*", type=float, default=[3, 10])
    parser.add_argument("--warps", nargs="*", type=float, default=[0.5, 1])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("results/kinds/movies"))
    options = parser.parse_args()
    warnings.simplefilter(
        "ignore"
    )  # three daughters, and cells that weights do not know
    tracker = Tracker.generic(n_jobs=1)
    for name in options.movies:
        scene = open_kind(name, 0, options.cache)
        points = scene.points
        ways = {"as it is": points.position}
        ways |= {
            f"turned by {degrees:g}°": turned(points, degrees)
            for degrees in options.turns
        }
        draws = range(options.draws)
        ways |= {
            f"warped by {way:g}, draw {k}": warped(points, way, k)
            for way in options.warps
            for k in draws
        }
        for how, position in ways.items():
            began = time.process_time()
            lineage = tracker.track(
                DetectionTable(points.frame, points.label, position, name=name)
            )
            seconds = time.process_time() - began
            loss = compute_task_loss(scene.truth, lineage.events)
            kinds = (
                f"{event} {loss.missed[event]} of {loss.annotated[event]}"
                for event in (Event.MOVE, Event.DIVIDE)
            )
            print(
                f"{name}, {how}: missed {loss.total:.2%} ({', '.join(kinds)}), {seconds:.1f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
