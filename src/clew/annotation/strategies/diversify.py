"""Diversity in a batch of questions, greedily: a question is worth less after others that are like it.

The idea is that of maximal marginal relevance (Carbonell & Goldstein 1998), with a factor for each likeness.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array

SAME_PAIR, SAME_PLACE, SAME_KIND = 0.7, 0.2, 0.97
"""What a question is still worth after another one about the same frame pair, the same place, the same kind."""
NEAR_FRAMES = 1
"""Events that are as many frames apart can be about the same cells."""


def diversify(
    value: Array,
    frame: NDArray[Any],
    kind: NDArray[Any],
    place: Array,
    near: float,
    n: int,
) -> list[int]:
    """At most `n` rows, the most valuable first, where each one lowers the value of those that are like it.

    `place` is (m, ndim); what is within `near` of each other in time and space is one place.
    """
    left = np.array(value, dtype=float)
    chosen: list[int] = []
    for _ in range(min(n, len(left))):
        row = int(np.argmax(left))
        chosen.append(row)
        close = np.abs(frame - frame[row]) <= NEAR_FRAMES
        close &= ((place - place[row]) ** 2).sum(axis=1) <= near**2
        left *= np.where(frame == frame[row], SAME_PAIR, 1.0) * np.where(
            kind == kind[row], SAME_KIND, 1.0
        )
        left *= np.where(close, SAME_PLACE, 1.0)
        left[chosen] = -np.inf
    return chosen
