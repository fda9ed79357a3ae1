"""What happened from one frame to the next, and all frame pairs of a movie joined to a lineage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array, Mask
from clew.tracking.assignment.assignment import (
    Assignment,
    assign,
    split_score_margins,
)
from clew.tracking.assignment.gaps import find_gaps
from clew.tracking.assignment.loose_ends import LooseEnds, loose_ends
from clew.tracking.candidates.frame_pairs import FramePair, Pairs, ScoredPair
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, EventIndex, EventTable, Labels
from clew.tracking.lineage.gaps import GapLink, Gaps, Joined, close_gaps, with_gaps
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.repair import mended, torn
from clew.tracking.lineage.splits import by_counts, split_by_size
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)

KEPT_COLUMNS = ("volume", "intensity")
"""What a lineage keeps of each detection, to match identities by."""


@dataclass(frozen=True, eq=False)
class SolvedPair:
    """What happened from one frame to the next, how sure that is, and what it follows from."""

    frame: int
    events: EventTable
    confidence: Array
    """(n,) the score that is lost when an event is forbidden; inf where nothing else is possible."""
    version: int = 0
    """Of the weights, as their owner counts them."""
    key: bytes = b""
    """Of the annotations that it agrees with, see `Annotations.key`."""
    lead: Array | None = None
    """(n,) by how much an event scores more as a split than as a division, the ranks of its parts' sizes included; NaN
    for other kinds, and if annotated."""
    unit: float = 1.0
    """The norm of the weights, in which scores of several movies and weights can be compared."""
    ends: LooseEnds | None = None
    """Between which gaps are looked for; None where a movie has none."""
    sizes: Array | None = None
    """(n, 4) volumes of the sources and targets of each event, in usual ones, NaN for none; None where not known."""
    border: Array | None = None
    """(n,) how near the border a cell appears or disappears, see `CandidatePair.border`; None where nobody knows."""
    torn: Mask | None = None
    """(n,) what tears a mask apart for one frame or puts it together, see `in_context`; None where nobody knows."""
    assignment: Assignment | None = None
    """The choice among the pair's candidates, for questions about alternatives; None where it was dropped."""

    def in_unit(self, unit: float) -> Self:
        """The same events, as sure as they are, with scores as of weights of another norm."""
        if unit == self.unit or not self.unit:
            return self
        by = unit / self.unit
        lead = None if self.lead is None else self.lead * by
        return replace(self, confidence=self.confidence * by, lead=lead, unit=unit)

    def margins(self, scale: float = 1.0) -> MovieMargins:
        """What its events tell of how likely they are right; `scale` is for confidences of other weights."""
        counted = slice(None) if self.torn is None else ~self.torn
        return MovieMargins.of(
            self.events.event[counted], scale * self.confidence[counted], self.unit
        )

    def probability(self, calibration: Calibration, scale: float = 1.0) -> Array:
        """(n,) that each event is right, by the calibration of its movie."""
        context = np.zeros(len(self.events)) if self.border is None else self.border
        if self.torn is not None:
            context = np.where(self.torn, 1.0, context)
        return calibration.probability(
            self.events.event, scale * self.confidence, self.unit, context
        )

    def without_candidates(self) -> Self:
        """The events alone, to be kept for a whole movie or sent to another process."""
        return replace(self, assignment=None)


def solve(
    pair: FramePair,
    w: Array,
    here: Annotations | None = None,
    before: SolvedPair | None = None,
    version: int = 0,
) -> SolvedPair:
    """The best events of a frame pair among those that agree with the annotations of it, which are its candidates.

    Confidences take longer than the solution. For those in a hurry, events that were there `before` keep theirs.
    """
    return _solved(pair.scored(w), here, before, version)


def _solved(
    pair: ScoredPair,
    here: Annotations | None,
    before: SolvedPair | None = None,
    version: int = 0,
) -> SolvedPair:
    frame = pair.a.frame
    pinned = {} if here is None else pair.annotated(here)
    try:
        answer = assign(pair.candidates, pair.score, pinned) if pinned else pair.best()
    except InfeasibleAnnotation as error:
        raise InfeasibleAnnotation(
            f"from frame {frame} to {frame + 1}: {error}", frame
        ) from error
    events = pair.candidates.table(pair.a, pair.b, answer.chosen)
    confidence = _recalled(events, before)
    new = np.isnan(confidence) | np.isin(answer.chosen, list(pinned))
    confidence[new] = answer.confidence(answer.chosen[new])
    unit = float(np.linalg.norm(pair.w))
    lead = split_score_margins(answer) + unit * split_by_size(
        pair.part_ranks(answer.chosen)
    )
    lead[np.isin(answer.chosen, list(pinned))] = np.nan
    key = b"" if here is None else here.content_key()
    ends = loose_ends((pair.a, pair.b), answer, confidence, pair.w, pair.around)
    border, sizes = _of_lone(answer, pair.border), pair.sizes(answer.chosen)
    return SolvedPair(
        frame,
        events,
        confidence,
        version,
        key,
        lead,
        unit,
        ends,
        sizes,
        border,
        assignment=answer,
    )


def _of_lone(answer: Assignment, values: Array) -> Array:
    """(m,) of each chosen event with a single cell, the value of that cell; 0 for others."""
    parts = answer.candidates.detections_of(answer.chosen)
    return np.where(
        (parts >= 0).sum(axis=1) == 1, values[parts.max(axis=1, initial=0)], 0.0
    )


def _recalled(events: EventTable, before: SolvedPair | None) -> Array:
    """(n,) the confidences that events had before, NaN for those that are new."""
    confidence = np.full(len(events), np.nan)
    if before is not None:
        _, now, then = np.intersect1d(
            events.row_keys(), before.events.row_keys(), return_indices=True
        )
        confidence[now] = before.confidence[then]
    confidence[np.isinf(confidence)] = (
        np.nan
    )  # what was certain because of an answer may be so no longer
    return confidence


def solve_pair(
    pairs: Pairs, w: Array, frame: int, annotations: Annotations | None = None
) -> SolvedPair:
    """The best events from one frame to the next, among those that agree with the annotations."""
    here = None if annotations is None else annotations.select_frame(frame)
    pair = (
        pairs.scored(frame, w)
        if here is None
        else pairs.scored(frame, w, here.events, here.select_moves())
    )
    return _solved(pair, here).without_candidates()


def in_context(solved: Iterable[SolvedPair]) -> list[SolvedPair]:
    """Frame pairs of a movie, in any order, each with what its neighbours tell of its events: which masks are torn."""
    every = list(solved)
    is_torn = torn(EventTable.join([one.events for one in every]))
    ends = np.cumsum([len(one.events) for one in every])
    return [
        replace(one, torn=part)
        for one, part in zip(every, np.split(is_torn, ends[:-1]), strict=False)
    ]


def join_pairs(
    source: Source, solved: Sequence[SolvedPair], annotations: Annotations | None = None
) -> Lineage:
    """What happened in each frame pair of a movie, as a lineage; gaps of `annotations` are as these say."""
    unit = max((one.unit for one in solved), default=1.0)
    nodes = nodes_of(source, range(source.n_frames))
    return join_events(source.n_frames, nodes, *joined_pairs(solved, annotations), unit)


def joined_pairs(
    solved: Sequence[SolvedPair], annotations: Annotations | None = None
) -> tuple[Joined, Gaps]:
    """The events of consecutive frame pairs as torn masks and gaps between their ends leave them, and the gaps.

    Pairs without leads have nothing that splits could be told from divisions by, those without sizes no torn masks.
    """
    leads = [
        np.full(len(one.events), np.nan) if one.lead is None else one.lead
        for one in solved
    ]
    borders = [
        np.zeros(len(one.events)) if one.border is None else one.border
        for one in solved
    ]
    joined = Joined(
        EventTable.join([one.events for one in solved]),
        np.concatenate([np.zeros(0), *(one.confidence for one in solved)]),
        np.concatenate([np.zeros(0), *leads]),
        np.concatenate([np.zeros(0), *borders]),
    )
    links, stays = find_gaps(
        [(one.frame, one.ends) for one in solved if one.ends is not None], annotations
    )
    sizes = [
        np.full((len(one.events), 4), np.nan) if one.sizes is None else one.sizes
        for one in solved
    ]
    fixed, unit = (
        _fixed(joined.events, links, annotations),
        max((one.unit for one in solved), default=1.0),
    )
    return close_gaps(
        mended(joined, np.concatenate([np.zeros((0, 4)), *sizes]), fixed, unit),
        links,
        stays,
    )


def _fixed(
    events: EventTable, links: Sequence[GapLink], annotations: Annotations | None
) -> Mask:
    """(n,) events of cells about which something is annotated, or which gaps need."""
    needed = EventTable.join([link.needs() for link in links])
    fixed, index = np.zeros(len(events) + 1, dtype=bool), EventIndex(events)
    fixed[index.find(needed)] = True
    if annotations is not None:
        fixed[index.find_by_cells(annotations.to_pairwise().events)] = True
    return fixed[:-1]


def join_events(
    n_frames: int,
    nodes: Nodes,
    joined: Joined,
    gaps: Gaps,
    unit: float,
    calibration: Calibration = GENERIC_CALIBRATION,
) -> Lineage:
    """The events of all frame pairs as a lineage: splits told from divisions by the past, gaps, and probabilities."""
    events, confidence, context, seen = told(joined, gaps, unit)
    probability = calibration.of_movie(seen).probability(
        events.event, confidence, unit, context
    )
    frame, label, position, columns = nodes
    return Lineage(
        n_frames, frame, label, position, events, confidence, columns, probability
    )


def told(
    joined: Joined, gaps: Gaps, unit: float
) -> tuple[EventTable, Array, Array, MovieMargins]:
    """The events as a lineage has them, (n,) confidences and contexts, and what they tell together.

    The context is that of `Calibration.probability`.
    """
    events, confidence = by_counts(joined.events, joined.confidence, joined.lead, unit)
    is_torn = torn(events)
    seen = MovieMargins.of(events.event[~is_torn], confidence[~is_torn], unit)
    return *with_gaps(
        events, confidence, np.where(is_torn, 1.0, joined.border), gaps
    ), seen


class Nodes(NamedTuple):
    """The detections of some frames as a lineage has them, (n,) each."""

    frame: NDArray[np.int64]
    label: Labels
    position: Array
    """(n, ndim)"""
    columns: dict[str, Array]
    """`KEPT_COLUMNS`, those that there are."""


def nodes_of(source: Source, frames: range) -> Nodes:
    """The detections of some frames."""
    found_in, labels, positions = [], [], []
    columns: dict[str, list[Array]] = {}
    for t in frames:
        found = source.detections(t)
        found_in.append(np.full(len(found), t, dtype=np.int64))
        labels.append(found.label)
        positions.append(found.position)
        for name in KEPT_COLUMNS:
            if name in found.columns:
                columns.setdefault(name, []).append(
                    np.asarray(found.columns[name], dtype=float)
                )
    kept = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Nodes(
        np.concatenate(found_in),
        np.concatenate(labels),
        np.concatenate(positions),
        kept,
    )
