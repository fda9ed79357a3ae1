"""Frame pairs: two consecutive frames with their candidate events and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import Assignment, assign
from clew.tracking.candidates.candidates import Candidates, find_candidates
from clew.tracking.candidates.features import assemble_matrix, compute_feature_blocks
from clew.tracking.detections import Detections, Source, take_window
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.flow import Flow, estimate_flow, shift_detections
from clew.tracking.flow.nearest_points import find_mutual_nearest
from clew.tracking.scales import ball_volume
from clew.tracking.user_columns import SourceWithColumns

if TYPE_CHECKING:
    from clew.tracking.profile import MovieProfile


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


@dataclass(frozen=True)
class FramePairBuilder:
    """Builds the frame pairs of one movie on demand."""

    source: Source
    profile: MovieProfile

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
        moved_a = shift_detections(a, flow.shift)
        overlap = self.source.overlap(frame, flow.shift)
        links = None
        if isinstance(self.source, SourceWithColumns):
            links = self.source.find_links(a, b)

        def find_with(extra: EventTable | None) -> Candidates:
            return find_candidates(
                moved_a,
                b,
                reach=profile.reach,
                neighbours=profile.neighbours,
                overlap=overlap,
                links=links,
                events=profile.events,
                extra=extra,
            )

        n_added = 0
        chosen = find_with(None)
        if annotated is not None and len(annotated):
            n_added = int((chosen.find(annotated, a, b) < 0).sum())
            chosen = find_with(annotated) if n_added else chosen
        blocks = compute_feature_blocks(
            chosen, moved_a, b, overlap, profile.scales, profile.groups, links
        )
        tables = [table for table in (annotated, corrections) if table is not None]
        return FramePair(
            a,
            b,
            chosen,
            blocks,
            profile,
            flow,
            key=b"".join(table.row_keys().tobytes() for table in tables),
            n_added=n_added,
            is_flow_corrected=corrections is not None,
        )

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
