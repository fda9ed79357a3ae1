"""Gap closing: cells that are missing in one frame and back in the next, found between the ends of two frame pairs.

The gaps over a frame are an assignment like any other. Every cell that vanished before it (`LooseEnds.gone` of the pair
before) stays gone or is one of those that came after it (`LooseEnds.back` of the pair after), which else came out of
nothing. Both are carried into the frame between them by the flow, so that what is compared there is how cells look, and
how far they are from where their surroundings would have taken them. Closing gaps between tracks that end and begin is
known from Jaqaman et al. (Nature Methods 2008); here the costs are learned, by the same learner from the same kind of
programme as all other weights, and ends may also be cells that the pairwise answers had linked otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array, Matrix
from clew.tracking.assignment.assignment import Assignment, assign
from clew.tracking.assignment.loose_ends import Ends, LooseEnds, Surroundings
from clew.tracking.candidates.candidates import Candidates, find_candidates
from clew.tracking.candidates.event_views import (
    Cells,
    CellSelection,
    GapView,
)
from clew.tracking.candidates.features import compute_features, features_of
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage.gaps import NO_CHANGE, GapLink, OpenEnd

FARTHER = float(np.sqrt(2.0))
"""How much farther a cell gets in two steps than in one, if they are independent of each other."""
CHOICES = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
"""The kinds of a programme of gaps: a move is a gap that is closed, the others are ends that stay."""


@dataclass(frozen=True, eq=False)
class GapFrame:
    """The gaps that there may be over one frame."""

    frame: int
    """The frame before it."""
    gone: Ends
    back: Ends
    candidates: Candidates
    """Between the rows of `gone` and `back`, of the kinds in `CHOICES`."""
    features: Array
    """(n, d) of the gaps, which are the first n candidates."""

    @classmethod
    def of(
        cls,
        gone: Ends,
        back: Ends,
        around: Surroundings,
        known: EventTable | None = None,
    ) -> GapFrame:
        """All gaps between ends that are near each other, and those that are `known`, as moves."""
        found = find_candidates(
            gone.cells,
            back.cells,
            reach=FARTHER * around.reach,
            events=CHOICES,
            extra=_between(known, gone, back),
        )
        moves = found.of_event(Event.MOVE)
        before, after = (
            Cells(gone.cells, around.scales),
            Cells(back.cells, around.scales),
        )
        view = GapView(
            CellSelection(before, found.sources[moves, 0]),
            CellSelection(after, found.targets[moves, 0]),
            gone.alone,
            back.alone,
        )
        return cls(
            gone.cells.frame,
            gone,
            back,
            found,
            compute_features(view, features_of(Event.GAP, around.groups)),
        )

    def solve(self, weights: Array, pinned: dict[int, int]) -> Assignment:
        """The best choice: a gap is closed where its score exceeds what its ends cost in their frame pairs."""
        source, target = (
            self.candidates.sources[: len(self.features), 0],
            self.candidates.targets[: len(self.features), 0],
        )
        scores = np.zeros(len(self.candidates))
        scores[: len(self.features)] = (
            self.features @ weights - self.gone.cost[source] - self.back.cost[target]
        )
        return assign(self.candidates, scores, pinned)

    def rows(self, annotations: Annotations) -> dict[int, int]:
        """What is annotated of the candidates: {row: 1 if it happened, 0 if not}."""
        at = self.candidates.find(annotations.events, self.gone.cells, self.back.cells)
        return {
            int(row): int(annotations.happened[k])
            for k, row in enumerate(at)
            if row >= 0
        }

    def design(self, n_weights: int) -> Matrix:
        """(n, d) the features of all candidates in the columns of a movie's weights, of which gaps have the last."""
        n, d = self.features.shape
        block = sp.csr_array(self.features)
        left = sp.csr_array((n, n_weights - d))
        rest = sp.csr_array((len(self.candidates) - n, n_weights))
        return sp.vstack([sp.hstack([left, block]), rest], format="csr")


def annotated_choices(annotations: Annotations, frame: int) -> Annotations:
    """What is annotated of the gaps from a frame on, in the terms of a `GapFrame`: gaps as moves, ends that stay."""
    events = annotations.events
    begins = np.where(events.event == Event.APPEAR, events.frame - 1, events.frame)
    # that a cell did not disappear or appear is for its frame pair to know
    ends = np.isin(events.event, [Event.DISAPPEAR, Event.APPEAR]) & annotations.happened
    mine = annotations[(begins == frame) & (ends | (events.event == Event.GAP))]
    kind = np.where(
        mine.events.event == Event.GAP, Event.MOVE, mine.events.event
    ).astype(np.int8)
    return replace(
        mine, events=replace(mine.events, event=kind, frame=np.full(len(kind), frame))
    )


def find_gaps(
    ends: Sequence[tuple[int, LooseEnds]], annotations: Annotations | None = None
) -> tuple[list[GapLink], list[OpenEnd]]:
    """The gaps of a movie, and ends that stay, from those of its frame pairs, (frame, ends) each in order of time.

    Annotated gaps are closed or left open as annotated, and annotated appearances and disappearances stay.
    """
    told = Annotations.of(EventTable.empty()) if annotations is None else annotations
    links: list[GapLink] = []
    stays: list[OpenEnd] = []
    for (t, before), (later, after) in pairwise(ends):
        if later == t + 1 and len(before.gone) and len(after.back):
            closed, open_ = _over_frame(before, after, annotated_choices(told, t))
            links += closed
            stays += open_
    return links, stays


def _over_frame(
    before: LooseEnds, after: LooseEnds, told: Annotations
) -> tuple[list[GapLink], list[OpenEnd]]:
    """The gaps between two pairs that share a frame, and the ends that stay."""
    known = told.events[told.happened & (told.events.event == Event.MOVE)]
    problem = GapFrame.of(before.gone, after.back, before.around, known)
    if not len(problem.features):
        return [], []
    answer = problem.solve(before.weights, problem.rows(told))
    links, stays = [], []
    for row, sure in zip(
        answer.chosen.tolist(), answer.confidence().tolist(), strict=True
    ):
        event = Event(int(problem.candidates.event[row]))
        source, target = (
            problem.candidates.sources[row, 0],
            problem.candidates.targets[row, 0],
        )
        gone, back = (
            int(before.gone.cells.label[source]),
            int(after.back.cells.label[target]),
        )
        if event is Event.MOVE:
            changes = (
                before.gone.changes.get(gone, NO_CHANGE),
                after.back.changes.get(back, NO_CHANGE),
            )
            links.append(GapLink(problem.frame, gone, back, sure, *changes))
        elif event is Event.DISAPPEAR:
            stays.append(OpenEnd(problem.frame, event, gone, sure))
        else:
            stays.append(OpenEnd(problem.frame + 1, event, back, sure))
    return links, stays


def _between(known: EventTable | None, gone: Ends, back: Ends) -> EventTable | None:
    """Known gaps both of whose ends are there."""
    if known is None or not len(known):
        return None
    there = (gone.cells.rows(known.sources[:, 0]) >= 0) & (
        back.cells.rows(known.targets[:, 0]) >= 0
    )
    return known[there]
