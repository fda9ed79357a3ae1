"""How cells and moves looked in the simulated movies that generic weights were learned from; see `domain.py`."""

from collections.abc import Mapping, Sequence

DOMAIN: Mapping[str, Sequence[float]] = {
    "distance": (0.009, 0.044, 0.095, 0.202, 0.884),
    "distance in usual steps": (0.083, 0.406, 0.625, 0.866, 1.544),
    "overlap missing": (0.071, 0.198, 0.306, 0.490, 1.000),
    "smaller mask uncovered": (0.000, 0.026, 0.098, 0.249, 1.000),
    "change of volume": (0.004, 0.053, 0.109, 0.193, 0.545),
    "change of brightness": (0.002, 0.025, 0.052, 0.097, 0.307),
    "change of mass": (0.002, 0.030, 0.073, 0.139, 0.520),
    "change of histogram": (0.009, 0.032, 0.058, 0.110, 0.418),
    "change of texture": (0.001, 0.015, 0.034, 0.067, 0.250),
    "change of shape": (0.007, 0.037, 0.071, 0.118, 0.325),
    "change of direction": (0.000, 0.000, 0.002, 0.008, 0.341),
    "size against the distance to the next cell": (0.144, 0.536, 0.715, 0.959, 1.759),
    "eccentricity": (0.290, 0.514, 0.750, 0.912, 0.985),
}
