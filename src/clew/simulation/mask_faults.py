"""Segmentation errors of bodies: missed, cut and fused cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.simulation.bodies import Bodies, BodyView
from clew.simulation.render import pad_to_3d
from clew.simulation.rows import Array, Ids
from clew.simulation.segmentation import (
    find_touching_pairs,
    group_connected,
    number_labels,
)
from clew.simulation.settings import BodySettings

STAYS = 0.6
"""Probability that fused cells stay fused in the next frame, if they touch."""


class MaskFaults:
    """Make label images with segmentation errors; fusions last for some frames."""

    def __init__(self, settings: BodySettings) -> None:
        self.settings = settings
        self.fused: set[tuple[int, int]] = set()

    def make_labels(
        self, bodies: Bodies, view: BodyView, spacing: Array, rng: np.random.Generator
    ) -> NDArray[np.int32]:
        """Return detected labels, (z, y, x), numbered from top left in each frame."""
        n = len(bodies)
        seen = bodies.track > 0
        shift = (
            self.settings.outline_error
            * self.settings.radius
            * np.clip(rng.standard_normal(n), -2, 2)
        )
        missed = rng.random(n) < self.settings.missed
        cut = rng.random(n) < self.settings.over_segmentation
        level = np.concatenate([[np.inf], np.where(seen, shift, np.inf)]).astype(
            np.float32
        )
        mine = np.where(view.distance >= level[view.owner], view.owner, 0).astype(
            np.int32
        )
        group = self._fuse_touching(mine, bodies.track, rng)
        alone = np.bincount(group, minlength=n)[group] == 1
        name = np.concatenate([[0], np.where(seen & ~(missed & alone), group + 1, 0)])
        labels = np.zeros(mine.shape, np.int32)
        sides = np.where(cut & alone, n, 0)
        number_labels(
            mine,
            name,
            sides,
            pad_to_3d(bodies.spine[:, 1]),
            pad_to_3d(bodies.axis),
            spacing,
            labels,
        )
        return labels

    def _fuse_touching(
        self, mine: NDArray[np.int32], track: Ids, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the group of each cell, (n,); a group is detected as one cell."""
        first, second, _ = find_touching_pairs(mine, len(track))
        under = self.settings.under_segmentation
        if not under:
            return np.arange(len(track))
        names = [
            (min(a, b), max(a, b))
            for a, b in zip(track[first].tolist(), track[second].tolist(), strict=True)
        ]
        again = np.array([name in self.fused for name in names], bool)
        # as many fusions begin as end, so that the share of fused pairs is constant
        begins = under * (1 - STAYS) / (1 - under * STAYS)
        joined = rng.random(len(names)) < np.where(again, STAYS, begins)
        self.fused = {name for name, join in zip(names, joined, strict=True) if join}
        return group_connected(len(track), first[joined], second[joined])
