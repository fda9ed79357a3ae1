"""Tables of simulated cells: one array for each property; rows can be selected and joined."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass
class Rows:
    """Arrays with a row for each cell; subclasses name them."""

    track: Ids
    """(n,) its track in the truth, 0 where it is out of view"""
    mother: Ids
    """(n,) in the frame of its birth the track of its mother, else 0"""

    def __len__(self) -> int:
        return len(self.track)

    def __getitem__(self, rows: Any) -> Self:
        """Select cells."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def __add__(self, other: Self) -> Self:
        """Join two tables."""
        return type(self)(
            **{
                f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)])
                for f in fields(self)
            }
        )


def sum_over_pairs(n: int, first: Ids, second: Ids, push: Array) -> Array:
    """Return the shift (n, d) of n cells if `push` (m, d) moves the first of each pair and −`push` the second."""
    return np.column_stack(
        [
            np.bincount(first, p, minlength=n) - np.bincount(second, p, minlength=n)
            for p in push.T
        ]
    )
