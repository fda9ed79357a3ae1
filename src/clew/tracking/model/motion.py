"""How the cells of a movie move: on their own or with their surroundings, and anew or on as before.

Where cells move with their surroundings, places are taken relative to the **flow** (`flow.py`). What is left of a way
then is partly a cell's own habit: one that overtook its neighbours does so again. This is a **first-order
autoregressive model**, whose coefficient, the persistence, is estimated from the movie's own links. In movies without
flow only jumps of whole frames are followed, if they bring more cells onto others than chance does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections, Source
from clew.tracking.measurement.scales import Over, SampledFrames, sampled_frames
from clew.tracking.model.flow import Links, continued_flow, estimate_flow, jump
from clew.tracking.model.registration import lengths, mutual_nearest

LEAST_EXPLAINED = 0.25
"""The share of the cells' squared displacements that the flow must explain to be used in a movie. Below, cells move on
their own, and the neighbours' noise would be added to theirs."""
FAR = 0.95
OUTLYING = 3.0
"""Usual ways at which one has half its say: longer ones are mostly links to a wrong cell."""


@dataclass(frozen=True, slots=True)
class Motion:
    """How the cells of a movie move, relative to the flow if there is one."""

    follows_flow: bool
    """Whether cells move with their surroundings. If not, only jumps of whole frames are followed."""
    usual: float
    """The median way of a cell from one frame to the next; 0 if nothing moves."""
    far: float
    """A way that one cell in twenty exceeds."""
    persistence: float = 0.0
    """The share of its way relative to the flow that a cell goes again in the next frame pair; 0 without flow."""

    def shift(
        self, a: Detections, b: Detections, before: Detections | None = None, known: Indices | None = None
    ) -> Array | None:
        """(n, ndim) where the cells of a frame will be in the next, relative to where they are; None for there.

        `before` is the frame before both, if there is one. Where cells move with their surroundings, those of which
        it is `known` (n,) where they went, see `estimate_flow`, tell of the others around them.
        """
        if not self.follows_flow:
            return estimate_flow(a, b).shift if jump(a, b).any() else None
        if before is None:
            return estimate_flow(a, b, known=known).shift
        earlier = estimate_flow(before, a)
        return continued_flow(before, earlier, a, b, self.onward(earlier.links, a), known=known)

    def onward(self, links: Links, cells: Detections) -> Array:
        """(n, ndim) how far cells will go by themselves, from how they came here; 0 where that is not known."""
        found = np.zeros_like(cells.position)
        if self.persistence:  # then there is a usual way to measure by
            way = links.deviation
            found[links.behind] = self.persistence * _say(way, self.usual)[:, None] * way
        return found


def estimate_motion(source: Source, over: Over = map) -> Motion:
    """From some frame pairs of a movie, without any truth; `over` maps over them."""
    ways = list(over(_ways, sampled_frames(source)))
    absolute, relative, at_rest = (np.concatenate([np.zeros(0), *(way[k] for way in ways)]) for k in range(3))
    # medians, since a tenth of wrong links would double a mean of squares
    follows = len(absolute) > 0 and bool(np.median(relative) ** 2 < (1 - LEAST_EXPLAINED) * np.median(absolute) ** 2)
    moving = relative if follows else at_rest
    moving = moving[moving > 0]
    usual, far = np.quantile(moving, [0.5, FAR]).tolist() if len(moving) else (0.0, 0.0)
    persistence = _persistence(sampled_frames(source, 3), usual, over) if follows and usual else 0.0
    return Motion(follows, usual, far, persistence)


def _ways(pair: SampledFrames) -> tuple[Array, Array, Array]:
    """(m,) each: how far linked cells went, how far relative to the flow, and how far nearest ones are without it."""
    a, b = pair.read()
    links = estimate_flow(a, b).links
    ahead, behind = mutual_nearest(a.position, b.position)
    return lengths(links.displacement), lengths(links.deviation), lengths(b.position[behind] - a.position[ahead])


def _persistence(triples: Sequence[SampledFrames], usual: float, over: Over) -> float:
    """The coefficient of the autoregression: by weighted least squares, from 0 to 1."""
    products = np.array([[0.0, 0.0], *over(partial(_regression, usual=usual), triples)]).sum(axis=0)
    return float(np.clip(products[0] / products[1], 0.0, 1.0)) if products[1] > 0 else 0.0


def _regression(triple: SampledFrames, usual: float) -> tuple[float, float]:
    """Sums over cells that are linked twice: ways of before times ways of now, and ways of before squared."""
    before, a, b = triple.read()
    earlier, links = estimate_flow(before, a).links, estimate_flow(a, b).links
    _, i, j = np.intersect1d(earlier.behind, links.ahead, return_indices=True)
    first, then = earlier.deviation[i], links.deviation[j]
    weight = _say(first, usual) * _say(then, usual)
    return float(weight @ (first * then).sum(axis=1)), float(weight @ (first**2).sum(axis=1))


def _say(ways: Array, usual: float) -> Array:
    """(m,) Cauchy's weights of ways (m, ndim) relative to the flow."""
    return np.asarray(1 / (1 + (ways**2).sum(axis=1) / (OUTLYING * usual) ** 2))
