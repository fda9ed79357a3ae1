"""Registration of the cells of two frames: closest points and local maps, in turns.

- **Iterative closest points** (Besl & McKay 1992): cells that are each other's nearest after the flow so far are
  linked. Nearest in place and in looks: a cell's size and brightness tell it from its neighbours, each as far as it
  stays the same from frame to frame.
- **Local regression** (LOESS, Cleveland 1979): the flow at a cell is a robust affine map of the displacements of the
  linked cells around it, itself left out, with tricube weights by distance. Affine, so that growth and rotation are
  followed up to the border of a colony.
- **Fusion** (Lempitsky et al. 2010): of several flows, each right in another part of the frame, one that is at every
  cell the one that fits best around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numba import njit
from scipy.spatial import cKDTree
from scipy.special import stdtr

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections
from clew.tracking.model.nearest_points import NearestPoints

FEWEST = 4
"""Cells in each frame below which there are no surroundings to speak of."""
LOOKS = ("volume", "intensity")
"""The measurements that cells are known again by."""
OUTLYING = 3.0
"""Quartile ranges from the median, beyond which a look counts no more."""
BETWEEN = 0.7071
"""The median difference between two cells, in quartile ranges, if looks are normally distributed."""
SPAN = 1.1
"""Where tricube weights end, in distances to the farthest linked cell of a map: it has a little say too."""
SUREST = 0.1
"""The least change of a look from frame to frame, as a share of the difference between two cells: below, links would be
chosen by looks alone."""


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """How two frames are registered; lengths are in units of the spacing between cells."""

    neighbours: int = 8
    """Linked cells that the flow at a cell is taken from. Left out of its own neighbourhood, a cell tells how well the
    others foretell its way: best with 6 to 10 in tissue that is sheared from cell to cell, and as well as with 12 or
    18 in colonies (docs/benchmarks-kinds.md)."""
    near: float = 0.25
    """Half the distance at which a shifted cell still lies nearer to its own than to others."""
    stiffness: float = 2.0
    """Weight of a vanishing gradient in a local map, in neighbours one spacing away."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The cells of two frames, to be registered."""

    x: Array
    """(n, ndim) where cells are in the first frame"""
    y: Array
    """(m, ndim) and in the second."""
    looks: tuple[Array, Array]
    """(n, k) and (m, k): what they look like, as further coordinates, in units of length."""
    second: NearestPoints
    """The cells of the second frame, by place and looks."""
    around: Indices
    """(n, 3 neighbours) the cells around each of the first frame, the nearest first: itself. Of so many, enough are
    linked."""
    spacing: float
    settings: RegistrationSettings

    @classmethod
    def of(cls, x: Array, y: Array, settings: RegistrationSettings) -> Self:
        """By place alone."""
        none = np.zeros((len(x), 0)), np.zeros((len(y), 0))
        k = min(3 * settings.neighbours, len(x))
        around = cKDTree(x).query(x, k=k)[1].reshape(len(x), k)
        return cls(x, y, none, NearestPoints.of(y), around, spacing_of(x), settings)

    def by_looks_too(self, a: Detections, b: Detections, shift: Array) -> Self:
        """Cells are known again by their looks as well, as far as the links after a first flow bear them out.

        Of two normal distributions, differences of a look between linked cells (variance r² of that between any two)
        and of their places (variance ρ²), the log-likelihood ratio of a link against chance is a squared distance with
        ρ² (1/r² − 1) as the weight of the look.
        """
        ahead, behind = self.links(shift)
        columns = [name for name in LOOKS if name in a.columns and name in b.columns]
        if not columns or len(ahead) < FEWEST:
            return self
        first, second = _in_quartile_ranges(a, b, columns)
        change = np.median(np.abs(first[ahead] - second[behind]), axis=0)
        r = np.clip(change / BETWEEN, SUREST, 1.0)
        off = np.median(lengths(self.y[behind] - self.x[ahead] - shift[ahead]))
        weight = off * np.sqrt(1 / r**2 - 1)
        looks = first * weight, second * weight
        return replace(self, looks=looks, second=NearestPoints.of(np.hstack([self.y, looks[1]])))

    def links(self, shift: Array) -> tuple[Indices, Indices]:
        """(m,) each: the rows of cells that are each other's nearest after a flow."""
        return _rows(self.second.mutual(self._moved(shift)))

    def misfits(self, shift: Array) -> Array:
        """(n,) how far each cell is from the nearest after a flow; a spacing at most."""
        return np.asarray(np.minimum(self.second.query(self._moved(shift))[0], self.spacing))

    def _moved(self, shift: Array) -> Array:
        """(n, ndim + k) the cells of the first frame after a flow, by place and looks."""
        return np.hstack([self.x + shift, self.looks[0]])

    def fitted(self, shifts: Sequence[Array]) -> list[Fitted]:
        """Flows with how well they fit."""
        return [Fitted(shift, self.misfits(shift)) for shift in shifts]

    def fused(self, flows: Sequence[Fitted]) -> Array:
        """(n, ndim) at each cell the flow of these that fits best around it."""
        around = self.around[:, : self.settings.neighbours]
        best, least = np.zeros_like(self.x), np.full(len(self.x), np.inf)
        for flow in flows:
            misfit = flow.misfits[around].mean(axis=1)
            better = misfit < least
            best[better], least[better] = flow.shift[better], misfit[better]
        return best

    def refined(self, start: Array, passes: int) -> Array:
        """(n, ndim) the flow by links and local maps in turns until the links stay, from one shift for all or each."""
        shift, linked = np.zeros_like(self.x) + start, np.full(len(self.x), -1)
        settings = self.settings
        for _ in range(passes):
            before, linked = linked, self.second.mutual(self._moved(shift))
            if np.count_nonzero(linked >= 0) < FEWEST or np.array_equal(linked, before):
                break
            shift = _local_maps(
                self.x, self.y, *self.looks, shift, linked, self.around,
                (settings.neighbours, self.spacing, settings.near * self.spacing, settings.stiffness),
            )  # fmt: skip
        return shift


@dataclass(frozen=True, slots=True)
class Fitted:
    """A flow, and how well it fits."""

    shift: Array
    """(n, ndim)"""
    misfits: Array
    """(n,) see `Registration.misfits`."""

    def fits_better(self, other: Fitted, apart: float, level: float) -> bool:
        """Whether it fits better than another where the two are `apart`: a paired t-test over the cells there.

        Flows that are apart at fewer than half of the cells are one and the same, put right in places: then it is yes.
        """
        gain = (other.misfits - self.misfits)[lengths(self.shift - other.shift) > apart]
        if 2 * len(gain) < len(self.shift):
            return True
        error = float(gain.std(ddof=1)) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
        return bool(stdtr(len(gain) - 1, -gain.mean() / error) < level) if error else bool(gain.mean() > 0)


def best(flows: Sequence[Fitted], n: int) -> list[Fitted]:
    """The n flows after which cells lie nearest to others."""
    return sorted(flows, key=lambda flow: float(flow.misfits.mean()))[:n]


def mutual_nearest(x: Array, y: Array) -> tuple[Indices, Indices]:
    """(m,) each: the rows of points that are each other's nearest."""
    if not len(x) or not len(y):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    return _rows(NearestPoints.of(y).mutual(x))


def _rows(linked: Indices) -> tuple[Indices, Indices]:
    """(m,) each: the rows of linked cells in both frames, from the partner of each, −1 for none."""
    ahead = np.flatnonzero(linked >= 0)
    return ahead, linked[ahead]


def spacing_of(x: Array) -> float:
    """The median distance of a point to the nearest other; 1 where all are in one place, or where there is one."""
    if len(x) < 2:
        return 1.0
    return float(np.median(cKDTree(x).query(x, k=2)[0][:, 1])) or 1.0


def _in_quartile_ranges(a: Detections, b: Detections, columns: Sequence[str]) -> tuple[Array, Array]:
    """(n, k) and (m, k): measurements less the median of their frame, since light fades from frame to frame."""
    first, second = (
        np.column_stack([each.columns[name] - np.median(each.columns[name]) for name in columns]) for each in (a, b)
    )
    low, high = np.quantile(np.vstack([first, second]), [0.25, 0.75], axis=0)
    unit = np.where(high > low, high - low, np.inf)
    return np.clip(first / unit, -OUTLYING, OUTLYING), np.clip(second / unit, -OUTLYING, OUTLYING)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _local_maps(
    x: Array, y: Array, looks: Array, later_looks: Array, shift: Array, linked: Indices, around: Indices,
    settings: tuple[int, float, float, float],
) -> Array:  # fmt: skip  # pragma: no cover  # compiled
    """(n, ndim) at each cell the value of a robust affine map of the displacements around it, its own left out.

    `linked` (n,) is the row of each cell's partner in the second frame, −1 if it has none. `settings` are how many
    linked cells a map is made of, the spacing, the distance at which a link is half trusted, and the stiffness.
    """
    most, spacing, near, stiffness = settings
    n, ndim = x.shape
    displacement, trust = np.zeros_like(x), np.zeros(n)
    for i in range(n):
        if linked[i] >= 0:
            displacement[i] = y[linked[i]] - x[i]
            # links that end far from a cell are guesses; where the flow is known, they do not, so it spreads from there
            off = ((displacement[i] - shift[i]) ** 2).sum() + ((looks[i] - later_looks[linked[i]]) ** 2).sum()
            trust[i] = 1 / (1 + off / near**2)
    found, used, weight, room = np.empty_like(x), np.empty(most, np.intp), np.empty(most), np.empty(most)
    normal, right, z = np.empty((ndim + 1, ndim + 1)), np.empty((ndim + 1, ndim)), np.ones(ndim + 1)
    for i in range(n):
        count = 0
        for j in around[i]:
            if j != i and linked[j] >= 0 and count < most:
                used[count] = j
                count += 1
        if count == 0:  # nothing to learn from: the flow stays
            found[i] = shift[i]
            continue
        _weigh(displacement, trust, used[:count], spacing, weight, room)
        _fade(x, i, used[:count], weight)
        normal[:], right[:] = 0.0, 0.0
        for c in range(count):
            for d in range(ndim):
                z[d + 1] = (x[used[c], d] - x[i, d]) / spacing
            for p in range(ndim + 1):
                for q in range(p + 1):
                    normal[p, q] += weight[c] * z[p] * z[q]
                for d in range(ndim):
                    right[p, d] += weight[c] * z[p] * displacement[used[c], d]
        for p in range(1, ndim + 1):
            normal[p, p] += stiffness
        _eliminate(normal, right)
        for d in range(ndim):
            found[i, d] = right[0, d] / normal[0, 0]
    return found


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _weigh(
    displacement: Array, trust: Array, used: Indices, spacing: float, weight: Array, room: Array
) -> None:  # pragma: no cover  # compiled
    """How much say each linked cell of a map has, by Cauchy's weights: a wrong link has little. `room` is scratch."""
    n = len(used)
    for c in range(n):
        weight[c] = 0.0
    for d in range(displacement.shape[1]):
        for c in range(n):
            room[c] = displacement[used[c], d]
        middle = _median(room, n)
        for c in range(n):
            weight[c] += (displacement[used[c], d] - middle) ** 2
    for c in range(n):
        weight[c] = room[c] = np.sqrt(weight[c])
    usual = _median(room, n) + 1e-3 * spacing
    for c in range(n):
        weight[c] = trust[used[c]] / (1 + (weight[c] / (2 * usual)) ** 2)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fade(x: Array, i: int, used: Indices, weight: Array) -> None:  # pragma: no cover  # compiled
    """Linked cells, the nearest first, have the less say in the map at a cell the farther they are: tricube weights."""
    far = SPAN * _distance(x, i, used[-1])
    for c in range(len(used)):
        weight[c] *= (1 - (_distance(x, i, used[c]) / far) ** 3) ** 3 if far > 0 else 1.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _distance(x: Array, i: int, j: int) -> float:  # pragma: no cover  # compiled
    """Between two of some points."""
    square = 0.0
    for d in range(x.shape[1]):
        square += (x[i, d] - x[j, d]) ** 2
    return float(np.sqrt(square))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _eliminate(normal: Array, right: Array) -> None:  # pragma: no cover  # compiled
    """All unknowns but the first from symmetric positive definite equations, of which the lower half is there."""
    for p in range(len(normal) - 1, 0, -1):
        for q in range(p):
            factor = normal[p, q] / normal[p, p]
            for r in range(q + 1):
                normal[q, r] -= factor * normal[p, r]
            for d in range(right.shape[1]):
                right[q, d] -= factor * right[p, d]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _median(values: Array, n: int) -> float:  # pragma: no cover  # compiled
    """Of the first n, which are few: they are sorted by insertion."""
    for i in range(1, n):
        value, at = values[i], i
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value
    return float(0.5 * (values[(n - 1) // 2] + values[n // 2]))


def lengths(vectors: Array) -> Array:
    """Of vectors (…, ndim)."""
    return np.asarray(np.sqrt((vectors**2).sum(axis=-1)))
