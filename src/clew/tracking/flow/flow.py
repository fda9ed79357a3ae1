"""How the surroundings of each cell move from one frame to the next: tissue that flows, colonies that grow, jumps.

Neighbours move together in tissue and colonies, and all cells do when the stage drifts or jumps. What tells cells apart
is how they move relative to their surroundings, so positions, masks and reach are taken relative to this flow. It is
estimated without any truth:

1. A **displacement vote** for the whole frame: whether the stage has jumped.
2. A **Markov random field** over the cells (`message_passing.py`): which of the cells around each goes to, if
   neighbours move alike. With a jump, both with it and without; what puts cells nearest to others is taken, if it fits
   significantly better than without.
3. **Registration** from there (`registration.py`): closest points and kriging in turns. While it is found, the flow
   bends to the links; in the end it is smoothed, as far as these allow.

Where the frame before is known, the flow is estimated once more, with what that tells (`continued_flow`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from clew.learning.task import Array, Indices
from clew.models.fingerprint import fingerprint
from clew.tracking.detections import Detections, Floats
from clew.tracking.flow.displacement_vote import (
    Vote,
    around_middle,
    lie_on_others,
    n_bins,
    unlikely,
    vote,
)
from clew.tracking.flow.nearest_points import NearestPoints
from clew.tracking.flow.registration import (
    FEWEST,
    LOOKS,
    Registration,
    RegistrationSettings,
    lengths,
    mutual_nearest,
    spacing_of,
)
from clew.utils.cache import Cache


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """How the flow is estimated; lengths are in units of the spacing between cells."""

    registration: RegistrationSettings = field(default_factory=RegistrationSettings)
    passes: int = 10
    """Links and kriging, in turns, at most; it ends when the links stay. More change nothing: what is far off is found
    before."""
    significance: float = 4.0
    """Standard deviations by which a shift's hits must exceed those without a shift. The largest of 16 n random counts
    exceeds their mean by √(2 ln 16 n), which is 3.8 for a hundred cells."""
    beyond: float = 1.0
    """A shift that is farther than this is tried even if chance explains its hits, as in tissue that flows besides: the
    labels of the cells at rest do not reach so far, and whether it fits better is tested afterwards."""
    level: float = 0.05
    """Of the test whether a flow with a jump fits better than the one without."""
    change: float = 0.5
    """By how much the flow usually changes from one frame pair to the next."""
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
"""Cells whose flow is kept, at about 110 bytes each. A movie's own units, its kinds of events and its events are all
found relative to the flow, one after the other."""
_kept: Cache[Flow] = Cache(KEPT, lambda flow: len(flow.shift))
_continued: Cache[Array] = Cache(KEPT, len)


def estimate_flow(
    a: Detections,
    b: Detections,
    settings: FlowSettings = SETTINGS,
    known: Indices | None = None,
) -> Flow:
    """The flow between two frames; none where there are too few cells to have surroundings.

    `known` (n,) is the row in the second frame that a cell went to, −1 where nobody said. The flows of the last frame
    pairs are remembered, by their content.
    """
    content = fingerprint(a.position, b.position, _looks(a, b), known)
    return _kept.get(content, lambda: _estimate_flow(a, b, settings, known), settings)


def _looks(a: Detections, b: Detections) -> list[Floats]:
    """What cells of two frames are known again by."""
    return [
        each.columns[name] for each in (a, b) for name in LOOKS if name in each.columns
    ]


def _estimate_flow(
    a: Detections, b: Detections, settings: FlowSettings, known: Indices | None
) -> Flow:
    x, y = a.position, b.position
    if min(len(x), len(y)) < FEWEST:
        return _with_links(x, y, np.zeros_like(x))
    points = Registration.of(x, y, settings.registration, known)
    shifts = _shifts(points, settings)
    rough = [points.labelled(shift) for shift in shifts]
    points = points.by_looks_too(
        a, b, min(rough, key=lambda shift: float(points.misfits(shift).mean()))
    )
    flows = [
        points.refined(points.labelled(shift), settings.passes) for shift in shifts
    ]
    jumped = len(flows) > 1 and points.fits_better(flows[1], flows[0], settings.level)
    return _with_links(x, y, points.smoothed(flows[1] if jumped else flows[0]))


def _shifts(points: Registration, settings: FlowSettings) -> list[Array]:
    """(n, ndim) each: shifts of the whole frame around which displacements are looked for; the first is none."""
    none = np.zeros_like(points.x)
    votes = _vote(points.x, points.y, settings)
    if votes is None:
        return [none]
    winner, best = votes.winner(), votes.best()
    if not winner.any() and lengths(best) > settings.beyond * points.spacing:
        winner = best
    return [none, none + winner] if winner.any() else [none]


def continued_flow(
    before: Detections,
    earlier: Flow,
    a: Detections,
    b: Detections,
    onward: Array,
    settings: FlowSettings = SETTINGS,
    known: Indices | None = None,
) -> Array:
    """(n, ndim) the shift of each cell from a frame to the next, with the `earlier` flow, from the frame `before`.

    Each cell goes `onward` (n, ndim) by itself, and the flow is what all have in common beyond that. It changes little
    from frame pair to frame pair, so that the earlier one is expected: where two flows put cells onto others equally
    well from two frames alone, one was often found from the two before. The last ones are remembered, by content.
    """
    places = before.position, earlier.shift, a.position, b.position, onward
    content = fingerprint(places, _looks(a, b), known)
    return _continued.get(
        content,
        lambda: _continued_flow(before, earlier, a, b, onward, settings, known),
        settings,
    )


def _continued_flow(
    before: Detections,
    earlier: Flow,
    a: Detections,
    b: Detections,
    onward: Array,
    settings: FlowSettings,
    known: Indices | None,
) -> Array:
    alone = estimate_flow(a, b, settings, known).shift
    if min(len(before), len(a), len(b)) < FEWEST:
        return alone
    points = Registration.of(
        a.position + onward, b.position, settings.registration, known
    ).by_looks_too(a, b, alone)
    _, nearest = NearestPoints.of(before.position + earlier.shift).query(a.position)
    found = points.labelled(alone, earlier.shift[nearest], settings.change)
    return onward + points.smoothed(points.refined(found, settings.passes))


def _with_links(x: Array, y: Array, shift: Array) -> Flow:
    """A flow with the cells that are each other's nearest after it."""
    ahead, behind = mutual_nearest(x + shift, y)
    return Flow(shift, Links(ahead, behind, y[behind] - x[ahead], shift[ahead]))


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
    return unlikely(
        len(x), x.shape[1], settings.registration.near, settings.significance
    )


def jump(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Array:
    """(ndim,) the shift of the whole frame by the displacement vote; 0 where cells stay close to where they were."""
    votes = (
        _vote(a.position, b.position, settings)
        if min(len(a), len(b)) >= FEWEST
        else None
    )
    return np.zeros(a.position.shape[1]) if votes is None else votes.winner()
