"""Solve frame pairs: predict the events between consecutive frames of a movie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array, Mask
from clew.tracking.assignment.assignment import (
    Assignment,
    measure_clearness,
    split_score_margins,
)
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.events import Annotations, EventTable
from clew.tracking.flow.flow import shift_detections
from clew.tracking.lineage.splits import (
    find_torn_events,
    number_detections,
    split_margin_from_rank,
)
from clew.tracking.training.calibration import Calibration, MovieMargins


@dataclass(frozen=True, eq=False)
class PairSolution:
    """The predicted events of a frame pair, and how certain they are."""

    frame: int
    """The first of the two frames."""
    events: EventTable
    confidence: Array
    """(n,) score lost if an event is forbidden; inf where nothing else is possible."""
    version: int = 0
    """Of the weights, as their owner counts them."""
    key: bytes = b""
    """Of the annotations that it agrees with, see `Annotations.key`."""
    split_score_margin: Array | None = None
    """(n,) by how much an event scores more as a split than as a division, its sizes
    included; NaN for other kinds, and for annotated events."""
    weight_norm: float = 1.0
    """Norm of the weights; scores in this unit are comparable across weights."""
    typical_volume: float = 1.0
    """Volume of a typical cell of the movie."""
    context: Array | None = None
    """(n,) see `Calibration.probability`, but for torn masks; None where unknown."""
    is_torn: Mask | None = None
    """(n,) whether an event belongs to a mask that is torn for one frame, see
    `mark_torn_events`; None where unknown."""
    assignment: Assignment | None = None
    """The choice among the candidates; None where it was dropped."""
    n_added: int = 0
    """Annotated events that were not candidates by themselves."""

    def rescale(self, weight_norm: float) -> Self:
        """Return the same solution with scores as of weights of another norm."""
        if weight_norm == self.weight_norm or not self.weight_norm:
            return self
        factor = weight_norm / self.weight_norm
        margin = self.split_score_margin
        return replace(
            self,
            confidence=self.confidence * factor,
            split_score_margin=None if margin is None else margin * factor,
            weight_norm=weight_norm,
        )

    def margins(self, scale: float = 1.0) -> MovieMargins:
        """Return the distribution of margins; `scale` multiplies the confidences."""
        rows = slice(None) if self.is_torn is None else ~self.is_torn
        return MovieMargins.of(
            self.events.event[rows], scale * self.confidence[rows], self.weight_norm
        )

    def probability(self, calibration: Calibration, scale: float = 1.0) -> Array:
        """Return the probability that each event is right, (n,)."""
        context = self.context
        if context is None:
            context = np.zeros(len(self.events))
        if self.is_torn is not None:
            context = np.where(self.is_torn, 1.0, context)
        return calibration.probability(
            self.events.event, scale * self.confidence, self.weight_norm, context
        )

    def without_candidates(self) -> Self:
        """Return the events alone, to be kept or sent to another process."""
        return replace(self, assignment=None)


def solve_frame_pair(
    pair: FramePair,
    w: Array,
    annotations: Annotations | None = None,
    before: PairSolution | None = None,
    version: int = 0,
) -> PairSolution:
    """Predict the events of a frame pair.

    Parameters
    ----------
    pair : FramePair
    w : ndarray of shape (d,)
    annotations : Annotations, optional
        Of this pair; the solution agrees with them.
    before : PairSolution, optional
        An earlier solution. Unchanged events reuse its confidences, which take longer
        to compute than the solution.
    version : int
        Of the weights.

    Returns
    -------
    PairSolution
    """
    frame = pair.a.frame
    pinned = {} if annotations is None else pair.find_annotated(annotations)
    try:
        answer = pair.solve(w, pinned)
    except InfeasibleAnnotation as error:
        raise InfeasibleAnnotation(
            f"from frame {frame} to {frame + 1}: {error}", frame
        ) from error
    events = pair.candidates.table(pair.a, pair.b, answer.chosen)
    is_pinned = np.isin(answer.chosen, list(pinned))
    confidence = reuse_confidences(events, before)
    is_new = np.isnan(confidence) | is_pinned
    confidence[is_new] = answer.confidence(answer.chosen[is_new])

    weight_norm = float(np.linalg.norm(w))
    by_size = split_margin_from_rank(pair.part_ranks(answer.chosen))
    split_score_margin = split_score_margins(answer) + weight_norm * by_size
    split_score_margin[is_pinned] = np.nan
    return PairSolution(
        frame,
        events,
        confidence,
        version,
        b"" if annotations is None else annotations.content_key(),
        split_score_margin,
        weight_norm,
        pair.typical_volume,
        measure_context(pair, answer, confidence),
        assignment=answer,
        n_added=pair.n_added,
    )


def solve_pairs(
    builder: FramePairBuilder,
    w: Array,
    frames: Iterable[int],
    annotations: Annotations | None = None,
) -> list[PairSolution]:
    """Build and solve consecutive frame pairs.

    Parameters
    ----------
    builder : FramePairBuilder
    w : ndarray of shape (d,)
    frames : iterable of int
        The first frames of the pairs.
    annotations : Annotations, optional
        The solutions agree with them.

    Returns
    -------
    list of PairSolution
        Without candidates.
    """
    solutions = []
    pair = None
    for frame in frames:
        if annotations is None:
            pair = builder.build(frame, previous=pair)
            solution = solve_frame_pair(pair, w)
        else:
            of_pair = annotations.select_frame(frame)
            moves = of_pair.select_moves()
            pair = builder.build(frame, of_pair.events, moves, pair)
            solution = solve_frame_pair(pair, w, of_pair)
        solutions.append(solution.without_candidates())
    return solutions


def measure_context(pair: FramePair, answer: Assignment, confidence: Array) -> Array:
    """Return what tells whether events are right beside their confidence, (n,).

    The border proximity of cells that appear or disappear, and the clearness of moves
    that two cells might swap; 0 for others.
    """
    cells = answer.candidates.detections_of(answer.chosen)
    is_lone = (cells >= 0).sum(axis=1) == 1
    proximity = pair.border_proximity[cells.max(axis=1, initial=0)]
    before = shift_detections(pair.a, pair.flow.shift).position
    clearness = measure_clearness(answer, confidence, before, pair.b.position)
    return np.where(is_lone, proximity, clearness)


def reuse_confidences(events: EventTable, before: PairSolution | None) -> Array:
    """Return the confidences that events had before, (n,); NaN for new ones.

    An infinite one may have been certain because of an annotation, and is not reused.
    """
    confidence = np.full(len(events), np.nan)
    if before is not None:
        _, rows, before_rows = np.intersect1d(
            events.row_keys(), before.events.row_keys(), return_indices=True
        )
        confidence[rows] = before.confidence[before_rows]
    confidence[np.isinf(confidence)] = np.nan
    return confidence


def mark_torn_events(solutions: Iterable[PairSolution]) -> list[PairSolution]:
    """Mark the events of masks that are torn for one frame.

    Parameters
    ----------
    solutions : iterable of PairSolution
        Frame pairs of a movie, in any order.

    Returns
    -------
    list of PairSolution
    """
    pairs = list(solutions)
    events = EventTable.join([pair.events for pair in pairs])
    is_torn = find_torn_events(events.event, *number_detections(events)).is_torn
    stops = np.cumsum([len(pair.events) for pair in pairs])
    parts = np.split(is_torn, stops[:-1])
    return [
        replace(pair, is_torn=part) for pair, part in zip(pairs, parts, strict=False)
    ]
