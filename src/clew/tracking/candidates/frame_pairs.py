"""Frame pairs: two consecutive frames with their candidate events and features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import Assignment, assign
from clew.tracking.candidates.candidates import Candidates, find_candidates
from clew.tracking.candidates.features import assemble_matrix, compute_feature_blocks
from clew.tracking.detections import Detections, Source, take_window
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.displacement_vote import MIN_CELLS
from clew.tracking.flow.flow import (
    Flow,
    estimate_flow,
    match_moments,
    predicts_better,
    propose_flows,
    shift_detections,
)
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.flow.registration import measure_strain
from clew.tracking.scales import ball_volume
from clew.tracking.user_columns import SourceWithColumns

if TYPE_CHECKING:
    from clew.tracking.profile import MovieProfile


MIN_GAIN = 1e-9
"""A smaller difference between two scores is rounding."""
STIFFNESS = 0.003
"""Score that a usual flow loses for each of its cells: half a unit of log-probability
for each cell whose displacement is free, one in 28 by the length scale of the flow, in
units of the slope of probabilities. From 0.0025 to 0.005, results change little."""
MIN_CHANGE = 0.05
"""Flows that differ by less, in diameters of a cell, lead to the same events."""


@dataclass(frozen=True)
class FramePair:
    """Two consecutive frames, the candidate events between them, and their features."""

    a: Detections
    """The first frame."""
    b: Detections
    """The second frame."""
    candidates: Candidates
    blocks: Mapping[Event, Array]
    """Features (n_e, d_e) of the candidates of each kind of event."""
    profile: MovieProfile
    """Of the movie."""
    flow: Flow
    """From the first frame to the second."""
    key: bytes = b""
    """Identifies the candidates: pairs of the same two frames with equal keys are equal."""
    n_added: int = 0
    """Requested events that were not candidates by themselves."""
    is_flow_corrected: bool = False
    """Whether the flow was estimated with known moves."""
    solved: tuple[Array, Assignment] | None = None
    """Weights, and the best choice of events by them, where the flow was chosen so."""

    @property
    def features(self) -> Any:
        """(n, d) features of all candidates as a CSR matrix, for learning."""
        return assemble_matrix(self.blocks)

    def scores(self, w: Array) -> Array:
        """Return the score ⟨w, features⟩ of each candidate, (n,)."""
        widths = [self.blocks[event].shape[1] for event in Event]
        weights = np.split(w, np.cumsum(widths)[:-1])
        return np.concatenate([self.blocks[event] @ weights[event] for event in Event])

    def solve(self, w: Array, pinned: Mapping[int, int] | None = None) -> Assignment:
        """Return the best consistent choice of candidates, given `pinned` ones."""
        if self.solved is not None and not pinned:
            weights, answer = self.solved
            if np.array_equal(weights, w):
                return answer
        return assign(self.candidates, self.scores(w), pinned)

    @property
    def border_proximity(self) -> Array:
        """(n_sources + n_targets,) exp(−distance to the border in diameters).

        0 where the distance is unknown.
        """
        distances = [
            cells.columns.get("border_distance", np.full(len(cells), np.inf))
            for cells in (self.a, self.b)
        ]
        return np.asarray(
            np.exp(-np.concatenate(distances) / self.profile.scales.diameter)
        )

    @property
    def typical_volume(self) -> float:
        """Volume of a cell of the movie's typical diameter."""
        return ball_volume(self.profile.scales.diameter, self.a.position.shape[1])

    def part_ranks(self, rows: Indices) -> Array:
        """Rank the smaller target of candidates with two targets among the sources.

        Returns
        -------
        rank : ndarray of shape (n,)
            The share of the first frame's cells that are smaller; NaN for candidates
            with fewer targets, and where volumes are unknown.
        """
        rank = np.full(len(rows), np.nan)
        before = self.a.columns.get("volume")
        after = self.b.columns.get("volume")
        targets = self.candidates.targets[rows]
        has_two = (targets >= 0).all(axis=1)
        if before is None or after is None or not has_two.any():
            return rank
        ordered = np.sort(before)
        smaller = after[targets[has_two]].min(axis=1)
        below = np.searchsorted(ordered, smaller, "left")
        up_to = np.searchsorted(ordered, smaller, "right")
        rank[has_two] = (below + up_to) / (2 * len(ordered))
        return rank

    def contradicts_moves(self, moves: EventTable) -> bool:
        """Whether the flow, if the movie has one, contradicts known moves."""
        if not self.profile.motion.follows_flow:
            return False
        return contradicts_moves(self.flow, self.a, self.b, moves)

    def find_events(self, events: EventTable) -> dict[int, int]:
        """Return {candidate: row of `events`} for events that are candidates."""
        found = self.candidates.find(events, self.a, self.b)
        return {int(row): k for k, row in enumerate(found) if row >= 0}

    def find_annotated(self, annotations: Annotations) -> dict[int, int]:
        """Return {candidate: 1 if annotated as happened, 0 if annotated as not}."""
        found = self.find_events(annotations.events)
        return {row: int(annotations.happened[k]) for row, k in found.items()}


def contradicts_moves(
    flow: Flow, a: Detections, b: Detections, moves: EventTable
) -> bool:
    """Whether the flow between frames leads a cell elsewhere than its known move."""
    if not len(moves):
        return False
    moved_a = shift_detections(a, flow.shift)
    source, target = find_mutual_nearest(moved_a.position, b.position)
    linked = np.full(len(a), -1)
    linked[source] = target
    expected = linked[a.rows(moves.sources[:, 0])]
    return bool((expected != b.rows(moves.targets[:, 0])).any())


def solve_with_moves(
    pair: FramePair, w: Array, known_moves: EventTable | None
) -> Assignment:
    """Find the best choice of events of a frame pair that has all known moves."""
    pinned = (
        {} if known_moves is None else dict.fromkeys(pair.find_events(known_moves), 1)
    )
    return pair.solve(w, pinned)


def measure_displacements(pair: FramePair, answer: Assignment) -> Array:
    """Measure how far the cells of the first frame go in the chosen events.

    A cell with two targets goes to their center of mass.

    Returns
    -------
    ndarray of shape (n, ndim)
        NaN for cells without a target, and for those that merge.
    """
    sources = pair.candidates.sources[answer.chosen]
    targets = pair.candidates.targets[answer.chosen]
    is_link = (sources[:, 0] >= 0) & (sources[:, 1] < 0) & (targets[:, 0] >= 0)
    source = sources[is_link, 0]
    first, second = targets[is_link].T
    volume = pair.b.columns.get("volume", np.ones(len(pair.b)))
    share = np.where(second >= 0, volume[second] / (volume[first] + volume[second]), 0)
    end = pair.b.position
    middle = (1 - share)[:, None] * end[first] + share[:, None] * end[second]
    displacement = np.full_like(pair.a.position, np.nan)
    displacement[source] = middle - pair.a.position[source]
    return displacement


def _judge_flow(pair: FramePair, answer: Assignment) -> float:
    """Score the events and the flow, which is likelier the less it bends.

    Its strain has a normal distribution, as wide as in the movie's other frame pairs.
    Without, flows that bend to wrong links score most.
    """
    usual = pair.profile.motion.strain
    if pair.flow.shift is None or usual == 0:
        return answer.value
    strain = measure_strain(pair.a.position, pair.flow.shift)
    return answer.value - STIFFNESS * len(pair.a) * strain / usual


@dataclass(frozen=True)
class FramePairBuilder:
    """Builds the frame pairs of one movie on demand."""

    source: Source
    profile: MovieProfile
    weights: Array | None = None
    """Choose between flows by the score of the events that they lead to; None to keep
    the flow that the positions of the cells suggest."""

    def __len__(self) -> int:
        """Return the number of frame pairs."""
        return max(self.source.n_frames - 1, 0)

    def frames_of_pair(self, frame: int) -> range:
        """Return the frames that a pair depends on: its two, and the one before."""
        first = max(frame - 1, 0) if self.profile.motion.uses_previous_frame else frame
        return range(first, frame + 2)

    def pairs_using(self, frames: Iterable[int]) -> list[int]:
        """Return the pairs that depend on some frames, by their first frames."""
        changed = set(frames)
        return [
            frame
            for frame in range(len(self))
            if not changed.isdisjoint(self.frames_of_pair(frame))
        ]

    def window(self, first: int, last: int) -> Self:
        """Return a builder for the pairs within frames `first` to `last` alone."""
        start = self.frames_of_pair(first).start
        return replace(self, source=take_window(self.source, start, last))

    def with_events(self, events: frozenset[Event]) -> Self:
        """Return a builder for other kinds of events."""
        return replace(self, profile=replace(self.profile, events=events))

    def build(
        self,
        frame: int,
        annotated: EventTable | None = None,
        known_moves: EventTable | None = None,
        previous: FramePair | None = None,
    ) -> FramePair:
        """Build the pair of a frame and the next.

        Parameters
        ----------
        frame : int
        annotated : EventTable, optional
            Events that must be among the candidates.
        known_moves : EventTable, optional
            Moves that happened. Where the flow contradicts one, it is estimated again
            with these fixed. For predictions only: weights learn from flows that know
            no annotations, as they meet them elsewhere.
        previous : FramePair, optional
            The pair before, whose flow is used; estimated again unless given.

        Returns
        -------
        FramePair
        """
        profile = self.profile
        before = None
        if previous is not None and not previous.is_flow_corrected:
            before = previous.flow
        a, b, flow = self._estimate_flow(frame, before)
        corrections = None
        if (
            known_moves is not None
            and profile.motion.follows_flow
            and contradicts_moves(flow, a, b, known_moves)
        ):
            corrections = known_moves
            a, b, flow = self._estimate_flow(frame, before, known_moves)
        pair = self._improve_flow(self._assemble(a, b, flow), corrections)
        n_added = 0
        if annotated is not None:
            n_added = int((pair.candidates.find(annotated, a, b) < 0).sum())
        if n_added:
            pair = self._assemble(a, b, pair.flow, annotated)
        tables = [table for table in (annotated, corrections) if table is not None]
        return replace(
            pair,
            key=b"".join(table.row_keys().tobytes() for table in tables),
            n_added=n_added,
            is_flow_corrected=corrections is not None,
        )

    def _assemble(
        self,
        a: Detections,
        b: Detections,
        flow: Flow,
        annotated: EventTable | None = None,
    ) -> FramePair:
        """Find the candidates after a flow, and compute their features."""
        profile = self.profile
        moved_a = shift_detections(a, flow.shift)
        overlap = self.source.overlap(a.frame, flow.shift)
        links = None
        if isinstance(self.source, SourceWithColumns):
            links = self.source.find_links(a, b)
        candidates = find_candidates(
            moved_a,
            b,
            reach=profile.reach,
            neighbours=profile.neighbours,
            overlap=overlap,
            links=links,
            events=profile.events,
            extra=annotated,
        )
        blocks = compute_feature_blocks(
            candidates, moved_a, b, overlap, profile.scales, profile.groups, links
        )
        return FramePair(a, b, candidates, blocks, profile, flow)

    def _improve_flow(
        self, pair: FramePair, known_moves: EventTable | None
    ) -> FramePair:
        """Follow the flow that is likeliest together with the best choice of events.

        A flow that bends more than usual may be wrong: then the search starts from rest
        and from the map of all positions, too, which needs no links.
        """
        if self.weights is None:
            return pair
        starts = [pair]
        a, b = pair.a, pair.b
        motion = self.profile.motion
        if motion.follows_flow and min(len(a), len(b)) >= MIN_CELLS:
            at_rest = np.zeros_like(a.position)
            shift = at_rest if pair.flow.shift is None else pair.flow.shift
            if measure_strain(a.position, shift) >= motion.strain:
                starts += [
                    self._assemble(a, b, replace(pair.flow, shift=other))
                    for other in (at_rest, match_moments(a, b))
                ]
        found = [self._climb(start, self.weights, known_moves) for start in starts]
        best, answer = max(found, key=lambda one: _judge_flow(*one))
        solved = None if known_moves is not None else (self.weights, answer)
        return replace(best, solved=solved)

    def _climb(
        self, pair: FramePair, w: Array, known_moves: EventTable | None
    ) -> tuple[FramePair, Assignment]:
        """Follow flows that the chosen events suggest until none is likelier."""
        best, best_answer = pair, solve_with_moves(pair, w, known_moves)
        value = _judge_flow(best, best_answer)
        while True:
            start, links = best, measure_displacements(best, best_answer)
            for flow in self._propose_flows(start, links):
                other = self._assemble(pair.a, pair.b, flow)
                answer = solve_with_moves(other, w, known_moves)
                if (other_value := _judge_flow(other, answer)) > value + MIN_GAIN:
                    best, best_answer, value = other, answer, other_value
            if best is start:
                return best, best_answer

    def _propose_flows(self, pair: FramePair, links: Array) -> Iterator[Flow]:
        """Yield flows that are worth trying, given the displacements of some cells.

        Where cells do not move alike, only those that predict these significantly
        better.
        """
        shift = pair.flow.shift
        if shift is None:
            shift = np.zeros_like(links)
        least = MIN_CHANGE * self.profile.scales.diameter
        for other in propose_flows(pair.a.position, links, shift):
            is_near = np.linalg.norm(other - shift, axis=1).max() < least
            follows_flow = self.profile.motion.follows_flow
            if not is_near and (follows_flow or predicts_better(links, other, shift)):
                yield replace(pair.flow, shift=other)

    def _estimate_flow(
        self,
        frame: int,
        previous: Flow | None = None,
        known_moves: EventTable | None = None,
    ) -> tuple[Detections, Detections, Flow]:
        """Two frames, and the flow between them."""
        motion = self.profile.motion
        *earlier, a, b = map(self.source.detections, self.frames_of_pair(frame))
        if previous is None and earlier:
            previous = estimate_flow(earlier[0], a, motion)
        known = None
        if known_moves is not None:
            known = np.full(len(a), -1)
            known[a.rows(known_moves.sources[:, 0])] = b.rows(known_moves.targets[:, 0])
        return a, b, estimate_flow(a, b, motion, previous, known)
