"""Events as links between numbered detections."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Indices
from clew.tracking.events import NONE, EventTable


def event_nodes(events: EventTable) -> tuple[Indices, Indices]:
    """(n, 2) each: a number for each detection that takes part, −1 where there is none."""
    cells = np.concatenate([events.sources, events.targets], axis=1)
    there = cells != NONE
    labels, rank = np.unique(
        cells[there], return_inverse=True
    )  # ranks, for frame × label could overflow
    frame = (events.frame[:, None] + np.array([0, 0, 1, 1]))[there]
    nodes = np.full(cells.shape, -1, dtype=np.intp)
    nodes[there] = np.unique(frame * len(labels) + rank.ravel(), return_inverse=True)[
        1
    ].ravel()
    return nodes[:, :2], nodes[:, 2:]
