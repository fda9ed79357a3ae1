"""One frame pair solved at once, here in the server, so that an answer shows without waiting for the worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.frame_pair_cache import KeptPairs
from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.solve import SolvedPair, solve


@dataclass(frozen=True)
class Weights:
    """What was learned last."""

    version: int
    values: Array


def with_answer(here: Annotations, answer: Answer) -> Annotations:
    """The annotations of a frame pair as they are after an answer that replaces what it contradicts."""
    new, events = EventTable.of([answer.fact]), here.events
    clashes = events.row_keys() == new.row_keys()
    if answer.happened:
        shared = np.isin(events.sources, answer.sources) | np.isin(
            events.targets, answer.targets
        )
        clashes |= here.happened & shared.any(axis=1)
    kept = here[~clashes]
    return Annotations.of(
        EventTable.join([kept.events, new]), [*kept.happened.tolist(), answer.happened]
    )


def pairwise(answer: Answer) -> list[Answer]:
    """An answer as frame pairs see it: of a gap, that the cell disappears before it and appears after it."""
    if answer.event is not Event.GAP or not answer.happened:
        return [answer]
    before = Answer.of(answer.frame, Event.DISAPPEAR, answer.sources, ())
    return [before, Answer.of(answer.frame + 1, Event.APPEAR, (), answer.targets)]


class Predictor:
    """The present weights and what they predict of each frame pair; several threads may ask at once."""

    def __init__(self, pairs: Pairs, weights: Weights, kept_candidates: int) -> None:
        self.n_pairs, self._kept_candidates = len(pairs), kept_candidates
        self.begin(pairs, weights)

    def begin(self, pairs: Pairs, weights: Weights) -> None:
        """Go on with weights of another beginning, which may be of other features."""
        self.solved: dict[int, SolvedPair] = {}
        """The latest prediction of each frame pair that there is one of, by its first frame."""
        self.groups, self.events = pairs.groups, pairs.events
        self._first, self._usual = weights.version, 0.0
        # one value, since other threads may be solving: features and weights belong together
        self._now = weights, KeptPairs(pairs, self._kept_candidates)

    @property
    def weights(self) -> Weights:
        """What was learned last."""
        return self._now[0]

    @weights.setter
    def weights(self, weights: Weights) -> None:
        if self.weights.version == self._first:
            self._usual = self._usual_margin()
        self._now = weights, self.kept
        # until they are renewed, predictions of earlier weights stand beside others: one scale for all of them
        unit = float(np.linalg.norm(weights.values))
        self.solved = {frame: one.in_unit(unit) for frame, one in self.solved.items()}

    @property
    def margin_scale(self) -> float:
        """What makes the usual margin of this movie the one by the weights that it began with.

        Probabilities are calibrated for margins in norms of the generic weights. What is learned adds to the norm of
        weights where it adds little to margins, and the other way round, so that all events of a movie would become
        more doubtful, or less, by learning about a few.
        """
        return self._usual / (self._usual_margin() or 1.0) if self._usual else 1.0

    def _usual_margin(self) -> float:
        """The median margin of the events that nobody answered, in norms of the weights; 0 before any is predicted."""
        solved = list(self.solved.values())  # at once, for other threads add to it
        margins = np.concatenate(
            [np.zeros(0), *(one.confidence / (one.unit or 1.0) for one in solved)]
        )
        margins = margins[np.isfinite(margins)]
        return float(np.median(margins)) if len(margins) else 0.0

    @property
    def kept(self) -> KeptPairs:
        """The frame pairs of the movie as it is now."""
        return self._now[1]

    def use_events(self, events: frozenset[Event]) -> None:
        """Let other kinds of events happen from now on; all predictions are to be made anew."""
        self.events, self.solved = events, {}
        weights, kept = self._now
        self._now = weights, KeptPairs(replace(kept.pairs, events=events), kept.limit)

    def edited(self, source: Source, frames: Collection[int]) -> KeptPairs:
        """The frame pairs as they are when the cells of some are others; see `use_pairs`."""
        return self.kept.edited(source, frames)

    def use_pairs(self, kept: KeptPairs, frames: Collection[int]) -> None:
        """Go on with pairs of which some are others; what was predicted of these is dropped."""
        self._now = self.weights, kept
        self.solved = {
            frame: solved
            for frame, solved in self.solved.items()
            if frame not in frames
        }

    def solve(
        self, frame: int, here: Annotations, kept: KeptPairs | None = None
    ) -> SolvedPair:
        """The best events of a frame pair that agree with its annotations `here`; see `model.solve`.

        Confidences of events that were predicted before are renewed by the worker soon. `kept` are other pairs than
        the present ones.
        """
        weights, present = self._now
        try:
            pair = (kept or present).told(frame, here)
            before = self.solved.get(frame) if kept is None else None
            solved = solve(pair, weights.values, here, before, weights.version)
        except InfeasibleAnnotation as error:
            raise InfeasibleAnnotation(
                f"from frame {frame} to {frame + 1}, no assignment would be left in which every cell has one fate and "
                "one history; take back something that was denied there",
                frame,
            ) from error
        return solved.without_candidates()

    def current(self, frame: int, here: Annotations) -> SolvedPair:
        """The latest prediction, if it agrees with the annotations and follows from the present weights, else one."""
        known = self.solved.get(frame)
        if (
            known is None
            or known.key != here.content_key()
            or known.version < self.weights.version
        ):
            return self.solve(frame, here)
        return known

    def take(
        self, pairs: Iterable[SolvedPair], annotations: Annotations
    ) -> list[SolvedPair]:
        """Keep predictions that agree with the annotations, and tell which: others were answered about meanwhile."""
        agreeing = [
            one
            for one in pairs
            if one.key == annotations.select_frame(one.frame).content_key()
        ]
        self.solved |= {one.frame: one for one in agreeing}
        return agreeing

    def all_current(self, annotations: Annotations) -> list[SolvedPair]:
        """Predictions of the whole movie by the present weights; what is missing or old is solved here."""
        return [
            self.current(frame, annotations.select_frame(frame))
            for frame in range(self.n_pairs)
        ]

    def counts(self) -> dict[str, int]:
        """How many events of each kind are predicted."""
        counts = np.zeros(len(Event), dtype=int)
        for one in self.solved.values():
            counts += np.bincount(one.events.event, minlength=len(Event))
        return {str(event): int(counts[event]) for event in Event}
