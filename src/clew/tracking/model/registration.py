"""Registration of the cells of two frames: closest points and local maps, in turns.

- **Iterative closest points** (Besl & McKay 1992): cells that are each other's nearest after the flow so far are
  linked. Nearest in place and in looks: a cell's size and brightness tell it from its neighbours, each as far as it
  stays the same from frame to frame.
- **Local regression** (LOESS, Cleveland 1979): the flow at a cell is a robust affine map of the displacements of the
  linked cells around it, itself left out. Affine, so that growth and rotation are followed up to the border of a
  colony.
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

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections

FEWEST = 4
"""Cells in each frame below which there are no surroundings to speak of."""
LOOKS = ("volume", "intensity")
"""The measurements that cells are known again by."""
OUTLYING = 3.0
"""Quartile ranges from the median, beyond which a look counts no more."""
BETWEEN = 0.7071
"""The median difference between two cells, in quartile ranges, if looks are normally distributed."""
AT_A_TIME = 2**15
"""Cells whose local maps are computed at a time, at half a kB each."""
SUREST = 0.1
"""The least change of a look from frame to frame, as a share of the difference between two cells: below, links would be
chosen by looks alone."""


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """How two frames are registered; lengths are in units of the spacing between cells."""

    neighbours: int = 12
    """Linked cells that the flow at a cell is taken from: twice what surrounds a cell in the plane."""
    near: float = 0.25
    """Half the distance at which a shifted cell still lies nearer to its own than to others."""
    stiffness: float = 4.0
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
    tree: cKDTree
    """The points of the second frame, by place and looks."""
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
        return cls(x, y, none, cKDTree(y), around, spacing_of(x), settings)

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
        return replace(self, looks=looks, tree=cKDTree(np.hstack([self.y, looks[1]])))

    def links(self, shift: Array) -> tuple[Indices, Indices]:
        """(m,) each: the rows of cells that are each other's nearest after a flow."""
        return _mutual_nearest(np.hstack([self.x + shift, self.looks[0]]), self.tree)

    def misfits(self, shift: Array) -> Array:
        """(n,) how far each cell is from the nearest after a flow; a spacing at most."""
        distance = self.tree.query(np.hstack([self.x + shift, self.looks[0]]))[0]
        return np.asarray(np.minimum(distance, self.spacing))

    def best(self, shifts: Sequence[Array], n: int) -> list[Array]:
        """The n flows after which cells lie nearest to others."""
        return sorted(shifts, key=lambda shift: float(self.misfits(shift).mean()))[:n]

    def fused(self, shifts: Sequence[Array]) -> Array:
        """(n, ndim) at each cell the flow of these that fits best around it."""
        around = self.around[:, : self.settings.neighbours]
        best, least = np.zeros_like(self.x), np.full(len(self.x), np.inf)
        for shift in shifts:
            misfit = self.misfits(shift)[around].mean(axis=1)
            better = misfit < least
            best[better], least[better] = shift[better], misfit[better]
        return best

    def refined(self, start: Array, passes: int) -> Array:
        """(n, ndim) the flow by links and local maps in turns until the links stay, from one shift for all or each."""
        shift, linked = np.zeros_like(self.x) + start, np.full(len(self.x), -1)
        for _ in range(passes):
            ahead, behind = self.links(shift)
            before, linked = linked, np.full(len(self.x), -1)
            linked[ahead] = behind
            if len(ahead) < FEWEST or np.array_equal(linked, before):
                break
            shift = self._local_maps(shift, ahead, behind)
        return shift

    def _local_maps(self, shift: Array, ahead: Indices, behind: Indices) -> Array:
        """(n, ndim) at each cell the value of a robust affine map of the displacements around it, its own left out."""
        settings, displacement = self.settings, self.y[behind] - self.x[ahead]
        off = ((displacement - shift[ahead]) ** 2).sum(axis=1)
        off += ((self.looks[0][ahead] - self.looks[1][behind]) ** 2).sum(axis=1)
        # links that end far from a cell are guesses; where the flow is known, they do not, so it spreads from there
        trust = 1 / (1 + off / (settings.near * self.spacing) ** 2)
        link = np.full(len(self.x), -1)
        link[ahead] = np.arange(len(ahead))
        slopes, found = range(1, self.x.shape[1] + 1), np.empty_like(self.x)
        for first in range(0, len(self.x), AT_A_TIME):
            some = slice(first, first + AT_A_TIME)
            normal, right = _normal_equations(
                self.x, shift, link, displacement, trust, self.around[some], first, settings.neighbours, self.spacing
            )
            normal[:, slopes, slopes] += settings.stiffness
            found[some] = np.linalg.solve(normal, right)[:, 0]
        return found


def mutual_nearest(x: Array, y: Array) -> tuple[Indices, Indices]:
    """(m,) each: the rows of points that are each other's nearest."""
    if not len(x) or not len(y):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    return _mutual_nearest(x, cKDTree(y))


def _mutual_nearest(x: Array, tree: cKDTree) -> tuple[Indices, Indices]:
    ahead = tree.query(x)[1]
    back = cKDTree(x).query(tree.data)[1]
    mutual = np.flatnonzero(back[ahead] == np.arange(len(x)))
    return mutual, ahead[mutual].astype(np.intp)


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
def _normal_equations(
    x: Array, shift: Array, link: Indices, displacement: Array, trust: Array, around: Indices, first: int, most: int,
    spacing: float,
) -> tuple[Array, Array]:  # fmt: skip
    """(n, 1 + ndim, 1 + ndim) and (n, 1 + ndim, ndim) of the local maps, each of the `most` nearest linked cells.

    `link` is each cell's row among the displacements, −1 if it is not linked; `around` (n, k) those around some cells,
    of which the first is in row `first` of all.
    """
    n, ndim = len(around), x.shape[1]
    normal, right = np.zeros((n, ndim + 1, ndim + 1)), np.zeros((n, ndim + 1, ndim))
    used, off, z = np.empty(most, np.intp), np.empty(most), np.ones(ndim + 1)
    middle, sorted_ = np.empty(ndim), np.empty(most)
    for i in range(n):
        count = 0
        for j in around[i]:
            if j != first + i and link[j] >= 0 and count < most:
                used[count] = j
                count += 1
        if count == 0:  # nothing to learn from: the flow stays
            normal[i, 0, 0] = 1.0
            right[i, 0] = shift[first + i]
            continue
        for d in range(ndim):
            for c in range(count):
                off[c] = displacement[link[used[c]], d]
            middle[d] = _median(off, count, sorted_)
        for c in range(count):
            square = 0.0
            for d in range(ndim):
                square += (displacement[link[used[c]], d] - middle[d]) ** 2
            off[c] = np.sqrt(square)
        usual = _median(off, count, sorted_) + 1e-3 * spacing
        for c in range(count):
            row = link[used[c]]
            # Cauchy's weights: a wrong link has little say
            weight = trust[row] / (1 + (off[c] / (2 * usual)) ** 2)
            for d in range(ndim):
                z[d + 1] = (x[used[c], d] - x[first + i, d]) / spacing
            for p in range(ndim + 1):
                for q in range(ndim + 1):
                    normal[i, p, q] += weight * z[p] * z[q]
                for d in range(ndim):
                    right[i, p, d] += weight * z[p] * displacement[row, d]
    return normal, right


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _median(values: Array, n: int, room: Array) -> float:
    """Of the first n, which are few: by insertion into `room`."""
    for i in range(n):
        value, at = values[i], i
        while at > 0 and room[at - 1] > value:
            room[at] = room[at - 1]
            at -= 1
        room[at] = value
    return float(0.5 * (room[(n - 1) // 2] + room[n // 2]))


def lengths(vectors: Array) -> Array:
    """Of vectors (…, ndim)."""
    return np.asarray(np.sqrt((vectors**2).sum(axis=-1)))
