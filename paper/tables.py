"""Means and standard deviations of results over draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Json = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of a quantity over draws."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        """Summarize values; the deviation is that of the sample, as in the paper."""
        array = np.array(list(values), dtype=float)
        if not len(array):
            return cls(float("nan"), float("nan"), 0)
        return cls(
            float(array.mean()),
            float(array.std(ddof=1)) if len(array) > 1 else 0.0,
            len(array),
        )

    def percent(self, digits: int = 2) -> str:
        """Like "0.83 ± 0.07"."""
        return f"{100 * self.mean:.{digits}f} ± {100 * self.std:.{digits}f}"

    def plain(self, digits: int = 1) -> str:
        """Like "254.1 ± 28.8"."""
        return f"{self.mean:.{digits}f} ± {self.std:.{digits}f}"


def where(entries: Sequence[Json], **wanted: Any) -> list[Json]:
    """Select the entries with some settings."""
    return [
        entry
        for entry in entries
        if all(entry.get(name) == value for name, value in wanted.items())
    ]


def summary(entries: Sequence[Json], quantity: str, **wanted: Any) -> Summary:
    """Summarize a quantity of the entries with some settings."""
    return Summary.of(entry[quantity] for entry in where(entries, **wanted))


def values(entries: Sequence[Json], name: str) -> list[Any]:
    """Return the different values of a setting, in order."""
    return list(dict.fromkeys(entry[name] for entry in entries))


def curve(entries: Sequence[Json], quantity: str) -> list[tuple[float, Summary]]:
    """Summarize sessions of annotation: share of annotated events, and a quantity."""
    by_place: dict[int, list[Json]] = {}
    for entry in entries:
        for place, point in enumerate(entry["points"]):
            by_place.setdefault(place, []).append(
                {"share": point["answers"] / entry["events"], **point}
            )
    return [
        (
            float(np.mean([point["share"] for point in points])),
            Summary.of(point[quantity] for point in points),
        )
        for points in by_place.values()
    ]
