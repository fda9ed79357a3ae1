"""laptrack (Fukai et al. 2022): linear assignment from frame to frame, then of track ends to splits and merges."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from kinds_movies import Points, Scene
from laptrack import LapTrack
from numpy.typing import NDArray

GRID = {
    "reach": (0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    "splitting": (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    "merging": (0.0, 0.75),
    "patience": (1.05, 2.0),
}
"""Cutoffs in spacings of the movie (0: no such event), and the factor for the cost of not linking."""
UNTUNED = {"reach": 1.0, "splitting": 1.0, "merging": 0.0, "patience": 1.05, "gap": 1.0}
"""All cutoffs are the movie's spacing; gaps of up to `MAX_GAP` frames are closed."""
MAX_GAP = 2


def links(
    points: Points,
    reach: float,
    splitting: float,
    merging: float,
    patience: float,
    gap: float = 0.0,
) -> NDArray[np.int64]:
    """(k, 2) rows that are linked, with squared distances as costs."""

    def cutoff(factor: float) -> Any:
        return (factor * points.spacing) ** 2 if factor else False

    tracker = LapTrack(
        cutoff=cutoff(reach),
        splitting_cutoff=cutoff(splitting),
        merging_cutoff=cutoff(merging),
        gap_closing_cutoff=cutoff(gap),
        gap_closing_max_frame_count=MAX_GAP,
        alternative_cost_factor=patience,
    )
    tree = tracker.predict([points.position[rows] for rows in points.frames])
    found = [
        (points.frames[a][i], points.frames[b][j]) for (a, i), (b, j) in tree.edges()
    ]
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)


def tune(scene: Scene) -> dict[str, float]:
    """The settings with the fewest missed events on a movie whose whole truth is known.

    Reach and splitting are tried together, since one limits the other; then the rest, one after the other.
    """
    best = {"reach": 1.0, "splitting": 0.0, "merging": 0.0, "patience": 1.05}
    for names in (("reach", "splitting"), ("merging",), ("patience",)):
        tried = [
            best | dict(zip(names, values, strict=True))
            for values in product(*(GRID[name] for name in names))
        ]
        losses = [
            scene.evaluate(scene.lineage_of(links(scene.points, **one))).loss.total
            for one in tried
        ]
        best = tried[int(np.argmin(losses))]
    return best
