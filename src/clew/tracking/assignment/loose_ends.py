"""Cells that may be without a partner in the other frame of a pair: the ends between which gaps are looked for.

A cell that the segmentation missed in one frame disappears in the pair before and appears in the pair after. So the
ends of a pair are the cells that its best choice lets disappear or appear, at no cost, and those that would do so if it
paid: the cost is the score that is lost when the pair is made to (`Assignment.alternatives`), and with it comes how the
pair's choice changes. This is how gaps reach into the pairwise answers without one programme for all frames: the best
choice with one gap is the best of both pairs, less what its ends cost, plus the gap's own score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import Assignment
from clew.tracking.candidates.candidates import NEIGHBOURS
from clew.tracking.candidates.features import MAX_VALUE, features_of
from clew.tracking.detections import Detections
from clew.tracking.events import Event
from clew.tracking.lineage.gaps import Change
from clew.tracking.profiling.scales import Scales


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What gaps need of a frame pair besides its candidates."""

    shift: Array | None
    """(n, ndim) the flow at each cell of the first frame; None where there is none."""
    scales: Scales
    reach: float
    """How far a cell may move from one frame to the next."""
    groups: frozenset[str]
    """The groups of measurements that features are made of."""
    alone: Mapping[Event, Array]
    """(n, d) the features of all cells of the first frame as disappearances, of the second as appearances."""


@dataclass(frozen=True, eq=False)
class Ends:
    """Cells of one frame that may be without a partner in the other frame of a pair."""

    cells: Detections
    """(n,) their positions carried into the other frame by the flow."""
    alone: Mapping[str, Array]
    """(n,) each: their features as disappearances or appearances, by name."""
    cost: Array
    """(n,) the score that the pair loses when it is made so."""
    changes: Mapping[int, Change]
    """By label, of those that the pair's own choice does not have."""

    @classmethod
    def of(
        cls,
        cells: Detections,
        event: Event,
        block: Array,
        groups: frozenset[str],
        rows: Indices,
    ) -> Ends:
        """Some rows of a frame at no cost; `block` has the features of all of its cells as this event."""
        names = [feature.name for feature in features_of(event, groups)]
        columns = {name: column[rows] for name, column in cells.columns.items()}
        some = Detections(cells.frame, cells.label[rows], cells.position[rows], columns)
        alone = dict(zip(names, block[rows].T, strict=True))
        return cls(some, alone, np.zeros(len(rows)), {})

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, eq=False)
class LooseEnds:
    """Both sides of a frame pair, and what gaps between them and another pair's are scored by; small."""

    gone: Ends
    """Of the first frame, as they would be in the second."""
    back: Ends
    """Of the second, as they were in the first."""
    weights: Array
    """(d,) of the features of gaps."""
    around: Surroundings


def carried(
    a: Detections, b: Detections, shift: Array | None
) -> tuple[Detections, Detections]:
    """The cells of each frame where they are in the other by the flow; back, by the flow of the cells around."""
    if shift is None or not len(a):
        return a, b
    there = a.position + shift
    if not len(b):
        return replace(a, position=there), b
    near = cKDTree(there).query(
        b.position, k=np.arange(1, min(NEIGHBOURS, len(a)) + 1)
    )[1]
    return replace(a, position=there), replace(
        b, position=b.position - shift[near].mean(axis=1)
    )


def loose_ends(
    frames: tuple[Detections, Detections],
    answer: Assignment,
    confidence: Array,
    w: Array,
    around: Surroundings | None,
) -> LooseEnds | None:
    """The ends of a solved pair; None where a movie has no gaps, or its weights `w` (d,) do not know of any.

    `confidence` (m,) is that of the chosen events. A cell is made to disappear at a cost of at least the confidence of
    the event that it is in, so that few cells need be asked about.
    """
    if around is None:
        return None
    weights = w[len(w) - len(features_of(Event.GAP, around.groups)) :]
    if not weights.any():
        return None
    there, back = carried(*frames, around.shift)
    held = np.full(
        answer.candidates.n_detections + 1, np.inf
    )  # the last place is for no detection
    held[answer.candidates.detections_of()[answer.chosen]] = confidence[:, None]
    sides = [
        _ends(
            frames,
            cells,
            event,
            around.alone[event],
            answer,
            held,
            weights,
            around.groups,
        )
        for cells, event in ((there, Event.DISAPPEAR), (back, Event.APPEAR))
    ]
    return LooseEnds(sides[0], sides[1], weights, replace(around, shift=None, alone={}))


def _ends(
    frames: tuple[Detections, Detections],
    cells: Detections,
    event: Event,
    block: Array,
    answer: Assignment,
    held: Array,
    weights: Array,
    groups: frozenset[str],
) -> Ends:
    """The cells of one frame that are alone, or would be for less than a gap can score there."""
    candidates = answer.candidates
    of_event = candidates.of_event(event)
    candidate = np.arange(
        of_event.start, of_event.stop
    )  # one for each cell of the frame, in their order
    chosen = np.isin(candidate, answer.chosen)
    first = 0 if event is Event.DISAPPEAR else candidates.n_sources
    most = _most(weights, event, block, groups)
    doubtful = ~chosen & (held[first : first + len(candidate)] < most)
    cost = np.where(chosen, 0.0, np.inf)
    came = went = np.zeros((0, 0), dtype=np.intp)
    if doubtful.any():
        cost[doubtful], came, went = answer.alternatives(candidate[doubtful])
    changes = {
        int(cells.label[row]): _change(frames, answer, came[k], went[k])
        for k, row in enumerate(np.flatnonzero(doubtful))
        if cost[row] < most[row]
    }
    rows = np.flatnonzero(chosen | (cost < most))
    return replace(
        Ends.of(cells, event, block, groups, rows), cost=cost[rows], changes=changes
    )


def _most(weights: Array, event: Event, block: Array, groups: frozenset[str]) -> Array:
    """(n,) what a gap can score that has each of n cells as an end, if the other end is as likely to be missed there.

    Of a gap's features some are means over its ends, which look at the same place of the frame between them. The others
    compare the ends; none is negative, and cells that are alike have zeros.
    """
    weight = dict(
        zip(
            (feature.name for feature in features_of(Event.GAP, groups)),
            weights.tolist(),
            strict=True,
        )
    )
    names = [feature.name for feature in features_of(event, groups)]
    own = np.array([weight.pop(name) for name in names])
    return np.asarray(
        block @ own + MAX_VALUE * sum(max(value, 0.0) for value in weight.values())
    )


def _change(
    frames: tuple[Detections, Detections],
    answer: Assignment,
    came: Indices,
    went: Indices,
) -> Change:
    """Candidates that come and go as events; one that does both stays."""
    come, go = np.setdiff1d(came, [-1]), np.setdiff1d(went, [-1])
    both = np.intersect1d(come, go)
    tables = [
        answer.candidates.table(*frames, np.setdiff1d(rows, both))
        for rows in (go, come)
    ]
    return Change(*tables)
