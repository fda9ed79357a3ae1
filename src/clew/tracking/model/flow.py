"""How the surroundings of each cell move from one frame to the next: tissue that flows, colonies that grow, jumps.

Neighbours move together in tissue and colonies, and all cells do when the stage drifts or jumps. What tells cells apart
is how they move relative to their surroundings, so positions, masks and reach are taken relative to this flow. It is
estimated without any truth:

1. Starts: no flow, small shifts in every direction, and the peaks of a **displacement vote** for the whole frame.
2. From them a few passes of **registration** (`registration.py`): closest points and local maps in turns. After each
   pass only the better half goes on (successive halving, Jamieson & Talwalkar 2016).
3. The best of these go on, and so do **fusions**: flows that are at each cell the one that fits best there. What ends
   with cells nearest to others is taken, if it fits significantly better than the flow from rest.

In movies without flow, only jumps of whole frames are followed, if they bring more cells onto others than chance does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from clew.cache import Cache
from clew.learning.task import Array
from clew.models.fingerprint import fingerprint
from clew.tracking.detections import Detections, Source
from clew.tracking.measurement.scales import Over, SampledPair, sampled_pairs
from clew.tracking.model.displacement_vote import Vote, around_middle, lie_on_others, unlikely, vote
from clew.tracking.model.registration import (
    FEWEST,
    LOOKS,
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
    """Links and local maps, in turns, at most; it ends when the links stay. Each spreads the flow by about one cell."""
    significance: float = 4.0
    """Standard deviations by which a shift's hits must exceed those without a shift. The largest of 16 n random counts
    exceeds their mean by √(2 ln 16 n), which is 3.8 for a hundred cells."""
    rough_passes: int = 4
    """Links and local maps from several starts, each time from the better half of them, before the best go on."""
    finalists: int = 2
    """Starts that go on: those after which cells lie nearest to others."""
    fusions: int = 2
    """Flows put together of the best in each part of the frame, one after another."""
    votes: int = 4
    """Peaks of the displacement vote that are starts."""
    level: float = 0.05
    """Of the test whether a flow that was not found from rest fits better than the one from rest. Of a dozen starts
    some bring cells nearer to others by chance, above all where many divide at once."""
    voters: int = 8_000
    """Cells that vote at most: in frames of more, those around the middle one. What all cells have in common these have
    too, and bins for all shifts of all cells would take 30 kB for each of them in 3D."""
    least_explained: float = 0.25
    """The share of the cells' squared displacements that the flow must explain to be used in a movie. Below, cells move
    on their own, and the neighbours' noise would be added to theirs."""


SETTINGS = FlowSettings()


@dataclass(frozen=True, slots=True)
class Links:
    """Cells of two frames that are each other's nearest, and the flow around them."""

    displacement: Array
    """(m, ndim) of each linked cell."""
    flow: Array
    """(m, ndim) of its surroundings, itself left out."""

    @property
    def relative(self) -> Array:
        """(m,) how far each went relative to its surroundings."""
        return lengths(self.displacement - self.flow)

    @property
    def absolute(self) -> Array:
        """(m,) how far each went."""
        return lengths(self.displacement)


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
"""Cells whose flow is kept, at about 70 bytes each. A movie's own units, its kinds of events and its events are all
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
    rough = _halved(points, _starts(points, settings), settings.rough_passes)
    points = points.by_looks_too(a, b, best(points.fitted(rough), 1)[0].shift)
    starts = points.fitted(rough)
    finalists = best(starts, settings.finalists)
    flows = points.fitted([points.refined(start.shift, settings.passes) for start in finalists])
    from_rest = next((flow for start, flow in zip(finalists, flows, strict=True) if start is starts[0]), None)
    if len(rough) > 1:
        for _ in range(settings.fusions):
            flows += points.fitted([points.refined(points.fused(starts + flows), settings.passes)])
    if from_rest is None:
        (from_rest,) = points.fitted([points.refined(rough[0], settings.passes)])
    (chosen,) = best(flows, 1)
    apart = settings.registration.near * points.spacing
    return _with_links(x, y, (chosen if chosen.fits_better(from_rest, apart, settings.level) else from_rest).shift)


def _halved(points: Registration, starts: list[Array], passes: int) -> list[Array]:
    """The flows from several starts after a few passes: all take the first, and the better half of these each next.

    The first, from rest, goes all the way, for the others are measured by it. Those that do not go on may still be
    right in a part of the frame.
    """
    flows, going = list(starts), list(range(1, len(starts)))
    flows[0] = points.refined(starts[0], passes)
    for _ in range(passes):
        for i in going:
            flows[i] = points.refined(flows[i], 1)
        going.sort(key=lambda i: float(points.misfits(flows[i]).mean()))
        going = going[: (len(going) + 1) // 2]
    return flows


def _with_links(x: Array, y: Array, shift: Array) -> Flow:
    """A flow with the cells that are each other's nearest after it."""
    ahead, behind = mutual_nearest(x + shift, y)
    return Flow(shift, Links(y[behind] - x[ahead], shift[ahead]))


def _starts(points: Registration, settings: FlowSettings) -> list[Array]:
    """Flows to start from: at rest, half a spacing in every direction, and those of the vote.

    Closest points find a flow that is less than half a spacing away. Where they find at rest one that puts nearly all
    cells onto others, that is enough.
    """
    ndim = points.x.shape[1]
    from_rest = points.refined(np.zeros(ndim), settings.rough_passes)
    if _found_again(points.x + from_rest, points.y, settings):
        return [from_rest]
    votes = _vote(points.x, points.y, settings)
    around = np.stack(np.meshgrid(*[(0.0, 0.5, -0.5)] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)[1:]
    return [from_rest, *(points.spacing * around), *([] if votes is None else votes.peaks(settings.votes))]


def _vote(x: Array, y: Array, settings: FlowSettings) -> Vote | None:
    """The votes for shifts of the whole frame; None where no shift can win."""
    if _found_again(x, y, settings):
        return None
    x, y = around_middle(x, y, settings.voters)
    return vote(x, y, _width(x, settings), _chance(x, settings)) if min(len(x), len(y)) >= FEWEST else None


def _found_again(x: Array, y: Array, settings: FlowSettings) -> bool:
    """Whether nearly all cells lie on others."""
    return len(x) - lie_on_others(x, y, _width(x, settings)) <= _chance(x, settings)


def _width(x: Array, settings: FlowSettings) -> float:
    """Of the bins of the vote, in physical units."""
    return settings.registration.near * spacing_of(x)


def _chance(x: Array, settings: FlowSettings) -> float:
    """Hits that chance explains."""
    return unlikely(len(x), x.shape[1], settings.registration.near, settings.significance)


@dataclass(frozen=True, slots=True)
class Motion:
    """How the cells of a movie move, relative to the flow if there is one."""

    follows_flow: bool
    """Whether cells move with their surroundings. If not, only jumps of whole frames are followed."""
    usual: float
    """The median way of a cell from one frame to the next; 0 if nothing moves."""
    far: float
    """A way that one cell in twenty exceeds."""

    def shift(self, a: Detections, b: Detections) -> Array | None:
        """(n, ndim) the flow from a frame to the next at each of its cells; None where there is none."""
        if not self.follows_flow and not jump(a, b).any():
            return None
        return estimate_flow(a, b).shift


FAR = 0.95


def estimate_motion(source: Source, settings: FlowSettings = SETTINGS, over: Over = map) -> Motion:
    """From some frame pairs of a movie, without any truth; `over` maps over them."""
    links = list(over(partial(_linked, settings=settings), sampled_pairs(source)))
    absolute = np.concatenate([np.zeros(0), *(each.absolute for each, _ in links)])
    relative = np.concatenate([np.zeros(0), *(each.relative for each, _ in links)])
    # medians, since a tenth of wrong links would double a mean of squares
    follows = len(absolute) > 0 and bool(
        np.median(relative) ** 2 < (1 - settings.least_explained) * np.median(absolute) ** 2
    )
    ways = relative if follows else np.concatenate([np.zeros(0), *(at_rest for _, at_rest in links)])
    ways = ways[ways > 0]
    usual, far = np.quantile(ways, [0.5, FAR]).tolist() if len(ways) else (0.0, 0.0)
    return Motion(follows, usual, far)


def _linked(pair: SampledPair, settings: FlowSettings) -> tuple[Links, Array]:
    """The links of a frame pair with the flow, and the ways (m,) of cells that are nearest to each other without."""
    a, b = pair.read()
    ahead, behind = mutual_nearest(a.position, b.position)
    return estimate_flow(a, b, settings).links, lengths(b.position[behind] - a.position[ahead])


def jump(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Array:
    """(ndim,) the shift of the whole frame by the displacement vote; 0 where cells stay close to where they were."""
    votes = _vote(a.position, b.position, settings) if min(len(a), len(b)) >= FEWEST else None
    return np.zeros(a.position.shape[1]) if votes is None else votes.winner()
