"""How the surroundings of each cell move from one frame to the next: tissue that flows, colonies that grow, jumps.

Neighbours move together in tissue and colonies, and all cells do when the stage drifts or jumps. What tells cells apart
is how they move relative to their surroundings, so positions, masks and reach are taken relative to this flow. It is
estimated from centroids alone, without any truth:

1. A **displacement vote** for the whole frame: the cross-correlation of the two point patterns, smoothed by a quarter
   of the cells' spacing. Its peaks are starts for what follows, besides small shifts in every direction; the start
   that ends with cells nearest to others is taken. In movies without flow, a shift counts only if it brings more cells
   onto others than chance can do.
2. **Iterative closest points** (Besl & McKay 1992): cells that are each other's nearest after the flow so far are
   linked.
3. **Local regression** (LOESS, Cleveland 1979): the flow at a cell is a robust local affine map of the displacements of
   the linked cells around it, itself left out. Affine, so that growth and rotation are followed up to the border of a
   colony. Steps 2 and 3 are repeated until the links stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections, Source
from clew.tracking.measurement.scales import sampled_pairs


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """How the flow is estimated; lengths are in units of the spacing between cells."""

    neighbours: int = 12
    """Linked cells that the flow at a cell is taken from: twice what surrounds a cell in the plane."""
    passes: int = 30
    """Links and local maps, in turns, at most; it ends when the links stay. Each spreads the flow by about one cell."""
    bin: float = 0.25
    """The vote's resolution: half the distance at which a shifted cell still lies nearer to its own than to others."""
    significance: float = 4.0
    """Standard deviations by which a shift's hits must exceed those without a shift. The largest of 16 n random counts
    exceeds their mean by √(2 ln 16 n), which is 3.8 for a hundred cells."""
    stiffness: float = 4.0
    """Weight of a vanishing gradient in a local map, in neighbours one spacing away."""
    rough_passes: int = 4
    """Links and local maps from each of several starts, before the best go on."""
    finalists: int = 2
    """Starts that go on: those after which cells lie nearest to others."""
    votes: int = 4
    """Peaks of the displacement vote that are starts."""
    least_explained: float = 0.25
    """The share of the cells' squared displacements that the flow must explain to be used in a movie. Below, cells move
    on their own, and the neighbours' noise would be added to theirs."""


SETTINGS = FlowSettings()
FEWEST = 4
"""Cells in each frame below which there are no surroundings to speak of."""


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
        return _length(self.displacement - self.flow)

    @property
    def absolute(self) -> Array:
        """(m,) how far each went."""
        return _length(self.displacement)


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


def estimate_flow(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Flow:
    """The flow between two frames; none where there are too few cells to have surroundings."""
    x, y = a.position, b.position
    rough = [_closest_points(x, y, start, settings.rough_passes, settings) for start in _starts(a, b, settings)]
    best = sorted(rough, key=lambda shift: _misfit(x + shift, y))[: settings.finalists]
    flows = [_closest_points(x, y, start, settings.passes, settings) for start in best]
    shift = min(flows, key=lambda shift: _misfit(x + shift, y))
    ahead, behind = mutual_nearest(x + shift, y)
    return Flow(shift, Links(y[behind] - x[ahead], shift[ahead]))


def _closest_points(x: Array, y: Array, start: Array, passes: int, settings: FlowSettings) -> Array:
    """(n, ndim) the flow by links and local maps in turns, from one shift for all or one for each."""
    shift, linked, spacing = np.zeros_like(x) + start, np.full(len(x), -1), _spacing(x)
    for _ in range(passes):
        ahead, behind = mutual_nearest(x + shift, y)
        before, linked = linked, np.full(len(x), -1)
        linked[ahead] = behind
        if len(ahead) < FEWEST or np.array_equal(linked, before):
            break
        displacement = y[behind] - x[ahead]
        # links that end far from a cell are guesses; where the flow is known, they do not, so it spreads from there
        trust = 1 / (1 + (_length(displacement - shift[ahead]) / (settings.bin * spacing)) ** 2)
        shift = _local_map(x, x[ahead], displacement, ahead, trust, spacing, settings)
    return shift


def _misfit(x: Array, y: Array) -> float:
    """The mean distance of points to the nearest of others, none of which counts for more than a spacing."""
    if not len(x) or not len(y):
        return 0.0
    return float(np.minimum(cKDTree(y).query(x)[0], _spacing(y) if len(y) > 1 else np.inf).mean())


def _starts(a: Detections, b: Detections, settings: FlowSettings) -> list[Array]:
    """Shifts of the whole frame to start from: none, half a spacing in every direction, and those of the vote.

    Closest points find a flow that is less than half a spacing away. Where nearly all cells lie on others, none is
    enough.
    """
    ndim = a.position.shape[1]
    if min(len(a), len(b)) < FEWEST:
        return [np.zeros(ndim)]
    spacing = _spacing(a.position)
    hits = _hits(a.position, b.position, spacing, settings)
    if hits is None:
        return [np.zeros(ndim)]
    around = np.stack(np.meshgrid(*[(0.0, 0.5, -0.5)] * ndim, indexing="ij"), axis=-1).reshape(-1, ndim)
    return [*(spacing * around), *hits.peaks(settings.votes)]


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


def estimate_motion(source: Source, settings: FlowSettings = SETTINGS) -> Motion:
    """From some frame pairs of a movie, without any truth."""
    links = [_linked(a, b, settings) for a, b in sampled_pairs(source)]
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


def _linked(a: Detections, b: Detections, settings: FlowSettings) -> tuple[Links, Array]:
    """The links of a frame pair with the flow, and the ways (m,) of cells that are nearest to each other without."""
    ahead, behind = mutual_nearest(a.position, b.position)
    return estimate_flow(a, b, settings).links, _length(b.position[behind] - a.position[ahead])


def jump(a: Detections, b: Detections, settings: FlowSettings = SETTINGS) -> Array:
    """(ndim,) the shift of the whole frame by the displacement vote; 0 where cells stay close to where they were."""
    if min(len(a), len(b)) < FEWEST:
        return np.zeros(a.position.shape[1])
    return _vote(a.position, b.position, _spacing(a.position), settings)


def mutual_nearest(x: Array, y: Array) -> tuple[Indices, Indices]:
    """(m,) each: the rows of points that are each other's nearest."""
    if not len(x) or not len(y):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    _, ahead = cKDTree(y).query(x)
    _, back = cKDTree(x).query(y)
    mutual = np.flatnonzero(back[ahead] == np.arange(len(x)))
    return mutual, ahead[mutual].astype(np.intp)


@dataclass(frozen=True, slots=True)
class _Hits:
    """How many cells each shift of a whole frame brings onto others."""

    counts: Array
    """By shift, in bins; negative shifts from the end."""
    width: float
    """Of a bin."""
    by_chance: float
    """Hits more than those of no shift that chance does not explain."""

    def shift(self, at: tuple[int, ...]) -> Array:
        """(ndim,) in physical units."""
        place, size = np.array(at), np.array(self.counts.shape)
        return np.where(place < size // 2, place, place - size) * self.width

    def peaks(self, n: int) -> list[Array]:
        """The shifts with the most hits among those around them."""
        highest = maximum_filter(self.counts, size=5, mode="wrap") == self.counts
        order = np.argsort(-self.counts[highest], kind="stable")[:n]
        return [self.shift(tuple(at)) for at in np.argwhere(highest)[order].tolist()]


def _vote(x: Array, y: Array, spacing: float, settings: FlowSettings) -> Array:
    """(ndim,) the shift of the whole frame that brings most cells of `x` onto cells of `y`; 0 unless beyond chance."""
    hits = _hits(x, y, spacing, settings)
    if hits is None:
        return np.zeros(x.shape[1])
    best = np.unravel_index(int(np.argmax(hits.counts)), hits.counts.shape)
    more = hits.counts[best] - hits.counts[(0,) * x.shape[1]]
    return hits.shift(tuple(int(at) for at in best)) if more > hits.by_chance else np.zeros(x.shape[1])


def _hits(x: Array, y: Array, spacing: float, settings: FlowSettings) -> _Hits | None:
    """Counts of cells within about one bin, weighted by a Gaussian; None where no shift can win.

    By chance a bin gets n q of them, q the share of the plane (or space) that such neighbourhoods cover when there is a
    cell for each spacing.
    """
    width, ndim = settings.bin * spacing, x.shape[1]
    low = np.minimum(x.min(axis=0), y.min(axis=0))
    size = np.ceil((np.maximum(x.max(axis=0), y.max(axis=0)) - low) / width).astype(int) + 1
    q = float((np.sqrt(2 * np.pi) * settings.bin) ** ndim)
    enough = settings.significance * np.sqrt(len(x) * q * (1 - q))
    at_rest = np.exp(-0.5 * (cKDTree(y).query(x)[0] / width) ** 2).sum()
    if len(x) - at_rest <= enough:  # nearly all cells lie on others already
        return None
    shape = tuple(2 * size)  # zeros around, so that shifts do not wrap
    first, second = (scipy.fft.rfftn(_rasterised(points, low, width, shape)) for points in (x, y))
    counts = gaussian_filter(scipy.fft.irfftn(first.conj() * second, shape), 1.0, mode="wrap")
    # a filter's weights sum to 1; as counts, the middle one is 1
    return _Hits(counts * (2 * np.pi) ** (ndim / 2), width, enough)


def _rasterised(points: Array, low: Array, width: float, shape: tuple[int, ...]) -> Array:
    """How many points each bin of a grid has."""
    grid = np.zeros(shape)
    np.add.at(grid, tuple(np.rint((points - low) / width).astype(int).T), 1.0)
    return grid


def _local_map(
    x: Array, linked: Array, displacement: Array, own: Indices, trust: Array, spacing: float, settings: FlowSettings
) -> Array:
    """(n, ndim) at each point the value of a robust affine map of the displacements around it, its own left out.

    `own` (m,) is the row of each linked point in `x`.
    """
    n, ndim = x.shape
    k = min(settings.neighbours, len(linked) - 1)
    near = cKDTree(linked).query(x, k=k + 1)[1].reshape(n, k + 1)
    left_out = own[near] == np.arange(n)[:, None]
    left_out[~left_out.any(axis=1), -1] = True  # as many neighbours for cells that are not linked
    near = near[~left_out].reshape(n, k)
    values = displacement[near]  # (n, k, ndim)
    off = _length(values - np.median(values, axis=1)[:, None])
    usual = np.median(off, axis=1) + 1e-3 * spacing
    # Cauchy's weights: a wrong link has little say
    weight = trust[near] / (1 + (off / (2 * usual[:, None])) ** 2)
    z = np.concatenate([np.ones((n, k, 1)), (linked[near] - x[:, None]) / spacing], axis=2)
    normal = np.einsum("nk,nki,nkj->nij", weight, z, z)
    normal[:, range(1, ndim + 1), range(1, ndim + 1)] += settings.stiffness
    right = np.einsum("nk,nki,nkd->nid", weight, z, values)
    return np.asarray(np.linalg.solve(normal, right)[:, 0])


def _spacing(x: Array) -> float:
    """The median distance of a point to the nearest other; 1 where all are in one place, or where there is one."""
    if len(x) < 2:
        return 1.0
    return float(np.median(cKDTree(x).query(x, k=2)[0][:, 1])) or 1.0


def _length(vectors: Array) -> Array:
    """Of vectors (…, ndim)."""
    return np.asarray(np.sqrt((vectors**2).sum(axis=-1)))
