"""Overlap alone: masks of two frames are linked so that the sum of their IoU is greatest."""

from __future__ import annotations

import numpy as np
from kinds_movies import Scene
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment


def links(scene: Scene) -> NDArray[np.int64]:
    """(k, 2) rows of the scene's points that are linked; none divides."""
    frames = scene.points.frames
    found = [np.zeros((0, 2), np.int64)]
    for t in range(len(frames) - 1):
        before = scene.source.detections(t).columns["volume"]
        after = scene.source.detections(t + 1).columns["volume"]
        overlap = scene.source.overlap(t)
        iou = np.zeros((len(before), len(after)))
        both = before[overlap.source] + after[overlap.target] - overlap.volume
        iou[overlap.source, overlap.target] = overlap.volume / both
        rows, columns = linear_sum_assignment(iou, maximize=True)
        is_shared = iou[rows, columns] > 0
        rows = rows[is_shared]
        columns = columns[is_shared]
        found.append(np.column_stack([frames[t][rows], frames[t + 1][columns]]))
    return np.concatenate(found)
