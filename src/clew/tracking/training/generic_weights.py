"""Weights and coefficients that come with clew, from generic_weights.json.

They were learned from simulated movies by benchmarks/generic_weights.py, and those of
probabilities by benchmarks/wrong_events.py.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

FILE = "generic_weights.json"


def load_generic(file: str = FILE) -> dict[str, Any]:
    """Read the weights and coefficients that come with clew."""
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


_CONTENT = load_generic()
GENERIC: dict[str, dict[str, float]] = _CONTENT["weights"]
"""Weights by the names of features, for each of `measured_groups.GENERIC_SETS`."""
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
