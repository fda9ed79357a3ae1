"""Detections that take part in nothing: false ones of a detector, not cells."""

from __future__ import annotations

import numpy as np
from scipy.special import pdtrc

from clew.learning.task import Mask
from clew.tracking.lineage.tracks import NO_PARENT, Tracks

SIGNIFICANCE = 0.01
"""Beginnings and ends of tracks would meet as often by chance with at most this
probability, if detections in no track are to count as false."""


def find_false_detections(tracks: Tracks) -> Mask:
    """Find the tracks that are one false detection each.

    These neither come from anything nor lead to anything, and are in neither the first
    nor the last frame. They count as false only if there are more than if tracks began
    and ended independently: in a movie without false detections, a cell is seldom seen
    in one frame alone.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    if not len(tracks):
        return np.zeros(0, dtype=bool)
    begins = (tracks.parent == NO_PARENT) & (tracks.begin > tracks.begin.min())
    ends = ~np.isin(tracks.id, tracks.parent) & (tracks.end < tracks.end.max())
    is_alone: Mask = begins & ends & (tracks.begin == tracks.end)
    n_cells = int((tracks.end - tracks.begin + 1).sum())
    n_others = max(n_cells - int(is_alone.sum()), 1)
    n_begins = int((begins & ~is_alone).sum())
    n_ends = int((ends & ~is_alone).sum())
    by_chance = n_cells * n_begins * n_ends / n_others**2
    n_alone = int(is_alone.sum())
    if not n_alone or pdtrc(n_alone - 1, by_chance) >= SIGNIFICANCE:
        return np.zeros(len(tracks), dtype=bool)
    return is_alone
