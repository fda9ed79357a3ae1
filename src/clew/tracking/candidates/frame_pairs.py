"""The frame pairs of a movie: candidates and features of each, made when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from clew.errors import InputError
from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import Assignment, assign
from clew.tracking.assignment.loose_ends import Surroundings
from clew.tracking.candidates.candidates import (
    ALL_EVENTS,
    MAX_NEIGHBOURS,
    NEIGHBOURS,
    Candidates,
    estimate_reach,
    find_candidates,
)
from clew.tracking.candidates.features import (
    LONE_EVENTS,
    assemble_matrix,
    compute_feature_blocks,
    compute_scores,
)
from clew.tracking.detections import (
    Detections,
    Overlap,
    Source,
    WindowedSource,
    take_window,
)
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.flow import estimate_flow, shift_detections
from clew.tracking.flow.motion import Motion, estimate_motion
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.profiling.scales import Over, Scales, ball_volume, estimate_scales
from clew.utils.cache import Cache
from clew.utils.validation import check_int, is_number, short_repr

T = TypeVar("T")

KEPT = 32 * 2**20
"""Bytes of scored frame pairs that stay in memory: a movie's kinds of events are looked for in pairs that are solved
afterwards, with some of the same candidates."""


@dataclass(frozen=True)
class CandidatePair:
    """Two consecutive frames with the candidate events between them."""

    a: Detections
    b: Detections
    candidates: Candidates
    diameter: float = field(default=1.0, kw_only=True)
    """Of usual cells."""

    @property
    def border(self) -> Array:
        """(n_sources + n_targets,) how near the border the cells are: 1 on it, 1/e a diameter away; 0 if not known."""
        away = [
            cells.columns.get("border_distance", np.full(len(cells), np.inf))
            for cells in (self.a, self.b)
        ]
        return np.asarray(np.exp(-np.concatenate(away) / self.diameter))

    def sizes(self, rows: Indices) -> Array:
        """(n, 4) the volumes of the sources and targets of some candidates, in usual ones; NaN for none and unknown."""
        usual = ball_volume(self.diameter, self.a.position.shape[1])
        # one cell more at the end, which −1 leads to
        before, after = (
            np.append(
                cells.columns.get("volume", np.full(len(cells), np.nan)) / usual, np.nan
            )
            for cells in (self.a, self.b)
        )
        return np.hstack(
            [
                before[self.candidates.sources[rows]],
                after[self.candidates.targets[rows]],
            ]
        )

    def part_ranks(self, rows: Indices) -> Array:
        """(n,) of candidates with two targets, the share of the sources' frame that is smaller than the smaller target.

        NaN for others, and where sizes are not known.
        """
        before, after = (cells.columns.get("volume") for cells in (self.a, self.b))
        targets, rank = self.candidates.targets[rows], np.full(len(rows), np.nan)
        two = (targets >= 0).all(axis=1)
        if before is not None and after is not None and two.any():
            smaller, ordered = after[targets[two]].min(axis=1), np.sort(before)
            rank[two] = sum(
                np.searchsorted(ordered, smaller, side) for side in ("left", "right")
            ) / (2 * len(ordered))
        return rank

    def rows(self, events: EventTable) -> dict[int, int]:
        """Rows of the candidates that these events are, and which of the events each is; others are left out."""
        found = self.candidates.find(events, self.a, self.b)
        return {int(row): k for k, row in enumerate(found) if row >= 0}

    def annotated(self, annotations: Annotations) -> dict[int, int]:
        """What is annotated of the candidates: {row: 1 if it happened, 0 if not}."""
        return {
            row: int(annotations.happened[k])
            for row, k in self.rows(annotations.events).items()
        }


@dataclass(frozen=True)
class ScoredPair(CandidatePair):
    """With the scores of the candidates by some weights."""

    score: Array
    """(n,)"""
    w: Array
    """(d,) the weights."""
    around: Surroundings | None = None
    """For gaps; None where a movie has none."""
    answer: Assignment | None = None
    """The best choice among the candidates, where it is known."""

    def best(self) -> Assignment:
        """The best choice among the candidates."""
        return self.answer or assign(self.candidates, self.score)

    def only(self, events: frozenset[Event]) -> Self:
        """The same with candidates of some kinds alone."""
        kept = np.isin(self.candidates.event, list(events))
        around = self.around if Event.GAP in events else None
        answer = None if self.answer is None else self.answer.among(kept)
        return replace(
            self,
            candidates=self.candidates[kept],
            score=self.score[kept],
            around=around,
            answer=answer,
        )

    @property
    def nbytes(self) -> int:
        """What the candidates take, the choice among them, and the features that gaps need."""
        arrays = [
            self.candidates.event,
            self.candidates.sources,
            self.candidates.targets,
            self.score,
        ]
        arrays += (
            [self.answer.scores, self.answer.reduced, self.answer.chosen]
            if self.answer
            else []
        )
        return sum(
            array.nbytes
            for array in [*arrays, *(self.around.alone.values() if self.around else ())]
        )


_kept: Cache[ScoredPair] = Cache(KEPT, lambda pair: pair.nbytes)


@dataclass(frozen=True)
class FramePair(CandidatePair):
    """With the features of the candidates, for weights that are not known yet, or change."""

    blocks: Mapping[Event, Array]
    """(n_e, d_e) features of the candidates of each event."""
    extra: bytes = b""
    """The key of events that were added to the usual candidates: pairs of two frames with the same one are the same."""
    around: Surroundings | None = None
    """For gaps; None where a movie has none."""

    def features(self) -> Any:
        """(n, d) CSR, for learning."""
        return assemble_matrix(self.blocks)

    def scores(self, w: Array) -> Array:
        """(n,) ⟨w, features⟩ of each candidate."""
        begins = np.cumsum([0, *(self.blocks[event].shape[1] for event in Event)])
        return np.concatenate(
            [
                self.blocks[event] @ w[begins[event] : begins[event + 1]]
                for event in Event
            ]
        )

    def scored(self, w: Array) -> ScoredPair:
        """The pair with scores by these weights."""
        return ScoredPair(
            self.a,
            self.b,
            self.candidates,
            self.scores(w),
            w,
            self.around,
            diameter=self.diameter,
        )


@dataclass(frozen=True)
class Pairs:
    """How the frame pairs of one movie are made: in its own units, and relative to its flow."""

    source: Source
    groups: frozenset[str]
    """The groups of measurements that features are made of."""
    motion: Motion
    scales: Scales
    reach: float
    neighbours: int = NEIGHBOURS
    events: frozenset[Event] = ALL_EVENTS
    """The kinds of events that happen in this movie."""

    @classmethod
    def of(
        cls,
        source: Source,
        groups: frozenset[str],
        neighbours: int = NEIGHBOURS,
        reach: float | None = None,
        events: frozenset[Event] = ALL_EVENTS,
        over: Over = map,
    ) -> Self:
        """Estimate a movie's own units and flow, and the reach unless it is given; `over` maps over sampled frames."""
        if reach is not None and not (
            is_number(reach) and 0 < reach <= sys.float_info.max
        ):
            raise InputError(
                f"reach is {short_repr(reach)}; expected a positive length in the unit of the movie's spacing"
            )
        neighbours = check_int(neighbours, "neighbours", 1, MAX_NEIGHBOURS)
        motion = estimate_motion(source, over=over)
        scales = estimate_scales(source, motion.median_step, over)
        far = estimate_reach(motion, scales) if reach is None else float(reach)
        return cls(source, groups, motion, scales, far, neighbours, events)

    def __len__(self) -> int:
        return max(self.source.n_frames - 1, 0)

    def needed(self, frame: int) -> range:
        """The frames that a frame pair follows from: its own two, and where cells go on, the one before too."""
        return range(
            max(frame - 1, 0) if self.motion.uses_previous_frame else frame, frame + 2
        )

    def touched(self, frames: Iterable[int]) -> list[int]:
        """First frames of the pairs that follow from some frames, ascending."""
        changed = set(frames)
        return [t for t in range(len(self)) if not changed.isdisjoint(self.needed(t))]

    def window(self, first: int, last: int) -> Self:
        """The same with the pairs from frame `first` to `last` alone, under their numbers."""
        return replace(
            self, source=take_window(self.source, self.needed(first).start, last)
        )

    def pair(
        self,
        frame: int,
        extra: EventTable | None = None,
        moves: EventTable | None = None,
    ) -> FramePair:
        """From one frame to the next; events of `extra` are always among the candidates.

        Where cells move with their surroundings, `moves` that are known to have happened put the flow right around
        them, if it would have led elsewhere. That is for predictions: weights learn from flows that know of none, as
        they meet them elsewhere.
        """
        moves = self.unforeseen(frame, moves)
        pair, around = self._pair(frame, extra, compute_feature_blocks, moves)
        keys = b"".join(
            table.row_keys().tobytes() for table in (extra, moves) if table is not None
        )
        return FramePair(*pair, keys, around, diameter=self.scales.diameter)

    def scored(
        self,
        frame: int,
        w: Array,
        extra: EventTable | None = None,
        moves: EventTable | None = None,
    ) -> ScoredPair:
        """The same with scores instead of features, which takes a fraction of the memory."""
        if extra is None or not len(extra):
            known = _kept.peek((self.source.name, frame), self._key(frame, w))
            if known is not None:
                return known.only(self.events)
        pair, around = self._pair(
            frame, extra, partial(compute_scores, w=w), self.unforeseen(frame, moves)
        )
        return ScoredPair(*pair, w, around, diameter=self.scales.diameter)

    def unforeseen(self, frame: int, moves: EventTable | None) -> EventTable | None:
        """The moves, if there are any among them that the flow would not have led to; else None."""
        if moves is None or not len(moves) or not self.motion.follows_flow:
            return None
        a, b, shift = self._flow(frame)
        source, target = find_mutual_nearest(
            shift_detections(a, shift).position, b.position
        )
        linked = np.full(len(a), -1)
        linked[source] = target
        foreseen = linked[a.rows(moves.sources[:, 0])] == b.rows(moves.targets[:, 0])
        return None if foreseen.all() else moves

    def looked_at(self, frame: int, w: Array) -> ScoredPair:
        """`scored` with all kinds of events and solved, and remembered for when it is asked for with fewer."""
        pair = replace(self, events=ALL_EVENTS).scored(frame, w)
        pair = replace(pair, answer=pair.best())
        if pair.nbytes <= KEPT and isinstance(self.source, WindowedSource):
            _kept.put((self.source.name, frame), self._key(frame, w), pair)
        return pair

    def blocks_of(self, frame: int, found: Candidates) -> Mapping[Event, Array]:
        """Features of some candidates of a pair, as `FramePair.blocks`."""
        _, b, there, overlap = self._frames(frame)[:4]
        return compute_feature_blocks(
            found, there, b, overlap, self.scales, self.groups
        )

    def _key(self, frame: int, w: Array) -> tuple[Hashable, ...] | None:
        """All that the candidates of a pair and their scores follow from, but for the kinds of events."""
        if not isinstance(self.source, WindowedSource):
            return None
        frames = tuple(self.source.content(t) for t in self.needed(frame))
        return (
            *frames,
            w.tobytes(),
            self.groups,
            self.motion,
            self.scales,
            self.reach,
            self.neighbours,
        )

    def usual(
        self, frame: int, of: Callable[..., T]
    ) -> tuple[Detections, Detections, Candidates, T]:
        """Two frames, their candidates without any that were added, and what `of` makes of these."""
        return self._pair(frame, None, of)[0]

    def _pair(
        self,
        frame: int,
        extra: EventTable | None,
        of: Callable[..., T],
        moves: EventTable | None = None,
    ) -> tuple[tuple[Detections, Detections, Candidates, T], Surroundings | None]:
        """Two frames, the candidates between them, what `of` makes of these, and what gaps need."""
        a, b, there, overlap, shift = self._frames(frame, moves)
        found = find_candidates(
            there,
            b,
            reach=self.reach,
            neighbours=self.neighbours,
            overlap=overlap,
            events=self.events,
            extra=extra,
        )
        result = of(found, there, b, overlap, self.scales, self.groups)
        if Event.GAP not in self.events:
            return (a, b, found, result), None
        alone = compute_feature_blocks(
            found, there, b, overlap, self.scales, self.groups, LONE_EVENTS
        )
        return (a, b, found, result), Surroundings(
            shift, self.scales, self.reach, self.groups, alone
        )

    def _frames(
        self, frame: int, moves: EventTable | None = None
    ) -> tuple[Detections, Detections, Detections, Overlap, Array | None]:
        """Two frames, the first with its cells moved by the flow too, what masks share then, and the flow."""
        a, b, shift = self._flow(frame, moves)
        return (
            a,
            b,
            shift_detections(a, shift),
            self.source.overlap(frame, shift),
            shift,
        )

    def _flow(
        self, frame: int, moves: EventTable | None = None
    ) -> tuple[Detections, Detections, Array | None]:
        """Two frames, and the flow from one to the other, by which these moves are known."""
        *earlier, a, b = map(self.source.detections, self.needed(frame))
        known = None
        if moves is not None:
            known = np.full(len(a), -1)
            known[a.rows(moves.sources[:, 0])] = b.rows(moves.targets[:, 0])
        previous = estimate_flow(earlier[0], a, self.motion) if earlier else None
        return a, b, estimate_flow(a, b, self.motion, previous, known).shift
