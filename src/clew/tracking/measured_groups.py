"""Groups of measurements that mean something in a movie, and weights learned for them.

Markers in place of cells are discs of one size: their areas, shapes and overlaps say
nothing about cells. Generic weights were learned for a few sets of groups; a movie
takes those of the largest set that it has. Points in 3D and masks that tile the field
have their own: where masks tile, a vanished cell looks unlike one among sparse cells.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np
from scipy.spatial import ConvexHull

from clew.tracking.detections import GROUPS, OVERLAP, Source
from clew.tracking.measurement.regions import support_directions
from clew.tracking.scales import ball_diameter, sample_frames
from clew.tracking.user_columns import get_user_columns, is_user_group

POINTS = frozenset({"border"})
OF_IMAGES = frozenset({"intensity", "histogram"})
MASKS = frozenset({*GROUPS, OVERLAP}) - OF_IMAGES
OF_MASKS = MASKS - POINTS
GENERIC_SETS = {
    "points": POINTS,
    "points with intensities": POINTS | {"intensity"},
    "masks": MASKS,
    "masks with intensities": MASKS | OF_IMAGES,
}
"""Sets of groups that generic weights are stored for, the smallest first."""
TILED_MASKS = "masks that tile"
POINTS_3D = "points in 3D"
VARIANTS = {POINTS_3D: "points", TILED_MASKS: "masks"}
"""Sets of generic weights that a movie's cells decide on, by the set that they replace.
Weights of points were learned from crowds in 2D, which say little about embryos."""
N_SAMPLED_FRAMES = 10
MAX_AREA_SPREAD = 0.2
"""Quartile range of the volumes of markers at most, in medians. Markers of PSC have 0
and those of DIC .15; cells .16 (bacteria) to .63, simulated tissue of discs from .11."""
MAX_ECCENTRICITY = 0.35
"""Upper quartile of the eccentricities of markers at most. Set by hand: discs of a few
pixels are not quite round, and rods of one size are no markers."""
MIN_TILED = 0.75
"""Share of the hull that masks cover if they tile it. Epidermis has .83, the densest
simulated tissue .5, colonies of rods .6."""
MIN_TILES = 30
"""Cells of a frame at least in which masks can be seen to tile."""


def are_markers(source: Source) -> bool:
    """Whether the masks of a movie are discs of one size."""
    if not source.has >= {"size", "shape"}:
        return False
    volumes = [np.zeros(0)]
    eccentricities = [np.zeros(0)]
    for sample in sample_frames(source, 1, N_SAMPLED_FRAMES):
        columns = sample.read()[0].columns
        volumes.append(np.asarray(columns["volume"], dtype=float))
        eccentricities.append(np.asarray(columns["eccentricity"], dtype=float))
    volume = np.concatenate(volumes)
    if len(volume) < 2:
        return False
    low, median, high = np.quantile(volume, [0.25, 0.5, 0.75])
    roundest = np.quantile(np.concatenate(eccentricities), 0.75)
    return bool(high - low <= MAX_AREA_SPREAD * median and roundest <= MAX_ECCENTRICITY)


def find_informative_groups(source: Source) -> frozenset[str]:
    """Return the groups of a movie's measurements without those of markers.

    The columns of the user are among them.
    """
    measured = source.has - OF_MASKS if are_markers(source) else source.has
    return measured | get_user_columns(source).list_groups()


def masks_tile(source: Source, groups: Set[str]) -> bool:
    """Whether the masks cover the convex hull of the cells but for narrow gaps.

    Where a cell of such a tissue vanishes, its neighbors take its place, which looks
    like a merge.
    """
    if "size" not in groups:
        return False
    directions = support_directions(source.ndim)
    covered = []
    for sample in sample_frames(source, 1, N_SAMPLED_FRAMES):
        cells = sample.read()[0]
        if len(cells) < MIN_TILES:
            continue
        volume = np.asarray(cells.columns["volume"], dtype=float)
        radius = ball_diameter(volume, source.ndim) / 2
        outline = cells.position[:, None] + radius[:, None, None] * directions
        hull = ConvexHull(outline.reshape(-1, source.ndim))
        covered.append(volume.sum() / hull.volume)
    return bool(covered) and float(np.median(covered)) > MIN_TILED


def find_generic_set(groups: Set[str], ndim: int = 2, tiles: bool = False) -> str:
    """Return the name of the set of generic weights for some groups of measurements.

    Parameters
    ----------
    groups : set of str
    ndim : int
        Of the movie.
    tiles : bool
        Whether its masks do, see `masks_tile`.

    Returns
    -------
    str
        The largest set within the groups, or the variant of it that suits the movie.
    """
    names = [name for name, needed in GENERIC_SETS.items() if needed <= groups]
    name = names[-1] if names else next(iter(GENERIC_SETS))
    is_variant = {POINTS_3D: ndim == 3, TILED_MASKS: tiles}
    variants = [one for one, base in VARIANTS.items() if base == name]
    return next(filter(is_variant.get, variants), name)


def describe_groups(groups: Set[str], generic_set: str, source: Source) -> str:
    """Describe which weights a movie takes, for notes."""
    note = ""
    if "size" in source.has and "size" not in groups:
        note = " (the masks are markers: their size and shape are left out)"
    given = "".join(f", {group}" for group in sorted(filter(is_user_group, groups)))
    return f"measurements: {generic_set}{given}{note}"
