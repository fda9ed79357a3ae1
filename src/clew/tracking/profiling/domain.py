"""What weights know: how cells and moves looked where they were learned, and whether another movie looks alike.

Weights extrapolate badly where features are outside what was learned from (covariate shift, Shimodaira 2000): other
masks, markers instead of whole cells for one. A movie is outside in some property if half of its cells are beyond all
but 2 % of those learned from. That needs no truth, and cells of a kind that makes up more than 4 % of what was learned
from are never outside. All that is asked of moves is how much changes: where hardly anything does, as in a movie of
many frames a minute, nothing is easier, and only more change than is known is outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Array, Mask
from clew.tracking.assignment.assignment import Assignment
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePair, Pairs
from clew.tracking.detections import Detections
from clew.tracking.events import Event
from clew.tracking.profiling.generic_domain import DOMAIN
from clew.tracking.profiling.scales import Over, ball_diameter

LEVELS = (0.02, 0.25, 0.5, 0.75, 0.98)
"""Of the quantiles that are kept; the first and the last bound what is known, the middle one is compared."""
LOOKED_AT = 10
"""Frame pairs, evenly spread over a movie, whose cells and moves are looked at."""
ENOUGH = 30
"""Cells or moves that a movie must have to be judged by."""
SIZE, ECCENTRICITY = "size against the distance to the next cell", "eccentricity"
OF_MASKS = (SIZE, ECCENTRICITY)
"""Properties that tell the masks: small discs in place of whole cells, for instance."""
PREFIX = f"{Event.MOVE}: "

Look = Mapping[str, Array]
"""(n,) values of each property, of the cells and the moves that were looked at."""


@dataclass(frozen=True)
class Unfamiliar:
    """A property in which a movie is outside what weights know."""

    name: str
    median: float
    low: float
    high: float
    """Nearly all that was learned from lies between these two."""

    def __str__(self) -> str:
        return (
            f"{self.name} {self.median:.2g} (there {self.low:.2g} to {self.high:.2g})"
        )


@dataclass(frozen=True)
class Domain:
    """The quantiles of each property in what weights were learned from."""

    quantiles: Mapping[str, Sequence[float]]
    """At `LEVELS`, by property."""

    @classmethod
    def of(cls, looks: Iterable[Look]) -> Self:
        """From a look at each movie; movies count alike, however many cells they have."""
        values: dict[str, list[Array]] = {}
        for look in looks:
            for name, column in look.items():
                if (
                    len(column) >= ENOUGH
                ):  # as many from each movie, at even steps of its own distribution
                    values.setdefault(name, []).append(
                        np.quantile(column, np.linspace(0, 1, 201))
                    )
        return cls(
            {
                name: np.quantile(np.concatenate(each), LEVELS).tolist()
                for name, each in values.items()
            }
        )

    @classmethod
    def generic(cls) -> Self:
        """That of the weights that come with clew."""
        return cls(DOMAIN)

    def unfamiliar(self, look: Look) -> list[Unfamiliar]:
        """The properties in which a movie is outside, the masks' first."""
        found = []
        for name in sorted(self.quantiles, key=lambda name: name not in OF_MASKS):
            column = look.get(name)
            if column is None or len(column) < ENOUGH:
                continue
            low, *_, high = self.quantiles[name]
            median = float(np.median(column))
            if median > high or (median < low and name in OF_MASKS):
                found.append(Unfamiliar(name, median, low, high))
        return found

    def warning(self, look: Look, name: str) -> str:
        """In words what is outside in the movie of this name; empty if nothing is."""
        found = self.unfamiliar(look)
        if not found:
            return ""
        masks = any(one.name in OF_MASKS for one in found)
        guess = (
            " Are these masks of another kind, markers in place of whole cells for instance?"
            if masks
            else ""
        )
        return (
            f"cells of {name} do not look like those that the weights were learned from: in the median "
            f"{', '.join(map(str, found[:3]))}.{guess} Expect more mistakes, and annotate some events of this movie"
        )


def look_at(pairs: Pairs, w: Array, over: Over = map) -> Look:
    """The properties of a movie's cells, and of the moves that weights `w` see; `over` maps over its frame pairs."""
    return _together(list(over(partial(_look, w), some_pairs(pairs))))


def look_over(pairs: Sequence[FramePair], w: Array, groups: frozenset[str]) -> Look:
    """The same from frame pairs that are there already."""
    looks = []
    for pair in some(pairs):
        moves = _moves(pair.scored(w).best())
        block = pair.blocks[Event.MOVE][moves[pair.candidates.of_event(Event.MOVE)]]
        looks.append(of_moves(block, groups) | of_masks(pair.a, groups))
    return _together(looks)


def some(of: Sequence[Any]) -> list[Any]:
    """At most `LOOKED_AT` of these, evenly spread."""
    return (
        [
            of[k]
            for k in np.unique(
                np.linspace(0, len(of) - 1, LOOKED_AT).round().astype(int)
            )
        ]
        if len(of)
        else []
    )


def some_pairs(pairs: Pairs) -> list[tuple[Pairs, int]]:
    """`some` frame pairs of a movie by their first frames, each with no more of the movie than it needs."""
    return [
        (pairs.window(frame, frame + 1), frame) for frame in some(range(len(pairs)))
    ]


def _look(w: Array, item: tuple[Pairs, int]) -> Look:
    pairs, frame = item
    pair = pairs.scored(
        frame, w
    )  # most were solved before, to see which kinds of events there are
    moves = pair.candidates[_moves(pair.best())]
    return of_moves(pairs.blocks_of(frame, moves)[Event.MOVE], pairs.groups) | of_masks(
        pair.a, pairs.groups
    )


def _together(looks: Sequence[Look]) -> Look:
    return {
        name: np.concatenate([look[name] for look in looks])
        for name in (looks[0] if looks else ())
    }


def _moves(answer: Assignment) -> Mask:
    """(n,) which candidates are moves that are part of the best events."""
    found = np.zeros(len(answer.candidates), dtype=bool)
    found[answer.chosen] = answer.events == Event.MOVE
    return found


def of_moves(block: Array, groups: frozenset[str]) -> dict[str, Array]:
    """(m,) the features (m, d) of moves, by name."""
    names = [
        name.removeprefix(PREFIX)
        for name in feature_names(groups)
        if name.startswith(PREFIX)
    ]
    return {
        name: column
        for name, column in zip(names, block.T, strict=True)
        if name != "bias"
    }


def of_masks(cells: Detections, groups: frozenset[str]) -> dict[str, Array]:
    """(n,) what masks look like, without a unit."""
    found: dict[str, Any] = {}
    if "size" in groups and len(cells) > 1:
        gap = cKDTree(cells.position).query(cells.position, k=2)[0][:, 1]
        diameter = ball_diameter(cells.columns["volume"], cells.position.shape[1])
        found[SIZE] = diameter / np.maximum(gap, 1e-9 * diameter)
    elif "size" in groups:
        found[SIZE] = np.zeros(0)
    if "shape" in groups:
        found[ECCENTRICITY] = np.asarray(cells.columns["eccentricity"], dtype=float)
    return found
