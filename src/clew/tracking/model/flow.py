"""How the surroundings of each cell move from one frame to the next: tissue that flows, colonies that grow, jumps.

Neighbours move together in tissue and colonies, and all cells do when the stage drifts or jumps. What tells cells apart
is how they move relative to their surroundings, so positions, masks and reach are taken relative to this flow. It is
estimated without any truth:

1. Starts: no flow, shifts by a spacing in every direction, and the peaks of a **displacement vote** for the whole
   frame.
2. From them a few passes of **registration** (`registration.py`): closest points and kriging in turns. After each pass
   only the best third goes on (successive halving, Jamieson & Talwalkar 2016, by thirds).
3. The best of these goes on, and so does a **fusion**: a flow that is at each cell the one that fits best there. What
   ends with cells nearest to others is taken, if it fits significantly better than the flow from rest.
4. While it is found, the flow bends to the links; in the end it is smoothed, as far as these allow.

Where the frame before is known, the flow is estimated once more, with what that tells (`continued_flow`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from clew.cache import Cache
from clew.learning.task import Array, Indices
from clew.models.fingerprint import fingerprint
from clew.tracking.detections import Detections
from clew.tracking.model.displacement_vote import Vote, around_middle, lie_on_others, n_bins, unlikely, vote
from clew.tracking.model.nearest_points import NearestPoints
from clew.tracking.model.registration import (
    FEWEST,
    LOOKS,
    Fitted,
    Registration,
    RegistrationSettings,
    best,
    lengths,
    mutual_nearest,
    spacing_of,
)


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """How the flow is estimated; lengths are in units of the spacing between cells."""

    registration: RegistrationSettings = field(default_factory=RegistrationSettings)
    passes: int = 30
    """Links and kriging, in turns, at most; it ends when the links stay. Each spreads the flow by about one cell."""
    significance: float = 4.0
    """Standard deviations by which a shift's hits must exceed those without a shift. The largest of 16 n random counts
    exceeds their mean by √(2 ln 16 n), which is 3.8 for a hundred cells."""
    rough_passes: int = 4
    """Links and kriging from several starts, each time from the best of them, before one goes on."""
    thinning: int = 3
    """Of this many starts one takes the next pass."""
    starts: tuple[float, ...] = (1.0,)
    """Lengths of the shifts in every direction that are starts. Half a spacing, which was one, is found from rest."""
    votes: int = 4
    """Peaks of the displacement vote that are starts."""
    level: float = 0.05
    """Of the test whether a flow that was not found from rest fits better than the one from rest. Of a dozen starts
    some bring cells nearer to others by chance, above all where many divide at once."""
    voters: int = 8_000
    """Cells that vote at most: in frames of more, those around the middle one. What all cells have in common these have
    too."""
    bins: int = 2**22
    """Bins for their shifts at most, at about 40 bytes each while they are counted: as many as 8,000 cells in space
    take, one for each spacing. Where cells lie in clumps far apart, those of the middle one vote."""


SETTINGS = FlowSettings()


@dataclass(frozen=True, slots=True)
class Links:
    """Cells of two frames that are each other's nearest, and the flow around them."""

    ahead: Indices
    """(m,) rows in the first frame,"""
    behind: Indices
    """(m,) and in the second."""
    displacement: Array
    """(m, ndim) of each linked cell."""
    flow: Array
    """(m, ndim) of its surroundings, itself left out."""

    @property
    def deviation(self) -> Array:
        """(m, ndim) the way of each relative to its surroundings."""
        return self.displacement - self.flow


@dataclass(frozen=True, slots=True)
class Flow:
    """The flow from one frame to the next."""

    shift: Array
    """(n, ndim) at each cell of the first frame, in physical units."""
    links: Links
    """The cells that it was estimated from."""


def moved(cells: Detections, shift: Array | None) -> Detections:
    """The cells of a frame where their surroundings will be in the next."""
    return cells if shift is None else replace(cells, position=cells.position + shift)


KEPT = 500_000
"""Cells whose flow is kept, at about 90 bytes each. A movie's own units, its kinds of events and its events are all
found relative to the flow, one after the other."""
_kept: Cache[Flow] = Cache(KEPT, lambda flow: len(flow.shift))


def estimate_flow(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Flow:
    """The flow between two frames; none where there are too few cells to have surroundings.

    That of the last frame pairs is remembered, by their content.
    """
    looks = [each.columns[name] for each in (a, b) for name in LOOKS if name in each.columns]
    return _kept.get(fingerprint(a.position, b.position, looks), lambda: _estimate_flow(a, b, settings), settings)


def _estimate_flow(a: Detections, b: Detections, settings: FlowSettings) -> Flow:
    x, y = a.position, b.position
    if min(len(x), len(y)) < FEWEST:
        return _with_links(x, y, np.zeros_like(x))
    points = Registration.of(x, y, settings.registration)
    rough = _thinned(points, _starts(points, settings), settings)
    points = points.by_looks_too(a, b, best(points.fitted(rough), 1)[0].shift)
    starts = points.fitted(rough)
    (first,) = best(starts, 1)
    flows = points.fitted([points.refined(first.shift, settings.passes)])
    if first is starts[0]:
        (from_rest,) = flows
    else:
        (from_rest,) = points.fitted([points.refined(rough[0], settings.passes)])
    if len(rough) > 1:
        flows += points.fitted([points.refined(points.fused(starts + flows), settings.passes)])
    return _with_links(x, y, points.smoothed(_chosen(points, flows, from_rest, settings)))


def _chosen(points: Registration, flows: list[Fitted], usual: Fitted, settings: FlowSettings) -> Array:
    """(n, ndim) the flow that fits best if it fits significantly better than the usual one, and else that."""
    (found,) = best(flows, 1)
    apart = settings.registration.near * points.spacing
    return (found if found.fits_better(usual, apart, settings.level) else usual).shift


def continued_flow(
    before: Detections, earlier: Flow, a: Detections, b: Detections, onward: Array, settings: FlowSettings = SETTINGS
) -> Array:
    """(n, ndim) the shift of each cell from a frame to the next, with the `earlier` flow, from the frame `before`.

    Each cell goes `onward` (n, ndim) by itself, and the flow is what all have in common beyond that. It changes little
    from frame pair to frame pair, so that the earlier one is one more start: where two flows put cells onto others
    equally well from two frames alone, one was often found from the two before.
    """
    alone = estimate_flow(a, b, settings).shift
    if min(len(before), len(a), len(b)) < FEWEST:
        return alone
    points = Registration.of(a.position + onward, b.position, settings.registration).by_looks_too(a, b, alone)
    _, nearest = NearestPoints.of(before.position + earlier.shift).query(a.position)
    starts = [alone, earlier.shift[nearest]]
    flows = points.fitted([points.refined(start, settings.passes) for start in starts])
    apart = settings.registration.near * points.spacing
    if (lengths(flows[0].shift - flows[1].shift) > apart).any():
        flows += points.fitted([points.refined(points.fused([*points.fitted(starts), *flows]), settings.passes)])
    return onward + points.smoothed(_chosen(points, flows, flows[0], settings))


def _thinned(points: Registration, starts: list[Array], settings: FlowSettings) -> list[Array]:
    """The flows from several starts after a few passes: all take the first, and the best third of these each next.

    The first, from rest, goes all the way, for the others are measured by it. Those that do not go on may still be
    right in a part of the frame.
    """
    flows, going = list(starts), list(range(1, len(starts)))
    flows[0] = points.refined(starts[0], settings.rough_passes)
    for _ in range(settings.rough_passes):
        for i in going:
            flows[i] = points.refined(flows[i], 1)
        going.sort(key=lambda i: float(points.misfits(flows[i]).mean()))
        going = going[: -(-len(going) // settings.thinning)]
    return flows


def _with_links(x: Array, y: Array, shift: Array) -> Flow:
    """A flow with the cells that are each other's nearest after it."""
    ahead, behind = mutual_nearest(x + shift, y)
    return Flow(shift, Links(ahead, behind, y[behind] - x[ahead], shift[ahead]))


def _starts(points: Registration, settings: FlowSettings) -> list[Array]:
    """Flows to start from: at rest, shifts in every direction, and those of the vote.

    Closest points find a flow that is less than half a spacing away. Where they find at rest one that puts nearly all
    cells onto others, that is enough.
    """
    ndim = points.x.shape[1]
    from_rest = points.refined(np.zeros(ndim), settings.rough_passes)
    if _found_again(points.x + from_rest, points.y, settings):
        return [from_rest]
    votes = _vote(points.x, points.y, settings)
    around = np.stack(np.meshgrid(*[(0.0, 1.0, -1.0)] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)[1:]
    shifts = [length * points.spacing * shift for length in settings.starts for shift in around]
    return [from_rest, *shifts, *([] if votes is None else votes.peaks(settings.votes))]


def _vote(x: Array, y: Array, settings: FlowSettings) -> Vote | None:
    """The votes for shifts of the whole frame; None where no shift can win."""
    if _found_again(x, y, settings):
        return None
    n = settings.voters
    while n >= FEWEST:
        x, y = around_middle(x, y, n)
        if min(len(x), len(y)) < FEWEST:
            break
        width = _width(x, settings)
        if np.prod(n_bins(x, y, width)) <= settings.bins:
            return vote(x, y, width, _chance(x, settings))
        n = 3 * min(n, len(x)) // 4
    return None


def _found_again(x: Array, y: Array, settings: FlowSettings) -> bool:
    """Whether nearly all cells lie on others."""
    return len(x) - lie_on_others(x, y, _width(x, settings)) <= _chance(x, settings)


def _width(x: Array, settings: FlowSettings) -> float:
    """Of the bins of the vote, in physical units."""
    return settings.registration.near * spacing_of(x)


def _chance(x: Array, settings: FlowSettings) -> float:
    """Hits that chance explains."""
    return unlikely(len(x), x.shape[1], settings.registration.near, settings.significance)


def jump(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Array:
    """(ndim,) the shift of the whole frame by the displacement vote; 0 where cells stay close to where they were."""
    votes = _vote(a.position, b.position, settings) if min(len(a), len(b)) >= FEWEST else None
    return np.zeros(a.position.shape[1]) if votes is None else votes.winner()
