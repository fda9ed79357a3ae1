"""Registration of the cells of two frames: the flow from two frames alone.

1. A **displacement vote** proposes a shift of the whole frame (`displacement_vote.py`).
2. A **Markov random field** chooses one of the nearest cells of the next frame for each
   cell, so that neighbors move alike (`mrf.py`): without the shift, and with it.
3. **Iterative closest points** (Besl & McKay 1992) from each of the two: cells that are
   each other's nearest after the flow so far are linked, and the flow is kriged from
   the links around each cell (`kriging.py`), in turns. Nearest in place and in
   appearance: size and brightness count as far as they persist from frame to frame.
4. The flow with the shift is taken if it brings cells significantly nearer to others.
   It is smoothed as far as its links allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import stdtr

from clew.learning.task import Array, Indices
from clew.tracking.detections import Detections
from clew.tracking.flow.displacement_vote import (
    MIN_CELLS,
    VOTE_SETTINGS,
    VoteSettings,
    vote_for_shifts,
)
from clew.tracking.flow.kriging import krige_displacements
from clew.tracking.flow.mrf import SKEW_DIRECTION, NeighborGraph, solve_mrf
from clew.tracking.flow.nearest_points import NearestPoints, find_mutual_nearest

APPEARANCE = ("volume", "intensity")
"""Measurements by which cells are recognized."""
MAX_APPEARANCE = 3.0
"""Quartile ranges from the median at which an appearance is clipped."""
MEDIAN_DIFFERENCE = 0.7071
"""Median difference between two cells, in quartile ranges, of a normal distribution."""
MIN_APPEARANCE_CHANGE = 0.1
"""Least change of an appearance between frames, relative to the difference between two
cells: below it, links would follow from appearance alone."""
N_AROUND = 8
"""Cells around each whose displacements are compared."""
MAX_STRAIN = 2.0
"""Beyond, cells move independently."""
TIE_BREAK = 1e-6
"""Cost of a displacement by one spacing to one side rather than the other."""


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """Settings of the registration; lengths are in spacings between cells."""

    n_neighbors: int = 8
    """Linked cells that the flow at a cell is kriged from. With 12 the prediction is a
    little better, and a pass takes twice the time."""
    length: float = 3.0
    """Length scale of the flow's covariance. Steep tissue is followed better with a
    shorter one and colonies with a longer one, but little: the nugget compensates."""
    nuggets: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    """Noise levels to choose from, in variances of the flow. Tissue has the least; of
    the motion of rods in colonies, half is noise. Links are found with the first."""
    link_error: float = 0.25
    """Half the distance at which a shifted cell still lies nearest to its own place."""
    n_labels: tuple[int, int] = (8, 20)
    """Nearest cells of the next frame that a cell may move to, in 2D and 3D: those
    within one and a half spacings of a dense packing."""
    neighbor_difference: float = 0.4
    """Typical difference between displacements of neighbors one spacing apart. Results
    change little from 0.25 to 0.5."""
    typical_shift: float = 1.5
    """Typical displacement: decides between flows that are equally smooth."""
    typical_change: float = 0.5
    """Typical change of the flow from one frame pair to the next."""
    truncation: float = 4.0
    """Cost (negative log-likelihood) beyond which neighbors count as independent and
    appearances as changed."""
    n_sweeps: int = 4
    """Forward and backward sweeps of message passing."""
    max_icp_passes: int = 10
    """Links and kriging, in turns, at most; fewer if the links no longer change."""
    min_untested_shift: float = 1.0
    """A larger shift is tried even if chance explains its votes, as in flowing tissue:
    the labels of cells at rest do not reach so far."""
    level: float = 0.05
    """Significance level of the test whether a flow with a jump fits better."""


SETTINGS = RegistrationSettings()


@dataclass(frozen=True, slots=True)
class Links:
    """Cells of two frames that are each other's nearest after the flow."""

    source: Indices
    """(n_links,) rows in the first frame."""
    target: Indices
    """(n_links,) rows in the second frame."""
    displacement: Array
    """(n_links, ndim) of each linked cell."""
    flow: Array
    """(n_links, ndim) at each linked cell, predicted without it."""

    @property
    def deviation(self) -> Array:
        """(n_links, ndim) displacement relative to the flow."""
        return self.displacement - self.flow


@dataclass(frozen=True, slots=True)
class PairwiseFlow:
    """The flow between two frames, estimated from these two alone."""

    position: Array
    """(n, ndim) of the cells of the first frame."""
    shift: Array
    """(n, ndim) the flow at each of them, in physical units."""
    links: Links

    @classmethod
    def from_shift(cls, x: Array, y: Array, shift: Array) -> Self:
        """Link the cells at x and y after a flow."""
        source, target = find_mutual_nearest(x + shift, y)
        links = Links(source, target, y[target] - x[source], shift[source])
        return cls(x, shift, links)


@dataclass(frozen=True, slots=True)
class Matcher:
    """Links cells that are each other's nearest in place and appearance."""

    x: Array
    """(n, ndim) positions in the first frame."""
    y: Array
    """(m, ndim) positions in the second frame."""
    appearance_x: Array
    """(n, k) appearance as further coordinates, in units of length; k may be 0."""
    appearance_y: Array
    """(m, k)"""
    index: NearestPoints
    """The cells of the second frame by place and appearance."""
    typical_error: float = 0.0
    """Typical distance of linked cells after a first flow; 0 without appearance."""
    known: Indices | None = None
    """(n,) annotated rows in the second frame, -1 for cells without; None for none."""

    @classmethod
    def from_positions(cls, x: Array, y: Array, known: Indices | None = None) -> Self:
        """Match by place alone."""
        no_x = np.zeros((len(x), 0))
        no_y = np.zeros((len(y), 0))
        return cls(x, y, no_x, no_y, NearestPoints.from_points(y), known=known)

    def with_appearance(
        self, source: Detections, target: Detections, shift: Array
    ) -> Self:
        """Match by appearance too, as far as the links after a first flow support it.

        Let r² be the variance of an appearance's difference between linked cells,
        relative to that between any two cells, and ρ² the variance of their distance,
        both normal. Then the log-likelihood ratio of a link against chance is a squared
        distance in which the appearance has the weight ρ² (1/r² − 1).
        """
        rows_x, rows_y = self.find_links(shift)
        names = [
            name
            for name in APPEARANCE
            if name in source.columns and name in target.columns
        ]
        if not names or len(rows_x) < MIN_CELLS:
            return self
        first, second = _normalize_appearance(source, target, names)
        change = np.median(np.abs(first[rows_x] - second[rows_y]), axis=0)
        r = np.clip(change / MEDIAN_DIFFERENCE, MIN_APPEARANCE_CHANGE, 1.0)
        error = self.y[rows_y] - self.x[rows_x] - shift[rows_x]
        typical_error = float(np.median(np.linalg.norm(error, axis=1)))
        weight = typical_error * np.sqrt(1 / r**2 - 1)
        return replace(
            self,
            appearance_x=first * weight,
            appearance_y=second * weight,
            index=NearestPoints.from_points(np.hstack([self.y, second * weight])),
            typical_error=typical_error,
        )

    def find_links(self, shift: Array) -> tuple[Indices, Indices]:
        """Return (n_links,) each: the rows of linked cells after a flow."""
        partner = self.find_partners(shift)
        rows = np.flatnonzero(partner >= 0)
        return rows, partner[rows]

    def find_partners(self, shift: Array) -> Indices:
        """Return (n,) the row that each cell is linked to after a flow; -1 for none."""
        return self.set_known(self.index.query_mutual(self._shift_cells(shift)))

    def set_known(self, partner: Indices) -> Indices:
        """Replace (n,) partners by the annotated ones, which no other cell keeps."""
        if self.known is None:
            return partner
        is_known = self.known >= 0
        is_free = ~np.isin(partner, self.known[is_known])
        return np.where(is_known, self.known, np.where(is_free, partner, -1))

    def measure_distances(self, shift: Array) -> Array:
        """Return (n,) the distance of each cell to the nearest one after a flow."""
        return self.index.query(self._shift_cells(shift))[0]

    def _shift_cells(self, shift: Array) -> Array:
        """Return (n, ndim + k) the cells of the first frame after a flow."""
        return np.hstack([self.x + shift, self.appearance_x])


@dataclass(frozen=True)
class Registration:
    """Estimates the flow between two frames."""

    matcher: Matcher
    around: Indices
    """(n, 3 n_neighbors) cells of the first frame around each, nearest first, starting
    with itself; enough of them are linked."""
    distance: Array
    """(n, 3 n_neighbors) to each of them."""
    settings: RegistrationSettings = SETTINGS

    @classmethod
    def from_positions(
        cls,
        x: Array,
        y: Array,
        known: Indices | None = None,
        settings: RegistrationSettings = SETTINGS,
    ) -> Self:
        """Prepare (n, ndim) and (m, ndim) positions, by place alone."""
        k = min(3 * settings.n_neighbors, len(x))
        distance, around = cKDTree(x).query(x, k=np.arange(1, k + 1))
        return cls(Matcher.from_positions(x, y, known), around, distance, settings)

    @cached_property
    def spacing(self) -> float:
        """Median distance between neighbors in the first frame."""
        return float(np.median(self.distance[:, 1])) or 1.0

    @cached_property
    def graph(self) -> NeighborGraph:
        """Cells of the first frame with 3 ndim or more neighbors that move alike."""
        x = self.matcher.x
        return NeighborGraph.from_nearest(x, self.distance, self.around, 3 * x.shape[1])

    def with_appearance(
        self, source: Detections, target: Detections, shift: Array
    ) -> Self:
        """Match by appearance too; see `Matcher.with_appearance`."""
        matcher = self.matcher.with_appearance(source, target, shift)
        return replace(self, matcher=matcher)

    def initialize_flow(
        self, shift: Array, expected: Array | None = None, typical: float | None = None
    ) -> Array:
        """Estimate the flow by the Markov random field around a shift.

        Parameters
        ----------
        shift : ndarray of shape (n, ndim)
            Each cell may move to one of the cells nearest to where this puts it.
        expected : ndarray of shape (n, ndim), optional
            Expected displacements; the shift by default.
        typical : float, optional
            Typical deviation from what is expected, in spacings.

        Returns
        -------
        ndarray of shape (n, ndim)
        """
        settings = self.settings
        matcher = self.matcher
        nearest = self._choose_labels(shift)
        displacement = matcher.y[nearest] - matcher.x[:, None]
        label = solve_mrf(
            self._cost_labels(
                nearest,
                displacement,
                shift if expected is None else expected,
                settings.typical_shift if typical is None else typical,
            ),
            displacement.transpose(0, 2, 1),
            self.graph,
            self._weigh_edges(),
            settings.truncation,
            settings.n_sweeps,
        )
        row = np.arange(len(label))
        partner = nearest[row, label]
        # two cells with the same target say nothing about either
        is_unique = np.bincount(partner, minlength=len(matcher.y))[partner] == 1
        partner = matcher.set_known(np.where(is_unique, partner, -1))
        return self._krige_flow(displacement[row, label], partner, settings.nuggets[0])

    def _choose_labels(self, shift: Array) -> Indices:
        """Return (n, k) rows of the second frame that each cell may move to."""
        matcher = self.matcher
        ndim = matcher.x.shape[1]
        k = min(self.settings.n_labels[ndim - 2], len(matcher.y))
        tree = cKDTree(matcher.y)
        nearest: Indices = tree.query(matcher.x + shift, k=np.arange(1, k + 1))[1]
        if matcher.known is None:
            return nearest
        known = matcher.known[:, None]
        return np.where(known < 0, nearest, known)

    def _cost_labels(
        self, nearest: Indices, displacement: Array, expected: Array, typical: float
    ) -> Array:
        """Return (n, k) the cost θ of each label by its displacement and appearance."""
        matcher = self.matcher
        truncation = self.settings.truncation
        scale = self.spacing * typical
        error = ((displacement - expected[:, None]) ** 2).sum(axis=2)
        cost: Array = np.minimum(error / (2 * scale**2), truncation)
        if matcher.typical_error:
            change = matcher.appearance_x[:, None] - matcher.appearance_y[nearest]
            unlike = (change**2).sum(axis=2) / (2 * matcher.typical_error**2)
            cost += np.minimum(unlike, truncation)
        direction = SKEW_DIRECTION[: displacement.shape[2]]
        cost += TIE_BREAK * (displacement @ direction) / self.spacing
        return cost

    def _weigh_edges(self) -> Array:
        """Return (m,) the weight ω of each edge of the graph."""
        # cells that nearly touch, as two halves of one do, differ as much as cells half
        # a spacing apart
        distance = np.maximum(self.graph.distance, self.spacing / 2)
        return 1 / (2 * (self.settings.neighbor_difference * distance) ** 2)

    def run_icp(self, start: Array) -> Array:
        """Refine a flow (n, ndim) by links and kriging until the links stay."""
        shift = start
        previous = np.zeros(0, np.intp)
        for _ in range(self.settings.max_icp_passes):
            partner = self.matcher.find_partners(shift)
            n_links = np.count_nonzero(partner >= 0)
            if n_links < MIN_CELLS or np.array_equal(partner, previous):
                break
            shift = self._krige_flow(shift, partner, self.settings.nuggets[0])
            previous = partner
        return shift

    def smooth_flow(self, shift: Array, partner: Indices | None = None) -> Array:
        """Krige a flow (n, ndim) once more, with as much noise as its links allow.

        Links are those after the flow, unless (n,) partners are given, -1 for none.

        Links were made with a flow that bends to them, so little noise looks better
        than it is. Hence the **one standard error rule** (Breiman et al. 1984): the
        largest nugget whose errors, by the Cauchy likelihood, exceed the least by no
        more than the standard error of the difference.
        """
        matcher = self.matcher
        if partner is None:
            partner = matcher.find_partners(shift)
        rows = np.flatnonzero(partner >= 0)
        if len(rows) < MIN_CELLS:
            return shift
        displacement = matcher.y[partner[rows]] - matcher.x[rows]
        scale = self.settings.link_error * self.spacing
        flows = []
        errors = []
        for nugget in self.settings.nuggets:
            flow = self._krige_flow(shift, partner, nugget)
            deviation = np.linalg.norm(displacement - flow[rows], axis=1)
            flows.append(flow)
            errors.append(np.log1p((deviation / scale) ** 2))
        excess = np.stack(errors) - errors[np.argmin(np.mean(errors, axis=1))]
        standard_error = excess.std(axis=1) / np.sqrt(len(rows))
        is_close = excess.mean(axis=1) <= standard_error
        return flows[int(np.flatnonzero(is_close)[-1])]

    def measure_misfits(self, shift: Array) -> Array:
        """Return (n,) distances to the nearest cell after a flow; a spacing at most."""
        return np.minimum(self.matcher.measure_distances(shift), self.spacing)

    def fits_better(self, shift: Array, other: Array) -> bool:
        """Whether a flow brings cells nearer to others than another (paired t-test)."""
        gain = self.measure_misfits(other) - self.measure_misfits(shift)
        return is_significantly_positive(gain, self.settings.level)

    def _krige_flow(self, shift: Array, partner: Indices, nugget: float) -> Array:
        """Krige (n, ndim) the flow from links; `partner` (n,) is -1 for no link."""
        matcher = self.matcher
        settings = self.settings
        displacement = matcher.y[partner] - matcher.x
        # links that end far from the flow so far are guesses; the flow spreads from
        # where they are not
        change = matcher.appearance_x - matcher.appearance_y[partner]
        error = ((displacement - shift) ** 2).sum(axis=1) + (change**2).sum(axis=1)
        doubt = error / (settings.link_error * self.spacing) ** 2
        doubt = np.where(partner >= 0, doubt, -1.0)
        if matcher.known is not None:
            doubt = np.where(matcher.known < 0, doubt, 0.0)
        prediction: Array = krige_displacements(
            matcher.x,
            displacement,
            doubt,
            shift,
            self.around,
            settings.n_neighbors,
            nugget,
            settings.length * self.spacing,
        )
        return prediction


def is_significantly_positive(gain: Array, level: float = SETTINGS.level) -> bool:
    """Whether a paired t-test finds the mean of (n,) gains above zero."""
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    if error == 0:
        return bool(gain.mean() > 0)
    p_value = stdtr(len(gain) - 1, -gain.mean() / error)
    return bool(p_value < level)


def measure_strain(position: Array, shift: Array) -> float:
    """Measure how much a flow (n, ndim) bends: its mean squared strain.

    The strain is the difference between the displacements of a cell and of one around
    it, relative to their distance.
    """
    n_around = min(N_AROUND, len(position) - 1)
    if n_around < 1:
        return 0.0
    distance, around = cKDTree(position).query(position, n_around + 1)
    distance = np.maximum(distance[:, 1:], np.median(distance[:, 1]) / 2)
    difference = np.linalg.norm(shift[:, None] - shift[around[:, 1:]], axis=2)
    # cells in one place have no strain
    strain = difference / np.where(distance > 0, distance, np.inf)
    return float((np.minimum(strain, MAX_STRAIN) ** 2).mean())


def register_frames(
    source: Detections,
    target: Detections,
    known: Indices | None = None,
    settings: RegistrationSettings = SETTINGS,
    vote_settings: VoteSettings = VOTE_SETTINGS,
) -> PairwiseFlow:
    """Estimate the flow between two frames from these alone.

    Parameters
    ----------
    source, target : Detections
        The first and the second frame.
    known : ndarray of shape (n,), optional
        Annotated rows in the second frame, -1 for cells without.

    Returns
    -------
    PairwiseFlow
        Its shift is 0 if a frame has fewer than `MIN_CELLS` cells.
    """
    x = source.position
    y = target.position
    if min(len(x), len(y)) < MIN_CELLS:
        return PairwiseFlow.from_shift(x, y, np.zeros_like(x))
    registration = Registration.from_positions(x, y, known, settings)
    starts = _propose_shifts(registration, vote_settings)
    rough = [registration.initialize_flow(start) for start in starts]
    misfits = [registration.measure_misfits(shift).mean() for shift in rough]
    best = rough[int(np.argmin(misfits))]
    matcher = registration.matcher.with_appearance(source, target, best)
    if matcher is not registration.matcher:
        registration = replace(registration, matcher=matcher)
        rough = [registration.initialize_flow(start) for start in starts]
    flows = [registration.run_icp(shift) for shift in rough]
    flow = flows[0]
    if len(flows) > 1 and registration.fits_better(flows[1], flow):
        flow = flows[1]
    return PairwiseFlow.from_shift(x, y, registration.smooth_flow(flow))


def link_resting_cells(source: Detections, target: Detections) -> Links:
    """Link cells that are each other's nearest without any flow.

    Appearance counts too if both frames have enough cells.

    Parameters
    ----------
    source, target : Detections
        The first and the second frame.

    Returns
    -------
    Links
    """
    x = source.position
    y = target.position
    at_rest = np.zeros_like(x)
    if min(len(x), len(y)) < MIN_CELLS:
        rows_x, rows_y = find_mutual_nearest(x, y)
    else:
        matcher = Matcher.from_positions(x, y).with_appearance(source, target, at_rest)
        rows_x, rows_y = matcher.find_links(at_rest)
    return Links(rows_x, rows_y, y[rows_y] - x[rows_x], at_rest[rows_x])


def _propose_shifts(
    registration: Registration, vote_settings: VoteSettings
) -> list[Array]:
    """Return no shift, and the vote's if there is one, (n, ndim) each."""
    x = registration.matcher.x
    at_rest = np.zeros_like(x)
    vote = vote_for_shifts(x, registration.matcher.y, vote_settings)
    if vote is None:
        return [at_rest]
    jump = vote.find_significant_shift()
    if not jump.any():
        best = vote.find_best_shift()
        limit = registration.settings.min_untested_shift * registration.spacing
        if np.linalg.norm(best) > limit:
            jump = best
    return [at_rest, at_rest + jump] if jump.any() else [at_rest]


def _normalize_appearance(
    source: Detections, target: Detections, names: Sequence[str]
) -> tuple[Array, Array]:
    """Scale measurements (n, k) and (m, k) to quartile ranges around the median.

    The median is that of each frame, since light fades from frame to frame.
    """
    first = np.column_stack([source.columns[name] for name in names])
    second = np.column_stack([target.columns[name] for name in names])
    first = first - np.median(first, axis=0)
    second = second - np.median(second, axis=0)
    low, high = np.quantile(np.vstack([first, second]), [0.25, 0.75], axis=0)
    scale = np.where(high > low, high - low, np.inf)
    return (
        np.clip(first / scale, -MAX_APPEARANCE, MAX_APPEARANCE),
        np.clip(second / scale, -MAX_APPEARANCE, MAX_APPEARANCE),
    )
