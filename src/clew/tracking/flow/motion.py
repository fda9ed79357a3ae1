"""How the cells of a movie move: on their own or with their surroundings, and anew or on as before.

Where cells move with their surroundings, places are taken relative to the **flow** (`flow.py`). What is left of a way
then is partly a cell's own habit: one that overtook its neighbours does so again. This is a **first-order
autoregressive model**, whose coefficient, the persistence, is estimated from the movie's own links. In movies without
flow jumps of whole frames are followed, if they bring more cells onto others than chance does; between them cells go on
as before if that explains enough of their ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections, Source
from clew.tracking.flow.flow import Links, continued_flow, estimate_flow, jump
from clew.tracking.flow.registration import lengths, mutual_nearest, nearest_at_rest
from clew.tracking.profiling.scales import Over, SampledFrames, sampled_frames

LEAST_EXPLAINED = 0.25
"""The share of the cells' squared displacements that the flow must explain to be used in a movie. Below, cells move on
their own, and the neighbours' noise would be added to theirs. As much must a cell's last way explain of the next one
to be gone on with where there is no flow; below, that would add the noise of two ways."""
FAR = 0.95
ROUNDING = 1e-6
"""Of ways, in usual ones: what is left where all cells move alike."""
OUTLYING = 3.0
"""Usual ways at which one has half its say: longer ones are mostly links to a wrong cell."""


@dataclass(frozen=True, slots=True)
class Motion:
    """How the cells of a movie move, relative to the flow if there is one."""

    follows_flow: bool
    """Whether cells move with their surroundings. If not, jumps of whole frames are followed, and cells go on."""
    usual: float
    """The median way of a cell from one frame to the next; 0 if nothing moves."""
    far: float
    """A way that one cell in twenty exceeds."""
    persistence: float = 0.0
    """The share of its way relative to the flow, or without any, that a cell goes again in the next frame pair."""

    @property
    def looks_back(self) -> bool:
        """Whether the frame before tells where cells will go."""
        return self.follows_flow or self.persistence > 0

    def shift(
        self,
        a: Detections,
        b: Detections,
        before: Detections | None = None,
        known: Indices | None = None,
    ) -> Array | None:
        """(n, ndim) where the cells of a frame will be in the next, relative to where they are; None for there.

        `before` is the frame before both, if there is one. Where cells move with their surroundings, those of which
        it is `known` (n,) where they went, see `estimate_flow`, tell of the others around them.
        """
        if not self.follows_flow:
            if jump(a, b).any():
                return estimate_flow(a, b).shift
            if before is None or not self.persistence or jump(before, a).any():
                return None
            return self.onward(_links_at_rest(before, a), a)
        if before is None:
            return estimate_flow(a, b, known=known).shift
        earlier = estimate_flow(before, a)
        return continued_flow(
            before, earlier, a, b, self.onward(earlier.links, a), known=known
        )

    def onward(self, links: Links, cells: Detections) -> Array:
        """(n, ndim) how far cells will go by themselves, from how they came here; 0 where that is not known."""
        found = np.zeros_like(cells.position)
        if self.persistence:  # then there is a usual way to measure by
            way = links.deviation
            found[links.behind] = (
                self.persistence * _say(way, self.usual)[:, None] * way
            )
        return found


def estimate_motion(source: Source, over: Over = map) -> Motion:
    """From some frame pairs of a movie, without any truth; `over` maps over them."""
    ways = list(over(_ways, sampled_frames(source)))
    absolute, relative, at_rest = (
        np.concatenate([np.zeros(0), *(way[k] for way in ways)]) for k in range(3)
    )
    triples = sampled_frames(source, 3)
    own = _goes_on(triples, _links_at_rest, _usual(at_rest)[0], over)
    if len(own.then) and not _explains(own.left, lengths(own.then)):
        own = replace(own, persistence=0.0)
    if len(absolute) and _explains(relative, absolute):
        flow = _goes_on(triples, _links_by_flow, _usual(relative)[0], over)
        # a flow is found among cells that move on their own, too: by links to those that suit it
        least = (
            np.median(own.left) + ROUNDING * np.median(absolute)
            if own.persistence
            else np.inf
        )
        if not len(flow.then) or least >= np.median(flow.left):
            return Motion(True, *_usual(relative), flow.persistence)
    return Motion(False, *_usual(at_rest), own.persistence)


def _usual(ways: Array) -> tuple[float, float]:
    """The median way of cells that move, and a far one."""
    moving = ways[ways > 0]
    usual, far = np.quantile(moving, [0.5, FAR]).tolist() if len(moving) else (0.0, 0.0)
    return usual, far


@dataclass(frozen=True, slots=True)
class _GoingOn:
    """Ways of cells that are linked twice, (m, ndim) each, and how much of one is gone again."""

    first: Array
    then: Array
    persistence: float

    @property
    def left(self) -> Array:
        """(m,) what remains of the second ways."""
        return lengths(self.then - self.persistence * self.first)


def _goes_on(
    triples: Sequence[SampledFrames],
    links: Callable[[Detections, Detections], Links],
    usual: float,
    over: Over,
) -> _GoingOn:
    """The persistence of ways along some links; 0 if nothing moves."""
    first, then = (
        _twice(triples, links, over) if usual and triples else (np.zeros((0, 1)),) * 2
    )
    return _GoingOn(
        first, then, _persistence(first, then, usual) if len(first) else 0.0
    )


def _explains(left: Array, way: Array) -> bool:
    """Whether enough is explained of how far cells go, by how far they still go then.

    By medians, since a tenth of wrong links would double a mean of squares.
    """
    return bool(np.median(left) ** 2 < (1 - LEAST_EXPLAINED) * np.median(way) ** 2)


def _ways(pair: SampledFrames) -> tuple[Array, Array, Array]:
    """(m,) each: how far linked cells went, how far relative to the flow, and how far nearest ones are without it."""
    a, b = pair.read()
    links = estimate_flow(a, b).links
    ahead, behind = mutual_nearest(a.position, b.position)
    return (
        lengths(links.displacement),
        lengths(links.deviation),
        lengths(b.position[behind] - a.position[ahead]),
    )


def _links_by_flow(a: Detections, b: Detections) -> Links:
    """Cells that are each other's nearest after the flow between two frames."""
    return estimate_flow(a, b).links


def _links_at_rest(a: Detections, b: Detections) -> Links:
    """Cells that are each other's nearest where they are, in place and in looks."""
    ahead, behind = nearest_at_rest(a, b)
    way = b.position[behind] - a.position[ahead]
    return Links(ahead, behind, way, np.zeros_like(way))


def _twice(
    triples: Sequence[SampledFrames],
    links: Callable[[Detections, Detections], Links],
    over: Over,
) -> tuple[Array, Array]:
    """(m, ndim) each: the ways before and now of cells that are linked twice in some three frames, without flow."""
    found = list(over(partial(_two_ways, links=links), triples))
    return np.concatenate([first for first, _ in found]), np.concatenate(
        [then for _, then in found]
    )


def _two_ways(
    triple: SampledFrames, links: Callable[[Detections, Detections], Links]
) -> tuple[Array, Array]:
    before, a, b = triple.read()
    earlier, later = links(before, a), links(a, b)
    _, i, j = np.intersect1d(earlier.behind, later.ahead, return_indices=True)
    return earlier.deviation[i], later.deviation[j]


def _persistence(first: Array, then: Array, usual: float) -> float:
    """The coefficient of the autoregression: by weighted least squares, from 0 to 1."""
    weight = _say(first, usual) * _say(then, usual)
    square = float(weight @ (first**2).sum(axis=1))
    return (
        float(np.clip(float(weight @ (first * then).sum(axis=1)) / square, 0.0, 1.0))
        if square > 0
        else 0.0
    )


def _say(ways: Array, usual: float) -> Array:
    """(m,) Cauchy's weights of ways (m, ndim) relative to the flow."""
    return np.asarray(1 / (1 + (ways**2).sum(axis=1) / (OUTLYING * usual) ** 2))
