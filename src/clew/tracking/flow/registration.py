"""Registration of the cells of two frames: a labelling, then closest points and kriging, in turns.

- **A Markov random field** (`message_passing.py`): which of the cells around each goes to, if neighbours move alike. It
  finds flows from which closest points start.
- **Iterative closest points** (Besl & McKay 1992): cells that are each other's nearest after the flow so far are
  linked. Nearest in place and in looks: a cell's size and brightness tell it from its neighbours, each as far as it
  stays the same from frame to frame.
- **Kriging** (`kriging.py`): the flow at a cell is what the displacements of the linked cells around it foretell,
  itself left out. First with little noise, so that the flow bends to where the links lead; in the end with as much as
  leaves cells foretold best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import stdtr

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections
from clew.tracking.flow.kriging import foretold
from clew.tracking.flow.mrf import ASKEW, Neighbours, labelled
from clew.tracking.flow.nearest_points import NearestPoints

FEWEST = 4
"""Cells in each frame below which there are no surroundings to speak of."""
LOOKS = ("volume", "intensity")
"""The measurements that cells are known again by."""
OUTLYING = 3.0
"""Quartile ranges from the median, beyond which a look counts no more."""
BETWEEN = 0.7071
"""The median difference between two cells, in quartile ranges, if looks are normally distributed."""
SUREST = 0.1
"""The least change of a look from frame to frame, as a share of the difference between two cells: below, links would be
chosen by looks alone."""

TIES = 1e-6
"""Cost of a spacing to one side rather than the other: it decides between displacements that are equally likely."""


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """How two frames are registered; lengths are in units of the spacing between cells."""

    neighbours: int = 8
    """Linked cells that the flow at a cell is taken from. With 12, cells are foretold a little better, and a pass takes
    twice the time."""
    length: float = 3.0
    """Of the flow's covariance: cells so far apart have half of it in common. Steep tissue is followed better by
    shorter ones and colonies by longer ones, but little (docs/benchmarks-kinds.md), for the nugget makes up for it."""
    nuggets: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    """Noise of the displacements that may be, in variances of the flow around its local level. Tissue has the least, of
    colonies of rods half is noise. The flow is found with the first of them."""
    near: float = 0.25
    """Half the distance at which a shifted cell still lies nearer to its own than to others."""
    labels: tuple[int, int] = (8, 20)
    """Cells of the next frame, the nearest, that a cell may have gone to, in the plane and in space: those within one
    and a half spacings of a dense packing."""
    differ: float = 0.4
    """By how much neighbours a spacing apart usually differ in their displacements, in spacings. Flows that are found
    change little from 0.25 to 0.5."""
    prior: float = 1.5
    """Usual displacement. It decides between flows that are as smooth."""
    truncation: float = 4.0
    """Cost (a negative log-likelihood) beyond which neighbours are taken to have nothing to do with each other, and
    looks to have changed."""
    sweeps: int = 4
    """Of message passing, there and back."""


@dataclass(frozen=True, slots=True)
class Matching:
    """The cells of two frames, to be linked by place and looks."""

    x: Array
    """(n, ndim) where cells are in the first frame"""
    y: Array
    """(m, ndim) and in the second."""
    looks: tuple[Array, Array]
    """(n, k) and (m, k): what they look like, as further coordinates, in units of length."""
    second: NearestPoints
    """The cells of the second frame, by place and looks."""
    off: float = field(default=0.0, kw_only=True)
    """How far linked cells usually are from where a first flow puts them; known where looks are."""
    known: Indices | None = field(default=None, kw_only=True)
    """(n,) the row in the second frame that a cell is known to have gone to, −1 where nobody said; None for nowhere."""

    @classmethod
    def by_place(cls, x: Array, y: Array) -> Matching:
        """By place alone."""
        return Matching(
            x, y, (np.zeros((len(x), 0)), np.zeros((len(y), 0))), NearestPoints.of(y)
        )

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
        return replace(
            self,
            looks=looks,
            second=NearestPoints.of(np.hstack([self.y, looks[1]])),
            off=float(off),
        )

    def links(self, shift: Array) -> tuple[Indices, Indices]:
        """(m,) each: the rows of cells that are each other's nearest after a flow."""
        return _rows(self._partners(shift))

    def _partners(self, shift: Array) -> Indices:
        """(n,) the row in the second frame that each cell is linked to after a flow; −1 for none."""
        return self._with_known(self.second.mutual(self._moved(shift)))

    def _with_known(self, linked: Indices) -> Indices:
        """(n,) partners with those that are known, which nobody else has."""
        if self.known is None:
            return linked
        there = self.known >= 0
        free = ~np.isin(linked, self.known[there])
        return np.where(there, self.known, np.where(free, linked, -1))

    def _moved(self, shift: Array) -> Array:
        """(n, ndim + k) the cells of the first frame after a flow, by place and looks."""
        return np.hstack([self.x + shift, self.looks[0]])


@dataclass(frozen=True, slots=True)
class Registration(Matching):
    """The cells of two frames, to be registered."""

    around: Indices
    """(n, 3 neighbours) the cells around each of the first frame, the nearest first: itself. Of so many, enough are
    linked."""
    spacing: float
    settings: RegistrationSettings
    graph: Neighbours
    """Cells of the first frame and those around each, `3 ndim` or more, which are expected to move alike."""

    @classmethod
    def of(
        cls,
        x: Array,
        y: Array,
        settings: RegistrationSettings,
        known: Indices | None = None,
    ) -> Self:
        """By place alone."""
        alone = Matching.by_place(x, y)
        k = min(3 * settings.neighbours, len(x))
        distance, around = (
            found.reshape(len(x), k) for found in cKDTree(x).query(x, k=k)
        )
        graph = Neighbours.of(x, distance, around, 3 * x.shape[1])
        return cls(
            x,
            y,
            alone.looks,
            alone.second,
            around,
            _spacing(distance),
            settings,
            graph,
            known=known,
        )

    def labelled(
        self, shift: Array, expected: Array | None = None, usual: float | None = None
    ) -> Array:
        """(n, ndim) the flow if each cell goes to one of those around where a shift puts it, neighbours alike.

        Displacements are as `expected` (n, ndim), give or take the `usual` spacings, unless they are another thing
        altogether; without any expectation, as the shift. What two cells would go to tells nothing of either.
        """
        settings, ndim = self.settings, self.x.shape[1]
        k = min(settings.labels[ndim - 2], len(self.y))
        nearest = cKDTree(self.y).query(self.x + shift, k=k)[1].reshape(len(self.x), k)
        nearest = (
            nearest
            if self.known is None
            else np.where(self.known[:, None] < 0, nearest, self.known[:, None])
        )
        way = self.y[nearest] - self.x[:, None]
        off = way - (shift if expected is None else expected)[:, None]
        usual = self.spacing * (settings.prior if usual is None else usual)
        cost = np.minimum((off**2).sum(axis=2) / (2 * usual**2), settings.truncation)
        if self.off:
            unlike = ((self.looks[0][:, None] - self.looks[1][nearest]) ** 2).sum(
                axis=2
            )
            cost += np.minimum(unlike / (2 * self.off**2), settings.truncation)
        # cells that nearly touch, as two halves of one do, differ as those half a spacing apart
        apart = settings.differ * np.maximum(self.graph.distance, self.spacing / 2)
        cost += TIES * (way @ ASKEW[:ndim]) / self.spacing
        u = np.ascontiguousarray(way.transpose(0, 2, 1))
        found = labelled(
            cost,
            u,
            self.graph,
            1 / (2 * apart**2),
            settings.truncation,
            settings.sweeps,
        )
        rows = np.arange(len(self.x))
        to = nearest[rows, found]
        alone = np.bincount(to, minlength=len(self.y))[to] == 1
        return self._kriged(
            way[rows, found],
            self._with_known(np.where(alone, to, -1)),
            settings.nuggets[0],
        )

    def misfits(self, shift: Array) -> Array:
        """(n,) how far each cell is from the nearest after a flow; a spacing at most."""
        return np.asarray(
            np.minimum(self.second.query(self._moved(shift))[0], self.spacing)
        )

    def fits_better(self, shift: Array, other: Array, level: float) -> bool:
        """Whether cells are nearer to others after one flow than after another: a paired t-test at some level."""
        gain = self.misfits(other) - self.misfits(shift)
        error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
        return (
            bool(stdtr(len(gain) - 1, -gain.mean() / error) < level)
            if error
            else bool(gain.mean() > 0)
        )

    def refined(self, start: Array, passes: int) -> Array:
        """(n, ndim) the flow by links and kriging in turns until the links stay, from one shift for all or each."""
        shift, linked = np.zeros_like(self.x) + start, np.full(len(self.x), -1)
        for _ in range(passes):
            before, linked = linked, self._partners(shift)
            if np.count_nonzero(linked >= 0) < FEWEST or np.array_equal(linked, before):
                break
            shift = self._kriged(shift, linked, self.settings.nuggets[0])
        return shift

    def smoothed(self, shift: Array) -> Array:
        """(n, ndim) a flow that was found, as smooth as its links say: cells are foretold by those around them.

        Links were made with a flow that bends to them, so that little noise looks better than it is. Hence the **one
        standard error rule** (Breiman et al. 1984): the most noise whose errors, by Cauchy's likelihood, exceed the
        least ones by no more than the standard error of the difference.
        """
        linked = self._partners(shift)
        ahead, behind = _rows(linked)
        if len(ahead) < FEWEST:
            return shift
        flows = [
            self._kriged(shift, linked, nugget) for nugget in self.settings.nuggets
        ]
        way, near = self.y[behind] - self.x[ahead], self.settings.near * self.spacing
        errors = np.stack(
            [np.log1p((lengths(way - flow[ahead]) / near) ** 2) for flow in flows]
        )
        excess = errors - errors[np.argmin(errors.mean(axis=1))]
        close = excess.mean(axis=1) <= excess.std(axis=1) / np.sqrt(len(ahead))
        return flows[int(np.flatnonzero(close)[-1])]

    def _kriged(self, shift: Array, linked: Indices, nugget: float) -> Array:
        """(n, ndim) the flow at each cell by the links of those around it; `linked` (n,) is −1 for cells without."""
        settings = self.settings
        way = self.y[linked] - self.x
        # links that end far from a cell are guesses; where the flow is known, they do not, so it spreads from there
        off = ((way - shift) ** 2).sum(axis=1) + (
            (self.looks[0] - self.looks[1][linked]) ** 2
        ).sum(axis=1)
        off = np.where(linked >= 0, off / (settings.near * self.spacing) ** 2, -1.0)
        off = off if self.known is None else np.where(self.known < 0, off, 0.0)
        length = settings.length * self.spacing
        return np.asarray(
            foretold(
                self.x,
                way,
                off,
                shift,
                self.around,
                settings.neighbours,
                nugget,
                length,
            )
        )


def mutual_nearest(x: Array, y: Array) -> tuple[Indices, Indices]:
    """(m,) each: the rows of points that are each other's nearest."""
    if not len(x) or not len(y):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    return _rows(NearestPoints.of(y).mutual(x))


def nearest_at_rest(a: Detections, b: Detections) -> tuple[Indices, Indices]:
    """(m,) each: the rows of cells that are each other's nearest where they are, by looks too if there are enough."""
    x, y = a.position, b.position
    if min(len(x), len(y)) < FEWEST:
        return mutual_nearest(x, y)
    still = np.zeros_like(x)
    return Matching.by_place(x, y).by_looks_too(a, b, still).links(still)


def _rows(linked: Indices) -> tuple[Indices, Indices]:
    """(m,) each: the rows of linked cells in both frames, from the partner of each, −1 for none."""
    ahead = np.flatnonzero(linked >= 0)
    return ahead, linked[ahead]


def spacing_of(x: Array) -> float:
    """The median distance of a point to the nearest other; 1 where all are in one place, or where there is one."""
    return (
        _spacing(cKDTree(x).query(x, k=min(2, len(x)))[0].reshape(len(x), -1))
        if len(x)
        else 1.0
    )


def _spacing(distance: Array) -> float:
    """The same from the distances (n, k) of points to themselves, to the nearest other, and others."""
    return float(np.median(distance[:, 1])) or 1.0 if distance.shape[1] > 1 else 1.0


def _in_quartile_ranges(
    a: Detections, b: Detections, columns: Sequence[str]
) -> tuple[Array, Array]:
    """(n, k) and (m, k): measurements less the median of their frame, since light fades from frame to frame."""
    first, second = (
        np.column_stack([each.columns[name] for name in columns]) for each in (a, b)
    )
    first, second = first - np.median(first, axis=0), second - np.median(second, axis=0)
    low, high = np.quantile(np.vstack([first, second]), [0.25, 0.75], axis=0)
    unit = np.where(high > low, high - low, np.inf)
    return np.clip(first / unit, -OUTLYING, OUTLYING), np.clip(
        second / unit, -OUTLYING, OUTLYING
    )


def lengths(vectors: Array) -> Array:
    """Of vectors (…, ndim)."""
    return np.asarray(np.sqrt((vectors**2).sum(axis=-1)))
