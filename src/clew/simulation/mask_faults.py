"""Segmentation errors: missed, cut and fused cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.simulation.bodies import Bodies, BodyView
from clew.simulation.cells import Cells
from clew.simulation.render import LOOSEST, Floats, Owners, View, kernel, pad_to_3d
from clew.simulation.rows import Array, Ids
from clew.simulation.settings import BodySettings, NucleiSettings
from clew.tracking.io.segments import label_components

Labels = NDArray[np.integer[Any]]
STAYS = 0.6
"""Probability that fused cells stay fused in the next frame, if they touch."""
TIGHTEST = 0.95
"""Smallest factor between a detected and the true outline."""


def make_truth_masks(
    view: View, track: NDArray[np.int64], dtype: type[np.unsignedinteger[Any]]
) -> NDArray[Any]:
    """Return true masks labeled by track ids, (z, y, x)."""
    masks = np.zeros(view.owner.shape, dtype)
    _paint_labels(view.owner, view.depth, np.ones(len(track)), track, masks)
    return masks


def make_detections(
    settings: NucleiSettings,
    view: View,
    cells: Cells,
    spacing: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Return detected labels, (z, y, x), numbered from top left in each frame."""
    n = len(cells)
    seen = cells.track > 0
    tightness = rng.uniform(TIGHTEST, LOOSEST, n)
    missed = rng.random(n) < settings.missed
    torn = rng.random(n) < settings.over_segmentation
    mine = np.zeros(view.owner.shape, np.int32)
    _paint_labels(
        view.owner, view.depth, tightness, np.where(seen, np.arange(1, n + 1), 0), mine
    )
    group = _merge_touching(mine, view.kept, settings)
    alone = np.bincount(group, minlength=n)[group] == 1
    missed &= alone
    extent = np.array(settings.extent)
    inner = (
        (cells.position > settings.radius) & (cells.position < extent - settings.radius)
    ).all(axis=1)
    torn &= alone & inner & (cells.condensation > 0.6)
    name = np.concatenate([[0], np.where(seen & ~missed, group + 1, 0)])
    labels = np.zeros(mine.shape, np.int32)
    number_labels(
        mine,
        name,
        np.where(torn, n, 0),
        pad_to_3d(cells.position),
        pad_to_3d(cells.axis),
        spacing,
        labels,
    )
    return labels


def find_touching_pairs(
    mine: NDArray[np.int32], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Find pairs of touching cells: both rows, and the length of their border in pixels."""
    codes = []
    for axis in range(3):
        lower = mine[
            tuple(slice(None, -1) if a == axis else slice(None) for a in range(3))
        ]
        upper = mine[
            tuple(slice(1, None) if a == axis else slice(None) for a in range(3))
        ]
        touch = (lower != upper) & (lower > 0) & (upper > 0)
        one = lower[touch].astype(np.int64) - 1
        other = upper[touch].astype(np.int64) - 1
        codes.append(np.minimum(one, other) * n + np.maximum(one, other))
    code, border = np.unique(np.concatenate(codes), return_counts=True)
    return code // max(n, 1), code % max(n, 1), border


def _merge_touching(
    mine: NDArray[np.int32], pixels: NDArray[np.int64], settings: NucleiSettings
) -> NDArray[np.int64]:
    """Group cells whose common border is long for the smaller one, (n,)."""
    n = len(pixels)
    dims = settings.dims
    first, second, border = find_touching_pairs(mine, n)
    width = np.minimum(pixels[first], pixels[second]) ** ((dims - 1) / dims)
    joined = (border > (1 - settings.merging) * width) & (settings.merging > 0)
    return label_components(n, first[joined], second[joined])


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
        return label_components(len(track), first[joined], second[joined])


@kernel  # type: ignore[untyped-decorator]
def _paint_labels(
    owner: Owners, depth: Floats, tightness: Floats, label: Labels, masks: Labels
) -> None:
    """Fill `masks` with the label of the owner inside its scaled outline."""
    owners = owner.ravel()
    depths = depth.ravel()
    labels = masks.ravel()
    for p in range(owners.size):
        c = owners[p] - 1
        if c >= 0 and depths[p] <= tightness[c]:
            labels[p] = label[c]


@kernel  # type: ignore[untyped-decorator]
def number_labels(
    mine: Owners,
    name: Labels,
    torn: Labels,
    position: Floats,
    axis: Floats,
    spacing: Floats,
    labels: Labels,
) -> None:
    """Number names in scan order; a cut cell gets two, one on each side of its middle."""
    number = np.zeros(2 * len(name) + 2, np.int64)
    found = 0
    for z in range(mine.shape[0]):
        for y in range(mine.shape[1]):
            for x in range(mine.shape[2]):
                c = mine[z, y, x] - 1
                if c >= 0 and name[c + 1]:
                    key = name[c + 1]
                    if torn[c]:
                        side = (
                            (z * spacing[0] - position[c, 0]) * axis[c, 0]
                            + (y * spacing[1] - position[c, 1]) * axis[c, 1]
                            + (x * spacing[2] - position[c, 2]) * axis[c, 2]
                        )
                        if side > 0:
                            key += torn[c]
                    if number[key] == 0:
                        found += 1
                        number[key] = found
                    labels[z, y, x] = number[key]
