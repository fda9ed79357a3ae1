"""Weights and coefficients that come with clew, from generic_weights.json.

They were learned from simulated movies by benchmarks/generic_weights.py, and those of
probabilities by benchmarks/wrong_events.py. There are weights for a few sets of groups
of measurements; a movie takes those of the largest set that it has. Points in 3D and
masks that tile the field have their own: where masks tile, a vanished cell looks unlike
one among sparse cells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from importlib.resources import files
from typing import Any

import numpy as np

from clew.learning.task import Array
from clew.tracking.detections import GROUPS, OVERLAP
from clew.tracking.events import END_OF_FALSE

FILE = "generic_weights.json"
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


def load_generic(file: str = FILE) -> dict[str, Any]:
    """Read the weights and coefficients that come with clew."""
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


_CONTENT = load_generic()
GENERIC: dict[str, dict[str, float]] = _CONTENT["weights"]
"""Weights by the names of features, for each of `GENERIC_SETS`."""
QUANTILES: dict[str, list[float]] = _CONTENT["quantiles"]
"""Of cells and moves in the training data, see `clew.tracking.profile`."""

_CALIBRATION = _CONTENT["calibration"]
SLOPE: float = _CALIBRATION["slope"]
GROWTH: float = _CALIBRATION["growth"]
BORDER: float = _CALIBRATION["border"]
TORN: float = _CALIBRATION["torn"]
SWAP: float = _CALIBRATION["swap"]
CLEARNESS: float = _CALIBRATION["clearness"]
TYPICAL_RANK: float = _CALIBRATION["typical_rank"]
INTERCEPTS: dict[str, float] = _CALIBRATION["intercepts"]
SPREAD: float = _CALIBRATION["spread"]

_SPLITS = _CONTENT["splits"]
MERGED_BEFORE: float = _SPLITS["merged_before"]
"""Added to the margin of a split after a merge, in norms of the weights."""
NOT_MERGED_BEFORE: float = _SPLITS["not_merged_before"]
"""Added without a merge before."""
PART_RANK: float = _SPLITS["part_rank"]
"""Times the rank of the smaller part."""
SPLIT_SLOPE: float = _SPLITS["slope"]
"""Of the log-odds of a split on the sum."""

FALSE_MERGES: float = _CONTENT["false_rates"]["merges"]
"""Share of events that look like merges in movies without merges."""


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


def generic_weights(names: Sequence[str], generic_set: str | None = None) -> Array:
    """Return the weights that come with clew for features by name, (d,).

    They are those of a set, or of the largest one that has no other features; 0 for
    features that the set lacks.
    """
    if generic_set is None:
        available = set(names)
        generic_set = max(
            (name for name in GENERIC_SETS if available >= GENERIC[name].keys()),
            key=lambda name: len(GENERIC[name]),
            default="points",
        )
    return np.array([_find_weight(GENERIC[generic_set], name) for name in names])


def _find_weight(weights: Mapping[str, float], name: str) -> float:
    """Return the weight of a feature; 0 if it is unknown.

    Weights that know no false detections score these as cells that come or go.
    """
    if name in weights:
        return weights[name]
    kind, _, feature = name.partition(": ")
    for false, event in END_OF_FALSE.items():
        if kind == str(false):
            return weights.get(f"{event}: {feature}", 0.0)
    return 0.0


def weights_by_name(
    tracker: Any, names: Sequence[str], generic_set: str | None = None
) -> Array:
    """Return the weights of a fitted tracker for features by name, (d,).

    0 for features that it does not have. A tracker with generic weights takes those of
    `generic_set`, or of the largest set for these features.
    """
    known = dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True))
    if known in GENERIC.values():
        return generic_weights(names, generic_set)
    return np.array([_find_weight(known, name) for name in names])
