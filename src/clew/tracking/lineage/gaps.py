"""Gap closing: link cells that are missing in one frame to the frame after it.

This is a second pass, after all frame pairs are solved. Each cell that disappears
before a frame stays gone or is one of those that appear after it, so that the gaps over
a frame are an assignment like that of a frame pair (Jaqaman et al., Nature Methods
2008), with learned scores. Both cells are compared at the positions that the flow
predicts for them in the frame between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from clew.learning.task import Array, Indices, Matrix
from clew.tracking.assignment.assignment import Assignment, assign
from clew.tracking.candidates.candidates import (
    NEIGHBOURS,
    Candidates,
    find_candidates,
)
from clew.tracking.candidates.event_views import Cells, CellSelection, GapView
from clew.tracking.candidates.features import compute_features, features_of
from clew.tracking.detections import Detections
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.flow import shift_detections

if TYPE_CHECKING:
    from clew.tracking.candidates.frame_pairs import FramePair
    from clew.tracking.profile import MovieProfile

REACH_FACTOR = float(np.sqrt(2.0))
"""A cell gets so much farther in two independent steps than in one."""
CHOICES = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
"""Events of a gap problem: a move closes a gap, the others leave it open."""


@dataclass(frozen=True, eq=False)
class GapEnds:
    """Cells at the positions that the flow predicts for them in the missing frame."""

    cells: Detections
    features: Array
    """(n, d) features as disappearances or appearances."""

    def __len__(self) -> int:
        return len(self.cells)

    @classmethod
    def vanishing(cls, pair: FramePair, rows: Indices) -> GapEnds:
        """Return cells of a pair's first frame, moved forward by the flow."""
        cells = shift_detections(pair.a, pair.flow.shift)
        return cls._select(cells, pair.blocks[Event.DISAPPEAR], rows)

    @classmethod
    def emerging(cls, pair: FramePair, rows: Indices) -> GapEnds:
        """Return cells of a pair's second frame, moved back by the flow around them."""
        position = pair.b.position
        shift = pair.flow.shift
        if shift is not None and len(pair.a) and len(pair.b):
            tree = cKDTree(pair.a.position + shift)
            neighbours = np.arange(1, min(NEIGHBOURS, len(pair.a)) + 1)
            nearest = tree.query(position, k=neighbours)[1]
            position = position - shift[nearest].mean(axis=1)
        cells = replace(pair.b, position=position)
        return cls._select(cells, pair.blocks[Event.APPEAR], rows)

    @classmethod
    def _select(cls, cells: Detections, block: Array, rows: Indices) -> GapEnds:
        """Some of the cells; the block has a row for every cell of the frame."""
        columns = {name: column[rows] for name, column in cells.columns.items()}
        selected = Detections(
            cells.frame, cells.label[rows], cells.position[rows], columns
        )
        return cls(selected, block[rows])


@dataclass(frozen=True, eq=False)
class UnlinkedCells:
    """Cells of a solved frame pair without a partner, between which gaps are closed."""

    vanished: GapEnds
    """Cells of the first frame that disappear."""
    emerged: GapEnds
    """Cells of the second frame that appear."""
    weights: Array
    """(d,) of the features of gaps."""
    profile: MovieProfile

    @classmethod
    def of(cls, pair: FramePair, answer: Assignment, w: Array) -> UnlinkedCells | None:
        """Return the unlinked cells of a pair; None if weights `w` close no gaps."""
        if Event.GAP not in pair.profile.events:
            return None
        weights = gap_weights(w, pair.profile.groups)
        if not weights.any():
            return None
        chosen = answer.chosen
        gone = chosen[answer.events == Event.DISAPPEAR]
        came = chosen[answer.events == Event.APPEAR]
        return cls(
            GapEnds.vanishing(pair, pair.candidates.sources[gone, 0]),
            GapEnds.emerging(pair, pair.candidates.targets[came, 0]),
            weights,
            pair.profile,
        )


def gap_weights(w: Array, groups: frozenset[str]) -> Array:
    """Return the weights of gaps, which come last, (d,)."""
    return w[len(w) - len(features_of(Event.GAP, groups)) :]


@dataclass(frozen=True, eq=False)
class GapProblem:
    """The assignment between cells that vanished before a frame and emerged after it."""

    vanished: GapEnds
    emerged: GapEnds
    candidates: Candidates
    """Of the kinds in `CHOICES`, moves first."""
    features: Array
    """(n, d) of the gaps, which are the first n candidates."""

    @classmethod
    def of(
        cls,
        vanished: GapEnds,
        emerged: GapEnds,
        profile: MovieProfile,
        annotations: Annotations | None = None,
    ) -> GapProblem:
        """Build the problem; annotated gaps are always among the candidates."""
        events = find_candidates(
            vanished.cells,
            emerged.cells,
            reach=REACH_FACTOR * profile.reach,
            events=CHOICES,
            extra=_known_gaps(annotations, vanished, emerged),
        )
        moves = events.of_event(Event.MOVE)
        names = {
            event: [feature.name for feature in features_of(event, profile.groups)]
            for event in (Event.DISAPPEAR, Event.APPEAR)
        }
        before = Cells(vanished.cells, profile.scales)
        after = Cells(emerged.cells, profile.scales)
        view = GapView(
            CellSelection(before, events.sources[moves, 0]),
            CellSelection(after, events.targets[moves, 0]),
            dict(zip(names[Event.DISAPPEAR], vanished.features.T, strict=True)),
            dict(zip(names[Event.APPEAR], emerged.features.T, strict=True)),
        )
        features = compute_features(view, features_of(Event.GAP, profile.groups))
        return cls(vanished, emerged, events, features)

    def solve(self, weights: Array, pinned: Mapping[int, int]) -> Assignment:
        """Return the best choice: a gap is closed where its score is positive."""
        scores = np.zeros(len(self.candidates))
        scores[: len(self.features)] = self.features @ weights
        return assign(self.candidates, scores, pinned)

    def find_annotated(self, annotations: Annotations) -> dict[int, int]:
        """Return {candidate: 1 if annotated as happened, 0 if annotated as not}."""
        rows = self.candidates.find(
            annotations.events, self.vanished.cells, self.emerged.cells
        )
        return {
            int(row): int(annotations.happened[k])
            for k, row in enumerate(rows)
            if row >= 0
        }

    def design_matrix(self, n_weights: int) -> Matrix:
        """Return the features of all candidates in the last columns of (n, n_weights)."""
        n_gaps, width = self.features.shape
        left = sp.csr_array((n_gaps, n_weights - width))
        rest = sp.csr_array((len(self.candidates) - n_gaps, n_weights))
        gaps = sp.hstack([left, sp.csr_array(self.features)])
        return sp.vstack([gaps, rest], format="csr")


def gap_annotations(annotations: Annotations, frame: int) -> Annotations:
    """Return annotations of the gaps after a frame, as events of a `GapProblem`.

    Gaps become moves. Annotated disappearances and appearances stay open; that one did
    not happen concerns its frame pair alone.
    """
    events = annotations.events
    is_end = np.isin(events.event, [Event.DISAPPEAR, Event.APPEAR])
    is_end = is_end & annotations.happened
    first = np.where(events.event == Event.APPEAR, events.frame - 1, events.frame)
    rows = (first == frame) & (is_end | (events.event == Event.GAP))
    selected = annotations[rows]
    kind = selected.events.event
    kind = np.where(kind == Event.GAP, Event.MOVE, kind).astype(np.int8)
    frames = np.full(len(kind), frame)
    table = replace(selected.events, event=kind, frame=frames)
    return replace(selected, events=table)


class GapLinks(NamedTuple):
    """Gaps that were closed, and ends that stay open."""

    gaps: EventTable
    confidence: Array
    """(n,) score lost if a gap stays open."""
    open_ends: EventTable
    """Disappearances and appearances that could have been an end of a gap."""
    open_confidence: Array
    """(m,) score lost if it were."""


def find_gaps(
    unlinked: Mapping[int, UnlinkedCells | None],
    annotations: Annotations | None = None,
) -> GapLinks:
    """Close gaps between the unlinked cells of consecutive frame pairs.

    Parameters
    ----------
    unlinked : mapping
        From the first frame of each pair to its unlinked cells.
    annotations : Annotations, optional
        Annotated gaps, disappearances and appearances are obeyed.

    Returns
    -------
    GapLinks
    """
    if annotations is None:
        annotations = Annotations.of(EventTable.empty())
    gaps = []
    open_ends = []
    for frame in sorted(unlinked):
        before = unlinked[frame]
        after = unlinked.get(frame + 1)
        if before is None or after is None:
            continue
        if not len(before.vanished) or not len(after.emerged):
            continue
        known = gap_annotations(annotations, frame)
        problem = GapProblem.of(before.vanished, after.emerged, before.profile, known)
        if not len(problem.features):
            continue
        answer = problem.solve(before.weights, problem.find_annotated(known))
        confidence = answer.confidence()
        is_gap = answer.events == Event.MOVE
        table = _choices_as_events(problem, answer)
        gaps.append((table[is_gap], confidence[is_gap]))
        open_ends.append((table[~is_gap], confidence[~is_gap]))
    return GapLinks(*_concatenate(gaps), *_concatenate(open_ends))


def _choices_as_events(problem: GapProblem, answer: Assignment) -> EventTable:
    """The choices of a gap problem as events of the movie."""
    table = problem.candidates.table(
        problem.vanished.cells, problem.emerged.cells, answer.chosen
    )
    kind = np.where(table.event == Event.MOVE, Event.GAP, table.event).astype(np.int8)
    frame = table.frame + (table.event == Event.APPEAR)
    return replace(table, event=kind, frame=frame)


def _concatenate(
    parts: list[tuple[EventTable, Array]],
) -> tuple[EventTable, Array]:
    """Several tables with their confidences as one."""
    tables = [table for table, _ in parts]
    confidences = [confidence for _, confidence in parts]
    return EventTable.join(tables), np.concatenate([np.zeros(0), *confidences])


def _known_gaps(
    annotations: Annotations | None, vanished: GapEnds, emerged: GapEnds
) -> EventTable | None:
    """Annotated gaps, as moves, both of whose ends are unlinked."""
    if annotations is None:
        return None
    gaps = annotations.select_moves()
    has_source = vanished.cells.rows(gaps.sources[:, 0]) >= 0
    has_target = emerged.cells.rows(gaps.targets[:, 0]) >= 0
    return gaps[has_source & has_target]
